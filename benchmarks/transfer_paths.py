"""Every way of weights from one process to another, in parts of the speed of a plain copy, at two sizes.

For each size and way a publisher in a process of its own opens an outlet; this process fetches, into the same memory, and
looks at every number. Fetches and `copy_` between two buffers take turns, one way after the other. A broadcast is published
and fetched at once, so its time is both. All is on one machine: what a network would add, or limit, is not in it. Ways that
cannot be run here are named with the reason. Writes benchmarks/results/transfer_paths.json, or transfer_paths_small.json with
other arguments than usual; exit code 1 where a number was not what was published.
"""

import argparse
import importlib.util
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from purestep.runtime.effects.transfer import Inlet, inlet

from . import evidence, transfer_paths_sides
from .transfer_paths_sides import KEY, MONARCH, OPTIONS, VERSIONS
from .transfer_sides import Params, params_of, size, whole

Publish = Callable[[str, int], Callable[[], float]]  # begins a publication; gives the waiting for its seconds


def runnable() -> tuple[list[str], dict[str, str]]:
    """The ways that can be run here, and why the others cannot."""
    missing = {}
    if importlib.util.find_spec("xxhash") is None:
        missing["TCP, xxh3"] = "xxhash is not installed"
    if importlib.util.find_spec("monarch") is None:
        missing[MONARCH] = "torchmonarch is not installed"
    if not torch.cuda.is_available():
        missing["NCCL broadcast"] = "there is no GPU"
    return [name for name in (*OPTIONS, MONARCH) if name not in missing], missing


@contextmanager
def process(megabytes: float, names: tuple[str, ...]) -> Iterator[tuple[dict[str, Any], Publish]]:
    """A publisher of these ways: its addresses, and how it is told to publish."""
    ours, theirs = multiprocessing.Pipe()
    side = multiprocessing.get_context("spawn").Process(
        target=transfer_paths_sides.serve, args=(theirs, megabytes, names), daemon=True
    )
    side.start()

    def publish(name: str, version: int) -> Callable[[], float]:
        ours.send((name, version))
        ours.recv()  # the weights are made, and now published
        return ours.recv

    yield ours.recv(), publish
    ours.send(())
    side.join(30.0)


@contextmanager
def actor(megabytes: float) -> Iterator[tuple[Any, Publish]]:
    """The same, as an actor of Monarch."""
    import monarch.actor

    monarch.actor.unhandled_fault_hook = lambda failure: None  # by default it ends this process
    procs = monarch.actor.this_host().spawn_procs(per_host={"gpus": 1})
    trainer = procs.spawn("trainer", transfer_paths_sides.trainer(), megabytes)

    def publish(_: str, version: int) -> Callable[[], float]:
        waiting = trainer.publish.call_one(version)
        return lambda: float(waiting.get(timeout=600.0))

    yield trainer.address.call_one().get(timeout=600.0), publish
    procs.stop().get(timeout=60.0)


def fetched(reader: Inlet, newer_than: int, into: Any) -> tuple[Any, ...]:
    """Fetches until there is something newer."""
    while not (found := reader.fetch(newer_than, into, 600.0)):
        time.sleep(0.0005)
    return found


def table(megabytes: float, rounds: int, names: Sequence[str]) -> dict[str, Any]:
    """The table for one size: one way after the other, each beside copies of its own, since memory would not do for all."""
    spent, publishing, copies = dict[str, list[float]](), dict[str, list[float]](), dict[str, list[float]]()
    wrong: list[str] = []
    for name in names:
        spent[name], publishing[name], copies[name] = [], [], []
        for version, (copied, taken, told, is_whole) in enumerate(_rounds(megabytes, rounds, name)):
            wrong += [] if is_whole else [f"{name}: version {version} is not whole"]
            if version:  # the first one makes the room
                copies[name].append(copied)
                spent[name].append(taken)
                publishing[name].append(told)
    return _figures(params_of(megabytes), spent, publishing, copies) | {"faults": wrong}


def _rounds(megabytes: float, rounds: int, name: str) -> Iterator[tuple[float, float, float, bool]]:
    """Of each version: seconds of a plain copy, of the fetch and of its publication, and whether it came whole."""
    flat = [torch.cat([leaf.flatten() for leaf in params_of(megabytes).values()]) for _ in range(2)]
    with ExitStack() as stack:
        if name == MONARCH:
            address, tell = stack.enter_context(actor(megabytes))
        else:
            addresses, tell = stack.enter_context(process(megabytes, (name,)))
            address = addresses[name]
        reader = stack.enter_context(_inlet(name, address, megabytes))
        into: Any = ()
        for version in range(rounds + 1):
            start = time.perf_counter()
            flat[1].copy_(flat[0])
            copied = time.perf_counter() - start
            taken, told, into = _turn(name, reader, tell, version, into)
            yield copied, taken, told, whole(into, version % VERSIONS)


def _inlet(name: str, address: Any, megabytes: float) -> Any:
    keyed = {"key": KEY} if "key" in OPTIONS.get(name, {}) else {}
    return inlet(address, params_of(megabytes), **keyed)


def _turn(name: str, reader: Inlet, tell: Publish, version: int, into: Any) -> tuple[float, float, Params]:
    """Seconds of a fetch and of its publication; what was fetched."""
    together = name == "gloo broadcast"
    waiting = tell(name, version)
    told = 0.0 if together else waiting()
    start = time.perf_counter()
    found = fetched(reader, version - 1, into)
    taken = time.perf_counter() - start
    return taken, waiting() if together else told, found[1]


def _figures(
    params: Params, spent: dict[str, list[float]], publishing: dict[str, list[float]], copies: dict[str, list[float]]
) -> dict[str, Any]:
    taken, told, copied = (
        {name: statistics.median(times) for name, times in each.items()} for each in (spent, publishing, copies)
    )
    return {
        "bytes": size(params),
        "tensors": len(params),
        "seconds of a fetch": {name: round(value, 5) for name, value in taken.items()},
        "seconds of a copy": {name: round(value, 5) for name, value in copied.items()},
        "bytes a second": {name: round(size(params) / value) for name, value in taken.items()},
        "of a copy": {name: round(copied[name] / value, 3) for name, value in taken.items()},
        "publishing, of a copy": {name: round(copied[name] / value, 3) for name, value in told.items()},
    }


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transfer_paths", description=__doc__)
    parser.add_argument("--megabytes", type=float, nargs="+", default=[100.0, 1000.0], help="sizes of the table")
    parser.add_argument("--rounds", type=int, default=7)
    return parser.parse_args(words)


def main() -> int:
    """Prints the tables and writes the result file."""
    given = parse()
    torch.set_num_threads(1)
    began = time.perf_counter()
    names, missing = runnable()
    tables = {f"{megabytes:g} MB": table(megabytes, given.rounds, names) for megabytes in given.megabytes}
    for title, rows in tables.items():
        for name, ratio in rows["of a copy"].items():
            rate = rows["bytes a second"][name] / 1e9
            told = rows["publishing, of a copy"].get(name, "")
            print(f"{title:10}{name:20}{ratio:8.3f} of a copy{rate:8.2f} GB/s   publishing {told}")
    print("\n".join(f"not run: {name}, since {why}" for name, why in missing.items()))
    wrong = [fault for rows in tables.values() for fault in rows["faults"]]
    print("\n".join(wrong) or "every number was what was published")
    name = "transfer_paths" if vars(given) == vars(parse([])) else "transfer_paths_small"
    figures = {"tables": tables, "not run": missing}
    path = evidence.write(name, seconds=time.perf_counter() - began, figures=figures)
    print(f"written: {path.relative_to(evidence.ROOT)}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
