"""What is refused of a text task before anything is built for it, in one line; and that tasks as they should be are not."""

import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve, frozen

from purestep.core import keys
from purestep.core.errors import PurestepError
from purestep.core.language.parsers import Call, Parsed
from purestep.core.language.task import TextTask
from purestep.core.language.text_env import Outcome, Raised, TextEnv
from purestep.core.language.zorplex.task import zorplex_task
from purestep.properties.suites.language import text_env
from purestep.runtime.text.columns import TAKEN
from purestep.runtime.text.config import TaskRun
from purestep.runtime.text.training_loop import metric_columns
from purestep.runtime.text.validate_task import validate_task

from ...support.example_tasks import MARKET, SAFE, example

COUNT = itertools.count()


@frozen
class Sum:
    """What is asked for."""

    answer: int
    tries: int = 0


def reset(params: Any, key: keys.Key) -> tuple[Sum, str]:
    answer = int(keys.randint(key, (), 0, 10))
    return Sum(answer), f"1 + {answer - 1}?"


def act(params: Any, state: Sum, action: Any, key: keys.Key) -> tuple[Sum, Outcome]:
    right = str(state.answer) == action
    return evolve(state, tries=state.tries + 1), Outcome("" if right else "no", float(right), terminated=right)


def parser(text: str) -> Parsed:
    return Parsed(text) if text.isdigit() else Parsed((), -0.1, "a number")


def right(attempt: Any) -> float:
    return float(any(made.terminated for made in attempt.episode.steps))


ENV = TextEnv((), reset, act)
TASK = TextTask(
    name="sums",
    env=lambda stream: ENV,
    parser=parser,
    figures={"accuracy": right},
    diagnostics={"tries": lambda attempt: attempt.episode.world.tries},
    demonstrations=lambda params, state, key, skill: [str(state.answer) if skill > 0.5 else "3"],
    solution=lambda state: str(state.answer),
    corpus=lambda: ["1 + 2?"],
)


def env(**changes: Any) -> dict[str, Any]:
    return {"env": lambda stream: evolve(ENV, **changes)}


def outcome(**changes: Any) -> dict[str, Any]:
    """A world whose steps end so."""
    return env(step=lambda params, state, action, key: (state, Outcome(**{"observation": "no", **changes})))


def raising(*given: Any) -> Any:
    raise ValueError("nothing\nthere")


class Plain:
    """A class whose values are equal to nothing but themselves."""


class Counting:
    """A state that is written to."""

    def __init__(self, value: int) -> None:
        self.answer = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counting) and self.answer == other.answer

    __hash__ = None  # type: ignore[assignment]


def bump(params: Any, state: Counting, action: Any, key: keys.Key) -> tuple[Counting, Outcome]:
    state.answer += 1
    return state, Outcome("no")


ERROR = "ValueError: nothing there"
AGAIN = "the second time, wanted the same for the same key and actions; draw everything from the key"
FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "name": ({"name": ""}, "task: name is '', wanted a word"),
    "env, no function": ({"env": ENV}, "task sums: env is TextEnv, wanted a function"),
    "env raises": ({"env": raising}, f"task sums: env('training') is {ERROR}, wanted a TextEnv"),
    "env, no TextEnv": ({"env": lambda stream: (reset, act)}, "task sums: env('training') is tuple, wanted a TextEnv"),
    "a stream": (
        {"env": lambda stream: ENV if stream == "training" else None},
        "task sums: env('evaluation') is NoneType, wanted a TextEnv; return TextEnv(params, reset, step)",
    ),
    "reset raises": (env(reset=raising), f"task sums: reset is {ERROR}, wanted (state, observation)"),
    "reset, one value": (env(reset=lambda params, key: "0-9?"), "task sums: reset is str '0-9?', wanted (state, obs"),
    "first observation": (
        env(reset=lambda params, key: (Sum(1), b"0-9?")),
        "task sums: reset: observation is bytes b'0-9?', wanted a text; return a str",
    ),
    "reset by chance": (
        env(reset=lambda params, key: (Sum(next(COUNT)), "?")),
        f"task sums: reset is another state {AGAIN}",
    ),
    "observation by chance": (
        env(reset=lambda params, key: (Sum(1), f"{next(COUNT)}?")),
        f"task sums: reset is another observation {AGAIN}",
    ),
    "a state that is no value": (
        env(reset=lambda params, key: (Plain(), "?")),
        "task sums: reset: state is a Plain that is not equal to its copy, wanted a value; make states of numbers",
    ),
    "a state that cannot be copied": (
        env(reset=lambda params, key: ((one for one in "ab"), "?")),
        "task sums: reset: state is a generator that cannot be copied (TypeError: cannot pickle",
    ),
    "a state that is written to": (
        env(reset=lambda params, key: (Counting(0), "?"), step=bump),
        "task sums: step on ...: state is written to, wanted left as it was; return a new state",
    ),
    "step raises": (env(step=raising), f"task sums: step on ... is {ERROR}, wanted (state, Outcome)"),
    "step, no outcome": (
        env(step=lambda params, state, action, key: (state, "no", 0.0)),
        "wanted (state, Outcome); return both",
    ),
    "step by chance": (
        env(step=lambda params, state, action, key: (state, Outcome(reward=float(next(COUNT))))),
        f"task sums: step is another outcome {AGAIN}",
    ),
    "observation": (outcome(observation=None), ": observation is NoneType None, wanted a text"),
    "reward, no number": (outcome(reward="1"), ": reward is str '1', wanted a number; return a float"),
    "reward, not finite": (outcome(reward=math.nan), ": reward is nan, wanted a finite number"),
    "terminated": (outcome(terminated=1), ": terminated is int 1, wanted a bool; convert it with bool()"),
    "truncated": (outcome(truncated=None), ": truncated is NoneType None, wanted a bool"),
    "parser raises": ({"parser": raising}, f"is {ERROR}, wanted a Parsed; mend it: --debug shows where"),
    "parser exits": ({"parser": lambda text: exit(3)}, "is SystemExit: 3, wanted a Parsed"),
    "parser, no Parsed": ({"parser": lambda text: text}, "wanted a Parsed; return Parsed(action), or Parsed((), rew"),
    "parser's reward": ({"parser": lambda text: Parsed((), math.inf)}, ": reward is inf, wanted a finite number"),
    "feedback": ({"parser": lambda text: Parsed((), 0.0, 3)}, ": feedback is int 3, wanted a text"),  # type: ignore[arg-type]
    "parser by chance": (
        {"parser": lambda text: Parsed(text) if next(COUNT) % 2 else Parsed(())},
        "the second time, wanted the same",
    ),
    "a tool": (
        {**env(tools={"ASK": lambda params, state, word: 3}), "parser": lambda text: Parsed(Call("ASK", text))},
        "task sums: tool ASK is int 3, wanted a text",
    ),
    "a tool by chance": (
        {
            **env(tools={"ASK": lambda params, state, word: str(next(COUNT))}),
            "parser": lambda text: Parsed(Call("ASK", text)),
        },
        f"task sums: tool ASK is another text {AGAIN}",
    ),
    "a tool in small letters": (env(tools={"ask": raising}), "protocol: tools is ['ask'], wanted names in capitals"),
    "figures": ({"figures": [right]}, "task sums: figures is list, wanted a mapping of names to functions"),
    "a figure's name": (
        {"figures": {"loss": right}},
        "figures: name is 'loss', which metrics have a column for, wanted",
    ),
    "a figure's slash": (
        {"figures": {"label/a": right}},
        "figures: name is 'label/a', wanted a name of its own, without",
    ),
    "two of a name": (
        {"diagnostics": {"accuracy": right}},
        "task sums: diagnostics is ['accuracy'], wanted no names of figures",
    ),
    "a figure that raises": (
        {"figures": {"last": lambda attempt: attempt.episode.steps[-1].reward}},
        "task sums: figure 'last' is IndexError: tuple index out of range, wanted a number for every attempt, also one",
    ),
    "a figure, no number": ({"figures": {"end": lambda one: "x"}}, "figure 'end' is str 'x', wanted a number; return"),
    "a figure, not finite": ({"figures": {"end": lambda one: math.nan}}, "figure 'end' is nan, wanted a finite number"),
    "a diagnostic": ({"diagnostics": {"end": raising}}, f"task sums: figure 'end' is {ERROR}"),
    "a label that raises": ({"label": raising}, f"task sums: label is {ERROR}, wanted a label for every attempt"),
    "a label outside": (
        {"label": lambda one: "lost"},
        "task sums: label is 'lost', wanted one of ['terminated', 'env'",
    ),
    "a label where it raised": (
        {"label": lambda one: "broken" if isinstance(one.end, Raised) else "fine", "labels": ("fine",)},
        "task sums: label is 'broken', wanted one of ['fine']; add it to `labels`",
    ),
    "labels": ({"labels": ("a", "a")}, "task sums: labels is ('a', 'a'), wanted a tuple of names, each once"),
    "labels, a text": ({"labels": "ab"}, "task sums: labels is 'ab', wanted a tuple of names, each once"),
    "demonstrations raise": ({"demonstrations": raising}, f"task sums: demonstrations is {ERROR}, wanted a list of te"),
    "no demonstrations": (
        {"demonstrations": lambda *given: []},
        "task sums: demonstrations is empty, wanted a list of texts; return at least one",
    ),
    "demonstrations, a text": (
        {"demonstrations": lambda *given: "3"},
        "demonstrations is str '3', wanted a list of texts",
    ),
    "demonstrations, no texts": (
        {"demonstrations": lambda *given: [3]},
        "task sums: demonstrations is int 3, wanted a t",
    ),
    "demonstrations by chance": (
        {"demonstrations": lambda *given: [str(next(COUNT))]},
        f"task sums: demonstrations is another list of texts {AGAIN}",
    ),
    "an unskilled demonstrator": (
        {"demonstrations": lambda params, state, key, skill: ["3"] if skill else raising()},
        f"task sums: demonstrations is {ERROR}",
    ),
    "conversations raise": ({"conversations": raising}, f"task sums: conversations is {ERROR}, wanted a list of conv"),
    "conversations, texts": (
        {"conversations": lambda key, number, skill: ["1 + 2?", "3"]},
        "task sums: conversations is str '1 + 2?', wanted a list of texts",
    ),
    "conversations by chance": (
        {"conversations": lambda key, number, skill: [("1 + 2?", str(next(COUNT)))]},
        f"task sums: conversations is another list of conversations {AGAIN}",
    ),
    "preparation": (
        {"preparation": reset},
        "task sums: preparation is function, wanted a value of purestep.core.language.preparation.Preparation",
    ),
    "evaluation": ({"evaluation": right}, "task sums: evaluation is function, wanted a value of"),
    "solution": ({"solution": lambda state: state.answer}, "task sums: solution is int"),
    "corpus": ({"corpus": lambda: "1 + 2?"}, "task sums: corpus is str '1 + 2?', wanted a list of texts"),
    "instructions": ({"instructions": 3}, "task sums: instructions is int, wanted a text"),
    "tool_budget": ({"tool_budget": -1}, "task sums: tool_budget is -1, wanted a whole number, 0 or more"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_line(fault: str) -> None:
    changes, line = FAULTS[fault]
    with pytest.raises(PurestepError) as caught:
        validate_task(evolve(TASK, **changes))
    assert re.search(".*".join(map(re.escape, line.split("..."))), str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)


MINIMAL = TextTask(name="least", env=lambda stream: ENV, parser=parser)
TASKS: dict[str, Callable[[], TextTask]] = {
    "sums": lambda: TASK,
    "least": lambda: MINIMAL,
    "both flags": lambda: evolve(TASK, **outcome(terminated=True, truncated=True)),
    "safe": lambda: example(SAFE),
    "market": lambda: example(MARKET),
    **{
        f"zorplex {kind}": lambda kind=kind: zorplex_task(kind)  # type: ignore[misc]
        for kind in ("simple", "compositional", "multi_step", "recursive")
    },
}


@pytest.mark.parametrize("name", TASKS)
def test_a_task_as_it_should_be_passes(name: str) -> None:
    task = TASKS[name]()
    assert validate_task(task) is task


def test_what_is_no_task_is_one_line() -> None:
    with pytest.raises(PurestepError, match="task is TextEnv, wanted a TextTask; make one: purestep"):
        validate_task(ENV)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        text_env.asks_by_chance,
        text_env.knows_calls_alone,
        text_env.remembers_beside_the_state,
        text_env.pays_answers_with_nan,
    ],
)
def test_worlds_that_break_a_law_are_refused(wrong: Callable[[Any], Any]) -> None:
    own = zorplex_task("simple")
    with pytest.raises(PurestepError, match=r"task zorplex: (reset|step)"):
        validate_task(evolve(own, env=lambda stream: wrong(own.env(stream))))


def test_names_that_a_figure_cannot_have_are_those_of_columns() -> None:
    least = evolve(MINIMAL, labels=("terminated",))
    assert set(metric_columns(TaskRun(), least)) - {"label/terminated"} <= TAKEN
