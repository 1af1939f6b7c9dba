"""The recipes of algorithms on environments as one table, with their defaults for each environment. Imports no torch.

Only defaults that differ from the settings' own are listed here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import Factory, field, frozen

from ..effects.module_reference import is_reference, with_absolute_path
from ..runs.arguments import changed
from ..runs.recipe import RESUME, Components, Context, Lines, Notice, Options, Recipe, SessionResult
from ..runs.trusting import check_trust, trusted
from .algorithm_flags import changes_class, check_algorithm, settings_class, settings_of
from .shared_settings import (
    Changes,
    ExperienceOptions,
    Learner,
    PlayedEpisodes,
    Playing,
    Process,
    Resuming,
    check_env,
    check_memory_cell,
    check_minibatches,
    check_replay,
    check_shared,
    run_steps,
)

USUAL = "cartpole"
# of an environment, or with "" of all: the settings that differ from the usual ones
Defaults = Mapping[str, Mapping[str, Any]]

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
OFF_POLICY: Mapping[str, Any] = {  # the collection of a few steps, and as many updates of networks of ReLUs
    "steps": 100_000,
    "horizon": 16,
    "activation": "relu",
    "learning_rate": 1e-3,
    "max_gradient_norm": 10.0,
}
DQN: Defaults = {
    "": {**OFF_POLICY, "updates": 16, "batch_size": 128, "n_step": 3},
    "cartpole": {"learning_rate": 2e-3, "gamma": 0.98, "target_period": 100},
}
QUANTILE_DQN: Defaults = {**DQN, "cartpole": {**DQN["cartpole"], "batch_size": 64}}
CATEGORICAL_DQN: Defaults = {  # with bounds of the discounted return
    "": DQN[""],
    "cartpole": {**DQN["cartpole"], "lowest_return": 0.0, "highest_return": 50.0},
    "acrobot": {"lowest_return": -100.0, "highest_return": 0.0},
    "mountain_car": {"lowest_return": -100.0, "highest_return": 0.0},
}
IQN: Defaults = {**DQN, "": {**DQN[""], "batch_size": 64}}
PQN: Defaults = {
    "": {"envs": 32, "horizon": 32, "activation": "relu", "learning_rate": 1e-3, "max_gradient_norm": 10.0},
    "cartpole": {"gamma": 0.98},
    "acrobot": {"learning_rate": 2e-3},
}
DISCRETE: Defaults = {"": {**OFF_POLICY, "updates": 16, "anneal": False}}
CONTINUOUS: Defaults = {
    "": {**OFF_POLICY, "env": "pendulum", "horizon": 8, "updates": 16, "batch_size": 128, "anneal": False},
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


def _options(recipe: "ClassicRecipe") -> Options:
    changes = Changes(algorithm=changes_class(recipe.target)())
    return Options(train=Playing(), resume=Resuming(), changes=changes, evaluate=PlayedEpisodes())


@frozen
class ClassicRecipe(Recipe):
    """The recipe of an algorithm of policy and value, on an environment."""

    name: str
    about: str
    notes: str
    target: str  # MODULE:NAME of the function, whose signature has the settings
    changes: Defaults  # of some environments
    folder: str = Factory(lambda self: f"{{env}}-{self.name}-{{seed}}", takes_self=True)
    options: Options = Factory(_options, takes_self=True)
    chosen_by = "env"
    solved = SOLVED

    def defaults(self, choice: str | None = None) -> Classic:
        """Return the default settings for an environment. Raises: ChoiceError."""
        of_all = dict(self.changes.get("", {}))
        usual_env = of_all.pop("env", USUAL)
        env = usual_env if choice is None else choice
        check_env(env)
        usual = Classic(experience=ExperienceOptions(env=env), algorithm=settings_class(self.target)())
        return changed(usual, {**of_all, **self.changes.get(env, {})})

    def check(self, settings: Classic, options: Any = ()) -> None:
        """Refuse settings with which nothing can be trained. Raises: ChoiceError."""
        check_shared(settings.experience, settings.learner, settings.process)
        check_algorithm(settings.algorithm)
        check_minibatches(settings.experience, settings.algorithm)
        check_replay(settings.experience, settings.algorithm)
        check_memory_cell(settings.experience, settings.learner, settings.algorithm)

    def title(self, settings: Classic) -> str:
        """Return the name, the environment and the steps."""
        return f"{self.name} on {settings.experience.env} for {run_steps(settings):,} steps"

    def resolve(self, settings: Classic, notice: Notice) -> Classic:
        """Return the settings with an absolute path of the environment's file."""
        return changed(settings, {"env": with_absolute_path(settings.experience.env)})

    def build(self, settings: Classic, context: Context) -> Components:
        """Return the run of these settings. Raises: TrustError, ChoiceError."""
        env = settings.experience.env
        check_trust(context.run, context.trust, {"env": env} if is_reference(env) else {})
        from .pipeline import actor_critic_pipeline, components_of  # here: it imports torch

        return components_of(self.name, settings, actor_critic_pipeline(settings))

    def resume(self, run: Path, *, options: Resuming, **how: Any) -> SessionResult:
        """Resume a run, and import its environment if the options trust it."""
        result: SessionResult = RESUME(run, options=options, trust=trusted("resume", run, options.trust), **how)
        return result

    def evaluate(self, run: Path, options: PlayedEpisodes, notice: Notice) -> Lines:
        """Play episodes with the newest checkpoint."""
        from .evaluate_policy import evaluation_lines

        return evaluation_lines(run, options, notice)

    def report(self, run: Path, options: Playing | Resuming, notice: Notice) -> Lines:
        """Play episodes with the newest checkpoint, and draw the learning curve."""
        from .evaluate_policy import final_lines

        return final_lines(run, options, notice)


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
    "dqn": (
        "deep Q-learning",
        "Learns the values of discrete actions from a replay buffer: double, n-step, prioritised.",
        "purestep.algorithms.dqn:dqn",
        DQN,
    ),
    "quantile_dqn": (
        "deep Q-learning of quantiles (QR-DQN)",
        "Learns quantiles of the returns of discrete actions from a replay buffer, and takes the best mean.",
        "purestep.algorithms.quantile_dqn:quantile_dqn",
        QUANTILE_DQN,
    ),
    "categorical_dqn": (
        "deep Q-learning of probabilities of returns (C51)",
        "Learns how likely returns between two bounds are from a replay buffer, and takes the action of the best mean.",
        "purestep.algorithms.categorical_dqn:categorical_dqn",
        CATEGORICAL_DQN,
    ),
    "iqn": (
        "deep Q-learning by implicit quantile networks",
        "Learns quantiles of the returns of discrete actions, at random levels, from a replay buffer.",
        "purestep.algorithms.iqn:iqn",
        IQN,
    ),
    "pqn": (
        "parallelised Q-network",
        "Learns the values of discrete actions from the last steps of many environments, without a replay buffer.",
        "purestep.algorithms.pqn:pqn",
        PQN,
    ),
    "td3": (
        "twin delayed DDPG",
        "A deterministic policy of actions in a box, and two critics that learn from a replay buffer.",
        "purestep.algorithms.td3:td3",
        CONTINUOUS,
    ),
    "ddpg": (
        "deep deterministic policy gradient",
        "A deterministic policy of actions in a box, and a critic that learns from a replay buffer.",
        "purestep.algorithms.ddpg:ddpg",
        CONTINUOUS,
    ),
    "sac": (
        "soft actor-critic",
        "A random policy of actions in a box, as random as it may be; two critics learn from a replay buffer.",
        "purestep.algorithms.sac:sac",
        CONTINUOUS,
    ),
    "discrete_sac": (
        "soft actor-critic for discrete actions",
        "A random policy of discrete actions, as random as it may be; two critics learn from a replay buffer.",
        "purestep.algorithms.discrete_sac:discrete_sac",
        DISCRETE,
    ),
}
RECIPES: Mapping[str, ClassicRecipe] = {name: ClassicRecipe(name, *row) for name, row in ROWS.items()}
# the settings of all of them that are inputs of the program
INPUTS = tuple(
    dict.fromkeys(one.name for _, _, target, _ in ROWS.values() for one in settings_of(target) if one.is_input())
)
