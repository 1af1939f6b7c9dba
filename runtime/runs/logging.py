"""The log of a run: its rows of metrics, and the error where a loss is not finite."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ...core.errors import message
from ..diverged import Fault
from ..effects import folder
from ..effects.reporting.metrics import Sink, jsonl, rewind, stride, tensorboard, thin
from ..effects.reporting.progress import progress
from ..effects.reporting.wandb_sink import wandb_sink
from .training_machine import Log, Logged, Loop

RETURN = "episode_return"
DIVERGED = "diverged.safetensors"  # the batch of a step whose loss was not finite


@contextmanager
def metrics_log(
    run: Path, loop: Loop, show: Sequence[str] = (RETURN,), *, steps: int = 0, wandb: str = ""
) -> Iterator[Callable[[Log], Logged]]:
    """Yield the handler of `Log`: the metrics file, TensorBoard and the progress display, which has the columns `show`.

    All count iterations or, where an iteration takes `steps` steps of an environment, those. Rows of iterations after that of
    `loop`, which will be logged again, are removed first; of a long run some are left out. `wandb` is a project of Weights &
    Biases to which the rows are sent too.
    """
    rewind(run / folder.METRICS, loop.iteration)
    by, each = ("steps", steps) if steps else ("iteration", 1)
    with ExitStack() as stack:
        every = stride(loop.iterations)
        file = thin(stack.enter_context(jsonl(run / folder.METRICS)), every)
        outlet = tensorboard(run / folder.TENSORBOARD, by=by, resumed_at=loop.iteration * each)
        boards = [stack.enter_context(outlet)]
        if wandb:
            boards.append(stack.enter_context(wandb_sink(run, wandb, name=run.name, by=by)))
        seen = [thin(finite_part(board), every) for board in boards]
        unit = "steps" if steps else "iterations"
        bar = stack.enter_context(progress(loop.iterations * each, unit=unit, by=by, show=show))
        last: dict[str, float] = {}

        def log(command: Log) -> Logged:
            for row in map(dict, command.rows):
                file(row)
                for board in seen:
                    board(row)
                last.update({RETURN: row[RETURN]} if math.isfinite(row.get(RETURN, math.nan)) else {})
            newest = {**command.rows[-1], **last}
            bar(
                {name: value for name, value in newest.items() if steps or math.isfinite(value)}
            )  # once a chunk: all of its rows come at the same time
            return Logged()

        yield log


def finite_part(sink: Sink) -> Sink:
    """Return the sink without the numbers that no curve can show.

    >>> finite_part(print)({"steps": 1.0, "episode_return": math.nan})
    {'steps': 1.0}
    """
    return lambda row: sink({name: value for name, value in row.items() if math.isfinite(value)})


def not_finite(loop: Loop, fault: Fault | None = None) -> str:
    """Return the error message of a run whose numbers were not finite, with the first such tensor if it was found."""
    kept = f"; the checkpoint of iteration {loop.saved} stays" if loop.saved else "; there is no checkpoint yet"
    cure = "lower --learning-rate, or scale with --normalize"
    return (fault or Fault()).text(f"train: iteration {loop.diverged}", cure=cure, then=kept)


def divergence(run: Path, loop: Loop, *, warm: int) -> str:
    """Return the error message of a run whose loss was not finite; `warm` are the iterations of its warm start."""
    kept = f"the checkpoint of iteration {loop.saved} stays" if loop.saved else "there is no checkpoint yet"
    where, wanted = f"train: iteration {loop.diverged}", "a finite loss, with its gradient"
    if loop.diverged <= warm:
        return message(where, got="NaN or infinite", wanted=wanted, remedy=f"lower --muon-rate or --adamw-rate; {kept}")
    at = f" in {run / DIVERGED}" if (run / DIVERGED).exists() else ""
    remedy = f"look at its batch{at}, or lower --learning-rate; {kept}"
    return message(where, got="NaN or infinite", wanted=wanted, remedy=remedy)
