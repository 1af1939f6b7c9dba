"""Laws of environments (N1, N2, N5 of the catalogue, and the laws of every step, applied to reset and step)."""

import io
import logging
from collections.abc import Callable
from typing import Any

import attrs
import torch
import torch.utils._pytree as pytree
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from ...core import keys, spaces
from ...core.env import Hoisted, halves
from ...core.keys import Key
from ...core.record import check as check_record
from ...core.record import replace
from ...core.spaces import Box
from ...core.steps import TimeStep
from ...core.tree import all_finite, leaves, tree_map
from ..framework.compare import ROUNDING, Tolerance, require, same
from ..framework.law import Law, Mutant, Seen, Suite, law_constructor, lifted
from ..strategies.walks import AnyEnv, Walk, action_of, is_over, key_of_step, last_state, trajectory, visits, walks
from .step import step_laws

# --- mutants ---
# Common mistakes in environments, as functions Env -> Env; they apply to any env whose state has a float leaf.


Result = tuple[Any, TimeStep]


def stepping(env: AnyEnv, change: Callable[[Any, Any, Tensor, Key], Result]) -> AnyEnv:
    """Return the env with another step, and without the hoisted halves of the old one."""
    return attrs.evolve(env, step=change, hoisted=None)


def float_leaves(tree: Any) -> list[Tensor]:
    """Return the floating-point leaves."""
    return [leaf for leaf in leaves(tree) if leaf.is_floating_point()]


def counts_beside(env: AnyEnv) -> AnyEnv:
    """Truncate by a count that is kept in Python."""
    calls: list[int] = []

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        calls.append(1)
        state, timestep = env.step(params, state, action, key)
        return state, replace(timestep, truncated=torch.full_like(timestep.truncated, len(calls) % 7 == 0))

    return stepping(env, step)


def global_noise(env: AnyEnv) -> AnyEnv:
    """Add noise to the reward from torch's global generator."""

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        state, timestep = env.step(params, state, action, key)
        return state, replace(timestep, reward=timestep.reward + torch.rand(()))

    return stepping(env, step)


def mutates_state(env: AnyEnv) -> AnyEnv:
    """Write the new state into the old one."""

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        after, timestep = env.step(params, state, action, key)
        for old, new in zip(leaves(state), leaves(after), strict=True):
            old.copy_(new)
        return tree_map(torch.clone, state), timestep

    return stepping(env, step)


def shares_params(env: AnyEnv) -> AnyEnv:
    """Return from a reset a reward that is a view of the params, if their first float leaf is a scalar."""

    def reset(params: Any, key: Key) -> Result:
        state, timestep = env.reset(params, key)
        origin = float_leaves(params)[0]
        return state, replace(timestep, reward=origin[...] * 0 if origin.ndim else origin.view(()))

    return attrs.evolve(env, reset=reset)


def asks_python(env: AnyEnv) -> AnyEnv:
    """Branch in Python on the value of the action."""

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        state, timestep = env.step(params, state, action, key)
        if action == 1:
            timestep = replace(timestep, reward=timestep.reward * 2)
        return state, timestep

    return stepping(env, step)


def logs(env: AnyEnv) -> AnyEnv:
    """Write to a logger in each step."""
    logger = logging.getLogger(__name__)

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        logger.debug("a step")
        return env.step(params, state, action, key)

    return stepping(env, step)


def widens(env: AnyEnv) -> AnyEnv:
    """Leave the state in double precision."""

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        state, timestep = env.step(params, state, action, key)
        return tree_map(lambda leaf: leaf.double() if leaf.is_floating_point() else leaf, state), timestep

    return stepping(env, step)


def on_the_cpu(env: AnyEnv) -> AnyEnv:
    """Make a tensor on the default device."""

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        state, timestep = env.step(params, state, action, key)
        return state, replace(timestep, reward=torch.cat([torch.zeros(1), timestep.reward.reshape(1)])[1])

    return stepping(env, step)


def narrow_space(env: AnyEnv) -> AnyEnv:
    """Declare a narrower range than the observations have."""
    shape = env.observation_space.shape if isinstance(env.observation_space, Box) else ()
    return attrs.evolve(env, observation_space=Box(-0.04, 0.04, shape))


def root_of_negative(env: AnyEnv) -> AnyEnv:
    """Return as reward the square root of a number that may be negative."""

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        after, timestep = env.step(params, state, action, key)
        return after, replace(timestep, reward=torch.sqrt(float_leaves(after)[-1].sum()))

    return stepping(env, step)


def counted_reward(env: AnyEnv) -> AnyEnv:
    """Return the reward as an integer."""

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        state, timestep = env.step(params, state, action, key)
        return state, replace(timestep, reward=timestep.reward.long())

    return stepping(env, step)


def paid_reset(env: AnyEnv) -> AnyEnv:
    """Return a reward of 1 from a reset."""

    def reset(params: Any, key: Key) -> Result:
        state, timestep = env.reset(params, key)
        return state, replace(timestep, reward=timestep.reward + 1)

    return attrs.evolve(env, reset=reset)


def remembers_the_last_step(env: AnyEnv) -> AnyEnv:
    """Start an episode in the state that the last step returned."""
    last: list[Any] = []

    def reset(params: Any, key: Key) -> Result:
        state, timestep = env.reset(params, key)
        return (last[-1] if last else state), timestep

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        after, timestep = env.step(params, state, action, key)
        last.append(tree_map(torch.clone, after))
        return after, timestep

    return attrs.evolve(stepping(env, step), reset=reset)


def fresh_observation(env: AnyEnv) -> AnyEnv:
    """Return the observation of a reset at every step, not only where an episode ends."""

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        _, fresh = env.reset(params, key)
        state, timestep = env.step(params, state, action, key)
        return state, replace(timestep, observation=fresh.observation)

    return stepping(env, step)


def hoisted_forgets(env: AnyEnv) -> AnyEnv:
    """Play action 0 always in the half inside the loop."""
    parts = halves(env)

    def step(params: Any, state: Any, action: Tensor, noise: Any) -> Result:
        return parts.step(params, state, torch.zeros_like(action), noise)

    return attrs.evolve(env, hoisted=Hoisted(draw=parts.draw, step=step))


def tires(env: AnyEnv) -> AnyEnv:
    """Skip every tenth step."""
    calls: list[int] = []

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        calls.append(1)
        after, timestep = env.step(params, state, action, key)
        return (tree_map(torch.clone, state) if len(calls) % 10 == 0 else after), timestep

    return stepping(env, step)


def hides_age(env: AnyEnv) -> AnyEnv:
    """Keep a number as an attribute of a tensor, which a copy loses."""

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        age = getattr(leaves(state)[0], "age", 0)
        after, timestep = env.step(params, state, action, key)
        leaves(after)[0].age = age + 1
        return after, replace(timestep, reward=timestep.reward + age)

    return stepping(env, step)


# --- laws ---


CONTRACT = "core.env: what reset and step promise"
STEP_MUTANTS = {
    "same_twice": Mutant("counts steps in a Python list beside the state", counts_beside),
    "global_state_stays": Mutant("draws its noise with torch.rand", global_noise),
    "inputs_stay": Mutant("moves the caller's own state: position.add_(...)", mutates_state),
    "outputs_own_storage": Mutant("a reset hands out a view of the params", shares_params),
    "batch_is_singles": Mutant("asks Python: if action == 1", asks_python),
    "compiled_is_eager": Mutant("logs what it does: logger.debug(...)", logs),
    "structure_is_fixed": Mutant("computes in double precision and leaves the state so", widens),
    "device_follows_inputs": Mutant("makes a tensor without asking where: torch.zeros(1)", on_the_cpu),
}


def env_suite(
    *, longest: int = 12, tolerance: Tolerance = ROUNDING, round_trip: Callable[[Any], Any] | None = None
) -> Suite:
    """Return the laws of one environment, not batched.

    Its states are reached by walks of up to `longest` steps. `tolerance` is for a batch against its singles and compiled
    against eager; pass EXACT if the environment computes in integers or dyadic numbers. `round_trip` saves a state and loads
    it; the default uses torch.save and torch.load.
    """
    several = walks(longest)
    steps = (
        lifted(law, _both_functions, _arguments, mutant=STEP_MUTANTS[law.name])
        for law in step_laws(several, tolerance=tolerance, carry=1)
    )
    save = round_trip or through_bytes
    own = (_members, _finite, _well_formed, _beginning, _no_history, _observation, _hoisted, _closed_loop)
    return Suite("env_laws", (*steps, *(law(several) for law in own), _saved(several, save)))


def _both_functions(env: AnyEnv) -> Callable[..., Any]:
    """Return step and reset as one function of (params, state, action, key), so that each law checks both."""

    def step_and_reset(params: Any, state: Any, action: Tensor, key: keys.Key) -> tuple[Any, ...]:
        return *env.step(params, state, action, key), *env.reset(params, key)

    return step_and_reset


def _arguments(env: AnyEnv, drawn: Any) -> Any:
    if isinstance(drawn, tuple):
        return tuple(_arguments(env, walk) for walk in drawn)
    number = drawn.actions[-1] if drawn.actions else 0
    state, action = last_state(env, drawn), action_of(env.action_space, number)
    return env.params, state, action, key_of_step(drawn, len(drawn.actions))


_law = law_constructor(st.nothing, CONTRACT)


def _members(walk: SearchStrategy[Walk]) -> Law:
    def check(env: AnyEnv, drawn: Walk, seen: Seen) -> None:
        sampled = spaces.sample(env.action_space, keys.key(drawn.seed))
        require(spaces.contains(env.action_space, sampled), f"the sampled action {sampled} is not in the action space")
        for t, (_, timestep) in enumerate(trajectory(env, drawn)):
            for name in ("observation", "next_observation"):
                value = getattr(timestep, name)
                inside = spaces.contains(env.observation_space, value)
                require(inside, f"{name} after {t} steps is {value}, not in {env.observation_space}")

    mutant = Mutant("declares a narrower range than its observations have", narrow_space)
    return _law(
        "spaces_hold", "Observations and actions lie in the spaces the env declares.", mutant, check, inputs=walk
    )


def _finite(walk: SearchStrategy[Walk]) -> Law:
    def check(env: AnyEnv, drawn: Walk, seen: Seen) -> None:
        for t, (state, timestep) in enumerate(trajectory(env, drawn)):
            require(all_finite(timestep), f"the timestep after {t} steps holds NaN or infinity")
            require(all_finite(state), f"the state after {t} steps holds NaN or infinity")

    mutant = Mutant("pays sqrt(x) for an x that may be negative", root_of_negative)
    return _law("all_finite", "States, rewards and observations are finite.", mutant, check, inputs=walk)


def _well_formed(walk: SearchStrategy[Walk]) -> Law:
    def check(env: AnyEnv, drawn: Walk, seen: Seen) -> None:
        for _, timestep in trajectory(env, drawn):
            require(isinstance(timestep, TimeStep), f"got {type(timestep).__name__}, wanted a TimeStep")
            check_record(timestep, batch=())

    mutant = Mutant("counts its reward in integers", counted_reward)
    claim = "A timestep is a TimeStep: a float reward and two bool flags, one number each."
    return _law("timestep_is_well_formed", claim, mutant, check, inputs=walk)


def _beginning(walk: SearchStrategy[Walk]) -> Law:
    def check(env: AnyEnv, drawn: Walk, seen: Seen) -> None:
        _, timestep = env.reset(env.params, key_of_step(drawn, -1))
        same("the reward of a reset", timestep.reward, torch.zeros_like(timestep.reward))
        require(not is_over(timestep), "a reset ends an episode")
        same("next_observation of a reset", timestep.next_observation, timestep.observation)

    mutant = Mutant("a reset pays the reward of a step", paid_reset)
    claim = "A reset pays nothing, ends nothing, and its next_observation is its observation."
    return _law("reset_is_a_beginning", claim, mutant, check, inputs=walk)


def _no_history(walk: SearchStrategy[Walk]) -> Law:
    def check(env: AnyEnv, drawn: Walk, seen: Seen) -> None:
        before = env.reset(env.params, key_of_step(drawn, -1))
        for visit in visits(env, drawn):
            seen("an ending", is_over(visit.timestep))
        same("a reset after an episode", env.reset(env.params, key_of_step(drawn, -1)), before)

    mutant = Mutant("a reset starts where the last step led", remembers_the_last_step)
    claim = "A reset depends on params and key alone, whatever was played before."
    return _law("reset_depends_on_the_key", claim, mutant, check, inputs=walk)


def _observation(walk: SearchStrategy[Walk]) -> Law:
    def check(env: AnyEnv, drawn: Walk, seen: Seen) -> None:
        for t, visit in enumerate(visits(env, drawn)):
            timestep = visit.timestep
            seen("a step inside an episode", not is_over(timestep))
            if not is_over(timestep):
                same(f"observation after {t + 1} steps", timestep.observation, timestep.next_observation)

    mutant = Mutant("shows the observation of a reset at every step", fresh_observation)
    claim = "Inside an episode, what the policy sees next is what followed: observation = next_observation."
    return _law("observation_is_next", claim, mutant, check, "a step inside an episode", inputs=walk)


def _hoisted(walk: SearchStrategy[Walk]) -> Law:
    def check(env: AnyEnv, drawn: Walk, seen: Seen) -> None:
        params, state, action, key = _arguments(env, drawn)
        whole, parts = env.step(params, state, action, key), halves(env)
        same("step from drawn noise", parts.step(params, state, action, parts.draw(params, key)), whole)

    mutant = Mutant("the hoisted half forgets the action", hoisted_forgets)
    claim = "A hoisted step, fed what its other half drew, is the whole step."
    return _law("hoisted_is_whole", claim, mutant, check, inputs=walk)


def _closed_loop(walk: SearchStrategy[Walk]) -> Law:
    def check(env: AnyEnv, drawn: Walk, seen: Seen) -> None:
        first = trajectory(env, drawn)
        seen("a walk of two steps or more", len(first) > 2)
        same("the same walk again", trajectory(env, drawn), first)

    mutant = Mutant("tires: every tenth call of step does nothing", tires)
    claim = "Recorded actions and keys, played again, give the recorded trajectory."
    return _law("replay_is_the_run", claim, mutant, check, "a walk of two steps or more", inputs=walk)


def _saved(walk: SearchStrategy[Walk], round_trip: Callable[[Any], Any]) -> Law:
    def check(env: AnyEnv, drawn: tuple[Walk, Walk], seen: Seen) -> None:
        state = live = last_state(env, drawn[0])
        stored = round_trip(state)
        seen("a step after loading", drawn[1].actions)
        for t, number in enumerate(drawn[1].actions):
            action, key = action_of(env.action_space, number), key_of_step(drawn[1], t)
            live, wanted = env.step(env.params, live, action, key)
            stored, got = env.step(env.params, stored, action, key)
            same(f"{t + 1} steps after loading", (stored, got), (live, wanted))

    mutant = Mutant("keeps the age of an episode as an attribute of a tensor", hides_age)
    claim = "A state that was saved and loaded goes on with the same bits."
    pair = st.tuples(walk, walks(4))
    return _law("saved_state_goes_on", claim, mutant, check, "a step after loading", inputs=pair)


def through_bytes(tree: Any) -> Any:
    """Return the tree after its leaves went through torch.save and torch.load."""
    leaves, structure = pytree.tree_flatten(tree)
    file = io.BytesIO()
    torch.save([leaf.detach().clone() for leaf in leaves], file)
    file.seek(0)
    return pytree.tree_unflatten(torch.load(file, weights_only=True), structure)


env_laws = env_suite()
