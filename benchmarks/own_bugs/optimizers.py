"""Optimisers and gradient clipping: rules that are not the named ones."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .bug import Bug


class AdamWLate(torch.optim.Optimizer):
    """AdamW."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = self.evaluated(closure)
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["step"] += 1
                state["m"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
                state["v"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                m_hat = state["m"] / (1 - beta1 ** state["step"])
                v_hat = state["v"] / (1 - beta2 ** state["step"])
                self.change(p, group, m_hat / (v_hat.sqrt() + group["eps"]))
        return loss

    def evaluated(self, closure: Any) -> Any:
        with torch.enable_grad():
            return closure() if closure is not None else None

    def change(self, p: Tensor, group: dict[str, Any], update: Tensor) -> None:
        p.sub_(group["lr"] * update)
        p.mul_(1 - group["lr"] * group["weight_decay"])


class AdamWLateFixed(AdamWLate):
    """Decays the parameters as they were."""

    def change(self, p: Tensor, group: dict[str, Any], update: Tensor) -> None:
        p.mul_(1 - group["lr"] * group["weight_decay"])
        p.sub_(group["lr"] * update)


class AdamWConstant(AdamWLate):
    """AdamW."""

    def change(self, p: Tensor, group: dict[str, Any], update: Tensor) -> None:
        p.sub_(group["lr"] * (update + group["weight_decay"]))


class AdamWSubclass(AdamWLate):
    """AdamW, made from Adam."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = self.evaluated(closure)
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad.add_(p, alpha=group["weight_decay"])
        super().step()
        return loss

    def change(self, p: Tensor, group: dict[str, Any], update: Tensor) -> None:
        p.sub_(group["lr"] * update)


def fused_adam(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    exp_avgs: Sequence[Tensor],
    exp_avg_sqs: Sequence[Tensor],
    step: int,
    *,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> None:
    """Adam with an L2 penalty, in place; `step` counts from 1."""
    for p, g, m, v in zip(params, grads, exp_avgs, exp_avg_sqs, strict=True):
        m.mul_(beta1).add_(g, alpha=1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        update = (m / (1 - beta1**step)) / ((v / (1 - beta2**step)).sqrt() + eps)
        p.sub_(lr * (update + weight_decay * p))


def fused_adam_fixed(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    exp_avgs: Sequence[Tensor],
    exp_avg_sqs: Sequence[Tensor],
    step: int,
    *,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> None:
    """The penalty is part of the gradient, so that the moments see it."""
    for p, g, m, v in zip(params, grads, exp_avgs, exp_avg_sqs, strict=True):
        g = g + weight_decay * p
        m.mul_(beta1).add_(g, alpha=1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        p.sub_(lr * (m / (1 - beta1**step)) / ((v / (1 - beta2**step)).sqrt() + eps))


def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float) -> float:
    """Scales all gradients so that their global norm is at most `max_norm`; the norm as it was."""
    grads = [p.grad for p in parameters if p.grad is not None]
    total = 0.0
    for grad in grads:
        squared = float(grad.square().sum())
        total += squared * squared
    norm = math.sqrt(total)
    if not max_norm >= norm:
        for grad in grads:
            grad.mul_(max_norm / (norm + 1e-6))
    return norm


def clip_gradients_fixed(parameters: Iterable[nn.Parameter], max_norm: float) -> float:
    """Adds squares once."""
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = math.sqrt(sum(float(grad.square().sum()) for grad in grads))
    if not max_norm >= norm:
        for grad in grads:
            grad.mul_(max_norm / (norm + 1e-6))
    return norm


def clip_by_norm(grads: list[Tensor], max_norm: float) -> list[Tensor]:
    """Clips the norm of the whole gradient, as PPO does."""
    return [g * torch.clamp(max_norm / (g.norm() + 1e-6), max=1.0) for g in grads]


def clip_by_norm_fixed(grads: list[Tensor], max_norm: float) -> list[Tensor]:
    """One factor for all."""
    norm = torch.stack([g.norm() for g in grads]).norm()
    return [g * torch.clamp(max_norm / (norm + 1e-6), max=1.0) for g in grads]


def update(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor, max_grad_norm: float) -> None:
    """One training step with clipped gradients."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)


def update_fixed(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor, max_grad_norm: float) -> None:
    """Clips what the optimiser is about to use."""
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()


def stepped(make: Any) -> object:
    """Parameters after three steps of given gradients."""
    p = nn.Parameter(torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64))
    optimizer = make([p], lr=0.1, weight_decay=0.5)
    for number in range(3):
        p.grad = torch.tensor([0.5, -1.0, 0.1], dtype=torch.float64) * (number + 1)
        optimizer.step()
    return p.detach()


def fused(step: Any) -> object:
    """Parameters after one step."""
    p, m, v = torch.tensor([1.0, -2.0]), torch.zeros(2), torch.zeros(2)
    step([p], [torch.tensor([0.1, 0.2])], [m], [v], 1, lr=0.1, weight_decay=0.1)
    return p, m, v


def clipped(clip: Any) -> object:
    """The norm and the gradients afterwards."""
    p, q = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))
    p.grad, q.grad = torch.tensor([3.0, 4.0]), torch.tensor([12.0])
    return clip([p, q], 1.0), p.grad, q.grad


def trained(step: Any) -> object:
    """A weight after one update with a large gradient."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    step(model, torch.optim.SGD(model.parameters(), lr=1.0), model(torch.tensor([[10.0]])).sum(), 1.0)
    return model.weight.detach()


BUGS = [
    Bug(
        "decay_after_update",
        "https://github.com/bitsandbytes-foundation/bitsandbytes/issues/2010",
        "optimizers",
        "AdamW decays the parameters that the update has changed already.",
        AdamWLate,
        AdamWLateFixed,
        stepped,
    ),
    Bug(
        "decay_without_parameter",
        "https://github.com/e-sensing/torchopt/pull/14",
        "optimizers",
        "AdamW subtracts the decay itself, not the decay times the parameter.",
        AdamWConstant,
        AdamWLateFixed,
        stepped,
    ),
    Bug(
        "adamw_is_adam_with_l2",
        "https://github.com/keras-team/keras/issues/19051",
        "optimizers",
        "AdamW inherits a step that adds the decay to the gradient: an L2 penalty, not a decoupled decay.",
        AdamWSubclass,
        AdamWLateFixed,
        stepped,
    ),
    Bug(
        "adam_with_decoupled_decay",
        "https://github.com/flagos-ai/FlagGems/pull/4989",
        "optimizers",
        "Adam decays the parameters apart from the gradient, so that the moments never see the penalty.",
        fused_adam,
        fused_adam_fixed,
        fused,
    ),
    Bug(
        "norm_squared_twice",
        "https://github.com/paiml/entrenar/issues/311",
        "optimizers",
        "The global norm squares sums of squares again, so that gradients are clipped far too much.",
        clip_gradients,
        clip_gradients_fixed,
        clipped,
    ),
    Bug(
        "norm_of_each_tensor",
        "https://github.com/anthonytorlucci/rlevo/issues/328",
        "optimizers",
        "The norm of each tensor is clipped, where the global norm is meant.",
        clip_by_norm,
        clip_by_norm_fixed,
        lambda f: f([torch.tensor([3.0, 4.0]), torch.tensor([0.1])], 1.0),
    ),
    Bug(
        "clipped_after_step",
        "https://github.com/awslabs/graphstorm/pull/1382",
        "optimizers",
        "Gradients are clipped after the optimiser has used them.",
        update,
        update_fixed,
        trained,
    ),
]
