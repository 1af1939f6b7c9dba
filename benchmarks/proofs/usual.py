"""`purestep train prove` without arguments, as a newcomer starts it: seconds, what is printed, rankings.

Once with empty caches and once after that, each in a process of its own, imports included. Writes results/prove_usual.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .. import evidence


def started(home: Path, run: Path) -> dict[str, Any]:
    """The run's figures. Raises: CalledProcessError where it fails."""
    words = [sys.executable, "-m", "purestep", "train", "prove", "--run", str(run)]
    own = {"XDG_CACHE_HOME": str(home), "TORCHINDUCTOR_CACHE_DIR": str(home / "inductor")}
    start = time.perf_counter()
    done = subprocess.run(
        words, env={**os.environ, **own}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    seconds = round(time.perf_counter() - start, 1)
    told = json.loads((run / "evaluation.json").read_text())
    rankings = {f"{row['score']}, {row['protocol']}": round(row["mean_reciprocal_rank"], 4) for row in told["rankings"]}
    lines = [line.replace(str(run.parent), "") for line in done.stdout.splitlines()]
    return {"seconds": seconds, "MRR": rankings, "printed": lines}


def main() -> None:
    """Runs it twice."""
    argparse.ArgumentParser(prog="python -m benchmarks.proofs.usual", description=__doc__).parse_args()
    start, figures = time.perf_counter(), dict[str, Any]()
    figures["load before"] = os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        for name in ("empty caches", "kept program"):
            figures[name] = started(Path(folder, "cache"), Path(folder, name.replace(" ", "-")))
            print(name, figures[name]["seconds"], "s", *figures[name]["printed"], sep="\n", flush=True)
    evidence.write("prove_usual", seconds=time.perf_counter() - start, figures=figures)


if __name__ == "__main__":
    main()
