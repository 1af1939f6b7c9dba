"""What makes a compilation shorter without changing what it gives: no waiting for the C++ compiler, no search for garbage."""

import contextlib
import gc
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import torch._inductor.codecache as codecache
from torch._inductor.cpu_vec_isa import pick_vec_isa


@contextlib.contextmanager
def hurried() -> Iterator[None]:
    """While this holds, the C++ compiler works on a program's loop and kernels side by side, and Python keeps its garbage.

    What the processor can do is found out meanwhile, by some C++ of its own, while Python still traces. The compiler makes
    millions of objects that live until it ends; looking through them again and again is a tenth of its time.
    """
    threading.Thread(target=pick_vec_isa, daemon=True).start()
    collects = gc.isenabled()
    gc.disable()
    try:
        if hasattr(codecache, "_worker_compile_cpp"):
            with mock.patch.object(codecache, "_worker_compile_cpp", _side_by_side):
                yield
        else:
            yield
    finally:
        if collects:
            gc.enable()


def _side_by_side(lock_path: str, builders: Sequence[Any]) -> None:
    """The last builder links what the others make."""
    from torch.utils._filelock import FileLock

    def build(builder: Any) -> None:
        if not Path(builder.get_target_file_path()).exists():
            builder.build()

    *parts, last = builders
    with FileLock(lock_path, timeout=codecache.LOCK_TIMEOUT):
        if not Path(last.get_target_file_path()).exists():
            with ThreadPoolExecutor() as pool:
                list(pool.map(build, parts))
            build(last)
