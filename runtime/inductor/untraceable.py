"""Errors of one line for code that could not be compiled: the construct, the user's file and line, the remedy."""

import ast
import contextlib
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import torch
import torch._inductor.config as inductor
from torch._dynamo.exc import BackendCompilerFailed, TorchDynamoException
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.exc import CppCompileError, InvalidCxxCompiler

from ...core import errors
from ...core.errors import CompileError, PurestepError, message

OWN = Path(__file__).parents[2]
WHERE = "torch.where, scan and vmap in place of Python's own if, while and for on tensors"
REMEDIES = {
    "a Python branch on a tensor": f"take {WHERE}",
    "`print`": "return what you want to see as an output, or run it uncompiled",
}
UNCOMPILED = 'or do without it (slower): --backend none, from Python backend="none"'
RAISED = re.compile(r"raised exception (\w+)\((.*)\)\s*$", re.MULTILINE)
BUILTIN = re.compile(r"builtin operator `(\w+)`")
FUNCTION = re.compile(r"trace the builtin `([\w.]+?)\.?`")
FAILED = re.compile(r"got (\w+\(.*\))\s*$", re.MULTILINE)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress the compiler's log of an operation that fails, because its error is raised as well."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def check_cpp_compiler(name: str) -> None:
    """Raise CompileError if there is no C++ compiler, before the program of this name is traced, which takes longer."""
    try:
        get_cpp_compiler()
    except (InvalidCxxCompiler, OSError):
        named = inductor.cpp.cxx
        got = f"absent: {named if isinstance(named, str) else named[-1]!r} does not run"
        remedy = f"install one, e.g. apt install g++, or name one in CXX, {UNCOMPILED}"
        raise CompileError(message(f"{name}: the C++ compiler", got=got, wanted="one", remedy=remedy)) from None


def untraceable(name: str, fault: Exception) -> PurestepError:
    """Return the error to raise in place of the compiler's own: a PurestepError raised in the function, or a CompileError.

    >>> str(untraceable("double", ValueError("first line")))
    'double is ValueError: first line, wanted a function that compiles as one graph; run it uncompiled to see where it fails'
    """
    text = str(fault)
    ours = _ours(text)
    if ours is not None:
        return ours
    inner = getattr(fault, "inner_exception", None)
    if isinstance(inner, CppCompileError):
        got = f"failing: {_first_error(inner.output)}"
        remedy = f"repair it, or name another in CXX, {UNCOMPILED}"
        return CompileError(message(f"{name}: the C++ compiler", got=got, wanted="one that works", remedy=remedy))
    got, place = _construct(fault, text), _place(fault)
    remedy = REMEDIES.get(got, "use tensor operations only, or keep it out of what is compiled")
    if not isinstance(fault, TorchDynamoException) or isinstance(fault, BackendCompilerFailed):
        remedy = "run it uncompiled to see where it fails"
    where = f"{name}: {place}" if place else name
    return CompileError(message(where, got=got, wanted="a function that compiles as one graph", remedy=remedy))


def _first_error(output: str) -> str:
    """Return the first line of a compiler's output that reports an error; without one, its last line.

    >>> _first_error("In file a.cpp:\\na.cpp:1:2: fatal error: no b.h\\ncompilation terminated.")
    'a.cpp:1:2: fatal error: no b.h'
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["no output"]
    return next((line for line in lines if "error" in line.lower()), lines[-1])[:200]


def _ours(text: str) -> PurestepError | None:
    """Return the PurestepError that the traced function raised, as it would have been raised uncompiled; None if it did not."""
    found = RAISED.search(text)
    kind = getattr(errors, found[1], None) if found else None
    if found is None or not isinstance(kind, type) or not issubclass(kind, PurestepError):
        return None
    try:
        return kind(str(ast.literal_eval(found[2])))
    except (ValueError, SyntaxError):
        return None


def _construct(fault: Exception, text: str) -> str:
    if "ata-dependent branching" in text:
        return "a Python branch on a tensor"
    for pattern, shown in ((BUILTIN, "`{}`"), (FUNCTION, "`{}`"), (RAISED, "{}"), (FAILED, "{}")):
        found = pattern.search(text)
        if found:
            whole = f"{found[1]}: {found[2]}" if pattern is RAISED else found[1]
            return shown.format(whole)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return first if isinstance(fault, TorchDynamoException) else f"{type(fault).__name__}: {first}"


def _place(fault: Exception) -> str:
    """Return the innermost line of the user's own code, or of ours if there is none."""
    frames = [frame for frame in getattr(fault, "real_stack", None) or () if not _foreign(frame.filename)]
    theirs = [frame for frame in frames if not Path(frame.filename).is_relative_to(OWN)]
    chosen = (theirs or frames)[-1:]
    return f"{chosen[0].filename}:{chosen[0].lineno}" if chosen else ""


def _foreign(file: str) -> bool:
    return file.startswith("<") or "site-packages" in file or Path(file).is_relative_to(Path(torch.__file__).parent)
