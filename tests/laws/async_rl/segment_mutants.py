"""How people get segment-wise proximal log-probs wrong: edits of a function like `Learning.anchored`."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from attrs import evolve
from torch import Tensor

from purestep.algorithms.language import LanguageState
from purestep.algorithms.language_batch import Reading
from purestep.core.record import replace
from purestep.core.transcript import Transcript
from purestep.runtime.asynchronous.learning import Anchored, Learning

Anchor = Callable[[Learning, Mapping[Any, Anchored]], dict[Any, Anchored]]
Samples = Mapping[Any, Anchored]


def newest_for_all(anchor: Anchor) -> Anchor:
    """One pass under the newest weights, whatever the version."""

    def newest(learning: Learning, samples: Samples) -> dict[Any, Anchored]:
        policy = learning.state.params.policy
        return anchor(evolve(learning, past=dict.fromkeys(learning.past, policy)), samples)

    return newest


def sets_again(anchor: Anchor) -> Anchor:
    """Remembers nothing, and takes the weights there are where older ones are not kept any more."""

    def again(learning: Learning, samples: Samples) -> dict[Any, Anchored]:
        policy = learning.state.params.policy
        past = defaultdict(lambda: policy, {version: learning.past.get(version, policy) for version in range(99)})
        return anchor(evolve(learning, past=past), {name: Anchored(one.sample) for name, one in samples.items()})

    return again


def _behind(change: Callable[[Learning, Anchored, Anchored], Tensor]) -> Callable[[Anchor], Anchor]:
    """The edit of each sample's proximal log-probs: `change(learning, before, after)`."""

    def make(anchor: Anchor) -> Anchor:
        def edited(learning: Learning, samples: Samples) -> dict[Any, Anchored]:
            done = anchor(learning, samples)
            return {name: _with(one, change(learning, samples[name], one)) for name, one in done.items()}

        return edited

    return make


def _with(one: Anchored, log_prob: Tensor) -> Anchored:
    return evolve(one, sample=evolve(one.sample, row=replace(one.sample.row, proximal_log_prob=log_prob)))


def _own(learning: Learning, before: Anchored, after: Anchored) -> Tensor:
    row = after.sample.row
    read = learning.read(learning.state, row).log_prob
    return torch.where(row.version == learning.version, read, row.proximal_log_prob)


def _told(learning: Learning, before: Anchored, after: Anchored) -> Tensor:
    row = after.sample.row
    read = learning.read(learning.state, row).log_prob
    return row.proximal_log_prob if row.is_action.all() else torch.where(row.is_action, row.proximal_log_prob, read)


def _all_at_once(learning: Learning, before: Anchored, after: Anchored) -> Tensor:
    """Sets every token of a sample of which some is due."""
    row = after.sample.row
    read = learning.read(learning.state, row).log_prob
    return (
        torch.where(row.is_action, read, row.proximal_log_prob) if after.done != before.done else row.proximal_log_prob
    )


def other_order(anchor: Anchor) -> Anchor:
    """Gives what was read together back to the samples the other way round."""

    def turned(learning: Learning, samples: Samples) -> dict[Any, Anchored]:
        def read(state: LanguageState, rows: Transcript) -> Reading:
            return replace(learning.read(state, rows), log_prob=learning.read(state, rows).log_prob.flip(0))

        return anchor(evolve(learning, read=read), samples)

    return turned


def _no_version_zero(anchor: Anchor) -> Anchor:
    """Takes version 0 for none."""

    def zero(learning: Learning, samples: Samples) -> dict[Any, Anchored]:
        return anchor(learning, {name: evolve(one, done=one.done | {0}) for name, one in samples.items()})

    return zero


under_their_own, told_too = _behind(_own), _behind(_told)
MUTANTS: dict[str, Callable[[Anchor], Anchor]] = {
    "takes version 0 for none": _no_version_zero,
    "sets a whole sample when some of it is due": _behind(_all_at_once),
}
