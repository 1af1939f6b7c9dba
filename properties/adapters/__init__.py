"""Objects of other packages, in the forms in which suites call their subjects: one module for each package.

    from purestep.properties import replay_laws, verify
    from purestep.properties.adapters import stable_baselines3
    print(verify(replay_laws(), stable_baselines3.replay_buffer(ReplayBuffer)))

`purestep verify stable_baselines3.common.buffers:ReplayBuffer` finds its adapter in the table below. The packages are imported
when an adapter is called. To add one, write its function in the package's module, and a line here.
"""

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen


@frozen
class Adapter:
    """Objects of a package and the function that returns a suite's subject made of one.

    `kind` is the name of a function, of a class (or a base of it), or of a class that a factory's annotation returns, after
    its package; the modules between them are left out. `declared` are keywords of the suite, or the name of a function
    of the object that returns them.
    """

    suite: str
    kind: str
    make: tuple[str, str]  # a module of this package, and a function in it
    declared: Mapping[str, Any] | str = field(factory=dict)


_SB3, _TORCHRL = "stable_baselines3", "torchrl"
_ONE = {"low": -1.0, "high": 1.0}
_GROUPS = ("grpo_outcome", "grpo_vectorized_outcome", "rloo_outcome", "rloo_vectorized_outcome")
ADAPTERS: tuple[Adapter, ...] = (
    Adapter("distribution", f"{_SB3}.CategoricalDistribution", (_SB3, "categorical"), "indices"),
    Adapter("distribution", f"{_SB3}.SquashedDiagGaussianDistribution", (_SB3, "gaussian"), _ONE),
    Adapter("distribution", f"{_SB3}.DiagGaussianDistribution", (_SB3, "gaussian")),
    Adapter("normalizer", f"{_SB3}.RunningMeanStd", (_SB3, "statistics"), {"arrays": "numpy", "prior": 1e-4}),
    Adapter("policy", f"{_SB3}.ActorCriticPolicy", (_SB3, "actor_critic"), "spaces"),
    Adapter("replay", f"{_SB3}.ReplayBuffer", (_SB3, "replay_buffer")),
    Adapter("estimator", f"{_SB3}.RolloutBuffer", (_SB3, "rollout_buffer")),
    Adapter("gym", f"{_TORCHRL}.EnvBase", (_TORCHRL, "gym_env")),
    Adapter("loss", f"{_TORCHRL}.ClipPPOLoss", (_TORCHRL, "clipped_loss")),
    Adapter("replay", f"{_TORCHRL}.ReplayBuffer", (_TORCHRL, "replay_buffer")),
    Adapter("gym", "pettingzoo.ParallelEnv", ("pettingzoo", "joint")),
    Adapter("gym", "pettingzoo.par_fn", ("pettingzoo", "joint")),  # parallel_env of each of its own worlds
    Adapter("optimizer", "optax.GradientTransformation", ("jax", "optimizer"), "rule"),
    Adapter("estimator", "rlax.truncated_generalized_advantage_estimation", ("jax", "advantages")),
    Adapter("lambda_return", "rlax.lambda_returns", ("jax", "lambda_returns")),
    Adapter("n_step", "rlax.n_step_bootstrapped_returns", ("jax", "n_step_returns")),
    Adapter("target", "rlax.q_learning", ("jax", "q_target"), {"kind": "max", "endings": "terminated"}),
    Adapter("target", "rlax.double_q_learning", ("jax", "q_target"), {"kind": "double", "endings": "terminated"}),
    Adapter("aggregate", "verl.agg_loss", ("verl", "aggregation"), "weights"),
    *(Adapter("group", f"verl.compute_{name}_advantage", ("verl", "group_advantage"), "group") for name in _GROUPS),
    Adapter("kl", "verl.kl_penalty", ("verl", "kl")),
    Adapter("loss", "verl.compute_policy_loss_vanilla", ("verl", "policy_loss"), {"mean": True, "dual_clip": 3.0}),
    Adapter("token_gae", "verl.compute_gae_advantage_return", ("verl", "token_gae")),
    Adapter("value_loss", "verl.compute_value_loss", ("verl", "value_loss"), "value_claims"),
)
