"""Results of a language model's run: standings before and after, as a table, as JSON and as pictures; the final model."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import evolve, frozen

from ...core.errors import ChoiceError, message
from ..effects import folder
from ..effects.causal_folder import save_model
from ..effects.language_picture import language_picture
from ..effects.metrics import read
from ..effects.plot import learning_curve
from ..runs.arguments import check_whole
from ..runs.kinds import recorded
from .columns import LABEL, own_figures
from .evaluate import ACCURACY, Standing, evaluated, read_standing, table
from .parts import Parts, sampler

BEFORE, MODEL, TABLE = "before.json", "model", "evaluation.txt"


@frozen
class Evaluation:
    """Standings of one policy, as it samples and as it takes the likeliest token."""

    sampled: Standing
    greedy: Standing

    def described(self) -> dict[str, Any]:
        """It as JSON has words for."""
        return {"sampled": self.sampled.described(), "greedy": self.greedy.described()}


def evaluation(parts: Parts, params: Mapping[str, torch.Tensor], *, tasks: int, draw: int) -> Evaluation:
    """How parameters, all those of the library's model, stand on held-out tasks: as in training, and greedy.

    Raises: ChoiceError.
    """
    check_whole("--tasks", tasks, 1)
    check_whole("--draw", draw, 0)

    def standing(temperature: float, top_p: float) -> Standing:
        slots = min(tasks, 2 * parts.sampling.slots)
        ask = sampler(evolve(parts, rules=parts.trial), temperature=temperature, top_p=top_p, slots=slots)
        return evaluated(parts.task, lambda requests: ask(dict(params), 0, requests), tasks, draw)[0]

    return Evaluation(standing(parts.sampling.temperature, parts.sampling.top_p), standing(0.0, 1.0))


def write_before(run: Path, found: Evaluation, notice: Any) -> None:
    """Keeps how the policy stood before reinforcement, and says so."""
    folder.write_json(run / BEFORE, found.described())
    notice(f"before reinforcement: {found.sampled.line()}")


def read_before(run: Path) -> Evaluation | tuple[()]:
    """How the policy stood before reinforcement; () in a run that has not come so far.

    Raises: CheckpointError, StructureError for a file that says something else.
    """
    if not (run / BEFORE).exists():
        return ()
    held = folder.read_json(run / BEFORE)
    one, other = (read_standing(held.get(name), f"{run / BEFORE}: {name}") for name in ("sampled", "greedy"))
    return Evaluation(one, other)


def write_after(
    run: Path, iteration: int, found: Evaluation, about: Mapping[str, Any], before: Evaluation | tuple[()]
) -> str:
    """Writes evaluation.json and evaluation.txt, beside how the policy stood on the same tasks before; gives the table."""
    columns = {} if isinstance(before, tuple) else {"before": before.sampled, "before, greedy": before.greedy}
    columns |= {"after": found.sampled, "after, greedy": found.greedy}
    text = table(columns)
    earlier = {} if isinstance(before, tuple) else {"before": before.described()}
    folder.write_json(run / folder.EVALUATION, {"iteration": iteration, **about, **earlier, "after": found.described()})
    folder.write_text(run / TABLE, text + "\n")
    return text


def write_model(run: Path, parts: Parts, params: Mapping[str, torch.Tensor]) -> Path:
    """Writes the model and its tokenizer as a folder of Hugging Face; gives it."""
    return save_model(run / MODEL, dict(params), parts.config, parts.tokenizer, generation=parts.generation)


def picture(run: Path, out: Path) -> Path:
    """Draws the curves of a run. Raises: ChoiceError for a run that has reported no step of reinforcement."""
    path = run / folder.METRICS
    rows = read(path) if path.exists() else []
    before = read_before(run)
    start = () if isinstance(before, tuple) else (before.sampled.accuracy,)
    try:
        return language_picture(rows, out, title=title_of(run), start=start, figures=own_figures(rows), labels=LABEL)
    except ChoiceError as nothing:
        raise ChoiceError(f"{run}: {nothing}") from nothing


def title_of(run: Path) -> str:
    """Return what a run trains: the name of its task, or of its recipe."""
    held = recorded(run)
    return str(held.get("reference", "")).rpartition(":")[2] or str(held.get("recipe", run.name))


def measured(paths: Sequence[Path]) -> tuple[str, str]:
    """Return the column that says how well runs do, and its label: accuracy, or the return where tasks have none."""
    if any(math.isfinite(row.get(ACCURACY, math.nan)) for path in paths for row in read(path)):
        return ACCURACY, "share of attempts that succeed"
    return "episode_return", "mean reward of an attempt"


def pictures(runs: Sequence[Path], out: Path) -> Path:
    """Draws the mean success of several runs, seeds of one kind. Raises: ChoiceError, ShapeError for runs without steps."""
    for run in runs:
        if not (run / folder.METRICS).exists():
            where, remedy = str(run / folder.METRICS), "let the run report something first"
            raise ChoiceError(message(where, got="absent", wanted="the metrics of a run", remedy=remedy))
    paths = [run / folder.METRICS for run in runs]
    column, label = measured(paths)
    return learning_curve(
        paths,
        out,
        y=column,
        title=title_of(runs[0]),
        x_label="attempts sampled",
        y_label=label,
        smooth=5,
    )
