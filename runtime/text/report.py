"""Results of a language model's run: evaluations before and after, as a table, as JSON and as pictures; the final model."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import asdict, evolve, frozen

from ...core import keys
from ...core.errors import ChoiceError, StructureError, message
from ...core.language import evaluation as own
from ...core.language.grading import graded
from ...core.language.pass_at_k import shown_ks
from ...core.language.requests import Request
from ...core.language.task import TextTask
from ..effects import folder
from ..effects.hugging_face.folder import save_model
from ..effects.reporting.curves_picture import curves_picture
from ..effects.reporting.language_picture import language_picture
from ..effects.reporting.metrics import read_metrics
from ..effects.reporting.plot import learning_curve
from ..runs.arguments import check_whole
from ..runs.kinds import record_of
from .columns import LABEL, ON_THE_WAY, PASS, own_figures
from .components import Attempts, TextComponents, attempts_at, sampler
from .evaluation import (
    ACCURACY,
    HIGH,
    LOW,
    REWARD_HIGH,
    REWARD_LOW,
    ZERO_SPREAD,
    EvaluationResult,
    evaluate_task,
    figure_table,
    read_evaluation_result,
)
from .prompting import Source, ask_prompts, completing_here

BEFORE, TABLE = "before.json", "evaluation.txt"
DRAWN = "picture"  # in files of results: the data for a picture of the task's own evaluation


@frozen
class TextEvaluation:
    """Standings of one policy: with sampling, and greedy."""

    sampled: EvaluationResult
    greedy: EvaluationResult

    def described(self) -> dict[str, Any]:
        """Return the standings as JSON values."""
        return {"sampled": self.sampled.described(), "greedy": self.greedy.described()}

    def line(self) -> str:
        """Return both standings as one line of text."""
        return f"{self.sampled.line()}; greedy {self.greedy.brief()}"


@frozen
class OwnEvaluation:
    """The result of a task's own evaluation."""

    by: own.TaskEvaluation[Any]
    value: Any

    def described(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return dict(self.by.described(self.value))

    def line(self) -> str:
        """Return the result as one line of text."""
        return self.by.line(self.value)


Result = TextEvaluation | OwnEvaluation


def evaluation(
    parts: TextComponents,
    params: Mapping[str, torch.Tensor],
    *,
    tasks: int,
    draw: int,
    samples: int = 1,
    version: int = 0,
    source: Source | tuple[()] = (),
) -> Result:
    """Evaluate parameters, all those of the library's model, on held-out tasks: sampled and greedy, or as the task defines.

    There are `samples` sampled attempts at each task, and one greedy; a `source` with these parameters samples them, such as a
    server, or else this process. Raises: ChoiceError; errors of the source, and of a task's own evaluation.
    """
    check_whole("--tasks", tasks, 1)
    check_whole("--draw", draw, 0)
    check_samples(parts.task, samples)
    if not isinstance(parts.task.evaluation, tuple):
        by = parts.task.evaluation
        ended = completing_here(parts, dict(params), version, temperature=by.temperature, top_p=by.top_p)
        ended = ended if isinstance(source, tuple) else source(by.temperature, by.top_p)
        return OwnEvaluation(by, ask_prompts(parts, ended, by.prompting, keys.key(draw), 0, tasks, version))
    trial = evolve(parts, rules=parts.trial)

    def standing(temperature: float, top_p: float, attempts: int) -> EvaluationResult:
        if not isinstance(source, tuple):
            ended = source(temperature, top_p)

            def tried(requests: Sequence[Request]) -> Attempts:
                return graded(parts.task.grader, ended(parts.trial, attempts_at(trial, requests), 0))

            return evaluate_task(parts.task, tried, tasks, draw, attempts)
        slots = min(tasks * attempts, 2 * parts.sampling.slots)
        ask = sampler(trial, temperature=temperature, top_p=top_p, slots=slots)
        return evaluate_task(parts.task, lambda requests: ask(dict(params), 0, requests), tasks, draw, attempts)

    return TextEvaluation(standing(parts.sampling.temperature, parts.sampling.top_p, samples), standing(0.0, 1.0, 1))


def check_samples(task: TextTask, samples: int) -> None:
    """Refuse several attempts at each held-out task where the task has an evaluation of its own. Raises: ChoiceError."""
    check_whole("--eval-samples", samples, 1)
    if samples > 1 and not isinstance(task.evaluation, tuple):
        wanted, remedy = f"1 for {task.name}", "the task has an evaluation of its own"
        raise ChoiceError(message("--eval-samples", got=samples, wanted=wanted, remedy=remedy))


def evaluation_names(task: TextTask, samples: int = 1) -> tuple[str, ...]:
    """Return the names of the metrics of an evaluation during training, with so many attempts at each task."""
    if not isinstance(task.evaluation, tuple):
        return task.evaluation.names
    right = (ACCURACY,) if ACCURACY in task.figures else ()
    several = (*(f"{PASS}{k}" for k in shown_ks(samples) if right), ZERO_SPREAD) if samples > 1 else ()
    bounds = (REWARD_LOW, REWARD_HIGH, *((LOW, HIGH) if right else ()))
    greedy = (f"greedy_{name}" for name in ("reward", *right))
    return tuple(f"{ON_THE_WAY}{name}" for name in ("reward", *task.figures, *bounds, "tokens", *several, *greedy))


def on_the_way(
    parts: TextComponents,
    params: Mapping[str, torch.Tensor],
    *,
    tasks: int,
    draw: int,
    samples: int = 1,
    version: int,
    source: Source | tuple[()] = (),
) -> tuple[str, dict[str, float]]:
    """Return an evaluation during training as a line and as metrics, by the names in `evaluation_names`."""
    how: dict[str, Any] = {"tasks": tasks, "draw": draw, "samples": samples, "version": version, "source": source}
    found = evaluation(parts, params, **how)
    if isinstance(found, OwnEvaluation):
        return found.line(), dict(found.by.figures(found.value))
    sampled, greedy = found.sampled, found.greedy
    figures = {"reward": sampled.reward, "tokens": sampled.tokens, **sampled.figures}
    figures |= {"greedy_reward": greedy.reward, f"greedy_{ACCURACY}": greedy.accuracy}
    known = evaluation_names(parts.task, samples)
    named = {f"{ON_THE_WAY}{name}": value for name, value in figures.items()}
    return found.line(), {name: named[name] for name in known if name in named}


def table_of(results: Mapping[str, Result]) -> str:
    """Return results of one task side by side as text, by column name; greedy standings in columns of their own."""
    owned = {name: one for name, one in results.items() if isinstance(one, OwnEvaluation)}
    if owned:
        by = next(iter(owned.values())).by
        return by.table({name: one.value for name, one in owned.items()})
    columns = dict[str, EvaluationResult]()
    for name, one in results.items():
        columns |= {name: one.sampled, f"{name}, greedy": one.greedy} if isinstance(one, TextEvaluation) else {}
    return figure_table(columns)


def read_result(task: TextTask, held: Any, where: str) -> Result:
    """Return the result that `described` wrote. Raises: StructureError."""
    if not isinstance(task.evaluation, tuple):
        return OwnEvaluation(task.evaluation, task.evaluation.read(held, where))
    given: dict[str, Any] = held if isinstance(held, dict) else {}
    one, other = (read_evaluation_result(given.get(name), f"{where}: {name}") for name in ("sampled", "greedy"))
    return TextEvaluation(one, other)


def with_curves(results: Mapping[str, Result]) -> dict[str, Any]:
    """Return the data of pictures for results of a task's own evaluation, for a file; {} for others.

    So a picture can be drawn from files alone, without the task.
    """
    owned = {name: one for name, one in results.items() if isinstance(one, OwnEvaluation)}
    if not owned:
        return {}
    axis = asdict(next(iter(owned.values())).by.axis)
    return {DRAWN: {"axis": axis, "curves": {name: asdict(one.by.curve(one.value)) for name, one in owned.items()}}}


def write_before(run: Path, found: Result, notice: Any) -> None:
    """Write the policy's evaluation before reinforcement learning, and report it."""
    folder.write_json(run / BEFORE, {**found.described(), **with_curves({"before": found})})
    notice(f"before reinforcement: {found.line()}")


def read_before(run: Path, task: TextTask) -> Result | tuple[()]:
    """Return the policy's evaluation before reinforcement learning; () in a run that has not come so far.

    Raises: CheckpointError, StructureError for a file with other contents.
    """
    return read_result(task, folder.read_json(run / BEFORE), str(run / BEFORE)) if (run / BEFORE).exists() else ()


def write_after(run: Path, iteration: int, found: Result, about: Mapping[str, Any], before: Result | tuple[()]) -> str:
    """Write evaluation.json and evaluation.txt, with the evaluation before on the same tasks; return the table."""
    results = {**({} if isinstance(before, tuple) else {"before": before}), "after": found}
    text = table_of(results)
    described = {name: one.described() for name, one in results.items()}
    written = {"iteration": iteration, **about, **described, **with_curves(results)}
    folder.write_json(run / folder.EVALUATION, written)
    folder.write_text(run / TABLE, text + "\n")
    return text


def write_model(run: Path, parts: TextComponents, params: Mapping[str, torch.Tensor]) -> Path:
    """Write the model and its tokenizer as a Hugging Face folder, complete or absent at any moment; return its path."""
    return folder.replace_own(run / folder.MODEL, model_writer(parts, params))


def model_writer(parts: TextComponents, params: Mapping[str, torch.Tensor]) -> Callable[[Path], Path]:
    """Return a function that writes the model with these parameters, all those of the library's model, into a folder."""
    more: dict[str, Any] = {"generation": parts.generation, "buffers": parts.buffers}
    return lambda place: save_model(place, dict(params), parts.config, parts.tokenizer, **more)


def draw_report(run: Path, out: Path) -> Path:
    """Draw the curves of a run. Raises: ChoiceError for a run that has reported no step of reinforcement learning."""
    if drawn := _drawn(run):
        return _curves([run], [drawn], out)
    path = run / folder.METRICS
    rows = read_metrics(path) if path.exists() else []
    try:
        start = accuracy_before(run)
        return language_picture(rows, out, title=title_of(run), start=start, figures=own_figures(rows), labels=LABEL)
    except ChoiceError as nothing:
        raise ChoiceError(f"{run}: {nothing}") from nothing


def title_of(run: Path) -> str:
    """Return the title of a run: the name of its task, or of its recipe."""
    held = record_of(run)
    return str(held.get("reference", "")).rpartition(":")[2] or str(held.get("recipe", run.name))


def success_column(paths: Sequence[Path]) -> tuple[str, str]:
    """Return the column that measures success, and its label: accuracy, or the return where tasks have none."""
    if any(math.isfinite(row.get(ACCURACY, math.nan)) for path in paths for row in read_metrics(path)):
        return ACCURACY, "share of attempts that succeed"
    return "episode_return", "mean reward of an attempt"


def accuracy_before(run: Path) -> tuple[float, ...]:
    """Return the sampled accuracy before reinforcement learning; () where none is known. Raises: StructureError."""
    held = folder.read_json(run / BEFORE) if (run / BEFORE).exists() else {}
    if not held or DRAWN in held:
        return ()
    return (read_evaluation_result(held.get("sampled"), f"{run / BEFORE}: sampled").accuracy,)


def _drawn(run: Path) -> tuple[own.Axis, dict[str, own.Curve]] | tuple[()]:
    """Return the picture data of a run's own evaluation: the last one, or that before reinforcement learning; or ()."""
    path = next((run / name for name in (folder.EVALUATION, BEFORE) if (run / name).exists()), None)
    return drawn_in(path) if path else ()


def drawn_in(path: Path) -> tuple[own.Axis, dict[str, own.Curve]] | tuple[()]:
    """Return the axis and curves in a file of results of a task's own evaluation; () for others, or without a file.

    Raises: CheckpointError, StructureError for a file with other contents.
    """
    held = folder.read_json(path) if path.exists() else {}
    if DRAWN not in held:
        return ()
    try:
        curves = {
            name: own.Curve(**{part: tuple(map(float, one[part])) for part in ("mean", "low", "high")})
            for name, one in held[DRAWN]["curves"].items()
        }
        given = held[DRAWN]["axis"]
        texts = {name: str(given[name]) for name in ("title", "heading", "x", "marked")}
        return own.Axis(**texts, mark=int(given["mark"])), curves
    except (KeyError, TypeError, ValueError, AttributeError) as cause:
        where, remedy = f"{path}: {DRAWN}", "evaluate the run again"
        raise StructureError(message(where, got="no curves", wanted="curves and an axis", remedy=remedy)) from cause


def _curves(runs: Sequence[Path], found: Sequence[tuple[own.Axis, dict[str, own.Curve]]], out: Path) -> Path:
    rows = [read_metrics(run / folder.METRICS) if (run / folder.METRICS).exists() else [] for run in runs]
    names = dict.fromkeys(name for _, curves in found for name in curves)
    each = {name: [curves[name] for _, curves in found if name in curves] for name in names}
    return curves_picture(rows, each, out, axis=found[0][0])


def pictures(runs: Sequence[Path], out: Path) -> Path:
    """Draw the mean success of several runs that differ in their seeds, or the curves of their own evaluation.

    Raises: ChoiceError, ShapeError for runs without steps.
    """
    found = [drawn for run in runs if (drawn := _drawn(run))]
    if found:
        return _curves(runs, found, out)
    for run in runs:
        if not (run / folder.METRICS).exists():
            where, remedy = str(run / folder.METRICS), "let the run report something first"
            raise ChoiceError(message(where, got="absent", wanted="the metrics of a run", remedy=remedy))
    paths = [run / folder.METRICS for run in runs]
    column, label = success_column(paths)
    return learning_curve(
        paths,
        out,
        y=column,
        title=title_of(runs[0]),
        x_label="attempts sampled",
        y_label=label,
        smooth=5,
    )
