"""What sets a run: names and numbers, in groups that the recipes share. The command line is made from these classes."""

import math
import os
from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeVar, get_type_hints

import attrs
from attrs import evolve, frozen

from ...core.errors import CheckpointError, ChoiceError, check_within, choose, message
from ..values import fits, short
from .machine import Loop, plan

A = TypeVar("A")
SEEDS = 2**63 - 1


@frozen
class Experience:
    """The source of experience."""

    env: str  # the environment
    seed: int = 0  # every random number of the run follows from it
    steps: int = 500_000  # in the environment, all worlds together; rounded up to whole chunks of iterations
    envs: int = 4  # worlds that are played side by side
    horizon: int = 128  # steps in each of them from one update to the next
    normalize: Literal["none", "observations", "rewards", "both"] = "none"  # what is scaled by its running spread


@frozen
class Learner:
    """The networks, and the settings by which they learn."""

    hidden: tuple[int, ...] = (64, 64)  # sizes of the hidden layers, of policy and value each
    activation: Literal["elu", "gelu", "identity", "relu", "silu", "tanh"] = "tanh"  # between the layers
    learning_rate: float = 2.5e-4  # of Adam
    anneal: bool = True  # let the learning rate fall to 0 over the run
    max_gradient_norm: float = 0.5  # longer gradients are shortened to it
    gamma: float = 0.99  # what a reward is worth one step later


@frozen
class Process:
    """How the computer goes about it."""

    threads: int = 1  # of PyTorch; more help large batches only
    checkpoints: int = 10  # written in the course of the run, the last at its end; three are kept
    backend: Literal["inductor", "aot_eager", "none"] = "inductor"  # of the compiler; "none" is slow and easy to debug


class Sized(Protocol):
    """What says how much is experienced."""

    @property
    def steps(self) -> int:
        """Of the whole run."""
        ...

    @property
    def envs(self) -> int:
        """Worlds that are played side by side."""
        ...

    @property
    def horizon(self) -> int:
        """Steps in each of them from one update to the next."""
        ...


def iteration_steps(experience: Sized) -> int:
    """Steps in the environment from one update to the next."""
    return experience.envs * experience.horizon


def loop_of(experience: Sized, process: Process) -> Loop:
    """Where the run begins, with its length and its chunks."""
    return plan(math.ceil(experience.steps / iteration_steps(experience)), process.checkpoints)


def run_steps(arguments: Any) -> int:
    """Steps in the environment over the whole run of a recipe: those asked for, rounded up to whole chunks."""
    return loop_of(arguments.experience, arguments.process).iterations * iteration_steps(arguments.experience)


def check_shared(experience: Experience, learner: Learner, process: Process) -> None:
    """Refuses numbers with which nothing can be trained, by the name of their flag. Raises: ChoiceError."""
    check_whole("--seed", experience.seed, 0, SEEDS)
    for name in ("steps", "envs", "horizon"):
        check_whole(flag(name), getattr(experience, name), 1)
    for size in learner.hidden:
        check_whole("--hidden", size, 1)
    check_threads(process.threads)
    check_whole("--checkpoints", process.checkpoints, 1)
    check_within("--learning-rate", learner.learning_rate, 0.0, 1.0)
    check_within("--max-gradient-norm", learner.max_gradient_norm, 0.0)
    check_within("--gamma", learner.gamma, 0.0, 1.0)


def check_whole(where: str, number: int, low: int, high: int | None = None) -> None:
    """Raises ChoiceError unless low <= number <= high; without `high` a number is at most one that a tensor can hold.

    >>> check_whole("--envs", 0, 1)
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: --envs is 0, wanted at least 1; change it
    """
    if number < low or (high is not None and number > high):
        wanted = f"at least {low}" if high is None else f"from {low} to {high}"
        raise ChoiceError(message(where, got=number, wanted=wanted, remedy="change it"))
    if number > SEEDS:
        got = f"a number of {len(str(number))} digits"
        raise ChoiceError(message(where, got=got, wanted=f"at most {SEEDS}", remedy="change it"))


def flag(name: str) -> str:
    """How the command line spells an argument.

    >>> flag("learning_rate")
    '--learning-rate'
    """
    return "--" + name.replace("_", "-")


def most_threads() -> int:
    """Return how many threads may be asked for: more than any library starts without failing is a mistake.

    >>> most_threads() >= 256
    True
    """
    return max(256, 4 * (os.cpu_count() or 1))


def check_threads(threads: int) -> None:
    """Raises ChoiceError unless so many threads can be started.

    >>> check_threads(0)
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: --threads is 0, wanted at least 1; change it
    """
    check_whole("--threads", threads, 1)
    check_whole("--threads", threads, 1, most_threads())


def from_record(recipe: str, defaults: A, held: Mapping[str, Any]) -> A:
    """Return the arguments that a run's record holds, flat, beside the recipe's name; `flatten` makes such a record.

    Raises: CheckpointError for other names than the recipe has, and for values of other types.

    >>> from_record("x", Process(), {"recipe": "x", **flatten(Process(threads=2))})
    Process(threads=2, checkpoints=10, backend='inductor')
    """
    where, values = f"checkpoint: arguments of {recipe}", {name: held[name] for name in held if name != "recipe"}
    differing = sorted(flatten(defaults).keys() ^ values.keys())
    if differing:
        got, remedy = f"with other names: {short(differing)}", "use the version of purestep that wrote it"
        raise CheckpointError(message(where, got=got, wanted="its own", remedy=remedy))
    for name, hint in _hints(type(defaults)).items():
        if name in values and not fits(values[name], hint):
            got = f"with {name} {short(values[name])}"
            wanted = hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
            remedy = "take an older checkpoint, or train anew"
            raise CheckpointError(message(where, got=got, wanted=wanted, remedy=remedy))
    return changed(defaults, values)


def _hints(kind: type) -> dict[str, Any]:
    """The types of all names and numbers of a class of arguments, those of its groups among them."""
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        found |= _hints(hint) if attrs.has(hint) else {name: hint}
    return found


def flatten(arguments: Any) -> dict[str, Any]:
    """All names and numbers of a recipe's arguments, those of its groups among them.

    >>> flatten(Process())
    {'threads': 1, 'checkpoints': 10, 'backend': 'inductor'}
    """
    flat: dict[str, Any] = {}
    for field in attrs.fields(type(arguments)):
        value = getattr(arguments, field.name)
        flat |= flatten(value) if attrs.has(type(value)) else {field.name: value}
    return flat


def changed(arguments: A, changes: Mapping[str, Any]) -> A:
    """The arguments with some of them changed, in whatever group they stand. Raises: ChoiceError for another name.

    >>> changed(Process(), {"threads": 2})
    Process(threads=2, checkpoints=10, backend='inductor')
    """
    known = flatten(arguments)
    for name in changes:
        choose("arguments: name", name, known)
    parts = {}
    for field in attrs.fields(type(arguments)):  # type: ignore[arg-type]
        value = getattr(arguments, field.name)
        if attrs.has(type(value)):
            within = flatten(value).keys() & changes.keys()
            parts[field.name] = changed(value, {name: changes[name] for name in within})
        elif field.name in changes:
            parts[field.name] = changes[field.name]
    return evolve(arguments, **parts)  # type: ignore[misc]
