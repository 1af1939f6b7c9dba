"""`purestep host`: this machine, for clusters that others open."""

from pathlib import Path
from typing import Annotated

import tyro

from .words import FLAGS, say


def host_command(words: list[str]) -> int:
    """`purestep host --listen HOST:PORT`."""

    def host(
        listen: Annotated[str, tyro.conf.arg(metavar="HOST:PORT")],
        engine: str = "processes",
        key: Path | None = None,
    ) -> int:
        """Have members of clusters on this machine, until Ctrl-C or SIGTERM. Prints the address, once it listens.

        Whoever has the key can run code here. What is said is sealed with it and not hidden: use a network of your own.

        Args:
            listen: the address to listen at; port 0 is any free one
            engine: processes, monarch or ray
            key: a file with a secret that all hosts of a cluster have; PURESTEP_KEY where none is named
        """

        def ready(address: str) -> None:
            print(address, flush=True)
            say(f"purestep host: members of engine {engine} may come to {address}; Ctrl-C ends them")

        from .effects.engine import served

        served(engine, listen, key=key, ready=ready)
        return 0

    return tyro.cli(host, args=words, prog="purestep host", config=FLAGS)
