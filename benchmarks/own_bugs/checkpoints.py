"""Saving and loading a training run."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from .bug import Bug


class Trainer:
    """A small training run on noise, saved to and loaded from one file."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = nn.Linear(3, 1)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, 0.1, 1.0, total_iters=10)
        self.generator = torch.Generator().manual_seed(seed)
        self.seed, self.step = seed, 0

    def train(self, steps: int) -> None:
        """Goes on for so many steps."""
        for _ in range(steps):
            x = torch.randn(8, 3, generator=self.generator)
            loss = (self.model(x).squeeze(-1) - x.sum(-1)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.step += 1

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "generator": self.generator.get_state(),
            "step": self.step,
        }

    def save(self, path: Path | str) -> None:
        torch.save(self.state(), path)

    def load(self, path: Path | str) -> None:
        found = torch.load(path)
        self.model.load_state_dict(found["model"])
        self.optimizer.load_state_dict(found["optimizer"])
        if "scheduler" in found:
            self.scheduler.load_state_dict(found["scheduler"])
        self.generator.set_state(found["generator"])
        self.step = found["step"]


class ForgetsSchedule(Trainer):
    """A small training run on noise, saved to and loaded from one file."""

    def state(self) -> dict[str, Any]:
        return {key: value for key, value in super().state().items() if key != "scheduler"}


class ForgetsMoments(Trainer):
    """A small training run on noise, saved to and loaded from one file."""

    def load(self, path: Path | str) -> None:
        found = torch.load(path)
        self.model.load_state_dict(found["model"])
        self.scheduler.load_state_dict(found["scheduler"])
        for group, rate in zip(self.optimizer.param_groups, self.scheduler.get_last_lr(), strict=True):
            group["lr"] = rate
        self.generator.set_state(found["generator"])
        self.step = found["step"]


class SeedsAgain(Trainer):
    """A small training run on noise, saved to and loaded from one file."""

    def load(self, path: Path | str) -> None:
        super().load(path)
        self.sampler()

    def sampler(self) -> None:
        """Draws the order of prompts once more."""
        self.generator.manual_seed(self.seed + 1)
        self.order = torch.randperm(8, generator=self.generator)
        self.generator.manual_seed(self.seed)


def resumed(make: Any) -> object:
    """Weights and rate after 3 steps, a load in a new run, and 3 more."""
    one = make()
    one.train(3)
    with TemporaryDirectory() as folder:
        one.save(Path(folder) / "a.pt")
        two = make(seed=1)
        two.load(Path(folder) / "a.pt")
    two.train(3)
    return two.model.weight, two.optimizer.param_groups[0]["lr"]


BUGS = [
    Bug(
        "schedule_not_saved",
        "https://github.com/PolymathicAI/the_well/pull/63",
        "checkpoints",
        "The schedule is not saved: a run that is gone on with warms up again.",
        ForgetsSchedule,
        Trainer,
        resumed,
    ),
    Bug(
        "moments_not_restored",
        "https://github.com/pytorch/rl/issues/4188",
        "checkpoints",
        "The optimiser's moments are not restored.",
        ForgetsMoments,
        Trainer,
        resumed,
    ),
    Bug(
        "seeded_after_load",
        "https://github.com/modelscope/ms-swift/pull/9935",
        "checkpoints",
        "After the generator was restored, a sampler is made that seeds it again.",
        SeedsAgain,
        Trainer,
        resumed,
    ),
]
