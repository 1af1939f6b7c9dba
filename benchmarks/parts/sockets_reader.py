"""An actor for `sockets`: it fetches weights and looks at every number."""

from purestep.runtime.effects.weight_sync import weight_reader

from .transfer_sides import params_of, whole


class Reader:
    """Fetches weights."""

    def __init__(self, address: str, megabytes: float) -> None:
        self.opened = weight_reader(address, params_of(megabytes))

    def setup(self) -> None:
        """Opens the reader."""
        self.reader = self.opened.__enter__()

    def fetched(self, newer_than: int, version: int, seconds: float = 60.0) -> str:
        """Return "right" where the newest weights are all of that version, else what they are."""
        found = self.reader.fetch(newer_than, (), seconds)
        if not found or found[0] != version:
            return f"version {found[0] if found else 'none'}"
        return "right" if whole(found[1], version) else "wrong numbers"
