"""A training step with a preparation: prompts to the current weights, and groups of attempts at the resulting starts."""

from typing import Any

from attrs import Factory, define, evolve, field

from ...core import keys
from ...core.errors import ChoiceError, message
from ...core.keys import Key
from ...core.language.preparation import Preparation, Prepared, Start, start_requests, throughput
from ...core.language.requests import Request
from ...core.language.types import Rollout
from ..effects.clock import seconds
from .components import Attempts, TextComponents, begin_attempt, behind
from .prompting import prompt_fits

ATTEMPTS = 12  # stream of a run's key for attempts at prepared starts
STATES, THROUGHPUT = "states", "throughput"  # metrics: starts of a step, published texts per second
PREPARED = "preparation_seconds"
STREAM = "rollouts.jsonl"


def attempts_of_step(parts: TextComponents, prepared: Prepared, key: Key, number: int, *, samples: int) -> Attempts:
    """Return the attempts of a prepared run's step `number`, before the model's first call: `samples` at each usable start."""
    starts = usable(parts, prepared)
    asked = start_requests(len(starts), keys.fold_in(keys.fold_in(key, ATTEMPTS), number), attempts=samples)
    return tuple(attempt_from(parts, starts[place // samples], one) for place, one in enumerate(asked))


def usable(parts: TextComponents, prepared: Prepared) -> tuple[Start, ...]:
    """Return the starts that leave room to answer, or the fallback starts if there is none. Raises: ChoiceError."""
    fitting = tuple(one for one in prepared.starts if prompt_fits(parts, behind(parts.preface, one.observation)))
    found = fitting or prepared.otherwise
    if not found:
        got, remedy = f"{len(prepared.starts)} without room to answer", "raise --capacity, or prepare shorter ones"
        raise ChoiceError(message("preparation: starts", got=got, wanted="at least one with room", remedy=remedy))
    return found


def attempt_from(parts: TextComponents, start: Start, request: Request) -> Rollout[Any]:
    """Return an attempt that begins at a start. Raises: ChoiceError where the start leaves no room to answer."""
    first = start.state, behind(parts.preface, start.observation)
    rules = evolve(parts.rules, env=evolve(parts.rules.env, reset=lambda params, key: first))
    return begin_attempt(parts, rules, request)


@define
class Rate:
    """Published texts per second, over the last steps; the records of a step are finished together."""

    window: int
    published: list[tuple[float, int]] = field(default=Factory(list))  # for each step: its time and number of texts

    def after(self, texts: int) -> float:
        """Return the rate after a step with this number of texts."""
        self.published = [*self.published, (seconds(), texts)][-self.window - 1 :]
        times, counts = zip(*self.published, strict=True)
        return throughput(times, counts, window=self.window)


def preparation_columns(preparation: Preparation | tuple[()]) -> tuple[str, ...]:
    """Return the names of the metrics that only prepared steps have."""
    if isinstance(preparation, tuple):
        return ()
    return (STATES, THROUGHPUT, *preparation.figures, PREPARED)
