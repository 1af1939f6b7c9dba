"""Files whose world may end: after so many operations, in the middle of one, with what was not synced gone."""

from pathlib import Path

from ...runtime.effects.files import DISK, Files


class Crash(OSError):
    """The machine stopped here."""


class CrashingFiles:
    """`files` performs operations on the disk until `operations` of them are done (a negative number: for ever).

    `torn`: half of an append that the crash falls into is there. `forgets`: at `power_fails`, bytes appended since a
    file's last sync are gone.
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
        self._spend()  # the disk need not sync: what a power failure takes is simulated
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
        """Takes back what was appended and never synced, if the disk forgets."""
        for path, kept in self.unsynced.items():
            if self.forgets and path.exists():
                with path.open("r+b") as file:
                    file.truncate(kept)
        self.unsynced = {}
