"""Policies: what `act` returns, the model for each kind of space, and one vector in place of a tree of parameters."""

from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.core import keys
from purestep.core.distributions import Categorical, Normal, TanhNormal
from purestep.core.errors import ChoiceError, DtypeError, ShapeError, StructureError
from purestep.core.networks import Network, functional, mlp, tree_layout
from purestep.core.policy import (
    ActorCritic,
    act,
    actor_critic_mlp,
    categorical_head,
    encode,
    encoded_size,
    flat,
    scalar,
    separate,
    shared,
    with_action_mask,
)
from purestep.core.scan import scan
from purestep.core.spaces import Box, Discrete, Fields, Space, contains
from purestep.core.tree import leaves, tree_map

SEEN = Box(-1.0, 1.0, (4,))
MASKED = Fields((("features", SEEN), ("action_mask", Box(0.0, 1.0, (3,)))))
BOUNDED = Box((-2.0, 0.0), (2.0, 0.5), (2,))


def model(kind: str, **options: Any) -> tuple[ActorCritic, Space, Any]:
    """A small model, its action space and seven observations."""
    features = keys.normal(keys.key(5), (7, 4))
    legal = torch.tensor([True, False, True]).expand(7, 3)
    table: dict[str, tuple[Space, Space, Any]] = {
        "discrete": (SEEN, Discrete(3), features),
        "masked": (MASKED, Discrete(3), {"features": features, "action_mask": legal}),
        "normal": (SEEN, BOUNDED, features),
        "tanh_normal": (SEEN, BOUNDED, features),
    }
    seen, space, observation = table[kind]
    if "normal" in kind:
        options["distribution"] = kind
    return actor_critic_mlp(seen, space, (8, 8), **options), space, observation


KINDS = {"discrete": Categorical, "masked": Categorical, "normal": Normal, "tanh_normal": TanhNormal}


@pytest.mark.parametrize("kind", KINDS)
def test_the_factory_gives_each_space_its_distribution(kind: str) -> None:
    actor_critic, space, observation = model(kind)
    params = actor_critic.init(keys.key(0))
    distribution, value, carry = actor_critic.apply(params, observation, ())
    assert type(distribution) is KINDS[kind]
    assert value.shape == (7,)
    assert carry == ()
    action = distribution.sample(keys.split(keys.key(1), 7))
    assert kind == "normal" or bool(contains(space, action).all())
    single, alone, _ = actor_critic.apply(params, tree_map(lambda leaf: leaf[2], observation), ())
    torch.testing.assert_close(single.log_prob(action[2]), distribution.log_prob(action)[2], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(alone, value[2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_act_returns_the_log_prob_of_its_action(kind: str) -> None:
    actor_critic, _, observation = model(kind)
    params = actor_critic.init(keys.key(0))
    chosen = act(actor_critic, params, observation, (), keys.split(keys.key(1), 7))
    distribution, _, _ = actor_critic.apply(params, observation, ())
    assert torch.equal(chosen.log_prob, distribution.log_prob(chosen.action))
    again = act(actor_critic, params, observation, (), keys.split(keys.key(1), 7))
    assert torch.equal(chosen.action, again.action)


def test_masked_models_never_act_illegally_and_value_ignores_the_mask() -> None:
    actor_critic, _, observation = model("masked")
    params = actor_critic.init(keys.key(0))
    many = tree_map(lambda leaf: leaf[0].expand(500, *leaf.shape[1:]), observation)
    action = act(actor_critic, params, many, (), keys.split(keys.key(1), 500)).action
    assert set(action.tolist()) == {0, 2}
    unmasked = {**observation, "action_mask": torch.ones(7, 3, dtype=torch.bool)}
    distribution, value, _ = actor_critic.apply(params, unmasked, ())
    assert isinstance(distribution, Categorical)
    assert torch.equal(value, actor_critic.apply(params, observation, ())[1])
    inner, _, _ = model("discrete")
    plain, _, _ = inner.apply(params, observation["features"], ())
    assert isinstance(plain, Categorical)
    assert torch.equal(distribution.logits, plain.logits)


def test_first_policies_are_nearly_uniform_and_values_are_not_small() -> None:
    actor_critic, _, observation = model("discrete")
    distribution, value, _ = actor_critic.apply(actor_critic.init(keys.key(0)), observation, ())
    assert isinstance(distribution, Categorical)
    assert float(distribution.logits.abs().max()) < 0.05
    assert float(value.std()) > 0.1


def test_log_std_begins_where_told_and_is_learnt() -> None:
    actor_critic, _, observation = model("normal", log_std=-0.5)
    params = actor_critic.init(keys.key(0))
    distribution, _, _ = actor_critic.apply(params, observation, ())
    assert isinstance(distribution, Normal)
    assert torch.equal(distribution.log_std, torch.full((7, 2), -0.5))
    gradient = torch.func.grad(lambda p: actor_critic.apply(p, observation, ())[0].entropy().sum())(params)
    torch.testing.assert_close(gradient["policy"]["log_std"], torch.full((2,), 7.0))


def test_separate_networks_share_no_gradient_and_shared_ones_do() -> None:
    policy, value = categorical_head(mlp([4, 3])), scalar(mlp([4, 1]))
    apart = separate(policy, value)
    together = shared(mlp([4, 4]), policy, value)
    x = keys.normal(keys.key(2), (5, 4))

    def value_gradient(actor_critic: ActorCritic) -> Any:
        params = actor_critic.init(keys.key(0))
        return torch.func.grad(lambda p: actor_critic.apply(p, x, ())[1].sum())(params)

    assert not any(bool(leaf.any()) for leaf in leaves(value_gradient(apart)["policy"]))
    assert all(bool(leaf.any()) for leaf in leaves(value_gradient(apart)["value"]))
    gradient = value_gradient(together)
    assert not any(bool(leaf.any()) for leaf in leaves(gradient["policy"]))
    assert all(bool(leaf.any()) for leaf in leaves(gradient["torso"]))
    params = together.init(keys.key(0))
    features = mlp([4, 4]).apply(params["torso"], x)
    assert torch.equal(together.apply(params, x, ())[1], value.apply(params["value"], features))


def test_a_module_serves_as_a_policy() -> None:
    with torch.random.fork_rng():
        module = torch.nn.Linear(4, 3)
    actor_critic = separate(categorical_head(functional(module)), scalar(mlp([4, 1])))
    distribution, _, _ = actor_critic.apply(actor_critic.init(keys.key(0)), torch.ones(2, 4), ())
    assert isinstance(distribution, Categorical)
    assert torch.equal(distribution.logits, module(torch.ones(2, 4)))


@pytest.mark.parametrize("kind", KINDS)
def test_flat_is_the_same_model_on_one_vector(kind: str) -> None:
    tree, _, observation = model(kind)
    vector = flat(tree)
    params, raveled = tree.init(keys.key(0)), vector.init(keys.key(0))
    assert raveled.ndim == 1
    for one, other in zip(
        leaves(tree.apply(params, observation, ())), leaves(vector.apply(raveled, observation, ())), strict=True
    ):
        assert torch.equal(one, other)

    def loss(actor_critic: ActorCritic, p: Any) -> Tensor:
        distribution, value, _ = actor_critic.apply(p, observation, ())
        return distribution.entropy().sum() + (value**2).sum()

    gradient = torch.func.grad(lambda p: loss(tree, p))(params)
    torch.testing.assert_close(torch.func.grad(lambda p: loss(vector, p))(raveled), tree_layout(params).ravel(gradient))


def test_flat_populations_are_their_members() -> None:
    actor_critic, _, observation = model("discrete")
    vector = flat(actor_critic)
    several = keys.split(keys.key(0), 3)
    params = torch.vmap(vector.init)(several)
    torch.testing.assert_close(params, vector.init(several), rtol=1e-4, atol=1e-5)
    values = torch.vmap(lambda p: vector.apply(p, observation, ())[1])(params)
    for member, value in zip(params, values, strict=True):
        torch.testing.assert_close(vector.apply(member, observation, ())[1], value, rtol=1e-5, atol=1e-6)


def test_flat_takes_networks_and_refuses_integers() -> None:
    network = flat(mlp([2, 3]))
    assert network.apply(network.init(keys.key(0)), torch.ones(5, 2)).shape == (5, 3)
    counting = Network(init=lambda key: key, apply=lambda params, x: x)
    with pytest.raises(DtypeError, match="layout: dtypes"):
        flat(counting)


def test_encode_flattens_one_hots_and_joins() -> None:
    space = Fields((("grid", Box(0.0, 1.0, (2, 3))), ("room", Discrete(4))))
    grid = torch.arange(12).reshape(2, 2, 3)
    encoded = encode(space, {"grid": grid, "room": torch.tensor([3, 0])})
    assert encoded.shape == (2, encoded_size(space))
    assert encoded[0].tolist() == [0, 1, 2, 3, 4, 5, 0, 0, 0, 1]
    assert encoded[1].tolist() == [6, 7, 8, 9, 10, 11, 1, 0, 0, 0]
    tabular = actor_critic_mlp(Discrete(4), Discrete(2), ())
    _, value, _ = tabular.apply(tabular.init(keys.key(0)), torch.tensor([[0, 3], [1, 1]]), ())
    assert value.shape == (2, 2)


def test_the_factory_refuses_what_it_cannot_build() -> None:
    with pytest.raises(ChoiceError, match="did you mean 'tanh_normal'"):
        actor_critic_mlp(SEEN, BOUNDED, distribution="tanhnormal")
    with pytest.raises(ShapeError, match="wanted finite numbers"):
        actor_critic_mlp(SEEN, Box(float("-inf"), 1.0, (1,)), distribution="tanh_normal")
    with pytest.raises(ShapeError, match="wanted one axis"):
        actor_critic_mlp(SEEN, Box(-1.0, 1.0, (2, 2)))
    with pytest.raises(ShapeError, match="wall: actions is \\[\\], wanted one axis"):
        actor_critic_mlp(SEEN, Fields((("door", Discrete(2)), ("wall", Box(0.0, 1.0, ())))))
    with pytest.raises(StructureError, match="put all but the mask"):
        actor_critic_mlp(Fields((*MASKED.spaces, ("more", SEEN))), Discrete(3))
    continuous, _, observation = model("normal")
    wrong = with_action_mask(continuous)
    with pytest.raises(StructureError, match="is Normal, wanted Categorical"):
        wrong.apply(wrong.init(keys.key(0)), {"features": observation, "action_mask": observation > 0}, ())


@pytest.mark.slow
def test_acting_compiles_whole_inside_a_scan() -> None:
    squashed = flat(model("tanh_normal", product="auto")[0])
    masked_model, _, observation = model("masked")
    params, others = squashed.init(keys.key(0)), masked_model.init(keys.key(0))

    def play(params: Tensor, others: Any, noise: Tensor, key: Tensor) -> Any:
        def step(seen: Tensor, noise: Tensor) -> tuple[Tensor, Any]:
            distribution, value, _ = squashed.apply(params, seen, ())
            action = distribution.transform(noise)
            return torch.cos(seen + action.sum(-1, keepdim=True)), (distribution.log_prob(action), value)

        seen, outputs = scan(step, observation["features"], noise)
        return outputs, act(masked_model, others, {**observation, "features": seen}, (), key)

    arguments = (params, others, keys.normal(keys.key(1), (3, 7, 2)), keys.split(keys.key(2), 7))
    compiled = torch.compile(play, fullgraph=True, backend="aot_eager")
    for got, wanted in zip(leaves(compiled(*arguments)), leaves(play(*arguments)), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
