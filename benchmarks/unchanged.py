"""Digests of values that a refactoring must not change: parameters, metrics, samples and evaluations of small runs.

Each case is a run of the command line: fresh and whole; then anew, interrupted (SIGINT) at checkpoints and resumed, which must
end with the same values; then evaluated. Runs with generators depend on the clock, so that one was recorded in
benchmarks/recorded/unchanged: its events are gone through again, its newest weights evaluated, and its updates made again from
the samples that it learned from, by each loss. The batches of `ranks_agree` are learned from on 1 and 2 ranks.

What each case gave at an earlier commit stands in benchmarks/recorded/unchanged_INSTRUCTIONS.json, which names it; only
`--record` writes it, after each case gave the same twice. Names do not count: see `unchanged_values`, which also maps renamed
metrics, tags and fields. Bits depend on the version of torch and on the processor, so that nothing is compared where those are
others. `--against COMMIT` needs no record: the cases are first run with the package of that commit, one that takes these
arguments, and then with this one's, on the same machine. Matrix products are the library's, those with few outputs are summed,
and results are stored, as they were when the record was made (AS_RECORDED). With another `--seed` every case differs. Compiled
programs are compiled anew.
Prints a table and writes results/unchanged.json; exit code 1 where something differs.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from purestep.runtime.effects.checkpoint.single import environment

from . import evidence
from .machines import ranks_agree
from .parts.unchanged_values import (
    NUMBER,
    Values,
    columns,
    differences,
    figures,
    leaves,
    newest,
    printed,
    shown,
    texts,
    translate,
)

AS_RECORDED = """
import contextlib, sys
from purestep.core import networks
networks.MANY_ROWS = 256
with contextlib.suppress(ImportError):
    from purestep.runtime.inductor import products
    products.VECTORS = ()
    from purestep.runtime.inductor import compile_speed
    compile_speed.SMALL = 0
"""  # products and kernels that round as they did
PURESTEP = (
    *(sys.executable, "-c"),
    f"{AS_RECORDED}\nfrom purestep.runtime.cli.main import main\nsys.exit(main(sys.argv[1:]))",
)
INSTRUCTIONS = torch.backends.cpu.get_cpu_capability()
EXPECTED = evidence.ROOT / "benchmarks" / "recorded" / f"unchanged_{INSTRUCTIONS.lower()}.json"
RECORDED = EXPECTED.with_name("unchanged")  # a run with generators, and what its updates learned from
SEED = 3
LONGEST, TRIES, PAUSE = 600.0, 3, 0.002  # seconds of a process, interruptions that came too late, seconds between looks

GAMES = ("--hidden", "16", "16", "--checkpoints", "10", "--episodes", "10")
EAGER, COMPILED = ("--backend", "none"), ("--backend", "inductor")
PLAYED = ("--episodes", "8", "--seed", "1", "--action", "sample")
SPEECH = (
    *("--width", "32", "--layers", "2", "--heads", "2", "--vocabulary", "280", "--warm-steps", "120"),
    *("--demonstrations", "200", "--steps", "5", "--held-out", "16", "--muon-precision", "bfloat16"),
)
TURNS = (
    *(*SPEECH, "--kind", "simple", "--words", "letters", "--groups", "4", "--samples", "4"),
    *("--max-turns", "3", "--capacity", "64", "--skill", "0.35", "--format", "0.1", "--tool-spam", "0.1"),
    *("--minibatches", "2", "--kl", "0"),
)


@frozen
class Case:
    """A run of the command line."""

    train: tuple[str, ...]  # the recipe and its options
    evaluate: tuple[str, ...]  # options of the evaluation
    stops: tuple[int, ...]  # checkpoints from which on it is interrupted, one process after the other
    chat: tuple[str, ...] = ()  # options of a conversation


RUNS: Mapping[str, Case] = {
    "ppo-cartpole": Case(("ppo", "--env", "cartpole", "--steps", "81_920", *GAMES, *COMPILED), PLAYED, (60,)),
    "ppo-pendulum": Case(
        ("ppo", "--env", "pendulum", "--steps", "7_680", "--horizon", "16", "--epochs", "2", *GAMES, *EAGER),
        PLAYED,
        (12,),
    ),
    "a2c-cartpole": Case(("a2c", "--env", "cartpole", "--steps", "7_680", *GAMES, *EAGER), PLAYED, (12,)),
    "a2c-pendulum": Case(("a2c", "--env", "pendulum", "--steps", "7_680", *GAMES, *EAGER), PLAYED, (12,)),
    "reinforce-cartpole": Case(("reinforce", "--env", "cartpole", "--steps", "15_360", *GAMES, *EAGER), PLAYED, (12,)),
    "reinforce-acrobot": Case(("reinforce", "--env", "acrobot", "--steps", "15_360", *GAMES, *EAGER), PLAYED, (12,)),
    "prove": Case(
        (
            *("prove", "--data", "family:40", "--steps", "2_560", "--envs", "16", "--horizon", "16"),
            *("--warm-up", "200", "--size", "16", "--width", "16", "--blocks", "1", "--checkpoints", "10", *EAGER),
            *("--candidates", "10", "--queries", "8"),
        ),
        ("--candidates", "10", "--queries", "8", "--split", "valid", "--draw", "1"),
        (5,),
    ),
    "zorplex-grpo": Case(("zorplex", *TURNS), ("--tasks", "16", "--draw", "1"), (3, 8), ("--task", "3")),
    "zorplex-ppo": Case(
        (
            *("zorplex", "--algorithm", "ppo", *TURNS, "--words", "syllables", "--kl", "0.1", "--epochs", "2"),
            *("--truncated", "bootstrap", "--entropy-coefficient", "0.01", "--correction", "truncate"),
            *("--max-new-tokens", "8"),
        ),
        ("--tasks", "16", "--draw", "1"),
        (3, 8),
        ("--task", "3"),
    ),
    "cache": Case(
        (
            *("cache", *SPEECH, "--kind", "maximum", "--problems", "4", "--samples", "4", "--cycles", "4"),
            *("--longest", "5", "--test-longest", "5"),
        ),
        ("--problems", "8", "--draw", "1", "--cycles", "3"),
        (3, 8),
    ),
}


@frozen
class Found:
    """What a case gave."""

    fresh: Values
    resumed: Values | tuple[()] = ()
    evaluation: Values | tuple[()] = ()


def called(*words: object, cache: Path) -> str:
    """What a command prints. Raises: RuntimeError where it fails."""
    run = subprocess.run(
        list(map(str, words)),
        capture_output=True,
        text=True,
        env=surroundings(cache),
        cwd=evidence.ROOT,
        timeout=LONGEST,
    )
    if run.returncode:
        said = "; ".join(run.stderr.strip().splitlines()[-3:])
        raise RuntimeError(f"{' '.join(map(str, words[2:]))}: ended with {run.returncode}: {said}")
    return run.stdout


def surroundings(cache: Path) -> dict[str, str]:
    """The environment of a process whose compiled programs are kept in that folder."""
    own = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "XDG_CACHE_HOME": str(cache)}
    return {**os.environ, **own, "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor")}


def interrupted(words: Sequence[object], run: Path, at: int, cache: Path) -> bool:
    """Interrupts a command once the run has that checkpoint; false where it came to its end before. Raises: RuntimeError."""
    with (run.parent / "interrupted.log").open("w") as log:
        process = subprocess.Popen(
            [*PURESTEP, *map(str, words)], stdout=log, stderr=log, env=surroundings(cache), cwd=evidence.ROOT
        )
        try:
            while process.poll() is None and newest(run) < at:
                time.sleep(PAUSE)
            process.send_signal(signal.SIGINT)
            code = process.wait(LONGEST)
        finally:
            process.kill()
    if code not in (0, 130):
        raise RuntimeError(f"{run.name}: ended with {code}: {(run.parent / 'interrupted.log').read_text()[-300:]}")
    return code == 130


def values_in(run: Path, text: str = "") -> Values:
    """What a run has left, and what it printed."""
    found: Values = {
        "leaves": leaves(run),
        "metrics": columns(run / "metrics.jsonl"),
        "samples": texts(run / "rollouts.jsonl"),
        "figures": figures(run / "evaluation.json"),
        "printed": printed(text),
    }
    return {kind: value for kind, value in found.items() if value}


def of_run(case: Case, place: Path, seed: int) -> Found:
    """A fresh run, one that is interrupted and resumed, and its evaluation."""
    cache, words = place / "cache", ("train", *case.train, "--seed", seed, "--run")
    fresh, run = place / "fresh", place / "resumed"
    values = values_in(fresh, called(*PURESTEP, *words, fresh, cache=cache))
    for _ in range(TRIES):
        shutil.rmtree(run, ignore_errors=True)
        sessions = [(*words, run), *(("resume", run) for _ in case.stops[1:])]
        if all(interrupted(each, run, at, cache) for each, at in zip(sessions, case.stops, strict=True)):
            break
    else:
        raise RuntimeError(
            f"came to its end before it could be interrupted at {case.stops}, {TRIES} times: make it longer"
        )
    closing = [word for word in case.train if word in ("--episodes", "--candidates", "--queries")]
    closing = [each for word in closing for each in (word, case.train[case.train.index(word) + 1])]
    resumed = values_in(run, called(*PURESTEP, "resume", run, *closing, cache=cache))
    text = called(*PURESTEP, "evaluate", run, *case.evaluate, cache=cache)
    evaluation: Values = {"printed": printed(text), "figures": figures(run / "evaluation.json")}
    if case.chat:
        evaluation["chat"] = spoken(called(*PURESTEP, "chat", run, *case.chat, cache=cache))
    return Found(values, resumed, evaluation)


def spoken(text: str) -> list[str]:
    """What was said in a conversation, line by line, without who said it; its reward last.

    >>> spoken("task 3 (right: 4)\\n  user    2 + 2?\\n  model   [4]\\n  (success, reward 1.00)")
    ['2 + 2?', '[4]', '1.00']
    """
    _, *lines, end = text.splitlines()
    return [*(line[10:] for line in lines), *NUMBER.findall(end)]


def of_recorded(place: Path, seed: int) -> Found:
    """The recorded run: its events gone through again, its newest weights evaluated."""
    run = recorded_in(place, seed)
    replay = called(*PURESTEP, "replay", run, cache=place)
    text = called(*PURESTEP, "evaluate", run, "--tasks", "24", "--draw", seed, cache=place)
    return Found({"replay": [float(number) for number in NUMBER.findall(replay)]}, (), {"printed": printed(text)})


def of_samples(place: Path, seed: int) -> Found:
    """The recorded run's updates made again from its samples, by each loss."""
    run, out = recorded_in(place, seed), place / "out"
    samples = RECORDED / "samples.safetensors"
    called(sys.executable, "-m", "benchmarks.parts.unchanged_side", run, samples, out, cache=place)
    kinds = {path.name: values_in(path) for path in sorted(out.iterdir())}
    return Found({f"{kind}, {name}": value for name, values in kinds.items() for kind, value in values.items()})


def recorded_in(place: Path, seed: int) -> Path:
    """A copy of the recorded run, with the names of now; another seed than the usual one changes its arguments."""
    run = place / "run"
    shutil.copytree(RECORDED / "run", run)
    translate(run)
    if seed != SEED:
        path = run / "arguments.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "seed": seed}))
    return run


def of_ranks(ranks: int, place: Path, seed: int) -> Found:
    """The losses of recorded batches on so many ranks, at once and in two goes; another seed leaves out a batch."""
    first, last = 6, 12 if seed == SEED else 11
    fresh, resumed = place / "fresh", place / "resumed"

    def learned(out: Path, *words: object) -> list[float]:
        return ranks_agree.trained(out, ranks_agree.RECORDED, *words, ranks=ranks)

    values: Values = {"losses": learned(fresh, "--last", last), "leaves": leaves(fresh)}
    learned(resumed, "--last", first)
    again: Values = {"losses": learned(resumed, "--first", first, "--last", last), "leaves": leaves(resumed)}
    return Found(values, again)


CASES: Mapping[str, Callable[[Path, int], Found]] = {
    **{name: partial(of_run, case) for name, case in RUNS.items()},
    "async-replay": of_recorded,
    "async-learning": of_samples,
    "ranks-1": partial(of_ranks, 1),
    "ranks-2": partial(of_ranks, 2),
}


@frozen
class Row:
    """What came of a case: in each column lines about what differs, () where there was nothing to compare."""

    name: str
    seconds: float
    found: Found
    fresh: list[str] | tuple[()] = ()  # against what is recorded
    resumed: list[str] | tuple[()] = ()  # against the fresh run
    evaluation: list[str] | tuple[()] = ()  # against what is recorded

    def columns(self) -> dict[str, list[str] | tuple[()]]:
        """Lines about what differs, by column."""
        return {"fresh": self.fresh, "resumed": self.resumed, "evaluation": self.evaluation}

    def wrong(self) -> list[str]:
        """Lines about what differs."""
        return [f"{self.name}, {column}: {line}" for column, lines in self.columns().items() for line in lines]


def performed(name: str, seed: int) -> tuple[Found, float]:
    """What a case gives, and the seconds that it took. Raises: RuntimeError, OSError where it failed."""
    since = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix=f"unchanged-{name}-") as place:
        found = CASES[name](Path(place), seed)
    return found, time.perf_counter() - since


def compared(name: str, seed: int, recorded: Mapping[str, Values]) -> Row:
    """A case beside what it gave when it was recorded."""
    try:
        found, seconds = performed(name, seed)
    except (RuntimeError, OSError, subprocess.SubprocessError) as failure:
        return Row(name, 0.0, Found({}), fresh=[f"failed: {' '.join(str(failure).split())}"])
    wanted = recorded.get(name, {})
    if not wanted:
        return Row(name, seconds, found, fresh=["not recorded"])
    return Row(
        name,
        seconds,
        found,
        differences(wanted["fresh"], found.fresh),
        differences(found.fresh, found.resumed) if found.resumed else (),
        differences(wanted["evaluation"], found.evaluation) if found.evaluation else (),
    )


def facts() -> dict[str, Any]:
    """What bits depend on beside the code."""
    torch.set_num_threads(1)
    libraries = {name: metadata.version(name) for name in ("transformers", "tokenizers")}
    compiler = subprocess.run(["c++", "-dumpfullversion"], capture_output=True, text=True, check=False).stdout.strip()
    return {**environment(), **libraries, "compiler": compiler}


def processor() -> str:
    """The name of the processor, where the system tells it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())


def line(row: Row) -> str:
    """A row of the table."""
    words = ["-" if isinstance(each, tuple) else "differs" if each else "equal" for each in row.columns().values()]
    return f"{row.name:20}" + "".join(f"{word:>12}" for word in words) + f"{row.seconds:>10.0f}"


def earlier(commit: str, names: Sequence[str], seed: int, jobs: int) -> dict[str, Any]:
    """What cases give with the package of a commit. Raises: CalledProcessError."""
    with tempfile.TemporaryDirectory(prefix="unchanged-") as folder:
        clone, given = Path(folder) / "clone", Path(folder) / "given.json"
        subprocess.run(["git", "clone", "--quiet", evidence.ROOT, clone], check=True)
        subprocess.run(["git", "-C", clone, "checkout", "--quiet", commit], check=True)
        words = ["--once", given, "--jobs", jobs, "--seed", seed, "--only", *names]
        paths = os.pathsep.join((str(clone / ".links"), str(evidence.ROOT)))
        whole = [sys.executable, "-m", "benchmarks.unchanged", *map(str, words)]
        subprocess.run(whole, check=True, cwd=evidence.ROOT, env={**os.environ, "PYTHONPATH": paths})
        found: dict[str, Any] = json.loads(given.read_text())
    return {"commit": evidence.git("rev-parse", commit), "processor": processor(), "facts": facts(), "cases": found}


def once(path: Path, names: Sequence[str], seed: int, jobs: int) -> int:
    """Writes what cases give to a file."""
    with ThreadPoolExecutor(jobs) as pool:
        cases = {}
        for name, (found, seconds) in zip(names, pool.map(lambda name: performed(name, seed), names), strict=True):
            cases[name] = {"fresh": found.fresh, "evaluation": found.evaluation}
            print(f"{name:20} before {seconds:>39.0f}", flush=True)
    path.write_text(json.dumps(cases))
    return 0


def record(names: Sequence[str], jobs: int) -> int:
    """Writes down what cases give, where they give the same twice and after being resumed."""
    held = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    if held.get("facts", facts()) != facts() and set(names) < set(CASES):
        print(f"{EXPECTED.name} has values of another environment; record all cases together")
        return 1
    cases = dict(held.get("cases", {})) if held.get("facts") == facts() else {}
    wrong = []
    with ThreadPoolExecutor(jobs) as pool:
        once, again = ([pool.submit(performed, name, SEED) for name in names] for _ in range(2))
        for name, *both in zip(names, once, again, strict=True):
            found, other = (each.result()[0] for each in both)
            apart = [
                *differences(found.fresh, other.fresh),
                *(differences(found.fresh, found.resumed) if found.resumed else ()),
                *(differences(found.evaluation, other.evaluation or {}) if found.evaluation else ()),
            ]
            wrong += [f"{name}: {each}" for each in apart]
            evaluation = {"evaluation": found.evaluation} if found.evaluation else {}
            cases[name] = {"shown": shown(found.fresh), "fresh": found.fresh, **evaluation}
            print(f"{name:20} {'not the same twice' if apart else 'the same twice'}", flush=True)
    if wrong:
        print("nothing is recorded:", *wrong, sep="\n")
        return 1
    about = {"commit": evidence.git("rev-parse", "HEAD"), "processor": processor(), "facts": facts()}
    ordered = {name: cases[name] for name in CASES if name in cases}
    EXPECTED.write_text(written({**about, "cases": ordered}))
    print(f"written: {EXPECTED.relative_to(evidence.ROOT)}, {EXPECTED.stat().st_size:,} bytes")
    return 0


def written(value: Any, depth: int = 4) -> str:
    """JSON with a line for each value down to a depth.

    >>> print(written({"a": {"b": [1, 2]}}, 1), end="")
    {
    "a": {"b": [1, 2]}
    }
    """
    if not depth or not isinstance(value, dict) or not value:
        return json.dumps(value)
    rows = (f"{json.dumps(name)}: {written(inner, depth - 1).rstrip()}" for name, inner in value.items())
    return "{\n" + ",\n".join(rows) + "\n}\n"


def main() -> int:
    """Compares or records; 0 where all is as it was recorded."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unchanged", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument(
        "--record", action="store_true", help="write what the cases give now into the file of expectations"
    )
    parser.add_argument(
        "--against", default="", metavar="COMMIT", help="run the cases at that commit first, on this machine"
    )
    parser.add_argument("--once", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=SEED, help="of all runs; with another one every case must differ")
    parser.add_argument("--jobs", type=int, default=2, help="cases at the same time")
    options = parser.parse_args()
    if options.record:
        return record(options.only, options.jobs)
    if options.once:
        return once(options.once, options.only, options.seed, options.jobs)
    if not options.against and not EXPECTED.exists():
        print(f"nothing was compared: nothing is recorded for processors with {INSTRUCTIONS}; use --against COMMIT")
        return 1
    now, since = facts(), time.perf_counter()
    if options.against:
        recorded = earlier(options.against, options.only, options.seed, options.jobs)
    else:
        recorded = json.loads(EXPECTED.read_text())
    if other := {name: (was, now.get(name)) for name, was in recorded["facts"].items() if now.get(name) != was}:
        said = ", ".join(f"{name} {was} when recorded, {at} now" for name, (was, at) in other.items())
        print(f"nothing was compared: {said}; use --against COMMIT")
        return 1
    print(
        f"{'':20}" + "".join(f"{word:>12}" for word in ("fresh", "resumed", "evaluation")) + f"{'seconds':>10}",
        flush=True,
    )
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = []
        for row in pool.map(lambda name: compared(name, options.seed, recorded["cases"]), options.only):
            print(line(row), *(f"  {each}" for each in row.wrong()), sep="\n", flush=True)
            rows.append(row)
    wrong = [each for row in rows for each in row.wrong()]
    if wrong and processor() != recorded["processor"]:
        print(f"recorded on {recorded['processor']}; this is {processor()}: use --against COMMIT")
    seconds = time.perf_counter() - since
    print(f"{'all equal' if not wrong else f'{len(wrong)} differences'}, {seconds:.0f} s")
    if options.seed == SEED and list(options.only) == list(CASES):
        cases = {
            row.name: {**as_words(row), "seconds": round(row.seconds, 1), **shown(row.found.fresh)} for row in rows
        }
        told = {
            "compared with": recorded["commit"],
            "processor": processor(),
            "facts": now,
            "cases": cases,
            "differences": wrong,
        }
        evidence.write("unchanged", seconds=seconds, figures=told)
    return 1 if wrong else 0


def as_words(row: Row) -> dict[str, str]:
    """Each column of a case in a word."""
    return {
        name: "nothing to compare" if isinstance(each, tuple) else "differs" if each else "equal"
        for name, each in row.columns().items()
    }


if __name__ == "__main__":
    sys.exit(main())
