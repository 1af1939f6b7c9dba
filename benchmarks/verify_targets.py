"""`purestep verify` given fifty typical objects: whether it names the right suite, and calls none of them unasked.

    python -m benchmarks.verify_targets

Each object stands in benchmarks/typical_objects beside the suites of which one is right. The command runs with `--only-name`. A
suite counts as named where it is the one chosen, also where the command goes on to ask for what it lacks (`--with`,
`--declare`), or, for a factory that only its caller may call, the first that is offered.
Writes benchmarks/results/verify_targets.json; exit code 1 below 45 of 50, or if any object was called.
"""

import contextlib
import io
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from attrs import asdict, define

from purestep.properties.framework.catalogue import ROWS, import_named
from purestep.properties.framework.cli import verify_command
from purestep.properties.framework.target import load_module

from . import evidence
from .typical_objects import OBJECTS

HERE = Path(__file__).parent / "typical_objects"
WANTED = 45


@define
class Answer:
    """What the command said of an object."""

    target: str
    wanted: str
    chosen: str  # empty where none fits for certain
    offered: str  # the first that may fit
    right: bool
    called: list[str]
    said: str


def asked(target: str, wanted: tuple[str, ...]) -> Answer:
    """The command's answer."""
    words = target.split()
    if not words[0].startswith("--"):
        load_module(words[0].rpartition(":")[0])  # so that what runs below is none of the import
    out, err = io.StringIO(), io.StringIO()
    with watched() as called, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        verify_command([*words, "--only-name"])
    text = out.getvalue() + err.getvalue()
    wants = re.search(r"verify: \w+ as (\w+) is", text) or re.search(r"verify: (\w+) is a suite of", text)
    chosen = re.search(r": (\w+?)(?:_laws)?, because", out.getvalue()) or wants
    offered = re.search(r"may fit: (\w+)", text)
    names = [match.group(1) if match else "" for match in (chosen, offered)]
    right = (names[0] or names[1]) in wanted
    return Answer(target, wanted[0], names[0], names[1], right, list(called), text.strip()[:300])


@contextlib.contextmanager
def watched() -> Iterator[list[str]]:
    """The functions of the objects' files that run meanwhile."""
    called: list[str] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code: CodeType = frame.f_code
        if event == "call" and code.co_name != "<module>" and Path(code.co_filename).resolve().parent == HERE.resolve():
            called.append(code.co_qualname)

    sys.setprofile(note)
    try:
        yield called
    finally:
        sys.setprofile(None)


def main() -> int:
    """Asks about all, prints, and writes."""
    start, answers = time.perf_counter(), []
    for row in ROWS:
        import_named(row.laws)  # imported now, and not under the eyes of the profiler
    for target, wanted in OBJECTS:
        answer = asked(target, wanted)
        answers.append(answer)
        word = "right" if answer.right else "WRONG"
        called = f"  CALLED {answer.called}" if answer.called else ""
        got = answer.chosen or f"offers {answer.offered or 'nothing'}"
        print(f"{word:6}{target.rpartition('.')[2]:44}{answer.wanted:18}{got}{called}", flush=True)
    figures = {
        "objects": len(answers),
        "right": sum(a.right for a in answers),
        "right_and_chosen": sum(a.right and bool(a.chosen) for a in answers),
        "called": sum(bool(a.called) for a in answers),
        "each": [asdict(a) for a in answers],
    }
    print(*(f"{name}: {value}" for name, value in figures.items() if name != "each"), sep="\n")
    evidence.write("verify_targets", seconds=time.perf_counter() - start, figures=figures)
    return int(sum(a.right for a in answers) < WANTED or any(a.called for a in answers))


if __name__ == "__main__":
    sys.exit(main())
