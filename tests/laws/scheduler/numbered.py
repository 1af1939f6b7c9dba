"""Laws of persistent maps and queues: they equal a dict and a list, and earlier versions stay unchanged.

The subject is a `Filing`: the functions of `runtime.machine.persistent_map`.
"""

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from attrs import evolve, frozen
from hypothesis import strategies as st

from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor
from purestep.runtime.machine import persistent_map
from purestep.runtime.machine.json_codec import decode, encode
from purestep.runtime.machine.persistent_map import Fifo, Numbered

SOURCE = "runtime.machine.persistent_map: a change shares with what was before, and changes nothing of it"
KEYS = (0, 1, 2, 31, 32, 33, 1023, 1024, 40000, 1 << 20)
Draw = list[tuple[int, int]]  # a key, and the value to put there; a multiple of 3 removes it


@frozen
class Filing:
    """The subject: the operations of maps and queues."""

    find: Callable[[Numbered[int], int], Any]
    put: Callable[[Numbered[int], int, int], Numbered[int]]
    remove: Callable[[Numbered[int], int], Numbered[int]]
    entries: Callable[[Numbered[int]], Any]
    push: Callable[[Fifo[int], int], Fifo[int]]
    pop: Callable[[Fifo[int]], tuple[int, Fifo[int]]]
    waiting: Callable[[Fifo[int]], Any]


def own_filing() -> Filing:
    """Return the library's own functions."""
    maps = persistent_map
    return Filing(
        find=maps.value_at,
        put=maps.put_value,
        remove=maps.without_key,
        entries=maps.entries,
        push=maps.push,
        pop=maps.pop,
        waiting=maps.queue_items,
    )


def numbered_laws() -> Suite:
    """The laws of a `Filing`."""
    return Suite("numbered_laws", (_dict(), _persistent(), _list(), _text()))


_law = law_constructor(lambda: st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 20)), max_size=40), SOURCE)


def _changes(filing: Filing, moves: Draw) -> list[tuple[Numbered[int], dict[int, int]]]:
    """A map and the equal dict, after each move."""
    states = [(Numbered[int](), dict[int, int]())]
    for key, value in moves:
        made, model = states[-1]
        if value % 3:
            states.append((filing.put(made, key, value), {**model, key: value}))
        else:
            states.append((filing.remove(made, key), {k: v for k, v in model.items() if k != key}))
    return states


def _dict() -> Law:
    def check(filing: Filing, moves: Draw, seen: Seen) -> None:
        made, model = _changes(filing, moves)[-1]
        seen("keys of several digits", max(model, default=0) > 1023 and len(model) > 2)
        same("the entries", list(filing.entries(made)), sorted(model.items()))
        same("what is found", [filing.find(made, key) for key in KEYS], [model.get(key, ()) for key in KEYS])
        require(bool(model) or made == Numbered(), "an empty map is not the empty map")

    claim = "A map holds what a dict would, in the order of its keys."
    return _law("map_is_a_dict", claim, Mutant("knows one digit of a key", _one_digit), check, "keys of several digits")


def _one_digit(filing: Filing) -> Filing:
    return evolve(filing, put=lambda made, key, value: filing.put(made, key % 32, value))


def _persistent() -> Law:
    def check(filing: Filing, moves: Draw, seen: Seen) -> None:
        states = _changes(filing, moves)
        seen("a value that changes", any(before != after for (_, before), (_, after) in pairwise(states)))
        for made, model in states:
            same("an earlier map", list(filing.entries(made)), sorted(model.items()))

    claim = "A map stays as it was, whatever is made of it."
    return _law("maps_are_values", claim, Mutant("writes into a map", _in_place), check, "a value that changes")


def _in_place(filing: Filing) -> Filing:
    def put(made: Numbered[int], key: int, value: int) -> Numbered[int]:
        after = filing.put(made, key, value)
        if made == Numbered():
            return after
        object.__setattr__(made, "root", after.root)
        object.__setattr__(made, "depth", after.depth)
        return after

    return evolve(filing, put=put)


def _list() -> Law:
    def check(filing: Filing, moves: Draw, seen: Seen) -> None:
        line, model = Fifo[int](), list[int]()
        for key, value in moves:
            if value % 3 or not model:
                line, model = filing.push(line, key), [*model, key]
            else:
                first, line = filing.pop(line)
                same("what leaves", first, model[0])
                model = model[1:]
            seen("three in line", len(model) > 2)
            same("the line", list(filing.waiting(line)), model)
            same("its length", len(line), len(model))
            require(bool(model) or line == Fifo(), "an empty queue is not the empty queue")

    claim = "A queue gives back what it was given, in that order."
    return _law("queue_is_a_list", claim, Mutant("lets the last one leave first", _last_first), check, "three in line")


def _last_first(filing: Filing) -> Filing:
    def pop(line: Fifo[int]) -> tuple[int, Fifo[int]]:
        *rest, last = filing.waiting(line)
        left = Fifo[int]()
        for value in rest:
            left = filing.push(left, value)
        return last, left

    return evolve(filing, pop=pop)


def _text() -> Law:
    def check(filing: Filing, moves: Draw, seen: Seen) -> None:
        made, model = _changes(filing, moves)[-1]
        line = Fifo[int]()
        for key, _ in moves:
            line = filing.push(line, key)
        seen("several keys", len(model) > 1)
        again = decode(json.loads(json.dumps(encode((made, line)))), (Numbered, Fifo))
        same("map and queue as text", list(filing.entries(again[0])), sorted(model.items()))
        require(again == (made, line), "they are others after having been text")

    claim = "Maps and queues survive as text."
    return _law("text_keeps_them", claim, Mutant("keeps a set", _a_set), check, "several keys")


def _a_set(filing: Filing) -> Filing:
    return evolve(filing, push=lambda line, value: Fifo(0, len(line) + 1, {*filing.waiting(line), value}))  # type: ignore[arg-type]
