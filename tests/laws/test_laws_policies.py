"""Our policies, distributions and networks obey their laws."""

from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from purestep.core.distributions import Categorical, MultiCategorical, masked
from purestep.core.networks import Linear, functional, mlp
from purestep.core.policy import actor_critic_mlp, flat
from purestep.core.spaces import Box, Discrete, Fields, MultiBinary, MultiDiscrete, Tuple
from purestep.properties import ROUNDING, categorical_laws, check, dyadic, module_laws, policy_laws, step_laws
from purestep.properties.suites.policy import Wrapped, observations

SEEN, TWO, REACH = Box(-1.0, 1.0, (3,)), Discrete(2), Box(-2.0, 2.0, (2,))
DIGITS = MultiDiscrete((2, 3))
LEGAL = Fields((("features", SEEN), ("action_mask", Box(0.0, 1.0, (5,)))))
NESTED = Fields((("digits", DIGITS), ("rest", Tuple((MultiBinary(2), REACH)))))
MASKED = Fields((("features", Box(0.0, 1.0, (3,))), ("action_mask", Box(0.0, 1.0, (2,)))))


def of_logits(logits: Tensor) -> Categorical:
    """The distribution our policies give."""
    return Categorical(logits=logits)


def all_legal(logits: Tensor) -> Categorical:
    """A masked one where nothing is forbidden."""
    return masked(logits, torch.ones_like(logits, dtype=torch.bool))


def of_two_numbers(logits: Tensor) -> Any:
    """The first number of two that are drawn together, the second of which has one value alone."""
    both = MultiCategorical(
        logits=torch.cat([logits, torch.zeros_like(logits[..., :1])], -1), sizes=(logits.shape[-1], 1)
    )
    return Wrapped(
        both,
        log_prob=lambda action: both.log_prob(torch.stack([action, torch.zeros_like(action)], -1)),
        mode=lambda: both.mode()[..., 0],
        transform=lambda noise: both.transform(torch.stack([noise, noise], -1))[..., 0],
    )


def module() -> torch.nn.Module:
    """A small network with a buffer."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)).eval()


network = mlp((3, 4, 2))
weights = st.tuples(
    *(st.builds(Linear, weight=dyadic((n, m), limit=1), bias=dyadic((m,), limit=1)) for n, m in ((3, 4), (4, 2)))
)

test_discrete = check(policy_laws(SEEN, TWO), actor_critic_mlp(SEEN, TWO, hidden=(8,)))
test_flat = check(policy_laws(SEEN, TWO), flat(actor_critic_mlp(SEEN, TWO, hidden=(8,))))
test_normal = check(policy_laws(SEEN, REACH), actor_critic_mlp(SEEN, REACH, hidden=(8,)))
test_squashed = check(policy_laws(SEEN, REACH), actor_critic_mlp(SEEN, REACH, hidden=(8,), distribution="tanh_normal"))
test_discrete_observation = check(policy_laws(Discrete(5), TWO), actor_critic_mlp(Discrete(5), TWO, hidden=(8,)))
test_action_mask = check(policy_laws(MASKED, TWO), actor_critic_mlp(MASKED, TWO, hidden=(8,)))
test_nested = check(policy_laws(NESTED, NESTED), actor_critic_mlp(NESTED, NESTED, hidden=(8,)))
test_numbers_with_a_mask = check(policy_laws(LEGAL, DIGITS), actor_critic_mlp(LEGAL, DIGITS, hidden=(8,)))
test_categorical = check(categorical_laws(), of_logits)
test_two_numbers = check(categorical_laws(), of_two_numbers)
test_masked = check(categorical_laws(), all_legal)
test_network = check(step_laws(st.tuples(weights, dyadic((3,))), tolerance=ROUNDING), network.apply)
test_functional = check(module_laws(dyadic((2, 3))), (found := module(), functional(found)))


def test_a_space_of_no_known_kind_is_refused() -> None:
    ring: Any = "a ring"
    with pytest.raises(TypeError, match="a ring"):
        observations(ring)
