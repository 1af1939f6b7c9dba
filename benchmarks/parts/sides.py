"""The sides of a comparison: each a script in a process of its own that prints one line of JSON."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from ..environments import ROOT, environment

Report = dict[str, Any]
EXCEPTION = re.compile(r"([A-Za-z_]\w*\.)+[A-Za-z_]\w*: |\w*(Error|Exception|Interrupt)\b")  # how a traceback ends


class SideError(RuntimeError):
    """A side's process failed, or printed something else than a report."""


@frozen
class Side:
    """Where a side's script lies and whose python runs it."""

    environment: str  # a name in environments.PACKAGES, "" for the python that runs this
    script: str  # a file in benchmarks/peers, or a module of benchmarks
    cache: bool = False  # whether it measures a warm compilation too, given a folder


PPO: Mapping[str, Side] = {
    "purestep": Side("", "parts.purestep_ppo", cache=True),
    "rejax": Side("rejax", "rejax_ppo", cache=True),
    "purejaxrl": Side("rejax", "purejaxrl_ppo"),
    "stable-baselines3": Side("stable-baselines3", "stable_baselines3_ppo"),
    "torchrl": Side("torchrl", "torchrl_ppo"),
}
PRODUCTS = Side("", "parts.products")
STEPPING: Mapping[str, Side] = {
    "purestep": Side("", "parts.purestep_stepping"),
    "gymnax": Side("rejax", "gymnax_stepping"),
}


def words(side: Side, options: Mapping[str, object]) -> list[str]:
    """The command line of a side.

    >>> words(Side("", "parts.products"), {"envs": 4})[1:]
    ['-m', 'benchmarks.parts.products', '--envs', '4']
    """
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    if not side.environment:
        return [sys.executable, "-m", f"benchmarks.{side.script}", *given]
    return [str(environment(side.environment)), str(ROOT / "benchmarks" / "peers" / f"{side.script}.py"), *given]


def run(side: Side, options: Mapping[str, object]) -> Report:
    """Runs a side and gives its report. Raises: SideError, in one line; PeerError when its environment cannot be made."""
    threads = str(options.get("threads", 1))
    surroundings = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    done = subprocess.run(words(side, options), cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False)
    return report_of(side.script, done.returncode, done.stdout, done.stderr)


def report_of(name: str, code: int, out: str, err: str) -> Report:
    """The JSON in the last line of what a process printed. Raises: SideError.

    >>> report_of("speed", 0, 'a warning\\n{"steps": 4}\\n', "")
    {'steps': 4}
    >>> report_of("speed", 1, "", "Traceback\\nMemoryError: too big\\nSee also\\n")
    Traceback (most recent call last):
    benchmarks.parts.sides.SideError: speed ended with code 1: MemoryError: too big
    """
    if code != 0:
        told = [line for line in err.splitlines() if EXCEPTION.match(line)]
        raise SideError(f"{name} ended with code {code}: {told[-1] if told else last(err)}")
    try:
        report = json.loads(last(out))
    except ValueError:
        report = None
    if not isinstance(report, dict):
        raise SideError(f"{name} printed no report: {last(out)}")
    return report


def last(text: str) -> str:
    """The last line with anything in it, "nothing" when there is none."""
    lines: Sequence[str] = [line.strip() for line in text.splitlines() if line.strip()] or ["nothing"]
    return lines[-1]
