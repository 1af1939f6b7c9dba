"""Programs with buffers that are written into: who reads what before and after, in one scan or several."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from purestep.core.scan import scan

Case = Callable[[Tensor], Any]
ROWS, TURNS, WRITTEN, MEMBERS = 48, 11, 4, 3


def slots(t: Tensor) -> Tensor:
    """Return the places of the rows that a turn writes."""
    return (t * 3 + torch.arange(WRITTEN)) % ROWS


def rows(t: Tensor) -> Tensor:
    """Return the rows that a turn writes."""
    return (t + torch.arange(WRITTEN)).float() * 1.25


TIMES = torch.arange(TURNS)


def ring(buffer: Tensor) -> Any:
    def step(b: Tensor, t: Tensor) -> Any:
        b = b.index_copy(0, slots(t), rows(t))
        return b, b[(t * 7 + torch.arange(3)) % ROWS].sum()

    return scan(step, buffer, TIMES)


def old_after(buffer: Tensor) -> Any:
    def step(b: Tensor, t: Tensor) -> Any:
        n = b.index_copy(0, slots(t), rows(t))
        return n, (b[slots(t)] + n[slots(t)]).sum()

    return scan(step, buffer, TIMES)


def y_new(buffer: Tensor) -> Any:
    def step(b: Tensor, t: Tensor) -> Any:
        n = b.index_copy(0, slots(t), rows(t))
        return n, n

    return scan(step, buffer, TIMES)


def y_old(buffer: Tensor) -> Any:
    def step(b: Tensor, t: Tensor) -> Any:
        n = b.index_copy(0, slots(t), rows(t))
        return n, b

    return scan(step, buffer, TIMES)


def y_view(buffer: Tensor) -> Any:
    def step(b: Tensor, t: Tensor) -> Any:
        n = b.index_copy(0, slots(t), rows(t))
        return n, n[3:9]

    return scan(step, buffer, TIMES)


def pair(buffer: Tensor) -> Any:
    def step(c: Any, t: Tensor) -> Any:
        n = c[0].index_copy(0, slots(t), rows(t))
        return (n, c[0]), ()

    return scan(step, (buffer, buffer * 2), TIMES)


def swap(buffer: Tensor) -> Any:
    def step(c: Any, t: Tensor) -> Any:
        a, b = c
        return (b.index_copy(0, slots(t), rows(t)), a.index_copy(0, slots(t + 1), -rows(t))), a[0] + b[0]

    return scan(step, (buffer, buffer * 2), TIMES)


def twice(buffer: Tensor) -> Any:
    def step(b: Tensor, t: Tensor) -> Any:
        b = b.index_copy(0, slots(t), rows(t))
        s = b[:5].sum()
        b = b.index_copy(0, slots(t + 5), -rows(t))
        return b, s + b[7]

    return scan(step, buffer, TIMES)


def overlap(buffer: Tensor) -> Any:
    def step(b: Tensor, t: Tensor) -> Any:
        i = slots(t)
        return b.index_copy(0, i, b[(i + 1) % ROWS] + 1), ()

    return scan(step, buffer, TIMES)


def overlap_flip(buffer: Tensor) -> Any:
    def step(b: Tensor, t: Tensor) -> Any:
        i = slots(t)
        return b.index_copy(0, i, b[i.flip(0)] * 1.5), ()

    return scan(step, buffer, TIMES)


def inner(buffer: Tensor) -> Any:
    def step(b: Tensor, t: Tensor) -> Any:
        def one(b: Tensor, k: Tensor) -> Any:
            b = b.index_copy(0, slots(t + k), rows(t * k))
            return b, b[k[None]][0]

        b, ys = scan(one, b, torch.arange(5))
        return b, ys.sum() + b[((t * 5) % ROWS)[None]][0]

    return scan(step, buffer, TIMES)


def inner_old(buffer: Tensor) -> Any:
    def step(b: Tensor, t: Tensor) -> Any:
        def one(b: Tensor, k: Tensor) -> Any:
            return b.index_copy(0, slots(t + k), rows(t * k)), b[k[None]][0]

        n, ys = scan(one, b, torch.arange(5))
        return n, ys.sum() + b[slots(t)].sum()

    return scan(step, buffer, TIMES)


def inner_two(buffer: Tensor) -> Any:
    def step(b: Tensor, t: Tensor) -> Any:
        def one(b: Tensor, k: Tensor) -> Any:
            return b.index_copy(0, slots(t + k), rows(t * k)), b[k[None]][0]

        b, y = scan(one, b, torch.arange(5))
        m = b[3]
        b, z = scan(one, b, torch.arange(3))
        return b, y.sum() + z.sum() + m

    return scan(step, buffer, TIMES)


def inner_then_write(buffer: Tensor) -> Any:
    def step(b: Tensor, t: Tensor) -> Any:
        def one(b: Tensor, k: Tensor) -> Any:
            return b.index_copy(0, slots(t + k), rows(t * k)), b[k[None]][0]

        b = b.index_copy(0, slots(t + 9), rows(t))
        b, y = scan(one, b, torch.arange(5))
        b = b.index_copy(0, slots(t + 11), rows(t))
        return b, y.sum()

    return scan(step, buffer, TIMES)


def three(buffer: Tensor) -> Any:
    def step(b: Tensor, t: Tensor) -> Any:
        def mid(b: Tensor, k: Tensor) -> Any:
            def one(b: Tensor, j: Tensor) -> Any:
                return b.index_copy(0, slots(t + k + j), rows(t * k)), b[j[None]][0]

            b, y = scan(one, b, torch.arange(3))
            return b, y.sum()

        b, y = scan(mid, b, torch.arange(4))
        return b, y.sum()

    return scan(step, buffer, TIMES)


def same_init(buffer: Tensor) -> Any:
    def step(c: Any, t: Tensor) -> Any:
        return (c[0].index_copy(0, slots(t), rows(t)), c[1].index_copy(0, slots(t), -rows(t))), ()

    return scan(step, (buffer, buffer), TIMES)


def init_after(buffer: Tensor) -> Any:
    n, y = ring(buffer)
    return n, y, buffer.sum(), buffer * 2


def made_inside(buffer: Tensor) -> Any:
    z = buffer * 2

    def step(b: Tensor, t: Tensor) -> Any:
        return b.index_copy(0, slots(t), rows(t)), b[0]

    return scan(step, z, TIMES), z.sum()


def bools(buffer: Tensor) -> Any:
    def step(b: Tensor, t: Tensor) -> Any:
        return b.index_copy(0, slots(t), rows(t) > 5), b[slots(t) - 1].sum()

    return scan(step, buffer > 0, TIMES)


def put(buffer: Tensor) -> Any:
    def step(b: Tensor, t: Tensor) -> Any:
        return torch.index_put(b, (slots(t),), rows(t)), b[0]

    return scan(step, buffer, TIMES)


def accumulate(buffer: Tensor) -> Any:
    def step(b: Tensor, t: Tensor) -> Any:
        return b.index_add(0, slots(t), rows(t)), b[0]

    return scan(step, buffer, TIMES)


def scatter(buffer: Tensor) -> Any:
    def step(b: Tensor, t: Tensor) -> Any:
        b = b.scatter(0, slots(t), rows(t))
        return b, b[0]

    return scan(step, buffer, TIMES)


def setitem(buffer: Tensor) -> Any:
    def step(b: Tensor, t: Tensor) -> Any:
        b = b.clone()
        b[slots(t)] = rows(t)
        return b, b[1]

    return scan(step, buffer, TIMES)


def masked(buffer: Tensor) -> Any:
    def step(b: Tensor, t: Tensor) -> Any:
        return torch.where(t % 2 == 0, b.index_copy(0, slots(t), rows(t)), b), b[0]

    return scan(step, buffer, TIMES)


def dropped(buffer: Tensor) -> Any:  # writes only when t even, by an index beyond
    def step(b: Tensor, t: Tensor) -> Any:
        i = slots(t)
        return b.index_copy(0, i, torch.where(t % 2 == 0, rows(t), b[i])), b[0]

    return scan(step, buffer, TIMES)


def matrix(buffer: Tensor) -> Any:
    b = buffer[:, None] * torch.ones(3)

    def step(b: Tensor, t: Tensor) -> Any:
        b = b.index_copy(0, slots(t), rows(t)[:, None] * torch.arange(3.0))
        return b, b[slots(t * 2)] @ torch.ones(3)

    return scan(step, b, TIMES)


def population(buffer: Tensor) -> Any:
    many = buffer * torch.arange(1.0, MEMBERS + 1.0)[:, None]
    return torch.func.vmap(ring)(many)


def population_seeds(buffer: Tensor) -> Any:
    def one(seed: Tensor, b: Tensor) -> Any:
        def step(b: Tensor, t: Tensor) -> Any:
            i = (slots(t) * seed) % ROWS
            b = b.index_put((i,), rows(t) * seed)
            return b, b[((t * seed) % ROWS)[None]][0]

        return scan(step, b, TIMES)

    return torch.func.vmap(one)(torch.arange(1, MEMBERS + 1), buffer * torch.ones(MEMBERS, 1))


def population_shared(buffer: Tensor) -> Any:
    def one(seed: Tensor) -> Any:
        def step(b: Tensor, t: Tensor) -> Any:
            b = b.index_copy(0, slots(t), rows(t) * seed)
            return b, b[0]

        return scan(step, buffer, TIMES)

    return torch.func.vmap(one)(torch.arange(1, MEMBERS + 1))


def population_inner(buffer: Tensor) -> Any:
    return torch.func.vmap(inner)(buffer * torch.arange(1.0, MEMBERS + 1.0)[:, None])


def reverse(buffer: Tensor) -> Any:
    def step(b: Tensor, t: Tensor) -> Any:
        b = b.index_copy(0, slots(t), rows(t))
        return b, b[0]

    return scan(step, buffer, TIMES, reverse=True)


def passed_through(buffer: Tensor) -> Any:
    def step(c: Any, t: Tensor) -> Any:
        b, other = c
        return (b.index_copy(0, slots(t), other[:WRITTEN]), other), ()

    return scan(step, (buffer, buffer), TIMES)


def repeated(buffer: Tensor) -> Any:  # duplicate indices
    def step(b: Tensor, t: Tensor) -> Any:
        return b.index_add(0, torch.zeros(WRITTEN, dtype=torch.int64), rows(t)), b[0]

    return scan(step, buffer, TIMES)


def chain_of_scans(buffer: Tensor) -> Any:
    a, y = ring(buffer)
    b, z = ring(a)
    return b, y, z


def chain_reads(buffer: Tensor) -> Any:
    a, y = ring(buffer)
    b, z = ring(a)
    return b, y, z, a


def tree(buffer: Tensor) -> Any:
    """Sums over pairs: rows of a level, written from rows of the level below."""

    def step(b: Tensor, t: Tensor) -> Any:
        i = 24 + slots(t) % 24
        b = b.index_copy(0, i, rows(t))
        for _ in range(3):
            i = i // 2
            b = b.index_copy(0, i, b[2 * i] + b[2 * i + 1])
        return b, b[1]

    return scan(step, buffer, TIMES)


def places_of_itself(buffer: Tensor) -> Any:
    """The rows to write are read from the buffer."""

    def step(b: Tensor, t: Tensor) -> Any:
        return b.index_copy(0, b[slots(t)].to(torch.int64).abs() % 6 * 8 + torch.arange(4), b[:4]), b[2:4]

    return scan(step, buffer, TIMES)


def captured(buffer: Tensor) -> Any:
    """An inner scan writes into a carry and reads what it was before."""

    def step(b: Tensor, t: Tensor) -> Any:
        n, ys = scan(lambda c, k: (c.index_copy(0, slots(t + k), rows(k)), b[slots(k)]), b, torch.arange(3))
        return n, ys

    return scan(step, buffer, TIMES)


def only_carry(buffer: Tensor) -> Any:
    """A scan without outputs, in another."""

    def step(b: Tensor, t: Tensor) -> Any:
        return scan(lambda c, k: (c.index_copy(0, slots(t + k), rows(k)), ()), b, torch.arange(3))

    return scan(step, buffer, TIMES)


def population_added(buffer: Tensor) -> Any:
    """Each member adds to rows of its own, which torch does member by member."""
    many = buffer * torch.arange(1.0, MEMBERS + 1)[:, None]

    def one(seed: Tensor, b: Tensor) -> Any:
        return scan(lambda c, t: (c.index_add(0, (slots(t) * seed) % ROWS, rows(t)), c[0] * 2), b, TIMES)

    return torch.func.vmap(one)(torch.arange(1, MEMBERS + 1), many)


CASES: tuple[Case, ...] = (
    ring,
    old_after,
    y_new,
    y_old,
    y_view,
    pair,
    swap,
    twice,
    overlap,
    overlap_flip,
    inner,
    inner_old,
    inner_two,
    inner_then_write,
    three,
    same_init,
    init_after,
    made_inside,
    bools,
    put,
    accumulate,
    scatter,
    setitem,
    masked,
    dropped,
    matrix,
    population,
    population_seeds,
    population_shared,
    population_inner,
    reverse,
    passed_through,
    repeated,
    chain_of_scans,
    chain_reads,
    tree,
    places_of_itself,
    captured,
    only_carry,
    population_added,
)
COPIED: tuple[Case, ...] = (swap, masked, population_added)  # written out of place
QUICK: tuple[Case, ...] = (
    ring,
    old_after,
    overlap_flip,
    swap,
    inner_old,
    three,
    population_seeds,
    tree,
    population_added,
)
