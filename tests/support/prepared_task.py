"""A task of somebody else's whose episodes begin where the model has brought the game: two players say digits in turn.

An opening is what the model says twice to a number; an episode goes on from there, and pays for a digit it has not said yet.
"""

from typing import Any

from attrs import frozen

from purestep.core import keys
from purestep.core.keys import Key
from purestep.core.language.parsers import chain
from purestep.core.language.preparation import Preparation, Prepared, Record, Start
from purestep.core.language.prompting import Prompting, Query, Response
from purestep.core.language.requests import words_of
from purestep.core.language.task import TextTask
from purestep.core.language.text_env import Outcome, TextEnv


@frozen
class Board:
    """What was said so far."""

    said: str


@frozen
class Opening:
    """An opening under way: which task, and what was said to it."""

    number: int
    key: tuple[int, int]
    said: tuple[str, ...]


State = tuple[Opening, ...]


def shown(said: str) -> str:
    return f"said: {said[-12:]}. Another digit?"


def reset(params: tuple[()], key: Key) -> tuple[Board, str]:
    first = str(int(keys.randint(key, (), 0, 10)))
    return Board(first), shown(first)


def step(params: tuple[()], board: Board, text: str, key: Key) -> tuple[Board, Outcome]:
    digits = [one for one in text if one.isdigit()]
    return Board(board.said + text), Outcome(
        reward=float(bool(digits) and digits[0] not in board.said), terminated=True
    )


def _asked(state: State) -> tuple[State, tuple[Query, ...]]:
    if len(state[0].said) > 2:
        return state, ()
    own = [keys.fold_in(keys.fold_in(keys.key(one.key[0]), one.number), len(one.said)) for one in state]
    return state, tuple(
        Query(prompt=shown("".join(one.said)), sampling=words_of(key), max_new_tokens=3)
        for one, key in zip(state, own, strict=True)
    )


def begin(key: Key, number: int, count: int) -> tuple[State, tuple[Query, ...]]:
    numbers = range(number * count, (number + 1) * count)
    return _asked(tuple(Opening(one, words_of(key), (str(one % 10),)) for one in numbers))


def go_on(state: State, replies: tuple[Response, ...]) -> tuple[State, tuple[Query, ...]]:
    pairs = zip(state, replies, strict=True)
    return _asked(tuple(Opening(one.number, one.key, (*one.said, reply.text)) for one, reply in pairs))


def result(state: State) -> Prepared:
    boards = ["".join(one.said) for one in state]
    records = tuple(Record(number=one.number, rows=({"said": "".join(one.said)},)) for one in state)
    return Prepared(
        starts=tuple(Start(state=Board(said), observation=shown(said)) for said in boards),
        records=records,
        figures={"length": sum(map(len, boards)) / len(boards)},
        texts=2 * len(boards),
    )


def openings() -> TextTask:
    prompting: Prompting[Any, Prepared] = Prompting(begin=begin, step=go_on, result=result)
    return TextTask(
        name="openings",
        env=lambda stream: TextEnv((), reset, step),
        parser=chain(),
        incomplete="accept",
        preparation=Preparation(prompting=prompting, max_new_tokens=3, figures=("length",), classes=(Board,), window=2),
    )


OPENINGS = openings()
