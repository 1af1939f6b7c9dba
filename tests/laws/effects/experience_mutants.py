"""Replays as people get them wrong: each an edit of one of the rules."""

from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve
from torch import Tensor

from purestep.core.record import replace


def ageless(subject: Any) -> Any:
    """Finds out that a sample is old where it comes in, and nowhere else."""
    return evolve(subject, draw=lambda *args, max_age=(), uses=(): subject.draw(*args, uses=uses))


def takes_some(subject: Any) -> Any:
    """Uses samples up before it knows whether there are enough."""

    def draw(shelf: Any, version: Any, key: Tensor, count: int, **limits: Any) -> Any:
        after, places, enough = subject.draw(shelf, version, key, count, **limits)
        few = (~enough).to(torch.int64)
        return replace(after, uses=after.uses + few * after.held), places, enough

    return evolve(subject, draw=draw)


def counts_places(subject: Any) -> Any:
    """Takes an empty place for a sample."""

    def add(shelf: Any, version: Tensor) -> Any:
        after, places = subject.add(shelf, version)
        lost = torch.minimum(after.added, shelf.overwritten + version.shape[-1])
        return replace(after, overwritten=lost), places

    return evolve(subject, add=add)


def begins_again(subject: Any) -> Any:
    """Keeps each batch in one piece."""

    def add(shelf: Any, version: Tensor) -> Any:
        capacity, count = shelf.held.shape[-1], version.shape[-1]
        fits = shelf.next + count <= capacity
        return subject.add(replace(shelf, next=torch.where(fits, shelf.next, 0)), version)

    return evolve(subject, add=add)


def neighbours(subject: Any) -> Any:
    """Draws one place and goes on from there."""

    def draw(shelf: Any, version: Any, key: Tensor, count: int, **limits: Any) -> Any:
        after, places, enough = subject.draw(shelf, version, key, count, **limits)
        there = torch.sort((~shelf.held).to(torch.int8), stable=True).indices
        row = (places[..., :1] + torch.arange(count)) % torch.clamp(shelf.held.sum(-1), min=1)[..., None]
        return after, there.gather(-1, row), enough

    return evolve(subject, draw=draw)


def in_place(subject: Any) -> Any:
    """Saves an allocation."""

    def draw(shelf: Any, version: Any, key: Tensor, count: int, **limits: Any) -> Any:
        after, places, enough = subject.draw(shelf, version, key, count, **limits)
        shelf.uses.copy_(after.uses)
        return after, places, enough

    return evolve(subject, draw=draw)


def with_replacement(subject: Any) -> Any:
    """Draws each sample of a batch from all of them."""

    def draw(shelf: Any, version: Any, key: Tensor, count: int, **limits: Any) -> Any:
        after, places, enough = subject.draw(shelf, version, key, count, **limits)
        twice = torch.where(key[..., :1] % 2 == 0, places[..., :1], places)
        return after, twice, enough

    return evolve(subject, draw=draw)


def remembers_uses(subject: Any) -> Any:
    """Leaves the count of uses to the place when another sample takes it."""

    def add(shelf: Any, version: Tensor) -> Any:
        after, places = subject.add(shelf, version)
        return replace(after, uses=shelf.uses), places

    return evolve(subject, add=add)


def never_consumes(subject: Any) -> Any:
    """Draws samples as often as chance will have it."""
    return evolve(subject, draw=lambda *args, max_age=(), uses=(): subject.draw(*args, max_age=max_age))


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "draws with replacement": with_replacement,
    "does not forget the uses of what it overwrites": remembers_uses,
    "never uses a sample up": never_consumes,
}
