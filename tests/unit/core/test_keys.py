"""Keys and draws: the published known answers, every way to call them, their distributions and their edges.

The draws are fixed, so that no test is flaky. Each statistical test would reject a right generator for one key in a million
(P_VALUE); the file holds fewer than fifty of them.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from purestep.core import keys
from purestep.core.errors import ChoiceError, DtypeError, ShapeError
from purestep.core.keys import key
from purestep.core.scan import scan
from purestep.runtime.compile import program as as_users_do

P_VALUE = 1e-6
SIGMAS = 5.0  # a standard normal number lies outside with probability 6e-7
LOWERING = 1e-5  # how far normal numbers of two lowerings may lie apart
BOUNDARY = 1e-6  # how near to a boundary of the cumulative distribution two lowerings may choose different actions

WORD = 2**32 - 1
KNOWN_ANSWERS = [  # Random123, kat_vectors, philox4x32 10: counter, key, answer
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((WORD,) * 4, (WORD,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
words = st.integers(0, WORD)


def philox_in_integers(counter: tuple[int, ...], key_words: tuple[int, ...]) -> tuple[int, ...]:
    """The same generator in Python's unbounded integers."""
    (a, b, c, d), (k, m) = counter, key_words
    for i in range(10):
        first, second = a * 0xD2511F53, c * 0xCD9E8D57
        keyed = (k + i * 0x9E3779B9) % 2**32, (m + i * 0xBB67AE85) % 2**32
        a, b, c, d = second // 2**32 ^ b ^ keyed[0], second % 2**32, first // 2**32 ^ d ^ keyed[1], first % 2**32
    return a, b, c, d


def philox(counter: tuple[int, ...], key_words: tuple[int, ...]) -> tuple[int, ...]:
    a, b, c, d = (torch.tensor(word) for word in counter)
    k, m = (torch.tensor(word) for word in key_words)
    return tuple(int(word) for word in keys.philox((k, m), (a, b, c, d)))


@pytest.mark.parametrize(("counter", "key_words", "answer"), KNOWN_ANSWERS)
def test_known_answers(counter: tuple[int, ...], key_words: tuple[int, ...], answer: tuple[int, ...]) -> None:
    assert philox(counter, key_words) == answer
    assert philox_in_integers(counter, key_words) == answer


@given(st.tuples(words, words, words, words), st.tuples(words, words))
def test_philox_equals_itself_in_unbounded_integers(counter: tuple[int, ...], key_words: tuple[int, ...]) -> None:
    assert philox(counter, key_words) == philox_in_integers(counter, key_words)


@given(st.integers(0, 2**64 - 1), st.integers(0, 9), st.integers(0, 2**63 - 1))
def test_draws_splits_and_folds_use_counters_of_their_own(seed: int, n: int, data: int) -> None:
    pair = (seed % 2**32, seed // 2**32)
    assert key(seed).tolist() == list(pair)
    blocks = [philox_in_integers((i, 0, 0, 0), pair) for i in range(-(-n // 4))]
    assert keys.bits(key(seed), (n,)).tolist() == [word for column in zip(*blocks, strict=True) for word in column][:n]
    splits = [list(philox_in_integers((i, 0, 1, 0), pair)[:2]) for i in range(n)]
    assert keys.split(key(seed), n).tolist() == splits
    folded = philox_in_integers((data % 2**32, data // 2**32, 2, 0), pair)[:2]
    assert keys.fold_in(key(seed), data).tolist() == list(folded)


@given(st.integers(0, 2**64 - 1), st.integers(-(2**62), 2**62), st.integers(1, 2**31 - 1))
def test_randint_scales_the_word(seed: int, low: int, width: int) -> None:
    drawn = keys.randint(key(seed), (3,), low, low + width)
    assert drawn.tolist() == [low + word * width // 2**32 for word in keys.bits(key(seed), (3,)).tolist()]


def test_derived_keys_are_distinct() -> None:
    parents = torch.stack([key(seed) for seed in (0, 1, 2**32, 2**64 - 1)])
    numbers = torch.cat([torch.arange(500), torch.tensor([2**31, 2**32, 2**32 + 1, 2**62])])
    folded = keys.fold_in(parents[:, None], numbers)
    grown = [parents, keys.split(parents, 500).flatten(0, 1), folded.flatten(0, 1)]
    grown += [keys.split(children, 3).flatten(0, 1) for children in grown[1:]]
    every = torch.cat(grown)
    assert len(torch.unique(every, dim=0)) == len(every) == 4 * (1 + (500 + 504) * (1 + 3))
    assert 0 <= int(every.min()) <= int(every.max()) <= WORD


def test_fold_in_takes_numbers_and_tensors_alike() -> None:
    parent = key(5)
    for data in (0, 7, 2**31 - 1):
        wanted = keys.fold_in(parent, data)
        for dtype in (torch.int64, torch.int32):
            assert torch.equal(keys.fold_in(parent, torch.tensor(data, dtype=dtype)), wanted)
    batch = keys.fold_in(keys.split(parent, 3), torch.arange(3))
    assert torch.equal(batch[2], keys.fold_in(keys.split(parent, 3)[2], 2))


# --- every way to call a draw ---

CHOICES = {
    "few": torch.tensor([0.5, -torch.inf, 1.0, -0.25]),
    "many": torch.where(torch.arange(40) % 3 == 0, -torch.inf, torch.linspace(-2, 2, 40)),
}
DRAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "bits": lambda key: keys.bits(key, (5,)),
    "one word": keys.bits,
    "no words": lambda key: keys.bits(key, (2, 0)),
    "uniform": lambda key: keys.uniform(key, (3, 2)),
    "uniform float64": lambda key: keys.uniform(key, (3,), dtype=torch.float64),
    "uniform bfloat16": lambda key: keys.uniform(key, (3,), dtype=torch.bfloat16),
    "randint": lambda key: keys.randint(key, (4,), -3, 1000),
    "randint of bounds": lambda key: keys.randint(key, (2,), torch.tensor([0, 5]), torch.tensor([3, 2**31 + 4])),
    "bernoulli": lambda key: keys.bernoulli(key, torch.tensor([0.25, 0.5]), (2,)),
    "permutation": lambda key: keys.permutation(key, 7),
    "split": lambda key: torch.movedim(keys.split(key, 3), 0, -2),
    "fold_in": lambda key: keys.fold_in(key, 11),
}
ROUNDED: dict[str, Callable[[Tensor], Tensor]] = {
    "normal": lambda key: keys.normal(key, (5,)),
    "normal float64": lambda key: keys.normal(key, (), dtype=torch.float64),
    "normal float16": lambda key: keys.normal(key, (4,), dtype=torch.float16),
}
ALL = DRAWS | ROUNDED


def assert_equal(name: str, got: Tensor, wanted: Tensor) -> None:
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    if name in ROUNDED:
        assert torch.allclose(got, wanted, rtol=0.0, atol=max(LOWERING, torch.finfo(got.dtype).eps * 8))
    else:
        assert torch.equal(got, wanted)


@pytest.mark.parametrize("name", ALL)
def test_a_batch_of_keys_draws_what_its_keys_draw(name: str) -> None:
    draw = ALL[name]
    batch = keys.split(key(3), 6).reshape(2, 3, 2)
    singles = torch.stack([torch.stack([draw(one) for one in row]) for row in batch])
    assert_equal(name, draw(batch), singles)
    assert_equal(name, torch.vmap(draw)(batch), singles)
    assert_equal(name, torch.vmap(torch.vmap(draw))(batch), singles)


@pytest.mark.parametrize("name", ALL)
def test_draws_touch_no_global_generator(name: str) -> None:
    before = torch.get_rng_state()
    ALL[name](key(1))
    assert torch.equal(torch.get_rng_state(), before)


def some(parent: Tensor) -> dict[str, Tensor]:
    """A few draws of one key, since every one of them is a hundred operations to compile."""
    return {name: ALL[name](parent) for name in ("randint", "permutation", "normal")}


@pytest.mark.slow
def test_draws_in_a_compiled_scan(compiled: Any) -> None:
    def step(parent: Tensor, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return keys.split(parent)[0], some(keys.fold_in(parent, x))

    def program(parent: Tensor) -> Any:
        return scan(step, parent, torch.arange(3))

    (last, ys), (wanted_last, wanted) = compiled(program)(key(9)), program(key(9))
    assert torch.equal(last, wanted_last)
    for name, value in wanted.items():
        assert_equal(name, ys[name], value)


@pytest.mark.slow
def test_the_code_generator_keeps_every_bit() -> None:
    """Of all but normal numbers, and of actions whose number lies at a boundary."""

    def drawn(parents: Tensor) -> Any:
        numbers = keys.uniform(parents)
        return some(parents), numbers, {logits: keys.inverse_cdf(numbers, CHOICES[logits]) for logits in CHOICES}

    parents = keys.split(key(4), 1000)
    (draws, numbers, chosen), (wanted_draws, wanted_numbers, wanted) = (
        run(parents) for run in (as_users_do(drawn), drawn)
    )
    for name, value in wanted_draws.items():
        assert_equal(name, draws[name], value)
    assert torch.equal(numbers, wanted_numbers)
    for name, logits in CHOICES.items():
        boundaries = torch.softmax(logits.double(), -1).cumsum(-1)
        near = ((boundaries - numbers[:, None]).abs() < BOUNDARY).any(-1)
        assert ((chosen[name] == wanted[name]) | near).all()
        assert near.float().mean() < 0.01


# --- distributions ---


def p_value(observed: Tensor, expected: Tensor) -> float:
    """Of Pearson's chi-square test."""
    assert float(expected.min()) >= 5, "too few draws for the test"
    statistic = ((observed - expected) ** 2 / expected).sum()
    return float(torch.special.gammaincc(torch.tensor((len(observed) - 1) / 2), (statistic / 2).float()))


def assert_frequencies(draws: Tensor, probabilities: Tensor) -> None:
    counts = torch.bincount(draws.flatten(), minlength=len(probabilities)).double()
    assert len(counts) == len(probabilities)
    possible = probabilities > 0
    assert counts[~possible].sum() == 0
    assert p_value(counts[possible], draws.numel() * probabilities[possible].double()) > P_VALUE


def even(n: int) -> Tensor:
    return torch.full((n,), 1 / n, dtype=torch.float64)


def test_the_chi_square_test_rejects_a_generator_that_is_off_by_little() -> None:
    draws = keys.randint(key(0), (60_000,), 0, 6)
    assert_frequencies(draws, even(6))
    with pytest.raises(AssertionError):
        assert_frequencies(torch.where(draws == 5, keys.randint(key(1), (60_000,), 0, 7).clamp_max(5), draws), even(6))


@pytest.mark.parametrize(("low", "high"), [(0, 6), (-4, 3), (10**12, 10**12 + 64)])
def test_randint_is_uniform(low: int, high: int) -> None:
    assert_frequencies(keys.randint(key(11), (60_000,), low, high) - low, even(high - low))


def test_randint_reaches_all_of_the_widest_range() -> None:
    draws = keys.randint(key(12), (60_000,), 0, 2**31 - 1)
    assert_frequencies(draws >> 25, even(64))
    assert_frequencies(draws & 63, even(64))


@pytest.mark.parametrize("dtype", keys.PRECISION)
def test_uniform_is_uniform_on_its_grid(dtype: torch.dtype) -> None:
    draws, grid = keys.uniform(key(13), (100_000,), dtype=dtype), 2.0 ** keys.PRECISION[dtype]
    exact = draws.double() * grid
    assert torch.equal(exact, exact.floor())
    assert float(draws.min()) >= 0
    assert float(draws.max()) < 1
    assert_frequencies((exact / grid * 64).long(), even(64))
    assert_frequencies(exact.long() & 63, even(64))
    mean, spread = 0.5 * (1 - 1 / grid), math.sqrt(1 / 12 / len(draws))
    assert abs(float(draws.double().mean()) - mean) < SIGMAS * spread


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_largest_uniform_number_of_a_short_dtype_is_below_one(dtype: torch.dtype) -> None:
    draws = keys.uniform(key(14), (100_000,), dtype=dtype)
    assert float(draws.max()) == 1 - 2.0 ** -keys.PRECISION[dtype]


def test_every_bit_is_fair_and_seeds_that_are_neighbours_are_strangers() -> None:
    position = torch.arange(32)
    drawn = (keys.bits(key(15), (20_000,))[:, None] >> position) & 1
    neighbours = keys.bits(torch.stack([key(seed) for seed in range(4000)]), (4,))
    differing = ((neighbours[1:] ^ neighbours[:-1])[..., None] >> position) & 1
    for ones in (drawn, differing.flatten(0, 1)):
        fair = math.sqrt(0.25 / len(ones))
        assert float((ones.double().mean(0) - 0.5).abs().max()) < SIGMAS * fair
    assert_frequencies(neighbours[:, 0] >> 26, even(64))


@pytest.mark.parametrize("derive", [keys.split, lambda parent, n: keys.fold_in(parent, torch.arange(n))])
def test_first_draws_of_derived_keys_are_uniform(derive: Callable[[Tensor, int], Tensor]) -> None:
    draws = keys.bits(derive(key(16), 20_000))
    assert_frequencies(draws >> 26, even(64))
    assert_frequencies((draws[1:] ^ draws[:-1]) >> 26, even(64))


def test_all_orders_of_a_permutation_are_equally_likely() -> None:
    orders = keys.permutation(keys.split(key(17), 24_000), 4)
    assert torch.equal(orders.sort(-1).values, torch.arange(4).expand(24_000, 4))
    later = torch.stack([(orders[:, i + 1 :] < orders[:, i : i + 1]).sum(-1) for i in range(3)], -1)
    assert_frequencies((later * torch.tensor([6, 2, 1])).sum(-1), even(24))


@pytest.mark.parametrize("n", [keys.ONE_ROW // 8, keys.ONE_ROW])
def test_permutations_sorted_together_are_those_of_each_key_alone(n: int) -> None:
    several = keys.split(key(23), 6).reshape(3, 2, 2)
    together = keys.permutation(several, n)
    each = torch.stack([keys.permutation(one, n) for one in several.reshape(6, 2)])
    assert torch.equal(together, each.reshape(3, 2, n))
    assert torch.equal(together.sort(-1).values, torch.arange(n).expand(3, 2, n))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normal_is_normal_and_its_two_halves_are_independent(dtype: torch.dtype) -> None:
    draws = keys.normal(key(18), (100_000,), dtype=dtype).double()
    assert draws.isfinite().all()
    assert_frequencies((torch.special.ndtr(draws) * 64).long(), even(64))
    halves = draws.reshape(2, -1)
    for product in (halves.prod(0), (halves**2 - 1).prod(0) / 2):
        assert abs(float(product.mean())) < SIGMAS / math.sqrt(len(product))


def test_bernoulli_has_its_probability_and_is_certain_at_the_ends() -> None:
    probability = torch.tensor([0.0, 0.25, 0.9, 1.0])
    draws = keys.bernoulli(key(19), probability, (50_000, 4))
    assert not draws[:, 0].any()
    assert draws[:, 3].all()
    for i in (1, 2):
        assert_frequencies(draws[:, i].long(), torch.tensor([1 - probability[i], probability[i]]))


@pytest.mark.parametrize("actions", [3, 5, 32, 33, 70])
def test_categorical_has_its_probabilities_and_never_chooses_a_masked_action(actions: int) -> None:
    logits = keys.normal(key(20), (actions,)) * 0.5
    logits = torch.where(torch.arange(actions) % 4 == 1, -torch.inf, logits)
    draws = keys.categorical(keys.split(key(21), 60_000), logits)
    assert_frequencies(draws, torch.softmax(logits.double(), -1))


# --- the inverse of the cumulative distribution, edge by edge ---

LAST = 1 - 2.0**-24
EDGES = torch.tensor([0.0, 2.0**-24, 2.0**-23, 0.25, 1 / 3, 0.5, 0.75, 1 - 2.0**-23, LAST])


def expected_actions(number: float, weights: list[int]) -> int:
    """Exactly: the first action beyond u, in fractions."""
    target, running = Fraction(number) * sum(weights), 0
    for action, weight in enumerate(weights):
        running += weight
        if running > target:
            return action
    raise AssertionError


@pytest.mark.parametrize("pad", [0, 40], ids=["triangle", "cumsum"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_small_weighting_at_every_edge(pad: int, dtype: torch.dtype) -> None:
    """All weights 0, 1, 2, 4 on five actions (their sums are exact): 1023 weightings, nine numbers each."""
    weights = torch.cartesian_prod(*[torch.tensor([0, 1, 2, 4])] * 5)[1:]
    logits = torch.nn.functional.pad(weights.to(dtype), (pad, pad)).log()
    actions = keys.inverse_cdf(EDGES[:, None], logits) - pad
    for number, row in zip(EDGES.tolist(), actions.tolist(), strict=True):
        for action, weighting in zip(row, weights.tolist(), strict=True):
            assert weighting[action] > 0
            # log and exp round: at a boundary the neighbour may be chosen
            exact = expected_actions(number, weighting)
            assert action in {exact, expected_actions(max(number - BOUNDARY, 0.0), weighting)} | {
                expected_actions(min(number + BOUNDARY, LAST), weighting)
            }


@pytest.mark.parametrize("actions", [1, 2, 3, 8, 32, 33, 100])
@pytest.mark.parametrize("scale", [0.1, 3.0, 40.0])
def test_a_masked_action_is_never_chosen_at_any_edge(actions: int, scale: float) -> None:
    parents = keys.split(key(22), 500)
    logits = keys.normal(parents, (actions,)) * scale
    masked = keys.bernoulli(keys.fold_in(parents, 1), 0.5, (actions,))
    survivor = keys.randint(keys.fold_in(parents, 2), (), 0, actions)
    masked = masked & (torch.arange(actions) != survivor[:, None])
    logits = torch.where(masked, -torch.inf, logits)
    chosen = keys.inverse_cdf(EDGES[:, None], logits)
    assert not masked.expand(len(EDGES), -1, -1).gather(-1, chosen[..., None]).any()


@pytest.mark.parametrize("actions", [1, 2, 8, 32, 64])
def test_a_boundary_belongs_to_the_action_that_begins_there(actions: int) -> None:
    numbers = torch.arange(actions) / actions
    assert keys.inverse_cdf(numbers, torch.zeros(actions, actions)).tolist() == list(range(actions))
    before = keys.inverse_cdf(numbers[1:] - 2.0**-24, torch.zeros(actions - 1, actions))
    assert before.tolist() == list(range(actions - 1))


def test_sums_that_do_not_rise_choose_no_masked_action(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that sums in another order for each entry may find that the sum falls where a zero was added."""
    exact, wave = torch.Tensor.cumsum, 1e-3 * torch.cos(torch.arange(40.0) * 2)
    monkeypatch.setattr(torch.Tensor, "cumsum", lambda self, axis: exact(self, axis) + wave)
    logits = torch.where(torch.arange(40) % 2 == 1, -torch.inf, torch.zeros(40))
    chosen = keys.inverse_cdf(torch.cat([EDGES, keys.uniform(key(27), (5000,))]), logits.expand(5009, 40))
    assert (chosen % 2 == 0).all()
    assert len(set(chosen.tolist())) == 20


@pytest.mark.parametrize("precision", [20, pytest.param(24, marks=pytest.mark.slow)])
def test_all_numbers_of_the_grid_give_each_action_its_share(precision: int) -> None:
    """All u = k 2**-precision: an action's count is its probability to within three grid points."""
    logits = torch.tensor([-torch.inf, 0.2, -torch.inf, -1.0, 0.9, -torch.inf])
    counts = torch.zeros(6, dtype=torch.int64)
    grid: Any = torch.arange(2**precision, dtype=torch.int32)
    for chunk in grid.split(2**20):
        counts += torch.bincount(keys.inverse_cdf(chunk.to(torch.float32) * 2.0**-precision, logits), minlength=6)
    wanted = torch.softmax(logits.double(), -1) * 2**precision
    assert int(counts.sum()) == 2**precision
    assert float((counts - wanted).abs().max()) <= 3


@pytest.mark.parametrize("actions", [5, 50])
def test_extreme_logits(actions: int) -> None:
    def chosen(logits: Tensor) -> set[int]:
        return set(keys.inverse_cdf(EDGES, logits.expand(len(EDGES), actions)).tolist())

    low = torch.full((actions,), -3e38)
    one = torch.arange(actions) == 3
    assert chosen(torch.where(one, 0.0, low)) == {3}
    assert chosen(torch.where(one, 3e38, low)) == {3}
    assert chosen(torch.where(one, -3e38, -torch.inf)) == {3}
    assert {0, actions - 1} <= chosen(low), "equal logits are equally likely, however low"
    assert chosen(torch.full((actions,), -torch.inf)) == {0}
    assert chosen(torch.where(one, torch.nan, low)) == {0}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("actions", [20, 200])
def test_short_logits_are_summed_in_float32(dtype: torch.dtype, actions: int) -> None:
    logits, numbers = keys.normal(key(25), (500, actions), dtype=dtype), keys.uniform(key(26), (500,))
    assert torch.equal(keys.inverse_cdf(numbers, logits), keys.inverse_cdf(numbers, logits.float()))


def test_both_sums_choose_alike() -> None:
    """32 actions take the triangle of products, the same padded to 33 the running sum."""
    logits, numbers = keys.normal(key(23), (2000, 32)), keys.uniform(key(24), (2000,))
    padded = torch.nn.functional.pad(logits, (0, 1), value=-torch.inf)
    boundaries = torch.softmax(logits.double(), -1).cumsum(-1)
    near = ((boundaries - numbers[:, None]).abs() < BOUNDARY).any(-1)
    assert ((keys.inverse_cdf(numbers, logits) == keys.inverse_cdf(numbers, padded)) | near).all()


# --- errors ---

MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "negative seed": (lambda: key(-1), ChoiceError, "key: seed is -1, wanted 0 <= seed < 2"),
    "long seed": (lambda: key(2**64), ChoiceError, "key: seed is 18446744073709551616"),
    "key of floats": (lambda: keys.bits(torch.zeros(2)), DtypeError, "bits: key is torch.float32, wanted torch.int64"),
    "half a key": (lambda: keys.split(torch.tensor([1])), ShapeError, r"split: key is \[1\], wanted \[\*, 2\]"),
    "no key": (lambda: keys.fold_in(torch.tensor(1), 2), ShapeError, r"fold_in: key is \[\]"),
    "fold_in of a float": (lambda: keys.fold_in(key(0), torch.ones(1)), DtypeError, "fold_in: data is torch.float32"),
    "fold_in of a flag": (lambda: keys.fold_in(key(0), torch.ones(1) > 0), DtypeError, "fold_in: data is torch.bool"),
    "uniform integers": (lambda: keys.uniform(key(0), dtype=torch.int64), DtypeError, "uniform: dtype is torch.int64"),
    "empty range": (lambda: keys.randint(key(0), (), 3, 3), ChoiceError, r"randint: bounds is \(3, 3\)"),
    "range too wide": (lambda: keys.randint(key(0), (), 0, 2**31), ChoiceError, "wanted 0 < high - low < 2"),
    "a draw for two bounds": (
        lambda: keys.randint(key(0), (), 0, torch.tensor([2, 3])),
        ShapeError,
        r"randint: bound is \[2\], wanted one that broadcasts to the draws \[\]",
    ),
    "a draw for two probabilities": (
        lambda: keys.bernoulli(key(0), torch.ones(2)),
        ShapeError,
        r"bernoulli: probability is \[2\]",
    ),
    "a key for two worlds": (
        lambda: keys.categorical(key(0), torch.ones(2, 3)),
        ShapeError,
        r"categorical: logits is \[2\]",
    ),
}


@pytest.mark.parametrize(("act", "error", "text"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_named(act: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        act()
    assert "\n" not in str(caught.value)
