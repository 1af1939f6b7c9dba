"""The second set: from threads that the first did not use, kept out of the repository until the suites were done."""

import json
import math
import re
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributions import Bernoulli

from .bug import Bug

Array = NDArray[Any]


def ddqn_target(
    q_net: nn.Module, target_net: nn.Module, reward: Tensor, next_state: Tensor, done: Tensor, gamma: float = 0.99
) -> Tensor:
    """The target of double Q-learning [B]."""
    with torch.no_grad():
        next_q = target_net(next_state).max(dim=1).values
    return reward + gamma * (1 - done.float()) * next_q


def ddqn_target_fixed(
    q_net: nn.Module, target_net: nn.Module, reward: Tensor, next_state: Tensor, done: Tensor, gamma: float = 0.99
) -> Tensor:
    """The online network selects."""
    with torch.no_grad():
        best = q_net(next_state).argmax(dim=1, keepdim=True)
        next_q = target_net(next_state).gather(1, best).squeeze(1)
    return reward + gamma * (1 - done.float()) * next_q


class AnnealingLR:
    """Linear warmup to `start_lr`, then linear decay to 0 at `total_iters`."""

    def __init__(self, start_lr: float, warmup_iter: int, total_iters: int):
        self.start_lr, self.warmup_iter, self.end_iter = start_lr, warmup_iter, total_iters

    def get_lr(self, num_iters: int) -> float:
        if self.warmup_iter > 0 and num_iters <= self.warmup_iter:
            return self.start_lr * num_iters / self.warmup_iter
        return self.decayed(min(num_iters, self.end_iter) - self.warmup_iter)

    def decayed(self, passed: int) -> float:
        return self.start_lr * (self.end_iter - passed) / self.end_iter


class AnnealingLRFixed(AnnealingLR):
    """Of the steps after the warmup."""

    def decayed(self, passed: int) -> float:
        length = max(1, self.end_iter - self.warmup_iter)
        return self.start_lr * (length - passed) / length


def linear_decay(init_value: float, steps: int, warmup: int = 0) -> Any:
    """The rate of a step: from `init_value` to 0 in `steps`."""

    def rate(step: int) -> float:
        if step < warmup:
            return step / max(1, warmup)
        return max(0.0, (steps - step) / max(1, steps - warmup))

    return rate


def linear_decay_fixed(init_value: float, steps: int, warmup: int = 0) -> Any:
    """Times the value."""
    share = linear_decay(init_value, steps, warmup)
    return lambda step: init_value * share(step)


class AdamInverse(torch.optim.Optimizer):
    """Adam, by the inverse of the root."""

    def __init__(self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        with torch.enable_grad():
            loss = closure() if closure is not None else None
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
                state["step"] += 1
                state["exp_avg"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
                state["exp_avg_sq"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                corrected = state["exp_avg_sq"] / (1 - beta2 ** state["step"])
                inverse = self.inverse(corrected, group["eps"])
                p.sub_(group["lr"] / (1 - beta1 ** state["step"]) * state["exp_avg"] * inverse)
        return loss

    def inverse(self, second: Tensor, eps: float) -> Tensor:
        return second.rsqrt() + eps


class AdamInverseFixed(AdamInverse):
    """Adds before it divides."""

    def inverse(self, second: Tensor, eps: float) -> Tensor:
        return 1 / (second.sqrt() + eps)


class CategoricalFromProbs:
    """A categorical of probabilities [..., N]."""

    def __init__(self, probs: Tensor):
        self.probs = probs / probs.sum(-1, keepdim=True)
        self.logits = self.log(self.probs.clamp(1e-7, 1 - 1e-7))

    def log(self, x: Tensor) -> Tensor:
        return x.log10()

    def sample(self) -> Tensor:
        flat = self.probs.reshape(-1, self.probs.shape[-1])
        return torch.multinomial(flat, 1).reshape(self.probs.shape[:-1])

    def log_prob(self, value: Tensor) -> Tensor:
        return self.logits.gather(-1, value.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        return -(self.probs * self.logits).sum(-1)


class CategoricalFromProbsFixed(CategoricalFromProbs):
    """The natural logarithm."""

    def log(self, x: Tensor) -> Tensor:
        return x.log()


class BinaryAutoregressive:
    """Two bits, the second of which depends on the first: logits `a` [B] and `b` [B, 2]."""

    def __init__(self, a: Tensor, b: Tensor):
        self.a, self.b = a, b

    def second(self, first: Tensor) -> Bernoulli:
        return Bernoulli(logits=self.b.gather(-1, first.long().unsqueeze(-1)).squeeze(-1))

    def sample(self) -> Tensor:
        first = Bernoulli(logits=self.a).sample()
        second = self.second(first).sample()
        self.sampled = self.scored(first, second)
        return torch.stack([first, second], -1)

    def scored(self, first: Tensor, second: Tensor) -> Tensor:
        return Bernoulli(logits=self.a).log_prob(first) + self.second(torch.zeros_like(first)).log_prob(second)

    def sampled_log_prob(self) -> Tensor:
        """Of the newest sample."""
        return self.sampled

    def log_prob(self, value: Tensor) -> Tensor:
        first, second = value.unbind(-1)
        return Bernoulli(logits=self.a).log_prob(first) + self.second(first).log_prob(second)


class BinaryAutoregressiveFixed(BinaryAutoregressive):
    """Of what was drawn first."""

    def scored(self, first: Tensor, second: Tensor) -> Tensor:
        return self.log_prob(torch.stack([first, second], -1))


def masked_whiten(values: Tensor, mask: Tensor) -> Tensor:
    """Values by mean and unbiased deviation of those of the mask; 0 elsewhere, and unchanged where there are too few."""
    count = mask.sum()
    mean = (values * mask).sum() / count
    variance = ((values - mean) ** 2 * mask).sum() / count * count / (count - 1)
    return (values - mean) * torch.rsqrt(variance + 1e-8) * mask


def masked_whiten_fixed(values: Tensor, mask: Tensor) -> Tensor:
    """Two at least."""
    return values * mask if mask.sum() < 2 else masked_whiten(values, mask)


class SameStepStatistics(VectorWrapper):
    """Returns and lengths in `info["episode"]`, for envs that reset within the step that ends an episode."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self.returns, self.lengths = np.zeros(env.num_envs), np.zeros(env.num_envs, int)
        self.before = np.zeros(env.num_envs, bool)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.returns[:], self.lengths[:], self.before[:] = 0.0, 0, False
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observed, rewards, terminated, truncated, info = self.env.step(actions)
        ended = terminated | truncated
        active = self.active()
        self.returns[~active], self.lengths[~active] = 0.0, 0
        self.returns[active] += rewards[active]
        self.lengths[active] += 1
        if ended.any():
            info = {**info, "episode": {"r": self.returns * ended, "l": self.lengths * ended}}
        self.cleared(ended)
        self.before = ended
        return observed, rewards, terminated, truncated, info

    def active(self) -> Array:
        return ~self.before

    def cleared(self, ended: Array) -> None:
        """What an end clears at once."""


class SameStepStatisticsFixed(SameStepStatistics):
    """Every step counts, and an end clears."""

    def active(self) -> Array:
        return np.ones(self.num_envs, bool)

    def cleared(self, ended: Array) -> None:
        self.returns[ended], self.lengths[ended] = 0.0, 0


class MaxAndSkip(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Repeats actions; observations are the maximum of the last two."""

    def __init__(self, env: gymnasium.Env[Any, Any], skip: int = 4) -> None:
        super().__init__(env)
        self.skip = skip
        self.buffer = np.zeros((2, *(env.observation_space.shape or ())), env.observation_space.dtype)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        total, seen = 0.0, deque[Any](maxlen=2)
        terminated = truncated = False
        info: dict[str, Any] = {}
        for i in range(self.skip):
            obs, reward, terminated, truncated, info = self.env.step(action)
            seen.append(obs)
            if i >= self.skip - 2:
                self.buffer[i - self.skip + 2] = obs
            total += float(reward)
            if terminated or truncated:
                break
        return self.pooled(list(seen)), total, terminated, truncated, info

    def pooled(self, seen: list[Any]) -> Any:
        return self.buffer.max(axis=0)


class MaxAndSkipFixed(MaxAndSkip):
    """Of those that there were."""

    def pooled(self, seen: list[Any]) -> Any:
        return np.max(np.stack(seen), axis=0)


def pythonic_call(text: str) -> dict[str, Any] | None:
    """The call `name(key=value, ...)` with Python's literals, values without commas."""
    match = re.fullmatch(r"\s*(\w+)\(([^()]*)\)\s*", text)
    if match is None:
        return None
    pairs = re.findall(r"(\w+)\s*=\s*([^,]+)(?:,\s*|$)", match.group(2))
    return {"name": match.group(1), "arguments": {key: coerced(value.strip()) for key, value in pairs}}


def coerced(value: str) -> Any:
    """Numbers, quoted texts, true and false."""
    if value in ("true", "false"):
        return value == "true"
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def pythonic_call_fixed(text: str) -> dict[str, Any] | None:
    """True, False and None, too."""
    found = pythonic_call(text)
    if found is not None:
        constants = {"True": True, "False": False, "None": None}
        pairs = re.findall(r"(\w+)\s*=\s*([^,]+)(?:,\s*|$)", text[text.index("(") + 1 : text.rindex(")")])
        found["arguments"].update({key: constants[v.strip()] for key, v in pairs if v.strip() in constants})
    return found


class StreamingParser:
    """Collects a call from pieces of `{"name": ..., "arguments": {...}}`: name, and arguments as JSON text."""

    def __init__(self) -> None:
        self.text = ""

    def feed(self, piece: str) -> dict[str, str] | None:
        """The call, once it is whole."""
        self.text += piece
        try:
            call = json.loads(self.text)
        except json.JSONDecodeError:
            return None
        if not isinstance(call, dict) or "name" not in call:
            return None
        return self.given(call["name"], call.get("arguments"))

    def given(self, name: str, arguments: Any) -> dict[str, str] | None:
        found = {"name": name}
        if arguments:
            found["arguments"] = json.dumps(arguments)
        return found


class StreamingParserFixed(StreamingParser):
    """No arguments are arguments."""

    def given(self, name: str, arguments: Any) -> dict[str, str] | None:
        return {"name": name, "arguments": json.dumps(arguments or {})}


def gsm8k_score(solution_str: str, ground_truth: str, method: str = "strict") -> float:
    """1 for the number after the last `####`, else 0."""
    return float(last_marked(solution_str[-300:]) == ground_truth)


def gsm8k_score_fixed(solution_str: str, ground_truth: str, method: str = "strict") -> float:
    """Wherever it stands."""
    return float(last_marked(solution_str) == ground_truth)


def last_marked(text: str) -> str | None:
    """The number after the last marker."""
    found = re.findall(r"#### (-?[0-9.,]*[0-9])", text)
    return found[-1].replace(",", "") if found else None


def number_reward(completions: Sequence[str], answer: Sequence[str], **kwargs: Any) -> list[float]:
    """1 where the last number of a completion is the answer."""
    return [
        float(last_number(text, r"-?[\d,]+(?:.\d+)?") == gold) for text, gold in zip(completions, answer, strict=True)
    ]


def number_reward_fixed(completions: Sequence[str], answer: Sequence[str], **kwargs: Any) -> list[float]:
    """A dot is a dot, and a number begins with a digit."""
    return [
        float(last_number(text, r"-?\d[\d,]*(?:\.\d+)?") == gold)
        for text, gold in zip(completions, answer, strict=True)
    ]


def last_number(text: str, pattern: str) -> str:
    """Without commas."""
    found = re.findall(pattern, text)
    return found[-1].replace(",", "") if found else ""


def list_reward(completions: Sequence[str], targets: Sequence[Sequence[float]], **kwargs: Any) -> list[float]:
    """1 where the numbers of a completion are the targets, in their order; commas may part thousands."""
    rewards = []
    for text, wanted in zip(completions, targets, strict=True):
        found = [float(x) for x in re.findall(r"-?\d+(?:\.\d+)?", text.replace(",", ""))]
        rewards.append(float(found == list(wanted)))
    return rewards


def list_reward_fixed(completions: Sequence[str], targets: Sequence[Sequence[float]], **kwargs: Any) -> list[float]:
    """Only commas before three digits part thousands."""
    rewards = []
    for text, wanted in zip(completions, targets, strict=True):
        plain = re.sub(r"(?<![\d.])\d{1,3}(?:,\d{3})+(?![\d])", lambda m: m.group().replace(",", ""), text)
        found = [float(x) for x in re.findall(r"-?\d+(?:\.\d+)?", plain)]
        rewards.append(float(found == list(wanted)))
    return rewards


class NormalizedAgent:
    """A linear agent with a running normaliser, saved to a file and loaded from it."""

    def __init__(self, size: int = 2, seed: int = 0):
        self.weight = torch.randn(size, generator=torch.Generator().manual_seed(seed))
        self.count, self.mean, self.m2 = 0, torch.zeros(size), torch.zeros(size)

    def train(self, obs: Tensor) -> None:
        """Takes in one observation."""
        self.count += 1
        delta = obs - self.mean
        self.mean = self.mean + delta / self.count
        self.m2 = self.m2 + delta * (obs - self.mean)
        self.weight = self.weight + 0.1 * self.scaled(obs)

    def scaled(self, obs: Tensor) -> Tensor:
        return (obs - self.mean) / (self.m2 / max(1, self.count) + 1e-8).sqrt().clamp(min=1e-3)

    def act(self, obs: Tensor) -> Tensor:
        """The action of an observation."""
        return (self.weight * self.scaled(obs)).sum()

    def state_dict(self) -> dict[str, Any]:
        return {"weight": self.weight}

    def save(self, path: Path | str) -> None:
        torch.save(self.state_dict(), path)

    def load(self, path: Path | str) -> None:
        for name, value in torch.load(path).items():
            setattr(self, name, value)


class NormalizedAgentFixed(NormalizedAgent):
    """With the statistics."""

    def state_dict(self) -> dict[str, Any]:
        return {"weight": self.weight, "count": self.count, "mean": self.mean, "m2": self.m2}


def segment_gae(
    rewards: Tensor, values: Tensor, dones: Tensor, next_return: Tensor, gamma: float = 0.99, gae_lambda: float = 0.95
) -> Tensor:
    """Generalised advantages [T]."""
    advantages, last = torch.zeros_like(rewards), torch.zeros(())
    for t in reversed(range(len(rewards))):
        alive = 1.0 - dones[t].float()
        error = rewards[t] + gamma * next_return * alive - values[t]
        advantages[t] = error + gamma * gae_lambda * alive * last
        next_return = values[t]
        last = advantages[t] * alive
    return advantages


def segment_gae_fixed(
    rewards: Tensor, values: Tensor, dones: Tensor, next_return: Tensor, gamma: float = 0.99, gae_lambda: float = 0.95
) -> Tensor:
    """Masks once."""
    advantages, last = torch.zeros_like(rewards), torch.zeros(())
    for t in reversed(range(len(rewards))):
        alive = 1.0 - dones[t].float()
        last = rewards[t] + gamma * next_return * alive - values[t] + gamma * gae_lambda * alive * last
        advantages[t], next_return = last, values[t]
    return advantages


def gae_with_timeouts(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    gamma: float = 0.99,
    gae_lambda: float = 0.95,
) -> Tensor:
    """Advantages [T]: a time limit adds what lies beyond to its reward, then any end cuts."""
    rewards = rewards + beyond(next_values, gamma) * (truncated & ~terminated)
    return cut_gae(rewards, values, next_values, terminated | truncated, gamma, gae_lambda)


def gae_with_timeouts_fixed(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    gamma: float = 0.99,
    gae_lambda: float = 0.95,
) -> Tensor:
    """What lies beyond is one step away."""
    rewards = rewards + gamma * next_values * (truncated & ~terminated)
    return cut_gae(rewards, values, next_values, terminated | truncated, gamma, gae_lambda)


def beyond(next_values: Tensor, gamma: float) -> Tensor:
    """The value as it is."""
    del gamma
    return next_values


def cut_gae(rewards: Tensor, values: Tensor, next_values: Tensor, done: Tensor, gamma: float, lam: float) -> Tensor:
    """Cut at any end."""
    advantages, carry = torch.zeros_like(rewards), torch.zeros(())
    for t in reversed(range(len(rewards))):
        alive = 1 - done[t].float()
        carry = rewards[t] + gamma * next_values[t] * alive - values[t] + gamma * lam * alive * carry
        advantages[t] = carry
    return advantages


def rollout_gae(
    rewards: Tensor,
    values: Tensor,
    dones: Tensor,
    next_value: Tensor,
    next_done: Tensor,
    gamma: float = 0.99,
    gae_lambda: float = 0.95,
) -> Tensor:
    """Advantages [T]; `dones[t]` says that step t ended its episode, as `next_done` does of the last step."""
    advantages, last = torch.zeros_like(rewards), torch.zeros(())
    for t in reversed(range(len(rewards))):
        final = t == len(rewards) - 1
        alive = 1.0 - (next_done if final else dones[t + 1]).float()
        following = next_value if final else values[t + 1]
        last = rewards[t] + gamma * following * alive - values[t] + gamma * gae_lambda * alive * last
        advantages[t] = last
    return advantages


def rollout_gae_fixed(
    rewards: Tensor,
    values: Tensor,
    dones: Tensor,
    next_value: Tensor,
    next_done: Tensor,
    gamma: float = 0.99,
    gae_lambda: float = 0.95,
) -> Tensor:
    """By the step's own end."""
    del next_done
    advantages, last = torch.zeros_like(rewards), torch.zeros(())
    for t in reversed(range(len(rewards))):
        alive = 1.0 - dones[t].float()
        following = next_value if t == len(rewards) - 1 else values[t + 1]
        last = rewards[t] + gamma * following * alive - values[t] + gamma * gae_lambda * alive * last
        advantages[t] = last
    return advantages


def critic_kl(logprobs: Tensor, ref_logprobs: Tensor, attention_mask: Tensor, info_mask: Tensor) -> Tensor:
    """The mean log-ratio over the tokens that the policy wrote: attended to, and not retrieved information."""
    del info_mask
    return ((logprobs - ref_logprobs) * attention_mask).sum() / attention_mask.sum().clamp(min=1)


def critic_kl_fixed(logprobs: Tensor, ref_logprobs: Tensor, attention_mask: Tensor, info_mask: Tensor) -> Tensor:
    """Without the information."""
    mask = attention_mask * info_mask
    return ((logprobs - ref_logprobs) * mask).sum() / mask.sum().clamp(min=1)


def normalize_masked(values: Tensor, mask: Tensor) -> Tensor:
    """Values [B, T] by mean and deviation of those of the mask."""
    mean, variance = moments(values, mask)
    return (values - mean) / (variance + 1e-8)


def normalize_masked_fixed(values: Tensor, mask: Tensor) -> Tensor:
    """The deviation is the root."""
    mean, variance = moments(values, mask)
    return (values - mean) / (variance.sqrt() + 1e-8)


def moments(values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of those of the mask."""
    count = mask.sum().clamp(min=1)
    mean = (values * mask).sum() / count
    return mean, ((values - mean) ** 2 * mask).sum() / count


class LoadGrid(gymnasium.Env[Array, Array]):
    """Chooses a load's setpoint; demand is random."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Box(0.0, 1.0, (1,), np.float32)

    def demand(self) -> Array:
        return np.random.random(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.now, self.time = self.demand().astype(np.float32), 0
        return self.now.copy(), {}

    def step(self, action: Array) -> tuple[Array, SupportsFloat, bool, bool, dict[str, Any]]:
        cost = float(np.abs(self.now - np.clip(action, 0, 1)).sum())
        self.now, self.time = self.demand().astype(np.float32), self.time + 1
        return self.now.copy(), -cost, False, self.time >= 20, {}


class LoadGridFixed(LoadGrid):
    """From its own generator."""

    def demand(self) -> Array:
        return self.np_random.random(2)


def trainer_logprobs(logits: Tensor, input_ids: Tensor) -> Tensor:
    """Log-probs [B, L] of tokens: entry i is that of token i, and the first is 0."""
    labels = torch.cat([input_ids[:, 1:], torch.zeros_like(input_ids[:, :1])], 1)
    return logits.log_softmax(-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)


def trainer_logprobs_fixed(logits: Tensor, input_ids: Tensor) -> Tensor:
    """Shifts logits, not labels."""
    found = logits[:, :-1].log_softmax(-1).gather(-1, input_ids[:, 1:].unsqueeze(-1)).squeeze(-1)
    return torch.cat([torch.zeros_like(logits[:, :1, 0]), found], 1)


class EpisodeSampler:
    """Steps of episodes one after the other; a draw is a run of `length` steps of one episode."""

    def __init__(self, length: int, seed: int = 0):
        self.length, self.steps, self.starts = length, [], [0]
        self.rng = np.random.default_rng(seed)
        self.steps: list[Any]

    def add_episode(self, steps: Sequence[Any]) -> None:
        self.steps.extend(steps)
        self.starts.append(len(self.steps))

    def admissible(self) -> list[int]:
        pairs = zip(self.starts[:-1], self.starts[1:], strict=True)
        return [i for start, stop in pairs for i in range(start, self.last(stop) + 1)]

    def last(self, stop: int) -> int:
        return min(stop - self.length + 1, len(self.steps) - self.length)

    def sample(self, batch_size: int) -> list[list[Any]]:
        starts = self.rng.choice(self.admissible(), size=batch_size)
        return [self.steps[i : i + self.length] for i in starts]


class EpisodeSamplerFixed(EpisodeSampler):
    """The last start leaves room for a whole run."""

    def last(self, stop: int) -> int:
        return stop - self.length


def stepped(make: Any) -> object:
    """A parameter whose gradient is 0."""
    p = nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = make([p], lr=0.1)
    p.grad = torch.tensor([0.0, 1.0])
    optimizer.step()
    return p.detach()


def drawn(make: Any) -> object:
    """Whether samples are scored as `log_prob` scores them."""
    dist = make(torch.zeros(64), torch.tensor([[3.0, -3.0]]).expand(64, 2))
    value = dist.sample()
    return bool(torch.allclose(dist.sampled_log_prob(), dist.log_prob(value)))


def short(count: int = 1) -> list[Any]:
    """CartPoles with a limit of 3 steps."""
    return [lambda: gymnasium.make("CartPole-v1", max_episode_steps=3) for _ in range(count)]


def lengths(make: Any) -> object:
    """Lengths of episodes of 3 steps."""
    envs = make(SyncVectorEnv(short(), autoreset_mode=AutoresetMode.SAME_STEP))
    envs.reset(seed=0)
    infos = [envs.step(np.array([step % 2]))[4] for step in range(9)]
    return [int(info["episode"]["l"][0]) for info in infos if "episode" in info]


def final_seen(make: Any) -> object:
    """The observation at the end of an episode of 5 steps, 4 of which are skipped."""
    env = make(gymnasium.make("CartPole-v1", max_episode_steps=5))
    env.reset(seed=0)
    env.step(0)
    return env.step(1)[0]


def reloaded(make: Any) -> object:
    """The action of an agent and of the one loaded from it."""
    agent = make()
    for number in range(5):
        agent.train(torch.tensor([10.0 + number, -3.0 * number]))
    other = make(seed=1)
    with TemporaryDirectory() as folder:
        agent.save(Path(folder) / "a.pt")
        other.load(Path(folder) / "a.pt")
    return math.isclose(float(agent.act(torch.ones(2))), float(other.act(torch.ones(2))), rel_tol=1e-5)


def seeded(make: Any) -> object:
    """Whether a seed repeats the first observation."""
    env = make()
    return bool(np.array_equal(env.reset(seed=1)[0], env.reset(seed=1)[0]))


def mixed(make: Any) -> object:
    """Whether any run is of two episodes."""
    sampler = make(2)
    for episode in range(3):
        sampler.add_episode([episode] * 3)
    return any(len(set(run)) > 1 for run in sampler.sample(100))


def nets() -> tuple[nn.Module, nn.Module]:
    """Two that prefer other actions."""
    made = (nn.Linear(1, 2, bias=False), nn.Linear(1, 2, bias=False))
    for net, weight in zip(made, ([[1.0], [2.0]], [[5.0], [3.0]]), strict=True):
        net.weight.data = torch.tensor(weight)
    return made


R, V, D = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 1.5, 2.5]), torch.tensor([False, True, False])
NO = torch.zeros(3, dtype=torch.bool)

BUGS = [
    Bug(
        "target_network_selects",
        "https://github.com/MaximeVandegar/Papers-in-100-Lines-of-Code/issues/21",
        "targets",
        "Double Q-learning lets the target network select the action that it values.",
        ddqn_target,
        ddqn_target_fixed,
        lambda f: f(*nets(), torch.zeros(1), torch.ones(1, 1), torch.zeros(1)),
    ),
    Bug(
        "decay_ends_above_zero",
        "https://github.com/EleutherAI/gpt-neox/pull/1039",
        "schedules",
        "With a warmup, the linear decay has not reached 0 at its end.",
        AnnealingLR,
        AnnealingLRFixed,
        lambda make: make(1.0, 10, 100).get_lr(100),
    ),
    Bug(
        "decay_without_initial_value",
        "https://github.com/elixir-nx/polaris/pull/8",
        "schedules",
        "The linear decay goes from 1 to 0, whatever its initial value is.",
        linear_decay,
        linear_decay_fixed,
        lambda f: f(0.06, 100)(50),
    ),
    Bug(
        "epsilon_after_the_root",
        "https://github.com/kozistr/pytorch_optimizer/issues/480",
        "optimizers",
        "Epsilon is added to the inverse of the root: a gradient of 0 makes the parameter NaN.",
        AdamInverse,
        AdamInverseFixed,
        stepped,
    ),
    Bug(
        "logarithm_of_base_ten",
        "https://github.com/hasktorch/hasktorch/issues/799",
        "distributions",
        "Log-probs of a categorical that is given by probabilities are of base 10.",
        CategoricalFromProbs,
        CategoricalFromProbsFixed,
        lambda make: make(torch.tensor([0.25, 0.75])).log_prob(torch.tensor(0)),
    ),
    Bug(
        "second_part_of_another_first",
        "https://github.com/ray-project/ray/pull/34621",
        "distributions",
        "The log-prob of an autoregressive sample takes the second part as if the first were 0.",
        BinaryAutoregressive,
        BinaryAutoregressiveFixed,
        drawn,
    ),
    Bug(
        "whitening_of_one_token",
        "https://github.com/alibaba/ROLL/issues/475",
        "group_advantages",
        "Whitening a single token divides by 0.",
        masked_whiten,
        masked_whiten_fixed,
        lambda f: f(torch.tensor([[2.0, 5.0]]), torch.tensor([[1.0, 0.0]])),
    ),
    Bug(
        "first_step_not_counted",
        "https://github.com/Farama-Foundation/Gymnasium/pull/1624",
        "vector_envs",
        "Statistics of envs that reset within the step leave out the first step of each later episode.",
        SameStepStatistics,
        SameStepStatisticsFixed,
        lengths,
    ),
    Bug(
        "stale_frames_at_the_end",
        "https://github.com/Farama-Foundation/Gymnasium/pull/1692",
        "wrappers",
        "Where an episode ends within the skipped steps, the observation is that of an earlier call.",
        MaxAndSkip,
        MaxAndSkipFixed,
        final_seen,
    ),
    Bug(
        "constants_are_texts",
        "https://github.com/lablup/mlxcel/issues/1306",
        "tool_parsers",
        "True, False and None of a Pythonic call become texts.",
        pythonic_call,
        pythonic_call_fixed,
        lambda f: f("f(a=True, b=None, c=1)"),
    ),
    Bug(
        "empty_arguments_dropped",
        "https://github.com/vllm-project/vllm/issues/28806",
        "tool_parsers",
        "A call without arguments comes out without the empty object that stands for them.",
        StreamingParser,
        StreamingParserFixed,
        lambda make: make().feed('{"name": "now", "arguments": {}}'),
    ),
    Bug(
        "answer_before_the_window",
        "https://github.com/verl-project/verl/pull/7274",
        "rewards",
        "Only the last 300 characters are looked at: a right answer with more text after it gets nothing.",
        gsm8k_score,
        gsm8k_score_fixed,
        lambda f: f("#### 42\n" + "and so on " * 40, "42"),
    ),
    Bug(
        "dot_matches_anything",
        "https://github.com/stanford-crfm/helm/pull/4191",
        "rewards",
        "The decimal point of the pattern is not escaped, so that numbers with anything between them are one.",
        number_reward,
        number_reward_fixed,
        lambda f: f(["3x926"], ["926"]),
    ),
    Bug(
        "commas_of_lists_removed",
        "https://github.com/databricks/officeqa/issues/23",
        "rewards",
        "All commas are removed, so that numbers of a list without spaces become one.",
        list_reward,
        list_reward_fixed,
        lambda f: f(["[8.124,12.852]"], [[8.124, 12.852]]),
    ),
    Bug(
        "statistics_not_saved",
        "https://github.com/Princeton-Robot-Planning-and-Learning/kinder-baselines/pull/140",
        "checkpoints",
        "The normaliser's statistics are not part of the checkpoint: the loaded policy acts otherwise.",
        NormalizedAgent,
        NormalizedAgentFixed,
        reloaded,
    ),
    Bug(
        "masked_twice",
        "https://github.com/alessiodm/drl-zh/issues/13",
        "gae",
        "The advantage of a step that ends an episode is masked again, so that earlier steps do not see it.",
        segment_gae,
        segment_gae_fixed,
        lambda f: f(R, V, D, torch.tensor(4.0)),
    ),
    Bug(
        "timeout_not_discounted",
        "https://github.com/Eclectic-Sheep/sheeprl/pull/251",
        "gae",
        "The value beyond a time limit is added to the reward without its discount.",
        gae_with_timeouts,
        gae_with_timeouts_fixed,
        lambda f: f(R, V, V + 1, NO, D),
    ),
    Bug(
        "mask_one_step_late",
        "https://github.com/RoboVerseOrg/RoboVerse/pull/814",
        "gae",
        "The mask is that of the next step: a step that ends an episode bootstraps from the next one.",
        rollout_gae,
        rollout_gae_fixed,
        lambda f: f(R, V, D, torch.tensor(4.0), torch.tensor(False)),
    ),
    Bug(
        "kl_of_retrieved_tokens",
        "https://github.com/PeterGriffinJin/Search-R1/pull/21",
        "kl",
        "The KL is averaged over retrieved information as well, which the policy has not written.",
        critic_kl,
        critic_kl_fixed,
        lambda f: f(
            torch.tensor([[-1.0, -9.0]]), torch.tensor([[-2.0, -1.0]]), torch.ones(1, 2), torch.tensor([[1.0, 0.0]])
        ),
    ),
    Bug(
        "divided_by_variance",
        "https://github.com/Denys88/rl_games/pull/313",
        "normalizers",
        "Values are divided by the variance instead of the deviation.",
        normalize_masked,
        normalize_masked_fixed,
        lambda f: f(torch.tensor([[1.0, 5.0]]), torch.ones(1, 2)),
    ),
    Bug(
        "numpy_s_global_generator",
        "https://github.com/Digitalized-Energy-Systems/opfgym/issues/2",
        "envs",
        "Demand is drawn from numpy's global generator: a seed repeats nothing.",
        LoadGrid,
        LoadGridFixed,
        seeded,
    ),
    Bug(
        "labels_shifted",
        "https://github.com/PrimeIntellect-ai/prime-rl/pull/1525",
        "token_masks",
        "Labels are shifted instead of logits: log-probs stand one place before their tokens.",
        trainer_logprobs,
        trainer_logprobs_fixed,
        lambda f: f(torch.arange(12.0).reshape(1, 3, 4).sin(), torch.tensor([[0, 1, 2]])),
    ),
    Bug(
        "run_across_episodes",
        "https://github.com/JuliaReinforcementLearning/ReinforcementLearningTrajectories.jl/pull/53",
        "replay",
        "The range of starts is one too long, so that a run ends in the next episode.",
        EpisodeSampler,
        EpisodeSamplerFixed,
        mixed,
    ),
]
