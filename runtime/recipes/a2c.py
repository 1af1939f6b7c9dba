"""The whole of A2C, from an environment's name to one iteration of training: what `purestep train a2c` runs."""

from ...algorithms.a2c import a2c
from ...core.envs import make
from ..train import trainer
from ..validate import validate
from .arguments import loop_of
from .common import Pipeline, network, normalizer, optimizer
from .settings import A2C, check_a2c


def a2c_pipeline(arguments: A2C) -> Pipeline:
    """The parts of an A2C run. Raises: ChoiceError, by the name of the flag; what `validate` raises."""
    check_a2c(arguments)
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
