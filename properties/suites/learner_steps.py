"""What laws of learners do with one: begin, prepare a batch, take its gradient. And how such a law is written."""

from collections.abc import Callable
from typing import Any

from ...algorithms.language import LanguageAlgorithm, LanguageState
from ...algorithms.language_batch import Reading
from ...algorithms.token_batch import TokenBatch
from ...core.optim import sgd
from ...core.record import replace
from ...core.transcript import Transcript
from ...core.tree import tree_map
from ..framework.law import Law, Mutant, Seen, always
from ..strategies.learner import MODEL, Talks, params_of, talks
from .learner_mutants import Factory

CONTRACT = "algorithms.language: an update is its steps, in whatever parts"


def begun(factory: Factory, talk: Talks, rate: float = 0.1) -> tuple[LanguageAlgorithm, LanguageState]:
    """A learner at its beginning, its critic's head moved off 0."""
    algorithm = factory(MODEL, sgd(rate))
    state = algorithm.init(params_of(talk))
    moved = tree_map(lambda leaf: leaf + 0.3, state.params.critic)
    return algorithm, replace(state, params=replace(state.params, critic=moved))


def prepared(
    algorithm: LanguageAlgorithm, state: LanguageState, transcripts: Transcript
) -> tuple[TokenBatch, LanguageState]:
    """What it learns from, and the state with what it has seen."""
    reading = algorithm.read(state, transcripts) if algorithm.reads else Reading()
    batch, state, _ = algorithm.prepare(state, transcripts, reading)
    return batch, state


def slopes(factory: Factory, talk: Talks) -> tuple[Any, Any]:
    """The gradient and the sums of all transcripts at once."""
    algorithm, state = begun(factory, talk)
    batch, state = prepared(algorithm, state, talk.transcripts)
    return algorithm.gradient(state.params, batch, algorithm.counts(batch))


def law(
    name: str,
    claim: str,
    mutant: tuple[str, Callable[[Factory], Factory]],
    check: Callable[[Factory, Talks, Seen], None],
    *needs: str,
    source: str = CONTRACT,
) -> Law:
    """A law of learners, tried on transcripts of a few talks."""
    drawn = always(talks())
    return Law(
        name=name, claim=claim, source=source, inputs=drawn, check=check, mutant=Mutant(*mutant), needs=needs, most=200
    )
