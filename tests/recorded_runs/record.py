"""Record a small run of each recipe, in folders that any later version opens.

    python -m tests.recorded_runs.record                     of today's schema, into schema_N/
    python -m tests.recorded_runs.record --commit 71aa3aac   by the code of a commit, into 71aa3aac/
    python -m tests.recorded_runs.record --fields            only the names of today's settings, into fields.json

A recorded run was trained to its end, then its newest checkpoints were removed, so that it can be resumed; recorded.json holds
the command and the digest of its last state. Absolute paths of the repository are written as @ROOT@: see `copied`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PLACE = "@ROOT@"
FIELDS, RECORDED = "fields.json", "recorded.json"
REMOVED = (".lock", "tensorboard", "learning_curve.png", "proof.png", "model", "served", "view.html", "wandb")
CLASSIC = "--envs 2 --horizon 8 --hidden 4 --steps 64 --backend none --checkpoints 4 --episodes 2"
REPLAY = "--replay-size 32 --learning-starts 16 --batch-size 4 --updates 2"
NETWORK = "--width 16 --layers 1 --heads 2 --vocabulary 300"
TASK = f"{NETWORK} --groups 2 --samples 3 --held-out 4 --max-turns 3 --max-new-tokens 8 --capacity 64 --minibatches 1"
WARM = "--warm-steps 30 --demonstrations 12 --warm-batch 4"
OWN = f"{PLACE}/tests/recorded_runs"
PROMPTS = (
    f"text --model {OWN}/model --prompts {OWN}/sums.jsonl --reward exact --reward-workers 1 --groups 2 --samples 2 "
    "--held-out 3 --max-new-tokens 4 --capacity 32"
)
ASYNC = "--mode async --no-compare --generators 1 --generator-engine thread --generator-slots 8"
RUNS: Mapping[str, str] = {  # name -> words of `purestep train`, or of `purestep sweep` after that word
    "ppo": f"ppo {CLASSIC} --minibatches 2 --epochs 1",
    "ppo_normalized": f"ppo --normalize both {CLASSIC} --minibatches 2 --epochs 1",
    "a2c": f"a2c {CLASSIC}",
    "ppo_memory": f"ppo --memory gru {CLASSIC} --minibatches 2 --epochs 1",
    "reinforce": f"reinforce {CLASSIC}",
    "dqn": f"dqn {CLASSIC} {REPLAY} --replay prioritised",
    "sac": f"sac {CLASSIC} {REPLAY} --horizon 64 --steps 512 --replay-size 256",  # an episode has 200 steps
    "prove": (
        "prove --data family:20 --size 8 --width 8 --blocks 1 --warm-up 3 --backend none --steps 96 --envs 4 --horizon 8 "
        "--minibatches 2 --epochs 1 --checkpoints 3 --queries 4"
    ),
    "zorplex": f"zorplex {TASK} {WARM} --steps 3",
    "zorplex_ppo": f"zorplex --algorithm ppo {TASK} --warm-steps 0 --steps 3",
    "cache": (
        f"cache {NETWORK} {WARM} --steps 3 --problems 2 --states 2 --samples 3 --minibatches 1 --held-out 4 --cycles 2 "
        "--longest 6 --test-longest 6 --num-reasoning-steps 2 --max-retries 0 --llm-max-tokens 21"
    ),
    "task": f"{PLACE}/examples/text_task.py:SAFE {TASK} --warm-steps 0 --steps 3",
    "text": f"{PROMPTS} --steps 3",
    "text_async": f"{PROMPTS} --steps 3 {ASYNC}",
    "zorplex_async": f"zorplex {TASK} --warm-steps 0 --steps 3 {ASYNC}",
    "sweep": f"sweep ppo --learning-rate 0.001,0.01 --seeds 1 {CLASSIC} --minibatches 2 --epochs 1",
}
LATER = ("ppo_memory", "dqn", "sac")
ABSENT: Mapping[str, tuple[str, ...]] = {  # runs of recipes that a commit does not have
    "schema_1": LATER,
    "schema_3": LATER,
    "schema_4": LATER,
    "71aa3aac": LATER,
    "8cec1164": (*LATER, "sweep"),
    "07554c1f": (*LATER, "sweep", "text", "text_async"),
}


def copied(name: str, where: Path) -> Path:
    """Copy a recorded run, SCHEMA/NAME, to a folder, with the paths of this repository; return that folder."""
    shutil.copytree(HERE / name, where)
    renamed(where, PLACE, str(ROOT))
    return where


def renamed(run: Path, before: str, now: str) -> None:
    """Replace a path in the records of a run, and renew the checksums of its manifests."""
    from purestep.runtime.effects.checkpoint.manifest import checksum_of

    for path in [*run.rglob("*.json"), *run.rglob("*.jsonl")]:
        text = path.read_text(encoding="utf-8")
        if before not in text:
            continue
        text = text.replace(before, now)
        if path.name == "manifest.json":
            body = {name: value for name, value in json.loads(text).items() if name != "checksum"}
            text = json.dumps({**body, "checksum": checksum_of(body)}, indent=1, allow_nan=False)
        path.write_text(text, encoding="utf-8")


def fields() -> dict[str, list[str]]:
    """Return the names of the settings of each recipe of today."""
    from purestep.runtime.runs.arguments import flatten
    from purestep.runtime.runs.recipe import find, own

    return {name: [*flatten(find(name).defaults())] for name in own()}


def write_fields() -> None:
    """Write the names of today's settings under the number of today's schema."""
    from purestep.runtime.runs.migrations import SCHEMA

    path = HERE / FIELDS
    held = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    held[str(SCHEMA)] = fields()
    path.write_text("{\n" + ",\n".join(f"{json.dumps(schema)}: {_lines(held[schema])}" for schema in held) + "\n}\n")


def _lines(recipes: Mapping[str, list[str]]) -> str:
    return "{\n" + ",\n".join(f" {json.dumps(name)}: {json.dumps(names)}" for name, names in recipes.items()) + "\n}"


def record(kind: str, code: Path, only: list[str]) -> None:
    """Train each run by the code in a folder, and keep it under KIND/."""
    names = [name for name in RUNS if name not in ABSENT.get(kind, ()) and (not only or name in only)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "path"
        path.mkdir()
        (path / "purestep").symlink_to(code)
        commands = [_command(_placed(RUNS[name], code), Path(folder) / name) for name in names]
        environment = {**os.environ, "PYTHONPATH": str(path), "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(commands)], env=environment, cwd=folder, stdout=subprocess.PIPE
        ) as child:
            finished = (line for line in child.stdout or () if line.startswith(b"finished "))
            for name, line in zip(names, finished, strict=False):
                print(f"{kind}/{name}: {line.decode().strip()}", flush=True)
                keep(Path(folder) / name, HERE / kind / name, RUNS[name], code)
        if child.returncode:
            raise SystemExit(child.returncode)


PROGRAM = """
import json, runpy, sys, time
for command in json.loads(sys.argv[1]):
    sys.argv, began = ["purestep", *command], time.perf_counter()
    try:
        runpy.run_module("purestep", run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise
    print("finished", round(time.perf_counter() - began, 1), "s", flush=True)
"""


def _placed(words: str, code: Path) -> list[str]:
    """Return words with paths: those of examples in the folder of the code that records, all others here."""
    return words.replace(f"{PLACE}/examples", f"{code}/examples").replace(PLACE, str(ROOT)).split()


def _command(words: list[str], run: Path) -> list[str]:
    command = [words[0], *words[1:]] if words[0] == "sweep" else ["train", *words]
    return [*command, "--run", str(run)]


def keep(run: Path, where: Path, words: str, code: Path) -> None:
    """Keep a finished run as if it had been stopped before its end."""
    last: dict[str, Any] = {}
    for root in sorted(run.rglob("checkpoints")):
        steps = sorted(root.glob("step_*"))
        last[root.parent.relative_to(run).as_posix()] = described(steps[-1])
        finished = root.parent.name == "warm"  # of a run of phases: it has no part to do again
        for path in () if finished else steps[1:]:
            shutil.rmtree(path)
        (root / "latest").write_text(f"{(steps[-1] if finished else steps[0]).name}\n")
    for phase in run.glob("*/totals.json"):
        phase.unlink()
    for name in (*REMOVED, "evaluation.json", "comparison.json"):
        for path in [run / name, *run.glob(f"*/{name}"), *run.glob("*.png")]:
            if path.is_dir():
                shutil.rmtree(path)
            elif path.exists():
                path.unlink()
    for place in (code, ROOT):
        renamed(run, str(place), PLACE)
    (run / RECORDED).write_text(json.dumps({"words": words, "last": last}, indent=1) + "\n")
    shutil.rmtree(where, ignore_errors=True)
    shutil.copytree(run, where)


def described(checkpoint: Path) -> dict[str, Any]:
    """Return the step of a checkpoint, the digest of its tensors, and the facts on which these bits depend."""
    manifest = json.loads((checkpoint / "manifest.json").read_text(encoding="utf-8"))
    return {name: manifest[name] for name in ("step", "sha256", "environment")}


def main() -> None:
    """Record runs."""
    parser = argparse.ArgumentParser(prog="python -m tests.recorded_runs.record", description=__doc__)
    parser.add_argument("--commit", default="", help="record by the code of this commit")
    parser.add_argument("--fields", action="store_true", help="write fields.json only")
    parser.add_argument("runs", nargs="*", help="their names; all by default")
    given = parser.parse_args()
    if given.commit:
        with tempfile.TemporaryDirectory() as folder:
            code = Path(folder) / "code"
            subprocess.run(["git", "worktree", "add", "--detach", str(code), given.commit], check=True, cwd=ROOT)
            try:
                record(given.commit, code, given.runs)
            finally:
                subprocess.run(["git", "worktree", "remove", "--force", str(code)], check=True, cwd=ROOT)
        return
    write_fields()
    if not given.fields:
        from purestep.runtime.runs.migrations import SCHEMA

        record(f"schema_{SCHEMA}", ROOT, given.runs)


if __name__ == "__main__":
    main()
