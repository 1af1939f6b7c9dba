"""Weights over a wire whose owner forges bytes, by one engine: right, refused in one line, or wrong. Part of `sockets`.

The driver and the publisher are here, a reader is on a host at the other end of `sockets_wire`. Versions are published before,
while and after bytes are forged, at several rates, and every number that is fetched is compared. Each engine has a process of
its own, which prints one line of JSON: an engine and its keys are set once in a process.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

from purestep.runtime.effects.cluster import open_cluster
from purestep.runtime.effects.cluster.interface import Cluster, Done, EngineError, Mesh, Unanswered
from purestep.runtime.effects.cluster.security import MONARCH, RAY, USE_RAY_TLS
from purestep.runtime.effects.weight_sync import weight_publisher
from purestep.runtime.effects.weight_sync.checksums import agreed, known, summing, sums
from purestep.runtime.effects.weight_sync.monarch import CHUNK_BYTES
from purestep.runtime.effects.weight_sync.ray import store_for
from purestep.runtime.effects.weight_sync.ray_board import publication_mac
from purestep.runtime.effects.weight_sync.shared_memory.layout import layout

from .. import evidence
from . import ray_nodes
from .engine_hosts import PORT, Host
from .sockets_reader import Reader
from .sockets_wire import refused_by_tcp, wired
from .transfer_sides import filled, params_of

NAMES = ("ray", "monarch", "ray, TLS", "monarch, TLS")
RATES = (0, 0, 20, 200, 2000, 20, 200, 2000, 0, 0, 0)  # of each version: one of so many large segments is altered
FETCH, CALL, BACK = 15.0, 30.0, 120.0  # seconds of a fetch, of the call for it, and in which the reader is there again
RIGHT, WRONG = "right", "wrong numbers"


def forged(name: str, megabytes: float) -> dict[str, Any]:
    """Run one engine in a process of its own; what became of each version, and the faults."""
    words = [sys.executable, "-m", f"{__package__}.sockets_forged", name, str(megabytes)]
    run = subprocess.run(words, cwd=evidence.ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        return {"faults": [f"its process ended, code {run.returncode}"]}
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def tried(name: str, megabytes: float) -> dict[str, Any]:
    """One engine in this process."""
    engine, _, tls = name.partition(", ")
    params, rows, store = params_of(megabytes), list[dict[str, Any]](), store_for(layout(params_of(megabytes)).size)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        wire = stack.enter_context(wired())
        if tls:
            os.environ.update(certificates(folder, (wire.ours, wire.theirs)))
        if engine == "ray":
            stack.enter_context(ray_nodes.first(wire.ours, store=store + ray_nodes.STORE))
        address = wire.theirs if engine == "ray" else f"{wire.theirs}:{PORT}"
        host = Host(engine, address, wire.space, folder / "host.log")
        stack.callback(host.kill)
        host.start()
        cluster = stack.enter_context(open_cluster(engine, hosts=() if engine == "ray" else (address,)))
        weights = stack.enter_context(weight_publisher(engine, params))
        mesh = spawned(cluster, host, (weights.address, megabytes))
        for version, rate in enumerate(RATES):
            before, began = wire.altered.value, time.perf_counter()
            weights.publish(version, filled(params, version))
            wire.every.value = rate
            (answer,) = mesh.call("fetched", (version - 1, version, FETCH), timeout=CALL)
            wire.every.value = 0
            row = {"one of": rate, "altered": wire.altered.value - before, "came": said(answer)}
            rows.append(row | {"seconds": round(time.perf_counter() - began, 2)})
            if isinstance(answer, Unanswered) and answer.lost:
                mesh = spawned(cluster, host, (weights.address, megabytes))
        seen = {
            "segments with weights in clear": wire.clear.value,
            "segments that TCP refused": refused_by_tcp(wire.space),
        }
    return summed(rows) | seen | {"check, GB/s": checking(engine)}


def checking(engine: str, megabytes: float = 100.0) -> float:
    """Billions of bytes a second that one side checks."""
    room, spent = np.zeros(int(megabytes * 1e6), np.uint8), list[float]()
    for _ in range(5):
        began = time.perf_counter()
        if engine == "ray":
            publication_mac(b"a key", 0, "", room)
        else:
            sums(room.data, CHUNK_BYTES, summing(agreed(known())))
        spent.append(time.perf_counter() - began)
    return round(room.nbytes / 1e9 / statistics.median(spent), 2)


def spawned(cluster: Cluster, host: Host, arguments: tuple[Any, ...]) -> Mesh:
    """A reader on the host, once it is there. Raises: EngineError."""
    until = time.monotonic() + BACK
    while True:
        try:
            if host.address not in cluster.hosts():
                cluster.add_host(host.address, timeout=CALL)
            return cluster.spawn(Reader, arguments, size=1, hosts=(host.address,), timeout=CALL)
        except EngineError:
            if time.monotonic() > until:
                raise
            time.sleep(1.0)


def said(answer: Done | Unanswered) -> str:
    """Return one line about the fetch of a version."""
    return str(answer.value) if isinstance(answer, Done) else f"refused: {answer.why}"


def summed(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what became of the versions, and the faults."""
    faults = [f"version {version}: {WRONG}" for version, row in enumerate(rows) if row["came"] == WRONG]
    faults += [
        f"version {version}: {row['came']}, though nothing was forged"
        for version, row in enumerate(rows)
        if not row["one of"] and row["came"] != RIGHT
    ]
    forgeries = [row for row in rows if row["one of"]]
    faults += [] if sum(row["altered"] for row in forgeries) else ["nothing was forged"]
    return {
        "altered": sum(row["altered"] for row in forgeries),
        "right": sum(row["came"] == RIGHT for row in forgeries),
        "wrong": sum(row["came"] == WRONG for row in forgeries),
        "refused": sum(row["came"] not in (RIGHT, WRONG) for row in forgeries),
        "right again": all(row["came"] == RIGHT for row in rows if not row["one of"]),
        "versions": list(rows),
        "faults": faults,
    }


def certificates(folder: Path, addresses: Sequence[str]) -> dict[str, str]:
    """Make an authority and one certificate for these addresses; what names them for Ray and for Monarch."""
    cert, key, ca, ca_key, request, names = (
        str(folder / one) for one in ["cert", "key", "ca", "ca_key", "request", "names"]
    )
    Path(names).write_text("subjectAltName=DNS:localhost,IP:127.0.0.1," + ",".join(f"IP:{one}" for one in addresses))
    made = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj"]
    sign = ["openssl", "x509", "-req", "-days", "2", "-in", request, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial"]
    for words in (
        [*made, "/CN=authority", "-x509", "-days", "2", "-keyout", ca_key, "-out", ca],
        [*made, "/CN=localhost", "-keyout", key, "-out", request],
        [*sign, "-extfile", names, "-out", cert],
    ):
        subprocess.run(words, check=True, capture_output=True)
    Path(key).chmod(0o600)
    named = dict(zip((*RAY, *MONARCH), (cert, key, ca) * 2, strict=True))
    return {USE_RAY_TLS: "1", **named}


def main() -> int:
    """Prints one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parts.sockets_forged", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("megabytes", type=float)
    words = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(tried(words.name, words.megabytes)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
