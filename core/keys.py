"""Randomness as a value: keys, and numbers that depend on the key alone.

A key is an int64 tensor [..., 2] of two 32-bit words. Every draw is Philox4x32-10 (Salmon et al. 2011, "Parallel random
numbers: as easy as 1, 2, 3") of the key and a counter, written in tensor operations, so it fuses and works under vmap and
scan. Integers, `uniform` and `permutation` have the same bits eager, compiled and on every device. Use a key once: `split`
it first. A batch of keys [*, 2] draws a batch [*, ...]; every draw equals that of its key alone.
"""

import math

import torch
from torch import Tensor

from .errors import DtypeError, ShapeError, message

Key = Tensor  # [..., 2] int64, each word in [0, 2**32)

WORD = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
DRAW, SPLIT, FOLD = 0, 1, 2  # the third counter word keeps the three uses of a key apart


def key(seed: int, *, device: torch.device | str | None = None) -> Key:
    """The key [2] of a seed in [0, 2**64).

    >>> key(7)
    tensor([7, 0])
    """
    if not 0 <= seed < 1 << 64:
        raise ShapeError(message("key: seed", got=seed, wanted="0 <= seed < 2**64", remedy="pass a non-negative int"))
    return torch.tensor([seed & WORD, seed >> 32], dtype=torch.int64, device=device)


def check_key(where: str, value: Key) -> Key:
    """Returns `value` if it is a key or a batch of keys. Raises: DtypeError, ShapeError."""
    if value.dtype != torch.int64:
        raise DtypeError(
            message(f"{where}: key", got=value.dtype, wanted="torch.int64", remedy="make it with keys.key")
        )
    if value.ndim < 1 or value.shape[-1] != 2:
        raise ShapeError(
            message(f"{where}: key", got=list(value.shape), wanted="[*, 2]", remedy="make it with keys.key")
        )
    return value


def philox(key: tuple[Tensor, Tensor], counter: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Philox4x32-10 of two key words and four counter words, all int64 in [0, 2**32), broadcast together.

    >>> zero = torch.zeros((), dtype=torch.int64)
    >>> [hex(int(word)) for word in philox((zero, zero), (zero, zero, zero, zero))]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for _ in range(ROUNDS):
        low, high = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]  # 64 bits, wrapping; both halves are taken with a mask
        c0, c1, c2, c3 = (
            ((high >> 32) & WORD) ^ c1 ^ k0,
            high & WORD,
            ((low >> 32) & WORD) ^ c3 ^ k1,
            low & WORD,
        )
        k0, k1 = (k0 + WEYL[0]) & WORD, (k1 + WEYL[1]) & WORD
    return c0, c1, c2, c3


def _block(key: Key, count: Tensor, use: int, high: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    zero = torch.zeros_like(count)
    return philox((key[..., 0], key[..., 1]), (count, zero if high is None else high, zero + use, zero))


def split(key: Key, n: int = 2) -> Key:
    """n independent keys [n, ..., 2]; unpack them: `a, b = split(key)`."""
    check_key("split", key)
    index = torch.arange(n, device=key.device).reshape((n,) + (1,) * (key.ndim - 1))
    first, second, _, _ = _block(key, index, SPLIT)
    return torch.stack([first, second], -1)


def fold_in(key: Key, data: Tensor | int) -> Key:
    """The key of `key` and a non-negative number (a step, an index); batches broadcast: [*, 2], [*] -> [*, 2]."""
    check_key("fold_in", key)
    count = data if isinstance(data, Tensor) else torch.full((), data, dtype=torch.int64, device=key.device)
    first, second, _, _ = _block(key, count & WORD, FOLD, (count >> 32) & WORD)
    return torch.stack([first, second], -1)


def bits(key: Key, shape: tuple[int, ...] = ()) -> Tensor:
    """Uniform 32-bit words, as int64 in [0, 2**32): key [*, 2] -> [*, *shape]."""
    check_key("bits", key)
    n = math.prod(shape)
    blocks = -(-n // 4)
    words = torch.cat(_block(key[..., None, :], torch.arange(blocks, device=key.device), DRAW), -1)
    return words[..., :n].reshape(key.shape[:-1] + shape)


def uniform(key: Key, shape: tuple[int, ...] = (), *, dtype: torch.dtype = torch.float32) -> Tensor:
    """Uniform numbers in [0, 1) with 24 bits (53 for float64): key [*, 2] -> [*, *shape].

    >>> uniform(key(0), (2,))
    tensor([0.3990, 0.8805])
    """
    if dtype == torch.float64:
        words = bits(key, (*shape, 2))
        return ((words[..., 0] >> 5) * (1 << 26) + (words[..., 1] >> 6)).to(dtype) * 2.0**-53
    return ((bits(key, shape) >> 8).to(torch.float32) * 2.0**-24).to(dtype)


def normal(key: Key, shape: tuple[int, ...] = (), *, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal numbers (Box and Muller 1958): key [*, 2] -> [*, *shape]. Equal between lowerings to 1e-5."""
    n = math.prod(shape)
    half = -(-n // 2)
    both = uniform(key, (2 * half,), dtype=dtype)
    radius = torch.sqrt(-2.0 * torch.log1p(-both[..., :half]))
    angle = (2.0 * math.pi) * both[..., half:]
    draws = torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)], -1)
    return draws[..., :n].reshape(key.shape[:-1] + shape)


def randint(key: Key, shape: tuple[int, ...], low: int | Tensor, high: int | Tensor) -> Tensor:
    """Integers in [low, high), high - low < 2**31: key [*, 2] -> [*, *shape].

    The word w gives low + floor(w (high - low) / 2**32), so a value's probability is off by less than 2**-32.
    """
    return low + ((bits(key, shape) * (high - low)) >> 32)


def bernoulli(key: Key, probability: float | Tensor, shape: tuple[int, ...] = ()) -> Tensor:
    """True with the given probability: key [*, 2] -> bool [*, *shape]."""
    return uniform(key, shape) < probability


def permutation(key: Key, n: int) -> Tensor:
    """A uniform permutation of 0..n-1 (random words, sorted): key [*, 2] -> int64 [*, n]."""
    words = bits(key, (2, n))
    order = (words[..., 0, :] << 30) | (words[..., 1, :] >> 2)
    return torch.sort(order, dim=-1, stable=True).indices


def inverse_cdf(uniform: Tensor, logits: Tensor) -> Tensor:
    """The action whose slice of [0, 1) holds `uniform`: [*], [*, A] -> int64 [*].

    a = #{j : P(action <= j) <= u P(any)}; an action of probability zero (logit -inf) is never chosen.

    >>> inverse_cdf(torch.tensor(0.6), torch.log(torch.tensor([0.5, 0.0, 0.5])))
    tensor(2)
    """
    weights = torch.exp(logits - logits.amax(-1, keepdim=True))
    actions = logits.shape[-1]
    if actions <= 32:  # a triangle of products fuses with its neighbours; cumsum would be a kernel of its own
        index = torch.arange(actions, device=logits.device)
        triangle = (index[None, :] <= index[:, None]).to(weights.dtype)
        cumulative = (weights[..., None, :] * triangle).sum(-1)
    else:
        cumulative = weights.cumsum(-1)
    below = cumulative <= (uniform * cumulative[..., -1])[..., None]
    return below.sum(-1).clamp_max(actions - 1)


def categorical(key: Key, logits: Tensor) -> Tensor:
    """An action with probability softmax(logits), from one uniform number: key [*, 2], [*, A] -> int64 [*]."""
    return inverse_cdf(uniform(key), logits)
