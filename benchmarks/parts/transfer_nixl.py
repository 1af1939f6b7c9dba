"""NIXL, a peer of the transports in `transfer_paths`: weights read from another process's memory, by UCX over TCP.

It is what a user without our transports would take between hosts. Both sides register one buffer; a fetch is one READ of it.
UCX may use TCP alone, as between hosts without RDMA; else it would use the memory that both sides share here. `checked` is
the same with the digest that readers of Ray's store make, since nothing else shows bytes that were altered on the way.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from purestep.runtime.effects.weight_sync.ray_board import publication_mac
from purestep.runtime.effects.weight_sync.shared_memory.layout import layout, views

from .transfer_paths_sides import content
from .transfer_sides import Params, params_of

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
    ours, (room, leaves) = agent("publisher"), buffered(params_of(megabytes))
    handle = ours.register_memory(room)
    pipe.send((ours.get_agent_metadata(), ours.get_serialized_descs(ours.get_xfer_descs(room))))
    while asked := pipe.recv():
        new = content(megabytes, asked[0])
        start = time.perf_counter()
        for name, leaf in leaves.items():
            leaf.copy_(new[name])
        pipe.send(time.perf_counter() - start)
    ours.deregister_memory(handle)


@contextmanager
def reader(address: Any, like: Params, *, checked: bool) -> Iterator[Callable[[], Params]]:
    """Yield a function that reads the published weights. Raises: RuntimeError where the transfer fails."""
    ours, (room, leaves) = agent("reader"), buffered(like)
    handle, (metadata, described) = ours.register_memory(room), address
    publisher = ours.add_remote_agent(metadata)
    there, here = ours.deserialize_descs(described), ours.get_xfer_descs(room)

    def fetch() -> Params:
        transfer = ours.initialize_xfer("READ", here, there, publisher, b"")
        state = ours.transfer(transfer)
        while state == "PROC":
            time.sleep(PROBE)
            state = ours.check_xfer_state(transfer)
        ours.release_xfer_handle(transfer)
        if state != "DONE":
            raise RuntimeError(f"NIXL's transfer ended as {state}")
        if checked:
            publication_mac(b"", 0, "", room.numpy())
        return leaves

    yield fetch
    ours.deregister_memory(handle)


def buffered(like: Params) -> tuple[torch.Tensor, Params]:
    """Return a buffer for such weights, and the weights as views of it."""
    own = layout(like)
    room = torch.zeros(own.size, dtype=torch.uint8)
    return room, dict(zip(like, views(own, room), strict=True))
