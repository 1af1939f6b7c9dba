"""Registered advantages, losses and penalties of verl as subjects, by their functions in `verl.trainer.ppo.core_algos`."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from ..suites.aggregate import WEIGHTS, Reduction

MODES: Mapping[str, str] = {  # of agg_loss -> weights of aggregate_laws
    "token-mean": "token_mean",
    "seq-mean-token-mean": "sequence_mean",
    "seq-mean-token-sum": "sequence_sum_mean",
    "token-sum": "token_sum",
}


def group_advantage(function: Callable[..., Any], **options: Any) -> Callable[..., Tensor]:
    """Return an outcome advantage f(reward [N], group [N], *, groups) -> [N], for `group_laws`.

    A response has two tokens, and its reward stands at the last one.
    """

    def advantages(reward: Tensor, group: Tensor, *, groups: int) -> Tensor:
        del groups
        tokens = torch.stack([torch.zeros_like(reward), reward], -1)
        found: Tensor = function(tokens, torch.ones_like(tokens), group.numpy(), **options)[0]
        return found[:, 0]

    return advantages


def group(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the keywords of `group_laws` for an outcome advantage: a group of one keeps its reward in these."""
    name = function.__name__
    if "rloo" in name:
        return {"centre": "leave_one_out", "scaled": False, "singleton": "zero" if "vectorized" in name else "raw"}
    return {"singleton": "raw", "eps": 1e-6}


def token_gae(function: Callable[..., Any]) -> Callable[..., Tensor]:
    """Return the advantages before they are whitened, which are returns less values, for `token_gae_laws`.

    The package takes no value beyond the last token: it is paid out with the last reward of a row that is not terminated.
    """

    def advantages(
        rewards: Tensor, values: Tensor, mask: Tensor, next_value: Tensor, terminated: Tensor, **numbers: float
    ) -> Tensor:
        last = mask & (mask.flip(-1).cumsum(-1).flip(-1) == 1)
        paid = torch.where(last, rewards + numbers["gamma"] * (next_value * ~terminated)[:, None], rewards)
        more = torch.ones(2, mask.shape[1])  # whitening wants two tokens
        rows, state, sampled = (torch.cat([x.to(values.dtype), more]) for x in (paid, values, mask))
        found = function(rows, state, sampled, numbers["gamma"], numbers["lambda_"])
        return torch.where(mask, found[1][:-2] - values, 0.0)

    return advantages


def policy_loss(function: Callable[..., Any], *, mode: str = "token-mean", dual_clip: float = 3.0) -> Any:
    """Return a registered policy loss f(log_prob, behaviour_log_prob, advantage, *, clip) -> loss [], for `loss_laws`."""

    def loss(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
        columns = [x.reshape(1, -1) for x in (behaviour_log_prob, log_prob, advantage)]
        words = {"clip_ratio": clip, "clip_ratio_low": clip, "clip_ratio_high": clip, "clip_ratio_c": dual_clip}
        config = SimpleNamespace(**words, global_batch_info={}, get=lambda name, default: words.get(name, default))
        found: Tensor = function(*columns, torch.ones_like(columns[0]), mode, config)[0]
        return found

    return loss


def kl(function: Callable[..., Any], *, kind: str = "k3") -> Callable[[Tensor, Tensor], Tensor]:
    """Return a kind of the KL penalty as f(log_prob, reference_log_prob), for `kl_laws`."""
    return lambda log_prob, reference_log_prob: function(log_prob, reference_log_prob, kind)


def value_loss(function: Callable[..., Any], *, mode: str = "token-mean") -> Callable[..., Tensor]:
    """Return the clipped loss of values, for `value_loss_laws(reduction="mean", detached=False)`."""

    def loss(value: Tensor, behaviour_value: Tensor, target: Tensor, *, clip: float) -> Tensor:
        columns = [x.reshape(1, -1) for x in (value, target, behaviour_value)]
        found: Tensor = function(*columns, torch.ones_like(columns[0]), clip, mode)[0]
        return found

    return loss


def value_claims(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the keywords of `value_loss_laws` for the clipped loss of values, which leaves detaching to its caller."""
    del function
    return {"reduction": "mean", "detached": False}


def aggregation(function: Callable[..., Any], *, mode: str = "token-mean") -> Reduction:
    """Return `agg_loss` in a mode, for `aggregate_laws(WEIGHTS[...], parts=False)`."""

    def reduce(loss: Tensor, mask: Tensor) -> Tensor:
        found: Tensor = function(loss, mask.to(loss.dtype), mode)
        return found

    return Reduction(reduce, lambda mask: mask.sum())


def weights(function: Callable[..., Any], *, mode: str = "token-mean") -> dict[str, Any]:
    """Return the keywords of `aggregate_laws` for a mode; the mean of no token is NaN in these."""
    del function
    return {"weights": WEIGHTS[MODES[mode]], "parts": False, "empty": mode == "token-sum"}
