"""The whole of REINFORCE, from an environment's name to one iteration of training: what `purestep train reinforce` runs."""

from ...algorithms.reinforce import reinforce
from ...core.envs import make
from ..train import trainer
from ..validate import validate
from .arguments import loop_of
from .common import Pipeline, network, normalizer, optimizer
from .settings import Reinforce, check_reinforce


def reinforce_pipeline(arguments: Reinforce) -> Pipeline:
    """The parts of a REINFORCE run. Raises: ChoiceError, by the name of the flag; what `validate` raises."""
    check_reinforce(arguments)
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
