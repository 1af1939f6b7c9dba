"""What a run of `cache` has come to: accuracy over cycles before and after, as a table, as JSON and as a picture; the model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ...core.errors import ChoiceError, StructureError, message
from ...core.machine import tag_of
from ..effects import folder
from ..effects.causal_folder import save_model
from ..effects.cycles_picture import Accuracy, cycles_picture
from ..effects.metrics import read
from ..language.report import BEFORE, MODEL, TABLE
from ..reasoning.parts import Parts
from ..reasoning.standing import Standing
from ..values import TAG, decode


def table(columns: Mapping[str, Standing]) -> str:
    """Accuracy after each cycle, with its interval, and the share of the list that the summary carries.

    >>> one = Standing(problems=4, accuracy=(0.5,), accuracy_low=(0.15,), accuracy_high=(0.85,), carried=(0.75,), tokens=(9.0,))
    >>> print(table({"before": one}))
    cycles  before               carried  tokens
         1  0.500 [0.150,0.850]   0.750       9
    """
    widths = {name: max(len(name), 19) for name in columns}
    head = "cycles  " + "  ".join(f"{name:{widths[name]}}  carried  tokens" for name in columns)
    longest = max((len(one.accuracy) for one in columns.values()), default=0)
    rows = [
        f"{cycle + 1:6}  " + "  ".join(_cell(one, cycle, widths[name]) for name, one in columns.items())
        for cycle in range(longest)
    ]
    return "\n".join([head, *rows])


def _cell(one: Standing, cycle: int, width: int) -> str:
    if cycle >= len(one.accuracy):
        return " " * (width + 17)
    interval = f"{one.accuracy[cycle]:.3f} [{one.accuracy_low[cycle]:.3f},{one.accuracy_high[cycle]:.3f}]"
    return f"{interval:{width}}  {one.carried[cycle]:6.3f}  {one.tokens[cycle]:6.0f}"


def write_before(run: Path, found: Standing, trained_on: int, notice: Any) -> None:
    """Keeps how the policy stood before reinforcement, and says so."""
    folder.write_json(run / BEFORE, found.described())
    notice(f"before reinforcement: {found.line(trained_on)}")


def read_before(run: Path) -> Standing | tuple[()]:
    """How the policy stood before reinforcement; () in a run that has not come so far.

    Raises: CheckpointError, StructureError for a file that says something else.
    """
    return standing_from(folder.read_json(run / BEFORE), str(run / BEFORE)) if (run / BEFORE).exists() else ()


def standing_from(held: Any, where: str) -> Standing:
    """A standing from what JSON has made of it. Raises: StructureError."""
    told: Standing = decode({**(held if isinstance(held, dict) else {}), TAG: tag_of(Standing)}, [Standing], where)
    columns = told.accuracy, told.accuracy_low, told.accuracy_high, told.carried, told.tokens
    lengths = [len(one) for one in columns]
    if len(set(lengths)) > 1 or not lengths[0]:
        remedy = "it was damaged"
        raise StructureError(
            message(where, got=f"of {lengths} cycles", wanted="one number for each cycle", remedy=remedy)
        )
    return told


def write_after(
    run: Path, iteration: int, found: Standing, about: Mapping[str, Any], before: Standing | tuple[()]
) -> str:
    """Writes evaluation.json and evaluation.txt, beside how the policy stood on the same problems before; gives the table."""
    columns = {**({} if isinstance(before, tuple) else {"before": before}), "after": found}
    text = table(columns)
    standings = {name: one.described() for name, one in columns.items()}
    folder.write_json(run / folder.EVALUATION, {"iteration": iteration, **about, **standings})
    folder.write_text(run / TABLE, text + "\n")
    return text


def write_model(run: Path, parts: Parts, params: Mapping[str, torch.Tensor]) -> Path:
    """Writes the model and its tokenizer as a folder of Hugging Face; gives it."""
    return save_model(run / MODEL, dict(params), parts.config, parts.tokenizer, generation=parts.generation)


def pictures(runs: Sequence[Path], out: Path, trained_on: int) -> Path:
    """Draws the rewards of one or several runs, and their accuracy over cycles, before and after.

    Raises: ChoiceError for a run that has come to neither.
    """
    rows = [read(run / folder.METRICS) if (run / folder.METRICS).exists() else [] for run in runs]
    kept = [_kept(run) for run in runs]
    curves = {name: tuple(_accuracy(one[name]) for one in kept if name in one) for name in ("before", "after")}
    if not any(map(len, rows)) and not any(curves.values()):
        where, remedy = str(runs[0]) if runs else "purestep plot: RUN", "let it train or evaluate first"
        raise ChoiceError(message(where, got="without metrics and evaluation", wanted="one of them", remedy=remedy))
    return cycles_picture(rows, {name: some for name, some in curves.items() if some}, out, trained_on=trained_on)


def _kept(run: Path) -> dict[str, Standing]:
    """The standings of the last evaluation, or that before reinforcement where there is none yet."""
    if not (run / folder.EVALUATION).exists():
        before = read_before(run)
        return {} if isinstance(before, tuple) else {"before": before}
    held = folder.read_json(run / folder.EVALUATION)
    return {
        name: standing_from(held[name], f"{run / folder.EVALUATION}: {name}")
        for name in ("before", "after")
        if name in held
    }


def _accuracy(one: Standing) -> Accuracy:
    return Accuracy(mean=one.accuracy, low=one.accuracy_low, high=one.accuracy_high)
