"""How fast proofs are played: compiled against eager, resets and recycling, the parts of a step, growth, memory, compilations.

Everything runs in one process on one thread (the memory in one of its own); what is compared runs in turn, again and again, and
the medians count. Writes results/prove_speed.json and a picture.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from attrs import evolve

from purestep.core import keys
from purestep.core.env import auto_reset, batched
from purestep.core.logic.derive import derive
from purestep.core.logic.env import begin as begin_episodes
from purestep.core.logic.env import observe, proving
from purestep.core.logic.game import advance
from purestep.core.policy import ActorCritic
from purestep.core.scan import scan
from purestep.runtime.compile import Program, program
from purestep.runtime.logic.rank import asked, scorer
from purestep.runtime.logic.world import Proofs
from purestep.runtime.recipes.arguments import changed
from purestep.runtime.recipes.prove import model_of, opened, prove_defaults
from purestep.runtime.rollout import begin, rollout

from . import evidence

mpl.use("Agg")
SLOTS, STEPS, ROUNDS = 128, 32, 7
Timed = Callable[[], object]


def medians(sides: Mapping[str, Timed], rounds: int = ROUNDS) -> dict[str, float]:
    """The median seconds of each side, the sides taking turns after one call of each that does not count."""
    for side in sides.values():
        side()
    spent: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            spent[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in spent.items()}


def made_of(data: str, **changes: Any) -> tuple[Proofs, ActorCritic]:
    """The game on some data, and an untrained policy for it."""
    arguments = changed(prove_defaults(data), changes)
    made = opened(arguments)
    return made, model_of(arguments, made)


def acting(made: Proofs, model: ActorCritic, reset: str, slots: int = SLOTS, compiled: bool = True) -> Timed:
    """A training rollout: its reset is the env's "own", or computed beside every step, "select"."""
    plain = proving(made.game, made.world, reset="own" if reset == "own" else "none")
    env = batched(plain if reset == "own" else auto_reset(plain, reset), slots)
    run: Any = rollout(env, model, STEPS)
    run = program(run, name=f"rollout {reset} {slots}") if compiled else run
    params, worlds = model.init(keys.key(0)), begin(env, keys.key(1))

    def call() -> object:
        with torch.no_grad():
            return run(params, worlds, keys.key(2))

    return call


def rollouts(made: Proofs, model: ActorCritic) -> dict[str, float]:
    """Steps a second of the training rollout at 128 slots."""
    sides = {f"compiled, reset {reset}": acting(made, model, reset) for reset in ("own", "select", "pooled")}
    fast = medians(sides)
    slow = medians({"eager, reset own": acting(made, model, "own", compiled=False)}, 3)
    rates = {name: round(SLOTS * STEPS / seconds) for name, seconds in {**fast, **slow}.items()}
    return {**rates, "compiled against eager": round(slow["eager, reset own"] / fast["compiled, reset own"], 2)}


def parts(made: Proofs, model: ActorCritic) -> dict[str, float]:
    """Microseconds of a step of 128 slots, part by part, each alone in a loop of its own."""
    env = batched(proving(made.game, made.world, reset="own"), SLOTS)
    params, game, world = model.init(keys.key(0)), made.game, made.world
    worlds, _ = rollout(env, model, STEPS)(params, begin(env, keys.key(1)), keys.key(2))
    state, each = worlds.state, keys.split(keys.key(3), STEPS)

    def looped(step: Callable[[Any, Any], Any]) -> Timed:
        run = program(lambda state, each: scan(lambda s, k: (step(s, k), ()), state, each, output=())[0], name="part")
        return lambda: run(state, each)

    def engine(state: Any, key: Any) -> Any:
        found = derive(game.names, world.base, game.widths, state.current, state.original_query)
        return evolve(state, derived=found.states, derived_count=found.count, origin=found.origin)

    def policy(state: Any, key: Any) -> Any:
        distribution, _, _ = model.apply(params, observe(state), ())
        action = distribution.transform(keys.uniform(keys.split(key, SLOTS)))
        return evolve(state, depth=state.depth + action)

    def resets(state: Any, key: Any) -> Any:
        own = torch.vmap(lambda k, p, c: begin_episodes(game, world, k, p, c))
        fresh = own(keys.split(key, SLOTS), state.pointer, state.negative_counter)
        return evolve(state, current=fresh.current, original_query=fresh.original_query, history=fresh.history)

    sides: dict[str, Callable[[Any, Any], Any]] = {
        "engine": engine,
        "policy": policy,
        "reset": resets,
        "move": lambda state, key: advance(game, state, state.depth * 0),
        "copies": lambda state, key: torch.utils._pytree.tree_map(
            lambda leaf: leaf + 0 if leaf.dtype != torch.bool else ~leaf, state
        ),
    }
    spent = medians({name: looped(step) for name, step in sides.items()} | {"whole": acting(made, model, "own")})
    return {name: round(1e6 * seconds / STEPS, 1) for name, seconds in spent.items()}


def evaluation(made: Proofs, model: ActorCritic) -> dict[str, float]:
    """Milliseconds for each candidate, with recycled slots and without; compilations over three numbers of candidates."""
    params = model.init(keys.key(0))
    every = asked(made, made.dataset.test, 20, keys.key(0))
    count = every[..., 0].numel()
    scores = {name: scorer(made, model, recycle=flag) for name, flag in (("recycled", True), ("in batches", False))}

    def call(name: str, rows: torch.Tensor = every) -> object:
        with torch.no_grad():
            return scores[name](params, rows)

    spent = medians({name: lambda name=name: call(name) for name in scores}, 3)
    for rows in (every[:, :7], every[:1, :50, :3], asked(made, made.dataset.valid, 3, keys.key(1))):
        call("recycled", rows)
    figures = {f"ms a candidate, {name}": round(1e3 * seconds / count, 4) for name, seconds in spent.items()}
    compiled = scores["recycled"].run
    assert isinstance(compiled, Program)
    figures["compilations over four numbers of candidates"] = len(compiled.seconds)
    return {**figures, "faster by recycling": round(spent["in batches"] / spent["recycled"], 2), "candidates": count}


def growth() -> dict[str, dict[str, float]]:
    """Microseconds of a step of 128 slots by facts, and of a slot by slots."""
    by_facts, by_slots = {}, {}
    for people in (125, 1250, 12500):
        made, model = made_of(f"family:{people}")
        spent = medians({"run": acting(made, model, "own")}, 3)["run"]
        by_facts[str(len(made.dataset.train))] = round(1e6 * spent / STEPS, 1)
    made, model = made_of("family:200")
    for slots in (16, 64, 256, 1024, 2048):
        spent = medians({"run": acting(made, model, "own", slots)}, 3)["run"]
        by_slots[str(slots)] = round(1e6 * spent / STEPS / slots, 3)
    return {"microseconds a step, by facts": by_facts, "microseconds a slot and step, by slots": by_slots}


def memory(data: str) -> dict[str, object]:
    """Peak memory of a process that plays one compiled rollout on some data with mined rules."""
    words = [sys.executable, "-m", "benchmarks.prove_speed", "--memory-of", data]
    told = subprocess.run(words, check=True, capture_output=True, text=True, cwd=evidence.ROOT).stdout.splitlines()[-1]
    facts, mebibytes = told.split()
    return {"data": Path(data).name, "facts": int(facts), "peak MiB": int(mebibytes)}


def play_once(data: str) -> None:
    """What the process of `memory` does."""
    made, model = made_of(data, rules="mine")
    acting(made, model, "own")()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(len(made.dataset.train), peak)


def main() -> None:
    """Measures and writes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prove_speed", description=__doc__)
    parser.add_argument("--large", default="", help="a folder of a large data set, for the memory (default: none)")
    parser.add_argument("--memory-of", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.memory_of:
        play_once(options.memory_of)
        return
    start = time.perf_counter()
    made, model = made_of("family:200")
    figures: dict[str, object] = {}
    sections: dict[str, Callable[[], object]] = {
        "rollout, steps/s": lambda: rollouts(made, model),
        "microseconds a step": lambda: parts(made, model),
        "evaluation": lambda: evaluation(made, model),
        "growth": growth,
    }
    if options.large:
        sections["memory"] = lambda: memory(options.large)
    for name, measure in sections.items():
        figures[name] = measure()
        print(name, figures[name], flush=True)
    print(evidence.write("prove_speed", seconds=time.perf_counter() - start, figures=figures))


if __name__ == "__main__":
    main()
