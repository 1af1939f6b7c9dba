"""Laws of loss masks. Subject: a function from a batch of `Tokens` to (ids [N, L], mask [N, L]).

from purestep.properties import token_mask_laws, verify
print(verify(token_mask_laws(end=2, padding=2, side="right"), my_collator))

A row is a prompt and parts that were sampled or not, such as results of tools; exactly the sampled tokens are trained on.
"""

from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from hypothesis import strategies as st
from torch import Tensor

from ...framework.compare import require, same
from ...framework.law import Law, Mutant, Seen, Suite, law_constructor
from .completion import laws_of

Collate = Callable[["list[Tokens]"], tuple[Any, Any]]


@frozen
class TokenPart:
    """Ids of one part of a sample, and whether the model sampled them."""

    ids: tuple[int, ...]
    sampled: bool


@frozen
class Tokens:
    """A sample: its parts, the prompt first, and whether its last part was cut by a limit, so that it has no end token."""

    parts: tuple[TokenPart, ...]
    cut: bool = False


@frozen(kw_only=True)
class Convention:
    """The declared form of a batch: see `token_mask_laws`."""

    end: int
    padding: int
    left: bool
    adds_end: bool
    predicts: bool

    def row(self, sample: Tokens) -> tuple[list[int], list[bool]]:
        """Return the ids of a sample, and which of them are trained on."""
        ids = [number for part in sample.parts for number in part.ids]
        flags = [part.sampled for part in sample.parts for _ in part.ids]
        if self.adds_end and not sample.cut and sample.parts[-1].sampled:
            ids, flags = [*ids, self.end], [*flags, True]
        return ids, ([*flags[1:], False] if self.predicts else flags)


def collated(convention: Convention) -> Collate:
    """Return the function that makes the batch as the convention states it."""

    def collate(batch: list[Tokens]) -> tuple[Tensor, Tensor]:
        rows = [convention.row(sample) for sample in batch]
        longest = max(len(ids) for ids, _ in rows)
        ids = torch.full((len(rows), longest), convention.padding)
        mask = torch.zeros((len(rows), longest), dtype=torch.bool)
        for row, (numbers, flags) in enumerate(rows):
            start = longest - len(numbers) if convention.left else 0
            ids[row, start : start + len(numbers)] = torch.tensor(numbers)
            mask[row, start : start + len(numbers)] = torch.tensor(flags)
        return ids, mask

    return collate


# --- mutants ---
# Common errors in masks, as edits of a function that makes a batch.


def trains_on_tools(collate: Collate) -> Collate:
    """Take all after the prompt for sampled."""

    def wrong(batch: list[Tokens]) -> tuple[Any, Any]:
        after = [
            Tokens((sample.parts[0], *[TokenPart(part.ids, True) for part in sample.parts[1:]]), sample.cut)
            for sample in batch
        ]
        return collate(after)

    return wrong


def hides_end(convention: Convention) -> Callable[[Collate], Collate]:
    """Mask all that equals the padding token, which is the end token."""

    def edit(collate: Collate) -> Collate:
        def wrong(batch: list[Tokens]) -> tuple[Any, Any]:
            ids, mask = collate(batch)
            hidden = torch.as_tensor(ids) == convention.end
            after = torch.roll(hidden, -1, -1) if convention.predicts else hidden
            return ids, torch.as_tensor(mask).bool() & ~after

        return wrong

    return edit


def ends_what_was_cut(collate: Collate) -> Collate:
    """Add the end token to a completion that a limit cut."""
    return lambda batch: collate([Tokens(sample.parts, False) for sample in batch])


def trains_on_padding(convention: Convention) -> Callable[[Collate], Collate]:
    """Train on all that equals the padding token."""

    def edit(collate: Collate) -> Collate:
        def wrong(batch: list[Tokens]) -> tuple[Any, Any]:
            ids, mask = collate(batch)
            return ids, torch.as_tensor(mask).bool() | (torch.as_tensor(ids) == convention.padding)

        return wrong

    return edit


def unknown(collate: Collate) -> Collate:
    """Replace rare tokens by the unknown one."""

    def wrong(batch: list[Tokens]) -> tuple[Any, Any]:
        ids, mask = collate(batch)
        return torch.where(torch.as_tensor(ids) > max(batch[0].parts[0].ids), 0, torch.as_tensor(ids)), mask

    return wrong


# --- laws ---


SOURCE = "Policy gradients and likelihoods are those of the tokens that the model sampled"


def turn_batches(end: int, adds_end: bool) -> Any:
    """Batches of samples of one to three turns, with ids that no padding or end token has."""
    ids = st.lists(st.integers(end + 10, end + 40), min_size=1, max_size=4).map(tuple)

    def made(drawn: tuple[list[tuple[int, ...]], bool]) -> Tokens:
        several, cut = drawn
        parts = [TokenPart(numbers, bool(place % 2)) for place, numbers in enumerate(several)]
        if not parts[-1].sampled:
            parts.append(TokenPart((end + 10,), True))
        if not adds_end and not cut:
            parts[-1] = TokenPart((*parts[-1].ids, end), True)
        return Tokens(tuple(parts), cut)

    one = st.tuples(st.lists(ids, min_size=2, max_size=6), st.booleans()).map(made)
    return st.lists(one, min_size=1, max_size=4)


def token_mask_laws(
    kind: str = "batch",
    *,
    end: int = 2,
    padding: int = 2,
    side: str = "right",
    adds_end: bool = False,
    predicts: bool = False,
) -> Suite:
    """The laws of a function that makes ids and loss mask of a batch, with `padding` on that side.

    `adds_end` declares that the function appends the end token to samples that were not cut; otherwise their last part has it.
    `predicts` declares that the mask at t is that of the prediction of token t + 1. Other kinds are functions of completions:
    "score_at_end", "cut_at_end" and "log_prob_of_mask" (see `completion.py`). Raises: ChoiceError.

    >>> from purestep.properties import verify
    >>> convention = Convention(end=2, padding=2, left=False, adds_end=False, predicts=False)
    >>> bool(verify(token_mask_laws(), collated(convention)))
    True
    """
    if kind != "batch":
        return Suite("token_mask_laws", laws_of(kind))
    made = Convention(end=end, padding=padding, left=side == "left", adds_end=adds_end, predicts=predicts)
    law = law_constructor(lambda: turn_batches(end, adds_end), SOURCE)
    laws = (_sampled(law, made), _end(law, made), _kept(law, made), _padding(law, made), _alone(law, made))
    return Suite("token_mask_laws", laws)


Construct = Callable[..., Law]
TOOL = "a part between two that were sampled"


def _made(collate: Collate, batch: list[Tokens]) -> tuple[list[list[int]], list[list[bool]]]:
    ids, mask = collate(batch)
    require(
        len(ids) == len(mask) == len(batch), f"a row for each of {len(batch)} samples, got {len(ids)} and {len(mask)}"
    )
    rows = [[int(number) for number in row] for row in ids]
    flags = [[bool(flag) for flag in row] for row in mask]
    require([len(row) for row in rows] == [len(row) for row in flags], "ids and mask have one shape")
    return rows, flags


def _place(made: Convention, sample: Tokens, width: int) -> slice:
    length = len(made.row(sample)[0])
    require(length <= width, f"a row of {width} holds the {length} tokens of a sample")
    return slice(width - length, width) if made.left else slice(0, length)


def _sampled(law: Construct, made: Convention) -> Law:
    def check(collate: Collate, batch: list[Tokens], seen: Seen) -> None:
        rows, flags = _made(collate, batch)
        for row, sample in enumerate(batch):
            seen(TOOL, len(sample.parts) > 2)
            place = _place(made, sample, len(rows[row]))
            same(f"the mask of row {row}, {sample}", flags[row][place], made.row(sample)[1])

    claim = "Exactly the sampled tokens are trained on: no prompt, no result of a tool."
    return law("sampled_tokens", claim, Mutant("takes all after the prompt for sampled", trains_on_tools), check, TOOL)


def _end(law: Construct, made: Convention) -> Law:
    def check(collate: Collate, batch: list[Tokens], seen: Seen) -> None:
        rows, flags = _made(collate, batch)
        for row, sample in enumerate(batch):
            seen("a sample that was cut", sample.cut)
            seen("a sample that ended", not sample.cut)
            place = _place(made, sample, len(rows[row]))
            trained = flags[row][place]
            ids = rows[row][place][1:] if made.predicts else rows[row][place]
            ends = sum(number == made.end and flag for number, flag in zip(ids, trained, strict=False))
            same(f"end tokens that row {row} is trained on, {sample}", ends, int(not sample.cut))

    mutant = Mutant("masks the end token with the padding that equals it", hides_end(made))
    claim = "The end token of a sample is trained on once, and there is none where a limit cut it."
    return law("end_token", claim, mutant, check, "a sample that was cut", "a sample that ended")


def _kept(law: Construct, made: Convention) -> Law:
    def check(collate: Collate, batch: list[Tokens], seen: Seen) -> None:
        rows, _ = _made(collate, batch)
        for row, sample in enumerate(batch):
            wanted = made.row(sample)[0]
            seen("a shorter sample", len(wanted) < len(rows[row]))
            same(f"the ids of row {row}", rows[row][_place(made, sample, len(rows[row]))], wanted)

    mutant = Mutant("replaces rare tokens by the unknown one", unknown)
    return law("ids_stay", "All tokens are there, in order, on the declared side.", mutant, check, "a shorter sample")


def _padding(law: Construct, made: Convention) -> Law:
    def check(collate: Collate, batch: list[Tokens], seen: Seen) -> None:
        rows, flags = _made(collate, batch)
        for row, sample in enumerate(batch):
            place = _place(made, sample, len(rows[row]))
            outside = [spot for spot in range(len(rows[row])) if not place.start <= spot < place.stop]
            seen("padding", outside)
            require(not any(flags[row][spot] for spot in outside), f"padding of row {row} is not trained on")
            require(
                all(rows[row][spot] == made.padding for spot in outside), f"padding of row {row} is the declared id"
            )
            first = flags[row][place][:1]
            require(made.predicts or first == [False], "no token without one before it is trained on")

    mutant = Mutant("trains on padding as on an end token", trains_on_padding(made))
    return law("padding", "Padding has the declared id and is not trained on.", mutant, check, "padding")


def _alone(law: Construct, made: Convention) -> Law:
    def check(collate: Collate, batch: list[Tokens], seen: Seen) -> None:
        rows, flags = _made(collate, batch)
        seen("several samples", len(batch) > 1)
        for row, sample in enumerate(batch):
            place = _place(made, sample, len(rows[row]))
            (ids,), (mask,) = _made(collate, [sample])
            own = _place(made, sample, len(ids))
            same(f"row {row} alone", (ids[own], mask[own]), (rows[row][place], flags[row][place]))

    mutant = Mutant("masks as many tokens as the first row's prompt has", _first_prompt)
    return law("batch_is_singles", "A row does not depend on the others.", mutant, check, "several samples")


def _first_prompt(collate: Collate) -> Collate:
    def wrong(batch: list[Tokens]) -> tuple[Any, Any]:
        ids, mask = collate(batch)
        mask = torch.as_tensor(mask).clone()
        mask[:, : len(batch[0].parts[0].ids)] = 0
        return ids, mask

    return wrong
