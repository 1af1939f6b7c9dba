"""Generalized advantages as people get them wrong, each the reference below with one edit; and two other conventions."""

from collections.abc import Callable

import torch
from torch import Tensor

Estimator = Callable[..., Tensor]


def backward_sum(slopes: Tensor, terms: Tensor) -> Tensor:
    """x_t = terms_t + slopes_t x_{t+1}, as a loop."""
    total, out = terms[0] * 0, []
    for t in reversed(range(len(terms))):
        total = terms[t] + slopes[t] * total
        out.append(total)
    return torch.stack(out[::-1])


def _parts(rewards: Tensor, values: Tensor, next_values: Tensor, terminated: Tensor, truncated: Tensor) -> list[Tensor]:
    lasting = (~terminated).to(values.dtype)
    inside = (~(terminated | truncated)).to(values.dtype)
    return [rewards, values, next_values, lasting, inside]


def _edited(
    errors: Callable[..., Tensor],
    slopes: Callable[[float, float, Tensor, Tensor], Tensor] = lambda gamma, lambda_, lasting, inside: (
        gamma * lambda_ * inside
    ),
) -> Estimator:
    """An estimator from its temporal differences (r, v, v', lasting, inside, gamma) and its trace."""

    def gae(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
        rewards, values, next_values, lasting, inside = _parts(*columns)
        terms = errors(rewards, values, next_values, lasting, inside, gamma)
        return backward_sum(slopes(gamma, lambda_, lasting, inside), terms)

    return gae


def _td(r: Tensor, v: Tensor, after: Tensor, lasting: Tensor, inside: Tensor, gamma: float) -> Tensor:
    return r + gamma * lasting * after - v


reference = _edited(_td)
"""The definition, written as a loop."""


def _following(v: Tensor, after: Tensor) -> Tensor:
    return torch.cat([v[1:], after[-1:]])


def _shift(inside: Tensor) -> Tensor:
    return torch.cat([inside[1:], torch.ones_like(inside[-1:])])


def _twice(r: Tensor, v: Tensor, after: Tensor, lasting: Tensor, inside: Tensor, gamma: float) -> Tensor:
    return _td(r, v, after, lasting, inside, gamma) + gamma * lasting * (1 - inside) * after


bootstrap_twice = _edited(_twice)
truncation_terminates = _edited(lambda r, v, after, lasting, inside, gamma: r + gamma * inside * after - v)
reset_value = _edited(lambda r, v, after, lasting, inside, gamma: r + gamma * lasting * _following(v, after) - v)
past_termination = _edited(lambda r, v, after, lasting, inside, gamma: r + gamma * after - v)
discounted_twice = _edited(lambda r, v, after, lasting, inside, gamma: r + gamma * gamma * lasting * after - v)
endings_shifted = _edited(_td, lambda gamma, lambda_, lasting, inside: gamma * lambda_ * _shift(inside))
leaks = _edited(_td, lambda gamma, lambda_, lasting, inside: gamma * lambda_ * lasting)
trace_without_gamma = _edited(_td, lambda gamma, lambda_, lasting, inside: lambda_ * inside)
trace_without_lambda = _edited(_td, lambda gamma, lambda_, lasting, inside: gamma * inside)


def one_lambda_missing(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
    """r + gamma V'_t - v with V' the lambda-return of the next row, which has one lambda less than gae."""
    rewards, values, next_values, lasting, inside = _parts(*columns)
    targets = values + backward_sum(gamma * lambda_ * inside, _td(rewards, values, next_values, lasting, inside, gamma))
    following = torch.where(_shift(inside) * inside > 0, _following(targets, next_values), next_values)
    return rewards + gamma * lasting * torch.where(inside > 0, following, next_values) - values


def cuts_before_bad(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
    """Stops the trace before a step that turned out badly, as Watkins does before an exploring one: a biased choice."""
    rewards, values, next_values, lasting, inside = _parts(*columns)
    errors = _td(rewards, values, next_values, lasting, inside, gamma)
    good = torch.cat([(errors[1:] >= 0).to(errors.dtype), torch.ones_like(errors[-1:])])
    return backward_sum(gamma * lambda_ * inside * good, errors)


def normalised(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
    """Centres the advantages before it hands them out."""
    advantages = reference(*columns, gamma=gamma, lambda_=lambda_)
    return advantages - advantages.mean()


def clamped(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
    """Clamps what looks too large."""
    return reference(*columns, gamma=gamma, lambda_=lambda_).clamp(-10.0, 10.0)


def time_reversed(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
    """Forgets to turn the result of a backward loop round."""
    return reference(*columns, gamma=gamma, lambda_=lambda_).flip(0)


def late_baseline(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
    """Is off by one in what it subtracts: G_t - V of the state that action t led to."""
    return reference(*columns, gamma=gamma, lambda_=lambda_) + columns[1] - columns[2]


def drops_truncated(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
    """A convention, not a mistake: a truncated step gets no advantage."""
    rewards, values, next_values, lasting, inside = _parts(*columns)
    kept = (columns[3] | ~columns[4]).to(values.dtype)
    errors = kept * _td(rewards, values, next_values, lasting, inside, gamma)
    return backward_sum(gamma * lambda_ * inside, errors)


MUTANTS: dict[str, Estimator] = {
    "stops the trace before a bad step": cuts_before_bad,
    "takes a truncation for a termination": truncation_terminates,
    "bootstraps from the value of the reset observation": reset_value,
    "shifts the endings by one row": endings_shifted,
    "forgets lambda in the trace": trace_without_lambda,
    "gives the advantages in reversed order": time_reversed,
    "gives truncated steps no advantage": drops_truncated,
}
