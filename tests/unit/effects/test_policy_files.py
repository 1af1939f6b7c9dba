"""A policy's file acts as the policy does: torch.export and safetensors bit for bit, ONNX within its limit."""

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from purestep.algorithms.a2c import a2c
from purestep.core import keys
from purestep.core.env import Env, time_limit
from purestep.core.envs import make
from purestep.core.errors import CheckpointError, ChoiceError, ExportError
from purestep.core.networks import functional
from purestep.core.optim.optimizers import sgd
from purestep.core.policy import ActorCritic, actor_critic_mlp, categorical_head, flat, scalar, separate
from purestep.core.record import record, tensor
from purestep.core.spaces import Box, Discrete, Fields
from purestep.core.steps import TimeStep, first, following
from purestep.core.tree import tree_map
from purestep.runtime.effects.policy_files.export import action_difference, export
from purestep.runtime.effects.policy_files.module import inputs_of
from purestep.runtime.effects.policy_files.tensors import read_about, with_weights
from purestep.runtime.normalizer import running
from purestep.runtime.train import train, trainer
from purestep.runtime.trained_policy import TrainedPolicy, policy, visited

from ...support.copying import NESTED, copying

KEY = keys.key(5)


def learned(name: str, *, wild: float = 1.0) -> TrainedPolicy:
    """A policy of a named env, trained with a normaliser; `wild` scales its params."""
    env = make(name)
    model = flat(actor_critic_mlp(env.observation_space, env.action_space, (8,), product="auto"))
    run = trainer(env, model, a2c(model, sgd(0.1)), envs=4, horizon=16, normalizer=running(clip=1.0))
    found = policy(env, model, train(run, 2)(run.init(keys.key(4)))[0])
    return TrainedPolicy(
        env=env, model=model, params=wild * found.params, statistics=found.statistics, normalizer=found.normalizer
    )


@pytest.fixture(scope="module")
def pole() -> TrainedPolicy:
    return learned("cartpole", wild=20.0)


@pytest.fixture(scope="module")
def pendulum() -> TrainedPolicy:
    return learned("pendulum", wild=30.0)


def torch_function(path: Path) -> Any:
    module = torch.export.load(str(path)).module()
    return lambda *tensors, **fields: module(*tensors, **fields)


def test_a_program_of_torch_has_the_bits_of_the_policy(pole: TrainedPolicy, tmp_path: Path) -> None:
    path = tmp_path / "policy.pt2"
    done = export(pole, path)
    assert (done.path, done.observations, done.difference) == (path, 256, 0.0)
    assert done.line() == f"{path}: torch, actions on 256 recorded observations: the same bits"
    act, observations = torch_function(path), visited(pole, 40, KEY)
    actions = [act(one) for one in observations]
    assert torch.equal(torch.stack(actions), torch.stack([pole.action(one) for one in observations]))
    assert {int(one) for one in actions} == {0, 1}
    unscaled = TrainedPolicy(env=pole.env, model=pole.model, params=pole.params)
    assert not torch.equal(torch.stack(actions), torch.stack([unscaled.action(one) for one in observations]))
    assert list(tmp_path.iterdir()) == [path]


def test_a_program_of_torch_clips_as_the_policy_does(pendulum: TrainedPolicy, tmp_path: Path) -> None:
    export(pendulum, tmp_path / "policy.pt2", batch=16)
    act, observations = torch_function(tmp_path / "policy.pt2"), visited(pendulum, 16, KEY)
    assert torch.equal(act(observations), pendulum.action(observations))
    assert float(act(observations).abs().max()) == 2.0
    assert float(pendulum.distribution(observations).mode().abs().max()) > 2.0


def test_onnx_agrees_within_its_limit(pendulum: TrainedPolicy, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    done = export(pendulum, tmp_path / "policy.onnx", to="onnx")
    assert done.difference <= 1e-6
    session = onnxruntime.InferenceSession((tmp_path / "policy.onnx").read_bytes())
    assert [(one.name, one.shape) for one in session.get_inputs()] == [("observation", [3])]
    for one in visited(pendulum, 20, KEY):
        action = torch.from_numpy(session.run(["action"], {"observation": one.numpy()})[0])
        assert action_difference(pendulum, one, action) <= 1e-6
        assert float(action.abs()) <= 2.0


@pytest.mark.parametrize("to", ["torch", "onnx", "safetensors"])
def test_actions_of_every_space_are_exported(to: str, tmp_path: Path) -> None:
    if to == "onnx":
        pytest.importorskip("onnxruntime")
    env = copying(NESTED)
    model = flat(actor_critic_mlp(env.observation_space, env.action_space, (8,)))
    scales = running(rewards=False).init(env.observation_space, 1, torch.device("cpu"))
    mine = TrainedPolicy(env=env, model=model, params=30.0 * model.init(KEY), statistics=scales)
    observations = tree_map(lambda leaf: leaf[:12], visited(mine, 16, KEY))
    assert export(mine, tmp_path / "policy", to=to, observations=observations).difference <= 1e-6
    one = tree_map(lambda leaf: leaf[0], observations)
    own = mine.action(one)
    gear = own["gear"]
    assert action_difference(mine, one, {**own, "gear": 1 - gear.clamp(max=1)}) > 0.1
    assert action_difference(mine, one, gear) == float("inf")
    if to == "torch":
        found = torch_function(tmp_path / "policy")(**inputs_of(one))
        torch.testing.assert_close(found, own, atol=0.0, rtol=0.0)


def test_tensors_hold_all_that_the_policy_needs(pole: TrainedPolicy, tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    assert export(pole, path, to="safetensors", settings={"hidden": (8,)}).difference == 0.0
    told = read_about(path)
    assert told["action_space"] == {"kind": "Discrete", "n": 2}
    assert (told["settings"], told["observation"]) == ({"hidden": [8]}, {"observation": [[4], "torch.float32"]})
    held = safetensors.torch.load_file(path)
    observations = visited(pole, 50, KEY)
    scales = told["normalizer"]
    x = (observations - held["normalizer.mean"]) * torch.rsqrt(held["normalizer.variance"] + scales["eps"])
    x = torch.tanh(
        x.clamp(-scales["clip"], scales["clip"]) @ held["params.policy.0.weight"] + held["params.policy.0.bias"]
    )
    logits = x @ held["params.policy.1.weight"] + held["params.policy.1.bias"]
    assert torch.equal(logits.argmax(-1), pole.action(observations))
    back = with_weights(learned("cartpole"), path)
    assert torch.equal(back.params, pole.params)
    assert torch.equal(back.action(observations), pole.action(observations))


def test_tensors_of_another_policy_are_refused(pole: TrainedPolicy, pendulum: TrainedPolicy, tmp_path: Path) -> None:
    export(pole, tmp_path / "policy.safetensors", to="safetensors")
    with pytest.raises(ExportError, match=r"without the tensors of this policy: normalizer\.mean, .*; take a policy"):
        with_weights(pendulum, tmp_path / "policy.safetensors")
    (tmp_path / "other").write_bytes(b"no tensors")
    with pytest.raises(ExportError, match=r"other is no safetensors file"):
        with_weights(pendulum, tmp_path / "other")
    with pytest.raises(ExportError, match=r"other is another file, wanted a policy's"):
        read_about(tmp_path / "other")
    safetensors.torch.save_file({"w": torch.ones(1)}, tmp_path / "plain")
    with pytest.raises(ExportError, match=r"plain is another file, wanted a policy's"):
        read_about(tmp_path / "plain")


@record
class View:
    image: Tensor = tensor("* 1 6 6", "float")
    speed: Tensor = tensor("*", "float")


def camera(*, as_dict: bool = False) -> Env[Any, Any]:
    """An env whose observation is an image and a number; each step draws new ones."""

    def look(key: keys.Key) -> Any:
        image, speed = keys.uniform(keys.fold_in(key, 0), (1, 6, 6)), keys.uniform(keys.fold_in(key, 1))
        return {"image": image, "speed": speed} if as_dict else View(image=image, speed=speed)

    def reset(params: Any, key: keys.Key) -> tuple[Tensor, TimeStep]:
        return key[0], first(look(key))

    def step(params: Any, state: Tensor, action: Tensor, key: keys.Key) -> tuple[Tensor, TimeStep]:
        return key[0], following(look(key), action.to(torch.float32), action < 0)

    space = Fields((("image", Box(0.0, 1.0, (1, 6, 6))), ("speed", Box(0.0, 1.0, ()))))
    return time_limit(Env((), reset, step, space, Discrete(3)), 9)


class Eye(torch.nn.Module):
    """A network that is none of ours: a convolution, and a perceptron behind it."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.see = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten())
        self.judge = torch.nn.Linear(4 * 16 + 1, outputs)

    def forward(self, image: Tensor, speed: Tensor) -> Tensor:
        found: Tensor = self.judge(torch.cat([self.see(image), speed[:, None]], -1))
        return found


def seeing(env: Env[Any, Any]) -> TrainedPolicy:
    torch.manual_seed(0)

    def fields(x: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return ((x["image"], x["speed"]) if isinstance(x, dict) else (x.image, x.speed)), {}

    def network(outputs: int) -> Any:
        return functional(Eye(outputs), arguments=fields)

    model = separate(categorical_head(network(3)), scalar(network(1)))
    params = tree_map(lambda leaf: 5.0 * leaf, model.init(KEY))
    return TrainedPolicy(env=env, model=model, params=params)


@pytest.mark.parametrize("as_dict", [False, True])
def test_images_and_fields_go_through_a_module_of_the_users(as_dict: bool, tmp_path: Path) -> None:
    found = seeing(camera(as_dict=as_dict))
    export(found, tmp_path / "policy.pt2")
    act, observations = torch_function(tmp_path / "policy.pt2"), inputs_of(visited(found, 20, KEY))
    assert sorted(observations) == ["image", "speed"]
    actions = set[int]()
    for number in range(20):
        image, speed = observations["image"][number], observations["speed"][number]
        seen = {"image": image, "speed": speed} if as_dict else View(image=image, speed=speed)
        assert torch.equal(act(image=image, speed=speed), found.action(seen))
        actions.add(int(act(image=image, speed=speed)))
    assert len(actions) > 1
    export(found, tmp_path / "policy.safetensors", to="safetensors")
    held = safetensors.torch.load_file(tmp_path / "policy.safetensors")
    assert held["params.policy.see.0.weight"].shape == (4, 1, 3, 3)


def test_images_and_fields_go_to_onnx_by_name(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    found = seeing(camera())
    export(found, tmp_path / "policy.onnx", to="onnx")
    session = onnxruntime.InferenceSession((tmp_path / "policy.onnx").read_bytes())
    assert {one.name: one.shape for one in session.get_inputs()} == {"image": [1, 6, 6], "speed": []}
    seen = {name: one[0].numpy() for name, one in inputs_of(visited(found, 1, KEY)).items()}
    assert session.run(None, seen)[0].shape == ()


def test_a_file_that_acts_otherwise_is_not_written(pole: TrainedPolicy, tmp_path: Path) -> None:
    calls: list[int] = []

    def drifting(params: Any, x: Tensor, carry: Any) -> Any:
        calls.append(0)  # another function at each call: what is captured is not what follows
        distribution, value, carry = pole.model.apply(params, x, carry)
        return tree_map(lambda logits: logits * (-1.0) ** len(calls), distribution), value, carry

    found = TrainedPolicy(env=pole.env, model=ActorCritic(pole.model.init, drifting), params=pole.params)
    with pytest.raises(ExportError, match=r"^export: actions of torch is .* from the policy's own on 9 obs.*at most 0"):
        export(found, tmp_path / "policy.pt2", observations=visited(pole, 9, KEY))
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_cannot_be_captured_is_refused_in_one_line(pole: TrainedPolicy, tmp_path: Path) -> None:
    def branching(params: Any, x: Tensor, carry: Any) -> Any:
        return pole.model.apply(params, x if float(x.sum()) > 0 else -x, carry)

    found = TrainedPolicy(env=pole.env, model=ActorCritic(pole.model.init, branching), params=pole.params)
    for to in ("torch", "onnx"):
        with pytest.raises(
            ExportError, match=r"^export: the policy is not to be captured \(.*--to safetensors"
        ) as caught:
            export(found, tmp_path / "policy", to=to, observations=visited(pole, 9, KEY))
        assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_stays_unless_it_is_told(pole: TrainedPolicy, tmp_path: Path) -> None:
    path = tmp_path / "policy"
    path.write_text("mine")
    with pytest.raises(CheckpointError, match=r"policy is a file already, wanted absent; .*--overwrite"):
        export(pole, path, to="safetensors")
    assert path.read_text() == "mine"
    export(pole, path, to="safetensors", overwrite=True)
    assert json.loads(json.dumps(read_about(path)))["form"] == 1
    with pytest.raises(CheckpointError, match="is a folder, wanted a file"):
        export(pole, tmp_path, to="safetensors", overwrite=True)
    with pytest.raises(CheckpointError, match="is in no folder"):
        export(pole, tmp_path / "nowhere" / "policy", to="safetensors")


def test_wrong_forms_and_numbers_are_refused(pole: TrainedPolicy, tmp_path: Path) -> None:
    with pytest.raises(ChoiceError, match=r"export: to is 'onyx', .*did you mean 'onnx'"):
        export(pole, tmp_path / "policy", to="onyx")
    with pytest.raises(ChoiceError, match="export: batch is -1"):
        export(pole, tmp_path / "policy", batch=-1)
    with pytest.raises(ChoiceError, match="export: observations is too few"):
        export(pole, tmp_path / "policy", batch=4, observations=torch.zeros(3, 4))


def test_the_difference_of_actions(pole: TrainedPolicy, pendulum: TrainedPolicy) -> None:
    observation = visited(pole, 1, KEY)[0]
    own, logits = pole.action(observation), torch.log_softmax(pole.distribution(observation).logits, -1)  # type: ignore[attr-defined]
    assert action_difference(pole, observation, own) == 0.0
    assert action_difference(pole, observation, 1 - own) == pytest.approx(
        float((logits[0] - logits[1]).abs()), rel=1e-5
    )
    assert action_difference(pole, observation, own.to(torch.int32)) == float("inf")
    observation = visited(pendulum, 1, KEY)[0]
    own = pendulum.action(observation)
    assert action_difference(pendulum, observation, own + 1.0) == pytest.approx(1.0 / max(1.0, float(own.abs())))
    assert action_difference(pendulum, observation, own * torch.nan) == float("inf")
    assert action_difference(pendulum, observation, own[None]) == float("inf")
