"""NIXL, a peer of the transports in `transfer_paths`: weights read from another process's memory, by UCX over TCP.

It is what a user without our transports would take between hosts. Both sides register their tensors once; a fetch is one READ
of all of them. UCX may use TCP alone, as between hosts without RDMA; else it would use the memory that both sides share here.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .transfer_sides import Params, filled, params_of

PACKAGE = "nixl_cu12"
PROBE = 0.0005  # seconds between two looks at a transfer


def agent(name: str) -> Any:
    """Return NIXL's agent of this process."""
    os.environ |= {"UCX_TLS": "tcp", "NIXL_LOG_LEVEL": "WARN"}
    from nixl_cu12._api import nixl_agent

    return nixl_agent(name)


def serve(pipe: Any, megabytes: float) -> None:
    """Register the weights and send their address; then write each version that is received, and send the seconds it took."""
    torch.set_num_threads(1)
    ours, params = agent("publisher"), params_of(megabytes)
    leaves = list(params.values())
    registered = ours.register_memory(leaves)
    pipe.send((ours.get_agent_metadata(), ours.get_serialized_descs(ours.get_xfer_descs(leaves))))
    while asked := pipe.recv():
        content = filled(params_of(megabytes), asked[0])
        start = time.perf_counter()
        for leaf, new in zip(leaves, content.values(), strict=True):
            leaf.copy_(new)
        pipe.send(time.perf_counter() - start)
    ours.deregister_memory(registered)


@contextmanager
def reader(address: Any, into: Params) -> Iterator[Any]:
    """Yield a function that reads the published weights into those tensors. Raises: RuntimeError where the transfer fails."""
    ours, leaves = agent("reader"), list(into.values())
    registered = ours.register_memory(leaves)
    metadata, described = address
    publisher = ours.add_remote_agent(metadata)
    there, here = ours.deserialize_descs(described), ours.get_xfer_descs(leaves)

    def fetch() -> Params:
        transfer = ours.initialize_xfer("READ", here, there, publisher, b"")
        state = ours.transfer(transfer)
        while state == "PROC":
            time.sleep(PROBE)
            state = ours.check_xfer_state(transfer)
        ours.release_xfer_handle(transfer)
        if state != "DONE":
            raise RuntimeError(f"NIXL's transfer ended as {state}")
        return into

    yield fetch
    ours.deregister_memory(registered)
