"""Thousands of drawn inputs over all commands, as an ordinary user in a folder of its own: what each says, leaves and loses.

Inputs are drawn by `fuzz_inputs`, a number each: `--only NUMBER` draws one again and shows all of it. Two sides (`fuzz_side`)
call the command line. Started as root, the sides are another user's, in a file system of their own that is gone afterwards.
Prints a table by command and writes benchmarks/results/fuzz.json; exit code 1 unless nothing was wrong.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import attrs
from attrs import evolve

from . import evidence
from .parts.fuzz_inputs import COMMANDS, MADE, Ground, Input, drawn

NOBODY = 65534
KINDS: Mapping[str, tuple[str, ...]] = {  # a column of the table -> faults that count there
    "tracebacks": ("traceback",),
    "bare": ("bare",),
    "lines": ("silent", "lines"),
    "floods": ("flood",),
    "memory": ("memory",),
    "hangs": ("hang",),
    "crashes": ("crash",),
    "lost": ("lost",),
    "ignored": ("ignored",),
    "executed": ("executed",),
}


class Side:
    """A process that judges inputs, several side by side."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.ground = Ground(**json.loads(self._read()))

    def give(self, number: int, given: Input) -> None:
        """Hand an input over, under a number."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{number} {json.dumps(attrs.asdict(given))}\n")
        self.process.stdin.flush()

    def take(self) -> tuple[int, dict[str, Any]]:
        """Return the next verdict, and the number of its input. Raises: RuntimeError when the side has ended."""
        number, _, text = self._read().partition(" ")
        found: dict[str, Any] | None = json.loads(text)
        if found is None:
            raise RuntimeError(f"a judge of fuzz has ended at input {number}")
        return int(number), found

    def judge(self, given: Input) -> dict[str, Any]:
        """Return the verdict on an input."""
        self.give(0, given)
        return self.take()[1]

    def _read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a side of fuzz has ended")
        return line


@contextmanager
def side(
    kinds: Sequence[str] = tuple(MADE),
    commands: Sequence[str] = tuple(COMMANDS),
    judges: int = 1,
    kept: Path | None = None,
) -> Iterator[Side]:
    """Give a side with these runs and commands, in a temporary folder, as an ordinary user.

    Raises: RuntimeError when it cannot be started.
    """
    with tempfile.TemporaryDirectory(prefix="purestep-fuzz-") as folder:
        words = [sys.executable, "-m", "benchmarks.parts.fuzz_side", folder, ",".join(kinds), ",".join(commands)]
        words += [str(judges), *([str(kept.resolve())] if kept else [])]
        if kept and not kept.exists():
            kept.mkdir()
            if os.geteuid() == 0:
                os.chown(kept, NOBODY, NOBODY)
        limits = {
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        with subprocess.Popen(
            apart(words, Path(folder)) if os.geteuid() == 0 else words,
            cwd=evidence.ROOT,
            env={
                **os.environ,
                **limits,
                **dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR"), folder),
                "MPLCONFIGDIR": f"{folder}/matplotlib",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        ) as process:
            try:
                yield Side(process)
            finally:
                process.terminate()


def startable() -> bool:
    """Return whether an ordinary user can start this Python here; root must be able to give him a file system of his own."""
    return (
        os.geteuid() != 0
        or subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode == 0
    )


def apart(words: Sequence[str], folder: Path) -> list[str]:
    """The command line that runs `words` as nobody, with a file system in `folder` that others do not see.

    Python and the repository stay where they are: what hides them from that user, such as root's home, holds nothing else.
    """
    lines, needed = [f"mount -t tmpfs -o size=4g,mode=0700,uid={NOBODY},gid={NOBODY} none {folder}"], {}
    for place in {Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), evidence.ROOT.resolve()}:
        hidden = [parent for parent in reversed(place.parents) if parent.stat().st_mode & 0o005 != 0o005]
        if hidden:
            needed.setdefault(hidden[0], []).append(place)
    for number, (hides, places) in enumerate(needed.items()):
        doors = [f"{folder}/door{number}-{at}" for at in range(len(places))]
        lines += [f"mkdir {door} && mount --bind {place} {door}" for door, place in zip(doors, places, strict=True)]
        lines += [f"mount -t tmpfs -o mode=0755 none {hides}"]
        lines += [f"mkdir -p {place} && mount --bind {door} {place}" for door, place in zip(doors, places, strict=True)]
        lines += [f"umount {door} && rmdir {door}" for door in doors]
    drop = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups --no-new-privs"
    return ["unshare", "--mount", "sh", "-ec", "\n".join([*lines, f'exec {drop} "$@"']), "sh", *words]


def judged(
    numbers: Sequence[int], commands: Sequence[str], alone: int, sides: int, kept: Path | None
) -> Iterator[tuple[int, Input, dict[str, Any]]]:
    """Yield the verdicts on drawn inputs, as they come; one in `alone` has a process of its own."""
    with side(commands=tuple(COMMANDS) if kept or not commands else commands, judges=sides, kept=kept) as own:
        inputs = {}
        for number in numbers:
            given = drawn(Random(number), own.ground, commands)
            inputs[number] = evolve(given, alone=bool(alone) and number % alone == alone - 1)
        waiting = iter(inputs.items())
        for each in islice(waiting, sides):
            own.give(*each)
        for _ in inputs:
            number, verdict = own.take()
            for each in islice(waiting, 1):
                own.give(*each)
            yield number, inputs[number], verdict


def shown(given: Input, verdict: Mapping[str, Any]) -> str:
    """All of an input and its verdict."""
    rows = {**attrs.asdict(given), **verdict}
    return "\n".join(
        f"{name}: {value if name in ('out', 'err') else repr(value)[:3000]}" for name, value in rows.items()
    )


def table(rows: Mapping[str, Counter[str]]) -> list[str]:
    """Counts by command."""
    columns = ("inputs", "refused", "succeeded", "stopped", *KINDS)
    total: Counter[str] = sum(rows.values(), Counter())
    lines = [f"{'':16}" + "".join(f"{name:>11}" for name in columns)]
    return lines + [
        f"{name:16}" + "".join(f"{row[column]:11}" for column in columns)
        for name, row in {**rows, "all": total}.items()
    ]


def again(log: Path, sides: int, kept: Path | None) -> int:
    """Judge again the inputs that were wrong in a log; add to the result file which, on which commit, and what still is."""
    began, wrong = time.perf_counter(), list[dict[str, object]]()
    rows = [row for row in map(json.loads, log.read_text().splitlines()) if row["faults"]]
    inputs = [Input(**{field.name: row[field.name] for field in attrs.fields(Input)}) for row in rows]
    with side(judges=sides, kept=kept) as own:
        for row, each in zip(rows, inputs, strict=True):
            verdict = own.judge(each)
            print(row["number"], each.command, _short(row["faults"]), "->", _short(verdict["faults"]), flush=True)
            if verdict["faults"]:
                wrong.append({"number": row["number"], "command": each.command, **verdict["faults"]})
    path = evidence.RESULTS / "fuzz.json"
    held = json.loads(path.read_text())
    told = {"inputs": [row["number"] for row in rows], "wrong": wrong}
    held["figures"]["again"] = {**evidence.origin("fuzz", time.perf_counter() - began), **told}
    held["figures"]["kept"] = not wrong
    path.write_text(json.dumps(held, indent=1, allow_nan=False) + "\n")
    return int(bool(wrong))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=3000, help="how many (default: 3000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first (default: 0)")
    parser.add_argument("--only", type=int, default=None, help="draw this one alone, and show it; writes nothing")
    parser.add_argument(
        "--commands", nargs="*", default=[], choices=list(COMMANDS), help="of these commands alone; writes nothing"
    )
    parser.add_argument(
        "--alone", type=int, default=100, help="one in so many has a process of its own; 0 means none (default: 100)"
    )
    parser.add_argument("--sides", type=int, default=2, help="side by side (default: 2)")
    parser.add_argument(
        "--again",
        type=Path,
        default=None,
        help="a --log: judge again what was wrong in it, and add that to the result file",
    )
    parser.add_argument(
        "--kept",
        type=Path,
        default=None,
        help="a folder in which the small runs are left for the next call, of equal code",
    )
    parser.add_argument("--log", type=Path, default=None, help="a file for every input and its verdict, as they come")
    given, began = parser.parse_args(), time.perf_counter()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if given.again:
        return again(given.again, given.sides, given.kept)
    numbers = range(given.first, given.first + given.inputs) if given.only is None else [given.only]
    rows: dict[str, Counter[str]] = {name: Counter() for name in given.commands or COMMANDS}
    wrong, alone, milder, slowest, cpu = list[dict[str, object]](), 0, 0, 0.0, Counter[str]()
    for number, drawn_input, verdict in judged(
        numbers, given.commands, given.alone, given.sides if given.only is None else 1, given.kept
    ):
        row = rows[drawn_input.command]
        ways = {0: "succeeded", 130: "stopped"}
        row.update(["inputs", *([] if verdict["faults"] else [ways.get(verdict["code"], "refused")])])
        row.update(name for name, kinds in KINDS.items() if verdict["faults"].keys() & set(kinds))
        alone, slowest = alone + drawn_input.alone, max(slowest, verdict["seconds"])
        milder += verdict["left_out"] > 0
        cpu[drawn_input.command] += verdict["cpu"]
        if verdict["faults"]:
            about = {
                "number": number,
                "command": drawn_input.command,
                "words": drawn_input.words,
                "code": verdict["code"],
                **verdict["faults"],
            }
            wrong.append({name: _short(value) for name, value in about.items()})
            print(f"{number} {drawn_input.command}: {_short(verdict['faults'])}", flush=True)
        if given.log:
            with given.log.open("a") as file:
                print(json.dumps({"number": number, **attrs.asdict(drawn_input), **verdict}), file=file)
        if given.only is not None:
            print(shown(drawn_input, verdict))
    print("\n".join(table(rows)))
    seconds = time.perf_counter() - began
    figures = {
        "kept": not wrong,
        "inputs": len(numbers),
        "first": given.first,
        "processes_of_their_own": alone,
        "with_a_step_of_the_layout_left_out": milder,
        "slowest_seconds": slowest,
        "processor_seconds": {name: round(used, 1) for name, used in cpu.items()},
        "commands": {name: dict(row) for name, row in rows.items()},
        "wrong": sorted(wrong, key=lambda row: str(row["number"])),
    }
    print(f"{alone} in processes of their own; {milder} milder than drawn: a step of their layout was not possible")
    print(f"processor seconds: {figures['processor_seconds']}")
    print(f"{len(wrong)} of {len(numbers)} inputs are wrong; {seconds:.0f} s")
    if given.only is None and not given.commands:
        evidence.write("fuzz", seconds=seconds, figures=figures)
    return int(bool(wrong))


def _short(value: object) -> object:
    """A figure that stays readable, in characters that every terminal has."""
    text = value if isinstance(value, str) else json.dumps(value)
    return value if isinstance(value, int) else text[:400].encode("ascii", "backslashreplace").decode()


if __name__ == "__main__":
    sys.exit(main())
