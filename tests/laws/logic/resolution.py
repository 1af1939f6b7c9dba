"""Resolution in plain Python, one state at a time, with substitutions as dictionaries: the reference for the engine."""

from collections.abc import Iterator, Sequence

from attrs import frozen

Atom = tuple[int, int, int]
State = tuple[Atom, ...]
Binding = dict[int, int]


@frozen
class Program:
    """Facts and rules, and the number of the first variable."""

    facts: frozenset[Atom]
    rules: tuple[tuple[Atom, State], ...]
    first_variable: int

    def variable(self, term: int) -> bool:
        """Return whether a term is a variable."""
        return term >= self.first_variable


def successors(program: Program, state: State, excluded: Atom | None = None) -> list[State]:
    """The states that follow from a state by its first goal, variables renamed; () is a proof, kept among the others."""
    goal, rest = state[0], state[1:]
    apart = 1 + max([program.first_variable, *(term for atom in state for term in atom[1:])])
    usable = program.facts - {excluded}
    found = []
    for head, body in [*((fact, ()) for fact in sorted(usable)), *_renamed(program, apart)]:
        binding = unifier(program, goal, head)
        if binding is not None:
            goals = [_under(binding, atom) for atom in (*body, *rest)]
            found.append(renamed(program, [atom for atom in goals if atom not in usable]))
    return found


def _renamed(program: Program, apart: int) -> Iterator[tuple[Atom, State]]:
    """The rules, with variables from `apart` on."""

    def away(atom: Atom) -> Atom:
        first, second = (term + apart - program.first_variable if program.variable(term) else term for term in atom[1:])
        return atom[0], first, second

    for head, body in program.rules:
        yield away(head), tuple(map(away, body))


def unifier(program: Program, left: Atom, right: Atom) -> Binding | None:
    """A most general unifier of two atoms as a dictionary, or None: Martelli and Montanari's rules, without functions."""
    if left[0] != right[0]:
        return None
    binding: Binding = {}
    for one, other in zip(left[1:], right[1:], strict=True):
        one, other = _end(binding, one), _end(binding, other)
        if one == other:
            continue
        if program.variable(one):
            binding[one] = other
        elif program.variable(other):
            binding[other] = one
        else:
            return None
    return binding


def _end(binding: Binding, term: int) -> int:
    while term in binding:
        term = binding[term]
    return term


def _under(binding: Binding, atom: Atom) -> Atom:
    return atom[0], _end(binding, atom[1]), _end(binding, atom[2])


def renamed(program: Program, state: Sequence[Atom]) -> State:
    """The state with variables numbered in the order of appearance."""
    numbers: Binding = {}
    for atom in state:
        for term in atom[1:]:
            if program.variable(term):
                numbers.setdefault(term, program.first_variable + len(numbers))
    return tuple((p, numbers.get(a, a), numbers.get(b, b)) for p, a, b in state)


def shortest_proof(program: Program, query: Atom, depth: int, longest: int) -> int | None:
    """The steps of a shortest proof of at most `depth`, through states of at most `longest` goals, or None."""
    frontier: set[State] = {(query,)}
    seen: set[State] = {(query,)}
    for steps in range(1, depth + 1):
        following = {after for state in frontier for after in successors(program, state, query)}
        if () in following:
            return steps
        frontier = {state for state in following if len(state) <= longest} - seen
        seen |= frontier
    return None
