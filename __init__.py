"""purestep: reinforcement learning as pure, compiled steps over immutable records.

The names that most pipelines need are listed below; docs/compose.md shows how to compose a pipeline of your own from them.
`purestep.core`, `purestep.algorithms` and `purestep.runtime` hold the rest, and `purestep.properties`, which needs hypothesis,
the laws. A name is imported when it is first used: `import purestep` alone needs no torch.

Records and keys:
    keys, check, record, replace, select, stack, static, take, tensor, scan, tree_map, PurestepError
Environments:
    Env, Hoisted, auto_reset, batched, episode_statistics, time_limit, ENVS, make, Box, Discrete, Fields, MultiBinary,
    MultiDiscrete, Tuple, TimeStep, Trajectory, Transition, ended, first, following, validate
Policies and networks:
    Categorical, EpsilonGreedy, MultiCategorical, Normal, Product, TanhNormal, Network, functional, mlp, nature_cnn, impala_cnn,
    ActorCritic, act, actor_critic_mlp, encoded_actor_critic, recurrent_actor_critic, module_cell, categorical_head, flat,
    normal_head, scalar, separate, shared, action_values, action_values_mlp, encoded_action_values, quantile_values_mlp,
    implicit_quantiles_mlp, categorical_values_mlp, categorical_actor, categorical_actor_mlp, deterministic_actor,
    deterministic_actor_mlp, stochastic_actor, stochastic_actor_mlp
Several agents:
    agent_views, by_agent, central_critic, own_parameters
Optimizers and schedules:
    Optimizer, adam, adamw, add_decayed_weights, apply_updates, chain, clip_by_global_norm, linear_decay, scale_by_adam,
    scale_by_rate, scale_by_schedule, sgd, constant, cosine, linear, warmup
Estimators and losses:
    gae, k1, k2, k3, policy_gradient, ppo_clip, project_categorical, quantile_huber_loss, discounted, lambda_returns, n_step,
    vtrace
Algorithms:
    a2c, Algorithm, TrainState, categorical_dqn, ddpg, discrete_sac, dqn, iqn, ppo, pqn, quantile_dqn, reinforce, sac,
    scheduled, td3, Demonstrations, imitation
Rollouts, training and evaluation:
    Worlds, reset_rollout, rollout, RunState, Trainer, train, trainer, evaluate, summary, running, with_normalizer,
    population, with_hyperparameters, program, probe, probed, with_probes
Trained policies and checkpoints:
    load, policy, TrainedPolicy, export, load_checkpoint
Effects and machines:
    Machine, drive, replay_buffer, queue
Text environments:
    parsers, Codec, byte_codec, Answer, Call, Parsed, answer, either, find_calls, strict_answer, tagged, tool_call,
    Protocol, protocol, Request, expand, repeat, requests, task_keys, Rollout, TextTask, Outcome, TextEnv,
    transcripts
Language models:
    objectives, LanguageAlgorithm, LanguageState, learner, Objective, cispo, credited, dapo, dr_grpo, grpo, gspo,
    rloo, Transcript, rollouts, causal_model, from_config, tiny_llama, language_trainer, train_text

Names that clash stay in their modules: `parsers.chain` and `parsers.after` compose parsers, `objectives.ppo` and
`objectives.reinforce` are objectives of `learner`, which trains language models. examples/text_task.py is a text task.
"""

from typing import TYPE_CHECKING

from .runtime.deferred import lazy as _lazy

if TYPE_CHECKING:
    from .algorithms.a2c import a2c as a2c
    from .algorithms.advantages import gae as gae
    from .algorithms.algorithm import Algorithm as Algorithm
    from .algorithms.algorithm import TrainState as TrainState
    from .algorithms.algorithm import scheduled as scheduled
    from .algorithms.categorical_dqn import categorical_dqn as categorical_dqn
    from .algorithms.ddpg import ddpg as ddpg
    from .algorithms.discrete_sac import discrete_sac as discrete_sac
    from .algorithms.distributional_losses import project_categorical as project_categorical
    from .algorithms.distributional_losses import quantile_huber_loss as quantile_huber_loss
    from .algorithms.dqn import dqn as dqn
    from .algorithms.imitation import Demonstrations as Demonstrations
    from .algorithms.imitation import imitation as imitation
    from .algorithms.iqn import iqn as iqn
    from .algorithms.kl import k1 as k1
    from .algorithms.kl import k2 as k2
    from .algorithms.kl import k3 as k3
    from .algorithms.language import objectives as objectives
    from .algorithms.language.learner import LanguageAlgorithm as LanguageAlgorithm
    from .algorithms.language.learner import LanguageState as LanguageState
    from .algorithms.language.learner import learner as learner
    from .algorithms.language.objectives import Objective as Objective
    from .algorithms.language.objectives import cispo as cispo
    from .algorithms.language.objectives import credited as credited
    from .algorithms.language.objectives import dapo as dapo
    from .algorithms.language.objectives import dr_grpo as dr_grpo
    from .algorithms.language.objectives import grpo as grpo
    from .algorithms.language.objectives import gspo as gspo
    from .algorithms.language.objectives import rloo as rloo
    from .algorithms.losses import policy_gradient as policy_gradient
    from .algorithms.losses import ppo_clip as ppo_clip
    from .algorithms.ppo import ppo as ppo
    from .algorithms.pqn import pqn as pqn
    from .algorithms.quantile_dqn import quantile_dqn as quantile_dqn
    from .algorithms.reinforce import reinforce as reinforce
    from .algorithms.returns import discounted as discounted
    from .algorithms.returns import lambda_returns as lambda_returns
    from .algorithms.returns import n_step as n_step
    from .algorithms.sac import sac as sac
    from .algorithms.td3 import td3 as td3
    from .algorithms.vtrace import vtrace as vtrace
    from .core import keys as keys
    from .core.action_values import action_values as action_values
    from .core.action_values import action_values_mlp as action_values_mlp
    from .core.action_values import encoded_action_values as encoded_action_values
    from .core.actor_q import deterministic_actor as deterministic_actor
    from .core.actor_q import deterministic_actor_mlp as deterministic_actor_mlp
    from .core.actor_q import stochastic_actor as stochastic_actor
    from .core.actor_q import stochastic_actor_mlp as stochastic_actor_mlp
    from .core.agents import agent_views as agent_views
    from .core.agents import by_agent as by_agent
    from .core.agents import central_critic as central_critic
    from .core.agents import own_parameters as own_parameters
    from .core.categorical_actor import categorical_actor as categorical_actor
    from .core.categorical_actor import categorical_actor_mlp as categorical_actor_mlp
    from .core.categorical_values import categorical_values_mlp as categorical_values_mlp
    from .core.convolutions import impala_cnn as impala_cnn
    from .core.convolutions import nature_cnn as nature_cnn
    from .core.distributions import Categorical as Categorical
    from .core.distributions import EpsilonGreedy as EpsilonGreedy
    from .core.distributions import MultiCategorical as MultiCategorical
    from .core.distributions import Normal as Normal
    from .core.distributions import Product as Product
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
    from .core.language import parsers as parsers
    from .core.language.codec import Codec as Codec
    from .core.language.codec import byte_codec as byte_codec
    from .core.language.parsers import Answer as Answer
    from .core.language.parsers import Call as Call
    from .core.language.parsers import Parsed as Parsed
    from .core.language.parsers import answer as answer
    from .core.language.parsers import either as either
    from .core.language.parsers import find_calls as find_calls
    from .core.language.parsers import strict_answer as strict_answer
    from .core.language.parsers import tagged as tagged
    from .core.language.parsers import tool_call as tool_call
    from .core.language.protocol import Protocol as Protocol
    from .core.language.protocol import protocol as protocol
    from .core.language.requests import Request as Request
    from .core.language.requests import expand as expand
    from .core.language.requests import repeat as repeat
    from .core.language.requests import requests as requests
    from .core.language.requests import task_keys as task_keys
    from .core.language.task import TextTask as TextTask
    from .core.language.text_env import Outcome as Outcome
    from .core.language.text_env import TextEnv as TextEnv
    from .core.language.to_transcript import transcripts as transcripts
    from .core.language.types import Rollout as Rollout
    from .core.language.types import Transcript as Transcript
    from .core.machine import Machine as Machine
    from .core.networks import Network as Network
    from .core.networks import functional as functional
    from .core.networks import mlp as mlp
    from .core.optim.interface import Optimizer as Optimizer
    from .core.optim.optimizers import adam as adam
    from .core.optim.optimizers import adamw as adamw
    from .core.optim.optimizers import add_decayed_weights as add_decayed_weights
    from .core.optim.optimizers import apply_updates as apply_updates
    from .core.optim.optimizers import chain as chain
    from .core.optim.optimizers import clip_by_global_norm as clip_by_global_norm
    from .core.optim.optimizers import linear_decay as linear_decay
    from .core.optim.optimizers import scale_by_adam as scale_by_adam
    from .core.optim.optimizers import scale_by_rate as scale_by_rate
    from .core.optim.optimizers import scale_by_schedule as scale_by_schedule
    from .core.optim.optimizers import sgd as sgd
    from .core.optim.schedules import constant as constant
    from .core.optim.schedules import cosine as cosine
    from .core.optim.schedules import linear as linear
    from .core.optim.schedules import warmup as warmup
    from .core.policy import ActorCritic as ActorCritic
    from .core.policy import act as act
    from .core.policy import actor_critic_mlp as actor_critic_mlp
    from .core.policy import categorical_head as categorical_head
    from .core.policy import encoded_actor_critic as encoded_actor_critic
    from .core.policy import flat as flat
    from .core.policy import normal_head as normal_head
    from .core.policy import scalar as scalar
    from .core.policy import separate as separate
    from .core.policy import shared as shared
    from .core.probes import probe as probe
    from .core.probes import probed as probed
    from .core.quantile_values import implicit_quantiles_mlp as implicit_quantiles_mlp
    from .core.quantile_values import quantile_values_mlp as quantile_values_mlp
    from .core.record import check as check
    from .core.record import record as record
    from .core.record import replace as replace
    from .core.record import select as select
    from .core.record import stack as stack
    from .core.record import static as static
    from .core.record import take as take
    from .core.record import tensor as tensor
    from .core.recurrent import module_cell as module_cell
    from .core.recurrent import recurrent_actor_critic as recurrent_actor_critic
    from .core.scan import scan as scan
    from .core.spaces import Box as Box
    from .core.spaces import Discrete as Discrete
    from .core.spaces import Fields as Fields
    from .core.spaces import MultiBinary as MultiBinary
    from .core.spaces import MultiDiscrete as MultiDiscrete
    from .core.spaces import Tuple as Tuple
    from .core.steps import TimeStep as TimeStep
    from .core.steps import Trajectory as Trajectory
    from .core.steps import Transition as Transition
    from .core.steps import ended as ended
    from .core.steps import first as first
    from .core.steps import following as following
    from .core.tree import tree_map as tree_map
    from .runtime.compile import program as program
    from .runtime.effects.bounded_queue import queue as queue
    from .runtime.effects.checkpoint.load import load_checkpoint as load_checkpoint
    from .runtime.effects.generation.engine import rollouts as rollouts
    from .runtime.effects.hugging_face.causal_lm import causal_model as causal_model
    from .runtime.effects.hugging_face.causal_lm import from_config as from_config
    from .runtime.effects.hugging_face.causal_lm import tiny_llama as tiny_llama
    from .runtime.effects.policy_files.export import export as export
    from .runtime.effects.replay_buffer import replay_buffer as replay_buffer
    from .runtime.evaluate import evaluate as evaluate
    from .runtime.evaluate import summary as summary
    from .runtime.machine.drive import drive as drive
    from .runtime.normalizer import running as running
    from .runtime.normalizer import with_normalizer as with_normalizer
    from .runtime.population import population as population
    from .runtime.population import with_hyperparameters as with_hyperparameters
    from .runtime.recipes.load_policy import load as load
    from .runtime.recipes.train_text import train_text as train_text
    from .runtime.rollout import Worlds as Worlds
    from .runtime.rollout import reset_rollout as reset_rollout
    from .runtime.rollout import rollout as rollout
    from .runtime.text.trainer import language_trainer as language_trainer
    from .runtime.train import RunState as RunState
    from .runtime.train import Trainer as Trainer
    from .runtime.train import train as train
    from .runtime.train import trainer as trainer
    from .runtime.train import with_probes as with_probes
    from .runtime.trained_policy import TrainedPolicy as TrainedPolicy
    from .runtime.trained_policy import policy as policy
    from .runtime.validate import validate as validate
else:
    _MODULES = {
        "algorithms.a2c": ("a2c",),
        "algorithms.advantages": ("gae",),
        "algorithms.algorithm": ("Algorithm", "TrainState", "scheduled"),
        "algorithms.categorical_dqn": ("categorical_dqn",),
        "algorithms.ddpg": ("ddpg",),
        "algorithms.discrete_sac": ("discrete_sac",),
        "algorithms.distributional_losses": ("project_categorical", "quantile_huber_loss"),
        "algorithms.dqn": ("dqn",),
        "algorithms.imitation": ("Demonstrations", "imitation"),
        "algorithms.iqn": ("iqn",),
        "algorithms.kl": ("k1", "k2", "k3"),
        "algorithms.language": ("objectives",),
        "algorithms.language.learner": ("LanguageAlgorithm", "LanguageState", "learner"),
        "algorithms.language.objectives": ("Objective", "cispo", "credited", "dapo", "dr_grpo", "grpo", "gspo", "rloo"),
        "algorithms.losses": ("policy_gradient", "ppo_clip"),
        "algorithms.ppo": ("ppo",),
        "algorithms.pqn": ("pqn",),
        "algorithms.quantile_dqn": ("quantile_dqn",),
        "algorithms.reinforce": ("reinforce",),
        "algorithms.returns": ("discounted", "lambda_returns", "n_step"),
        "algorithms.sac": ("sac",),
        "algorithms.td3": ("td3",),
        "algorithms.vtrace": ("vtrace",),
        "core": ("keys",),
        "core.action_values": ("action_values", "action_values_mlp", "encoded_action_values"),
        "core.actor_q": ("deterministic_actor", "deterministic_actor_mlp", "stochastic_actor", "stochastic_actor_mlp"),
        "core.agents": ("agent_views", "by_agent", "central_critic", "own_parameters"),
        "core.categorical_actor": ("categorical_actor", "categorical_actor_mlp"),
        "core.categorical_values": ("categorical_values_mlp",),
        "core.convolutions": ("impala_cnn", "nature_cnn"),
        "core.distributions": ("Categorical", "EpsilonGreedy", "MultiCategorical", "Normal", "Product", "TanhNormal"),
        "core.env": ("Env", "Hoisted", "auto_reset", "batched", "episode_statistics", "time_limit"),
        "core.envs": ("ENVS", "make"),
        "core.errors": ("PurestepError",),
        "core.language": ("parsers",),
        "core.language.codec": ("Codec", "byte_codec"),
        "core.language.parsers": (
            "Answer",
            "Call",
            "Parsed",
            "answer",
            "either",
            "find_calls",
            "strict_answer",
            "tagged",
            "tool_call",
        ),
        "core.language.protocol": ("Protocol", "protocol"),
        "core.language.requests": ("Request", "expand", "repeat", "requests", "task_keys"),
        "core.language.task": ("TextTask",),
        "core.language.text_env": ("Outcome", "TextEnv"),
        "core.language.to_transcript": ("transcripts",),
        "core.language.types": ("Rollout", "Transcript"),
        "core.machine": ("Machine",),
        "core.networks": ("Network", "functional", "mlp"),
        "core.optim.interface": ("Optimizer",),
        "core.optim.optimizers": (
            "adam",
            "adamw",
            "add_decayed_weights",
            "apply_updates",
            "chain",
            "clip_by_global_norm",
            "linear_decay",
            "scale_by_adam",
            "scale_by_rate",
            "scale_by_schedule",
            "sgd",
        ),
        "core.optim.schedules": ("constant", "cosine", "linear", "warmup"),
        "core.policy": (
            "ActorCritic",
            "act",
            "actor_critic_mlp",
            "categorical_head",
            "encoded_actor_critic",
            "flat",
            "normal_head",
            "scalar",
            "separate",
            "shared",
        ),
        "core.probes": ("probe", "probed"),
        "core.quantile_values": ("implicit_quantiles_mlp", "quantile_values_mlp"),
        "core.record": ("check", "record", "replace", "select", "stack", "static", "take", "tensor"),
        "core.recurrent": ("module_cell", "recurrent_actor_critic"),
        "core.scan": ("scan",),
        "core.spaces": ("Box", "Discrete", "Fields", "MultiBinary", "MultiDiscrete", "Tuple"),
        "core.steps": ("TimeStep", "Trajectory", "Transition", "ended", "first", "following"),
        "core.tree": ("tree_map",),
        "runtime.compile": ("program",),
        "runtime.effects.bounded_queue": ("queue",),
        "runtime.effects.checkpoint.load": ("load_checkpoint",),
        "runtime.effects.generation.engine": ("rollouts",),
        "runtime.effects.hugging_face.causal_lm": ("causal_model", "from_config", "tiny_llama"),
        "runtime.effects.policy_files.export": ("export",),
        "runtime.effects.replay_buffer": ("replay_buffer",),
        "runtime.evaluate": ("evaluate", "summary"),
        "runtime.machine.drive": ("drive",),
        "runtime.normalizer": ("running", "with_normalizer"),
        "runtime.population": ("population", "with_hyperparameters"),
        "runtime.recipes.load_policy": ("load",),
        "runtime.recipes.train_text": ("train_text",),
        "runtime.rollout": ("Worlds", "reset_rollout", "rollout"),
        "runtime.text.trainer": ("language_trainer",),
        "runtime.train": ("RunState", "Trainer", "train", "trainer", "with_probes"),
        "runtime.trained_policy": ("TrainedPolicy", "policy"),
        "runtime.validate": ("validate",),
    }
    __all__ = [name for names in _MODULES.values() for name in names]
    __getattr__, __dir__ = _lazy(__name__, _MODULES, globals())
