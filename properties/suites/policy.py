"""Laws of policies (P1): the subject is an ActorCritic."""

from collections.abc import Callable
from typing import Any

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from ...core import keys
from ...core.distributions import Categorical
from ...core.policy import ActorCritic, act
from ...core.record import replace
from ...core.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space, Tuple, assembled, contains, parts, sizes_of
from ...core.spaces import Fields as FieldSpace
from ...core.tree import tree_map
from ..framework.compare import ROUNDING, require, same
from ..framework.law import Law, Mutant, Seen, Suite, law_constructor
from ..strategies.values import dyadic, flags, integers, seeds
from .step import same_kind

# --- mutants ---
# Common errors in policies and distributions.


class Wrapped:
    """A distribution with some of its functions replaced."""

    def __init__(self, inner: Any, **changes: Callable[..., Any]) -> None:
        self.inner = inner
        self.changes = changes

    def __getattr__(self, name: str) -> Any:
        return self.changes[name] if name in self.changes else getattr(self.inner, name)


def _around(model: ActorCritic, change: Callable[[Any], Any]) -> ActorCritic:
    def apply(params: Any, observation: Any, carry: Any) -> tuple[Any, Tensor, Any]:
        distribution, value, carry = model.apply(params, observation, carry)
        return change(distribution), value, carry

    return attrs.evolve(model, apply=apply)


def dropout(model: ActorCritic) -> ActorCritic:
    """Change one logit in every other call of apply, as dropout would."""
    calls: list[int] = []

    def change(distribution: Categorical) -> Categorical:
        calls.append(1)
        first = torch.arange(distribution.logits.shape[-1]) == 0
        return replace(distribution, logits=distribution.logits + 0.5 * (len(calls) % 2) * first)

    return _around(model, change)


def counts_from_one(model: ActorCritic) -> ActorCritic:
    """Count actions from 1, so that an action is its index plus 1."""

    def change(distribution: Categorical) -> Any:
        return Wrapped(
            distribution,
            sample=lambda key: distribution.sample(key) + 1,
            transform=lambda noise: distribution.transform(noise) + 1,
            log_prob=lambda action: distribution.log_prob(action - 1),
        )

    return _around(model, change)


def global_sample(model: ActorCritic) -> ActorCritic:
    """Sample with torch's global generator, not with the key."""

    def change(distribution: Categorical) -> Any:
        return Wrapped(
            distribution,
            sample=lambda key: torch.multinomial(distribution.logits.softmax(-1), 1)[0],
            transform=lambda noise: torch.multinomial(distribution.logits.softmax(-1), 1)[0],
        )

    return _around(model, change)


def batch_normalised(model: ActorCritic) -> ActorCritic:
    """Centre observations over the batch."""

    def apply(params: Any, observation: Any, carry: Any) -> tuple[Any, Tensor, Any]:
        centred = tree_map(lambda x: x - x.mean(0, keepdim=True) if x.ndim > 1 else x, observation)
        return model.apply(params, centred, carry)

    return attrs.evolve(model, apply=apply)


def growing_carry(model: ActorCritic) -> ActorCritic:
    """Append every value to the carry, which grows with each step."""

    def apply(params: Any, observation: Any, carry: Any) -> tuple[Any, Tensor, Any]:
        distribution, value, _ = model.apply(params, observation, ())
        return distribution, value, (*carry, value)

    return attrs.evolve(model, apply=apply)


# --- laws ---


CONTRACT = "core.policy: what apply and act promise"


@attrs.frozen
class Observed:
    """An input of a policy: the seed of its parameters and of the action's key, and an observation."""

    seed: int
    observation: Any


def observations(space: Space, shape: tuple[int, ...] = ()) -> SearchStrategy[Any]:
    """Draw members of a space [*shape, ...]: dyadic where it is unbounded. Fields are drawn as a dict, a Tuple as a tuple."""
    if isinstance(space, Discrete):
        return integers(shape, 0, min(space.n, 256))
    if isinstance(space, Box):
        low, high = (torch.as_tensor(bound).nan_to_num() for bound in (space.low, space.high))
        drawn = dyadic((*shape, *space.shape))
        return drawn.map(lambda x: torch.minimum(torch.maximum(x, low.clamp(min=-8)), high.clamp(max=8)))
    if isinstance(space, MultiDiscrete | MultiBinary):
        numbers = [integers(shape, 0, size) for size in sizes_of(space)]
        return st.tuples(*numbers).map(lambda rows: torch.stack(rows, -1))
    if isinstance(space, FieldSpace | Tuple):
        drawn_parts = [_field(name, inner, shape) for name, inner in parts(space)]
        return st.tuples(*drawn_parts).map(lambda values: assembled(space, values))
    raise TypeError(space)


def _field(name: str | int, space: Space, shape: tuple[int, ...]) -> SearchStrategy[Any]:
    if name != "action_mask" or not isinstance(space, Box):
        return observations(space, shape)
    whole = (*shape, *space.shape)
    return flags(whole).map(lambda mask: mask | (torch.arange(whole[-1]) == 0))


def policy_laws(observation_space: Space, action_space: Space, *, memory: Any = ()) -> Suite:
    """The laws of an ActorCritic for these spaces; `memory` is its initial carry."""
    looks = st.builds(Observed, seed=seeds(), observation=observations(observation_space))
    pairs = st.builds(Observed, seed=seeds(), observation=observations(observation_space, (2,)))
    return Suite(
        "policy_laws",
        (
            _log_prob(looks, memory),
            _member(looks, action_space, memory),
            _own_key(looks, memory),
            _batch(pairs, memory),
            _carry(looks, memory),
        ),
    )


_law = law_constructor(st.nothing, CONTRACT)


def _prepared(model: ActorCritic, look: Observed) -> tuple[Any, Tensor]:
    params_key, action_key = keys.split(keys.key(look.seed))
    return model.init(params_key), action_key


def _log_prob(looks: SearchStrategy[Observed], memory: Any) -> Law:
    def check(model: ActorCritic, look: Observed, seen: Seen) -> None:
        params, key = _prepared(model, look)
        chosen = act(model, params, look.observation, memory, key)
        distribution, _, _ = model.apply(params, look.observation, memory)
        same("the log-prob act gives", chosen.log_prob, distribution.log_prob(chosen.action))

    mutant = Mutant("leaves dropout on: two calls of apply differ", dropout)
    claim = "The log-prob that comes with an action is that of the action under the policy's distribution."
    return _law("log_prob_of_the_action", claim, mutant, check, inputs=looks)


def _member(looks: SearchStrategy[Observed], space: Space, memory: Any) -> Law:
    def check(model: ActorCritic, look: Observed, seen: Seen) -> None:
        params, key = _prepared(model, look)
        chosen = act(model, params, look.observation, memory, key)
        _, value, _ = model.apply(params, look.observation, memory)
        require(
            contains(_without_bounds(space), chosen.action), f"the action {chosen.action} has not the kind of {space}"
        )
        require(torch.isfinite(chosen.log_prob), f"the action's log-prob is {chosen.log_prob}")
        require(value.shape == (), f"the value of one observation is {list(value.shape)}, wanted []")

    mutant = Mutant("counts its actions from 1", counts_from_one)
    claim = "One observation gives one action of the space's kind, a finite log-prob and one value."
    return _law("one_action_one_value", claim, mutant, check, inputs=looks)


def _without_bounds(space: Space) -> Space:
    if isinstance(space, Box):
        return Box(-torch.inf, torch.inf, space.shape)
    if isinstance(space, FieldSpace):
        return FieldSpace(tuple((name, _without_bounds(inner)) for name, inner in space.spaces))
    return Tuple(tuple(map(_without_bounds, space.spaces))) if isinstance(space, Tuple) else space


def _own_key(looks: SearchStrategy[Observed], memory: Any) -> Law:
    def check(model: ActorCritic, look: Observed, seen: Seen) -> None:
        params, key = _prepared(model, look)
        distribution, _, _ = model.apply(params, look.observation, memory)
        same("transform(noise(key))", distribution.transform(distribution.noise(key)), distribution.sample(key))
        chosen = act(model, params, look.observation, memory, key)
        same("the same key again", act(model, params, look.observation, memory, key).action, chosen.action)

    mutant = Mutant("samples with torch's global generator", global_sample)
    claim = "An action is a function of its key: sample(key) = transform(noise(key))."
    return _law("action_depends_on_key", claim, mutant, check, inputs=looks)


def _batch(pairs: SearchStrategy[Observed], memory: Any) -> Law:
    def check(model: ActorCritic, look: Observed, seen: Seen) -> None:
        params, _ = _prepared(model, look)
        both = _tells(model, params, look.observation, memory)
        for i in range(2):
            alone = tree_map(lambda leaf, i=i: leaf[i], look.observation)
            single = _tells(model, params, alone, memory)
            same(f"observation {i} of 2", [leaf[i] for leaf in both], single, ROUNDING)

    mutant = Mutant("normalises its input over the batch", batch_normalised)
    claim = "What else is in the batch does not matter: (distribution, value) of two are those of each alone."
    return _law("batch_does_not_matter", claim, mutant, check, inputs=pairs)


def _tells(model: ActorCritic, params: Any, observation: Any, memory: Any) -> list[Tensor]:
    distribution, value, _ = model.apply(params, observation, memory)
    return [distribution.log_prob(distribution.mode()), distribution.entropy(), value]


def _carry(looks: SearchStrategy[Observed], memory: Any) -> Law:
    def check(model: ActorCritic, look: Observed, seen: Seen) -> None:
        params, key = _prepared(model, look)
        chosen = act(model, params, look.observation, memory, key)
        same_kind("the carry", chosen.carry, memory)
        again = act(model, params, look.observation, chosen.carry, key)
        same_kind("the carry of a second step", again.carry, memory)

    mutant = Mutant("collects what it saw in its carry", growing_carry)
    claim = "The memory leaves with the tree, shapes and dtypes it came with."
    return _law("carry_is_fixed", claim, mutant, check, inputs=looks)
