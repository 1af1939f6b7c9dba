"""What the handlers of a run of the reasoning cache share: where it stands, and what one step of it does.

A step runs fresh problems through their cycles and publishes the runs; draws states that they went through; samples the next
step of reasoning from each, a group of attempts; and learns from those. What is summed up is never trained.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from attrs import Factory, define, evolve, field

from ...algorithms.language import LanguageAlgorithm, LanguageState
from ...algorithms.supervised import Supervised, supervised
from ...core import keys
from ...core.errors import NonFiniteError
from ...core.keys import Key
from ...core.language.reasoning_cache import due
from ...core.language.reasoning_events import GroupResult
from ...core.language.reasoning_report import throughput
from ...core.language.reasoning_rollouts import at_turn, starting_points, step_requests, step_world
from ...core.language.reasoning_state import Ask, InferenceProblemState
from ...core.language.transcribe import transcripts
from ...core.transcript import Transcript
from ..effects.clock import seconds
from ..effects.tensor_file import write_tensors
from ..language.columns import FIGURES
from ..language.config import ALONE
from ..language.failures import Failures, errors_of
from ..language.learning import algorithm_of, objective_of, trainer_of
from ..language.warm_start import drawn, taught, warm_optimizer
from ..language.world import ORDER, UNIT, UPDATE, WARM, Held, Phases
from ..language_train import Trainer
from ..recipes.cache import Cache, as_turns, lists_of
from ..runs.logging import DIVERGED
from ..runs.training_machine import Train, Trained
from .cycles import cycled
from .lessons import shown
from .parts import Attempts, Calls, Parts, Voice, fits, sampled
from .rows import blank, on_the_way, row_of, texts_of
from .speaking import speaking
from .standing import Standing, problems_of

CYCLES, POINTS, NEXT = 10, 11, 12  # what is drawn from a run's key, beside what a language model's run draws
Notice = Callable[[str], None]
Publish = Callable[[int, GroupResult], None]  # (the group's number in the whole run, the group)


def phases(arguments: Cache) -> Phases:
    """The phases of a run.

    >>> phases(Cache())
    Phases(warm=45, steps=40)
    """
    return Phases(-(-arguments.warm_steps() // UNIT), arguments.run.steps)


@define
class CacheWorld:
    """A run under way."""

    run: Path
    arguments: Cache
    parts: Parts
    algorithm: LanguageAlgorithm
    trainer: Trainer
    publish: Publish
    before: Callable[[LanguageState], None]  # called where reinforcement begins
    evaluate: Callable[[LanguageState], Standing]  # on the way
    notice: Notice
    held: Held
    iteration: int = 0
    rolled: float = 0.0  # seconds spent
    sampled: float = 0.0
    updated: float = 0.0
    warmed: float = 0.0
    _lessons: Any = field(default=())
    _failures: Any = field(default=Factory(lambda self: Failures(self.notice), takes_self=True))
    _published: list[tuple[float, int]] = field(factory=list)  # for each step: when, and how many texts

    def train(self, command: Train) -> Trained:
        """Does one iteration: the handler of `Train`."""
        warm = phases(self.arguments).warm
        if self.iteration < warm:
            row = self._warm(self.iteration)
        else:
            if isinstance(self.held.learner, tuple):
                self.held = Held(learner=self.algorithm.init(self.held.warm.params))
            if self.iteration == warm:
                self.before(self.held.learner)
            row = self._step(self.iteration - warm)
        self.iteration += command.iterations
        if self.iteration >= phases(self.arguments).loop(1).iterations:
            self._failures.report()
        step = max(0, self.iteration - warm)
        return Trained(({"iteration": float(self.iteration), "steps": float(step), **blank(self.arguments), **row},))

    @property
    def key(self) -> Key:
        """The key that everything random in the run follows from."""
        return keys.key(self.arguments.run.seed)

    def _warm(self, number: int) -> dict[str, float]:
        begin = seconds()
        steps, batch = self.arguments.warm_steps(), self.arguments.warm.warm_batch
        every, places = self._taught_from()
        here = range(number * UNIT, min(steps, (number + 1) * UNIT))
        batches = [places[step * batch : (step + 1) * batch] for step in here]
        learner = warm_learner_of(self.arguments, self.parts, self.held.warm.params)
        state, told = taught(learner, self.held.warm, every, batches)
        self.held = Held(warm=state)
        self.warmed += seconds() - begin
        if self.iteration + 1 == phases(self.arguments).warm:
            self._lessons = ()
        return {"warm_loss": told["loss"], "gradient_norm": told["gradient_norm"], "finite": told["finite"]}

    def _taught_from(self) -> tuple[Transcript, list[int]]:
        """The demonstrations of the run, and the order in which they are gone through."""
        if not self._lessons:
            warm, number = self.arguments.warm, self.arguments.warm_steps() * self.arguments.warm.warm_batch
            self.notice(f"making {warm.demonstrations:,} demonstrations, {warm.skill:.0%} of the reasoning right ...")
            shows = shown(self.parts, keys.fold_in(self.key, WARM), warm.demonstrations)
            every = transcripts(shows, capacity=max(len(one.ids) for one in shows), calls=1)
            self._lessons = every, drawn(keys.fold_in(self.key, ORDER), len(shows), number)
        return self._lessons  # type: ignore[no-any-return]

    def _step(self, number: int) -> dict[str, float]:
        state: LanguageState = self.held.learner
        begin = seconds()
        voice = self._voice(state)
        results = self._rollouts(voice, number)
        points = self._points(results, number)
        between = seconds()
        attempts = self._next_steps(voice, points, number)
        after = seconds()
        self._failures.add(f"step {number + 1}", errors_of(attempts), len(attempts))
        times = {"rollout_seconds": between - begin, "sample_seconds": after - between}
        told = {**row_of(self.arguments, results, len(points), attempts), "throughput": self._rate(results), **times}
        written = transcripts(attempts, capacity=max(len(one.ids) for one in attempts), calls=1)
        try:
            learned = self.trainer(state, written, keys.fold_in(keys.fold_in(self.key, UPDATE), number))
        except NonFiniteError as fault:
            write_tensors(self.run / DIVERGED, written)
            self.notice(f"{fault}; the batch is in {self.run / DIVERGED}")
            return {**told, "finite": 0.0}
        if learned.note:
            self.notice(f"step {number + 1}: {learned.note}")
        self.held = Held(learner=learned.state)
        self.rolled += between - begin
        self.sampled += after - between
        self.updated += seconds() - after
        unknown = () if self.arguments.learning.kl else ("kl",)  # where nothing is compared with, it says 0
        figures = {name: value for name, value in learned.figures.items() if name in FIGURES and name not in unknown}
        told |= {**figures, "update_seconds": seconds() - after, "finite": 1.0}
        return {**told, **self._on_the_way(int(state.step), learned.state)}

    def _voice(self, state: LanguageState) -> Voice:
        params = self.parts.whole(state.params.policy)
        return Voice(params=params, version=int(state.step), how=self.parts.settings.llm)

    def _rollouts(self, voice: Voice, number: int) -> tuple[GroupResult, ...]:
        """The runs of a step, on problems of its own, published as they are finished."""
        run, settings = self.arguments.run, self.parts.settings
        groups = run.problems * settings.num_samples_per_problem

        return cycled(
            self.parts.cache,
            settings,
            problems_of(
                lists_of(self.arguments.problems), "training", run.seed, run.problems, first=number * run.problems
            ),
            speaking(self.parts, voice),
            self.parts.codec.decode,
            keys.fold_in(keys.fold_in(self.key, CYCLES), number),
            limits=(settings.llm.max_tokens, self.arguments.speech.summary_tokens),
            version=voice.version,
            publish=lambda result: self.publish(number * groups + result.number, result),
        )

    def _rate(self, results: Sequence[GroupResult]) -> float:
        """Texts published a second, over the last steps; a step's groups are finished together."""
        window = self.parts.settings.throughput_window_size
        self._published = [*self._published, (seconds(), texts_of(results))][-window - 1 :]
        times, counts = zip(*self._published, strict=True)
        return throughput(times, counts, window=window)

    def _points(self, results: Sequence[GroupResult], number: int) -> tuple[InferenceProblemState, ...]:
        """The states whose next step is trained; one whose prompt leaves no room is left out.

        Where none is left, those before the first step.
        """
        states = [one.state for result in results for one in result.attempts]
        key = keys.fold_in(keys.fold_in(self.key, POINTS), number)
        drawn_ = starting_points(states, key, number=self.arguments.run.states)
        asked = [(point, due(self._longer, point)) for point in drawn_]
        found = tuple(point for point, ask in asked if isinstance(ask, Ask) and fits(self.parts, ask.prompt_text))
        return found or tuple(at_turn(state, 1) for state in states)

    @property
    def _longer(self) -> Any:
        """The cache in which also the state behind the last summary has a next step."""
        return evolve(self.parts.cache, num_reasoning_steps=self.parts.cache.num_reasoning_steps + 1)

    def _next_steps(self, voice: Voice, points: Sequence[InferenceProblemState], number: int) -> Attempts:
        key = keys.fold_in(keys.fold_in(self.key, NEXT), number)
        asked = step_requests(len(points), key, attempts=self.arguments.run.samples)
        limits = (self.parts.settings.llm.max_tokens,) * len(asked)
        return sampled(self.parts, voice, Calls(step_world(self._longer, points), limits), asked)

    def _on_the_way(self, before: int, state: LanguageState) -> dict[str, float]:
        """Accuracy on held-out problems, where an update that is due for it was made."""
        every = self.parts.settings.eval_every_n_versions
        if not every or int(state.step) // every == before // every:
            return {}
        found, trained_on = self.evaluate(state), self.parts.settings.num_reasoning_steps
        self.notice(f"version {int(state.step)}: {found.line(trained_on)}")
        return on_the_way(found, trained_on)


def warm_learner_of(arguments: Cache, parts: Parts, params: Any) -> Supervised:
    """The learner of a run's warm start, of such params."""
    warm = arguments.warm
    rates = {"muon_rate": warm.muon_rate, "adamw_rate": warm.adamw_rate}
    return supervised(parts.model, warm_optimizer(params, max(1, arguments.warm_steps()), **rates))


def held_at(arguments: Cache, parts: Parts, algorithm: LanguageAlgorithm, iteration: int) -> Held:
    """What a run holds after so many iterations, as to its structure: the tree of a checkpoint of that iteration."""
    if iteration <= phases(arguments).warm and phases(arguments).warm:
        params = parts.begin()
        return Held(warm=warm_learner_of(arguments, parts, params).init(params))
    return Held(learner=algorithm.init(parts.begin()))


def learning_parts(arguments: Cache, parts: Parts) -> tuple[LanguageAlgorithm, Trainer]:
    """What learns in a run, and what makes its updates."""
    turns = as_turns(arguments)
    objective = objective_of(turns)
    if arguments.run.zero_spread == "drop" and arguments.learning.algorithm not in ALONE:
        objective = evolve(objective, zero_spread="drop")
    algorithm = algorithm_of(turns, parts.model, objective)
    return algorithm, trainer_of(turns, algorithm)
