"""A step of a training rollout in parts: policy, move, reset, engine, and what is returned; and the time of each."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from purestep.core import keys
from purestep.core.keys import Key
from purestep.core.logic.env import ProofObservation, observe
from purestep.core.logic.env import begin_proof as begin_episodes
from purestep.core.logic.game import advance, look
from purestep.core.logic.state import ProofState
from purestep.core.policy import ActorCritic
from purestep.core.record import replace, select, stack, take
from purestep.core.scan import scan
from purestep.core.steps import Trajectory, Transition, ended
from purestep.core.tree import clone, leaves, tree_map
from purestep.runtime.compile import Program, program
from purestep.runtime.logic.proofs import Proofs
from purestep.runtime.rollout import Worlds

from ..parts.timing import SLOTS, STEPS, Acting, Timed, compile_seconds, ratio, scaled, turns

Choice = tuple[Tensor, Tensor]  # actions and their log-probs


Begun = Callable[[ProofState, Key], ProofState]
When = Callable[[Begun, ProofState, Key], ProofState]


def always(reset: Begun, moved: ProofState, key: Key) -> ProofState:
    """The reset computed in every step."""
    return reset(moved, key)


def where_needed(reset: Begun, moved: ProofState, key: Key) -> ProofState:
    """The reset computed only in steps in which some episode ends."""
    over = ended(moved.terminated, moved.truncated)

    def some(key: Key, *parts: Tensor) -> list[Tensor]:
        return [leaf.clone() for leaf in leaves(reset(rebuilt(moved, parts), key))]

    def none(key: Key, *parts: Tensor) -> list[Tensor]:
        return [leaf.clone() for leaf in parts]

    return rebuilt(moved, torch.cond(over.any(), some, none, (key, *leaves(moved))))


@frozen
class Parts:
    """What a step of the env whose reset is its own does, one after the other; all for a batch of slots."""

    made: Proofs
    model: ActorCritic
    slots: int
    when: When = always  # `always` or `where_needed`

    def noise(self, params: Any, worlds: Worlds, key: Key) -> tuple[Tensor, Tensor]:
        """What all steps of a rollout draw, before the first: keys for the env, uniforms for the policy."""
        env_key, policy_key = keys.split(key)
        distribution, _, _ = self.model.apply(params, worlds.observation, ())
        each = keys.split(keys.split(policy_key, STEPS), self.slots).transpose(0, 1)
        return keys.split(env_key, STEPS), torch.vmap(distribution.noise)(each)

    def policy(self, params: Any, observation: ProofObservation, noise: Tensor) -> Choice:
        """Actions and their log-probs."""
        distribution, _, _ = self.model.apply(params, observation, ())
        action = distribution.transform(noise)
        return action, distribution.log_prob(action)

    def move(self, state: ProofState, action: Tensor) -> ProofState:
        """The states after a move, without what followed the states before it."""
        return bare(advance(self.made.game, state, action))

    def fresh(self, moved: ProofState, key: Key) -> ProofState:
        """The first states of the next episodes."""
        begin = torch.vmap(lambda k, p, c: begin_episodes(self.made.game, self.made.world, k, p, c))
        return bare(begin(keys.split(key, self.slots), moved.pointer + 1, moved.negative_counter + 1))

    def reset(self, moved: ProofState, key: Key) -> ProofState:
        """The states, those of new episodes where the old ones are over."""

        def begun(moved: ProofState, key: Key) -> ProofState:
            return select(ended(moved.terminated, moved.truncated), self.fresh(moved, key), moved)

        return self.when(begun, moved, key)

    def engine(self, state: ProofState) -> ProofState:
        """The states with what follows them."""
        return look(self.made.game, self.made.world.base, state)

    def told(
        self, seen: ProofObservation, choice: Choice, moved: ProofState, state: ProofState
    ) -> tuple[Worlds, Transition]:
        """What the next step reads, and what is kept of this one."""
        over, now = ended(moved.terminated, moved.truncated), observe(state)
        beyond = ProofObservation(
            sub_index=torch.where(over[:, None, None], moved.current, now.sub_index),
            derived_sub_indices=torch.where(over[:, None, None, None], 0, now.derived_sub_indices),
            action_mask=now.action_mask & ~over[:, None],
        )
        transition = Transition(
            observation=seen,
            action=choice[0],
            reward=moved.step_reward,
            terminated=moved.terminated,
            truncated=moved.truncated,
            next_observation=beyond,
            behaviour_log_prob=choice[1],
        )
        return Worlds(state=state, observation=now, memory=()), transition


def step_of(parts: Parts, params: Any, worlds: Worlds, key: Key, noise: Tensor) -> tuple[Worlds, Transition]:
    """A step as in `rollout`, put together from its parts."""
    choice, moved, begun = before_engine(parts, params, worlds, key, noise)
    return parts.told(worlds.observation, choice, moved, parts.engine(begun))


def before_engine(
    parts: Parts, params: Any, worlds: Worlds, key: Key, noise: Tensor
) -> tuple[Choice, ProofState, ProofState]:
    """What is chosen, the states that follow, and those that the engine is given."""
    choice = parts.policy(params, worlds.observation, noise)
    moved = parts.move(worlds.state, choice[0])
    return choice, moved, parts.reset(moved, key)


def rebuilt(like: ProofState, parts: Any) -> ProofState:
    """A record of other leaves."""
    each = iter(parts)
    return tree_map(lambda leaf: next(each), like)


def scanned(parts: Parts) -> Callable[..., Any]:
    """A rollout put together from parts."""

    def run(params: Any, worlds: Worlds, key: Key) -> tuple[Worlds, Trajectory]:
        def step(worlds: Worlds, drawn: tuple[Key, Tensor]) -> tuple[Worlds, Transition]:
            return step_of(parts, params, worlds, *drawn)

        return scan(step, worlds, parts.noise(params, worlds, key))

    return run


def bare(state: ProofState) -> ProofState:
    """The state without what may follow it, which the engine finds anew."""
    return replace(state, derived=(), derived_count=(), origin=())


def found(state: ProofState) -> tuple[Any, ...]:
    """What the engine changes in a state."""
    return state.derived, state.derived_count, state.origin, state.too_long, state.too_many


def recorded(parts: Parts, acting: Acting) -> dict[str, Any]:
    """What each part is given in each step of a rollout, [T, B, ...]. Raises: RuntimeError where parts and step differ."""
    params, worlds = acting.params, acting.worlds
    env_keys, noises = parts.noise(params, worlds, keys.key(3))
    given: dict[str, list[Any]] = {name: [] for name in ("policy", "move", "reset", "engine", "copies")}
    for key, noise in zip(env_keys, noises, strict=True):
        choice = parts.policy(params, worlds.observation, noise)
        moved = parts.move(worlds.state, choice[0])
        begun = parts.reset(moved, key)
        after = parts.told(worlds.observation, choice, moved, parts.engine(begun))
        state, _ = acting.env.step(acting.env.params, worlds.state, choice[0], key)
        if not all(torch.equal(a, b) for a, b in zip(found(after[0].state), found(state), strict=True)):
            raise RuntimeError("the parts together do something else than a step; bring step_costs up to date")
        given["policy"].append((worlds.observation, noise))
        given["move"].append((worlds.state, choice[0]))
        given["reset"].append((moved, key))
        given["engine"].append(begun)
        given["copies"].append(after)
        worlds = after[0]
    return {name: stack(rows) for name, rows in given.items()}


def looped(part: Callable[[Any], Any], given: Any) -> Program[..., Any]:
    """A program that does a part for each step's own input, in a loop that carries what the part gives."""

    def run(first: Any, given: Any) -> Any:
        return scan(lambda carry, one: (part(one), ()), first, given, output=())[0]

    return program(run, name="a part of a step")


def copied(given: Any) -> Program[..., Any]:
    """A program that only copies what a rollout carries and keeps, none of it sharing memory."""

    def run(first: Any, given: Any) -> Any:
        return scan(lambda carry, one: (clone(one[0]), clone(one[1])), first, given, output=given[1])

    return program(run, name="the copies of a step")


def by_part(made: Proofs, model: ActorCritic, whole: Acting) -> dict[str, Any]:
    """Microseconds of a step, part by part, each alone in a loop over what a rollout gives it, beside the whole rollout."""
    parts, params = Parts(made, model, SLOTS), whole.params
    with torch.no_grad():
        given = recorded(parts, whole)
    works: dict[str, Callable[[Any], Any]] = {
        "policy": lambda one: parts.policy(params, *one),
        "move": lambda one: parts.move(*one),
        "reset": lambda one: parts.reset(*one),
        "engine": lambda one: found(parts.engine(one)),
    }
    programs: dict[str, Program[..., Any]] = {name: looped(work, given[name]) for name, work in works.items()}
    programs["copies"] = copied(given["copies"])
    works["copies"] = lambda one: one[0]
    noise = program(lambda worlds, key: parts.noise(params, worlds, key), name="the noise of a rollout")
    sides: dict[str, Timed] = {"whole": whole, "noise": lambda: noise(whole.worlds, keys.key(3))}
    with torch.no_grad():
        for name, run in programs.items():
            first = clone(works[name](take(given[name], 0)))
            sides[name] = partial(run, first, given[name])
        spent = turns(sides)
    return figures_of(spent, {**programs, "noise": noise})


def figures_of(spent: dict[str, list[float]], programs: dict[str, Program[..., Any]]) -> dict[str, Any]:
    """The parts' microseconds a step, their sum beside the whole, and what compilation took."""
    rows = {name: scaled(seconds, 1e6 / STEPS, digits=1) for name, seconds in spent.items()}
    sums = [sum(each) for each in zip(*(seconds for name, seconds in spent.items() if name != "whole"), strict=True)]
    return {
        "parts": {name: row for name, row in rows.items() if name != "whole"},
        "sum of the parts": scaled(sums, 1e6 / STEPS, digits=1),
        "whole": rows["whole"],
        "whole less sum": round(rows["whole"]["median"] - scaled(sums, 1e6 / STEPS)["median"], 1),
        "sum against whole": ratio(sums, spent["whole"]),
        "compile seconds": {name: compile_seconds(run) for name, run in programs.items()},
    }
