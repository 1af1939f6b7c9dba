"""One device for a whole run, that of its key: no operation of an env, a learner or an evaluation mixes two.

The pretended device is torch's "meta", whose tensors have shapes and no numbers. Where there is a GPU, it is walked too.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from purestep.algorithms.a2c import a2c
from purestep.algorithms.decoupled_ppo import decoupled_ppo
from purestep.algorithms.ppo import ppo
from purestep.algorithms.reinforce import reinforce
from purestep.core import keys
from purestep.core.envs import ENVS, make
from purestep.core.errors import ChoiceError
from purestep.core.optim.optimizers import adam, chain, clip_by_global_norm, linear_decay
from purestep.core.policy import actor_critic_mlp, flat
from purestep.core.spaces import Box
from purestep.runtime.evaluate import evaluate
from purestep.runtime.normalizer import identity, running
from purestep.runtime.population import population
from purestep.runtime.recipes.pipeline import make_on_device
from purestep.runtime.runs.run import train as train_run
from purestep.runtime.train import train, trainer

DEVICES = ["meta", *(["cuda"] if torch.cuda.is_available() else [])]
COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
WALKS = [
    *(pytest.param(name, a2c, marks=[] if name in ("cartpole", "pendulum") else pytest.mark.slow) for name in ENVS),
    *(pytest.param("gridworld", one, marks=pytest.mark.slow) for one in (ppo, reinforce, decoupled_ppo)),
]
OPTIMIZER = chain(clip_by_global_norm(0.5), adam(1e-3), linear_decay(100))


class Apart(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses operations on tensors of two devices, other than copies; one number of the CPU may stand beside them."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        found = {leaf.device.type for leaf in given if leaf.ndim or leaf.device.type != "cpu"}
        assert len(found) < 2 or function in COPIES, f"{function} on {sorted(found)}"
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "algorithm"), WALKS)
def test_a_run_is_on_the_device_of_its_key(name: str, algorithm: Callable[..., Any], device: str) -> None:
    env = make(name)
    model = flat(actor_critic_mlp(env.observation_space, env.action_space, (4,)))
    scales = running() if isinstance(env.observation_space, Box) else identity()
    one = trainer(env, model, algorithm(model, OPTIMIZER), envs=2, horizon=2, normalizer=scales)
    play = evaluate(env, model, episodes=2, steps=2, action="sample", normalizer=scales)
    with Apart():  # type: ignore[no-untyped-call]
        key = keys.key(0, device=device)
        state, metrics = one.iterate(one.init(key))
        played = play(state.learner.params, state.normalizer, key)
        several = train(population(one), 1)(population(one).init(keys.split(key, 2))) if name == "gridworld" else ()
    assert {leaf.device.type for leaf in pytree.tree_leaves((state, metrics, played, several))} == {device}


def test_the_walk_sees_a_mix() -> None:
    env = make("gridworld")
    with Apart(), pytest.raises(AssertionError, match=r"aten.* on \['cpu', 'meta'\]"):  # type: ignore[no-untyped-call]
        env.reset(env.params, keys.key(0, device="meta"))


def test_a_device_that_is_not_there_is_refused_before_anything_is_built(tmp_path: Any) -> None:
    for name in ("gpu", "cuda:07", "cuda:256", "cuda:\u0661", "cuda:", "meta"):
        with pytest.raises(ChoiceError, match=f"^--device is '{name}', wanted cpu, cuda or cuda:N; name one of them$"):
            train_run("ppo", tmp_path / "run", device=name, notice=lambda text: None)
    far = f"cuda:{torch.cuda.device_count()}"
    for recipe in ("ppo", "prove"):
        with pytest.raises(ChoiceError, match=f"^--device is '{far}', wanted .*; name another one, e.g. --device cpu$"):
            train_run(recipe, tmp_path / "run", device=far, notice=lambda text: None)
    assert not (tmp_path / "run").exists()


def test_tensors_are_made_on_the_device_in_the_block_alone() -> None:
    with make_on_device(DEVICES[-1] if DEVICES[-1] == "cuda" else "cpu") as device:
        assert torch.zeros(1).device.type == device.type
    assert torch.zeros(1).device.type == "cpu"
