"""Recorded runs opened by today's code: evaluated, viewed, plotted, resumed to their end."""

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import frozen

from purestep.runtime.cli import main
from purestep.runtime.effects.checkpoint.single import differences, environment

HERE = Path(__file__).resolve().parents[1] / "recorded_runs"
QUICK = ("ppo", "ppo_normalized", "a2c", "reinforce")
UNTOLD = ("program", "ranks")  # facts that name the code, and not the machine


def names() -> list[str]:
    """KIND/NAME of each recorded run."""
    return sorted(path.parent.relative_to(HERE).as_posix() for path in HERE.glob("*/*/recorded.json"))


@frozen
class Opened:
    """A run after all commands: their exit codes, the lines of the refused ones, and whether its last state is as recorded."""

    codes: dict[str, int]
    said: str
    same: bool | None  # None where bits may be others: of another machine, or of generators that are never equally fast
    notices: tuple[str, ...]  # about bits that need not be those of a run that never stopped

    def fine(self) -> bool:
        return not any(self.codes.values())


def opened(name: str, where: Path) -> Opened:
    """Open a copy of a recorded run by all commands."""
    from ..recorded_runs.record import copied

    run, about = copied(name, where), json.loads((HERE / name / "recorded.json").read_text(encoding="utf-8"))
    words = about["words"].split()
    sweep = words[0] == "sweep"
    trust = ["--trust"] if "/examples/" in words[0] else []
    if sweep:
        rows = (run / "sweep.jsonl").read_text().splitlines(keepends=True)
        (run / "sweep.jsonl").write_text("".join(rows[:-1]))
        commands = {"sweep": [*words, "--run", str(run)]}
    else:
        evaluated = ["--queries", "4"] if words[0] == "prove" else ["--episodes", "2"] if words[0] in QUICK else []
        commands = {
            "evaluate": ["evaluate", str(run), *evaluated, *trust],
            "view": ["view", str(run)],
            "plot": ["plot", str(run), *trust[:0]],
            "resume": ["resume", str(run), *evaluated, *trust],
            "evaluate again": ["evaluate", str(run), *evaluated, *trust],
        }
    said, codes = io.StringIO(), dict[str, int]()
    for command, given in commands.items():
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            codes[command] = main.main(given)
    if sweep:
        same: bool | None = _rows(run / "sweep.jsonl") == _rows(HERE / name / "sweep.jsonl")
    else:
        fixed = "async" not in words and _here(about["last"])
        same = all([*_same(run, about["last"])]) if fixed else None
    lines = said.getvalue().splitlines()
    return Opened(codes, said.getvalue(), same, tuple(one for one in lines if one.startswith("not necessarily")))


def _rows(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _here(last: dict[str, Any]) -> bool:
    """Whether this machine gives the bits of the one that recorded."""
    facts = [{name: value for name, value in one["environment"].items() if name not in UNTOLD} for one in last.values()]
    here = environment()
    return not any(differences({name: value for name, value in one.items() if name in here}, here) for one in facts)


def _same(run: Path, last: dict[str, Any]) -> Iterator[bool]:
    for place, known in last.items():
        newest = sorted((run / place / "checkpoints").glob("step_*"))[-1]
        manifest = json.loads((newest / "manifest.json").read_text(encoding="utf-8"))
        yield (manifest["step"], manifest["sha256"]) == (known["step"], known["sha256"])
