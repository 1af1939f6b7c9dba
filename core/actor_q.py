"""Policies for continuous actions with critics Q(s, a), for algorithms that learn from a replay buffer: TD3, DDPG and SAC.

A policy is deterministic, with noise added to explore, or stochastic. The critics have one critic's shape, and their params are
stacked, so that an optimiser and a moving average make one pass over all of them.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from . import keys
from .distributions import Normal, TanhNormal
from .errors import ShapeError, StructureError, at_least, message
from .keys import Key
from .networks import Activation, Network, mlp, tanh
from .policy import ActorCritic, Carry, encode, encoded_size, encoder, flat, scalar
from .record import stack
from .spaces import Box, Space, is_bounded, learners_of

LOWEST_LOG_STD, HIGHEST_LOG_STD = -20.0, 2.0  # Haarnoja et al. 2018, in their own code
LEAST_NOISE = 1e-6  # below it a log-prob would not be finite

Critics = Callable[[Any, Any, Tensor], Tensor]


@frozen(kw_only=True)
class ActorQ(ActorCritic):
    """A policy for actions in a box of one axis, with critics Q(s, a); its value is the smallest Q of the mode."""

    critics: Critics  # (the critics' params, observation [*, ...], action [*, A]) -> Q [C, *]
    critics_count: int  # C
    action_space: Box


@frozen(kw_only=True)
class DeterministicActor(ActorQ):
    """A policy a = mu(s), and to explore a = mu(s) + noise half_range N(0, 1), which the env clips.

    Params: {"policy": the policy's, "critics": [C, ...], "noise": []}. The algorithm sets the noise; by "mode", as in
    evaluation, there is none.
    """

    action: Callable[[Any, Any], Tensor]  # (the policy's params, observation [*, ...]) -> mu [*, A]


@frozen(kw_only=True)
class StochasticActor(ActorQ):
    """A policy a ~ pi(. | s), a normal distribution squashed into the box.

    Params: {"policy": the policy's, "critics": [C, ...]}.
    """

    distribution: Callable[[Any, Any], TanhNormal]  # (the policy's params, observation [*, ...]) -> over [*, A]


def deterministic_actor(
    policy: Network, critic: Network, action_space: Space, *, critics: int = 2
) -> DeterministicActor:
    """Return the actor of a network from observations to x [*, A], and one from pairs to Q [*].

    mu = centre + half_range tanh x. A pair is (observation, action), with the action scaled to [-1, 1].
    Raises: StructureError, ShapeError, ChoiceError.

    >>> box = Box(-2.0, 4.0, (1,))
    >>> critic = Network(init=mlp([2, 1]).init, apply=lambda params, pair: pair[1][..., 0])
    >>> model = deterministic_actor(mlp([3, 1]), critic, box)
    >>> params = model.init(keys.key(0))
    >>> distribution, value, _ = model.apply(params, torch.zeros(5, 3), ())
    >>> distribution.mode()[0], distribution.log_std[0].exp(), value.shape
    (tensor([1.]), tensor([3.]), torch.Size([5]))
    >>> model.critics(params["critics"], torch.zeros(3), torch.tensor([4.0]))
    tensor([1., 1.])
    """
    box = check_box("deterministic_actor", action_space)
    at_least("deterministic_actor: critics", critics, 1)
    q = several(critic, box)

    learnt, named = actor_and_critics(policy, critic, critics)

    def init(key: Key) -> dict[str, Any]:
        return {**learnt(key), "noise": torch.ones(key.shape[:-1], device=key.device)}

    def action(params: Any, observation: Any) -> Tensor:
        x = policy.apply(params, observation)
        centre, half = centre_and_half(box, x)
        result: Tensor = centre + half * tanh(x)
        return result

    def apply(params: dict[str, Any], observation: Any, carry: Carry) -> tuple[Normal, Tensor, Carry]:
        mean = action(params["policy"], observation)
        noise = params["noise"].to(mean.dtype).clamp_min(LEAST_NOISE)
        log_std = torch.log(noise * centre_and_half(box, mean)[1]).expand_as(mean)
        value = q(params["critics"], observation, mean).amin(0)
        return Normal(mean=mean, log_std=log_std), value, carry

    return DeterministicActor(
        init=init,
        apply=apply,
        named=named,
        critics=q,
        critics_count=critics,
        action_space=box,
        action=action,
    )


def stochastic_actor(policy: Network, critic: Network, action_space: Space, *, critics: int = 2) -> StochasticActor:
    """Return the actor of a network from observations to mean and log_std of x, [*, 2 A], and one from pairs to Q [*].

    The action is centre + half_range tanh x; log_std is clipped to [-20, 2]. A pair is (observation, action), with the action
    scaled to [-1, 1]. Raises: StructureError, ShapeError, ChoiceError. Source: Haarnoja et al. 2018, arXiv:1812.05905.

    >>> critic = Network(init=mlp([2, 1]).init, apply=lambda params, pair: pair[1][..., 0])
    >>> model = stochastic_actor(mlp([3, 2]), critic, Box(-2.0, 4.0, (1,)))
    >>> distribution, value, _ = model.apply(model.init(keys.key(0)), torch.zeros(5, 3), ())
    >>> distribution.mode()[0], distribution.log_std[0], value.shape
    (tensor([1.]), tensor([0.]), torch.Size([5]))
    """
    box = check_box("stochastic_actor", action_space)
    at_least("stochastic_actor: critics", critics, 1)
    q = several(critic, box)
    init, named = actor_and_critics(policy, critic, critics)
    low, high = _numbers(box.low, box), _numbers(box.high, box)

    def distribution(params: Any, observation: Any) -> TanhNormal:
        mean, log_std = policy.apply(params, observation).chunk(2, -1)
        return TanhNormal(
            mean=mean,
            log_std=log_std.clamp(LOWEST_LOG_STD, HIGHEST_LOG_STD),
            low=_tensor(low, mean).expand_as(mean),
            high=_tensor(high, mean).expand_as(mean),
        )

    def apply(params: dict[str, Any], observation: Any, carry: Carry) -> tuple[TanhNormal, Tensor, Carry]:
        result = distribution(params["policy"], observation)
        return result, q(params["critics"], observation, result.mode()).amin(0), carry

    return StochasticActor(
        init=init,
        apply=apply,
        named=named,
        critics=q,
        critics_count=critics,
        action_space=box,
        distribution=distribution,
    )


def deterministic_actor_mlp(
    observation_space: Space,
    action_space: Space,
    hidden: Sequence[int] = (256, 256),
    activation: str | Activation = "relu",
    *,
    critics: int = 2,
    product: str = "matmul",
) -> DeterministicActor:
    """Return the deterministic actor of perceptrons, with the initial weights of `torch.nn.Linear`; DDPG has one critic.

    Params of the policy are one vector, those of the critics a row each. Raises: StructureError, ShapeError, ChoiceError.

    >>> model = deterministic_actor_mlp(Box(-1.0, 1.0, (3,)), Box(-2.0, 2.0, (1,)), (8,))
    >>> params = model.init(keys.key(0))
    >>> params["policy"].shape, params["critics"].shape, params["noise"]
    (torch.Size([41]), torch.Size([2, 49]), tensor(1.))
    """
    box = check_box("deterministic_actor_mlp", action_space)
    policy, critic = _perceptrons(observation_space, box, box.shape[0], hidden, activation, product)
    return deterministic_actor(policy, critic, box, critics=critics)


def stochastic_actor_mlp(
    observation_space: Space,
    action_space: Space,
    hidden: Sequence[int] = (256, 256),
    activation: str | Activation = "relu",
    *,
    critics: int = 2,
    product: str = "matmul",
) -> StochasticActor:
    """Return the stochastic actor of perceptrons, with the initial weights of `torch.nn.Linear`.

    Params of the policy are one vector, those of the critics a row each. Raises: StructureError, ShapeError, ChoiceError.

    >>> model = stochastic_actor_mlp(Box(-1.0, 1.0, (3,)), Box(-2.0, 2.0, (1,)), (8,))
    >>> params = model.init(keys.key(0))
    >>> params["policy"].shape, params["critics"].shape
    (torch.Size([50]), torch.Size([2, 49]))
    """
    box = check_box("stochastic_actor_mlp", action_space)
    policy, critic = _perceptrons(observation_space, box, 2 * box.shape[0], hidden, activation, product)
    return stochastic_actor(policy, critic, box, critics=critics)


def actor_and_critics(
    policy: Network, critic: Network, count: int
) -> tuple[Callable[[Key], dict[str, Any]], Callable[[dict[str, Any]], Any]]:
    """Return `init` and `named` of a policy and `count` critics of one shape, whose params are stacked: {"policy", "critics"}.

    >>> init, named = actor_and_critics(mlp([3, 1]), mlp([2, 1]), 2)
    >>> init(keys.key(0))["critics"][0].weight.shape
    torch.Size([2, 2, 1])
    """

    def init(key: Key) -> dict[str, Any]:
        policy_key, critics_key = keys.split(key)
        critics = [critic.init(one) for one in keys.split(critics_key, count)]
        return {"policy": policy.init(policy_key), "critics": stack(critics, key.ndim - 1)}

    def named(params: dict[str, Any]) -> Any:
        return {**params, "policy": policy.named(params["policy"]), "critics": critic.named(params["critics"])}

    return init, named


def several(critic: Network, box: Box) -> Critics:
    """Return the function (params [C, ...], observation [*, ...], action [*, A]) -> Q [C, *] of one critic's network.

    >>> critic = Network(init=keys.uniform, apply=lambda params, pair: params * pair[1][..., 0])
    >>> several(critic, Box(-2.0, 2.0, (1,)))(torch.tensor([1.0, 3.0]), (), torch.tensor([[2.0], [-1.0]]))
    tensor([[ 1.0000, -0.5000],
            [ 3.0000, -1.5000]])
    """

    def critics(params: Any, observation: Any, action: Tensor) -> Tensor:
        centre, half = centre_and_half(box, action)
        pair = observation, (action - centre) / half
        values: Tensor = torch.vmap(lambda one: critic.apply(one, pair))(params)
        return values

    return critics


def check_box(where: str, space: Any) -> Box:
    """Return the space if it is a bounded box of one axis. Raises: StructureError, ShapeError.

    >>> check_box("td3", Box(-1.0, 1.0, (2,))).shape
    (2,)
    """
    if not isinstance(space, Box):
        got, remedy = type(space).__name__, f"use an algorithm for such actions: {learners_of(space)}"
        raise StructureError(message(f"{where}: actions", got=got, wanted="a Box", remedy=remedy))
    if len(space.shape) != 1:
        remedy = "flatten the actions in the env"
        raise ShapeError(message(f"{where}: actions", got=list(space.shape), wanted="one axis", remedy=remedy))
    if not is_bounded(space):
        got, remedy = f"{space.low} to {space.high}", "bound the actions in the env, or use ppo"
        raise ShapeError(message(f"{where}: actions", got=got, wanted="finite bounds, low below high", remedy=remedy))
    return space


def centre_and_half(box: Box, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return the middle of a bounded box and half of its range, each [A] and like a tensor.

    >>> centre_and_half(Box((0.0, -2.0), (1.0, 2.0), (2,)), torch.zeros(()))
    (tensor([0.5000, 0.0000]), tensor([0.5000, 2.0000]))
    """
    bounds = list(zip(_numbers(box.low, box), _numbers(box.high, box), strict=True))
    centre = tuple(0.5 * (low + high) for low, high in bounds)
    return _tensor(centre, like), _tensor(tuple(0.5 * (high - low) for low, high in bounds), like)


def _numbers(bound: float | tuple[float, ...], box: Box) -> tuple[float, ...]:
    return tuple(map(float, bound)) if isinstance(bound, tuple) else (float(bound),) * math.prod(box.shape)


def _tensor(numbers: tuple[float, ...], like: Tensor) -> Tensor:
    if len(set(numbers)) == 1:
        return like.new_full((len(numbers),), numbers[0])
    return torch.stack([like.new_full((), number) for number in numbers])


def _perceptrons(
    space: Space, box: Box, outputs: int, hidden: Sequence[int], activation: str | Activation, product: str
) -> tuple[Network, Network]:
    inputs = encoded_size(space)

    def perceptron(inputs: int, outputs: int) -> Network:
        sizes = [inputs, *hidden, outputs]
        return mlp(sizes, activation, gain=1.0, initial="uniform", product=product)

    q = scalar(perceptron(inputs + box.shape[0], 1))

    def value(params: Any, pair: tuple[Any, Tensor]) -> Tensor:
        observation, action = pair
        result: Tensor = q.apply(params, torch.cat([encode(space, observation), action], -1))
        return result

    return flat(encoder(space, perceptron(inputs, outputs))), flat(Network(init=q.init, apply=value))
