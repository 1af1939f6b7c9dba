"""The trainer's operations on samples: proximal log-probs segment by segment, and updates, each of one version's weights."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from attrs import define, evolve, field, frozen

from ...algorithms.language.learner import LanguageState
from ...core import keys
from ...core.errors import StructureError, message
from ...core.keys import Key
from ...core.language.types import Sample
from ...core.record import replace, take
from ...core.transcript.log_probs import with_proximal
from ..text.components import TextComponents
from ..text.config import TextConfig
from ..text.learner_backend import SINGLE_PROCESS, LearnerBackend, Reader
from ..text.trainer import Trainer, TrainStepResult
from ..text.training_loop import UPDATE
from .samples import stacked


def segment_wise(arguments: TextConfig) -> bool:
    """Return whether each token's proximal policy is the one that follows the version that sampled it, by one update.

    >>> from ..text.config import TaskRun
    >>> segment_wise(TaskRun())
    False
    """
    given = arguments.asynchronous
    return given.loss == "decoupled" and given.proximal == "segment_wise"


@frozen
class SampleWithProximal:
    """A sample, and the versions of its tokens whose proximal log-probs are final."""

    sample: Sample
    done: frozenset[int] = frozenset()

    def due(self, version: int) -> set[int]:
        """Return the token versions below `version`, so that an update of them exists, whose proximal log-probs are not set."""
        found: set[int] = set(self.sample.row.version[self.sample.row.is_action].tolist())
        return {one for one in found if 0 <= one < version} - self.done


@define
class VersionedLearner:
    """The weights of a version and, where segment-wise proximal policies need them, of earlier ones."""

    arguments: TextConfig
    parts: TextComponents
    trainer: Trainer
    read: Reader
    key: Key
    version: int
    state: LanguageState
    past: dict[int, Any] = field(factory=dict)  # parameters by version, as far as samples may still need them

    def whole(self) -> dict[str, torch.Tensor]:
        """Return all parameters of the library's model, for generators and evaluation."""
        return self.parts.whole(self.state.params.policy)

    def with_proximal(self, samples: Mapping[Any, SampleWithProximal]) -> dict[Any, SampleWithProximal]:
        """Return samples with proximal log-probs under the weights of version + 1, for each token of a version already updated.

        log q_t = log pi_{v_t + 1}(token_t),   v_t < v

        Source: worlds E.2's invariant; Fu et al. 2025, arXiv:2505.24298, section 5, segment by segment.
        Raises: StructureError where weights of a version are not kept any more.
        """
        after = dict(samples)
        wanted = sorted({one for each in samples.values() for one in each.due(self.version)})
        for made_by in wanted:
            names = [name for name, each in after.items() if made_by in each.due(self.version)]
            rows = stacked([after[name].sample for name in names])
            read = self.read(replace(self.state, params=self._params(made_by + 1)), rows)
            rows = with_proximal(rows, read.log_prob, rows.version == made_by)
            for place, name in enumerate(names):
                each = after[name]
                sample = evolve(each.sample, row=take(rows, [place]))
                after[name] = SampleWithProximal(sample, each.done | {made_by})
        return after

    def _params(self, version: int) -> Any:
        if version == self.version:
            return self.state.params
        if version not in self.past:
            wanted, remedy = f"one of {sorted(self.past)}", "keep weights as long as samples may need them"
            raise StructureError(
                message("with_proximal: weights of version", got=version, wanted=wanted, remedy=remedy)
            )
        return replace(self.state.params, policy=self.past[version])

    def update(self, version: int, samples: Sequence[Sample]) -> TrainStepResult:
        """Run all optimizer steps that turn weights `version` into `version + 1`.

        A learner counts its optimizer steps; here its step is set to the version, so that "interpolated" compares equal units.
        Raises: StructureError for another version, NonFiniteError; then nothing has changed.
        """
        if version != self.version:
            remedy = "train each version once, in order"
            raise StructureError(message("update: version", got=version, wanted=self.version, remedy=remedy))
        step = torch.full_like(self.state.step, version)
        key = keys.fold_in(keys.fold_in(self.key, UPDATE), version)
        learned = self.trainer(replace(self.state, step=step), stacked(samples), key)
        if segment_wise(self.arguments):
            self.past[version] = self.state.params.policy
            oldest = version + 1 - self.arguments.asynchronous.staleness
            self.past = {one: params for one, params in self.past.items() if one >= oldest}
        self.state = replace(learned.state, step=step + 1)
        self.version = version + 1
        return learned


def learning_of(
    arguments: TextConfig,
    parts: TextComponents,
    version: int,
    state: LanguageState,
    past: dict[int, Any],
    backend: LearnerBackend = SINGLE_PROCESS,
) -> VersionedLearner:
    """Return the trainer of a run, with weights of a version. Raises: ChoiceError."""
    _, trainer = backend.learner(arguments, parts)
    return VersionedLearner(
        arguments=arguments,
        parts=parts,
        trainer=trainer,
        read=backend.reader(arguments, parts),
        key=keys.key(arguments.episodes.seed),
        version=version,
        state=state,
        past=past,
    )
