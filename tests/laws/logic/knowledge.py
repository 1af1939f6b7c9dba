"""Laws of a knowledge base, checked by Python sets: of building it, f = knowledge, and of searching it, f = matching."""

from collections import Counter
from collections.abc import Callable

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from purestep.core.logic.knowledge import Knowledge, is_fact, knowledge, rules_of_predicate
from purestep.core.logic.terms import Vocabulary, is_variable, pack_atoms, vocabulary
from purestep.core.record import replace, take
from purestep.properties.framework.compare import EXACT, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor

# --- mutants ---
# Common errors in knowledge bases.


Build = Callable[[Vocabulary, Tensor, Tensor, Tensor], Knowledge]
Matching = Callable[[Vocabulary, Knowledge, Tensor, int], tuple[Tensor, Tensor, Tensor]]


def without_the_last(build: Build) -> Build:
    """Set the guard at the end of the keys to the last key."""

    def mutant(names: Vocabulary, facts: Tensor, heads: Tensor, bodies: Tensor) -> Knowledge:
        base = build(names, facts, heads, bodies)
        keys = base.keys.clone()
        keys[-2:] = base.keys[-1]
        return replace(base, keys=keys)

    return mutant


def as_they_come(build: Build) -> Build:
    """Leave the facts unsorted."""

    def mutant(names: Vocabulary, facts: Tensor, heads: Tensor, bodies: Tensor) -> Knowledge:
        base = build(names, facts, heads, bodies)
        return replace(base, facts=torch.cat([facts, base.facts[-1:]]))

    return mutant


def one_off(build: Build) -> Build:
    """Shift the rule rows by one predicate."""

    def mutant(names: Vocabulary, facts: Tensor, heads: Tensor, bodies: Tensor) -> Knowledge:
        base = build(names, facts, heads, bodies)
        return replace(base, rule_start=torch.roll(base.rule_start, -1))

    return mutant


def sorts_heads_alone(build: Build) -> Build:
    """Sort the heads and leave the bodies in their order."""

    def mutant(names: Vocabulary, facts: Tensor, heads: Tensor, bodies: Tensor) -> Knowledge:
        base = build(names, facts, heads, bodies)
        return replace(base, bodies=torch.cat([bodies, base.bodies[-1:]]))

    return mutant


def keeps_doubles(build: Build) -> Build:
    """Sort the facts and keep duplicates."""

    def mutant(names: Vocabulary, facts: Tensor, heads: Tensor, bodies: Tensor) -> Knowledge:
        base, order = build(names, facts, heads, bodies), pack_atoms(names, facts).argsort()
        return replace(base, facts=torch.cat([facts[order], base.facts[-1:]]))

    return mutant


def first_argument_only(matching: Matching) -> Matching:
    """Search by the first argument only; if it is a variable, by the predicate alone."""

    def mutant(names: Vocabulary, base: Knowledge, goal: Tensor, slots: int) -> tuple[Tensor, Tensor, Tensor]:
        predicate, first, second = goal.unbind(-1)
        return matching(
            names,
            base,
            torch.stack([predicate, first, torch.where(is_variable(names, first), first, second)], -1),
            slots,
        )

    return mutant


def counts_nothing(matching: Matching) -> Matching:
    """Report 0 facts without a slot."""

    def mutant(names: Vocabulary, base: Knowledge, goal: Tensor, slots: int) -> tuple[Tensor, Tensor, Tensor]:
        numbers, among, more = matching(names, base, goal, slots)
        return numbers, among, torch.zeros_like(more)

    return mutant


def as_the_first(matching: Matching) -> Matching:
    """Use as many slots for each goal of a batch as the first one has facts."""

    def mutant(names: Vocabulary, base: Knowledge, goal: Tensor, slots: int) -> tuple[Tensor, Tensor, Tensor]:
        numbers, among, more = matching(names, base, goal, slots)
        return numbers, among & among[(0,) * (among.ndim - 1)], more

    return mutant


MUTANTS: dict[str, Callable[[Build], Build]] = {"sorts heads and leaves bodies": sorts_heads_alone}


# --- laws ---


Program = tuple[Tensor, Tensor, Tensor]
SOURCE = "the definition of a set of facts"
NAMES = vocabulary(["p", "q", "r"], ["a", "b", "c"], variables=2)
EVERY = torch.cartesian_prod(torch.arange(1, 4), torch.arange(1, 6), torch.arange(1, 6))  # every atom, open ones too
X, Y = 4, 5
ASKED = torch.cat([EVERY, torch.tensor([[0, 0, 0], *([mark, 0, 0] for mark in (NAMES.true, NAMES.false, NAMES.end))])])


@st.composite
def programs(draw: DrawFn) -> Program:
    """Up to 8 facts, some of them twice, and up to 4 rules p(X, Y) <- q(Y, X), r(X, X) of any predicates."""
    predicate, constant = st.integers(1, 3), st.integers(1, 3)
    facts = draw(st.lists(st.tuples(predicate, constant, constant), max_size=8))
    rules = draw(st.lists(st.tuples(predicate, predicate, predicate), max_size=4))
    heads = [[p, X, Y] for p, _, _ in rules]
    bodies = [[[q, Y, X], [r, X, X]] for _, q, r in rules]
    return (
        torch.tensor(facts, dtype=torch.int64).reshape(-1, 3),
        torch.tensor(heads, dtype=torch.int64).reshape(-1, 3),
        torch.tensor(bodies, dtype=torch.int64).reshape(-1, 2, 3),
    )


def knowledge_laws() -> Suite:
    """The laws of building a knowledge base and of asking it."""
    return Suite("knowledge_laws", (_knows(), _order(), _found_by_predicate(), _once()))


_law = law_constructor(programs, SOURCE)


def _knows() -> Law:
    def check(build: Build, program: Program, seen: Seen) -> None:
        facts = {tuple(fact) for fact in program[0].tolist()}
        seen("facts", facts)
        seen("no facts", not facts)
        base = build(NAMES, *program)
        wanted = torch.tensor([tuple(atom) in facts for atom in EVERY.tolist()])
        same("what it contains", is_fact(NAMES, base, EVERY), wanted, EXACT)
        without = wanted & (EVERY[0] != EVERY).any(-1)
        same("what it contains but one", is_fact(NAMES, base, EVERY, EVERY[:1]), without, EXACT)

    mutant = Mutant("forgets the last fact", without_the_last)
    return _law(
        "knows", "It contains the facts given, and nothing else.", mutant, check, "facts", "no facts", share=0.01
    )


def _order() -> Law:
    def check(build: Build, program: Program, seen: Seen) -> None:
        facts, heads, bodies = program
        seen("facts in another order", (facts != facts.flip(0)).any())
        turned = build(NAMES, facts.flip(0), heads, bodies)
        same("facts given in reverse", turned.facts, build(NAMES, *program).facts, EXACT)

    mutant = Mutant("keeps facts as they come", as_they_come)
    claim = "The order in which facts are given, and how often, changes nothing."
    return _law("order_of_facts", claim, mutant, check, "facts in another order")


def _found_by_predicate() -> Law:
    def check(build: Build, program: Program, seen: Seen) -> None:
        base = build(NAMES, *program)
        for predicate in range(NAMES.end + 1):
            given = [(h, b) for h, b in zip(*(part.tolist() for part in program[1:]), strict=True) if h[0] == predicate]
            seen("rules of one predicate", len(given) > 1)
            start, count = (int(part) for part in rules_of_predicate(base.rule_start, torch.tensor(predicate)))
            rows = range(start, start + count)
            found = [(base.heads[row].tolist(), base.bodies[row].tolist()) for row in rows]
            same(f"rules of predicate {predicate}", found, given, EXACT)

    mutant = Mutant("counts predicates from 0 where they begin at 1", one_off)
    claim = "A predicate's rows are its rules, in their order."
    return _law("found_by_predicate", claim, mutant, check, "rules of one predicate")


def _once() -> Law:
    def check(build: Build, program: Program, seen: Seen) -> None:
        given = [tuple(fact) for fact in program[0].tolist()]
        seen("a fact given twice", len(given) > len(set(given)))
        held = [tuple(fact) for fact in build(NAMES, *program).facts.tolist()]
        same("facts held, and padding", held, [*sorted(set(given)), (0, 0, 0)], EXACT)

    mutant = Mutant("keeps facts that are given twice", keeps_doubles)
    return _law("once", "Each fact is held once, in the order of the numbers.", mutant, check, "a fact given twice")


def matching_laws() -> Suite:
    """The laws of searching the facts that a goal may unify with."""
    return Suite("matching_laws", (_finds(), _counts(), _alone()))


def _matches(program: Program, goal: list[int]) -> list[int]:
    """The numbers of the facts that have the goal's predicate, and its constants in their places."""
    facts = sorted({tuple(fact) for fact in program[0].tolist()})
    return [
        number
        for number, fact in enumerate(facts)
        if fact[0] == goal[0] and all(a >= X or a == b for a, b in zip(goal[1:], fact[1:], strict=True))
    ]


def _finds() -> Law:
    def check(matching: Matching, program: Program, seen: Seen) -> None:
        base = knowledge(NAMES, *program)
        for slots in (1, 2, 8):
            numbers, among, _ = matching(NAMES, base, ASKED, slots)
            for goal, found, kept in zip(ASKED.tolist(), numbers, among, strict=True):
                wanted = _matches(program, goal)
                seen("only the second argument given", goal[1] >= X > goal[2] and wanted)
                seen("both arguments given", goal[1] < X > goal[2] and wanted)
                seen("none given", goal[1] >= X <= goal[2] and wanted)
                same(f"facts for {goal}", found[kept].tolist(), wanted[:slots], EXACT)
                same(f"places after them for {goal}", base.facts[found[~kept]].any().item(), False, EXACT)

    mutant = Mutant("searches by the first argument only", first_argument_only)
    claim = "It finds the facts with the goal's constants in their places, in their order, as many as there are slots."
    needs = ("only the second argument given", "both arguments given", "none given")
    return _law("finds", claim, mutant, check, *needs)


def _counts() -> Law:
    def check(matching: Matching, program: Program, seen: Seen) -> None:
        base = knowledge(NAMES, *program)
        shared = Counter((fact[0], place, fact[place]) for fact in base.facts[:-1].tolist() for place in (1, 2))
        most = max([0, *shared.values()])
        for slots in (1, 2, most):
            more = matching(NAMES, base, ASKED, slots)[2].tolist()
            wanted = [max(0, len(_matches(program, goal)) - slots) for goal in ASKED.tolist()]
            seen("facts without a slot", any(wanted))
            same(f"facts beyond {slots} slots", more, wanted, EXACT)
        given = (ASKED[:, 1:] < X).any(-1)
        same("facts beyond the widest", int(matching(NAMES, base, ASKED, most)[2][given].sum()), 0, EXACT)

    mutant = Mutant("counts none that has no slot", counts_nothing)
    claim = (
        "It counts the facts that have no slot; with the widest count of slots there is none where a constant is given."
    )
    return _law("counts", claim, mutant, check, "facts without a slot")


def _alone() -> Law:
    def check(matching: Matching, program: Program, seen: Seen) -> None:
        base = knowledge(NAMES, *program)
        found = matching(NAMES, base, ASKED, 3)
        seen("facts", len(program[0]))
        for number in range(0, len(ASKED), 5):
            alone = matching(NAMES, base, ASKED[number], 3)
            same(f"goal {number} among {len(ASKED)}", take(found, number), alone, EXACT)

    mutant = Mutant("uses as many slots as the first goal of a batch needs", as_the_first)
    return _law("alone", "A goal in a batch has the facts that it has alone.", mutant, check, "facts")
