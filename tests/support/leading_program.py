"""What tests of one process that leads run on each of three: worlds, one after the other. No test itself.

python tests/support/leading_program.py RANK FOLDER
"""

import json
import os
import signal
import socket
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from purestep.core.errors import ChoiceError
from purestep.runtime.effects.distributed import driver, heartbeat
from purestep.runtime.effects.distributed.driver import Driver, is_sharded, led
from purestep.runtime.effects.distributed.process_group import (
    ProcessGroup,
    RankError,
    gather_tensor,
    join_processes,
    summed,
)
from purestep.runtime.effects.distributed.shard import gather_shards, spread

Found = dict[str, Any]


def handlers_of(ranks: ProcessGroup, found: Found) -> dict[str, Any]:
    """What all do: each word is noted."""
    words, made = found.setdefault("words", []), list[weakref.ref[Any]]()

    def noted(tree: Any) -> Any:
        made.extend(weakref.ref(leaf) for leaf in tree.values() if is_sharded(leaf))
        return tree

    def cut(tree: Any) -> Any:
        words.append("cut")
        return noted(spread(ranks, tree))

    def add(tree: Any, number: float, more: Tensor) -> Any:
        words.append(f"add {number:g}")
        return noted({name: leaf + number * more for name, leaf in tree.items()}), {"given": more, "rank 0": 0}

    def gather(tree: Any) -> Any:
        words.append("gather")
        return gather_shards(tree)

    def left() -> Any:
        words.append(f"left {sum(one() is not None for one in made)}")
        return ()

    def together(number: int) -> Tensor:
        words.append("together")
        return summed(ranks, torch.tensor(float(number)))

    def refuse(who: int) -> Any:
        words.append("refuse")
        if who in (-1, ranks.rank):
            raise ChoiceError("too much, wanted less; take less")
        return ()

    def die(who: int) -> Any:
        if ranks.rank == who:
            os.kill(os.getpid(), signal.SIGKILL)
        return gather_tensor(ranks, torch.zeros(()))

    def depart(who: int, flag: Path) -> Any:
        if ranks.rank == who:
            threading.Thread(target=die_after, args=(flag,)).start()
        return ()

    def stop() -> Any:
        if ranks.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        return gather_tensor(ranks, torch.zeros(()))

    own = (cut, add, gather, left, together, refuse, die, depart, stop)
    return {work.__name__: work for work in own}


def die_after(flag: Path) -> None:
    """Dies once the file is there."""
    while not flag.exists():
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGKILL)


def talk(lead: Driver, found: Found) -> int:
    """All that may be said, and what comes of it."""
    first = lead.call("cut", {"a": torch.arange(5.0), "b": torch.ones(())})
    found["divided"] = [is_sharded(leaf) for leaf in first.values()]
    second, more = lead.call("add", first, 2.0, torch.tensor(3.0))
    found["more"] = more["given"].tolist()
    found["gathered"] = {name: leaf.tolist() for name, leaf in lead.call("gather", second).items()}
    found["held"] = len(lead.held)
    del first
    time.sleep(1.5)  # longer than one look of those who wait
    found["after"] = lead.call("gather", second)["a"].tolist()
    found["known"] = len(lead.known)
    lead.call("left")
    try:
        lead.call("refuse", -1)
    except ChoiceError as error:
        found["refused"] = str(error)
    each: list[float] = []
    threads = [
        threading.Thread(target=lambda own: each.append(float(lead.call("together", own))), args=(own,))
        for own in range(8)
    ]
    for thread in threads:
        thread.start()
    lead.start_call("add", second, 1.0, torch.tensor(1.0))
    for thread in threads:
        thread.join()
    lead.settled()
    found["each"] = sorted(each)
    return 7


def once_more(lead: Driver, found: Found) -> int:
    """Looks whether the store has the next word before it is said."""
    code = int(lead.call("together", len(found.setdefault("there", []))))
    found["there"].append(lead.channel.store.check([str(lead.words + 1)]))
    return code


def fail(lead: Driver) -> int:
    lead.call("together", 1)
    raise ValueError("something else")


def busy(lead: Driver, found: Found, flag: Path) -> int:
    """Says nothing more while another dies."""
    lead.call("depart", 2, flag)
    flag.touch()
    try:
        time.sleep(300.0)
    finally:
        found["over"] = lead.lost
    return 0


def met(rank: int, folder: Path, name: str) -> str:
    """The port of a world, which the first rank chooses when it comes to it: one chosen earlier, another may have by then."""
    path = folder / f"port of {name}"
    if rank == 0:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            path.with_suffix(".new").write_text(str(free.getsockname()[1]))
        path.with_suffix(".new").rename(path)
    while not path.exists():
        time.sleep(0.02)
    return path.read_text()


def world(rank: int, size: int, folder: Path, found: Found, name: str, *programs: Any) -> None:
    """One world, led by each program; what ends it is noted."""
    if rank >= size:
        return
    port = met(rank, folder, name)
    place = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({key: str(value) for key, value in place.items()})
    try:
        with join_processes(timeout=60.0, device="cpu") as ranks:
            for program in programs:
                found[name] = led(ranks, handlers_of(ranks, found), program)
    except (RankError, ValueError) as error:
        found[name] = f"{type(error).__name__}: {error}"


def deserted(rank: int, folder: Path, found: Found) -> None:
    """A world whose last rank, a copy of this process, is killed. Signs of life are looked for more often than usual."""
    copy = os.fork() if rank == 2 else 0
    if copy:
        found["killed"] = os.waitpid(copy, 0)[1]
        return
    usual, heartbeat.EVERY, heartbeat.MISSED = (heartbeat.EVERY, heartbeat.MISSED), 0.2, 15
    world(rank, 3, folder, found, "deserted", lambda lead: busy(lead, found, folder / "busy"))
    heartbeat.EVERY, heartbeat.MISSED = usual
    if rank == 2:
        os._exit(1)


def hang(lead: Driver) -> int:
    lead.start_call("stop")
    time.sleep(300.0)
    return 0


def stuck(rank: int, folder: Path, found: Found) -> None:
    """A world of copies of these processes: one stops in a word that a thread of the first has said."""
    copy, said = os.fork(), folder / f"said{rank}"
    if copy and rank == 1:
        os.waitpid(copy, os.WUNTRACED)
        while not all((folder / f"gone{other}").exists() for other in (0, 2)):
            time.sleep(0.02)
        os.kill(copy, signal.SIGKILL)
        os.waitpid(copy, 0)
    elif copy:
        found["stuck"] = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
        found["said"] = said.read_text().splitlines()
        (folder / f"gone{rank}").touch()
    else:
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), sys.stderr.fileno())
        heartbeat.EVERY, heartbeat.MISSED, driver.GRACE = 0.2, 15, 0.5
        world(rank, 3, folder, found, "stuck", hang)
        os._exit(0)


def main(words: list[str]) -> None:
    rank, folder, found = int(words[0]), Path(words[1]), Found()

    def note() -> None:
        (folder / f"found{rank}.json").write_text(json.dumps(found))

    stuck(rank, folder, found)
    deserted(rank, folder, found)
    world(rank, 3, folder, found, "talked", lambda lead: talk(lead, found))
    world(rank, 3, folder, found, "thrice", *[lambda lead: once_more(lead, found)] * 3)
    world(rank, 3, folder, found, "failed", fail)
    world(rank, 3, folder, found, "parted", lambda lead: lead.call("refuse", 1))
    note()
    world(rank, 3, folder, found, "lost", lambda lead: lead.call("die", 2))
    note()
    world(rank, 2, folder, found, "orphaned", lambda lead: os.kill(os.getpid(), signal.SIGKILL))
    note()


if __name__ == "__main__":
    main(sys.argv[1:])
