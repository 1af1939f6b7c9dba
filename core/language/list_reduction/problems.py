"""Sources of the reasoning cache's problems: lists drawn from a key, or a given set of problems."""

import math
from collections.abc import Callable, Sequence

from attrs import frozen

from ... import keys
from ...errors import ChoiceError, message
from ...keys import Key
from ..reasoning_cache.cycles import Drawn
from ..reasoning_cache.evaluation import Share, list_share
from ..reasoning_cache.rollouts import Reward, answers_problem, rollout_policy
from ..reasoning_cache.state import InferenceProblemState, ModelRequest, Problem, Reply, RolloutResult
from ..requests import key_of, task_keys
from ..task import EVALUATION, TRAINING
from .lists import Lists
from .tasks import list_problem, list_task, read_list

EACH = 5  # every fifth given problem is held out
ORDER = 13  # folded into a run's key for the order of given problems


@frozen(kw_only=True)
class ProblemSource:
    """Problems of the training and the evaluation stream, which are disjoint."""

    drawn: Callable[[str], Drawn]  # of a stream, by number
    at: Callable[[str, Key], Problem]  # of a stream, by key
    typed: Callable[[str], Problem]  # from a question typed by a user
    held_out: float  # number of evaluation problems
    correct: Reward  # whether a reasoning text gives the answer
    share: Share | tuple[()] = ()  # share of the problem that a summary covers


def list_source(training: Lists, evaluation: Lists) -> ProblemSource:
    """Return the source of problems on lists.

    >>> source = list_source(Lists(), Lists())
    >>> one, other = (source.drawn(stream)(keys.key(0), 0, 1) for stream in ("training", "evaluation"))
    >>> one == other, source.drawn("training")(keys.key(0), 0, 2)[:1] == one
    (False, True)
    """
    lists = {TRAINING: training, EVALUATION: evaluation}

    def drawn(stream: str) -> Drawn:
        def draw(key: Key, first: int, count: int) -> tuple[Problem, ...]:
            named = task_keys(key, stream, count, first=first)
            return tuple(at(stream, key_of(words)) for words in named)

        return draw

    def at(stream: str, key: Key) -> Problem:
        return list_problem(list_task(lists[stream], key))

    def typed(text: str) -> Problem:
        return list_problem(read_list(text))

    return ProblemSource(drawn=drawn, at=at, typed=typed, held_out=math.inf, correct=answers_problem, share=list_share)


def problem_source(problems: Sequence[Problem], *, where: str) -> ProblemSource:
    """Return the source of given problems: every fifth is held out, the others are repeated, in a new order each epoch.

    `where` names them in errors. Raises: ChoiceError for fewer than five; `drawn("evaluation")` also if too few are held out.

    >>> made = [Problem(problem_id=str(n), problem_text=f"{n} + 1?", answer=str(n + 1)) for n in range(10)]
    >>> source = problem_source(made, where="sums.jsonl")
    >>> [one.problem_id for one in source.drawn("evaluation")(keys.key(0), 0, 2)]
    ['9', '4']
    """
    pools = {
        TRAINING: tuple(one for place, one in enumerate(problems) if place % EACH != EACH - 1),
        EVALUATION: tuple(problems[EACH - 1 :: EACH]),
    }
    if not pools[EVALUATION]:
        got, remedy = f"{len(problems)} problems", f"each {EACH}th is held out"
        raise ChoiceError(message(where, got=got, wanted=f"at least {EACH}", remedy=remedy))

    def drawn(stream: str) -> Drawn:
        pool = pools[stream]

        def draw(key: Key, first: int, count: int) -> tuple[Problem, ...]:
            if stream == EVALUATION and first + count > len(pool):
                got, remedy = f"{len(pool)} held-out problems", "hold fewer out, or give more of them"
                raise ChoiceError(message(where, got=got, wanted=f"at least {first + count}", remedy=remedy))
            rounds = {number // len(pool) for number in range(first, first + count)}
            own = keys.fold_in(key, ORDER)
            order = {one: keys.permutation(keys.fold_in(own, one), len(pool)) for one in rounds}
            places = (divmod(number, len(pool)) for number in range(first, first + count))
            return tuple(pool[int(order[turn][place])] for turn, place in places)

        return draw

    def at(stream: str, key: Key) -> Problem:
        pool = pools[stream]
        return pool[int(keys.randint(key, (), 0, len(pool)))]

    def typed(text: str) -> Problem:
        known = {one.problem_text: one for one in problems}
        return known.get(text, Problem(problem_id=text, problem_text=text, answer=""))

    return ProblemSource(drawn=drawn, at=at, typed=typed, held_out=len(pools[EVALUATION]), correct=stated)


def stated(state: InferenceProblemState, text: str) -> float:
    """Return 1 if the text after the last `[ANSWER]`, stripped, is the problem's answer; else 0.

    >>> state = InferenceProblemState(problem=Problem(problem_id="0", problem_text="Capital of France?", answer="Paris"))
    >>> stated(state, "It is [ANSWER] Paris "), stated(state, "Paris"), stated(state, "[ANSWER] Paris, Texas")
    (1.0, 0.0, 0.0)
    """
    _, tag, said = text.rpartition("[ANSWER]")
    return float(bool(tag) and said.strip() == state.problem.answer.strip())


def stated_rollout(state: InferenceProblemState, asked: ModelRequest, reply: Reply) -> RolloutResult:
    """Return the rollout result of a reasoning step on a given problem: reward 1 if `stated`, else 0.

    >>> state = InferenceProblemState(problem=Problem(problem_id="0", problem_text="Capital of France?", answer="Paris"))
    >>> asked = ModelRequest(cycle_step=0, turn_type="reasoning", turn_number=1, prompt_text="Capital of France?")
    >>> stated_rollout(state, asked, Reply(cycle_step=0, text="[ANSWER] Paris")).success
    True
    """
    return rollout_policy(stated)(state, asked, reply)
