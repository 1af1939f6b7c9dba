"""`purestep verify` given right functions and classes without a flag: none may be called broken.

    python -m benchmarks.verify_unaided                 # all; two of them at a time
    python -m benchmarks.verify_unaided --only value_loss GAE

Each object of benchmarks/unaided_objects is first checked there by an independent computation. A command that is printed for
an object is run as it stands, and its verdict counts too. The broken twins differ from a right object by one edit. Writes
benchmarks/results/verify_unaided.json; exit code 1 if a right object is called broken, or a printed command does not work.
"""

import argparse
import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path

from attrs import asdict, evolve, frozen

from . import evidence
from .unaided_objects.twins import TWINS

HERE = Path(__file__).parent / "unaided_objects"
FILES = ("advantages", "losses", "language", "training", "worlds", "graphs")
WORDS = {0: "holds", 1: "broken", 2: "error", 3: "no verdict"}


@frozen
class Verdict:
    """What the command said of an object, and what the command that it printed said."""

    name: str
    status: int
    suite: str
    seconds: float
    said: str
    command: str = ""
    then: int = -1


def objects() -> list[str]:
    """FILE:NAME of each object, in order."""
    found = []
    for file in FILES:
        text = (HERE / f"{file}.py").read_text()
        found += [
            f"benchmarks/unaided_objects/{file}.py:{name}" for name in re.findall(r"(?m)^(?:def|class) (\w+)", text)
        ]
    return found


def asked(words: Sequence[str]) -> tuple[int, str, str]:
    """Status, stdout and stderr of a command."""
    from purestep.properties.framework.cli import laws_command, verify_command

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        command = laws_command if words[0] == "laws" else verify_command
        status = command(list(words[1:]))
    return status, out.getvalue(), err.getvalue()


def verdict(target: str, follow: bool = True) -> Verdict:
    """The verdict on one object, and that of the command printed for it."""
    import torch

    torch.set_num_threads(1)
    start = time.perf_counter()
    status, out, err = asked(["verify", target])
    suite = re.search(r"(?m)^(\w+)_laws, ", out) or re.search(r"as (\w+) is|: (\w+)_laws", out + err)
    named = next((part for part in suite.groups() if part), "") if suite else ""
    said = err.strip() or out.strip().splitlines()[0]
    found = Verdict(target.rpartition("/")[2], status, named, round(time.perf_counter() - start, 1), said[:300])
    commands = re.findall(r"(?m)^purestep (?:verify|laws).*$", out)
    if status != 3 or not follow:
        return found
    if not commands:
        return evolve(found, then=99)
    then, _, _ = asked(shlex.split(commands[-1])[1:])
    return evolve(found, command=commands[-1], then=then)


def twin(name: str) -> Verdict:
    """The verdict on a right object's broken twin, written to a file of its own."""
    file, before, after = TWINS[name]
    text = (HERE / f"{file}.py").read_text()
    start = re.search(rf"(?m)^(def|class) {name}\b", text)
    if start is None or before not in text[start.start() :]:
        raise ValueError(f"{name}: the edit does not apply")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"twin_{name.lower()}.py"
        path.write_text(text[: start.start()] + text[start.start() :].replace(before, after, 1))
        found = verdict(f"{path}:{name}", follow=False)
    return evolve(found, name=f"{file}.py:{name}", said=found.said.replace(folder, ""))


def main() -> int:
    """Ask about all, print, and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verify_unaided")
    parser.add_argument("--only", nargs="*", default=None, help="names of objects; nothing is written")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    start = time.perf_counter()
    from .unaided_objects.checks import CHECKS, wrong

    targets = [one for one in objects() if options.only is None or one.rpartition(":")[2] in options.only]
    unchecked = [one for one in targets if one.rpartition(":")[2] not in CHECKS]
    fails = wrong()
    if fails or unchecked:
        print(f"not right by their own checks: {fails}; without one: {unchecked}")
        return 1
    twins = [name for name in TWINS if options.only is None or name in options.only]
    with get_context("spawn").Pool(options.jobs, maxtasksperchild=20) as pool:
        right = _shown(pool.imap(verdict, targets))
        print("broken twins:")
        killed = _shown(pool.imap(twin, twins))
    figures = figures_of(right, killed)
    print(*(f"{name}: {value}" for name, value in figures.items() if not isinstance(value, list)), sep="\n")
    if options.only is None:
        evidence.write("verify_unaided", seconds=time.perf_counter() - start, figures=figures)
    return int(figures["called_broken"] != 0 or figures["commands_that_do_not_work"] != 0)


def _shown(verdicts: object) -> list[Verdict]:
    found = []
    for one in verdicts:  # type: ignore[attr-defined]
        then = f", then {WORDS.get(one.then, one.then)}: {one.command}" if one.command else ""
        print(f"{WORDS[one.status]:11}{one.suite:16}{one.seconds:6.1f} s  {one.name}{then}", flush=True)
        found.append(one)
    return found


def figures_of(right: Sequence[Verdict], killed: Sequence[Verdict]) -> dict[str, object]:
    """Counts, and each verdict."""
    return {
        "objects": len(right),
        "called_broken": sum(one.status == 1 or one.then == 1 for one in right),
        "hold_unaided": sum(one.status == 0 for one in right),
        "no_verdict": sum(one.status == 3 for one in right),
        "hold_with_the_printed_command": sum(
            one.status == 3 and one.then == 0 and " verify " in one.command for one in right
        ),
        "commands_that_do_not_work": sum(one.status == 3 and one.then != 0 for one in right),
        "errors": sum(one.status == 2 for one in right),
        "twins": len(killed),
        "twins_called_broken": sum(one.status == 1 for one in killed),
        "twins_that_hold": sum(one.status == 0 for one in killed),
        "each": [asdict(one) for one in right],
        "each_twin": [asdict(one) for one in killed],
    }


if __name__ == "__main__":
    sys.exit(main())
