"""`purestep host`: serve this machine as a host for remote workers."""

from typing import Annotated

import tyro

from .common import FLAGS, say


def host_command(words: list[str]) -> int:
    """`purestep host --listen HOST:PORT`."""

    def host(listen: Annotated[str, tyro.conf.arg(metavar="HOST:PORT")], engine: str = "monarch") -> int:
        """Run Monarch's worker loop, for runs with --engine monarch --hosts, until Ctrl-C or SIGTERM. Prints its address.

        Who can reach it can run code here: listen on a network of your own, or set HYPERACTOR_TLS_CERT, HYPERACTOR_TLS_KEY and
        HYPERACTOR_TLS_CA here and where the run is.

        Args:
            listen: the address to listen at; port 0 is any free one
            engine: monarch; a host of ray is a node that `ray start` begins
        """

        def ready(address: str) -> None:
            print(address, flush=True)
            say(f"purestep host: members of engine {engine} may come to {address}; Ctrl-C ends them")

        from ..effects.cluster import serve_host

        serve_host(engine, listen, ready=ready)
        return 0

    return tyro.cli(host, args=words, prog="purestep host", config=FLAGS)
