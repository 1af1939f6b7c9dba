"""One step of resolution: all successors of a state by its first goal, in tensors of fixed width."""

import torch
from attrs import frozen
from torch import Tensor

from ..errors import ChoiceError, message
from ..record import record, tensor
from .canonical import canonical
from .knowledge import Knowledge, is_fact, matching, rules_of_predicate
from .terms import PADDING, Vocabulary, is_variable
from .unify import substitute, unify


@frozen
class Widths:
    """The sizes of the tensors. Entries that do not fit are dropped and counted."""

    atoms: int  # A: goals of a state
    successors: int  # S: successors of a state
    facts: int  # K: facts tried for one goal
    rules: int  # rules tried for one goal

    def variables(self) -> int:
        """Return the maximum number of variables in a canonical state, without those of a rule."""
        return 2 * self.atoms


@record
class Successors:
    """The successors of a state: canonical states, packed to the front."""

    states: Tensor = tensor("* S A 3", "int")
    count: Tensor = tensor("*", "int")  # number of successors, at least 1
    origin: Tensor = tensor("* S", "int")  # 0..F-1: by that fact; F..F+R-1: by that rule; -1: by neither
    too_long: Tensor = tensor("*", "int")  # dropped: more than A goals
    too_many: Tensor = tensor("*", "int")  # dropped: no room among K facts, the rules or S states


@record
class _Candidates:
    """Candidates for successors. Leading axes [*, C]."""

    atoms: Tensor = tensor("* A 3", "int")  # without known goals; the first A of the remaining ones
    length: Tensor = tensor("*", "int")  # number of remaining goals
    exists: Tensor = tensor("*", "bool")
    origin: Tensor = tensor("*", "int")


def check_widths(names: Vocabulary, base: Knowledge, widths: Widths, *, end_proof: bool = False) -> None:
    """Refuse a vocabulary or widths too small for the rules; call it before any step.

    A canonical state has up to 2 A variables and a rule's own come after them, so the vocabulary must have both. There must be
    room for one successor, and with `end_proof`, by which a proof can be abandoned, for one more. Raises: ChoiceError.

    >>> from .borders import borders
    >>> game, world = borders()
    >>> check_widths(game.names, world.base, Widths(4, 2, 1, 1))  # the rule has X, Y and Z
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: vocabulary: variables is 7, wanted 11 or more; give it 11, or states fewer atoms
    """
    terms = torch.cat([base.heads.reshape(-1, 3), base.bodies.reshape(-1, 3)])[:, 1:]
    own = max(0, int(terms.max()) - len(names.constants)) if terms.numel() else 0
    least = widths.variables() + own
    if names.variables < least:
        remedy = f"give it {least}, or states fewer atoms"
        raise ChoiceError(
            message("vocabulary: variables", got=names.variables, wanted=f"{least} or more", remedy=remedy)
        )
    places = 2 if end_proof else 1
    if widths.successors < places or widths.atoms < 1:
        got, wanted = f"{widths.successors} successors, {widths.atoms} atoms", f"at least {places} and 1"
        raise ChoiceError(message("widths", got=got, wanted=wanted, remedy="make them wider"))


def derive(names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor) -> Successors:
    """Return the SLD resolvents of the leftmost goal: states int64 [*, A, 3], an excluded fact [*, 3] -> Successors [*].

    States must be canonical. The first goal is unified with each fact, which leaves the other goals, and with the head of each
    rule, renamed apart, which puts the rule's body before them. Ground goals that are known facts are removed at once; a state
    without remaining goals is a proof, and if there is one, the mark `true` is the only successor. Without any successor it is
    the mark `false`. Marks are their own successors, and `false` is that of padding. Facts come first, in the order of their
    numbers, then rules in theirs; equal states by different facts or rules are kept as different choices.
    Source: Kowalski 1974, "Predicate logic as programming language".

    >>> from .knowledge import knowledge
    >>> from .terms import vocabulary
    >>> names = vocabulary(["p"], ["a", "b"], variables=10)  # a, b are 1, 2; X1 is 3
    >>> base = knowledge(names, torch.tensor([[1, 1, 2]]), torch.tensor([[1, 3, 4]]), torch.tensor([[[1, 4, 3]]]))
    >>> found = derive(names, base, Widths(2, 2, 1, 1), torch.tensor([[1, 1, 3], [1, 1, 3]]), torch.tensor([0, 0, 0]))
    >>> found.states[: found.count]  # p(a, X1), p(a, X1): by the fact p(a, b) and by the rule p(X, Y) <- p(Y, X)
    tensor([[[2, 0, 0],
             [0, 0, 0]]])
    """
    by_fact, crowded = _by_facts(names, base, widths, states, excluded)
    by_rule, more_rules = _by_rules(names, base, widths, states, excluded)
    every = _Candidates(
        atoms=torch.cat([by_fact.atoms, by_rule.atoms], -3),
        length=torch.cat([by_fact.length, by_rule.length], -1),
        exists=torch.cat([by_fact.exists, by_rule.exists], -1),
        origin=torch.cat([by_fact.origin, by_rule.origin], -1),
    )
    return _packed(names, widths, states, every, crowded + more_rules)


def _by_facts(
    names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor
) -> tuple[_Candidates, Tensor]:
    """Return the candidates [*, K] by facts, and the number of facts not tried [*]."""
    goal, rest = states[..., 0, :], states[..., 1:, :]
    numbers, among, crowded = matching(names, base, goal, widths.facts)
    facts = base.facts[numbers]
    found = unify(names, goal[..., None, :], facts)
    exists = found.exists & among & (facts != excluded[..., None, :]).any(-1)
    atoms = substitute(found, _beside(rest, numbers))
    return _pruned(names, base, widths, atoms, excluded, exists, numbers), crowded


def _by_rules(
    names: Vocabulary, base: Knowledge, widths: Widths, states: Tensor, excluded: Tensor
) -> tuple[_Candidates, Tensor]:
    """Return the candidates [*, rules] by rules, and the number of rules not tried [*]."""
    goal, rest = states[..., 0, :], states[..., 1:, :]
    start, count = rules_of_predicate(base.rule_start, goal[..., 0])
    slots = torch.arange(widths.rules, device=states.device)
    among = slots < count[..., None]
    numbers = torch.where(among, start[..., None] + slots, 0)
    heads, bodies = (_apart(names, widths, part[numbers]) for part in (base.heads, base.bodies))
    found = unify(names, goal[..., None, :], heads)
    atoms = substitute(found, torch.cat([bodies, _beside(rest, numbers)], -2))
    exists = found.exists & among
    made = _pruned(names, base, widths, atoms, excluded, exists, numbers + base.facts.shape[0] - 1)
    return made, (count - widths.rules).clamp_min(0)


def _beside(rest: Tensor, numbers: Tensor) -> Tensor:
    """Return the goals, expanded for each candidate: [*, A-1, 3] and [*, C] -> [*, C, A-1, 3]."""
    return rest[..., None, :, :].expand(*numbers.shape, *rest.shape[-2:])


def _apart(names: Vocabulary, widths: Widths, atoms: Tensor) -> Tensor:
    """Return a rule's atoms with variables renamed apart from those of canonical states."""
    terms = atoms[..., 1:]
    moved = torch.where(is_variable(names, terms), terms + widths.variables(), terms)
    return torch.cat([atoms[..., :1], moved], -1)


def _pruned(
    names: Vocabulary,
    base: Knowledge,
    widths: Widths,
    atoms: Tensor,
    excluded: Tensor,
    exists: Tensor,
    origin: Tensor,
) -> _Candidates:
    """Return candidates [*, C, W, 3] without the known goals, the remaining ones moved to the front."""
    known = is_fact(names, base, atoms, excluded[..., None, None, :])
    kept = (atoms[..., 0] != PADDING) & ~known
    first, length = front(kept, atoms, slots=widths.atoms)
    return _Candidates(atoms=first, length=length, exists=exists, origin=origin)


def _packed(names: Vocabulary, widths: Widths, states: Tensor, every: _Candidates, crowded: Tensor) -> Successors:
    """Return the valid candidates, moved to the front, or the single mark that replaces them."""
    fits = every.exists & (every.length <= widths.atoms)
    following, count = front(fits, every.atoms, slots=widths.successors)
    origin, _ = front(fits, every.origin, slots=widths.successors, empty=-1)

    proof = every.exists & (every.length == 0)
    proven, goal = proof.any(-1), states[..., 0, 0]
    mark = torch.where(proven, names.true, torch.where(goal > len(names.predicates), goal, names.false))
    alone = proven | (count == 0)
    by, _ = front(proof, every.origin, slots=widths.successors, empty=-1)
    only = torch.arange(widths.successors, device=states.device) == 0
    return Successors(
        states=torch.where(alone[..., None, None, None], mark_only(mark, following), canonical(names, following)),
        count=torch.where(alone, 1, count.clamp_max(widths.successors)),
        origin=torch.where(alone[..., None], torch.where(only & proven[..., None], by, -1), origin),
        too_long=torch.where(proven, 0, (every.exists & (every.length > widths.atoms)).sum(-1)),
        too_many=torch.where(proven, 0, crowded + (count - widths.successors).clamp_min(0)),
    )


def front(kept: Tensor, rows: Tensor, *, slots: int | None = None, empty: int = PADDING) -> tuple[Tensor, Tensor]:
    """Return the kept rows, moved to the front in order: bool [*, C], int64 [*, C, ...] -> ([*, slots, ...], number kept [*]).

    `slots` is C by default; rows beyond it are dropped, and unused slots hold `empty`.

    >>> front(torch.tensor([False, True, True]), torch.tensor([5, 6, 7]), slots=1)
    (tensor([6]), tensor(2))
    """
    slots = kept.shape[-1] if slots is None else slots
    place = kept.to(torch.int64).cumsum(-1) - 1
    spare = torch.where(kept & (place < slots), place, slots)  # rows without a slot go into an extra one, cut off below
    index = spare[(...,) + (None,) * (rows.ndim - kept.ndim)].expand(rows.shape)
    axis = kept.ndim - 1
    # Scatter the values, not their indices: the compiler stores the result instead of recomputing it at each read.
    room = rows.new_full((*kept.shape[:-1], slots + 1, *rows.shape[kept.ndim :]), empty)
    return room.scatter(axis, index, rows).narrow(axis, 0, slots), kept.sum(-1)


def mark_only(mark: Tensor, like: Tensor) -> Tensor:
    """Return states that hold one mark only, in the first slot of each row: int64 [*] -> `like`'s shape [*, S, A, 3].

    >>> mark_only(torch.tensor(7), torch.ones(2, 1, 3, dtype=torch.int64))
    tensor([[[7, 0, 0]],
    <BLANKLINE>
            [[0, 0, 0]]])
    """
    shape = like.shape[-3:]
    first = torch.arange(shape.numel(), device=mark.device).reshape(shape) == 0
    return torch.where(first, mark[..., None, None, None], PADDING)
