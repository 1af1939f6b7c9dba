"""The machine's state in a checkpoint: what a run that was saved can hold."""

from pathlib import Path
from typing import Any

from ..effects.manifest import LARGEST, MANIFEST, DamagedError, damaged
from ..values import short
from .training_machine import Loop


def check_loop(where: Path, loop: Any, step: int) -> None:
    """Refuse a state that no run has saved at this step. Raises: DamagedError.

    >>> check_loop(Path("step_000002"), Loop(iterations=4, chunk=1, every=2, iteration=2, saved=2), 2)
    """
    fits = (
        isinstance(loop, Loop)
        and loop.saved == loop.iteration == step
        and 0 <= loop.iteration <= loop.iterations <= LARGEST
        and 1 <= loop.chunk <= LARGEST
        and 1 <= loop.every <= LARGEST
        and loop.diverged == 0
        and not loop.interrupted
    )
    if not fits:
        raise DamagedError(damaged(where / MANIFEST, f"with the state {short(loop)}", f"one saved at iteration {step}"))
