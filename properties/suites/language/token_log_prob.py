"""Laws of the shift between logits and tokens. The subject: token_log_probs(logits, tokens, *, temperature)."""

import math
from collections.abc import Callable
from typing import Protocol

import torch
from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from ...framework.compare import ROUNDING, same, unequal
from ...framework.law import Broken, Law, Mutant, Seen, Suite, law_constructor
from ...strategies.values import dyadic, integers

# --- mutants ---
# Common errors in the log-probs of tokens.


class Score(Protocol):
    """A function that returns the log-probs of tokens under logits."""

    def __call__(self, logits: Tensor, tokens: Tensor, *, temperature: Tensor | float = 1.0) -> Tensor:
        """[*, L, V], int [*, L] -> [*, L]"""
        ...


def _with_logits(score: Score, change: Callable[[Tensor], Tensor]) -> Score:
    def mutant(logits: Tensor, tokens: Tensor, *, temperature: Tensor | float = 1.0) -> Tensor:
        return score(change(logits), tokens, temperature=temperature)

    return mutant


def unshifted(score: Score) -> Score:
    """Score token t by the logits at t."""
    return _with_logits(score, lambda logits: logits.roll(-1, -2))


def twice(score: Score) -> Score:
    """Shift the logits once more."""
    return _with_logits(score, lambda logits: logits.roll(1, -2))


def rolled(score: Score) -> Score:
    """Roll the logits by one and score every token, the first one by the last logits."""

    def mutant(logits: Tensor, tokens: Tensor, *, temperature: Tensor | float = 1.0) -> Tensor:
        shifted = torch.nn.functional.pad(logits.roll(1, -2), (0, 0, 0, 1))
        more = torch.nn.functional.pad(tokens, (1, 0))
        if isinstance(temperature, Tensor) and temperature.shape == tokens.shape:
            temperature = torch.nn.functional.pad(temperature, (1, 0), value=1.0)
        return score(shifted, more, temperature=temperature)[..., 1:]

    return mutant


def unshifted_temperature(score: Score) -> Score:
    """Divide the logits at t by the temperature of token t."""

    def mutant(logits: Tensor, tokens: Tensor, *, temperature: Tensor | float = 1.0) -> Tensor:
        if isinstance(temperature, Tensor) and temperature.shape == tokens.shape:
            temperature = temperature.roll(1, -1)
        return score(logits, tokens, temperature=temperature)

    return mutant


def tempered_afterwards(score: Score) -> Score:
    """Divide log-probs, not logits, by the temperature."""

    def mutant(logits: Tensor, tokens: Tensor, *, temperature: Tensor | float = 1.0) -> Tensor:
        heat = temperature
        if isinstance(heat, Tensor) and heat.ndim == tokens.ndim - 1:
            heat = heat[..., None]
        return score(logits, tokens) / heat

    return mutant


MUTANTS: dict[str, Callable[[Score], Score]] = {"shifts what was shifted already": twice}


# --- laws ---


BATCH, WORDS = 2, 3
SOURCE = "the chain rule: p(tokens) = product over t of p(token t | tokens before t)"


@frozen
class ScoredText:
    """Tokens, temperatures, and the table that a causal model looks its logits up in."""

    tokens: Tensor  # [BATCH, L]
    table: Tensor  # [L, 2 * WORDS, WORDS]: at each place, after each two tokens
    temperature: Tensor  # [BATCH, L]

    def logits(self, tokens: Tensor) -> Tensor:
        """[BATCH, L, WORDS]; those at t depend on the tokens up to t alone, and on all of them."""
        place = torch.arange(tokens.shape[1])
        return self.table[place, tokens.cumsum(-1) % self.table.shape[1]]


@st.composite
def short_texts(draw: DrawFn) -> ScoredText:
    """Draw texts of one token and of more."""
    length = draw(st.sampled_from([1, 5, 3, 5, 2]))
    tokens = draw(integers((BATCH, length), 0, WORDS))
    table = draw(dyadic((length, 2 * WORDS, WORDS)))
    return ScoredText(tokens, table, 2.0 ** draw(integers((BATCH, length), -1, 2)))


Check = Callable[[Score, ScoredText, Seen], None]


def token_log_prob_laws() -> Suite:
    """The laws of scoring tokens by the logits of a causal model."""
    return Suite("token_log_prob_laws", (_by_position(), _later(), _temperature(), _sums()))


_law = law_constructor(short_texts, SOURCE, numeric=True)


def _by_hand(logits: list[float], token: int, temperature: float) -> float:
    scaled = [value / temperature for value in logits]
    return scaled[token] - math.log(sum(math.exp(value) for value in scaled))


def _scores(text: ScoredText, temperature: Tensor) -> Tensor:
    """The log-probs, computed position by position with Python floats: [BATCH, L]."""
    logits, rows = text.logits(text.tokens).tolist(), text.tokens.tolist()
    found = [
        [0.0] + [_by_hand(logits[b][t - 1], row[t], float(temperature[b, t])) for t in range(1, len(row))]
        for b, row in enumerate(rows)
    ]
    return torch.tensor(found)


def _by_position() -> Law:
    def check(score: Score, text: ScoredText, seen: Seen) -> None:
        seen("one token", text.tokens.shape[1] == 1)
        seen("several tokens", text.tokens.shape[1] > 2)
        wanted = _scores(text, torch.ones_like(text.temperature))
        same("log-probs", score(text.logits(text.tokens), text.tokens), wanted, ROUNDING)

    mutant = Mutant("scores each token by the logits that came after it", unshifted)
    claim = "Column t scores token t by the logits before it, as position after position by hand; column 0 is 0."
    return _law("by_position", claim, mutant, check, "one token", "several tokens")


def _later() -> Law:
    def check(score: Score, text: ScoredText, seen: Seen) -> None:
        length = text.tokens.shape[1]
        before = score(text.logits(text.tokens), text.tokens)
        for t in range(length):
            place = torch.arange(length)
            changed = torch.where(place > t, (text.tokens + 1) % WORDS, text.tokens)
            logits = text.logits(changed)
            seen("logits that change", (logits != text.logits(text.tokens)).any())
            poisoned = torch.where((place >= t)[:, None], torch.nan, logits)  # logits from t on do not score token t
            for name, given in (("tokens", logits), ("logits", poisoned)):
                found = score(given, changed)[:, : t + 1]
                if unequal(found, before[:, : t + 1]).any():
                    raise Broken(f"later {name}: got {found.tolist()} up to {t}, wanted {before[:, : t + 1].tolist()}")

    mutant = Mutant("rolls the logits, so that the last ones speak of the first token", rolled)
    claim = "Later tokens, and logits at and after a token, change no bit of its score, be they NaN."
    return _law("later", claim, mutant, check, "logits that change")


def _temperature() -> Law:
    def check(score: Score, text: ScoredText, seen: Seen) -> None:
        logits, heat = text.logits(text.tokens), text.temperature
        seen("several temperatures", (heat != heat[:, :1]).any() and text.tokens.shape[1] > 2)
        same("of each token", score(logits, text.tokens, temperature=heat), _scores(text, heat), ROUNDING)
        rows = heat[:, :1].expand_as(heat)
        same("of each row", score(logits, text.tokens, temperature=heat[:, 0]), _scores(text, rows), ROUNDING)
        number = float(heat[0, 0])
        wanted = _scores(text, torch.full_like(heat, number))
        same("of all", score(logits, text.tokens, temperature=number), wanted, ROUNDING)

    mutant = Mutant("divides logits by the temperature of the token they stand at", unshifted_temperature)
    claim = "A temperature belongs to the token scored; one for a row, or for all, is one for each of its tokens."
    return _law("temperature", claim, mutant, check, "several temperatures")


def _sums() -> Law:
    def check(score: Score, text: ScoredText, seen: Seen) -> None:
        logits = text.logits(text.tokens)
        seen("a temperature", (text.temperature != 1).any() and text.tokens.shape[1] > 1)
        total = torch.zeros(text.tokens.shape)
        for word in range(WORDS):
            score_of = score(logits, torch.full_like(text.tokens, word), temperature=text.temperature)
            total = total + score_of.exp()
        same("the sum over all tokens", total[:, 1:], torch.ones_like(total[:, 1:]), ROUNDING)

    mutant = Mutant("divides log-probs by the temperature", tempered_afterwards)
    claim = "At every place but the first the probabilities of all tokens sum to 1, at any temperature."
    return _law("sums_to_one", claim, mutant, check, "a temperature")
