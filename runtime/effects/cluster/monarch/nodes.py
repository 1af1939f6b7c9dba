"""Monarch's own worker loop on this machine, in a child that ends with this process."""

import os
import sys
from collections.abc import Callable

from attrs import frozen

from ..nodes import end_child, start_child
from ..security import monarch_scheme
from . import node as monarch_node

START = 60.0  # seconds in which Monarch must listen
# A client goes on counting its messages when a host is restarted at its address, which would wait for the earlier ones.
# The order does not need the counts: messages of one client come over one connection.
NODE = {"HYPERACTOR_ENABLE_DEST_ACTOR_REORDERING_BUFFER": "false"}
LEAVE = 5.0  # seconds that a node has to end its processes


@frozen
class MonarchNode:
    """A running host of Monarch."""

    at: str  # address at which Monarch listens
    running: Callable[[], bool]
    wait: Callable[[], object]  # until it has ended
    end: Callable[[], None]  # ends it with all that it has started; a second call does nothing


def node(ip: str, port: int = 0) -> MonarchNode:
    """Start Monarch's host at this address of this machine, port 0 for a free one.

    Raises: EngineError with Monarch's message.
    """
    at, child = start_child(
        monarch_node.keep_host,
        (monarch_scheme(), ip, port),
        what="a host of Monarch",
        timeout=START,
        environment=NODE | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    return MonarchNode(at, lambda: not child.process.ended(), child.process.wait, lambda: end_child(child, LEAVE))
