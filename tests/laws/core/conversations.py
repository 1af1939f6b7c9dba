"""Conversations that the subject decodes in slots, and their expected outcomes by definition."""

from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from torch import Tensor

from purestep.core import keys
from purestep.core.decoding.decode import Decoder
from purestep.core.decoding.slots import Decoding
from purestep.properties.framework.law import Broken
from purestep.properties.strategies.table_causal import WEIGHTS, table_causal

GRAIN = 1 << 24  # uniform numbers are multiples of its inverse
Step = Callable[..., Decoding]


@frozen
class Slots:
    """The functions of decoding in slots, as in `core.decoding.slots` and `core.decoding.decode`."""

    idle: Callable[..., Decoding]
    seat: Callable[..., Decoding]
    forget: Callable[[Decoding], Decoding]
    step: Step
    chunk: Step


def weighed(uniform: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the token sampled with a uniform number, in proportion to the weights; and, as its log-prob, weight - WEIGHTS."""
    weights = logits.to(torch.int64)
    beyond = weights.cumsum(-1) * GRAIN > ((uniform * GRAIN).to(torch.int64) * weights.sum(-1))[..., None]
    token = beyond.to(torch.int64).argmax(-1)
    return token, (weights.gather(-1, token[..., None])[..., 0] - WEIGHTS).to(uniform.dtype)


CAPACITY, LONGEST = 24, 5  # tokens of a slot, and of one call
MODEL = table_causal(6)
DECODER = Decoder(MODEL, weighed, (0, 4))
Outcome = list[tuple[list[int], list[float], bool]]  # of each call: ids, log-probs, whether it stopped


@frozen
class Talk:
    """The context before each call of a row, the maximum length of each call, and the seed of the calls' keys."""

    told: tuple[tuple[int, ...], ...]
    room: tuple[int, ...]
    seed: int

    def key(self, call: int) -> Any:
        """The key of a call: [2]."""
        return keys.fold_in(keys.key(self.seed), call)


@frozen
class Room:
    """The numbers of slots, of steps per chunk, and of known tokens per prefill block (1: single steps only)."""

    slots: int
    steps: int
    width: int


@frozen
class Exam:
    """Conversations, an order for them, two choices of slots and steps, and the weights of the model."""

    talks: tuple[Talk, ...]
    order: tuple[int, ...]
    rooms: tuple[Room, Room]
    seed: int

    def params(self, version: int = 0) -> Any:
        """The parameters of the model."""
        return MODEL.init(keys.fold_in(keys.key(self.seed), version))


@st.composite
def talks(draw: DrawFn) -> Talk:
    """Draw up to three calls, the later ones with or without new context."""
    calls = draw(st.integers(1, 3))
    prompt = draw(st.lists(st.integers(0, 5), min_size=1, max_size=6))
    more = [draw(st.lists(st.integers(0, 5), max_size=3)) for _ in range(calls - 1)]
    room = [draw(st.integers(1, LONGEST)) for _ in range(calls)]
    return Talk(tuple(map(tuple, (prompt, *more))), tuple(room), draw(st.integers(0, 999)))


def exams() -> SearchStrategy[Exam]:
    """Draw four conversations for few slots."""
    rooms = st.builds(Room, st.sampled_from((1, 2, 3, 5)), st.sampled_from((1, 2, 4)), st.sampled_from((1, 2, 4)))
    return st.builds(
        Exam,
        st.tuples(talks(), talks(), talks(), talks()),
        st.permutations(range(4)).map(tuple),
        st.tuples(rooms, rooms),
        st.integers(0, 999),
    )


def seated(slots: Slots, decoding: Decoding, row: int, ids: list[int], key: Any, room: int) -> Decoding:
    """The decoding with a call due in one row."""
    token = torch.tensor([[*ids, *[0] * (CAPACITY - len(ids))]])
    return slots.seat(decoding, torch.tensor([row]), token, torch.tensor([len(ids)]), key[None], torch.tensor([room]))


def begun(slots: Slots, exam: Exam, count: int) -> Decoding:
    """Idle slots."""
    return slots.idle(MODEL, exam.params(), slots=count, capacity=CAPACITY, longest=LONGEST)


def said(decoding: Decoding, row: int) -> tuple[list[int], list[float], bool]:
    """The output of a row's call: token ids, log-probs and the stop flag."""
    known, count = int(decoding.known[row]), int(decoding.count[row])
    ids = decoding.token[row, known - count : known].tolist()
    return ids, decoding.log_prob[row, :count].tolist(), bool(decoding.stopped[row])


def played(slots: Slots, exam: Exam, room: Room, order: tuple[int, ...]) -> list[Outcome]:
    """The outcomes of the conversations, which are started in `order`; listed in their own order."""
    decoding, waiting = begun(slots, exam, room.slots), list(order)
    seats: dict[int, tuple[int, list[int]]] = {}
    outcome: list[Outcome] = [[] for _ in exam.talks]
    for _ in range(40 * len(exam.talks)):
        for row in range(room.slots):
            if row not in seats and waiting:
                seats[row] = (waiting.pop(0), [])
                decoding = _call(slots, decoding, exam, seats, outcome, row)
        decoding = _advanced(slots, decoding, exam, room)
        for row in [row for row in seats if not decoding.speaking[row]]:
            number, ids = seats[row]
            outcome[number].append(said(decoding, row))
            ids.extend(outcome[number][-1][0])
            if len(outcome[number]) == len(exam.talks[number].room):
                del seats[row]
            else:
                decoding = _call(slots, decoding, exam, seats, outcome, row)
        if not seats and not waiting:
            return outcome
    raise Broken("a call never ends")


def _call(
    slots: Slots, decoding: Decoding, exam: Exam, seats: dict[int, Any], outcome: list[Outcome], row: int
) -> Decoding:
    number, ids = seats[row]
    talk, call = exam.talks[number], len(outcome[number])
    ids.extend(talk.told[call])
    return seated(slots, decoding, row, ids, talk.key(call), talk.room[call])


def _advanced(slots: Slots, decoding: Decoding, exam: Exam, room: Room) -> Decoding:
    if room.width > 1:
        decoding = slots.step(DECODER, exam.params(), 0, decoding, width=room.width)
    for _ in range(room.steps):
        decoding = slots.step(DECODER, exam.params(), 0, decoding)
    return decoding


def by_full_passes(exam: Exam, talk: Talk) -> Outcome:
    """The outcome of a conversation by definition: each token from one forward pass over all tokens before it."""
    ids: list[int] = []
    outcome: Outcome = []
    for call, (told, room) in enumerate(zip(talk.told, talk.room, strict=True)):
        new: list[int] = []
        log_probs: list[float] = []
        ids = [*ids, *told]
        uniform = keys.uniform(keys.fold_in(talk.key(call), torch.arange(LONGEST)))
        while len(new) < room and not (new and new[-1] in DECODER.stop):
            hidden = MODEL.apply(exam.params(), torch.tensor([[*ids, *new]]), (), ())[0, -1]
            token, log_prob = weighed(uniform[len(new)], MODEL.head(exam.params(), hidden))
            new, log_probs = [*new, int(token)], [*log_probs, float(log_prob)]
        outcome.append((new, log_probs, new[-1] in DECODER.stop))
        ids = [*ids, *new]
    return outcome
