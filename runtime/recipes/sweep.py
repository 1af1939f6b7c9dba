"""Sweeps: many settings and seeds of a recipe as one population, trained by one program in parts that fit into memory."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from attrs import asdict, frozen
from torch import Tensor

from ...core import keys
from ...core.errors import CheckpointError, message
from ..compile import artefact_name, program
from ..effects.checkpoint.atomic_files import write_whole
from ..effects.reporting.progress import progress
from ..evaluate import evaluate
from ..files.cache import cache_directory
from ..population import each, population, with_hyperparameters
from ..runs.arguments import flatten
from ..runs.recipe import Notice
from ..train import RunState, folded
from .actor_critic import actor_critic_pipeline
from .arguments import iteration_steps, loop_of
from .report import APART, LONGEST, SHORT
from .sweep_settings import SWEPT, Point, SettingValues, Sweep, points

PLAN, ROWS = "sweep.json", "sweep.jsonl"
CURVE = 100  # points of a member's curve that are kept, at most


@frozen
class Trial:
    """The result of one member."""

    point: Point
    seed: int
    score: float  # mean return of the evaluation; -inf for a member whose numbers were not finite
    curve: tuple[
        tuple[float, float], ...
    ]  # (environment steps, mean return of the episodes finished since the last point)


def trials(
    arguments: Any, axes: Sequence[SettingValues], options: Sweep, run: Path, *, notice: Notice
) -> Iterator[Trial]:
    """Train and evaluate all members, in parts of `members`, and yield their results.

    Results are appended to RUN/sweep.jsonl after each part. A sweep that was stopped goes on behind the last complete part;
    since parts do not depend on each other, its results are those of one that was never stopped.
    Raises: ChoiceError; CheckpointError for a folder with another sweep.
    """
    every = [(point, seed) for point in points(axes, options) for seed in range(options.seeds)]
    plan = {"arguments": flatten(arguments), "axes": [asdict(axis) for axis in axes], "options": asdict(options)}
    kept = _kept(run, json.loads(json.dumps(plan, default=str)))
    yield from kept
    size = min(options.members, len(every))
    train = None
    for start in range(len(kept), len(every), size):
        part = every[start : start + size]
        full = [*part, *[part[-1]] * (size - len(part))]  # one shape, so one program; the copies are not reported
        train = train or _Members(arguments, options)
        notice(f"runs {start + 1} to {start + len(part)} of {len(every)}")
        found = train(full)[: len(part)]
        with (run / ROWS).open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(_row(trial)) + "\n" for trial in found))
        yield from found


def _row(trial: Trial) -> dict[str, Any]:
    return {**asdict(trial), "score": trial.score if math.isfinite(trial.score) else None}


def _kept(run: Path, plan: Any) -> list[Trial]:
    """Return the results that the folder holds, after a check that they are of this sweep; begin one where there is none."""
    path = run / PLAN
    if not path.exists():
        if run.exists() and any(run.iterdir()):
            remedy = "name another folder with --run"
            raise CheckpointError(message(str(run), got="not empty", wanted="a new folder", remedy=remedy))
        run.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(plan, indent=1).encode())
    elif json.loads(path.read_text(encoding="utf-8")) != plan:
        remedy = "give the arguments it was begun with, or name another folder with --run"
        raise CheckpointError(message(str(run), got="another sweep", wanted="this one", remedy=remedy))
    rows = (run / ROWS).read_text(encoding="utf-8").splitlines(keepends=True) if (run / ROWS).exists() else []
    whole = [line for line in rows if line.endswith("\n")]  # a last line without an end was cut off
    size = plan["options"]["members"]
    total = len(whole) - len(whole) % size if len(whole) % size and len(whole) < _count(plan) else len(whole)
    if total != len(rows):
        write_whole(run / ROWS, "".join(whole[:total]).encode())
    return [_trial(json.loads(line)) for line in whole[:total]]


def _count(plan: Any) -> int:
    axes, options = plan["axes"], plan["options"]
    listed = all(axis["values"] for axis in axes)
    settings = math.prod(len(axis["values"]) for axis in axes) if listed else options["samples"]
    return int(settings * options["seeds"])


def _trial(row: Any) -> Trial:
    score = -math.inf if row["score"] is None else row["score"]
    return Trial(row["point"], row["seed"], score, tuple((x, y) for x, y in row["curve"]))


class _Members:
    """Trains a part of a sweep: one program for all of them."""

    def __init__(self, arguments: Any, options: Sweep) -> None:
        torch.set_num_threads(arguments.process.threads)
        self.arguments, self.options, self.pipeline = arguments, options, actor_critic_pipeline(arguments)
        self.loop = loop_of(arguments.experience, arguments.process)
        self.many = population(self.pipeline.trainer)
        self.chunk: Any = None

    def __call__(self, part: Sequence[tuple[Point, int]]) -> list[Trial]:
        state = self.many.init(torch.stack([keys.key(seed) for _, seed in part]))
        names = part[0][0].keys()
        changes = {SWEPT[name]: torch.tensor([point[name] for point, _ in part], dtype=torch.float64) for name in names}
        state = with_hyperparameters(state, changes)
        self.chunk = self.chunk or self._program(state)
        sums, counts, finite = [], [], []
        steps = iteration_steps(self.arguments.experience) * len(part)
        with progress(self.loop.iterations * steps, unit="steps", by="steps", show=("episode_return",)) as bar:
            for number in range(0, self.loop.iterations, self.loop.chunk):
                state, metrics = self.chunk(state)
                sums.append(metrics["return_sum"].sum(0))
                counts.append(metrics["episodes"].sum(0))
                finite.append(metrics["finite"].amin(0))
                mean = float(sums[-1].sum() / counts[-1].sum().clamp(min=1))
                bar({"steps": float((number + self.loop.chunk) * steps), "episode_return": mean})
        scores = self._scores(state)
        whole = torch.stack(finite).amin(0) == 1.0
        curves = _curves(torch.stack(sums), torch.stack(counts), self.loop.chunk * self.pipeline.trainer.steps)
        return [
            Trial(dict(point), seed, float(score) if fine else -math.inf, curve)
            for (point, seed), score, fine, curve in zip(part, scores, whole.tolist(), curves, strict=True)
        ]

    def _program(self, state: RunState) -> Any:
        run, backend = folded(self.many, self.loop.chunk), self.arguments.process.backend
        if backend == "none":
            return run
        cache = cache_directory() if backend == "inductor" else None
        artefact = cache / artefact_name(run, backend, state) if cache else None
        return program(run, name="sweep", artefact=artefact, backend=backend)

    def _scores(self, state: RunState) -> list[float]:
        pipeline, key = self.pipeline, keys.fold_in(keys.key(0), APART)
        many: dict[str, Any] = {"episodes": self.options.episodes, "normalizer": pipeline.normalizer}
        for steps in (SHORT, LONGEST):  # again for longer if an episode is not over
            play = each(evaluate(pipeline.env, pipeline.model, steps=steps, **many))
            result = play(state.learner.params, state.normalizer, key)
            if bool(result.ended.all()):
                break
        scores: list[float] = result.returns.to(torch.float64).mean(-1).tolist()
        return scores


def _curves(sums: Tensor, counts: Tensor, steps: int) -> list[tuple[tuple[float, float], ...]]:
    """Return the mean returns of each member [chunks, S], over at most CURVE points; points without episodes are left out."""
    width = math.ceil(sums.shape[0] / CURVE)
    curves = []
    for total, count in zip(sums.T.tolist(), counts.T.tolist(), strict=True):
        parts = [slice(at, min(at + width, len(total))) for at in range(0, len(total), width)]
        rows = [(float(part.stop * steps), sum(total[part]), sum(count[part])) for part in parts]
        curves.append(tuple((at, a / b) for at, a, b in rows if b))
    return curves


@frozen
class Ranked:
    """A setting with the scores of its seeds."""

    point: Point
    scores: tuple[float, ...]
    curves: tuple[tuple[tuple[float, float], ...], ...]

    def mean(self) -> float:
        """Return the mean score, -inf where a seed's numbers were not finite."""
        return fmean(self.scores) if all(map(math.isfinite, self.scores)) else -math.inf


def ranked(found: Sequence[Trial]) -> list[Ranked]:
    """Return the settings, the one with the best mean over its seeds first.

    >>> rows = [Trial({"clip": clip}, seed, score, ()) for clip, seed, score in ((0.1, 0, 3.0), (0.1, 1, 5.0), (0.2, 0, 9.0))]
    >>> [(one.point["clip"], one.mean()) for one in ranked(rows)]
    [(0.2, 9.0), (0.1, 4.0)]
    """
    groups: dict[tuple[tuple[str, float], ...], list[Trial]] = {}
    for trial in found:
        groups.setdefault(tuple(trial.point.items()), []).append(trial)
    rows = [
        Ranked(dict(point), tuple(one.score for one in several), tuple(one.curve for one in several))
        for point, several in groups.items()
    ]
    return sorted(rows, key=lambda one: -one.mean())
