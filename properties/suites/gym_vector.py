"""Laws of Gymnasium vector environments. Subject: a function (number of rows) -> VectorEnv.

from purestep.properties import vector_env_laws, verify
print(verify(vector_env_laws("CartPole-v1"), lambda rows: gymnasium.make_vec("CartPole-v1", rows)))

Each row is compared with a single environment under the same seed and actions; the mode of resets is read from the vector
environment's `metadata["autoreset_mode"]`, where Gymnasium >= 1.1 declares it.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
from attrs import evolve, frozen
from hypothesis import strategies as st

from ..framework.compare import require
from ..framework.law import Broken, Law, NotHere, Seen, Suite, law_constructor
from ..strategies.values import seeds
from .gym import AnyGym, Around, Make, arrays, equal, gym_action, maker, making, statistic

AnyVector = Any
MakeVector = Callable[[int], AnyVector]
NEXT_STEP, SAME_STEP, DISABLED = "NEXT_STEP", "SAME_STEP", "DISABLED"


@frozen
class VectorPlay:
    """A seed, the number of rows, and for each step the numbers of the rows' actions (repeated where there are too few)."""

    seed: int
    rows: int
    actions: tuple[tuple[int, ...], ...]

    def of(self, space: Any, step: int) -> list[Any]:
        """Return the actions of a step, for spaces of single actions."""
        numbers = self.actions[step]
        return [gym_action(space, numbers[row % len(numbers)]) for row in range(self.rows)]


@frozen
class RowResult:
    """One row's part of a result; in the mode SAME_STEP an ending has `final`, the pair (observation, info)."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    final: tuple[Any, ...] = ()

    @property
    def over(self) -> bool:
        """Return whether the episode ended with this result."""
        return self.terminated or self.truncated


def vectored(single: Any, mode: str = SAME_STEP) -> MakeVector:
    """Return a function that makes Gymnasium's SyncVectorEnv of single environments, in that autoreset mode."""

    def make(rows: int) -> AnyVector:
        from gymnasium.vector import AutoresetMode, SyncVectorEnv

        return SyncVectorEnv([maker(single)] * rows, autoreset_mode=AutoresetMode[mode])

    return make


def mode_of(vector: AnyVector) -> str:
    """Return the name of the autoreset mode that a vector environment declares. Raises: NotHere."""
    mode = getattr(vector.metadata.get("autoreset_mode"), "name", None)
    if mode not in (NEXT_STEP, SAME_STEP, DISABLED):
        raise NotHere("its metadata has no autoreset_mode of Gymnasium >= 1.1")
    return str(mode)


def batch_row(batch: Any, row: int) -> Any:
    """Return a row of batched values; a batch of values that have no arrays is a tuple."""
    if isinstance(batch, dict):
        return {name: batch_row(part, row) for name, part in batch.items()}
    if isinstance(batch, tuple) and batch and any(isinstance(part, (np.ndarray, dict)) for part in batch):
        return tuple(batch_row(part, row) for part in batch)
    return batch[row]


def info_of(infos: dict[str, Any], row: int) -> dict[str, Any]:
    """Return the info of one row: the entries whose mask, under the name with _ before it, is true there.

    >>> info_of({"a": np.array([1, 2]), "_a": np.array([True, False])}, 0)["a"].item()
    1
    """
    found = {}
    for name, values in infos.items():
        if f"_{name}" in infos and infos[f"_{name}"][row]:
            found[name] = info_of(values, row) if isinstance(values, dict) else values[row]
    return found


# --- replays ---


def _batch(vector: AnyVector, actions: Sequence[Any]) -> Any:
    from gymnasium.vector.utils import concatenate, create_empty_array

    space, empty = vector.single_action_space, create_empty_array(vector.single_action_space, len(actions))
    return concatenate(space, actions, cast(Any, empty))


def results(vector: AnyVector, play: VectorPlay, seed: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the results of a play, (observations, rewards, terminated, truncated, infos), first that of a reset.

    In the mode DISABLED, ended rows are reset by a mask before the next step.
    """
    mode, none = mode_of(vector), np.zeros(play.rows)
    seen, infos = vector.reset(seed=seed)
    result = seen, none, none, none, infos
    yield result
    for step in range(len(play.actions)):
        over = np.logical_or(result[2], result[3])
        if mode == DISABLED and over.any():
            seen, infos = vector.reset(options={"reset_mask": over})
            yield seen, none, none, none, infos
        result = vector.step(_batch(vector, play.of(vector.single_action_space, step)))
        yield result


def play_rows_of(vector: AnyVector, play: VectorPlay, seed: Any) -> list[list[RowResult]]:
    """Return the results of a play for each row."""
    same, found = mode_of(vector) == SAME_STEP, []
    for seen, reward, terminated, truncated, infos in results(vector, play, seed):
        found.append(list[RowResult]())
        for row in range(play.rows):
            info = info_of(infos, row)
            last = (info.pop("final_obs", None), info.pop("final_info", {}))
            final = last if same and (last[0] is not None or last[1]) else ()
            flags = bool(terminated[row]), bool(truncated[row])
            told = RowResult(batch_row(seen, row), float(reward[row]), *flags, info, final)
            found[-1].append(copy.deepcopy(told))
    return found


def expected_results(
    env: AnyGym, mode: str, play: VectorPlay, row: int, seed: int, masked: Sequence[bool]
) -> list[RowResult]:
    """Return the results that single environment number `row` must give; `masked` marks resets by a mask."""
    observation, info = env.reset(seed=seed)
    found, step = [RowResult(copy.deepcopy(observation), 0.0, False, False, info)], 0
    for by_mask in masked:
        over = found[-1].over
        if by_mask or (mode == NEXT_STEP and over):
            observation, info = env.reset() if over else (found[-1].observation, {})
            found.append(copy.deepcopy(RowResult(observation, 0.0, False, False, info)))
            step += not by_mask
            continue
        observation, reward, terminated, truncated, info = env.step(play.of(env.action_space, step)[row])
        step += 1
        final: tuple[Any, ...] = ()
        if mode == SAME_STEP and (terminated or truncated):
            final = copy.deepcopy((observation, info))
            observation, info = env.reset()
        found.append(
            copy.deepcopy(RowResult(observation, float(reward), bool(terminated), bool(truncated), info, final))
        )
    return found


def _both(
    make: MakeVector, single: Make, play: VectorPlay, seed: int | list[int]
) -> Iterator[tuple[str, RowResult, RowResult, bool]]:
    """Yield for each row and result its name, the vector environment's and the single one's, and if another row ends there."""
    with making(lambda: make(play.rows)) as vector:
        mode, ours = mode_of(vector), play_rows_of(vector, play, seed)
    masked = [mode == DISABLED and any(told.over for told in result) for result in ours[:-1]]
    of_row = seed if isinstance(seed, list) else [seed + row for row in range(play.rows)]
    for row in range(play.rows):
        with making(single) as env:
            theirs = expected_results(env, mode, play, row, of_row[row], masked)
        for number, (result, right) in enumerate(zip(ours, theirs, strict=True)):
            yield f"row {row}, result {number}", result[row], right, any(told.over for told in result)


# --- mutants ---
# Common errors in vector environments, as edits of the function that makes one.


def edit_vector(change: Callable[[AnyVector], AnyVector]) -> Callable[[MakeVector], MakeVector]:
    """Return the edit of a subject that makes `change(vector)` instead of `vector`."""
    return lambda make: lambda rows: change(make(rows))


class _OneSeed(Around):
    def reset(self, **arguments: Any) -> Any:
        if isinstance(arguments.get("seed"), list):
            arguments["seed"] = arguments["seed"][0]
        return self.env.reset(**arguments)


class _LosesFinal(Around):
    def step(self, action: Any) -> Any:
        seen, reward, terminated, truncated, infos = self.env.step(action)
        if "final_obs" in infos:
            infos = {**infos, "final_obs": list(seen)}
        return seen, reward, terminated, truncated, infos


class _AllMarked(Around):
    def step(self, action: Any) -> Any:
        *told, infos = self.env.step(action)
        return (*told, self._marked(infos))

    def _marked(self, infos: dict[str, Any]) -> dict[str, Any]:
        found = {name: self._marked(part) if isinstance(part, dict) else part for name, part in infos.items()}
        return {name: np.ones_like(part) if name[0] == "_" else part for name, part in found.items()}


class _RewardOfAll(Around):
    def step(self, action: Any) -> Any:
        seen, reward, terminated, truncated, infos = self.env.step(action)
        over = np.logical_or(terminated, truncated)
        return seen, np.where(over, 0.0, reward), terminated, truncated, infos


class _LastAction(Around):
    def step(self, action: Any) -> Any:
        action = np.array(action)
        action[0] = action[-1]
        return self.env.step(action)


class _OneVectorBuffer(Around):
    buffer: Any = None

    def step(self, action: Any) -> Any:
        seen, *rest = self.env.step(action)
        if self.buffer is None:
            self.buffer = np.empty_like(seen)
        self.buffer[...] = seen
        return (self.buffer, *rest)


class _Doubles(Around):
    def step(self, action: Any) -> Any:
        seen, *rest = self.env.step(action)
        return (seen.astype(np.float64), *rest)


class _RemembersEnds(Around):
    over: Any = None

    def reset(self, **arguments: Any) -> Any:
        self.first, infos = self.env.reset(**arguments)
        return self.first, infos

    def step(self, action: Any) -> Any:
        seen, reward, terminated, truncated, infos = self.env.step(action)
        stale, self.over = self.over, np.logical_or(terminated, truncated)
        if stale is not None and stale.any() and not self.over.any() and self.first is not None:
            seen, reward = np.where(stale[:, None], self.first, seen), np.where(stale, 0.0, reward)
        self.first = None
        return seen, reward, terminated, truncated, infos


class _CountsReset(Around):
    def step(self, action: Any) -> Any:
        *told, infos = self.env.step(action)
        found = infos.get("episode")
        more = {} if found is None else {"episode": {**found, "l": np.asarray(found["l"]) + 1}}
        return (*told, {**infos, **more})


# --- laws ---


SOURCE = "Gymnasium's API: VectorEnv.reset, VectorEnv.step, AutoresetMode"
ENDING, INSIDE = "an ending", "a step inside an episode"
ACTIONS = st.lists(st.lists(st.integers(0, 255), min_size=1, max_size=3).map(tuple), min_size=1, max_size=3)


def vector_env_laws(
    single: Any, *, steps: int = 24, copies: bool = True, statistics: Mapping[str, float | str] | None = None
) -> Suite:
    """The laws of a vector environment whose rows are such as `single` makes: an id, or a function without arguments.

    `steps` is the length of the longest play: it should reach an ending. `copies=False` declares that the next step may write
    into the observations that a step returned. `statistics` are the entries of infos["episode"] at an ending, such as
    {"r": 1.0, "l": "length"}: the discount of a sum of rewards, or "length".

    >>> from purestep.properties import verify
    >>> from purestep.properties.suites.gym import registered
    >>> single = registered("CartPole-v1", 8)
    >>> bool(verify(vector_env_laws(single, steps=10), vectored(single, "NEXT_STEP")))
    True
    """
    parts = st.tuples(ACTIONS, st.integers(1, steps)).map(lambda pair: tuple((pair[0] * pair[1])[: pair[1]]))
    plays = st.builds(VectorPlay, seed=seeds(), rows=st.sampled_from((2, 1, 3)), actions=parts)
    law = law_constructor(lambda: plays, SOURCE, prepare=_described)
    one = maker(single)
    laws = (_singles(law, one), _seeds(law, one), _final(law, one), _infos(law, one), _apart(law), _spaces(law))
    more = [*([_stays(law)] if copies else []), *([_statistics(law, statistics)] if statistics else [])]
    return Suite("vector_env_laws", (*laws, _restarts(law), *more))


Construct = Callable[..., Law]


def _described(make: MakeVector) -> MakeVector:
    with making(lambda: make(1)) as vector:
        mode_of(vector)
    return make


def _singles(law: Construct, one: Make) -> Law:
    def check(make: MakeVector, play: VectorPlay, seen: Seen) -> None:
        for where, told, right, _ in _both(make, one, play, play.seed):
            seen(ENDING, right.over)
            seen(INSIDE, not right.over)
            _same_step(where, told, right)

    claim = "Row i is the single environment under seed + i, reset as the declared mode says."
    mutant = ("pays nothing for the step that ends an episode", edit_vector(_RewardOfAll))
    return law("rows_are_singles", claim, mutant, check, ENDING, INSIDE)


def _same_step(where: str, told: RowResult, right: RowResult) -> None:
    _near(f"{where}, observation", told.observation, right.observation)
    _near(f"{where}, reward", told.reward, right.reward)
    equal(f"{where}, flags", (told.terminated, told.truncated), (right.terminated, right.truncated))


def _near(where: str, got: Any, wanted: Any) -> None:
    """Raise Broken unless both are equal but for dtype and rounding."""
    if isinstance(wanted, dict):
        for name in wanted:
            _near(f"{where}[{name!r}]", got[name], wanted[name])
        return
    if isinstance(wanted, tuple):
        for place, part in enumerate(wanted):
            _near(f"{where}[{place}]", got[place], part)
        return
    a, b = np.asarray(got), np.asarray(wanted)
    same = a.shape == b.shape and (
        np.allclose(a, b, 1e-6, 1e-6, equal_nan=True) if b.dtype.kind in "fiub" else bool(np.all(a == b))
    )
    if not same:
        raise Broken(f"{where}: got {got!r}, wanted {wanted!r}")


def _seeds(law: Construct, one: Make) -> Law:
    def check(make: MakeVector, play: VectorPlay, seen: Seen) -> None:
        several = [play.seed + 7 * (play.rows - row) for row in range(play.rows)]
        seen("a second row", play.rows > 1)
        for where, told, right, _ in _both(make, one, play, several):
            _same_step(f"after a reset with the seeds {several}, {where}", told, right)

    mutant = ("takes the first of several seeds for all rows", edit_vector(_OneSeed))
    return law("seeds", "A list of seeds has one for each row.", mutant, check, "a second row")


def _final(law: Construct, one: Make) -> Law:
    def prepare(make: MakeVector) -> MakeVector:
        with making(lambda: make(1)) as vector:
            if mode_of(vector) != SAME_STEP:
                raise NotHere("its autoreset mode is not SAME_STEP")
        return make

    def check(make: MakeVector, play: VectorPlay, seen: Seen) -> None:
        for where, told, right, other in _both(make, one, play, play.seed):
            seen(ENDING, right.over)
            seen("a row that goes on where another ends", other and not right.over)
            require(bool(told.final) == right.over, f"{where}: there is a final_obs exactly at an ending")
            if right.over:
                _near(f"{where}, final_obs", told.final[0], right.final[0])
                _same_info(f"{where}, final_info", told.final[1], right.final[1])

    mutant = ("gives the next episode's first observation as the final one", edit_vector(_LosesFinal))
    claim = "In the mode SAME_STEP the last observation and info of an episode are in final_obs and final_info."
    return law("final_observation", claim, mutant, check, ENDING, prepare=prepare)


PLAIN = (bool, int, float, str, np.generic, np.ndarray)


def _same_info(where: str, got: dict[str, Any], wanted: dict[str, Any]) -> None:
    plain = {name: value for name, value in wanted.items() if isinstance(value, PLAIN)}
    missing = sorted(plain.keys() - got.keys())
    require(not missing, f"{where} lacks {missing}")
    extra = sorted(got.keys() - wanted.keys())
    require(not extra, f"{where} has {extra}, which the row's environment did not return")
    for name, value in plain.items():
        _near(f"{where}[{name!r}]", got[name], value)


def _infos(law: Construct, one: Make) -> Law:
    def prepare(make: MakeVector) -> MakeVector:
        with making(one) as env:
            told = [env.reset(seed=0)[1]]
            for _ in range(1000):
                *_, terminated, truncated, info = env.step(gym_action(env.action_space, 0))
                told.append(info)
                if terminated or truncated or info:
                    break
        if not any(told):
            raise NotHere("its infos are empty")
        return _described(make)

    def check(make: MakeVector, play: VectorPlay, seen: Seen) -> None:
        for where, told, right, _ in _both(make, one, play, play.seed):
            seen("an entry of an info", right.info or right.final)
            _same_info(f"{where}, info", told.info, right.info)
            _same_info(f"{where}, final_info", *(part.final[1] if part.final else {} for part in (told, right)))

    mutant = ("marks every row as having each entry of the info", edit_vector(_AllMarked))
    claim = "The entries of infos that are marked for a row are those of its environment."
    return law("infos", claim, mutant, check, "an entry of an info", prepare=prepare)


def _restarts(law: Construct) -> Law:
    def check(make: MakeVector, play: VectorPlay, seen: Seen) -> None:
        with making(lambda: make(play.rows), lambda: make(play.rows)) as (used, fresh):
            for _, _, terminated, truncated, _ in results(used, play, play.seed):
                if np.logical_or(terminated, truncated).any():
                    seen("a reset right after an ending")
                    break
            both = [play_rows_of(one, evolve(play, actions=play.actions[:3]), play.seed + 1) for one in (used, fresh)]
        for number, (told, right) in enumerate(zip(*both, strict=True)):
            for row, one in enumerate(told):
                _same_step(f"row {row}, result {number} after a reset of all, against a new one", one, right[row])

    mutant = ("remembers across a reset which rows had ended", edit_vector(_RemembersEnds))
    claim = "A reset of all rows with a seed begins as a new environment does, also right after an ending."
    return law("reset_begins_anew", claim, mutant, check, "a reset right after an ending")


def _statistics(law: Construct, statistics: Mapping[str, float | str]) -> Law:
    def check(make: MakeVector, play: VectorPlay, seen: Seen) -> None:
        rewards: list[list[float]] = [[] for _ in range(play.rows)]
        over, episodes = np.ones(play.rows, bool), [0] * play.rows
        with making(lambda: make(play.rows)) as vector:
            mode = mode_of(vector)
            for number, (_, reward, terminated, truncated, infos) in enumerate(results(vector, play, play.seed)):
                by_mask = mode == DISABLED and over.any()
                for row in range(play.rows):
                    if number and not by_mask and not (mode == NEXT_STEP and over[row]):
                        rewards[row].append(float(reward[row]))
                over = np.logical_or(terminated, truncated)
                for row in np.flatnonzero(over).tolist():
                    episodes[row] += 1
                    seen("an ending")
                    seen("a second episode of a row", episodes[row] > 1)
                    found = infos.get("episode", infos.get("final_info", {}).get("episode"))
                    require(found is not None, f"result {number}, at the ending of row {row}, has infos['episode']")
                    for name, of in statistics.items():
                        where = f"infos['episode'][{name!r}] of row {row}, result {number}"
                        _near(where, float(np.asarray(found[name])[row]), statistic(rewards[row], of))
                    rewards[row] = []

    mutant = ("counts a reset as a step", edit_vector(_CountsReset))
    claim = "At an ending infos['episode'] has the figures of that episode's own rewards; a reset is no step of it."
    return law("episode_statistics", claim, mutant, check, "an ending", "a second episode of a row")


def _apart(law: Construct) -> Law:
    def check(make: MakeVector, play: VectorPlay, seen: Seen) -> None:
        other = evolve(play, actions=tuple((part[0], *(number + 1 for number in part)) for part in play.actions))
        with making(lambda: make(play.rows), lambda: make(play.rows)) as (one, two):
            both = play_rows_of(one, play, play.seed), play_rows_of(two, other, play.seed)
        seen("a second row with other actions", play.rows > 1)
        for number, (told, beside) in enumerate(zip(*both, strict=False)):
            if any(part.over for part in (*told, *beside)):
                break  # from here on, rows that share a random generator differ
            for name in ("observation", "reward"):
                _near(f"result {number}, {name} of row 0", getattr(beside[0], name), getattr(told[0], name))

    mutant = ("gives row 0 the last row's action", edit_vector(_LastAction))
    claim = "The actions of other rows do not change a row."
    return law("rows_apart", claim, mutant, check, "a second row with other actions")


def _spaces(law: Construct) -> Law:
    def check(make: MakeVector, play: VectorPlay, seen: Seen) -> None:
        with making(lambda: make(play.rows)) as vector:
            require(vector.num_envs == play.rows, f"num_envs is {vector.num_envs} for {play.rows} rows")
            action = _batch(vector, play.of(vector.single_action_space, 0))
            require(vector.action_space.contains(action), f"the batch of actions {action!r} is in action_space")
            for number, (batch, *columns, _) in enumerate(results(vector, play, play.seed)):
                seen("a step", number > 0)
                require(vector.observation_space.contains(batch), f"the observations {batch!r} are in their space")
                shapes = [np.shape(column) for column in columns]
                require(shapes == [(play.rows,)] * 3, f"rewards and flags have the shape [rows], got {shapes}")

    mutant = ("returns float64 where the space is float32", edit_vector(_Doubles))
    return law("spaces", "Batches of actions and observations are in the declared spaces.", mutant, check, "a step")


def _stays(law: Construct) -> Law:
    def check(make: MakeVector, play: VectorPlay, seen: Seen) -> None:
        kept, copies = [], []
        with making(lambda: make(play.rows)) as vector:
            for batch, *_ in results(vector, play, play.seed):
                kept.append(batch)
                copies.append(copy.deepcopy(batch))
        seen("two steps with arrays", len(kept) > 2 and arrays(kept[0]))
        for number, (now, then) in enumerate(zip(kept, copies, strict=True)):
            equal(f"observations {number}, after later steps", now, then)

    mutant = ("returns one buffer at each step", edit_vector(_OneVectorBuffer))
    claim = "Observations that were returned are not overwritten later."
    return law("observations_stay", claim, mutant, check, "two steps with arrays")
