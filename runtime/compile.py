"""Compiled programs: one explicit compilation for each signature, counted, timed, kept on disk; never a silent second one.

A `Program` compiles ahead of time, so nothing is guarded at a call: it compares structure, shapes and dtypes itself. Values
that the function closes over are constants of the composition, which is why every composition is a program of its own.
On a GPU it compiles in its first call, keeps nothing on disk, and guards nothing either.
"""

import hashlib
import hmac
import io
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, cast

import torch
import torch.utils._pytree as pytree
from attrs import define, field, frozen
from torch import Tensor

from ..core.errors import ChoiceError, RecompileError, ShapeError, message
from ..core.tree import leaf_names
from .files.cache_folder import cache_directory
from .files.reading import read_bounded
from .files.reading import reason as why
from .files.secret import NAME as SECRET
from .files.secret import secret_in
from .identity import AFTERWARDS, UnknownError, identity
from .inductor import direct_library

P = ParamSpec("P")
R = TypeVar("R")


@define
class Program(Generic[P, R]):
    """A function of trees of tensors, compiled on its first call for each signature.

    `seconds` lists the time of each compilation (or load). After a call of `settle` a new signature raises RecompileError.
    """

    name: str
    function: Callable[P, R]
    artefact: Path | None  # where the compiled form of the first signature is kept
    backend: str
    donate: tuple[int, ...] = ()  # see `program`
    seconds: list[float] = field(factory=list)
    loaded: bool = False  # whether the artefact was found
    reason: str = ""  # for the compiler's usual, longer way, where the direct one could not be taken
    settled: bool = False
    _compiled: dict[Any, Any] = field(factory=dict)

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        leaves, structure = pytree.tree_flatten((arguments, named))
        signature = (structure, tuple(_description(leaf) for leaf in leaves))
        inputs = [_prepared(leaf) for leaf in leaves]
        if signature not in self._compiled:
            self._compile(signature, inputs, leaves, self._donated(arguments, leaves))
        result = cast(R, self._compiled[signature](inputs))
        afterwards = getattr(self.function, AFTERWARDS, None)
        if afterwards is not None:
            afterwards(result, *arguments, **named)
        return result

    def settle(self) -> None:
        """Make every later compilation an error."""
        self.settled = True

    def _donated(self, arguments: Sequence[Any], leaves: list[Any]) -> frozenset[int]:
        """Return the positions of leaves whose memory a result may take."""
        if not all(0 <= place < len(arguments) for place in self.donate):
            remedy = "name arguments that are passed by position"
            wanted = f"positions below {len(arguments)}"
            raise ChoiceError(message(f"{self.name}: donate", got=self.donate, wanted=wanted, remedy=remedy))
        counts = [len(pytree.tree_leaves(one)) for one in arguments]
        places = (sum(counts[:one]) + k for one in self.donate for k in range(counts[one]))
        return frozenset(place for place in places if isinstance(leaves[place], Tensor) and leaves[place].ndim)

    def _compile(self, signature: Any, inputs: list[Any], leaves: list[Any], donated: frozenset[int]) -> None:
        _check_not_given_up(self.name, self._compiled, signature, donated)
        if self.settled and self._compiled:
            what, got, wanted = _difference(next(iter(self._compiled)), signature)
            remedy = "keep structures, shapes and dtypes as they were in the warm-up"
            raise RecompileError(message(f"{self.name}: {what}", got=got, wanted=wanted, remedy=remedy))
        if self.backend == "none":
            self._compiled[signature] = _plain(self.function, signature[0], leaves)
            return
        start = time.perf_counter()
        keeps = self.artefact is not None and not self._compiled and not _on_gpu(leaves)
        seal = _sealed(self, signature) if keeps else None
        made = _load(self.artefact, seal) if seal and self.artefact and self.artefact.exists() else None
        self.loaded = self.loaded or made is not None
        if made is None:
            from .inductor.ahead_of_time import compiled  # here: a program that is loaded needs no compiler

            plain = _plain(self.function, signature[0], leaves)
            gpu = _on_gpu(leaves)
            made, self.reason = compiled(
                self.name, plain, _distinct(inputs), self.backend, on_gpu=gpu, mark=_compiler(), donated=donated
            )
            if seal and self.artefact:
                _save(made, self.artefact, seal)
        self._compiled[signature] = made
        self.seconds.append(time.perf_counter() - start)


def program(
    function: Callable[P, R],
    *,
    name: str = "",
    artefact: Path | None = None,
    backend: str = "inductor",
    donate: tuple[int, ...] = (),
) -> Program[P, R]:
    """Return a program for `function`, which must compile as one graph.

    `artefact` is a file that keeps the compiled form between processes. It is used only where this user has written it, for
    the same function (code, constants, closure) and arguments of the same shapes; else it is replaced. A function whose
    identity cannot be determined is compiled anew in each process, with a warning. `backend` "aot_eager" traces without
    generating code, for tests; "none" calls the function as it is.

    `donate` are the positions of arguments that a call gives up: their memory becomes the result's where it can, so that a
    large buffer of which a call writes a few rows is not copied. The caller must not use these tensors afterwards: they are
    empty, or unchanged where their memory was not taken (another argument or a tensor that the function closes over shares it,
    they are parts of larger ones or results themselves, another backend or device compiles the function). The results are the
    same in any case.

    >>> double = program(lambda x: 2 * x, backend="aot_eager")
    >>> double(torch.ones(2)), len(double.seconds)
    (tensor([2., 2.]), 1)
    """
    return Program(
        name=name or getattr(function, "__name__", "program"),
        function=function,
        artefact=artefact,
        backend=backend,
        donate=donate,
    )


PHASES = (  # a part of a file's path, and the work that its functions do
    ("/inductor/direct_trace.py", "tracing"),
    ("/inductor/compile_speed.py", "building C++"),
    ("/torch/_inductor/", "generating code"),
    ("/torch/_functorch/", "lowering"),
    ("/torch/_dynamo/", "tracing"),
)


def phase(thread: int) -> str:
    """Return the work of the compiler in the thread of this identifier, "" where it does not compile.

    >>> phase(0)
    ''
    """
    frame = sys._current_frames().get(thread)
    while frame is not None:
        for part, work in PHASES:
            if part in frame.f_code.co_filename:
                return work
        frame = frame.f_back
    return ""


def artefact_name(function: Callable[..., Any], backend: str, *arguments: Any, donate: tuple[int, ...] = ()) -> str:
    """Return a name for the compiled form of `function` for arguments like these, before anything is traced.

    It is a hash of the function's identity, the compiler, and the arguments' structure, shapes and dtypes, so that all
    functions that differ in nothing else share one file. A function without an identity gets a name that no other has; its
    compiled form is not kept.

    >>> one, other = (artefact_name(lambda x: 2 * x, "none", torch.tensor(n)) for n in (1.0, 3.0))
    >>> one == other, one == artefact_name(lambda x: 2 * x, "none", torch.tensor(1))
    (True, False)
    """
    leaves, structure = pytree.tree_flatten((arguments, {}))
    signature = (structure, tuple(_description(leaf) for leaf in leaves))
    try:
        known = identity(function, backend, _compiler(), donate)
    except UnknownError:
        known = os.urandom(32)
    return hashlib.sha256(known + _mark(signature)).hexdigest()[:32]


def _mark(signature: Any) -> bytes:
    return hashlib.sha256(repr(signature).encode()).digest()


def _compiler() -> str:
    """Return a digest of the compiler: torch, the processor, threads, and purestep's own part of it."""
    return fingerprint(sources=("runtime/compile.py", "runtime/inductor"))


def fingerprint(*parts: object, sources: Sequence[str] = ("core", "algorithms", "runtime")) -> str:
    """Return a hash of torch, the processor, threads, purestep's `sources` (files or folders), and `parts` (their repr)."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for path in (root / one for one in sources):
        for source in sorted(path.rglob("*.py")) + sorted(path.rglob("*.h")) if path.is_dir() else [path]:
            digest.update(source.read_bytes())
    facts = (torch.__version__, torch.backends.cpu.get_cpu_capability(), torch.get_num_threads(), *parts)
    digest.update(repr(facts).encode())
    return digest.hexdigest()[:32]


def _on_gpu(leaves: list[Any]) -> bool:
    return any(isinstance(leaf, Tensor) and leaf.is_cuda for leaf in leaves)


def _description(leaf: Any) -> Any:
    """Return a leaf's part of the signature. A value that is no tensor counts with its type, because 1 == 1.0 == True."""
    return (tuple(leaf.shape), leaf.dtype, leaf.device) if isinstance(leaf, Tensor) else (type(leaf).__name__, leaf)


def _prepared(leaf: Any) -> Any:
    """Return a leaf as the compiler takes it: a tensor without axes gets one.

    Otherwise the compiler takes it for a Python number and traces twice.
    """
    if not isinstance(leaf, Tensor):
        return leaf
    return leaf.reshape(1) if leaf.ndim == 0 else leaf.contiguous()


def _distinct(inputs: Sequence[Any]) -> list[Any]:
    """Return inputs of which none is another: the compiler would take two arguments for one in every later call."""
    known = [id(leaf) for leaf in inputs]
    return [
        leaf.clone() if isinstance(leaf, Tensor) and known.index(id(leaf)) < place else leaf
        for place, leaf in enumerate(inputs)
    ]


def _check_not_given_up(name: str, known: dict[Any, Any], signature: Any, donated: frozenset[int]) -> None:
    """Raise ShapeError for a tensor that an earlier call of a program was given, and that is empty since."""
    for structure, described in known:
        for place in donated if structure == signature[0] else ():
            (shape, *_), (wanted, *_) = signature[1][place], described[place]
            if shape == (0,) and wanted != (0,):
                got = "an empty tensor, as one is that an earlier call was given"
                remedy = "pass the result of that call, or leave the argument out of `donate`"
                raise ShapeError(message(f"{name}: a donated argument", got=got, wanted=list(wanted), remedy=remedy))


def _difference(known: Any, signature: Any) -> tuple[str, str, str]:
    """Return the first difference between two signatures: its name, its new value, its old one."""
    if known[0] != signature[0]:
        return "the arguments' structure", "another", "that of the first call"
    arguments, named = pytree.tree_unflatten(list(range(len(signature[1]))), signature[0])
    names = [f"argument {name}" for tree in (list(arguments), named) for name in leaf_names(tree)]
    pairs = zip(names, known[1], signature[1], strict=True)
    return next((name, _words(new), _words(old)) for name, old, new in pairs if old != new)


def _words(description: Any) -> str:
    first, *rest = description
    return " ".join(map(str, (list(first) if isinstance(first, tuple) else first, *rest)))


def _plain(function: Callable[..., Any], structure: Any, leaves: list[Any]) -> Callable[[list[Any]], Any]:
    """Return the function itself, called with leaves that `_prepared` returned."""
    scalar = tuple(isinstance(leaf, Tensor) and leaf.ndim == 0 for leaf in leaves)

    def flat(inputs: list[Any]) -> Any:
        whole = [leaf.reshape(()) if one else leaf for leaf, one in zip(inputs, scalar, strict=True)]
        arguments, named = pytree.tree_unflatten(whole, structure)
        return function(*arguments, **named)

    flat.__dict__["__wrapped__"] = function  # an error names its lines
    return flat


@frozen
class Seal:
    """The head of an artefact: an HMAC under the user's secret, then digests of its arguments and its function."""

    secret: bytes
    mark: bytes  # digest of the arguments' signature: the compiled form does not check its arguments
    function: bytes  # see `identity`

    def digest(self, payload: bytes) -> bytes:
        """Return the HMAC over an artefact's bytes, its arguments and its function."""
        return hmac.digest(self.secret, self.mark + self.function + payload, "sha256")


def _sealed(program: "Program[Any, Any]", signature: Any) -> Seal | None:
    """Return the seal of a program for its first arguments; None, with a warning, where nothing can be kept."""
    cache = cache_directory()
    secret = secret_in(cache) if cache else None
    if secret is None:
        where = str(cache / SECRET) if cache else "the cache"
        _warn_unkept(program.name, f"{where} is no file of yours alone, with mode 600")
        return None
    try:
        function = identity(program.function, program.backend, _compiler(), program.donate)
    except UnknownError as unknown:
        _warn_unkept(program.name, str(unknown))
        return None
    return Seal(secret, _mark(signature), function)


def _warn_unkept(name: str, reason: str) -> None:
    warnings.warn(f"compiled form of {name} is not kept, so each process compiles it anew ({reason})", stacklevel=2)


def _save(made: Any, where: Path, seal: Seal) -> None:
    """Write the compiled form, or warn that it cannot be kept: an artefact saves time, and no run depends on it."""
    beside = where.with_name(f".{where.name}.{os.getpid()}.{time.time_ns()}")
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(made, direct_library.Library):
            payload = made.dump()
        else:
            made.save_compiled_function(str(beside))
            payload = beside.read_bytes()
        beside.write_bytes(seal.digest(payload) + seal.mark + seal.function + payload)
        beside.replace(where)
    except Exception as error:
        beside.unlink(missing_ok=True)
        reason = f"{type(error).__name__}: {error}"
        warnings.warn(f"compiled form {where.name} cannot be kept, so others compile it anew ({reason})", stacklevel=2)


def _load(where: Path, seal: Seal) -> Any:
    """Return the compiled form; None if the file is damaged, of another user, or for another function or arguments.

    Nothing of it is unpickled before its digest is verified.
    """
    try:
        data = read_bounded(where)
        digest, mark, function, payload = data[:32], data[32:64], data[64:96], data[96:]
        if not hmac.compare_digest(digest, hmac.digest(seal.secret, mark + function + payload, "sha256")):
            reason = "damaged, or not written by you"
        elif mark != seal.mark:
            reason = "not of these arguments"
        elif function != seal.function:
            reason = "of another function"
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if payload.startswith(direct_library.MAGIC):
                    return direct_library.load_library(payload, where.parent)
                from .inductor.ahead_of_time import keep_to_oneself

                keep_to_oneself()
                return torch.compiler.load_compiled_function(io.BytesIO(payload))
    except Exception as error:
        reason = why(error) if isinstance(error, OSError) else type(error).__name__
    warnings.warn(f"compiled form {where.name} is unusable ({reason}); compiling again", stacklevel=2)
    return None
