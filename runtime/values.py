"""Machine states, events and logs as JSON: frozen attrs values of numbers, strings, tuples and dicts, back as they were.

A tuple becomes a list, a dict an object, an attrs value an object with its class under "$class", a float that JSON cannot
write {"$float": "nan"}. Anything else is refused by name: tensors belong into a checkpoint's tree.
"""

import json
import math
from collections.abc import Iterable
from typing import Any

import attrs

from ..core.errors import StructureError, choose, message

Json = Any

CLASS, FLOAT = "$class", "$float"
PLAIN = (bool, int, str, type(None))


def encode(value: Any, where: str = "value") -> Json:
    """What `json.dumps` can write. Raises: StructureError, naming the first part that has no JSON form.

    >>> from purestep.core.machine import Stop
    >>> encode((1, Stop("enough")))
    [1, {'$class': 'Stop', 'reason': 'enough'}]
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
        return {CLASS: kind.__name__, **parts}
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
    """The value that `encode` was given; `classes` are those that may occur in it.

    Raises: ChoiceError for a class that is not among them, StructureError for fields it does not have.

    >>> from purestep.core.machine import Stop
    >>> decode([1, {"$class": "Stop", "reason": "enough"}], [Stop])
    (1, Stop(reason='enough'))
    """
    return _decode(data, registry(classes), where)


def registry(classes: Iterable[type]) -> dict[str, type]:
    """Classes by name. Raises: StructureError when two share one."""
    table: dict[str, type] = {}
    for cls in classes:
        if table.setdefault(cls.__name__, cls) is not cls:
            got, remedy = f"the name of {cls.__module__} and {table[cls.__name__].__module__}", "rename one"
            raise StructureError(message(f"decode: {cls.__name__}", got=got, wanted="one class", remedy=remedy))
    return table


def _decode(data: Json, table: dict[str, type], where: str) -> Any:
    if isinstance(data, list):
        return tuple(_decode(item, table, f"{where}[{index}]") for index, item in enumerate(data))
    if not isinstance(data, dict):
        return data
    if FLOAT in data:
        return float(data[FLOAT])
    parts = {key: _decode(item, table, f"{where}.{key}") for key, item in data.items() if key != CLASS}
    if CLASS not in data:
        return parts
    cls = choose(f"decode: the class of {where}", data[CLASS], table)
    known = {field.alias for field in attrs.fields(cls) if field.init}
    required = {field.alias for field in attrs.fields(cls) if field.init and field.default is attrs.NOTHING}
    if not required <= parts.keys() <= known:
        raise StructureError(
            message(
                f"decode: {where}",
                got=f"{cls.__name__} with fields {sorted(parts)}",
                wanted=sorted(known),
                remedy="it was written by another version of the class",
            )
        )
    return cls(**parts)


def line(data: Json) -> str:
    """JSON in one line, without NaN."""
    return json.dumps(data, allow_nan=False, separators=(",", ":"))
