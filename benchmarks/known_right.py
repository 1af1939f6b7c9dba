"""Functions and classes that are known to be right: what a suite says against them is a false alarm.

    python -m benchmarks.known_right                        # those of the development environment
    python -m benchmarks.known_right --peers FOLDER         # and those of FOLDER/rlax, FOLDER/sb3, and so on
    python -m benchmarks.known_right --only schedules sb3   # families, environments or targets; the rest of the file stays

Prints a row for each; writes benchmarks/results/known_right.json. Exit code 1 after a false alarm, or below 100 judged.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import evidence

# environment -> family -> targets. `main` is the development environment; others hold the package of that name beside ours.
# `gym:ID` is an env of Gymnasium; `gym:ID|Wrapper` a wrapper around it.
KNOWN: Mapping[str, Mapping[str, Sequence[str]]] = {
    "main": {
        "distributions": (
            "torch.distributions:Normal",
            "torch.distributions:Laplace",
            "torch.distributions:Beta",
            "torch.distributions:Gamma",
            "torch.distributions:Exponential",
            "torch.distributions:Uniform",
            "torch.distributions:LogNormal",
            "torch.distributions:Gumbel",
            "torch.distributions:StudentT",
            "torch.distributions:Categorical",
            "torch.distributions:OneHotCategorical",
            "torch.distributions:Bernoulli",
            "torch.distributions:Geometric",
            "torch.distributions:MultivariateNormal",
            "torch.distributions:Dirichlet",
            "torch.distributions:MixtureSameFamily",
            "torch.distributions:Independent",
            "torch.distributions:TransformedDistribution",
            "purestep.core.distributions:Categorical",
            "purestep.core.distributions:Normal",
            "purestep.core.distributions:TanhNormal",
        ),
        "kl": (
            "torch.distributions:kl_divergence",
            "purestep.algorithms.kl:k1",
            "purestep.algorithms.kl:k2",
            "purestep.algorithms.kl:k3",
        ),
        "optimizers": (
            "torch.optim:SGD",
            "torch.optim:Adam",
            "torch.optim:AdamW",
            "torch.optim:RMSprop",
            "torch.optim:Adagrad",
            "torch.optim:Adadelta",
            "torch.optim:Adamax",
            "torch.optim:NAdam",
            "torch.optim:RAdam",
            "torch.optim:ASGD",
            "torch.nn.utils:clip_grad_norm_",
            "purestep.core.optim.optimizers:sgd",
            "purestep.core.optim.optimizers:adam",
            "purestep.core.optim.optimizers:adamw",
        ),
        "schedules": (
            "torch.optim.lr_scheduler:LinearLR",
            "torch.optim.lr_scheduler:CosineAnnealingLR",
            "torch.optim.lr_scheduler:StepLR",
            "torch.optim.lr_scheduler:ExponentialLR",
            "torch.optim.lr_scheduler:PolynomialLR",
            "torch.optim.lr_scheduler:OneCycleLR",
            "purestep.core.optim.schedules:linear",
            "purestep.core.optim.schedules:cosine",
        ),
        "envs": (
            "gym:CartPole-v1",
            "gym:Pendulum-v1",
            "gym:MountainCar-v0",
            "gym:MountainCarContinuous-v0",
            "gym:Acrobot-v1",
            "gym:FrozenLake-v1",
            "gym:Taxi-v4",
            "gym:CliffWalking-v1",
            "gym:Blackjack-v1",
            "purestep.core.envs.cartpole:cartpole",
            "purestep.core.envs.pendulum:pendulum",
        ),
        "wrappers": (
            "gym:CartPole-v1|FrameStackObservation",
            "gym:CartPole-v1|NormalizeObservation",
            "gym:CartPole-v1|RecordEpisodeStatistics",
            "gym:CartPole-v1|TimeAwareObservation",
            "gym:CartPole-v1|RepeatAction",
            "gym:Pendulum-v1|RescaleAction",
            "gym:Pendulum-v1|ClipReward",
            "gym:Pendulum-v1|ClipAction",
        ),
        "vector_envs": (
            "gymnasium.vector:SyncVectorEnv",
            "gymnasium.vector:AsyncVectorEnv",
            "gymnasium.wrappers.vector:RecordEpisodeStatistics",
        ),
        "normalizers": ("gymnasium.wrappers.utils:RunningMeanStd", "purestep.core.normalize:update"),
        "gae": ("purestep.algorithms.advantages:gae",),
        "vtrace": ("purestep.algorithms.vtrace:vtrace",),
        "targets": (
            "purestep.algorithms.returns:discounted",
            "purestep.algorithms.returns:lambda_returns",
        ),
        "n_step": ("purestep.algorithms.returns:n_step",),
        "policy_losses": (
            "purestep.algorithms.losses:ppo_clip",
            "purestep.algorithms.language.token_losses:dual_clip",
            "purestep.algorithms.language.token_losses:gspo",
        ),
        "value_losses": (
            "torch.nn.functional:mse_loss",
            "torch.nn.functional:smooth_l1_loss",
            "purestep.algorithms.losses:clipped",
        ),
        "aggregation": ("purestep.algorithms.aggregate:token_mean", "purestep.algorithms.aggregate:sequence_mean"),
        "group_advantages": (
            "purestep.algorithms.language.group_advantages:grpo_advantages",
            "purestep.algorithms.language.group_advantages:rloo_advantages",
        ),
        "metrics": ("purestep.core.language.pass_at_k:pass_at_k",),
        "tool_parsers": ("purestep.core.language.tool_calls:hermes_calls",),
        "rewards": ("purestep.runtime.effects.rewards.built_in:numeric",),
        "token_masks": ("purestep.core.transcript.log_probs:token_log_probs",),
    },
    "rlax": {
        "targets": ("rlax:lambda_returns", "rlax:discounted_returns"),
        "n_step": ("rlax:n_step_bootstrapped_returns",),
        "gae": ("rlax:truncated_generalized_advantage_estimation",),
        "vtrace": ("rlax:vtrace", "rlax:vtrace_td_error_and_advantage"),
        "policy_losses": ("rlax:clipped_surrogate_pg_loss",),
        "value_losses": ("rlax:quantile_regression_loss",),
        "kl": ("rlax:categorical_kl_divergence",),
        "optimizers": ("optax:sgd", "optax:adam", "optax:adamw", "optax:rmsprop", "optax:clip_by_global_norm"),
        "schedules": (
            "optax:linear_schedule",
            "optax:cosine_decay_schedule",
            "optax:warmup_cosine_decay_schedule",
            "optax:exponential_decay",
        ),
    },
    "sb3": {
        "distributions": (
            "stable_baselines3.common.distributions:DiagGaussianDistribution",
            "stable_baselines3.common.distributions:SquashedDiagGaussianDistribution",
            "stable_baselines3.common.distributions:CategoricalDistribution",
            "stable_baselines3.common.distributions:MultiCategoricalDistribution",
        ),
        "replay": ("stable_baselines3.common.buffers:ReplayBuffer",),
        "n_step": ("stable_baselines3.common.buffers:NStepReplayBuffer",),
        "normalizers": ("stable_baselines3.common.running_mean_std:RunningMeanStd",),
        "metrics": ("stable_baselines3.common.utils:explained_variance",),
        "policies": ("stable_baselines3.common.policies:ActorCriticPolicy",),
    },
    "torchrl": {
        "distributions": ("torchrl.modules:TanhNormal", "torchrl.modules:MaskedCategorical"),
        "gae": ("torchrl.objectives.value.functional:generalized_advantage_estimate",),
        "targets": (
            "torchrl.objectives.value.functional:td0_return_estimate",
            "torchrl.objectives.value.functional:td_lambda_return_estimate",
            "torchrl.objectives.value.functional:reward2go",
        ),
        "replay": ("torchrl.data:ReplayBuffer",),
    },
    "trl": {
        "rewards": ("trl.rewards:think_format_reward", "trl.rewards:get_soft_overlong_punishment"),
        "token_masks": ("trl.trainer.utils:selective_log_softmax",),
    },
    "verl": {
        "group_advantages": tuple(
            f"verl.trainer.ppo.core_algos:compute_{name}_outcome_advantage"
            for name in ("grpo", "grpo_vectorized", "rloo", "rloo_vectorized")
        ),
        "policy_losses": ("verl.trainer.ppo.core_algos:compute_policy_loss_vanilla",),
        "value_losses": ("verl.trainer.ppo.core_algos:compute_value_loss",),
        "kl": ("verl.trainer.ppo.core_algos:kl_penalty",),
    },
}


def targets() -> list[tuple[str, str, str]]:
    """All of them: environment, family, target."""
    return [
        (environment, family, target)
        for environment, families in KNOWN.items()
        for family, names in families.items()
        for target in names
    ]


def judged(environment: str, asked: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What the suites say of an environment's targets; this process runs in that environment."""
    from .known_right_uses import uses
    from .own_bugs.trial import tried

    known = uses()
    for place, family, target in targets():
        if place != environment or (asked and not {place, family, target} & set(asked)):
            continue
        row: dict[str, Any] = {"environment": place, "family": family, "target": target}
        if target not in known:
            yield {**row, "suite": "", "laws": 0, "broken": [], "detail": "no suite speaks of it"}
            continue
        found = tried(known[target], loaded(target), stop=False)
        yield {**row, **found.plain()}


def loaded(target: str) -> Any:
    """The object of a target; an env by its id, and a wrapper by its class."""
    import importlib

    if target.startswith("gym:"):
        identifier, _, wrapper = target[4:].partition("|")
        return getattr(importlib.import_module("gymnasium.wrappers"), wrapper) if wrapper else identifier
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def elsewhere(python: Path, environment: str, asked: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The same, in another environment: one line of JSON for each target."""
    words = [str(python), "-m", "benchmarks.known_right", "--inside", environment, "--only", *asked]
    own = {**os.environ, "PYTHONPATH": str(evidence.ROOT / ".links")}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=own) as process:
        for line in process.stdout or ():
            if line.startswith("{"):
                yield json.loads(line)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.known_right", description=__doc__)
    parser.add_argument("--peers", type=Path, help="folder of environments")
    parser.add_argument("--only", nargs="*", default=[], help="families, environments or targets")
    parser.add_argument("--inside", default="", help="print lines of JSON for this environment, in which this runs")
    return parser.parse_args(words)


def main() -> int:
    """Judges all, prints, and writes."""
    options, start = parse(), time.perf_counter()
    if options.inside:
        for row in judged(options.inside, options.only):
            print(json.dumps(row), flush=True)
        return 0
    each = written() if options.only else {}
    for environment in KNOWN:
        if environment != "main" and options.peers is None:
            continue
        python = options.peers / environment / "bin" / "python" if options.peers else Path(sys.executable)
        found = judged("main", options.only) if environment == "main" else elsewhere(python, environment, options.only)
        for row in found:
            each[row["target"]] = row
            word = f"ALARM {row['broken']}" if row["broken"] else "right" if row["laws"] else "not judged"
            print(
                f"{environment:8}{row['family']:17}{row['target']:60}{row['laws']:3} laws  {word}  {row['detail'][:300]}"
            )
            sys.stdout.flush()
    rows = [each[target] for _, _, target in targets() if target in each]
    alarms = [row["target"] for row in rows if row["broken"]]
    count = sum(bool(row["laws"]) for row in rows)
    figures = {"listed": len(targets()), "judged": count, "false_alarms": len(alarms), "alarmed": alarms, "each": rows}
    print(f"listed: {len(targets())}", f"judged: {count}", f"false alarms: {len(alarms)} {alarms}", sep="\n")
    evidence.write("known_right", seconds=time.perf_counter() - start, figures=figures)
    return int(bool(alarms) or count < 100)


def written() -> dict[str, Any]:
    """What an earlier run wrote of each target."""
    path = evidence.RESULTS / "known_right.json"
    rows = json.loads(path.read_text())["figures"]["each"] if path.exists() else []
    return {row["target"]: row for row in rows}


if __name__ == "__main__":
    sys.exit(main())
