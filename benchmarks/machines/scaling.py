"""The job scripts of examples/cluster, on a Slurm of this machine: they train, are stopped, and go on on other nodes.

`slurm_async.sh` begins with generators on two nodes and a trainer that two processes of a third one share; it is stopped as at
the end of its time, goes on with one generator's node and a trainer of one process, is cancelled, and goes on as it began.
`slurm_server.sh` does the same with a vLLM server on a node, where there is vLLM: VLLM_PYTHON names the python of its
environment, else .peers/vllm is looked for (server_zorplex says how to make it). Afterwards what was learned from is gone
through, and held-out accuracy is compared with that before. Writes results/scaling.json, or scaling_small.json with other words
than usual, which go to `purestep train`; ends with 1 where anything is not as asked. Root only.

The nodes are network namespaces of one machine, with one file system. kubernetes.yaml is looked at as well, by its schema,
where `kubernetes-validate` is installed; there is no cluster to run it on.
"""

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from purestep.runtime.effects import folder
from purestep.runtime.effects.reporting.metrics import read_metrics

from .. import evidence
from ..parts import async_outside
from ..parts.slurm_cluster import Slurm, slurm

SCRIPTS = evidence.ROOT / "examples" / "cluster"
PYTHON = Path(os.environ.get("VLLM_PYTHON", evidence.ROOT / ".peers" / "vllm" / "bin" / "python"))
STEPS = 45
LONGEST = 900.0  # seconds of a job
GRACE = 120.0  # seconds that a job has from its signal to its end
SAVED = "go on with: purestep resume"  # so ends what a run says that has saved and stops
LEAST = 0.1  # by which accuracy has to have risen
Row = dict[str, Any]


@frozen(kw_only=True)
class Plan:
    """A script, and the nodes and processes of its jobs, one after the other."""

    script: str
    name: str  # of its RUN
    phase: str  # the folder in RUN with what its updates leave; "" for RUN itself
    stages: tuple[tuple[int, int], ...]  # (nodes, processes of the trainer on its node)
    stops: tuple[str, ...]  # how each job but the last ends
    env: tuple[tuple[str, str], ...] = ()


def jobs(cluster: Slurm, place: Path, plan: Plan, steps: int, words: Sequence[str]) -> Row:
    """Runs the jobs of a plan on one RUN; gives its figures. Raises: RuntimeError."""
    run, told, began = place / plan.name, list[Row](), time.perf_counter()

    def updates() -> int:
        path = run / plan.phase / folder.METRICS
        rows = read_metrics(path) if path.is_file() else ()
        return sum(
            math.isfinite(row.get("episode_return", math.nan)) for row in rows
        )  # the warm start has rows as well

    for number, (nodes, processes) in enumerate(plan.stages):
        log = place / f"{plan.name}-{number}.out"
        options = (f"--nodes={nodes}", f"--output={log}", f"--chdir={place}")
        env = {"RUN": str(run), "RANKS_PER_NODE": str(processes), "PATH": _path(), **dict(plan.env)}
        job = cluster.submitted(SCRIPTS / plan.script, "--steps", str(steps), *words, options=options, env=env)
        begun, last = updates(), number == len(plan.stages) - 1
        aim = steps if last else (number + 1) * steps // len(plan.stages)
        _until(lambda job=job, aim=aim, last=last: cluster.over(job) or (not last and updates() >= aim), log)
        reached, stopped = updates(), time.perf_counter()
        if not last:
            if cluster.over(job):
                raise RuntimeError(f"job {number} was over before it was stopped: {_said(log)}")
            cluster.says("scancel", *plan.stops[number].split(), job)
            _until(lambda job=job: cluster.over(job), log)
        row = {
            "nodes": nodes,
            "processes of the trainer": processes,
            "updates at its begin": begun,
            "at its end": updates(),
        }
        row |= {"stopped by": "" if last else f"scancel {plan.stops[number]}".strip(), "when at": reached}
        row["saved"] = SAVED in log.read_text()
        told.append({**row, "state": cluster.state(job), "seconds to end": round(time.perf_counter() - stopped, 1)})
        print(f"{plan.script}: {told[-1]}", flush=True)
    if updates() < steps:
        raise RuntimeError(f"the last job ended after {updates()} of {steps} updates: {_said(log)}")
    return {"jobs": told, "seconds": round(time.perf_counter() - began, 1), **results(run, plan.phase)}


def _path() -> str:
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def _until(ready: Callable[[], bool], log: Path) -> None:
    until = time.perf_counter() + LONGEST
    while not ready():
        if time.perf_counter() > until:
            raise RuntimeError(f"nothing more after {LONGEST:g} s: {_said(log)}")
        time.sleep(0.5)


def _said(log: Path) -> str:
    """The last that a job said for itself, without the many lines of a server."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    own = [line for line in lines if line.startswith(("purestep", "slurm", "srun"))]
    return " | ".join(own[-8:]) or f"{len(lines)} lines, none of them its own"


def results(run: Path, phase: str) -> Row:
    """What a run that has ended left in its folder."""
    before = json.loads((run / "before.json").read_text())["sampled"]
    after = json.loads((run / phase / folder.EVALUATION).read_text())["after"]["sampled"]
    through = async_outside.gone_through(run, phase) if phase else {"wrong": []}
    through.pop("counts", None)
    return {"before": before, "after": after, **through}


def faults(name: str, row: Row, steps: int, least: float) -> list[str]:
    """What is not as it should be."""
    rose = row["after"]["accuracy"] - row["before"]["accuracy"]
    last, signalled = row["jobs"][-1], [one for one in row["jobs"] if "USR1" in one["stopped by"]]
    idle = [number for number, one in enumerate(row["jobs"]) if one["at its end"] <= one["updates at its begin"]]
    late = [one for one in signalled if not one["saved"] or one["seconds to end"] > GRACE]
    return [
        *(f"{name}: job {number} made no update" for number in idle),
        *(f"{name}: told to stop, it ended after {one['seconds to end']} s, saved: {one['saved']}" for one in late),
        *([] if signalled else [f"{name}: no job was told to stop"]),
        *(f"{name}: {text}" for text in row["wrong"]),
        *([] if last["state"] == "COMPLETED" else [f"{name}: the last job is {last['state']}"]),
        *([] if last["at its end"] == steps else [f"{name}: {last['at its end']} updates, wanted {steps}"]),
        *([] if rose >= least else [f"{name}: accuracy rose by {rose:.3f}, wanted {least}"]),
    ]


def schema() -> str:
    """What the schema of Kubernetes says of the manifest."""
    program = shutil.which("kubernetes-validate", path=_path())
    if not program:
        return "not looked at: pip install kubernetes-validate"
    told = subprocess.run(
        [program, "--strict", str(SCRIPTS / "kubernetes.yaml")], capture_output=True, text=True, check=False
    )
    lines = (told.stdout + told.stderr).strip().splitlines()
    last = lines[-1].replace(f"{SCRIPTS}/", "") if lines else ""
    return f"{'fits' if told.returncode == 0 else 'does not fit'}: {last}"


def plans() -> tuple[Plan, ...]:
    """What is to be run: the second only where there is vLLM."""
    at_once = Plan(
        script="slurm_async.sh",
        name="at_once",
        phase="async",
        stages=((3, 2), (2, 1), (3, 2)),
        stops=("--signal=USR1 --batch", ""),
    )
    in_turns = Plan(
        script="slurm_server.sh",
        name="in_turns",
        phase="",
        stages=((2, 2), (2, 1)),
        stops=("--signal=USR1 --batch",),
        env=(
            ("VLLM", str(PYTHON)),
            ("VLLM_OPTIONS", "--enforce-eager --max-num-seqs 64 --max-num-batched-tokens 8192"),
            ("VLLM_CPU_KVCACHE_SPACE", "1"),
            ("VLLM_CPU_OMP_THREADS_BIND", "nobind"),
        ),
    )
    return (at_once, *([in_turns] if PYTHON.exists() else []))


def main() -> int:
    """Runs the scripts and writes the result file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machines.scaling", description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS, help=f"updates of each run (default: {STEPS})")
    parser.add_argument("--only", choices=[one.name for one in sorted(SCRIPTS.glob("*.sh"))], help="one script")
    given, words = parser.parse_known_args()
    began, rows = time.perf_counter(), dict[str, Row]()
    with tempfile.TemporaryDirectory() as name, slurm(Path(name), 3) as cluster:
        chosen = [plan for plan in plans() if given.only in (None, plan.script)]
        for plan in chosen:
            own = ("--generators", "2", "--no-compare") if plan.phase else ()
            rows[plan.script] = jobs(cluster, Path(name), plan, given.steps, (*own, *words))
        version = cluster.version
    small = bool(words or given.only or given.steps != STEPS)
    wrong = [
        text for script, row in rows.items() for text in faults(script, row, given.steps, -1.0 if words else LEAST)
    ]
    fits = schema()
    wrong += [f"kubernetes.yaml {fits}"] if fits.startswith("does not fit") else []
    figures = {"slurm": version, "vllm": PYTHON.exists(), "kubernetes.yaml": fits, "runs": rows, "faults": wrong}
    print(
        f"kubernetes.yaml {fits}"
        + ("" if PYTHON.exists() else f"; not run, without vLLM at {PYTHON.name}: slurm_server.sh")
    )
    print("\n".join(wrong) or "as asked")
    evidence.write("scaling_small" if small else "scaling", seconds=time.perf_counter() - began, figures=figures)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
