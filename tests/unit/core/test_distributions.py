"""Distributions: definitions by enumeration and integration, finite gradients at the edges, samples as functions of noise."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.core import keys
from purestep.core.distributions import (
    Categorical,
    Distribution,
    MultiCategorical,
    Normal,
    Product,
    TanhNormal,
    kl,
    masked,
    with_mask,
)
from purestep.core.errors import PurestepError, StructureError
from purestep.core.record import replace

GRID = (torch.arange(20000, dtype=torch.float32) + 0.5) / 20000  # stratified noise: frequencies without luck
LAST_UNIFORM = 1.0 - 2.0**-24  # the largest number `uniform` gives


def logits(*shape: int, seed: int = 0) -> Tensor:
    return 2.0 * keys.normal(keys.key(seed), shape)


def tanh_normal(mean: float, std: float, low: float = -1.0, high: float = 1.0) -> TanhNormal:
    full = [torch.full((1,), x, dtype=torch.float64) for x in (mean, math.log(std), low, high)]
    return TanhNormal(mean=full[0], log_std=full[1], low=full[2], high=full[3])


def examples() -> list[Distribution]:
    mean, log_std = logits(3, 2), 0.3 * logits(3, 2, seed=1)
    low, high = torch.full((3, 2), -2.0), torch.full((3, 2), 3.0)
    return [
        Categorical(logits=logits(3, 5)),
        Categorical(logits=logits(3, 40)),
        masked(logits(3, 5), torch.tensor([True, False, True, False, True])),
        Normal(mean=mean, log_std=log_std),
        TanhNormal(mean=mean, log_std=log_std, low=low, high=high),
        MultiCategorical(logits=logits(3, 5), sizes=(2, 3)),
        MultiCategorical(logits=logits(3, 6), sizes=(2, 2, 2)),
        Product(
            parts={
                "gear": Categorical(logits=logits(3, 4)),
                "rest": Product(parts=(Normal(mean=mean, log_std=log_std),)),
            }
        ),
    ]


@pytest.mark.parametrize("actions", [1, 2, 5, 40])
def test_categorical_is_its_definition(actions: int) -> None:
    p = Categorical(logits=logits(4, actions))
    action = torch.arange(actions)[:, None].expand(actions, 4)
    log_probs = torch.stack([p.log_prob(a) for a in action], -1)
    torch.testing.assert_close(log_probs.exp(), torch.softmax(p.logits, -1))
    torch.testing.assert_close(p.entropy(), -(log_probs.exp() * log_probs).sum(-1))
    assert torch.equal(p.mode(), log_probs.argmax(-1))


@pytest.mark.parametrize("actions", [3, 40])
def test_categorical_samples_have_their_probabilities(actions: int) -> None:
    p = Categorical(logits=logits(actions))
    taken = Categorical(logits=p.logits.expand(len(GRID), actions)).transform(GRID)
    frequency = torch.bincount(taken, minlength=actions) / len(GRID)
    torch.testing.assert_close(frequency, torch.softmax(p.logits, -1), atol=1.5 / len(GRID), rtol=0.0)


@pytest.mark.parametrize("p", examples(), ids=lambda p: type(p).__name__)
def test_a_sample_is_its_noise_transformed_and_a_batch_is_its_singles(p: Distribution) -> None:
    batch = keys.split(keys.key(3), 3)
    action = p.sample(batch)
    same(action, p.transform(p.noise(batch)))
    singles = torch.vmap(lambda q, key: (q.sample(key), q.mode()))(p, batch)
    same(singles[0], action)
    same(singles[1], p.mode())
    torch.testing.assert_close(torch.vmap(lambda q, a: q.log_prob(a))(p, action), p.log_prob(action))
    torch.testing.assert_close(torch.vmap(lambda q: q.entropy())(p), p.entropy())


def same(got: Any, wanted: Any) -> None:
    torch.testing.assert_close(got, wanted, atol=0.0, rtol=0.0)


@pytest.mark.parametrize("sizes", [(2, 3), (1, 4, 2), (2, 2), (3,)])
def test_independent_numbers_are_their_categoricals(sizes: tuple[int, ...]) -> None:
    p, q = (MultiCategorical(logits=logits(4, sum(sizes), seed=seed), sizes=sizes) for seed in (0, 1))
    alone, other = ([Categorical(logits=one) for one in torch.split(x.logits, list(sizes), -1)] for x in (p, q))
    every = torch.tensor(list(itertools.product(*map(range, sizes))))[:, None].expand(-1, 4, -1)
    table = torch.stack([p.log_prob(action) for action in every])
    torch.testing.assert_close(table.exp().sum(0), torch.ones(4))
    rows = [torch.stack([c.log_prob(a[..., k]) for k, c in enumerate(alone)]).sum(0) for a in every]
    torch.testing.assert_close(table, torch.stack(rows))
    torch.testing.assert_close(p.entropy(), -(table.exp() * table).sum(0))
    torch.testing.assert_close(p.log_prob(p.mode()), table.max(0).values)
    wanted = sum((kl(one, two) for one, two in zip(alone, other, strict=True)), torch.zeros(4))
    torch.testing.assert_close(kl(p, q), wanted)
    gradient = torch.func.grad(lambda x: (replace(p, logits=x).entropy() + kl(replace(p, logits=x), q)).sum())(p.logits)
    assert bool(gradient.isfinite().all())
    drawn = p.sample(keys.split(keys.key(2), 4))
    assert bool((drawn < torch.tensor(sizes)).all())
    noise = keys.uniform(keys.key(8), (2000, len(sizes)))
    taken = MultiCategorical(logits=p.logits[0].expand(2000, -1), sizes=sizes).transform(noise)
    for k, one in enumerate(alone):
        share = torch.bincount(taken[:, k], minlength=sizes[k]) / 2000
        torch.testing.assert_close(share, one.logits[0].softmax(-1), atol=0.06, rtol=0.0)


def test_a_product_adds_up_its_parts_which_draw_from_keys_of_their_own() -> None:
    one, two = Categorical(logits=logits(5, 4)), Categorical(logits=logits(5, 4))
    speed = Normal(mean=logits(5, 2), log_std=logits(5, 2))
    p = Product(parts={"one": one, "both": Product(parts=(two, speed))})
    many = keys.split(keys.key(0), 5)
    action = p.sample(many)
    torch.testing.assert_close(
        p.log_prob(action),
        one.log_prob(action["one"]) + two.log_prob(action["both"][0]) + speed.log_prob(action["both"][1]),
    )
    torch.testing.assert_close(p.entropy(), one.entropy() + two.entropy() + speed.entropy())
    assert bool((p.noise(many)["one"] != p.noise(many)["both"][0]).all())
    assert float(kl(p, p).abs().max()) == 0.0
    q = Product(parts={"one": one, "both": Product(parts=(one, speed))})
    torch.testing.assert_close(kl(p, q), kl(two, one))
    with pytest.raises(StructureError, match="kl: p, q is Product and Product"):
        kl(p, Product(parts={"one": one, "two": two}))


def test_a_mask_of_a_tree_masks_its_parts() -> None:
    p = Product(
        parts={
            "gear": MultiCategorical(logits=logits(3, 5), sizes=(2, 3)),
            "speed": Normal(mean=logits(3, 1), log_std=logits(3, 1)),
            "pair": Product(parts=(Categorical(logits=logits(3, 2)), Categorical(logits=logits(3, 2)))),
        }
    )
    gear = torch.tensor([[True, False, False, True, True], [False] * 5, [True] * 5])
    mask = {"gear": gear, "pair": ((), torch.tensor([[1, 0]] * 3))}
    q = with_mask(p, mask)
    drawn = torch.vmap(q.sample)(keys.split(keys.split(keys.key(1), 3), 200))
    assert drawn["gear"][:, 0, 0].unique().tolist() == [0]
    assert drawn["gear"][:, 0, 1].unique().tolist() == [1, 2]
    assert drawn["gear"][:, 1].amax(0).tolist() == [1, 2]  # none is legal, so all are
    assert drawn["pair"][1].unique().tolist() == [0]
    assert drawn["pair"][0].unique().tolist() == [0, 1]
    assert q.parts["speed"] is p.parts["speed"]


WRONG_MASKS: dict[str, tuple[Any, Any, str]] = {
    "a flag too few": (
        MultiCategorical(logits=torch.zeros(3, 5), sizes=(2, 3)),
        torch.ones(3, 4),
        r"action_mask is \[3, 4\], wanted \[3, 5\]; give one flag",
    ),
    "a tree for one tensor": (Categorical(logits=torch.zeros(2)), {"a": torch.ones(2)}, "action_mask is dict"),
    "one tensor for a tree": (
        Product(parts=(Categorical(logits=torch.zeros(2)),)),
        torch.ones(2),
        "action_mask is of \\['one tensor'\\]",
    ),
    "an unknown part": (
        Product(parts={"a": Categorical(logits=torch.zeros(2))}),
        {"b": torch.ones(2)},
        r"action_mask is of \['b'\], wanted of \['a'\]",
    ),
}


@pytest.mark.parametrize(("p", "mask", "text"), WRONG_MASKS.values(), ids=WRONG_MASKS)
def test_a_mask_of_another_kind_is_refused(p: Any, mask: Any, text: str) -> None:
    with pytest.raises(PurestepError, match=text):
        with_mask(p, mask)


@pytest.mark.parametrize("mask", list(itertools.product([False, True], repeat=3))[1:])
@pytest.mark.parametrize("values", [(0.5, -1.0, 2.0), (1e30, 0.0, -1e30)])
def test_masked_is_the_softmax_over_legal_actions(mask: tuple[bool, ...], values: tuple[float, ...]) -> None:
    legal, raw = torch.tensor(mask), torch.tensor(values)
    p, inner = masked(raw, legal), Categorical(logits=raw[legal])
    positions = torch.arange(3)[legal]
    torch.testing.assert_close(p.entropy(), inner.entropy())
    for index, position in enumerate(positions):
        torch.testing.assert_close(p.log_prob(position), inner.log_prob(torch.tensor(index)))
    noise = torch.cat([GRID, torch.tensor([0.0, LAST_UNIFORM])])
    taken = masked(raw.expand(len(noise), 3), legal).transform(noise)
    assert bool(legal[taken].all())
    assert bool(legal[p.mode()])
    assert float(torch.softmax(p.logits, -1)[~legal].sum()) == 0.0


def test_masked_never_samples_an_illegal_action_among_many() -> None:
    legal = keys.bernoulli(keys.key(4), 0.5, (200, 50))
    p = masked(logits(200, 50), legal)
    for noise in (0.0, 0.3, LAST_UNIFORM):
        taken = p.transform(torch.full((200,), noise))
        assert bool(legal.gather(-1, taken[:, None]).all())


@pytest.mark.parametrize("mask", list(itertools.product([False, True], repeat=3)))
def test_gradients_of_masked_are_finite_and_zero_where_illegal(mask: tuple[bool, ...]) -> None:
    legal, raw = torch.tensor(mask), torch.tensor([0.5, -1.0, 2.0])
    other = masked(torch.zeros(3), legal)
    functions: list[Callable[[Categorical], Tensor]] = [
        lambda p: p.entropy(),
        lambda p: kl(p, other),
        lambda p: kl(other, p),
        *(lambda p, a=a: p.log_prob(torch.tensor(a)) for a in range(3)),
    ]
    for function in functions:
        gradient, value = torch.func.grad_and_value(lambda x, f=function: f(masked(x, legal)))(raw)
        assert bool(torch.isfinite(value))
        assert bool(torch.isfinite(gradient).all())
        assert bool((gradient[~legal] == 0.0).all())


def test_masked_without_any_legal_action_is_uniform() -> None:
    p = masked(torch.tensor([5.0, -5.0, 0.0]), torch.zeros(3, dtype=torch.bool))
    torch.testing.assert_close(p.entropy(), torch.tensor(math.log(3.0)))
    torch.testing.assert_close(p.log_prob(torch.tensor(1)), torch.tensor(-math.log(3.0)))


def test_minus_infinity_as_a_logit_has_finite_entropy_and_gradient() -> None:
    raw = torch.tensor([0.0, -math.inf, 1.0])
    gradient, value = torch.func.grad_and_value(lambda x: Categorical(logits=x).entropy())(raw)
    torch.testing.assert_close(value, Categorical(logits=raw[[0, 2]]).entropy())
    assert bool(torch.isfinite(gradient).all())
    towards = torch.func.grad(lambda x: kl(Categorical(logits=x), Categorical(logits=torch.zeros(3))))(raw)
    assert bool(torch.isfinite(towards).all())
    assert float(kl(Categorical(logits=torch.zeros(3)), Categorical(logits=raw))) == math.inf


def test_normal_is_the_reference() -> None:
    p = Normal(mean=logits(4, 3), log_std=logits(4, 3, seed=1))
    reference: Any = torch.distributions.Independent(torch.distributions.Normal(p.mean, p.log_std.exp()), 1)
    action = p.sample(keys.split(keys.key(2), 4))
    torch.testing.assert_close(p.log_prob(action), reference.log_prob(action), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(p.entropy(), reference.entropy(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close((action - p.mean) / p.log_std.exp(), p.noise(keys.split(keys.key(2), 4)))


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (1.5, 0.3), (-2.0, 2.0)])
def test_tanh_normal_is_the_reference_and_a_density(mean: float, std: float) -> None:
    p = tanh_normal(mean, std, -2.0, 4.0)
    transforms = [torch.distributions.TanhTransform(), torch.distributions.AffineTransform(1.0, 3.0)]
    reference: Any = torch.distributions.TransformedDistribution(
        torch.distributions.Normal(p.mean, p.log_std.exp()), transforms
    )
    x = torch.linspace(-6.0, 6.0, 25, dtype=torch.float64)[:, None]
    action = p.squash(x)
    torch.testing.assert_close(p.log_prob(action), reference.log_prob(action).sum(-1), rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(p.log_prob_before(x), p.log_prob(action), rtol=1e-7, atol=1e-7)
    # integrated over the actions, whose grid is even in x so that the steep ends are seen
    fine = torch.linspace(-20.0, 20.0, 40001, dtype=torch.float64)[:, None]
    total = torch.trapezoid(p.log_prob_before(fine).exp(), p.squash(fine)[:, 0])
    torch.testing.assert_close(total, torch.ones((), dtype=torch.float64), rtol=1e-4, atol=0.0)


@pytest.mark.parametrize(("std", "error"), [(0.1, 1e-6), (0.5, 1e-3), (1.0, 1e-2), (3.0, 0.3)])
@pytest.mark.parametrize("mean", [0.0, 0.5, 2.0, -5.0])
def test_entropy_of_tanh_normal_is_as_good_as_stated(mean: float, std: float, error: float) -> None:
    p = tanh_normal(mean, std, -2.0, 4.0)
    x = torch.linspace(mean - 10 * std, mean + 10 * std, 20001, dtype=torch.float64)[:, None]
    density = p.before().log_prob(x).exp()
    exact = -torch.trapezoid(density * p.log_prob_before(x), x[:, 0])
    assert abs(float(p.entropy() - exact)) < error


def test_tanh_normal_stays_in_its_box_and_finite_at_the_bounds() -> None:
    low, high = torch.tensor([-0.1, 0.3]), torch.tensor([0.3, 1.7])
    p = TanhNormal(mean=torch.zeros(2), log_std=torch.zeros(2), low=low, high=high)
    for x in (-1e4, -30.0, -9.0, 9.0, 30.0, 1e4):
        action = p.squash(torch.full((2,), x))
        assert bool(((action >= low) & (action <= high)).all())
        gradient = torch.func.grad(
            lambda m, a=action: TanhNormal(mean=m, log_std=torch.zeros(2), low=low, high=high).log_prob(a)
        )(torch.zeros(2))
        assert bool(torch.isfinite(p.log_prob(action)))
        assert bool(torch.isfinite(gradient).all())
    far = torch.func.grad(lambda x: p.log_prob_before(x))(torch.full((2,), 50.0))
    torch.testing.assert_close(far, torch.full((2,), -50.0 + 2.0))  # -x of the normal, +2 of the vanishing slope


def test_kl_is_its_definition() -> None:
    p, q = Categorical(logits=logits(4, 5)), Categorical(logits=logits(4, 5, seed=1))
    a, b = torch.log_softmax(p.logits, -1), torch.log_softmax(q.logits, -1)
    torch.testing.assert_close(kl(p, q), (a.exp() * (a - b)).sum(-1))
    torch.testing.assert_close(kl(p, p), torch.zeros(4))
    first = Normal(mean=logits(4, 3), log_std=0.3 * logits(4, 3, seed=1))
    second = Normal(mean=logits(4, 3, seed=2), log_std=0.3 * logits(4, 3, seed=3))
    references = [torch.distributions.Normal(n.mean, n.log_std.exp()) for n in (first, second)]
    expected = torch.distributions.kl_divergence(*references).sum(-1)
    torch.testing.assert_close(kl(first, second), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(kl(first, first), torch.zeros(4))


def test_kl_does_not_see_the_squashing() -> None:
    p, q = tanh_normal(0.5, 0.8, -2.0, 4.0), tanh_normal(-0.2, 1.1, -2.0, 4.0)
    x = torch.linspace(-8.0, 8.0, 20001, dtype=torch.float64)[:, None]
    action, log_p, log_q = p.squash(x)[:, 0], p.log_prob_before(x), q.log_prob_before(x)
    integral = torch.trapezoid(log_p.exp() * (log_p - log_q), action)
    torch.testing.assert_close(kl(p, q)[None].squeeze(), integral, rtol=1e-5, atol=1e-6)


def test_kl_refuses_unlike_distributions() -> None:
    normal = Normal(mean=torch.zeros(2), log_std=torch.zeros(2))
    with pytest.raises(StructureError, match="kl: p, q is Normal and Categorical"):
        kl(normal, Categorical(logits=torch.zeros(2)))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_distributions_compile_whole(backend: str) -> None:
    mask = torch.tensor([True, False, True])

    def everything(raw: Tensor, key: Tensor) -> tuple[Tensor, ...]:
        bound = torch.ones_like(raw)
        results: list[Tensor] = []
        for p in (masked(raw, mask), TanhNormal(mean=raw, log_std=0.1 * raw, low=-bound, high=bound)):
            action = p.sample(key)
            results += [action, p.log_prob(action), p.entropy(), p.mode()]
        return tuple(results)

    raw, key = logits(4, 3), keys.split(keys.key(1), 4)
    compiled = torch.compile(everything, fullgraph=True, backend=backend)
    for got, wanted in zip(compiled(raw, key), everything(raw, key), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
