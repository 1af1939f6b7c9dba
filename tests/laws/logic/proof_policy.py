"""Laws of a policy over successors: probabilities do not depend on a successor's place, its neighbours or padding."""

from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from purestep.core import keys
from purestep.core.distributions import Categorical, Distribution
from purestep.core.logic.env import ProofObservation
from purestep.core.logic.terms import PADDING
from purestep.core.policy import ActorCritic
from purestep.core.record import replace, take
from purestep.properties.framework.compare import ROUNDING, require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor

from .logic_strategies import NAMES

# --- mutants ---
# Common errors in policies over successors.


Judged = tuple[Any, Tensor, Any]


def _after(model: ActorCritic, change: Callable[[Tensor, Tensor, Any], tuple[Tensor, Tensor]]) -> ActorCritic:
    """Return the model with `change` applied to logits and value, given the observation."""

    def apply(params: Any, observation: Any, carry: Any) -> tuple[Distribution, Tensor, Any]:
        distribution, value, carry = model.apply(params, observation, carry)
        logits, value = change(distribution.logits, value, observation)  # type: ignore[attr-defined]
        return Categorical(logits=logits), value, carry

    return evolve(model, apply=apply)


def _before(model: ActorCritic, change: Callable[[Any], Any]) -> ActorCritic:
    """Return the model with `change` applied to the observation."""

    def apply(params: Any, observation: Any, carry: Any) -> Judged:
        return model.apply(params, change(observation), carry)

    return evolve(model, apply=apply)


def prefers_the_first(model: ActorCritic) -> ActorCritic:
    """Add a bias for each place, so that the order of successors counts."""

    def change(logits: Tensor, value: Tensor, observation: Any) -> tuple[Tensor, Tensor]:
        return logits - 0.1 * torch.arange(logits.shape[-1]), value

    return _after(model, change)


def forgets_the_mask(model: ActorCritic) -> ActorCritic:
    """Give places without a successor a probability too."""
    return _before(model, lambda seen: replace(seen, action_mask=torch.ones_like(seen.action_mask)))


def reads_padding(model: ActorCritic) -> ActorCritic:
    """Embed padding as if it were an atom of the first predicate."""

    def named(atoms: Tensor) -> Tensor:
        first = atoms[..., :1]
        return torch.cat([torch.where(first == PADDING, 1, first), atoms[..., 1:]], -1)

    return _before(
        model,
        lambda seen: replace(
            seen, sub_index=named(seen.sub_index), derived_sub_indices=named(seen.derived_sub_indices)
        ),
    )


def values_what_follows(model: ActorCritic) -> ActorCritic:
    """Add the largest logit of the successors to the value."""
    return _after(model, lambda logits, value, observation: (logits, value + logits.amax(-1)))


def judges_together(model: ActorCritic) -> ActorCritic:
    """Divide logits by their mean magnitude over the whole batch, whose size differs between acting and learning."""

    def change(logits: Tensor, value: Tensor, observation: Any) -> tuple[Tensor, Tensor]:
        legal = torch.where(observation.action_mask, logits, 0.0)
        return torch.where(observation.action_mask, logits / (1.0 + legal.abs().mean()), logits), value

    return _after(model, change)


def goals_in_order(model: ActorCritic) -> ActorCritic:
    """Use the first goal alone."""
    return _before(
        model,
        lambda seen: replace(
            seen,
            sub_index=seen.sub_index[..., :1, :],
            derived_sub_indices=seen.derived_sub_indices[..., :1, :],
        ),
    )


# --- laws ---


SOURCE = "core.logic.policy: what proof_policy promises"
BATCH, PLACES, GOALS = 3, 5, 3


@frozen
class Sight:
    """Observations of a batch of states, and another content of padding."""

    goals: tuple[int, ...]  # of each state
    counts: tuple[int, ...]  # successors of each state
    order: tuple[int, ...]  # another order of the places
    seed: int

    def params(self, model: ActorCritic) -> Any:
        """The parameters of the policy."""
        return model.init(keys.key(self.seed))

    def seen(self) -> ProofObservation:
        """Random atoms [BATCH], padded with zeros."""
        return self._made(keys.key(self.seed), padded=True)

    def other(self) -> ProofObservation:
        """Atoms of another draw, nothing padded."""
        return self._made(keys.fold_in(keys.key(self.seed), 1), padded=False)

    def _made(self, key: keys.Key, *, padded: bool) -> ProofObservation:
        here, there, lengths = keys.split(key, 3)
        own = torch.arange(GOALS) < torch.tensor(self.goals)[:, None]
        used = torch.arange(PLACES) < torch.tensor(self.counts)[:, None]
        long = keys.randint(lengths, (BATCH, PLACES, 1), 1, GOALS + 1)
        kept = used[..., None] & (torch.arange(GOALS) < long)
        current, derived = _atoms(here, (BATCH, GOALS)), _atoms(there, (BATCH, PLACES, GOALS))
        if padded:
            current, derived = current * own[..., None], derived * kept[..., None]
        return ProofObservation(sub_index=current, derived_sub_indices=derived, action_mask=used)


def _atoms(key: keys.Key, shape: tuple[int, ...]) -> Tensor:
    first, second = keys.split(key)
    predicates = keys.randint(first, (*shape, 1), 1, NAMES.end + 1)
    return torch.cat([predicates, keys.randint(second, (*shape, 2), 0, NAMES.base)], -1)


def sights() -> SearchStrategy[Sight]:
    """Three states with up to 3 goals and up to 5 successors each."""
    goals = st.tuples(*[st.integers(1, GOALS)] * BATCH)
    counts = st.tuples(*[st.integers(1, PLACES)] * BATCH)
    return st.builds(Sight, goals, counts, st.permutations(range(PLACES)).map(tuple), st.integers(0, 10_000))


Check = Callable[[ActorCritic, Sight, Seen], None]


def proof_policy_laws() -> Suite:
    """The laws of an actor-critic of `ProofObservation`, made for the vocabulary `logic_strategies.NAMES`."""
    every = (_any_order(), _no_successor(), _no_goal(), _every_goal(), _value(), _alone())
    return Suite("proof_policy_laws", every)


_law = law_constructor(sights, SOURCE)


def _judged(model: ActorCritic, sight: Sight, seen: ProofObservation) -> tuple[Tensor, Tensor]:
    """Return probabilities [BATCH, PLACES] of the places and the value [BATCH]."""
    distribution, value, _ = model.apply(sight.params(model), seen, ())
    places = torch.arange(PLACES).unsqueeze(-1).expand(PLACES, BATCH)
    return torch.stack([distribution.log_prob(place) for place in places], -1).exp(), value


def _any_order() -> Law:
    def check(model: ActorCritic, sight: Sight, seen: Seen) -> None:
        given, order = sight.seen(), torch.tensor(sight.order)
        derived, mask = given.derived_sub_indices[:, order], given.action_mask[:, order]
        probability, value = _judged(model, sight, given)
        seen("places exchanged", (mask[:, 1:] & (order[1:] != torch.arange(1, PLACES))).any())
        turned = _judged(model, sight, replace(given, derived_sub_indices=derived, action_mask=mask))
        same("in another order", turned, (probability[:, order], value), ROUNDING)

    mutant = Mutant("learns a bias for each place", prefers_the_first)
    claim = "Successors in another order have the same probabilities, in that order."
    return _law("any_order", claim, mutant, check, "places exchanged")


def _no_successor() -> Law:
    def check(model: ActorCritic, sight: Sight, seen: Seen) -> None:
        given, mask = sight.seen(), sight.seen().action_mask
        filled = torch.where(mask[..., None, None], given.derived_sub_indices, sight.other().derived_sub_indices)
        probability, value = _judged(model, sight, given)
        seen("a place without a successor", (~mask).any())
        require((probability == 0) | mask, "no successor has no probability")
        other = _judged(model, sight, replace(given, derived_sub_indices=filled))
        same("with other things where no successor is", other, (probability, value), ROUNDING)

    mutant = Mutant("forgets the mask", forgets_the_mask)
    claim = "A place without a successor has probability 0, and what stands there has no effect."
    return _law("no_successor", claim, mutant, check, "a place without a successor")


def _filled(atoms: Tensor, other: Tensor) -> Tensor:
    """The atoms, with other arguments in padding."""
    terms = torch.where(atoms[..., :1] == PADDING, other[..., 1:], atoms[..., 1:])
    return torch.cat([atoms[..., :1], terms], -1)


def _no_goal() -> Law:
    def check(model: ActorCritic, sight: Sight, seen: Seen) -> None:
        given, other = sight.seen(), sight.other()
        seen("padding among goals", (given.sub_index[..., 0] == PADDING).any())
        changed = replace(
            given,
            sub_index=_filled(given.sub_index, other.sub_index),
            derived_sub_indices=_filled(given.derived_sub_indices, other.derived_sub_indices),
        )
        same("with arguments in padding", _judged(model, sight, changed), _judged(model, sight, given), ROUNDING)

    mutant = Mutant("embeds padding like an atom", reads_padding)
    claim = "Where there is no goal nothing counts, whatever its arguments are."
    return _law("no_goal", claim, mutant, check, "padding among goals")


def _every_goal() -> Law:
    def check(model: ActorCritic, sight: Sight, seen: Seen) -> None:
        given, other = sight.seen(), sight.other()
        last = torch.arange(GOALS) == torch.tensor(sight.goals)[:, None] - 1
        changed = torch.where(last[..., None], other.sub_index, given.sub_index)
        different = (changed != given.sub_index).flatten(-2).any(-1)
        seen("another last goal of several", (different & (torch.tensor(sight.goals) > 1)).any())
        _, value = _judged(model, sight, given)
        _, after = _judged(model, sight, replace(given, sub_index=changed))
        require((value != after) | ~different, f"values {value.tolist()} do not change with the last goal")

    mutant = Mutant("reads the first goal alone", goals_in_order)
    claim = "Each goal of a state counts, not only the one that is resolved next."
    return _law("every_goal", claim, mutant, check, "another last goal of several")


def _value() -> Law:
    def check(model: ActorCritic, sight: Sight, seen: Seen) -> None:
        given, other = sight.seen(), sight.other()
        changed = replace(given, derived_sub_indices=other.derived_sub_indices)
        seen("other successors", (changed.derived_sub_indices != given.derived_sub_indices).any())
        same("the value", _judged(model, sight, changed)[1], _judged(model, sight, given)[1], ROUNDING)

    mutant = Mutant("adds the best successor's logit to the value", values_what_follows)
    claim = "The value is that of the state alone, whatever follows from it."
    return _law("value", claim, mutant, check, "other successors")


def _alone() -> Law:
    def check(model: ActorCritic, sight: Sight, seen: Seen) -> None:
        given, params = sight.seen(), sight.params(model)
        together, values, _ = model.apply(params, given, ())
        seen("states with several successors", given.action_mask.sum(-1).amin() > 1)
        action = given.action_mask.to(torch.int64).argmax(-1)
        log_probs = together.log_prob(action)
        for number in range(BATCH):
            alone, value, _ = model.apply(params, take(given, number), ())
            wanted = alone.log_prob(action[number]), value
            same(f"state {number} in a batch", (log_probs[number], values[number]), wanted, ROUNDING)

    mutant = Mutant("divides logits by their size in the whole batch", judges_together)
    claim = "A log-prob is the same wherever a state stands: alone, among those acted in, among those learnt from."
    return _law("alone", claim, mutant, check, "states with several successors")
