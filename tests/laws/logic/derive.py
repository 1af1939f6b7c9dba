"""Laws of one step of resolution, checked by plain Python: f(names, base, widths, states, excluded) -> Successors."""

from collections.abc import Callable

import torch
from attrs import evolve, frozen
from hypothesis import strategies as st
from torch import Tensor

from purestep.core.logic.canonical import canonical
from purestep.core.logic.derive import Successors, Widths, front, mark_only
from purestep.core.logic.knowledge import Knowledge, is_fact, matching, rules_of_predicate
from purestep.core.logic.rules import VOID
from purestep.core.logic.terms import PADDING, Vocabulary, is_variable
from purestep.core.record import replace, take
from purestep.properties.framework.compare import EXACT, require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor

from .logic_strategies import GOALS, NAMES, OPEN, WIDE, Question, by_origin, listed, mark, padded, questions
from .resolution import Atom, State, unifier

# --- mutants ---
# Common errors in steps of resolution.


Derive = Callable[[Vocabulary, Knowledge, Widths, Tensor, Tensor], Successors]


def repeated_heads_fail(derive: Derive) -> Derive:
    """Skip rules whose head has the same variable twice."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        repeated = is_variable(names, base.heads[:, 1]) & (base.heads[:, 1] == base.heads[:, 2])
        heads = torch.where(repeated[:, None], PADDING, base.heads)
        return derive(names, replace(base, heads=heads), widths, states, excluded)

    return mutant


def shares_a_proof(derive: Derive) -> Derive:
    """Reduce over the batch too: where one state is proven, all are."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        found = derive(names, base, widths, states, excluded)
        proven = (found.states[..., 0, 0, 0] == names.true).any()
        true = mark_only(torch.full_like(found.count, names.true), found.states)
        return replace(found, states=torch.where(proven, true, found.states))

    return mutant


def first_rule_only(derive: Derive) -> Derive:
    """Use only the first rule that applies."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        found = derive(names, base, widths, states, excluded)
        by_rule = found.origin >= base.facts.shape[0] - 1
        used = torch.arange(widths.successors) < found.count[..., None]
        kept = used & (~by_rule | (by_rule.cumsum(-1) == 1))
        following, count = front(kept, found.states)
        return replace(found, states=following, count=count, origin=front(kept, found.origin, empty=-1)[0])

    return mutant


def without_the_last_constant(derive: Derive) -> Derive:
    """Skip facts with the last constant, as if a range ended one too early."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        last = (base.facts == len(names.constants)).any(-1, keepdim=True)
        facts = torch.where(last, PADDING, base.facts)
        return derive(names, replace(base, facts=facts), widths, states, excluded)

    return mutant


def facts_for_the_room(derive: Derive) -> Derive:
    """Try only as many facts as there are places for successors."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        fewer = evolve(widths, facts=min(widths.facts, widths.successors))
        return derive(names, base, fewer, states, excluded)

    return mutant


def forgets_the_untried(derive: Derive) -> Derive:
    """Leave facts that were not tried out of the count."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        found = derive(names, base, widths, states, excluded)
        untried = matching(names, base, states[..., 0, :], widths.facts)[2]
        return replace(found, too_many=(found.too_many - untried).clamp_min(0))

    return mutant


def forgets_the_rules(derive: Derive) -> Derive:
    """Leave rules without a slot out of the count."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        found = derive(names, base, widths, states, excluded)
        untried = (rules_of_predicate(base.rule_start, states[..., 0, 0])[1] - widths.rules).clamp_min(0)
        return replace(found, too_many=(found.too_many - untried).clamp_min(0))

    return mutant


def cuts_off(derive: Derive) -> Derive:
    """Drop the goals that exceed the length of a state."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        body = base.bodies.shape[-2]
        wider = torch.nn.functional.pad(states, (0, 0, 0, body))
        found = derive(names, base, evolve(widths, atoms=widths.atoms + body), wider, excluded)
        return replace(found, states=found.states[..., : widths.atoms, :])

    return mutant


def place_for_number(derive: Derive) -> Derive:
    """Return the place among the successors instead of the number of the fact or rule."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        found = derive(names, base, widths, states, excluded)
        return replace(found, origin=torch.where(found.origin < 0, -1, torch.arange(widths.successors)))

    return mutant


def marks_fail(derive: Derive) -> Derive:
    """Derive `false` from marks."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        found = derive(names, base, widths, states, excluded)
        false = mark_only(torch.full_like(found.count, names.false), found.states)
        ended = states[..., 0, 0] > len(names.predicates)
        return replace(found, states=torch.where(ended[..., None, None, None], false, found.states))

    return mutant


def leaves_a_gap(derive: Derive) -> Derive:
    """Number the variables of successors from the second one on."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        found = derive(names, base, widths, states, excluded)
        terms = found.states[..., 1:]
        moved = torch.where(is_variable(names, terms), terms + 1, terms)
        return replace(found, states=torch.cat([found.states[..., :1], moved], -1))

    return mutant


def uses_the_excluded(derive: Derive) -> Derive:
    """Ignore the excluded atom, so that a query proves itself."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        return derive(names, base, widths, states, torch.zeros_like(excluded))

    return mutant


@frozen
class _Shared(Widths):
    def variables(self) -> int:
        return 0


def shares_variables(derive: Derive) -> Derive:
    """Skip the renaming of the rules' variables."""

    def mutant(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
        same = _Shared(widths.atoms, widths.successors, widths.facts, widths.rules)
        return derive(names, base, same, states, excluded)

    return mutant


def strikes_the_excluded(derive: Derive) -> Derive:
    """Remove the excluded atom from successors, as if it were proven."""

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


# --- widths ---
# Laws of one step of resolution with little room: states that do not fit are left out whole, and counted.


SOURCE = "Kowalski 1974, Predicate logic as programming language"
ROOMS = st.sampled_from([1, 1, 1, 2, 3])
PROVEN, FALSE = [mark(NAMES.true)], [mark(NAMES.false)]


derive_law = law_constructor(questions, SOURCE)  # of one step of resolution


def found_wide(derive: Derive, question: Question) -> Successors:
    """Return the successors of the states of a question, with room for all of them."""
    return derive(NAMES, question.base(), WIDE, *question.asked())


def few_successors() -> Law:
    """The law of few places for successors."""

    def check(derive: Derive, inputs: tuple[Question, int], seen: Seen) -> None:
        question, room = inputs
        wide = found_wide(derive, question)
        narrow = derive(NAMES, question.base(), evolve(WIDE, successors=room), *question.asked())
        for number in range(len(question.states)):
            proofs = [place for place, state in enumerate(question.sources(number).values()) if state == ()]
            seen("a proof after more states than there is room for", proofs and min(proofs) >= room)
        seen("states without room", (wide.count > room).any())
        kept = wide.count.clamp_max(room)
        wanted = Successors(
            states=wide.states[:, :room],
            count=kept,
            origin=wide.origin[:, :room],
            too_long=wide.too_long,
            too_many=wide.count - kept,
        )
        same(f"with room for {room}", narrow, wanted, EXACT)

    mutant = Mutant("tries as many facts as there is room for successors", facts_for_the_room)
    claim = "With little room the first successors stay and the others are counted; a proof is always found."
    needs = ("a proof after more states than there is room for", "states without room")
    return derive_law("few_successors", claim, mutant, check, *needs, inputs=st.tuples(questions(), ROOMS))


def few_facts() -> Law:
    """The law of few slots for facts."""

    def check(derive: Derive, inputs: tuple[Question, int], seen: Seen) -> None:
        question, slots = inputs
        narrow = derive(NAMES, question.base(), evolve(WIDE, facts=slots), *question.asked())
        for number, state in enumerate(question.states):
            untried = _matches(question.facts, state[0])[slots:]
            left = {origin: after for origin, after in question.sources(number).items() if origin not in untried}
            fitting = {origin: after for origin, after in left.items() if len(after) <= GOALS}
            proven = () in left.values()
            seen("facts left out", untried and not proven)
            seen("a proof left out", () in question.sources(number).values() and not proven)
            wanted = PROVEN if proven else list(fitting.values()) or FALSE
            same(f"what follows from state {number}", listed(narrow, number), wanted, EXACT)
            counted = (0, 0) if proven else (len(left) - len(fitting), len(untried))
            got = int(narrow.too_long[number]), int(narrow.too_many[number])
            same(f"states too long and facts untried, of state {number}", got, counted, EXACT)

    mutant = Mutant("does not count the facts that it does not try", forgets_the_untried)
    claim = "With few slots the first facts that match are tried, and the others are counted unless there is a proof."
    inputs = st.tuples(questions(), ROOMS)
    return derive_law("few_facts", claim, mutant, check, "facts left out", "a proof left out", inputs=inputs)


def few_rules() -> Law:
    """The law of few slots for rules."""

    def check(derive: Derive, inputs: tuple[Question, int], seen: Seen) -> None:
        question, slots = inputs
        narrow = derive(NAMES, question.base(), evolve(WIDE, rules=slots), *question.asked())
        for number, state in enumerate(question.states):
            heads = enumerate(question.rules, len(question.facts))
            untried = [place for place, rule in heads if rule[0][0] == state[0][0]][slots:]
            every = question.sources(number)
            left = [after for origin, after in every.items() if origin not in untried]
            proven = () in left
            seen("rules left out", untried and not proven)
            seen("a proof left out", () in every.values() and not proven)
            wanted = PROVEN if proven else [after for after in left if len(after) <= GOALS] or FALSE
            same(f"what follows from state {number}", listed(narrow, number), wanted, EXACT)
            same(
                f"rules untried, of state {number}", int(narrow.too_many[number]), 0 if proven else len(untried), EXACT
            )

    mutant = Mutant("does not count the rules that it does not try", forgets_the_rules)
    claim = "With few slots a predicate's first rules are tried, and the others are counted unless there is a proof."
    inputs = st.tuples(questions(), ROOMS)
    return derive_law("few_rules", claim, mutant, check, "rules left out", inputs=inputs, share=0.01)


def _matches(facts: tuple[Atom, ...], goal: Atom) -> list[int]:
    """The numbers of the facts with the goal's predicate and its constants in their places."""
    return [
        number
        for number, fact in enumerate(facts)
        if fact[0] == goal[0] and all(a == b or b >= OPEN for a, b in zip(fact[1:], goal[1:], strict=True))
    ]


def few_goals() -> Law:
    """The law of short states."""

    def check(derive: Derive, question: Question, seen: Seen) -> None:
        for number, state in enumerate(question.states):
            goals, every = len(state), question.every(number)
            alone = evolve(question, states=(state,), excluded=question.excluded[number : number + 1])
            narrow = derive(NAMES, question.base(), evolve(WIDE, atoms=goals), *alone.asked(goals))
            wanted, too_long = question.following(number, goals)
            seen("a state too long beside a proof", () in every and any(len(after) > goals for after in every))
            seen("a state too long beside one that is not", too_long and len(every) > too_long)
            seen("nothing but states too long", too_long and len(every) == too_long)
            same(f"what follows from state {number}", listed(narrow, 0), wanted, EXACT)
            same(f"what is too long, of state {number}", int(narrow.too_long), too_long, EXACT)

    mutant = Mutant("cuts off the goals for which a state has no room", cuts_off)
    claim = "States with more goals than there is room for are left out, whole, and counted unless there is a proof."
    needs = (
        "a state too long beside a proof",
        "a state too long beside one that is not",
        "nothing but states too long",
    )
    return derive_law("few_goals", claim, mutant, check, *needs)


# --- laws ---


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

    mutant = Mutant("takes no rule whose head has twice the same variable", repeated_heads_fail)
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

    mutant = Mutant("takes a proof of one state for one of all", shares_a_proof)
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

    mutant = Mutant("commits to the first rule that can be used", first_rule_only)
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

    mutant = Mutant("overlooks facts about the last constant", without_the_last_constant)
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

    mutant = Mutant("gives the place among the successors for the number", place_for_number)
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

    mutant = Mutant("treats marks as goals that nothing proves", marks_fail)
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
        require(~is_fact(NAMES, question.base(), found.states, excluded[:, None, None]), "no goal is a known fact")

    mutant = Mutant("numbers the variables from the second on", leaves_a_gap)
    claim = "What follows is canonical, packed to the front, and holds no known fact."
    return derive_law("canonical", claim, mutant, check, "a variable")
