"""Members of a sweep that are trained side by side: one program for all of them, and for every stage."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...core import keys
from ...core.record import record, tensor
from ..compile import artefact_name, program
from ..effects.reporting.progress import progress
from ..evaluate import Evaluate, Evaluation, evaluate
from ..files.cache_folder import cache_directory
from ..population import each, population, with_hyperparameters
from ..runs.loop_state import first_call
from ..runs.recipe import Notice
from ..train import RunState, folded
from .evaluate_policy import APART, LONGEST, SHORT
from .pipeline import actor_critic_pipeline
from .shared_settings import iteration_steps, loop_of
from .sweep_results import Curve, Trial
from .sweep_settings import SWEPT, Point

TRAINING, EVALUATION = "training program", "evaluation program"
CURVE = 100  # points of a whole run's curve that are kept, at most
Member = tuple[Point, int]  # a setting and a seed


@record
class Cohort:
    """Members S that are trained side by side, and the episodes that they finished."""

    state: RunState  # [S, ...]
    history: Tensor = tensor("* chunks 3", "float")  # of each chunk: sum of returns, episodes, 1 where all was finite


class Members:
    """Trains members of a sweep. Learning rates anneal over the whole run, also for members that stop before its end."""

    def __init__(self, arguments: Any, episodes: int, notice: Notice) -> None:
        torch.set_num_threads(1)
        self.arguments, self.episodes, self.notice = arguments, episodes, notice
        self.pipeline = actor_critic_pipeline(arguments)
        for line in self.pipeline.notices:
            notice(line)
        self.loop = loop_of(arguments.experience, arguments.process)
        self.many = population(self.pipeline.trainer)
        self.chunk = folded(self.many, self.loop.chunk)
        self.programs: dict[str, Callable[..., Any]] = {}  # those that were called

    def begin(self, members: Sequence[Member]) -> Cohort:
        """Return the members before their first step."""
        device = self.arguments.process.device
        state = self.many.init(torch.stack([keys.key(seed, device=device) for _, seed in members]))
        names = members[0][0].keys()
        changes = {
            SWEPT[name]: torch.tensor([point[name] for point, _ in members], dtype=torch.float64) for name in names
        }
        return Cohort(
            state=with_hyperparameters(state, changes), history=torch.zeros(len(members), 0, 3, device=device)
        )

    def like(self, members: Sequence[Member], chunks: int) -> Cohort:
        """Return a cohort with the shapes of one that has done `chunks` chunks."""
        begun = self.begin(members)
        return Cohort(state=begun.state, history=begun.history.new_zeros(len(members), chunks, 3))

    def train(self, cohorts: Sequence[Cohort], chunks: int) -> Sequence[Cohort]:
        """Return the cohorts after `chunks` chunks of the run, counted from its beginning, each trained by a thread."""
        size, done = cohorts[0].history.shape[:2]
        steps = iteration_steps(self.arguments.experience) * self.loop.chunk * size * len(cohorts)
        ready = [] if TRAINING in self.programs else [self._advanced(cohorts[0])]  # one compiles, the others wait
        with (
            ThreadPoolExecutor(len(cohorts), initializer=torch.set_num_threads, initargs=(1,)) as pool,
            progress((chunks - done) * steps, unit="steps", by="steps", show=("episode_return",)) as bar,
        ):
            for number in range(1, chunks - done + 1):
                cohorts = [*ready, *pool.map(self._advanced, cohorts[len(ready) :])]
                ready = []
                sums, counts, _ = torch.cat([cohort.history[:, -1] for cohort in cohorts]).sum(0)
                bar({"steps": float(number * steps), "episode_return": float(sums / counts.clamp(min=1))})
        return cohorts

    def _advanced(self, cohort: Cohort) -> Cohort:
        """Return the cohort after another chunk."""
        state, metrics = self._called(TRAINING, self.chunk, cohort.state)
        row = metrics["return_sum"].sum(0), metrics["episodes"].sum(0), metrics["finite"].amin(0)
        return Cohort(state=state, history=torch.cat([cohort.history, torch.stack(row, -1)[:, None]], 1))

    def results(self, members: Sequence[Member], cohort: Cohort, rung: int) -> list[Trial]:
        """Return the results of the first members of a cohort, which `members` names, by greedy evaluation."""
        finite = cohort.history[..., 2].amin(1) == 1.0
        chunks = self.loop.iterations // self.loop.chunk
        curves = _curves(cohort.history, self.loop.chunk * self.pipeline.trainer.steps, math.ceil(chunks / CURVE))
        scores = greedy_scores(self._episodes, cohort.state)
        rows = zip(members, scores, finite.tolist(), curves, strict=False)
        for (point, seed), history in zip(members, cohort.history[..., 2].tolist(), strict=False):
            if 0.0 in history:
                of = ", ".join(f"{name} {value:g}" for name, value in {**point, "seed": seed}.items())
                step = history.index(0.0) * self.loop.chunk * self.pipeline.trainer.steps
                self.notice(f"the run of {of} became NaN or infinite after step {step:,}; it counts as the worst")
        return [
            Trial(dict(point), seed, float(score) if fine else -math.inf, curve, rung)
            for (point, seed), score, fine, curve in rows
        ]

    def _episodes(self, state: RunState) -> Evaluation:
        """Return greedy episodes [S, E], the same ones for all members. They are compiled for the processor alone."""
        process = self.arguments.process
        inputs = state.learner.params, state.normalizer, keys.fold_in(keys.key(0, device=state.key.device), APART)
        if process.backend == "none" or process.device != "cpu":
            short = self._evaluation(SHORT)(*inputs)
            return short if bool(short.ended.all()) else self._evaluation(LONGEST)(*inputs)
        played: Evaluation = self._called(EVALUATION, self._evaluation(LONGEST), *inputs)
        return played

    def _evaluation(self, steps: int) -> Evaluate:
        many: dict[str, Any] = {"episodes": self.episodes, "normalizer": self.pipeline.normalizer}
        return each(evaluate(self.pipeline.env, self.pipeline.model, steps=steps, **many))

    def _called(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of a function's program, which the first call compiles or loads."""
        if name in self.programs:
            return self.programs[name](*arguments)
        backend, device = self.arguments.process.backend, self.arguments.process.device
        if backend == "none":
            return self.programs.setdefault(name, function)(*arguments)
        cache = cache_directory() if backend == "inductor" and device == "cpu" else None
        artefact = cache / artefact_name(function, backend, *arguments) if cache else None
        run = self.programs[name] = program(function, name=f"sweep's {name}", artefact=artefact, backend=backend)
        return first_call(run, partial(run, *arguments), self.notice, torch.device(device), name)


def greedy_scores(episodes: Callable[[RunState], Evaluation], state: RunState) -> list[float]:
    """Return the mean return of each member's greedy episodes."""
    scores: list[float] = episodes(state).returns.to(torch.float64).mean(-1).tolist()
    return scores


def _curves(history: Tensor, steps: int, width: int) -> list[Curve]:
    """Return the mean returns of each member, a point for `width` chunks of `steps` steps; none where no episode ended."""
    curves = []
    for total, count in zip(history[..., 0].tolist(), history[..., 1].tolist(), strict=True):
        parts = [slice(at, min(at + width, len(total))) for at in range(0, len(total), width)]
        rows = [(float(part.stop * steps), sum(total[part]), sum(count[part])) for part in parts]
        curves.append(tuple((at, a / b) for at, a, b in rows if b))
    return curves
