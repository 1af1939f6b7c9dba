"""What an environment tells, and what an ending means for values."""

import itertools
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from torch import Tensor

from purestep.core.errors import DtypeError, ShapeError
from purestep.core.record import check, replace, stack, take
from purestep.core.steps import (
    TimeStep,
    Transition,
    bootstrap_mask,
    ended,
    first,
    following,
    restarted,
    trace_mask,
)

FLAGS = list(itertools.product([False, True], repeat=2))
TERMINATED, TRUNCATED = torch.tensor(FLAGS).T
OBSERVATIONS: dict[str, Any] = {
    "tensor": torch.tensor([1.0, 2.0]),
    "dict": {"a": torch.tensor(3), "b": (torch.ones(2, 2), ())},
    "record": first(torch.ones(2)),
}


def equal(a: Any, b: Any) -> bool:
    same: bool = pytree.tree_structure(a) == pytree.tree_structure(b)
    return same and all(torch.equal(x, y) for x, y in zip(pytree.tree_leaves(a), pytree.tree_leaves(b), strict=True))


def share(a: Any, b: Any) -> bool:
    return any(
        x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
        for x, y in zip(pytree.tree_leaves(a), pytree.tree_leaves(b), strict=True)
    )


@pytest.mark.parametrize("observation", OBSERVATIONS.values(), ids=OBSERVATIONS)
def test_a_reset_tells_no_reward_and_no_ending(observation: Any) -> None:
    told = check(first(observation), ())
    assert told.observation is observation
    assert equal(told.next_observation, observation)
    assert not share(told.next_observation, observation)
    assert (told.reward.item(), told.terminated.item(), told.truncated.item()) == (0.0, False, False)
    assert not share(told.terminated, told.truncated)


@pytest.mark.parametrize("observation", OBSERVATIONS.values(), ids=OBSERVATIONS)
@pytest.mark.parametrize(("terminated", "truncated"), FLAGS)
def test_a_step_tells_what_followed_before_any_reset(observation: Any, terminated: bool, truncated: bool) -> None:
    reward = torch.tensor(2.5)
    told = check(following(observation, reward, torch.tensor(terminated), torch.tensor(truncated)), ())
    assert (told.reward is reward, told.terminated.item(), told.truncated.item()) == (True, terminated, truncated)
    assert equal(told.next_observation, told.observation)
    assert not share(told.next_observation, told.observation)


def test_truncated_is_false_unless_said() -> None:
    told = following(torch.ones(3), torch.ones(()), torch.tensor(True))
    assert (told.truncated.item(), told.truncated.dtype) == (False, torch.bool)


def test_a_restart_changes_the_observation_alone() -> None:
    old = following(torch.ones(3), torch.tensor(1.0), torch.tensor(True), torch.tensor(True))
    new = restarted(old, torch.zeros(3))
    assert torch.equal(new.observation, torch.zeros(3))
    assert equal(replace(new, observation=()), replace(old, observation=()))


@pytest.mark.parametrize("make", [first, lambda x: following(x, x.sum(), x.sum() > 1)])
def test_timesteps_of_many_worlds_are_those_of_each(make: Any) -> None:
    observations = torch.arange(6.0).reshape(3, 2)
    many = torch.vmap(make)(observations)
    assert equal(many, stack([make(x) for x in observations]))
    assert check(many, (3,)) is many


def test_only_termination_stops_the_bootstrap_and_either_stops_the_trace() -> None:
    """All four endings: neither, truncated, terminated, both."""
    assert FLAGS == [(False, False), (False, True), (True, False), (True, True)]
    assert bootstrap_mask(TERMINATED).tolist() == [1, 1, 0, 0]
    assert trace_mask(TERMINATED, TRUNCATED).tolist() == [1, 0, 0, 0]
    assert ended(TERMINATED, TRUNCATED).tolist() == [False, True, True, True]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_masks_have_the_dtype_asked_for(dtype: torch.dtype) -> None:
    assert bootstrap_mask(TERMINATED, dtype).dtype == dtype
    assert trace_mask(TERMINATED, TRUNCATED, dtype).dtype == dtype


def trajectory(*lead: int) -> Transition:
    def flags(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.bool)

    return Transition(
        observation={"a": torch.ones(*lead, 4)},
        action=torch.zeros(lead, dtype=torch.int64),
        reward=torch.ones(lead),
        terminated=flags(*lead),
        truncated=flags(*lead),
        next_observation={"a": torch.ones(*lead, 4)},
        behaviour_log_prob=torch.zeros(lead),
    )


@pytest.mark.parametrize("lead", [(), (5,), (5, 3)])
def test_a_leading_axis_makes_a_trajectory(lead: tuple[int, ...]) -> None:
    value = trajectory(*lead)
    assert check(value, lead) is value
    if lead:
        assert check(take(value, 0), lead[1:])
    with pytest.raises(ShapeError, match=r"Transition\.reward is .*, wanted \[\*\] with \* = \[9\]"):
        check(value, (9,))


def test_a_trajectory_that_does_not_fit_is_refused() -> None:
    value = trajectory(5, 3)
    with pytest.raises(ShapeError, match=r"Transition\.observation\.a is \[4, 3, 4\], wanted \[5, 3, \.\.\.\]"):
        check(replace(value, observation={"a": torch.ones(4, 3, 4)}))
    with pytest.raises(DtypeError, match=r"Transition\.terminated is torch.float32, wanted bool"):
        check(replace(value, terminated=torch.zeros(5, 3)))


def test_timestep_and_transition_speak_of_the_same_things() -> None:
    ours, theirs = set(TimeStep.__annotations__), set(Transition.__annotations__)
    assert theirs - ours == {"action", "behaviour_log_prob"}
    assert ours <= theirs
