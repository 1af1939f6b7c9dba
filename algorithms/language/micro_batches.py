"""Micro-batches: a split of sequences into batches of at most a budget of tokens each.

Plain Python on lengths, before any tensor is created. A micro-batch is padded to its longest sequence, so its cost is
longest x count. Losses of micro-batches add up to that of the whole when all are divided by the whole's denominator: see
`aggregate`. To avoid most padding, put several sequences into one row: see `packing`.
"""

from collections.abc import Sequence

from ...core.errors import ChoiceError, message

Batch = tuple[int, ...]  # indices of sequences


def micro_batches(lengths: Sequence[int], budget: int) -> tuple[Batch, ...]:
    """Return the indices of the sequences of each micro-batch, longest first, filled while longest x count <= budget.

    Every index occurs exactly once; sequences of equal length keep their order. The most expensive micro-batch comes first,
    so that it fails at once if it does not fit into memory.
    Raises: ChoiceError, for a sequence that is longer than the budget, with its index.

    >>> micro_batches([2, 5, 3, 1, 2], budget=6)
    ((1,), (2, 0), (4, 3))
    """
    _check("micro_batches", lengths, budget)
    found: list[list[int]] = []
    for place in longest_first(lengths):
        if found and lengths[found[-1][0]] * (len(found[-1]) + 1) <= budget:
            found[-1].append(place)
        else:
            found.append([place])
    return tuple(map(tuple, found))


def shards(lengths: Sequence[int], budget: int, *, ranks: int) -> tuple[tuple[Batch, ...], ...]:
    """Return the micro-batches of each rank: the same number for every rank, since ranks wait for each other.

    If the number of micro-batches is not a multiple of `ranks`, those with most sequences are halved; if none can be halved,
    some are empty: such a rank computes on a fully masked batch. The k-th micro-batches of all ranks are adjacent in the
    order of cost, and the rank with the most expensive one gets the cheapest one in the next round. Raises: ChoiceError.

    >>> shards([2, 5, 3, 1, 2], 6, ranks=2)
    (((1,), (0,)), ((4, 3), (2,)))
    """
    if ranks < 1:
        raise ChoiceError(message("shards: ranks", got=ranks, wanted="at least 1", remedy="pass the world's size"))
    batches = list(micro_batches(lengths, budget))
    while len(batches) % ranks:
        widest = max(range(len(batches)), key=lambda i: (len(batches[i]), -i))
        batch = batches[widest]
        half = (len(batch) + 1) // 2
        batches = [*batches[:widest], batch[:half], batch[half:], *batches[widest + 1 :]]
    rounds = sorted(batches, key=lambda batch: -padded_tokens(lengths, [batch]))
    dealt = [rounds[start : start + ranks] for start in range(0, len(rounds), ranks)]
    turned = [row if number % 2 == 0 else row[::-1] for number, row in enumerate(dealt)]
    return tuple(tuple(row[rank] for row in turned) for rank in range(ranks))


def padded_tokens(lengths: Sequence[int], batches: Sequence[Sequence[int]]) -> int:
    """Return the number of tokens in the batches, including padding: the sum of longest x count.

    >>> padded_tokens([2, 5, 3], [(1,), (2, 0)])
    11
    """
    return sum(len(batch) * max((lengths[place] for place in batch), default=0) for batch in batches)


def padding_waste(lengths: Sequence[int], batches: Sequence[Sequence[int]]) -> float:
    """Return the share of padding in the batches: 1 - tokens / padded tokens, and 0 for no tokens.

    >>> padding_waste([2, 5, 1], [(0, 1), (2,)]), padding_waste([2, 5, 1], [(1,), (0,), (2,)])
    (0.2727272727272727, 0.0)
    """
    cost = padded_tokens(lengths, batches)
    tokens = sum(lengths[place] for batch in batches for place in batch)
    return 1 - tokens / cost if cost else 0.0


def longest_first(lengths: Sequence[int]) -> list[int]:
    """Return the indices in order of decreasing length; sequences of equal length keep their order.

    >>> longest_first([1, 3, 2, 3])
    [1, 3, 2, 0]
    """
    return sorted(range(len(lengths)), key=lambda place: (-lengths[place], place))


def check_lengths(where: str, lengths: Sequence[int], limit: int, remedy: str) -> None:
    """Raise ChoiceError unless every length is from 0 to the limit.

    >>> check_lengths("f", [3, 9], 8, "raise the budget")
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: f: length of sequence 1 is 9, wanted from 0 to 8; raise the budget
    """
    for place, length in enumerate(lengths):
        if not 0 <= length <= limit:
            at = f"{where}: length of sequence {place}"
            raise ChoiceError(message(at, got=length, wanted=f"from 0 to {limit}", remedy=remedy))


def _check(where: str, lengths: Sequence[int], budget: int) -> None:
    if budget < 1:
        raise ChoiceError(
            message(f"{where}: budget", got=budget, wanted="at least 1", remedy="pass a number of tokens")
        )
    check_lengths(where, lengths, budget, "raise the budget, or cut the sequence first")
