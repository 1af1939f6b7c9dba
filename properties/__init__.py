"""Laws, strategies and mutants for reinforcement learning written as pure steps: for users' code as for our own.

    from purestep.properties import check, env_laws, verify
    test_my_world = check(env_laws, my_world())        # pytest: test_my_world[inputs_stay], ...
    print(verify(env_laws, my_world()))                # the same without pytest

A law is an equation over drawn inputs; it says what it must have seen to mean anything, and which mistake it is there to
catch. A suite is a set of laws: `suite + (law,)`, `suite - {"name"}`.
"""

from .canonical_laws import Renaming as Renaming
from .canonical_laws import canonical_laws as canonical_laws
from .categorical_laws import categorical_laws as categorical_laws
from .check import check as check
from .check import verify as verify
from .checkpoint_laws import Store as Store
from .checkpoint_laws import checkpoint_laws as checkpoint_laws
from .classify import classify as classify
from .compare import CURVATURE as CURVATURE
from .compare import DOUBLE as DOUBLE
from .compare import EXACT as EXACT
from .compare import ROUNDING as ROUNDING
from .compare import Tolerance as Tolerance
from .compare import render as render
from .compare import require as require
from .compare import same as same
from .corrupt_laws import corrupt_laws as corrupt_laws
from .corruptions_laws import corruptions_laws as corruptions_laws
from .derive_laws import derive_laws as derive_laws
from .env_laws import env_laws as env_laws
from .env_laws import env_suite as env_suite
from .estimator_laws import estimator_laws as estimator_laws
from .estimator_laws import estimator_step_laws as estimator_step_laws
from .game_laws import game_laws as game_laws
from .game_mutants import Moves as Moves
from .gradient_laws import gradient_laws as gradient_laws
from .kernel_laws import kernel_laws as kernel_laws
from .kl_laws import kl_laws as kl_laws
from .knowledge_laws import knowledge_laws as knowledge_laws
from .knowledge_laws import matching_laws as matching_laws
from .law import Broken as Broken
from .law import Law as Law
from .law import Mutant as Mutant
from .law import NotHere as NotHere
from .law import Seen as Seen
from .law import Suite as Suite
from .law import Vacuous as Vacuous
from .law import lifted as lifted
from .link_prediction_laws import link_prediction_laws as link_prediction_laws
from .logic_strategies import Question as Question
from .logic_strategies import questions as questions
from .loss_laws import loss_laws as loss_laws
from .machine_laws import Play as Play
from .machine_laws import machine_laws as machine_laws
from .masked_loss_laws import masked_loss_laws as masked_loss_laws
from .mdps import layered_mdps as layered_mdps
from .mdps import tabular_mdps as tabular_mdps
from .module_laws import module_laws as module_laws
from .order_laws import order_laws as order_laws
from .policy_laws import policy_laws as policy_laws
from .probe_laws import probe_laws as probe_laws
from .profiles import Profile as Profile
from .profiles import named_profile as named_profile
from .proof_policy_laws import proof_policy_laws as proof_policy_laws
from .recycle_laws import recycle_laws as recycle_laws
from .recycle_mutants import Recycling as Recycling
from .report import Report as Report
from .report import Result as Result
from .return_laws import lambda_return_laws as lambda_return_laws
from .return_laws import vtrace_laws as vtrace_laws
from .run import run as run
from .scan_laws import scan_laws as scan_laws
from .step_laws import step_laws as step_laws
from .strategies import dyadic as dyadic
from .strategies import flags as flags
from .strategies import from_record as from_record
from .strategies import integers as integers
from .strategies import keys as keys
from .strategies import like as like
from .strategies import log_prob_pairs as log_prob_pairs
from .strategies import masks as masks
from .strategies import probabilities as probabilities
from .strategies import raw as raw
from .strategies import register as register
from .strategies import seeds as seeds
from .strategies import smooth as smooth
from .streams import Stream as Stream
from .streams import discounted as discounted
from .streams import streams as streams
from .table_policy import table_policy as table_policy
from .unify_laws import unify_laws as unify_laws
from .update_laws import update_laws as update_laws
from .walks import Walk as Walk
from .walks import walks as walks
from .wrapper_laws import auto_reset_laws as auto_reset_laws
from .wrapper_laws import time_limit_laws as time_limit_laws
