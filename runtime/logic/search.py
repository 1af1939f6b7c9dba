"""Search for the proofs of many queries at once, open or ground, in tensors without fixed widths: no state lacks room.

The last goal of each state is the query itself, under a mark that no rule or fact resolves. It takes part in all substitutions,
so that a state of which only this goal is left is a proof, and the goal its answer: uncle(X, ann) is asked once, and its
answers are all X. A proof is the rules that it applies, in their places: with other facts for the same rules it is the same
proof of the answer, because a rule's confidence is the probability of its head where its body is true for some of them; the
number of such groundings is kept beside it.
"""

from collections.abc import Callable, Iterator
from typing import Literal

import attrs
import torch
import torch.nn.functional as F
from attrs import frozen
from torch import Tensor

from ...core import keys
from ...core.errors import ChoiceError, choose, message
from ...core.keys import Key
from ...core.logic.canonical import canonical, extended_hash, state_hash
from ...core.logic.derive import front
from ...core.logic.knowledge import Knowledge, is_fact, knowledge, rules_of_predicate, span
from ...core.logic.terms import PADDING, Vocabulary, is_variable
from ...core.logic.unify import substitute, unify

TOGETHER = 1 << 20  # successors computed at once, which bounds the memory
ROUNDS = 16  # in which an exact search spends its budget, the most promising states first
LEAST_ROUND = 32  # states of a query expanded in one of them
UNUSED = -1  # no move

Guide = Callable[["States", "States", Tensor], Tensor]
"""Log-probs of successors: (expanded states [N], successors [M], the index of each one's expanded state [M]) -> [M]."""


@frozen
class SearchLimits:
    """The limits of a search."""

    rules: int = 2  # applications of rules in one proof
    expansions: int = 1000  # states of one query whose successors are computed
    strategy: Literal["exact", "beam", "sample"] = "exact"
    width: int = 0  # states that a beam keeps, or walks that are sampled
    order: Literal["confidence", "policy", "breadth"] = "confidence"  # what is expanded first


@frozen
class States:
    """Unfinished proofs."""

    goals: Tensor  # int64 [M, A, 3], the marked query last; canonical
    owner: Tensor  # int64 [M]: number of the query
    log_weight: Tensor  # float64 [M]: log of the product of the rules' weights
    log_prob: Tensor  # float64 [M]: of the moves, by the guide; 0 without one
    applied: Tensor  # int64 [M]: rules applied
    trace: Tensor  # int64 [M]: hash of the rules in their places
    moves: Tensor  # int32 [M, T]: facts 0..F-1 and rules F..F+R-1 in order, then UNUSED
    seen: Tensor  # int64 [M, T]: hashes of the states before
    groundings: Tensor  # int64 [M]: choices of facts that lead to this state by the same rules

    def __getitem__(self, index: Tensor) -> "States":
        return States(*(getattr(self, field.name)[index] for field in attrs.fields(States)))


@frozen
class ProofsFound:
    """The distinct proofs of N answers, and the effort by query."""

    owner: Tensor  # int64 [N]
    answer: Tensor  # int64 [N, 2]: the arguments of the query's instance that is proven
    log_weight: Tensor  # float64 [N]
    log_prob: Tensor  # float64 [N]
    moves: Tensor  # int32 [N, T]: see `States`
    groundings: Tensor  # int64 [N]: choices of facts with which the rules prove the answer; 1 for samples
    facts: int  # F, the number of the first rule in `moves`
    expanded: Tensor  # int64 [Q]: states whose successors were computed
    cut: Tensor  # int64 [Q]: states that were left because of the bounds

    def rules(self) -> Tensor:
        """Return the numbers of the rules of each proof in order, padded with -1: int64 [N, D]."""
        used = self.moves >= self.facts
        found, _ = front(used, self.moves.to(torch.int64) - self.facts, empty=-1)
        return found[:, : max(1, int(used.sum(-1).max()) if used.numel() else 1)]


def reweighed(found: ProofsFound, weights: Tensor) -> ProofsFound:
    """Return the same proofs with other weights of the rules: float64 [R]. Their weights are differentiable.

    >>> from ...core.logic.borders import borders
    >>> game, world = borders()
    >>> names, base = roomy(game.names, world.base, 2)
    >>> found = search(names, base, torch.tensor([0.5]), torch.tensor([[2, 5, 7]]), SearchLimits(rules=2))
    >>> reweighed(found, torch.tensor([0.1])).log_weight.exp()
    tensor([0.0100], dtype=torch.float64)
    """
    log_weights = F.pad(torch.log(weights.to(torch.float64)), (0, 1))  # the last one is that of no rule
    rules = found.rules()
    return attrs.evolve(found, log_weight=log_weights[torch.where(rules < 0, weights.shape[0], rules)].sum(-1))


def roomy(names: Vocabulary, base: Knowledge, rules: int) -> tuple[Vocabulary, Knowledge]:
    """Return vocabulary and knowledge with enough variables for states of proofs with that many rules.

    >>> from ...core.logic.borders import borders
    >>> game, world = borders()
    >>> roomy(game.names, world.base, 3)[0].variables
    13
    """
    terms = torch.cat([base.heads.reshape(-1, 3), base.bodies.reshape(-1, 3)])[:, 1:]
    own = max(0, int(terms.max()) - len(names.constants))
    wide = attrs.evolve(names, variables=2 * _goals(base, rules) + own)
    return wide, knowledge(wide, base.facts[:-1], base.heads[:-1], base.bodies[:-1])


def _goals(base: Knowledge, rules: int) -> int:
    """Return the largest number of goals of a state, with the marked query."""
    return 2 + rules * max(0, base.bodies.shape[-2] - 1)


def _steps(base: Knowledge, rules: int) -> int:
    """Return the largest number of moves of a proof."""
    return 1 + rules * base.bodies.shape[-2]


def check_bounds(bounds: SearchLimits) -> None:
    """Refuse bounds with which nothing can be found. Raises: ChoiceError.

    >>> check_bounds(SearchLimits(expansions=0))
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: search: expansions is 0, wanted at least 1; give it a larger number
    """
    for name, least in (("rules", 1), ("expansions", 1), ("width", 0 if bounds.strategy == "exact" else 1)):
        got, remedy = getattr(bounds, name), "give it a larger number"
        if got < least:
            raise ChoiceError(message(f"search: {name}", got=got, wanted=f"at least {least}", remedy=remedy))


def search(
    names: Vocabulary,
    base: Knowledge,
    weights: Tensor,
    queries: Tensor,
    bounds: SearchLimits,
    *,
    excluded: Tensor | None = None,
    guide: Guide | None = None,
    key: Key | tuple[()] = (),
) -> ProofsFound:
    """Return the proofs of the instances of each query: weights float64 [R], int64 [Q, 3] -> ProofsFound.

    Variables of a query are n+1 and n+2; names and base are those of `roomy`. A fact `excluded` [Q, 3] is none for its query.
    The strategy "exact" expands the states in the order of `order`, until none is left or the budget is spent. "beam" keeps the
    `width` best of the states after so many moves and drops the others. "sample" makes `width` random walks by the guide's
    probabilities, without one by the rules' weights; it needs a key. In all of them every proof that is among the successors of
    an expanded state is found. States that occur earlier in their own proof are left out. Raises: ChoiceError.

    >>> from ...core.logic.borders import borders
    >>> game, world = borders()  # in(X, Z) :- borders(X, Y), in(Y, Z)
    >>> names, base = roomy(game.names, world.base, 2)
    >>> found = search(names, base, torch.tensor([0.5]), torch.tensor([[2, 5, 7]]), SearchLimits(rules=2))  # in(portugal, X)
    >>> found.answer, found.log_weight.exp()  # in(portugal, europe), by the rule and the rule again
    (tensor([[5, 2]]), tensor([0.2500], dtype=torch.float64))
    """
    check_bounds(bounds)
    count, device = queries.shape[0], queries.device
    none = queries.new_zeros(count, 3)
    barred = none if excluded is None else excluded
    log_weights = torch.log(weights.to(torch.float64))
    expanded, cut = torch.zeros(count, dtype=torch.int64, device=device), none[:, 0].clone()
    waiting = opened_states(names, base, queries, bounds)
    parts: list[States] = []
    step, adds = 0, bounds.strategy != "sample"
    while waiting.owner.shape[0]:
        taken, later, dropped = _chosen(waiting, expanded, bounds, count)
        cut = cut + dropped
        if not taken.owner.shape[0]:
            break
        expanded = expanded + torch.bincount(taken.owner, minlength=count)
        fresh: list[States] = [later]
        for portion in _portions(names, base, taken, bounds):
            after, row = successors(names, base, log_weights, portion, barred, bounds)
            if guide is not None:
                log_prob = after.log_prob + guide(portion, after, row).to(torch.float64)
                after = attrs.evolve(after, log_prob=log_prob)
            proofs = after.goals[:, 0, 0] == names.end
            parts.append(_distinct(names, after[proofs], adds))
            if bounds.strategy == "sample":
                chances = (after.log_weight - portion.log_weight[row]) if guide is None else after.log_prob
                step += 1
                proofs = proofs | ~_drawn(chances, row, portion.owner.shape[0], keys.fold_in(_needed(key), step))
            fresh.append(after[~proofs])
        waiting = _joined(fresh)
        waiting = waiting if bounds.strategy == "sample" else _distinct(names, waiting, adds)
    every = _joined([opened_states(names, base, queries[:0], bounds), *parts])
    every = _distinct(names, every, adds)
    return ProofsFound(
        owner=every.owner,
        answer=every.goals[:, 0, 1:],
        log_weight=every.log_weight,
        log_prob=every.log_prob,
        moves=every.moves,
        groundings=every.groundings,
        facts=base.facts.shape[0] - 1,
        expanded=expanded,
        cut=cut,
    )


def _drawn(chances: Tensor, row: Tensor, count: int, key: Key) -> Tensor:
    """Return whether a successor is the one drawn of its row, with probabilities in proportion to exp(chances): bool [M]."""
    noisy = chances - torch.log(-torch.log(keys.uniform(key, tuple(chances.shape), dtype=torch.float64)))
    largest = torch.full((count,), -torch.inf, dtype=torch.float64, device=row.device)
    return noisy == largest.scatter_reduce(0, row, noisy, "amax")[row]


def _needed(key: Key | tuple[()]) -> Key:
    if not isinstance(key, Tensor):
        raise ChoiceError(message("search: key", got="none", wanted="one for samples", remedy="pass a key"))
    return key


def opened_states(names: Vocabulary, base: Knowledge, queries: Tensor, bounds: SearchLimits) -> States:
    """Return the first states: the query, and the query under the mark; none for padding."""
    owner = (queries[:, 0] != PADDING).nonzero()[:, 0]
    asked = queries[owner]
    marked = torch.cat([torch.full_like(asked[:, :1], names.end), asked[:, 1:]], -1)
    goals = F.pad(torch.stack([asked, marked], 1), (0, 0, 0, _goals(base, bounds.rules) - 2))
    if bounds.strategy == "sample":
        owner = owner.repeat_interleave(bounds.width)
        goals = goals.repeat_interleave(bounds.width, 0)
    nothing = torch.zeros_like(owner)
    steps = _steps(base, bounds.rules)
    return States(
        goals=goals,
        owner=owner,
        log_weight=nothing.to(torch.float64),
        log_prob=nothing.to(torch.float64),
        applied=nothing,
        trace=nothing,
        moves=torch.full((*owner.shape, steps), UNUSED, dtype=torch.int32, device=owner.device),
        seen=nothing[:, None].repeat(1, steps),
        groundings=torch.ones_like(owner),
    )


def _joined(parts: list[States]) -> States:
    return States(*(torch.cat([getattr(part, field.name) for part in parts]) for field in attrs.fields(States)))


def _distinct(names: Vocabulary, states: States, adds: bool) -> States:
    """Return the states without those that repeat a state, of the same query, by the same rules in the same places.

    Those that stay have the groundings of all of them, if that `adds`; a walk that was sampled twice is no second grounding.
    """
    if not states.owner.shape[0]:
        return states
    marks = extended_hash(extended_hash(state_hash(names, states.goals), states.trace), states.owner)
    distinct, inverse = torch.unique(marks, return_inverse=True)
    order = torch.arange(marks.shape[0], device=marks.device)
    first = torch.full_like(distinct, marks.shape[0]).scatter_reduce(0, inverse, order, "amin")
    if adds:
        states = attrs.evolve(
            states, groundings=torch.zeros_like(distinct).index_add(0, inverse, states.groundings)[inverse]
        )
    return states[torch.sort(first).values]


def _chosen(waiting: States, expanded: Tensor, bounds: SearchLimits, count: int) -> tuple[States, States, Tensor]:
    """Return the states to expand now, those that wait, and the number of those dropped by query [Q]."""
    owner = waiting.owner
    if bounds.strategy == "sample":
        allowed = torch.full_like(expanded, bounds.width)
    else:
        most = bounds.width if bounds.strategy == "beam" else max(LEAST_ROUND, bounds.expansions // ROUNDS)
        allowed = torch.full_like(expanded, most)
    left = (bounds.expansions - expanded).clamp_min(0)
    number = _place(owner, _priority(waiting, bounds), count)
    taken = number < torch.minimum(allowed, left)[owner]
    keeps = (bounds.strategy == "exact") & (left[owner] > allowed[owner]) & ~taken
    dropped = torch.bincount(owner[~taken & ~keeps], minlength=count)
    return waiting[taken], waiting[keeps], dropped


def _priority(states: States, bounds: SearchLimits) -> Tensor:
    """Return numbers that are larger for states to be expanded first: float64 [M]."""
    moves = (states.moves != UNUSED).sum(-1).to(torch.float64)
    orders = {"confidence": states.log_weight, "policy": states.log_prob, "breadth": -moves}
    return choose("search: order", bounds.order, orders)


def _place(owner: Tensor, priority: Tensor, count: int) -> Tensor:
    """Return each row's place among those of its owner, the largest priority first and equal ones in order: [M] -> [M]."""
    order = torch.sort(priority, descending=True, stable=True).indices
    order = order[torch.sort(owner[order], stable=True).indices]
    many = torch.bincount(owner, minlength=count)
    first = (many.cumsum(0) - many)[owner[order]]
    return torch.empty_like(owner).scatter(0, order, torch.arange(owner.shape[0], device=owner.device) - first)


def _counts(names: Vocabulary, base: Knowledge, states: States, bounds: SearchLimits) -> tuple[Tensor, ...]:
    """Return start, number and side of the facts, and start and number of the rules, that may match each state's first goal."""
    goal = states.goals[:, 0]
    start, end, exchanged = span(names, base, goal)
    first, many = rules_of_predicate(base.rule_start, goal[:, 0])
    return start, (end - start).clamp_min(0), exchanged, first, torch.where(states.applied < bounds.rules, many, 0)


def _portions(names: Vocabulary, base: Knowledge, states: States, bounds: SearchLimits) -> Iterator[States]:
    """Yield the states in portions with a bounded number of successors, at least one state each."""
    _, facts, _, _, rules = _counts(names, base, states, bounds)
    portion = ((facts + rules).cumsum(0) - 1) // TOGETHER
    sizes = torch.unique_consecutive(portion, return_counts=True)[1].tolist()
    begin = 0
    for size in sizes:
        yield states[torch.arange(begin, begin + size, device=portion.device)]
        begin += size


def selected(names: Vocabulary, goals: Tensor) -> Tensor:
    """Return the states with their first goal that has a constant moved to the front: int64 [*, A, 3] -> [*, A, 3].

    Facts that match it are found by its constant, where one that is open at both sides matches all facts of its predicate. Any
    choice of a goal finds the same answers. Source: Lloyd 1987, "Foundations of logic programming", theorem 9.2.

    >>> from ...core.logic.borders import borders
    >>> selected(borders()[0].names, torch.tensor([[1, 7, 8], [2, 8, 2], [5, 7, 2]]))  # 5 is a mark
    tensor([[2, 8, 2],
            [1, 7, 8],
            [5, 7, 2]])
    """
    place = torch.arange(goals.shape[-2], device=goals.device)
    real = (goals[..., 0] != PADDING) & (goals[..., 0] <= len(names.predicates))
    some = (real & ~is_variable(names, goals[..., 1:]).all(-1)).to(torch.int64)
    chosen = some.argmax(-1)[..., None]  # 0 where there is none
    index = torch.where(place == 0, chosen, torch.where(place <= chosen, place - 1, place))
    return goals.gather(-2, index[..., None].expand(goals.shape))


def ranges(first: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Return first[0], first[0] + 1, ..., count[0] numbers, then likewise from first[1], ...; and the range of each one.

    >>> ranges(torch.tensor([5, 9]), torch.tensor([2, 1]))
    (tensor([5, 6, 9]), tensor([0, 0, 1]))
    """
    row = torch.arange(count.shape[0], device=count.device).repeat_interleave(count)
    shift = first - (count.cumsum(0) - count)
    return shift[row] + torch.arange(row.shape[0], device=count.device), row


def successors(
    names: Vocabulary,
    base: Knowledge,
    log_weights: Tensor,
    states: States,
    excluded: Tensor,
    bounds: SearchLimits,
) -> tuple[States, Tensor]:
    """Return the successors of the states by all facts and rules, and the index of each one's state, sorted by it."""
    start, facts, exchanged, first, rules = _counts(names, base, states, bounds)
    place, by_fact = ranges(start, facts)
    fact = torch.where(exchanged[by_fact], base.second_facts[place], place)
    rule, by_rule = ranges(first, rules)
    goal, rest = states.goals[:, 0], states.goals[:, 1:]

    atoms = base.facts[fact]
    found = unify(names, goal[by_fact], atoms)
    exists = found.exists & (atoms != excluded[states.owner[by_fact]]).any(-1)
    width = base.bodies.shape[-2] + rest.shape[-2]
    one = F.pad(substitute(found, rest[by_fact]), (0, 0, 0, width - rest.shape[-2]))

    apart = 2 * states.goals.shape[-2]
    head, body = (_apart(names, part[rule], apart) for part in (base.heads, base.bodies))
    bound = unify(names, goal[by_rule], head)
    other = substitute(bound, torch.cat([body, rest[by_rule]], -2))

    exists = torch.cat([exists, bound.exists & (log_weights[rule] > -torch.inf)])
    goals, row, origin = (
        torch.cat(pair)[exists] for pair in ((one, other), (by_fact, by_rule), (fact, rule + base.facts.shape[0] - 1))
    )
    order = torch.sort(row, stable=True).indices
    return _moved(names, base, log_weights, states, goals[order], row[order], origin[order], excluded)


def _apart(names: Vocabulary, atoms: Tensor, variables: int) -> Tensor:
    """Return a rule's atoms with variables renamed apart from those of the states."""
    terms = atoms[..., 1:]
    return torch.cat([atoms[..., :1], torch.where(is_variable(names, terms), terms + variables, terms)], -1)


def _moved(
    names: Vocabulary,
    base: Knowledge,
    log_weights: Tensor,
    states: States,
    goals: Tensor,
    row: Tensor,
    origin: Tensor,
    excluded: Tensor,
) -> tuple[States, Tensor]:
    """Return the states after their moves, without known goals and without states that occurred before; and their rows."""
    owner, rule = states.owner[row], origin - (base.facts.shape[0] - 1)
    known = is_fact(names, base, goals, excluded[owner][:, None])
    kept, _ = front((goals[..., 0] != PADDING) & ~known, goals, slots=states.goals.shape[-2])
    kept = canonical(names, selected(names, kept))
    before = states.moves[row]
    here = torch.arange(before.shape[-1], device=row.device) == (before != UNUSED).sum(-1)[:, None]
    seen = torch.where(here, state_hash(names, states.goals)[row][:, None], states.seen[row])
    again = (seen == state_hash(names, kept)[:, None]).any(-1)
    by_rule = rule >= 0
    after = States(
        goals=kept,
        owner=owner,
        log_weight=states.log_weight[row] + torch.where(by_rule, log_weights[rule.clamp_min(0)], 0.0),
        log_prob=states.log_prob[row],
        applied=states.applied[row] + by_rule.to(torch.int64),
        trace=extended_hash(states.trace[row], rule.clamp_min(-1) + 1),
        moves=torch.where(here, origin[:, None].to(torch.int32), before),
        seen=seen,
        groundings=states.groundings[row],
    )
    return after[~again], row[~again]
