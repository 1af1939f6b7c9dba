"""How a user would point a suite at each function or class that is known to be right, with what its documentation declares.

Imports of packages stand within functions: each environment has only its own.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from purestep.core.spaces import Box, Discrete
from purestep.properties.adapters import jax, torchrl, verl
from purestep.properties.adapters import stable_baselines3 as sb3
from purestep.properties.adapters.jax import to_arrays, to_tensor
from purestep.properties.suites.aggregate import WEIGHTS, Reduction
from purestep.properties.suites.normalizer import NormalizerFunctions, own_statistics

from .own_bugs.use import Use

ROWS = [
    {"completion": "It is 5.", "answer": "5"},
    {"completion": "so \\boxed{-6}", "answer": "5"},
    {"completion": "", "answer": "-6"},
]
POSITIVE = {"low": 0.0, "event": False}
UNIT = {"low": 0.0, "high": 1.0, "event": False}


def of_mean_and_deviation(kind: Any) -> Any:
    """By location and scale."""
    return lambda mean, log_std: kind(mean, log_std.exp())


def above_one(kind: Any) -> Any:
    """By two parameters above 1, where the density is bounded."""
    return lambda first, second: kind(1 + first.exp(), 1 + second.exp())


def mixture(kind: Any) -> Any:
    """Of two Gaussians."""

    def make(mean: Tensor, log_std: Tensor) -> Any:
        parts = torch.distributions.Normal(torch.stack([mean, mean + 1], -1), torch.stack([log_std, log_std], -1).exp())
        return kind(torch.distributions.Categorical(logits=torch.zeros_like(parts.loc)), parts)

    return make


def squashed(kind: Any) -> Any:
    """A Gaussian and tanh, which keeps what it has squashed."""
    tanh = torch.distributions.transforms.TanhTransform
    return lambda mean, log_std: kind(torch.distributions.Normal(mean, log_std.exp()), [tanh(cache_size=1)])


def by_covariance(kind: Any) -> Any:
    """With a diagonal covariance."""
    return lambda mean, log_std: kind(mean, scale_tril=torch.diag_embed(log_std.exp()))


def on_numpy(make: Callable[..., Any], scale: Any = None) -> Any:
    """A running mean and variance that changes in place."""
    return NormalizerFunctions(
        lambda shape: make(shape=shape), lambda s, x: (s.update(x), None)[1], lambda s: s.mean, lambda s: s.var, scale
    )


def clips(clip: Any) -> Any:
    """Gradient descent with clipped gradients."""

    class Clipped(torch.optim.SGD):
        """Clips, then steps."""

        def step(self, closure: Any = None) -> Any:
            clip([p for group in self.param_groups for p in group["params"]], 1.0)
            return super().step(closure)

    return Clipped


def short() -> Any:
    """CartPole with a limit of 6 steps."""
    import gymnasium

    return gymnasium.make("CartPole-v1", max_episode_steps=6)


def wrapped(*arguments: Any, **words: Any) -> Callable[[Any], Any]:
    """A wrapper with these arguments."""
    return lambda wrap: lambda env: wrap(env, *arguments, **words)


def around_short(*arguments: Any) -> Callable[[Any], Any]:
    """A wrapped env, as an env."""
    return lambda wrap: lambda: wrap(short(), *arguments)


def vectors(kind: Any) -> Any:
    """By the number of rows."""
    return lambda rows: kind([short] * rows)


def around_vectors(wrap: Any) -> Any:
    """Around several."""
    from gymnasium.vector import SyncVectorEnv

    return lambda rows: wrap(SyncVectorEnv([short] * rows))


def twice(action: Any) -> Any:
    """What Pendulum gets for an action in [-1, 1]."""
    return (2 * np.asarray(action)).astype(np.float32)


def reduction(count: str) -> Callable[[Any], Any]:
    """With what it divides by."""
    from purestep.algorithms import aggregate

    return lambda reduce: Reduction(reduce, getattr(aggregate, count))


def straight(make: Any) -> Any:
    """From 1 to 1/4."""
    return make(1.0, 0.25, 20)


def stepped(*arguments: Any, **words: Any) -> Callable[[Any], Any]:
    """A scheduler of torch."""
    return lambda kind: lambda optimizer: kind(optimizer, *arguments, **words)


def called(*arguments: Any, **words: Any) -> Callable[[Any], Any]:
    """A schedule of optax."""
    return lambda make: lambda count: float(make(*arguments, **words)(count))


def discrete(**declared: Any) -> dict[str, Any]:
    """All outcomes by their indices."""
    return {"outcomes": torch.arange, **declared}


def rlax_rewards(returns: Any) -> Any:
    """No value beyond."""
    return lambda r, *, gamma: to_tensor(returns(*to_arrays(r, torch.full_like(r, gamma), torch.zeros_like(r))), r)


def rlax_ppo(loss: Any) -> Any:
    """One step at a time."""
    import jax

    def each(ratio: Any, advantage: Any, clip: float) -> Any:
        return jax.vmap(lambda x, y: loss(x[None], y[None], clip))(ratio.ravel(), advantage.ravel())

    class Surrogate(torch.autograd.Function):
        """With the gradient of JAX."""

        @staticmethod
        def forward(ctx: Any, ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
            x, y = ratio.detach().numpy(), advantage.detach().numpy()
            found, back = jax.vjp(lambda a, b: each(a, b, clip), x, y)
            ctx.back = back
            return torch.as_tensor(np.array(found)).reshape(ratio.shape)

        @staticmethod
        def backward(ctx: Any, *above: Any) -> Any:
            first, second = ctx.back(above[0].numpy().ravel())
            shape = above[0].shape
            return *(torch.as_tensor(np.array(x)).reshape(shape) for x in (first, second)), None

    def call(log_prob: Tensor, behaviour: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
        found: Tensor = Surrogate.apply((log_prob - behaviour).exp(), advantage, clip)  # type: ignore[no-untyped-call]
        return found

    return call


def sb3_policy(kind: Any) -> Any:
    """Of a box and four actions."""
    from gymnasium import spaces

    return kind(spaces.Box(-1, 1, (3,)), spaces.Discrete(4), lambda _: 1e-3)


def torchrl_gae(gae: Any) -> Any:
    """Columns, and the first of a pair."""

    def advantages(r: Tensor, v: Tensor, n: Tensor, te: Tensor, tr: Tensor, *, gamma: float, lambda_: float) -> Tensor:
        columns = [x.unsqueeze(-1) for x in (v, n, r, te | tr, te)]
        found: Tensor = gae(gamma, lambda_, *columns)[0].squeeze(-1)
        return found

    return advantages


def torchrl_lambda(returns: Any) -> Any:
    """Columns."""
    return lambda r, v, n, te, tr, *, gamma, lambda_: returns(
        gamma, lambda_, *[x.unsqueeze(-1) for x in (n, r, te | tr, te)]
    ).squeeze(-1)


def selected(log_softmax: Any) -> Any:
    """Logits are divided by the temperature of the token that they predict; the first token has no log-prob."""

    def scores(logits: Tensor, tokens: Tensor, *, temperature: Any = 1.0) -> Tensor:
        heat = temperature if isinstance(temperature, Tensor) else torch.tensor(float(temperature))
        heat = (heat[:, None] if heat.ndim == 1 else heat).expand(tokens.shape)
        found = log_softmax(logits[:, :-1] / heat[:, 1:].unsqueeze(-1), tokens[:, 1:])
        return torch.cat([torch.zeros(len(tokens), 1), found], 1)

    return scores


D, T, S, C = "torch.distributions:", "torch.optim:", "torch.optim.lr_scheduler:", "purestep.core."
A, W = "purestep.algorithms.", "gym:CartPole-v1|"
ONE = {"event": False}
VERL = "verl.trainer.ppo.core_algos:"
GROUPS: dict[str, dict[str, Any]] = {
    "grpo": {"singleton": "raw", "eps": 1e-6},
    "grpo_vectorized": {"singleton": "raw", "eps": 1e-6},
    "rloo": {"centre": "leave_one_out", "scaled": False, "singleton": "raw"},
    "rloo_vectorized": {"centre": "leave_one_out", "scaled": False},
}


def _rules() -> dict[str, Use]:
    rules = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam")
    own = {
        f"{C}optim.optimizers:{name}": Use("optimizer", declared={"rule": name}) for name in ("sgd", "adam", "adamw")
    }
    return {**{f"{T}{name}": Use("optimizer", declared={"rule": name.lower()}) for name in rules}, **own}


def uses() -> dict[str, Use]:
    """The use of each target. Those of other environments are made there alone."""
    found = {
        **{D + name: Use("distribution", of_mean_and_deviation, ONE) for name in ("Normal", "Laplace", "Gumbel")},
        D + "StudentT": Use("distribution", lambda kind: lambda mean, log_std: kind(8.0, mean, log_std.exp()), ONE),
        D + "Beta": Use("distribution", above_one, UNIT),
        D + "Gamma": Use("distribution", above_one, POSITIVE),
        D + "Exponential": Use("distribution", lambda kind: lambda x: kind(x.exp()), {**POSITIVE, "outputs": 1}),
        D + "LogNormal": Use("distribution", of_mean_and_deviation, POSITIVE),
        D + "Categorical": Use("distribution", lambda kind: lambda logits: kind(logits=logits), discrete()),
        D + "OneHotCategorical": Use(
            "distribution", lambda kind: lambda logits: kind(logits=logits), {"outcomes": torch.eye}
        ),
        D + "Bernoulli": Use(
            "distribution",
            lambda kind: lambda logits: kind(logits=logits[..., 0]),
            {"outcomes": lambda size: torch.tensor([0.0, 1.0]).double()},
        ),
        D + "MultivariateNormal": Use("distribution", by_covariance),
        D + "MixtureSameFamily": Use("distribution", mixture, ONE),
        D + "Independent": Use(
            "distribution",
            lambda kind: lambda mean, log_std: kind(torch.distributions.Normal(mean, log_std.exp()), 1),
        ),
        D + "TransformedDistribution": Use("distribution", squashed, {"low": -1.0, "high": 1.0, **ONE}),
        C + "distributions:Normal": Use(
            "distribution", lambda kind: lambda mean, log_std: kind(mean=mean, log_std=log_std)
        ),
        C + "distributions:TanhNormal": Use(
            "distribution",
            lambda kind: (
                lambda mean, log_std: kind(
                    mean=mean, log_std=log_std, low=-torch.ones_like(mean), high=torch.ones_like(mean)
                )
            ),
            {"low": -1.0, "high": 1.0, "entropy": 0.05},
        ),
        C + "distributions:Categorical": Use("categorical", lambda kind: lambda logits: kind(logits=logits)),
        A + "kl:k1": Use("kl", declared={"never_negative": False}),
        A + "kl:k2": Use("kl", declared={"unbiased": False}),
        A + "kl:k3": Use("kl"),
        **_rules(),
        **_optax(),
        "torch.nn.utils:clip_grad_norm_": Use("optimizer", clips, {"rule": "sgd", "clip_norm": 1.0}),
        S + "LinearLR": Use(
            "schedule", stepped(0.1, 1.0, total_iters=10), {"start": 0.1, "end": 1.0, "steps": 10, "shape": "linear"}
        ),
        S + "CosineAnnealingLR": Use(
            "schedule",
            stepped(10, eta_min=0.1),
            {"start": 1.0, "end": 0.1, "steps": 10, "shape": "cosine", "constant_after": False},
        ),
        S + "StepLR": Use(
            "schedule",
            stepped(5, 0.5),
            {"start": 1.0, "end": 0.25, "steps": 10, "jump": 0.6, "constant_after": False},
        ),
        S + "ExponentialLR": Use(
            "schedule", stepped(0.9), {"start": 1.0, "end": 0.9**10, "steps": 10, "constant_after": False}
        ),
        S + "PolynomialLR": Use("schedule", stepped(10), {"start": 1.0, "end": 0.0, "steps": 10, "shape": "linear"}),
        S + "OneCycleLR": Use(
            "schedule",
            stepped(1.0, total_steps=20, pct_start=0.3),
            {
                "start": 0.04,
                "peak": 1.0,
                "end": 4e-6,
                "warmup": 5,
                "steps": 19,
                "constant_after": False,
                "rise": "cosine",
                "shape": "cosine",
            },
        ),
        C + "optim.schedules:linear": Use(
            "schedule", straight, {"start": 1.0, "end": 0.25, "steps": 20, "shape": "linear", "argument": "tensor"}
        ),
        C + "optim.schedules:cosine": Use(
            "schedule", straight, {"start": 1.0, "end": 0.25, "steps": 20, "shape": "cosine", "argument": "tensor"}
        ),
        C + "envs.cartpole:cartpole": Use("env", lambda make: make()),
        C + "envs.pendulum:pendulum": Use("env", lambda make: make()),
        W + "FrameStackObservation": Use("wrapper", wrapped(4), {"inner": short, "stack": 4}),
        W + "NormalizeObservation": Use(
            "gym", around_short(), leave=("seeded", "reset_forgets")
        ),  # keeps its statistics
        W + "RecordEpisodeStatistics": Use("wrapper", wrapped(), {"inner": short}),
        W + "TimeAwareObservation": Use("gym", around_short()),
        W + "RepeatAction": Use("wrapper", wrapped(3), {"inner": short, "repeat": 3}),
        "gym:Pendulum-v1|RescaleAction": Use(
            "wrapper", wrapped(-1.0, 1.0), {"inner": "Pendulum-v1", "action": twice, "steps": 8}
        ),
        "gym:Pendulum-v1|ClipReward": Use(
            "wrapper",
            wrapped(-1.0, 1.0),
            {"inner": "Pendulum-v1", "reward": lambda r: min(max(r, -1.0), 1.0), "steps": 8},
        ),
        "gym:Pendulum-v1|ClipAction": Use(
            "wrapper",
            wrapped(),
            {"inner": "Pendulum-v1", "action": lambda a: np.clip(a, -2.0, 2.0).astype(np.float32), "steps": 8},
        ),
        "gymnasium.vector:SyncVectorEnv": Use("vector_env", vectors, {"single": short}),
        "gymnasium.vector:AsyncVectorEnv": Use("vector_env", vectors, {"single": short}),
        "gymnasium.wrappers.vector:RecordEpisodeStatistics": Use("vector_env", around_vectors, {"single": short}),
        "gymnasium.wrappers.utils:RunningMeanStd": Use("normalizer", on_numpy, {"prior": 1e-4, "arrays": "numpy"}),
        C + "normalize:update": Use("normalizer", lambda update: own_statistics()),
        A + "advantages:gae": Use("estimator"),
        A + "vtrace:vtrace": Use("vtrace"),
        A + "returns:discounted": Use("target", declared={"kind": "reward_to_go"}),
        A + "returns:lambda_returns": Use("lambda_return"),
        A + "returns:n_step": Use("n_step"),
        A + "policy_losses:ppo_clip": Use("loss"),
        "torch.nn.functional:mse_loss": Use(
            "value_loss", declared={"clipped": False, "scale": 1.0, "reduction": "mean", "detached": False}
        ),
        A + "value_losses:clipped": Use("value_loss"),
        A + "aggregate:token_mean": Use("aggregate", reduction("token_count"), {"weights": WEIGHTS["token_mean"]}),
        A + "aggregate:sequence_mean": Use(
            "aggregate", reduction("sequence_count"), {"weights": WEIGHTS["sequence_mean"]}
        ),
        A + "language.group_advantages:grpo_advantages": Use("group"),
        A + "language.group_advantages:rloo_advantages": Use(
            "group", declared={"centre": "leave_one_out", "scaled": False}
        ),
        C + "language.pass_at_k:pass_at_k": Use("metric", declared={"kind": "pass_at_k"}),
        C + "language.tool_calls:hermes_calls": Use("tool_parser"),
        "purestep.runtime.effects.rewards.built_in:numeric": Use(
            "reward_function", declared={"rows": ROWS, "low": 0.0, "high": 1.0}
        ),
        C + "transcript.log_probs:token_log_probs": Use("token_log_prob"),
        # rlax and optax
        "rlax:lambda_returns": Use("lambda_return", jax.lambda_returns),
        "rlax:discounted_returns": Use("target", rlax_rewards, {"kind": "reward_to_go", "endings": "none"}),
        "rlax:truncated_generalized_advantage_estimation": Use("estimator", jax.advantages),
        "rlax:clipped_surrogate_pg_loss": Use("loss", rlax_ppo),
        "rlax:n_step_bootstrapped_returns": Use("n_step", jax.n_step_returns),
        "optax:linear_schedule": Use(
            "schedule",
            called(1.0, 0.25, 20),
            {"start": 1.0, "end": 0.25, "steps": 20, "shape": "linear", "argument": "int"},
        ),
        "optax:cosine_decay_schedule": Use(
            "schedule",
            called(1.0, 20),
            {"start": 1.0, "end": 0.0, "steps": 20, "shape": "cosine", "argument": "int"},
        ),
        "optax:warmup_cosine_decay_schedule": Use(
            "schedule",
            called(0.0, 1.0, 5, 20),
            {"start": 0.0, "peak": 1.0, "end": 0.0, "warmup": 5, "steps": 20, "argument": "int"},
        ),
        "optax:exponential_decay": Use(
            "schedule",
            called(1.0, 10, 0.5),
            {"start": 1.0, "end": 0.5, "steps": 10, "constant_after": False, "argument": "int"},
        ),
        # SB3
        "stable_baselines3.common.distributions:DiagGaussianDistribution": Use("distribution", sb3.gaussian),
        "stable_baselines3.common.distributions:SquashedDiagGaussianDistribution": Use(
            "distribution", sb3.gaussian, {"low": -1.0, "high": 1.0}
        ),
        "stable_baselines3.common.distributions:CategoricalDistribution": Use(
            "distribution", sb3.categorical, discrete()
        ),
        "stable_baselines3.common.buffers:ReplayBuffer": Use("replay", sb3.replay_buffer),
        "stable_baselines3.common.running_mean_std:RunningMeanStd": Use(
            "normalizer", sb3.statistics, {"prior": 1e-4, "arrays": "numpy"}
        ),
        "stable_baselines3.common.policies:ActorCriticPolicy": Use(
            "policy",
            lambda kind: sb3.actor_critic(sb3_policy(kind)),
            {"observation_space": Box(-1.0, 1.0, (3,)), "action_space": Discrete(4)},
        ),
        "stable_baselines3.common.utils:explained_variance": Use(
            "metric",
            lambda f: lambda v, target: torch.as_tensor(f(v.numpy(), target.numpy())),
            {"kind": "explained_variance"},
        ),
        # TorchRL
        "torchrl.modules:TanhNormal": Use(
            "distribution",
            lambda kind: lambda mean, log_std: kind(mean, log_std.exp(), event_dims=1),
            {"low": -1.0, "high": 1.0},
        ),
        "torchrl.modules:MaskedCategorical": Use(
            "distribution", lambda kind: lambda logits, mask: kind(logits=logits, mask=mask), discrete(masked=True)
        ),
        "torchrl.objectives.value.functional:generalized_advantage_estimate": Use("estimator", torchrl_gae),
        "torchrl.objectives.value.functional:td0_return_estimate": Use(
            "target",
            lambda f: lambda r, n, te, tr, *, gamma: f(gamma, n[:, None], r[:, None], te[:, None])[:, 0],
        ),
        "torchrl.objectives.value.functional:td_lambda_return_estimate": Use("lambda_return", torchrl_lambda),
        "torchrl.data:ReplayBuffer": Use("replay", torchrl.replay_buffer),
        **{
            f"{VERL}compute_{name}_outcome_advantage": Use("group", verl.group_advantage, GROUPS[name])
            for name in ("grpo", "grpo_vectorized", "rloo", "rloo_vectorized")
        },
        f"{VERL}compute_policy_loss_vanilla": Use("loss", verl.policy_loss, {"mean": True, "dual_clip": 3.0}),
        f"{VERL}compute_value_loss": Use("value_loss", verl.value_loss, {"reduction": "mean", "detached": False}),
        f"{VERL}kl_penalty": Use("kl", verl.kl),
        # TRL
        "trl.trainer.utils:selective_log_softmax": Use("token_log_prob", selected),
    }
    ids = ("CartPole", "Pendulum", "MountainCar", "MountainCarContinuous", "Acrobot", "FrozenLake", "Taxi")
    return {**found, **{f"gym:{name}": Use("gym") for name in _ids((*ids, "CliffWalking", "Blackjack"))}}


def _optax() -> dict[str, Use]:
    words: dict[str, dict[str, Any]] = {
        "sgd": {},
        "adam": {},
        "adamw": {"weight_decay": 0.01},
        "rmsprop": {"decay": 0.99, "eps_in_sqrt": False},
    }
    return {
        f"optax:{name}": Use("optimizer", functools.partial(jax.optimizer, **given), {"rule": name})
        for name, given in words.items()
    }


def _ids(names: tuple[str, ...]) -> list[str]:
    from .known_right import KNOWN

    known = [target[4:] for target in KNOWN["main"]["envs"] if target.startswith("gym:")]
    return [target for target in known if target.partition("-")[0] in names]
