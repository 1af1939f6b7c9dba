"""Laws of Gymnasium environments. Subject: a registered id, or a function without arguments that makes the environment.

from purestep.properties import gym_laws, verify
print(verify(gym_laws(), "CartPole-v1"))
print(verify(gym_laws(steps=50), lambda: MyEnv(size=5)))

Such an environment has hidden state, so laws compare replays: the same seed and actions, in two instances or after other use.
"""

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ..framework.compare import require
from ..framework.law import Broken, Law, NotHere, Seen, Suite, law_constructor
from ..framework.outside import generator_states, seeded
from ..strategies.values import seeds

AnyGym = Any
Make = Callable[[], AnyGym]

# --- values and plays ---


@frozen
class Play:
    """A seed for the first reset, and a number for each action: see `gym_action`."""

    seed: int
    actions: tuple[int, ...]


@frozen
class StepResult:
    """Result of a step, or of a reset (then with reward 0), copied when it was returned."""

    observation: Any
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False

    @property
    def over(self) -> bool:
        """Return whether the episode ended with this step."""
        return bool(self.terminated or self.truncated)


def maker(subject: Any) -> Make:
    """Return the function that makes the environment, for one or for a registered id."""
    return registered(subject) if isinstance(subject, str) else subject


def registered(name: str, steps: int | None = None) -> Make:
    """Return a function that makes the registered environment, with another time limit if one is given."""

    def make() -> AnyGym:
        try:
            import gymnasium
        except ImportError:
            raise NotHere("gymnasium is not installed: pip install 'purestep[gym]'") from None
        return gymnasium.make(name, max_episode_steps=steps, disable_env_checker=True)

    make.__name__ = name
    return make


@contextmanager
def making(*makes: Make) -> Iterator[Any]:
    """Make the environments, close them at the end of the `with` block, and ignore warnings inside it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        envs = [make() for make in makes]
        try:
            yield envs[0] if len(envs) == 1 else envs
        finally:
            for env in envs:
                env.close()


def gym_action(space: Any, number: int) -> Any:
    """Return an action of a Gymnasium space: for a Discrete the number modulo n, for a Box zeros, low, high or uniform ones.

    >>> from gymnasium.spaces import Box, Discrete
    >>> int(gym_action(Discrete(3, start=1), 4)), gym_action(Box(-2.0, 2.0, (1,)), 2)
    (2, array([2.], dtype=float32))
    """
    kind = type(space).__name__
    if kind == "Discrete":
        return (
            space.dtype.type(space.start + number % int(space.n)) if hasattr(space.dtype, "type") else number % space.n
        )
    if kind == "Box":
        low, high = np.maximum(space.low, -100), np.minimum(space.high, 100)
        drawn = np.random.default_rng(number).uniform(low, high, space.shape)
        values = [np.clip(np.zeros(space.shape), low, high), low, high, drawn]
        return np.asarray(values[min(number, 3)], space.dtype)
    if kind == "Dict":
        return {name: gym_action(part, number + place) for place, (name, part) in enumerate(space.spaces.items())}
    if kind == "Tuple":
        return tuple(gym_action(part, number + place) for place, part in enumerate(space.spaces))
    space = copy.deepcopy(space)
    space.seed(number)
    return space.sample()


def statistic(rewards: Sequence[float], of: float | str) -> float:
    """Return a figure of an episode: its "length", or the sum of its rewards with a discount.

    >>> statistic([1.0, 1.0], 0.5), statistic([1.0, 1.0], "length")
    (1.5, 2.0)
    """
    return float(len(rewards)) if of == "length" else sum(float(of) ** t * r for t, r in enumerate(rewards))


def arrays(value: Any) -> list[np.ndarray[Any, Any]]:
    """Return the arrays in a nested value."""
    if isinstance(value, dict):
        return [array for part in value.values() for array in arrays(part)]
    if isinstance(value, (tuple, list)):
        return [array for part in value for array in arrays(part)]
    return [value] if isinstance(value, np.ndarray) else []


def equal_values(got: Any, wanted: Any) -> bool:
    """Return whether two nested values are equal, with their dtypes; NaN equals NaN.

    >>> equal_values({"a": np.zeros(2)}, {"a": np.zeros(2)}), equal_values(np.zeros(2), np.zeros(2, np.float32))
    (True, False)
    """
    if isinstance(got, dict) and isinstance(wanted, dict):
        return got.keys() == wanted.keys() and all(equal_values(got[name], wanted[name]) for name in got)
    if isinstance(got, (tuple, list)) and isinstance(wanted, (tuple, list)):
        return len(got) == len(wanted) and all(map(equal_values, got, wanted))
    if isinstance(got, np.ndarray) or isinstance(wanted, np.ndarray):
        a, b = np.asarray(got), np.asarray(wanted)
        return (a.shape, a.dtype) == (b.shape, b.dtype) and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
    return bool(got == wanted or (got != got and wanted != wanted))


def equal(where: str, got: Any, wanted: Any) -> None:
    """Raise Broken unless both values are alike."""
    if not equal_values(got, wanted):
        raise Broken(f"{where}: got {_short(got)}, wanted {_short(wanted)}")


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else f"{text[:200]}..."


def begin_play(env: AnyGym, **arguments: Any) -> StepResult:
    """Reset the environment."""
    made = env.reset(**arguments)
    require(isinstance(made, tuple) and len(made) == 2, "reset returns a pair (observation, info)")
    require(isinstance(made[1], dict), f"the info of reset is a dict, got {type(made[1]).__name__}")
    return StepResult(copy.deepcopy(made[0]))


def advance_play(env: AnyGym, action: Any) -> StepResult:
    """Step the environment."""
    observation, reward, terminated, truncated, _ = env.step(action)
    return StepResult(copy.deepcopy(observation), copy.deepcopy(reward), terminated, truncated)


def play_rows(env: AnyGym, play: Play) -> list[StepResult]:
    """Return the resets and steps of a play: a reset with the seed, and one without a seed after each ending."""
    found = [begin_play(env, seed=play.seed)]
    for number in play.actions:
        if found[-1].over:
            found.append(begin_play(env))
        found.append(advance_play(env, gym_action(env.action_space, number)))
    return found


def agree(where: str, got: Sequence[StepResult], wanted: Sequence[StepResult]) -> None:
    """Raise Broken at the first difference of two plays."""
    for number, (one, other) in enumerate(zip(got, wanted, strict=True)):
        for name in ("observation", "reward", "terminated", "truncated"):
            equal(f"{where}, {name} of row {number}", getattr(one, name), getattr(other, name))


# --- mutants ---
# Common errors in environments, as edits of what makes the environment.


class Around:
    """An environment with other methods; what a subclass does not define is the inner environment's."""

    def __init__(self, env: AnyGym) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # asked for by copies, before there is one
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self, **arguments: Any) -> Any:
        """Reset the inner environment."""
        return self.env.reset(**arguments)

    def step(self, action: Any) -> Any:
        """Step the inner environment."""
        return self.env.step(action)


def edited(change: Callable[[AnyGym], AnyGym]) -> Callable[[Any], Make]:
    """Return the edit of a subject that makes `change(env)` instead of `env`."""
    return lambda subject: lambda: change(maker(subject)())


class _Degrees(Around):
    def step(self, action: Any) -> Any:
        observation, *rest = self.env.step(action)
        return (np.asarray(np.degrees(observation), observation.dtype), *rest)


class _SeedsOnce(Around):
    seeds = True

    def reset(self, **arguments: Any) -> Any:
        made = self.env.reset(**arguments if self.seeds else {**arguments, "seed": None})
        self.seeds = False
        return made


class _Global(Around):
    def step(self, action: Any) -> Any:
        observation, reward, *rest = self.env.step(action)
        return (observation, float(reward) + np.random.random(), *rest)


class _Counts(Around):
    count = 0

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.count += 1
        return observation, reward, terminated, bool(truncated or self.count % 5 == 0), info


class _CountsTogether(Around):
    counts: list[int] = []  # noqa: RUF012

    def reset(self, **arguments: Any) -> Any:
        self.counts.clear()
        return self.env.reset(**arguments)

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.counts.append(1)
        return observation, reward, terminated, bool(truncated or len(self.counts) % 3 == 0), info


class _Clips(Around):
    def step(self, action: Any) -> Any:
        np.clip(action, -0.5, 0.5, out=action)
        return self.env.step(action)


class _OneBuffer(Around):
    def _same(self, observation: Any) -> Any:
        self.buffer = self.__dict__.get("buffer", np.empty_like(observation))
        self.buffer[...] = observation
        return self.buffer

    def reset(self, **arguments: Any) -> Any:
        observation, info = self.env.reset(**arguments)
        return self._same(observation), info

    def step(self, action: Any) -> Any:
        observation, *rest = self.env.step(action)
        return (self._same(observation), *rest)


class _ShowsState(Around):
    def step(self, action: Any) -> Any:
        observation, *rest = self.env.step(action)
        self.env.unwrapped.state = observation
        return (observation, *rest)


class _ArrayReward(Around):
    def step(self, action: Any) -> Any:
        observation, reward, *rest = self.env.step(action)
        return (observation, np.array([reward]), *rest)


class _AsksOptions(Around):
    def reset(self, **arguments: Any) -> Any:
        if arguments.get("options") is not None:
            _ = arguments["options"]["low"]
        return self.env.reset(**arguments)


class _Item(Around):
    def step(self, action: Any) -> Any:
        return self.env.step(action.item())


class _Late(Around):
    reached = False

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.reached, truncated = truncated, self.reached
        return observation, reward, terminated, truncated, info


# --- laws ---


SOURCE = "Gymnasium's API: Env.reset, Env.step, and the spaces that an environment declares"
STEP, ENDING = "a step", "an ending"


def gym_laws(*, steps: int = 24, longest: int = 1000, writable: bool = False) -> Suite:
    """The laws of a Gymnasium environment.

    `steps` is the length of the longest play that is drawn, `longest` of the longest that is made to reach a time limit.
    `writable` declares that callers may write into the arrays that they were returned.

    >>> from purestep.properties import verify
    >>> bool(verify(gym_laws(steps=8), "CartPole-v1"))
    True
    """
    plays = drawn_plays(steps)
    both = (_spaces, _seeded, _fresh, _apart, _global, _types, _options, _observations, _actions, _integers)
    laws = [law(plays) for law in both]
    return Suite("gym_laws", (*laws, _limit(longest), *([_writable(plays)] if writable else [])))


def drawn_plays(steps: int) -> SearchStrategy[Play]:
    """Plays of at most `steps` steps, whose actions repeat a pattern."""
    pattern, length = st.lists(st.integers(0, 255), min_size=1, max_size=steps), st.integers(1, steps)
    actions = st.tuples(pattern, length).map(lambda pair: tuple((pair[0] * pair[1])[: pair[1]]))
    return st.builds(Play, seed=seeds(), actions=actions)


_law = law_constructor(st.nothing, SOURCE, prepare=maker)


def _count(seen: Seen, found: Sequence[StepResult]) -> None:
    seen(STEP, len(found) > 1)
    seen(ENDING, any(row.over for row in found))


def _spaces(plays: SearchStrategy[Play]) -> Law:
    def check(make: Make, play: Play, seen: Seen) -> None:
        with making(make) as env:
            found, space = play_rows(env, play), env.observation_space
        _count(seen, found)
        for number, row in enumerate(found):
            require(
                space.contains(row.observation), f"observation {_short(row.observation)} of row {number} in {space}"
            )
            finite = all(np.isfinite(array).all() for array in arrays(row.observation) if array.dtype.kind == "f")
            require(finite, f"observation {_short(row.observation)} of row {number} is finite")

    mutant = ("returns degrees where the space has radians", edited(_Degrees))
    return _law("spaces", "Each observation is finite and in the space.", mutant, check, STEP, inputs=plays)


def _seeded(plays: SearchStrategy[Play]) -> Law:
    def check(make: Make, play: Play, seen: Seen) -> None:
        with making(make) as env:
            _deterministic(env)
            first = play_rows(env, play)
            agree("the same play again", play_rows(env, play), first)
        _count(seen, first)

    mutant = ("takes the seed of its first reset only", edited(_SeedsOnce))
    claim = "A reset with a seed determines the play, further resets included."
    return _law("seeded", claim, mutant, check, STEP, inputs=plays)


def _deterministic(env: AnyGym) -> None:
    if getattr(getattr(env, "spec", None), "nondeterministic", False):
        raise NotHere("its spec says that it is nondeterministic")


def _fresh(plays: SearchStrategy[Play]) -> Law:
    def check(make: Make, inputs: tuple[Play, Play], seen: Seen) -> None:
        before, play = inputs
        with making(make, make) as (used, new):
            _deterministic(new)
            earlier = play_rows(used, before)
            if earlier[-1].over:
                seen(ENDING)
                with suppress(Exception):  # a step after the end is undefined, but the reset that follows is not
                    used.step(gym_action(used.action_space, 0))
            seen("a reset inside an episode", not earlier[-1].over)
            agree("after other use", play_rows(used, play), play_rows(new, play))

    mutant = ("counts steps beyond a reset", edited(_Counts))
    claim = "A reset with a seed forgets all that came before, as in a new instance; also a step after an ending."
    needs = "a reset inside an episode"
    return _law("reset_forgets", claim, mutant, check, needs, inputs=st.tuples(plays, plays))


def _apart(plays: SearchStrategy[Play]) -> Law:
    def check(make: Make, inputs: tuple[Play, Play], seen: Seen) -> None:
        play, other = inputs
        with making(make, make, make) as (alone, one, two):
            _deterministic(alone)
            wanted, found = play_rows(alone, play), [begin_play(one, seed=play.seed)]
            begin_play(two, seed=other.seed)
            for number, beside in zip(play.actions, (other.actions * len(play.actions)), strict=False):
                if found[-1].over:
                    found.append(begin_play(one))
                found.append(advance_play(one, gym_action(one.action_space, number)))
                if advance_play(two, gym_action(two.action_space, beside)).over:
                    begin_play(two)
            agree("beside another instance", found, wanted)
        _count(seen, wanted)

    mutant = ("keeps its count of steps in the class", edited(_CountsTogether))
    claim = "Two instances share no state."
    return _law("instances_apart", claim, mutant, check, STEP, inputs=st.tuples(plays, plays))


def _global(plays: SearchStrategy[Play]) -> Law:
    def check(make: Make, play: Play, seen: Seen) -> None:
        found = []
        for seed in (0, 1):
            with making(make) as env, seeded(seed):
                _deterministic(env)
                before = generator_states()
                found.append(play_rows(env, play))
                require(generator_states() == before, "the global random generators stay as they were")
        _count(seen, found[0])
        agree("under another global seed", found[1], found[0])

    mutant = ("adds noise from numpy's global generator", edited(_Global))
    claim = "The global random generators of Python, numpy and torch neither matter nor change."
    return _law("no_global_randomness", claim, mutant, check, STEP, inputs=plays)


def _types(plays: SearchStrategy[Play]) -> Law:
    def check(make: Make, play: Play, seen: Seen) -> None:
        with making(make) as env:
            over = begin_play(env, seed=play.seed).over
            for number in play.actions:
                if over:
                    begin_play(env)
                step = env.step(gym_action(env.action_space, number))
                require(isinstance(step, tuple) and len(step) == 5, "step returns five values")
                _, reward, terminated, truncated, info = step
                require(np.ndim(reward) == 0 and hasattr(reward, "__float__"), f"a reward is a number, got {reward!r}")
                require(np.isfinite(float(reward)), f"a reward is finite, got {reward!r}")
                for flag in (terminated, truncated):
                    require(isinstance(flag, (bool, np.bool_)), f"terminated and truncated are bools, got {flag!r}")
                require(isinstance(info, dict), f"info is a dict, got {type(info).__name__}")
                over = terminated or truncated
                seen(STEP)

    mutant = ("returns the reward as an array of one entry", edited(_ArrayReward))
    claim = "A step returns (observation, finite number, bool, bool, dict)."
    return _law("types", claim, mutant, check, STEP, inputs=plays)


def _options(plays: SearchStrategy[Play]) -> Law:
    def check(make: Make, play: Play, seen: Seen) -> None:
        with making(make, make) as (one, two):
            _deterministic(one)
            got, wanted = begin_play(one, seed=play.seed, options={}), begin_play(two, seed=play.seed)
            equal("the observation of a reset with options={}", got.observation, wanted.observation)
            seen("a reset")

    mutant = ("looks for a key in any options", edited(_AsksOptions))
    claim = "A reset with empty options is one without options."
    return _law("empty_options", claim, mutant, check, "a reset", inputs=plays)


def _observations(plays: SearchStrategy[Play]) -> Law:
    def check(make: Make, play: Play, seen: Seen) -> None:
        with making(make) as env:
            kept = [env.reset(seed=play.seed)[0]]
            copies, over = [copy.deepcopy(kept[0])], False
            for number in play.actions:
                if over:
                    kept.append(env.reset()[0])
                    copies.append(copy.deepcopy(kept[-1]))
                observation, _, terminated, truncated, _ = env.step(gym_action(env.action_space, number))
                kept.append(observation)
                copies.append(copy.deepcopy(observation))
                over = terminated or truncated
        seen("an array that changed with a step", any(not equal_values(copies[0], one) for one in copies[1:]))
        for number, (now, then) in enumerate(zip(kept, copies, strict=True)):
            equal(f"observation {number}, after later steps", now, then)

    mutant = ("returns one buffer at each step", edited(_OneBuffer))
    claim = "An observation that was returned is not overwritten later."
    return _law("observations_stay", claim, mutant, check, "an array that changed with a step", inputs=plays)


def _actions(plays: SearchStrategy[Play]) -> Law:
    def prepare(subject: Any) -> Make:
        make = maker(subject)
        with making(make) as env:
            if not arrays(gym_action(env.action_space, 0)):
                raise NotHere("its actions are no arrays")
        return make

    def check(make: Make, play: Play, seen: Seen) -> None:
        with making(make) as env:
            over = begin_play(env, seed=play.seed).over
            for number in play.actions:
                if over:
                    begin_play(env)
                action, wanted = (gym_action(env.action_space, number) for _ in range(2))
                over = advance_play(env, action).over
                seen("an action that is not zero", any(array.any() for array in arrays(wanted)))
                equal("the action after the step", action, wanted)

    mutant = ("clips the action in place", edited(_Clips))
    needs = "an action that is not zero"
    claim = "A step leaves the action's array as it was."
    return _law("actions_stay", claim, mutant, check, needs, inputs=plays, prepare=prepare)


def _integers(plays: SearchStrategy[Play]) -> Law:
    def prepare(subject: Any) -> Make:
        make = maker(subject)
        with making(make) as env:
            if not isinstance(gym_action(env.action_space, 0), np.integer):
                raise NotHere("its actions are no integers")
        return make

    def check(make: Make, play: Play, seen: Seen) -> None:
        with making(make, make) as (one, two):
            _deterministic(one)
            found = [begin_play(one, seed=play.seed)], [begin_play(two, seed=play.seed)]
            for number in play.actions:
                if found[0][-1].over:
                    break
                action = gym_action(one.action_space, number)
                found[0].append(advance_play(one, int(action)))
                found[1].append(advance_play(two, action))
            agree("with actions of Python's int", *found)
        _count(seen, found[0])

    mutant = ("calls a method of numpy's integers", edited(_Item))
    claim = "An action of Python's int is that of numpy's, since the space contains both."
    return _law("integers", claim, mutant, check, STEP, inputs=plays, prepare=prepare)


def _limit(longest: int) -> Law:
    def limit_of(env: AnyGym) -> int:
        limit = getattr(getattr(env, "spec", None), "max_episode_steps", None)
        if not limit or limit > longest:
            raise NotHere(f"its spec has no max_episode_steps up to {longest}")
        return int(limit)

    def prepare(subject: Any) -> Make:
        make = maker(subject)
        with making(make) as env:
            limit_of(env)
        return make

    def check(make: Make, play: Play, seen: Seen) -> None:
        with making(make) as env:
            limit, generator = limit_of(env), np.random.default_rng(play.seed)
            for episode in range(8):
                row, length = begin_play(env, **({} if episode else {"seed": play.seed})), 0
                while not row.over and length < limit:
                    row = advance_play(env, gym_action(env.action_space, int(generator.integers(256))))
                    length += 1
                require(row.over, f"an episode ends by step {limit}, the max_episode_steps of its spec")
                seen(ENDING)
                seen("an ending at the limit", length == limit)
                if length == limit:
                    break

    mutant = ("truncates one step late", edited(_Late))
    claim = "No episode is longer than the max_episode_steps of the spec."
    return _law(
        "time_limit",
        claim,
        mutant,
        check,
        ENDING,
        inputs=st.builds(Play, seed=seeds(), actions=st.just(())),
        prepare=prepare,
        most=3,
    )


def _writable(plays: SearchStrategy[Play]) -> Law:
    def check(make: Make, play: Play, seen: Seen) -> None:
        with making(make, make) as (one, two):
            _deterministic(one)
            wanted, over = play_rows(one, play), False
            returned = two.reset(seed=play.seed)[0]
            found = [StepResult(copy.deepcopy(returned))]
            for number in play.actions:
                _overwrite(returned, seen)
                if over:
                    returned = two.reset()[0]
                    found.append(StepResult(copy.deepcopy(returned)))
                    _overwrite(returned, seen)
                returned, reward, terminated, truncated, _ = two.step(gym_action(two.action_space, number))
                found.append(StepResult(copy.deepcopy(returned), reward, terminated, truncated))
                over = terminated or truncated
        agree("after a write into each returned observation", found, wanted)

    mutant = ("returns the array of its state", edited(_ShowsState))
    claim = "A caller's write into a returned observation changes nothing in the environment."
    return _law("observations_owned", claim, mutant, check, "a write", inputs=plays)


def _overwrite(observation: Any, seen: Seen) -> None:
    for array in arrays(observation):
        if array.flags.writeable:
            array[...] = np.zeros_like(array)
            seen("a write")
