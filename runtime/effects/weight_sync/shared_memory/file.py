"""The file in memory that holds a ring of weights: made once, locked by its one publisher, mapped by all.

It begins with one or more pages of words (its format, then those of the ring) and the layout as text; the slots follow, each on
pages of its own. The publisher holds a lock on it, which ends with its process, however that ends.
"""

import mmap
import os
import platform
import stat
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import torch
from attrs import frozen
from torch import Tensor

from .....core.errors import message
from ...checkpoint.atomic_files import ABSENT, FILE, WITHIN, kind
from .layout import WeightLayout, WeightsError, same_architecture, text, views
from .ring_buffer import SharedWords, slot_start

PREFIX, MAGIC = "purestep-weights-", 0x31_77_70_65_74_73_70
FORMAT, SLOTS, GUARD, CLOSED, LETTERS, DATA = range(6)  # words of the head
HEAD = 8  # index of the ring's first word
GUARDS = {"sequence": 0, "checksum": 1}
PAGE, WORD = 4096, 8
ORDERED = ("x86_64", "AMD64", "i686")  # processors that keep the order of stores


@frozen
class Mapped:
    """An open file of weights: its words, and its slots."""

    words: SharedWords
    head: memoryview  # int64
    slots: tuple[list[Tensor], ...]  # the leaves of each, as views of the file
    guarded: bool


def default_guard() -> str:
    """Return the guard to use here: "sequence" if the processor keeps the order of stores, else "checksum"."""
    return "sequence" if platform.machine() in ORDERED else "checksum"


def shared_folder() -> Path:
    """Return the folder for files in memory; the folder for temporary files if there is none."""
    folder = Path("/dev/shm")
    return folder if folder.is_dir() and os.access(folder, os.W_OK) else Path(tempfile.gettempdir())


def remove_orphans(folder: Path | None = None) -> int:
    """Remove files of weights without a chosen path whose publisher has died; return how many.

    Readers that have one open keep its content.
    """
    removed = 0
    for path in (folder or shared_folder()).glob(f"{PREFIX}*"):
        with suppress(OSError, WeightsError):
            descriptor = _locked(path, os.O_RDWR)
            try:
                path.unlink()
            finally:
                os.close(descriptor)
            removed += 1
    return removed


def held(path: Path) -> int:
    """Return the descriptor of the file, made if absent, locked by this process. Raises: WeightsError."""
    while True:
        descriptor = _locked(path, os.O_RDWR | os.O_CREAT)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)  # another process removed it in between


def _locked(path: Path, flags: int) -> int:
    import fcntl  # POSIX only, so not at the top: all platforms import this module

    if (found := kind(path)) not in (ABSENT, FILE):
        raise WeightsError(message(str(path), got=found, wanted=FILE, remedy="publish to another path"))
    descriptor = os.open(path, flags | WITHIN, stat.S_IRUSR | stat.S_IWUSR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        remedy = "let it end, or publish to another path"
        raise WeightsError(message(str(path), got="published to by another", wanted="one", remedy=remedy)) from None
    return descriptor


def new_ring(descriptor: int, path: Path, own: WeightLayout, slots: int, guard: int) -> Mapped:
    """Return the file as a ring of this layout; one that a publisher has left is taken over unchanged."""
    if _left(descriptor, path, slots, guard):
        return map_file(descriptor, path, own)
    letters = text(own).encode()
    before = WORD * (HEAD + slot_start(slots)) + len(letters)
    data = -(-before // PAGE) * PAGE
    _allocate(descriptor, path, data + slots * _padded(own.size))
    head = {SLOTS: slots, GUARD: guard, LETTERS: len(letters), DATA: data, FORMAT: MAGIC}
    os.pwrite(descriptor, letters, before - len(letters))
    for word, value in head.items():  # the format last: it marks the file as finished
        os.pwrite(descriptor, value.to_bytes(WORD, sys.byteorder), WORD * word)
    return map_file(descriptor, path, own)


def _left(descriptor: int, path: Path, slots: int, guard: int) -> bool:
    """Return whether the file was left by a publisher of such a ring."""
    found = memoryview(os.pread(descriptor, PAGE, 0).ljust(PAGE, b"\0")).cast("q")
    if found[FORMAT] not in (0, MAGIC):  # 0: its publisher died while it made the file
        remedy = "choose another path"
        raise WeightsError(
            message(f"publishing: {path}", got="another kind of file", wanted="weights or nothing", remedy=remedy)
        )
    own, have = (slots, guard), (found[SLOTS], found[GUARD])
    if found[FORMAT] == MAGIC and have != own:
        remedy = "publish as before, or to another path"
        raise WeightsError(message(f"publishing: (slots, guard) of {path}", got=have, wanted=own, remedy=remedy))
    return bool(found[FORMAT])


def _padded(size: int) -> int:
    return max(-(-size // PAGE) * PAGE, PAGE)


def _allocate(descriptor: int, path: Path, size: int) -> None:
    """Allocate the memory now: if it is short, writing to a sparse file would kill the process."""
    try:
        os.ftruncate(descriptor, 0)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
        else:
            os.ftruncate(descriptor, size)
    except OSError as cause:
        remedy = "take fewer slots, or a folder on a disk"
        raise WeightsError(
            message(str(path), got=f"without room ({cause.strerror})", wanted=f"{size:,} bytes", remedy=remedy)
        ) from cause


def _mapping(descriptor: int) -> mmap.mmap:
    if hasattr(mmap, "MAP_POPULATE"):  # all pages at once, and not one by one while weights are copied
        return mmap.mmap(descriptor, 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    return mmap.mmap(descriptor, 0)


def map_file(descriptor: int, path: Path, own: WeightLayout) -> Mapped:
    """Return a finished file of this layout, mapped. Raises: WeightsError."""
    if os.fstat(descriptor).st_size < PAGE:
        raise _unfinished(path)
    mapping = _mapping(descriptor)
    head = memoryview(mapping).cast("q")
    if head[FORMAT] != MAGIC:
        raise _unfinished(path)
    slots, data, first = head[SLOTS], head[DATA], HEAD
    at = WORD * (HEAD + slot_start(slots))
    same_architecture(f"reading: {path.name}", bytes(mapping[at : at + head[LETTERS]]).decode(), own)
    whole, step = torch.frombuffer(mapping, dtype=torch.uint8), _padded(own.size)
    lock = threading.Lock()

    def fence() -> None:
        with lock:  # a locked instruction, which is a full barrier on x86
            pass

    def write(index: int, value: int) -> None:
        head[first + index] = value

    words = SharedWords(lambda index: head[first + index], write, fence)
    room = tuple(views(own, whole[data + slot * step :][: own.size]) for slot in range(slots))
    return Mapped(words, head, room, bool(head[GUARD]))


def _unfinished(path: Path) -> WeightsError:
    remedy = "wait until its publisher has made it"
    return WeightsError(message(f"reading: {path}", got="no finished file", wanted="weights", remedy=remedy))
