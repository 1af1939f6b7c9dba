"""Shared state of a language model's training loop, and one step of it."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import Factory, define, field, frozen

from ...algorithms.language.learner import LanguageState
from ...algorithms.supervised import Supervised, supervised
from ...core import keys
from ...core.errors import ChoiceError, NonFiniteError, message
from ...core.keys import Key
from ...core.language.curriculum import CurriculumState, RowOf
from ...core.language.grading import graded
from ...core.language.preparation import Prepared
from ...core.language.requests import Draw, Request, drawn_keys, expand, requests, task_keys
from ...core.language.task import TRAINING, TextTask
from ...core.language.to_transcript import transcripts
from ...core.language.types import Rollout, Transcript
from ...core.record import record, take
from ..effects.checkpoint.tensor_file import write_tensors
from ..effects.clock import seconds
from ..machine.drive import stopping
from ..runs.logging import DIVERGED
from ..runs.recipe import Notice
from ..runs.training_machine import Loop, TrainChunk, Trained
from .build_learner import SINGLE_PROCESS, LearnerBackend, LearnerInit
from .columns import LABEL, LENGTHS, SPEEDS, label_columns, learner_columns
from .components import Attempts, TextComponents
from .config import TextConfig, warm_steps
from .conversations import Keep, keep_none, trained_attempt
from .curriculum import RESAMPLED, SKIPPED, StepAttempts, curriculum_of, sample_step, state_tensors
from .equal_rewards import EqualRewards, summary_of
from .evaluation import EvaluationResult, evaluation_result
from .failures import errors_of, failures_of
from .preparation import PREPARED, STATES, THROUGHPUT, Rate, attempts_of_step
from .preparation import preparation_columns as prepared_columns
from .prompting import Complete, spoken
from .prompting import ask_prompts as prompted
from .report import evaluation_names
from .supervised_warm_start import WarmStartSettings, draw_demonstrations, draw_indices, taught, warm_optimizer
from .trainer import Trainer

UNIT = 20  # steps of the warm start in one iteration of the machine
TASKS, WARM, ORDER, UPDATE = 2, 3, 4, 5  # streams of a run's key, besides those of `parts`
WORK = ("warm start", "preparation", "sampling", "updates")  # parts of a session, whose seconds are reported
Asking = Callable[[LanguageState, Sequence[Request]], Attempts]  # samples with the weights of a state
Completing = Callable[[LanguageState], Complete]  # completes begun attempts with them
Evaluating = Callable[[LanguageState], Mapping[str, float]]  # figures of an evaluation during training
Publish = Callable[[int, Sequence[Mapping[str, Any]]], None]  # (a record's number, its rows)


@record
class LearnerState:
    """State of a run that decides its future; the fields of the other phase are ()."""

    warm: Any = ()  # TrainState
    learner: Any = ()  # LanguageState
    curriculum: Any = ()  # of the prompts, as tensors, where there is one


@frozen
class PhaseLengths:
    """Phases of a run: warm start and reinforcement learning."""

    warm: int  # iterations of the warm start, the last of which may be shorter
    steps: int  # iterations of reinforcement learning

    def loop(self, every: int) -> Loop:
        """Return the loop at the beginning of the run."""
        return Loop(iterations=self.warm + self.steps, chunk=1, every=every)


def phases(arguments: TextConfig) -> PhaseLengths:
    """Return the phases of a run.

    >>> from .config import TaskRun
    >>> phases(TaskRun())
    PhaseLengths(warm=20, steps=100)
    """
    return PhaseLengths(-(-warm_steps(arguments) // UNIT), arguments.episodes.steps)


@define
class TextTrainingLoop:
    """State and functions of a running training loop."""

    run: Path
    arguments: TextConfig
    parts: TextComponents
    algorithm: LearnerInit
    trainer: Trainer
    ask: Asking
    complete: Completing
    publish: Publish
    before: Callable[[LanguageState], None]  # called when reinforcement learning begins
    evaluate: Evaluating
    notice: Notice
    held: LearnerState
    keep: Keep = keep_none  # called with the attempts of each step
    iteration: int = 0
    times: dict[str, float] = field(factory=lambda: dict.fromkeys(WORK, 0.0))  # seconds spent
    _demonstrations: Any = field(default=())
    _failures: Any = field(default=Factory(lambda self: failures_of(self.parts.task, self.notice), takes_self=True))
    _equal: EqualRewards = field(
        default=Factory(lambda self: EqualRewards(self.run, self.arguments, self.notice), takes_self=True)
    )
    _rate: Any = field(default=())  # rate of published texts

    def train(self, command: TrainChunk) -> Trained:
        """Run one iteration: the handler of `Train`; none where a wait was ended by Ctrl-C, and the state stays as it was."""
        before = self.held
        try:
            return self._trained(command)
        except KeyboardInterrupt:
            if not stopping():
                raise
            self.held = before
            return Trained(())

    def _trained(self, command: TrainChunk) -> Trained:
        warm = phases(self.arguments).warm
        if self.iteration < warm:
            row = self._warm(self.iteration)
        else:
            if isinstance(self.held.learner, tuple):
                policy = self.held.warm.params
                self.held = begun_learner(self.arguments, self.parts.task, self.algorithm.init(policy))
            if self.iteration == warm:
                self.before(self.held.learner)
            row = self._step(self.iteration - warm)
        self.iteration += command.iterations
        if self.iteration >= phases(self.arguments).loop(1).iterations:
            self._failures.report()
        blank = dict.fromkeys(metric_columns(self.arguments, self.parts.task), math.nan)
        steps = max(0, self.iteration - warm) * episodes_of(self.arguments, self.parts.task)
        return Trained(({"iteration": float(self.iteration), "steps": float(steps), **blank, **row},))

    @property
    def state(self) -> LearnerState:
        """Return the state that decides the future of the run."""
        return self.held

    def spent(self) -> tuple[str, ...]:
        """Return the seconds of each part of the session."""
        return tuple(f"{name} {spent:.1f} s" for name, spent in self.times.items() if spent)

    @property
    def key(self) -> Key:
        """Return the key that all random numbers of the run follow from."""
        return keys.key(self.arguments.episodes.seed)

    def _warm(self, number: int) -> dict[str, float]:
        begin = seconds()
        steps, batch = warm_steps(self.arguments), self.arguments.warm.warm_batch
        every, places = self._taught_from()
        here = range(number * UNIT, min(steps, (number + 1) * UNIT))
        batches = [places[step * batch : (step + 1) * batch] for step in here]
        learner = warm_learner_of(self.arguments, self.parts, self.held.warm.params)
        state, means = taught(learner, self.held.warm, every, batches)
        self.held = LearnerState(warm=state)
        self.times["warm start"] += seconds() - begin
        if self.iteration + 1 == phases(self.arguments).warm:
            self._demonstrations = ()
        return {"warm_loss": means["loss"], "gradient_norm": means["gradient_norm"], "finite": means["finite"]}

    def _taught_from(self) -> tuple[Transcript, list[int]]:
        """Return the demonstrations of the run, and the order in which they are trained on."""
        if not self._demonstrations:
            warm, number = self.arguments.warm, warm_steps(self.arguments) * self.arguments.warm.warm_batch
            self.notice(f"making {warm.demonstrations:,} demonstrations, {warm.skill:.0%} of them right ...")
            shows = demonstrated(self.arguments, self.parts, keys.fold_in(self.key, WARM))
            longest = max(len(attempt.ids) for attempt in shows)
            every = transcripts(shows, capacity=longest, calls=self.arguments.episodes.max_turns)
            self._demonstrations = every, draw_indices(keys.fold_in(self.key, ORDER), len(shows), number)
        return self._demonstrations  # type: ignore[no-any-return]

    def _step(self, number: int) -> dict[str, float]:
        state: LanguageState = self.held.learner
        begin = seconds()
        step = self._sampled(state, number)
        attempts, sampled, prepared = step.batch, step.sampled, step.figures
        between = seconds()
        spent = between - begin - prepared.get(PREPARED, 0.0)
        self._failures.add(f"step {number + 1}", errors_of(sampled), len(sampled))
        written = transcripts(
            attempts, capacity=max(len(one.ids) for one in attempts), calls=self.arguments.episodes.max_turns
        )
        self._equal.add(f"step {number + 1}", [summary_of(self.parts.task, one) for one in sampled])
        row = {**_row(self.parts.task, evaluation_result(self.parts.task, sampled), spent), **prepared}
        try:
            learned = self.trainer(state, written, keys.fold_in(keys.fold_in(self.key, UPDATE), number))
        except NonFiniteError as fault:
            write_tensors(self.run / DIVERGED, written)
            self.notice(f"{fault}; the batch is in {self.run / DIVERGED}")
            return {**row, "finite": 0.0}
        if learned.note and not self._equal.reported:
            self.notice(f"step {number + 1}: {learned.note}")
        self.held = LearnerState(learner=learned.state, curriculum=step.state)
        self.times["preparation"] += prepared.get(PREPARED, 0.0)
        self.times["sampling"] += spent
        self.times["updates"] += seconds() - between
        unknown = () if self.arguments.learning.kl else ("kl",)  # without a reference policy the figure is 0, not a KL
        known = learner_columns(self.arguments.sampling.top_p)
        figures = {name: value for name, value in learned.figures.items() if name in known and name not in unknown}
        row |= {**figures, "update_seconds": seconds() - between, "finite": 1.0}
        self.keep(
            number + 1,
            written.group.tolist(),
            lambda place: trained_attempt(
                self.parts.task, attempts[place], take(written, [place]), learned.advantage[place]
            ),
        )
        every = self.arguments.episodes.eval_every_n_versions
        due = evaluation_due(every, before=int(state.step), after=int(learned.state.step))
        return {**row, **(self.evaluate(learned.state) if due else {})}

    def _sampled(self, state: LanguageState, number: int) -> StepAttempts:
        """Return the attempts of a step, and the figures of its preparation or its curriculum if it has one."""
        preparation, draw = self.parts.task.preparation, self.parts.task.draw
        rules = curriculum_of(self.arguments, self.parts.task)
        if not isinstance(rules, tuple):
            return sample_step(
                self.arguments,
                self.parts.task,
                rules,
                self.held.curriculum,
                requests_of=lambda prompt: prompt_requests(self.arguments, self.key, prompt, draw),
                row_of=prompt_row(self.key, draw),
                sample=lambda requests: self.ask(state, requests),
            )
        if isinstance(preparation, tuple):
            attempts = self.ask(state, training_requests(self.arguments, self.key, number, draw))
            return StepAttempts(attempts, attempts, (), {})
        begin, complete = seconds(), self.complete(state)
        tasks, samples = self.arguments.episodes.groups // preparation.groups, self.arguments.episodes.samples
        prepared: Prepared = prompted(
            self.parts, complete, preparation.prompting, self.key, number, tasks, int(state.step)
        )
        for one in prepared.records:
            self.publish(one.number, one.rows)
        begun = attempts_of_step(self.parts, prepared, self.key, number, samples=samples)
        self._rate = self._rate or Rate(preparation.window)
        figures = {
            **prepared.figures,
            STATES: float(len(begun) // samples),
            THROUGHPUT: self._rate.after(prepared.texts),
        }
        spent = seconds() - begin
        attempts = graded(self.parts.task.grader, complete(self.parts.rules, begun, 0))
        return StepAttempts(attempts, attempts, (), {**figures, PREPARED: spent})


def evaluation_due(every: int, *, before: int, after: int) -> bool:
    """Return whether an evaluation during training is due between two versions.

    >>> [evaluation_due(2, before=version, after=version + 1) for version in range(4)], evaluation_due(0, before=0, after=1)
    ([False, True, False, True], False)
    """
    return every > 0 and after // every != before // every


def episodes_of(arguments: TextConfig, task: TextTask) -> int:
    """Return the increment of a step in metrics: its attempts, or 1 where a preparation decides their number."""
    episodes = arguments.episodes
    return episodes.groups * episodes.samples if isinstance(task.preparation, tuple) else 1


def demonstrated(arguments: TextConfig, parts: TextComponents, key: Key) -> tuple[Rollout[Any], ...]:
    """Return the demonstrations of a run; of given conversations, those that fit. Raises: ChoiceError."""
    warm, ready = arguments.warm, parts.task.conversations
    if isinstance(ready, tuple):
        return draw_demonstrations(warm_start_settings(arguments, parts), key, warm.demonstrations)
    made = (spoken(parts, one) for one in ready(key, warm.demonstrations, warm.skill))
    found = tuple(one for one in made if not isinstance(one, tuple))
    if not found:
        wanted, remedy = "at least one that fits", "raise --max-new-tokens or --capacity"
        raise ChoiceError(message("--demonstrations", got="all too long", wanted=wanted, remedy=remedy))
    return found


def metric_columns(arguments: TextConfig, task: TextTask) -> tuple[str, ...]:
    """Return the names of a run's metrics, besides those of its progress."""
    evaluates = arguments.episodes.eval_every_n_versions or not isinstance(task.evaluation, tuple)
    on_the_way = evaluation_names(task, arguments.episodes.eval_samples) if evaluates else ()
    prepared = prepared_columns(task.preparation)
    chosen = () if isinstance(curriculum_of(arguments, task), tuple) else (RESAMPLED, SKIPPED)
    labels = (LABEL + name for name in task.labels)
    learned = learner_columns(arguments.sampling.top_p)
    own = (*task.figures, *labels, *LENGTHS, *learned, *SPEEDS, *prepared, *chosen)
    return ("warm_loss", "episode_return", *own, *on_the_way)


def _row(task: TextTask, said: EvaluationResult, spent: float) -> dict[str, float]:
    numbers = {name: said.figures[name] for name in task.figures} | label_columns(said.modes)
    numbers |= {name: getattr(said, name) for name in LENGTHS}
    rate = said.tokens * said.attempts / spent
    return {"episode_return": said.reward, **numbers, "rollout_seconds": spent, "tokens_per_second": rate}


def training_requests(arguments: TextConfig, key: Key, number: int, draw: Draw | tuple[()] = ()) -> tuple[Request, ...]:
    """Return the requests of a training step: tasks of the training stream, each a group of attempts.

    Tasks are fresh, or those of `draw`, which receives one key and the number of the prompt in the whole run.

    >>> from .config import TaskRun
    >>> len(training_requests(TaskRun(), keys.key(0), 0)), training_requests(TaskRun(), keys.key(0), 0)[0].task[0] % 2
    (128, 0)
    """
    run = keys.fold_in(key, TASKS)
    tasks, samples = keys.split(keys.fold_in(run, number))
    many = arguments.episodes.groups
    first = number * many
    words = (
        task_keys(tasks, TRAINING, many) if isinstance(draw, tuple) else drawn_keys(draw, run, TRAINING, many, first)
    )
    each = requests(words, samples, first=first)
    return tuple(one for request in each for one in expand(request, arguments.episodes.samples, samples))


def prompt_requests(arguments: TextConfig, key: Key, prompt: int, draw: Draw | tuple[()] = ()) -> tuple[Request, ...]:
    """Return the requests of a prompt, one for each member of its group: those of group p mod G in step p div G of training.

    So runs with and without generators ask the same in the same order.

    >>> from .config import TaskRun
    >>> few = TaskRun()
    >>> prompt_requests(few, keys.key(0), 17) == training_requests(few, keys.key(0), 1)[8:16]
    True
    """
    step, group = divmod(prompt, arguments.episodes.groups)
    run = keys.fold_in(key, TASKS)
    tasks, samples = keys.split(keys.fold_in(run, step))
    drawn = task_keys(tasks, TRAINING, 1, first=group) if isinstance(draw, tuple) else (draw(run, TRAINING, prompt),)
    request = requests(drawn, samples, first=prompt)[0]
    return expand(request, arguments.episodes.samples, samples)


def prompt_row(key: Key, draw: Draw | tuple[()]) -> RowOf:
    """Return the function that gives a training prompt, by its number, its row in the task's list; 0 without a list.

    >>> [prompt_row(keys.key(0), lambda key, stream, number: (2 * (number % 3), 0))(number) for number in range(4)]
    [0, 1, 2, 0]
    """
    run = keys.fold_in(key, TASKS)
    return lambda number: 0 if isinstance(draw, tuple) else draw(run, TRAINING, number)[0] >> 1


def warm_start_settings(arguments: TextConfig, parts: TextComponents) -> WarmStartSettings:
    """Return the settings of a run's demonstrations. Raises: ChoiceError for a task that has none."""
    script = parts.task.demonstrations
    if isinstance(script, tuple):
        remedy = "leave it out, or give the task demonstrations"
        raise ChoiceError(message("--warm-steps", got=warm_steps(arguments), wanted="0", remedy=remedy))
    return WarmStartSettings(
        script=script,
        rules=parts.rules,
        codec=parts.codec,
        spell=parts.spell,
        skill=arguments.warm.skill,
        capacity=arguments.sampling.capacity,
        max_new_tokens=arguments.sampling.max_new_tokens,
    )


def warm_learner_of(arguments: TextConfig, parts: TextComponents, params: Any) -> Supervised:
    """Return the learner of a run's warm start, for these params."""
    warm = arguments.warm
    optimizer = warm_optimizer(
        params,
        max(1, warm_steps(arguments)),
        muon_rate=warm.muon_rate,
        adamw_rate=warm.adamw_rate,
        precision=torch.bfloat16 if warm.muon_precision == "bfloat16" else torch.float32,
    )
    return supervised(parts.model, optimizer)


def held_at(arguments: TextConfig, parts: TextComponents, algorithm: LearnerInit, iteration: int) -> LearnerState:
    """Return the tree of a checkpoint of an iteration, as to its structure.

    At the beginning it is the run's initial state.
    """
    if iteration <= phases(arguments).warm and phases(arguments).warm:
        params = parts.begin()
        return LearnerState(warm=warm_learner_of(arguments, parts, params).init(params))
    return begun_learner(arguments, parts.task, algorithm.init(parts.begin()))


def begun_learner(arguments: TextConfig, task: TextTask, learner: LanguageState) -> LearnerState:
    """Return the state before the first step of reinforcement learning."""
    rules = curriculum_of(arguments, task)
    curriculum = () if isinstance(rules, tuple) else state_tensors(CurriculumState(), rules.prompts)
    return LearnerState(learner=learner, curriculum=curriculum)


def policy_of(held: LearnerState) -> Any:
    """Return the parameters of the model that is trained."""
    return held.warm.params if isinstance(held.learner, tuple) else held.learner.params.policy


def learning_components(
    arguments: TextConfig, parts: TextComponents, backend: LearnerBackend = SINGLE_PROCESS
) -> tuple[LearnerInit, Trainer]:
    """Return the learner and the trainer of a run. Raises: ChoiceError."""
    return backend.learner(arguments, parts)
