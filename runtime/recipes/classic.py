"""The recipes ppo, a2c and reinforce as one table, with their defaults for each environment. Imports no torch.

Only defaults that differ from the settings' own are listed here.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen

from ..deferred import deferred
from ..effects.module_reference import is_reference, with_absolute_path
from ..runs.arguments import changed, option
from ..runs.recipe import RESUME, START, Recipe
from ..runs.trusting import check_trust, trusted
from .algorithm_flags import changes_class, check_algorithm, settings_class, settings_of
from .arguments import (
    Changes,
    ExperienceOptions,
    Learner,
    PlayedEpisodes,
    Playing,
    Process,
    Resuming,
    check_env,
    check_minibatches,
    check_shared,
    run_steps,
)

USUAL = "cartpole"
Defaults = Mapping[str, Mapping[str, Any]]  # of an environment: the settings that differ from the usual ones

PPO: Defaults = {
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
A2C: Defaults = {
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
REINFORCE: Defaults = {
    "cartpole": {"learning_rate": 5e-3, "envs": 8, "horizon": 64},
}
SOLVED: Mapping[str, float] = {  # the mean return at which Gymnasium's registry counts an environment as solved
    "cartpole": 475.0,
    "acrobot": -100.0,
    "mountain_car": -110.0,
    "mountain_car_continuous": 90.0,
}


@frozen(kw_only=True)
class Classic:
    """Training on an environment."""

    experience: ExperienceOptions
    learner: Learner = field(factory=Learner)
    process: Process = field(factory=Process)
    algorithm: Any  # the settings of the algorithm


def recipe(name: str, about: str, notes: str, target: str, changes: Defaults) -> Recipe:
    """Return the recipe of an algorithm of policy and value: the function MODULE:NAME, and defaults of some environments."""

    def defaults(words: Sequence[str]) -> Classic:
        env = option(words, "--env", USUAL)
        check_env(env)
        return changed(
            Classic(experience=ExperienceOptions(env=env), algorithm=settings_class(target)()), changes.get(env, {})
        )

    def check(arguments: Classic) -> None:
        check_shared(arguments.experience, arguments.learner, arguments.process)
        check_algorithm(arguments.algorithm)
        check_minibatches(arguments.experience, arguments.algorithm)

    def build(arguments: Classic, context: Any) -> Any:
        env = arguments.experience.env
        check_trust(context.run, context.trust, {"env": env} if is_reference(env) else {})
        from .pipeline import actor_critic_pipeline, components_of  # here: it imports torch

        return components_of(name, arguments, actor_critic_pipeline(arguments))

    return Recipe(
        name=name,
        about=about,
        notes=notes,
        defaults=defaults,
        build=build,
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
        moving=lambda: Changes(algorithm=changes_class(target)()),
        evaluating=PlayedEpisodes,
        report=deferred(str(__package__), "report", "final_lines"),
    )


def _start(run: Path, recipe: Recipe, arguments: Any, **how: Any) -> Any:
    """Start a run, which records its environment's file by an absolute path."""
    return START(run, recipe, changed(arguments, {"env": with_absolute_path(arguments.experience.env)}), **how)


def _resume(run: Path, *, options: Resuming, **how: Any) -> Any:
    return RESUME(run, options=options, trust=trusted("resume", run, options.trust), **how)


# a line and a paragraph of help; the function, whose signature has the settings; defaults of environments
ROWS: Mapping[str, tuple[str, str, str, Defaults]] = {
    "ppo": (
        "proximal policy optimisation",
        "Several passes over each batch, each step kept close to the policy that played.",
        "purestep.algorithms.ppo:ppo",
        PPO,
    ),
    "a2c": (
        "advantage actor-critic",
        "One step of the optimiser for each batch.",
        "purestep.algorithms.a2c:a2c",
        A2C,
    ),
    "reinforce": (
        "REINFORCE with a baseline",
        "One step of the optimiser for each batch, along the score function times the return.",
        "purestep.algorithms.reinforce:reinforce",
        REINFORCE,
    ),
}
RECIPES: Mapping[str, Recipe] = {name: recipe(name, *row) for name, row in ROWS.items()}
# the settings of all of them that are inputs of the program
INPUTS = tuple(
    dict.fromkeys(one.name for _, _, target, _ in ROWS.values() for one in settings_of(target) if one.is_input())
)
