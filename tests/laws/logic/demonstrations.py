"""Laws of demonstrations from proofs; the subject is f(own, names, facts, side, count, key) -> Demonstrations."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from attrs import evolve
from torch import Tensor

from purestep.algorithms.imitation import Demonstrations
from purestep.core import keys
from purestep.core.logic.terms import PADDING
from purestep.core.record import replace
from purestep.core.tree import tree_map
from purestep.properties.framework.compare import require
from purestep.properties.framework.law import Law, Seen, Suite, law_constructor
from purestep.runtime.logic.proof_scores import ProofSearcher
from purestep.runtime.logic.search import SearchLimits, roomy

from .proof_search import CONSTANTS, DEPTH, NAMES, Case, Goals, cases, match, walk

Demonstrate = Callable[..., Demonstrations]
SHOWN = (1, 1, 2)  # which a chain of two rules of each case proves
COUNT = 24
SOURCE = "Anthony et al. 2017, Thinking fast and slow with deep learning and tree search"


# --- mutants ---


def _edited(change: Callable[[Demonstrations], Demonstrations]) -> Callable[[Demonstrate], Demonstrate]:
    return lambda subject: lambda *given: change(subject(*given))


def takes_the_first(shown: Demonstrations) -> Demonstrations:
    """Show the first successor as the one chosen."""
    return replace(shown, action=torch.zeros_like(shown.action))


def takes_the_next(shown: Demonstrations) -> Demonstrations:
    """Show the successor behind the one chosen, or the first one behind the last."""
    return replace(shown, action=(shown.action + 1) % shown.observation.action_mask.sum(-1))


def half_as_many(shown: Demonstrations) -> Demonstrations:
    """Show half as many choices as asked for."""
    return tree_map(lambda leaf: leaf[: COUNT // 2], shown)


MUTANTS: dict[str, Callable[[Demonstrate], Demonstrate]] = {"shows the next successor": _edited(takes_the_next)}


# --- laws ---


def proof_demonstration_laws() -> Suite:
    """The laws of demonstrations from proofs."""
    return Suite("proof_demonstration_laws", (_lead_on(), _choices()))


_law = law_constructor(cases, SOURCE, most=12)
WRONG = "a choice with a successor that has no proof"


def _shown(subject: Demonstrate, case: Case) -> tuple[Case, Demonstrations]:
    case = evolve(case, facts=tuple(dict.fromkeys((*case.facts, SHOWN))))
    base, weights = case.base()
    own = ProofSearcher(*roomy(NAMES, base, DEPTH), weights, SearchLimits(DEPTH, 100_000))
    return case, subject(own, NAMES, torch.tensor([SHOWN]), "both", COUNT, keys.key(len(case.facts)))


def _goals(state: Tensor) -> Goals:
    """Return the goals of a state; a variable is a text."""
    rows = [row for row in state.tolist() if row[0] not in (PADDING, NAMES.true)]
    return tuple((row[0], *(term if term <= CONSTANTS else f"v{term}" for term in row[1:])) for row in rows)


def _provable(case: Case, goals: Goals, rules: int) -> bool:
    """Return whether all goals can be proven together by so many rules, without the fact that is shown."""
    facts = [fact for fact in case.facts if fact != SHOWN]
    fresh: Iterator[int] = iter(range(1_000_000))

    def go(left: Goals, binding: dict[Any, Any], rules: int) -> bool:
        if not left:
            return True
        goal, *rest = left
        bound = goal[0], *(walk(binding, term) for term in goal[1:])
        for fact in facts:
            matched = match(bound, fact, binding)
            if matched is not None and go(tuple(rest), matched, rules):
                return True
        for head, *body in ((head, *body) for head, body in case.rules) if rules else ():
            mark = next(fresh)
            own = [(atom[0], *(f"x{term}.{mark}" for term in atom[1:])) for atom in (head, *body)]
            matched = match(bound, own[0], binding)
            if matched is not None and go((*own[1:], *rest), matched, rules - 1):
                return True
        return False

    return go(goals, {}, rules)


def _lead_on() -> Law:
    def check(subject: Demonstrate, case: Case, seen: Seen) -> None:
        case, shown = _shown(subject, case)
        for row, action in enumerate(shown.action.tolist()):
            after = shown.observation.derived_sub_indices[row]
            places = range(int(shown.observation.action_mask[row].sum()))
            seen(WRONG, any(not _provable(case, _goals(after[place]), DEPTH) for place in places))
            chosen = _goals(after[action])
            require(_provable(case, chosen, DEPTH), f"the chosen state {chosen} has no proof")
            if not chosen:
                here = _goals(shown.observation.sub_index[row])
                require(_provable(case, here, 1), f"nothing but the fact itself proves {here}")

    claim = "Each chosen state has a proof without the fact that is to be proven."
    return _law("leads_to_a_proof", claim, ("shows the first successor", _edited(takes_the_first)), check, WRONG)


def _choices() -> Law:
    def check(subject: Demonstrate, case: Case, seen: Seen) -> None:
        _, shown = _shown(subject, case)
        mask, action = shown.observation.action_mask, shown.action
        seen("two successors and more", bool((mask.sum(-1) > 1).any()))
        require(action.shape == (COUNT,), f"{action.shape[0]} choices, wanted {COUNT}")
        require(bool((mask.sum(-1) > 1).all()), "a state with one successor is shown")
        require(bool(mask.gather(1, action[:, None]).all()), "a choice is not among the successors")

    claim = "As many choices as asked for, each among two states or more."
    return _law("are_choices", claim, ("shows half as many", _edited(half_as_many)), check, "two successors and more")
