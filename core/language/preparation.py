"""Preparation of training episodes: starting states that the model itself generates, and records published meanwhile.

For tasks whose episodes do not start in a state drawn from a key, but in one that the current policy reached: cycles of
reasoning and summaries, openings of self-play, curricula of states that the model reaches sometimes.
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
    """The start of a group of episodes: a state of the task's environment, and its first observation."""

    state: Any
    observation: str


@frozen(kw_only=True)
class Record:
    """Rows to be published under a number that is unique in the run."""

    number: int
    rows: tuple[Mapping[str, Any], ...]


@frozen(kw_only=True)
class Prepared:
    """The result of a preparation.

    Each of `starts` is a group of attempts; those whose observation leaves no room for an answer are dropped, and `otherwise`
    is used if none is left. `texts` is the number of completions that count as published.
    """

    starts: tuple[Start, ...]
    otherwise: tuple[Start, ...] = ()
    records: tuple[Record, ...] = ()
    figures: Mapping[str, float] = Factory(dict)
    texts: int = 0


@frozen(kw_only=True)
class Preparation:
    """The preparation of training episodes: prompts to the current weights, then starts.

    In synchronous training, a training step is one preparation of all its tasks; with generators, each task is prepared by
    itself, and `groups` groups start from the result.
    """

    prompting: Prompting[Any, Prepared]
    max_new_tokens: int  # the maximum over its queries
    groups: int = 1  # starts per task
    figures: tuple[str, ...] = ()  # names of the metrics that it reports
    workers: int = 1  # models that are prompted in parallel
    window: int = 10  # steps over which the rate of published texts is averaged
    most: int = 5_242_880  # maximum bytes of a record
    classes: tuple[type, ...] = ()  # classes in the states of starts, which checkpoints need


def start_requests(starts: int, key: Key, *, attempts: int, stream: str = "training") -> tuple[Request, ...]:
    """Return requests for episodes from `starts` starts, with a group of `attempts` attempts for each.

    The task key of a request holds the number of its start, in the bits above the stream's bit. Raises: ChoiceError.

    >>> from .. import keys
    >>> [(request.group, request.task[0] >> 1) for request in start_requests(2, keys.key(0), attempts=2)]
    [(0, 0), (0, 0), (1, 1), (1, 1)]
    """
    bit = choose("start_requests: stream", stream, STREAMS)
    samplers, groups = split(key)
    asked = requests(tuple((2 * number + bit, 0) for number in range(starts)), samplers)
    return tuple(attempt for request in asked for attempt in expand(request, attempts, groups))


def throughput(times: Sequence[float], texts_of: Sequence[int], *, window: int) -> float:
    """Return texts per second over the last `window` groups, published at `times`; 0 for fewer than two groups.

    >>> throughput([0.0, 1.0, 3.0], [9, 4, 2], window=2)
    2.0
    """
    recent, counts = times[-window - 1 :], texts_of[-window:] if len(times) > window else texts_of[1:]
    return sum(counts) / (recent[-1] - recent[0]) if len(recent) > 1 and recent[-1] > recent[0] else 0.0
