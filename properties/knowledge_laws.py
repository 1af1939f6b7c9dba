"""Laws of a knowledge base, judged by Python's sets: f(names, facts, heads, bodies) -> Knowledge."""

from collections.abc import Callable

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from ..core.logic.knowledge import Knowledge, contains, rows_of
from ..core.logic.terms import Vocabulary, vocabulary
from . import knowledge_mutants as mutants
from .compare import EXACT, same
from .law import Law, Mutant, Seen, Suite, always

Build = Callable[[Vocabulary, Tensor, Tensor, Tensor], Knowledge]
Program = tuple[Tensor, Tensor, Tensor]
SOURCE = "the definition of a set of facts"
NAMES = vocabulary(["p", "q", "r"], ["a", "b", "c"], variables=2)
EVERY = torch.cartesian_prod(torch.arange(1, 4), torch.arange(1, 6), torch.arange(1, 6))  # every atom, open ones too
X, Y = 4, 5


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
    return Suite("knowledge_laws", (_knows(), _order(), _found_by_predicate()))


def _law(name: str, claim: str, mutant: Mutant, check: Callable[[Build, Program, Seen], None], *needs: str) -> Law:
    return Law(
        name=name, claim=claim, source=SOURCE, inputs=always(programs()), check=check, mutant=mutant, needs=needs
    )


def _knows() -> Law:
    def check(build: Build, program: Program, seen: Seen) -> None:
        facts = {tuple(fact) for fact in program[0].tolist()}
        seen("facts", facts)
        seen("no facts", not facts)
        base = build(NAMES, *program)
        wanted = torch.tensor([tuple(atom) in facts for atom in EVERY.tolist()])
        same("what it contains", contains(NAMES, base, EVERY), wanted, EXACT)
        without = wanted & (EVERY[0] != EVERY).any(-1)
        same("what it contains but one", contains(NAMES, base, EVERY, EVERY[:1]), without, EXACT)

    mutant = Mutant("forgets the last fact", mutants.without_the_last)
    return _law("knows", "It contains the facts given, and nothing else.", mutant, check, "facts", "no facts")


def _order() -> Law:
    def check(build: Build, program: Program, seen: Seen) -> None:
        facts, heads, bodies = program
        seen("facts in another order", (facts != facts.flip(0)).any())
        turned = build(NAMES, facts.flip(0), heads, bodies)
        same("facts given in reverse", turned.facts, build(NAMES, *program).facts, EXACT)

    mutant = Mutant("keeps facts as they come", mutants.as_they_come)
    claim = "The order in which facts are given, and how often, changes nothing."
    return _law("order_of_facts", claim, mutant, check, "facts in another order")


def _found_by_predicate() -> Law:
    def check(build: Build, program: Program, seen: Seen) -> None:
        base = build(NAMES, *program)
        for predicate in range(NAMES.end + 1):
            given = [(h, b) for h, b in zip(*(part.tolist() for part in program[1:]), strict=True) if h[0] == predicate]
            seen("rules of one predicate", len(given) > 1)
            start, count = (int(part) for part in rows_of(base.rule_start, torch.tensor(predicate)))
            rows = range(start, start + count)
            found = [(base.heads[row].tolist(), base.bodies[row].tolist()) for row in rows]
            same(f"rules of predicate {predicate}", found, given, EXACT)
            start, count = (int(part) for part in rows_of(base.fact_start, torch.tensor(predicate)))
            facts = {tuple(fact) for fact in program[0].tolist() if fact[0] == predicate}
            same(f"number of facts of predicate {predicate}", count, len(facts), EXACT)

    mutant = Mutant("counts predicates from 0 where they begin at 1", mutants.one_off)
    claim = "A predicate's rows are its rules, in their order, and its facts."
    return _law("found_by_predicate", claim, mutant, check, "rules of one predicate")
