"""Attempts at zorplex tasks that end in every possible way, as inputs of laws of samples."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from purestep.core import keys
from purestep.core.language.codec import END, byte_codec
from purestep.core.language.protocol import protocol
from purestep.core.language.requests import Request, rollouts
from purestep.core.language.rollout import add_output, begin_rollout
from purestep.core.language.types import ModelOutput, ModelTurn, Rollout, Sample, Transcript, stacked
from purestep.core.language.zorplex.env import zorplex, zorplex_parser
from purestep.core.language.zorplex.task import zorplex_task
from purestep.core.language.zorplex.tasks import ZorplexTask, letters
from purestep.runtime.async_rl.metrics import mean_figures
from purestep.runtime.async_rl.orchestrator import sample_fault
from purestep.runtime.async_rl.rollout_worker import samples_of

CODEC = byte_codec()
CALLS = 5
ROOM: dict[str, Any] = {"capacity": 320, "max_new_tokens": 40}
RULES = protocol(zorplex("simple", vocabulary=letters(keys.key(3), 1, 9)), zorplex_parser(), max_steps=CALLS)
SAYS: dict[str, Callable[[ZorplexTask], str]] = {
    "right": lambda task: f"[ANSWER] {task.answer}",
    "wrong": lambda task: f"[ANSWER] {task.answer + 1}",
    "call": lambda task: f"LOOKUP[{task.asked[0]}]",
    "spam": lambda task: "LOOKUP[nothing]",
    "babble": lambda task: "hm",
}
AnyAttempt = Rollout[Any]


@frozen
class Writing:
    """The functions that write, check and stack samples, and the transfer of a sample to another process."""

    samples_of: Callable[..., tuple[Sample, ...]]
    stacked: Callable[[Sequence[Sample]], Transcript]
    figures_of: Callable[[Sequence[Sample]], dict[str, float]]
    fault: Callable[..., str]
    sent: Callable[[Sample], Sample]


def own_writing() -> Writing:
    """Return the library's own functions."""
    return Writing(
        partial(samples_of, zorplex_task()),
        stacked,
        mean_figures,
        partial(sample_fault, zorplex_task()),
        copy.copy,  # takes it apart and puts it together as a letter between processes is
    )


@frozen
class Talk:
    """The model's texts in an attempt, call by call, with the versions of the first and the second half of each."""

    number: int
    calls: tuple[tuple[str, int, int], ...]


def talks() -> SearchStrategy[tuple[Talk, ...]]:
    """Draw several attempts; versions are in any order."""
    version = st.integers(0, 3)
    several = st.lists(st.sampled_from((*SAYS, "call", "right")), min_size=1, max_size=CALLS)
    verbs = several | st.just(["spam"] * (CALLS - 1) + ["wrong"])
    calls = verbs.flatmap(lambda said: st.tuples(*(st.tuples(st.just(verb), version, version) for verb in said)))
    return st.lists(st.builds(Talk, st.integers(0, 99), calls), min_size=2, max_size=4).map(tuple)


def ended(talk: Talk) -> AnyAttempt:
    """The finished attempt; the last text is repeated until the end."""
    request = Request(id=talk.number, group=talk.number // 4, task=(2 * talk.number, 1), sampling=(talk.number, 2))
    attempt: AnyAttempt = begin_rollout(RULES, CODEC, rollouts(request)[0], **ROOM)
    for number in range(CALLS):
        if not isinstance(attempt.end, tuple):
            break
        verb, first, second = talk.calls[min(number, len(talk.calls) - 1)]
        text = SAYS[verb](attempt.episode.world.task)
        ids = (*text.encode(), END)[: attempt.room]
        half = len(ids) // 2
        said = ModelOutput(
            ids=ids,
            log_probs=tuple(-0.25 * (place % 5) for place in range(len(ids))),
            versions=(*(first,) * half, *(second,) * (len(ids) - half)),
        )
        attempt = add_output(RULES, CODEC, attempt, said)
    return attempt


def written(writing: Writing, attempts: Sequence[AnyAttempt]) -> tuple[Sample, ...]:
    """The samples of attempts, in rows of one capacity."""
    return writing.samples_of(attempts, capacity=ROOM["capacity"], calls=CALLS)


def versions_of(attempt: AnyAttempt) -> list[int]:
    """The versions of the tokens that were sampled, in order."""
    return [version for one in attempt.pieces if isinstance(one, ModelTurn) for version in one.said.versions]
