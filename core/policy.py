"""Policies as values: an actor-critic is two pure functions, independent of its network."""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import attrs
import torch
from attrs import frozen
from torch import Tensor

from . import keys
from .distributions import Categorical, Distribution, MultiCategorical, Normal, Product, TanhNormal, with_mask
from .errors import ShapeError, StructureError, choose, message
from .keys import Key
from .networks import Activation, Network, as_they_are, mlp, tree_layout
from .numbers import check_number
from .record import record, select, tensor
from .scan import scan
from .spaces import (
    Box,
    Discrete,
    Fields,
    MultiBinary,
    MultiDiscrete,
    Space,
    Tuple,
    assembled,
    field,
    parts,
    sizes_of,
)
from .steps import Remembered, Trajectory, ended
from .tree import clone, leaves, tree_map

Params = Any
Carry = Any


@frozen
class ActorCritic:
    """An actor-critic: `apply(params, observation [*, ...], carry) -> (distribution over [*, A], value [*], carry)`.

    `carry` is `()` for a feed-forward network; `init(key)` returns params, any pytree of tensors. A model with memory names
    the carry at the beginning of an episode, `memory`, so that a trainer and an evaluation can begin with it.
    """

    init: Callable[[Key], Params]
    apply: Callable[[Params, Any, Carry], tuple[Distribution, Tensor, Carry]]
    named: Callable[[Params], Any] = as_they_are  # the params as a tree whose leaves have names, for messages
    memory: Carry = ()  # of one environment at the beginning of an episode, a tree of tensors; () without memory


def check_model(model: ActorCritic) -> None:
    """Raise StructureError for anything but an ActorCritic, e.g. a Network or a torch Module.

    >>> check_model(actor_critic_mlp(Discrete(2), Discrete(2)))
    """
    if not isinstance(model, ActorCritic):
        remedy = "make it with `separate` or `actor_critic_mlp`; a Module goes through `functional`"
        raise StructureError(message("model", got=type(model).__name__, wanted="an ActorCritic", remedy=remedy))


def check_no_memory(where: str, model: ActorCritic) -> None:
    """Raise StructureError for a model with memory.

    >>> check_no_memory("dqn", actor_critic_mlp(Discrete(2), Discrete(2)))
    """
    if leaves(model.memory):
        wanted, remedy = "one without", "train it by ppo, a2c or reinforce, or pass a model without memory"
        raise StructureError(message(f"{where}: model", got="one with memory", wanted=wanted, remedy=remedy))


def first_memory(model: ActorCritic, batch: int, device: torch.device | None = None) -> Carry:
    """Return the model's memory at the beginning of an episode for each of a batch of environments: [batch, ...].

    >>> model = actor_critic_mlp(Discrete(2), Discrete(2))
    >>> first_memory(attrs.evolve(model, memory={"h": torch.zeros(3)}), 2)["h"].shape, first_memory(model, 2)
    (torch.Size([2, 3]), ())
    """
    return tree_map(lambda leaf: leaf.to(device).expand(batch, *leaf.shape).clone(), model.memory)


M = TypeVar("M", ActorCritic, Network)


@record
class Action:
    """The result of `act`."""

    action: Any  # [*, ...], a tensor or a tree of tensors
    log_prob: Tensor = tensor("*", "float")  # of `action`
    carry: Any  # the network's recurrent state


def act(model: ActorCritic, params: Params, observation: Any, carry: Carry, key: Key) -> Action:
    """Sample an action for observation [*, ...]; `key` is [*, 2], one for each.

    >>> model = actor_critic_mlp(Box(-1.0, 1.0, (4,)), Discrete(1))
    >>> act(model, model.init(keys.key(0)), torch.zeros(4), (), keys.key(1)).action
    tensor(0)
    """
    distribution, _, carry = model.apply(params, observation, carry)
    action = distribution.sample(key)
    return Action(action=action, log_prob=distribution.log_prob(action), carry=carry)


Apply = Callable[[Params, Any, Carry], tuple[Distribution, Tensor, Carry]]


def apply_to_steps(apply: Apply, params: Params, observation: Any, memory: Carry = ()) -> tuple[Distribution, Tensor]:
    """Return a model's distribution over [T B] and values [T, B] of observations [T, B, ...], each by itself.

    The model is applied to one batch [T B, ...], so that a network has one leading axis here as in a rollout: an nn.Conv2d
    takes no two. `memory` [T, B, ...] is the memory before each, () of a model without.

    >>> model = actor_critic_mlp(Box(-1.0, 1.0, (4,)), Discrete(2))
    >>> distribution, values = apply_to_steps(model.apply, model.init(keys.key(0)), torch.zeros(3, 5, 4))
    >>> distribution.logits.shape, values.shape
    (torch.Size([15, 2]), torch.Size([3, 5]))
    """
    lead = leaves(observation)[0].shape[:2]
    rows, before = tree_map(lambda leaf: leaf.flatten(0, 1), (observation, memory))
    distribution, values, _ = apply(params, rows, before)
    return distribution, values.reshape(lead)


def apply_to_sequences(
    apply: Apply, params: Params, observation: Any, ended: Tensor, memory: Carry, fresh: Carry
) -> tuple[Distribution, Tensor]:
    """Return the distribution over [T, B] and the values [T, B] of a model with memory, for observations in their order.

        p_t, v_t, m'_t = apply(observation_t, m_t),    m_t+1 = fresh where ended_t, else m'_t

    `memory` is m_0, `fresh` that of the beginning of an episode, both [B, ...]; `ended` [T, B] says where an episode ended
    after the step, so that the memory of step t never contains an earlier episode. With the params that acted the results are
    those of the rollout, bit for bit uncompiled.

    >>> def apply(params, observation, memory):  # the value is the number of steps in the episode
    ...     return Categorical(logits=torch.zeros(1, 2)), memory + 1.0, memory + 1.0
    >>> ended, zero = torch.tensor([[False], [True], [False]]), torch.zeros(1)
    >>> apply_to_sequences(apply, (), torch.zeros(3, 1), ended, zero + 4.0, zero)[1].flatten()
    tensor([5., 6., 1.])
    """

    def step(memory: Carry, row: tuple[Any, Tensor]) -> tuple[Carry, tuple[Distribution, Tensor]]:
        distribution, values, after = apply(params, row[0], memory)
        return select(row[1], fresh, after), (distribution, values)

    results: tuple[Distribution, Tensor] = scan(step, memory, (observation, ended))[1]
    return results


def values_of_sequences(
    apply: Apply,
    params: Params,
    observation: Any,
    next_observation: Any,
    ended: Tensor,
    memory: Carry,
    fresh: Carry,
) -> tuple[Tensor, Tensor]:
    """Return the values [T, B] of observation and of next_observation, of a model with memory: see `apply_to_sequences`.

    The value of next_observation_t is that with m'_t, the memory after the step and before any reset.

    >>> def apply(params, observation, memory):  # the memory is the sum of what was observed, and the value, too
    ...     return Categorical(logits=torch.zeros(1, 2)), memory + observation, memory + observation
    >>> ended, zero = torch.tensor([[True], [False]]), torch.zeros(1)
    >>> values, next_values = values_of_sequences(
    ...     apply, (), torch.tensor([[1.0], [8.0]]), torch.tensor([[2.0], [16.0]]), ended, zero, zero)
    >>> values.flatten(), next_values.flatten()
    (tensor([1., 8.]), tensor([ 3., 24.]))
    """

    def step(memory: Carry, row: tuple[Any, Tensor]) -> tuple[Carry, tuple[Tensor, Carry]]:
        _, values, after = apply(params, row[0], memory)
        return select(row[1], fresh, after), (values, clone(after))

    _, (values, after) = scan(step, memory, (observation, ended), output=(ended, memory))
    return values, apply_to_steps(apply, params, next_observation, after)[1]


def recalled(where: str, model: ActorCritic, given: Trajectory | Remembered) -> Trajectory:
    """Return the trajectory of what an `update` is given, with a memory if and only if the model has one.

    Raises: StructureError.

    >>> recalled("ppo", actor_critic_mlp(Discrete(2), Discrete(2)), "trajectory")
    'trajectory'
    """
    remembers = isinstance(given, Remembered)
    if remembers != bool(leaves(model.memory)):
        got, wanted = ("with", "one without") if remembers else ("without", "Remembered")
        remedy = (
            "give the model its `memory`" if remembers else "train by `trainer`, or pass the memory at its start, too"
        )
        raise StructureError(message(f"{where}: trajectory", got=f"{got} memory", wanted=wanted, remedy=remedy))
    return given.trajectory if isinstance(given, Remembered) else given


def replayed(model: ActorCritic, params: Any, given: Remembered) -> tuple[Distribution, Tensor]:
    """Return the distribution over [T, B] and the values [T, B] of a model with memory: see `apply_to_sequences`.

    >>> model, zero = actor_critic_mlp(Discrete(2), Discrete(2)), torch.zeros(3, 1, dtype=torch.int64)
    >>> told = Trajectory(observation=zero, action=zero, reward=zero, terminated=zero > 0, truncated=zero > 0,
    ...                   next_observation=zero, behaviour_log_prob=zero)
    >>> given = Remembered(trajectory=told, memory=torch.ones(1, 2), fresh=torch.zeros(1, 2))
    >>> replayed(model, model.init(keys.key(0)), given)[1].shape
    torch.Size([3, 1])
    """
    steps = given.trajectory
    over = ended(steps.terminated, steps.truncated)
    return apply_to_sequences(model.apply, params, steps.observation, over, given.memory, given.fresh)


def values_replayed(model: ActorCritic, params: Any, given: Trajectory | Remembered) -> tuple[Tensor, Tensor]:
    """Return the values [T, B] of observation and next_observation: of a model without memory in a call for each.

    >>> model, zero = actor_critic_mlp(Discrete(2), Discrete(2)), torch.zeros(3, 1, dtype=torch.int64)
    >>> told = Trajectory(observation=zero, action=zero, reward=zero, terminated=zero > 0, truncated=zero > 0,
    ...                   next_observation=zero, behaviour_log_prob=zero)
    >>> values, next_values = values_replayed(model, model.init(keys.key(0)), told)
    >>> torch.equal(values, next_values)
    True
    """
    if not isinstance(given, Remembered):
        _, values = apply_to_steps(model.apply, params, given.observation)
        _, next_values = apply_to_steps(model.apply, params, given.next_observation)
        return values, next_values
    steps = given.trajectory
    over, observed = ended(steps.terminated, steps.truncated), (steps.observation, steps.next_observation)
    return values_of_sequences(model.apply, params, *observed, over, given.memory, given.fresh)


def encoded_size(space: Space) -> int:
    """Return the size of the vector that `encode` returns for one observation.

    >>> encoded_size(Fields((("position", Box(0.0, 1.0, (2, 2))), ("room", Discrete(3)))))
    7
    """
    if isinstance(space, Discrete):
        return space.n
    if isinstance(space, MultiDiscrete):
        return sum(space.sizes)
    if isinstance(space, MultiBinary):
        return space.n
    if isinstance(space, Box):
        return math.prod(space.shape)
    return sum(encoded_size(inner) for _, inner in parts(space))


def encode(space: Space, observation: Any) -> Tensor:
    """Return an observation as one vector [*, D]: a box flattened, a discrete one one-hot, bits as numbers, parts concatenated.

    >>> encode(Discrete(3), torch.tensor([2, 0]))
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """
    if isinstance(space, Discrete):
        hot: Tensor = observation[..., None] == torch.arange(space.n, device=observation.device)
        return hot.to(torch.float32)
    if isinstance(space, MultiDiscrete):
        numbers = zip(space.sizes, observation.unbind(-1), strict=True)
        return torch.cat([encode(Discrete(size), number) for size, number in numbers], -1)
    if isinstance(space, Box | MultiBinary):
        lead = observation.ndim - (len(space.shape) if isinstance(space, Box) else 1)
        vector: Tensor = observation.reshape(*observation.shape[:lead], -1)
        return vector if vector.is_floating_point() else vector.to(torch.float32)
    return torch.cat([encode(inner, field(observation, name)) for name, inner in parts(space)], -1)


def encoder(space: Space, network: Network) -> Network:
    """Return `network` applied to `encode(space, observation)`.

    >>> network = encoder(Discrete(2), mlp([2, 1]))
    >>> network.apply(network.init(keys.key(0)), torch.tensor([0, 1, 1])).shape
    torch.Size([3, 1])
    """
    return Network(init=network.init, apply=lambda params, x: network.apply(params, encode(space, x)))


def categorical_head(network: Network) -> Network:
    """Return a network whose `apply` returns a Categorical with the outputs [*, A] as logits.

    >>> head = categorical_head(mlp([1, 3]))
    >>> head.apply(head.init(keys.key(0)), torch.zeros(1)).logits
    tensor([0., 0., 0.])
    """
    return Network(init=network.init, apply=lambda params, x: Categorical(logits=network.apply(params, x)))


def multi_categorical_head(network: Network, sizes: tuple[int, ...]) -> Network:
    """Return a network whose `apply` returns a MultiCategorical with the outputs [*, sum(sizes)] as logits.

    >>> head = multi_categorical_head(mlp([1, 5]), (2, 3))
    >>> head.apply(head.init(keys.key(0)), torch.zeros(1)).mode()
    tensor([0, 0])
    """
    return Network(
        init=network.init, apply=lambda params, x: MultiCategorical(logits=network.apply(params, x), sizes=sizes)
    )


def normal_head(network: Network, size: int, *, log_std: float = 0.0) -> Network:
    """Return a network whose `apply` returns a Normal with the outputs [*, size] as means and a state-independent log_std.

    `log_std` is its initial value; params become {"mean": the network's, "log_std": [size]}.

    >>> head = normal_head(mlp([1, 2]), 2, log_std=-1.0)
    >>> head.apply(head.init(keys.key(0)), torch.zeros(1)).log_std
    tensor([-1., -1.])
    """

    def init(key: Key) -> dict[str, Any]:
        return {"mean": network.init(key), "log_std": torch.full((*key.shape[:-1], size), log_std, device=key.device)}

    def apply(params: dict[str, Any], x: Any) -> Normal:
        mean = network.apply(params["mean"], x)
        return Normal(mean=mean, log_std=params["log_std"].to(mean.dtype).expand_as(mean))

    return Network(init=init, apply=apply)


def tanh_head(network: Network, space: Box) -> Network:
    """Return a network whose `apply` returns the Normal of `network`, a `normal_head`, squashed into the box: a TanhNormal.

    Raises: ShapeError for an infinite bound.

    >>> head = tanh_head(normal_head(mlp([1, 1]), 1), Box(-2.0, 2.0, (1,)))
    >>> head.apply(head.init(keys.key(0)), torch.zeros(1)).mode()
    tensor([0.])
    """
    low, high = (_bounds(bound, space) for bound in (space.low, space.high))

    def apply(params: Params, x: Any) -> TanhNormal:
        inner = network.apply(params, x)
        fill = [torch.stack([inner.mean.new_full((), b) for b in bound]).expand_as(inner.mean) for bound in (low, high)]
        return TanhNormal(mean=inner.mean, log_std=inner.log_std, low=fill[0], high=fill[1])

    return Network(init=network.init, apply=apply)


def _bounds(bound: float | tuple[float, ...], space: Box) -> tuple[float, ...]:
    numbers = bound if isinstance(bound, tuple) else (bound,) * math.prod(space.shape)
    if not all(map(math.isfinite, numbers)):
        remedy = "use distribution='normal' for an unbounded box"
        raise ShapeError(message("tanh_head: bounds", got=numbers, wanted="finite numbers", remedy=remedy))
    return numbers


def scalar(network: Network) -> Network:
    """Return a value network: `network` with the last axis of its outputs [*, 1] dropped.

    >>> network = scalar(mlp([4, 1]))
    >>> network.apply(network.init(keys.key(0)), torch.zeros(3, 4))
    tensor([0., 0., 0.])
    """
    return Network(init=network.init, apply=lambda params, x: network.apply(params, x)[..., 0])


def separate(policy: Network, value: Network) -> ActorCritic:
    """Return an actor-critic of two separate networks: `policy` returns a distribution, `value` a number [*].

    Params: {"policy": ..., "value": ...}.

    >>> model = separate(categorical_head(mlp([4, 2])), scalar(mlp([4, 1])))
    >>> sorted(model.init(keys.key(0)))
    ['policy', 'value']
    """

    def init(key: Key) -> dict[str, Any]:
        policy_key, value_key = keys.split(key)
        return {"policy": policy.init(policy_key), "value": value.init(value_key)}

    def apply(params: dict[str, Any], observation: Any, carry: Carry) -> tuple[Distribution, Tensor, Carry]:
        return policy.apply(params["policy"], observation), value.apply(params["value"], observation), carry

    return ActorCritic(init=init, apply=apply)


def shared(torso: Network, policy: Network, value: Network) -> ActorCritic:
    """Return an actor-critic of one torso from observation to features [*, D] with two heads: distribution and value [*].

    Params: {"torso": ..., "policy": ..., "value": ...}.

    >>> model = shared(mlp([4, 8]), categorical_head(mlp([8, 2])), scalar(mlp([8, 1])))
    >>> model.apply(model.init(keys.key(0)), torch.zeros(3, 4), ())[1].shape
    torch.Size([3])
    """

    def init(key: Key) -> dict[str, Any]:
        torso_key, policy_key, value_key = keys.split(key, 3)
        return {"torso": torso.init(torso_key), "policy": policy.init(policy_key), "value": value.init(value_key)}

    def apply(params: dict[str, Any], observation: Any, carry: Carry) -> tuple[Distribution, Tensor, Carry]:
        features = torso.apply(params["torso"], observation)
        return policy.apply(params["policy"], features), value.apply(params["value"], features), carry

    return ActorCritic(init=init, apply=apply)


def with_action_mask(model: ActorCritic) -> ActorCritic:
    """Return a model of `features` as one of observations with the fields `features` and `action_mask`.

    The mask of Discrete(A) is bool [*, A], of MultiDiscrete(sizes) [*, sum(sizes)], of MultiBinary(n) [*, 2 n], a 0 of each bit
    before a 1, of a dict or tuple of actions a dict or tuple of masks: see `with_mask`. Illegal actions get probability 0. The
    value ignores the mask. Raises: StructureError, ShapeError.

    >>> model = with_action_mask(separate(categorical_head(mlp([1, 2])), scalar(mlp([1, 1]))))
    >>> seen = {"features": torch.zeros(1), "action_mask": torch.tensor([False, True])}
    >>> model.apply(model.init(keys.key(0)), seen, ())[0].mode()
    tensor(1)
    """

    def apply(params: Params, observation: Any, carry: Carry) -> tuple[Distribution, Tensor, Carry]:
        distribution, value, after = model.apply(params, field(observation, "features"), carry)
        return with_mask(distribution, field(observation, "action_mask")), value, after

    return attrs.evolve(model, apply=apply)


def flat(model: M) -> M:
    """Return the model with params as ONE vector [N], so that an optimiser makes one pass over it.

    Its `init` returns the model's own params, raveled; `apply` unravels them into views by static sizes.
    Raises: StructureError, DtypeError unless all params are tensors of one floating-point type.

    >>> flat(mlp([4, 2])).init(keys.key(0)).shape
    torch.Size([10])
    """
    places = tree_layout(model.init(keys.key(0)))

    def apply(params: Tensor, *inputs: Any) -> Any:
        return model.apply(places.unravel(params), *inputs)

    def named(params: Tensor) -> Any:
        return model.named(places.unravel(params))

    return attrs.evolve(model, init=lambda key: places.ravel(model.init(key)), apply=apply, named=named)


def actor_critic_mlp(
    observation_space: Space,
    action_space: Space,
    hidden: Sequence[int] = (64, 64),
    activation: str | Activation = "tanh",
    *,
    distribution: str = "normal",
    log_std: float = 0.0,
    product: str = "matmul",
) -> ActorCritic:
    """Return an actor-critic of two perceptrons for the spaces; the policy's last layer is scaled by 0.01, the value's by 1.

    Discrete actions get a Categorical, MultiDiscrete and MultiBinary ones a MultiCategorical. A box of one axis gets the named
    `distribution`: "normal", whose samples may lie outside the box, so that the env must clip, or "tanh_normal", whose samples
    do not. Fields and Tuples of these get a Product. Actions are masked if the observation has the fields `features` and
    `action_mask`: see `with_action_mask`. `log_std` is its initial value; `product` is that of `mlp`.

    Raises: StructureError, ShapeError, ChoiceError.  Source: Andrychowicz et al. 2020, arXiv:2006.05990 (the scales).

    >>> model = actor_critic_mlp(Box(-1.0, 1.0, (4,)), Discrete(2))
    >>> distribution, value, carry = model.apply(model.init(keys.key(0)), torch.zeros(3, 4), ())
    >>> distribution.logits.shape, value.shape, carry
    (torch.Size([3, 2]), torch.Size([3]), ())
    """
    if not isinstance(hidden, Sequence) or isinstance(hidden, str):
        where, remedy = "actor_critic_mlp: hidden", "write (64,) for one layer"
        raise StructureError(message(where, got=repr(hidden), wanted="a sequence of sizes", remedy=remedy))
    check_number("actor_critic_mlp: log_std", log_std, -math.inf)
    features = masked_features("actor_critic_mlp", observation_space, action_space)
    if features is not observation_space:
        shape: Any = {"distribution": distribution, "log_std": log_std, "product": product}
        return with_action_mask(actor_critic_mlp(features, action_space, hidden, activation, **shape))
    inputs = encoded_size(observation_space)

    def network(outputs: int, final_gain: float) -> Network:
        perceptron = mlp([inputs, *hidden, outputs], activation, final_gain=final_gain, product=product)
        return encoder(observation_space, perceptron)

    head = network(head_size(action_space), 0.01)
    policy = policy_head("actor_critic_mlp", head, action_space, distribution, log_std)
    return separate(policy, scalar(network(1, 1.0)))


def encoded_actor_critic(
    encoder: Network,
    size: int,
    observation_space: Space,
    action_space: Space,
    *,
    distribution: str = "normal",
    log_std: float = 0.0,
) -> ActorCritic:
    """Return an actor-critic of an encoder from observations to features [*, size], such as `nature_cnn`, and two linear heads.

    Params: {"torso": the encoder's, "policy", "value"}. The policy's layer is scaled by 0.01, the value's by 1. Actions, the
    named `distribution` and masks are as in `actor_critic_mlp`; where there is a mask the encoder gets the features.
    Raises: StructureError, ShapeError, ChoiceError.

    >>> from .convolutions import nature_cnn
    >>> space = Box(0, 255, (36, 36, 1), torch.uint8)
    >>> model = encoded_actor_critic(nature_cnn(space.shape, 8), 8, space, MultiDiscrete((2, 3)))
    >>> params = model.init(keys.key(0))
    >>> distribution, value, _ = model.apply(params, torch.zeros(5, 36, 36, 1, dtype=torch.uint8), ())
    >>> distribution.mode().shape, value.shape
    (torch.Size([5, 2]), torch.Size([5]))
    """
    where = "encoded_actor_critic"
    features = masked_features(where, observation_space, action_space)
    outputs = mlp([size, head_size(action_space)], final_gain=0.01)
    policy = policy_head(where, outputs, action_space, distribution, log_std)
    model = shared(encoder, policy, scalar(mlp([size, 1])))
    return model if features is observation_space else with_action_mask(model)


def features_of(where: str, space: Space) -> Space:
    """Return the space of `features`, where the other field of an observation is `action_mask`, else the whole space.

    Raises: StructureError for an action mask beside other fields.

    >>> features_of("", Fields((("features", Discrete(3)), ("action_mask", Box(0, 1, (2,))))))
    Discrete(n=3)
    """
    spaces = dict(space.spaces) if isinstance(space, Fields) else {}
    if "action_mask" not in spaces:
        return space
    if set(spaces) != {"features", "action_mask"}:
        got, wanted, remedy = sorted(spaces), "features and action_mask", "put all but the mask into `features`"
        raise StructureError(message(f"{where}: fields", got=got, wanted=wanted, remedy=remedy))
    return spaces["features"]


def masked_features(where: str, space: Space, action_space: Space) -> Space:
    """Return `features_of` the observation's space, but the whole of it where the actions are a Box, which no mask is of.

    >>> both = Fields((("features", Discrete(3)), ("action_mask", Box(0, 1, (2,)))))
    >>> masked_features("", both, Discrete(2)), masked_features("", both, Box(0.0, 1.0, (2,))) is both
    (Discrete(n=3), True)
    """
    return space if isinstance(action_space, Box) else features_of(where, space)


def head_size(space: Space) -> int:
    """Return the number of a network's outputs for the head of an action space.

    >>> head_size(Tuple((Discrete(3), MultiBinary(2), Box(0.0, 1.0, (2,)))))
    9
    """
    if isinstance(space, Fields | Tuple):
        return sum(head_size(inner) for _, inner in parts(space))
    return sum(sizes_of(space)) if isinstance(space, MultiBinary) else encoded_size(space)


def policy_head(where: str, network: Network, space: Space, distribution: str, log_std: float) -> Network:
    """Return `network` with the head for the action space; its outputs are [*, head_size(space)].

    The head is a Categorical, a MultiCategorical, the named `distribution` over a box of one axis, or of Fields and Tuples a
    Product of these, whose params are {"network": ..., "heads": those of each part}. Raises: StructureError, ShapeError,
    ChoiceError.

    >>> head = policy_head("", mlp([1, 3]), Discrete(3), "normal", 0.0)
    >>> head.apply(head.init(keys.key(0)), torch.zeros(1)).logits
    tensor([0., 0., 0.])
    """
    if isinstance(space, Discrete):
        return categorical_head(network)
    if isinstance(space, MultiDiscrete | MultiBinary):
        return multi_categorical_head(network, sizes_of(space))
    if isinstance(space, Fields | Tuple):
        return _product_head(where, network, space, distribution, log_std)
    if len(space.shape) != 1:
        remedy = "flatten the actions in the env"
        raise ShapeError(message(f"{where}: actions", got=list(space.shape), wanted="one axis", remedy=remedy))
    normal = normal_head(network, space.shape[0], log_std=log_std)
    squash = choose(f"{where}: distribution", distribution, {"normal": False, "tanh_normal": True})
    return tanh_head(normal, space) if squash else normal


def _product_head(where: str, network: Network, space: Fields | Tuple, distribution: str, log_std: float) -> Network:
    columns = Network(init=lambda key: (), apply=lambda params, x: x)
    heads = [policy_head(f"{where}: {name}", columns, inner, distribution, log_std) for name, inner in parts(space)]
    sizes = [head_size(inner) for _, inner in parts(space)]

    def init(key: Key) -> dict[str, Any]:
        own = [head.init(key) for head in heads]  # they draw nothing
        return {"network": network.init(key), "heads": assembled(space, own)}

    def apply(params: dict[str, Any], x: Any) -> Product:
        outputs = network.apply(params["network"], x).split(sizes, -1)
        named = zip(heads, parts(space), outputs, strict=True)
        return Product(
            parts=assembled(space, [head.apply(field(params["heads"], name), y) for head, (name, _), y in named])
        )

    return Network(init=init, apply=apply)
