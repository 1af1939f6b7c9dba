"""Machine states, events and logs as JSON: frozen attrs values of numbers, strings, tuples and dicts, restored exactly.

A tuple becomes a list, a dict an object, an attrs value an object with its class's tag under "$tag", a float that JSON cannot
write {"$float": "nan"}. Anything else is refused by name: tensors belong into a checkpoint's tree.
"""

import json
import math
from collections.abc import Iterable, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import attrs

from ...core.errors import StructureError, choose, message
from ...core.machine import tag_of

Json = Any

TAG, FLOAT = "$tag", "$float"
PLAIN = (bool, int, str, type(None))
NOT_FINITE = tuple({FLOAT: word} for word in ("nan", "inf", "-inf"))


def encode(value: Any, where: str = "value") -> Json:
    """Return a value for `json.dumps`. Raises: StructureError, naming the first part that has no JSON form.

    >>> from purestep.core.machine import Stop
    >>> encode((1, Stop("enough")))
    [1, {'$tag': 'stop', 'reason': 'enough'}]
    """
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is float:
        return value if math.isfinite(value) else {FLOAT: repr(value)}
    if kind is tuple:
        return [encode(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if kind is dict:
        return {_key(key, where): encode(item, f"{where}[{key!r}]") for key, item in value.items()}
    if attrs.has(kind):
        parts = {f.alias: encode(getattr(value, f.name), f"{where}.{f.name}") for f in attrs.fields(kind) if f.init}
        return {TAG: tag_of(kind), **parts}
    raise StructureError(
        message(
            f"encode: {where}",
            got=kind.__name__,
            wanted="a number, string, tuple, dict or attrs value of those",
            remedy="put tensors in the checkpoint's tree, lists in tuples",
        )
    )


def _key(key: Any, where: str) -> str:
    if type(key) is str and not key.startswith("$"):
        return key
    remedy = "use names, or a tuple of pairs"
    raise StructureError(
        message(f"encode: a key of {where}", got=repr(key), wanted="a string without a leading $", remedy=remedy)
    )


def decode(data: Json, classes: Iterable[type] = (), where: str = "value") -> Any:
    """Return the value that `encode` was given; `classes` are those that may occur in it.

    Raises: ChoiceError for a class that is not among them, StructureError for fields it does not have, and for a field whose
    value is not of the type that the class states.

    >>> from purestep.core.machine import Stop
    >>> decode([1, {"$tag": "stop", "reason": "enough"}], [Stop])
    (1, Stop(reason='enough'))
    """
    return _decode(data, registry(classes), where)


def registry(classes: Iterable[type]) -> dict[str, type]:
    """Return the classes by tag. Raises: StructureError when two share one."""
    table: dict[str, type] = {}
    for cls in classes:
        tag = tag_of(cls)
        if table.setdefault(tag, cls) is not cls:
            got, remedy = f"the tag of {cls.__qualname__} and {table[tag].__qualname__}", "change the TAG of one"
            raise StructureError(message(f"decode: {tag}", got=got, wanted="one class", remedy=remedy))
    return table


def _decode(data: Json, table: dict[str, type], where: str) -> Any:
    if isinstance(data, list):
        return tuple(_decode(item, table, f"{where}[{index}]") for index, item in enumerate(data))
    if not isinstance(data, dict):
        return data
    if FLOAT in data:
        if data not in NOT_FINITE:
            wanted, remedy = "one of nan, inf, -inf", "it was damaged"
            raise StructureError(message(f"decode: {where}", got=short(data[FLOAT]), wanted=wanted, remedy=remedy))
        return float(data[FLOAT])
    parts = {key: _decode(item, table, f"{where}.{key}") for key, item in data.items() if key != TAG}
    if TAG not in data:
        return parts
    named = data[TAG]
    cls = choose(f"decode: the class of {where}", named if isinstance(named, str) else short(named), table)
    known = {field.alias for field in attrs.fields(cls) if field.init}
    required = {field.alias for field in attrs.fields(cls) if field.init and field.default is attrs.NOTHING}
    if not required <= parts.keys() <= known:
        raise StructureError(
            message(
                f"decode: {where}",
                got=f"{cls.__name__} with fields {short(sorted(parts))}",
                wanted=sorted(known),
                remedy="it was written by another version of the class",
            )
        )
    hints = _hints(cls)
    for name, value in parts.items():
        if not fits(value, hints.get(name, Any)):
            wanted = (
                getattr(hints[name], "__name__", str(hints[name])) if isinstance(hints[name], type) else hints[name]
            )
            got, remedy = f"{type(value).__name__} {short(value)}", "it was damaged, or written by another version"
            raise StructureError(message(f"decode: {where}.{name}", got=got, wanted=wanted, remedy=remedy))
    return cls(**parts)


def short(value: Any) -> str:
    """Return a value as text of at most 80 characters in one line, for an error.

    >>> short("a" * 100)[-6:]
    'aaa...'
    """
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


@cache
def _hints(cls: type) -> Mapping[str, Any]:
    """Return the types of a class's arguments by name; {} where they cannot be looked up."""
    try:
        hints = get_type_hints(cls)
    except NameError:  # a name that only a type checker imports
        return {}
    return {field.alias: hints[field.name] for field in attrs.fields(cls) if field.name in hints}


def fits(value: Any, hint: Any) -> bool:
    """Return whether a decoded value is of a stated type; an int may stand for a float, a bool never for a number.

    >>> fits((1, 2), tuple[int, ...]), fits(True, int), fits(1, float), fits({"a": "b"}, dict[str, int])
    (True, False, True, False)
    """
    if hint is Any:
        return True
    origin, given = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in given)
    if origin is Annotated:
        return fits(value, given[0])
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in given)
    if origin is tuple:
        if type(value) is not tuple:
            return False
        if len(given) == 2 and given[1] is Ellipsis:
            return all(fits(item, given[0]) for item in value)
        return len(value) == len(given) and all(fits(item, one) for item, one in zip(value, given, strict=True))
    if origin in (dict, Mapping):
        return type(value) is dict and all(fits(key, given[0]) and fits(item, given[1]) for key, item in value.items())
    kind = origin or hint
    if kind is None:
        return value is None
    if kind is float:
        return type(value) in (int, float)
    if kind in (bool, int, str):
        return type(value) is kind
    return not isinstance(kind, type) or getattr(kind, "_is_protocol", False) or isinstance(value, kind)


def json_line(data: Json) -> str:
    """Return JSON data in one line, without NaN."""
    return json.dumps(data, allow_nan=False, separators=(",", ":"))
