"""Preparations by generators: groups that have their starts, commands that wait for starts, and a preparation under way.

Prompts are numbered as in every run; preparation q is for the groups of prompts q * groups ... q * groups + groups - 1.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from attrs import Factory, evolve, frozen

from ...core.errors import PurestepError, StructureError, message
from ...core.keys import Key
from ...core.language.preparation import Preparation, Prepared, Record, Start
from ...core.language.prompting import Prompting, Query, Response
from ..files.reading import parse_json
from ..machine.json_codec import decode, encode, json_line
from ..machine.persistent_map import entries
from .scheduler.state import Schedule


@frozen
class Prepare:
    """A task for a generator: run the preparation of this number, with weights of at least this version."""

    preparation: int
    version: int


@frozen(kw_only=True)
class Ready:
    """The answer to `Prepare`: a start for each group."""

    preparation: int
    starts: tuple[Start, ...]
    records: tuple[Record, ...] = ()
    figures: Mapping[str, float] = Factory(dict)
    texts: int = 0


def ready_of(preparation: int, groups: int, starts: tuple[Start, ...], prepared: Prepared) -> Ready:
    """Return the answer with `groups` starts, repeated from the first one where there are fewer.

    >>> one = Start(state=(), observation="2 + 3?")
    >>> len(ready_of(0, 3, (one,), Prepared(starts=(one,))).starts)
    3
    """
    whole = tuple(starts[place % len(starts)] for place in range(groups))
    figures, texts = dict(prepared.figures), prepared.texts
    return Ready(preparation=preparation, starts=whole, records=prepared.records, figures=figures, texts=texts)


def ready_fault(preparation: Preparation | tuple[()], answer: Ready) -> str:
    """Return the fault of an answer; "" for a valid one.

    >>> ready_fault((), Ready(preparation=0, starts=()))
    'starts of a task that is not prepared'
    """
    if isinstance(preparation, tuple):
        return "starts of a task that is not prepared"
    starts = answer.starts if isinstance(answer.starts, tuple) else ()
    known = all(isinstance(one, Start) and isinstance(one.observation, str) for one in starts)
    if len(starts) != preparation.groups or not known:
        return f"no {preparation.groups} starts"
    if not all(isinstance(one, Record) and one.rows and one.number >= 0 for one in answer.records):
        return "records without rows or number"
    named = set(answer.figures) == set(preparation.figures)
    return "" if named and all(isinstance(one, float) for one in answer.figures.values()) else "figures of other names"


# --- of the trainer ---


@frozen
class WaitingCommand:
    """A sampling command that waits for its group's start, and the generator that it is for."""

    number: int  # of the command
    prompt: int
    worker: int


@frozen(kw_only=True)
class Starts:
    """The available starts, by prompt; preparations under way, each with its generator; and the commands that wait for them."""

    groups: int = 0  # of one preparation; 0 where episodes are not prepared
    ready: Mapping[int, Start] = Factory(dict)
    under_way: Mapping[int, int] = Factory(dict)
    waiting: tuple[WaitingCommand, ...] = ()

    def asked(self, held: WaitingCommand) -> tuple["Starts", bool]:
        """Return the starts with one more waiting command, and whether its generator must begin the preparation."""
        number = held.prompt // self.groups
        waiting, there = (*self.waiting, held), number in self.under_way
        under_way = self.under_way if there else {**self.under_way, number: held.worker}
        return evolve(self, waiting=waiting, under_way=under_way), not there

    def come(self, ready: Ready) -> tuple["Starts", tuple[int, ...]]:
        """Return the starts with those of a finished preparation, and the numbers of the commands that waited for them."""
        first = ready.preparation * self.groups
        starts = {**self.ready, **{first + place: one for place, one in enumerate(ready.starts)}}
        under_way = {number: worker for number, worker in self.under_way.items() if number != ready.preparation}
        freed = tuple(one.number for one in self.waiting if one.prompt // self.groups == ready.preparation)
        waiting = tuple(one for one in self.waiting if one.number not in freed)
        return evolve(self, ready=starts, under_way=under_way, waiting=waiting), freed

    def without(self, number: int) -> "Starts":
        """Return the starts without a waiting command."""
        return evolve(self, waiting=tuple(one for one in self.waiting if one.number != number))

    def lost(self, worker: int) -> tuple["Starts", tuple[WaitingCommand, ...], tuple[int, ...]]:
        """Remove a lost generator: return the starts, the waiting commands whose generators now prepare, and its commands."""
        gone = tuple(one.number for one in self.waiting if one.worker == worker)
        waiting = tuple(one for one in self.waiting if one.worker != worker)
        under_way, again = dict(self.under_way), list[WaitingCommand]()
        for number in [one for one, by in self.under_way.items() if by == worker]:
            others = [one for one in waiting if one.prompt // self.groups == number]
            if others:
                under_way[number] = others[0].worker
                again.append(others[0])
            else:
                del under_way[number]
        return evolve(self, waiting=waiting, under_way=under_way), tuple(again), gone

    def needed(self, schedule: Schedule) -> dict[int, Start]:
        """Return the starts of groups that are live, to be begun again, or not begun yet."""
        live = {group.prompt for _, group in entries(schedule.groups)}
        live |= {prompt for _, prompt in entries(schedule.again.items)}
        return {prompt: one for prompt, one in self.ready.items() if prompt in live or prompt >= schedule.prompts}


@frozen(kw_only=True)
class KeptStart:
    """A start in a checkpoint, as JSON: it can be read without the classes of its state."""

    TAG: ClassVar[str] = "kept_start"
    prompt: int
    observation: str
    state: str


def kept_starts(starts: Mapping[int, Start]) -> tuple[KeptStart, ...]:
    """Return starts for a checkpoint. Raises: StructureError for a state that has no JSON form."""
    return tuple(
        KeptStart(
            prompt=prompt,
            observation=one.observation,
            state=json_line(encode(one.state, f"the start of prompt {prompt}")),
        )
        for prompt, one in sorted(starts.items())
    )


def starts_from(kept: Iterable[KeptStart], preparation: Preparation, where: str) -> dict[int, Start]:
    """Return the starts kept in a checkpoint. Raises: StructureError."""
    found = dict[int, Start]()
    for one in kept:
        try:
            state = decode(parse_json(one.state), preparation.classes, "start")
        except (ValueError, PurestepError) as fault:
            got, remedy = f"no state ({fault})", "name the classes of its states in the task's preparation"
            at = f"{where}: the start of prompt {one.prompt}"
            raise StructureError(message(at, got=got, wanted="one", remedy=remedy)) from fault
        found[one.prompt] = Start(state=state, observation=one.observation)
    return found


# --- of a generator ---


@frozen(kw_only=True)
class Work:
    """A preparation under way: its machine's state, the queries that are due, and the responses received, by index."""

    preparation: int
    state: Any
    queries: tuple[Query, ...]
    responses: Mapping[int, Response] = Factory(dict)

    @property
    def over(self) -> bool:
        """Return whether no query is left."""
        return not self.queries


def begin_preparation(prompting: Prompting[Any, Prepared], key: Key, number: int) -> Work:
    """Return a preparation of one task, at its beginning."""
    state, queries = prompting.begin(key, number, 1)
    return Work(preparation=number, state=state, queries=queries)


def replied(prompting: Prompting[Any, Prepared], work: Work, place: int, response: Response) -> tuple[Work, bool]:
    """Return a preparation after a response, and whether it has moved on, as it does when all its queries have responses."""
    responses = {**work.responses, place: response}
    if len(responses) < len(work.queries):
        return evolve(work, responses=responses), False
    ordered = tuple(responses[number] for number in range(len(work.queries)))
    state, queries = prompting.step(work.state, ordered)
    return Work(preparation=work.preparation, state=state, queries=queries), True
