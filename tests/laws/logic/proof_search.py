"""Laws of the search for all proofs, and of their joint evidence."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from purestep.core.logic.knowledge import Knowledge, knowledge
from purestep.core.logic.terms import Vocabulary, vocabulary
from purestep.properties.framework.compare import DOUBLE, require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor
from purestep.runtime.logic.answers import Join, dense, join_scores
from purestep.runtime.logic.attempts import Move
from purestep.runtime.logic.proof_tree import Goal, clause, proof_tree
from purestep.runtime.logic.search import ProofsFound, SearchLimits, roomy, search

Atom = tuple[int, int, int]
Rule = tuple[Atom, tuple[Atom, ...]]
NAMES = vocabulary(["p", "q", "r"], ["a", "b", "c", "d"], variables=9)
CONSTANTS, PREDICATES = 4, 3
DEPTH = 2
CERTAIN = 1.0 - 1e-9  # a fact's weight
JOINS: tuple[Join, ...] = ("noisy_or", "max", "groundings")
SOURCE = "Pearl 1988, Probabilistic reasoning in intelligent systems, section 4.3"


@frozen
class Searching:
    """The subject: a search and the scores of its answers."""

    search: Callable[..., ProofsFound]
    joined: Callable[[Vocabulary, ProofsFound, Join], Any]


@frozen
class Case:
    """A small program with weights, and open or ground queries."""

    facts: tuple[Atom, ...]
    rules: tuple[Rule, ...]
    weights: tuple[float, ...]
    queries: tuple[Atom, ...]  # the second argument is 5 where it is open

    def base(self) -> tuple[Knowledge, Tensor]:
        """Return the knowledge base, and the weights in its order."""
        rows = sorted(range(len(self.rules)), key=lambda number: self.rules[number][0][0])
        width = max((len(body) for _, body in self.rules), default=1)
        bodies = [[*body, *[(0, 0, 0)] * (width - len(body))] for _, body in self.rules]
        base = knowledge(
            NAMES,
            torch.tensor(self.facts).reshape(-1, 3),
            torch.tensor([head for head, _ in self.rules]).reshape(-1, 3),
            torch.tensor(bodies).reshape(-1, width, 3),
        )
        return base, torch.tensor([self.weights[row] for row in rows], dtype=torch.float64)

    def found(self, search: Callable[..., ProofsFound], **bounds: Any) -> tuple[Vocabulary, Knowledge, ProofsFound]:
        """Search as the subject does, exactly unless told otherwise."""
        base, weights = self.base()
        names, wide = roomy(NAMES, base, DEPTH)
        own = SearchLimits(**{"rules": DEPTH, "expansions": 100_000, **bounds})
        queries = torch.tensor(self.queries)
        ground = queries[:, 2:] <= CONSTANTS  # an atom is no fact for its own proof
        excluded = torch.where(ground, queries, 0)
        return names, wide, search(names, wide, weights, queries, own, excluded=excluded)

    def scores(self, subject: Searching, join: Join = "noisy_or", **bounds: Any) -> Tensor:
        """Return the scores of all constants for each query."""
        names, _, found = self.found(subject.search, **bounds)
        return dense(names, subject.joined(names, found, join), len(self.queries), 1)


@st.composite
def cases(draw: DrawFn) -> Case:
    """Draw a program of path rules, with few names so that they meet, and one or two queries p(a, X) or p(a, b)."""
    constant, predicate = st.integers(1, CONSTANTS), st.sampled_from([1, 1, 2, 3])
    facts = draw(st.lists(st.tuples(predicate, constant, constant), min_size=1, max_size=8, unique=True))
    x, y, z = 5, 6, 7

    def atom(first: int, second: int) -> Atom:
        one, other = (first, second) if draw(st.booleans()) else (second, first)
        return draw(predicate), one, other

    rules: list[Rule] = []
    for _ in range(draw(st.integers(1, 4))):
        short = draw(st.booleans())
        body = (atom(x, y),) if short else (atom(x, y), atom(y, z))
        rules.append(((draw(predicate), x, y if short else z), body))
    # A chain of two rules, which random ones rarely form: r(a, b), q(X, Y) <- r(X, Y), p(X, Y) <- q(X, Y).
    facts = list(dict.fromkeys([*facts, (3, 1, 2)]))
    rules += [((2, x, y), ((3, x, y),)), ((1, x, y), ((2, x, y),))]
    if draw(st.booleans()):  # p(X, Z) <- r(X, Y), q(Y, Z), by two Y
        facts = list(dict.fromkeys([*facts, (3, 1, 3), (2, 2, 4), (2, 3, 4)]))
        rules.append(((1, x, z), ((3, x, y), (2, y, z))))
    weights = draw(st.lists(st.sampled_from([0.25, 0.5, 0.5, 0.75]), min_size=len(rules), max_size=len(rules)))
    ends = st.one_of(st.just(5), st.just(5), constant)
    queries = draw(st.lists(st.tuples(predicate, constant, ends), min_size=2, max_size=2, unique=True))
    queries = [(1, 1, 5), *(query for query in queries if query != (1, 1, 5))][:2]
    return Case(tuple(facts), tuple(rules), tuple(weights), tuple(queries))


# --- the reference: every proof, one after the other, in plain Python ---


Goals = tuple[tuple[Any, ...], ...]


def walk(binding: dict[Any, Any], term: Any) -> Any:
    while term in binding:
        term = binding[term]
    return term


def ground(term: Any) -> bool:
    return isinstance(term, int)


def match(goal: Sequence[Any], other: Sequence[Any], binding: dict[Any, Any]) -> dict[Any, Any] | None:
    if goal[0] != other[0]:
        return None
    for one, two in zip(goal[1:], other[1:], strict=True):
        left, right = walk(binding, one), walk(binding, two)
        if left == right:
            continue
        if not ground(right):
            binding = {**binding, right: left}
        elif not ground(left):
            binding = {**binding, left: right}
        else:
            return None
    return binding


def _shape(goals: Sequence[Sequence[Any]], answer: Any, binding: dict[Any, Any]) -> tuple[Any, ...]:
    """The goals and the answer with variables numbered in order."""
    known: dict[Any, int] = {}

    def named(term: Any) -> Any:
        bound = walk(binding, term)
        return bound if ground(bound) else ("v", known.setdefault(bound, len(known)))

    return tuple((p, named(a), named(b)) for p, a, b in goals), named(answer)


def every_proof(case: Case, query: Atom) -> Iterator[tuple[int, tuple[int, ...], float]]:
    """Yield the answer, the rules in their places (-1 for a fact) and the weight of each proof, with repetitions."""
    facts = set(case.facts) - {query}
    answer: Any = query[2] if query[2] <= CONSTANTS else "answer"
    fresh = iter(range(1_000_000))

    def go(goals: Any, binding: dict[Any, Any], trace: tuple[int, ...], seen: Any) -> Iterator[Any]:
        bound = [(p, walk(binding, a), walk(binding, b)) for p, a, b in goals]
        if trace:
            goals = [goal for goal, own in zip(goals, bound, strict=True) if own not in facts]
        if not goals:
            weights = [case.weights[rule] for rule in trace if rule >= 0]
            yield walk(binding, answer), trace, float(torch.tensor(weights, dtype=torch.float64).prod())
            return
        some = [any(ground(walk(binding, term)) for term in goal[1:]) for goal in goals]
        first = some.index(True) if True in some else 0
        goal, rest = goals[first], [*goals[:first], *goals[first + 1 :]]
        shape = _shape([goal, *rest], answer, binding)
        if shape in seen:
            return
        for fact in facts:
            matched = match(goal, fact, binding)
            if matched is not None:
                yield from go(rest, matched, (*trace, -1), {*seen, shape})
        if sum(rule >= 0 for rule in trace) == DEPTH:
            return
        for number, (head, body) in enumerate(case.rules):
            mark = next(fresh)
            own = [(atom[0], *(f"x{term}.{mark}" for term in atom[1:])) for atom in (head, *body)]
            matched = match(goal, own[0], binding)
            if matched is not None:
                yield from go([*own[1:], *rest], matched, (*trace, number), {*seen, shape})

    yield from go([(query[0], query[1], answer)], {}, (), set())


def _expected(case: Case, *, groundings: bool = False) -> Tensor:
    """Multiply the doubts of all proofs of each answer; of those by the same rules one counts, or each of their groundings."""
    table = torch.zeros(len(case.queries), CONSTANTS + 1, dtype=torch.float64)
    for row, query in enumerate(case.queries):
        every = [(answer, trace, weight) for answer, trace, weight in every_proof(case, query)]
        for constant in range(1, CONSTANTS + 1):
            own = [proof for proof in every if proof[0] == constant]
            miss = 1.0
            for _, _, weight in own if groundings else dict.fromkeys(own):
                miss *= 1.0 - min(weight, CERTAIN)
            table[row, constant] = 1.0 - miss
    return table


# --- mutants ---


def _edited(change: Callable[[ProofsFound], ProofsFound]) -> Callable[[Searching], Searching]:
    return lambda subject: evolve(subject, search=lambda *given, **named: change(subject.search(*given, **named)))


def counts_the_last_rule(found: ProofsFound) -> ProofsFound:
    """Give two rules the weight of their square root."""
    return evolve(found, log_weight=found.log_weight / (found.rules() >= 0).sum(-1).clamp_min(1))


def counts_once(found: ProofsFound) -> ProofsFound:
    """Give each proof one grounding."""
    return evolve(found, groundings=torch.ones_like(found.groundings))


def keeps_one_proof(found: ProofsFound) -> ProofsFound:
    """Keep the first proof of each answer."""
    marks = (found.owner * 100 + found.answer[:, 0]) * 100 + found.answer[:, 1]
    kept = torch.tensor([place for place, mark in enumerate(marks.tolist()) if mark not in marks[:place].tolist()])
    kept = kept.to(torch.int64)
    columns = ("owner", "answer", "log_weight", "log_prob", "moves", "groundings")
    return evolve(found, **{name: getattr(found, name)[kept] for name in columns})


def forgets_the_last_move(found: ProofsFound) -> ProofsFound:
    """Leave out the last move of each proof."""
    last = (found.moves >= 0).sum(-1, keepdim=True) - 1
    return evolve(found, moves=found.moves.scatter(1, last.clamp_min(0), -1))


def narrow_beam(subject: Searching) -> Searching:
    """Keep one state in a beam of any width."""

    def run(names: Any, base: Any, weights: Any, queries: Any, bounds: SearchLimits, **named: Any) -> ProofsFound:
        narrow = evolve(bounds, width=1) if bounds.strategy == "beam" else bounds
        return subject.search(names, base, weights, queries, narrow, **named)

    return evolve(subject, search=run)


def of_the_first_constant(subject: Searching) -> Searching:
    """Leave out proofs of constant number 1."""

    def change(found: ProofsFound) -> ProofsFound:
        lost = torch.where(found.answer[:, 1] == 1, -5.0, 0.0)
        return evolve(found, log_weight=found.log_weight + lost)

    return _edited(change)(subject)


def of_the_first_rule(subject: Searching) -> Searching:
    """Give rule number 0 half its weight."""

    def change(found: ProofsFound) -> ProofsFound:
        lost = torch.where((found.rules() == 0).any(-1), 0.5, 1.0)
        return evolve(found, log_weight=found.log_weight + torch.log(lost))

    return _edited(change)(subject)


def of_no_weight(subject: Searching) -> Searching:
    """Give rules of weight 0 a small weight."""

    def run(names: Any, base: Any, weights: Any, queries: Any, bounds: SearchLimits, **named: Any) -> ProofsFound:
        return subject.search(names, base, weights.clamp_min(0.1), queries, bounds, **named)

    return evolve(subject, search=run)


def of_the_first_query(subject: Searching) -> Searching:
    """Give the answers of all queries after the first one half their weights."""

    def change(found: ProofsFound) -> ProofsFound:
        return evolve(found, log_weight=found.log_weight - torch.where(found.owner > 0, 0.7, 0.0))

    return _edited(change)(subject)


MUTANTS: dict[str, Callable[[Searching], Searching]] = {"keeps one proof of each answer": _edited(keeps_one_proof)}


# --- laws ---


_law = law_constructor(cases, SOURCE, most=12)  # each searches several times
TWO, PROVEN = "an answer with two proofs", "an answer by a rule"
SEVERAL = "a proof by rules with two groundings"
DEEP = "a proof by two rules of what is no fact"


def proof_search_laws() -> Suite:
    """The laws of a search for all proofs."""
    each = (_enumeration(), _groundings(), _beam(), _renaming(), _order(), _nothing(), _streaming(), _checked())
    return Suite("proof_search_laws", each)


def _proven(case: Case, seen: Seen) -> bool:
    proofs = [(row, *proof[:2]) for row, query in enumerate(case.queries) for proof in every_proof(case, query)]
    some = any(rule >= 0 for _, _, trace in proofs for rule in trace)
    seen(PROVEN, some)
    return some


def _enumeration() -> Law:
    def check(subject: Searching, case: Case, seen: Seen) -> None:
        own = [{(a, t) for a, t, _ in every_proof(case, query)} for query in case.queries]
        seen(TWO, any(len([1 for other, _ in each if other == answer]) > 1 for each in own for answer, _ in each))
        facts = [{answer for answer, trace in each if all(rule < 0 for rule in trace)} for each in own]
        deep = [{answer for answer, trace in each if sum(rule >= 0 for rule in trace) == 2} for each in own]
        # Of an answer that is no fact: beside a fact no other proof counts.
        seen(DEEP, any(two - known for two, known in zip(deep, facts, strict=True)))
        told = -torch.expm1(-case.scores(subject))
        same("noisy-or against all proofs one by one", told, _expected(case), DOUBLE)

    mutant = Mutant("takes a mean of the rules of a proof", _edited(counts_the_last_rule))
    claim = "An answer's probability is 1 - prod (1 - w) over all of its proofs, w the product of their rules' weights."
    return _law("enumeration", claim, mutant, check, TWO, DEEP, most=60)


def _groundings() -> Law:
    def check(subject: Searching, case: Case, seen: Seen) -> None:
        own = [[(a, t) for a, t, _ in every_proof(case, query)] for query in case.queries]
        seen(
            SEVERAL, any(any(rule >= 0 for rule in proof[1]) for each in own for proof in each if each.count(proof) > 1)
        )
        told = -torch.expm1(-case.scores(subject, "groundings"))
        same("noisy-or against all groundings one by one", told, _expected(case, groundings=True), DOUBLE)

    mutant = Mutant("counts proofs by the same rules once", _edited(counts_once))
    claim = "Joined by groundings, an answer's probability is 1 - prod (1 - w) over all choices of rules and facts."
    return _law("groundings", claim, mutant, check, SEVERAL, most=60)


def _beam() -> Law:
    def check(subject: Searching, case: Case, seen: Seen) -> None:
        _proven(case, seen)
        wide = case.scores(subject, strategy="beam", width=100_000)
        same("a beam of any width against exact search", wide, case.scores(subject), DOUBLE)

    mutant = Mutant("keeps one state", narrow_beam)
    return _law("wide_beam", "A beam that drops nothing finds what an exact search finds.", mutant, check, PROVEN)


def _renaming() -> Law:
    def check(subject: Searching, case: Case, seen: Seen) -> None:
        _proven(case, seen)

        def moved(term: int) -> int:
            return CONSTANTS + 1 - term if term <= CONSTANTS else term

        def renamed(atom: Atom) -> Atom:
            return PREDICATES + 1 - atom[0], moved(atom[1]), moved(atom[2])

        other = Case(
            tuple(map(renamed, case.facts)),
            tuple((renamed(head), tuple(map(renamed, body))) for head, body in case.rules),
            case.weights,
            tuple(map(renamed, case.queries)),
        )
        for join in JOINS:
            told = other.scores(subject, join)
            same(f"{join} under other names", told[:, 1:].flip(-1), case.scores(subject, join)[:, 1:], DOUBLE)

    mutant = Mutant("distrusts one constant", of_the_first_constant)
    return _law("renaming", "Other names of constants and relations change no score.", mutant, check, PROVEN)


def _order() -> Law:
    def check(subject: Searching, case: Case, seen: Seen) -> None:
        _proven(case, seen)
        seen("several rules", len(case.rules) > 1)
        other = evolve(case, rules=case.rules[::-1], weights=case.weights[::-1], facts=case.facts[::-1])
        for join in JOINS:
            same(f"{join} of rules in another order", other.scores(subject, join), case.scores(subject, join), DOUBLE)

    mutant = Mutant("distrusts the first rule", of_the_first_rule)
    return _law("order", "The order of rules and facts changes no score.", mutant, check, PROVEN, "several rules")


def _nothing() -> Law:
    def check(subject: Searching, case: Case, seen: Seen) -> None:
        _proven(case, seen)
        more = evolve(
            case,
            rules=(*case.rules, ((case.queries[0][0], 5, 6), ((case.facts[0][0], 6, 5),))),
            weights=(*case.weights, 0.0),
        )
        seen("the rule proves something", bool((_expected(evolve(more, weights=(*case.weights, 0.5))) > 0).any()))
        for join in JOINS:
            same(f"{join} with a rule of weight 0", more.scores(subject, join), case.scores(subject, join), DOUBLE)

    mutant = Mutant("gives it a small weight", of_no_weight)
    return _law("weight_zero", "A rule of weight 0 changes no score.", mutant, check, PROVEN)


def _streaming() -> Law:
    def check(subject: Searching, case: Case, seen: Seen) -> None:
        seen("two queries", _proven(case, seen))
        each = [evolve(case, queries=(query,)).scores(subject) for query in case.queries]
        same("queries one by one against all at once", torch.cat(each), case.scores(subject), DOUBLE)

    mutant = Mutant("distrusts all queries but the first", of_the_first_query)
    return _law("streaming", "A query has the answers that it has alone.", mutant, check, "two queries")


def _checked() -> Law:
    def check(subject: Searching, case: Case, seen: Seen) -> None:
        _proven(case, seen)
        names, base, found = case.found(subject.search)
        for number in range(found.owner.shape[0]):
            moves = [Move(1.0, int(origin), 1) for origin in found.moves[number] if origin >= 0]
            query = case.queries[int(found.owner[number])]
            tree = proof_tree(names, base, query, moves, bound_first=True)
            require(tree.settled(), f"proof {number} of {query} leaves a goal open: {tree}")
            require(
                list(tree.atom[1:]) == found.answer[number].tolist(), f"proof {number} is one of {tree.atom}, not of it"
            )
            _accept(names, base, set(case.facts), tree)

    mutant = Mutant("forgets the last move of a proof", _edited(forgets_the_last_move))
    claim = "The moves of each proof build a tree of rule instances over facts, with the answer at its root."
    return _law("checked", claim, mutant, check, PROVEN)


def _accept(names: Vocabulary, base: Knowledge, facts: set[Atom], goal: Goal) -> None:
    """Check one step of a proof: the goal is a fact, or the instance of a rule whose body is the goals below it."""
    if not goal.goals:
        require(goal.atom in facts, f"{goal.atom} is no fact")
        return
    head, *body = clause(names, base, goal.origin)
    binding: dict[int, int] = {}
    pairs = zip((head, *body), (goal.atom, *(below.atom for below in goal.goals)), strict=True)
    for atom, instance in pairs:
        require(atom[0] == instance[0], f"{instance} is no instance of {atom}")
        for term, value in zip(atom[1:], instance[1:], strict=True):
            own = binding.setdefault(term, value) if term > len(names.constants) else term
            require(own == value, f"{instance} is no instance of {atom}")
    for below in goal.goals:
        _accept(names, base, facts, below)


def subject() -> Searching:
    """The search of the package."""
    return Searching(search, join_scores)
