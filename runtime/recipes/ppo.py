"""The whole of PPO, from an environment's name to one iteration of training: what `purestep train ppo` runs."""

import math
from typing import Literal

from attrs import field, frozen

from ...algorithms.hyperparameters import check_number
from ...algorithms.ppo import ppo
from ...core.envs import make
from ...core.errors import ChoiceError, message
from ..train import trainer
from ..validate import validate
from .arguments import Experience, Learner, Process, check_shared, check_whole, flag, iteration_steps, loop_of
from .common import Pipeline, network, normalizer, optimizer


@frozen
class PPO:
    """Proximal policy optimisation: several passes over each batch, each step kept close to the policy that played."""

    experience: Experience
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


def ppo_pipeline(arguments: PPO) -> Pipeline:
    """The parts of a PPO run. Raises: ChoiceError, by the name of the flag; what `validate` raises."""
    check(arguments)
    experience, learner = arguments.experience, arguments.learner
    env = validate(make(experience.env))
    model = network(env, learner)
    updates = loop_of(experience, arguments.process).iterations * arguments.epochs * arguments.minibatches
    algorithm = ppo(
        model,
        optimizer(learner, updates),
        gamma=learner.gamma,
        lambda_=arguments.gae_lambda,
        clip=arguments.clip,
        value_clip=arguments.value_clip,
        epochs=arguments.epochs,
        minibatches=arguments.minibatches,
        value_coefficient=arguments.value_coefficient,
        entropy_coefficient=arguments.entropy_coefficient,
        advantages=arguments.advantages,
        target_kl=arguments.target_kl,
    )
    scales = normalizer(experience, learner)
    iteration = trainer(env, model, algorithm, envs=experience.envs, horizon=experience.horizon, normalizer=scales)
    return Pipeline(env, model, scales, iteration)


def check(arguments: PPO) -> None:
    """Refuses numbers with which PPO cannot work, by the name of their flag. Raises: ChoiceError."""
    check_shared(arguments.experience, arguments.learner, arguments.process)
    check_whole("--epochs", arguments.epochs, 1)
    check_whole("--minibatches", arguments.minibatches, 1)
    check_number("--gae-lambda", arguments.gae_lambda, 0.0, 1.0)
    for name in ("clip", "value_clip", "value_coefficient", "entropy_coefficient", "target_kl"):
        check_number(flag(name), getattr(arguments, name), 0.0)
    rows = iteration_steps(arguments.experience)
    if rows % arguments.minibatches:
        got, wanted = f"{rows} steps an iteration", f"a multiple of --minibatches {arguments.minibatches}"
        raise ChoiceError(message("--envs x --horizon", got=got, wanted=wanted, remedy="change one of the three"))
