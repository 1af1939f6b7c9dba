"""Action distributions: densities that do not belong to the sampler, entropies, modes."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Normal
from torch.nn import functional

from .bug import Bug


class MeanSquashedActor(nn.Module):
    """A Gaussian actor whose mean lies in [-1, 1]."""

    def __init__(self, obs_dim: int, act_dim: int):
        super().__init__()
        self.mu = nn.Linear(obs_dim, act_dim)
        self.log_std = nn.Parameter(torch.full((act_dim,), -0.5))

    def forward(self, obs: Tensor) -> Normal:
        return Normal(torch.tanh(self.mu(obs)), self.log_std.exp())

    def sample(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        dist = self(obs)
        action = dist.sample()
        return action, self.log_prob(obs, action)

    def log_prob(self, obs: Tensor, action: Tensor) -> Tensor:
        logp: Tensor = self(obs).log_prob(action).sum(-1)
        correction = 2 * (math.log(2) - action - functional.softplus(-2 * action))
        return logp - correction.sum(-1)


class MeanSquashedActorFixed(MeanSquashedActor):
    """The tanh is on the mean alone, so the density of a sample is that of the Gaussian."""

    def log_prob(self, obs: Tensor, action: Tensor) -> Tensor:
        logp: Tensor = self(obs).log_prob(action).sum(-1)
        return logp


def squashed_sample(mean: Tensor, log_std: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """A tanh-squashed Gaussian action [B, A] and its log-prob [B]."""
    std = log_std.exp()
    noise = torch.randn(mean.shape, generator=generator)
    action = torch.tanh(mean + std * noise)
    pre = torch.atanh(action.clamp(-1 + 1e-6, 1 - 1e-6))
    logp = Normal(mean, std).log_prob(pre) - torch.log(1 - torch.tanh(pre) ** 2 + 1e-6)
    return action, logp.sum(-1)


def squashed_sample_fixed(
    mean: Tensor, log_std: Tensor, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """The same, from the value before the tanh."""
    std = log_std.exp()
    noise = torch.randn(mean.shape, generator=generator)
    pre = mean + std * noise
    logp = Normal(mean, std).log_prob(pre) - 2 * (math.log(2) - pre - functional.softplus(-2 * pre))
    return torch.tanh(pre), logp.sum(-1)


class ScaledActor(nn.Module):
    """SAC's actor for actions in [-max_action, max_action]."""

    def __init__(self, obs_dim: int = 3, act_dim: int = 2, max_action: float = 2.0):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, 16), nn.ReLU())
        self.mu, self.sigma = nn.Linear(16, act_dim), nn.Linear(16, act_dim)
        self.max_action = max_action

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.body(state)
        return self.mu(hidden), self.sigma(hidden).clamp(-5, 1).exp()

    def sample_normal(self, state: Tensor) -> tuple[Tensor, Tensor]:
        mu, sigma = self(state)
        raw = Normal(mu, sigma).rsample()
        action = torch.tanh(raw) * self.max_action
        log_probs = Normal(mu, sigma).log_prob(raw) - torch.log(1 - action.pow(2) + 1e-6)
        return action, log_probs.sum(-1)


class ScaledActorFixed(ScaledActor):
    """The change of variables is that of tanh, then that of the scale."""

    def sample_normal(self, state: Tensor) -> tuple[Tensor, Tensor]:
        mu, sigma = self(state)
        raw = Normal(mu, sigma).rsample()
        action = torch.tanh(raw) * self.max_action
        jacobian = self.max_action * (1 - torch.tanh(raw).pow(2)) + 1e-6
        return action, (Normal(mu, sigma).log_prob(raw) - torch.log(jacobian)).sum(-1)


class SparseCategorical:
    """A categorical over the few actions that are allowed, given by their indices [K] among `num_actions`."""

    def __init__(self, logits: Tensor, indices: Tensor):
        self.num_actions = logits.shape[-1]
        self.indices = indices
        self.inner = Categorical(logits=logits[..., indices])

    def sample(self) -> Tensor:
        return self.indices[self.inner.sample()]

    def log_prob(self, value: Tensor) -> Tensor:
        match = value.unsqueeze(-1) == self.indices
        logp = torch.where(match, self.inner.logits, torch.full_like(self.inner.logits, -torch.inf))
        return logp.max(-1).values

    def entropy(self) -> Tensor:
        entropy: Tensor = self.inner.entropy()
        return entropy

    @property
    def mode(self) -> Tensor:
        return self.inner.logits.argmax(-1)


class SparseCategoricalFixed(SparseCategorical):
    """The mode is an action, as a sample is."""

    @property
    def mode(self) -> Tensor:
        return self.indices[self.inner.logits.argmax(-1)]


class TruncatedGaussian:
    """A Gaussian restricted to [low, high]."""

    def __init__(self, loc: Tensor, scale: Tensor, low: float = -1.0, high: float = 1.0):
        self.loc, self.scale, self.low, self.high = loc, scale, low, high
        self.standard = Normal(torch.zeros_like(loc), torch.ones_like(scale))
        self.alpha, self.beta = (low - loc) / scale, (high - loc) / scale
        self.z = (self.standard.cdf(self.beta) - self.standard.cdf(self.alpha)).clamp_min(1e-8)
        self.entropy: Any = self.differential_entropy()

    def differential_entropy(self) -> Tensor:
        pdf_a, pdf_b = self.standard.log_prob(self.alpha).exp(), self.standard.log_prob(self.beta).exp()
        edge = (self.alpha * pdf_a - self.beta * pdf_b) / (2 * self.z)
        return 0.5 * math.log(2 * math.pi * math.e) + (self.scale * self.z).log() + edge

    def rsample(self) -> Tensor:
        u = self.standard.cdf(self.alpha) + torch.rand_like(self.loc) * self.z
        return (self.loc + self.scale * self.standard.icdf(u.clamp(1e-6, 1 - 1e-6))).clamp(self.low, self.high)

    def log_prob(self, value: Tensor) -> Tensor:
        inside = (value >= self.low) & (value <= self.high)
        logp = self.standard.log_prob((value - self.loc) / self.scale) - self.scale.log() - self.z.log()
        return logp.masked_fill(~inside, -torch.inf)


class TruncatedGaussianFixed(TruncatedGaussian):
    """`entropy()` is a method, as of any distribution."""

    def __init__(self, loc: Tensor, scale: Tensor, low: float = -1.0, high: float = 1.0):
        super().__init__(loc, scale, low, high)
        self.entropy = self.differential_entropy


def act_clipped(
    mean: Tensor, std: Tensor, low: float, high: float, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """An action for an env with bounds, and the log-prob that PPO stores."""
    dist = Normal(mean, std)
    raw = mean + std * torch.randn(mean.shape, generator=generator)
    return raw.clamp(low, high), dist.log_prob(raw).sum(-1)


def act_clipped_fixed(
    mean: Tensor, std: Tensor, low: float, high: float, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """The action as it was drawn; whoever steps the env clips."""
    del low, high
    raw = mean + std * torch.randn(mean.shape, generator=generator)
    return raw, Normal(mean, std).log_prob(raw).sum(-1)


class ContinuousPolicy(nn.Module):
    """A PPO actor with a state-independent standard deviation."""

    def __init__(self, state_dim: int = 3, action_dim: int = 2):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(state_dim, 16), nn.Tanh(), nn.Linear(16, action_dim))
        self.action_std_log = nn.Parameter(torch.zeros(action_dim))

    def get_action(self, state: Tensor) -> tuple[Tensor, Tensor]:
        dist = Normal(self.net(state), self.action_std_log.exp())
        action = dist.sample()
        return action, dist.log_prob(action)

    def get_logprob_entropy(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        dist = Normal(self.net(state), self.action_std_log.exp())
        return dist.log_prob(action).sum(-1), dist.entropy().sum(-1)


class ContinuousPolicyFixed(ContinuousPolicy):
    """One log-prob for each action, whenever it is computed."""

    def get_action(self, state: Tensor) -> tuple[Tensor, Tensor]:
        action, logp = super().get_action(state)
        return action, logp.sum(-1)


class TwiceSquashedActor(nn.Module):
    """The SAC actor of a course."""

    def __init__(self, state_dim: int = 3, hidden_dim: int = 16, action_dim: int = 1, action_bound: float = 1.0):
        super().__init__()
        self.fc1 = nn.Linear(state_dim, hidden_dim)
        self.fc_mu, self.fc_std = nn.Linear(hidden_dim, action_dim), nn.Linear(hidden_dim, action_dim)
        self.action_bound = action_bound

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = functional.relu(self.fc1(x))
        dist = Normal(self.fc_mu(x), functional.softplus(self.fc_std(x)))
        normal_sample = dist.rsample()
        action = torch.tanh(normal_sample)
        log_prob = dist.log_prob(normal_sample) - torch.log(1 - torch.tanh(action).pow(2) + 1e-7)
        return action * self.action_bound, log_prob


class TwiceSquashedActorFixed(TwiceSquashedActor):
    """`action` is squashed already."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = functional.relu(self.fc1(x))
        dist = Normal(self.fc_mu(x), functional.softplus(self.fc_std(x)))
        normal_sample = dist.rsample()
        action = torch.tanh(normal_sample)
        log_prob = dist.log_prob(normal_sample) - torch.log(1 - action.pow(2) + 1e-7)
        return action * self.action_bound, log_prob - math.log(self.action_bound)


class CachedTanhNormal:
    """A tanh-squashed Gaussian over [-1, 1], with the value before the tanh of the newest sample kept."""

    def __init__(self, loc: Tensor, scale: Tensor):
        self.base = Normal(loc, scale)
        self.action: Tensor | None = None
        self.pre: Tensor | None = None

    def rsample(self) -> Tensor:
        self.pre = self.base.rsample()
        self.action = torch.tanh(self.pre)
        return self.action

    def inverse(self, value: Tensor) -> Tensor:
        edge = 1 - torch.finfo(value.dtype).eps
        return torch.atanh(value.clamp(-edge, edge))

    def log_prob(self, value: Tensor) -> Tensor:
        pre = self.inverse(value)
        return (self.base.log_prob(pre) - 2 * (math.log(2) - pre - functional.softplus(-2 * pre))).sum(-1)


class CachedTanhNormalFixed(CachedTanhNormal):
    """A sample's own value before the tanh, wherever it is still known."""

    def inverse(self, value: Tensor) -> Tensor:
        known = value is self.action and self.pre is not None
        return self.pre if known and self.pre is not None else super().inverse(value)


def seeded(make: Any, *args: Any) -> Any:
    """The same parameters for both."""
    torch.manual_seed(0)
    return make(*args)


def of_samples(actor: Any, method: str = "sample", *inputs: Any) -> object:
    """The log-probs that come with samples."""
    torch.manual_seed(1)
    return getattr(actor, method)(*inputs)[1]


def saturated(distribution: Any) -> object:
    """The log-prob of a sample of a confident policy."""
    made = seeded(distribution, torch.tensor([12.0]), torch.tensor([0.5]))
    return made.log_prob(made.rsample())


BUGS = [
    Bug(
        "tanh_on_mean_corrected",
        "https://github.com/hwang-ua/inac_pytorch/issues/1",
        "distributions",
        "The tanh squashes the mean and not the sample, yet the log-prob is corrected as if it squashed the sample.",
        MeanSquashedActor,
        MeanSquashedActorFixed,
        lambda actor: of_samples(seeded(actor, 3, 2), "sample", torch.ones(4, 3)),
    ),
    Bug(
        "atanh_of_clamped_action",
        "https://github.com/ray-project/ray/pull/65036",
        "distributions",
        "The value before the tanh is recovered from the clamped action: the log-prob of a saturated policy is far off.",
        squashed_sample,
        squashed_sample_fixed,
        lambda f: f(torch.full((2, 1), 12.0), torch.zeros(2, 1), torch.Generator().manual_seed(0))[1],
    ),
    Bug(
        "tanh_correction_of_scaled_action",
        "https://github.com/philtabor/Actor-Critic-Methods-Paper-To-Code/issues/7",
        "distributions",
        "The tanh's correction is taken of the action times its bound: the logarithm of a negative number.",
        ScaledActor,
        ScaledActorFixed,
        lambda actor: of_samples(seeded(actor), "sample_normal", torch.ones(8, 3)),
    ),
    Bug(
        "tanh_taken_twice",
        "https://github.com/boyu-ai/Hands-on-RL/issues/44",
        "distributions",
        "The correction squashes an action that is squashed already.",
        TwiceSquashedActor,
        TwiceSquashedActorFixed,
        lambda actor: of_samples(seeded(actor), "forward", torch.ones(8, 3)),
    ),
    Bug(
        "saturated_sample_rescored",
        "https://github.com/pytorch/rl/pull/4080",
        "distributions",
        "Scoring a saturated sample inverts the tanh, which finite precision does not allow.",
        CachedTanhNormal,
        CachedTanhNormalFixed,
        saturated,
    ),
    Bug(
        "mode_is_an_offset",
        "https://github.com/pytorch/rl/pull/4113",
        "distributions",
        "The mode of a categorical over few allowed actions is an offset among them, not an action.",
        SparseCategorical,
        SparseCategoricalFixed,
        lambda d: d(torch.tensor([0.0, 5.0, 1.0, 0.0]), torch.tensor([0, 2])).mode,
    ),
    Bug(
        "entropy_is_no_method",
        "https://github.com/pytorch/rl/issues/1534",
        "distributions",
        "`entropy` is an attribute that holds a tensor: calling it raises.",
        TruncatedGaussian,
        TruncatedGaussianFixed,
        lambda d: d(torch.zeros(1), torch.ones(1)).entropy(),
    ),
    Bug(
        "clipped_action_with_raw_log_prob",
        "https://github.com/kuds/mesozoic-labs/pull/408",
        "distributions",
        "The action is clipped to the bounds after its log-prob was taken, so the two do not belong together.",
        act_clipped,
        act_clipped_fixed,
        lambda f: f(torch.full((4, 1), 0.9), torch.ones(1), -1.0, 1.0, torch.Generator().manual_seed(0))[0],
    ),
    Bug(
        "log_prob_for_each_dimension",
        "https://github.com/AI4Finance-Foundation/ElegantRL/pull/273",
        "distributions",
        "Sampling gives a log-prob for each dimension of the action, the update one for each action.",
        ContinuousPolicy,
        ContinuousPolicyFixed,
        lambda actor: of_samples(seeded(actor), "get_action", torch.ones(4, 3)),
    ),
]
