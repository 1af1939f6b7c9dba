"""Laws of replay buffers: sequences of additions and draws against a list of what was added.

The subject is `make(capacity)`, which returns an object with `add(step)`, `sample(count)` (or `sample(count, seed)`) and
`__len__`. A step is a dict of tensors [], a sample a dict (or an object with attributes) of arrays [count], with these names:
observation, action, reward, next_observation, terminated, truncated; observations and actions are float32 numbers. A buffer
that keeps fewer columns returns fewer. Prioritised buffers also return `index` and `weight`, and have
`update_priorities(index, priority)`; buffers of hindsight a `goal`, the observation of a step as a number.

    test_mine = check(replay_laws(), lambda capacity: MyBuffer(capacity))

>>> from purestep.properties import replay_laws, verify
>>> import random
>>> class Newest(list):
...     def __init__(self, capacity):
...         self.capacity = capacity
...     def add(self, step):
...         self.append(step) if len(self) < self.capacity else self.__setitem__(-1, step)  # overwrites the newest
...     def sample(self, count):
...         rows = random.choices(self, k=count)
...         return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
>>> verify(replay_laws(), Newest).failures[0].law.name
'overwrites_oldest'
"""

import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from ...core import keys
from ...core.errors import ChoiceError, choose, message
from ...core.record import record, tensor
from ...runtime.effects.replay_buffer import replay_buffer
from ..framework.compare import require
from ..framework.law import Law, NotHere, Seen, Suite, law_constructor
from ..strategies.values import seeds

Make = Callable[[int], Any]
Step = dict[str, Tensor]
COLUMNS = ("observation", "action", "reward", "next_observation", "terminated", "truncated")

# --- own buffer ---


@record
class StoredStep:
    """A step in `runtime.effects.replay_buffer`."""

    observation: Tensor = tensor("*", "float")
    action: Tensor = tensor("*", "float")
    reward: Tensor = tensor("*", "float")
    next_observation: Tensor = tensor("*", "float")
    terminated: Tensor = tensor("*", "bool")
    truncated: Tensor = tensor("*", "bool")


class OwnBuffer:
    """`runtime.effects.replay_buffer` as these laws call it."""

    def __init__(self, capacity: int) -> None:
        number, flag = torch.zeros(()), torch.zeros((), dtype=torch.bool)
        like = StoredStep(
            observation=number,
            action=number,
            reward=number,
            next_observation=number,
            terminated=flag,
            truncated=flag,
        )
        self.inner = replay_buffer(like, capacity)

    def add(self, step: Step) -> None:
        self.inner.add(
            StoredStep(**{name: value[None] for name, value in step.items()}), torch.zeros(1, dtype=torch.int64)
        )

    def sample(self, count: int, seed: int) -> StoredStep:
        drawn: StoredStep = self.inner.draw(keys.key(seed), count, 0)[0]
        return drawn

    def __len__(self) -> int:
        return self.inner.size(0)


class Prioritised:
    """A small correct prioritised buffer: P(i) = p_i^alpha / sum, weight_i = (N P(i))^-beta / max."""

    def __init__(self, capacity: int, alpha: float = 0.5, beta: float = 1.0) -> None:
        self.capacity, self.alpha, self.beta = capacity, alpha, beta
        self.rows: list[Step] = []
        self.priority = torch.zeros(capacity, dtype=torch.float64)
        self.next = 0

    def add(self, step: Step) -> None:
        most = float(self.priority.max()) if self.rows else 1.0
        if len(self.rows) < self.capacity:
            self.rows.append(step)
        else:
            self.rows[self.next] = step
        self.priority[self.next] = most
        self.next = (self.next + 1) % self.capacity

    def sample(self, count: int, seed: int) -> dict[str, Tensor]:
        share = self.priority[: len(self.rows)] ** self.alpha
        share = share / share.sum()
        index = torch.multinomial(share, count, replacement=True, generator=torch.Generator().manual_seed(seed))
        weight = (len(self.rows) * share) ** -self.beta
        drawn = {name: torch.stack([self.rows[int(i)][name] for i in index]) for name in COLUMNS}
        return {**drawn, "index": index, "weight": (weight / weight.max())[index].float()}

    def update_priorities(self, index: Tensor, priority: Tensor) -> None:
        self.priority[index] = priority.double()

    def __len__(self) -> int:
        return len(self.rows)


class NStep:
    """A small correct buffer of n-step transitions, complete ones only."""

    def __init__(self, capacity: int, n: int = 3, gamma: float = 0.5) -> None:
        self.inner, self.n, self.gamma = Prioritised(capacity, alpha=0.0), n, gamma
        self.open: list[Step] = []

    def add(self, step: Step) -> None:
        self.open.append(step)
        over = bool(step["terminated"] | step["truncated"])
        while self.open and (over or len(self.open) == self.n):
            reward = sum((self.gamma**k * one["reward"] for k, one in enumerate(self.open)), torch.zeros(()))
            last = {name: step[name] for name in ("next_observation", "terminated", "truncated")}
            self.inner.add({**self.open.pop(0), "reward": reward, **last})

    def sample(self, count: int, seed: int) -> dict[str, Tensor]:
        return self.inner.sample(count, seed)

    def __len__(self) -> int:
        return len(self.inner)


class Hindsight(Prioritised):
    """A small correct buffer whose rows have the observation of a later step of their episode as a goal."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, alpha=0.0)

    def sample(self, count: int, seed: int) -> dict[str, Tensor]:
        drawn, numbers, goals = super().sample(count, seed), random.Random(seed), list[Tensor]()
        for place in drawn["index"].tolist():
            later = [place]
            while not self._ends(later[-1]) and (later[-1] + 1) % len(self.rows) != self.next % len(self.rows):
                later.append((later[-1] + 1) % len(self.rows))
            goals.append(self.rows[numbers.choice(later)]["observation"])
        return {**drawn, "goal": torch.stack(goals)}

    def _ends(self, place: int) -> bool:
        return bool(self.rows[place]["terminated"] | self.rows[place]["truncated"])


# --- mutants ---
# Common mistakes in buffers: each wraps a correct factory.


class EditedBuffer:
    """A buffer with an edit of what goes in or comes out."""

    def __init__(self, inner: Any, capacity: int) -> None:
        self.inner, self.capacity, self.added = inner, capacity, list[Step]()

    def add(self, step: Step) -> None:
        self.added.append(step)
        self.inner.add(step)

    def sample(self, count: int, seed: int) -> Any:
        return _sample(self.inner, count, seed)

    def update_priorities(self, index: Any, priority: Any) -> None:
        self.inner.update_priorities(index, priority)

    def __len__(self) -> int:
        return len(self.inner)


def _around(kind: type[EditedBuffer]) -> Callable[[Make], Make]:
    return lambda make: lambda capacity: kind(make(capacity), capacity)


class ShiftsRewards(EditedBuffer):
    """Store the reward of the step before."""

    def add(self, step: Step) -> None:
        before = self.added[-1]["reward"] if self.added else step["reward"]
        self.added.append(step)
        self.inner.add({**step, "reward": before})


class Stops(EditedBuffer):
    """Ignore what is added to a full buffer."""

    def add(self, step: Step) -> None:
        if len(self.inner) < self.capacity:
            self.inner.add(step)


class CountsAll(EditedBuffer):
    """Count all that was added."""

    def __len__(self) -> int:
        return len(self.added) if len(self.inner) else 0


class NextRow(EditedBuffer):
    """Read the next observation from the next row, which at the write head is another's."""

    def sample(self, count: int, seed: int) -> Any:
        drawn = dict(sample_columns(super().sample(count, seed)))
        rows = self.added[-self.capacity :]
        places = {float(row["observation"]): i for i, row in enumerate(rows)}
        after = [rows[(places[float(x)] + 1) % len(rows)]["observation"] for x in drawn["observation"]]
        drawn["next_observation"] = torch.stack(after)
        return drawn


class MergesEnds(EditedBuffer):
    """Store a truncation as a termination."""

    def add(self, step: Step) -> None:
        super().add({**step, "terminated": step["terminated"] | step["truncated"]})


class FavoursNew(EditedBuffer):
    """Draw the newest half twice as often."""

    def sample(self, count: int, seed: int) -> Any:
        first, second = (sample_columns(super(FavoursNew, self).sample(count, s)) for s in (seed, seed + 1))
        newer = first["observation"] >= second["observation"]
        return {name: torch.where(newer, first[name], second[name]) for name in first}


class OneDraw(EditedBuffer):
    """Give one row for the whole sample."""

    def sample(self, count: int, seed: int) -> Any:
        return {name: value[:1].expand(count) for name, value in sample_columns(super().sample(count, seed)).items()}


class Views(EditedBuffer):
    """Return tensors that share memory with the buffer."""

    def sample(self, count: int, seed: int) -> Any:
        drawn = sample_columns(super().sample(count, seed))
        kept = {float(step["observation"]): step for step in self.added}
        if count > 1:
            return drawn
        return {name: kept[float(drawn["observation"][0])][name][None] for name in drawn}

    def add(self, step: Step) -> None:
        super().add(dict(step))


class IgnoresPriorities(EditedBuffer):
    """Keep all priorities equal."""

    def update_priorities(self, index: Any, priority: Any) -> None:
        return None


class Unweighted(EditedBuffer):
    """Give all samples the weight 1."""

    def sample(self, count: int, seed: int) -> Any:
        drawn = dict(sample_columns(super().sample(count, seed)))
        return {**drawn, "weight": torch.ones(count)}


class WholePriorities(EditedBuffer):
    """Keep priorities as whole numbers."""

    def update_priorities(self, index: Any, priority: Any) -> None:
        self.inner.update_priorities(index, priority.floor().clamp(min=1.0))


class AnyGoal(EditedBuffer):
    """Take the goals of a batch for one another's."""

    def sample(self, count: int, seed: int) -> Any:
        drawn = dict(sample_columns(super().sample(count, seed)))
        return {**drawn, "goal": drawn["goal"].roll(1)}


class ForgetsLastReward(EditedBuffer):
    """Leave the discount out of the rewards of n steps."""

    def sample(self, count: int, seed: int) -> Any:
        drawn = dict(sample_columns(super().sample(count, seed)))
        return {**drawn, "reward": 2 * drawn["reward"]}


class OverEnds(EditedBuffer):
    """Sum n rewards over ends of episodes."""

    def add(self, step: Step) -> None:
        no = torch.zeros((), dtype=torch.bool)
        super().add({**step, "terminated": no, "truncated": no})


# --- laws ---

DRAWS = 20
SOURCE = "Mnih et al. 2015; Schaul et al. 2015, arXiv:1511.05952, for priorities"
ENDINGS = ("none", "none", "none", "terminated", "truncated")


@frozen
class Additions:
    """A capacity, the ending of each step that is added, and a seed of draws. The observation of step i is i + 1."""

    capacity: int
    endings: list[str]
    seed: int

    def steps(self) -> list[Step]:
        """Return the steps. A next observation is the next step's observation, and i + 1.5 at the end of an episode."""
        found = []
        for i, ending in enumerate(self.endings):
            beyond = i + 2.0 if ending == "none" else i + 1.5
            found.append(
                {
                    "observation": torch.tensor(i + 1.0),
                    "action": torch.tensor((i * 7 % 5) / 4 - 0.5),
                    "reward": torch.tensor((i * 3 % 7) / 4 + 0.25),
                    "next_observation": torch.tensor(beyond),
                    "terminated": torch.tensor(ending == "terminated"),
                    "truncated": torch.tensor(ending == "truncated"),
                }
            )
        return found


@st.composite
def additions(draw: DrawFn) -> Additions:
    """Up to twice the capacity of steps."""
    capacity = draw(st.sampled_from((5, 4, 8)))
    count = draw(st.sampled_from((2 * capacity - 1, capacity + 1, 2, capacity, 3, 1)))
    endings: list[str] = draw(st.lists(st.sampled_from(ENDINGS), min_size=count, max_size=count))
    return Additions(capacity, endings, draw(seeds()))


def sample_columns(sample: Any) -> Mapping[str, Tensor]:
    """Return a sample as tensors by name, flat: [count] each."""
    names = (*COLUMNS, "index", "weight", "goal")
    if isinstance(sample, Mapping):
        found = {name: sample[name] for name in names if name in sample}
    else:
        found = {name: getattr(sample, name) for name in names if getattr(sample, name, None) is not None}
    return {name: _flat(torch.as_tensor(value)) for name, value in found.items()}


def _flat(value: Tensor) -> Tensor:
    return value if value.ndim == 1 else value.reshape(len(value), -1)[:, 0]


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the global generators of torch, numpy and random, and restore them afterwards."""
    import numpy

    before, numbers = random.getstate(), numpy.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        numpy.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(before)
            numpy.random.set_state(numbers)


def _takes_seed(buffer: Any) -> bool:
    return "seed" in inspect.signature(buffer.sample).parameters


def _sample(buffer: Any, count: int, seed: int) -> Any:
    return buffer.sample(count, seed) if _takes_seed(buffer) else buffer.sample(count)


@frozen
class ReplayClaims:
    """Arguments of `replay_laws`."""

    n: int
    gamma: float
    replacement: bool
    alpha: float
    beta: float

    def filled(self, make: Make, drawn: Additions) -> tuple[Any, list[Step]]:
        """Return a buffer with all steps added, and the steps that it holds."""
        buffer, steps = make(drawn.capacity), drawn.steps()
        for step in steps:
            buffer.add({name: value.clone() for name, value in step.items()})
        return buffer, steps[-drawn.capacity :]

    def draws(self, buffer: Any, drawn: Additions, held: int, *, times: int = DRAWS) -> Mapping[str, Tensor]:
        """Return many samples of half the rows as one."""
        seeded, count = _takes_seed(buffer), max(1, held // 2)
        with _seeded(drawn.seed):
            found = [
                sample_columns(buffer.sample(count, drawn.seed + i) if seeded else buffer.sample(count))
                for i in range(times)
            ]
        return {name: torch.cat([one[name] for one in found]) for name in found[0]}


def replay_laws(
    *,
    n: int = 1,
    gamma: float = 0.5,
    replacement: bool = True,
    alpha: float = 0.0,
    beta: float = 0.0,
    copies: bool = True,
    sized: bool = True,
    new: str = "any",
    goals: str = "none",
) -> Suite:
    """Return the laws of a replay buffer.

    `n` > 1: rows are n-step transitions with rewards discounted by `gamma`, shorter at the end of an episode or of the data;
    these buffers have the laws of n steps alone. `replacement=False`: no row is twice in a sample. `alpha` > 0: rows are
    drawn in proportion to priority^alpha, with weights (N P)^-`beta` over the largest of the buffer or the sample. `copies`: a
    sample shares no memory with the buffer. `sized`: it has a length. `new`: the priority of a new row is the "largest" so
    far, or "any". `goals`: a row's `goal` is the observation of that step or of a "future" one of its episode.
    Raises: ChoiceError.
    """
    choose("replay_laws: new", new, {"any": (), "largest": ()})
    choose("replay_laws: goals", goals, {"none": (), "future": ()})
    if n < 1 or alpha < 0:
        wanted, remedy = "n of 1 or more, alpha of 0 or more", "change it"
        raise ChoiceError(message("replay_laws", got=(n, alpha), wanted=wanted, remedy=remedy))
    how = ReplayClaims(n, gamma, replacement, alpha, beta)
    if n > 1:
        return Suite("replay_laws", (_n_steps(how), _n_ends(how), _size(how)))
    laws = [_together(how), _oldest(how), _next(how), _endings(how), _uniform(how)]
    laws += [_size(how)] if sized else []
    laws += [_copies(how)] if copies else []
    laws += [] if replacement else [_distinct(how)]
    laws += [_priorities(how), _weights(how)] if alpha else []
    laws += [_new(how)] if new == "largest" else []
    laws += [_goals(how)] if goals == "future" else []
    return Suite("replay_laws", tuple(laws))


_law = law_constructor(additions, SOURCE, most=60)


def _by_observation(steps: list[Step]) -> dict[float, Step]:
    return {float(step["observation"]): step for step in steps}


def _together(how: ReplayClaims) -> Law:
    def check(make: Make, drawn: Additions, seen: Seen) -> None:
        buffer, held = how.filled(make, drawn)
        seen("a full buffer", len(drawn.endings) > drawn.capacity)
        sample, known = how.draws(buffer, drawn, len(held), times=10), _by_observation(drawn.steps())
        for i, observation in enumerate(sample["observation"].tolist()):
            require(observation in known, f"a sample has the observation {observation}, which was never added")
            for name in ("action", "reward"):
                if name in sample:
                    got, wanted = float(sample[name][i]), float(known[observation][name])
                    require(
                        got == wanted, f"{name} of the step with observation {observation}: got {got}, wanted {wanted}"
                    )

    claim = "The columns of a row are those of one step."
    mutant = ("stores the reward of the step before", _around(ShiftsRewards))
    return _law("rows_stay_together", claim, mutant, check, "a full buffer")


def _oldest(how: ReplayClaims) -> Law:
    def check(make: Make, drawn: Additions, seen: Seen) -> None:
        buffer, held = how.filled(make, drawn)
        seen("a full buffer", len(drawn.endings) > drawn.capacity)
        wanted = set(_by_observation(held))
        got = set(how.draws(buffer, drawn, len(held), times=40)["observation"].tolist())
        require(
            got <= wanted, f"draws hold {sorted(got - wanted)}, which should be overwritten; held are {sorted(wanted)}"
        )
        require(got == wanted, f"{sorted(wanted - got)} of {sorted(wanted)} never came in 40 samples")

    claim = "It holds the newest steps, up to its capacity, and draws every one of them."
    mutant = ("ignores what is added when it is full", _around(Stops))
    return _law("overwrites_oldest", claim, mutant, check, "a full buffer", most=20)


def _size(how: ReplayClaims) -> Law:
    def check(make: Make, drawn: Additions, seen: Seen) -> None:
        buffer = make(drawn.capacity)
        for i, step in enumerate(drawn.steps(), 1):
            buffer.add(step)
            seen("a full buffer", i > drawn.capacity)
            got, most = len(buffer), min(i, drawn.capacity)
            least = most if how.n == 1 else 0
            require(least <= got <= most, f"after {i} steps of {drawn.capacity} its length is {got}, wanted {most}")

    claim = "Its length is the number of steps added, at most its capacity."
    mutant = ("counts all that was added", _around(CountsAll))
    return _law("length", claim, mutant, check, "a full buffer")


def _has(make: Make, name: str) -> None:
    buffer = make(4)
    for step in Additions(4, ["none"], 0).steps():
        buffer.add(step)
    with _seeded(0):
        if name not in sample_columns(_sample(buffer, 1, 0)):
            raise NotHere(f"its samples have no {name}")


def _keeps(name: str) -> Callable[[Make], Make]:
    def prepare(make: Make) -> Make:
        _has(make, name)
        return make

    return prepare


def _next(how: ReplayClaims) -> Law:
    def check(make: Make, drawn: Additions, seen: Seen) -> None:
        buffer, held = how.filled(make, drawn)
        seen("an end of an episode", any(ending != "none" for ending in drawn.endings[-drawn.capacity :]))
        seen("a full buffer", len(drawn.endings) > drawn.capacity)
        sample, known = how.draws(buffer, drawn, len(held)), _by_observation(held)
        for observation, got in zip(sample["observation"].tolist(), sample["next_observation"].tolist(), strict=True):
            if observation not in known:
                continue
            wanted = float(known[observation]["next_observation"])
            require(got == wanted, f"next_observation of {observation}: got {got}, wanted {wanted}")

    claim = "The next observation is that of the step, also where an episode ends and at the write head."
    mutant = ("reads the next observation from the next row", _around(NextRow))
    needs = ("an end of an episode", "a full buffer")
    return _law("next_observation", claim, mutant, check, *needs, prepare=_keeps("next_observation"))


def _endings(how: ReplayClaims) -> Law:
    def check(make: Make, drawn: Additions, seen: Seen) -> None:
        buffer, held = how.filled(make, drawn)
        sample, known = how.draws(buffer, drawn, len(held)), _by_observation(drawn.steps())
        seen("a truncation", any(bool(step["truncated"]) for step in held))
        seen("a termination", any(bool(step["terminated"]) for step in held))
        for name in ("terminated", "truncated"):
            for observation, got in zip(
                sample["observation"].tolist(), sample.get(name, torch.zeros(0)).tolist(), strict=False
            ):
                wanted = bool(known.get(observation, {}).get(name, got))
                require(bool(got) == wanted, f"{name} of {observation}: got {bool(got)}, wanted {wanted}")

    claim = "A truncation is no termination."
    mutant = ("stores a truncation as a termination", _around(MergesEnds))
    needs = ("a truncation", "a termination")
    return _law("endings", claim, mutant, check, *needs, prepare=_keeps("terminated"))


def _shares(sample: Mapping[str, Tensor], held: list[Step]) -> Tensor:
    wanted = torch.tensor([float(step["observation"]) for step in held])
    return (sample["observation"][:, None] == wanted).double().mean(0)


def _uniform(how: ReplayClaims) -> Law:
    def check(make: Make, drawn: Additions, seen: Seen) -> None:
        buffer, held = how.filled(make, drawn)
        seen("a buffer that is not full", 1 < len(held) < drawn.capacity)
        seen("a full buffer", len(drawn.endings) > drawn.capacity)
        rows = how.draws(buffer, drawn, len(held), times=200 if len(held) > 1 else 1)
        got, wanted = _shares(rows, held), 1.0 / len(held)
        allowed = 5 * (wanted * (1 - wanted) / len(rows["observation"])) ** 0.5 + 1e-9
        i = int((got - wanted).abs().argmax())
        name = float(held[i]["observation"])
        found = f"{float(got[i]):.3f} of the rows drawn are step {name}, wanted {wanted:.3f} +- {allowed:.3f}"
        require(abs(float(got[i]) - wanted) <= allowed, found)

    claim = "New rows are drawn equally often, in a full buffer or not, and never an empty slot."
    mutant = ("draws new rows more often", _around(FavoursNew))
    return _law("uniform", claim, mutant, check, "a buffer that is not full", "a full buffer", most=8)


def _copies(how: ReplayClaims) -> Law:
    def check(make: Make, drawn: Additions, seen: Seen) -> None:
        buffer, steps = make(drawn.capacity), drawn.steps()
        for step in steps:
            buffer.add(step)
        held = steps[-drawn.capacity :]
        known = {float(step["observation"]): float(step["reward"]) for step in held}
        with _seeded(drawn.seed):
            for i in range(8):
                sample = _sample(buffer, 1, drawn.seed + i)
                reward = sample["reward"] if isinstance(sample, Mapping) else sample.reward
                reward[...] = -100.0  # of the sample
        rows = how.draws(buffer, drawn, len(held), times=40)
        for observation, got in zip(rows["observation"].tolist(), rows["reward"].tolist(), strict=True):
            wanted = known.get(observation, got)
            require(got == wanted, f"after a write into samples the reward of {observation} is {got}, wanted {wanted}")

    claim = "A write into a sample does not change the buffer."
    mutant = ("returns its own memory", _around(Views))
    return _law("samples_are_copies", claim, mutant, check, most=10)


def _distinct(how: ReplayClaims) -> Law:
    def check(make: Make, drawn: Additions, seen: Seen) -> None:
        buffer, held = how.filled(make, drawn)
        seen("several rows", len(held) > 1)
        with _seeded(drawn.seed):
            got = sample_columns(_sample(buffer, len(held), drawn.seed))["observation"].tolist()
        require(len(set(got)) == len(held), f"a sample of all {len(held)} rows has {got}")

    claim = "No row is twice in a sample."
    return _law("no_row_twice", claim, ("draws one row for all", _around(OneDraw)), check, "several rows")


# --- priorities ---


def _prioritised(how: ReplayClaims, make: Make, drawn: Additions) -> tuple[Any, list[Step], Tensor]:
    """Return a buffer with priorities 1, 4, 9, 1, ... of its rows, the rows, and the probability of each."""
    buffer, held = how.filled(make, drawn)
    given = {float(step["observation"]): float((i % 3 + 1) ** 2) for i, step in enumerate(held)}
    rows = how.draws(buffer, drawn, len(held), times=60)
    index = {float(o): int(i) for o, i in zip(rows["observation"], rows["index"], strict=True)}
    missing = sorted(set(given) - set(index))
    require(not missing, f"{missing} never came in {len(rows['observation'])} rows")
    order = sorted(given)
    buffer.update_priorities(torch.tensor([index[o] for o in order]), torch.tensor([given[o] for o in order]))
    share = torch.tensor([given[float(step["observation"])] for step in held]).double() ** how.alpha
    return buffer, held, share / share.sum()


def _priorities(how: ReplayClaims) -> Law:
    def check(make: Make, drawn: Additions, seen: Seen) -> None:
        buffer, held, wanted = _prioritised(how, make, drawn)
        seen("several priorities", len(held) > 2)
        rows = how.draws(buffer, drawn, len(held), times=400)
        got = _shares(rows, held)
        allowed = 5 * (wanted * (1 - wanted) / len(rows["observation"])).sqrt() + 0.01
        i = int(((got - wanted).abs() - allowed).argmax())
        found = f"{float(got[i]):.3f} of the rows are {float(held[i]['observation'])}, wanted {float(wanted[i]):.3f}"
        require((got - wanted).abs() <= allowed, found)

    claim = "Rows are drawn in proportion to priority^alpha, after an update of priorities."
    mutant = ("keeps all priorities equal", _around(IgnoresPriorities))
    return _law("priorities", claim, mutant, check, "several priorities", most=10)


def _weigh(how: ReplayClaims, buffer: Any, held: list[Step], share: Tensor, seed: int) -> None:
    """Raise Broken unless the weights of a sample are (N P)^-beta over the largest."""
    inverse = (len(held) * share) ** -how.beta
    table = {float(step["observation"]): float(w) for step, w in zip(held, inverse, strict=True)}
    with _seeded(seed):
        one = sample_columns(_sample(buffer, min(3, len(held)), seed))
    got = one["weight"].double()
    wanted = torch.tensor([table[float(o)] for o in one["observation"]]).double()
    largest = {"buffer": inverse.max(), "sample": wanted.max()}
    fits = [bool(((got - wanted / most).abs() < 1e-4).all()) for most in largest.values()]
    close = (wanted / inverse.max()).tolist()
    require(any(fits), f"weights are {got.tolist()}, wanted {close}, or these over the largest of the sample")


def _weights(how: ReplayClaims) -> Law:
    def check(make: Make, drawn: Additions, seen: Seen) -> None:
        buffer, held, share = _prioritised(how, make, drawn)
        seen("several priorities", len(held) > 2)
        _weigh(how, buffer, held, share, drawn.seed)

    claim = "Weights are (N P)^-beta over the largest."
    mutant = ("gives all rows the weight 1", _around(Unweighted))
    return _law("importance_weights", claim, mutant, check, "several priorities", most=20)


def _new(how: ReplayClaims) -> Law:
    def check(make: Make, drawn: Additions, seen: Seen) -> None:
        buffer, held = how.filled(make, drawn)
        rows = how.draws(buffer, drawn, len(held), times=60)
        index = {float(o): int(i) for o, i in zip(rows["observation"], rows["index"], strict=True)}
        names = sorted(set(index) & {float(step["observation"]) for step in held})
        given = {name: 1.25 + 0.125 * place for place, name in enumerate(names)}  # the newest has the largest
        buffer.update_priorities(torch.tensor([index[o] for o in names]), torch.tensor([given[o] for o in names]))
        added = {**held[-1], "observation": torch.tensor(100.0)}
        buffer.add(added)
        held = [*held, added][-drawn.capacity :]
        if not set(given) >= {float(step["observation"]) for step in held[:-1]}:
            return  # a row that never came
        seen("a new row beside several", len(held) > 2)
        given[100.0] = max(given.values())
        share = torch.tensor([given[float(step["observation"])] for step in held]).double() ** how.alpha
        if how.beta:
            for turn in range(4):
                _weigh(how, buffer, held, share / share.sum(), drawn.seed + turn)
            return
        got, wanted = _shares(how.draws(buffer, drawn, len(held), times=2000), held)[-1], share[-1] / share.sum()
        require(abs(got - wanted) < 0.03, f"{float(got):.3f} of the rows are the new one, wanted {float(wanted):.3f}")

    claim = "A new row has the largest priority so far, as it was given."
    mutant = ("keeps priorities as whole numbers", _around(WholePriorities))
    return _law("new_priority", claim, mutant, check, "a new row beside several", most=10)


def _goals(how: ReplayClaims) -> Law:
    def check(make: Make, drawn: Additions, seen: Seen) -> None:
        buffer, held = how.filled(make, drawn)
        later: dict[float, set[float]] = {}
        for place, step in enumerate(held):
            found = later.setdefault(float(step["observation"]), set())
            for other in held[place:]:
                found.add(float(other["observation"]))
                if other["terminated"] | other["truncated"]:
                    break
        edge = len(drawn.endings) % drawn.capacity  # rows before it were written after the ring was full
        wraps = len(drawn.endings) > drawn.capacity and edge and drawn.endings[len(drawn.endings) - edge - 1] == "none"
        seen("an episode that goes on at the start of the ring", wraps)
        rows = how.draws(buffer, drawn, len(held), times=300)
        got: dict[float, set[float]] = {}
        for observation, goal in zip(rows["observation"].tolist(), rows["goal"].tolist(), strict=True):
            got.setdefault(observation, set()).add(goal)
        for observation, goals in got.items():
            wanted = later.get(observation, goals)
            alien, missing = sorted(goals - wanted), sorted(wanted - goals - {observation})
            require(not alien, f"the step {observation} has goals {alien}, none of its episode's from there on")
            require(
                not missing, f"the step {observation} never has the goals {missing}, which its episode reached later"
            )

    claim = "A goal is one that the row's own episode reached at that step or later, and each of these comes."
    mutant = ("mixes up the goals of a batch", _around(AnyGoal))
    needs = "an episode that goes on at the start of the ring"
    return _law("goals_of_the_future", claim, mutant, check, needs, most=5)


# --- n steps ---


def _windows(how: ReplayClaims, steps: list[Step], start: int) -> list[tuple[float, float]]:
    """Return (reward, next observation) of the transition of n steps, or of those up to the last step added."""
    end = start
    while end < min(start + how.n, len(steps)) - 1 and not bool(steps[end]["terminated"] | steps[end]["truncated"]):
        end += 1
    over = bool(steps[end]["terminated"] | steps[end]["truncated"])
    rewards = [float(step["reward"]) for step in steps[start : end + 1]]
    total = sum(how.gamma**k * reward for k, reward in enumerate(rewards))
    complete = over or end - start + 1 == how.n or end == len(steps) - 1
    return [(total, float(steps[end]["next_observation"]))] if complete else []


def _n_rows(
    how: ReplayClaims, make: Make, drawn: Additions
) -> list[tuple[float, float, float, list[tuple[float, float]]]]:
    """Return observation, reward, next observation, and what they may be, of rows drawn."""
    buffer, steps = make(drawn.capacity), drawn.steps()
    for step in steps:
        buffer.add({name: value.clone() for name, value in step.items()})
    count = len(buffer)
    if count == 0:
        return []
    rows = how.draws(buffer, drawn, count)
    found = []
    for o, r, after in zip(
        *(rows[name].tolist() for name in ("observation", "reward", "next_observation")), strict=True
    ):
        require(float(o).is_integer() and 1 <= o <= len(steps), f"a row has the observation {o}, which was never added")
        found.append((o, r, after, _windows(how, steps, int(o) - 1)))
    return found


def _n_steps(how: ReplayClaims) -> Law:
    def check(make: Make, drawn: Additions, seen: Seen) -> None:
        for o, r, after, allowed in _n_rows(how, make, drawn):
            seen(f"{how.n} steps inside an episode", after - o >= how.n)
            require(
                any(abs(r - total) < 1e-5 for total, _ in allowed), f"reward of {o}: got {r}, wanted {allowed[0][0]}"
            )

    claim = "A row's reward is the discounted sum of n rewards, or of those to the end of the episode."
    mutant = ("doubles the rewards", _around(ForgetsLastReward))
    return _law("sum_of_n_rewards", claim, mutant, check, f"{how.n} steps inside an episode")


def _n_ends(how: ReplayClaims) -> Law:
    def check(make: Make, drawn: Additions, seen: Seen) -> None:
        for o, _, after, allowed in _n_rows(how, make, drawn):
            seen("an end of an episode within n steps", not float(after).is_integer())
            wanted = [beyond for _, beyond in allowed]
            require(after in wanted, f"next_observation of {o}: got {after}, wanted {wanted[0]}")

    claim = "The next observation is that after n steps, and never of another episode."
    mutant = ("sums over ends of episodes", _around(OverEnds))
    return _law("next_observation_after_n", claim, mutant, check, "an end of an episode within n steps")
