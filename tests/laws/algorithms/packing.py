"""Laws of packing: it can be undone, sequences stay whole, and the gradients do not depend on it."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from purestep.algorithms.language.packing import Packing
from purestep.core.record import replace
from purestep.core.transcript.log_probs import token_log_probs
from purestep.properties.framework.compare import DOUBLE, EXACT, require, same
from purestep.properties.framework.law import Law, Seen, Suite, law_constructor

from .segment_model import LONGEST, Params, Sentences, at_once, logits, padded_log_probs, parameters, sentences, slopes

# --- mutants ---
# Common errors in packing: each an edit of a right function.


@attrs.frozen
class Packer:
    """The subject of the laws of packing."""

    packing: Callable[..., Packing]  # (lengths, capacity, *, width)
    pack: Callable[..., Tensor]  # (packing, column [N, L], blank) -> [R, K]
    unpack: Callable[..., Tensor]  # (packing, column [R, K], blank) -> [N, L]
    segment_mask: Callable[[Tensor], Tensor]  # segment [R, K] -> [R, K, K]
    packed_log_probs: Callable[..., Tensor]  # (packing, logits [R, K, V], tokens [R, K]) -> [R, K]


def _edited(subject: Packer, change: Callable[[Packing], Packing]) -> Packer:
    def packing(lengths: Sequence[int], capacity: int, *, width: int) -> Packing:
        return change(subject.packing(lengths, capacity, width=width))

    return attrs.evolve(subject, packing=packing)


def across(subject: Packer) -> Packer:
    """Let a token attend to all tokens before it in its row, across segments."""

    def segment_mask(segment: Tensor) -> Tensor:
        size = segment.shape[-1]
        return torch.ones((*segment.shape, size), dtype=torch.bool).tril()

    return attrs.evolve(subject, segment_mask=segment_mask)


def running_positions(subject: Packer) -> Packer:
    """Count positions through the whole row."""
    return _edited(
        subject,
        lambda where: replace(
            where, position=torch.arange(where.position.shape[1]).expand(where.position.shape).clone()
        ),
    )


def scores_firsts(subject: Packer) -> Packer:
    """Score the first token of a segment by the last logits of the segment before it."""

    def packed_log_probs(where: Packing, logits: Tensor, tokens: Tensor, **options: Any) -> Tensor:
        return torch.where(where.segment >= 0, token_log_probs(logits, tokens, **options), 0.0)

    return attrs.evolve(subject, packed_log_probs=packed_log_probs)


def in_packed_order(subject: Packer) -> Packer:
    """Return sequences in the order in which they were packed."""

    def change(where: Packing) -> Packing:
        first = where.target[:, 0].where(where.target[:, 0] >= 0, where.source.numel())
        return replace(where, target=where.target[first.argsort(stable=True)])

    return _edited(subject, change)


def one_row_each(subject: Packer) -> Packer:
    """Put every sequence into its own row, which is mere padding."""

    def packing(lengths: Sequence[int], capacity: int, *, width: int) -> Packing:
        found = [subject.packing([length], capacity, width=width) for length in lengths]
        names = ("segment", "position", "source", "target")
        columns = {name: torch.cat([getattr(one, name) for one in found]) for name in names}
        number = torch.arange(len(found))[:, None]
        there = columns["segment"] >= 0
        return Packing(
            segment=torch.where(there, number, -1),
            position=columns["position"],
            source=torch.where(there, columns["source"] + number * width, 0),
            target=torch.where(columns["target"] >= 0, columns["target"] + number * capacity, -1),
        )

    return attrs.evolve(subject, packing=packing)


def leaks_into_padding(subject: Packer) -> Packer:
    """Leave the value at index 0 in the padding."""

    def pack(where: Packing, column: Tensor, blank: float = 0) -> Tensor:
        return column.flatten(0, 1)[where.source]

    return attrs.evolve(subject, pack=pack)


def drops_ends(subject: Packer) -> Packer:
    """Drop the last token of a full row."""

    def change(where: Packing) -> Packing:
        full = where.segment.shape[1] - 1
        target = torch.where(where.target % where.segment.shape[1] == full, -1, where.target)
        return replace(where, target=target)

    return _edited(subject, change)


MUTANTS: dict[str, Callable[[Packer], Packer]] = {"cuts off the last token of a full row": drops_ends}


# --- laws ---


SOURCE = "Krell et al. 2021, arXiv:2107.02027: packed sequences must not see each other"


@attrs.frozen
class Load:
    """Sequences and the capacity of a row."""

    drawn: Sentences
    capacity: int

    def inside(self) -> Tensor:
        """The mask [N, L] of columns that hold tokens."""
        return torch.arange(LONGEST) < torch.tensor(self.drawn.lengths)[:, None]


@st.composite
def _loads(draw: DrawFn) -> Load:
    drawn = draw(sentences())
    return Load(drawn, max(1, *drawn.lengths) + draw(st.integers(0, 8)))


def packing_laws() -> Suite:
    """The laws of `Packer(packing, pack, unpack, segment_mask, packed_log_probs)`."""
    return Suite("packing_laws", (_inverse(), _whole(), _blank(), _tight(), _scores(), _gradient()))


_law = law_constructor(_loads, SOURCE)


def _where(subject: Packer, load: Load) -> Packing:
    return subject.packing(load.drawn.lengths, load.capacity, width=LONGEST)


def _shared(where: Packing) -> bool:
    """Return whether a row holds several sequences."""
    return bool(((where.segment >= 0) & (where.position == 0)).sum(-1).gt(1).any())


def _inverse() -> Law:
    def check(subject: Packer, load: Load, seen: Seen) -> None:
        where, inside = _where(subject, load), load.inside()
        seen("sequences that share a row", _shared(where))
        column = torch.arange(inside.numel()).reshape(inside.shape) + 1
        there = subject.pack(where, column, -1)
        same("what was packed, unpacked", subject.unpack(where, there, -1), torch.where(inside, column, -1), EXACT)
        row = torch.where(where.segment >= 0, torch.arange(where.segment.numel()).reshape(where.segment.shape), -1)
        back = subject.pack(where, subject.unpack(where, row, -1), -1)
        same("what was unpacked, packed", back, row, EXACT)

    mutant = ("gives sequences back in the order they were packed", in_packed_order)
    claim = "Unpacking is the inverse of packing, on columns of sequences and on columns of rows."
    return _law("inverse", claim, mutant, check, "sequences that share a row")


def _whole() -> Law:
    def check(subject: Packer, load: Load, seen: Seen) -> None:
        where = _where(subject, load)
        seen("sequences that share a row", _shared(where))
        rows, places = (x.tolist() for x in (where.segment, where.position))
        found: dict[int, list[tuple[int, int, int]]] = {}
        for row, (segments, positions) in enumerate(zip(rows, places, strict=True)):
            for k, (segment, position) in enumerate(zip(segments, positions, strict=True)):
                if segment >= 0:
                    found.setdefault(segment, []).append((row, k, position))
        for number, length in enumerate(load.drawn.lengths):
            tokens = found.pop(number, [])
            row, first = tokens[0][:2] if tokens else (0, 0)
            same(f"where sequence {number} stands", tokens, [(row, first + t, t) for t in range(length)])
        require(not found, f"rows hold the sequences {sorted(found)}, which nobody gave")

    mutant = ("counts positions through the row", running_positions)
    claim = "A sequence stands in one row, whole, side by side, its positions from 0 on."
    return _law("whole_sequences", claim, mutant, check, "sequences that share a row")


def _blank() -> Law:
    def check(subject: Packer, load: Load, seen: Seen) -> None:
        where, inside = _where(subject, load), load.inside()
        seen("padding in a row", (where.segment < 0).any())
        seen("padding beside a sequence", (~inside).any())
        column = torch.where(inside, load.drawn.advantage, torch.nan)
        there = subject.pack(where, column, 0)
        require(there.isfinite(), "padding of a sequence got into a row")
        same("padding of rows", there[where.segment < 0], torch.zeros_like(there[where.segment < 0]), EXACT)
        poisoned = torch.where(where.segment >= 0, there, torch.inf)
        back = subject.unpack(where, poisoned, 0)
        same("padding of sequences", back[~inside], torch.zeros_like(back[~inside]), EXACT)

    mutant = ("leaves in the padding what index 0 points to", leaks_into_padding)
    claim = "Padding comes from nowhere and goes nowhere: it is blank, whatever stood there."
    return _law("padding", claim, mutant, check, "padding in a row", "padding beside a sequence")


def _tight() -> Law:
    def check(subject: Packer, load: Load, seen: Seen) -> None:
        where = _where(subject, load)
        used = sorted((where.segment >= 0).sum(-1).tolist())
        seen("several rows", len(used) > 1)
        seen("sequences that share a row", _shared(where))
        require(where.segment.shape[1] == load.capacity, f"a row holds {where.segment.shape[1]} of {load.capacity}")
        least = sum(used[:2]) if len(used) > 1 else load.capacity + 1
        require(least > load.capacity, f"rows of {used[:2]} tokens would fit into one of {load.capacity}")

    mutant = ("gives each sequence a row of its own", one_row_each)
    claim = "Rows have the capacity asked for, and no two of them would fit into one."
    needs = ("several rows", "sequences that share a row")
    return _law("tight", claim, mutant, check, *needs, source="derived: each goes into the first row that has room")


def _packed(subject: Packer, load: Load, params: Params) -> tuple[Packing, Tensor]:
    """The log-probs a model gives in rows, brought back to sequences."""
    where = _where(subject, load)
    token = subject.pack(where, load.drawn.token, 0)
    told = logits(params, token, where.position, subject.segment_mask(where.segment))
    return where, subject.unpack(where, subject.packed_log_probs(where, told, token), 0)


def _scores() -> Law:
    def check(subject: Packer, load: Load, seen: Seen) -> None:
        params = parameters()
        where, got = _packed(subject, load, params)
        seen("sequences that share a row", _shared(where))
        wanted = padded_log_probs(params, load.drawn.token, load.drawn.lengths)
        same("log-probs", got, torch.where(load.inside(), wanted, 0.0), DOUBLE)

    mutant = ("scores a first token by the segment before", scores_firsts)
    claim = "Each token of a sequence has the log-prob it has in a row of its own, its first one 0."
    return _law("same_log_probs", claim, mutant, check, "sequences that share a row")


def _gradient() -> Law:
    def check(subject: Packer, load: Load, seen: Seen) -> None:
        params = parameters()
        where, log_prob = _packed(subject, load, params)
        seen("sequences that share a row", _shared(where))
        seen("tokens that count", load.drawn.mask.any())
        got = slopes(params, log_prob, load.drawn.advantage, load.drawn.mask, load.drawn.mask)
        same("(value, gradient) of packed rows", got, at_once(load.drawn), DOUBLE)

    mutant = ("lets a token attend to all before it in its row", across)
    claim = "Under every reduction packed rows have the loss and gradient of sequences in rows of their own."
    return _law("same_gradient", claim, mutant, check, "sequences that share a row", "tokens that count")
