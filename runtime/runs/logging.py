"""The log of a language model's run: its rows of metrics, and the error where a loss is not finite."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ...core.errors import message
from ..effects import folder
from ..effects.metrics import jsonl, rewind, tensorboard
from ..effects.progress import progress
from .loop_state import finite_part
from .training_machine import Log, Logged, Loop

DIVERGED = "diverged.safetensors"  # the batch of a step whose loss was not finite


@contextmanager
def metrics_log(run: Path, loop: Loop, show: Sequence[str]) -> Iterator[Callable[[Log], Logged]]:
    """The handler of `Log`: the metrics file, TensorBoard and the progress display, all by the machine's iterations.

    Rows of iterations after that of `loop`, which will be told again, are removed first. `show` are the display's columns.
    """
    rewind(run / folder.METRICS, loop.iteration)
    with ExitStack() as stack:
        file = stack.enter_context(jsonl(run / folder.METRICS))
        outlet = tensorboard(run / folder.TENSORBOARD, by="iteration", resumed_at=loop.iteration)
        board = finite_part(stack.enter_context(outlet))
        bar = stack.enter_context(progress(loop.iterations, unit="iterations", by="iteration", show=show))

        def log(command: Log) -> Logged:
            for row in map(dict, command.rows):
                file(row)
                board(row)
                bar({name: value for name, value in row.items() if math.isfinite(value)})
            return Logged()

        yield log


def divergence(run: Path, loop: Loop, *, warm: int) -> str:
    """What to say of a run whose loss was not finite; `warm` are the iterations of its warm start."""
    kept = f"the checkpoint of iteration {loop.saved} stays" if loop.saved else "there is no checkpoint yet"
    where, wanted = f"train: iteration {loop.diverged}", "a finite loss, with its gradient"
    if loop.diverged <= warm:
        return message(where, got="NaN or infinite", wanted=wanted, remedy=f"lower --muon-rate or --adamw-rate; {kept}")
    at = f" in {run / DIVERGED}" if (run / DIVERGED).exists() else ""
    remedy = f"look at its batch{at}, or lower --learning-rate; {kept}"
    return message(where, got="NaN or infinite", wanted=wanted, remedy=remedy)
