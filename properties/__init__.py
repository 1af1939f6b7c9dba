"""Laws, strategies and mutants for reinforcement learning written as pure step functions, for users' code and for ours.

    from purestep.properties import check, env_laws, verify
    test_my_world = check(env_laws, my_world())        # pytest: test_my_world[inputs_stay], ...
    print(verify(env_laws, my_world()))                # the same without pytest

A law is an equation over drawn inputs; it lists the events that must occur for a pass to count, and a mistake (a mutant) that
it must catch. A suite is a set of laws: `suite + (law,)`, `suite - {"name"}`.

This package exports the names that most users need; the others are imported from their modules, such as
`purestep.properties.suites.language.credit`: `framework` runs laws, `strategies` draws their inputs, and each module of
`suites` has the laws of one kind of object, with their mutants.

A name is imported when it is first used, so that the command line's help and pytest's option need no torch or hypothesis.
"""

from typing import TYPE_CHECKING

from ..runtime.deferred import Package as _Package
from ..runtime.deferred import lazy as _lazy

if TYPE_CHECKING:
    from .framework.check import check as check
    from .framework.check import check_as as check_as
    from .framework.check import verify as verify
    from .framework.classify import classify as classify
    from .framework.compare import EXACT as EXACT
    from .framework.compare import ROUNDING as ROUNDING
    from .framework.compare import Tolerance as Tolerance
    from .framework.compare import require as require
    from .framework.compare import same as same
    from .framework.law import Broken as Broken
    from .framework.law import Law as Law
    from .framework.law import Mutant as Mutant
    from .framework.law import NotHere as NotHere
    from .framework.law import Seen as Seen
    from .framework.law import Suite as Suite
    from .framework.law import Vacuous as Vacuous
    from .framework.profiles import named_profile as named_profile
    from .framework.run import run as run
    from .strategies.streams import streams as streams
    from .strategies.values import dyadic as dyadic
    from .strategies.values import flags as flags
    from .strategies.values import from_record as from_record
    from .strategies.values import integers as integers
    from .strategies.values import keys as keys
    from .strategies.values import masks as masks
    from .strategies.values import probabilities as probabilities
    from .strategies.values import register as register
    from .strategies.values import smooth as smooth
    from .strategies.walks import Walk as Walk
    from .strategies.walks import walks as walks
    from .suites.aggregate import aggregate_laws as aggregate_laws
    from .suites.categorical import categorical_laws as categorical_laws
    from .suites.checkpoint import TreeStore as TreeStore
    from .suites.checkpoint import checkpoint_laws as checkpoint_laws
    from .suites.checkpoint import resume_laws as resume_laws
    from .suites.distribution import distribution_laws as distribution_laws
    from .suites.env import env_laws as env_laws
    from .suites.env import env_suite as env_suite
    from .suites.epsilon import epsilon_laws as epsilon_laws
    from .suites.estimator import estimator_laws as estimator_laws
    from .suites.gradient import gradient_laws as gradient_laws
    from .suites.gym import gym_laws as gym_laws
    from .suites.gym_vector import vector_env_laws as vector_env_laws
    from .suites.gym_wrapper import wrapper_laws as wrapper_laws
    from .suites.importance import importance_laws as importance_laws
    from .suites.kl import kl_laws as kl_laws
    from .suites.language.causal import causal_laws as causal_laws
    from .suites.language.chat_mask import chat_mask_laws as chat_mask_laws
    from .suites.language.chat_template import chat_template_laws as chat_template_laws
    from .suites.language.codec import codec_laws as codec_laws
    from .suites.language.credit import credit_laws as credit_laws
    from .suites.language.group import group_laws as group_laws
    from .suites.language.masked_loss import masked_loss_laws as masked_loss_laws
    from .suites.language.parser import ParserFunctions as ParserFunctions
    from .suites.language.parser import parser_laws as parser_laws
    from .suites.language.preparation import preparation_laws as preparation_laws
    from .suites.language.reward_function import reward_function_laws as reward_function_laws
    from .suites.language.text_env import text_env_laws as text_env_laws
    from .suites.language.token_gae import token_gae_laws as token_gae_laws
    from .suites.language.token_log_prob import token_log_prob_laws as token_log_prob_laws
    from .suites.language.token_loss import token_loss_laws as token_loss_laws
    from .suites.language.token_mask import token_mask_laws as token_mask_laws
    from .suites.language.tool_parser import tool_parser_laws as tool_parser_laws
    from .suites.learner import learner_laws as learner_laws
    from .suites.loss import loss_laws as loss_laws
    from .suites.machine import MachineCase as MachineCase
    from .suites.machine import machine_laws as machine_laws
    from .suites.memory import memory_laws as memory_laws
    from .suites.metric import metric_laws as metric_laws
    from .suites.module import module_laws as module_laws
    from .suites.normalizer import NormalizerFunctions as NormalizerFunctions
    from .suites.normalizer import normalizer_laws as normalizer_laws
    from .suites.optimizer import optimizer_laws as optimizer_laws
    from .suites.order import order_laws as order_laws
    from .suites.policy import policy_laws as policy_laws
    from .suites.precision import precision_laws as precision_laws
    from .suites.probe import probe_laws as probe_laws
    from .suites.projection import categorical_projection_laws as categorical_projection_laws
    from .suites.replay import replay_laws as replay_laws
    from .suites.returns import lambda_return_laws as lambda_return_laws
    from .suites.returns import vtrace_laws as vtrace_laws
    from .suites.sampler import sampler_laws as sampler_laws
    from .suites.scan import scan_laws as scan_laws
    from .suites.schedule import schedule_laws as schedule_laws
    from .suites.step import step_laws as step_laws
    from .suites.sum_tree import sum_tree_laws as sum_tree_laws
    from .suites.target import n_step_laws as n_step_laws
    from .suites.target import target_laws as target_laws
    from .suites.target_network import target_network_laws as target_network_laws
    from .suites.update import update_laws as update_laws
    from .suites.value_loss import value_loss_laws as value_loss_laws
    from .suites.wrapper import auto_reset_laws as auto_reset_laws
    from .suites.wrapper import time_limit_laws as time_limit_laws
else:
    import sys as _sys

    _MODULES = {
        "framework.check": ("check", "check_as", "verify"),
        "framework.classify": ("classify",),
        "framework.compare": ("EXACT", "ROUNDING", "Tolerance", "require", "same"),
        "framework.law": ("Broken", "Law", "Mutant", "NotHere", "Seen", "Suite", "Vacuous"),
        "framework.profiles": ("named_profile",),
        "framework.run": ("run",),
        "strategies.streams": ("streams",),
        "strategies.values": (
            "dyadic",
            "flags",
            "from_record",
            "integers",
            "keys",
            "masks",
            "probabilities",
            "register",
            "smooth",
        ),
        "strategies.walks": ("Walk", "walks"),
        "suites.aggregate": ("aggregate_laws",),
        "suites.categorical": ("categorical_laws",),
        "suites.checkpoint": ("TreeStore", "checkpoint_laws", "resume_laws"),
        "suites.distribution": ("distribution_laws",),
        "suites.env": ("env_laws", "env_suite"),
        "suites.epsilon": ("epsilon_laws",),
        "suites.estimator": ("estimator_laws",),
        "suites.gradient": ("gradient_laws",),
        "suites.gym": ("gym_laws",),
        "suites.gym_vector": ("vector_env_laws",),
        "suites.gym_wrapper": ("wrapper_laws",),
        "suites.importance": ("importance_laws",),
        "suites.kl": ("kl_laws",),
        "suites.language.causal": ("causal_laws",),
        "suites.language.chat_mask": ("chat_mask_laws",),
        "suites.language.chat_template": ("chat_template_laws",),
        "suites.language.codec": ("codec_laws",),
        "suites.language.credit": ("credit_laws",),
        "suites.language.group": ("group_laws",),
        "suites.language.masked_loss": ("masked_loss_laws",),
        "suites.language.parser": ("ParserFunctions", "parser_laws"),
        "suites.language.preparation": ("preparation_laws",),
        "suites.language.reward_function": ("reward_function_laws",),
        "suites.language.text_env": ("text_env_laws",),
        "suites.language.token_gae": ("token_gae_laws",),
        "suites.language.token_log_prob": ("token_log_prob_laws",),
        "suites.language.token_loss": ("token_loss_laws",),
        "suites.language.token_mask": ("token_mask_laws",),
        "suites.language.tool_parser": ("tool_parser_laws",),
        "suites.learner": ("learner_laws",),
        "suites.loss": ("loss_laws",),
        "suites.machine": ("MachineCase", "machine_laws"),
        "suites.memory": ("memory_laws",),
        "suites.metric": ("metric_laws",),
        "suites.module": ("module_laws",),
        "suites.normalizer": ("NormalizerFunctions", "normalizer_laws"),
        "suites.optimizer": ("optimizer_laws",),
        "suites.order": ("order_laws",),
        "suites.policy": ("policy_laws",),
        "suites.precision": ("precision_laws",),
        "suites.probe": ("probe_laws",),
        "suites.projection": ("categorical_projection_laws",),
        "suites.replay": ("replay_laws",),
        "suites.returns": ("lambda_return_laws", "vtrace_laws"),
        "suites.sampler": ("sampler_laws",),
        "suites.scan": ("scan_laws",),
        "suites.schedule": ("schedule_laws",),
        "suites.step": ("step_laws",),
        "suites.sum_tree": ("sum_tree_laws",),
        "suites.target": ("n_step_laws", "target_laws"),
        "suites.target_network": ("target_network_laws",),
        "suites.update": ("update_laws",),
        "suites.value_loss": ("value_loss_laws",),
        "suites.wrapper": ("auto_reset_laws", "time_limit_laws"),
    }
    __all__ = [name for names in _MODULES.values() for name in names]
    __getattr__, __dir__ = _lazy(__name__, _MODULES, globals())
    _sys.modules[__name__].__class__ = _Package  # so that a submodule does not replace one of these names
