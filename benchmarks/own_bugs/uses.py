"""How a user would point a suite at each bug: the suite, what is declared, and a few lines that call the object as it is."""

import functools
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import torch
from attrs import field, frozen
from torch import Tensor

from purestep.core.tree import leaves, tree_map
from purestep.properties.suites.aggregate import WEIGHTS, Reduction


def same(subject: Any) -> Any:
    """As it is."""
    return subject


@frozen
class Use:
    """A suite by its name without `_laws`, its keywords, and the subject made of a bug or its twin."""

    suite: str
    subject: Callable[[Any], Any] = same
    declared: Mapping[str, Any] = field(factory=dict)
    given: Mapping[str, Any] = field(factory=dict)  # values of further parameters, with the catalogue's binding
    bound: bool = False  # by the names of its parameters, as `purestep verify` does


def per_step(call: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A loss that is reduced, one step at a time."""

    def loss(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, **words: Any) -> Tensor:
        flat = [x.reshape(-1) for x in (log_prob, behaviour_log_prob, advantage)]
        found = [call(*[x[i : i + 1] for x in flat], **words) for i in range(len(flat[0]))]
        return torch.stack(found).reshape(log_prob.shape) if found else log_prob * 0

    return loss


# --- distributions ---


def mean_squashed(actor: Any) -> Any:
    """The actor with the mean and the deviation of a network."""

    def make(mean: Tensor, log_std: Tensor) -> Any:
        made = actor(1, mean.shape[-1])
        del made.mu, made.log_std
        made.mu, made.log_std = (lambda obs: mean), log_std
        return SimpleNamespace(sample=lambda: made.sample(mean)[0], log_prob=lambda action: made.log_prob(mean, action))

    return make


def sparse(make: Any) -> Any:
    """Legal actions by their indices, for a mask that is the same in all rows."""
    return lambda logits: make(torch.cat([logits, logits[..., :1]], -1), torch.arange(0, logits.shape[-1] + 1)[1:])


def truncated(make: Any) -> Any:
    """By its own name of a sampler."""

    def made(mean: Tensor, log_std: Tensor) -> Any:
        found = make(mean, log_std.exp())
        found.sample = found.rsample
        return found

    return made


# --- optimisers ---


def functional_adam(step: Any) -> Any:
    """A pair of functions around an optimiser in place."""

    def make(learning_rate: float) -> Any:
        def init(params: Any) -> Any:
            return tree_map(torch.zeros_like, params), tree_map(torch.zeros_like, params), 0

        def update(gradients: Any, state: Any, params: Any) -> Any:
            first, second, count = state
            new, first, second = (tree_map(torch.clone, tree) for tree in (params, first, second))
            trees = (leaves(new), leaves(gradients), leaves(first), leaves(second))
            step(*trees, count + 1, lr=learning_rate, weight_decay=0.1)
            return tree_map(torch.sub, new, params), (first, second, count + 1)

        return SimpleNamespace(init=init, update=update)

    return make


class Clipped(torch.optim.SGD):
    """Gradient descent with gradients clipped by a function of the user's."""

    def __init__(self, params: Any, lr: float, before: Callable[[list[Tensor]], None]):
        super().__init__(params, lr=lr)
        self.before = before

    def step(self, closure: Any = None) -> Any:
        """Clips, then steps."""
        self.before([p for group in self.param_groups for p in group["params"] if p.grad is not None])
        return super().step(closure)


def clips(clip: Any) -> Any:
    """In place, of parameters."""
    return lambda params, lr: Clipped(params, lr, lambda owners: clip(owners, 1.0))


def clips_list(clip: Any) -> Any:
    """Of a list of gradients."""

    def before(owners: Any) -> None:
        for p, grad in zip(owners, clip([p.grad for p in owners], 1.0), strict=True):
            p.grad = grad

    return lambda params, lr: Clipped(params, lr, before)


class Trained(torch.optim.SGD):
    """Gradient descent by a training step of the user's."""

    def __init__(self, params: Any, lr: float, update: Any):
        super().__init__(params, lr=lr)
        self.update = update

    def step(self, closure: Any = None) -> Any:
        """With a loss that has the gradients at hand."""
        owners = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        with torch.enable_grad():
            loss = sum(((p * p.grad.clone()).sum() for p in owners), torch.zeros(()))
        plain = SimpleNamespace(zero_grad=self.zero_grad, step=super().step)
        self.update(SimpleNamespace(parameters=lambda: owners), plain, loss, 1.0)


# --- estimators ---


def windowed(gae: Any) -> Any:
    """Ends of any kind, and the value after the window."""
    return lambda r, v, n, te, tr, *, gamma, lambda_: gae(r, v, te | tr, n[-1], gamma, lambda_)


def first_of(gae: Any) -> Any:
    """The advantages of a pair."""
    return lambda r, v, n, te, tr, *, gamma, lambda_: gae(r, v, te | tr, n[-1], gamma, lambda_)[0]


def batched(gae: Any) -> Any:
    """A batch of one."""
    return lambda *columns, gamma, lambda_: gae(*[x[None] for x in columns], gamma, lambda_)[0]


def plain_gae(gae: Any) -> Any:
    """By position."""
    return lambda *columns, gamma, lambda_: gae(*columns, gamma, lambda_)


# --- losses ---


def halves(loss: Any) -> Any:
    """An action of two parts."""
    return per_step(
        lambda lp, old, adv, *, clip: loss({"a": lp / 2, "b": lp / 2}, {"a": old / 2, "b": old / 2}, adv, clip)
    )


def one_token(loss: Any) -> Any:
    """Completions of one token."""
    return per_step(lambda lp, old, adv, *, clip: loss(lp[None], old[None], adv, torch.ones_like(lp)[None], clip))


def two_way(log_prob: Tensor) -> Tensor:
    """Logits of two outcomes, the first of which has this log-prob."""
    return torch.stack([log_prob, torch.log1p(-log_prob.exp().clamp(max=1 - 1e-6))], -1)


def at_temperature(ratio: Any) -> Any:
    """A sampler at temperature 1/2."""

    def weights(log_prob: Tensor, sampler: Tensor, mask: Tensor) -> Tensor:
        lp, old = torch.where(mask, log_prob, -1.0), torch.where(mask, sampler, -1.0)
        found = ratio(0.5 * two_way(lp), torch.zeros_like(mask, dtype=torch.long), old, 0.5)
        return torch.where(mask, found.clamp(0.5, 2.0), 0.0)

    return weights


def each_sample(penalty: Any) -> Any:
    """One token at a time."""

    def estimate(log_prob: Tensor, reference_log_prob: Tensor) -> Tensor:
        one = torch.ones(1, 1)
        return torch.stack(
            [penalty(p[None, None], q[None, None], one) for p, q in zip(log_prob, reference_log_prob, strict=True)]
        )

    return estimate


def micro_batches(loss: Any) -> Any:
    """Rows one by one."""

    def reduce(losses: Tensor, mask: Tensor, *, denominator: Any = None) -> Tensor:
        quiet = torch.where(mask, losses, 0.0)
        found = loss(list(quiet.split(1)), list(mask.to(losses.dtype).split(1)))
        return found if denominator is None else found * mask.sum() / max(float(denominator), 1.0)

    return Reduction(reduce, lambda mask: mask.sum().clamp(min=1))


def by_prompt(advantages: Any) -> Any:
    """Rows of no group get 0; the largest group says the size."""

    def call(reward: Tensor, group: Tensor, *, groups: int) -> Tensor:
        rows, found = group >= 0, torch.zeros_like(reward)
        if rows.any():
            size = int(torch.bincount(group[rows]).max())
            found[rows] = advantages(reward[rows], group[rows], size)
        return found

    return call


# --- envs ---


def twice(action: Any) -> Any:
    """What Pendulum gets for an action in [-1, 1]."""
    return (2 * np.asarray(action)).astype(np.float32)


def short() -> Any:
    """CartPole with a limit of 6 steps."""
    return gymnasium.make("CartPole-v1", max_episode_steps=6)


def rows_of(make: Any) -> Any:
    """By the number of rows."""
    return lambda rows: make([short] * rows)


def around_vectors(wrap: Any, mode: str = "NEXT_STEP") -> Any:
    """Around Gymnasium's own."""
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    return lambda rows: wrap(SyncVectorEnv([short] * rows, autoreset_mode=AutoresetMode[mode]))


# --- the table ---

GAMMA = {"convention": "terminate"}
DECAY = {"weight_decay": 0.1}
USES: dict[str, Use] = {
    "tanh_on_mean_corrected": Use("distribution", mean_squashed),
    "mode_is_an_offset": Use("distribution", sparse, {"outcomes": lambda n: torch.arange(1, n + 1)}),
    "entropy_is_no_method": Use("distribution", truncated, {"low": -1.0, "high": 1.0, "event": False}),
    "saturated_sample_rescored": Use(
        "distribution",
        lambda make: truncated(make),
        {"low": -1.0, "high": 1.0, "finite_on_bounds": True, "entropy": 0.05},
    ),
    "decay_after_update": Use("optimizer", lambda o: functools.partial(o, **DECAY), {"rule": "adamw", **DECAY}),
    "decay_without_parameter": Use("optimizer", lambda o: functools.partial(o, **DECAY), {"rule": "adamw", **DECAY}),
    "adamw_is_adam_with_l2": Use("optimizer", lambda o: functools.partial(o, **DECAY), {"rule": "adamw", **DECAY}),
    "adam_with_decoupled_decay": Use("optimizer", functional_adam, {"rule": "adam", **DECAY}),
    "norm_squared_twice": Use("optimizer", clips, {"rule": "sgd", "clip_norm": 1.0}),
    "norm_of_each_tensor": Use("optimizer", clips_list, {"rule": "sgd", "clip_norm": 1.0}),
    "clipped_after_step": Use(
        "optimizer", lambda f: lambda params, lr: Trained(params, lr, f), {"rule": "sgd", "clip_norm": 1.0}
    ),
    "bootstrap_counted_twice": Use("estimator", windowed, GAMMA),
    "truncation_masks_value": Use("estimator", plain_gae),
    "end_of_the_next_step": Use("estimator", first_of, GAMMA),
    "timeout_of_state_before": Use("estimator", batched),
    "clipped_from_epsilon": Use("loss", lambda f: per_step(lambda lp, old, adv, *, clip: f(lp, old, adv, clip))),
    "each_part_clipped": Use("loss", halves),
    "ratio_to_itself": Use("loss", one_token),
    "kl_the_other_way": Use("kl"),
    "estimators_fall_through": Use("kl", lambda f: functools.partial(f, kl_estimator="k2"), {"unbiased": False}),
    "square_not_halved": Use("kl", each_sample, {"unbiased": False}),
    "temperature_on_one_side": Use("importance", at_temperature, {"low": 0.5, "high": 2.0}),
    "mean_of_means": Use("aggregate", micro_batches, {"weights": WEIGHTS["token_mean"]}),
    "groups_of_fixed_stride": Use("group", by_prompt, {"singleton": "zero"}),
    "seed_ignored": Use("gym"),
    "global_generator": Use("gym"),
    "space_too_small": Use("gym"),
    "space_not_rescaled": Use("wrapper", declared={"inner": "Pendulum-v1", "action": twice}),
    "stack_begins_with_zeros": Use("wrapper", declared={"inner": "CartPole-v1", "stack": 3}),
    "repeats_in_first_episode_only": Use("wrapper", declared={"inner": short, "repeat": 3}),
    "first_reward_discounted": Use("wrapper", declared={"inner": short}),
    "resets_one_step_early": Use("vector_env", rows_of, {"single": short}),
    "reset_keeps_ends": Use("vector_env", rows_of, {"single": short}),
    "one_observation_for_all": Use("vector_env", rows_of, {"single": short}),
    "reset_counted_as_step": Use("vector_env", around_vectors, {"single": short}),
}
