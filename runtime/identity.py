"""The identity of a function: a digest of everything in Python that decides what it computes.

That is its bytecode with names and constants, its defaults, its closure, and the globals that its code names, all of
them recursively; of torch, the standard library and purestep's compiler the versions alone. A value that this module cannot
describe reliably is refused, so that two functions of one identity compute the same.
"""

import contextvars
import dataclasses
import dis
import enum
import functools
import hashlib
import importlib
import importlib.util
import os
import platform
import sys
import sysconfig
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from typing import Any, TypeVar, get_args, get_origin

import attrs
import torch
from attrs import define, field
from torch import Tensor

from ..core.errors import StructureError, message

PLAIN = (bool, int, str, bytes, complex, type(None), type(...), type(NotImplemented), range)
NAMED = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, slice)
OPEN = frozenset(("eval", "exec", "globals", "locals", "vars", "__import__", "compile", "open", "input", "breakpoint"))
APART = frozenset(  # attributes of a class without effect on what its instances compute; pickle adds __slotnames__
    ("__module__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__orig_bases__", "__parameters__")
).union(
    ("__attrs_attrs__", "__attrs_props__", "__match_args__", "__abstractmethods__", "_abc_impl"),
    ("__slots__", "__slotnames__"),
)
OF_FIELDS = ("init", "alias", "default", "converter", "validator", "on_setattr", "eq", "hash")
BUILT_IN = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType)
ROOTS = tuple(os.path.join(os.path.realpath(sysconfig.get_paths()[name]), "") for name in ("stdlib", "platstdlib"))
AFTERWARDS = "afterwards"  # a function's attribute: called by its program with each result, outside the graph
LIBRARIES = ("torch", "attr", "attrs", "tensordict")  # of which the versions count; the last takes a second to import
FOLDERS = tuple(
    os.path.join(os.path.dirname(os.path.realpath(str(spec.origin))), "")
    for spec in map(importlib.util.find_spec, LIBRARIES)
    if spec is not None
)
GENERATED = "<attrs generated"  # the file name of methods that attrs generates begins with this
SITES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


class UnknownError(StructureError):
    """Error for a function that depends on a value that cannot be described reliably."""


def identity(function: Callable[..., Any], *parts: object) -> bytes:
    """Return a digest of what the function computes, and of `parts` (their repr).

    Raises: UnknownError that names the value that cannot be described.

    >>> def times(n):
    ...     return lambda x: n * x
    >>> identity(times(2)) == identity(times(2)), identity(times(2)) == identity(times(3))
    (True, False)
    """
    versions = (
        *(platform.python_implementation(), sys.version_info[:3], torch.get_default_dtype()),
        *_versions(),
    )
    digest = hashlib.sha256(repr((versions, parts)).encode())
    for piece in _Walk().pieces(function, getattr(function, "__name__", "function")):
        digest.update(len(piece).to_bytes(8, "big") + piece)
    return digest.digest()


@functools.cache
def _versions() -> tuple[str, ...]:
    return tuple(metadata.version(name) for name in ("torch", "attrs", "tensordict"))


@define
class _Walk:
    """A traversal of everything that a function depends on; a value that was visited before is referred to by its number."""

    met: dict[int, int] = field(factory=dict)
    held: list[Any] = field(factory=list)  # visited objects are kept alive, so that no id is reused

    def pieces(self, value: Any, where: str) -> Iterator[bytes]:
        """Yield bytes that identify a value."""
        kind = type(value)
        if kind in PLAIN:
            yield f"{kind.__name__} {value!r}".encode()
        elif kind is float:
            yield f"float {value.hex()}".encode()
        elif kind in NAMED:
            yield f"{kind.__name__} {value!r}".encode()
        elif id(value) in self.met:
            yield f"again {self.met[id(value)]}".encode()
        else:
            self.met[id(value)] = len(self.met)
            self.held.append(value)
            yield from self._new(value, kind, where)

    def _all(self, title: str, values: Iterable[tuple[str, Any]]) -> Iterator[bytes]:
        rows = list(values)
        yield f"{title} {len(rows)}".encode()
        for name, value in rows:
            yield name.encode()
            yield from self.pieces(value, name)

    def _new(self, value: Any, kind: type, where: str) -> Iterator[bytes]:
        if isinstance(value, types.FunctionType):
            yield from self._function(value)
        elif isinstance(value, types.CodeType):
            yield from self._code(value)
        elif isinstance(value, types.MethodType):
            yield from self._all("method", (("self", value.__self__), ("function", value.__func__)))
        elif isinstance(value, BUILT_IN):
            yield from self._built_in(value, where)
        elif isinstance(value, Tensor):
            yield from self._tensor(value, where)
        elif isinstance(value, type):
            yield from self._class(value, where)
        elif isinstance(value, types.ModuleType):
            yield from self._module(value, where)
        elif isinstance(value, TypeVar):
            yield f"type variable {value.__name__}".encode()
        elif get_origin(value) is not None:
            yield from self._all("type", (("origin", get_origin(value)), ("of", get_args(value))))
        elif isinstance(value, contextvars.ContextVar):
            yield from self._all("context variable", (("name", value.name), ("value", value.get(...))))
        elif kind.__module__ == "typing":
            yield f"typing {value!r}".encode()
        elif isinstance(value, enum.Enum):
            yield from self._all("enum", (("class", kind), ("name", value.name), ("value", value.value)))
        elif isinstance(value, functools.partial):
            parts = {"function": value.func, "arguments": value.args, "named": value.keywords, "own": vars(value)}
            yield from self._all("partial", parts.items())
        elif isinstance(value, tuple | list | deque):
            yield from self._all(f"{kind.__name__}", (("class", kind), *((str(n), one) for n, one in enumerate(value))))
        elif isinstance(value, set | frozenset):
            yield from self._set(value, where)
        elif isinstance(value, dict | types.MappingProxyType):
            yield from self._mapping(value, where)
        else:
            yield from self._object(value, kind, where)

    def _function(self, value: types.FunctionType) -> Iterator[bytes]:
        code = value.__code__
        cells = zip(code.co_freevars, value.__closure__ or (), strict=True)
        rows: dict[str, Any] = {
            "defaults": value.__defaults__,
            "named": value.__kwdefaults__,
            "attributes": {name: one for name, one in vars(value).items() if name not in ("__wrapped__", AFTERWARDS)},
        }
        for name, cell in cells:
            try:
                rows[f"cell {name}"] = cell.cell_contents
            except ValueError:  # not filled yet
                rows[f"cell {name}"] = ...
        if _of_library(code.co_filename):
            yield from self._all(f"library {value.__module__}.{value.__qualname__}", rows.items())
            return
        rows["code"] = code
        rows |= {f"global {name}": one for name, one in _named_globals(code, value.__globals__)}
        yield from self._all("function", rows.items())

    def _code(self, value: types.CodeType) -> Iterator[bytes]:
        facts = (
            *(value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, value.co_flags),
            *(value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars),
            *(value.co_code, value.co_exceptiontable),
        )
        yield repr(facts).encode()
        yield from self._all("constants", ((str(n), one) for n, one in enumerate(value.co_consts)))

    def _built_in(self, value: Any, where: str) -> Iterator[bytes]:
        owner = getattr(value, "__self__", None)
        module = getattr(value, "__module__", None) or getattr(getattr(value, "__objclass__", None), "__module__", "")
        yield f"built-in {module}.{value.__qualname__}".encode()
        if owner is not None and not isinstance(owner, types.ModuleType):
            yield from self.pieces(owner, where)
        elif module and not _is_library_module(str(module)):
            yield self._version(str(module), where)

    def _version(self, module: str, where: str) -> bytes:
        """Return the version of a package whose code is not bytecode."""
        version = getattr(sys.modules.get(module.partition(".")[0]), "__version__", None)
        if not isinstance(version, str):
            raise _unknown(where, f"code of {module}")
        return version.encode()

    def _tensor(self, value: Tensor, where: str) -> Iterator[bytes]:
        if type(value) not in (Tensor, torch.nn.Parameter) or value.layout is not torch.strided or value.is_meta:
            raise _unknown(where, f"{type(value).__name__} of layout {value.layout}")
        facts = (type(value).__name__, value.dtype, value.shape, value.stride(), value.device, value.requires_grad)
        yield repr(facts).encode()
        flat = value.detach().cpu().contiguous().clone().reshape(-1).view(torch.uint8)
        yield hashlib.sha256(flat.numpy().tobytes()).digest()

    def _class(self, value: type, where: str) -> Iterator[bytes]:
        name = f"{value.__module__}.{value.__qualname__}"
        if _is_library_module(value.__module__):
            yield f"class {name}".encode()
            return
        members = [(key, one) for key, one in sorted(vars(value).items()) if key not in APART]
        rows = [(f"base {n}", base) for n, base in enumerate(value.__bases__)]
        rows += [(key, part) for key, one in members for part in _parts_of_member(one)]
        if attrs.has(value):
            rows += [(f"{one.name} {part}", getattr(one, part)) for one in attrs.fields(value) for part in OF_FIELDS]
        yield from self._all(f"class {name} {type(value).__name__}", rows)

    def _module(self, value: types.ModuleType, where: str) -> Iterator[bytes]:
        yield f"module {value.__name__}".encode()
        if not _is_library_module(value.__name__):
            raise _unknown(where, f"the module {value.__name__} as a value")

    def _set(self, value: Any, where: str) -> Iterator[bytes]:
        if not all(type(one) in (*PLAIN, float) for one in value):
            raise _unknown(where, "a set of other things than numbers and texts")
        yield from (f"{type(value).__name__} {sorted(map(repr, value))}".encode(),)

    def _mapping(self, value: Any, where: str) -> Iterator[bytes]:
        kind = type(value)
        if kind not in (dict, OrderedDict, defaultdict, types.MappingProxyType):
            raise _unknown(where, kind.__name__)
        rows = [("factory", value.default_factory)] if isinstance(value, defaultdict) else []
        for key, one in value.items():
            rows += [("key", key), (key if isinstance(key, str) else "value", one)]
        yield from self._all(kind.__name__, rows)

    def _object(self, value: Any, kind: type, where: str) -> Iterator[bytes]:
        """Yield the bytes of an instance with all of its state in its attributes and slots."""
        if not _is_plain_class(kind):
            raise _unknown(where, f"{kind.__module__}.{kind.__qualname__}")
        slots = [name for one in kind.__mro__ for name in _slots(one)]
        state = {
            **getattr(value, "__dict__", {}),
            **{name: getattr(value, name) for name in slots if hasattr(value, name)},
        }
        yield from self._all("object", (("class", kind), *state.items()))


def _parts_of_member(member: Any) -> list[Any]:
    """Return the functions behind a member of a class, or the member."""
    if isinstance(member, property):
        return [member.fget, member.fset, member.fdel]
    if isinstance(member, classmethod | staticmethod):
        return [member.__func__]
    if isinstance(member, functools.cached_property):
        return [member.func]
    if isinstance(member, types.FunctionType) and member.__code__.co_filename.startswith(GENERATED):
        return []
    if isinstance(member, types.MemberDescriptorType | types.GetSetDescriptorType):
        return [member.__name__]
    return [member]


def _slots(cls: type) -> tuple[str, ...]:
    names = vars(cls).get("__slots__", ())
    return tuple(
        name for name in ((names,) if isinstance(names, str) else names) if name not in ("__weakref__", "__dict__")
    )


def _is_plain_class(kind: type) -> bool:
    """Return whether all state of the instances is in attributes and slots, and all their code is bytecode."""
    if attrs.has(kind) or dataclasses.is_dataclass(kind) or kind is type(attrs.Factory(list)):
        return True
    if issubclass(kind, torch.nn.Module):
        return True
    if _is_library_module(kind.__module__):
        return False
    return all(
        one is object or not _is_library_module(one.__module__) or one.__module__ in ("typing", "abc")
        for one in kind.__mro__
    )


@functools.cache
def _of_library(file: str) -> bool:
    """Return whether code comes with Python or torch."""
    if file.startswith(("<frozen", GENERATED)):
        return True
    path = os.path.realpath(file)
    return path.startswith(FOLDERS) or (path.startswith(ROOTS) and not any(site in path for site in SITES))


@functools.cache
def _is_library_module(name: str) -> bool:
    top = name.partition(".")[0]
    return top in LIBRARIES or top in sys.stdlib_module_names


def _named_globals(code: types.CodeType, known: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the globals that a code and its inner codes name; a module of others is replaced by its named attributes."""
    names = _names(code)
    for name in sorted(names & known.keys()):
        yield from _resolved(name, known[name], names)
    for name in sorted((names & OPEN) - known.keys()):
        raise _unknown(code.co_name, f"a call of {name}")
    for module in sorted(_imported(code, known)):
        yield from _resolved(module, importlib.import_module(module), names)


def _resolved(name: str, value: Any, names: frozenset[str], outer: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield a value or, for a module that is not of a library, all of its attributes that are named somewhere."""
    if not isinstance(value, types.ModuleType) or _is_library_module(value.__name__):
        yield name, value
        return
    if "getattr" in names:
        raise _unknown(name, "a module whose attributes are looked up by getattr")
    if value.__name__ in outer:
        return
    for one in sorted(names & vars(value).keys()):
        yield from _resolved(f"{name}.{one}", vars(value)[one], names, (*outer, value.__name__))


@functools.cache
def _names(code: types.CodeType) -> frozenset[str]:
    inner = (one for one in code.co_consts if isinstance(one, types.CodeType))
    return frozenset(code.co_names).union(*map(_names, inner))


def _imported(code: types.CodeType, known: Mapping[str, Any]) -> set[str]:
    """Return the modules that a code imports when it runs."""
    found, package = set[str](), str(known.get("__package__") or "")
    steps = list(dis.get_instructions(code))
    for index, step in enumerate(steps):
        if step.opname == "IMPORT_NAME":
            level = next(one.argval for one in reversed(steps[: index - 1]) if one.opname == "LOAD_CONST")
            name = str(step.argval)
            found.add(importlib.util.resolve_name("." * level + name, package) if level else name)
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            found |= _imported(one, known)
    return found


def _unknown(where: str, what: str) -> UnknownError:
    remedy = "close over numbers, texts, tensors, records and functions alone"
    return UnknownError(
        message(f"identity: {where}", got=what, wanted="something that can be described", remedy=remedy)
    )
