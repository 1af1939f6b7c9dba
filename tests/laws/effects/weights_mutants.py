"""Transfers of weights as people get them wrong: each an edit around a right one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from attrs import evolve

from purestep.core.tree import leaves, tree_map
from purestep.runtime.effects.weights_layout import WeightsError, layout


def _publish(transfer: Any, edit: Callable[[Any], Any]) -> Any:
    @contextmanager
    def publishing(params: Any, **options: Any) -> Iterator[Any]:
        with transfer.publishing(params, **options) as weights:
            yield evolve(weights, publish=lambda version, tree: weights.publish(version, edit(tree)))

    return evolve(transfer, publishing=publishing)


def loses_strides(transfer: Any) -> Any:
    """Copies a leaf's memory, in the order in which it lies."""

    def edit(leaf: torch.Tensor) -> torch.Tensor:
        plain = torch.empty(leaf.shape).stride()
        return leaf.as_strided(leaf.shape, plain) if leaf.numel() and 0 not in leaf.stride() else leaf

    return _publish(transfer, lambda tree: tree_map(edit, tree))


def through_half(transfer: Any) -> Any:
    """Sends half the bytes."""

    def edit(leaf: torch.Tensor) -> torch.Tensor:
        return leaf.to(torch.bfloat16).to(leaf.dtype) if leaf.is_floating_point() else leaf

    return _publish(transfer, lambda tree: tree_map(edit, tree))


def gives_views(transfer: Any) -> Any:
    """Gives everybody the same tensors."""

    def reading(path: Path, like: Any) -> Any:
        reader = transfer.reading(path, like)
        room = tree_map(lambda leaf: torch.empty(leaf.shape, dtype=leaf.dtype), like)

        def fetch(newer_than: int = -1, into: Any = (), seconds: float = 60.0) -> Any:
            return reader.fetch(newer_than, into if leaves(into) else room, seconds)

        return evolve(reader, fetch=fetch)

    return evolve(transfer, reading=reading)


def counts_fetches(transfer: Any) -> Any:
    """Counts what was fetched as overtaken too."""

    def reading(path: Path, like: Any, **how: Any) -> Any:
        reader, fetched = transfer.reading(path, like, **how), list[int]()

        def fetch(*asked: Any, **more: Any) -> Any:
            fetched.append(1)
            return reader.fetch(*asked, **more)

        return evolve(reader, fetch=fetch, overtaken=lambda: reader.overtaken() + len(fetched))

    return evolve(transfer, reading=reading)


def compares_sizes(transfer: Any) -> Any:
    """Looks whether the bytes fit."""

    def reading(path: Path, like: Any) -> Any:
        try:
            return transfer.reading(path, like)
        except WeightsError:
            known = {"value": torch.zeros(()), "block": torch.zeros(8)}
            if layout(known).size != layout(like).size:
                raise
            return transfer.reading(path, known)

    return evolve(transfer, reading=reading)


def locks_nothing(transfer: Any) -> Any:
    """Trusts that nobody else has the path."""

    @contextmanager
    def publishing(params: Any, *, path: Path, **options: Any) -> Iterator[Any]:
        if path.exists():
            path = path.with_name("another")
        with transfer.publishing(params, path=path, **options) as weights:
            yield weights

    return evolve(transfer, publishing=publishing)


def begins_anew(transfer: Any) -> Any:
    """Clears what is at its path."""

    @contextmanager
    def publishing(params: Any, *, path: Path, **options: Any) -> Iterator[Any]:
        with suppress(FileNotFoundError):
            if path.name == "left":
                path.unlink()
        with transfer.publishing(params, path=path, **options) as weights:
            yield weights

    return evolve(transfer, publishing=publishing)


def never_checks(transfer: Any) -> Any:
    """Writes no checksum and asks for none."""

    @contextmanager
    def publishing(params: Any, *, guard: str = "sequence", **options: Any) -> Iterator[Any]:
        with transfer.publishing(params, guard="sequence", **options) as weights:
            yield weights

    return evolve(transfer, publishing=publishing)


def leaves_the_file(transfer: Any) -> Any:
    """Keeps the memory for later."""

    @contextmanager
    def publishing(params: Any, *, path: Path, **options: Any) -> Iterator[Any]:
        kept = b""
        try:
            with transfer.publishing(params, path=path, **options) as weights:
                yield weights
                kept = path.read_bytes()
        finally:
            if kept:
                path.write_bytes(kept)

    return evolve(transfer, publishing=publishing)


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "sends floats as bfloat16": through_half,
    "counts what was fetched as thrown away": counts_fetches,
}
