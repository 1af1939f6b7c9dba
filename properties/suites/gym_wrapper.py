"""Laws of wrappers of Gymnasium environments. Subject: a function Env -> Env, such as a wrapper's class.

from purestep.properties import verify, wrapper_laws
print(verify(wrapper_laws("CartPole-v1", stack=4), lambda env: FrameStackObservation(env, 4)))
print(verify(wrapper_laws("Pendulum-v1", reward=lambda reward: reward / 16), MyRewardScale))

The keywords declare the relation of the wrapped environment to the inner one; the laws compare both under the same seed. Other
state that a wrapper keeps on purpose beyond a reset, such as running statistics, is declared by a skip of `reset_forgets`.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from attrs import evolve, frozen

from ..framework.compare import require
from ..framework.law import Broken, Law, Mutant, Seen, Suite, law_constructor, lifted
from .gym import (
    AnyGym,
    Around,
    Make,
    Play,
    StepResult,
    advance_play,
    begin_play,
    drawn_plays,
    equal,
    equal_values,
    gym_action,
    gym_laws,
    maker,
    making,
    play_rows,
    statistic,
)

Wrap = Callable[[AnyGym], AnyGym]
KEPT = ("spaces", "seeded", "reset_forgets", "instances_apart", "no_global_randomness", "types", "observations_stay")


@frozen(kw_only=True)
class Relation:
    """The relation of a wrapper's observations, rewards and actions to those of its inner environment."""

    observation: Callable[[Any], Any]
    reward: Callable[[float], float]
    action: Callable[[Any], Any]
    repeat: int
    stack: int
    padding: str
    pooled: int

    def frames(self, observation: Any) -> deque[Any]:
        """Return the frames at the beginning of an episode."""
        first = np.zeros_like(observation) if self.padding == "zero" else observation
        return deque([*[first] * (self.stack - 1), observation], maxlen=self.stack)

    def seen(self, frames: deque[Any]) -> Any:
        """Return the wrapper's observation for the last frames."""
        shown = [self.observation(frame) for frame in frames]
        return np.stack(shown) if self.stack > 1 else shown[0]


def expected_rows(env: AnyGym, relation: Relation, play: Play, space: Any) -> list[StepResult]:
    """Return the rows of a play of the wrapped environment, whose action space is `space`, computed with the inner one."""
    found: list[StepResult] = []
    frames: deque[Any] = deque()
    for number in (-1, *play.actions):
        if not found or found[-1].over:
            frames = relation.frames(begin_play(env, **({} if found else {"seed": play.seed})).observation)
            found.append(StepResult(relation.seen(frames)))
        if number < 0:
            continue
        action = relation.action(gym_action(space, number))
        row = advance_play(env, action)
        total, shown = relation.reward(row.reward), [row.observation]
        for _ in range(relation.repeat - 1):
            if row.over:
                break
            row = advance_play(env, action)
            total += relation.reward(row.reward)
            shown.append(row.observation)
        frames.append(np.max(shown[-relation.pooled :], axis=0) if relation.pooled > 1 else row.observation)
        found.append(StepResult(relation.seen(frames), total, row.terminated, row.truncated))
    return found


# --- mutants ---
# Common errors in wrappers, as edits of the function Env -> Env.


def edit_wrapper(change: Callable[[AnyGym], AnyGym]) -> Callable[[Wrap], Wrap]:
    """Return the edit of a wrapper that makes `change(wrapped)` instead of `wrapped`."""
    return lambda wrap: lambda env: change(wrap(env))


class _KeepsFrames(Around):
    last: Any = None

    def reset(self, **arguments: Any) -> Any:
        observation, info = self.env.reset(**arguments)
        return (observation if self.last is None else np.where(self.last > 0, observation, self.last)), info

    def step(self, action: Any) -> Any:
        self.last, *rest = self.env.step(action)
        return (self.last, *rest)


class _HalfReward(Around):
    def step(self, action: Any) -> Any:
        observation, reward, *rest = self.env.step(action)
        return (observation, reward / 2, *rest)


class _Swallows(Around):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = self.env.step(action)
        return observation, reward, terminated, False, info


class _NoSeed(Around):
    def reset(self, **arguments: Any) -> Any:
        return self.env.reset()


class _NoInfo(Around):
    def step(self, action: Any) -> Any:
        *told, _ = self.env.step(action)
        return (*told, {})


class _CountsReset(Around):
    def step(self, action: Any) -> Any:
        *told, info = self.env.step(action)
        found = info.get("episode")
        return (*told, info if found is None else {**info, "episode": {**found, "l": found["l"] + 1}})


class _Hides(Around):
    @property
    def unwrapped(self) -> Any:
        return self


# --- laws ---


SOURCE = "Gymnasium's API: Wrapper, ObservationWrapper, RewardWrapper, ActionWrapper"
ENDING = "an ending"


def _same(value: Any) -> Any:
    return value


def wrapper_laws(
    inner: Any,
    *,
    observation: Callable[[Any], Any] = _same,
    reward: Callable[[float], float] = _same,
    action: Callable[[Any], Any] = _same,
    repeat: int = 1,
    stack: int = 1,
    padding: str = "reset",
    pooled: int = 1,
    steps: int = 16,
    statistics: Mapping[str, float | str] | None = None,
) -> Suite:
    """The laws of a wrapper of Gymnasium environments; `inner` is an id or a function that makes the inner environment.

    `observation` and `reward` map the inner environment's to the wrapper's, `action` the wrapper's to the inner one. `repeat`
    is the number of times that each action is taken (rewards add up, and an ending stops it), `stack` the number of frames in
    an observation, along a new first axis; before the first, the `padding` is the "reset" frame or "zero". Of the repeats'
    observations the maximum of the last `pooled` is shown. `statistics` are the entries of info["episode"] at an ending, such
    as {"r": 1.0, "l": "length"}: the discount of a sum of the wrapper's rewards, or "length".

    >>> from gymnasium.wrappers import TransformReward
    >>> from purestep.properties import verify
    >>> half = lambda reward: reward / 2
    >>> bool(verify(wrapper_laws("CartPole-v1", reward=half), lambda env: TransformReward(env, half)))
    True
    """
    relation = Relation(
        observation=observation,
        reward=reward,
        action=action,
        repeat=repeat,
        stack=stack,
        padding=padding,
        pooled=pooled,
    )
    plays, make = drawn_plays(steps), maker(inner)
    law = law_constructor(lambda: plays, SOURCE)
    own = (_related(law, make, relation), _paid(law, make, relation), _ended(law, make, relation))
    rest = (_seed(law, make, relation), _info(law, make, relation), _actions(law, make, relation))
    gym = [_around(one, make) for one in gym_laws(steps=steps) if one.name in KEPT]
    told = [_statistics(law, make, statistics)] if statistics else []
    return Suite("wrapper_laws", (*own, *rest, *gym, *told))


Construct = Callable[..., Law]


def _around(law: Law, make: Make) -> Law:
    """Return a law of environments as one of wrappers."""

    def edit(wrap: Wrap) -> Wrap:
        return lambda env: law.mutant.make(lambda: wrap(env))()

    def made(wrap: Wrap) -> Make:
        return lambda: wrap(make())

    return lifted(law, made, lambda wrap, drawn: drawn, mutant=Mutant(law.mutant.edit, edit))


def _both(wrap: Wrap, make: Make, relation: Relation, play: Play) -> tuple[list[StepResult], list[StepResult]]:
    with making(lambda: wrap(make()), make) as (wrapped, plain):
        return play_rows(wrapped, play), expected_rows(plain, relation, play, wrapped.action_space)


def _near(where: str, got: Any, wanted: Any) -> None:
    """Raise Broken unless both are equal_values, or arrays that are equal but for dtype and rounding."""
    if isinstance(wanted, dict) and isinstance(got, dict) and got.keys() == wanted.keys():
        for name in wanted:
            _near(f"{where}[{name!r}]", got[name], wanted[name])
        return
    if equal_values(got, wanted):
        return
    a, b = np.asarray(got), np.asarray(wanted)
    numbers = a.dtype.kind in "fiub" and b.dtype.kind in "fiub"
    if a.shape != b.shape or not numbers or not np.allclose(a, b, 1e-5, 1e-6, equal_nan=True):
        raise Broken(f"{where}: got {got!r}, wanted {wanted!r}")


def _related(law: Construct, make: Make, relation: Relation) -> Law:
    def check(wrap: Wrap, play: Play, seen: Seen) -> None:
        for number, (row, right) in enumerate(zip(*_both(wrap, make, relation, play), strict=False)):
            seen("a step", number > 0)
            seen(ENDING, right.over)
            _near(f"observation of row {number}", row.observation, right.observation)

    mutant = ("mixes the last episode's frame into the first of the next", edit_wrapper(_KeepsFrames))
    claim = "Observations are the declared function of the inner environment's, also at an ending and after it."
    return law("observation", claim, mutant, check, "a step")


def _paid(law: Construct, make: Make, relation: Relation) -> Law:
    def check(wrap: Wrap, play: Play, seen: Seen) -> None:
        for number, (row, right) in enumerate(zip(*_both(wrap, make, relation, play), strict=False)):
            seen("a step", number > 0)
            _near(f"reward of row {number}", row.reward, right.reward)

    mutant = ("scales the reward once more", edit_wrapper(_HalfReward))
    claim = "Rewards are the declared function of the inner environment's, summed where an action is repeated."
    return law("reward", claim, mutant, check, "a step")


def _ended(law: Construct, make: Make, relation: Relation) -> Law:
    def check(wrap: Wrap, play: Play, seen: Seen) -> None:
        both = _both(wrap, make, relation, play)
        for number, (row, right) in enumerate(zip(*both, strict=False)):
            seen(ENDING, right.over)
            equal(f"flags of row {number}", (row.terminated, row.truncated), (right.terminated, right.truncated))
        require(len(both[0]) == len(both[1]), "the wrapper ends its episodes where the inner environment does")

    mutant = ("swallows a truncation", edit_wrapper(_Swallows))
    return law("flags", "An episode ends where and as the inner environment's does.", mutant, check)


def _seed(law: Construct, make: Make, relation: Relation) -> Law:
    def check(wrap: Wrap, play: Play, seen: Seen) -> None:
        seen("a seed")
        got, wanted = _both(wrap, make, relation, evolve(play, actions=()))
        _near("observation of the reset", got[0].observation, wanted[0].observation)

    mutant = ("drops the seed of a reset", edit_wrapper(_NoSeed))
    return law("seed_passed", "The seed of a reset is the inner environment's.", mutant, check, "a seed")


def _info(law: Construct, make: Make, relation: Relation) -> Law:
    def check(wrap: Wrap, play: Play, seen: Seen) -> None:
        with making(lambda: wrap(_tells(make()))) as wrapped:
            require(wrapped.reset(seed=play.seed)[1].get("told") == 0, "the inner info of a reset is passed on")
            for number, step in enumerate(play.actions, 1):
                *_, terminated, truncated, info = wrapped.step(gym_action(wrapped.action_space, step))
                got, wanted = info.get("told"), number * relation.repeat
                over = terminated or truncated
                require(
                    got == wanted or (over and got is not None), f"info of step {number}: got {got!r}, wanted {wanted}"
                )
                seen("a step")
                if over:
                    break

    mutant = ("returns an info of its own", edit_wrapper(_NoInfo))
    return law("info_passed", "The inner environment's info is passed on.", mutant, check, "a step")


def _tells(env: AnyGym) -> AnyGym:
    """Return a wrapper that counts its steps in the info, which is an instance of Gymnasium's Wrapper as some demand."""
    import gymnasium

    class Tells(gymnasium.Wrapper[Any, Any, Any, Any]):
        count = 0

        def reset(self, **arguments: Any) -> Any:
            self.count = 0
            observation, info = self.env.reset(**arguments)
            return observation, {**info, "told": 0}

        def step(self, action: Any) -> Any:
            self.count += 1
            *rest, info = self.env.step(action)
            return (*rest, {**info, "told": self.count})

    return Tells(env)


def _actions(law: Construct, make: Make, relation: Relation) -> Law:
    def check(wrap: Wrap, play: Play, seen: Seen) -> None:
        with making(lambda: wrap(make()), make) as (wrapped, plain):
            for number in play.actions:
                action = relation.action(gym_action(wrapped.action_space, number))
                require(plain.action_space.contains(action), f"{action!r} is an action of the inner environment")
                seen("an action")
            require(wrapped.unwrapped is wrapped.env.unwrapped, "unwrapped is the innermost environment")

    mutant = ("calls itself the innermost environment", edit_wrapper(_Hides))
    claim = (
        "Actions of the wrapper's space become actions of the inner one, and `unwrapped` is the innermost environment."
    )
    return law("actions", claim, mutant, check, "an action")


def _statistics(law: Construct, make: Make, statistics: Mapping[str, float | str]) -> Law:
    def check(wrap: Wrap, play: Play, seen: Seen) -> None:
        rewards, over = list[float](), True
        with making(lambda: wrap(make())) as wrapped:
            for number, action in enumerate(play.actions, 1):
                if over:
                    wrapped.reset(**({"seed": play.seed} if number == 1 else {}))
                    rewards = []
                _, reward, terminated, truncated, info = wrapped.step(gym_action(wrapped.action_space, action))
                rewards.append(float(reward))
                over = bool(terminated or truncated)
                if not over:
                    continue
                seen(ENDING)
                seen("a second episode", len(rewards) < number)
                require("episode" in info, f"the info of step {number}, which ends an episode, has 'episode'")
                for name, of in statistics.items():
                    got, where = float(np.asarray(info["episode"][name]).item()), f"info['episode'][{name!r}]"
                    _near(f"{where} of step {number}", got, statistic(rewards, of))

    mutant = ("counts a reset as a step", edit_wrapper(_CountsReset))
    claim = "At an ending info['episode'] has the figures of that episode's own rewards; a reset is no step of it."
    return law("episode_statistics", claim, mutant, check, ENDING, "a second episode")
