"""The recipes ppo, a2c and reinforce as one table, with their defaults for each environment. Imports no torch.

Only defaults that differ from the settings' own are listed here.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ...core.env_names import ENV_NAMES
from ...core.errors import choose
from ..deferred import deferred
from ..effects.module_reference import absolute, is_reference
from ..runs.arguments import changed, option
from ..runs.recipe import RESUME, START, Recipe
from ..runs.trusting import check_trust, trusted
from .arguments import ExperienceOptions, run_steps
from .settings import (
    A2C,
    PPO,
    A2CMoving,
    PlayedEpisodes,
    Playing,
    PPOMoving,
    Reinforce,
    ReinforceMoving,
    Resuming,
    check_a2c,
    check_ppo,
    check_reinforce,
)

USUAL = "cartpole"
Changes = Mapping[str, Any]

PPO_CHANGES: Mapping[str, Changes] = {
    "cartpole": {"learning_rate": 2e-3, "gamma": 0.98, "gae_lambda": 0.9},
    "acrobot": {"envs": 8, "learning_rate": 1e-3},
    "pendulum": {
        "steps": 1_000_000,
        "envs": 16,
        "horizon": 256,
        "gamma": 0.9,
        "learning_rate": 1e-3,
        "entropy_coefficient": 0.0,
        "epochs": 10,
        "minibatches": 8,
        "normalize": "rewards",
    },
    "mountain_car": {"steps": 1_000_000, "envs": 16, "normalize": "both"},
    "mountain_car_continuous": {"envs": 16, "horizon": 256, "normalize": "both"},
}
A2C_CHANGES: Mapping[str, Changes] = {
    "cartpole": {"learning_rate": 5e-3, "envs": 16, "horizon": 16},
    "acrobot": {"learning_rate": 1e-3, "envs": 16, "horizon": 16},
    "pendulum": {
        "steps": 1_000_000,
        "envs": 16,
        "horizon": 16,
        "gamma": 0.9,
        "gae_lambda": 0.9,
        "learning_rate": 1e-3,
        "entropy_coefficient": 0.0,
        "normalize": "rewards",
    },
}
REINFORCE_CHANGES: Mapping[str, Changes] = {
    "cartpole": {"learning_rate": 5e-3, "envs": 8, "horizon": 64},
}
SOLVED: Mapping[str, float] = {  # the mean return at which Gymnasium's registry counts an environment as solved
    "cartpole": 475.0,
    "acrobot": -100.0,
    "mountain_car": -110.0,
    "mountain_car_continuous": 90.0,
}


def _recipe(
    name: str, about: str, settings: Any, changes: Mapping[str, Changes], check: Callable[[Any], None], moving: Any
) -> Recipe:
    def defaults(words: Sequence[str]) -> Any:
        env = option(words, "--env", USUAL)
        if not is_reference(env):
            choose("--env", env, dict.fromkeys(ENV_NAMES))
        return changed(settings(ExperienceOptions(env=env)), changes.get(env, {}))

    return Recipe(
        name=name,
        about=about,
        defaults=defaults,
        build=partial(_build, name),
        evaluate=deferred(str(__package__), "report", "evaluation_lines"),
        check=check,
        chosen_by="env",
        solved=lambda arguments: SOLVED.get(str(arguments.get("env"))),
        folder=f"{{env}}-{name}-{{seed}}",
        title=lambda arguments: f"{name} on {arguments.experience.env} for {run_steps(arguments):,} steps",
        closing=Playing,
        resuming=Resuming,
        start=_start,
        resume=_resume,
        moving=moving,
        evaluating=PlayedEpisodes,
        report=deferred(str(__package__), "report", "final_lines"),
    )


def _start(run: Path, recipe: Recipe, arguments: Any, **how: Any) -> Any:
    """Start a run, which records its environment's file by an absolute path."""
    return START(run, recipe, changed(arguments, {"env": absolute(arguments.experience.env)}), **how)


def _resume(run: Path, *, options: Resuming, **how: Any) -> Any:
    return RESUME(run, options=options, trust=trusted("resume", run, options.trust), **how)


def _build(name: str, arguments: Any, context: Any) -> Any:
    env = arguments.experience.env
    check_trust(context.run, context.trust, {"env": env} if is_reference(env) else {})
    from .actor_critic import actor_critic_pipeline  # here: it imports torch
    from .pipeline import components_of

    return components_of(name, arguments, actor_critic_pipeline(arguments))


RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        _recipe("ppo", "proximal policy optimisation", PPO, PPO_CHANGES, check_ppo, PPOMoving),
        _recipe("a2c", "advantage actor-critic", A2C, A2C_CHANGES, check_a2c, A2CMoving),
        _recipe(
            "reinforce", "REINFORCE with a baseline", Reinforce, REINFORCE_CHANGES, check_reinforce, ReinforceMoving
        ),
    )
}
