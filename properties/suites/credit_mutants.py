"""Credit as people get it wrong: each an edit of credit that is right."""

from collections.abc import Callable

import attrs
import torch
from torch import Tensor

from ...core.transcript import SAMPLED as FROM_MODEL
from ...core.transcript import Transcript


@attrs.frozen
class Crediting:
    """What the laws of credit judge; rewards are [N, C], calls made [N], groups [N]."""

    per_step: Callable[[Tensor, Tensor], Tensor]
    episode: Callable[[Tensor, Tensor], Tensor]
    monte_carlo: Callable[..., Tensor]  # (reward, calls, *, gamma)
    group: Callable[..., Tensor]  # (reward, calls, group, *, estimator)
    token_credit: Callable[[Transcript, Tensor], Tensor]  # credit [N, C] -> [N, L]


def _tokens(subject: Crediting, change: Callable[[Transcript, Tensor], Tensor]) -> Crediting:
    return attrs.evolve(subject, token_credit=change)


def pays_context(subject: Crediting) -> Crediting:
    """Gives what follows a call, tools' answers too, the credit of that call."""

    def token_credit(transcript: Transcript, credit: Tensor) -> Tensor:
        call = transcript.call.cummax(-1).values
        place = torch.arange(call.shape[-1])
        here = (call >= 0) & (place >= transcript.inherited[:, None]) & (place < transcript.length[:, None])
        return torch.where(here, credit.gather(-1, call.clamp_min(0)), 0.0)

    return _tokens(subject, token_credit)


def pays_twice(subject: Crediting) -> Crediting:
    """Gives what a fork inherited its credit once more."""

    def token_credit(transcript: Transcript, credit: Tensor) -> Tensor:
        found = credit.gather(-1, transcript.call.clamp_min(0))
        return torch.where(transcript.source == FROM_MODEL, found, 0.0)

    return _tokens(subject, token_credit)


def last_call_only(subject: Crediting) -> Crediting:
    """Lets only the last call's tokens learn, the others being out of sight."""

    def token_credit(transcript: Transcript, credit: Tensor) -> Tensor:
        right = subject.token_credit(transcript, credit)
        return torch.where(transcript.call == transcript.calls[:, None] - 1, right, 0.0)

    return _tokens(subject, token_credit)


def what_came_before(subject: Crediting) -> Crediting:
    """Sums the rewards up to a call, not from it on."""

    def monte_carlo(reward: Tensor, calls: Tensor, *, gamma: float) -> Tensor:
        earned = subject.per_step(reward, calls)
        total, found = torch.zeros_like(calls, dtype=reward.dtype), []
        for column in earned.unbind(-1):
            total = column + gamma * total
            found.append(total)
        return torch.where(torch.arange(reward.shape[-1]) < calls[:, None], torch.stack(found, -1), 0.0)

    return attrs.evolve(subject, monte_carlo=monte_carlo)


def mean_return(subject: Crediting) -> Crediting:
    """Gives each call its part of the return, not the whole."""

    def episode(reward: Tensor, calls: Tensor) -> Tensor:
        return subject.episode(reward, calls) / calls.clamp_min(1)[:, None]

    return attrs.evolve(subject, episode=episode)


def counts_blanks(subject: Crediting) -> Crediting:
    """Multiplies what was never called by 0, which NaN survives."""

    def per_step(reward: Tensor, calls: Tensor) -> Tensor:
        return reward * (torch.arange(reward.shape[-1]) < calls[:, None])

    return attrs.evolve(subject, per_step=per_step)


def compares_calls(subject: Crediting) -> Crediting:
    """Compares the first calls of a group with each other, the second ones, and so on."""

    def group(reward: Tensor, calls: Tensor, group: Tensor, *, estimator: Callable[..., Tensor]) -> Tensor:
        columns = [estimator(column, group) for column in subject.per_step(reward, calls).unbind(-1)]
        return torch.where(torch.arange(reward.shape[-1]) < calls[:, None], torch.stack(columns, -1), 0.0)

    return attrs.evolve(subject, group=group)


def weighs_calls(subject: Crediting) -> Crediting:
    """Weighs an episode in its group by the number of its calls."""

    def group(reward: Tensor, calls: Tensor, group: Tensor, *, estimator: Callable[..., Tensor]) -> Tensor:
        return subject.group(reward * calls[:, None], calls, group, estimator=estimator)

    return attrs.evolve(subject, group=group)


MUTANTS: dict[str, Callable[[Crediting], Crediting]] = {
    "lets the last call alone learn": last_call_only,
    "weighs an episode by its calls": weighs_calls,
}
