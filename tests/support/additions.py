"""Small additions to the library, as CONTRIBUTING.md describes them: an environment, an algorithm, a law, a task of texts."""

ENV = '''"""A corridor: walk to its end."""

import torch
from torch import Tensor

from ..env import Env, deterministic
from ..keys import Key
from ..record import record, tensor
from ..spaces import Box, Discrete
from ..steps import TimeStep, first, following


@record
class CorridorParams:
    """A corridor of some cells."""

    end: Tensor = tensor("*", "int")


@record
class CorridorState:
    """The cell of the agent."""

    cell: Tensor = tensor("*", "int")


def corridor(cells: int = 4) -> Env[CorridorParams, CorridorState]:
    """Return the environment; action 1 walks on, 0 walks back."""
    params = CorridorParams(end=torch.tensor(cells - 1))
    spaces = {"observation_space": Box(0.0, float(cells - 1), (1,)), "action_space": Discrete(2)}
    return deterministic(params, _reset, _advance, **spaces)


def _seen(cell: Tensor) -> Tensor:
    return cell.to(torch.float32)[..., None]


def _reset(params: CorridorParams, key: Key) -> tuple[CorridorState, TimeStep]:
    cell = torch.zeros_like(params.end)
    return CorridorState(cell=cell), first(_seen(cell))


def _advance(params: CorridorParams, state: CorridorState, action: Tensor) -> tuple[CorridorState, TimeStep]:
    cell = torch.minimum((state.cell + 2 * action - 1).clamp(min=0), params.end)
    over = cell == params.end
    return CorridorState(cell=cell), following(_seen(cell), over.to(torch.float32), over)
'''

ALGORITHM = '''"""REINFORCE whose entropy is weighted by its square root."""

from ..core.optim.interface import Optimizer
from ..core.policy import ActorCritic
from .algorithm import Algorithm
from .hyperparameters import Fraction, Weight, numbers_of
from .reinforce import reinforce


def rooted(
    model: ActorCritic,
    optimizer: Optimizer,
    *,
    gamma: Fraction = 0.5,  # what a reward is worth
    root: Weight = 0.25,  # square root of the entropy's weight
) -> Algorithm:
    """Return REINFORCE with an entropy coefficient root ** 2."""
    numbers = numbers_of(rooted, locals())
    return reinforce(model, optimizer, gamma=numbers["gamma"], entropy_coefficient=numbers["root"] ** 2)
'''

LAW = '''"""A law of environments."""

from typing import Any

from ...core.env import map_step
from ...core.record import replace
from ..framework.compare import require
from ..framework.law import Law, Mutant, Seen, always
from ..strategies.walks import AnyEnv, Walk, visits, walks


def check(env: AnyEnv, walk: Walk, seen: Seen) -> None:
    for visit in visits(env, walk):
        seen("a step")
        require(bool(visit.timestep.reward.abs() <= 1), f"a reward of {float(visit.timestep.reward)}")


def doubled(env: AnyEnv) -> AnyEnv:
    def wrap(step: Any) -> Any:
        def twice(*given: Any) -> Any:
            state, timestep = step(*given)
            return state, replace(timestep, reward=2 * timestep.reward)

        return twice

    return map_step(env, env.reset, wrap)


SMALL_REWARDS = Law(
    name="small_rewards",
    claim="A step pays at most 1, in either direction.",
    source="an example",
    inputs=always(walks()),
    check=check,
    mutant=Mutant("pays everything twice", doubled),
    needs=("a step",),
)
'''

TASK = '''"""A task: repeat the digit."""

from typing import Any

from attrs import frozen

from purestep.core import keys
from purestep.core.language.parsers import Parsed
from purestep.core.language.task import TextTask
from purestep.core.language.text_env import Outcome, TextEnv


@frozen
class Asked:
    """The digit."""

    digit: int


def reset(params: tuple[()], key: keys.Key) -> tuple[Asked, str]:
    asked = Asked(int(keys.randint(key, (), 0, 10)))
    return asked, f"{asked.digit}?"


def step(params: tuple[()], asked: Asked, action: Any, key: keys.Key) -> tuple[Asked, Outcome]:
    return asked, Outcome(reward=float(action == str(asked.digit)), terminated=True)


REPEAT = TextTask(name="repeat", env=lambda stream: TextEnv((), reset, step), parser=lambda text: Parsed(text[:1]))
'''
