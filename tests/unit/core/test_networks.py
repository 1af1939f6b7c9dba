"""Networks: shapes, initial weights, the forms of one product, and modules that behave as pure functions."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from purestep.core import keys
from purestep.core.errors import ChoiceError, DtypeError, ShapeError, StructureError
from purestep.core.networks import FEW_ROWS, MANY_ROWS, functional, mlp, orthogonal, tree_layout
from purestep.core.tree import leaves


class Tied(nn.Module):
    """Two layers that share one weight, and a buffer that counts calls."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        self.calls.add_(1)
        out: Tensor = self.second(torch.tanh(self.first(x))) * scale
        return out


def modules() -> list[nn.Module]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        normalised = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)).eval()
        return [nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), Tied(), normalised]


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


@pytest.mark.parametrize("lead", [(), (5,), (2, 3)])
def test_mlp_takes_any_leading_axes(lead: tuple[int, ...]) -> None:
    network = mlp([4, 8, 2])
    params = network.init(keys.key(0))
    x = keys.normal(keys.key(1), (*lead, 4))
    y = network.apply(params, x)
    assert y.shape == (*lead, 2)
    rows = torch.stack([network.apply(params, row) for row in x.reshape(-1, 4)]).reshape(y.shape)
    torch.testing.assert_close(y, rows, rtol=1e-5, atol=1e-6)


def test_mlp_is_its_layers_and_leaves_the_last_one_linear() -> None:
    network = mlp([4, 8, 8, 2], "relu")
    params = network.init(keys.key(0))
    layers: list[nn.Module] = []
    for layer in params:
        linear = nn.Linear(*layer.weight.shape)
        with torch.no_grad():
            linear.weight.copy_(layer.weight.T)
            linear.bias.copy_(layer.bias + 0.1)
        layers += [linear, nn.ReLU()]
    shifted = tuple(type(layer)(weight=layer.weight, bias=layer.bias + 0.1) for layer in params)
    x = keys.normal(keys.key(1), (5, 4))
    torch.testing.assert_close(network.apply(shifted, x), nn.Sequential(*layers[:-1])(x).detach())


def test_initial_weights_are_orthogonal_with_their_gains_and_biases_zero() -> None:
    params = mlp([4, 8, 8, 2], gain=1.5, final_gain=0.01).init(keys.key(0))
    for layer, gain in zip(params, (1.5, 1.5, 0.01), strict=True):
        weight = layer.weight / gain
        rows, columns = weight.shape
        product = weight.T @ weight if rows >= columns else weight @ weight.T
        torch.testing.assert_close(product, torch.eye(min(rows, columns)), rtol=1e-5, atol=1e-5)
        assert not bool(layer.bias.any())


def test_orthogonal_is_not_biased_by_the_signs_of_qr() -> None:
    # LAPACK makes R's diagonal negative; without the correction Q of a 1 x 1 matrix would always be the same sign
    signs = orthogonal(keys.split(keys.key(0), 400), (1, 1)).sign()
    assert 150 < int((signs > 0).sum()) < 250


def test_init_depends_on_the_key_alone_and_a_batch_is_its_singles() -> None:
    network = mlp([4, 8, 2])
    several = keys.split(keys.key(0), 3)
    batch, mapped = network.init(several), torch.vmap(network.init)(several)
    for i, key in enumerate(several):
        for single, again, in_batch, in_map in zip(
            *(leaves(tree) for tree in (network.init(key), network.init(key), batch, mapped)), strict=True
        ):
            assert torch.equal(single, again)
            torch.testing.assert_close(in_batch[i], single, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(in_map[i], single, rtol=1e-4, atol=1e-5)
    assert not torch.equal(batch[0].weight[0], batch[0].weight[1])


@pytest.mark.parametrize("rows", [1, FEW_ROWS, FEW_ROWS + 1, 100])
def test_products_differ_in_rounding_only_and_auto_chooses_by_rows(rows: int) -> None:
    networks = {product: mlp([6, 32, 5], product=product) for product in ("matmul", "broadcast", "auto")}
    params = networks["matmul"].init(keys.key(0))
    x = keys.normal(keys.key(1), (rows, 6))
    results = {product: network.apply(params, x) for product, network in networks.items()}
    torch.testing.assert_close(results["broadcast"], results["matmul"], rtol=1e-5, atol=1e-6)
    assert torch.equal(results["auto"], results["broadcast" if rows <= FEW_ROWS else "matmul"])


@pytest.mark.parametrize("shape", [(1,), (MANY_ROWS - 1,), (MANY_ROWS,), (3, MANY_ROWS)])
@pytest.mark.parametrize("outputs", [1, 2, 4])
def test_products_with_few_outputs_and_their_gradients_differ_in_rounding_only(
    shape: tuple[int, ...], outputs: int
) -> None:
    plain, chosen = (mlp([6, 32, outputs], product=product) for product in ("matmul", "auto"))
    params, x = plain.init(keys.split(keys.key(8), 2)), keys.normal(keys.key(9), (*shape, 6))

    def loss(apply: Callable[[Any, Tensor], Tensor]) -> Callable[[Any], Tensor]:
        return lambda params: (apply(params, x) ** 2).mean()

    values = [torch.vmap(network.apply, (0, None))(params, x) for network in (plain, chosen)]
    assert values[1].shape == (2, *shape, outputs)
    torch.testing.assert_close(values[1], values[0], rtol=1e-5, atol=1e-5)
    gradients = [torch.vmap(torch.func.grad(loss(network.apply)))(params) for network in (plain, chosen)]
    torch.testing.assert_close(leaves(gradients[1]), leaves(gradients[0]), rtol=1e-5, atol=1e-5)


def test_mlp_refuses_bad_sizes_and_names() -> None:
    with pytest.raises(ShapeError, match=r"mlp: sizes is \[4\]"):
        mlp([4])
    with pytest.raises(ChoiceError, match="did you mean 'tanh'"):
        mlp([4, 2], "tanhh")
    with pytest.raises(ChoiceError, match="mlp: product"):
        mlp([4, 2], product="einsum")


@pytest.mark.parametrize("module", modules(), ids=["plain", "tied", "batch norm"])
def test_functional_call_is_the_module_call(module: nn.Module) -> None:
    before = snapshot(module)
    network = functional(module)
    params = network.init(keys.key(0))
    x = keys.normal(keys.key(1), (6, 3))
    first, second = network.apply(params, x), network.apply(params, x)
    gradient = torch.func.grad(lambda p: (network.apply(p, x) ** 2).sum())(params)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert torch.equal(first, second)
    assert torch.equal(first, module(x))
    loss = (module(x) ** 2).sum()
    expected = torch.autograd.grad(loss, list(module.parameters()))
    assert list(gradient) == [name for name, _ in module.named_parameters()]
    for got, wanted in zip(gradient.values(), expected, strict=True):
        torch.testing.assert_close(got, wanted)


def test_functional_params_are_copies_used_instead_of_the_modules() -> None:
    module = modules()[0]
    network = functional(module)
    params = network.init(keys.key(0))
    assert not any(value.requires_grad for value in params.values())
    x = torch.ones(2, 3)
    zero = {name: torch.zeros_like(value) for name, value in params.items()}
    assert not bool(network.apply(zero, x).any())
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    assert bool(network.apply(params, x).any())


def test_functional_leaves_frozen_parameters_out_and_takes_several_arguments() -> None:
    module = Tied().eval()
    module.second.bias.requires_grad_(False)
    network = functional(module, arguments=lambda x: ((x["x"],), {"scale": 2.0}))
    params = network.init(keys.key(0))
    assert sorted(params) == ["first.bias", "first.weight"]
    x = torch.ones(2, 3)
    assert torch.equal(network.apply(params, {"x": x}), module(x, scale=2.0))


def test_functional_maps_over_params() -> None:
    network = functional(modules()[0])
    params = network.init(keys.key(0))
    several = {name: torch.stack([value, 2.0 * value]) for name, value in params.items()}
    mapped = torch.vmap(network.apply, in_dims=(0, None))(several, torch.ones(5, 3))
    torch.testing.assert_close(mapped[0], network.apply(params, torch.ones(5, 3)))
    assert not torch.allclose(mapped[0], mapped[1])


def test_layout_ravels_and_unravels_trees_and_batches_of_them() -> None:
    network = mlp([4, 3, 2])
    params = network.init(keys.key(0))
    places = tree_layout(params)
    vector = places.ravel(params)
    assert vector.shape == (4 * 3 + 3 + 3 * 2 + 2,)
    for got, wanted in zip(leaves(places.unravel(vector)), leaves(params), strict=True):
        assert torch.equal(got, wanted)
    batch = network.init(keys.split(keys.key(0), 5))
    vectors = places.ravel(batch)
    assert vectors.shape == (5, vector.shape[0])
    for got, wanted in zip(leaves(places.unravel(vectors)), leaves(batch), strict=True):
        assert torch.equal(got, wanted)


@pytest.mark.parametrize("dtypes", list(itertools.permutations([torch.float32, torch.float64, torch.int64], 2)))
def test_layout_refuses_mixed_and_integer_trees(dtypes: tuple[torch.dtype, ...]) -> None:
    with pytest.raises(DtypeError, match="layout: dtypes"):
        tree_layout([torch.zeros(2, dtype=dtype) for dtype in dtypes])
    with pytest.raises(DtypeError, match="layout: dtypes"):
        tree_layout([torch.zeros(2, dtype=torch.int64)])


@pytest.mark.slow
def test_networks_compile_whole_with_their_gradients() -> None:
    network, wrapped = mlp([4, 8, 2], product="broadcast"), functional(modules()[0])
    params, others = network.init(keys.key(0)), wrapped.init(keys.key(0))
    x, y = keys.normal(keys.key(1), (5, 4)), keys.normal(keys.key(2), (5, 3))

    def both(key: Tensor, params: object, others: object) -> object:
        grown = torch.func.grad(lambda p: (network.apply(p, x) ** 2).sum())(params)
        return network.init(key), grown, torch.func.grad(lambda p: (wrapped.apply(p, y) ** 2).sum())(others)

    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
    pairs = zip(leaves(compiled(keys.key(3), params, others)), leaves(both(keys.key(3), params, others)), strict=True)
    for got, wanted in pairs:
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


def training(module: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), module).train()


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (nn.Dropout(0.1), "Dropout's p = 0.1"),
        (nn.AlphaDropout(0.5), "AlphaDropout's p = 0.5"),
        (nn.MultiheadAttention(4, 2, dropout=0.25), "MultiheadAttention's dropout = 0.25"),
        (nn.LSTM(4, 4, 2, dropout=0.25), "LSTM's dropout = 0.25"),
        (nn.BatchNorm1d(4), "BatchNorm1d's running statistics"),
        (nn.InstanceNorm1d(4, track_running_stats=True), "InstanceNorm1d's running statistics"),
        (nn.RReLU(), "RReLU's random slopes"),
    ],
)
def test_a_module_that_trains_by_itself_is_refused_until_eval(module: nn.Module, said: str) -> None:
    with pytest.raises(
        StructureError, match=f"functional: 1 is training with {said}, wanted a pure .*; call .eval"
    ) as caught:
        functional(training(module))
    assert "\n" not in str(caught.value)
    assert functional(training(module).eval())


def test_a_module_put_back_to_training_is_refused_when_it_is_called() -> None:
    whole = training(nn.Dropout(0.5)).eval()
    network = functional(whole)
    params = network.init(keys.key(0))
    x = torch.ones(3, 4)
    assert torch.equal(network.apply(params, x), network.apply(params, x))
    whole.train()
    with pytest.raises(StructureError, match=r"Dropout's p = 0\.5"):
        network.apply(params, x)


@pytest.mark.parametrize("module", [nn.Dropout(0.0), nn.BatchNorm1d(4, track_running_stats=False), nn.LayerNorm(4)])
def test_a_module_in_training_that_is_pure_is_taken(module: nn.Module) -> None:
    network = functional(training(module))
    params = network.init(keys.key(0))
    assert torch.equal(network.apply(params, torch.ones(3, 4)), network.apply(params, torch.ones(3, 4)))
