"""Files that a new thing touches: each is added for real to a copy of the library, run there by its commands, and counted.

    hyper-parameter   a line in an algorithm's signature, trained, resumed with another value, swept; an older run opens
    algorithm         trained by its name and resumed
    environment       trained on by its name
    law               checked with its mutant
    text task         trained

Prints a row for each and writes benchmarks/results/touches.json.
"""

import io
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import frozen

from purestep.runtime.runs.migrations import SCHEMA
from tests.support.additions import ALGORITHM, ENV, LAW, TASK

from . import evidence

SMALL = ["--steps", "32", "--envs", "2", "--horizon", "8", "--hidden", "4", "--backend", "none", "--episodes", "1"]
CHECKED = """
from purestep.core.envs.cartpole import cartpole
from purestep.properties.framework.families import Family
from purestep.properties.framework.matrix import Table, faults, row
from purestep.properties.framework.profiles import named_profile
from purestep.properties.suites.env import env_laws
from purestep.properties.framework.law import Suite
suite = Suite("small", (env_laws["small_rewards"],))
family, quick = Family(suite, cartpole()), named_profile("quick")
found = faults([Table(suite.name, tuple(row(family, one, quick) for one in (None, *family.mutants)), 0.0)])
assert found == [], found
"""


@frozen
class Addition:
    """A new thing: new files by path, edits of others (path, text before, text after), and the commands that use it."""

    files: Mapping[str, str]
    edits: Sequence[tuple[str, str, str]]
    commands: Sequence[Sequence[str]]
    aim: int  # files


ADDITIONS: Mapping[str, Addition] = {
    "hyper-parameter": Addition(
        files={},
        edits=[
            (
                "algorithms/a2c.py",
                "    entropy_coefficient: Coefficient = 0.01,  # weight of the policy's entropy\n",
                "    entropy_coefficient: Coefficient = 0.01,  # weight of the policy's entropy\n"
                "    advantage_scale: Weight = 1.0,  # advantages are multiplied by it\n",
            ),
            (
                "algorithms/a2c.py",
                "return advantages, values + advantages",
                'return numbers["advantage_scale"] * advantages, values + advantages',
            ),
            ("runtime/runs/migrations.py", f"SCHEMA = {SCHEMA}\n", f"SCHEMA = {SCHEMA + 1}\n"),
            (
                "runtime/runs/migrations.py",
                "ADDED: tuple[Added, ...] = (\n",
                f'ADDED: tuple[Added, ...] = (\n    Added({SCHEMA + 1}, ("a2c",), "advantage_scale", 1.0),\n',
            ),
        ],
        commands=[
            ["train", "a2c", "--advantage-scale", "0.5", *SMALL, "--run", "{run}"],
            ["resume", "{run}", "--advantage-scale", "0.25", "--steps", "64", "--episodes", "1"],
            ["sweep", "a2c", "--advantage-scale", "0.5,1.0", "--seeds", "1", *SMALL, "--run", "{run}-sweep"],
            ["evaluate", f"{{copy}}/tests/recorded_runs/schema_{SCHEMA}/a2c", "--episodes", "1"],
        ],
        aim=1,
    ),
    "algorithm": Addition(
        files={"algorithms/rooted.py": ALGORITHM},
        edits=[
            (
                "runtime/recipes/classic.py",
                "ROWS: Mapping[str, tuple[str, str, str, Defaults]] = {\n",
                "ROWS: Mapping[str, tuple[str, str, str, Defaults]] = {\n"
                '    "rooted": ("of a root", "One step.", "purestep.algorithms.rooted:rooted", {}),\n',
            )
        ],
        commands=[
            ["train", "rooted", "--root", "0.5", *SMALL, "--run", "{run}"],
            ["resume", "{run}", "--root", "0.25", "--steps", "64", "--episodes", "1"],
        ],
        aim=2,
    ),
    "environment": Addition(
        files={"core/envs/corridor.py": ENV},
        edits=[
            (
                "core/envs/__init__.py",
                "from .gridworld import",
                "from .corridor import corridor\nfrom .gridworld import",
            ),
            (
                "core/envs/__init__.py",
                '    "gridworld": lambda:',
                '    "corridor": lambda: time_limit(corridor(), 50),\n    "gridworld": lambda:',
            ),
        ],
        commands=[["train", "ppo", "--env", "corridor", *SMALL, "--minibatches", "1", "--run", "{run}"]],
        aim=2,
    ),
    "law": Addition(
        files={},
        edits=[
            (
                "properties/suites/env.py",
                "\nenv_laws = env_suite()\n",
                "\nfrom ...core.env import map_step\nfrom ..framework.law import always\n\n\n"
                + LAW[LAW.index("def check") :]
                + '\nenv_laws = Suite("env_laws", (*env_suite(), SMALL_REWARDS))\n',
            )
        ],
        commands=[["-c", CHECKED]],
        aim=1,
    ),
    "text task": Addition(
        files={"repeat.py": TASK},
        edits=[],
        commands=[
            [
                *(
                    "train",
                    "{copy}/repeat.py:REPEAT",
                    "--run",
                    "{run}",
                    "--steps",
                    "1",
                    "--width",
                    "16",
                    "--layers",
                    "1",
                ),
                *("--heads", "2", "--vocabulary", "300", "--groups", "2", "--samples", "2", "--held-out", "2"),
                *("--max-turns", "1", "--max-new-tokens", "4", "--capacity", "32", "--warm-steps", "0"),
                *("--minibatches", "1"),
            ]
        ],
        aim=1,
    ),
}


def added(name: str, one: Addition) -> dict[str, object]:
    """Add a thing to a copy of HEAD, run its commands, and return the files that it touched and what failed."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "purestep"
        packed = subprocess.run(["git", "archive", "HEAD"], cwd=evidence.ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(copy, filter="data")
        for path, text in one.files.items():
            (copy / path).write_text(text)
        for path, before, after in one.edits:
            text = (copy / path).read_text()
            if text.count(before) != 1:
                raise SystemExit(
                    f"touches: {name}: {path} has {text.count(before)} of {before!r}, wanted one; mend this file"
                )
            (copy / path).write_text(text.replace(before, after))
        failed = []
        for words in one.commands:
            filled = [
                word.format(run=f"{place}/run", copy=copy) if "{run}" in word or "{copy}" in word else word
                for word in words
            ]
            start = filled if filled[0] == "-c" else ["-m", "purestep", *filled]
            environment = os.environ | {"PYTHONPATH": place, "OMP_NUM_THREADS": "1"}
            done = subprocess.run([sys.executable, *start], cwd=place, env=environment, capture_output=True, text=True)
            if done.returncode:
                failed.append(f"{' '.join(words[:3])}: {done.stderr.strip()[-300:]}")
    files = sorted({*one.files, *(path for path, _, _ in one.edits)})
    return {"files": files, "aim": one.aim, "commands": len(one.commands), "failed": failed}


def main() -> int:
    """Print a row for each addition, and write the result file. Return 1 if a command failed."""
    began = time.perf_counter()
    found = {name: added(name, one) for name, one in ADDITIONS.items()}
    for name, row in found.items():
        files, failed = row["files"], row["failed"]
        assert isinstance(files, list)
        print(
            f"{name:16} {len(files)} files (aim {row['aim']}): {', '.join(files)}"
            + (f"; FAILED {failed}" if failed else "")
        )
    evidence.write("touches", seconds=time.perf_counter() - began, figures=found)
    return int(any(row["failed"] for row in found.values()))


if __name__ == "__main__":
    sys.exit(main())
