"""Laws of one step of resolution, judged by plain Python: f(names, base, widths, states, excluded) -> Successors."""

import torch
from attrs import evolve
from hypothesis import strategies as st

from purestep.core.logic.canonical import canonical
from purestep.core.logic.knowledge import contains
from purestep.core.logic.rules import VOID
from purestep.core.logic.terms import PADDING
from purestep.core.record import take
from purestep.properties.framework.compare import EXACT, require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite

from . import derive_mutants as mutants
from .derive_mutants import Derive
from .derive_widths import FALSE, PROVEN, derive_law, few_facts, few_goals, few_rules, few_successors, found_wide
from .logic_strategies import GOALS, NAMES, OPEN, WIDE, Question, by_origin, listed, mark, padded, questions
from .resolution import Atom, State, unifier


def derive_laws() -> Suite:
    """The laws of one step of resolution."""
    return Suite(
        "derive_laws",
        (
            _follows(),
            _alone(),
            _rules_in_any_order(),
            _constants_renamed(),
            few_successors(),
            few_facts(),
            few_rules(),
            few_goals(),
            _origin(),
            _marks(),
            _canonical(),
        ),
    )


def _follows() -> Law:
    def check(derive: Derive, question: Question, seen: Seen) -> None:
        found, program = found_wide(derive, question), question.program()
        for number, (state, excluded) in enumerate(zip(question.states, question.excluded, strict=True)):
            wanted, too_long = question.following(number)
            used = question.sources(number)
            heads = [
                question.rules[origin - len(question.facts)][0] for origin in used if origin >= len(question.facts)
            ]
            seen("a head with twice the same variable", any(head[1] == head[2] >= OPEN for head in heads))
            seen("a rule used", heads)
            seen("a fact used", len(used) > len(heads))
            seen("a proof", wanted == PROVEN)
            seen("nothing that follows", not used)
            seen("an excluded fact", excluded != VOID and unifier(program, state[0], excluded) is not None)
            seen("a state too long", too_long)
            same(f"what follows from state {number}", sorted(listed(found, number)), sorted(wanted), EXACT)
            same(f"what is too long, of state {number}", int(found.too_long[number]), too_long, EXACT)
            same(f"what has no room, of state {number}", int(found.too_many[number]), 0, EXACT)

    mutant = Mutant("takes no rule whose head has twice the same variable", mutants.repeated_heads_fail)
    claim = "What follows is what resolution in plain Python finds, up to the names of variables."
    needs = ("a head with twice the same variable", "a rule used", "a fact used", "a proof", "nothing that follows")
    return derive_law("follows", claim, mutant, check, *needs, "an excluded fact", "a state too long")


def _alone() -> Law:
    def check(derive: Derive, question: Question, seen: Seen) -> None:
        found, (states, excluded) = found_wide(derive, question), question.asked()
        proven = [listed(found, number) == PROVEN for number in range(len(states))]
        seen("a state that is proven beside one that is not", any(proven) and not all(proven))
        for number in range(len(states)):
            alone = derive(NAMES, question.base(), WIDE, states[number], excluded[number])
            same(f"state {number} among {len(states)}", take(found, number), alone, EXACT)

    mutant = Mutant("takes a proof of one state for one of all", mutants.shares_a_proof)
    claim = "A state in a batch has the successors that it has alone."
    return derive_law("alone", claim, mutant, check, "a state that is proven beside one that is not")


def _rules_in_any_order() -> Law:
    def check(derive: Derive, question: Question, seen: Seen) -> None:
        facts, rules = len(question.facts), question.rules
        order = sorted(range(len(rules)), key=lambda number: (rules[number][0][0], -number))
        turned = evolve(question, rules=tuple(rules[number] for number in order))
        found, after = found_wide(derive, question), found_wide(derive, turned)
        same("what is too long", after.too_long, found.too_long, EXACT)
        for number in range(len(question.states)):
            wanted, got = by_origin(found, number), by_origin(after, number)
            seen("two rules for one goal", sum(origin >= facts for origin in wanted) > 1)
            if listed(found, number) == PROVEN:
                same("a proof", listed(after, number), PROVEN, EXACT)
                continue
            back = {facts + order[origin - facts] if origin >= facts else origin: got[origin] for origin in got}
            same(f"what follows from state {number}", sorted(back.items()), sorted(wanted.items()), EXACT)

    mutant = Mutant("commits to the first rule that can be used", mutants.first_rule_only)
    claim = "Rules of one predicate in another order give the same states in that order."
    return derive_law("rules_in_any_order", claim, mutant, check, "two rules for one goal")


def _constants_renamed() -> Law:
    def check(derive: Derive, inputs: tuple[Question, list[int]], seen: Seen) -> None:
        question, constants = inputs
        names = dict(enumerate(constants, 1))

        def other(atom: Atom) -> Atom:
            return atom[0], names.get(atom[1], atom[1]), names.get(atom[2], atom[2])

        def others(state: State) -> State:
            return tuple(map(other, state))

        turned = Question(
            facts=tuple(sorted(map(other, question.facts))),
            rules=tuple((other(head), others(body)) for head, body in question.rules),
            states=tuple(map(others, question.states)),
            excluded=others(question.excluded),
        )
        found, after = found_wide(derive, question), found_wide(derive, turned)
        order = [question.facts.index(fact) for fact in sorted(question.facts, key=other)]
        seen("facts in another order", order != sorted(order))
        same("what is too long", after.too_long, found.too_long, EXACT)
        for number in range(len(question.states)):
            wanted = sorted(map(others, listed(found, number)))
            seen("states with constants", any(term < OPEN for state in wanted for atom in state for term in atom[1:]))
            same(f"what follows from state {number}", sorted(listed(after, number)), wanted, EXACT)

    mutant = Mutant("overlooks facts about the last constant", mutants.without_the_last_constant)
    claim = "Other names for the constants, and so facts in another order, change nothing but these names."
    inputs = st.tuples(questions(), st.permutations(range(1, OPEN)))
    needs = ("facts in another order", "states with constants")
    return derive_law("constants_renamed", claim, mutant, check, *needs, inputs=inputs)


def _origin() -> Law:
    def check(derive: Derive, question: Question, seen: Seen) -> None:
        found, rules = found_wide(derive, question), len(question.facts)
        for number in range(len(question.states)):
            states, origins = listed(found, number), found.origin[number].tolist()
            sources = {origin: after or PROVEN[0] for origin, after in question.sources(number).items()}
            used = 0 if states == FALSE else len(states)
            seen("a proof", states == PROVEN)
            seen("a fact beside a rule", used and origins[0] < rules <= origins[used - 1])
            for origin, after in zip(origins[:used], states, strict=False):
                same(f"what {origin} makes of state {number}", after, sources.get(origin), EXACT)
            same("the numbers in their order", origins[:used], sorted(set(origins[:used])), EXACT)
            same("the numbers of what nothing makes", set(origins[used:]) - {-1}, set(), EXACT)

    mutant = Mutant("gives the place among the successors for the number", mutants.place_for_number)
    claim = "Each successor names the fact or the rule that makes it, facts first and in the order of their numbers."
    return derive_law("origin", claim, mutant, check, "a proof", "a fact beside a rule")


def _marks() -> Law:
    def check(derive: Derive, question: Question, seen: Seen) -> None:
        ended = [*map(mark, (NAMES.true, NAMES.false, NAMES.end)), ()]
        asked, excluded = question.asked()
        seen("facts", question.facts)
        states = torch.cat([torch.tensor([padded(state, GOALS) for state in ended]), asked])
        none = torch.tensor([VOID] * len(ended))
        found = derive(NAMES, question.base(), WIDE, states, torch.cat([none, excluded]))
        for number, state in enumerate(ended):
            same(f"what follows from {state}", listed(found, number), [state] if state else FALSE, EXACT)
        origins, left = found.origin[: len(ended)], (found.too_long + found.too_many)[: len(ended)]
        require((origins == -1) & (left[:, None] == 0), "no fact, no rule and nothing left out")

    mutant = Mutant("treats marks as goals that nothing proves", mutants.marks_fail)
    claim = "Marks follow themselves, and falsehood follows padding."
    return derive_law("marks", claim, mutant, check, "facts")


def _canonical() -> Law:
    def check(derive: Derive, question: Question, seen: Seen) -> None:
        found, (states, excluded) = found_wide(derive, question), question.asked()
        shape = [len(states), WIDE.successors, WIDE.atoms, 3]
        same("the shape of what follows", list(found.states.shape), shape, EXACT)
        seen("a variable", (found.states[..., 1:] >= OPEN).any())
        same("their canonical names", canonical(NAMES, found.states), found.states, EXACT)
        goals = found.states[..., 0] != PADDING
        require(goals[..., :-1] | ~goals[..., 1:], "padding comes last in a state")
        used = torch.arange(WIDE.successors) < found.count[:, None]
        same("places with a state", goals[..., 0], used, EXACT)
        same("padding", found.states[~goals], torch.zeros_like(found.states[~goals]), EXACT)
        require(~contains(NAMES, question.base(), found.states, excluded[:, None, None]), "no goal is a known fact")

    mutant = Mutant("numbers the variables from the second on", mutants.leaves_a_gap)
    claim = "What follows is canonical, packed to the front, and holds no known fact."
    return derive_law("canonical", claim, mutant, check, "a variable")
