"""Runs that became NaN or infinite: an error as soon as Python sees the numbers, never a branch inside a graph.

The error names the first tensor that was not finite. A second run from the state before finds it, uncompiled and looked at
after each iteration, so that training itself computes nothing more.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from attrs import evolve, frozen
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from ..core.errors import NonFiniteError, message
from ..core.record import take
from ..core.tree import leaf_names, leaves
from .declared import COUNTS
from .identity import AFTERWARDS

Result = tuple[Any, Mapping[str, Tensor]]  # the final state of a run, and its metrics
AGAIN = 100  # iterations that are run again at most: uncompiled, one takes as long as hundreds of a program
PLAYED = (
    "observation",
    "behaviour_log_prob",
    "action",
    "reward",
    "next_observation",
)  # of a step, as one causes the next
OF_THE_ENV = ("observation", "reward", "next_observation")
ANY = "NaN or infinite in parameters or rewards"  # where no second run can tell which


class Repeatable(Protocol):
    """The parts of a `Trainer` that a second run needs."""

    @property
    def play(self) -> Any: ...

    @property
    def iterate(self) -> Any: ...

    @property
    def named(self) -> Any: ...

    @property
    def single(self) -> Any: ...


def refusing(run: Callable[[Any], Result], trainer: Repeatable) -> Callable[[Any], Result]:
    """Return `run`, of iterations of `trainer`, with `require_finite` applied to its result wherever the numbers are known.

    That is in Python, and as a `program`.
    """

    def afterwards(result: Result, state: Any) -> None:
        require_finite(result, trainer, state)

    def checked(state: Any) -> Result:
        result = run(state)
        if not torch.compiler.is_compiling():
            checked.__dict__[AFTERWARDS](result, state)  # no variable of `checked`, whose program does not depend on it
        return result

    checked.__dict__[AFTERWARDS] = afterwards
    return checked


def require_finite(result: Result, trainer: Repeatable | tuple[()] = (), state: Any = ()) -> None:
    """Raise NonFiniteError if `finite` among the metrics, [iterations] or [iterations, S], has a row of zeros.

    With the trainer and the state before, the error names the first tensor that was not finite. Numbers inside a
    transformation such as vmap are not known yet, and are not checked.

    >>> try:
    ...     require_finite(((), {"finite": torch.tensor([1.0, 0.0])}))
    ... except NonFiniteError as error:
    ...     print(str(error).split(",")[0])
    train: iteration 2 of 2 is NaN or infinite in parameters or rewards
    """
    finite = result[1].get("finite", ())
    if not isinstance(finite, Tensor) or not _is_known(finite):
        return
    rows = finite.reshape(finite.shape[0], -1) == 0.0 if finite.numel() else finite[:, None] == 0.0
    lost = rows.all(-1).tolist()
    if True in lost:
        number = lost.index(True) + 1
        fault = Fault()
        if not isinstance(trainer, tuple) and number <= AGAIN:
            fault = _of_first_member(trainer, state, rows) if finite.ndim > 1 else first_fault(trainer, state, number)
        where, cure = f"train: iteration {number} of {len(lost)}", "lower the learning rate or scale the rewards"
        then = ", and begin from the state before"
        if number > AGAIN:
            then += f"; of up to {AGAIN} iterations a call the first such tensor is found"
        raise NonFiniteError(fault.text(where, cure=cure, then=then))


def _of_first_member(trainer: Repeatable, state: Any, lost: Tensor) -> "Fault":
    """Return the fault of the member of a population that was lost first: lost [iterations, S]."""
    if isinstance(trainer.single, tuple):
        return Fault()
    begun = lost.to(torch.int64).argmax(0)
    member = int(begun.argmin())
    fault = first_fault(trainer.single, take(state, member), int(begun[member]) + 1)
    return evolve(fault, leaf=f"members[{member}]: {fault.leaf}") if fault.leaf else fault


@frozen
class Fault:
    """The first tensor of a run that was not finite."""

    leaf: str = ""  # its name; "" where it was not found
    got: str = ANY
    env: bool = False  # whether the environment returned it

    def text(self, where: str, *, cure: str, then: str) -> str:
        """Return the error's text; `cure` is the remedy for the learner.

        >>> Fault("reward", "NaN in 1 of 2 envs", True).text("train: iteration 3", cure="", then="")
        'train: iteration 3: reward is NaN in 1 of 2 envs, wanted finite numbers; correct the environment'
        """
        whole = f"{where}: {self.leaf}" if self.leaf else where
        remedy = "correct the environment" if self.env else cure
        return message(whole, got=self.got, wanted="finite numbers", remedy=f"{remedy}{then}")


def first_fault(trainer: Repeatable, state: Any, iteration: int) -> Fault:
    """Return the first tensor that is not finite when `iteration` iterations are run again from `state`, uncompiled.

    It is looked for among the params at the beginning, then in each iteration among what was played (by step), the metrics,
    the new params, and the normaliser's statistics; of each kind that followed the first is named too. Nothing is found
    for a world that cannot be stepped again, and for a run that is finite uncompiled.
    """
    if isinstance(trainer.play, tuple):
        return Fault()
    before = _spoilt({"learner.params": trainer.named(state.learner.params)})
    if before:
        return _fault(before, " before the first iteration")
    for number in range(1, iteration + 1):
        played = trainer.play(state)
        state, metrics = trainer.iterate(state)
        if metrics["finite"] != 1.0:
            again = "" if number == iteration else f" (already in iteration {number} when run again, uncompiled)"
            return fault_in(played, metrics, trainer.named(state.learner.params), state.normalizer, again)
    return Fault(got=f"{ANY}, but not when run again, uncompiled")


def fault_in(played: Any, metrics: Mapping[str, Tensor], params: Any, normalizer: Any, again: str = "") -> Fault:
    """Return the first tensor of an iteration that is not finite: of the trajectory played, else of what was made of it.

    `params` are a tree whose leaves have names; `again` is added to the text.
    """
    own = {name: value for name, value in metrics.items() if name not in COUNTS}
    parts = own, {"learner.params": params}, {"normalizer": normalizer}
    after = [leaf for tree in parts for leaf in _spoilt(tree)[:1]]
    return _of_step(played, after, again) or _fault(after, again)


def _of_step(played: Any, after: list[tuple[str, Tensor]], again: str) -> Fault | None:
    """Return the first leaf of a trajectory [T, B, ...] that is not finite, and what followed from it."""
    first: tuple[int, str, Tensor] | None = None
    for name, leaf in _spoilt({part: getattr(played, part) for part in PLAYED}):
        bad = ~torch.isfinite(leaf).reshape(*leaf.shape[:2], -1).all(-1)
        step = int(bad.any(-1).nonzero()[0])
        if first is None or step < first[0]:
            first = step, name, leaf
    if first is None:
        return None
    step, name, leaf = first
    rows = leaf[step].reshape(leaf.shape[1], -1)
    envs = (~torch.isfinite(rows)).any(-1)
    which = f" (first envs[{int(envs.nonzero()[0])}])" if len(rows) > 1 else ""
    got = f"{_kind(rows)} in {int(envs.sum())} of {len(rows)} envs{which} at step {step + 1} of {len(leaf)}"
    then = f", then {_names(after)}" if after else ""
    return Fault(name, f"{got}{then}{again}", name.split(".")[0] in OF_THE_ENV)


def _fault(spoilt: list[tuple[str, Tensor]], when: str) -> Fault:
    if not spoilt:
        return Fault(got=f"{ANY}{when}")
    (name, leaf), *others = spoilt
    count = int((~torch.isfinite(leaf)).sum())
    got = f"{_kind(leaf)} in {count} of {leaf.numel()} numbers" if leaf.ndim else _kind(leaf)
    then = f", then {_names(others)}" if others else ""
    return Fault(name, f"{got}{then}{when}")


def _spoilt(tree: Any) -> list[tuple[str, Tensor]]:
    """Return the leaves that are not finite, with their names.

    >>> _spoilt({"a": torch.tensor(1.0), "b": (torch.tensor(2), torch.tensor(torch.inf))})
    [('b.1', tensor(inf))]
    """
    named = zip(leaf_names(tree), leaves(tree), strict=True)
    known = [(name, leaf) for name, leaf in named if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    return [(name, leaf) for name, leaf in known if not bool(torch.isfinite(leaf).all())]


def _kind(leaf: Tensor) -> str:
    return "NaN" if bool(torch.isnan(leaf).any()) else "infinite"


def _names(spoilt: list[tuple[str, Tensor]]) -> str:
    return " and ".join(name for name, _ in spoilt)


def _is_known(numbers: Tensor) -> bool:
    wrapped = is_functorch_wrapped_tensor(numbers)
    return type(numbers) is Tensor and not wrapped and numbers.device.type != "meta"
