"""Laws of a distribution over finitely many actions (L9); the subject makes one from logits [*, A]."""

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from ...core.distributions import Distribution
from ..framework.compare import ROUNDING, Tolerance, same
from ..framework.law import Law, Mutant, Seen, Suite, law_constructor
from ..strategies.values import dyadic, seeds
from .policy import Wrapped

# --- mutants ---
# Common mistakes in distributions.


Make = Callable[[Tensor], Distribution]


def _changed(**changes: Callable[[Any], Callable[..., Any]]) -> Callable[[Make], Make]:
    def mutant(make: Make) -> Make:
        def made(logits: Tensor) -> Any:
            inner = make(logits)
            return Wrapped(inner, **{name: change((inner, logits)) for name, change in changes.items()})

        return made

    return mutant


unnormalised = _changed(log_prob=lambda pair: lambda action: pair[1][action])


mean_entropy = _changed(entropy=lambda pair: lambda: -pair[1].log_softmax(-1).mean(-1))


first_mode = _changed(mode=lambda pair: lambda: torch.zeros(pair[1].shape[:-1], dtype=torch.int64))


def reversed_inverse(make: Make) -> Make:
    """Cumulate the probabilities from the wrong end."""

    def made(logits: Tensor) -> Any:
        inner, turned = make(logits), make(logits.flip(-1))
        return Wrapped(inner, transform=turned.transform, sample=turned.sample)

    return made


# --- laws ---


def categorical_laws() -> Suite:
    """Return the laws of a distribution over finitely many actions; the subject makes one from logits [*, A]."""
    return Suite("categorical_laws", (_normalised(), _entropy(), _mode(), _inverse()))


_over_logits = law_constructor(
    lambda: st.tuples(st.integers(1, 5).flatmap(lambda n: dyadic((n,), limit=4)), seeds()),
    "definition of softmax, entropy and sampling by inversion",
    numeric=True,
)


def _probabilities(make: Make, logits: Tensor) -> Tensor:
    actions = torch.arange(logits.shape[-1])
    return torch.stack([make(logits).log_prob(action) for action in actions]).exp()


def _normalised() -> Law:
    def check(make: Make, drawn: tuple[Tensor, int], seen: Seen) -> None:
        got = _probabilities(make, drawn[0])
        same("probabilities", got, drawn[0].softmax(-1), ROUNDING)
        same("their sum", got.sum(), torch.ones(()), ROUNDING)

    mutant = Mutant("gives logits for log-probs", unnormalised)
    return _over_logits("probabilities_sum_to_1", "exp(log_prob) is softmax(logits) and sums to 1.", mutant, check)


def _entropy() -> Law:
    def check(make: Make, drawn: tuple[Tensor, int], seen: Seen) -> None:
        p = drawn[0].double().softmax(-1)
        same("entropy", make(drawn[0]).entropy(), -(p * p.log()).sum().float(), ROUNDING)

    mutant = Mutant("gives the mean of -log p, not its expectation", mean_entropy)
    return _over_logits("entropy", "The entropy is -sum p log p.", mutant, check)


def _mode() -> Law:
    def check(make: Make, drawn: tuple[Tensor, int], seen: Seen) -> None:
        mode = make(drawn[0]).mode()
        same("the log-prob of the mode", make(drawn[0]).log_prob(mode), drawn[0].log_softmax(-1).max(), ROUNDING)

    mutant = Mutant("gives the first action for the mode", first_mode)
    return _over_logits("mode_is_most_probable", "No action is more probable than the mode.", mutant, check)


def _inverse() -> Law:
    def check(make: Make, drawn: tuple[Tensor, int], seen: Seen) -> None:
        """Check all cells of a grid of uniform numbers; a few random keys would test little."""
        logits, cells = drawn[0], 512
        grid = (torch.arange(cells, dtype=torch.float32) + 0.5) / cells
        wide = make(logits.expand(cells, -1))
        share = torch.bincount(wide.transform(grid), minlength=len(logits)) / cells
        same("how often each action is chosen", share, logits.softmax(-1), Tolerance("grid", 0.0, 1.0 / cells + 1e-6))

    mutant = Mutant("inverts with the probabilities in reversed order", reversed_inverse)
    claim = "Uniform numbers on a grid choose each action as often as its probability says."
    return _over_logits("sampling_is_inversion", claim, mutant, check)
