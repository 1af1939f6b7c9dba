"""The whole of PPO, from an environment's name to one iteration of training: what `purestep train ppo` runs."""

from ...algorithms.ppo import ppo
from ...core.envs import make
from ..train import trainer
from ..validate import validate
from .arguments import loop_of
from .common import Pipeline, network, normalizer, optimizer
from .settings import PPO, check_ppo


def ppo_pipeline(arguments: PPO) -> Pipeline:
    """The parts of a PPO run. Raises: ChoiceError, by the name of the flag; what `validate` raises."""
    check_ppo(arguments)
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
