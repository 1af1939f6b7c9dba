"""Scores of tokens as people get them wrong."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor


class Score(Protocol):
    """What scores tokens by logits."""

    def __call__(self, logits: Tensor, tokens: Tensor, *, temperature: Tensor | float = 1.0) -> Tensor:
        """[*, L, V], int [*, L] -> [*, L]"""
        ...


def _with_logits(score: Score, change: Callable[[Tensor], Tensor]) -> Score:
    def mutant(logits: Tensor, tokens: Tensor, *, temperature: Tensor | float = 1.0) -> Tensor:
        return score(change(logits), tokens, temperature=temperature)

    return mutant


def unshifted(score: Score) -> Score:
    """Scores token t by the logits at t."""
    return _with_logits(score, lambda logits: logits.roll(-1, -2))


def twice(score: Score) -> Score:
    """Shifts what was shifted already."""
    return _with_logits(score, lambda logits: logits.roll(1, -2))


def rolled(score: Score) -> Score:
    """Rolls the logits by one and scores every token, the first by the last logits."""

    def mutant(logits: Tensor, tokens: Tensor, *, temperature: Tensor | float = 1.0) -> Tensor:
        shifted = torch.nn.functional.pad(logits.roll(1, -2), (0, 0, 0, 1))
        more = torch.nn.functional.pad(tokens, (1, 0))
        if isinstance(temperature, Tensor) and temperature.shape == tokens.shape:
            temperature = torch.nn.functional.pad(temperature, (1, 0), value=1.0)
        return score(shifted, more, temperature=temperature)[..., 1:]

    return mutant


def unshifted_temperature(score: Score) -> Score:
    """Divides the logits at t by the temperature of token t."""

    def mutant(logits: Tensor, tokens: Tensor, *, temperature: Tensor | float = 1.0) -> Tensor:
        if isinstance(temperature, Tensor) and temperature.shape == tokens.shape:
            temperature = temperature.roll(1, -1)
        return score(logits, tokens, temperature=temperature)

    return mutant


def tempered_afterwards(score: Score) -> Score:
    """Divides log-probs, and not logits, by the temperature."""

    def mutant(logits: Tensor, tokens: Tensor, *, temperature: Tensor | float = 1.0) -> Tensor:
        heat = temperature
        if isinstance(heat, Tensor) and heat.ndim == tokens.ndim - 1:
            heat = heat[..., None]
        return score(logits, tokens) / heat

    return mutant


MUTANTS: dict[str, Callable[[Score], Score]] = {"shifts what was shifted already": twice}
