"""Every socket on which a run with an engine listens, and what strangers can do to them.

For each engine a cluster of this machine has two members that fetch weights. The program lists the sockets of this process and
of all that it has started: who listens, at which address, and what the engine asks of those who connect. Then strangers come to
each TCP socket, silent ones and ones that send garbage, and stay; meanwhile versions are published and fetched, every number is
compared, and calls are made. `ray` is also a cluster begun by `ray start`, as RAY_ADDRESS names one. Then the owner of the wire
to another host forges bytes that go over it, with and without TLS (`sockets_forged`; for root, with tun devices). Writes
benchmarks/results/sockets.json, or sockets_small.json with other arguments than usual; exit code 1 where a call or a fetch
failed, weights were wrong, or an engine without other hosts listens beyond the loopback address.
"""

import argparse
import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from purestep.runtime.effects.cluster import open_cluster
from purestep.runtime.effects.cluster.addresses import outward
from purestep.runtime.effects.cluster.interface import EngineError
from purestep.runtime.effects.cluster.security import monarch_scheme
from purestep.runtime.effects.weight_sync import weight_publisher
from purestep.runtime.effects.weight_sync.ray import store_for
from purestep.runtime.effects.weight_sync.shared_memory.layout import layout

from .. import evidence
from ..parts import ray_nodes, sockets_forged
from ..parts.engine_calls import given
from ..parts.engine_hosts import started_by
from ..parts.sockets_reader import Reader
from ..parts.transfer_sides import filled, params_of

GARBAGE = b"\xff\x00garbage " * 400
TRANSPORT = {"processes": "shared", "monarch": "monarch", "ray": "ray", "ray start": "ray"}
WAIT = 120.0


@frozen
class Listening:
    """A socket on which a process listens."""

    program: str
    kind: str  # tcp or unix
    address: str  # without the port, which is any
    port: int  # 0 for unix


def listening() -> list[Listening]:
    """Return the sockets of this process and of all that it has started."""
    ours, found = {os.getpid(), *started_by(os.getpid())}, set[Listening]()
    for kind, words in (("tcp", "-ltnpH"), ("unix", "-lxpH")):
        for line in subprocess.run(["ss", words], capture_output=True, text=True, check=True).stdout.splitlines():
            pids = [int(pid) for pid in re.findall(r"pid=(\d+)", line)]
            if not ours.intersection(pids):
                continue
            program = program_of(next(pid for pid in pids if pid in ours))
            if kind == "tcp":
                address, _, port = line.split()[3].rpartition(":")
                found.add(Listening(program, kind, address.strip("[]").removeprefix("::ffff:"), int(port)))
            else:
                found.add(Listening(program, kind, "a path" if "/" in line else "abstract", 0))
    return sorted(found, key=lambda one: (one.kind, one.program, one.port))


def program_of(pid: int) -> str:
    """Return what a process is called."""
    with suppress(OSError):
        words = (Path("/proc") / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
        named = [Path(word).name for word in words if word.endswith((".py", "_main")) or word.startswith("ray::")]
        return (named or [Path(words[0]).name])[0]
    return "?"


@contextmanager
def strangers(there: Sequence[Listening], count: int) -> Iterator[int]:
    """So many connections to each TCP socket, every fourth of which sends garbage; yields how many were let in."""
    with ExitStack() as stack:
        let_in = 0
        for one in there:
            for number in range(count if one.kind == "tcp" else 0):
                host = "127.0.0.1" if one.address in ("*", "0.0.0.0", "::") else one.address
                with suppress(OSError):
                    connection = stack.enter_context(socket.create_connection((host, one.port), 2.0))
                    let_in += 1
                    if number % 4 == 0:
                        connection.setblocking(False)
                        connection.send(GARBAGE)
        yield let_in


def authentication(engine: str, one: Listening) -> str:
    """Return what is asked of those who connect."""
    if one.kind == "unix":
        return "nothing, on this machine" if one.address == "abstract" else "the right to write to the file"
    if engine == "monarch":
        return "mutual TLS" if monarch_scheme() == "tls" else "nothing"
    return "a token" if engine.startswith("ray") else "nothing"


def tried(engine: str, count: int, versions: int, megabytes: float) -> dict[str, Any]:
    """One engine: its sockets, and what came of calls and fetches while strangers were there."""
    params, wrong, way = params_of(megabytes), list[str](), TRANSPORT[engine]
    with ExitStack() as stack:
        if engine == "ray start":
            stack.enter_context(
                ray_nodes.first(outward("192.0.2.1:9"), store=store_for(layout(params).size) + (200 << 20))
            )
        name = engine.partition(" ")[0]
        cluster = stack.enter_context(open_cluster(name, store=store_for(layout(params).size)))
        weights = stack.enter_context(weight_publisher(way, params))
        mesh = cluster.spawn(Reader, (weights.address, megabytes), size=2, timeout=WAIT)
        there = listening()
        began = time.perf_counter()
        with strangers(there, count) as let_in:
            for version in range(versions):
                weights.publish(version, filled(params, version))
                answers = given(mesh.call("fetched", (version - 1, version), timeout=WAIT))
                wrong += [f"version {version}: {answer}" for answer in answers if answer != "right"]
        seconds = time.perf_counter() - began
        mesh.stop(timeout=WAIT)
    beyond = [one for one in there if one.kind == "tcp" and not one.address.startswith(("127.", "::1"))]
    if engine != "ray start":
        wrong += [f"{one.program} listens at {one.address}" for one in beyond]
    rows = sorted({(one.program, one.kind, one.address, authentication(engine, one)) for one in there})
    names = ("program", "kind", "address", "asked of those who connect")
    return {
        "sockets": [dict(zip(names, row, strict=True)) for row in rows],
        "strangers let in": let_in,
        "versions fetched beside them": versions,
        "seconds": round(seconds, 1),
        "faults": wrong,
    }


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machines.sockets", description=__doc__)
    parser.add_argument("--strangers", type=int, default=1100, help="to each socket")
    parser.add_argument("--versions", type=int, default=10)
    parser.add_argument("--megabytes", type=float, default=10.0)
    parser.add_argument("--only", choices=tuple(TRANSPORT))
    return parser.parse_args(words)


def main() -> int:
    """Prints the sockets and writes the result file."""
    words, began, found = parse(), time.perf_counter(), dict[str, dict[str, Any]]()
    torch.set_num_threads(1)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for engine in (words.only,) if words.only else tuple(TRANSPORT):
        try:
            found[engine] = tried(engine, words.strangers, words.versions, words.megabytes)
        except EngineError as error:
            found[engine] = {"sockets": [], "faults": [str(error)]}
        for row in found[engine]["sockets"]:
            print(f"{engine:12}" + "".join(f"{value:28}" for value in row.values()), flush=True)
        print(f"{engine:12}{ {name: value for name, value in found[engine].items() if name != 'sockets'} }", flush=True)
    forged = dict[str, dict[str, Any]]()
    for name in sockets_forged.NAMES:
        if words.only in (None, name.partition(",")[0]):
            forged[name] = sockets_forged.forged(name, words.megabytes)
            print(
                f"forged bytes, {name}: { {what: n for what, n in forged[name].items() if what != 'versions'} }",
                flush=True,
            )
    wrong = [
        f"{engine}: {fault}" for part in (found, forged) for engine, row in part.items() for fault in row["faults"]
    ]
    name = "sockets" if vars(words) == vars(parse([])) else "sockets_small"
    evidence.write(
        name, seconds=time.perf_counter() - began, figures={"engines": found, "forged bytes": forged, "faults": wrong}
    )
    print("\n".join(wrong) or "weights were right, and calls were answered")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
