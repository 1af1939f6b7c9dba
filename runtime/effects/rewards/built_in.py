"""Built-in rewards: functions in the convention of `function`, listed in `BUILT_IN`. Imports no torch.

exact, numeric and math compare a completion with the column `answer`, `solution` or `ground_truth`, the first that there is,
and do not apply to rows where it is empty; `regex=PATTERN` searches a pattern, `code` runs tests.
"""

import importlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Context, Decimal
from typing import Any

from ....core.errors import ChoiceError, WorldError, message

Text = str | Sequence[Mapping[str, Any]]  # a completion: a text, or messages
ANSWERS = ("answer", "solution", "ground_truth")
SECONDS = 5  # of a program and its tests
MEMORY = 2 << 30  # bytes that it may address
LARGEST = 16 << 20  # bytes of a file that it may write


def completion_text(completion: Text) -> str:
    """Return the text of a completion: itself, or the content of its last message.

    >>> completion_text("5"), completion_text([{"role": "assistant", "content": "5"}])
    ('5', '5')
    """
    return completion if isinstance(completion, str) else str(completion[-1]["content"])


def exact(
    completions: Sequence[Text],
    answer: Sequence[Any] | None = None,
    solution: Sequence[Any] | None = None,
    ground_truth: Sequence[Any] | None = None,
) -> list[float | None]:
    """Return 1 where a completion equals the answer, leading and trailing white space aside. Raises: ChoiceError.

    >>> exact([" 5\\n", "five", "?"], answer=["5", 5, None])
    [1.0, 0.0, None]
    """
    return _compared(completions, (answer, solution, ground_truth), lambda text, wanted: text.strip() == wanted.strip())


def numeric(
    completions: Sequence[Text],
    answer: Sequence[Any] | None = None,
    solution: Sequence[Any] | None = None,
    ground_truth: Sequence[Any] | None = None,
) -> list[float | None]:
    r"""Return 1 where the number of a completion equals that of the answer: see `number_of`. Raises: ChoiceError.

    It does not apply where the answer has no number.

    >>> numeric(["2 + 3 = 5", "#### 1,000 apples in 3 boxes", r"\boxed{\frac{1}{2}}"], answer=[5, "1000.0", "2"])
    [1.0, 1.0, 0.0]
    """

    def same(text: str, wanted: str) -> bool | None:
        number = number_of(wanted)
        return None if isinstance(number, tuple) else number_of(text) == number

    return _compared(completions, (answer, solution, ground_truth), same)


MARK = re.compile(r"####|\[ANSWER\]|\\boxed\s*\{")
FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
UNSIGNED = r"(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?|\.\d+"
NUMBER = re.compile(rf"(?:(?<![\w.)\]}}])[-+])?(?:{UNSIGNED})(?:\s*/\s*(?:{UNSIGNED}))?")


def number_of(text: str) -> Decimal | tuple[()]:
    r"""Return the last number of a text, or () if it has none; a fraction a/b is one number.

    After the last "####", "[ANSWER]" or "\boxed{", if there is one, it is the first number that follows instead.

    >>> number_of("It is -1,234.50."), number_of("[ANSWER] 3/4 of 8"), number_of("ten")
    (Decimal('-1234.50'), Decimal('0.75'), ())
    """
    marks = list(MARK.finditer(text))
    part = text[marks[-1].end() :] if marks else text
    plain = FRACTION.sub(r"\1/\2", part).replace("−", "-").replace("{,}", ",")
    numbers = NUMBER.findall(plain)
    if not numbers:
        return ()
    above, _, below = numbers[0 if marks else -1].replace(",", "").partition("/")
    try:
        return Decimal(above.strip()) if not below else Context(prec=50).divide(Decimal(above.strip()), Decimal(below))
    except ArithmeticError:  # 1/0
        return ()


def math(
    completions: Sequence[Text],
    answer: Sequence[Any] | None = None,
    solution: Sequence[Any] | None = None,
    ground_truth: Sequence[Any] | None = None,
) -> list[float | None]:
    r"""Return 1 where a completion is mathematically equal to the answer, by the library math-verify. Raises: ChoiceError.

    An answer is LaTeX, with or without $ or \boxed around it, or the part of a text after "####". It does not apply where the
    library cannot read the answer.
    """
    library: Any = importlib.import_module("math_verify")
    boxed = [library.LatexExtractionConfig(boxed_match_priority=0), library.ExprExtractionConfig()]

    def same(text: str, wanted: str) -> bool | None:
        latex = wanted.rpartition("####")[2].strip()
        known = library.parse(latex if DELIMITED.search(latex) else f"${latex}$")
        return bool(library.verify(known, library.parse(text, extraction_config=boxed))) if known else None

    return _compared(completions, (answer, solution, ground_truth), same)


DELIMITED = re.compile(r"\$|\\boxed|\\\(|\\\[")


def _compared(
    completions: Sequence[Text],
    columns: Sequence[Sequence[Any] | None],
    same: Callable[[str, str], bool | None],
) -> list[float | None]:
    given = [column for column in columns if column is not None]
    if not given:
        remedy = "rename the column of answers"
        raise ChoiceError(message("its column", got="absent", wanted=f"one of {', '.join(ANSWERS)}", remedy=remedy))
    wanted = [next((value for value in row if value is not None), None) for row in zip(*given, strict=True)]
    pairs = zip(completions, wanted, strict=True)
    made = [None if value is None else same(completion_text(one), str(value)) for one, value in pairs]
    return [None if one is None else float(one) for one in made]


def regex(pattern: str, completions: Sequence[Text]) -> list[float]:
    """Return 1 where `re.search` finds the pattern in a completion. Flags stand in the pattern: (?s), (?i), (?m).

    >>> regex("^<think>.*</think>", ["<think>2 + 3</think> 5", "5"])
    [1.0, 0.0]
    """
    wanted = re.compile(pattern)
    return [float(wanted.search(completion_text(one)) is not None) for one in completions]


def code(completions: Sequence[Text], tests: Sequence[str | Sequence[str] | None]) -> list[float | None]:
    """Return 1 where the program of a completion passes its tests: Python statements that raise if it is wrong.

    The program is the first block fenced as python, or the whole completion. It runs in a Python process of its own, in an
    empty folder, without this process's environment variables, for at most 5 seconds, with 2 GiB of memory and files of at
    most 16 MiB. This is a limit, not a sandbox: the program has the rights of this user, can read and delete files and use
    the network, and one that looks for the tests in its own process can pass without solving them. Run programs of models
    that you do not trust in a container.

    >>> code(["```python\\ndef f(n):\\n    return n + 1\\n```", "def f(n): return n"], ["assert f(1) == 2"] * 2)
    [1.0, 0.0]
    """
    pairs = zip(completions, tests, strict=True)
    return [None if test is None else float(_passes(program_of(completion_text(one)), test)) for one, test in pairs]


def program_of(text: str) -> str:
    """Return the first block of a text that is fenced as python, or the whole text."""
    block = re.search(r"```(?:python3?|py)[^\S\n]*\n(.*?)(?:```|\Z)", text, re.DOTALL | re.IGNORECASE)
    return block[1] if block else text


LIMITED = """
import json, os, resource, sys, types
given = json.load(sys.stdin)
for name, most in given.pop("limits").items():
    hard = resource.getrlimit(getattr(resource, name))[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(getattr(resource, name), (most, most))
os.write(given["end"], b"begun ")
module = sys.modules["completion"] = types.ModuleType("completion")
exec(compile(given.pop("program"), "completion", "exec"), vars(module))
exec(compile(given.pop("tests"), "tests", "exec"), vars(module))
os.write(given.pop("end"), given.pop("passed").encode())
"""  # a program that exits before its tests have passed does not write the last word


def _passes(program: str, tests: str | Sequence[str]) -> bool:
    passed, (result, end) = secrets.token_hex(16), os.pipe()
    os.set_blocking(result, False)
    limits = {"RLIMIT_CPU": SECONDS, "RLIMIT_AS": MEMORY, "RLIMIT_FSIZE": LARGEST, "RLIMIT_CORE": 0}
    joined = tests if isinstance(tests, str) else "\n".join(tests)
    given = {"program": program, "tests": joined, "limits": limits, "end": end, "passed": passed}
    with open(result, "rb", buffering=0) as pipe, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-c", LIMITED],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env={"PATH": os.defpath, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                pass_fds=(end,),
                process_group=0,  # in this worker's session, so that it ends with this worker
            )
        finally:
            os.close(end)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(json.dumps(given).encode(), timeout=SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # and what it has started
        process.communicate()
        begun, _, last = (pipe.read(64) or b"").decode(errors="replace").partition(" ")
    if begun != "begun":
        wanted, remedy = f"in {SECONDS} s", "use a machine with more processors or memory"
        raise WorldError(message("the program", got="not started", wanted=wanted, remedy=remedy))
    return last == passed


BUILT_IN: Mapping[str, Callable[..., Any]] = {
    "exact": exact,
    "numeric": numeric,
    "regex": regex,
    "math": math,
    "code": code,
}
COMPARING = ("exact", "numeric", "math")  # with one of the columns ANSWERS
