"""Laws of training on runs of the reasoning cache: starting states, requests, rewards, accuracy, rows."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from purestep.core import keys
from purestep.core.language.reasoning_cache.events import FinishedAttempt, GroupResult
from purestep.core.language.reasoning_cache.rollouts import state_index
from purestep.core.language.reasoning_cache.state import InferenceProblemState, ModelRequest
from purestep.core.language.requests import Request, key_of, stream_of
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Mutant, Seen, law_constructor
from purestep.properties.strategies.values import seeds

from . import reasoning_mutants
from .reasoning_mutants import Thinking
from .reasoning_strategies import Run, few_runs

SOURCE = "core.language.reasoning_cache.rollouts: group = state, reward = that one step's"
KEYS = 8  # with which points are drawn
Play = Callable[[Thinking, Run], list[InferenceProblemState]]


@frozen
class Batch:
    """Runs of one cache, the last of which may have the first one's problem, and a seed."""

    runs: tuple[Run, Run]
    twice: bool
    seed: int
    number: int

    def played(self, thinking: Thinking, play: Play) -> list[list[InferenceProblemState]]:
        """The states of each run."""
        cache, problem = self.runs[0].cache, self.runs[0].problem
        numbered = [
            evolve(run, cache=cache, problem=evolve(run.problem, problem_id=str(i))) for i, run in enumerate(self.runs)
        ]
        if self.twice:
            numbered[-1] = evolve(numbered[-1], problem=evolve(problem, problem_id="0"))
        return [play(thinking, run) for run in numbered]


def batches() -> SearchStrategy[Batch]:
    """Two runs."""
    return st.builds(Batch, few_runs(), st.booleans(), seeds(), st.integers(1, 3))


def training_laws(play: Play) -> tuple[Law, ...]:
    """The laws; `play` returns the states of a run."""
    checks = (_at_turn, _points, _groups, _calls, _world, _accuracy, _rows)
    return tuple(law(play) for law in checks)


_law = law_constructor(batches, SOURCE)


def _at_turn(play: Play) -> Law:
    def check(thinking: Thinking, batch: Batch, seen: Seen) -> None:
        for states in batch.played(thinking, play):
            seen("several cycles", len(states) > 3)
            for number, state in enumerate(states):
                for turn in range(1, 2 + number // 2):
                    back = thinking.at_turn(state, turn)
                    require(
                        back == states[2 * turn - 2], f"turn {turn} of the state after {number} steps is what it was"
                    )

    mutant = Mutant("goes back with the counters of the later state", reasoning_mutants.keeps_counters)
    return _law("back_in_time", "An earlier state of a run is the state that it was.", mutant, check, "several cycles")


def _point(state: InferenceProblemState) -> tuple[Any, str]:
    return state.problem, state.curr_summary


def _points(play: Play) -> Law:
    def check(thinking: Thinking, batch: Batch, seen: Seen) -> None:
        every = batch.played(thinking, play)
        last = [states[-1] for states in every]
        begun: dict[Any, InferenceProblemState] = {}
        for states in every:
            begun = {**{(state.problem, state.curr_summary): state for state in states[::2]}, **begun}
        seen("two runs of one problem", batch.twice)
        most = len(every[0]) // 2 + 1
        whole = thinking.starting_points(last, keys.key(batch.seed), number=most)
        require(
            {_point(one) for one in whole} == begun.keys(),
            "every state can be drawn, also that before the first summary",
        )
        seen("more states than are drawn", most > batch.number)
        several = set()
        for number in range(KEYS):
            points = thinking.starting_points(last, keys.key(batch.seed + number), number=batch.number)
            of = [_point(one) for one in points]
            require(set(of) <= begun.keys(), "points are states of the runs")
            require(all(one.overall_cycle_step % 2 == 0 for one in points), "a reasoning step is due")
            require(len(set(of)) == len(of), "no state is a group twice")
            require(
                len(of) <= min(batch.number, most) * len(every), f"at most {batch.number} of each run, got {len(of)}"
            )
            require({one[0] for one in of} == {states[0].problem for states in every}, "each problem has one")
            require(
                thinking.starting_points(last, keys.key(batch.seed + number), number=batch.number) == points,
                "by the key",
            )
            several.add(tuple(of))
        seen("another key, other states", len(several) > 1)

    mutant = Mutant("never trains from the empty summary", reasoning_mutants.never_from_nothing)
    claim = "Each state of a run in which reasoning is due can be drawn, by the key alone, and is a group once."
    needs = "two runs of one problem", "more states than are drawn", "another key, other states"
    return _law("points", claim, mutant, check, *needs)


def _groups(play: Play) -> Law:
    def check(thinking: Thinking, batch: Batch, seen: Seen) -> None:
        points, attempts, key = len(batch.runs), batch.number, keys.key(batch.seed)
        found = thinking.start_requests(points, key, attempts=attempts)
        seen("groups of several", attempts > 1)
        same(
            "states",
            [state_index(request.task) for request in found],
            [i for i in range(points) for _ in range(attempts)],
        )
        same("groups", [request.group for request in found], [i for i in range(points) for _ in range(attempts)])
        require(len({request.sampling for request in found}) == len(found), "a sampling key for each attempt")
        require(len({request.id for request in found}) == len(found), "an id for each attempt")
        same("the stream", {stream_of(request.task) for request in found}, {"training"})

    mutant = Mutant("compares attempts at different states", reasoning_mutants.one_group)
    claim = "The attempts of a group are at one state, and each samples with a key of its own."
    return _law("groups_are_states", claim, mutant, check, "groups of several")


def _calls(play: Play) -> Law:
    def check(thinking: Thinking, batch: Batch, seen: Seen) -> None:
        states = batch.played(thinking, play)[0]
        seen("several cycles", len(states) > 3)
        attempts = [Request(id=i, group=i // 2, task=(2 * i + i % 2, i), sampling=(batch.seed, i)) for i in range(2)]
        calls = {
            (i, n): thinking.call_request(one, state, 5)
            for i, one in enumerate(attempts)
            for n, state in enumerate(states)
        }
        require(
            len({call.sampling for call in calls.values()}) == len(calls), "each call samples with a key of its own"
        )
        for (i, n), call in calls.items():
            again = thinking.call_request(attempts[i], states[n], 7)
            same("the key, from another place", again.sampling, call.sampling)
            same("the places", (state_index(call.task), state_index(again.task)), (5, 7))
            same("whose", (call.id, call.group, stream_of(call.task)), (i, i // 2, stream_of(attempts[i].task)))

    mutant = Mutant("samples all cycles with one key", reasoning_mutants.one_key_for_all_cycles)
    claim = "A call's key is that of its attempt and cycle step alone: again the same when it is made again."
    return _law("keys_of_calls", claim, mutant, check, "several cycles")


def _world(play: Play) -> Law:
    def check(thinking: Thinking, batch: Batch, seen: Seen) -> None:
        run = batch.runs[0]
        states = play(thinking, run)[:-1]
        world = thinking.step_world(run.cache, states)
        for number, state in enumerate(states):
            posed, shown = world.reset(world.params, key_of((2 * number, 0)))
            asked = thinking.due(run.cache, state)
            same("the prompt", shown, asked.prompt_text if isinstance(asked, ModelRequest) else "")
            _, outcome = world.step(world.params, posed, run.said[number].text, key_of((0, 0)))
            after = thinking.step(run.cache, state, run.reply(number))
            store = after.summarization_rollout_store if number % 2 else after.reasoning_rollout_store
            seen("a summary with the answer", number % 2 and "[ANSWER] 5" in run.said[number].text)
            same("the reward", outcome.reward, sum(text.reward for text in store[-1].training_texts))
            same("a summary's reward", outcome.reward if number % 2 else 0.0, 0.0)
            require(outcome.terminated, "an episode is one call")

    mutant = Mutant("judges summaries like reasoning", reasoning_mutants.pays_summaries)
    claim = "An episode of the world of a state is the call that is due, and pays what the step's training texts have."
    return _law("world_is_the_step", claim, mutant, check, "a summary with the answer")


def _right(state: InferenceProblemState) -> list[bool]:
    return [made.training_texts[0].reward > 0 for made in state.reasoning_rollout_store]


def _accuracy(play: Play) -> Law:
    def check(thinking: Thinking, batch: Batch, seen: Seen) -> None:
        every = batch.played(thinking, play)
        whole = thinking.accuracy_by_cycle([states[-1] for states in every])
        rights = [_right(states[-1]) for states in every]
        seen("a later cycle that is worse", any(a > b for one in rights for a, b in pairwise(one)))
        same("accuracy", list(whole), [sum(turn) / len(turn) for turn in zip(*rights, strict=True)])
        for cycles in range(len(whole)):
            shorter: Sequence[InferenceProblemState] = [states[2 * cycles] for states in every]
            same("accuracy of fewer cycles", thinking.accuracy_by_cycle(shorter), whole[:cycles])

    mutant = Mutant("takes the best cycle so far", reasoning_mutants.once_right_always_right)
    claim = "Accuracy at T is that of reasoning step T: of a run of T cycles, and of any longer one."
    return _law("accuracy", claim, mutant, check, "a later cycle that is worse")


def _rows(play: Play) -> Law:
    def check(thinking: Thinking, batch: Batch, seen: Seen) -> None:
        every = batch.played(thinking, play)
        cut = [states[-1 - (batch.seed + i) % 3] for i, states in enumerate(every)]
        seen("an attempt that failed", any(state.overall_cycle_step % 2 for state in cut))
        attempts = tuple(FinishedAttempt(state=state) for state in cut)
        for row, state in zip(thinking.published_rows(GroupResult(number=3, attempts=attempts)), cut, strict=True):
            texts = row["training_texts"]
            same("steps", [text["metadata"]["cycle_step"] for text in texts], list(range(state.overall_cycle_step)))
            said = [text["output_text"] for text in texts[::2]]
            same("what was said", said, [made.training_texts[0].output_text for made in state.reasoning_rollout_store])
            same("whose", (row["group"], row["problem_id"]), (3, state.problem.problem_id))

    mutant = Mutant("publishes all reasoning first", reasoning_mutants.rows_by_kind)
    claim = "A published attempt has each of its training texts once, in the order of cycle_step."
    return _law("rows", claim, mutant, check, "an attempt that failed")
