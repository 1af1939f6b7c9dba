"""Laws of sampling tokens: their frequencies are their probabilities, and the log-prob returned is that of the draw."""

from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from purestep.properties.framework.compare import ROUNDING, require, same
from purestep.properties.framework.law import Law, Seen, Suite, law_constructor
from purestep.properties.strategies.values import dyadic, flags

# --- mutants ---
# Common errors in sampling tokens: edits of its functions.


Draw = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@frozen
class Sampling:
    """The functions of `core.decoding.decode` that draw, and `core.transcript.log_probs.nucleus`."""

    sampled: Callable[..., Draw]
    greedy: Draw
    nucleus: Callable[[Tensor, float], Tensor]


def _score(change: Callable[[Tensor, Tensor, dict[str, Any]], Tensor]) -> Callable[[Sampling], Sampling]:
    """The edit of the log-prob of a drawn token: `change(token, logits, options)`."""

    def make(sampling: Sampling) -> Sampling:
        def sampled(**options: Any) -> Draw:
            draw = sampling.sampled(**options)

            def edited(uniform: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
                token, _ = draw(uniform, logits)
                return token, change(token, logits, options)

            return edited

        return evolve(sampling, sampled=sampled)

    return make


def _of(logits: Tensor, token: Tensor) -> Tensor:
    return torch.log_softmax(logits, -1).gather(-1, token[..., None])[..., 0]


untempered = _score(lambda token, logits, options: _of(logits, token))
whole = _score(lambda token, logits, options: _of(logits / options.get("temperature", 1.0), token))


def lukewarm(sampling: Sampling) -> Sampling:
    """Draw at temperature 1 and score at the requested temperature."""

    def sampled(**options: Any) -> Draw:
        draw, plain = sampling.sampled(**options), sampling.sampled(**{**options, "temperature": 1.0})
        return lambda uniform, logits: (plain(uniform, logits)[0], draw(uniform, logits)[1])

    return evolve(sampling, sampled=sampled)


def certain_is_not(sampling: Sampling) -> Sampling:
    """Return the log-prob of sampling for a greedy token."""

    def greedy(uniform: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        token, _ = sampling.greedy(uniform, logits)
        return token, _of(logits, token)

    return evolve(sampling, greedy=greedy)


def below(sampling: Sampling) -> Sampling:
    """Leave out the token with which the nucleus reaches top_p."""

    def nucleus(logits: Tensor, top_p: float) -> Tensor:
        order = torch.sort(logits, dim=-1, descending=True, stable=True)
        first = torch.arange(logits.shape[-1]) == 0
        kept = first | (torch.softmax(order.values, -1).cumsum(-1) < top_p)
        back = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order.indices, kept)
        return torch.where(back, logits, -torch.inf)

    return evolve(sampling, nucleus=nucleus)


def ties(sampling: Sampling) -> Sampling:
    """Keep all tokens that are as likely as the least likely of the nucleus."""

    def nucleus(logits: Tensor, top_p: float) -> Tensor:
        kept = sampling.nucleus(logits, top_p)
        least = torch.where(kept.isinf(), torch.inf, kept).amin(-1, keepdim=True)
        return torch.where(logits >= least, logits, -torch.inf)

    return evolve(sampling, nucleus=nucleus)


def first_beyond(sampling: Sampling) -> Sampling:
    """Take the first token whose cumulative probability reaches the uniform number, even if its own probability is 0."""

    def sampled(**options: Any) -> Draw:
        draw = sampling.sampled(**options)

        def edited(uniform: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
            _, log_prob = draw(uniform, logits)
            heated = torch.softmax(logits / options.get("temperature", 1.0), -1)
            return (heated.cumsum(-1) >= uniform[..., None]).to(torch.int64).argmax(-1), log_prob

        return edited

    return evolve(sampling, sampled=sampled)


MUTANTS: dict[str, Callable[[Sampling], Sampling]] = {
    "scores what the nucleus left as if all were left": whole,
    "keeps all ties with the last of the nucleus": ties,
}


# --- laws ---


SOURCE = "core.decoding.decode: what a draw promises"
GRID = 512  # uniform numbers, evenly spread
SLACK = 1e-5  # of probabilities computed in float32


@frozen
class Choice:
    """Logits [V], some of them maybe -inf, and the options of sampling."""

    logits: Tensor
    temperature: float
    top_p: float

    def probability(self) -> Tensor:
        """The probabilities of all tokens at the temperature: [V] float64."""
        return torch.softmax(self.logits.to(torch.float64) / self.temperature, -1)


@st.composite
def choices(draw: DrawFn) -> Choice:
    """Up to 40 tokens, ties among them, at least one of them possible."""
    size = draw(st.sampled_from((2, 5, 40)))
    never = draw(flags((size,))) & (torch.arange(size) != draw(st.integers(0, size - 1)))
    logits = torch.where(never, -torch.inf, draw(dyadic((size,), limit=2)))
    return Choice(logits, draw(st.sampled_from((0.5, 1.0, 2.0))), draw(st.sampled_from((0.3, 0.6, 0.9, 1.0))))


def sampling_laws() -> Suite:
    """The laws of `Sampling`."""
    return Suite("sampling_laws", (_shares(), _scores(), _nucleus(), _possible(), _greedy()))


_law = law_constructor(choices, SOURCE)


def _grid(choice: Choice) -> tuple[Tensor, Tensor]:
    uniform = (torch.arange(GRID) + 0.5) / GRID
    return uniform, choice.logits.expand(GRID, -1)


def _kept(choice: Choice) -> Tensor:
    """The probabilities of the nucleus [V], found by taking tokens one after the other."""
    probability, kept = choice.probability(), torch.zeros_like(choice.logits, dtype=torch.float64)
    for token in sorted(range(len(probability)), key=lambda token: (-float(probability[token]), token)):
        if choice.top_p < 1.0 and kept.sum() >= choice.top_p - SLACK:
            break
        kept[token] = probability[token]
    return kept / kept.sum()


def _clear(choice: Choice) -> bool:
    """Return whether no cumulative probability is so close to top_p that rounding decides."""
    sums = choice.probability().sort(descending=True).values.cumsum(-1)
    return choice.top_p == 1.0 or bool(((sums - choice.top_p).abs() > 2 * SLACK).all())


def _shares() -> Law:
    def check(sampling: Sampling, choice: Choice, seen: Seen) -> None:
        token, _ = sampling.sampled(temperature=choice.temperature, top_p=choice.top_p)(*_grid(choice))
        share = torch.bincount(token, minlength=len(choice.logits)) / GRID
        if _clear(choice):
            seen("tokens outside the nucleus", (_kept(choice) == 0).any() and choice.top_p < 1)
            seen("another temperature", choice.temperature != 1.0)
            gap = (share - _kept(choice)).abs().max()
            require(gap <= 1 / GRID + SLACK, f"a token's share is off by {float(gap)} of {GRID} evenly spread numbers")

    claim = "Evenly spread numbers draw every token as often as it is probable in the nucleus at the temperature."
    mutant = ("draws at temperature 1 and scores at the one asked for", lukewarm)
    return _law("shares", claim, mutant, check, "tokens outside the nucleus", "another temperature")


def _scores() -> Law:
    def check(sampling: Sampling, choice: Choice, seen: Seen) -> None:
        token, log_prob = sampling.sampled(temperature=choice.temperature, top_p=choice.top_p)(*_grid(choice))
        kept = _kept(choice)[token]
        if _clear(choice) and bool((kept > 0).all()):
            seen("another temperature", choice.temperature != 1.0)
            seen("a nucleus", choice.top_p < 1.0)
            same("log-probs", log_prob, kept.log().to(torch.float32), ROUNDING)

    claim = "A token's log-prob is that of the distribution it was drawn from, temperature and nucleus included."
    mutant = ("scores at temperature 1 whatever it drew at, as servers do", untempered)
    return _law("scores_of_what_was_drawn", claim, mutant, check, "another temperature", "a nucleus")


def _nucleus() -> Law:
    def check(sampling: Sampling, choice: Choice, seen: Seen) -> None:
        kept, probability = sampling.nucleus(choice.logits, choice.top_p), torch.softmax(choice.logits, -1)
        inside = kept > -torch.inf
        same("the logits that are left", kept[inside], choice.logits[inside])
        mass, least = probability[inside].sum(), probability[inside].min()
        seen("ties at its edge", (probability[~inside] == least).any())
        seen("something left out", probability[~inside].any())
        require(mass >= choice.top_p - SLACK, f"the nucleus has {float(mass)}, wanted {choice.top_p}")
        require(mass - least < choice.top_p + SLACK, "the nucleus has more than it needs")
        outside = (~inside).nonzero()[:, 0].tolist()
        last = max(token for token in inside.nonzero()[:, 0].tolist() if probability[token] == least)
        wrong = [a for a in outside if probability[a] > least or (probability[a] == least > 0 and a < last)]
        require(not wrong, f"tokens {wrong} are likelier than some that are left, or as likely and of lower id")

    claim = "The nucleus is the fewest of the likeliest tokens with at least the probability asked for."
    mutant = ("leaves out the token with which it has that probability", below)
    return _law("least_nucleus", claim, mutant, check, "ties at its edge", "something left out")


def _possible() -> Law:
    def check(sampling: Sampling, choice: Choice, seen: Seen) -> None:
        uniform = torch.tensor([0.0, 2.0**-24, 1.0 - 2.0**-24])
        token, log_prob = sampling.sampled(temperature=choice.temperature)(uniform, choice.logits.expand(3, -1))
        seen("the first token impossible", choice.logits[0] == -torch.inf)
        seen("the last token impossible", choice.logits[-1] == -torch.inf)
        require(choice.logits[token] > -torch.inf, "an impossible token is drawn")
        require(log_prob > -torch.inf, "a token drawn has probability 0")
        same("the smallest number's token", token[0], (choice.logits > -torch.inf).to(torch.int64).argmax())

    claim = "No number, the least and the largest included, draws what is impossible."
    mutant = ("takes the first token whose cumulated probability reaches the number", first_beyond)
    return _law("never_the_impossible", claim, mutant, check, "the first token impossible", "the last token impossible")


def _greedy() -> Law:
    def check(sampling: Sampling, choice: Choice, seen: Seen) -> None:
        token, log_prob = sampling.greedy(*_grid(choice))
        largest = (choice.logits == choice.logits.max()).nonzero()[:, 0]
        seen("several likeliest tokens", len(largest) > 1)
        same("the likeliest token", token, largest[0].expand(GRID))
        same("its log-prob", log_prob, torch.zeros(GRID))

    claim = "Greedy takes the first of the likeliest tokens whatever the number, and what is certain has log-prob 0."
    mutant = ("scores the likeliest token as if it had been sampled", certain_is_not)
    return _law("greedy_is_certain", claim, mutant, check, "several likeliest tokens")
