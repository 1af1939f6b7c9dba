"""A knowledge base as tensors: facts in the order of their packed numbers, rules in the order of their heads' predicates."""

import torch
from torch import Tensor

from ..errors import ShapeError, message
from ..record import record, tensor
from .terms import PADDING, Vocabulary, is_variable, pack_atoms

LARGEST = (1 << 63) - 1  # above the number of any atom: see `vocabulary`


@record
class Knowledge:
    """Facts, and rules head <- body with variables numbered from the vocabulary's first one.

    The last fact and the last rule are followed by a row of padding, which represents no fact or rule.
    """

    facts: Tensor = tensor("* F 3", "int")  # sorted, each once
    keys: Tensor = tensor("* F", "int")  # their packed numbers, and a larger one
    second_keys: Tensor = tensor("* F", "int")  # the same with the arguments exchanged, sorted
    second_facts: Tensor = tensor("* F", "int")  # the indices of those facts
    heads: Tensor = tensor("* R 3", "int")
    bodies: Tensor = tensor("* R M 3", "int")  # padded at the end
    rule_start: Tensor = tensor("* P", "int")  # rules of predicate p are rule_start[p] .. rule_start[p + 1] - 1


def knowledge(names: Vocabulary, facts: Tensor, heads: Tensor, bodies: Tensor) -> Knowledge:
    """Return the knowledge base of int64 facts [F, 3] and rules heads [R, 3] <- bodies [R, M, 3].

    Duplicate facts are removed; rules keep their order within a predicate. `encode` and `encode_rules` produce these tensors
    from names and refuse invalid facts and rules. Raises: ShapeError.

    >>> from .terms import vocabulary
    >>> names = vocabulary(["p"], ["a", "b"], variables=2)
    >>> base = knowledge(names, torch.tensor([[1, 2, 1], [1, 1, 2], [1, 2, 1]]),
    ...                  torch.tensor([[1, 3, 4]]), torch.tensor([[[1, 4, 3]]]))  # p(X, Y) <- p(Y, X)
    >>> base.facts.tolist(), base.rule_start.tolist()
    ([[1, 1, 2], [1, 2, 1], [0, 0, 0]], [0, 0, 1])
    """
    if heads.shape[0] != bodies.shape[0] or bodies.ndim != 3:
        remedy = "pass one row of body atoms for each head"
        raise ShapeError(
            message("knowledge: bodies", got=list(bodies.shape), wanted=f"[{len(heads)}, M, 3]", remedy=remedy)
        )
    keys, positions = torch.unique(pack_atoms(names, facts), return_inverse=True)
    ordered = facts.new_zeros((len(keys), 3)).index_copy(0, positions, facts)
    second_keys, second_facts = torch.sort(pack_atoms(names, ordered[:, [0, 2, 1]]))
    order = torch.sort(heads[:, 0], stable=True).indices
    starts = torch.arange(len(names.predicates) + 2, device=heads.device)
    return Knowledge(
        facts=_and(ordered, PADDING),
        keys=_and(keys, LARGEST),
        second_keys=_and(second_keys, LARGEST),
        second_facts=_and(second_facts, len(keys)),
        heads=_and(heads[order], PADDING),
        bodies=_and(bodies[order], PADDING),
        rule_start=torch.searchsorted(heads[order, 0].contiguous(), starts),
    )


def _and(rows: Tensor, last: int) -> Tensor:
    """Return the rows with one more appended, filled with `last`."""
    return torch.cat([rows, rows.new_full((1, *rows.shape[1:]), last)])


def is_fact(names: Vocabulary, base: Knowledge, atoms: Tensor, excluded: Tensor | None = None) -> Tensor:
    """Return whether an atom is a known fact: int64 [*, 3] -> bool [*]; false if it equals `excluded` [*, 3].

    >>> from .terms import vocabulary
    >>> names, none = vocabulary(["p"], ["a"], variables=1), torch.zeros(0, 3, dtype=torch.int64)
    >>> base = knowledge(names, torch.tensor([[1, 1, 1]]), none, none[:, None])
    >>> is_fact(names, base, torch.tensor([[1, 1, 1], [1, 1, 2], [0, 0, 0]]))
    tensor([ True, False, False])
    """
    wanted = pack_atoms(names, atoms).contiguous()
    known = (base.keys[torch.searchsorted(base.keys, wanted)] == wanted) & (atoms[..., 0] != PADDING)
    return known if excluded is None else known & (atoms != excluded).any(-1)


def span(names: Vocabulary, base: Knowledge, goal: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the facts that match the goal's constants as a range: int64 [*, 3] -> start [*], end [*], exchanged bool [*].

    They are facts start .. end - 1, and where `exchanged`, `second_facts` of these numbers.

    >>> from .terms import vocabulary
    >>> names, none = vocabulary(["p"], ["a", "b"], variables=1), torch.zeros(0, 3, dtype=torch.int64)
    >>> base = knowledge(names, torch.tensor([[1, 1, 1], [1, 1, 2], [1, 2, 1]]), none, none[:, None])
    >>> span(names, base, torch.tensor([1, 3, 1]))  # p(X, a)
    (tensor(0), tensor(2), tensor(True))
    """
    predicate, first, second = goal.unbind(-1)
    free, other_free = is_variable(names, first), is_variable(names, second)
    exchanged = free & ~other_free
    leading, other = torch.where(exchanged, second, first), torch.where(exchanged, first, second)
    bound, all_bound = ~(free & other_free), ~(free | other_free)
    low = pack_atoms(
        names, torch.stack([predicate, torch.where(bound, leading, 0), torch.where(all_bound, other, 0)], -1)
    )
    high = low + torch.where(all_bound, 1, torch.where(bound, names.base, names.base**2))
    start, end = (
        torch.where(exchanged, torch.searchsorted(base.second_keys, at), torch.searchsorted(base.keys, at))
        for at in (low.contiguous(), high.contiguous())
    )
    return start, end, exchanged


def matching(names: Vocabulary, base: Knowledge, goal: Tensor, slots: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the facts that match the goal's constants: int64 [*, 3] -> numbers [*, K], mask of valid ones [*, K], and the
    number of further ones [*], for K = `slots`.

    They are found by binary search among the facts sorted by their first and by their second argument, and are in that order.
    For a goal with the same variable twice they are all facts of its predicate.

    >>> from .terms import vocabulary
    >>> names, none = vocabulary(["p"], ["a", "b"], variables=1), torch.zeros(0, 3, dtype=torch.int64)
    >>> base = knowledge(names, torch.tensor([[1, 1, 1], [1, 1, 2], [1, 2, 1]]), none, none[:, None])
    >>> matching(names, base, torch.tensor([1, 3, 1]), 3)  # p(X, a)
    (tensor([0, 2, 3]), tensor([ True,  True, False]), tensor(0))
    """
    start, end, exchanged = span(names, base, goal)
    places = start[..., None] + torch.arange(slots, device=goal.device)
    among = places < end[..., None]
    places = torch.where(among, places, base.keys.shape[0] - 1)
    numbers = torch.where(exchanged[..., None], base.second_facts[places], places)
    return numbers, among, (end - start - slots).clamp_min(0)


def rules_of_predicate(starts: Tensor, predicate: Tensor) -> tuple[Tensor, Tensor]:
    """Return the start and the number of a predicate's rules: int64 [*] -> [*], [*]. Marks and padding have none.

    >>> rules_of_predicate(torch.tensor([0, 0, 3, 4]), torch.tensor([1, 2, 5]))
    (tensor([0, 3, 0]), tensor([3, 1, 0]))
    """
    named = (predicate != PADDING) & (predicate < starts.shape[0] - 1)
    # With an axis: a 0-d index would be read as a Python number, which a compiled graph cannot do.
    place = torch.where(named, predicate, 0)[..., None]
    start, end = starts[place][..., 0], starts[place + 1][..., 0]
    return torch.where(named, start, 0), torch.where(named, end - start, 0)
