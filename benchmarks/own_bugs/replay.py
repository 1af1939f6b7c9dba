"""Replay buffers: what a draw gives is not what was put in."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .bug import Bug

Array = NDArray[Any]


class CompactReplayBuffer:
    """Stores each observation once: the next one stands in the following slot."""

    def __init__(self, buffer_size: int, obs_dim: int, seed: int = 0):
        self.buffer_size = buffer_size
        self.observations = np.zeros((buffer_size, obs_dim), np.float32)
        self.actions = np.zeros((buffer_size, 1), np.float32)
        self.rewards = np.zeros(buffer_size, np.float32)
        self.dones = np.zeros(buffer_size, np.float32)
        self.pos, self.full = 0, False
        self.rng = np.random.default_rng(seed)

    def add(self, obs: Array, next_obs: Array, action: Array, reward: float, done: bool) -> None:
        self.observations[self.pos] = obs
        self.observations[(self.pos + 1) % self.buffer_size] = next_obs
        self.actions[self.pos], self.rewards[self.pos], self.dones[self.pos] = action, reward, done
        self.pos = (self.pos + 1) % self.buffer_size
        self.full = self.full or self.pos == 0

    def sample(self, batch_size: int) -> dict[str, Array]:
        upper = self.buffer_size if self.full else self.pos
        return self.get(self.rng.integers(0, upper, size=batch_size))

    def get(self, inds: Array) -> dict[str, Array]:
        return {
            "obs": self.observations[inds],
            "next_obs": self.observations[(inds + 1) % self.buffer_size],
            "action": self.actions[inds],
            "reward": self.rewards[inds],
            "done": self.dones[inds],
        }


class CompactReplayBufferFixed(CompactReplayBuffer):
    """Keeps the next observation of each transition, and does not write into the oldest slot."""

    def __init__(self, buffer_size: int, obs_dim: int, seed: int = 0):
        super().__init__(buffer_size, obs_dim, seed)
        self.next_observations = np.zeros((buffer_size, obs_dim), np.float32)

    def add(self, obs: Array, next_obs: Array, action: Array, reward: float, done: bool) -> None:
        self.observations[self.pos], self.next_observations[self.pos] = obs, next_obs
        self.actions[self.pos], self.rewards[self.pos], self.dones[self.pos] = action, reward, done
        self.pos = (self.pos + 1) % self.buffer_size
        self.full = self.full or self.pos == 0

    def get(self, inds: Array) -> dict[str, Array]:
        return {**super().get(inds), "next_obs": self.next_observations[inds]}


class NewestReplayBuffer:
    """A ring of observations, each of which is the one that follows the last; for streams that are never reset."""

    def __init__(self, capacity: int, obs_dim: int, seed: int = 0):
        self.capacity = capacity
        self.obs = np.zeros((capacity, obs_dim), np.float32)
        self.reward, self.terminated = np.zeros(capacity, np.float32), np.zeros(capacity, bool)
        self.pos, self.full = 0, False
        self.last_next = np.zeros(obs_dim, np.float32)
        self.rng = np.random.default_rng(seed)

    def push(self, obs: Array, reward: float, next_obs: Array, terminated: bool) -> None:
        self.obs[self.pos], self.reward[self.pos], self.terminated[self.pos] = obs, reward, terminated
        self.last_next = np.array(next_obs, np.float32)
        self.pos += 1
        if self.pos == self.capacity:
            self.pos, self.full = 0, True

    def __len__(self) -> int:
        return self.capacity if self.full else self.pos

    def following(self, inds: Array) -> Array:
        newest = (inds == self.pos - 1) & (not self.full)
        return np.where(newest[:, None], self.last_next, self.obs[(inds + 1) % self.capacity])

    def sample(self, batch_size: int) -> tuple[Array, Array, Array, Array]:
        """Observation, reward, next observation, terminated."""
        inds = self.rng.integers(0, len(self), size=batch_size)
        return self.obs[inds], self.reward[inds], self.following(inds), self.terminated[inds]


class NewestReplayBufferFixed(NewestReplayBuffer):
    """Keeps the next observation of each transition."""

    def __init__(self, capacity: int, obs_dim: int, seed: int = 0):
        super().__init__(capacity, obs_dim, seed)
        self.next_obs = np.zeros((capacity, obs_dim), np.float32)

    def push(self, obs: Array, reward: float, next_obs: Array, terminated: bool) -> None:
        self.next_obs[self.pos] = next_obs
        super().push(obs, reward, next_obs, terminated)

    def following(self, inds: Array) -> Array:
        return self.next_obs[inds]


class SumTree:
    """Priorities in a heap: the sum of all, and the leaf at a prefix of it."""

    def __init__(self, capacity: int):
        self.capacity = capacity
        self.nodes = np.zeros(2 * capacity - 1)

    def update(self, idx: int, priority: float) -> None:
        node = idx + self.capacity - 1
        change = priority - self.nodes[node]
        while True:
            self.nodes[node] += change
            if node == 0:
                return
            node = (node - 1) // 2

    @property
    def total(self) -> float:
        return float(self.nodes[0])

    def retrieve(self, mass: float) -> int:
        node = 0
        while 2 * node + 1 < len(self.nodes):
            left = 2 * node + 1
            if mass < self.nodes[left]:
                node = left
            else:
                mass, node = mass - self.nodes[left], left + 1
        return node - self.capacity + 1


class SumTreeFixed(SumTree):
    """As many leaves as the next power of two, so that leaves lie in the order of their indices."""

    def __init__(self, capacity: int):
        super().__init__(1 << (capacity - 1).bit_length())


class PrefixTree(SumTreeFixed):
    """Goes left where the prefix equals the left sum."""

    def retrieve(self, mass: float) -> int:
        node = 0
        while 2 * node + 1 < len(self.nodes):
            left = 2 * node + 1
            if mass <= self.nodes[left]:
                node = left
            else:
                mass, node = mass - self.nodes[left], left + 1
        return node - self.capacity + 1


class PrioritizedBuffer:
    """New items get the largest priority so far."""

    def __init__(self, capacity: int, alpha: float = 0.6, seed: int = 0):
        self.capacity, self.alpha = capacity, alpha
        self.items: list[Any] = []
        self.priorities: Array = np.zeros(capacity)
        self.max_priority, self.pos = np.array(1.0), 0
        self.rng = np.random.default_rng(seed)

    def add(self, item: Any) -> None:
        if len(self.items) < self.capacity:
            self.items.append(item)
        else:
            self.items[self.pos] = item
        self.priorities[self.pos] = self.initial()
        self.pos = (self.pos + 1) % self.capacity

    def initial(self) -> float:
        return int(self.max_priority)

    def probabilities(self) -> Array:
        scaled: Array = self.priorities[: len(self.items)] ** self.alpha
        return scaled / scaled.sum()

    def sample(self, batch_size: int, beta: float = 0.4) -> tuple[list[Any], Array, Array]:
        """Items, their indices, and importance weights of which the largest is 1."""
        p = self.probabilities()
        indices = self.rng.choice(len(p), size=batch_size, p=p)
        weights = (len(p) * p[indices]) ** -beta
        return [self.items[i] for i in indices], indices, weights / weights.max()

    def update_priorities(self, indices: Sequence[int], priorities: Sequence[float]) -> None:
        for i, priority in zip(indices, priorities, strict=True):
            self.priorities[i] = priority
            self.max_priority = np.maximum(self.max_priority, priority)


class PrioritizedBufferFixed(PrioritizedBuffer):
    """A priority is no whole number."""

    def initial(self) -> float:
        return float(self.max_priority)


class StackedBuffer:
    """Single frames; a draw stacks the last `stack` of them."""

    def __init__(self, capacity: int, stack: int = 2):
        self.capacity, self.stack = capacity, stack
        self.frames = np.zeros(capacity, np.int64)
        self.terminal, self.truncated = np.zeros(capacity, bool), np.zeros(capacity, bool)
        self.count = 0

    def add(self, frame: int, terminal: bool, truncated: bool = False) -> None:
        i = self.count % self.capacity
        self.frames[i], self.terminal[i], self.truncated[i] = frame, terminal, truncated
        self.count += 1

    def is_valid(self, i: int) -> bool:
        """Whether the frames up to `i` are of one episode."""
        start, write = i - self.stack + 1, self.count % self.capacity
        if start < 0 or i >= min(self.count, self.capacity) or (self.count > self.capacity and start < write <= i):
            return False
        return not self.ended(start, i)

    def ended(self, start: int, stop: int) -> bool:
        return bool(self.terminal[start:stop].any())

    def valid(self) -> list[int]:
        return [i for i in range(min(self.count, self.capacity)) if self.is_valid(i)]

    def stacked(self, i: int) -> Array:
        return self.frames[i - self.stack + 1 : i + 1]


class StackedBufferFixed(StackedBuffer):
    """Frames before a truncation are of another episode, too."""

    def ended(self, start: int, stop: int) -> bool:
        return bool((self.terminal[start:stop] | self.truncated[start:stop]).any())


class SequenceReplay:
    """Sequences [B, T+1, ...]; a draw aligns each action with the observation that it led to."""

    def __init__(self, actions: Tensor, observations: Tensor):
        self.actions, self.observations = actions, observations

    def sample(self, rows: Tensor) -> dict[str, Tensor]:
        batch = {"action": self.actions[rows], "obs": self.observations[rows]}
        source, target = batch["action"][:, :-1], batch["action"][:, 1:]
        for column in range(source.shape[1]):
            target[:, column] = source[:, column]
        batch["action"] = batch["action"][:, 1:]
        return {"prev_action": batch["action"], "obs": batch["obs"][:, 1:]}


class SequenceReplayFixed(SequenceReplay):
    """Copies before it writes."""

    def sample(self, rows: Tensor) -> dict[str, Tensor]:
        return {"prev_action": self.actions[rows][:, :-1].clone(), "obs": self.observations[rows][:, 1:]}


class HindsightBuffer:
    """Goals of a later step of the same episode replace those of a draw."""

    def __init__(self, capacity: int, seed: int = 0):
        self.capacity = capacity
        self.achieved, self.episode = np.zeros(capacity, np.int64), np.full(capacity, -1)
        self.pos, self.full = 0, False
        self.rng = np.random.default_rng(seed)

    def add(self, achieved: int, episode: int) -> None:
        self.achieved[self.pos], self.episode[self.pos] = achieved, episode
        self.pos = (self.pos + 1) % self.capacity
        self.full = self.full or self.pos == 0

    def last_of(self, i: int) -> int:
        """How many steps of the same episode follow slot `i`."""
        following = np.nonzero(self.episode[i:] != self.episode[i])[0]
        return int(following[0]) - 1 if len(following) else self.capacity - i - 1

    def relabel(self, i: int) -> int:
        """The goal that a draw of slot `i` gets."""
        future = i + self.rng.integers(0, self.last_of(i) + 1)
        return int(self.achieved[future % self.capacity])


class HindsightBufferFixed(HindsightBuffer):
    """Goes on at the start of the ring, and stops before the slot that is written next."""

    def last_of(self, i: int) -> int:
        steps = 0
        while True:
            following = (i + steps + 1) % self.capacity
            if following == self.pos or self.episode[following] != self.episode[i]:
                return steps
            steps += 1


def compact(make: Any) -> object:
    """A truncated episode's last next observation."""
    buffer = make(8, 1)
    buffer.add(np.array([1.0]), np.array([2.0]), np.array([0.0]), 1.0, False)
    buffer.add(np.array([10.0]), np.array([11.0]), np.array([0.0]), 1.0, False)
    return buffer.get(np.array([0]))["next_obs"]


def newest(make: Any) -> object:
    """Whether all draws of a full ring hold next = now + 1."""
    buffer = make(4, 1)
    for t in range(6):
        buffer.push(np.array([float(t)]), 0.0, np.array([t + 1.0]), False)
    obs, _, next_obs, _ = buffer.sample(100)
    return bool(np.all(next_obs == obs + 1))


def retrieved(make: Any, capacity: int, priorities: Sequence[float]) -> object:
    """The leaf at each whole prefix and between them."""
    tree = make(capacity)
    for i, priority in enumerate(priorities):
        tree.update(i, priority)
    return [tree.retrieve(mass / 2) for mass in range(int(2 * tree.total))]


def new_priority(make: Any) -> object:
    """The priority of an item that comes after one of 1.75."""
    buffer = make(4)
    buffer.add("a")
    buffer.update_priorities([0], [1.75])
    buffer.add("b")
    return buffer.priorities


def stacks(make: Any) -> object:
    """What can be drawn around a truncation."""
    buffer = make(8)
    for frame, terminal, truncated in [(1, False, False), (2, False, True), (3, False, False), (4, True, False)]:
        buffer.add(frame, terminal, truncated)
    return [buffer.stacked(i) for i in buffer.valid()]


def relabelled(make: Any) -> object:
    """Episodes of the goals that draws of a wrapped episode get."""
    buffer = make(6)
    for step in range(9):
        buffer.add(step, step // 5)
    return sorted({buffer.relabel(5) for _ in range(50)})


BUGS = [
    Bug(
        "final_observation_overwritten",
        "https://github.com/vwxyzjn/cleanrl/issues/460",
        "replay",
        "A buffer that stores observations once gives the next episode's first observation where one was truncated.",
        CompactReplayBuffer,
        CompactReplayBufferFixed,
        compact,
    ),
    Bug(
        "newest_has_oldest_as_next",
        "https://github.com/DLR-RM/stable-baselines3/issues/1853",
        "replay",
        "In a full ring the newest transition's next observation is the oldest observation.",
        NewestReplayBuffer,
        NewestReplayBufferFixed,
        newest,
    ),
    Bug(
        "tree_of_three_leaves",
        "https://github.com/vwxyzjn/cleanrl/issues/546",
        "replay",
        "A sum tree whose capacity is no power of two maps prefixes to the wrong leaves.",
        SumTree,
        SumTreeFixed,
        lambda tree: retrieved(tree, 3, [1.0, 1.0, 1.0]),
    ),
    Bug(
        "prefix_on_the_edge",
        "https://github.com/Howuhh/prioritized_experience_replay/issues/3",
        "replay",
        "Where the prefix equals the left sum the tree goes left: whole priorities are drawn in the wrong shares.",
        PrefixTree,
        SumTreeFixed,
        lambda tree: retrieved(tree, 4, [2.0, 0.0, 1.0, 1.0]),
    ),
    Bug(
        "largest_priority_rounded",
        "https://github.com/instadeepai/flashbax/pull/58",
        "replay",
        "New items get the largest priority cut to a whole number.",
        PrioritizedBuffer,
        PrioritizedBufferFixed,
        new_priority,
    ),
    Bug(
        "stack_across_truncation",
        "https://github.com/google/dopamine/issues/213",
        "replay",
        "Frames are stacked across a truncation, since only terminations are looked for.",
        StackedBuffer,
        StackedBufferFixed,
        stacks,
    ),
    Bug(
        "overlapping_copy",
        "https://github.com/NM512/r2dreamer/issues/9",
        "replay",
        "Actions are shifted in memory that overlaps: later ones are overwritten before they are read.",
        SequenceReplay,
        SequenceReplayFixed,
        lambda make: make(torch.arange(5).reshape(1, 5), torch.arange(5).reshape(1, 5)).sample(torch.tensor([0])),
    ),
    Bug(
        "hindsight_stops_at_the_edge",
        "https://github.com/thu-ml/tianshou/issues/811",
        "replay",
        "Goals of an episode that goes on at the start of the ring are never those after the edge.",
        HindsightBuffer,
        HindsightBufferFixed,
        relabelled,
    ),
]
