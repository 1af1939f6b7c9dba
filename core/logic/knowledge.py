"""A knowledge base as tensors: facts in the order of their packed numbers, rules in the order of their heads' predicates."""

import torch
from torch import Tensor

from ..errors import ShapeError, message
from ..record import record, tensor
from .terms import PADDING, Vocabulary, pack

LARGEST = (1 << 63) - 1  # no atom's number: see `vocabulary`


@record
class Knowledge:
    """Facts, and rules head <- body whose variables are counted from the first of the vocabulary."""

    facts: Tensor = tensor("* F 3", "int")  # sorted, each once
    keys: Tensor = tensor("* K", "int")  # the facts' packed numbers, and one beyond all of them
    fact_start: Tensor = tensor("* P", "int")  # facts of predicate p are fact_start[p] .. fact_start[p + 1] - 1
    heads: Tensor = tensor("* R 3", "int")
    bodies: Tensor = tensor("* R M 3", "int")  # padded at the end
    rule_start: Tensor = tensor("* P", "int")  # likewise


def knowledge(names: Vocabulary, facts: Tensor, heads: Tensor, bodies: Tensor) -> Knowledge:
    """The knowledge base of int64 facts [F, 3] and rules heads [R, 3] <- bodies [R, M, 3].

    Facts that come twice are kept once; rules keep their order within a predicate. `encode` and `encode_rules` make these of
    names and refuse what is no fact or rule. Raises: ShapeError.

    >>> from .terms import vocabulary
    >>> names = vocabulary(["p"], ["a", "b"], variables=2)
    >>> base = knowledge(names, torch.tensor([[1, 2, 1], [1, 1, 2], [1, 2, 1]]),
    ...                  torch.tensor([[1, 3, 4]]), torch.tensor([[[1, 4, 3]]]))  # p(X, Y) <- p(Y, X)
    >>> base.facts.tolist(), base.fact_start.tolist()
    ([[1, 1, 2], [1, 2, 1]], [0, 0, 2])
    """
    if heads.shape[0] != bodies.shape[0] or bodies.ndim != 3:
        remedy = "pass one row of body atoms for each head"
        raise ShapeError(
            message("knowledge: bodies", got=list(bodies.shape), wanted=f"[{len(heads)}, M, 3]", remedy=remedy)
        )
    keys, positions = torch.unique(pack(names, facts), return_inverse=True)
    ordered = facts.new_zeros((len(keys), 3)).index_copy(0, positions, facts)
    order = torch.sort(heads[:, 0], stable=True).indices
    return Knowledge(
        facts=ordered,
        keys=torch.cat([keys, keys.new_full((1,), LARGEST)]),
        fact_start=_starts(names, ordered[:, 0]),
        heads=heads[order],
        bodies=bodies[order],
        rule_start=_starts(names, heads[order, 0]),
    )


def _starts(names: Vocabulary, predicates: Tensor) -> Tensor:
    """Where each predicate's rows begin in a sorted column, from padding's to where those of the last predicate end."""
    return torch.searchsorted(
        predicates.contiguous(), torch.arange(len(names.predicates) + 2, device=predicates.device)
    )


def contains(names: Vocabulary, base: Knowledge, atoms: Tensor, excluded: Tensor | None = None) -> Tensor:
    """Whether an atom is a known fact: int64 [*, 3] -> bool [*]; one that equals `excluded` [*, 3] is not known.

    >>> from .terms import vocabulary
    >>> names, none = vocabulary(["p"], ["a"], variables=1), torch.zeros(0, 3, dtype=torch.int64)
    >>> base = knowledge(names, torch.tensor([[1, 1, 1]]), none, none[:, None])
    >>> contains(names, base, torch.tensor([[1, 1, 1], [1, 1, 2], [0, 0, 0]]))
    tensor([ True, False, False])
    """
    wanted = pack(names, atoms).contiguous()
    known = (base.keys[torch.searchsorted(base.keys, wanted)] == wanted) & (atoms[..., 0] != PADDING)
    return known if excluded is None else known & (atoms != excluded).any(-1)


def rows_of(starts: Tensor, predicate: Tensor) -> tuple[Tensor, Tensor]:
    """Where a predicate's facts or rules begin and how many there are: int64 [*] -> [*], [*]. Marks and padding have none.

    >>> rows_of(torch.tensor([0, 0, 3, 4]), torch.tensor([1, 2, 5]))
    (tensor([0, 3, 0]), tensor([3, 1, 0]))
    """
    named = (predicate != PADDING) & (predicate < starts.shape[0] - 1)
    place = torch.where(named, predicate, 0)
    return torch.where(named, starts[place], 0), torch.where(named, starts[place + 1] - starts[place], 0)
