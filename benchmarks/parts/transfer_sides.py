"""What `weight_transfer` does in other processes, and the weights it moves."""

import itertools
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from purestep.runtime.effects.weight_sync.shared_memory.publisher import reading
from purestep.runtime.effects.weight_sync.shared_memory.ring_buffer import RING, Ring, SharedWords, publication
from purestep.runtime.effects.workers.program import Mailbox

LAYERS = 24
KINDS = 7  # of weights that a writer takes turns with: two laps of a slot differ, unless they are a multiple of 7 apart
Params = dict[str, Tensor]


def params_of(megabytes: float) -> Params:
    """Weights of that size, as many tensors and as uneven as those of a small language model: 12 a layer."""
    width = max(8, int((megabytes * 1e6 / 4 / LAYERS / 12) ** 0.5))
    shapes = {"q": 1, "k": 1, "v": 1, "o": 1, "up": 4, "down": 4}
    weights = {
        f"{layer}.{name}": torch.zeros(times * width, width)
        for layer in range(LAYERS)
        for name, times in shapes.items()
    }
    return weights | {f"{layer}.{name}_scale": torch.zeros(width) for layer in range(LAYERS) for name in shapes}


def size(params: Params) -> int:
    """Bytes."""
    return sum(leaf.numel() * leaf.element_size() for leaf in params.values())


def filled(params: Params, version: int) -> Params:
    """The params with a number in every place that tells the version, and differs from those of the KINDS - 1 before."""
    for leaf in params.values():
        leaf.fill_(float(version % KINDS))
    return params


def whole(params: Params, version: int) -> bool:
    """Whether every number is that version's."""
    return all(bool((leaf == float(version % KINDS)).all()) for leaf in params.values())


def held_up(seconds: float) -> Ring:
    """The ring of a reader that waits so long in the middle of every other copy; a writer that never waits overtakes it."""
    copies = itertools.count()

    def fetching(words: SharedWords, slots: int, newer_than: int, load: Any) -> Any:
        def slowly(slot: int, number: int, version: int) -> Any:
            steps = load(slot, number, version)
            for _ in range(LAYERS):
                yield next(steps)
            if next(copies) % 2 == 0:
                time.sleep(seconds)
            return (yield from steps)

        return RING.fetching(words, slots, newer_than, slowly)

    return Ring(publication, fetching)


def checked(path: Path, megabytes: float, seconds: float, pause: float) -> dict[str, int]:
    """Fetches for that long and looks at every number of every copy; `pause` is in the middle of every other one, if any."""
    params = params_of(megabytes)
    reader = reading(path, params, ring=held_up(pause) if pause else RING)
    until, version = time.monotonic() + seconds, -1
    counts = {"reads": 0, "torn": 0, "went_back": 0}
    while time.monotonic() < until:
        found = reader.fetch(version, params)
        if found:
            counts["reads"] += 1
            counts["torn"] += not whole(params, found[0])
            counts["went_back"] += found[0] <= version
            version = found[0]
    return {**counts, "overtaken": reader.overtaken()}


def fetched(path: Path, megabytes: float, times: int) -> list[float]:
    """Seconds of each fetch into the same memory, after one that does not count."""
    params = params_of(megabytes)
    reader, spent = reading(path, params), []
    for number in range(times + 1):
        start = time.perf_counter()
        reader.fetch(-1, params)
        spent += [time.perf_counter() - start] if number else []
    return spent


def received(connection: Any, megabytes: float, times: int) -> None:
    """Takes weights tensor by tensor from a pipe, into the same memory, and says when all are there."""
    params = params_of(megabytes)
    for _ in range(times):
        for leaf in params.values():
            leaf.copy_(torch.frombuffer(bytearray(connection.recv_bytes()), dtype=leaf.dtype).reshape(leaf.shape))
        connection.send_bytes(b"all")


WORK = {"checked": checked, "fetched": fetched}


def body(mailbox: Mailbox) -> None:
    """A worker of `weight_transfer`."""
    torch.set_num_threads(1)
    while True:
        given = mailbox.receive(60.0)
        if given:
            task, (what, *arguments) = given
            mailbox.answer(task, WORK[what](*arguments))
