"""Measurements in turns: sides that take turns, medians with their quartiles, and a rollout of proving to be timed."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from purestep.core import keys
from purestep.core.env import Env, auto_reset, batched
from purestep.core.logic.env import proving
from purestep.core.policy import ActorCritic
from purestep.runtime.compile import Program, program
from purestep.runtime.logic.proofs import Proofs
from purestep.runtime.recipes.prove import load_proofs, model_of
from purestep.runtime.recipes.prove_settings import prove_defaults
from purestep.runtime.rollout import Worlds, reset_rollout, rollout
from purestep.runtime.runs.arguments import changed

SLOTS, STEPS, ROUNDS = 128, 32, 9
Timed = Callable[[], object]
Times = Sequence[float]


def turns(sides: Mapping[str, Timed], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """The seconds of each side in each round, the sides taking turns, after one call of each that does not count.

    Every other round goes backwards, so that no side always follows the same one. A side that returns a float has measured its
    own seconds.
    """
    for side in sides.values():
        side()
    spent: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in list(sides)[:: 1 if number % 2 == 0 else -1]:
            start = time.perf_counter()
            own = sides[name]()
            spent[name].append(own if isinstance(own, float) else time.perf_counter() - start)
    return spent


def spread(values: Times, *, digits: int = 3) -> dict[str, float]:
    """Median and quartiles.

    >>> spread([1.0, 2.0, 3.0, 4.0, 5.0])
    {'median': 3.0, 'lower quartile': 2.0, 'upper quartile': 4.0}
    """
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    figures = {"median": median, "lower quartile": lower, "upper quartile": upper}
    return {name: round(value, digits) for name, value in figures.items()}


def scaled(values: Times, factor: float, *, digits: int = 3) -> dict[str, float]:
    """The spread of the values times a factor.

    >>> scaled([0.5, 0.5], 1000.0)["median"]
    500.0
    """
    return spread([factor * value for value in values], digits=digits)


def ratio(above: Times, below: Times) -> dict[str, float]:
    """The spread of the ratios round by round: what slows the machine down for a while slows both sides.

    >>> ratio([2.0, 8.0], [1.0, 4.0])["median"]
    2.0
    """
    return spread([one / other for one, other in zip(above, below, strict=True)])


def beside(usual: str, spent: Mapping[str, list[float]], scale: float, unit: str) -> dict[str, Any]:
    """The times of all sides, and how much longer each took than the usual one."""
    others = {name: ratio(seconds, spent[usual]) for name, seconds in spent.items() if name != usual}
    return {unit: {name: scaled(seconds, scale) for name, seconds in spent.items()}, f"times that of {usual}": others}


def share(one: Tensor, other: Tensor) -> float:
    """The share of equal numbers.

    >>> share(torch.tensor([1, 2]), torch.tensor([1, 3]))
    0.5
    """
    return round(float((one == other).to(torch.float64).mean()), 4)


def made_of(data: str, **changes: Any) -> tuple[Proofs, ActorCritic]:
    """The game on some data as the recipe has it, and an untrained policy for it."""
    arguments = changed(prove_defaults(data), changes)
    made = load_proofs(arguments)
    return made, model_of(arguments, made)


@frozen
class Acting:
    """A training rollout that can be repeated: each call runs the same steps from proofs in all stages."""

    env: Env[Any, Any]
    run: Any
    params: Any
    worlds: Worlds

    def __call__(self) -> Any:
        with torch.no_grad():
            return self.run(self.params, self.worlds, keys.key(3))

    def compile_seconds(self) -> float:
        """What compilation took."""
        return compile_seconds(self.run)


def acting(
    made: Proofs,
    model: ActorCritic,
    *,
    reset: str = "own",
    slots: int = SLOTS,
    compiled: bool = True,
    artefact: Path | None = None,
) -> Acting:
    """The rollout of a training run: its reset is the env's "own", or `auto_reset`'s "select" or "pooled".

    The first rollout compiles, or loads what `artefact` keeps, and brings proofs that began together out of step; the others
    begin where it ended.
    """
    plain = proving(made.game, made.world, reset="own" if reset == "own" else "none")
    env = batched(plain if reset == "own" else auto_reset(plain, reset), slots)
    run: Any = rollout(env, model, STEPS)
    if compiled:
        run = program(run, name=f"rollout {reset} {slots}", artefact=artefact)
    params, worlds = model.init(keys.key(0)), reset_rollout(env, keys.key(1))
    with torch.no_grad():
        worlds, _ = run(params, worlds, keys.key(2))
    return Acting(env, run, params, worlds)


def compile_seconds(*programs: Any) -> float:
    """What the programs' compilations took together; 0 for what is not compiled."""
    return round(sum(sum(one.seconds) for one in programs if isinstance(one, Program)), 1)
