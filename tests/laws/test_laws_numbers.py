"""Distributions, optimizers, schedules and buffers of other libraries obey the laws, and so do ours."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Beta, Categorical, Independent, Normal

from purestep.algorithms.kl import k1
from purestep.algorithms.returns import discounted, n_step
from purestep.core import distributions
from purestep.core.distributions import Product
from purestep.core.optim import optimizers, schedules
from purestep.properties import (
    check,
    distribution_laws,
    kl_laws,
    n_step_laws,
    optimizer_laws,
    schedule_laws,
    target_laws,
)
from purestep.properties.suites.distribution import classes


def normal(mean: Tensor, log_std: Tensor) -> Any:
    """A diagonal normal distribution of torch."""
    return Independent(Normal(mean, log_std.exp()), 1)


def beta(first: Tensor, second: Tensor) -> Any:
    """A beta distribution of torch, with a mode inside."""
    softplus = torch.nn.functional.softplus
    return Independent(Beta(1 + softplus(first), 1 + softplus(second)), 1)


def halves(mean: Tensor, log_std: Tensor) -> Any:
    """A product of two of our normal distributions, over the halves of an action."""
    half = mean.shape[-1] // 2
    names = ("first", "second")
    means, stds = ((x[..., :half], x[..., half:]) for x in (mean, log_std))
    rows = zip(names, means, stds, strict=True)
    product = Product(parts={name: distributions.Normal(mean=m, log_std=s) for name, m, s in rows})
    return SimpleNamespace(
        log_prob=lambda action: product.log_prob({"first": action[..., :half], "second": action[..., half:]}),
        sample=lambda key: torch.cat(list(product.sample(key).values()), -1),
        entropy=product.entropy,
        mode=lambda: torch.cat(list(product.mode().values()), -1),
    )


def momentum(params: list[Tensor], lr: float) -> torch.optim.Optimizer:
    """Gradient descent with Nesterov momentum and coupled decay."""
    return torch.optim.SGD(params, lr, momentum=0.5, nesterov=True, weight_decay=0.25)


def annealed(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    """A scheduler of torch."""
    return torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.25, 12)


def rest(rewards: Tensor, terminated: Tensor, truncated: Tensor, *, gamma: float) -> Tensor:
    """Returns-to-go of ours."""
    return discounted(rewards, terminated, truncated, gamma=gamma)


several = ((), (3,), (2, 3))
test_normal = check(distribution_laws(batches=several), normal)
test_product = check(distribution_laws(sizes=(2,)), halves)
test_beta = check(distribution_laws(low=0.0, high=1.0, sizes=(1,)), beta)
test_categorical = check(distribution_laws(outcomes=classes), lambda logits: Categorical(logits=logits))
test_nesterov = check(optimizer_laws("sgd", momentum=0.5, nesterov=True, weight_decay=0.25), momentum)
test_own_nesterov = check(
    optimizer_laws("sgd", momentum=0.5, nesterov=True), partial(optimizers.nesterov, momentum=0.5)
)
test_rmsprop = check(optimizer_laws("rmsprop"), torch.optim.RMSprop)
test_radam = check(optimizer_laws("radam"), torch.optim.RAdam)
test_linear = check(schedule_laws(start=1.0, end=0.25, steps=12, shape="linear", argument="int"), annealed)
test_cosine = check(
    schedule_laws(start=1.0, end=0.25, steps=12, shape="cosine", argument="tensor"), schedules.cosine(1.0, 0.25, 12)
)
test_k1 = check(kl_laws(never_negative=False), k1)
test_rest = check(target_laws("reward_to_go"), rest)
test_n_step = check(n_step_laws(), n_step)
