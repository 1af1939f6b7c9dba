"""The host's work between two chunks of decoding: assign slots, start calls, prefill long prompts, process finished calls."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import evolve, frozen
from torch import Tensor

from ....core import keys
from ....core.decoding.decode import Decoder, decode_step
from ....core.decoding.slots import Decoding, forget, pending, seat
from ....core.language.codec import Codec
from ....core.language.events import LENGTH, STOP
from ....core.language.protocol import Protocol
from ....core.language.requests import key_of
from ....core.language.rollout import add_output
from ....core.language.types import ModelOutput, ModelTurn, Rollout
from ....core.record import replace, take
from ....core.tree import leaves, tree_map

Params = Any
AnyAttempt = Rollout[Any]
Ending = Callable[[str], str]  # the finish_reason of a text that is complete, whatever follows; "" if it is not
Seat = tuple[int, int]  # an attempt's number, and that of its current call
FREE: Seat = (-1, -1)
BLOCK = 256  # largest number of known tokens of a row that are fed at once


@frozen(kw_only=True)
class Generation:
    """Attempts in progress. `seats` has the attempt in each slot; those from `following` on wait for a slot."""

    attempts: tuple[AnyAttempt, ...]
    seats: tuple[Seat, ...]
    following: int
    decoding: Decoding
    version: int  # of the weights that filled the caches

    @property
    def over(self) -> bool:
        """Return whether every attempt has ended."""
        return self.following == len(self.attempts) and all(seat == FREE for seat in self.seats)


def never(text: str) -> str:
    """Return "": texts end only at a stop token or their length limit."""
    del text
    return ""


def assign_slots(generation: Generation, version: int) -> Generation:
    """Assign free slots to waiting attempts, start the calls that are due, and discard caches of other weights."""
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
    """Start the calls that are due in these rows."""
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
    """Prefill known tokens in blocks, as long as feeding them one by one would make slots wait for a step or more.

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
            decoding = decode_step(decoder, params, version, decoding, width=width)
        else:
            some = torch.tensor(rows, device=decoding.token.device)
            fed = decode_step(decoder, params, version, take(decoding, some), width=width)
            decoding = _put_back(decoding, some, fed)


def _put_back(decoding: Decoding, rows: Tensor, part: Decoding) -> Decoding:
    """Return the decoding with these rows replaced; the caches are written in place."""
    for whole, new in zip(leaves(decoding.cache), leaves(part.cache), strict=True):
        whole.index_put_((rows,), new)
    bare, new = replace(decoding, cache=()), replace(part, cache=())
    return replace(tree_map(lambda old, some: old.index_put((rows,), some), bare, new), cache=decoding.cache)


@frozen
class ChunkProcessor:
    """The host's work after a chunk: it decodes the texts of finished calls, and steps their episodes."""

    protocol: Protocol[Any, Any]
    codec: Codec
    temperature: float
    top_p: float
    ending: Ending

    def process(self, generation: Generation) -> Generation:
        """Return the generation after its finished calls are processed; attempts that are finished free their slots."""
        decoding, seats, attempts = generation.decoding, list(generation.seats), list(generation.attempts)
        speaking = decoding.speaking.tolist()
        looked = [
            row for row, seat in enumerate(seats) if seat != FREE and not (speaking[row] and self.ending is never)
        ]
        for row, said in zip(looked, self._said(decoding, looked), strict=True):
            if isinstance(said, ModelOutput):
                number, _ = seats[row]
                attempts[number] = add_output(self.protocol, self.codec, attempts[number], said)
                seats[row] = seats[row] if isinstance(attempts[number].end, tuple) else FREE
        return evolve(generation, attempts=tuple(attempts), seats=tuple(seats))

    def _said(self, decoding: Decoding, rows: list[int]) -> list[ModelOutput | tuple[()]]:
        """Return the outputs of the calls in these rows, () for those that go on."""
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
    ) -> ModelOutput | tuple[()]:
        ids = tuple(token[known - count : known])
        length, reason = self._text_over(ids)
        if not reason and speaking:
            return ()
        return ModelOutput(
            ids=ids[:length],
            log_probs=tuple(log_prob[:length]),
            versions=tuple(version[:length]),
            finish_reason=reason or (STOP if stopped else LENGTH),
            temperature=self.temperature,
            top_p=self.top_p,
        )

    def _text_over(self, ids: tuple[int, ...]) -> tuple[int, str]:
        """Return the number of ids until the text is complete, and the reason; all of them and "" if it is not."""
        if self.ending is never or not self.ending(self.codec.decode(ids)):
            return len(ids), ""
        reasons = ((n, self.ending(self.codec.decode(ids[:n]))) for n in range(1, len(ids) + 1))
        return next((n, reason) for n, reason in reasons if reason)


Chunk = tuple[int, int]  # a task, and its number of new tokens


@frozen(kw_only=True)
class ActiveRollouts:
    """A generation and, for each of its attempts, the task it belongs to and the number of its tokens already reported."""

    generation: Generation
    tasks: tuple[int, ...] = ()
    reported: tuple[int, ...] = ()

    @property
    def idle(self) -> bool:
        """Return whether no attempt is under way."""
        return not self.tasks


def add(active: ActiveRollouts, task: int, attempt: AnyAttempt) -> ActiveRollouts:
    """Return the rollouts with another attempt, which takes a slot as soon as one is free."""
    generation = evolve(active.generation, attempts=(*active.generation.attempts, attempt))
    return ActiveRollouts(generation=generation, tasks=(*active.tasks, task), reported=(*active.reported, 0))


def cancel(active: ActiveRollouts, task: int) -> ActiveRollouts:
    """Return the rollouts without a task, whose slot becomes free; unchanged if there is none of that number."""
    return _without(active, [active.tasks.index(task)]) if task in active.tasks else active


def pop_finished(active: ActiveRollouts) -> tuple[ActiveRollouts, tuple[tuple[int, AnyAttempt], ...]]:
    """Return the rollouts without their finished attempts, and these, each with its task."""
    attempts = active.generation.attempts
    over = [place for place, attempt in enumerate(attempts) if not isinstance(attempt.end, tuple)]
    return _without(active, over), tuple((active.tasks[place], attempts[place]) for place in over)


def token_progress(active: ActiveRollouts) -> tuple[ActiveRollouts, tuple[Chunk, ...]]:
    """Return the rollouts with all tokens marked as reported, and newly generated token counts per task since the last call.

    Tokens of the call under way count too.
    """
    generation = active.generation
    count, speaking = generation.decoding.count.tolist(), generation.decoding.speaking.tolist()
    under_way = {
        number: count[row]
        for row, (number, call) in enumerate(generation.seats)
        if number >= 0 and speaking[row] and generation.attempts[number].call == call
    }
    now = [_sampled(one) + under_way.get(place, 0) for place, one in enumerate(generation.attempts)]
    more = tuple(
        (task, new - old) for task, old, new in zip(active.tasks, active.reported, now, strict=True) if new > old
    )
    return evolve(active, reported=tuple(map(max, active.reported, now))), more


def _sampled(attempt: AnyAttempt) -> int:
    return sum(len(piece.said.ids) for piece in attempt.pieces if isinstance(piece, ModelTurn))


def _without(active: ActiveRollouts, places: Sequence[int]) -> ActiveRollouts:
    """Return the rollouts without the attempts at these indices; later ones move up."""
    gone = set(places)
    if not gone:
        return active
    left = [place for place in range(len(active.tasks)) if place not in gone]
    moved = {old: new for new, old in enumerate(left)}
    generation = active.generation
    return ActiveRollouts(
        generation=evolve(
            generation,
            attempts=tuple(generation.attempts[place] for place in left),
            seats=tuple((moved[number], call) if number in moved else FREE for number, call in generation.seats),
            following=generation.following - sum(place < generation.following for place in gone),
        ),
        tasks=tuple(active.tasks[place] for place in left),
        reported=tuple(active.reported[place] for place in left),
    )
