"""PPO, A2C and REINFORCE on an environment, built from their settings: one table."""

from collections.abc import Callable, Mapping
from typing import Any

from ...algorithms.a2c import a2c
from ...algorithms.ppo import ppo
from ...algorithms.reinforce import reinforce
from ...core import keys
from ...core.envs import make
from ...core.policy import ActorCritic
from ..effects.env_reference import digest_of, load_env
from ..effects.module_reference import is_reference
from ..train import trainer, with_probes
from ..validate import validate
from .arguments import iteration_steps, loop_of
from .pipeline import Pipeline, head_of, network, normalizer, optimizer, placed
from .settings import A2C, PPO, Reinforce

# settings class -> algorithm, and the settings that are passed to it under the same names
TABLE: Mapping[type, tuple[Callable[..., Any], tuple[str, ...]]] = {
    PPO: (
        ppo,
        (
            *("clip", "value_clip", "epochs", "minibatches", "value_coefficient", "entropy_coefficient", "advantages"),
            "target_kl",
        ),
    ),
    A2C: (a2c, ("value_coefficient", "entropy_coefficient")),
    Reinforce: (reinforce, ("baseline", "value_coefficient", "entropy_coefficient")),
}


def actor_critic_pipeline(arguments: PPO | A2C | Reinforce) -> Pipeline:
    """Return the components of a run. An environment named by a reference is imported.

    Raises: ChoiceError for an unknown environment or device; errors of `validate`.
    """
    with placed(arguments.process.device):
        return _pipeline(arguments)


def _pipeline(arguments: PPO | A2C | Reinforce) -> Pipeline:
    experience, learner = arguments.experience, arguments.learner
    yours = is_reference(experience.env)
    env = validate(load_env(experience.env) if yours else make(experience.env))
    distribution, notices = head_of(env, learner.action_bounds, yours=yours)
    model = network(env, learner, distribution)
    algorithm, names = TABLE[type(arguments)]
    settings = {name: getattr(arguments, name) for name in names}
    if not isinstance(arguments, Reinforce):
        settings["lambda_"] = arguments.gae_lambda
    passes = arguments.epochs * arguments.minibatches if isinstance(arguments, PPO) else 1
    updates = loop_of(experience, arguments.process).iterations * passes
    learns = algorithm(model, optimizer(learner, updates), gamma=learner.gamma, **settings)
    scales = normalizer(experience, learner)
    iteration = trainer(env, model, learns, envs=experience.envs, horizon=experience.horizon, normalizer=scales)
    if experience.probes:
        iteration = with_probes(iteration, *experience.probes)
    content = digest_of(experience.env) if yours else ""
    products = _products(arguments, model)
    return Pipeline(env, model, scales, iteration, products=products, content=content, notices=notices)


def _products(arguments: PPO | A2C | Reinforce, model: ActorCritic) -> int:
    """Return the multiply-adds of a forward pass over a minibatch; on a GPU none of them takes a thread."""
    if arguments.process.device != "cpu":
        return 0
    rows = iteration_steps(arguments.experience) // (arguments.minibatches if isinstance(arguments, PPO) else 1)
    return rows * int(model.init(keys.key(0)).numel())
