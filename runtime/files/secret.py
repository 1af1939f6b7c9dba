"""A user's secret, by which this program recognises files that it has written, and folders that only the user can enter."""

import os
import secrets
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from .reading import open_file

SIZE = 32
NAME = "secret"


def secret_in(folder: Path) -> bytes | None:
    """Return the secret in a folder, made on the first call; None if it cannot be kept private.

    It is used only if it is a regular file of the user's that no other user can read or write.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     one, two = secret_in(Path(folder)), secret_in(Path(folder))
    >>> one == two, len(one)
    (True, 32)
    """
    path = folder / NAME
    try:
        if not os.path.lexists(path):
            _make(path)
        with open_file(path, follow=False) as file:
            facts = os.fstat(file.fileno())
            own = facts.st_uid == os.geteuid() and not stat.S_IMODE(facts.st_mode) & 0o077
            found = file.read(SIZE + 1) if own else b""
    except OSError:
        return None
    return found if len(found) == SIZE else None


def _make(path: Path) -> None:
    """Write a new secret under a temporary name, and link it to its own name atomically, unless another process was first."""
    beside = path.with_name(f".{NAME}-{os.getpid()}-{secrets.token_hex(8)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(SIZE))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(beside, path)
    finally:
        beside.unlink()


def is_private(folder: Path) -> bool:
    """Return whether a path is a folder of the user's, no link, that no other user can write to or read.

    >>> is_private(Path("/"))
    False
    """
    try:
        facts = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not stat.S_IMODE(facts.st_mode) & 0o077


def private_folder(*candidates: Path) -> Path:
    """Return the first of these folders that is, or can be made, private to the user; else a temporary one.

    That one is the user's, for all processes, or a new one where somebody else has taken its name.
    """
    for folder in (*candidates, Path(tempfile.gettempdir(), f"purestep-{os.geteuid()}")):
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_private(folder):
            return folder
    return Path(tempfile.mkdtemp(prefix="purestep-"))
