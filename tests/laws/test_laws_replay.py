"""Replay as a value of tensors, its sum tree, and policies of action values obey the laws of such objects."""

from typing import Any

import torch
from torch import Tensor

from purestep.algorithms.distributional_losses import project_categorical
from purestep.algorithms.dqn import q_target
from purestep.algorithms.off_policy import follow
from purestep.core import keys
from purestep.core.action_values import action_values_mlp
from purestep.core.replay import (
    Replay,
    draw,
    empty_replay,
    empty_sums,
    find,
    held,
    importance_weights,
    rows_at,
    set_priorities,
    set_priority,
    store,
)
from purestep.core.spaces import Box, Discrete, Fields
from purestep.properties import (
    categorical_projection_laws,
    check,
    epsilon_laws,
    policy_laws,
    replay_laws,
    sum_tree_laws,
    target_laws,
    target_network_laws,
)
from purestep.properties.framework.families import own_epsilon_greedy

SEEN, THREE = Box(-1.0, 1.0, (3,)), Discrete(3)
MASKED = Fields((("features", SEEN), ("action_mask", Box(0.0, 1.0, (3,)))))
ALPHA, BETA = 0.5, 1.0


class Tree:
    """Our sum tree as an object."""

    def __init__(self, capacity: int) -> None:
        self.sums = empty_sums(capacity).double()

    def update(self, index: int, priority: float) -> None:
        self.sums = set_priorities(self.sums, torch.tensor([index]), torch.tensor([priority], dtype=torch.float64))

    @property
    def total(self) -> float:
        return float(self.sums[1])

    def retrieve(self, mass: float) -> int:
        return int(find(self.sums, torch.tensor(mass / self.total, dtype=torch.float64)))


class Buffer:
    """Our buffer as an object that changes."""

    prioritised = False

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.replay: Replay | None = None

    def add(self, step: dict[str, Tensor]) -> None:
        if self.replay is None:
            self.replay = empty_replay(step, self.capacity, prioritised=self.prioritised)
        self.replay = store(self.replay, {name: value[None] for name, value in step.items()})

    def sample(self, count: int, seed: int) -> dict[str, Tensor]:
        assert self.replay is not None
        numbers = draw(self.replay, keys.key(seed), count)
        rows: dict[str, Tensor] = rows_at(self.replay, numbers)
        if self.prioritised:
            places = numbers % self.capacity
            rows |= {"index": places, "weight": importance_weights(self.replay, numbers, BETA)}
        return rows

    def __len__(self) -> int:
        return 0 if self.replay is None else int(held(self.replay))


class Prioritised(Buffer):
    """The same, by priority."""

    prioritised = True

    def update_priorities(self, index: Tensor, priority: Tensor) -> None:
        assert self.replay is not None
        oldest = self.replay.stored - held(self.replay)
        numbers = oldest + (torch.as_tensor(index) - oldest) % self.capacity
        self.replay = set_priority(self.replay, numbers, torch.as_tensor(priority).float() ** ALPHA)


def double(
    rewards: Tensor, online: Tensor, target: Tensor, terminated: Tensor, truncated: Tensor, *, gamma: Any
) -> Any:
    """The target of DQN: a truncation bootstraps."""
    return q_target(rewards, online, target, gamma * (~terminated).to(rewards.dtype))


test_sums = check(sum_tree_laws(), Tree)
test_uniform = check(replay_laws(), Buffer)
test_prioritised = check(replay_laws(alpha=ALPHA, beta=BETA, new="largest"), Prioritised)
test_values = check(policy_laws(SEEN, THREE), action_values_mlp(SEEN, THREE, hidden=(8,)))
test_dueling = check(policy_laws(SEEN, THREE), action_values_mlp(SEEN, THREE, hidden=(8,), is_dueling=True))
test_masked = check(policy_laws(MASKED, THREE), action_values_mlp(MASKED, THREE, hidden=(8,)))
test_double = check(target_laws("double"), double)
test_target_network = check(target_network_laws(), follow)
test_projection = check(categorical_projection_laws(), project_categorical)
test_epsilon = check(epsilon_laws(masked=True), own_epsilon_greedy)


def test_rows_of_several_at_once_are_those_of_one_after_another() -> None:
    rows = torch.arange(11.0)
    one = several = empty_replay(torch.zeros(()), 4)
    for row in rows:
        one = store(one, row[None])
    for start in range(0, 11, 3):
        several = store(several, rows[start : start + 3])
    assert torch.equal(one.rows, several.rows)
    assert torch.equal(rows_at(several, torch.arange(7, 11)), rows[7:])


def test_the_sums_are_those_of_the_leaves_after_many_changes() -> None:
    replay = empty_replay(torch.zeros(()), 5, prioritised=True)
    for seed in range(20):
        replay = store(replay, torch.zeros(2))
        numbers = draw(replay, keys.key(seed), 3)
        replay = set_priority(replay, numbers, 1000.0 * keys.uniform(keys.fold_in(keys.key(1), numbers)))
    leaves = replay.sums[8:]
    for level in (4, 2, 1):
        leaves = leaves.reshape(-1, 2).sum(-1)
        assert torch.equal(leaves, replay.sums[level : 2 * level])
    assert bool((replay.highest >= replay.sums[8:]).all())
