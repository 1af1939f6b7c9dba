"""Laws of tabular environments (N6): `step` has exactly the table's probabilities, computed over all noise without sampling.

The subject is an env whose hoisted half draws two uniform numbers [2], for the next state and for the ending, and whose
params are a TabularMDP with probabilities that are multiples of 1/cells.
"""

from collections.abc import Callable
from typing import Any

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from purestep.core import keys
from purestep.core.env import Hoisted, halves
from purestep.core.envs.tabular import TabularMDP, TabularState
from purestep.core.record import replace
from purestep.core.steps import TimeStep
from purestep.core.tree import tree_map
from purestep.properties.framework.compare import same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor
from purestep.properties.strategies.mdps import tabular_mdps
from purestep.properties.strategies.walks import AnyEnv

# --- mutants ---
# Worlds that do not keep to their table: each takes a function TabularMDP -> Env and gives a wrong one.


Result = tuple[Any, TimeStep]
AnyBuild = Callable[[Any], AnyEnv]


def ends_where_it_was(build: AnyBuild) -> AnyBuild:
    """Look up the end of the episode before the state changes."""

    def made(mdp: Any) -> AnyEnv:
        env = build(mdp)
        parts = halves(env)

        def step(params: Any, state: Any, action: Tensor, noise: Tensor) -> Result:
            after, timestep = parts.step(params, state, action, noise)
            share = params.termination.index_select(0, state.index.reshape(1)).squeeze(0)
            return after, replace(timestep, terminated=noise[..., 1] < share)

        return attrs.evolve(env, hoisted=Hoisted(draw=parts.draw, step=step))

    return made


def pays_expectation(build: AnyBuild) -> AnyBuild:
    """Return the expected reward of (state, action) as the reward."""

    def made(mdp: Any) -> AnyEnv:
        env = build(mdp)
        parts = halves(env)
        mean = (mdp.transition * mdp.reward).sum(-1).flatten()

        def step(params: Any, state: Any, action: Tensor, noise: Tensor) -> Result:
            after, timestep = parts.step(params, state, action, noise)
            place = state.index * params.transition.shape[-2] + action
            return after, replace(timestep, reward=mean.index_select(0, place.reshape(1)).squeeze(0))

        return attrs.evolve(env, hoisted=Hoisted(draw=parts.draw, step=step))

    return made


def begins_anywhere(build: AnyBuild) -> AnyBuild:
    """Start from a uniform distribution instead of the initial one."""
    return lambda mdp: build(replace(mdp, initial=torch.ones_like(mdp.initial)))


# --- laws ---


SOURCE = "core.envs.tabular: a record of probabilities as a world"
CELLS = 8
Build = Callable[[TabularMDP], AnyEnv]


@attrs.frozen
class Place:
    """A process, a state and an action."""

    mdp: TabularMDP
    state: int
    action: int


@st.composite
def places(draw: DrawFn) -> Place:
    """Draw a process in float32, with a state and an action."""
    mdp = draw(tabular_mdps())
    states, actions = mdp.transition.shape[:2]
    single = tree_map(lambda leaf: leaf.float(), mdp)
    return Place(single, draw(st.integers(0, states - 1)), draw(st.integers(0, actions - 1)))


def kernel_laws() -> Suite:
    """The laws of a function from TabularMDP to Env, such as `core.envs.tabular.tabular`."""
    return Suite("kernel_laws", (_kernel(), _rewards(), _beginnings()))


_law = law_constructor(places, SOURCE)


def _everywhere(build: Build, place: Place) -> tuple[Any, Any]:
    """Run one step with each pair of noise from the middle of a cell: states and timesteps [CELLS * CELLS]."""
    env = build(place.mdp)
    middle = (torch.arange(CELLS, dtype=torch.float32) + 0.5) / CELLS
    noise = torch.cartesian_prod(middle, middle)
    state, action = TabularState(index=torch.tensor(place.state)), torch.tensor(place.action)
    step = halves(env).step
    result: tuple[Any, Any] = torch.vmap(lambda u: step(env.params, state, action, u))(noise)
    return result


def _kernel() -> Law:
    def check(build: Build, place: Place, seen: Seen) -> None:
        after, timestep = _everywhere(build, place)
        row = place.mdp.transition[place.state, place.action]
        joint = torch.stack([row * (1 - place.mdp.termination), row * place.mdp.termination], -1)
        seen("chance", (row > 0).sum() > 1)
        seen("an ending by chance", ((joint > 0) & (joint < 1)).any())
        index = after.index * 2 + timestep.terminated.to(torch.int64)
        share = torch.bincount(index, minlength=joint.numel()).reshape(joint.shape) / CELLS**2
        same("P(next state, ending)", share, joint)

    mutant = Mutant("ends by the state it comes from, not the one it comes to", ends_where_it_was)
    claim = "Over all noise, next states and endings are as likely as the table says."
    return _law("kernel_is_the_table", claim, mutant, check, "chance", "an ending by chance")


def _rewards() -> Law:
    def check(build: Build, place: Place, seen: Seen) -> None:
        after, timestep = _everywhere(build, place)
        wanted = place.mdp.reward[place.state, place.action][after.index]
        seen("a reward that depends on where it leads", (wanted != wanted[0]).any())
        same("rewards", timestep.reward, wanted)
        hot = torch.eye(len(place.mdp.initial))[after.index]
        same("observations", timestep.next_observation, hot)

    mutant = Mutant("pays the expected reward", pays_expectation)
    claim = "The reward is the table's for (state, action, next state), and the observation is the next state."
    return _law("reward_is_the_table", claim, mutant, check, "a reward that depends on where it leads")


def _beginnings() -> Law:
    def check(build: Build, place: Place, seen: Seen) -> None:
        states = len(place.mdp.initial)
        chosen = torch.zeros(states).index_fill(0, torch.tensor(place.state), 1.0)
        env = build(replace(place.mdp, initial=chosen))
        state, _ = torch.vmap(lambda key: env.reset(env.params, key))(keys.split(keys.key(0), 16))
        same("where it begins", state.index, torch.full((16,), place.state))

    mutant = Mutant("begins anywhere", begins_anywhere)
    claim = "An episode begins where the initial distribution says, and never where it says 0."
    return _law("reset_is_the_table", claim, mutant, check)
