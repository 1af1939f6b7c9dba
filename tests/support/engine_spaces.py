"""Network namespaces as hosts: each has an address of its own, and a link that can be cut."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from attrs import frozen

APART = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'  # `ip netns exec` has given it mounts of its own


@frozen
class Space:
    """A namespace that is linked to this one."""

    name: str
    link: str  # our end
    address: str
    ours: str  # our own address on that link

    def command(self, *words: str) -> list[str]:
        """A command line that runs inside it."""
        return ["ip", "netns", "exec", self.name, *words]

    def apart(self, *words: str) -> list[str]:
        """The same, with shared memory of its own."""
        return self.command("sh", "-c", APART, "sh", *words)

    def cut(self) -> None:
        """Nothing goes through any more, in either direction, and nobody is told."""
        _ip("link", "set", self.link, "down")

    def mend(self) -> None:
        """All goes through again."""
        _ip("link", "set", self.link, "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@contextmanager
def spaces(count: int) -> Iterator[Sequence[Space]]:
    """So many namespaces, for a block; the test is skipped where they are not allowed."""
    mark = os.getpid() % 10000
    net = f"10.{100 + mark % 100}.{mark // 100}"
    made = [Space(f"ps{mark}-{i}", f"ps{mark}-{i}a", f"{net}.{4 * i + 2}", f"{net}.{4 * i + 1}") for i in range(count)]
    if not shutil.which("ip"):
        pytest.skip("there is no command named ip")
    try:
        for one in made:
            inner = one.link[:-1] + "b"
            try:
                _ip("netns", "add", one.name)
                _ip("link", "add", one.link, "type", "veth", "peer", "name", inner)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"network namespaces are not allowed: {error.stderr.strip()}")
            _ip("link", "set", inner, "netns", one.name)
            _ip("addr", "add", f"{one.ours}/30", "dev", one.link)
            _ip("link", "set", one.link, "up")
            _ip("-n", one.name, "addr", "add", f"{one.address}/30", "dev", inner)
            _ip("-n", one.name, "link", "set", inner, "up")
            _ip("-n", one.name, "link", "set", "lo", "up")
        yield made
    finally:
        for one in made:
            subprocess.run(["ip", "netns", "del", one.name], check=False, capture_output=True)
            subprocess.run(["ip", "link", "del", one.link], check=False, capture_output=True)
