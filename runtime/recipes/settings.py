"""Settings of a run of ppo, a2c or reinforce and of its evaluation, and the checks that refuse them. Imports no torch."""

import math
from typing import Literal

from attrs import field, frozen

from ...core.errors import ChoiceError, message
from ..runs.arguments import check_memory, check_numbers, check_whole, check_wholes
from .arguments import ExperienceOptions, Learner, Moving, Numbers, Process, check_shared, iteration_steps

EPISODE = 100  # bytes of an episode of an evaluation, which are all played at once


@frozen
class PPO:
    """Proximal policy optimisation: several passes over each batch, each step kept close to the policy that played."""

    experience: ExperienceOptions
    learner: Learner = field(factory=Learner)
    process: Process = field(factory=Process)
    gae_lambda: float = 0.95  # 0 trusts the value function, 1 the rewards
    clip: float = 0.2  # how far a probability may move, as a ratio
    value_clip: float = math.inf  # how far a value may move
    epochs: int = 4  # passes over each batch
    minibatches: int = 4  # steps of the optimiser in each pass; divides envs x horizon
    value_coefficient: float = 0.5  # weight of the value loss
    entropy_coefficient: float = 0.01  # weight of the policy's entropy
    advantages: Literal["minibatch", "batch", "none"] = "minibatch"  # over what they are normalised
    target_kl: float = math.inf  # once the policy has moved that far, the rest of an update is left out


def check_ppo(arguments: PPO) -> None:
    """Refuse numbers with which PPO cannot work, by the name of their flag. Raises: ChoiceError."""
    check_shared(arguments.experience, arguments.learner, arguments.process)
    check_wholes(arguments, 1, "epochs", "minibatches")
    check_numbers(arguments, 0.0, 1.0, "gae_lambda")
    check_numbers(arguments, 0.0, math.inf, "clip", "value_clip", "target_kl")
    check_numbers(arguments, 0.0, math.inf, "value_coefficient", "entropy_coefficient")
    rows = iteration_steps(arguments.experience)
    if rows % arguments.minibatches:
        got, wanted = f"{rows} steps an iteration", f"a multiple of --minibatches {arguments.minibatches}"
        raise ChoiceError(message("--envs x --horizon", got=got, wanted=wanted, remedy="change one of the three"))


@frozen
class PPOMoving:
    """Settings of PPO that change from now on; those that are not given stay."""

    moving: Moving = field(factory=Moving)
    numbers: Numbers = field(factory=Numbers)
    gae_lambda: float | None = None  # 0 trusts the value function, 1 the rewards
    clip: float | None = None  # how far a probability may move, as a ratio

    def check(self) -> None:
        """Refuse invalid options. Raises: ChoiceError."""
        self.moving.check()


@frozen
class A2C:
    """Advantage actor-critic: one step of the optimiser for each batch."""

    experience: ExperienceOptions
    learner: Learner = field(factory=Learner)
    process: Process = field(factory=Process)
    gae_lambda: float = 1.0  # 0 trusts the value function, 1 the rewards
    value_coefficient: float = 1.0  # weight of the value loss
    entropy_coefficient: float = 0.01  # weight of the policy's entropy


def check_a2c(arguments: A2C) -> None:
    """Refuse numbers with which A2C cannot work, by the name of their flag. Raises: ChoiceError."""
    check_shared(arguments.experience, arguments.learner, arguments.process)
    check_numbers(arguments, 0.0, 1.0, "gae_lambda")
    check_numbers(arguments, 0.0, math.inf, "value_coefficient", "entropy_coefficient")


@frozen
class A2CMoving:
    """Settings of A2C that change from now on; those that are not given stay."""

    moving: Moving = field(factory=Moving)
    numbers: Numbers = field(factory=Numbers)
    gae_lambda: float | None = None  # 0 trusts the value function, 1 the rewards

    def check(self) -> None:
        """Refuse invalid options. Raises: ChoiceError."""
        self.moving.check()


@frozen
class Reinforce:
    """REINFORCE: one step of the optimiser for each batch, along the score function times the return."""

    experience: ExperienceOptions
    learner: Learner = field(factory=Learner)
    process: Process = field(factory=Process)
    baseline: Literal["value", "mean", "none"] = "value"  # what is subtracted from the returns
    value_coefficient: float = 1.0  # weight of the value loss
    entropy_coefficient: float = 0.0  # weight of the policy's entropy


def check_reinforce(arguments: Reinforce) -> None:
    """Refuse numbers with which REINFORCE cannot work, by the name of their flag. Raises: ChoiceError."""
    check_shared(arguments.experience, arguments.learner, arguments.process)
    check_numbers(arguments, 0.0, math.inf, "value_coefficient", "entropy_coefficient")


def check_episodes(episodes: int) -> None:
    """Refuse a number of episodes that cannot be played. Raises: ChoiceError.

    >>> check_episodes(0)
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: --episodes is 0, wanted at least 1; change it
    """
    check_whole("--episodes", episodes, 1)
    check_memory({"--episodes": EPISODE * episodes})


@frozen
class ReinforceMoving:
    """Settings of REINFORCE that change from now on; those that are not given stay."""

    moving: Moving = field(factory=Moving)
    numbers: Numbers = field(factory=Numbers)

    def check(self) -> None:
        """Refuse invalid options. Raises: ChoiceError."""
        self.moving.check()


@frozen
class Playing:
    """Episodes, played by the policy."""

    episodes: int = 100  # of the evaluation at the end

    def check(self) -> None:
        """Refuse invalid options. Raises: ChoiceError."""
        check_episodes(self.episodes)


@frozen
class Resuming:
    """Episodes, played by the policy, and trust in an environment."""

    episodes: int = 100  # of the evaluation at the end
    trust: bool = False  # import the environment that the run's folder names

    def check(self) -> None:
        """Refuse invalid options. Raises: ChoiceError."""
        check_episodes(self.episodes)


@frozen
class PlayedEpisodes:
    """Play episodes with the newest checkpoint's policy."""

    episodes: int = 100  # how many
    seed: int = 0  # decides where they begin
    action: Literal["mode", "sample"] = "mode"  # "mode" takes the likeliest action, "sample" draws one
    trust: bool = False  # import the environment that the run's folder names

    def check(self) -> None:
        """Refuse invalid options. Raises: ChoiceError."""
        check_episodes(self.episodes)
