"""Trees of tensors in a file of their own, for inspection: no run resumes from it."""

from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from ....core.tree import leaf_names, leaves
from .atomic_files import read_bytes, write_whole


def write_tensors(path: Path, tree: Any) -> Path:
    """Write the leaves under their dotted names, as safetensors; return the path.

    >>> from tempfile import TemporaryDirectory
    >>> import torch
    >>> with TemporaryDirectory() as folder:
    ...     sorted(read_tensors(write_tensors(Path(folder) / "x.safetensors", {"a": torch.ones(2)})))
    ['a']
    """
    named = zip(leaf_names(tree), leaves(tree), strict=True)
    copies = {name: leaf.detach().cpu().contiguous().clone() for name, leaf in named}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, safetensors.torch.save(copies))
    return path


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors in a file, by name."""
    return safetensors.torch.load(read_bytes(path))
