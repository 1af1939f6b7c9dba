"""Reading of files from other programs: regular ones, of a bounded size, and JSON of a bounded depth.

A FIFO, a device, a folder or an endless file in their place raises OSError at once, and never blocks.
"""

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

MOST = 1 << 31  # bytes of a text with data
MOST_JSON = 1 << 26  # bytes of a description in JSON
MOST_CONFIG = 1 << 20  # bytes of a configuration or a key
CHUNK = 1 << 16
DEEPEST = 100  # largest nesting of brackets
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class UnreadableError(OSError):
    """Error for a file of a kind or a size that is refused."""


@contextmanager
def open_file(path: Path, *, follow: bool = True) -> Iterator[BinaryIO]:
    """Open a regular file for reading; without `follow` the path itself must not be a link.

    Raises: OSError, which is an UnreadableError unless it is a regular file.

    >>> with open_file(Path("/dev/null")) as file:
    ...     file.read()
    Traceback (most recent call last):
    purestep.runtime.files.reading.UnreadableError: [Errno 22] a device: '/dev/null'
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except ValueError:
        raise UnreadableError(errno.EINVAL, "no path (it has a NUL byte)", str(path)) from None
    except OSError as cause:
        if cause.errno == errno.ELOOP and path.is_symlink():
            raise UnreadableError(errno.EINVAL, "a link", str(path)) from None
        if cause.errno == errno.ENXIO:  # a socket
            raise UnreadableError(errno.EINVAL, "a socket", str(path)) from None
        raise
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        found = KINDS.get(stat.S_IFMT(mode), "no regular file")
        raise UnreadableError(errno.EINVAL, found, str(path))
    with os.fdopen(descriptor, "rb") as file:
        yield file


def read_bounded(path: Path, most: int = MOST, *, follow: bool = True) -> bytes:
    """Return the bytes of a regular file of at most `most` bytes. Raises: OSError.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "x"
    ...     _ = path.write_text("abc")
    ...     read_bounded(path, 3), read_text(path)
    (b'abc', 'abc')
    """
    with open_file(path, follow=follow) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise UnreadableError(errno.EFBIG, f"of more than {most:,} bytes", str(path))
        pieces, length = [file.read(size)], size
        while piece := file.read(CHUNK):  # files of /proc have size 0
            pieces.append(piece)
            length += len(piece)
            if length > most:
                raise UnreadableError(errno.EFBIG, f"of more than {most:,} bytes", str(path))
    return b"".join(pieces) if len(pieces) > 1 else pieces[0]


def read_text(path: Path, most: int = MOST, *, encoding: str = "utf-8") -> str:
    """Return the text of such a file, with newlines as the only line ends. Raises: OSError, UnicodeDecodeError."""
    return read_bounded(path, most).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def irregular(folder: Path) -> str:
    """Return the name of the first entry of a folder that is, links followed, neither a file nor a folder; "" if there is none.

    >>> irregular(Path(__file__).parent)
    ''
    """
    for path in sorted(folder.iterdir()):
        try:
            mode = path.stat().st_mode
        except OSError:  # a dangling link, which cannot be opened
            continue
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            return path.name
    return ""


def parse_json(data: bytes | str) -> Any:
    """Return the value of a JSON text with at most `DEEPEST` levels of nesting. Raises: ValueError.

    >>> parse_json('{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    >>> parse_json("[" * 101 + "]" * 101)
    Traceback (most recent call last):
    ValueError: nested more than 100 deep
    """
    try:
        value = json.loads(data, parse_constant=_refused)
    except RecursionError:
        raise ValueError(f"nested more than {DEEPEST} deep") from None
    layer = [value]
    for _ in range(DEEPEST):
        layer = [part for one in layer if isinstance(one, list | dict) for part in _parts(one)]
        if not layer:
            return value
    raise ValueError(f"nested more than {DEEPEST} deep")


def _parts(one: Any) -> Any:
    return one if isinstance(one, list) else one.values()


def _refused(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def reason(cause: Exception) -> str:
    """Return why a file could not be read, as a short text.

    >>> reason(FileNotFoundError(2, "No such file"))
    'FileNotFoundError'
    """
    return str(cause.strerror) if isinstance(cause, UnreadableError) else type(cause).__name__
