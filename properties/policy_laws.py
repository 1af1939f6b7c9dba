"""Laws of policies: an ActorCritic (P1), a distribution over actions (L9), a module made pure (P3)."""

from collections.abc import Callable
from typing import Any

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from ..core import keys as core_keys
from ..core.distributions import Distribution
from ..core.policy import ActorCritic, act
from ..core.spaces import Box, Discrete, Space, contains
from ..core.spaces import Fields as FieldSpace
from . import policy_mutants as mutants
from .compare import EXACT, ROUNDING, Tolerance, require, same
from .law import Law, Mutant, Seen, Suite, always
from .step_laws import same_kind
from .strategies import dyadic, flags, integers, seeds

CONTRACT = "core.policy: what apply and act promise"


@attrs.frozen
class Look:
    """A policy's parameters, by their seed, and what it sees; the key is that of the action."""

    seed: int
    observation: Any


def observations(space: Space, shape: tuple[int, ...] = ()) -> SearchStrategy[Any]:
    """Members of a space [*shape, ...]: dyadic where it is unbounded. Fields come as a dict."""
    if isinstance(space, Discrete):
        return integers(shape, 0, min(space.n, 256))
    if isinstance(space, Box):
        low, high = (torch.as_tensor(bound).nan_to_num() for bound in (space.low, space.high))
        drawn = dyadic((*shape, *space.shape))
        return drawn.map(lambda x: torch.minimum(torch.maximum(x, low.clamp(min=-8)), high.clamp(max=8)))
    if isinstance(space, FieldSpace):
        parts = {name: _field(name, inner, shape) for name, inner in space.spaces}
        return st.fixed_dictionaries(parts)
    raise TypeError(space)


def _field(name: str, space: Space, shape: tuple[int, ...]) -> SearchStrategy[Any]:
    if name != "action_mask" or not isinstance(space, Box):
        return observations(space, shape)
    whole = (*shape, *space.shape)
    return flags(whole).map(lambda mask: mask | (torch.arange(whole[-1]) == 0))


def policy_laws(observation_space: Space, action_space: Space, *, memory: Any = ()) -> Suite:
    """The laws of an ActorCritic for these spaces; `memory` is the carry it begins with."""
    looks = st.builds(Look, seed=seeds(), observation=observations(observation_space))
    pairs = st.builds(Look, seed=seeds(), observation=observations(observation_space, (2,)))
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


def _law(
    name: str,
    claim: str,
    mutant: Mutant,
    inputs: SearchStrategy[Look],
    check: Callable[[ActorCritic, Look, Seen], None],
) -> Law:
    return Law(name=name, claim=claim, source=CONTRACT, inputs=always(inputs), check=check, mutant=mutant)


def _prepared(model: ActorCritic, look: Look) -> tuple[Any, Tensor]:
    params_key, action_key = core_keys.split(core_keys.key(look.seed))
    return model.init(params_key), action_key


def _log_prob(looks: SearchStrategy[Look], memory: Any) -> Law:
    def check(model: ActorCritic, look: Look, seen: Seen) -> None:
        params, key = _prepared(model, look)
        chosen = act(model, params, look.observation, memory, key)
        distribution, _, _ = model.apply(params, look.observation, memory)
        same("the log-prob act gives", chosen.log_prob, distribution.log_prob(chosen.action))

    mutant = Mutant("leaves dropout on: two calls of apply differ", mutants.dropout)
    claim = "The log-prob that comes with an action is that of the action under the policy's distribution."
    return _law("log_prob_of_the_action", claim, mutant, looks, check)


def _member(looks: SearchStrategy[Look], space: Space, memory: Any) -> Law:
    def check(model: ActorCritic, look: Look, seen: Seen) -> None:
        params, key = _prepared(model, look)
        chosen = act(model, params, look.observation, memory, key)
        distribution, value, _ = model.apply(params, look.observation, memory)
        wanted = Box(-torch.inf, torch.inf, space.shape) if isinstance(space, Box) else space
        require(contains(wanted, chosen.action), f"the action {chosen.action} has not the kind of {space}")
        require(torch.isfinite(chosen.log_prob), f"the action's log-prob is {chosen.log_prob}")
        require(value.shape == (), f"the value of one observation is {list(value.shape)}, wanted []")

    mutant = Mutant("counts its actions from 1", mutants.counts_from_one)
    claim = "One observation gives one action of the space's kind, a finite log-prob and one value."
    return _law("one_action_one_value", claim, mutant, looks, check)


def _own_key(looks: SearchStrategy[Look], memory: Any) -> Law:
    def check(model: ActorCritic, look: Look, seen: Seen) -> None:
        params, key = _prepared(model, look)
        distribution, _, _ = model.apply(params, look.observation, memory)
        same("transform(noise(key))", distribution.transform(distribution.noise(key)), distribution.sample(key))
        chosen = act(model, params, look.observation, memory, key)
        same("the same key again", act(model, params, look.observation, memory, key).action, chosen.action)

    mutant = Mutant("samples with torch's global generator", mutants.global_sample)
    claim = "An action is a function of its key: sample(key) = transform(noise(key))."
    return _law("action_depends_on_key", claim, mutant, looks, check)


def _batch(pairs: SearchStrategy[Look], memory: Any) -> Law:
    def check(model: ActorCritic, look: Look, seen: Seen) -> None:
        params, _ = _prepared(model, look)
        both = _tells(model, params, look.observation, memory)
        for i in range(2):
            alone = torch.utils._pytree.tree_map(lambda leaf, i=i: leaf[i], look.observation)
            single = _tells(model, params, alone, memory)
            same(f"observation {i} of 2", [leaf[i] for leaf in both], single, ROUNDING)

    mutant = Mutant("normalises its input over the batch", mutants.batch_normalised)
    claim = "What else is in the batch does not matter: (distribution, value) of two are those of each alone."
    return _law("batch_does_not_matter", claim, mutant, pairs, check)


def _tells(model: ActorCritic, params: Any, observation: Any, memory: Any) -> list[Tensor]:
    distribution, value, _ = model.apply(params, observation, memory)
    return [distribution.log_prob(distribution.mode()), distribution.entropy(), value]


def _carry(looks: SearchStrategy[Look], memory: Any) -> Law:
    def check(model: ActorCritic, look: Look, seen: Seen) -> None:
        params, key = _prepared(model, look)
        chosen = act(model, params, look.observation, memory, key)
        same_kind("the carry", chosen.carry, memory)
        again = act(model, params, look.observation, chosen.carry, key)
        same_kind("the carry of a second step", again.carry, memory)

    mutant = Mutant("collects what it saw in its carry", mutants.growing_carry)
    claim = "The memory leaves with the tree, shapes and dtypes it came with."
    return _law("carry_is_fixed", claim, mutant, looks, check)


def categorical_laws() -> Suite:
    """The laws of a distribution over finitely many actions; the subject makes one of logits [*, A]."""
    return Suite("categorical_laws", (_normalised(), _entropy(), _mode(), _inverse()))


Make = Callable[[Tensor], Distribution]


def _over_logits(name: str, claim: str, mutant: Mutant, check: Callable[[Make, tuple[Tensor, int], Seen], None]) -> Law:
    sizes = st.integers(1, 5)
    inputs = st.tuples(sizes.flatmap(lambda n: dyadic((n,), limit=4)), seeds())
    return Law(
        name=name,
        claim=claim,
        source="definition of softmax, entropy and sampling by inversion",
        inputs=always(inputs),
        check=check,
        mutant=mutant,
    )


def _probabilities(make: Make, logits: Tensor) -> Tensor:
    actions = torch.arange(logits.shape[-1])
    return torch.stack([make(logits).log_prob(action) for action in actions]).exp()


def _normalised() -> Law:
    def check(make: Make, drawn: tuple[Tensor, int], seen: Seen) -> None:
        got = _probabilities(make, drawn[0])
        same("probabilities", got, drawn[0].softmax(-1), ROUNDING)
        same("their sum", got.sum(), torch.ones(()), ROUNDING)

    mutant = Mutant("gives logits for log-probs", mutants.unnormalised)
    return _over_logits("probabilities_sum_to_1", "exp(log_prob) is softmax(logits) and sums to 1.", mutant, check)


def _entropy() -> Law:
    def check(make: Make, drawn: tuple[Tensor, int], seen: Seen) -> None:
        p = drawn[0].double().softmax(-1)
        same("entropy", make(drawn[0]).entropy(), -(p * p.log()).sum().float(), ROUNDING)

    mutant = Mutant("gives the mean of -log p, not its expectation", mutants.mean_entropy)
    return _over_logits("entropy", "The entropy is -sum p log p.", mutant, check)


def _mode() -> Law:
    def check(make: Make, drawn: tuple[Tensor, int], seen: Seen) -> None:
        mode = make(drawn[0]).mode()
        same("the log-prob of the mode", make(drawn[0]).log_prob(mode), drawn[0].log_softmax(-1).max(), ROUNDING)

    mutant = Mutant("gives the first action for the mode", mutants.first_mode)
    return _over_logits("mode_is_most_probable", "No action is more probable than the mode.", mutant, check)


def _inverse() -> Law:
    def check(make: Make, drawn: tuple[Tensor, int], seen: Seen) -> None:
        """Two keys in a thousand tell little; the grid of uniform numbers tells all."""
        logits, cells = drawn[0], 512
        grid = (torch.arange(cells, dtype=torch.float32) + 0.5) / cells
        wide = make(logits.expand(cells, -1))
        share = torch.bincount(wide.transform(grid), minlength=len(logits)) / cells
        same("how often each action is chosen", share, logits.softmax(-1), Tolerance("grid", 0.0, 1.0 / cells + 1e-6))

    mutant = Mutant("inverts with the probabilities in reversed order", mutants.reversed_inverse)
    claim = "Uniform numbers on a grid choose each action as often as its probability says."
    return _over_logits("sampling_is_inversion", claim, mutant, check)


def module_laws(inputs: SearchStrategy[Any]) -> Suite:
    """The laws of a pure network made of a module; the subject is the pair (module, network)."""
    return Suite("module_laws", (_same_call(inputs), _untouched(inputs)))


Pair = tuple[torch.nn.Module, Any]
MODULE = "core.networks.functional: a module as a pure network"


def _same_call(inputs: SearchStrategy[Any]) -> Law:
    def check(pair: Pair, x: Any, seen: Seen) -> None:
        module, network = pair
        params = network.init(core_keys.key(0))
        same("apply(init, x) against module(x)", network.apply(params, x), module(x), EXACT)

    return Law(
        name="functional_is_module",
        claim="The network on the module's own parameters gives what the module gives.",
        source=MODULE,
        inputs=always(inputs),
        check=check,
        mutant=Mutant("leaves out the parameters that have no gradient yet", mutants.zero_biases),
    )


def _untouched(inputs: SearchStrategy[Any]) -> Law:
    def check(pair: Pair, x: Any, seen: Seen) -> None:
        module, network = pair
        params = network.init(core_keys.key(0))
        before = [leaf.detach().clone() for leaf in module.state_dict().values()]
        own = network.apply(params, x).detach()
        other = network.apply(torch.utils._pytree.tree_map(lambda leaf: leaf + 1, params), x).detach()
        same("the module's state", [leaf.detach() for leaf in module.state_dict().values()], before)
        seen("parameters that matter", (own != other).any())

    return Law(
        name="parameters_are_the_argument",
        claim="Other parameters give other results, and the module stays as it was.",
        source=MODULE,
        inputs=always(inputs),
        check=check,
        mutant=Mutant("loads the parameters into the module", mutants.loads_parameters),
        needs=("parameters that matter",),
    )
