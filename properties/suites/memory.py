"""Laws of a policy's memory in a rollout. The subject is `rollout`: (env, model, length) -> run.

The laws use an environment whose episodes end at random, by termination or truncation, and a policy that counts its steps in
its memory and returns the count as every log-prob. All numbers are integers, so that equal means the same bits.
"""

from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from hypothesis import strategies as st
from torch import Tensor

from ...core import keys
from ...core.env import Env, auto_reset, batched
from ...core.keys import Key
from ...core.policy import ActorCritic
from ...core.record import record, replace, select, tensor
from ...core.spaces import Discrete
from ...core.steps import TimeStep, Trajectory, ended, first, following
from ...core.tree import tree_map
from ...runtime.rollout import Worlds, reset_rollout
from ..framework.compare import Tolerance, same
from ..framework.law import Law, Seen, Suite, law_constructor
from ..strategies.values import dyadic, seeds

# --- mutants ---
# Common errors in a policy's memory: a right rollout, run step by step, with another rule for the memory.


Make = Callable[..., Any]  # (env, model, length) -> run, as `rollout`
Rule = Callable[
    [Trajectory, Tensor, Any, Any], Any
]  # (step [B], flags [B] of episodes that ended at the step before, initial memory, carry) -> memory


def _by(rule: Rule) -> Callable[[Make], Make]:
    def mutant(make: Make) -> Make:
        def made(env: Any, model: Any, length: int) -> Any:
            single = make(env, model, 1)

            def run(params: Any, worlds: Worlds, key: Tensor) -> tuple[Worlds, Trajectory]:
                before, rows = torch.zeros(worlds.observation.shape[0], dtype=torch.bool), []
                for step_key in keys.split(key, length):
                    _, _, carry = model.apply(params, worlds.observation, worlds.memory)
                    after, row = single(params, worlds, step_key)
                    told = tree_map(lambda leaf: leaf[0], row)
                    worlds = replace(after, memory=rule(told, before, worlds.fresh, carry))
                    before = ended(told.terminated, told.truncated)
                    rows.append(row)
                return worlds, tree_map(lambda *leaves: torch.cat(leaves), *rows)

            return run

        return made

    return mutant


def _over(told: Trajectory) -> Tensor:
    return ended(told.terminated, told.truncated)


never = _by(lambda told, before, begun, carry: carry)
one_step_late = _by(lambda told, before, begun, carry: select(before, begun, carry))
at_terminations_only = _by(lambda told, before, begun, carry: select(told.terminated, begun, carry))
to_zero = _by(lambda told, before, begun, carry: select(_over(told), tree_map(torch.zeros_like, carry), carry))
all_worlds_at_once = _by(lambda told, before, begun, carry: select(_over(told).any().expand_as(before), begun, carry))


def begins_each_rollout(make: Make) -> Make:
    """Reset the memory at the start of each rollout, as if an episode began there."""

    def made(env: Any, model: Any, length: int) -> Any:
        inner = make(env, model, length)
        return lambda params, worlds, key: inner(params, replace(worlds, memory=worlds.fresh), key)

    return made


MUTANTS = {
    "resets the memory one step late": one_step_late,
    "resets the memory at terminations only": at_terminations_only,
    "resets the memory to zero, whatever it began with": to_zero,
    "resets every world's memory where one world ends": all_worlds_at_once,
}


# --- laws ---


SOURCE = "runtime.rollout: where an episode ends, the memory becomes the one that `reset_rollout` was given"
WORLDS, PLACES = 3, 5


@frozen
class Case:
    """A rollout: the seed of its key, its length, the step where it is split in two, and each environment's initial memory."""

    seed: int
    steps: int
    cut: int
    begun: tuple[int, ...]


_CASES = st.builds(
    Case,
    seed=seeds(),
    steps=st.integers(2, 12),
    cut=st.integers(1, 11),
    begun=st.tuples(*[st.integers(1, 9)] * WORLDS),
)


@record
class _Shown:
    """A distribution with one action, whose log-prob is the policy's memory."""

    memory: Tensor = tensor("*", "int")

    def noise(self, key: Key) -> Tensor:
        return key[..., 0]

    def transform(self, noise: Tensor) -> Tensor:
        return torch.zeros_like(noise)

    def log_prob(self, action: Tensor) -> Tensor:
        return self.memory + torch.zeros_like(action)


def _apply(params: Any, observation: Tensor, carry: dict[str, Tensor]) -> tuple[Any, Tensor, dict[str, Tensor]]:
    return (
        _Shown(memory=carry["steps"]),
        torch.zeros_like(observation, dtype=torch.float32),
        {"steps": carry["steps"] + 1},
    )


COUNTER = ActorCritic(init=lambda key: (), apply=_apply)


def _world() -> Env[Any, Tensor]:
    """A random walk over places: the last place terminates, the one before it truncates."""

    def reset(params: Any, key: Key) -> tuple[Tensor, TimeStep]:
        place = keys.randint(key, (), 0, PLACES - 2)
        return place, first(place.clone())

    def step(params: Any, state: Tensor, action: Tensor, key: Key) -> tuple[Tensor, TimeStep]:
        place = keys.randint(key, (), 0, PLACES)
        told = following(place.clone(), torch.zeros(()) * place, place == PLACES - 1, place == PLACES - 2)
        return place, told

    return Env((), reset, step, Discrete(PLACES), Discrete(1))


def memory_laws(*, recurrent: tuple[int, int] | None = None) -> Suite:
    """The laws of a policy's memory in a rollout.

    `recurrent` is (D, H) of a recurrent policy on sequences instead: f(observations [T, B, D], starts [T, B], state [B, H])
    -> (outputs [T, B, ...], state); `starts[t]` marks observations that begin an episode.

    >>> from purestep.properties import verify
    >>> bool(verify(memory_laws(recurrent=(3, 1)), Leaky()))
    True
    """
    if recurrent is not None:
        law = law_constructor(lambda: _sequences(*recurrent), "a recurrent state is that of the episode", most=40)
        return Suite("memory_laws", (_starts(law), _parts(law), _rows(law)))
    return Suite("memory_laws", (_of_the_episode(), _in_parts()))


_law = law_constructor(lambda: _CASES, SOURCE)


def _start(drawn: Case, seed: int) -> tuple[Env[Any, Any], Any]:
    env = batched(auto_reset(_world()), WORLDS)
    return env, reset_rollout(env, keys.key(seed), {"steps": torch.tensor(drawn.begun)})


def _of_the_episode() -> Law:
    def check(subject: Make, drawn: Case, seen: Seen) -> None:
        env, worlds = _start(drawn, drawn.seed)
        after, played = subject(env, COUNTER, drawn.steps)((), worlds, keys.key(drawn.seed + 1))
        memory = begun = worlds.memory["steps"]
        for t in range(drawn.steps):
            same(f"the memory at step {t}", played.behaviour_log_prob[t], memory)
            over = ended(played.terminated[t], played.truncated[t])
            memory = torch.where(over, begun, memory + 1)
            seen("a termination", played.terminated[t].any())
            seen("a truncation", played.truncated[t].any())
            seen("one world goes on where another ends", over.any() & ~over.all())
        same("the memory that goes on", after.memory["steps"], memory)

    claim = (
        "At each step a policy remembers its steps since the episode began, on top of what it was given to begin with."
    )
    needs = ("a termination", "a truncation", "one world goes on where another ends")
    return _law("memory_of_the_episode", claim, ("never resets the memory", never), check, *needs)


def _in_parts() -> Law:
    def check(subject: Make, drawn: Case, seen: Seen) -> None:
        env, worlds = _start(drawn, drawn.seed)
        cut = min(drawn.cut, drawn.steps - 1)
        for part, steps in enumerate((cut, drawn.steps - cut)):
            memory = worlds.memory["steps"]
            seen("an episode that a rollout's end cuts", part and (memory != torch.tensor(drawn.begun)).any())
            worlds, played = subject(env, COUNTER, steps)((), worlds, keys.key(drawn.seed + part))
            same(f"the first memory of part {part}", played.behaviour_log_prob[0], memory)

    claim = "A rollout goes on with the memory that the one before ended with."
    mutant = ("begins each rollout with a new memory", begins_each_rollout)
    return _law("memory_in_parts", claim, mutant, check, "an episode that a rollout's end cuts")


# --- recurrent modules ---
# Laws of f(observations [T, B, D], starts [T, B], state [B, H]) -> (outputs [T, B, ...], state [B, H]).

NEAR = Tolerance("near", 1e-4, 1e-5)  # of products of matrices in other shapes
Recurrent = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


class Leaky:
    """A small correct recurrent function: s = 1/2 s + sum(x), from 0 where an episode starts."""

    def __call__(self, observations: Tensor, starts: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        outputs = []
        for x, start in zip(observations, starts, strict=True):
            state = torch.where(start[:, None], 0.0, 0.5 * state) + x.sum(-1, keepdim=True)
            outputs.append(state)
        return torch.stack(outputs), state


def clears_late(recurrent: Recurrent) -> Recurrent:
    """Clear the state one step after an episode begins."""
    return lambda x, starts, state: recurrent(x, torch.cat([torch.zeros_like(starts[:1]), starts[:-1]]), state)


def clears_all_rows(recurrent: Recurrent) -> Recurrent:
    """Clear every row's state where one row starts."""
    return lambda x, starts, state: recurrent(x, starts.any(1, keepdim=True).expand_as(starts), state)


def forgets_state(recurrent: Recurrent) -> Recurrent:
    """Begin each call with no state."""
    return lambda x, starts, state: recurrent(x, starts, torch.zeros_like(state))


@frozen
class Sequences:
    """Observations [T, B, D], starts of episodes [T, B], a state [B, H], and the place of a cut."""

    observations: Tensor
    starts: Tensor
    state: Tensor
    cut: int


@st.composite
def _sequences(draw: st.DrawFn, features: int, state: int) -> Sequences:
    steps, rows = draw(st.sampled_from((4, 3, 6))), draw(st.sampled_from((2, 3)))
    size = steps * rows
    starts = draw(st.lists(st.sampled_from((False, False, True)), min_size=size, max_size=size))
    drawn = draw(dyadic((steps, rows, features), limit=2)), draw(dyadic((rows, state), limit=1))
    return Sequences(drawn[0], torch.tensor(starts).reshape(steps, rows), drawn[1], draw(st.integers(1, steps - 1)))


def _starts(law: Callable[..., Law]) -> Law:
    def check(subject: Recurrent, drawn: Sequences, seen: Seen) -> None:
        x, starts = drawn.observations, drawn.starts
        before = starts.flip(0).cummax(0).values.flip(0)  # rows before the last start, or at it
        later = torch.cat([before[1:], torch.zeros_like(before[:1])])
        earlier = before & later  # rows before the last start
        seen("a start after other steps", earlier.any())
        other = torch.where(earlier[..., None], x + 1.0, x)
        begun = drawn.state + 1.0 * starts.any(0)[:, None]
        got, wanted = subject(other, starts, begun), subject(x, starts, drawn.state)
        same("outputs from the last start of a row on, after other steps", got[0][~earlier], wanted[0][~earlier], NEAR)
        same("the last state, after other steps", got[1], wanted[1], NEAR)

    claim = "From a start on, outputs and state do not depend on what came before it."
    mutant = ("clears the state one step late", clears_late)
    return law("starts_forget", claim, mutant, check, "a start after other steps")


def _parts(law: Callable[..., Law]) -> Law:
    def check(subject: Recurrent, drawn: Sequences, seen: Seen) -> None:
        x, starts, cut = drawn.observations, drawn.starts, drawn.cut
        seen("an episode that the cut divides", (~starts[cut]).any())
        first, state = subject(x[:cut], starts[:cut], drawn.state)
        second, last = subject(x[cut:], starts[cut:], state)
        whole, wanted = subject(x, starts, drawn.state)
        same("outputs in two parts", torch.cat([first, second]), whole, NEAR)
        same("the last state in two parts", last, wanted, NEAR)

    claim = "A sequence in two parts, with the state between them, is the sequence in one."
    mutant = ("begins each call with no state", forgets_state)
    return law("parts_make_the_whole", claim, mutant, check, "an episode that the cut divides")


def _rows(law: Callable[..., Law]) -> Law:
    def check(subject: Recurrent, drawn: Sequences, seen: Seen) -> None:
        x, starts = drawn.observations, drawn.starts
        seen("a row that goes on where another starts", (starts.any(1) & ~starts.all(1)).any())
        whole = subject(x, starts, drawn.state)
        for row in range(x.shape[1]):
            own = slice(row, row + 1)
            alone = subject(x[:, own], starts[:, own], drawn.state[own])
            same(f"row {row} alone", alone[0], whole[0][:, own], NEAR)
            same(f"the last state of row {row} alone", alone[1], whole[1][own], NEAR)

    claim = "Each row is what it is alone."
    mutant = ("clears all rows where one starts", clears_all_rows)
    return law("rows_alone", claim, mutant, check, "a row that goes on where another starts")
