"""How people get decoding in slots wrong: edits of its functions."""

from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve
from torch import Tensor

from purestep.core import keys
from purestep.core.decode import Decoder
from purestep.core.record import replace, take
from purestep.core.slots import Decoding
from purestep.core.tree import tree_map

from .conversations import Slots


def _behind(change: Callable[[Decoding, Decoding], Decoding]) -> Callable[[Slots], Slots]:
    """The edit that changes what a step gives: `change(before, after)`."""

    def make(slots: Slots) -> Slots:
        def step(decoder: Decoder, params: Any, version: Any, decoding: Decoding, *, width: int = 1) -> Decoding:
            return change(decoding, slots.step(decoder, params, version, decoding, width=width))

        return evolve(slots, step=step)

    return make


def _seated(change: Callable[..., Decoding]) -> Callable[[Slots], Slots]:
    """The edit that changes what seating gives: `change(seat, decoding, rows, token, known, key, room)`."""
    return lambda slots: evolve(slots, seat=lambda *given: change(slots.seat, *given))


def _drawn_by_slot(seat: Callable[..., Decoding], decoding: Decoding, rows: Tensor, *rest: Any) -> Decoding:
    token, known, key, room = rest
    return seat(decoding, rows, token, known, keys.fold_in(key, rows), room)


def _kept_by_number(seat: Callable[..., Decoding], decoding: Decoding, rows: Tensor, *rest: Any) -> Decoding:
    after = seat(decoding, rows, *rest)
    held = torch.minimum(decoding.position[rows], (rest[1] - 1).clamp(min=0))
    return replace(after, position=after.position.index_put((rows,), held))


def _nothing_fed_again(seat: Callable[..., Decoding], decoding: Decoding, rows: Tensor, *rest: Any) -> Decoding:
    """Keeps all that is held, so that behind tokens that are all held nothing tells what comes next."""
    after, old, (token, known, _, _) = seat(decoding, rows, *rest), take(decoding, rows), rest
    place = torch.arange(token.shape[-1])
    same = ((token == old.token) | (place >= torch.minimum(known, old.known)[..., None])).all(-1)
    held = torch.where(same & (old.position >= known), known, after.position[rows])
    return replace(after, position=after.position.index_put((rows,), held))


def _room_of_all(seat: Callable[..., Decoding], decoding: Decoding, rows: Tensor, *rest: Any) -> Decoding:
    token, known, key, room = rest
    return seat(decoding, rows, token, known, key, torch.full_like(room, decoding.noise.shape[-1]))


def last_of_block(slots: Slots) -> Slots:
    """Takes what stands at the end of a block for what stands at the last known token."""

    def step(decoder: Decoder, params: Any, version: Any, decoding: Decoding, *, width: int = 1) -> Decoding:
        def extend(*given: Any) -> tuple[Tensor, Any]:
            hidden, cache = decoder.model.extend(*given)
            return hidden[:, -1:].expand_as(hidden), cache

        edited = evolve(decoder, model=evolve(decoder.model, extend=extend))
        return slots.step(edited, params, version, decoding, width=width)

    return evolve(slots, step=step)


def _waits_moving(before: Decoding, after: Decoding) -> Decoding:
    waits = ~before.speaking & (before.position == before.known)
    moved = (after.position + waits).clamp(max=after.token.shape[-1] - 1)
    return replace(after, position=torch.where(waits, moved, after.position))


def _keeps_room(before: Decoding, after: Decoding) -> Decoding:
    """Goes on behind a stop token as long as there is room."""
    return replace(after, speaking=before.speaking & (after.count < after.room))


def _one_version(before: Decoding, after: Decoding) -> Decoding:
    newest = after.version.amax(-1, keepdim=True)
    return replace(after, version=torch.where(after.version >= 0, newest, after.version))


def _over_the_prompt(before: Decoding, after: Decoding) -> Decoding:
    """Writes what it sampled at the slot's position, which is right while nothing is forced."""
    place = torch.arange(after.token.shape[-1])
    drawn = after.token.gather(-1, (after.known - 1).clamp(min=0)[..., None])
    here = (after.known > before.known)[..., None] & (place == before.position[..., None])
    return replace(after, token=torch.where(here, drawn, after.token))


def _stopped_for_good(before: Decoding, after: Decoding) -> Decoding:
    return replace(after, stopped=after.stopped | (before.speaking & ~after.speaking))


def ends_early(slots: Slots) -> Slots:
    """Leaves the chunk as soon as one call has ended."""

    def chunk(decoder: Decoder, params: Any, version: Any, decoding: Decoding, length: int) -> Decoding:
        first = decoding.speaking.sum()
        for _ in range(length):
            if decoding.speaking.sum() == first:
                decoding = slots.step(decoder, params, version, decoding)
        return decoding

    return evolve(slots, chunk=chunk)


def sorted_rows(slots: Slots) -> Slots:
    """Puts rows back in the order of their numbers."""

    def prefill(
        decoder: Decoder, params: Any, version: Any, decoding: Decoding, rows: Tensor, *, width: int
    ) -> Decoding:
        some = slots.step(decoder, params, version, take(decoding, rows), width=width)
        back = rows.sort().values
        return tree_map(lambda whole, part: whole.index_put((back,), part), decoding, some)

    return evolve(slots, prefill=prefill)


def remembers(slots: Slots) -> Slots:
    """Keeps what other weights have put into the cache."""
    return evolve(slots, forget=lambda decoding: decoding)


by_slot, by_number = _seated(_drawn_by_slot), _seated(_kept_by_number)
waits_moving, goes_on, one_version = _behind(_waits_moving), _behind(_keeps_room), _behind(_one_version)
over_the_prompt = _behind(_over_the_prompt)
MUTANTS: dict[str, Callable[[Slots], Slots]] = {
    "says of every call that it stopped": _behind(_stopped_for_good),
    "feeds nothing where all is held": _seated(_nothing_fed_again),
    "gives each call as much room as any": _seated(_room_of_all),
}
