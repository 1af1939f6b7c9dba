"""Python functions as tools: schemas, references, and calls that raise, hang, print or return too much."""

import os
import sys
import threading
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest

pytest.importorskip("transformers")

from purestep.core.errors import ChoiceError
from purestep.core.language.tool_calls import ToolCall
from purestep.core.language.tools import results_of
from purestep.runtime.effects.hugging_face.optional import library
from purestep.runtime.effects.tools.calls import in_processes, in_threads, lasting_processes
from purestep.runtime.effects.tools.functions import LONGEST, Tool, tool_set, tools_of

CALCULATOR = '''
"""A calculator."""

import time
from math import gcd

LIMIT = 5


def add(a: float, b: float = 1.0) -> float:
    """Add two numbers.

    Args:
        a: the first
        b: the second
    """
    return a + b


def hang() -> str:
    """Hang."""
    while True:
        pass


def leave(code: int) -> None:
    """Leave.

    Args:
        code: of the exit
    """
    import os

    os._exit(code)


def shout(times: int) -> str:
    """Print and return much.

    Args:
        times: how often
    """
    for number in range(times):
        print("x" * 1000, flush=True)
    return "y" * times


def _hidden() -> None:
    """Hide."""
'''


class Drink(Enum):
    TEA, COFFEE = "tea", "coffee"


def brew(drink: Drink, sizes: list[int], milk: Literal["none", "oat"] = "none") -> dict[str, Any]:
    """Brew drinks.

    Args:
        drink: the kind
        sizes: of each cup
        milk: its milk
    """
    return {"drink": drink.name, "cups": len(sizes), "milk": milk}


@pytest.fixture
def calculator(tmp_path: Path) -> str:
    path = tmp_path / "calculator.py"
    path.write_text(CALCULATOR)
    return str(path)


def test_functions_are_found_by_module_by_file_and_as_objects(calculator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = tools_of([f"{calculator}:add"])
    assert (one.name, one.reference) == ("add", f"{calculator}:add")
    assert one.schema == library().utils.get_json_schema(one.function)
    assert [tool.name for tool in tools_of([calculator])] == ["add", "hang", "leave", "shout"]
    folder = Path(calculator).parent
    (folder / "counting_tools.py").write_text(CALCULATOR)
    monkeypatch.syspath_prepend(str(folder))
    found = tools_of(["counting_tools:add", brew])
    assert (found[0].name, found[0].reference) == ("add", "counting_tools:add")
    assert found[1].function is brew
    assert [tool.reference for tool in tools_of(["counting_tools"])][1] == "counting_tools:hang"
    assert tools_of([one.function])[0].reference == f"{calculator}:add"
    assert tools_of([]) == ()
    sets = [tool_set(tools_of(names)) for names in ([calculator], [f"{calculator}:add"], [f"{calculator}:add"])]
    assert sets[0].digest != sets[1].digest == sets[2].digest
    del sys.modules["counting_tools"]


def wordless(a: int) -> int:
    return a


def hintless(a) -> int:  # type: ignore[no-untyped-def]
    """Do it.

    Args:
        a: it
    """
    return int(a)


def undescribed(a: int, b: int) -> int:
    """Do it.

    Args:
        a: it
    """
    return a + b


def threaded(a: threading.Lock) -> None:
    """Do it.

    Args:
        a: it
    """


def several(*a: int) -> None:
    """Do it.

    Args:
        a: it
    """


async def awaited(a: int) -> None:
    """Do it.

    Args:
        a: it
    """


@pytest.mark.parametrize(
    ("function", "got"),
    [
        (wordless, "Cannot generate JSON schema for wordless because it has no docstring!"),
        (hintless, "Argument a is missing a type hint in function hintless"),
        (undescribed, "the docstring has no description for the argument 'b'"),
        (threaded, "Couldn't convert the type hint"),
        (several, "tool several is a function with the parameter a, wanted one that is called with named arguments"),
        (awaited, "tool awaited is a coroutine function, wanted"),
    ],
)
def test_functions_that_say_too_little_are_refused_in_one_line(function: Callable[..., Any], got: str) -> None:
    with pytest.raises(ChoiceError, match=f"^tool {function.__name__} is ") as refused:
        tools_of([function])
    assert got in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("reference", "refusal"),
    [
        (":add", "tool is ':add', wanted MODULE:FUNCTION"),
        ("{}:", "wanted MODULE:FUNCTION"),
        ("{}:sub", "sub in {} is absent, wanted a function; it defines add, hang, leave, shout"),
        ("{}:LIMIT", "LIMIT in {} is int, wanted a function"),
        ("no_such_module:add", "tool: no_such_module is ModuleNotFoundError: .*install it, or name its file"),
        ("nowhere.py:add", "no such file: .*nowhere.py.*check the path"),
        ("purestep", "tool: purestep is without public functions, wanted at least one"),
    ],
)
def test_references_to_nothing_are_refused(reference: str, refusal: str, calculator: str) -> None:
    with pytest.raises(ChoiceError, match=refusal.format(calculator)):
        tools_of([reference.format(calculator)])


def test_a_name_is_given_once(calculator: str) -> None:
    with pytest.raises(ChoiceError, match="tool add is named twice, wanted a name of its own; rename or leave out one"):
        tools_of([calculator, f"{calculator}:add"])


def ask(tools: tuple[Tool, ...], *calls: tuple[str, dict[str, Any]], **how: Any) -> list[str]:
    return [one.text for one in results_of(tool_set(tools, **how), [ToolCall(*call) for call in calls])]


def test_results_are_texts_or_json_and_enumerations_are_made_of_their_values() -> None:
    calls = ("brew", {"drink": "tea", "sizes": [1, 2]}), ("brew", {"drink": "gin", "sizes": []})
    made = ask(tools_of([brew]), *calls, perform=in_threads())
    assert made == [
        '{"drink": "TEA", "cups": 2, "milk": "none"}',
        'Error: brew has a wrong argument: drink is \'gin\', wanted one of ["tea", "coffee"].',
    ]


def test_a_tool_that_raises_or_hangs_in_a_thread_is_an_error() -> None:
    release = threading.Event()

    def wait(seconds: float) -> str:
        """Wait.

        Args:
            seconds: of waiting
        """
        if not release.wait(seconds):
            raise TimeoutError("nobody came")
        return "released"

    made = ask(tools_of([wait]), ("wait", {"seconds": 0.01}), ("wait", {"seconds": 30}), timeout=0.2)
    assert made == ["Error: TimeoutError: nobody came.", "Error: no answer within 0.2 s."]
    release.set()
    assert ask(tools_of([wait]), ("wait", {"seconds": 30}), timeout=20.0) == ["released"]


@pytest.mark.slow
def test_tools_of_a_file_run_in_processes_that_may_hang_die_and_print(
    calculator: str, capfd: pytest.CaptureFixture[str]
) -> None:
    tools, many = tools_of([calculator]), 20 * LONGEST
    began = time.monotonic()
    with in_processes(1) as perform:
        made = ask(
            tools,
            ("add", {"a": 2}),
            ("hang", {}),
            ("leave", {"code": 3}),
            ("shout", {"times": 100}),
            ("add", {"a": 1e400, "b": 1.0}),
            perform=perform,
            timeout=1.0,
        )
        large = tool_set(tools, perform=perform).call("shout", {"times": many})
    assert made[:3] == ["3.0", "Error: no answer within 1 s.", "Error: the tool's process ended."]
    assert made[3:] == ["y" * 100, "Infinity"]
    assert large == f"{'y' * LONGEST}\n(the first {LONGEST} of {many} characters)"
    assert time.monotonic() - began < 60
    printed = capfd.readouterr().err
    assert printed.count("(further prints of a tool are left out)") == 2
    assert len(printed) < 3 * LONGEST


def test_a_file_is_called_in_a_process_of_its_own_and_a_closure_in_this_one(calculator: str) -> None:
    here = []

    def note(text: str) -> None:
        """Note a text.

        Args:
            text: any
        """
        here.append(text)

    path = Path(calculator)
    path.write_text('import os\n\ndef number() -> int:\n    """Return its process."""\n    return os.getpid()\n')
    made = ask(tools_of([calculator, note]), ("number", {}), ("note", {"text": "a"}), ("number", {}))
    assert made[0] == made[2]
    assert made[0].isdigit()
    assert made[1] == "null"
    assert here == ["a"]
    assert int(made[0]) != os.getpid()


def test_workers_start_once_and_limits_are_checked() -> None:
    perform = lasting_processes(1)
    assert perform(divmod, (7, 2), 20.0) == perform(divmod, (7, 2), 20.0)
    wrong: tuple[dict[str, Any], ...] = ({"timeout": 0.0}, {"longest": 0})
    for how in wrong:
        with pytest.raises(ChoiceError, match=r"tools: timeout, longest is .*, wanted more than 0"):
            tool_set((), perform=in_threads(), **how)
