"""What `validate` says of environments that break what training relies on: the fault, in one line, with its remedy."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor

from purestep.core import keys
from purestep.core.env import Env, auto_reset, episode_statistics
from purestep.core.envs import ENVS, make
from purestep.core.errors import ChoiceError, DtypeError, NonFiniteError, PurestepError, ShapeError, StructureError
from purestep.core.keys import Key
from purestep.core.record import record, replace, tensor
from purestep.core.spaces import Box, Discrete, Fields
from purestep.core.steps import TimeStep, first, following
from purestep.core.tree import tree_map
from purestep.runtime.validate import shortened, validate

AnyEnv = Env[Any, Any]


@record
class Place:
    x: Tensor = tensor("*", "float")


def line() -> AnyEnv:
    """A walk on a line, as it should be written."""

    def reset(params: Place, key: Key) -> tuple[Place, TimeStep]:
        state = Place(x=params.x + keys.uniform(key))
        return state, first(state.x[None].clone())

    def step(params: Place, state: Place, action: Tensor, key: Key) -> tuple[Place, TimeStep]:
        state = Place(x=state.x + action - 1)
        return state, following(state.x[None].clone(), state.x * 1.0, state.x.abs() > 3)

    return Env(Place(x=torch.tensor(0.5)), reset, step, Box(-10.0, 10.0, (1,)), Discrete(3))


def stepping(change: Callable[[Any, Any, TimeStep], Any]) -> AnyEnv:
    """The walk with another step: `change` takes the old state, the new state and the timestep."""
    good = line()

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Any:
        return change(state, *good.step(params, state, action, key))

    return attrs.evolve(good, step=step)


def resetting(change: Callable[[Any, TimeStep], Any]) -> AnyEnv:
    good = line()
    return attrs.evolve(good, reset=lambda params, key: change(*good.reset(params, key)))


def told(**changes: Any) -> AnyEnv:
    return stepping(lambda old, new, timestep: (new, replace(timestep, **changes)))


@pytest.mark.parametrize("name", ENVS)
def test_every_env_of_ours_is_valid(name: str) -> None:
    env = make(name)
    assert validate(env) is env
    assert validate(auto_reset(env)).reset is env.reset


def test_wrapped_worlds_and_fields_are_valid() -> None:
    assert validate(line())
    assert validate(episode_statistics(auto_reset(line())))

    def fields(state: Any, timestep: TimeStep) -> tuple[Any, TimeStep]:
        both = {"features": timestep.observation, "room": torch.tensor(1)}
        return state, replace(timestep, observation=both, next_observation=tree_map(torch.clone, both))

    good = line()
    env: AnyEnv = attrs.evolve(
        good,
        reset=lambda params, key: fields(*good.reset(params, key)),
        step=lambda *given: fields(*good.step(*given)),
        observation_space=Fields((("features", Box(-10.0, 10.0, (1,))), ("room", Discrete(2)))),
    )
    assert validate(env)
    with pytest.raises(ChoiceError, match=r"observation.room is \[1\], wanted in Discrete\(n=1\)"):
        validate(
            attrs.evolve(env, observation_space=Fields((("features", Box(-9.0, 9.0, (1,))), ("room", Discrete(1)))))
        )


def everywhere(change: Callable[[TimeStep], TimeStep]) -> AnyEnv:
    """The walk whose resets and steps both tell something else."""
    good = line()

    def changed(result: tuple[Any, TimeStep]) -> tuple[Any, TimeStep]:
        return result[0], change(result[1])

    return attrs.evolve(
        good, reset=lambda *given: changed(good.reset(*given)), step=lambda *given: changed(good.step(*given))
    )


def wider(x: Tensor) -> torch.dtype:
    """A dtype that depends on whether there is a batch."""
    return torch.float64 if is_batchedtensor(x) else torch.float32


FAULTS: dict[str, tuple[AnyEnv, type[PurestepError], str]] = {
    "the state changes its shape": (
        stepping(lambda old, new, timestep: (replace(new, x=new.x[None]), timestep)),
        StructureError,
        r"step: state.x is \[1\] torch.float32, wanted \[\] torch.float32; keep shape and dtype",
    ),
    "the state changes its dtype": (
        stepping(lambda old, new, timestep: (replace(new, x=new.x.double()), timestep)),
        StructureError,
        r"step: state.x is \[\] torch.float64, wanted \[\] torch.float32",
    ),
    "the state becomes another tree": (
        stepping(lambda old, new, timestep: ((new, new), timestep)),
        StructureError,
        "step: state is another structure",
    ),
    "the observation changes its shape": (
        told(observation=torch.zeros(2)),
        ShapeError,
        r"step: observation is \[2\], wanted \[1\]; change observation_space, or what the world shows",
    ),
    "the reset shows what the space does not say": (
        resetting(lambda state, timestep: (state, first(torch.zeros(3)))),
        ShapeError,
        r"reset: observation is \[3\], wanted \[1\]",
    ),
    "the observation leaves its space": (
        told(observation=torch.tensor([11.0])),
        ChoiceError,
        r"step: observation is \[11.0\], wanted in Box",
    ),
    "next_observation is of another dtype": (
        told(next_observation=torch.zeros(1, dtype=torch.float64)),
        StructureError,
        "step: next_observation is",
    ),
    "an integer reward": (
        told(reward=torch.tensor(1)),
        DtypeError,
        "step: TimeStep.reward is torch.int64, wanted float",
    ),
    "a reward with an axis": (
        told(reward=torch.ones(1)),
        ShapeError,
        r"step: TimeStep.reward is \[1\], wanted",
    ),
    "a Python number for a reward": (told(reward=1.0), StructureError, "TimeStep.reward is float, wanted a tensor"),
    "a reward of another float": (
        told(reward=torch.ones((), dtype=torch.float64)),
        DtypeError,
        r"step: reward is torch.float64, wanted torch.float32; convert it",
    ),
    "rewards of another float everywhere": (
        everywhere(lambda timestep: replace(timestep, reward=timestep.reward.double())),
        DtypeError,
        r"reset: reward is torch.float64, wanted torch.float32; convert it",
    ),
    "flags of bytes everywhere": (
        everywhere(lambda timestep: replace(timestep, truncated=timestep.truncated.to(torch.uint8))),
        DtypeError,
        "reset: TimeStep.truncated is torch.uint8, wanted bool",
    ),
    "an observation of another dtype than the reset's": (
        stepping(lambda old, new, timestep: (new, replace(timestep, observation=timestep.observation.double()))),
        StructureError,
        r"step: observation is \[1\] torch.float64, wanted \[1\] torch.float32; keep shape and dtype",
    ),
    "a state that a batch of worlds changes": (
        stepping(lambda old, new, timestep: (replace(new, x=new.x.to(wider(new.x))), timestep)),
        StructureError,
        r"step of a batch: state.x is \[\] torch.float64, wanted \[\] torch.float32; keep shape and dtype",
    ),
    "no env at all": (
        "cartpole",  # type: ignore[dict-item]
        StructureError,
        r"env is str, wanted an Env; make one by name, e.g. make\('cartpole'\)",
    ),
    "an infinite reward": (
        told(reward=torch.tensor(torch.inf)),
        NonFiniteError,
        "step: reward is NaN or infinite, wanted finite",
    ),
    "an observation of NaN": (told(observation=torch.tensor([torch.nan])), NonFiniteError, "step: observation is NaN"),
    "a flag that is no bool": (told(terminated=torch.tensor(0.0)), DtypeError, "TimeStep.terminated is torch.float32"),
    "a reset that pays": (
        resetting(lambda state, timestep: (state, replace(timestep, reward=torch.tensor(2.0)))),
        ChoiceError,
        r"reset is reward 2.0, terminated False, truncated False, wanted reward 0 and no flag",
    ),
    "a reset that is an end": (
        resetting(lambda state, timestep: (state, replace(timestep, truncated=torch.tensor(True)))),
        ChoiceError,
        "truncated True, wanted",
    ),
    "a step that returns five things": (
        stepping(lambda old, new, timestep: (timestep.observation, timestep.reward, timestep.terminated)),
        StructureError,
        r"step is \['Tensor', 'Tensor', 'Tensor'\], wanted \(state, TimeStep\)",
    ),
    "a reset that returns the state alone": (
        resetting(lambda state, timestep: state),
        StructureError,
        r"reset is Place, wanted \(state, TimeStep\)",
    ),
    "a step that writes into its state": (
        stepping(lambda old, new, timestep: (old.x.add_(1.0), (new, timestep))[1]),
        StructureError,
        "step: state.x is written to, wanted left as it was; compute a new tensor",
    ),
    "a Python number in the state": (
        resetting(lambda state, timestep: ((state, 3), timestep)),
        StructureError,
        "step: state.1 is int, wanted a tensor",
    ),
    "a step that asks Python": (
        stepping(lambda old, new, timestep: (new if new.x > 0 else old, timestep)),
        StructureError,
        r"step is refused by torch.vmap \(.*\), wanted the same code .*torch.where",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_in_one_line_with_its_remedy(fault: str) -> None:
    env, kind, said = FAULTS[fault]
    with pytest.raises(kind, match=said) as caught:
        validate(env)
    text = str(caught.value)
    assert text.startswith("validate: ")
    assert "\n" not in text
    assert "; " in text


def test_writing_into_params_action_or_key_is_seen() -> None:
    good = line()

    def writing(name: str) -> AnyEnv:
        def step(params: Any, state: Any, action: Tensor, key: Key) -> Any:
            result = good.step(params, state, action, key)
            {"params.x": params.x, "action": action, "key": key}[name].mul_(1)
            return result

        return attrs.evolve(good, step=step)

    for name in ("params.x", "action", "key"):
        with pytest.raises(StructureError, match=f"step: {name} is written to"):
            validate(writing(name))


def test_an_observation_of_the_wrong_integers_is_named() -> None:
    good = line()
    narrow = attrs.evolve(good, observation_space=Discrete(3))
    with pytest.raises(ShapeError, match=r"observation is \[1\], wanted \[\]"):
        validate(narrow)
    shown = attrs.evolve(narrow, reset=lambda params, key: (Place(x=params.x), first(params.x * 1.0)))
    with pytest.raises(DtypeError, match=r"observation is torch.float32, wanted torch.int64"):
        validate(shown)


def test_many_numbers_are_shortened() -> None:
    assert shortened(torch.arange(7)) == "[0, 1, 2, 3, 4, 5, ...]"
    assert shortened(torch.tensor([1.5])) == "[1.5]"
