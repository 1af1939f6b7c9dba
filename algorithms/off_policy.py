"""Learning from a replay buffer: store a trajectory, then draw batches, each for one update. DQN, TD3, SAC and others share it.

An algorithm is a function `learn` of one batch; a batch of n-step returns looks like one of single steps, so that its target is
always reward + discount * next value.
"""

from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from ..core import keys
from ..core.errors import ChoiceError, message
from ..core.keys import Key
from ..core.record import record, replace, select, take, tensor
from ..core.replay import Replay, draw, empty_replay, importance_weights, rows_at, set_priority, store
from ..core.scan import scan
from ..core.steps import Trajectory, Transition, ended
from ..core.tree import leaves, tree_map
from .algorithm import Algorithm, Metrics, TrainState
from .hyperparameters import Number, Numbers, current_numbers, given_as_tensors


@record
class StoredStep:
    """A row of the buffer."""

    observation: Any  # [*, ...]
    action: Tensor  # [*, ...]
    reward: Tensor = tensor("*", "float")
    terminated: Tensor = tensor("*", "bool")
    truncated: Tensor = tensor("*", "bool")
    next_observation: Any  # [*, ...]


@record
class Batch:
    """Rows to learn from, each of up to n steps: the target of Q(s, a) is reward + discount V(next_observation)."""

    observation: Any  # [*, ...]
    action: Tensor  # [*, ...]
    reward: Tensor = tensor("*", "float")  # discounted sum over the steps
    discount: Tensor = tensor("*", "float")  # gamma^steps, 0 behind a termination
    next_observation: Any  # [*, ...]  after the last of the steps
    weight: Tensor = tensor("*", "float")  # of the row's loss, against the bias of a draw by priority


@frozen(kw_only=True)
class ReplayOptions:
    """The part of an algorithm's settings that says how it uses the buffer."""

    replay_size: int  # transitions that are kept
    batch_size: int
    updates: int  # after each trajectory
    n_step: int = 1
    prioritised: bool = (
        False  # by `priority_exponent`, with weights by `importance_exponent`, both numbers of the state
    )


# (state, batch, key, numbers) -> the state after one update, errors [batch] for the priorities, metrics by name
Learn = Callable[[TrainState, Batch, Key, Numbers], tuple[TrainState, Tensor, Metrics]]
# (params, transitions stored so far, numbers) -> params that act from now on
Explore = Callable[[Any, Tensor, Numbers], Any]


def off_policy(
    init: Callable[[Key], TrainState],
    learn: Learn,
    explore: Explore,
    numbers: Numbers,
    options: ReplayOptions,
    metrics: tuple[str, ...],
    *,
    action: Callable[[Tensor], Tensor] = lambda action: action,
) -> Algorithm:
    """Return the algorithm that stores each trajectory [T, B], and calls `learn` for `updates` batches drawn from the buffer.

    Until `learning_starts` of `numbers` transitions are stored nothing is learned, and its metrics are NaN. `explore` then sets
    the parameters that decide about random actions. `action` maps the policy's action to the one that the environment got.
    Metrics: those of `learn`, means over the updates, and replay_rows, the number of transitions held.
    Raises: ChoiceError for a buffer that the start of learning does not fit into.

    Here the reward of each action is learned, from one action to the next:

    >>> no, at = torch.tensor([[False]]), torch.zeros(1, 1, dtype=torch.int64)
    >>> played = Transition(observation=at, action=at, reward=torch.ones(1, 1), terminated=~no, truncated=no,
    ...                     next_observation=at, behaviour_log_prob=torch.zeros(1, 1))
    >>> def init(key):
    ...     return TrainState(params=torch.zeros(1), optimizer=(), step=torch.tensor(0), numbers={"gamma": torch.tensor(0.9)})
    >>> def learn(state, batch, key, now):
    ...     error = batch.reward - state.params[batch.action]
    ...     return replace(state, params=state.params + 0.5 * error.mean()), error, {"error": error.mean()}
    >>> numbers = {"gamma": 0.9, "learning_starts": torch.tensor(1)}
    >>> options = ReplayOptions(replay_size=4, batch_size=2, updates=2)
    >>> bandit = off_policy(init, learn, lambda params, stored, now: params, numbers, options, ("error",))
    >>> state = replace(bandit.init(keys.key(0)), replay=bandit.replay(take(take(played, 0), 0)))
    >>> state, metrics = bandit.update(state, played, keys.key(1))
    >>> state.params, int(state.step), metrics["replay_rows"]
    (tensor([0.7500]), 2, tensor(1))
    """
    names, fixed = tuple(numbers), given_as_tensors(numbers)
    starts = numbers["learning_starts"]
    if not isinstance(starts, Tensor) and starts > options.replay_size:
        wanted, remedy = f"at most replay_size {options.replay_size}", "keep more transitions, or begin sooner"
        raise ChoiceError(message("learning_starts", got=starts, wanted=wanted, remedy=remedy))

    def replay(transition: Transition) -> Replay:
        return empty_replay(_stored(transition, action), options.replay_size, prioritised=options.prioritised)

    def update(state: TrainState, trajectory: Trajectory, key: Key) -> tuple[TrainState, Metrics]:
        now = current_numbers("off_policy", names, state.numbers, fixed)
        envs = trajectory.reward.shape[1]
        rows = tree_map(lambda leaf: leaf.flatten(0, 1), _stored(trajectory, action))
        stored = store(state.replay, rows)
        ready = stored.stored >= now["learning_starts"]

        def one(carry: tuple[TrainState, Any], key: Key) -> tuple[tuple[TrainState, Any], Tensor]:
            before, priorities = carry
            buffer = replace(stored, sums=priorities[0], highest=priorities[1])
            draw_key, learn_key = keys.split(key)
            drawn = draw(buffer, draw_key, options.batch_size)
            batch = batch_at(buffer, drawn, envs, gamma=now["gamma"], n=options.n_step)
            if options.prioritised:
                batch = replace(batch, weight=importance_weights(buffer, drawn, now["importance_exponent"]))
            after, errors, figures = learn(before, batch, learn_key, now)
            after = select(ready, replace(after, step=before.step + 1), before)
            if options.prioritised:
                exponent = now["priority_exponent"].to(errors.dtype)
                raised = set_priority(buffer, drawn, (errors.abs() + 1e-6) ** exponent)
                # Before anything is learned every priority stays that of a new row.
                priorities = select(ready, (raised.sums, raised.highest), priorities)
            row = torch.stack([figures[name].to(torch.float32) for name in metrics])
            return (after, priorities), torch.where(ready, row, torch.nan)

        carry = replace(state, replay=()), (stored.sums, stored.highest)
        every = keys.split(key, options.updates)
        (after, priorities), figures = scan(one, carry, every, output=every[:, 0])
        stored = replace(stored, sums=priorities[0], highest=priorities[1])
        after = replace(after, replay=stored, params=explore(after.params, stored.stored, now))
        held = torch.clamp(stored.stored, max=options.replay_size)
        return after, {**dict(zip(metrics, figures.mean(0).unbind(), strict=True)), "replay_rows": held}

    return Algorithm(init=init, update=update, metrics=(*metrics, "replay_rows"), replay=replay)


def _stored(steps: Transition, action: Callable[[Tensor], Tensor]) -> StoredStep:
    return StoredStep(
        observation=steps.observation,
        action=action(steps.action),
        reward=steps.reward,
        terminated=steps.terminated,
        truncated=steps.truncated,
        next_observation=steps.next_observation,
    )


def batch_at(replay: Replay, numbers: Tensor, envs: int, *, gamma: Number, n: int) -> Batch:
    """Return the rows with these numbers [K] as n-step transitions, all with weight 1: those of one env are `envs` rows apart.

    reward = sum_k gamma^k r_{t+k} up to the episode's end, n steps or the newest row, whichever comes first; next_observation
    is the one after the last of these, and discount gamma^steps, or 0 if it terminated.
    Source: Sutton and Barto 2018, section 7.1.

    >>> no, zero = torch.tensor([False]), torch.zeros(1)
    >>> step = lambda reward, ends: StoredStep(observation=zero, action=zero, reward=torch.tensor([reward]),
    ...     terminated=torch.tensor([ends]), truncated=no, next_observation=zero)
    >>> buffer = empty_replay(take(step(0.0, False), 0), 4)
    >>> for reward, ends in ((1.0, False), (2.0, False), (4.0, True)):
    ...     buffer = store(buffer, step(reward, ends))
    >>> batch = batch_at(buffer, torch.tensor([0, 1, 2]), 1, gamma=0.5, n=2)
    >>> batch.reward, batch.discount
    (tensor([2., 4., 4.]), tensor([0.2500, 0.0000, 0.0000]))
    """
    first: StoredStep = rows_at(replay, numbers)
    reward, last = first.reward, numbers
    power = gamma.to(reward.dtype) if isinstance(gamma, Tensor) else gamma
    discount = torch.ones_like(reward) * power
    over, terminated = ended(first.terminated, first.truncated), first.terminated
    for k in range(1, n):
        later = numbers + k * envs
        step = rows_at(replace(replay, rows=replace(replay.rows, observation=(), next_observation=())), later)
        goes_on = ~over & (later < replay.stored)
        reward = reward + torch.where(goes_on, discount * step.reward, 0.0)
        discount = torch.where(goes_on, discount * power, discount)
        last = torch.where(goes_on, later, last)
        terminated = torch.where(goes_on, step.terminated, terminated)
        over = ~goes_on | ended(step.terminated, step.truncated)
    return Batch(
        observation=first.observation,
        action=first.action,
        reward=reward,
        discount=discount * (~terminated).to(reward.dtype),
        next_observation=take(replay.rows.next_observation, last % leaves(replay.rows)[0].shape[0]),
        weight=torch.ones_like(reward),
    )


def follow(target: Any, params: Any, rate: Number) -> Any:
    """Return target + rate (params - target) for each leaf; rate 1 copies the params.

    Source: Lillicrap et al. 2015, arXiv:1509.02971, section 3.

    >>> follow(torch.tensor(0.0), torch.tensor(4.0), 0.25)
    tensor(1.)
    """

    def leaf(old: Tensor, new: Tensor) -> Tensor:
        return torch.lerp(old, new, rate.to(old.dtype) if isinstance(rate, Tensor) else rate)

    return tree_map(leaf, target, params)


def annealed(stored: Tensor, final: Number, steps: Number) -> Tensor:
    """Return 1 - (1 - final) min(stored / steps, 1), the size of exploration after so many transitions: float32 [].

    >>> annealed(torch.tensor(50), 0.5, 100)
    tensor(0.7500)
    """
    part = torch.clamp(stored / steps, max=1.0)
    return (1.0 - (1.0 - final) * part).to(torch.float32)
