"""Learning-rate schedules: warmup, decay and where the one hands over to the other."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler

from .bug import Bug


def cosine_lambda(warmup_steps: int, total_steps: int, lr_min_factor: float = 0.0) -> Callable[[int], float]:
    """A multiplier of the learning rate: linear warmup, then cosine."""

    def factor(step: int) -> float:
        if step < warmup_steps:
            return step / max(1, warmup_steps)
        return max(lr_min_factor, 0.5 * (1 + math.cos(math.pi * step / total_steps)))

    return factor


def cosine_lambda_fixed(warmup_steps: int, total_steps: int, lr_min_factor: float = 0.0) -> Callable[[int], float]:
    """The cosine begins where the warmup ends."""

    def factor(step: int) -> float:
        if step < warmup_steps:
            return step / max(1, warmup_steps)
        progress = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
        return max(lr_min_factor, 0.5 * (1 + math.cos(math.pi * progress)))

    return factor


def make_scheduler(optimizer: torch.optim.Optimizer, warmup_steps: int, total_steps: int) -> LRScheduler:
    """Warmup, then a cosine to 0 at `total_steps`."""
    return CosineAnnealingLR(optimizer, T_max=total_steps - warmup_steps, eta_min=0.0)


def make_scheduler_fixed(optimizer: torch.optim.Optimizer, warmup_steps: int, total_steps: int) -> LRScheduler:
    """With the warmup, and without a rise after the end."""
    return LambdaLR(optimizer, cosine_lambda_fixed(warmup_steps, total_steps))


class WarmupCosine:
    """Linear warmup to the peak, then cosine by the recursion of torch's own scheduler."""

    def __init__(self, peak: float, warmup: int, t_max: int):
        self.peak, self.warmup, self.t_max = peak, warmup, t_max
        self.count, self.lr = 0, 0.0

    def step(self) -> float:
        """The learning rate of the next step."""
        self.count += 1
        if self.count <= self.warmup:
            self.lr = self.peak * self.count / self.warmup
        else:
            self.lr = self.decayed(self.count - self.warmup - 1)
        return self.lr

    def decayed(self, epoch: int) -> float:
        if epoch >= self.t_max:
            return 0.0
        before, now = math.cos(math.pi * (epoch - 1) / self.t_max), math.cos(math.pi * epoch / self.t_max)
        return self.lr * (1 + now) / (1 + before)


class WarmupCosineFixed(WarmupCosine):
    """The recursion begins after the first step at the peak."""

    def decayed(self, epoch: int) -> float:
        return self.peak if epoch == 0 else super().decayed(epoch)


class WarmupCosineRatio:
    """The ratio of the learning rate at each step: `warmup_min_ratio` to 1, then cosine to `cos_min_ratio`."""

    def __init__(self, total_num_steps: int, warmup_num_steps: int, cos_min_ratio: float = 0.0):
        self.total, self.warmup, self.cos_min_ratio = total_num_steps, max(2, warmup_num_steps), cos_min_ratio
        self.last_batch_iteration = -1

    def step(self) -> float:
        """The ratio of the next step."""
        ratio = self.ratio()
        self.last_batch_iteration += 1
        return ratio

    def ratio(self) -> float:
        if self.last_batch_iteration < 0:
            return 0.0
        if self.last_batch_iteration < self.warmup:
            return self.last_batch_iteration / self.warmup
        progress = (self.last_batch_iteration - self.warmup + 1) / (self.total - self.warmup)
        return max(0.0, self.cos_min_ratio + (1 - self.cos_min_ratio) * (1 + math.cos(math.pi * progress)) / 2)


class WarmupCosineRatioFixed(WarmupCosineRatio):
    """Counts the step that is about to be taken."""

    def ratio(self) -> float:
        now = self.last_batch_iteration + 1
        if now < self.warmup:
            return (now + 1) / self.warmup
        progress = min(1.0, (now - self.warmup) / (self.total - self.warmup))
        return self.cos_min_ratio + (1 - self.cos_min_ratio) * (1 + math.cos(math.pi * progress)) / 2


def rates(make: Any) -> object:
    """Learning rates of a torch scheduler: 5 of warmup, 15 in all."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scheduler = make(optimizer, 5, 15)
        found = []
        for _ in range(16):
            found.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
    return found


def steps(scheduler: Any, count: int = 12) -> object:
    """What so many steps give."""
    return [scheduler.step() for _ in range(count)]


BUGS = [
    Bug(
        "decay_during_warmup",
        "https://github.com/facebookresearch/fairchem/pull/1967",
        "schedules",
        "The cosine counts from step 0, so that the rate drops where the warmup ends.",
        cosine_lambda,
        cosine_lambda_fixed,
        lambda f: [f(10, 100)(step) for step in range(101)],
    ),
    Bug(
        "warmup_only_shortens_cosine",
        "https://github.com/Tencent-Hunyuan/UniRL/pull/223",
        "schedules",
        "The steps of warmup only shorten the cosine: there is no warmup, and the rate rises again before the end.",
        make_scheduler,
        make_scheduler_fixed,
        rates,
    ),
    Bug(
        "handoff_over_peak",
        "https://github.com/deepseek-ai/DeepSpec/issues/32",
        "schedules",
        "The recursive cosine is applied once at the peak: one step lies above the configured peak.",
        WarmupCosine,
        WarmupCosineFixed,
        lambda s: steps(s(1.0, 4, 10)),
    ),
    Bug(
        "first_steps_at_zero",
        "https://github.com/deepspeedai/DeepSpeed/pull/5287",
        "schedules",
        "The first two steps have a rate of zero, so that their data are not learned from.",
        WarmupCosineRatio,
        WarmupCosineRatioFixed,
        lambda s: steps(s(100, 10)),
    ),
]
