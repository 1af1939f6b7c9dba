"""Weights from a trainer to a generator on one machine, in parts of the speed of a plain copy, and under a writer that laps.

For each size: publishing and fetching through the ring of slots, fetching into new memory, a checksum on both sides, and one
message for each tensor through a pipe, beside `copy_` between two buffers; all sides take turns in one run. From one set of
buffers to the next ratios differ by some tenths, for reasons that are not taken apart here: so the table is made several times,
with new buffers, and its figures are medians of these, with the least and the most beside them. Then readers in
processes of their own look at every number they fetch while the writer never waits: as fast as they can, and held up in the
middle of every other copy, so that they are overtaken. Writes benchmarks/results/weight_transfer.json, or
weight_transfer_small.json with other arguments than usual; exit code 1 where publishing or fetching is slower than 0.8 of
the copy, where a read was torn, or where readers that were held up were never overtaken.
"""

import argparse
import multiprocessing
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from purestep.runtime.effects.weight_sync.shared_memory.publisher import publishing, reading
from purestep.runtime.effects.workers.pool import WorkerAnswer, WorkerJoined, Workers, working

from .. import evidence
from ..parts import transfer_sides
from ..parts.timing import turns
from ..parts.transfer_sides import KINDS, Params, filled, params_of, size

TARGET = 0.8
PAUSE = 0.02  # seconds in the middle of every other copy of a reader that is held up
Report = dict[str, Any]


def speeds(megabytes: float, rounds: int) -> Report:
    """The table for one size, of buffers made for it."""
    params, into = filled(params_of(megabytes), 1), params_of(megabytes)
    flat = [torch.cat([leaf.flatten() for leaf in tree.values()]) for tree in (params, into)]
    ours, theirs = multiprocessing.Pipe()
    other = multiprocessing.get_context("spawn").Process(
        target=transfer_sides.received, args=(theirs, megabytes, rounds + 1), daemon=True
    )
    other.start()
    with (
        publishing(params, guard="sequence") as weights,
        publishing(params, guard="checksum") as summed,
        working(transfer_sides.body, size=1, patience=600.0) as workers,
    ):
        weights.publish(0, params)
        reader, checking = reading(weights.path, params), reading(summed.path, params)
        version = 0

        def publish(publisher: Any) -> None:
            nonlocal version
            version += 1
            publisher.publish(version, params)

        summed.publish(0, params)
        number = _joined(workers)
        sides = {
            "copy": lambda: flat[1].copy_(flat[0]),
            "publish": lambda: publish(weights),
            "fetch": lambda: reader.fetch(-1, into),
            "fetch in another process": lambda: _asked(workers, number, ("fetched", weights.path, megabytes, 1))[0],
            "fetch into new memory": lambda: reader.fetch(-1),
            "publish with checksum": lambda: publish(summed),
            "fetch with checksum": lambda: checking.fetch(-1, into),
            "a message for each tensor": lambda: _messages(ours, params),
        }
        spent = turns(sides, rounds)
    other.join(10.0)
    medians = {name: statistics.median(times) for name, times in spent.items()}
    ratios = {name: medians["copy"] / value for name, value in medians.items()}
    return {"bytes": size(params), "tensors": len(params), "seconds": medians, "of a copy": ratios}


def repeated(megabytes: float, rounds: int, repeats: int) -> Report:
    """The table for one size, over so many tables with buffers of their own."""
    several = [speeds(megabytes, rounds) for _ in range(repeats)]
    first = several[0]

    def over(key: str, name: str) -> list[float]:
        return [one[key][name] for one in several]

    ratios = {name: over("of a copy", name) for name in first["of a copy"]}
    return {
        "bytes": first["bytes"],
        "tensors": first["tensors"],
        "repeats": repeats,
        "seconds": {name: round(statistics.median(over("seconds", name)), 5) for name in first["seconds"]},
        "of a copy": {name: round(statistics.median(values), 3) for name, values in ratios.items()},
        "least and most": {name: [round(min(values), 3), round(max(values), 3)] for name, values in ratios.items()},
    }


def _messages(connection: Any, params: Params) -> None:
    for leaf in params.values():
        connection.send_bytes(leaf.numpy().tobytes())
    connection.recv_bytes()


def _joined(workers: Workers) -> int:
    report = workers.receive(120.0)
    if not isinstance(report, WorkerJoined):
        raise RuntimeError(f"no worker: {report}")
    return report.worker


_tasks = iter(range(1 << 62))


def _asked(workers: Workers, worker: int, what: tuple[Any, ...]) -> Any:
    workers.send(worker, next(_tasks), what)
    report = workers.receive(600.0)
    if not isinstance(report, WorkerAnswer):
        raise RuntimeError(f"no answer: {report}")
    return report.payload


def lapped(megabytes: float, seconds: float, readers: int, pause: float) -> Report:
    """What readers in processes of their own got of a writer that never waits; `pause` holds them up in their copies."""
    with (
        working(transfer_sides.body, size=readers, patience=seconds + 600.0) as workers,
        publishing(params_of(megabytes), slots=2, guard="sequence") as weights,
    ):
        numbers = [_joined(workers) for _ in range(readers)]
        several = [filled(params_of(megabytes), version) for version in range(KINDS)]  # a publication is one copy
        weights.publish(0, several[0])
        for number in numbers:
            workers.send(number, next(_tasks), ("checked", weights.path, megabytes, seconds, pause))
        answers: list[Report] = []
        version = 0
        while len(answers) < readers:
            version += 1
            weights.publish(version, several[version % KINDS])
            report = workers.receive(0.0)
            if isinstance(report, WorkerAnswer):
                answers.append(report.payload)
            elif report:
                raise RuntimeError(f"a reader was lost: {report}")
    counts = {name: sum(answer[name] for answer in answers) for name in answers[0]}
    held = {"readers": readers, "held up for ms": 1e3 * pause}
    return {"bytes": size(several[0]), **held, "seconds": seconds, "published": version, **counts}


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machines.weight_transfer", description=__doc__)
    parser.add_argument("--megabytes", type=float, nargs="+", default=[100.0, 1000.0], help="sizes of the table")
    parser.add_argument("--rounds", type=int, default=7, help="of a table; its figures are medians")
    parser.add_argument("--repeats", type=int, default=7, help="tables of each size, with buffers of their own")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="of readers under a writer that never waits, each size"
    )
    parser.add_argument("--lapped", type=float, nargs="+", default=[0.1, 10.0], help="megabytes of these")
    parser.add_argument("--readers", type=int, default=2, help="processes that read under that writer")
    return parser.parse_args(words)


def main() -> int:
    """Prints the tables and writes the result file."""
    given = parse()
    torch.set_num_threads(1)
    began = time.perf_counter()
    sizes = {f"{megabytes:g} MB": megabytes for megabytes in given.megabytes}
    tables = {name: repeated(megabytes, given.rounds, given.repeats) for name, megabytes in sizes.items()}
    for name, table in tables.items():
        for side, ratio in table["of a copy"].items():
            low, high = table["least and most"][side]
            spent = f"{1e3 * table['seconds'][side]:12.1f} ms"
            print(f"{name:10}{side:28}{ratio:8.2f} of a copy [{low:.2f}, {high:.2f}]{spent}")
    ways = [(megabytes, pause) for megabytes in given.lapped for pause in (0.0, PAUSE)]
    under = [lapped(megabytes, given.seconds, given.readers, pause) for megabytes, pause in ways]
    for row in under:
        print(", ".join(f"{name} {value:,}" for name, value in row.items()))
    wrong = faults(tables, under)
    print("\n".join(wrong) or f"all is at least {TARGET} of a copy, and nothing was torn")
    name = "weight_transfer" if vars(given) == vars(parse([])) else "weight_transfer_small"
    figures = {"tables": tables, "lapped": under, "faults": wrong}
    evidence.write(name, seconds=time.perf_counter() - began, figures=figures)
    return int(bool(wrong))


def faults(tables: Mapping[str, Report], under: Sequence[Report]) -> list[str]:
    """What is not as it should be: slow sides, torn reads, readers that got nothing, or were held up and not overtaken."""
    slow = [
        f"{name}: {side} is {table['of a copy'][side]} of a copy, wanted {TARGET}"
        for name, table in tables.items()
        for side in ("publish", "fetch", "fetch in another process")
        if table["of a copy"][side] < TARGET
    ]
    torn = [f"{row['bytes']} bytes: {row['torn']} torn, {row['went_back']} back" for row in under]
    empty = [f"{row['bytes']} bytes: nothing was read" for row in under if not row["reads"]]
    idle = [f"{row['bytes']} bytes: readers were held up, and not overtaken" for row in under]
    return [
        *(*slow, *empty),
        *(text for row, text in zip(under, torn, strict=True) if row["torn"] or row["went_back"]),
        *(text for row, text in zip(under, idle, strict=True) if row["held up for ms"] and not row["overtaken"]),
    ]


if __name__ == "__main__":
    sys.exit(main())
