"""Values as Python source that can be pasted, with the imports that it needs."""

import enum
import functools
import inspect
import math
from pathlib import PurePath
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor

from ...core.record import is_record

DEFAULTS = (torch.float32, torch.bool, torch.int64)


class Writer:
    """Writes values as source, and collects the import lines in `imports`."""

    def __init__(self) -> None:
        self.imports: set[str] = set()

    def write(self, value: Any) -> str:
        """Return the source of a value: numbers exact, tensors, arrays, records, attrs objects, functions and classes."""
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, (np.ndarray, np.generic)):
            return self._array(np.asarray(value))
        if isinstance(value, enum.Enum):
            return f"{self.name(type(value))}.{value.name}"
        if is_record(value) or (attrs.has(type(value)) and not isinstance(value, type)):
            return self._object(value)
        if isinstance(value, (list, tuple, set, frozenset, dict)):
            return self._collection(value)
        if isinstance(value, float):
            return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
        if isinstance(value, PurePath):
            self.imports.add("from pathlib import Path")
            return f"Path({str(value)!r})"
        if isinstance(value, functools.partial):
            return self._partial(value)
        if isinstance(value, (torch.dtype, torch.device)):
            self.imports.add("import torch")
            return repr(value) if isinstance(value, torch.dtype) else f"torch.{value!r}"
        if inspect.isroutine(value) or isinstance(value, type):
            return self.name(value)
        return repr(value)

    def name(self, value: Any) -> str:
        """Return the name of a class or function of a module, and import it."""
        module, name = getattr(value, "__module__", None), str(getattr(value, "__qualname__", type(value).__name__))
        if module and module != "builtins" and "<" not in name:
            self.imports.add(f"from {module} import {name.partition('.')[0]}")
        return name

    def _numbers(self, value: Any) -> str:
        """Return nested lists of numbers; words for NaN and infinity, which are no literals."""
        if isinstance(value, list):
            return f"[{', '.join(self._numbers(x) for x in value)}]"
        return self.write(value)

    def _tensor(self, value: Tensor) -> str:
        self.imports.add("import torch")
        end = ".requires_grad_()" if value.requires_grad else ""
        if value.numel() == 0:
            plain = "" if value.dtype == torch.float32 else f", dtype={value.dtype}"
            return f"torch.zeros({tuple(value.shape)}{plain}){end}"
        plain = "" if value.dtype in DEFAULTS else f", dtype={value.dtype}"
        return f"torch.tensor({self._numbers(value.detach().cpu().tolist())}{plain}){end}"

    def _array(self, value: Any) -> str:
        self.imports.add("import numpy as np")
        if value.size == 0:
            return f"np.zeros({value.shape}, dtype=np.{value.dtype})"
        plain = "" if value.dtype in (np.float64, np.int64, np.bool_) else f", dtype=np.{value.dtype}"
        return f"np.array({self._numbers(value.tolist())}{plain})"

    def _object(self, value: Any) -> str:
        fields = [f for f in attrs.fields(type(value)) if f.init]
        inside = ", ".join(f"{f.alias or f.name}={self.write(getattr(value, f.name))}" for f in fields)
        return f"{self.name(type(value))}({inside})"

    def _partial(self, value: Any) -> str:
        self.imports.add("from functools import partial")
        words = [f"{name}={self.write(x)}" for name, x in value.keywords.items()]
        return f"partial({', '.join([self.write(value.func), *(self.write(x) for x in value.args), *words])})"

    def _collection(self, value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.write(key)}: {self.write(item)}" for key, item in value.items()) + "}"
        inside = ", ".join(self.write(item) for item in value)
        if isinstance(value, (set, frozenset)):
            return f"{type(value).__name__}([{inside}])"
        if isinstance(value, list):
            return f"[{inside}]"
        if hasattr(value, "_fields"):
            return f"{self.name(type(value))}({inside})"
        return f"({inside},)" if len(value) == 1 else f"({inside})"


def source(value: Any) -> tuple[str, tuple[str, ...]]:
    """Return the source of a value and the import lines that it needs.

    >>> source({"a": torch.tensor([0.5, torch.nan])})
    ("{'a': torch.tensor([0.5, float('nan')])}", ('import torch',))
    """
    writer = Writer()
    text = writer.write(value)
    return text, tuple(sorted(writer.imports))


def render(value: Any) -> str:
    """Return Python source of a value, tensors and records included.

    >>> render((1, torch.tensor([0.5])))
    '(1, torch.tensor([0.5]))'
    """
    return source(value)[0]
