"""Steps of resolution as people get them wrong."""

from collections.abc import Callable

import torch
from attrs import evolve, frozen
from torch import Tensor

from purestep.core.logic.derive import Successors, Widths, front, marked
from purestep.core.logic.knowledge import Knowledge, matching, rows_of
from purestep.core.logic.terms import PADDING, Vocabulary, is_variable
from purestep.core.record import replace

Derive = Callable[[Vocabulary, Knowledge, Widths, Tensor, Tensor], Successors]


def repeated_heads_fail(derive: Derive) -> Derive:
    """Takes no rule whose head has twice the same variable."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        repeated = is_variable(names, base.heads[:, 1]) & (base.heads[:, 1] == base.heads[:, 2])
        heads = torch.where(repeated[:, None], PADDING, base.heads)
        return derive(names, replace(base, heads=heads), widths, states, excluded)

    return mutant


def shares_a_proof(derive: Derive) -> Derive:
    """Reduces over the batch too: where one state is proven, all are."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        found = derive(names, base, widths, states, excluded)
        proven = (found.states[..., 0, 0, 0] == names.true).any()
        true = marked(torch.full_like(found.count, names.true), found.states)
        return replace(found, states=torch.where(proven, true, found.states))

    return mutant


def first_rule_only(derive: Derive) -> Derive:
    """Commits to the first rule that can be used."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        found = derive(names, base, widths, states, excluded)
        by_rule = found.origin >= base.facts.shape[0] - 1
        used = torch.arange(widths.successors) < found.count[..., None]
        kept = used & (~by_rule | (by_rule.cumsum(-1) == 1))
        following, count = front(kept, found.states)
        return replace(found, states=following, count=count, origin=front(kept, found.origin, empty=-1)[0])

    return mutant


def without_the_last_constant(derive: Derive) -> Derive:
    """Ends a range of constants one too early."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        last = (base.facts == len(names.constants)).any(-1, keepdim=True)
        facts = torch.where(last, PADDING, base.facts)
        return derive(names, replace(base, facts=facts), widths, states, excluded)

    return mutant


def facts_for_the_room(derive: Derive) -> Derive:
    """Tries as many facts as there is room for successors."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        fewer = evolve(widths, facts=min(widths.facts, widths.successors))
        return derive(names, base, fewer, states, excluded)

    return mutant


def forgets_the_untried(derive: Derive) -> Derive:
    """Counts only the successors for which there is no room."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        found = derive(names, base, widths, states, excluded)
        untried = matching(names, base, states[..., 0, :], widths.facts)[2]
        return replace(found, too_many=(found.too_many - untried).clamp_min(0))

    return mutant


def forgets_the_rules(derive: Derive) -> Derive:
    """Counts nothing of the rules for which there is no slot."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        found = derive(names, base, widths, states, excluded)
        untried = (rows_of(base.rule_start, states[..., 0, 0])[1] - widths.rules).clamp_min(0)
        return replace(found, too_many=(found.too_many - untried).clamp_min(0))

    return mutant


def cuts_off(derive: Derive) -> Derive:
    """Cuts off the goals for which a state has no room."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        body = base.bodies.shape[-2]
        wider = torch.nn.functional.pad(states, (0, 0, 0, body))
        found = derive(names, base, evolve(widths, atoms=widths.atoms + body), wider, excluded)
        return replace(found, states=found.states[..., : widths.atoms, :])

    return mutant


def place_for_number(derive: Derive) -> Derive:
    """Gives the place among the successors for the number of the fact or rule."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        found = derive(names, base, widths, states, excluded)
        return replace(found, origin=torch.where(found.origin < 0, -1, torch.arange(widths.successors)))

    return mutant


def marks_fail(derive: Derive) -> Derive:
    """Treats marks as goals that nothing proves."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        found = derive(names, base, widths, states, excluded)
        false = marked(torch.full_like(found.count, names.false), found.states)
        ended = states[..., 0, 0] > len(names.predicates)
        return replace(found, states=torch.where(ended[..., None, None, None], false, found.states))

    return mutant


def leaves_a_gap(derive: Derive) -> Derive:
    """Numbers the variables of successors from the second on."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        found = derive(names, base, widths, states, excluded)
        terms = found.states[..., 1:]
        moved = torch.where(is_variable(names, terms), terms + 1, terms)
        return replace(found, states=torch.cat([found.states[..., :1], moved], -1))

    return mutant


def uses_the_excluded(derive: Derive) -> Derive:
    """Proves a query by itself."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        return derive(names, base, widths, states, torch.zeros_like(excluded))

    return mutant


@frozen
class _Shared(Widths):
    def variables(self) -> int:
        return 0


def shares_variables(derive: Derive) -> Derive:
    """Does not rename rules apart."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        same = _Shared(widths.atoms, widths.successors, widths.facts, widths.rules)
        return derive(names, base, same, states, excluded)

    return mutant


def strikes_the_excluded(derive: Derive) -> Derive:
    """Takes the excluded atom for known in what follows."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        found = derive(names, base, widths, states, excluded)
        struck = (found.states == excluded[..., None, None, :]).all(-1, keepdim=True)
        return replace(found, states=torch.where(struck, PADDING, found.states))

    return mutant


MUTANTS: dict[str, Callable[[Derive], Derive]] = {
    "proves a query by itself": uses_the_excluded,
    "does not rename rules apart": shares_variables,
    "strikes out the excluded atom": strikes_the_excluded,
}
