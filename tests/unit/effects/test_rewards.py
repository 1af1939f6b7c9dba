"""Reward functions: TRL's convention, built-in ones, and what fails costs its own samples alone."""

import gc
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from purestep.core.errors import ChoiceError
from purestep.core.language.episode import Grade
from purestep.core.language.prompts import PromptRow, RepliedPrompt, Rewards
from purestep.runtime.effects.rewards.built_in import code, exact, math, number_of, numeric, program_of
from purestep.runtime.effects.rewards.grader import check_rewards, foreign, rewards_of

FILE = Path(__file__).parents[2] / "support" / "reward_functions.py"


def of_file(*names: str) -> list[str]:
    return [f"{FILE}:{name}" for name in names]


def text(said: str, prompt: str = "2 + 3?", ids: tuple[int, ...] = (), **columns: Any) -> RepliedPrompt:
    return RepliedPrompt(PromptRow(prompt, columns), said, ids, (("assistant", said),))


def chat(said: str, prompt: str = "2 + 3?", **columns: Any) -> RepliedPrompt:
    return RepliedPrompt(PromptRow((("user", prompt),), columns), said, (), (("assistant", said),))


def numbers(rewards: Rewards, *replies: RepliedPrompt) -> list[Any]:
    """The reward of each reply, or its error."""
    return [one.error or one.reward for one in rewards(replies)]


# --- the convention of TRL ---


def test_functions_written_for_trl_run_unchanged() -> None:
    rewards, parts = rewards_of(of_file("accuracy_reward", "format_reward", "reward_len"), [1.0, 0.5, 0.25])
    assert parts == ("accuracy_reward", "format_reward", "reward_len")
    right = RepliedPrompt(
        PromptRow((("system", "Think."), ("user", "2 + 3?")), {"solution": "5"}),
        r"<think>2 + 3</think><answer>\boxed{5}</answer>",
        (1, 2, 3, 4),
    )
    assert rewards((right, chat(r"\boxed{6}", solution="5"))) == (
        Grade(0.5, {"accuracy_reward": 1.0, "format_reward": 1.0, "reward_len": -4.0}),
        Grade(0.0, {"accuracy_reward": 0.0, "format_reward": 0.0, "reward_len": -0.0}),
    )


def test_an_async_function_runs_in_one_event_loop() -> None:
    rewards, _ = rewards_of(of_file("judged", "one_loop"), workers=1)
    for _ in range(2):
        assert numbers(rewards, text("2 + 3? 5"), text("5")) == [2.0, 1.0]


def test_none_leaves_a_function_out_and_all_none_is_an_error() -> None:
    rewards, _ = rewards_of(of_file("math_only", "code_only"), [2.0, 3.0])
    found = rewards((text("5", task="math"), text("def f(): ...", task="code"), text("5", task="other")))
    assert found[:2] == (Grade(2.0, {"math_only": 1.0}), Grade(3.0, {"code_only": 1.0}))
    assert found[2] == Grade(error="rewards math_only, code_only: none applies to this sample")


def test_texts_and_chat_messages_are_two_calls() -> None:
    given = text("a"), chat("b"), text("c"), chat("d"), text("e")
    rewards, _ = rewards_of(of_file("size_of_batch"), workers=1)
    assert numbers(rewards, *given) == [3.0, 102.0, 3.0, 102.0, 3.0]
    divided, _ = rewards_of(of_file("size_of_batch"), workers=2)
    assert numbers(divided, *given) == [1.0, 101.0, 2.0, 101.0, 2.0]


def test_a_function_sees_all_messages_that_follow_a_prompt_of_chat() -> None:
    seen: list[Any] = []

    def look(prompts: Any, completions: Any) -> list[float]:
        seen.extend([prompts, completions])
        return [0.0]

    said = (("assistant", "LOOKUP"), ("tool", "5"), ("assistant", "It is 5."))
    rewards_of([look])[0]((RepliedPrompt(PromptRow((("user", "2 + 3?"),)), "It is 5.", (), said),))
    assert seen == [
        [[{"role": "user", "content": "2 + 3?"}]],
        [[{"role": role, "content": text} for role, text in said]],
    ]


def test_a_function_without_kwargs_gets_its_own_parameters() -> None:
    rewards, _ = rewards_of(of_file("by_keywords"))
    assert numbers(rewards, text("a", answer="5", other=1), text("b", answer="6", other=1)) == [10.0, 10.0]
    assert numbers(rewards, text("a", answer="5", level=1)) == [11.0]


def test_a_column_that_is_absent_is_refused_with_those_that_there_are() -> None:
    line = "parameter 'answer' is in no column, wanted one of ['level', 'target']; rename the parameter or the column"
    rewards, _ = rewards_of(of_file("by_keywords"))
    assert numbers(rewards, text("a", target="5", level=1)) == [f"reward by_keywords: {line}"]
    with pytest.raises(ChoiceError) as refused:
        check_rewards(of_file("by_keywords"), columns=["target", "level"])
    assert str(refused.value) == f"reward {FILE}:by_keywords: {line}"
    with pytest.raises(
        ChoiceError, match=r"reward exact: the answer is in none of \['target'\], wanted in one of answer,"
    ):
        check_rewards(["exact"], columns=["target"])
    check_rewards([*of_file("by_keywords"), "exact"], columns=["answer"])


def test_names_of_parts_are_short_and_unique() -> None:
    names: list[Any] = [
        "package.rewards:good",
        "other.py:good",
        "regex=a:b",
        "regex=(?i)x y",
        "exact",
        lambda completions: [],
    ]
    assert rewards_of(names)[1] == ("good", "good_2", "regex", "regex_2", "exact", "lambda")
    assert foreign([name for name in names if isinstance(name, str)]) == ("package.rewards:good", "other.py:good")


# --- where functions run ---


def test_a_module_is_imported_in_workers_alone_and_its_prints_are_errors(capfd: pytest.CaptureFixture[str]) -> None:
    names = [*of_file("process"), "reward_functions:process"]
    check_rewards(names)
    rewards, parts = rewards_of(names, workers=1)
    (found,) = rewards((text("a"),))
    assert parts == ("process", "process_2")
    assert os.getpid() not in found.parts.values()
    assert not [name for name in sys.modules if name.endswith("reward_functions")]
    printed = capfd.readouterr()
    assert (printed.out, "called" in printed.err) == ("", True)


def ended(pid: int) -> bool:
    until = time.monotonic() + 15.0
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
        time.sleep(0.01)
    return not Path(f"/proc/{pid}").exists()


needs_proc = pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes as Linux lists them")


@needs_proc
def test_workers_end_with_the_function() -> None:
    rewards, _ = rewards_of(of_file("process"))
    pid = int(rewards((text("a"),))[0].reward)
    assert Path(f"/proc/{pid}").exists()
    del rewards
    gc.collect()
    assert ended(pid)


@needs_proc
@pytest.mark.slow  # a process that imports torch
def test_workers_end_with_the_process() -> None:
    program = f"""
from purestep.core.language.prompts import PromptRow, RepliedPrompt
from purestep.runtime.effects.rewards.grader import rewards_of
rewards, _ = rewards_of(["{FILE}:process"])
print(int(rewards((RepliedPrompt(PromptRow(""), ""),))[0].reward), flush=True)
"""
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=settings, check=True)
    assert ended(int(done.stdout))


def test_functions_as_objects_run_in_threads_and_write_to_copies() -> None:
    where: list[threading.Thread] = []

    async def greedy(completions: Any, answer: Any) -> list[float]:
        where.append(threading.current_thread())
        answer[0].clear()
        return [1.0]

    row = text("a", answer=["5"])
    assert numbers(rewards_of([greedy])[0], row) == [1.0]
    assert row.row.columns["answer"] == ["5"]
    assert where[0] is not threading.main_thread()


# --- what fails ---


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        ("raises", "reward misbehaving: ValueError: no number"),
        ("exits", "reward misbehaving: SystemExit: 3"),
        pytest.param("hangs", "reward misbehaving: no result within 0.5 s", marks=pytest.mark.slow),
        ("dies", "reward misbehaving: its process ended"),
        (
            "too few",
            "reward misbehaving: ShapeError: its result is 0 numbers, wanted 1, one a completion; None where none applies",
        ),
        (
            "no list",
            "reward misbehaving: StructureError: its result is dict, wanted a list of numbers; return one for each completion",
        ),
        ("infinite", "reward misbehaving: infinite, wanted a number or None"),
        ("too large", "reward misbehaving: infinite, wanted a number or None"),
        ("text", "reward misbehaving: str, wanted a number or None"),
        ("NaN", "rewards misbehaving: none applies to this sample"),
        ("none", "rewards misbehaving: none applies to this sample"),
    ],
)
def test_a_sample_that_a_function_fails_at_costs_no_other_its_reward(behaviour: str, error: str) -> None:
    rewards, _ = rewards_of(of_file("misbehaving"), seconds=0.5)
    said = ["a", behaviour, "b", "c"]
    assert numbers(rewards, *map(text, said)) == [1.0, error, 1.0, 1.0]
    assert numbers(rewards, text("a")) == [1.0]


def test_a_function_that_always_hangs_is_called_a_bounded_number_of_times() -> None:
    release, calls = threading.Event(), list[int]()

    def hangs(completions: Any) -> list[float]:
        calls.append(len(completions))
        release.wait(30.0)
        return []

    start = time.monotonic()
    found = numbers(rewards_of([hangs], seconds=0.05)[0], *[text("a")] * 64)
    release.set()
    assert found == ["reward hangs: no result within 0.05 s"] * 64
    assert len(calls) <= 14  # 12 time limits, and what was under way beside the last of them
    assert calls[:3] == [64, 32, 32]
    assert time.monotonic() - start < 10.0


def test_too_many_calls_that_hang_are_an_error_and_not_the_end() -> None:
    release = threading.Event()

    def hangs(completions: Any) -> list[float]:
        release.wait(30.0)
        return [1.0]

    rewards, _ = rewards_of([hangs], seconds=0.01, workers=4)
    found = {numbers(rewards, text("a"))[0] for _ in range(40)}
    release.set()
    assert {line.partition(" is ")[0] for line in found} == {
        "reward hangs: no result within 0.01 s",
        "reward hangs: in_threads: calls given up",
    }


def test_columns_that_cannot_be_sent_are_an_error() -> None:
    (line,) = numbers(rewards_of(["exact"])[0], text("5", answer=threading.Lock()))
    assert line.startswith("reward exact: in_processes: call is not to be sent (TypeError")


def test_a_sum_beyond_float32_is_an_error() -> None:
    def large(completions: Any) -> list[float]:
        return [1e38 for _ in completions]

    assert numbers(rewards_of([large], [10.0])[0], text("a")) == [
        "rewards large: their weighted sum is 1e+39, out of the range of float32"
    ]


# --- what is refused before anything is built ---


@pytest.mark.parametrize(
    ("names", "weights", "line"),
    [
        ([], (), "rewards is none, wanted a list of at least 1; name MODULE:FUNCTION, FILE.py:FUNCTION or one of"),
        ("exact", (), "rewards is 'exact', wanted a list of at least 1;"),
        (["exact"], (1.0, 2.0), "weights of rewards is 2 numbers, wanted 1, one for each reward; give as many"),
        (["exact"], (float("nan"),), "weight of a reward is nan, wanted a finite number; change it"),
        (["exakt"], (), "reward is 'exakt', wanted MODULE:FUNCTION, FILE.py:FUNCTION or one of exact, numeric,"),
        (["exact=5"], (), "reward is 'exact=5', wanted exact; write it so"),
        (["regex"], (), "reward is 'regex', wanted regex=PATTERN; write it so"),
        (["regex=("], (), "reward regex=( is no pattern (missing ), unterminated subpattern at position 0), wanted a"),
        (["rewards.py:"], (), "reward is 'rewards.py:', wanted MODULE:FUNCTION, FILE.py:FUNCTION or one of"),
    ],
)
def test_names_and_weights_are_refused_at_once(names: Any, weights: Any, line: str) -> None:
    for refuse in (check_rewards, rewards_of):
        with pytest.raises(ChoiceError) as refused:
            refuse(names, weights)
        assert str(refused.value).startswith(line)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (
            "no_such_module:reward",
            "module: no_such_module is ModuleNotFoundError: No module named 'no_such_module', wanted a module that can be "
            "imported; install it, or name its file: FILE.py:NAME",
        ),
        ("/nowhere/rewards.py:reward", "module: /nowhere/rewards.py is FileNotFoundError: no such file:"),
        (f"{FILE}:missing", f"missing is absent, wanted a function of '{FILE}'; name it as the module does"),
        (f"{FILE}:NUMBER", "it is of type int, wanted a function; e.g. reward(completions, **columns)"),
        (f"{FILE}:positional", "parameter 'completions' is positional-only, wanted one that can be given by keyword;"),
        (
            f"{FILE}:of_one",
            "it is a function of (completion, answer), wanted one with a parameter completions or completion_ids;",
        ),
        (lambda answer: [1.0], "it is a function of (answer), wanted one with a parameter completions or"),
    ],
    ids=["module", "file", "function", "number", "positional", "of one", "object"],
)
def test_a_function_is_refused_before_anything_is_built(name: str | Callable[..., Any], line: str) -> None:
    with pytest.raises(ChoiceError) as refused:
        check_rewards([name])
    where = "lambda" if callable(name) else name
    assert str(refused.value).startswith(f"reward {where}: {line}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("source", "got"),
    [
        ("import os\nos._exit(3)", "its process ended"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def reward(:", "SyntaxError"),
    ],
)
def test_a_module_that_cannot_be_imported_is_refused(tmp_path: Path, source: str, got: str) -> None:
    path = tmp_path / "rewards_of_mine.py"
    path.write_text(source)
    with pytest.raises(ChoiceError, match=re.escape(got)) as refused:
        check_rewards([f"{path}:reward"])
    assert "\n" not in str(refused.value)
    (line,) = numbers(rewards_of([f"{path}:reward"])[0], text("a"))
    assert got in line


@pytest.mark.parametrize(("seconds", "workers"), [(0.0, 2), (float("nan"), 2), (1.0, 0)])
def test_settings_that_allow_no_call_are_refused(seconds: float, workers: int) -> None:
    with pytest.raises(ChoiceError, match="rewards: "):
        rewards_of(["exact"], seconds=seconds, workers=workers)


# --- built in ---


def test_exact_takes_the_first_column_of_answers_that_is_not_empty() -> None:
    rewards, _ = rewards_of(["exact"])
    found = numbers(rewards, text(" 5 ", answer=5), text("5", solution="5"), chat("6", ground_truth="5"), text("5"))
    assert found[:3] == [1.0, 1.0, 0.0]
    assert found[3] == "rewards exact: none applies to this sample"
    assert "its column is absent, wanted one of answer, solution, ground_truth" in numbers(rewards, text("5"))[0]
    assert exact(["5"], solution=["6"], answer=[None]) == [0.0]


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ("5", "5"),
        ("It costs $1,234.50.", "1234.5"),
        ("10-3=7", "7"),
        ("so 5-3", "3"),
        ("x = -3", "-3"),
        ("x = −3", "-3"),
        ("(-2)", "-2"),
        ("a list 1,2,3", "3"),
        ("1,000,000", "1000000"),
        ("1e-3", "0.001"),
        (".5", "0.5"),
        ("3/4", "0.75"),
        ("6 / 8", "0.75"),
        (r"\boxed{\frac{3}{4}} of 7", "0.75"),
        (r"\boxed{1{,}000}", "1000"),
        (r"no, \boxed{2}, but \boxed{7 apples in 3 boxes}", "7"),
        ("3 and 4 #### 18 of 20", "18"),
        ("#### 4 [ANSWER] 5", "5"),
        ("H2O is 18g", "18"),
    ],
)
def test_the_number_of_a_text(said: str, number: str) -> None:
    assert number_of(said) == number_of(number)
    assert f"{number_of(number):f}" == number or "e" in f"{number_of(number)}"


@pytest.mark.parametrize("said", ["", "five", "####", "3 [ANSWER] none", "1/0", "1e99999999999999999999"])
def test_a_text_without_a_number(said: str) -> None:
    assert number_of(said) == ()
    assert numeric([said], answer=["5"]) == [0.0]
    assert numeric(["5"], answer=[said]) == [None]


def test_numbers_that_are_too_long_to_compute_with_are_compared() -> None:
    assert numeric(["9" * 10_000, "1e999999999", "1e999999999"], answer=["9" * 10_000, "1e999999999", 1]) == [
        1.0,
        1.0,
        0.0,
    ]


def test_a_pattern_is_searched_and_one_that_backtracks_for_ever_costs_its_sample() -> None:
    rewards, _ = rewards_of([r"regex=^(a+)+$"], seconds=0.3)
    assert numbers(rewards, text("aaa"), text("a" * 40 + "b"), chat("b")) == [
        1.0,
        "reward regex: no result within 0.3 s",
        0.0,
    ]


def test_code_is_the_first_block_of_python_or_the_whole_text() -> None:
    assert program_of("Here:\n```python\nx = 1\n```\nor\n```python\nx = 2\n```") == "x = 1\n"
    assert program_of("```Python\nx = 1") == "x = 1"
    assert program_of("x = 1") == "x = 1"
    assert program_of("```sh\nls\n```\n```py\nx = 1\n```") == "x = 1\n"


@pytest.mark.parametrize(
    ("program", "passes"),
    [
        ("def f(n): return n + 1", 1.0),
        ("def f(n): return n", 0.0),
        ("def f(n:", 0.0),
        ("import os\nos._exit(0)", 0.0),
        ("raise SystemExit(0)", 0.0),
        ("f = lambda n: n + 1\nprint('x' * 10**7)", 1.0),
        ("import os\nassert not os.environ.get('PYTHONPATH') and not os.listdir()\nf = lambda n: n + 1", 1.0),
        ("x = bytearray(3 << 30)\nf = lambda n: n + 1", 0.0),
        ("open('x', 'wb').write(bytes(17 << 20))\nf = lambda n: n + 1", 0.0),
        ("if __name__ == '__main__': input()\nf = lambda n: n + 1", 1.0),
    ],
)
def test_code_passes_its_tests_or_does_not(program: str, passes: float) -> None:
    assert code([program], [["assert f(1) == 2", "assert f(2) == 3"]]) == [passes]


@pytest.mark.slow
def test_code_that_never_ends_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("purestep.runtime.effects.rewards.built_in.SECONDS", 1)
    assert code(["while True: pass", "def f(n): return 2"], ["assert f(1) == 2"] * 2) == [0.0, 1.0]
    assert code(["f = 1"], [None]) == [None]


@pytest.mark.slow
@needs_proc
def test_processes_that_code_starts_end_with_it(tmp_path: Path) -> None:
    program = (
        f"import subprocess\npid = subprocess.Popen(['sleep', '60']).pid\nopen('{tmp_path}/pid', 'w').write(str(pid))"
    )
    assert code([program], ["assert pid"]) == [1.0]
    assert ended(int((tmp_path / "pid").read_text()))


def test_mathematically_equal_answers() -> None:
    pytest.importorskip("math_verify", reason="needs the extra math")
    said = [r"It is $\boxed{1 + x^2}$", "2", r"so $2\pi$", "0.5", "the answer is 18", r"\boxed{5}", "no"]
    wanted = ["x^2+1", r"2\pi", r"$2\pi$", r"\frac{1}{2}", "4 + 14 = 18 #### 18", "x=5", "7"]
    assert math(said, answer=wanted) == [1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0]


def test_math_without_its_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with pytest.raises(ChoiceError, match=r"math-verify is absent, wanted installed; pip install 'purestep\[math\]'"):
        check_rewards(["math"])


# --- functions of TRL itself ---


def test_functions_of_trl(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="calls functions of TRL")
    pytest.importorskip("math_verify", reason="which need math-verify")
    path = tmp_path / "of_trl.py"
    path.write_text(
        "from trl.rewards import get_soft_overlong_punishment\noverlong = get_soft_overlong_punishment(10, 4)\n"
    )
    names = ["trl.rewards:think_format_reward", "trl.rewards:accuracy_reward", f"{path}:overlong"]
    check_rewards(names, columns=["solution"])
    thought = "<think>\nA third.\n</think>\nMy answer is \\boxed{\\frac{1}{3}}"
    row = PromptRow((("user", "1 / 3?"),), {"solution": r"\frac{1}{3}"})
    found = rewards_of(names)[0]((RepliedPrompt(row, thought, (7,) * 8), RepliedPrompt(row, "\\boxed{1}", (7,) * 2)))
    assert [[*one.parts.values()] for one in found] == [[1.0, 1.0, -0.5], [0.0, 0.0, 0.0]]
