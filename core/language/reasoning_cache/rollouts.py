"""Results of reasoning cycles: training data, states from which to train the next step, and accuracy per cycle.

Training is on single steps: some of the states that runs visited are drawn, each is a group of requests for the next
reasoning step, and each attempt gets the reward of that step. Summaries are not trained. As each call has its own key, a run
of T cycles is a prefix of a longer run: one run of 12 cycles measures T = 1..12.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from attrs import evolve, frozen

from ... import keys
from ...errors import ChoiceError, message
from ...keys import Key
from ..parsers import strict_answer
from ..requests import STREAMS, Request, key_of, stream_of, words_of
from ..text_env import Outcome, TextEnv
from .machine import ReasoningCache, due
from .state import REASONING, InferenceProblemState, ModelRequest, Reply, RolloutResult, TrainingText

Reward = Callable[[InferenceProblemState, str], float]  # (state, reasoning text) -> its reward


def rollout_policy(reward: Reward) -> Callable[[InferenceProblemState, ModelRequest, Reply], RolloutResult]:
    """Return the rollout policy with `reward(state, text)`: one training text per reply; a success if its reward is above 0.

    >>> from .state import Problem
    >>> state = InferenceProblemState(problem=Problem(problem_id="0", problem_text="2 + 3?", answer="5"))
    >>> asked = ModelRequest(cycle_step=0, turn_type="reasoning", turn_number=1, prompt_text="2 + 3?")
    >>> policy = rollout_policy(lambda state, text: float(state.problem.answer in text))
    >>> policy(state, asked, Reply(cycle_step=0, text="5 or 6")).training_texts[0].reward
    1.0
    """

    def make(state: InferenceProblemState, asked: ModelRequest, reply: Reply) -> RolloutResult:
        worth = reward(state, reply.text)
        text = TrainingText(prompt_text=asked.prompt_text, output_text=reply.text, reward=worth, said=reply.said)
        return RolloutResult(training_texts=(text,), success=worth > 0)

    return make


def answers_problem(state: InferenceProblemState, text: str) -> float:
    """Return 1 if the last `[ANSWER] n` of the text is the problem's answer, else 0.

    >>> from .state import Problem
    >>> answers_problem(InferenceProblemState(problem=Problem(problem_id="0", problem_text="2 + 3?", answer="5")), "[ANSWER] 5")
    1.0
    """
    value = strict_answer(text)
    return float(value != () and str(value) == state.problem.answer.strip())


def solution_rollout(state: InferenceProblemState, asked: ModelRequest, reply: Reply) -> RolloutResult:
    """Return the rollout result of a reasoning step: reward 1 if its answer is right, else 0.

    >>> from .state import Problem
    >>> state = InferenceProblemState(problem=Problem(problem_id="0", problem_text="2 + 3?", answer="5"))
    >>> asked = ModelRequest(cycle_step=0, turn_type="reasoning", turn_number=1, prompt_text="2 + 3?")
    >>> solution_rollout(state, asked, Reply(cycle_step=0, text="[ANSWER] 6")).success
    False
    """
    return rollout_policy(answers_problem)(state, asked, reply)


def summarization_rollout(state: InferenceProblemState, asked: ModelRequest, reply: Reply) -> RolloutResult:
    """Return the rollout result of a summarization step, which is not scored: reward 0, always a success.

    >>> from .state import Problem
    >>> state = InferenceProblemState(problem=Problem(problem_id="0", problem_text="2 + 3?", answer="5"))
    >>> asked = ModelRequest(cycle_step=1, turn_type="summarization", turn_number=1, prompt_text="2 + 3?")
    >>> summarization_rollout(state, asked, Reply(cycle_step=1, text="It is 5.")).training_texts[0].reward
    0.0
    """
    return evolve(rollout_policy(lambda state, text: 0.0)(state, asked, reply), success=True)


def at_turn(state: InferenceProblemState, turn_number: int) -> InferenceProblemState:
    """Return the state as it was before reasoning step `turn_number`, 1 ... summarization_turn_number + 1.

    Raises: ChoiceError.

    >>> from .state import Problem
    >>> problem = Problem(problem_id="0", problem_text="2 + 3?", answer="5")
    >>> late = InferenceProblemState(problem=problem, curr_summary="It is 5.", overall_cycle_step=2)
    >>> at_turn(late, 1) == InferenceProblemState(problem=problem)
    True
    """
    before = turn_number - 1
    if not 0 <= before <= state.summarization_turn_number:
        wanted, remedy = f"1 to {state.summarization_turn_number + 1}", "name a step that the run has come to"
        raise ChoiceError(message("at_turn: turn_number", got=turn_number, wanted=wanted, remedy=remedy))
    return evolve(
        state,
        curr_summary=("", *state.summarization_string_store)[before],
        curr_reasoning=("", *state.reasoning_string_store)[before],
        reasoning_turn_number=before,
        summarization_turn_number=before,
        overall_cycle_step=2 * before,
        reasoning_rollout_store=state.reasoning_rollout_store[:before],
        summarization_rollout_store=state.summarization_rollout_store[:before],
        reasoning_string_store=state.reasoning_string_store[:before],
        summarization_string_store=state.summarization_string_store[:before],
        reasoning_string_complete_store=state.reasoning_string_complete_store[:before],
        summarization_string_complete_store=state.summarization_string_complete_store[:before],
    )


def starting_points(
    states: Sequence[InferenceProblemState], key: Key, *, number: int
) -> tuple[InferenceProblemState, ...]:
    """Return the states whose next reasoning step is trained: `number` of each run's visited states, drawn from the key.

    The candidates include the state before the first step, with the empty summary, and the one after the last summary.
    States with the same problem and the same summary are one group, and are returned once. Raises: ChoiceError.

    Source: N_summ of the Reasoning Cache.

    >>> from .state import Problem
    >>> run = InferenceProblemState(problem=Problem(problem_id="0", problem_text="2 + 3?", answer="5"))
    >>> len(starting_points([run, run], keys.key(0), number=2))
    1
    """
    if number < 1:
        where, remedy = "starting_points: number", "draw one or more of each run"
        raise ChoiceError(message(where, got=number, wanted="at least 1", remedy=remedy))
    drawn = [
        at_turn(state, 1 + turn)
        for place, state in enumerate(states)
        for turn in sorted(_turns(state, keys.fold_in(key, place))[:number])
    ]
    first = {(state.problem, state.curr_summary): state for state in reversed(drawn)}
    return tuple(reversed(first.values()))


def _turns(state: InferenceProblemState, key: Key) -> list[int]:
    return list(map(int, keys.permutation(key, state.summarization_turn_number + 1)))


def call_request(attempt: Request, state: InferenceProblemState, place: int) -> Request:
    """Return the request for the next call of an attempt's state, as state number `state_index` of a `step_env`.

    Its sampling key depends on the attempt's key and on the cycle step only, so that a repeated call is the same call, and
    more cycles do not change earlier ones. It keeps the attempt's group and stream.

    >>> from .state import Problem
    >>> state = InferenceProblemState(problem=Problem(problem_id="0", problem_text="2 + 3?", answer="5"))
    >>> call_request(Request(id=4, group=2, task=(7, 3), sampling=(1, 1)), state, 5).task
    (11, 0)
    """
    task = 2 * place + STREAMS[stream_of(attempt.task)], 0
    return evolve(
        attempt, task=task, sampling=words_of(keys.fold_in(key_of(attempt.sampling), state.overall_cycle_step))
    )


def state_index(task: tuple[int, int]) -> int:
    """Return the index of the state of a `step_env` that a task key names.

    >>> state_index((11, 0))
    5
    """
    return task[0] >> 1


@frozen
class Posed:
    """A state, its next call, and the result of the call: () before it."""

    TAG: ClassVar[str] = "posed"
    state: InferenceProblemState
    asked: ModelRequest
    result: RolloutResult | tuple[()] = ()


def step_env(
    cache: ReasoningCache, states: Sequence[InferenceProblemState]
) -> TextEnv[tuple[InferenceProblemState, ...], Posed]:
    """Return the environment of the next calls of some states: an episode is one call, with its training texts' reward.

    The action is the text; use the parser `chain()`, which returns the text itself, and `incomplete="accept"`, as a step may
    reach its token limit. Raises: ChoiceError if all cycles of a state are finished.

    >>> from .machine import reasoning_cache
    >>> from .state import Problem
    >>> cache = reasoning_cache(solution_rollout, summarization_rollout, reasoning_prompt_template="{problem}{curr_summary}")
    >>> state = InferenceProblemState(problem=Problem(problem_id="0", problem_text="2 + 3?", answer="5"))
    >>> world = step_env(cache, [state])
    >>> posed, shown = world.reset(world.params, key_of((0, 0)))
    >>> shown, world.step(world.params, posed, "[ANSWER] 5", key_of((0, 0)))[1].reward
    ('2 + 3?', 1.0)
    """

    def reset(points: tuple[InferenceProblemState, ...], key: Key) -> tuple[Posed, str]:
        state = points[state_index(words_of(key)) % len(points)]
        asked = _asked(cache, state)
        return Posed(state, asked), asked.prompt_text

    def act(points: Any, posed: Posed, text: str, key: Key) -> tuple[Posed, Outcome]:
        reply = Reply(cycle_step=posed.asked.cycle_step, text=text)
        policy = (
            cache.solution_rollout_policy if posed.asked.turn_type == REASONING else cache.summarization_rollout_policy
        )
        result = policy(posed.state, posed.asked, reply)
        reward = sum((text.reward for text in result.training_texts), 0.0)
        return evolve(posed, result=result), Outcome(reward=reward, terminated=True)

    for state in states:
        _asked(cache, state)
    return TextEnv(tuple(states), reset, act)


def _asked(cache: ReasoningCache, state: InferenceProblemState) -> ModelRequest:
    asked = due(cache, state)
    if isinstance(asked, tuple):
        got, wanted = f"behind its {cache.num_reasoning_steps} cycles", "one with a call that is due"
        remedy = "let the cache run one cycle more than the runs that the states are from"
        raise ChoiceError(message("step_env: a state", got=got, wanted=wanted, remedy=remedy))
    return asked


def accuracy_by_cycle(states: Sequence[InferenceProblemState], correct: Reward = answers_problem) -> tuple[float, ...]:
    """Return the mean of `correct(state, text)` over reasoning step T of all runs, for T = 1, 2, ... up to the shortest run.

    >>> from .state import Problem
    >>> problem = Problem(problem_id="0", problem_text="2 + 3?", answer="5")
    >>> run = InferenceProblemState(problem=problem, reasoning_string_complete_store=("hm", "[ANSWER] 5"))
    >>> accuracy_by_cycle([run, run])
    (0.0, 1.0)
    """
    found = [[correct(state, text) for text in state.reasoning_string_complete_store] for state in states]
    return tuple(sum(each) / len(each) for each in zip(*found, strict=False))
