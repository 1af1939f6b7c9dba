"""Counter-based random numbers: keys, and draws that depend on the key only.

A key is an int64 tensor [..., 2] of two 32-bit words. Every draw is Philox4x32-10 (Salmon et al. 2011, "Parallel random
numbers: as easy as 1, 2, 3") of the key and a counter, written in tensor operations, so it fuses and works under vmap and
scan. Integers, `uniform` and `permutation` are bit-identical eager, compiled and on every device. Use a key only once:
`split` it first. A batch of keys [*, 2] draws a batch [*, ...]; every draw equals that of its key alone.
"""

import math
from typing import Any

import torch
from torch import Tensor

from .errors import ChoiceError, DtypeError, ShapeError, StructureError, at_least, message

Key = Tensor  # [..., 2] int64, each word in [0, 2**32)

WORD = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
DRAW, SPLIT, FOLD = 0, 1, 2  # the third counter word separates the three uses of a key
ONE_ROW = 32_768  # from this many words on, permutations are sorted together: 1.8 instead of 6.7 ms for 4 of 32,768
MOST_TOGETHER = 1 << 15  # the row's number is put in front of a word of 48 bits
PRECISION = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}  # bits of a uniform number


def key(seed: int, *, device: torch.device | str | None = None) -> Key:
    """Return the key [2] of a seed in [0, 2**64). Raises: ChoiceError.

    >>> key(7)
    tensor([7, 0])
    """
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 1 << 64:
        raise ChoiceError(message("key: seed", got=seed, wanted="0 <= seed < 2**64", remedy="pass a non-negative int"))
    return torch.tensor([seed & WORD, seed >> 32], dtype=torch.int64, device=device)


def check_key(where: str, value: Key) -> Key:
    """Return `value` if it is a key or a batch of keys. Raises: StructureError, DtypeError, ShapeError.

    >>> check_key("draw", key(7))
    tensor([7, 0])
    """
    if not isinstance(value, Tensor):
        got, remedy = type(value).__name__, "make it with keys.key(seed)"
        raise StructureError(message(f"{where}: key", got=got, wanted="a tensor [*, 2]", remedy=remedy))
    if value.dtype != torch.int64:
        raise DtypeError(
            message(f"{where}: key", got=value.dtype, wanted="torch.int64", remedy="make it with keys.key")
        )
    if value.ndim < 1 or value.shape[-1] != 2:
        raise ShapeError(
            message(f"{where}: key", got=list(value.shape), wanted="[*, 2]", remedy="make it with keys.key")
        )
    return value


def philox(key: tuple[Tensor, Tensor], counter: tuple[Any, Any, Any, Any]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return Philox4x32-10 of two key words and four counter words, all int64 in [0, 2**32), broadcast together.

    Counter words that are plain numbers save the compiled operations on them.

    >>> zero = torch.zeros((), dtype=torch.int64)
    >>> [hex(int(word)) for word in philox((zero, zero), (zero, zero, zero, zero))]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    c0, c1, c2, c3 = counter
    for turn in range(ROUNDS):
        k0, k1 = key[0] + turn * WEYL[0], key[1] + turn * WEYL[1]
        low, high = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]  # 64 bits, wrapping
        # Bits above 32 affect the result only through a product, so only the next factors are truncated to 32 bits.
        c0, c1, c2, c3 = ((high >> 32) ^ c1 ^ k0) & WORD, high, ((low >> 32) ^ c3 ^ k1) & WORD, low
    return c0, c1 & WORD, c2, c3 & WORD


def _block(key: Key, count: Tensor, use: int, high: Tensor | int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return philox((key[..., 0], key[..., 1]), (count, high, use, 0))


def split(key: Key, n: int = 2) -> Key:
    """Return n independent keys [n, ..., 2]; unpack them: `a, b = split(key)`.

    >>> split(key(0), 3).shape
    torch.Size([3, 2])
    """
    check_key("split", key)
    at_least("split: n", n, 0)
    index = torch.arange(n, device=key.device).reshape((n,) + (1,) * (key.ndim - 1))
    first, second, _, _ = _block(key, index, SPLIT)
    return torch.stack([first, second], -1)


def fold_in(key: Key, data: Tensor | int) -> Key:
    """Return a key derived from `key` and a non-negative number (a step, an index): [*, 2], [*] -> [*, 2], broadcast.

    Raises: DtypeError, ShapeError.

    >>> one, other = fold_in(key(0), torch.tensor([1, 2]))
    >>> torch.equal(one, fold_in(key(0), 1)), torch.equal(one, other)
    (True, False)
    """
    check_key("fold_in", key)
    count = data if isinstance(data, Tensor) else torch.full((), data, device=key.device)
    if count.is_floating_point() or count.dtype == torch.bool:
        raise DtypeError(message("fold_in: data", got=count.dtype, wanted="integers", remedy="convert it to int64"))
    count = count.to(torch.int64)
    first, second, _, _ = _block(key, count & WORD, FOLD, (count >> 32) & WORD)
    return torch.stack([first, second], -1)


def bits(key: Key, shape: tuple[int, ...] = ()) -> Tensor:
    """Return uniform 32-bit words, as int64 in [0, 2**32): key [*, 2] -> [*, *shape].

    >>> hex(bits(key(0)))
    '0x6627e8d5'
    """
    check_key("bits", key)
    n = math.prod(shape)
    blocks = -(-n // 4)
    words = torch.cat(_block(key[..., None, :], torch.arange(blocks, device=key.device), DRAW), -1)
    return words[..., :n].reshape(key.shape[:-1] + shape)


def uniform(key: Key, shape: tuple[int, ...] = (), *, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return uniform numbers in [0, 1), multiples of 2**-24 (float64 2**-53, float16 2**-11, bfloat16 2**-8).

    Shapes: key [*, 2] -> [*, *shape]. Raises: DtypeError.

    >>> uniform(key(0), (2,))
    tensor([0.3990, 0.8805])
    """
    if dtype not in PRECISION:
        raise DtypeError(message("uniform: dtype", got=dtype, wanted="a float", remedy="use randint for integers"))
    precision = PRECISION[dtype]
    if dtype == torch.float64:
        words = bits(key, (*shape, 2))
        whole = ((words[..., 0] >> 5) << 26) | (words[..., 1] >> 6)
    else:
        whole = bits(key, shape) >> (32 - precision)
    return whole.to(dtype) * 2.0**-precision


def normal(key: Key, shape: tuple[int, ...] = (), *, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return standard normal numbers (Box and Muller 1958): key [*, 2] -> [*, *shape]. Lowerings agree to 1e-5.

    z = sqrt(-2 log(1 - u)) (cos 2 pi v, sin 2 pi v); 16-bit dtypes are computed in float32.

    >>> normal(key(0), (2,))
    tensor([ 0.7379, -0.6884])
    """
    n = math.prod(shape)
    half = -(-n // 2)
    both = uniform(key, (2 * half,), dtype=dtype if dtype == torch.float64 else torch.float32)
    radius = torch.sqrt(-2.0 * torch.log1p(-both[..., :half]))
    angle = (2.0 * math.pi) * both[..., half:]
    draws = torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)], -1)
    return draws[..., :n].reshape(key.shape[:-1] + shape).to(dtype)


def _one_draw_each(where: str, draws: Tensor, parameter: Tensor) -> Tensor:
    """Return `parameter` if it broadcasts to `draws`: otherwise two results would share one random number."""
    pairs = zip(parameter.shape[::-1], draws.shape[::-1], strict=False)
    if parameter.ndim > draws.ndim or not all(size in (1, wanted) for size, wanted in pairs):
        wanted = f"one that broadcasts to the draws {list(draws.shape)}"
        raise ShapeError(
            message(where, got=list(parameter.shape), wanted=wanted, remedy="pass a key for each, or shape")
        )
    return parameter


def randint(key: Key, shape: tuple[int, ...], low: int | Tensor, high: int | Tensor) -> Tensor:
    """Return integers in [low, high), high - low < 2**31: key [*, 2] -> [*, *shape].

    The word w gives low + floor(w (high - low) / 2**32), so the error of a value's probability is below 2**-32. Tensor
    bounds are broadcast to the result. Raises: ChoiceError (numbers), ShapeError.

    >>> randint(key(0), (4,), 10, 11)
    tensor([10, 10, 10, 10])
    """
    if isinstance(low, int) and isinstance(high, int) and not 0 < high - low < 1 << 31:
        wanted = "0 < high - low < 2**31"
        raise ChoiceError(message("randint: bounds", got=(low, high), wanted=wanted, remedy="high itself is excluded"))
    words = bits(key, shape)
    for bound in (low, high):
        if isinstance(bound, Tensor):
            _one_draw_each("randint: bound", words, bound)
    return low + ((words * (high - low)) >> 32)


def bernoulli(key: Key, probability: float | Tensor, shape: tuple[int, ...] = ()) -> Tensor:
    """Return True with the given probability: key [*, 2] -> bool [*, *shape], to which the probability broadcasts.

    Raises: ShapeError.

    >>> bernoulli(key(0), torch.tensor([0.0, 1.0]), (2,))
    tensor([False,  True])
    """
    draws = uniform(key, shape)
    if isinstance(probability, Tensor):
        _one_draw_each("bernoulli: probability", draws, probability)
    return draws < probability


def permutation(key: Key, n: int) -> Tensor:
    """Return a uniform permutation of 0..n-1 (by sorting random 48-bit words): key [*, 2] -> int64 [*, n].

    >>> permutation(key(0), 4)
    tensor([3, 0, 2, 1])
    """
    words = bits(key, (2, n))
    order = (words[..., 0, :] << 16) | (words[..., 1, :] >> 16)
    many = math.prod(key.shape[:-1])
    if many * n < ONE_ROW or many > MOST_TOGETHER:
        return torch.sort(order, dim=-1, stable=True).indices
    # One sort of all rows, each word prefixed with its row's number: the library uses a radix sort for a single long row.
    number = torch.arange(many, device=key.device).reshape((*key.shape[:-1], 1))
    together = torch.sort((order + (number << 48)).flatten(), stable=True).indices
    return together.reshape((*key.shape[:-1], n)) - number * n


def inverse_cdf(uniform: Tensor, logits: Tensor) -> Tensor:
    """Return the action whose interval of [0, 1) contains `uniform`: [*], [*, A] -> int64 [*].

    a = min {j : P(action <= j) > u P(any)} over the actions of positive probability: a logit of -inf is never chosen, in any
    order of summation. Without any action of positive probability, or with NaN, the result is 0.

    >>> inverse_cdf(torch.tensor(0.6), torch.log(torch.tensor([0.5, 0.0, 0.5])))
    tensor(2)
    """
    logits = logits if logits.dtype == torch.float64 else logits.to(torch.float32)
    weights = torch.exp(logits - logits.amax(-1, keepdim=True))
    actions = logits.shape[-1]
    index = torch.arange(actions, device=logits.device)
    if actions <= 32:  # a triangular product fuses with neighbouring kernels; cumsum would be a separate kernel
        triangle = (index[None, :] <= index[:, None]).to(weights.dtype)
        cumulative = (weights[..., None, :] * triangle).sum(-1)
    else:
        cumulative = weights.cumsum(-1)
    possible = weights > 0
    beyond = possible & (cumulative > (uniform * cumulative[..., -1])[..., None])
    first_beyond = torch.where(beyond, index, actions).amin(-1)
    last_possible = torch.where(possible, index, 0).amax(-1)
    return torch.minimum(first_beyond, last_possible)


def categorical(key: Key, logits: Tensor) -> Tensor:
    """Return an action with probability softmax(logits), from one uniform number: key [*, 2], [*, A] -> int64 [*].

    Logits [A] are shared by all keys. Raises: ShapeError.

    >>> categorical(split(key(0), 4), torch.log(torch.tensor([0.0, 1.0])))
    tensor([1, 1, 1, 1])
    """
    draws = uniform(key)
    _one_draw_each("categorical: logits", draws, logits[..., 0])
    return inverse_cdf(draws, logits)
