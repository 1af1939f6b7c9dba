"""torch.distributed.checkpoint on top of our file operations, so that crashes during its writes can be tested too.

Its writers take a file system and write to its streams; ours appends by `Files` and syncs each file when it is complete.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import Factory, define, frozen
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter

from ....core.errors import CheckpointError
from .atomic_files import Files
from .group import RankGroup, lost
from .layout import first_error

CHUNK = 1 << 24


@define
class StorageStream:
    """A file that is written from beginning to end."""

    path: Path
    files: Files
    waiting: bytearray = Factory(bytearray)
    appended: int = 0

    def write(self, data: Any) -> int:
        """Write bytes, or any object with a buffer; return their number."""
        piece = memoryview(data).cast("B")
        for start in range(0, len(piece), CHUNK):
            self.waiting += piece[start : start + CHUNK]
            if len(self.waiting) >= CHUNK:
                self.flush()
        return len(piece)

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self.appended + len(self.waiting)

    def flush(self) -> None:
        """Append the buffered bytes to the file."""
        if self.waiting:
            self.files.append(self.path, bytes(self.waiting))
            self.appended += len(self.waiting)
            self.waiting = bytearray()

    def close(self) -> None:
        """Flush: a writer may close the stream before the file is synced."""
        self.flush()


@frozen
class FilesBelow:
    """The file system for a writer of torch.distributed.checkpoint, which uses it for writing only."""

    files: Files

    @contextmanager
    def create_stream(self, path: str | Path, mode: str) -> Iterator[StorageStream]:
        """Yield a stream that is synced at the end of the block."""
        stream = StorageStream(Path(path), self.files)
        yield stream
        stream.flush()
        self.files.sync(stream.path)

    def concat_path(self, path: str | Path, suffix: str) -> Path:
        """Return a path below another."""
        return Path(path) / suffix

    def init_path(self, path: str | Path) -> Path:
        """Return the path as a `Path`."""
        return Path(path)

    def rename(self, path: str | Path, new_path: str | Path) -> None:
        """Rename a file."""
        self.files.rename(Path(path), Path(new_path))

    def mkdir(self, path: str | Path) -> None:
        """Make a folder with its parents."""
        self.files.make_folder(Path(path))

    def exists(self, path: str | Path) -> bool:
        """Return whether the path exists."""
        return Path(path).exists()

    def rm_file(self, path: str | Path) -> None:
        """Remove a file."""
        self.files.remove(Path(path))


def write_shards(group: RankGroup, tensors: Mapping[str, Tensor], writer: FileSystemWriter, files: Files) -> None:
    """Write each rank's shards of the tensors. Raises: CheckpointError, OSError if one rank failed."""
    writer.fs = FilesBelow(files)  # type: ignore[assignment]
    with _of_one_fault(group):
        state_dict_saver.save(
            dict(tensors), storage_writer=writer, process_group=_handle(group), no_dist=group.size == 1
        )


def read_shards(group: RankGroup, into: Mapping[str, Tensor], reader: FileSystemReader) -> None:
    """Fill tensors, each rank its shards of them. Raises: CheckpointError."""
    with _of_one_fault(group):
        state_dict_loader.load(dict(into), storage_reader=reader, process_group=_handle(group), no_dist=group.size == 1)


def _handle(group: RankGroup) -> Any:
    return group.handle if group.size > 1 else None


@contextmanager
def _of_one_fault(group: RankGroup) -> Iterator[None]:
    """Turn the failures of several ranks into an error of one line; raise this rank's own OSError unchanged."""
    try:
        with warnings.catch_warnings():
            if group.size == 1:  # it warns that there are no other ranks, which is intended
                warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
            yield
    except CheckpointException as fault:
        causes = {rank: wrapped[0] for rank, wrapped in fault.failures.items()}
        own = causes.get(group.rank)
        if isinstance(own, OSError) or not isinstance(own, Exception | None):
            raise own from None
        said = [_said(causes[rank]) if rank in causes else "" for rank in range(max(causes) + 1)]
        raise CheckpointError(first_error(said)) from fault
    except RuntimeError as cause:
        raise lost(cause) from cause


def _said(cause: BaseException) -> str:
    return f"{type(cause).__name__}: {next(iter(str(cause).splitlines()), '')}"
