"""Laws of one step of resolution where there is little room: what does not fit is left out whole, and counted."""

from collections.abc import Callable

from attrs import evolve
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from purestep.core.logic.derive import Successors
from purestep.properties.framework.compare import EXACT, same
from purestep.properties.framework.law import Inputs, Law, Mutant, Seen, always

from . import derive_mutants as mutants
from .derive_mutants import Derive
from .logic_strategies import GOALS, NAMES, OPEN, WIDE, Question, listed, mark, questions
from .resolution import Atom

SOURCE = "Kowalski 1974, Predicate logic as programming language"
ROOMS = st.sampled_from([1, 1, 1, 2, 3])
PROVEN, FALSE = [mark(NAMES.true)], [mark(NAMES.false)]


def derive_law(
    name: str,
    claim: str,
    mutant: Mutant,
    check: Callable[[Derive, Inputs, Seen], None],
    *needs: str,
    inputs: SearchStrategy[Inputs] | None = None,
) -> Law:
    """A law of one step of resolution, on random programs unless other inputs are given."""
    drawn = questions() if inputs is None else inputs
    return Law(name=name, claim=claim, source=SOURCE, inputs=always(drawn), check=check, mutant=mutant, needs=needs)


def found_wide(derive: Derive, question: Question) -> Successors:
    """What follows from the states of a question where there is room for all of it."""
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

    mutant = Mutant("tries as many facts as there is room for successors", mutants.facts_for_the_room)
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

    mutant = Mutant("does not count the facts that it does not try", mutants.forgets_the_untried)
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

    mutant = Mutant("does not count the rules that it does not try", mutants.forgets_the_rules)
    claim = "With few slots a predicate's first rules are tried, and the others are counted unless there is a proof."
    inputs = st.tuples(questions(), ROOMS)
    return derive_law("few_rules", claim, mutant, check, "rules left out", inputs=inputs)


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

    mutant = Mutant("cuts off the goals for which a state has no room", mutants.cuts_off)
    claim = "States with more goals than there is room for are left out, whole, and counted unless there is a proof."
    needs = (
        "a state too long beside a proof",
        "a state too long beside one that is not",
        "nothing but states too long",
    )
    return derive_law("few_goals", claim, mutant, check, *needs)
