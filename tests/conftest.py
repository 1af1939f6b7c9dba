"""What every test shares: one thread, fixed draws, warnings as errors, and a compiler that starts each module afresh."""

import gc
import importlib
import inspect
import os
import signal
import threading
import types
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings

from purestep.properties.framework.law import Vacuous
from purestep.properties.framework.profiles import current_profile, named_profile, using
from purestep.runtime.files.cache_folder import cache_directory
from purestep.runtime.files.secret import private_folder

from .support.quick_draws import FEWER

# Tests with a cache of programs of their own share what the compiler keeps, its precompiled headers above all.
if (folder := cache_directory()) is not None:
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(private_folder(folder / "inductor")))

# The inductor backend imports this module at its first compilation, and its class bodies use decorators that torch itself
# has deprecated. Imported here, once, it needs no filter that could hide a warning of ours.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    importlib.import_module("torch.utils.mkldnn")

SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "quick", max_examples=10, derandomize=True, database=None, deadline=None, suppress_health_check=SLOW_IS_FINE
)
settings.register_profile("night", max_examples=2000, deadline=None, suppress_health_check=SLOW_IS_FINE)
settings.load_profile("quick")

QUICK = named_profile("quick")
ROOT = Path(__file__).parents[1]
Compiled = Callable[..., Callable[..., Any]]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage in what the imports make, and the rest more seldom: each collection would walk through all of it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000)
        gc.enable()


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Test laws on correct subjects with fewer draws than `quick` has, and with all of them where a law has seen too little."""
    if list(inspect.signature(pyfuncitem.obj).parameters) == ["law"] and current_profile() == QUICK:
        with suppress(Vacuous), using(FEWER):
            pyfuncitem.obj(pyfuncitem.funcargs["law"])
            return True
    return None


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """More threads than cores make small tensors many times slower, and the order of sums depends on their number."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def ctrl_c() -> None:
    """A shell that runs the tests in the background lets them ignore Ctrl-C, which some of them press."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module", autouse=True)
def fresh_compiler() -> Iterator[None]:
    """Graphs of one module must not fill another's recompilation limit or memory."""
    yield
    torch.compiler.reset()


@pytest.fixture(scope="session")
def compiled() -> Compiled:
    """`compiled(f, backend="aot_eager")`: `f` as one full graph, in a code object of its own.

    The compiler counts recompilations for each code object, so that a helper compiled for many cases would run out.
    """

    def make(function: Callable[..., Any], backend: str = "aot_eager") -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            return function(*arguments)

        own = types.FunctionType(call.__code__.replace(), call.__globals__, None, None, call.__closure__)
        result: Callable[..., Any] = torch.compile(own, fullgraph=True, dynamic=False, backend=backend)
        return result

    return make


@pytest.fixture(scope="module")
def benchmark() -> Iterator[Callable[[str], Any]]:
    """`benchmark(NAME)`: the module benchmarks.NAME."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        yield lambda name: importlib.import_module(f"benchmarks.{name}")
