"""The whole of REINFORCE, from an environment's name to one iteration of training: what `purestep train reinforce` runs."""

from typing import Literal

from attrs import field, frozen

from ...algorithms.hyperparameters import check_number
from ...algorithms.reinforce import reinforce
from ...core.envs import make
from ..train import trainer
from ..validate import validate
from .arguments import Experience, Learner, Process, check_shared, loop_of
from .common import Pipeline, network, normalizer, optimizer


@frozen
class Reinforce:
    """REINFORCE: one step of the optimiser for each batch, along the score function times the return."""

    experience: Experience
    learner: Learner = field(factory=Learner)
    process: Process = field(factory=Process)
    baseline: Literal["value", "mean", "none"] = "value"  # what is subtracted from the returns
    value_coefficient: float = 1.0  # weight of the value loss
    entropy_coefficient: float = 0.0  # weight of the policy's entropy


def reinforce_pipeline(arguments: Reinforce) -> Pipeline:
    """The parts of a REINFORCE run. Raises: ChoiceError, by the name of the flag; what `validate` raises."""
    check(arguments)
    experience, learner = arguments.experience, arguments.learner
    env = validate(make(experience.env))
    model = network(env, learner)
    algorithm = reinforce(
        model,
        optimizer(learner, loop_of(experience, arguments.process).iterations),
        gamma=learner.gamma,
        baseline=arguments.baseline,
        value_coefficient=arguments.value_coefficient,
        entropy_coefficient=arguments.entropy_coefficient,
    )
    scales = normalizer(experience, learner)
    iteration = trainer(env, model, algorithm, envs=experience.envs, horizon=experience.horizon, normalizer=scales)
    return Pipeline(env, model, scales, iteration)


def check(arguments: Reinforce) -> None:
    """Refuses numbers with which REINFORCE cannot work, by the name of their flag. Raises: ChoiceError."""
    check_shared(arguments.experience, arguments.learner, arguments.process)
    check_number("--value-coefficient", arguments.value_coefficient, 0.0)
    check_number("--entropy-coefficient", arguments.entropy_coefficient, 0.0)
