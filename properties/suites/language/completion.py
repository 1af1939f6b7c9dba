"""Laws of functions of completions [N, L] and their first end token. Plain functions, of one kind each:

"score_at_end"      f(scores [N, L], tokens [N, L], end) -> scores [N] at the first end, or at the last token
"cut_at_end"        f(tokens [N, L], end, padding) -> (tokens, mask): what follows the first end is padding
"log_prob_of_mask"  f(log_probs [N, L], mask [N, L]) -> sums [N]; log_probs[:, i] is that of token i + 1, masks are of tokens

test_mine = check(completion_laws("score_at_end"), my_rewards)
"""

from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from ....core.errors import choose
from ...framework.compare import ROUNDING, same
from ...framework.law import Law, Seen, law_constructor
from ...strategies.values import dyadic

Function = Callable[..., Any]
END, PADDING = 2, 0

# --- mutants ---
# Common mistakes at the end of a completion: each edits a correct function.


def one_early(score: Function) -> Function:
    """Read the score one place before."""
    return lambda scores, tokens, end: score(scores.roll(1, 1), tokens, end)


def last_end(score: Function) -> Function:
    """Read the score at the last end, where text after the first has another."""

    def wrong(scores: Tensor, tokens: Tensor, end: int) -> Any:
        backwards = score(scores.flip(1), tokens.flip(1), end)
        return torch.where((tokens == end).any(1), backwards, score(scores, tokens, end))

    return wrong


def fills_with_ends(cut: Function) -> Function:
    """Fill with the end token."""

    def wrong(tokens: Tensor, end: int, padding: int) -> Any:
        found, mask = cut(tokens, end, padding)
        return torch.where(torch.as_tensor(mask).bool(), found, end), mask

    return wrong


def masks_end(cut: Function) -> Function:
    """Take the end for padding."""

    def wrong(tokens: Tensor, end: int, padding: int) -> Any:
        found, mask = cut(tokens, end, padding)
        return found, torch.as_tensor(mask).bool() & (found != end)

    return wrong


def not_shifted(summed: Function) -> Function:
    """Take the mask of tokens for that of log-probs."""
    return lambda log_probs, mask: summed(log_probs, mask.roll(1, 1))


# --- references ---


def score_at_end(scores: Tensor, tokens: Tensor, end: int) -> Tensor:
    """Return the score of each completion at its first end, or at its last token."""
    ends = (tokens == end).int()
    place = torch.where(ends.any(1), ends.argmax(1), tokens.shape[1] - 1)
    return scores.gather(1, place[:, None])[:, 0]


def cut_at_end(tokens: Tensor, end: int, padding: int) -> tuple[Tensor, Tensor]:
    """Return completions up to their first end, then padding, and the mask of their tokens."""
    ends = (tokens == end).int()
    kept = ends.cumsum(1) - ends == 0
    return torch.where(kept, tokens, padding), kept


def log_prob_of_mask(log_probs: Tensor, mask: Tensor) -> Tensor:
    """Return the sums of the log-probs of masked tokens."""
    return (log_probs[:, :-1] * mask[:, 1:]).sum(1)


# --- laws ---

SOURCE = "An episode of text ends with its first end token; logits at i are those of token i + 1"


@frozen
class Completions:
    """Tokens [N, L] with ends or without, and a number for each."""

    tokens: Tensor
    numbers: Tensor


@st.composite
def completions(draw: DrawFn) -> Completions:
    """Up to three completions of two to six tokens; 2 is the end, 0 the padding, which none has."""
    rows, length = draw(st.sampled_from((2, 3, 1))), draw(st.sampled_from((5, 6, 2)))
    size = rows * length
    drawn = draw(st.lists(st.sampled_from((5, END, 7, 1)), min_size=size, max_size=size))
    return Completions(torch.tensor(drawn).reshape(rows, length), draw(dyadic((rows, length))))


def laws_of(kind: str) -> tuple[Law, ...]:
    """Return the laws of a function of completions of one kind (see the module). Raises: ChoiceError."""
    kinds: dict[str, tuple[Law, ...]] = {
        "score_at_end": (_at_end(), _after_end()),
        "cut_at_end": (_padded(), _mask_of_end()),
        "log_prob_of_mask": (_shifted(),),
    }
    return choose("token_mask_laws: kind", kind, kinds)


_law = law_constructor(completions, SOURCE)
SEVERAL, NONE = "a completion with several ends", "a completion without an end"


def _events(drawn: Completions, seen: Seen) -> None:
    ends = (drawn.tokens == END).sum(1)
    seen(SEVERAL, (ends > 1).any())
    seen(NONE, (ends == 0).any())


def _at_end() -> Law:
    def check(subject: Function, drawn: Completions, seen: Seen) -> None:
        _events(drawn, seen)
        wanted = score_at_end(drawn.numbers, drawn.tokens, END)
        same("the scores", subject(drawn.numbers, drawn.tokens, END), wanted, ROUNDING)

    claim = "The score of a completion is that at its first end, and at its last token where there is none."
    return _law("at_the_first_end", claim, ("reads it one place before", one_early), check, SEVERAL, NONE)


def _after_end() -> Law:
    def check(subject: Function, drawn: Completions, seen: Seen) -> None:
        _events(drawn, seen)
        kept = cut_at_end(drawn.tokens, END, PADDING)[1]
        got = subject(torch.where(kept, drawn.numbers, -50.0), torch.where(kept, drawn.tokens, END), END)
        wanted = subject(drawn.numbers, drawn.tokens, END)
        same("the scores with other tokens after the first end", got, wanted, ROUNDING)

    claim = "What follows the first end does not matter."
    return _law("after_the_end", claim, ("reads it at the last end", last_end), check, SEVERAL)


def _padded() -> Law:
    def check(subject: Function, drawn: Completions, seen: Seen) -> None:
        _events(drawn, seen)
        wanted = cut_at_end(drawn.tokens, END, PADDING)[0]
        same("the tokens", subject(drawn.tokens, END, PADDING)[0], wanted)

    claim = "Tokens up to the first end stay, and what follows is padding."
    return _law("rest_is_padding", claim, ("fills with ends", fills_with_ends), check, SEVERAL, NONE)


def _mask_of_end() -> Law:
    def check(subject: Function, drawn: Completions, seen: Seen) -> None:
        _events(drawn, seen)
        wanted = cut_at_end(drawn.tokens, END, PADDING)[1]
        same("the mask", torch.as_tensor(subject(drawn.tokens, END, PADDING)[1]).bool(), wanted)

    claim = "The mask is that of the tokens up to the first end, the end among them."
    return _law("mask_has_the_end", claim, ("takes the end for padding", masks_end), check, SEVERAL, NONE)


def _shifted() -> Law:
    def check(subject: Function, drawn: Completions, seen: Seen) -> None:
        mask = (drawn.tokens > 1).to(drawn.numbers.dtype)
        mask[:, 0] = 0.0  # no log-prob is that of the first token
        seen("a token outside the mask after one inside", (mask[:, 1:-1] > mask[:, 2:]).any())
        got, wanted = subject(drawn.numbers, mask), log_prob_of_mask(drawn.numbers, mask)
        same("the sums", got, wanted, ROUNDING)

    claim = "Summed are the log-probs of the masked tokens, which stand one place before them, and no others."
    needs = "a token outside the mask after one inside"
    return _law("log_probs_of_tokens", claim, ("does not shift the mask", not_shifted), check, needs)
