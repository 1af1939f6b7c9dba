"""Rule mining from facts: every path of one or two steps is counted as the body of a rule for every relation.

p(X, Y) <- q(X, Y) or q(Y, X), and p(X, Z) <- q(X, Y), r(Y, Z) with each atom of the body either way around. A body begins at X,
so that with X known the first atom has one open place. For a rule with head p(X, Z),
  body       = the pairs (x, z) for which some y makes the body true,
  support    = those of them for which p(x, z) is a fact,
  confidence = support / body,
as Galarraga et al. 2013 (AMIE) define them. Facts q(x, x) serve in no body: with them p(X, Y) <- p(Y, X) would be its own
evidence. The best rules are those with the largest support / (body + 5), after Meilicke et al. 2019 (AnyBURL): among many
thousands some are right two times out of two by chance. (In `nations` the ten rules of a relation that are best by confidence
alone prove 4 % of the test facts in one step, these 62 %.)
"""

import itertools
from collections.abc import Iterator, Sequence

import torch
from attrs import frozen
from torch import Tensor

from ...core.errors import ChoiceError, message
from ...core.logic.rules import Rule
from ...core.logic.terms import Names, Vocabulary, encode, vocabulary

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


def mine(
    facts: Sequence[Names],
    *,
    min_support: int = 2,
    min_confidence: float = 0.1,
    most_per_predicate: int = 10,
    smoothing: float = 5.0,
) -> tuple[Mined, ...]:
    """Return the path rules of at least this support and confidence, at most `most_per_predicate` for each relation.

    They are sorted by the relation of their heads, then the best first: by support / (body + `smoothing`), among equals the one
    with more support, then the shorter, then in a fixed order of their bodies. Raises: ChoiceError.

    >>> facts = [("child", "b", "a"), ("child", "c", "a"), ("parent", "a", "b"), ("parent", "a", "c"), ("parent", "c", "d")]
    >>> for found in mine(facts):
    ...     print(found.rule, found.support, round(found.confidence, 2))
    child(X, Y) :- parent(Y, X) 2 0.67
    parent(X, Y) :- child(Y, X) 2 1.0
    """
    for name, got, low, high in (
        ("min_support", min_support, 1, float("inf")),
        ("min_confidence", min_confidence, 0, 1),
        ("most_per_predicate", most_per_predicate, 1, float("inf")),
        ("smoothing", smoothing, 0, float("inf")),
    ):
        if not low <= got <= high:
            wanted = f"a number from {low} to {high}" if high == 1 else f"{low} or more"
            raise ChoiceError(message(f"mine: {name}", got=got, wanted=wanted, remedy="pass such a number"))
    if not facts:
        return ()
    names = vocabulary({fact[0] for fact in facts}, {word for fact in facts for word in fact[1:]}, variables=0)
    graph = _graph(names, encode(names, facts) - 1)
    found = torch.cat([_frequent(*counts, min_support, min_confidence) for counts in _counted(graph)])
    return tuple(_mined(names, row, smoothing) for row in _best(found, most_per_predicate, smoothing).tolist())


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


def _counted(graph: _Graph) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield, for every first step of two, and -1 for none, the counts of `_tally` by the last step."""
    alone, both = _tally(graph, graph.step, graph.start, graph.end)
    tautologies = torch.eye(2 * graph.relations, graph.relations, dtype=torch.bool)
    yield -1, alone, both.masked_fill(tautologies, 0)
    for step in range(2 * graph.relations):
        alone, both = torch.zeros_like(alone), torch.zeros_like(both)
        for paths in _paths(graph, step):
            tally = _tally(graph, *paths)
            alone, both = alone + tally[0], both + tally[1]
        yield step, alone, both


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


def _frequent(first: int, alone: Tensor, both: Tensor, min_support: int, min_confidence: float) -> Tensor:
    """Return rows (head, first step, last step, support, body) of the rules above both thresholds."""
    body = alone[:, None].expand_as(both)
    kept = (both >= min_support) & (both.double() / body >= min_confidence)
    last, head = kept.nonzero(as_tuple=True)
    return torch.stack([head, torch.full_like(head, first), last, both[kept], body[kept]], -1)


def _best(found: Tensor, most: int, smoothing: float) -> Tensor:
    """Return the rows by head and then the best first, at most `most` of each head."""
    found = found[torch.sort(found[:, 3], descending=True, stable=True).indices]
    score = found[:, 3].double() / (found[:, 4] + smoothing)
    found = found[torch.sort(score, descending=True, stable=True).indices]
    found = found[torch.sort(found[:, 0], stable=True).indices]
    head = found[:, 0].contiguous()
    return found[torch.arange(len(found)) - torch.searchsorted(head, head) < most]


def _mined(names: Vocabulary, row: Sequence[int], smoothing: float) -> Mined:
    head, first, last, support, body = row
    end = "Y" if first < 0 else "Z"
    steps = [(last, "X", "Y")] if first < 0 else [(first, "X", "Y"), (last, "Y", "Z")]
    relations = len(names.predicates)
    atoms = tuple(
        (names.predicates[step], here, there) if step < relations else (names.predicates[step - relations], there, here)
        for step, here, there in steps
    )
    rule = Rule((names.predicates[head], "X", end), atoms, support / (body + smoothing))
    return Mined(rule, support, support / body)
