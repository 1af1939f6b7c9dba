"""Simulated crashes of file operations: after a number of operations, in the middle of one, with unsynced data lost."""

from pathlib import Path

from ...runtime.effects.checkpoint.atomic_files import DISK, Files


class Crash(OSError):
    """The simulated machine stopped at this file operation."""


class CrashingFiles:
    """File operations that raise Crash: `files` performs `operations` of them on the disk (negative: no limit).

    `torn`: half of the data is written if the crash falls on an append. `forgets`: `power_fails` removes the bytes that were
    appended since a file's last sync.
    """

    def __init__(self, operations: int, *, torn: bool = False, forgets: bool = False) -> None:
        self.left = operations
        self.torn = torn
        self.forgets = forgets
        self.unsynced: dict[Path, int] = {}
        self.files = Files(
            make_folder=self._make_folder,
            append=self._append,
            sync=self._sync,
            rename=self._rename,
            remove=self._remove,
            remove_empty=self._remove_empty,
        )

    def _spend(self) -> None:
        if self.left == 0:
            raise Crash("the machine stopped here")
        self.left -= 1

    def _make_folder(self, path: Path) -> None:
        self._spend()
        DISK.make_folder(path)

    def _append(self, path: Path, data: bytes) -> None:
        self.unsynced.setdefault(path, path.stat().st_size if path.exists() else 0)
        if self.left == 0 and self.torn:
            DISK.append(path, data[: len(data) // 2])
        self._spend()
        DISK.append(path, data)

    def _sync(self, path: Path) -> None:
        self._spend()  # no real sync is needed: the data loss of a power failure is simulated
        self.unsynced.pop(path, None)

    def _rename(self, source: Path, target: Path) -> None:
        self._spend()
        DISK.rename(source, target)
        moved = {p: n for p, n in self.unsynced.items() if p == source or source in p.parents}
        for path, kept in moved.items():
            del self.unsynced[path]
            self.unsynced[target / path.relative_to(source)] = kept

    def _remove(self, path: Path) -> None:
        self._spend()
        DISK.remove(path)
        self.unsynced = {p: n for p, n in self.unsynced.items() if p != path and path not in p.parents}

    def _remove_empty(self, path: Path) -> None:
        self._spend()
        DISK.remove_empty(path)

    def power_fails(self) -> None:
        """Truncate each file to its last synced size if `forgets` is set."""
        for path, kept in self.unsynced.items():
            if self.forgets and path.exists():
                with path.open("r+b") as file:
                    file.truncate(kept)
        self.unsynced = {}
