"""What the host does between two chunks of decoding: gives out slots, begins calls, feeds long prompts, hears what was said."""

from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve, frozen
from torch import Tensor

from ...core import keys
from ...core.decode import Decoder, step
from ...core.language.attempt import Attempt, Said, hear
from ...core.language.codec import Codec
from ...core.language.events import LENGTH, STOP
from ...core.language.protocol import Protocol
from ...core.language.requests import key_of
from ...core.record import replace, take
from ...core.slots import Decoding, forget, pending, seat
from ...core.tree import leaves, tree_map

Params = Any
AnyAttempt = Attempt[Any]
Ending = Callable[[str], str]  # why a text ends that no further text changes, as a finish_reason; "" where it goes on
Seat = tuple[int, int]  # an attempt's number, and that of the call under way
FREE: Seat = (-1, -1)
BLOCK = 256  # known tokens of a row that are fed at once, at most


@frozen(kw_only=True)
class Generation:
    """Attempts under way. `seats` says which of them is in each slot; those from `following` on wait for one."""

    attempts: tuple[AnyAttempt, ...]
    seats: tuple[Seat, ...]
    following: int
    decoding: Decoding
    version: int  # of the weights that filled the caches

    @property
    def over(self) -> bool:
        """Whether every attempt has ended."""
        return self.following == len(self.attempts) and all(seat == FREE for seat in self.seats)


def never(text: str) -> str:
    """The ending of texts that only a stop token ends, or their length."""
    del text
    return ""


def seated(generation: Generation, version: int) -> Generation:
    """Waiting attempts take free slots, calls that are due begin, and caches that other weights have filled are forgotten."""
    decoding = generation.decoding if version == generation.version else forget(generation.decoding)
    attempts, following, seats = generation.attempts, generation.following, []
    for number, _ in generation.seats:
        while number < 0 and following < len(attempts):
            number = following if isinstance(attempts[following].end, tuple) else -1
            following += 1
        seats.append((number, attempts[number].call) if number >= 0 else FREE)
    due = [row for row, (new, old) in enumerate(zip(seats, generation.seats, strict=True)) if new not in (old, FREE)]
    if due:
        decoding = _called(decoding, due, [attempts[seats[row][0]] for row in due])
    return evolve(generation, seats=tuple(seats), following=following, decoding=decoding, version=version)


def _called(decoding: Decoding, rows: list[int], attempts: list[AnyAttempt]) -> Decoding:
    """The calls that are due in these rows begin."""
    size, device = decoding.token.shape[-1], decoding.token.device

    def whole(values: list[Any]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    sampling = torch.stack([key_of(one.rollout.sampling) for one in attempts]).to(device)
    return seat(
        decoding,
        whole(rows),
        whole([[*one.ids, *[0] * (size - len(one.ids))] for one in attempts]),
        whole([len(one.ids) for one in attempts]),
        keys.fold_in(sampling, whole([one.call for one in attempts])),
        whole([one.room for one in attempts]),
    )


def prefilled(decoder: Decoder, params: Params, version: Tensor, generation: Generation) -> Decoding:
    """Feeds known tokens many at a time, as long as feeding them one by one would keep slots waiting for a step or more.

    A block costs about as much as a step of all slots, whatever the number of rows and tokens in it.
    """
    decoding, seats = generation.decoding, generation.seats
    while True:
        left = [0 if seat == FREE else n for n, seat in zip(pending(decoding).tolist(), seats, strict=True)]
        rows = [row for row, n in enumerate(left) if n > 1]
        if sum(left[row] - 1 for row in rows) < len(seats):
            return decoding
        width = min(BLOCK, max(left))
        if len(rows) == len(seats):
            decoding = step(decoder, params, version, decoding, width=width)
        else:
            some = torch.tensor(rows, device=decoding.token.device)
            fed = step(decoder, params, version, take(decoding, some), width=width)
            decoding = _put_back(decoding, some, fed)


def _put_back(decoding: Decoding, rows: Tensor, part: Decoding) -> Decoding:
    """The decoding with these rows, written into the caches themselves."""
    for whole, new in zip(leaves(decoding.cache), leaves(part.cache), strict=True):
        whole.index_put_((rows,), new)
    bare, new = replace(decoding, cache=()), replace(part, cache=())
    return replace(tree_map(lambda old, some: old.index_put((rows,), some), bare, new), cache=decoding.cache)


@frozen
class Host:
    """What the host makes of a chunk: texts of calls that have ended, and what the world says to them."""

    protocol: Protocol[Any, Any]
    codec: Codec
    temperature: float
    top_p: float
    ending: Ending

    def heard(self, generation: Generation) -> Generation:
        """The attempts behind the calls that have ended; those that have ended themselves leave their slots."""
        decoding, seats, attempts = generation.decoding, list(generation.seats), list(generation.attempts)
        speaking = decoding.speaking.tolist()
        looked = [
            row for row, seat in enumerate(seats) if seat != FREE and not (speaking[row] and self.ending is never)
        ]
        for row, said in zip(looked, self._said(decoding, looked), strict=True):
            if isinstance(said, Said):
                number, _ = seats[row]
                attempts[number] = hear(self.protocol, self.codec, attempts[number], said)
                seats[row] = seats[row] if isinstance(attempts[number].end, tuple) else FREE
        return evolve(generation, attempts=tuple(attempts), seats=tuple(seats))

    def _said(self, decoding: Decoding, rows: list[int]) -> list[Said | tuple[()]]:
        """What the calls in these rows have given, () for those that go on."""
        if not rows:
            return []
        at = torch.tensor(rows, device=decoding.token.device)
        names = ("token", "known", "count", "log_prob", "version", "speaking", "stopped")
        columns = [getattr(decoding, name)[at].tolist() for name in names]
        return [self._call(*row) for row in zip(*columns, strict=True)]

    def _call(
        self,
        token: list[int],
        known: int,
        count: int,
        log_prob: list[float],
        version: list[int],
        speaking: bool,
        stopped: bool,
    ) -> Said | tuple[()]:
        ids = tuple(token[known - count : known])
        length, reason = self._text_over(ids)
        if not reason and speaking:
            return ()
        return Said(
            ids=ids[:length],
            log_probs=tuple(log_prob[:length]),
            versions=tuple(version[:length]),
            finish_reason=reason or (STOP if stopped else LENGTH),
            temperature=self.temperature,
            top_p=self.top_p,
        )

    def _text_over(self, ids: tuple[int, ...]) -> tuple[int, str]:
        """How many of the ids it takes until the text is over, and why it is; all of them and "" where it is not."""
        if self.ending is never or not self.ending(self.codec.decode(ids)):
            return len(ids), ""
        reasons = ((n, self.ending(self.codec.decode(ids[:n]))) for n in range(1, len(ids) + 1))
        return next((n, reason) for n, reason in reasons if reason)
