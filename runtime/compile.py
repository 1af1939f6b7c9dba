"""Compiled programs: one explicit compilation for each signature, counted, timed, kept on disk; never a silent second one.

A `Program` compiles ahead of time, so nothing is guarded at a call: it compares structure, shapes and dtypes itself. Values
that the function closes over are constants of the composition, which is why every composition is a program of its own.
"""

import contextlib
import hashlib
import time
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, cast

import torch
import torch._inductor.config as inductor
import torch.utils._pytree as pytree
from attrs import define, field
from torch import Tensor
from torch._dynamo.exc import TorchDynamoException

from ..core.errors import RecompileError, message
from ..core.tree import leaf_names
from .diverged import AFTERWARDS
from .effects.toolchain import hurried
from .effects.untraceable import quiet, untraceable
from .loops import borrowing_loops

P = ParamSpec("P")
R = TypeVar("R")
OPERATOR = "torch.ops.higher_order.scan"


@contextlib.contextmanager
def settings(cpp_wrapper: bool) -> Iterator[None]:
    """The compiler's options for scans: a loop in C++ instead of Python, and artefacts of scans that may be cached.

    The loop's own C++ is built apart from the kernels, without the optimiser's passes that only kernels need (measured: 17
    instead of 57 seconds of the C++ compiler for a PPO program).
    """
    cacheable = {**inductor.unsafe_marked_cacheable_functions, OPERATOR: torch.__version__}
    options = {
        "cpp_wrapper": cpp_wrapper,
        "cpp_wrapper_build_separate": True,
        "unsafe_marked_cacheable_functions": cacheable,
    }
    with inductor.patch({name: value for name, value in options.items() if hasattr(inductor, name)}), borrowing_loops():
        yield


@define
class Program(Generic[P, R]):
    """A function of trees of tensors, compiled on its first call for each signature.

    `seconds` lists what each compilation (or load) took. Once `settle` was called a new signature raises RecompileError.
    """

    name: str
    function: Callable[P, R]
    artefact: Path | None  # where the compiled form of the first signature is kept
    backend: str
    seconds: list[float] = field(factory=list)
    loaded: bool = False  # whether the artefact was found
    settled: bool = False
    _compiled: dict[Any, Any] = field(factory=dict)

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        leaves, structure = pytree.tree_flatten((arguments, named))
        signature = (structure, tuple(_description(leaf) for leaf in leaves))
        inputs = [_prepared(leaf) for leaf in leaves]
        if signature not in self._compiled:
            self._compile(signature, inputs, leaves)
        result = cast(R, self._compiled[signature](inputs))
        afterwards = getattr(self.function, AFTERWARDS, None)
        if afterwards is not None:
            afterwards(result)
        return result

    def settle(self) -> None:
        """From now on another compilation is an error."""
        self.settled = True

    def _compile(self, signature: Any, inputs: list[Any], leaves: list[Any]) -> None:
        if self.settled and self._compiled:
            what, got, wanted = _difference(next(iter(self._compiled)), signature)
            remedy = "keep structures, shapes and dtypes as they were in the warm-up"
            raise RecompileError(message(f"{self.name}: {what}", got=got, wanted=wanted, remedy=remedy))
        start = time.perf_counter()
        where = self.artefact if not self._compiled else None
        if where is not None and where.exists():
            made = _load(where, signature)
            self.loaded = made is not None
        else:
            made = None
        if made is None:
            try:
                made = _ahead_of_time(self.function, signature[0], leaves, inputs, self.backend)
            except TorchDynamoException as fault:
                raise untraceable(self.name, fault) from fault
            if where is not None:
                _save(made, where, signature)
        self._compiled[signature] = made
        self.seconds.append(time.perf_counter() - start)


def program(
    function: Callable[P, R], *, name: str = "", artefact: Path | None = None, backend: str = "inductor"
) -> Program[P, R]:
    """A program for `function`, which must compile as one graph.

    `artefact` is a file that keeps the compiled form between processes; its name must change with everything the function
    depends on (`fingerprint`). `backend` "aot_eager" traces without generating code, for tests.

    >>> double = program(lambda x: 2 * x, backend="aot_eager")
    >>> double(torch.ones(2)), len(double.seconds)
    (tensor([2., 2.]), 1)
    """
    return Program(
        name=name or getattr(function, "__name__", "program"), function=function, artefact=artefact, backend=backend
    )


def fingerprint(*parts: object) -> str:
    """A name for an artefact: a hash of torch, the processor, threads, purestep's own sources, and `parts` (their repr)."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for folder in ("core", "algorithms", "runtime"):
        for source in sorted((root / folder).rglob("*.py")):
            digest.update(source.read_bytes())
    facts = (torch.__version__, torch.backends.cpu.get_cpu_capability(), torch.get_num_threads(), *parts)
    digest.update(repr(facts).encode())
    return digest.hexdigest()[:32]


def _ahead_of_time(
    function: Callable[..., Any], structure: Any, leaves: list[Any], inputs: list[Any], backend: str
) -> Any:
    scalar = tuple(isinstance(leaf, Tensor) and leaf.ndim == 0 for leaf in leaves)

    def flat(inputs: list[Any]) -> Any:
        whole = [leaf.reshape(()) if one else leaf for leaf, one in zip(inputs, scalar, strict=True)]
        arguments, named = pytree.tree_unflatten(whole, structure)
        return function(*arguments, **named)

    own = types.FunctionType(flat.__code__.replace(), flat.__globals__, flat.__name__, None, flat.__closure__)
    options: dict[str, Any] = {"guard_filter_fn": lambda guards: [False for _ in guards]}
    on_gpu = any(isinstance(leaf, Tensor) and leaf.is_cuda for leaf in leaves)
    quick = hurried() if backend == "inductor" else contextlib.nullcontext()
    with settings(cpp_wrapper=not on_gpu), quick, quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own deprecations, which no caller can act on
        compiled = torch.compile(own, fullgraph=True, dynamic=False, backend=backend, options=options)
        return compiled.aot_compile(((inputs,), {}))  # type: ignore[attr-defined]


def _description(leaf: Any) -> Any:
    """What calls of one compiled form have in common; other values than tensors count with their type: 1 == 1.0 == True."""
    return (tuple(leaf.shape), leaf.dtype, leaf.device) if isinstance(leaf, Tensor) else (type(leaf).__name__, leaf)


def _prepared(leaf: Any) -> Any:
    """A number without axes goes in with one: the compiler takes the others for Python numbers and traces twice."""
    if not isinstance(leaf, Tensor):
        return leaf
    return leaf.reshape(1) if leaf.ndim == 0 else leaf.contiguous()


def _difference(known: Any, signature: Any) -> tuple[str, str, str]:
    """What differs first: its name, what it is now, what it was."""
    if known[0] != signature[0]:
        return "the arguments' structure", "another", "that of the first call"
    arguments, named = pytree.tree_unflatten(list(range(len(signature[1]))), signature[0])
    names = [f"argument {name}" for tree in (list(arguments), named) for name in leaf_names(tree)]
    pairs = zip(names, known[1], signature[1], strict=True)
    return next((name, _words(new), _words(old)) for name, old, new in pairs if old != new)


def _words(description: Any) -> str:
    first, *rest = description
    return " ".join(map(str, (list(first) if isinstance(first, tuple) else first, *rest)))


def _mark(signature: Any) -> bytes:
    """What an artefact begins with: the compiled form itself would take any arguments, and give nonsense for others."""
    return hashlib.sha256(repr(signature).encode()).digest()


def _save(made: Any, where: Path, signature: Any) -> None:
    """Keeps the compiled form, or says why it cannot be kept: an artefact spares time, and no run depends on it."""
    where.parent.mkdir(parents=True, exist_ok=True)
    beside = where.with_suffix(f".{time.time_ns()}")
    try:
        made.save_compiled_function(str(beside))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        warnings.warn(f"compiled form {where.name} cannot be kept, so others compile it anew ({reason})", stacklevel=2)
        return
    beside.write_bytes(_mark(signature) + beside.read_bytes())
    beside.replace(where)


def _load(where: Path, signature: Any) -> Any:
    """The compiled form, or None when the file is damaged or holds that of other arguments: then it is made anew."""
    mark = _mark(signature)
    try:
        with warnings.catch_warnings(), where.open("rb") as file:
            warnings.simplefilter("ignore")
            if file.read(len(mark)) == mark:
                return torch.compiler.load_compiled_function(file)
            reason = "not of these arguments"
    except Exception as error:
        reason = type(error).__name__
    warnings.warn(f"compiled form {where.name} is unusable ({reason}); compiling again", stacklevel=2)
    return None
