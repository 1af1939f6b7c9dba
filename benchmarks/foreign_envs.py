"""Environments of other libraries, as their packages ship them, as tasks of `purestep train FILE.py:TASK`: five steps each.

OpenEnv: the environment that `openenv init` writes, behind its own server, which echoes texts and rewards their length. Its
server allows one session. verifiers: its taskset `textarena` with the game Hangman, whose engine answers each move; the word
list that nltk would download is replaced by the words of this repository's licence, so that no network is needed, and a short
warm start on random letters shows the model the form of a move. Each runs with the library in an environment of its own.
Prints and writes results/foreign_envs.json; 1 unless both train to the end, with rewards of the foreign environment and no
failed attempt.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from tests.support.programs import free_port

from . import evidence
from .environments import environment

WAIT = 120.0  # seconds for a server to answer
SMALL = [
    *("--width", "32", "--layers", "1", "--heads", "2", "--groups", "2", "--samples", "4", "--held-out", "4"),
    *("--learning-rate", "3e-3", "--minibatches", "1"),
]
ECHO = """
from purestep.runtime.effects.environments.openenv import openenv_task

TASK = openenv_task({url!r}, name="echo", observe=lambda shown: shown["echoed_message"])
"""
GAME = """
from attrs import evolve
from purestep.core import keys
from purestep.runtime.effects.environments.verifiers import verifiers_task

def moves(params, state, key, skill):
    return [f"[{chr(97 + int(place))}]" for place in keys.permutation(key, 26)[:9]]

TASK = evolve(verifiers_task("textarena", game="Hangman-v0", tasks=40), demonstrations=moves)
"""


@contextmanager
def echo_server(python: Path, home: Path) -> Iterator[str]:
    """The environment that the library's command writes, served by its own application."""
    command = [str(python.with_name("openenv")), "init", "parrot_env", "--output-dir", str(home)]
    subprocess.run(command, check=True, capture_output=True, text=True, cwd=home)
    place, port = home / "parrot_env", int(free_port())
    url, words = f"http://127.0.0.1:{port}", ["-m", "uvicorn", "server.app:app", "--port", str(port)]
    with (
        (home / "server.log").open("w") as log,
        subprocess.Popen([str(python), *words], cwd=place, stdout=log, stderr=log) as server,
    ):
        try:
            answered(url, server)
            yield url
        finally:
            server.terminate()


def answered(url: str, server: subprocess.Popen[bytes]) -> None:
    """Waits for a server. Raises: RuntimeError if it ends, or does not answer in time."""
    until = time.monotonic() + WAIT
    while time.monotonic() < until and server.poll() is None:
        try:
            with urlopen(f"{url}/health", timeout=5):
                return
        except (URLError, OSError):
            time.sleep(0.3)
    raise RuntimeError(f"the server at {url} does not answer, wanted within {WAIT:g} s; see server.log")


def word_list(home: Path) -> Path:
    """Writes the corpus `words` of nltk."""
    place = home / "nltk" / "corpora" / "words"
    place.mkdir(parents=True)
    found = sorted(set(re.findall(r"\b[a-z]{4,8}\b", (evidence.ROOT / "LICENSE").read_text())))
    for name in ("en", "en-basic"):
        (place / name).write_text("\n".join(found) + "\n")
    (place / "README").write_text("words of a licence\n")
    return home / "nltk"


def trained(
    python: Path, home: Path, name: str, task: str, more: list[str], variables: Mapping[str, str]
) -> dict[str, Any]:
    """The figures of a run."""
    file, run = home / f"{name}.py", home / name
    file.write_text(task)
    words = [str(python), "-m", "purestep", "train", f"{file}:TASK", "--run", str(run), *SMALL, *more]
    around = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(evidence.ROOT / ".links"), **variables}
    start = time.perf_counter()
    ended = subprocess.run(words, cwd=home, env=around, capture_output=True, text=True, check=False)
    row: dict[str, Any] = {"versions": versions(python), "exit": ended.returncode}
    row["seconds"] = round(time.perf_counter() - start, 1)
    if ended.returncode:
        return {**row, "printed": (ended.stdout + ended.stderr).strip().splitlines()[-3:]}
    every = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows = [one for one in every if isinstance(one["episode_return"], float)]  # without those of a warm start
    kept = [json.loads(line) for line in (run / "conversations.jsonl").read_text().splitlines()]
    return {
        **row,
        "steps": len(rows),
        "reward": [round(one["episode_return"], 4) for one in rows],
        "turns": [round(one["turns"], 2) for one in rows],
        "raised": [one["label/raised"] for one in rows],
        "a conversation": kept[0],
    }


def versions(python: Path) -> dict[str, str]:
    """The versions of the libraries in an environment."""
    names = ["openenv", "verifiers", "textarena", "torch", "transformers"]
    code = "import json; from importlib.metadata import distributions as there; "
    code += f"print(json.dumps({{one.name: one.version for one in there() if one.name in {names}}}))"
    found: dict[str, str] = json.loads(
        subprocess.run([str(python), "-c", code], capture_output=True, check=True).stdout
    )
    return found


def main() -> int:
    """Trains both, and writes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.foreign_envs", description=__doc__)
    parser.add_argument("--only", choices=["openenv", "verifiers"], help="one of them")
    parser.add_argument("--steps", type=int, default=5, help="(default: 5)")
    asked = parser.parse_args()
    start, load, rows = time.perf_counter(), [round(each, 2) for each in os.getloadavg()], dict[str, Any]()
    with tempfile.TemporaryDirectory() as folder:
        home, steps = Path(folder), ["--steps", str(asked.steps)]
        if asked.only != "verifiers":
            python = environment("openenv")
            more = ["--capacity", "96", "--max-new-tokens", "12", "--max-turns", "3", *steps]
            with echo_server(python, home) as url:
                rows["openenv"] = trained(python, home, "echo", ECHO.format(url=url), more, {})
            print(json.dumps(rows["openenv"]), flush=True)
        if asked.only != "openenv":
            python = environment("verifiers")
            more = ["--capacity", "1536", "--max-new-tokens", "8", "--max-turns", "9", "--budget", "4096", *steps]
            more += ["--warm-steps", "40", "--demonstrations", "48", "--warm-batch", "8"]
            variables = {"NLTK_DATA": str(word_list(home))}
            rows["verifiers"] = trained(python, home, "game", GAME, more, variables)
            print(json.dumps(rows["verifiers"]), flush=True)
    evidence.write("foreign_envs", seconds=time.perf_counter() - start, figures={"load before": load, "runs": rows})
    faults = [
        name
        for name, row in rows.items()
        if row["exit"] or row["steps"] != asked.steps or any(row["raised"]) or not any(row["reward"])
    ]
    print(f"not as it should be: {faults}" if faults else "as it should be")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
