"""The actor that lists the published weights in Ray's object store. Sent by value: its process needs not import the package."""

from typing import Any


class Board:
    """References to the newest publications, which keep them in the store."""

    def __init__(self) -> None:
        self.newest = -1
        self.layout = ""
        self.held: list[Any] = []
        self.over = False

    def hold(self, version: int, layout: str, held: list[Any]) -> None:
        """Replace the references by `held`, the last of which is that of `version`."""
        self.newest, self.layout, self.held = version, layout, held

    def end(self) -> None:
        """Offer nothing more, since the publisher ends."""
        self.over, self.held = True, []

    def closed(self) -> bool:
        """Return whether the publisher has ended."""
        return self.over

    def offer(self, newer_than: int) -> tuple[Any, ...]:
        """Return (version, layout, [reference]) of the newest publication, or () where none is newer."""
        return (self.newest, self.layout, self.held[-1:]) if self.newest > newer_than and self.held else ()
