"""Rankings of a knowledge graph, and terms of logic."""

import numpy as np
import torch


def mean_reciprocal_rank(ranks):
    """Of ranks from 1."""
    return float(np.mean(1.0 / np.asarray(ranks, dtype=np.float64)))


def hits_at_k(ranks, k=10):
    """The share of ranks up to k."""
    return float(np.mean(np.asarray(ranks) <= k))


def filtered_rank(scores, target, known):
    """The rank of an entity among those that are not known answers; ties share."""
    scores = np.array(scores, dtype=np.float64)
    own = scores[target]
    scores[[i for i in known if i != target]] = -np.inf
    above, equal = int((scores > own).sum()), int((scores == own).sum())
    return above + (equal + 1) / 2


def unify(x, y, bindings=None):
    """Most general unifier of two terms: variables are texts with a capital, compounds are tuples; None if there is none."""
    bindings = {} if bindings is None else bindings

    def walk(term):
        while isinstance(term, str) and term in bindings:
            term = bindings[term]
        return term

    def occurs(name, term):
        term = walk(term)
        return term == name or (isinstance(term, tuple) and any(occurs(name, part) for part in term))

    x, y = walk(x), walk(y)
    if x == y:
        return bindings
    for one, other in ((x, y), (y, x)):
        if isinstance(one, str) and one[:1].isupper():
            return None if occurs(one, other) else {**bindings, one: other}
    if isinstance(x, tuple) and isinstance(y, tuple) and len(x) == len(y):
        for a, b in zip(x, y, strict=True):
            bindings = unify(a, b, bindings)
            if bindings is None:
                return None
        return bindings
    return None


def substitute(term, bindings):
    """A term with its variables replaced, all the way down."""
    if isinstance(term, tuple):
        return tuple(substitute(part, bindings) for part in term)
    return substitute(bindings[term], bindings) if term in bindings else term


def distmult_score(head, relation, tail):
    """The product of three, summed."""
    return (head * relation * tail).sum(-1)


class TransE(torch.nn.Module):
    """Scores by a distance."""

    def __init__(self, entities, relations, dim=8):
        super().__init__()
        self.e, self.r = torch.nn.Embedding(entities, dim), torch.nn.Embedding(relations, dim)

    def forward(self, h, r, t):
        """Negative distances."""
        return -(self.e(h) + self.r(r) - self.e(t)).norm(p=1, dim=-1)
