"""purestep: reinforcement learning as pure, compiled steps over immutable records.

The names most pipelines need, by hand; `purestep.core`, `purestep.algorithms` and `purestep.runtime` hold the rest, and
`purestep.properties`, which needs hypothesis, the laws. A name is imported when it is first used:
`import purestep` alone needs no torch.
"""

from typing import TYPE_CHECKING

from .runtime.deferred import lazy as _lazy

if TYPE_CHECKING:
    from .algorithms.a2c import a2c as a2c
    from .algorithms.advantages import gae as gae
    from .algorithms.algorithm import Algorithm as Algorithm
    from .algorithms.algorithm import TrainState as TrainState
    from .algorithms.kl import k1 as k1
    from .algorithms.kl import k2 as k2
    from .algorithms.kl import k3 as k3
    from .algorithms.policy_losses import policy_gradient as policy_gradient
    from .algorithms.policy_losses import ppo_clip as ppo_clip
    from .algorithms.ppo import ppo as ppo
    from .algorithms.reinforce import reinforce as reinforce
    from .algorithms.returns import discounted as discounted
    from .algorithms.returns import lambda_returns as lambda_returns
    from .algorithms.returns import n_step as n_step
    from .algorithms.vtrace import vtrace as vtrace
    from .core import keys as keys
    from .core.distributions import Categorical as Categorical
    from .core.distributions import Normal as Normal
    from .core.distributions import TanhNormal as TanhNormal
    from .core.env import Env as Env
    from .core.env import Hoisted as Hoisted
    from .core.env import auto_reset as auto_reset
    from .core.env import batched as batched
    from .core.env import episode_statistics as episode_statistics
    from .core.env import time_limit as time_limit
    from .core.envs import ENVS as ENVS
    from .core.envs import make as make
    from .core.errors import PurestepError as PurestepError
    from .core.machine import Machine as Machine
    from .core.networks import Network as Network
    from .core.networks import functional as functional
    from .core.networks import mlp as mlp
    from .core.optim.optimizers import Optimizer as Optimizer
    from .core.optim.optimizers import adam as adam
    from .core.optim.optimizers import adamw as adamw
    from .core.optim.optimizers import apply_updates as apply_updates
    from .core.optim.optimizers import chain as chain
    from .core.optim.optimizers import clip_by_global_norm as clip_by_global_norm
    from .core.optim.optimizers import linear as linear
    from .core.optim.optimizers import scale_by_schedule as scale_by_schedule
    from .core.optim.optimizers import sgd as sgd
    from .core.policy import ActorCritic as ActorCritic
    from .core.policy import act as act
    from .core.policy import actor_critic_mlp as actor_critic_mlp
    from .core.policy import flat as flat
    from .core.policy import separate as separate
    from .core.policy import shared as shared
    from .core.record import check as check
    from .core.record import record as record
    from .core.record import replace as replace
    from .core.record import static as static
    from .core.record import tensor as tensor
    from .core.scan import scan as scan
    from .core.spaces import Box as Box
    from .core.spaces import Discrete as Discrete
    from .core.spaces import Fields as Fields
    from .core.steps import TimeStep as TimeStep
    from .core.steps import Trajectory as Trajectory
    from .core.steps import Transition as Transition
    from .core.steps import first as first
    from .core.steps import following as following
    from .runtime.compile import program as program
    from .runtime.evaluate import evaluate as evaluate
    from .runtime.machine.drive import drive as drive
    from .runtime.normalizer import running as running
    from .runtime.rollout import rollout as rollout
    from .runtime.train import RunState as RunState
    from .runtime.train import train as train
    from .runtime.train import trainer as trainer
    from .runtime.validate import validate as validate
else:
    _MODULES = {
        "algorithms.a2c": ("a2c",),
        "algorithms.advantages": ("gae",),
        "algorithms.algorithm": ("Algorithm", "TrainState"),
        "algorithms.kl": ("k1", "k2", "k3"),
        "algorithms.policy_losses": ("policy_gradient", "ppo_clip"),
        "algorithms.ppo": ("ppo",),
        "algorithms.reinforce": ("reinforce",),
        "algorithms.returns": ("discounted", "lambda_returns", "n_step"),
        "algorithms.vtrace": ("vtrace",),
        "core": ("keys",),
        "core.distributions": ("Categorical", "Normal", "TanhNormal"),
        "core.env": ("Env", "Hoisted", "auto_reset", "batched", "episode_statistics", "time_limit"),
        "core.envs": ("ENVS", "make"),
        "core.errors": ("PurestepError",),
        "core.machine": ("Machine",),
        "core.networks": ("Network", "functional", "mlp"),
        "core.optim.optimizers": (
            "Optimizer",
            "adam",
            "adamw",
            "apply_updates",
            "chain",
            "clip_by_global_norm",
            "linear",
            "scale_by_schedule",
            "sgd",
        ),
        "core.policy": ("ActorCritic", "act", "actor_critic_mlp", "flat", "separate", "shared"),
        "core.record": ("check", "record", "replace", "static", "tensor"),
        "core.scan": ("scan",),
        "core.spaces": ("Box", "Discrete", "Fields"),
        "core.steps": ("TimeStep", "Trajectory", "Transition", "first", "following"),
        "runtime.compile": ("program",),
        "runtime.evaluate": ("evaluate",),
        "runtime.machine.drive": ("drive",),
        "runtime.normalizer": ("running",),
        "runtime.rollout": ("rollout",),
        "runtime.train": ("RunState", "train", "trainer"),
        "runtime.validate": ("validate",),
    }
    __all__ = [name for names in _MODULES.values() for name in names]
    __getattr__, __dir__ = _lazy(__name__, _MODULES, globals())
