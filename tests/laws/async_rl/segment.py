"""Laws of segment-wise proximal log-probs in a run: those of a token are under the weights one version after its own.

The subject is a function (learning, samples) -> samples, as `VersionedLearner.with_proximal`. Weights are numbers, and a
log-prob is computed from weights, token and place, so that equal means equal bits; weights are kept as long as in a run.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from attrs import evolve, field, frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from purestep.algorithms.language.batch import Reading
from purestep.algorithms.language.learner import LanguageState
from purestep.algorithms.language.scoring import LearnerParams
from purestep.core import keys
from purestep.core.language.types import Sample, Transcript
from purestep.core.record import replace
from purestep.core.transcript.record import ABSENT, empty
from purestep.core.tree import leaves
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always
from purestep.runtime.async_rl.rollout_worker import OWN
from purestep.runtime.async_rl.training_phase import VersionedLearner, due_versions
from purestep.runtime.text.config import TaskRun

# --- mutants ---
# Common errors in segment-wise proximal log-probs: edits of a function like `VersionedLearner.anchored`.


Anchor = Callable[[VersionedLearner, Mapping[Any, Sample]], dict[Any, Sample]]
Samples = Mapping[Any, Sample]


def newest_for_all(anchor: Anchor) -> Anchor:
    """Use one pass under the newest weights, whatever the version is."""

    def newest(learning: VersionedLearner, samples: Samples) -> dict[Any, Sample]:
        policy = learning.state.params.policy
        return anchor(evolve(learning, past=dict.fromkeys(learning.past, policy)), samples)

    return newest


def sets_again(anchor: Anchor) -> Anchor:
    """Forget which versions are done, and use the current weights for versions that are no longer kept."""

    def again(learning: VersionedLearner, samples: Samples) -> dict[Any, Sample]:
        policy = learning.state.params.policy
        past = defaultdict(lambda: policy, {version: learning.past.get(version, policy) for version in range(99)})
        return anchor(
            evolve(learning, past=past), {name: evolve(one, final=frozenset()) for name, one in samples.items()}
        )

    return again


def _behind(
    change: Callable[[VersionedLearner, Sample, Sample], Tensor],
) -> Callable[[Anchor], Anchor]:
    """The edit of each sample's proximal log-probs: `change(learning, before, after)`."""

    def make(anchor: Anchor) -> Anchor:
        def edited(learning: VersionedLearner, samples: Samples) -> dict[Any, Sample]:
            done = anchor(learning, samples)
            return {name: _with(one, change(learning, samples[name], one)) for name, one in done.items()}

        return edited

    return make


def _with(one: Sample, log_prob: Tensor) -> Sample:
    return evolve(one, row=replace(one.row, proximal_log_prob=log_prob))


def _own(learning: VersionedLearner, before: Sample, after: Sample) -> Tensor:
    row = after.row
    read = learning.read(learning.state, row).log_prob
    return torch.where(row.version == learning.version, read, row.proximal_log_prob)


def _told(learning: VersionedLearner, before: Sample, after: Sample) -> Tensor:
    row = after.row
    read = learning.read(learning.state, row).log_prob
    return row.proximal_log_prob if row.is_action.all() else torch.where(row.is_action, row.proximal_log_prob, read)


def _all_at_once(learning: VersionedLearner, before: Sample, after: Sample) -> Tensor:
    """Set all tokens of a sample if some of them are due."""
    row = after.row
    read = learning.read(learning.state, row).log_prob
    return (
        torch.where(row.is_action, read, row.proximal_log_prob)
        if after.final != before.final
        else row.proximal_log_prob
    )


def other_order(anchor: Anchor) -> Anchor:
    """Reverse the order of the rows that were scored together."""

    def turned(learning: VersionedLearner, samples: Samples) -> dict[Any, Sample]:
        def read(state: LanguageState, rows: Transcript) -> Reading:
            return replace(learning.read(state, rows), log_prob=learning.read(state, rows).log_prob.flip(0))

        return anchor(evolve(learning, read=read), samples)

    return turned


def _no_version_zero(anchor: Anchor) -> Anchor:
    """Treat version 0 as absent."""

    def zero(learning: VersionedLearner, samples: Samples) -> dict[Any, Sample]:
        return anchor(learning, {name: evolve(one, final=one.final | {0}) for name, one in samples.items()})

    return zero


under_their_own, told_too = _behind(_own), _behind(_told)
MUTANTS: dict[str, Callable[[Anchor], Anchor]] = {
    "takes version 0 for none": _no_version_zero,
    "sets a whole sample when some of it is due": _behind(_all_at_once),
}


# --- laws ---


SOURCE = "worlds E.2's invariant; Fu et al. 2025, arXiv:2505.24298, section 5, segment by segment"
LENGTH = 6


@frozen
class Arrival:
    """A sample that arrives at a version. Its versions are counted back from that one; () was not sampled."""

    at: int
    lags: tuple[int | tuple[()], ...]
    seed: int


@frozen
class Scene:
    """The bound on staleness, the samples in order of arrival, and the number of updates."""

    staleness: int
    arrivals: tuple[Arrival, ...]
    updates: int


@frozen
class Course:
    """The samples as they came, and as they were at each version once all that was due had been set."""

    came: dict[int, Sample] = field(factory=dict)
    at: list[dict[int, Sample]] = field(factory=list)


def scenes() -> SearchStrategy[Scene]:
    """Draw a few samples over a few updates."""
    return st.integers(1, 3).flatmap(_with_staleness)


def _with_staleness(staleness: int) -> SearchStrategy[Scene]:
    lag = st.one_of(st.integers(0, staleness), st.just(()))
    lags = st.tuples(st.just(0), *[lag] * (LENGTH - 1))
    arrival = st.builds(Arrival, st.integers(0, 3), lags, st.integers(0, 99))
    arrivals = st.lists(arrival, min_size=2, max_size=4).map(tuple)
    return st.builds(Scene, st.just(staleness), arrivals, st.just(5))


def policy_of(version: int) -> Tensor:
    """The weights of a version."""
    return torch.tensor(7 * version + 3)


def score(policy: Tensor, row: Transcript) -> Tensor:
    """The log-prob of each token under these weights: [*, L]."""
    place = torch.arange(row.token.shape[-1])
    return -((policy * (row.token + 5) * (place + 2) + row.token) % 101).to(torch.float32)


def sample_at(arrival: Arrival) -> Sample:
    """The sample; a lag beyond the first version is one to that."""
    versions = [ABSENT if isinstance(lag, tuple) else max(0, arrival.at - lag) for lag in arrival.lags]
    version = torch.tensor([versions])
    token = keys.randint(keys.key(arrival.seed), (1, LENGTH), 0, 50)
    blank = empty(LENGTH, 1, id=torch.tensor([arrival.seed]), group=torch.tensor([0]))
    row = replace(blank, token=token, is_action=version >= 0, version=version, length=torch.tensor([LENGTH]))
    made = [one for one in versions if one >= 0]
    row = replace(row, behaviour_log_prob=torch.where(version >= 0, -0.5, 0.0))
    row = replace(row, proximal_log_prob=row.behaviour_log_prob)
    return Sample(row, dict.fromkeys(OWN, 0.0), "success", min(made), max(made), len(made))


def learning_at(version: int, staleness: int) -> VersionedLearner:
    """A trainer with the weights of a version and those that it keeps of the versions before."""
    nothing: Any = ()
    params = LearnerParams(policy=policy_of(version))
    return VersionedLearner(
        arguments=TaskRun(),
        parts=nothing,
        trainer=nothing,
        read=lambda state, row: Reading(log_prob=score(state.params.policy, row)),
        key=keys.key(0),
        version=version,
        state=LanguageState(params=params, optimizer=(), step=torch.tensor(version)),
        past={one: policy_of(one) for one in range(max(0, version - staleness), version)},
    )


def played(anchor: Anchor, scene: Scene) -> Course:
    """Return the course of a scene: at each version samples arrive, and all log-probs that are due are set."""
    course, there = Course(), dict[int, Sample]()
    for version in range(scene.updates):
        for number, arrival in enumerate(scene.arrivals):
            if arrival.at == version:
                course.came[number] = sample_at(arrival)
                there[number] = course.came[number]
        there = anchor(learning_at(version, scene.staleness), there)
        course.at.append(dict(there))
    return course


def segment_laws() -> Suite:
    """The laws of a function like `VersionedLearner.anchored`."""
    return Suite("segment_laws", (_next_one(), _newest(), _set_once(), _rest(), _alone()))


def _law(
    name: str, claim: str, mutant: Mutant, check: Callable[[Anchor, Scene, Course, Seen], None], *needs: str
) -> Law:
    def on_course(anchor: Anchor, scene: Scene, seen: Seen) -> None:
        check(anchor, scene, played(anchor, scene), seen)

    return Law(
        name=name,
        claim=claim,
        source=SOURCE,
        inputs=always(scenes()),
        check=on_course,
        mutant=mutant,
        needs=needs,
        most=500,
    )


def _next_one() -> Law:
    def check(anchor: Anchor, scene: Scene, course: Course, seen: Seen) -> None:
        for version, samples in enumerate(course.at):
            for number, one in samples.items():
                row = one.row
                for made_by in set(row.version[row.is_action].tolist()) & set(range(version)):
                    chosen = row.version == made_by
                    seen("tokens of version 0", made_by == 0)
                    seen("tokens of several versions", len(set(row.version[row.is_action].tolist())) > 1)
                    seen("tokens older than one version", made_by < version - 1)
                    wanted = score(policy_of(made_by + 1), row)
                    what = f"sample {number} at version {version}, tokens of version {made_by}"
                    same(what, row.proximal_log_prob[chosen].tolist(), wanted[chosen].tolist())

    claim = "log q_t = log pi_(v_t + 1)(token_t) for each token that an update lies behind, version 0 among them."
    mutant = Mutant("takes the newest weights for all of them", newest_for_all)
    needs = ("tokens of version 0", "tokens of several versions", "tokens older than one version")
    return _law("one_version_after_its_own", claim, mutant, check, *needs)


def _newest() -> Law:
    def check(anchor: Anchor, scene: Scene, course: Course, seen: Seen) -> None:
        for version, samples in enumerate(course.at):
            for number, one in samples.items():
                row = one.row
                newest = row.version == version
                seen("tokens of the newest weights", newest.any())
                got, wanted = row.proximal_log_prob[newest], row.behaviour_log_prob[newest]
                same(f"sample {number} at version {version}, its newest tokens", got.tolist(), wanted.tolist())
                due = due_versions(one, version)
                require(not due, f"sample {number} at version {version}: versions {sorted(due)} are still due")

    claim = "Tokens of the newest weights wait for the next ones, and nothing else is left."
    mutant = Mutant("sets the newest tokens under their own weights", under_their_own)
    return _law("newest_wait", claim, mutant, check, "tokens of the newest weights")


def _set_once() -> Law:
    def check(anchor: Anchor, scene: Scene, course: Course, seen: Seen) -> None:
        for version, samples in enumerate(course.at):
            again = anchor(learning_at(version, scene.staleness), samples)
            for number, one in samples.items():
                same(f"sample {number} again at version {version}", _bits(again[number]), _bits(one))
            for later in course.at[version + 1 :]:
                for number, one in samples.items():
                    then = one.row.version
                    chosen = (then >= 0) & (then < version)
                    seen("what was set before", chosen.any())
                    new = later[number].row.proximal_log_prob[chosen]
                    same(f"sample {number}, set at version {version}", new, one.row.proximal_log_prob[chosen])

    claim = "What is set stays, without the weights that it was set with."
    mutant = Mutant("sets all of them again each time", sets_again)
    return _law("set_for_good", claim, mutant, check, "what was set before")


def _rest() -> Law:
    def check(anchor: Anchor, scene: Scene, course: Course, seen: Seen) -> None:
        for number, one in course.at[-1].items():
            row, was = one.row, course.came[number].row
            told = ~row.is_action
            seen("tokens that nobody sampled", told.any())
            same(f"sample {number}, what was told", row.proximal_log_prob[told], was.proximal_log_prob[told])
            same(f"sample {number}, all else", replace(row, proximal_log_prob=was.proximal_log_prob), was)

    claim = "Nothing but proximal log-probs of sampled tokens changes."
    mutant = Mutant("sets tokens that nobody sampled", told_too)
    return _law("rest_stays", claim, mutant, check, "tokens that nobody sampled")


def _alone() -> Law:
    def check(anchor: Anchor, scene: Scene, course: Course, seen: Seen) -> None:
        for number, arrival in enumerate(scene.arrivals):
            alone = played(anchor, Scene(scene.staleness, (arrival,), scene.updates)).at[-1][0]
            seen(
                "samples of the same versions beside it", len({one.at for one in scene.arrivals}) < len(scene.arrivals)
            )
            same(f"sample {number}", _bits(course.at[-1][number]), _bits(alone))

    claim = "What becomes of a sample does not depend on those beside it."
    mutant = Mutant("gives rows back to the samples in another order", other_order)
    return _law("alone_as_together", claim, mutant, check, "samples of the same versions beside it")


def _bits(one: Sample) -> list[Any]:
    return [*leaves(one.row), *sorted(one.final)]
