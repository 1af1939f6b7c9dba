"""Examples for learning the weights of rules: the proofs of facts and of their negatives."""

import torch
from torch import Tensor

from ...algorithms.logic.rule_weights import WeighedProofs
from ...core.logic.corrupt import HEAD, TAIL
from .link_ranking import allowed
from .proof_scores import ProofSearcher
from .proofs import Proofs
from .search import ProofsFound

CHUNK = 512  # facts whose proofs are searched for at once


def weighed_proofs(made: Proofs, own: ProofSearcher, facts: Tensor) -> WeighedProofs:
    """Return the proofs of train facts, asked for by either argument, and of their negatives: int64 [F, 3].

    A fact is none for its own proof. Negatives are the constants that make no atom known to be true, as in a ranking.

    >>> from .family import family
    >>> from .proofs import proofs
    >>> from .proof_scores import prover
    >>> from .search import SearchLimits
    >>> made = proofs(family(10), max_depth=5)
    >>> own = prover(made, torch.full((len(made.dataset.rules),), 0.5, dtype=torch.float64), SearchLimits(rules=1))
    >>> weighed_proofs(made, own, made.world.queries[:3]).query_of.shape  # three facts, two arguments
    torch.Size([6])
    """
    positive = [own.proofs(facts[at : at + CHUNK], facts[at : at + CHUNK]) for at in range(0, len(facts), CHUNK)]
    many = own.weights.shape[0]
    true_rules = [_padded(part, many) for part in positive]
    true_owner = torch.cat([part.owner + number * CHUNK for number, part in enumerate(positive)])
    rules, candidate, negative_of, query_of, unproven = list[Tensor](), list[Tensor](), list[Tensor](), [], []
    queries = negatives = 0
    for side in (HEAD, TAIL):
        fixed = torch.stack([facts[:, 0], facts[:, 2 - side]], -1)
        distinct, query = torch.unique(fixed, dim=0, return_inverse=True)
        first = torch.full((len(distinct),), len(facts), dtype=torch.int64)
        first = first.scatter_reduce(0, query, torch.arange(len(facts)), "amin")
        counts = torch.zeros(len(distinct), dtype=torch.float64)
        for at in range(0, len(distinct), CHUNK):
            asked = facts[first[at : at + CHUNK]]
            found, search_of = own.open_proofs(asked, side)
            back = torch.empty_like(search_of).scatter(0, search_of, torch.arange(len(search_of)))
            free = allowed(made, asked, side)
            owner, constant = back[found.owner], found.answer[:, side]
            kept = free[owner, constant]
            width = len(own.names.constants) + 1
            each, of = torch.unique(owner[kept] * width + constant[kept], return_inverse=True)
            rules.append(_padded(found, many)[kept])
            candidate.append(of + negatives)
            negative_of.append(each // width + at + queries)
            proven = torch.bincount(each // width, minlength=len(asked))
            counts[at : at + len(asked)] = (free.sum(-1) - proven).to(torch.float64)
            negatives += len(each)
        query_of.append(query + queries)
        unproven.append(counts[query])
        queries += len(distinct)
    total = 2 * len(facts)
    widest = max([part.shape[-1] for part in (*rules, *true_rules)])
    joined = [torch.nn.functional.pad(part, (0, widest - part.shape[-1]), value=many) for part in (*true_rules, *rules)]
    once = torch.cat(joined[: len(true_rules)])
    return WeighedProofs(
        rules=torch.cat([once, once, *joined[len(true_rules) :]]),
        candidate=torch.cat([true_owner, true_owner + len(facts), *(part + total for part in candidate)]),
        negative_of=torch.cat(negative_of),
        query_of=torch.cat(query_of),
        unproven=torch.cat(unproven),
    )


def _padded(found: ProofsFound, many: int) -> Tensor:
    rules = found.rules()
    return torch.where(rules < 0, many, rules)
