"""Starting states of training episodes that the model itself brings about, and what is published on the way.

For tasks whose episodes do not begin where a key says, but where the present policy has come to: cycles of reasoning and
summaries, openings of self-play, curricula from states that the model reaches now and then.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import Factory, frozen

from ..errors import choose
from ..keys import Key, split
from .prompting import Prompting
from .requests import STREAMS, Request, expand, requests


@frozen(kw_only=True)
class Start:
    """Where a group of episodes begins: a state of the task's world, and its first observation."""

    state: Any
    observation: str


@frozen(kw_only=True)
class Record:
    """Rows to be published under a number that no other record of the run has."""

    number: int
    rows: tuple[Mapping[str, Any], ...]


@frozen(kw_only=True)
class Prepared:
    """The result of a preparation.

    Each of `starts` is a group of attempts; those whose observation leaves no room to answer are left out, and `otherwise`
    takes their place where none is left. `texts` is how many completions are counted as published.
    """

    starts: tuple[Start, ...]
    otherwise: tuple[Start, ...] = ()
    records: tuple[Record, ...] = ()
    figures: Mapping[str, float] = Factory(dict)
    texts: int = 0


@frozen(kw_only=True)
class Preparation:
    """How training episodes are prepared: prompts to the current weights, then starts.

    In turns a step of training is one preparation of all its tasks; generators prepare each task by itself, and begin
    `groups` groups from what comes of it.
    """

    prompting: Prompting[Any, Prepared]
    max_new_tokens: int  # of any of its queries, at most
    groups: int = 1  # starts of a task
    figures: tuple[str, ...] = ()  # names of those that it reports
    workers: int = 1  # models that are prompted side by side
    window: int = 10  # steps of which the rate of published texts is the mean
    most: int = 5_242_880  # bytes of a record
    classes: tuple[type, ...] = ()  # that states of starts are made of, as checkpoints have to know them


def start_requests(starts: int, key: Key, *, attempts: int, stream: str = "training") -> tuple[Request, ...]:
    """Requests for episodes from so many starts, a group of so many attempts for each.

    The task key of a request has the number of its start, in the bits above that of the stream. Raises: ChoiceError.

    >>> from .. import keys
    >>> [(request.group, request.task[0] >> 1) for request in start_requests(2, keys.key(0), attempts=2)]
    [(0, 0), (0, 0), (1, 1), (1, 1)]
    """
    bit = choose("start_requests: stream", stream, STREAMS)
    samplers, groups = split(key)
    asked = requests(tuple((2 * number + bit, 0) for number in range(starts)), samplers)
    return tuple(attempt for request in asked for attempt in expand(request, attempts, groups))


def throughput(times: Sequence[float], texts_of: Sequence[int], *, window: int) -> float:
    """Texts a second over the last `window` published groups, published at those times; 0 before there were two.

    >>> throughput([0.0, 1.0, 3.0], [9, 4, 2], window=2)
    2.0
    """
    recent, counts = times[-window - 1 :], texts_of[-window:] if len(times) > window else texts_of[1:]
    return sum(counts) / (recent[-1] - recent[0]) if len(recent) > 1 and recent[-1] > recent[0] else 0.0
