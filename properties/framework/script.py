"""A counterexample as a script that runs without purestep: imports, calls of the subject with values, got and wanted."""

import copy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import torch.utils._pytree as pytree
from attrs import frozen
from torch import Tensor

from .calling import called_with
from .law import Broken, Law, Seen
from .source import Writer

MOST = 4  # calls that a script repeats


@frozen
class RecordedCall:
    """One call of a subject's function, and its result or error."""

    function: Any
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    result: Any


class Recorder:
    """A function that records its calls in `calls`; names and attributes are those of the function."""

    def __init__(self, function: Callable[..., Any], calls: list[RecordedCall]) -> None:
        self.function, self.calls = function, calls
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function with the arguments; record copies of them."""
        given, words = pytree.tree_map_only(Tensor, lambda x: x.detach().clone(), (arguments, named))
        given, words = copy.deepcopy((given, words))
        try:
            result = self.function(*arguments, **named)
        except Exception as error:
            self.calls.append(RecordedCall(self.function, given, words, error))
            raise
        kept = pytree.tree_map_only(Tensor, lambda x: x.detach().clone(), result)
        self.calls.append(RecordedCall(self.function, given, words, kept))
        return result


def record_calls(subject: Any, calls: list[RecordedCall]) -> Any:
    """Return the subject with its functions recorded: a function, a bound one, or the fields of an attrs object."""
    if hasattr(subject, "with_function"):
        return subject.with_function(record_calls(subject.function, calls))
    if attrs.has(type(subject)) and not isinstance(subject, type) and not callable(subject):
        parts = {f.alias or f.name: getattr(subject, f.name) for f in attrs.fields(type(subject)) if f.init}
        made = {name: Recorder(part, calls) for name, part in parts.items() if callable(part)}
        return attrs.evolve(subject, **made)
    return Recorder(subject, calls)


def importable(function: Any) -> bool:
    """Return whether a script can import the function: it is at the top of a module outside purestep and `__main__`."""
    module, name = getattr(function, "__module__", "") or "", getattr(function, "__qualname__", "<")
    found = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return bool(module) and module != "__main__" and found is function


def script_of(law: Law, subject: Any, way: str, inputs: Any, detail: str) -> str:
    """Return the script of a counterexample; "" if the subject cannot be imported or the fault does not show in its calls."""
    calls: list[RecordedCall] = []
    try:
        own = record_calls(subject, calls)
        law.check(law.prepare(called_with(way, own) if way else own), copy.deepcopy(inputs), Seen())
    except Broken as broken:
        found: Exception | None = broken
    except Exception as error:
        found = error
    else:
        return ""
    if not calls or not all(importable(call.function) for call in calls):
        return ""
    return _written(law, calls, found, detail)


def _path_lines(function: Any) -> list[str]:
    """Return the lines that make a module importable that was loaded from a folder other than site-packages."""
    file = getattr(sys.modules.get(function.__module__), "__file__", None)
    if not file or "site-packages" in file or f"lib{Path('/')}python" in file:
        return []
    folder = Path(file).resolve().parents[function.__module__.count(".") + (Path(file).name == "__init__.py")]
    return ["import sys", f"sys.path.insert(0, {str(folder)!r})"]


def _written(law: Law, calls: list[RecordedCall], found: Exception | None, detail: str) -> str:
    writer, body = Writer(), []
    got, wanted = getattr(found, "got", None), getattr(found, "wanted", None)
    shown = calls[-MOST:]
    match = next((i for i, call in enumerate(shown) if _equal(call.result, got)), None)
    if match is not None:
        shown = [shown[match]]
    for i, call in enumerate(shown):
        words = [writer.write(x) for x in call.arguments] + [f"{k}={writer.write(x)}" for k, x in call.named.items()]
        name = "got" if match is not None or len(shown) == 1 else f"result_{i}"
        body += [f"{name} = {writer.name(call.function)}({', '.join(words)})", f'print("{name}", {name})']
        if isinstance(call.result, Exception):
            body[-2:] = [body[-2], f"# raises {type(call.result).__name__}: {' '.join(str(call.result).split())[:200]}"]
    if match is not None and wanted is not None:
        body += [f"wanted = {writer.write(wanted)}", 'print("wanted", wanted)']
    body += [f"# {detail}", f"# the law {law.name}: {law.claim}"]
    imports = sorted(writer.imports)
    return "\n".join([*_path_lines(shown[0].function), *imports, *body])


def _equal(result: Any, got: Any) -> bool:
    from .calling import as_tensors

    if got is None or isinstance(result, Exception) or not isinstance(got, Tensor):
        return False
    made = as_tensors(result, got.dtype)
    if not isinstance(made, Tensor) or made.shape != got.shape or made.dtype != got.dtype:
        return False
    return bool(((made == got) | (made != made) & (got != got)).all())
