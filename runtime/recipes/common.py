"""What the recipes share: the parts that each of them wires the same way."""

from collections.abc import Callable
from typing import Any

from attrs import frozen

from ...core.env import Env
from ...core.optim import Optimizer, adam, chain, clip_by_global_norm, linear, scale_by_schedule
from ...core.policy import ActorCritic, actor_critic_mlp, flat
from ..normalizer import Normalizer, identity, running
from ..train import RunState, Trainer
from .arguments import Experience, Learner


def _as_it_is(state: RunState) -> RunState:
    return state


@frozen
class Pipeline:
    """A recipe's parts, wired."""

    env: Env[Any, Any]  # one world
    model: ActorCritic
    normalizer: Normalizer
    trainer: Trainer
    prepare: Callable[[RunState], RunState] = _as_it_is  # what is done once, before training
    content: str = ""  # what beside its arguments decides the run: a digest of the files it learns from
    opened: Any = ()  # what the recipe has made of those files, for who needs it again


def network(env: Env[Any, Any], learner: Learner) -> ActorCritic:
    """Two perceptrons for the env's spaces, their params in one vector so that the optimiser makes one pass over it."""
    spaces = env.observation_space, env.action_space
    return flat(actor_critic_mlp(*spaces, learner.hidden, learner.activation, product="auto"))


def optimizer(learner: Learner, updates: int) -> Optimizer:
    """Adam on gradients of bounded norm; with annealing its learning rate reaches 0 after so many updates."""
    parts = clip_by_global_norm(learner.max_gradient_norm), adam(learner.learning_rate, eps=1e-5)
    return chain(*parts, scale_by_schedule(linear(1.0, 0.0, updates))) if learner.anneal else chain(*parts)


def normalizer(experience: Experience, learner: Learner) -> Normalizer:
    """What scales observations and rewards, as the arguments ask for it."""
    if experience.normalize == "none":
        return identity()
    observations, rewards = experience.normalize != "rewards", experience.normalize != "observations"
    return running(observations=observations, rewards=rewards, gamma=learner.gamma)
