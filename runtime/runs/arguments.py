"""Arguments of a run: names and numbers in groups, flat in a record, checked by the name of their flag."""

import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeVar, get_type_hints

import attrs
from attrs import evolve

from ...core.errors import CheckpointError, ChoiceError, check_within, choose, message
from ..machine.json_codec import fits, short
from .migrations import APART, CHANGES, NUMBER, OWN_NUMBER, RECIPE, SCHEMA

A = TypeVar("A")
T = TypeVar("T")
SEEDS = 2**63 - 1
CARD = 1e12  # bytes of the largest graphics card, and more
CONTROL_GROUP = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def check_whole(where: str, number: int, low: int, high: int | None = None) -> None:
    """Raise ChoiceError unless low <= number <= high; without `high` a number is at most one that a tensor can hold.

    >>> check_whole("--envs", 0, 1)
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: --envs is 0, wanted at least 1; change it
    """
    if number < low or (high is not None and number > high):
        wanted = f"at least {low}" if high is None else f"from {low} to {high}"
        raise ChoiceError(message(where, got=number, wanted=wanted, remedy="change it"))
    if number > SEEDS:
        got = f"a number of {len(str(number))} digits"
        raise ChoiceError(message(where, got=got, wanted=f"at most {SEEDS}", remedy="change it"))


def flag(name: str) -> str:
    """Return the command line's spelling of an argument.

    >>> flag("learning_rate")
    '--learning-rate'
    """
    return "--" + name.replace("_", "-")


def folder_label(value: str) -> str:
    """Return a value as a part of a folder's name: of a path its last part, of FILE.py:NAME the name.

    >>> folder_label("data/kinship"), folder_label("worlds/boat.py:BOAT"), folder_label("family:200")
    ('kinship', 'BOAT', 'family:200')
    """
    last = Path(value).name
    return last.partition(".py:")[2] or last


def check_wholes(settings: Any, low: int, *names: str) -> None:
    """Raise ChoiceError unless these settings are at least `low`, by the names of their flags.

    >>> from .training_machine import TrainChunk
    >>> check_wholes(TrainChunk(0), 1, "iterations")
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: --iterations is 0, wanted at least 1; change it
    """
    for name in names:
        check_whole(flag(name), getattr(settings, name), low)


def check_numbers(settings: Any, low: float, high: float, *names: str) -> None:
    """Raise ChoiceError unless low <= number <= high for these settings, by the names of their flags."""
    for name in names:
        check_within(flag(name), getattr(settings, name), low, high)


def most_threads() -> int:
    """Return the largest number of threads that may be asked for; libraries may fail to start more.

    >>> most_threads() >= 256
    True
    """
    return max(256, 4 * (os.cpu_count() or 1))


def processors() -> int:
    """Return the number of processors that this process may use.

    >>> processors() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_threads(threads: int | Literal["auto"]) -> None:
    """Raise ChoiceError unless this number of threads can be started, or is "auto".

    >>> check_threads(0)
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: --threads is 0, wanted at least 1; change it
    """
    if threads != "auto":
        check_whole("--threads", threads, 1)
        check_whole("--threads", threads, 1, most_threads())


def memory_bytes() -> float:
    """Return the bytes of memory that this process can have: of the machine, its control group and its own limit.

    >>> memory_bytes() > 1e8
    True
    """
    sizes = [float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))]
    with suppress(ImportError):  # a system without limits of its own
        from resource import RLIMIT_AS, getrlimit

        sizes.append(float(getrlimit(RLIMIT_AS)[0]))
    for place in CONTROL_GROUP:
        with suppress(OSError, ValueError):  # no such file, or "max"
            sizes.append(float(Path(place).read_text()))
    return min((size for size in sizes if size > 0), default=math.inf)


def check_memory(needs: Mapping[str, float], *, device: str = "cpu") -> None:
    """Raise ChoiceError where flags ask for more memory than there is, before anything is allocated.

    `needs` maps flags to a lower bound of the bytes that they take. A graphics card has 1 TB at most.

    >>> check_memory({"--envs x --horizon": 1e18})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: --envs x --horizon is at least 1,000,000,000 GB of memory, wanted at most ...
    """
    most = memory_bytes() + (0.0 if device == "cpu" else CARD)
    for flags, size in needs.items():
        if size > most:
            got, wanted = f"at least {size / 1e9:,.0f} GB of memory", f"at most the {most / 1e9:,.0f} GB that there are"
            raise ChoiceError(message(flags, got=got, wanted=wanted, remedy="lower one of them"))


def check_device(name: str) -> None:
    """Raise ChoiceError unless this is the name of a processor or of a graphics card.

    >>> check_device("gpu")
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: --device is 'gpu', wanted cpu, cuda or cuda:N; name one of them
    """
    if not re.fullmatch(r"cpu|cuda(:(0|[1-9][0-9]?))?", name):
        wanted, remedy = "cpu, cuda or cuda:N", "name one of them"
        raise ChoiceError(message("--device", got=repr(name), wanted=wanted, remedy=remedy))


def to_record(
    recipe: str, arguments: Any, *, own_schema: int = 0, changes: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return the record of a run: the recipe's name, the number of the schema, all settings, flat, and their later changes.

    `own_schema` is the number of a package's recipe; see `migrations`.

    >>> from .training_machine import TrainChunk
    >>> record = to_record("x", TrainChunk(2))
    >>> sorted(record), record["recipe"], record["iterations"], record["schema"] == SCHEMA
    (['iterations', 'recipe', 'schema'], 'x', 2, True)
    """
    numbers = {NUMBER: SCHEMA, **({OWN_NUMBER: own_schema} if own_schema else {})}
    return {RECIPE: recipe, **numbers, **({CHANGES: tuple(changes)} if changes else {}), **flatten(arguments)}


def settings_in(held: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in a record, without the recipe's name, the schema's number and the changes.

    >>> settings_in({"recipe": "x", "schema": 1, "iterations": 2})
    {'iterations': 2}
    """
    return {name: value for name, value in held.items() if name not in APART}


def from_record(recipe: str, defaults: A, held: Mapping[str, Any]) -> A:
    """Return the arguments in a run's record of today's schema, which `to_record` makes; `migrations.upgrade` makes it so.

    Raises: CheckpointError for other names than the recipe has, and for values of other types.

    >>> from .training_machine import TrainChunk
    >>> from_record("x", TrainChunk(1), to_record("x", TrainChunk(2)))
    TrainChunk(iterations=2)
    """
    where, values = f"checkpoint: arguments of {recipe}", settings_in(held)
    differing = sorted(flatten(defaults).keys() ^ values.keys())
    if differing:
        got, remedy = f"with other names: {short(differing)}", "use the version of purestep that wrote it"
        raise CheckpointError(message(where, got=got, wanted="its own", remedy=remedy))
    for name, hint in _hints(defaults).items():
        if name in values and not fits(values[name], hint):
            got = f"with {name} {short(values[name])}"
            wanted = hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
            remedy = "take an older checkpoint, or train anew"
            raise CheckpointError(message(where, got=got, wanted=wanted, remedy=remedy))
    return changed(defaults, values)


def _hints(arguments: Any) -> dict[str, Any]:
    """Return the types of all settings of arguments, including those of their groups."""
    hints, found = get_type_hints(type(arguments)), dict[str, Any]()
    for field in attrs.fields(type(arguments)):
        value = getattr(arguments, field.name)
        found |= _hints(value) if attrs.has(type(value)) else {field.name: hints[field.name]}
    return found


def flatten(arguments: Any) -> dict[str, Any]:
    """Return all settings of a recipe's arguments by name, including those of its groups.

    >>> from .training_machine import TrainChunk
    >>> flatten(TrainChunk(2))
    {'iterations': 2}
    """
    flat: dict[str, Any] = {}
    for field in attrs.fields(type(arguments)):
        value = getattr(arguments, field.name)
        flat |= flatten(value) if attrs.has(type(value)) else {field.name: value}
    return flat


def changed(arguments: A, changes: Mapping[str, Any]) -> A:
    """Return the arguments with some of them changed, in any group. Raises: ChoiceError for an unknown name.

    >>> from .training_machine import TrainChunk
    >>> changed(TrainChunk(1), {"iterations": 2})
    TrainChunk(iterations=2)
    """
    known = flatten(arguments)
    for name in changes:
        choose("arguments: name", name, known)
    parts = {}
    for field in attrs.fields(type(arguments)):  # type: ignore[arg-type]
        value = getattr(arguments, field.name)
        if attrs.has(type(value)):
            within = flatten(value).keys() & changes.keys()
            parts[field.name] = changed(value, {name: changes[name] for name in within})
        elif field.name in changes:
            parts[field.name] = changes[field.name]
    return evolve(arguments, **parts)  # type: ignore[misc]


def option(words: Sequence[str], name: str, default: T) -> str | T:
    """Return the value of an option in the words, at any position; the last one counts.

    >>> option(["--seed", "1", "--env=acrobot"], "--env", "cartpole")
    'acrobot'
    """
    value: str | T = default
    for word, following in pairwise([*words, ""]):
        if word == name:
            value = following
        elif word.startswith(name + "="):
            value = word.removeprefix(name + "=")
    return value


def join_repeated(words: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the words with the values of each repeated option of `names` joined where it is named first.

    >>> join_repeated(["--reward", "a", "b", "--seed", "1", "--reward=c"], ["--reward"])
    ['--reward', 'a', 'b', 'c', '--seed', '1']
    """
    into, joined = list[str](), dict[str, list[str]]()
    parts = [into]
    for word in words:
        name, equals, value = word.partition("=")
        if name in names:
            if name not in joined:
                joined[name] = [name]
                parts.append(joined[name])
            into = joined[name]
            into += [value] if equals else []
        elif word.startswith("--"):
            into = [word]
            parts.append(into)
        else:
            into.append(word)
    return [word for part in parts for word in part]
