"""A model and prompts of one's own, and a reward function: learnt by `purestep train text` and by one call.

examples/arithmetic/problems.py makes 1,000 word problems and a model without the skill; then the same settings in turns, with
two generators, on two ranks, from a vLLM server where one is installed, and by examples/arithmetic/train.py. Prints accuracy
on held-out prompts, greedy beside sampled, before and after, and writes results/arithmetic.json; 1 unless in each way greedy
accuracy is at most .4 before, rises by at least .3, and the command takes less than ten minutes.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from purestep.runtime.effects.openai_server.vllm_process import running
from purestep.runtime.effects.openai_server.vllm_weights import SERVED as LINK
from purestep.runtime.text.sampling import LATEST, SERVED
from tests.support.programs import free_port

from . import evidence

EXAMPLE = evidence.ROOT / "examples" / "arithmetic"
STEPS, TOKENS, LONGEST = 40, 48, 600.0
MOST, RISE = 0.4, 0.3  # greedy accuracy before, and its rise
ROWS = re.compile(r"^( +before.*)\ntasks.*\naccuracy +(.*)\n  95 % interval +(.*)$", re.MULTILINE)


def learned(text: str) -> dict[str, Any]:
    """Accuracies and their intervals in the table that a run prints at its end: greedy and sampled, before and after."""
    found = ROWS.findall(text)
    if not found:
        return {"printed": text.strip().splitlines()[-1:]}
    columns, accuracies, intervals = (re.split(r"\s{2,}", row.strip()) for row in found[-1])
    names = [name_of(column) for column in columns]
    numbers = {name: float(value) for name, value in zip(names, accuracies, strict=True)}
    return {**numbers, "intervals": dict(zip(names, intervals, strict=True))}


def name_of(column: str) -> str:
    """A column of that table in the words of the result file.

    >>> name_of("after async, greedy"), name_of("before")
    ('greedy after', 'sampled before')
    """
    when = "before" if column.startswith("before") else "after"
    return f"{'greedy' if column.endswith('greedy') else 'sampled'} {when}"


def run(words: Sequence[str], home: Path, name: str) -> dict[str, Any]:
    """The figures of a command, from what it prints; kept in NAME.log."""
    start = time.perf_counter()
    usual = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    ended = subprocess.run(words, cwd=home, capture_output=True, text=True, env=usual, timeout=2 * LONGEST)
    (home / f"{name}.log").write_text(ended.stdout + ended.stderr)
    row = {"exit": ended.returncode, "seconds": round(time.perf_counter() - start, 1), **learned(ended.stdout)}
    print(f"{name:12} {json.dumps(row)}", flush=True)
    return row


def as_it_should(row: dict[str, Any]) -> bool:
    """Whether a way learned enough in time."""
    if row["exit"] != 0 or "greedy after" not in row:
        return False
    rise = row["greedy after"] - row["greedy before"]
    return row["greedy before"] <= MOST and rise >= RISE and row["seconds"] < LONGEST


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = Path(os.environ.get("VLLM_PYTHON", evidence.ROOT / ".peers" / "vllm" / "bin" / "python"))
    parser.add_argument("--python", type=Path, default=usual, help="of vLLM's environment (else $VLLM_PYTHON)")
    asked = parser.parse_args()
    start, load = time.perf_counter(), os.getloadavg()
    program = [sys.executable, "-m", "purestep.runtime.cli.main"]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        made = run([sys.executable, str(EXAMPLE / "problems.py"), "arithmetic"], home, "problems")
        common = ["train", "text", "--model", "arithmetic/warm/model", "--prompts", "arithmetic/problems.jsonl"]
        common += ["--reward", f"{EXAMPLE / 'reward.py'}:right"]
        common += ["--steps", str(STEPS), "--max-new-tokens", str(TOKENS)]
        ranks = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "--"]
        ways = {
            "in turns": [*program, *common, "--run", "turns"],
            "async": [*program, *common, "--run", "async", "--mode", "async", "--no-compare", "--generators", "2"],
            "2 ranks": [*ranks, program[-1], *common, "--run", "ranks"],
            "one call": [sys.executable, str(EXAMPLE / "train.py")],
        }
        rows = {name: run(words, home, name) for name, words in ways.items()}
        if asked.python.is_file():
            rows["server"] = served(asked.python, [*program, *common, "--run", "served"], home)
        lines = [line for line in (EXAMPLE / "train.py").read_text().splitlines() if line.strip()]
        figures = {"load": load, "making": made["seconds"], "lines of the script": len(lines), "ways": rows}
        evidence.write("arithmetic", seconds=time.perf_counter() - start, figures=figures)
    if "server" not in rows:
        print(f"server: not run, no vLLM at {evidence.without_machine(str(asked.python))}")
    faults = [name for name, row in rows.items() if not as_it_should(row)]
    print(f"not as it should be: {faults}" if faults or len(lines) > 15 else "as it should be")
    return int(bool(faults) or len(lines) > 15)


def served(python: Path, words: Sequence[str], home: Path) -> dict[str, Any]:
    """The figures of a run that samples from a vLLM server, which is started with the files that the run writes."""
    port = int(free_port())
    where = f"http://127.0.0.1:{port}/v1"
    usual = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    start = time.perf_counter()
    with (home / "server run.log").open("w+") as log:
        training = subprocess.Popen([*words, "--server", where], cwd=home, stdout=log, stderr=log, env=usual)
        try:
            link = home / "served" / SERVED / LINK
            while not link.exists() and training.poll() is None:
                time.sleep(0.2)
            with running(python, link, name=LATEST, log=home / "server.log", window=128, port=port):
                training.wait(2 * LONGEST)
        finally:
            training.kill()
            training.wait()
        log.seek(0)
        text = log.read()
    row = {"exit": training.returncode, "seconds": round(time.perf_counter() - start, 1), **learned(text)}
    print(f"{'server':12} {json.dumps(row)}", flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
