"""Lambda-returns and V-trace as people get them wrong, each the reference with one edit."""

from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from . import estimator_mutants as advantages
from .estimator_mutants import backward_sum


def squares_lambda(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
    """Multiplies by lambda at both places where once is enough: right at 0 and at 1."""
    return columns[1] + advantages.reference(*columns, gamma=gamma, lambda_=lambda_ * lambda_)


def forgets_lambda(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
    """Gives the whole return, whatever lambda is."""
    return columns[1] + advantages.reference(*columns, gamma=gamma, lambda_=1.0)


def cuts_before_bad(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
    """Stops the trace before a step that turned out badly."""
    return columns[1] + advantages.cuts_before_bad(*columns, gamma=gamma, lambda_=lambda_)


def endings_shifted(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
    """Shifts the endings by a row."""
    return columns[1] + advantages.endings_shifted(*columns, gamma=gamma, lambda_=lambda_)


def forgets_gamma(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
    """Does not discount the trace."""
    return columns[1] + advantages.trace_without_gamma(*columns, gamma=gamma, lambda_=lambda_)


LAMBDA_RETURNS: dict[str, Callable[..., Tensor]] = {"forgets gamma in the trace": forgets_gamma}


@frozen
class Result:
    """What a V-trace gives."""

    targets: Tensor
    advantages: Tensor


Parts = dict[str, Any]


def _parts(log_ratios: Tensor, columns: tuple[Tensor, ...], gamma: float) -> Parts:
    rewards, values, next_values, terminated, truncated = columns
    beyond = torch.where(terminated, 0.0, next_values)
    return {
        "ratio": torch.exp(log_ratios),
        "error": rewards + gamma * beyond - values,
        "beyond": beyond,
        "inside": (~(terminated | truncated)).to(values.dtype),
        "lasting": (~terminated).to(values.dtype),
        "values": values,
        "rewards": rewards,
    }


def _bounded(ratio: Tensor, bar: float) -> Tensor:
    return ratio.clamp(max=bar)


def _next_target(parts: Parts, targets: Tensor) -> Tensor:
    last = torch.zeros_like(parts["inside"]).index_fill(0, torch.tensor(len(targets) - 1), 1.0)
    cut = (parts["inside"] == 0) | (last > 0)
    return torch.where(cut, parts["beyond"], torch.cat([targets[1:], targets[-1:]]))


def _edited(**edits: Callable[..., Tensor]) -> Callable[..., Result]:
    """V-trace with some of its parts exchanged: rho, trace, following."""

    def vtrace(
        log_ratios: Tensor,
        *columns: Tensor,
        gamma: float,
        lambda_: float = 1.0,
        rho_bar: float = 1.0,
        c_bar: float = 1.0,
    ) -> Result:
        parts = _parts(log_ratios, columns, gamma)
        rho = edits.get("rho", _bounded)(parts["ratio"], rho_bar)
        c = edits.get("c", _bounded)(parts["ratio"], c_bar)
        plain_trace = gamma * lambda_ * c * parts["inside"]
        trace = edits["trace"](parts, gamma, lambda_, c) if "trace" in edits else plain_trace
        targets = parts["values"] + backward_sum(trace, rho * parts["error"])
        following = edits.get("following", _next_target)(parts, targets)
        return Result(targets, rho * (parts["rewards"] + gamma * following - parts["values"]))

    return vtrace


reference = _edited()
no_lambda = _edited(trace=lambda parts, gamma, lambda_, c: gamma * c * parts["inside"])
value_for_target = _edited(following=lambda parts, targets: parts["beyond"])
lower_bound = _edited(rho=lambda ratio, bar: ratio.clamp(0.1, bar))
trace_without_ratio = _edited(trace=lambda parts, gamma, lambda_, c: gamma * lambda_ * parts["inside"])
unbounded_error = _edited(rho=lambda ratio, bar: ratio)
self_normalised = _edited(rho=lambda ratio, bar: (ratio / ratio.mean().clamp(min=1e-6)).clamp(max=bar))
leaks = _edited(
    following=lambda parts, targets: torch.where(
        parts["lasting"] > 0, torch.cat([targets[1:], parts["beyond"][-1:]]), 0.0
    )
)
ratio_twice = _edited(rho=lambda ratio, bar: (ratio * ratio).clamp(max=bar))
ratio_shifted = _edited(rho=lambda ratio, bar: torch.cat([ratio[1:], ratio[-1:]]).clamp(max=bar))

VTRACE: dict[str, Callable[..., Result]] = {
    "takes the ratio of the next row": ratio_shifted,
}
