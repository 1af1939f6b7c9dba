"""Laws of decoding in slots: slot, neighbours, chunks and blocks do not change the tokens that are sampled.

The subject is a `Slots`, the functions of `core.decoding.slots` and `core.decoding.decode`; the laws use a model of integers.
"""

from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve
from torch import Tensor

from purestep.core import keys
from purestep.core.decoding.decode import Decoder
from purestep.core.decoding.slots import Decoding
from purestep.core.record import replace, take
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Seen, Suite, law_constructor

from .conversations import (
    CAPACITY,
    DECODER,
    LONGEST,
    MODEL,
    Exam,
    Slots,
    begun,
    by_full_passes,
    exams,
    played,
    said,
    seated,
)

# --- mutants ---
# Common errors in decoding in slots: edits of its functions.


def _behind(change: Callable[[Decoding, Decoding], Decoding]) -> Callable[[Slots], Slots]:
    """The edit of the result of a step: `change(before, after)`."""

    def make(slots: Slots) -> Slots:
        def step(decoder: Decoder, params: Any, version: Any, decoding: Decoding, *, width: int = 1) -> Decoding:
            return change(decoding, slots.step(decoder, params, version, decoding, width=width))

        return evolve(slots, step=step)

    return make


def _seated(change: Callable[..., Decoding]) -> Callable[[Slots], Slots]:
    """The edit of the seating of calls: `change(seat, decoding, rows, token, known, key, room)`."""
    return lambda slots: evolve(slots, seat=lambda *given: change(slots.seat, *given))


def _drawn_by_slot(seat: Callable[..., Decoding], decoding: Decoding, rows: Tensor, *rest: Any) -> Decoding:
    token, known, key, room = rest
    return seat(decoding, rows, token, known, keys.fold_in(key, rows), room)


def _kept_by_number(seat: Callable[..., Decoding], decoding: Decoding, rows: Tensor, *rest: Any) -> Decoding:
    after = seat(decoding, rows, *rest)
    held = torch.minimum(decoding.position[rows], (rest[1] - 1).clamp(min=0))
    return replace(after, position=after.position.index_put((rows,), held))


def _nothing_fed_again(seat: Callable[..., Decoding], decoding: Decoding, rows: Tensor, *rest: Any) -> Decoding:
    """Keep the whole cache if all tokens are cached, so that no pass computes the logits of the next token."""
    after, old, (token, known, _, _) = seat(decoding, rows, *rest), take(decoding, rows), rest
    place = torch.arange(token.shape[-1])
    same = ((token == old.token) | (place >= torch.minimum(known, old.known)[..., None])).all(-1)
    held = torch.where(same & (old.position >= known), known, after.position[rows])
    return replace(after, position=after.position.index_put((rows,), held))


def _room_of_all(seat: Callable[..., Decoding], decoding: Decoding, rows: Tensor, *rest: Any) -> Decoding:
    token, known, key, room = rest
    return seat(decoding, rows, token, known, key, torch.full_like(room, decoding.noise.shape[-1]))


def last_of_block(slots: Slots) -> Slots:
    """Use the logits at the end of a block instead of those at the last known token."""

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
    """Continue after a stop token as long as there is room."""
    return replace(after, speaking=before.speaking & (after.count < after.room))


def _one_version(before: Decoding, after: Decoding) -> Decoding:
    newest = after.version.amax(-1, keepdim=True)
    return replace(after, version=torch.where(after.version >= 0, newest, after.version))


def _over_the_prompt(before: Decoding, after: Decoding) -> Decoding:
    """Write the sampled token at the slot's position, which is right only if no token is forced."""
    place = torch.arange(after.token.shape[-1])
    drawn = after.token.gather(-1, (after.known - 1).clamp(min=0)[..., None])
    here = (after.known > before.known)[..., None] & (place == before.position[..., None])
    return replace(after, token=torch.where(here, drawn, after.token))


def _stopped_for_good(before: Decoding, after: Decoding) -> Decoding:
    return replace(after, stopped=after.stopped | (before.speaking & ~after.speaking))


def ends_early(slots: Slots) -> Slots:
    """Leave the chunk as soon as one call has ended."""

    def chunk(decoder: Decoder, params: Any, version: Any, decoding: Decoding, length: int) -> Decoding:
        first = decoding.speaking.sum()
        for _ in range(length):
            if decoding.speaking.sum() == first:
                decoding = slots.step(decoder, params, version, decoding)
        return decoding

    return evolve(slots, chunk=chunk)


def remembers(slots: Slots) -> Slots:
    """Keep cache entries that were computed under other weights."""
    return evolve(slots, forget=lambda decoding: decoding)


by_slot, by_number = _seated(_drawn_by_slot), _seated(_kept_by_number)
waits_moving, goes_on, one_version = _behind(_waits_moving), _behind(_keeps_room), _behind(_one_version)
over_the_prompt = _behind(_over_the_prompt)
MUTANTS: dict[str, Callable[[Slots], Slots]] = {
    "says of every call that it stopped": _behind(_stopped_for_good),
    "feeds nothing where all is held": _seated(_nothing_fed_again),
    "gives each call as much room as any": _seated(_room_of_all),
}


# --- laws ---


SOURCE = "core.decoding.decode: what a step promises"


def decode_laws() -> Suite:
    """The laws of `Slots`."""
    laws = (_full_passes(), _any_room(), _told(), _waiting(), _back(), _weights(), _versions(), _chunks())
    return Suite("decode_laws", laws)


_law = law_constructor(exams, SOURCE, most=200)


def _full_passes() -> Law:
    def check(slots: Slots, exam: Exam, seen: Seen) -> None:
        got = played(slots, exam, exam.rooms[0], exam.order)
        for number, talk in enumerate(exam.talks):
            wanted = by_full_passes(exam, talk)
            seen("a stop token", any(stopped for _, _, stopped in wanted))
            seen("room used up", any(not stopped for _, _, stopped in wanted))
            seen("a block cut short", exam.rooms[0].width > 1 and len(talk.told[0]) % exam.rooms[0].width)
            seen("a call told nothing", () in talk.told)
            same(f"talk {number}", got[number], wanted)

    claim = "Tokens, log-probs and endings are those of full passes over what stands before each token, with its own number."
    mutant = ("takes a block's last place for the last known token", last_of_block)
    needs = ("a stop token", "room used up", "a block cut short", "a call told nothing")
    return _law("full_passes", claim, mutant, check, *needs)


def _any_room() -> Law:
    def check(slots: Slots, exam: Exam, seen: Seen) -> None:
        seen("another number of slots", exam.rooms[0].slots != exam.rooms[1].slots)
        seen("another number of steps", exam.rooms[0].steps != exam.rooms[1].steps)
        seen("another order", exam.order != tuple(range(4)))
        one = played(slots, exam, exam.rooms[0], exam.order)
        same("in other slots, steps and order", one, played(slots, exam, exam.rooms[1], tuple(range(4))))

    claim = "The number of slots, steps and known tokens at a time, and the order of the talks change no bit."
    mutant = ("mixes the slot into the key", by_slot)
    needs = ("another number of slots", "another number of steps", "another order")
    return _law("any_room", claim, mutant, check, *needs)


def _under_way(slots: Slots, exam: Exam, steps: int, count: int = 4) -> Decoding:
    """A call of each of the first talks, some steps on."""
    decoding = begun(slots, exam, count)
    for row, talk in enumerate(exam.talks[:count]):
        decoding = seated(slots, decoding, row, list(talk.told[0]), talk.key(0), talk.room[0])
    for _ in range(steps):
        decoding = slots.step(DECODER, exam.params(), 0, decoding)
    return decoding


def _told() -> Law:
    def check(slots: Slots, exam: Exam, seen: Seen) -> None:
        decoding = _under_way(slots, exam, 0)
        place = torch.arange(CAPACITY)
        for width in (1, exam.rooms[0].width, 1, 1, exam.rooms[1].width, 1):
            after = slots.step(DECODER, exam.params(), 0, decoding, width=width)
            known = place < decoding.known[:, None]
            same("tokens that were known", torch.where(known, after.token, -1), torch.where(known, decoding.token, -1))
            forced = decoding.position + width < decoding.known
            seen("known tokens left to feed", forced.any())
            same("tokens sampled", after.known - decoding.known, (after.count - decoding.count))
            require((after.count == decoding.count)[forced], "a row samples before all it was told is fed")
            decoding = after

    claim = "What is known is fed and never sampled over: tokens only come behind those that are known."
    mutant = ("writes what it samples at the slot's position", over_the_prompt)
    return _law("told_stays", claim, mutant, check, "known tokens left to feed")


def _waiting() -> Law:
    def check(slots: Slots, exam: Exam, seen: Seen) -> None:
        decoding = _under_way(slots, exam, 2 + 2 * exam.rooms[1].steps, count=exam.rooms[0].slots)
        waits = ~decoding.speaking & (decoding.position == decoding.known)
        seen("a row that waits beside one that does not", waits.any() and not waits.all())
        seen("an idle slot", (decoding.known == 0).any())
        after = decoding
        for _ in range(exam.rooms[0].steps):
            after = slots.step(DECODER, exam.params(), 0, after, width=exam.rooms[0].width)
        bare = [replace(take(one, waits), cache=()) for one in (after, decoding)]
        same("rows that wait", bare[0], bare[1])

    claim = "A row with nothing to do stands still, in all but what its cache holds behind its position."
    mutant = ("moves rows that wait", waits_moving)
    needs = ("a row that waits beside one that does not", "an idle slot")
    return _law("waiting_stands_still", claim, mutant, check, *needs)


def _back() -> Law:
    def check(slots: Slots, exam: Exam, seen: Seen) -> None:
        decoding = _under_way(slots, exam, exam.rooms[0].steps + 3)
        talk = exam.talks[1]
        known, count = int(decoding.known[0]), int(decoding.count[0])
        left = decoding.token[0, : known - count + exam.rooms[1].width // 2].tolist()[: known or 1]
        ids = [*left, *talk.told[-1]]
        seen("tokens dropped", len(left) < known)
        seen("others in their place", len(left) < known and talk.told[-1])
        gone_on = seated(slots, decoding, 0, ids, talk.key(0), talk.room[0])
        fresh = seated(slots, begun(slots, exam, 1), 0, ids, talk.key(0), talk.room[0])
        for _ in range(len(ids) + LONGEST):
            gone_on, fresh = (slots.step(DECODER, exam.params(), 0, one) for one in (gone_on, fresh))
        same("the call", said(gone_on, 0), said(fresh, 0))

    claim = "A row that goes back and on, with other tokens or none, samples as if it had never been elsewhere."
    mutant = ("keeps what the cache holds by number, whatever tokens it was made of", by_number)
    return _law("going_back", claim, mutant, check, "tokens dropped", "others in their place")


def _weights() -> Law:
    def check(slots: Slots, exam: Exam, seen: Seen) -> None:
        decoding, other = _under_way(slots, exam, exam.rooms[0].steps), exam.params(1)
        seen("a call half said", (decoding.speaking & (decoding.count > 0)).any())
        forgot = slots.forget(decoding)
        fresh = replace(forgot, cache=MODEL.begin(other, 4, CAPACITY), position=torch.zeros_like(forgot.position))
        for _ in range(CAPACITY):
            forgot, fresh = (slots.step(DECODER, other, 1, one) for one in (forgot, fresh))
        for row in range(4):
            same(f"the call of row {row}", said(forgot, row), said(fresh, row))

    claim = (
        "With other weights and what the old ones put into the cache forgotten, tokens are those of the new ones alone."
    )
    mutant = ("remembers what other weights have put into the cache", remembers)
    return _law("other_weights", claim, mutant, check, "a call half said")


def _versions() -> Law:
    def check(slots: Slots, exam: Exam, seen: Seen) -> None:
        decoding = _under_way(slots, exam, 0)
        wanted = torch.full((4, LONGEST), -1)
        number = torch.arange(LONGEST)
        for version in range(12):
            after = slots.step(DECODER, exam.params(), version, decoding)
            new = (number >= decoding.count[:, None]) & (number < after.count[:, None])
            wanted, decoding = torch.where(new, version, wanted), after
        seen("a call of several tokens", (decoding.count > 1).any())
        same("versions", decoding.version, wanted)

    claim = "Each token carries the version of the weights that sampled it; where none was sampled there is none."
    mutant = ("gives a whole call the version of its last token", one_version)
    return _law("versions_stamped", claim, mutant, check, "a call of several tokens")


def _chunks() -> Law:
    def check(slots: Slots, exam: Exam, seen: Seen) -> None:
        decoding = wanted = _under_way(slots, exam, exam.rooms[1].steps)
        length = exam.rooms[0].steps * 3
        for _ in range(length):
            wanted = slots.step(DECODER, exam.params(), 0, wanted)
        seen("a call that ends on the way", (decoding.speaking & ~wanted.speaking).any())
        seen("calls that end at different steps", (decoding.speaking & wanted.speaking).any())
        same("a chunk", slots.chunk(DECODER, exam.params(), 0, decoding, length), wanted)

    claim = "A chunk is its steps, one behind the other."
    mutant = ("leaves the chunk when the first call has ended", ends_early)
    return _law("chunk_is_steps", claim, mutant, check, "a call that ends on the way")
