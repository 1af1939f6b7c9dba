"""How people get drawing tokens wrong: edits of its functions."""

from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve, frozen
from torch import Tensor

Draw = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@frozen
class Sampling:
    """The functions of `core.sampling`."""

    sampled: Callable[..., Draw]
    greedy: Draw
    nucleus: Callable[[Tensor, float], Tensor]


def _score(change: Callable[[Tensor, Tensor, dict[str, Any]], Tensor]) -> Callable[[Sampling], Sampling]:
    """The edit that scores what was drawn otherwise: `change(token, logits, options)`."""

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
    """Draws at temperature 1 and scores at the one asked for."""

    def sampled(**options: Any) -> Draw:
        draw, plain = sampling.sampled(**options), sampling.sampled(**{**options, "temperature": 1.0})
        return lambda uniform, logits: (plain(uniform, logits)[0], draw(uniform, logits)[1])

    return evolve(sampling, sampled=sampled)


def certain_is_not(sampling: Sampling) -> Sampling:
    """Scores the likeliest token as if it had been sampled."""

    def greedy(uniform: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        token, _ = sampling.greedy(uniform, logits)
        return token, _of(logits, token)

    return evolve(sampling, greedy=greedy)


def below(sampling: Sampling) -> Sampling:
    """Leaves out the token with which the nucleus has its probability."""

    def nucleus(logits: Tensor, top_p: float) -> Tensor:
        order = torch.sort(logits, dim=-1, descending=True, stable=True)
        first = torch.arange(logits.shape[-1]) == 0
        kept = first | (torch.softmax(order.values, -1).cumsum(-1) < top_p)
        back = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order.indices, kept)
        return torch.where(back, logits, -torch.inf)

    return evolve(sampling, nucleus=nucleus)


def ties(sampling: Sampling) -> Sampling:
    """Keeps all that is as likely as the last of the nucleus."""

    def nucleus(logits: Tensor, top_p: float) -> Tensor:
        kept = sampling.nucleus(logits, top_p)
        least = torch.where(kept.isinf(), torch.inf, kept).amin(-1, keepdim=True)
        return torch.where(logits >= least, logits, -torch.inf)

    return evolve(sampling, nucleus=nucleus)


def first_beyond(sampling: Sampling) -> Sampling:
    """Takes the first token whose cumulated probability reaches the number, be it impossible itself."""

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
