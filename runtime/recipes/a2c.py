"""The whole of A2C, from an environment's name to one iteration of training: what `purestep train a2c` runs."""

from attrs import field, frozen

from ...algorithms.a2c import a2c
from ...algorithms.hyperparameters import check_number
from ...core.envs import make
from ..train import trainer
from ..validate import validate
from .arguments import Experience, Learner, Process, check_shared, loop_of
from .common import Pipeline, network, normalizer, optimizer


@frozen
class A2C:
    """Advantage actor-critic: one step of the optimiser for each batch."""

    experience: Experience
    learner: Learner = field(factory=Learner)
    process: Process = field(factory=Process)
    gae_lambda: float = 1.0  # 0 trusts the value function, 1 the rewards
    value_coefficient: float = 1.0  # weight of the value loss
    entropy_coefficient: float = 0.01  # weight of the policy's entropy


def a2c_pipeline(arguments: A2C) -> Pipeline:
    """The parts of an A2C run. Raises: ChoiceError, by the name of the flag; what `validate` raises."""
    check(arguments)
    experience, learner = arguments.experience, arguments.learner
    env = validate(make(experience.env))
    model = network(env, learner)
    algorithm = a2c(
        model,
        optimizer(learner, loop_of(experience, arguments.process).iterations),
        gamma=learner.gamma,
        lambda_=arguments.gae_lambda,
        value_coefficient=arguments.value_coefficient,
        entropy_coefficient=arguments.entropy_coefficient,
    )
    scales = normalizer(experience, learner)
    iteration = trainer(env, model, algorithm, envs=experience.envs, horizon=experience.horizon, normalizer=scales)
    return Pipeline(env, model, scales, iteration)


def check(arguments: A2C) -> None:
    """Refuses numbers with which A2C cannot work, by the name of their flag. Raises: ChoiceError."""
    check_shared(arguments.experience, arguments.learner, arguments.process)
    check_number("--gae-lambda", arguments.gae_lambda, 0.0, 1.0)
    check_number("--value-coefficient", arguments.value_coefficient, 0.0)
    check_number("--entropy-coefficient", arguments.entropy_coefficient, 0.0)
