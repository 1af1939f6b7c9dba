"""Rule mining from facts: every path of one, two or three steps is counted as the body of a rule for every relation.

p(X, Y) <- q(X, Y) or q(Y, X), and p(X, Z) <- q(X, Y), r(Y, Z) with each atom of the body either way around, and so on. A body
begins at X, so that with X known the first atom has one open place. For a rule with head p(X, Z),
  body       = the pairs (x, z) for which some y makes the body true,
  support    = those of them for which p(x, z) is a fact,
  confidence = support / body,
as Galarraga et al. 2013 (AMIE) define them. Facts q(x, x) serve in no body: with them p(X, Y) <- p(Y, X) would be its own
evidence, and for the same reason paths of three steps visit no constant twice. Bodies of three steps are counted in random
order, until a time limit. The best rules are those with the largest support / (body + 5), after Meilicke et al. 2019
(AnyBURL): among many thousands some are right two times out of two by chance. (In `nations` the ten rules of a relation that
are best by confidence alone prove 4 % of the test facts in one step, these 62 %.)
"""

import itertools
from collections.abc import Callable, Iterator, Sequence

import torch
from attrs import frozen
from torch import Tensor

from ...core import keys
from ...core.errors import ChoiceError, message
from ...core.logic.rules import Rule
from ...core.logic.terms import Names, Vocabulary, atom_numbers, vocabulary

TOGETHER = 1 << 22  # paths counted at once, which bounds the memory


@frozen
class Mined:
    """A rule, with its support and confidence on the facts it was mined from; the rule's own confidence is smoothed."""

    rule: Rule  # its confidence is support / (body + smoothing)
    support: int  # number of pairs for which body and head are true
    confidence: float  # support / number of pairs for which the body is true


@frozen
class _Graph:
    """P relations on n constants. A step s goes along relation s, or for s >= P against relation s - P."""

    relations: int
    constants: int
    start: Tensor  # [E] edges sorted by their start, every fact as two of them
    step: Tensor  # [E]
    end: Tensor  # [E]
    first: Tensor  # [n + 1] index of the first edge of each start
    pairs: Tensor  # [F] start * n + end of every fact, sorted
    heads: Tensor  # [F] its relation


def mine_rules(
    facts: Sequence[Names],
    *,
    min_support: int = 2,
    min_confidence: float = 0.1,
    most_per_predicate: int = 10,
    smoothing: float = 5.0,
    length: int = 2,
    going: Callable[[], bool] = lambda: True,
) -> tuple[Mined, ...]:
    """Return the path rules of at least this support and confidence, at most `most_per_predicate` for each relation.

    They are sorted by the relation of their heads, then the best first: by support / (body + `smoothing`), among equals the one
    with more support, then the shorter, then in a fixed order of their bodies. `length` bounds the atoms of a body, and further
    bodies of three atoms are counted only while `going()`. Raises: ChoiceError.

    >>> facts = [("child", "b", "a"), ("child", "c", "a"), ("parent", "a", "b"), ("parent", "a", "c"), ("parent", "c", "d")]
    >>> for found in mine_rules(facts):
    ...     print(found.rule, found.support, round(found.confidence, 2))
    child(X, Y) :- parent(Y, X) 2 0.67
    parent(X, Y) :- child(Y, X) 2 1.0
    """
    for name, got, low, high in (
        ("min_support", min_support, 1, float("inf")),
        ("min_confidence", min_confidence, 0, 1),
        ("most_per_predicate", most_per_predicate, 1, float("inf")),
        ("smoothing", smoothing, 0, float("inf")),
        ("length", length, 1, 3),
    ):
        if not low <= got <= high:
            wanted = f"a number from {low} to {high}" if high < float("inf") else f"{low} or more"
            raise ChoiceError(message(f"mine: {name}", got=got, wanted=wanted, remedy="pass such a number"))
    if not facts:
        return ()
    names = vocabulary({fact[0] for fact in facts}, {word for fact in facts for word in fact[1:]}, variables=0)
    graph = _graph(names, atom_numbers(names, facts) - 1)
    thresholds = (min_support, min_confidence)
    rows = [_frequent(*counts, *thresholds) for counts in _counted(graph, length)]
    if length > 2:
        rows += [_frequent(*counts, *thresholds) for counts in _of_three(graph, going)]
    best = _best(torch.cat(rows), most_per_predicate, smoothing)
    return tuple(_mined(names, row, smoothing) for row in best.tolist())


def _graph(names: Vocabulary, facts: Tensor) -> _Graph:
    relations, constants = len(names.predicates), len(names.constants)
    relation, first, second = torch.unique(facts, dim=0).unbind(-1)
    apart = first != second
    start = torch.cat([first[apart], second[apart]])
    order = torch.sort(start, stable=True).indices
    pairs, places = torch.sort(first * constants + second)
    return _Graph(
        relations=relations,
        constants=constants,
        start=start[order],
        step=torch.cat([relation[apart], relation[apart] + relations])[order],
        end=torch.cat([second[apart], first[apart]])[order],
        first=torch.searchsorted(start[order], torch.arange(constants + 1)),
        pairs=pairs,
        heads=relation[places],
    )


def _counted(graph: _Graph, length: int) -> Iterator[tuple[tuple[int, ...], Tensor, Tensor]]:
    """Yield, for every first step of two, and () for none, the counts of `_tally` by the last step."""
    alone, both = _tally(graph, graph.step, graph.start, graph.end)
    tautologies = torch.eye(2 * graph.relations, graph.relations, dtype=torch.bool)
    yield (), alone, both.masked_fill(tautologies, 0)
    for step in range(2 * graph.relations if length > 1 else 0):
        alone, both = torch.zeros_like(alone), torch.zeros_like(both)
        for paths in _paths(graph, step):
            tally = _tally(graph, *paths)
            alone, both = alone + tally[0], both + tally[1]
        yield (step,), alone, both


def _of_three(graph: _Graph, going: Callable[[], bool]) -> Iterator[tuple[tuple[int, ...], Tensor, Tensor]]:
    """Yield the same for first and second steps of three, in random order, while `going()`; paths visit no constant twice."""
    pairs = (2 * graph.relations) ** 2
    for pair in keys.permutation(keys.key(0), pairs).tolist():
        if not going():
            return
        first, second = divmod(pair, 2 * graph.relations)
        one, two = graph.step == first, graph.step == second
        start, middle = graph.start[one], graph.end[one]
        own, other = graph.start[two].contiguous(), graph.end[two]
        low, high = torch.searchsorted(own, middle), torch.searchsorted(own, middle, right=True)
        edge = _ranges(low, high - low)
        x, y, w = start.repeat_interleave(high - low), middle.repeat_interleave(high - low), other[edge]
        apart = x != w
        x, y, w = x[apart], y[apart], w[apart]
        many = graph.first[w + 1] - graph.first[w]
        alone = torch.zeros(2 * graph.relations, dtype=torch.int64)
        both = torch.zeros(2 * graph.relations, graph.relations, dtype=torch.int64)
        portion = many.cumsum(0) // TOGETHER
        # A pair of first and last constants must fall into one portion: all paths of a start are counted together.
        portion = portion[torch.searchsorted(x, x)] if len(x) else portion
        for number in torch.unique(portion).tolist():
            taken = portion == number
            edge = _ranges(graph.first[w[taken]], many[taken])
            begin, before = (part[taken].repeat_interleave(many[taken]) for part in (x, y))
            last = graph.end[edge]
            simple = (last != before) & (last != begin)
            tally = _tally(graph, graph.step[edge][simple], begin[simple], last[simple])
            alone, both = alone + tally[0], both + tally[1]
        yield (first, second), alone, both


def _paths(graph: _Graph, step: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield last step, start and end of all paths that begin with this step, in portions that share no start."""
    taken = graph.step == step
    start, middle = graph.start[taken], graph.end[taken]
    count = graph.first[middle + 1] - graph.first[middle]
    before = count.cumsum(0) - count
    portion = before[torch.searchsorted(start, start)] // TOGETHER
    sizes = torch.unique_consecutive(portion, return_counts=True)[1].tolist()
    bounds = itertools.pairwise([0, *itertools.accumulate(sizes)])
    for x, y, many in ((start[a:b], middle[a:b], count[a:b]) for a, b in bounds):
        edge = _ranges(graph.first[y], many)
        yield graph.step[edge], x.repeat_interleave(many), graph.end[edge]


def _tally(graph: _Graph, step: Tensor, start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Count the distinct pairs (start, end) by step: all of them [2 P], and those that are facts of each relation [2 P, P]."""
    found = torch.unique((step * graph.constants + start) * graph.constants + end)
    step, pair = found // graph.constants**2, found % graph.constants**2
    low, high = torch.searchsorted(graph.pairs, pair), torch.searchsorted(graph.pairs, pair, right=True)
    fact = _ranges(low, high - low)
    rule = step.repeat_interleave(high - low) * graph.relations + graph.heads[fact]
    both = torch.bincount(rule, minlength=2 * graph.relations**2)
    return torch.bincount(step, minlength=2 * graph.relations), both.reshape(-1, graph.relations)


def _ranges(first: Tensor, count: Tensor) -> Tensor:
    """Return first[0], first[0] + 1, ..., count[0] numbers, then likewise from first[1], ..."""
    shift = first - (count.cumsum(0) - count)
    return shift.repeat_interleave(count) + torch.arange(int(count.sum()))


def _frequent(before: tuple[int, ...], alone: Tensor, both: Tensor, min_support: int, min_confidence: float) -> Tensor:
    """Return rows (head, support, body, first, second, third step) of the rules above both thresholds, -1 for no step."""
    body = alone[:, None].expand_as(both)
    kept = (both >= min_support) & (both.double() / body >= min_confidence)
    last, head = kept.nonzero(as_tuple=True)
    # In the order of their bodies: the shorter before the longer, as -1 comes first.
    steps = [torch.full_like(head, step) for step in (*[-1] * (2 - len(before)), *before)]
    return torch.stack([head, both[kept], body[kept], *steps, last], -1)


def _best(found: Tensor, most: int, smoothing: float) -> Tensor:
    """Return the rows by head and then the best first, at most `most` of each head."""
    found = found[torch.sort(found[:, 1], descending=True, stable=True).indices]
    score = found[:, 1].double() / (found[:, 2] + smoothing)
    found = found[torch.sort(score, descending=True, stable=True).indices]
    found = found[torch.sort(found[:, 0], stable=True).indices]
    head = found[:, 0].contiguous()
    return found[torch.arange(len(found)) - torch.searchsorted(head, head) < most]


def _mined(names: Vocabulary, row: Sequence[int], smoothing: float) -> Mined:
    head, support, body, *path = row
    steps = [step for step in path if step >= 0]
    relations, variables = len(names.predicates), "XYZW"
    atoms = list[Names]()
    for place, step in enumerate(steps):
        here, there = variables[place], variables[place + 1]
        forth = step < relations
        name = names.predicates[step if forth else step - relations]
        atoms.append((name, here, there) if forth else (name, there, here))
    rule = Rule((names.predicates[head], "X", variables[len(steps)]), tuple(atoms), support / (body + smoothing))
    return Mined(rule, support, support / body)
