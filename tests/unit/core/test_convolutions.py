"""Networks of images: the layers of the papers, written once more with torch's modules; and policies and Q of them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from purestep.algorithms.dqn import dqn
from purestep.algorithms.ppo import ppo
from purestep.core import keys
from purestep.core.action_values import encoded_action_values
from purestep.core.convolutions import Convolution, impala_cnn, nature_cnn
from purestep.core.env import Env, time_limit
from purestep.core.errors import PurestepError
from purestep.core.networks import Linear, Network, any_leading_axes, functional
from purestep.core.optim.optimizers import adam
from purestep.core.policy import encoded_actor_critic, flat
from purestep.core.spaces import Box, Discrete, Fields, MultiBinary
from purestep.core.steps import TimeStep, first, following
from purestep.core.tree import leaves, size, tree_map
from purestep.runtime.compile import program
from purestep.runtime.train import train, trainer


def noisy(network: Network) -> Any:
    return tree_map(
        lambda leaf: leaf + 0.05 * keys.normal(keys.key(leaf.numel()), leaf.shape), network.init(keys.key(0))
    )


def loaded(layer: Convolution, stride: int = 1, padding: int = 0) -> nn.Conv2d:
    outputs, inputs, window, _ = layer.weight.shape
    made = nn.Conv2d(inputs, outputs, window, stride, padding)
    made.load_state_dict({"weight": layer.weight, "bias": layer.bias})
    return made


def nature(params: Any) -> nn.Module:
    layers = [loaded(layer, stride) for layer, stride in zip(params["convolutions"], (4, 2, 1), strict=True)]
    return nn.Sequential(
        *(part for layer in layers for part in (layer, nn.ReLU())), nn.Flatten(), dense(params["output"])
    )


def dense(layer: Linear) -> nn.Module:
    inputs, outputs = layer.weight.shape
    made = nn.Linear(inputs, outputs)
    made.load_state_dict({"weight": layer.weight.mT, "bias": layer.bias})
    return nn.Sequential(made, nn.ReLU())


class Block(nn.Module):
    def __init__(self, layers: Any) -> None:
        super().__init__()
        one, two = (loaded(layer, padding=1) for layer in layers)
        self.inner = nn.Sequential(nn.ReLU(), one, nn.ReLU(), two)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x + self.inner(x)
        return result


def impala(params: Any) -> nn.Module:
    parts: list[nn.Module] = []
    for own, *blocks in params["stages"]:
        parts += [loaded(own, padding=1), nn.MaxPool2d(3, 2, 1), *map(Block, blocks)]
    return nn.Sequential(*parts, nn.ReLU(), nn.Flatten(), dense(params["output"]))


@pytest.mark.parametrize(
    ("make", "reference", "shape"), [(nature_cnn, nature, (44, 36, 2)), (impala_cnn, impala, (11, 8, 2))]
)
def test_layers_are_those_of_the_paper(make: Any, reference: Callable[[Any], nn.Module], shape: Any) -> None:
    last, depth_first = make(shape, 5), make((shape[2], shape[0], shape[1]), 5, channels="first")
    params = noisy(last)
    image = keys.randint(keys.key(1), (2, 3, *shape), 0, 256).to(torch.uint8)
    rows = image.flatten(0, 1).permute(0, 3, 1, 2) / 255.0
    with torch.no_grad():
        wanted = reference(params)(rows).reshape(2, 3, 5)
    got = last.apply(params, image)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    assert bool((got > 0).any())
    torch.testing.assert_close(depth_first.apply(params, image.permute(0, 1, 4, 2, 3)), got)
    torch.testing.assert_close(last.apply(params, image[0, 0]), got[0, 0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(last.apply(params, image / 255.0), got)
    torch.testing.assert_close(torch.vmap(last.apply, in_dims=(None, 0))(params, image), got, rtol=1e-4, atol=1e-5)


def test_the_paper_s_sizes() -> None:
    assert size(nature_cnn((84, 84, 4)).init(keys.key(0))) == 1_684_128  # without the layer of the actions
    params = impala_cnn((64, 64, 3)).init(keys.key(0))
    assert sum(1 + 2 * len(blocks) for _, *blocks in params["stages"]) == 15
    assert params["output"].weight.shape == (32 * 8 * 8, 256)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: nature_cnn((84, 35, 4)), r"nature_cnn: shape is \(84, 35, 4\), wanted 36 x 36 or more"),
        (lambda: impala_cnn((9, 9)), r"impala_cnn: shape is \(9, 9\), wanted three sizes"),  # type: ignore[arg-type]
        (lambda: impala_cnn((9, 9, 3), channels="middle"), "channels is 'middle', wanted one of"),
        (
            lambda: impala_cnn((9, 9, 3)).apply((), torch.zeros(2, 3, 9, 9)),
            r"impala_cnn: image is \[2, 3, 9, 9\], wanted \[\*, 9, 9, 3\]",
        ),
    ],
)
def test_what_is_no_image_is_refused(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(PurestepError, match=text):
        call()


def test_a_module_of_one_leading_axis_takes_any() -> None:
    network = any_leading_axes(functional(nn.LSTM(3, 4, batch_first=True)), 2)
    params, x = network.init(keys.key(0)), keys.normal(keys.key(1), (2, 5, 7, 3))
    with pytest.raises(PurestepError, match=r"any_leading_axes: x is \[3\], wanted 2 axes"):
        network.apply(params, x[0, 0, 0])
    cells = any_leading_axes(functional(nn.GRUCell(3, 4), arguments=lambda pair: (pair, {})), 1)
    pair = x[..., 0, :], keys.normal(keys.key(2), (2, 5, 4))
    got = cells.apply(cells.init(keys.key(0)), pair)
    assert got.shape == (2, 5, 4)
    torch.testing.assert_close(got[1], cells.apply(cells.init(keys.key(0)), (pair[0][1], pair[1][1])))


def stripes(legal: bool = False) -> Env[Any, Any]:
    """Shows an image of one of three colours, which the action has to name."""

    def told(colour: Tensor) -> Any:
        image = ((torch.arange(3) == colour) * 255 * torch.ones(9, 9, 1)).to(torch.uint8)
        return {"features": image, "action_mask": torch.arange(3) == colour} if legal else image

    def reset(params: Any, key: Tensor) -> tuple[Tensor, TimeStep]:
        colour = keys.randint(key, (), 0, 3)
        return colour, first(told(colour))

    def step(params: Any, colour: Tensor, action: Tensor, key: Tensor) -> tuple[Tensor, TimeStep]:
        after = keys.randint(key, (), 0, 3)
        right, no = (action == colour).to(torch.float32), torch.zeros((), dtype=torch.bool)
        return after, following(told(after), right, no)

    image = Box(0, 255, (9, 9, 3), torch.uint8)
    space = Fields((("features", image), ("action_mask", MultiBinary(3)))) if legal else image
    return time_limit(Env((), reset, step, space, Discrete(3)), 5)


def test_policies_of_an_encoder_act_and_learn() -> None:
    encoder, env, masked = impala_cnn((9, 9, 3), 8, depths=(2,)), stripes(), stripes(legal=True)
    for world in (env, masked):
        model = encoded_actor_critic(encoder, 8, world.observation_space, world.action_space)
        iteration = trainer(world, model, ppo(model, adam(1e-3), minibatches=2), envs=2, horizon=5)
        state, metrics = iteration.iterate(iteration.init(keys.key(0)))
        assert all(bool(leaf.isfinite().all()) for leaf in leaves(state.learner.params))
        if world is masked:
            assert float(metrics["return_sum"]) == 10.0
    for dueling in (False, True):
        values = encoded_action_values(encoder, 8, env.observation_space, env.action_space, is_dueling=dueling)
        iteration = trainer(
            env, values, dqn(values, adam(1e-3), replay_size=64, batch_size=8, learning_starts=8), envs=2, horizon=8
        )
        state, _ = iteration.iterate(iteration.init(keys.key(0)))
        assert all(bool(leaf.isfinite().all()) for leaf in leaves(state.learner.params))
    with pytest.raises(PurestepError, match=r"actions is MultiBinary, wanted Discrete; .*: ppo, a2c or reinforce"):
        encoded_action_values(encoder, 8, env.observation_space, MultiBinary(2))


@pytest.mark.slow
def test_ppo_compiled_learns_colours_from_images() -> None:
    env = stripes()
    model = flat(encoded_actor_critic(impala_cnn((9, 9, 3), 16, depths=(4, 4)), 16, env.observation_space, Discrete(3)))
    iteration = trainer(env, model, ppo(model, adam(3e-3), minibatches=2), envs=4, horizon=16)
    run, state = program(train(iteration, 10)), iteration.init(keys.key(0))
    for _ in range(3):
        state, _ = run(state)
    _, metrics = run(state)
    assert float((metrics["return_sum"] / metrics["episodes"])[-1]) > 4.5
