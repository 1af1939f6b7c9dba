"""Laws, strategies and mutants for reinforcement learning written as pure steps: for users' code as for our own.

    from purestep.properties import check, env_laws, verify
    test_my_world = check(env_laws, my_world())        # pytest: test_my_world[inputs_stay], ...
    print(verify(env_laws, my_world()))                # the same without pytest

A law is an equation over drawn inputs; it says what it must have seen to mean anything, and which mistake it is there to
catch. A suite is a set of laws: `suite + (law,)`, `suite - {"name"}`.

A name is imported when it is first used: neither the command line's help nor pytest's option needs torch or hypothesis.
"""

from typing import TYPE_CHECKING

from ..runtime.deferred import Package as _Package
from ..runtime.deferred import lazy as _lazy

if TYPE_CHECKING:
    from .aggregate_laws import aggregate_laws as aggregate_laws
    from .aggregate_mutants import Reduction as Reduction
    from .attempt_laws import attempt_laws as attempt_laws
    from .attempt_mutants import Trying as Trying
    from .auditing_laws import auditing_laws as auditing_laws
    from .batch_families import own_crediting as own_crediting
    from .batch_families import own_packer as own_packer
    from .canonical_laws import Renaming as Renaming
    from .canonical_laws import canonical_laws as canonical_laws
    from .categorical_laws import categorical_laws as categorical_laws
    from .causal_laws import causal_laws as causal_laws
    from .check import check as check
    from .check import verify as verify
    from .checkpoint_laws import Store as Store
    from .checkpoint_laws import checkpoint_laws as checkpoint_laws
    from .choice_laws import choice_laws as choice_laws
    from .classify import classify as classify
    from .codec_laws import codec_laws as codec_laws
    from .column_laws import column_laws as column_laws
    from .column_mutants import Columns as Columns
    from .compare import CURVATURE as CURVATURE
    from .compare import DOUBLE as DOUBLE
    from .compare import EXACT as EXACT
    from .compare import ROUNDING as ROUNDING
    from .compare import Tolerance as Tolerance
    from .compare import render as render
    from .compare import require as require
    from .compare import same as same
    from .comparing_laws import Comparing as Comparing
    from .comparing_laws import comparing_laws as comparing_laws
    from .corrupt_laws import corrupt_laws as corrupt_laws
    from .corruptions_laws import corruptions_laws as corruptions_laws
    from .credit_laws import credit_laws as credit_laws
    from .credit_mutants import Crediting as Crediting
    from .cycling_laws import cycling_laws as cycling_laws
    from .cycling_mutants import Cycling as Cycling
    from .decode_families import own_sampling as own_sampling
    from .decode_families import own_slots as own_slots
    from .decode_laws import decode_laws as decode_laws
    from .decode_mutants import Slots as Slots
    from .decoupled_laws import decoupled_laws as decoupled_laws
    from .decoupled_mutants import Anchoring as Anchoring
    from .decoupled_update_laws import decoupled_update_laws as decoupled_update_laws
    from .demonstration_laws import demonstration_laws as demonstration_laws
    from .demonstration_mutants import Showing as Showing
    from .derive_laws import derive_laws as derive_laws
    from .desk_laws import desk_laws as desk_laws
    from .desk_schedules import Desking as Desking
    from .engine_laws import engine_laws as engine_laws
    from .engine_world import Clustering as Clustering
    from .engine_world import own_clustering as own_clustering
    from .env_laws import env_laws as env_laws
    from .env_laws import env_suite as env_suite
    from .estimator_laws import estimator_laws as estimator_laws
    from .estimator_laws import estimator_step_laws as estimator_step_laws
    from .experience_laws import Replaying as Replaying
    from .experience_laws import experience_laws as experience_laws
    from .filing_laws import Filing as Filing
    from .filing_laws import filing_laws as filing_laws
    from .game_laws import game_laws as game_laws
    from .game_mutants import Moves as Moves
    from .gradient_laws import gradient_laws as gradient_laws
    from .group_laws import group_laws as group_laws
    from .hands_laws import Posting as Posting
    from .hands_laws import hands_laws as hands_laws
    from .hands_laws import own_posting as own_posting
    from .identity_laws import identity_laws as identity_laws
    from .importance_laws import importance_laws as importance_laws
    from .kernel_laws import kernel_laws as kernel_laws
    from .kl_laws import kl_laws as kl_laws
    from .knowledge_laws import knowledge_laws as knowledge_laws
    from .knowledge_laws import matching_laws as matching_laws
    from .lagging_laws import lagging_laws as lagging_laws
    from .lagging_laws import own_lagging as own_lagging
    from .later_laws import later_laws as later_laws
    from .law import Broken as Broken
    from .law import Law as Law
    from .law import Mutant as Mutant
    from .law import NotHere as NotHere
    from .law import Seen as Seen
    from .law import Suite as Suite
    from .law import Vacuous as Vacuous
    from .law import lifted as lifted
    from .learner_families import learning as learning
    from .learner_families import own_anchoring as own_anchoring
    from .learner_families import own_columns as own_columns
    from .learner_laws import learner_laws as learner_laws
    from .link_prediction_laws import link_prediction_laws as link_prediction_laws
    from .logic_strategies import Question as Question
    from .logic_strategies import questions as questions
    from .loss_laws import loss_laws as loss_laws
    from .machine_laws import Play as Play
    from .machine_laws import machine_laws as machine_laws
    from .masked_loss_laws import masked_loss_laws as masked_loss_laws
    from .mdps import layered_mdps as layered_mdps
    from .mdps import tabular_mdps as tabular_mdps
    from .memory_laws import memory_laws as memory_laws
    from .micro_batch_laws import micro_batch_laws as micro_batch_laws
    from .micro_batch_mutants import Batching as Batching
    from .module_laws import module_laws as module_laws
    from .muon_laws import muon_laws as muon_laws
    from .muon_mutants import Turning as Turning
    from .naming_laws import naming_laws as naming_laws
    from .naming_laws import own_naming as own_naming
    from .naming_mutants import Naming as Naming
    from .numbered_laws import numbered_laws as numbered_laws
    from .order_laws import order_laws as order_laws
    from .packing_laws import packing_laws as packing_laws
    from .packing_mutants import Packer as Packer
    from .parser_laws import parser_laws as parser_laws
    from .parser_mutants import Reading as Reading
    from .policy_laws import policy_laws as policy_laws
    from .precision_laws import precision_laws as precision_laws
    from .precision_mutants import Descending as Descending
    from .preparation_laws import preparation_laws as preparation_laws
    from .probe_laws import probe_laws as probe_laws
    from .profiles import Profile as Profile
    from .profiles import named_profile as named_profile
    from .proof_policy_laws import proof_policy_laws as proof_policy_laws
    from .protocol_laws import protocol_laws as protocol_laws
    from .protocol_mutants import Turns as Turns
    from .queue_laws import queue_laws as queue_laws
    from .ranks_dealing_laws import dealing_laws as dealing_laws
    from .ranks_dealing_laws import own_dealing as own_dealing
    from .ranks_laws import ranks_laws as ranks_laws
    from .ranks_part_mutants import Dealing as Dealing
    from .ranks_part_mutants import Putting as Putting
    from .ranks_putting_laws import own_putting as own_putting
    from .ranks_putting_laws import putting_laws as putting_laws
    from .reasoning_laws import reasoning_laws as reasoning_laws
    from .reasoning_mutants import Thinking as Thinking
    from .reasoning_schedule_laws import reasoning_schedule_laws as reasoning_schedule_laws
    from .reasoning_task_laws import reasoning_task_laws as reasoning_task_laws
    from .reasoning_task_mutants import Listing as Listing
    from .recycle_laws import recycle_laws as recycle_laws
    from .recycle_mutants import Recycling as Recycling
    from .replaying_laws import replaying_laws as replaying_laws
    from .report import Report as Report
    from .report import Result as Result
    from .request_laws import request_laws as request_laws
    from .request_mutants import Asking as Asking
    from .return_laws import lambda_return_laws as lambda_return_laws
    from .return_laws import vtrace_laws as vtrace_laws
    from .ring_laws import ring_laws as ring_laws
    from .run import run as run
    from .sample_laws import sample_laws as sample_laws
    from .sample_talks import Writing as Writing
    from .sampling_laws import sampling_laws as sampling_laws
    from .sampling_mutants import Sampling as Sampling
    from .scan_laws import scan_laws as scan_laws
    from .scheduler_fault_laws import scheduler_fault_laws as scheduler_fault_laws
    from .scheduler_laws import scheduler_laws as scheduler_laws
    from .scheduler_world import Scheduling as Scheduling
    from .scoring_laws import scoring_laws as scoring_laws
    from .segment_laws import segment_laws as segment_laws
    from .segment_wise_laws import segment_wise_laws as segment_wise_laws
    from .segment_wise_part_laws import segment_wise_part_laws as segment_wise_part_laws
    from .segment_wise_world import SegmentWise as SegmentWise
    from .service_laws import Serving as Serving
    from .service_laws import service_laws as service_laws
    from .simulated_laws import simulated_laws as simulated_laws
    from .simulated_mutants import Simulating as Simulating
    from .spots_laws import spots_laws as spots_laws
    from .staleness_laws import staleness_laws as staleness_laws
    from .staleness_mutants import Aging as Aging
    from .starts_laws import starts_laws as starts_laws
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
    from .supervised_laws import supervised_laws as supervised_laws
    from .table_causal import table_causal as table_causal
    from .table_policy import table_policy as table_policy
    from .text_env_laws import text_env_laws as text_env_laws
    from .timeline_laws import Timing as Timing
    from .timeline_laws import timeline_laws as timeline_laws
    from .tiny_causal import tiny_causal as tiny_causal
    from .token_gae_laws import token_gae_laws as token_gae_laws
    from .token_log_prob_laws import token_log_prob_laws as token_log_prob_laws
    from .token_loss_laws import as_token_loss as as_token_loss
    from .token_loss_laws import token_loss_laws as token_loss_laws
    from .transcript_cut_laws import transcript_cut_laws as transcript_cut_laws
    from .transcript_families import own_transcripts as own_transcripts
    from .transcript_fork_laws import transcript_fork_laws as transcript_fork_laws
    from .transcript_laws import transcript_laws as transcript_laws
    from .transcript_mutants import Transcripts as Transcripts
    from .twin_laws import twin_laws as twin_laws
    from .twin_plays import Twinning as Twinning
    from .unify_laws import unify_laws as unify_laws
    from .update_laws import update_laws as update_laws
    from .walks import Walk as Walk
    from .walks import walks as walks
    from .weights_laws import Transfer as Transfer
    from .weights_laws import weights_laws as weights_laws
    from .workers_laws import workers_laws as workers_laws
    from .wrapper_laws import auto_reset_laws as auto_reset_laws
    from .wrapper_laws import time_limit_laws as time_limit_laws
    from .zorplex_laws import zorplex_laws as zorplex_laws
else:
    import sys as _sys

    _MODULES = {
        "aggregate_laws": ("aggregate_laws",),
        "aggregate_mutants": ("Reduction",),
        "attempt_laws": ("attempt_laws",),
        "attempt_mutants": ("Trying",),
        "auditing_laws": ("auditing_laws",),
        "batch_families": ("own_crediting", "own_packer"),
        "canonical_laws": ("Renaming", "canonical_laws"),
        "categorical_laws": ("categorical_laws",),
        "causal_laws": ("causal_laws",),
        "check": ("check", "verify"),
        "checkpoint_laws": ("Store", "checkpoint_laws"),
        "choice_laws": ("choice_laws",),
        "classify": ("classify",),
        "codec_laws": ("codec_laws",),
        "column_laws": ("column_laws",),
        "column_mutants": ("Columns",),
        "compare": ("CURVATURE", "DOUBLE", "EXACT", "ROUNDING", "Tolerance", "render", "require", "same"),
        "comparing_laws": ("Comparing", "comparing_laws"),
        "corrupt_laws": ("corrupt_laws",),
        "corruptions_laws": ("corruptions_laws",),
        "credit_laws": ("credit_laws",),
        "credit_mutants": ("Crediting",),
        "cycling_laws": ("cycling_laws",),
        "cycling_mutants": ("Cycling",),
        "decode_families": ("own_sampling", "own_slots"),
        "decode_laws": ("decode_laws",),
        "decode_mutants": ("Slots",),
        "decoupled_laws": ("decoupled_laws",),
        "decoupled_mutants": ("Anchoring",),
        "decoupled_update_laws": ("decoupled_update_laws",),
        "demonstration_laws": ("demonstration_laws",),
        "demonstration_mutants": ("Showing",),
        "derive_laws": ("derive_laws",),
        "desk_laws": ("desk_laws",),
        "desk_schedules": ("Desking",),
        "engine_laws": ("engine_laws",),
        "engine_world": ("Clustering", "own_clustering"),
        "env_laws": ("env_laws", "env_suite"),
        "estimator_laws": ("estimator_laws", "estimator_step_laws"),
        "experience_laws": ("Replaying", "experience_laws"),
        "filing_laws": ("Filing", "filing_laws"),
        "game_laws": ("game_laws",),
        "game_mutants": ("Moves",),
        "gradient_laws": ("gradient_laws",),
        "group_laws": ("group_laws",),
        "hands_laws": ("Posting", "hands_laws", "own_posting"),
        "identity_laws": ("identity_laws",),
        "importance_laws": ("importance_laws",),
        "kernel_laws": ("kernel_laws",),
        "kl_laws": ("kl_laws",),
        "knowledge_laws": ("knowledge_laws", "matching_laws"),
        "lagging_laws": ("lagging_laws", "own_lagging"),
        "later_laws": ("later_laws",),
        "law": ("Broken", "Law", "Mutant", "NotHere", "Seen", "Suite", "Vacuous", "lifted"),
        "learner_families": ("learning", "own_anchoring", "own_columns"),
        "learner_laws": ("learner_laws",),
        "link_prediction_laws": ("link_prediction_laws",),
        "logic_strategies": ("Question", "questions"),
        "loss_laws": ("loss_laws",),
        "machine_laws": ("Play", "machine_laws"),
        "masked_loss_laws": ("masked_loss_laws",),
        "mdps": ("layered_mdps", "tabular_mdps"),
        "memory_laws": ("memory_laws",),
        "micro_batch_laws": ("micro_batch_laws",),
        "micro_batch_mutants": ("Batching",),
        "module_laws": ("module_laws",),
        "muon_laws": ("muon_laws",),
        "muon_mutants": ("Turning",),
        "naming_laws": ("naming_laws", "own_naming"),
        "naming_mutants": ("Naming",),
        "numbered_laws": ("numbered_laws",),
        "order_laws": ("order_laws",),
        "packing_laws": ("packing_laws",),
        "packing_mutants": ("Packer",),
        "parser_laws": ("parser_laws",),
        "parser_mutants": ("Reading",),
        "policy_laws": ("policy_laws",),
        "precision_laws": ("precision_laws",),
        "precision_mutants": ("Descending",),
        "preparation_laws": ("preparation_laws",),
        "probe_laws": ("probe_laws",),
        "profiles": ("Profile", "named_profile"),
        "proof_policy_laws": ("proof_policy_laws",),
        "protocol_laws": ("protocol_laws",),
        "protocol_mutants": ("Turns",),
        "queue_laws": ("queue_laws",),
        "ranks_dealing_laws": ("dealing_laws", "own_dealing"),
        "ranks_laws": ("ranks_laws",),
        "ranks_part_mutants": ("Dealing", "Putting"),
        "ranks_putting_laws": ("own_putting", "putting_laws"),
        "reasoning_laws": ("reasoning_laws",),
        "reasoning_mutants": ("Thinking",),
        "reasoning_schedule_laws": ("reasoning_schedule_laws",),
        "reasoning_task_laws": ("reasoning_task_laws",),
        "reasoning_task_mutants": ("Listing",),
        "recycle_laws": ("recycle_laws",),
        "recycle_mutants": ("Recycling",),
        "replaying_laws": ("replaying_laws",),
        "report": ("Report", "Result"),
        "request_laws": ("request_laws",),
        "request_mutants": ("Asking",),
        "return_laws": ("lambda_return_laws", "vtrace_laws"),
        "ring_laws": ("ring_laws",),
        "run": ("run",),
        "sample_laws": ("sample_laws",),
        "sample_talks": ("Writing",),
        "sampling_laws": ("sampling_laws",),
        "sampling_mutants": ("Sampling",),
        "scan_laws": ("scan_laws",),
        "scheduler_fault_laws": ("scheduler_fault_laws",),
        "scheduler_laws": ("scheduler_laws",),
        "scheduler_world": ("Scheduling",),
        "scoring_laws": ("scoring_laws",),
        "segment_laws": ("segment_laws",),
        "segment_wise_laws": ("segment_wise_laws",),
        "segment_wise_part_laws": ("segment_wise_part_laws",),
        "segment_wise_world": ("SegmentWise",),
        "service_laws": ("Serving", "service_laws"),
        "simulated_laws": ("simulated_laws",),
        "simulated_mutants": ("Simulating",),
        "spots_laws": ("spots_laws",),
        "staleness_laws": ("staleness_laws",),
        "staleness_mutants": ("Aging",),
        "starts_laws": ("starts_laws",),
        "step_laws": ("step_laws",),
        "strategies": (
            "dyadic",
            "flags",
            "from_record",
            "integers",
            "keys",
            "like",
            "log_prob_pairs",
            "masks",
            "probabilities",
            "raw",
            "register",
            "seeds",
            "smooth",
        ),
        "streams": ("Stream", "discounted", "streams"),
        "supervised_laws": ("supervised_laws",),
        "table_causal": ("table_causal",),
        "table_policy": ("table_policy",),
        "text_env_laws": ("text_env_laws",),
        "timeline_laws": ("Timing", "timeline_laws"),
        "tiny_causal": ("tiny_causal",),
        "token_gae_laws": ("token_gae_laws",),
        "token_log_prob_laws": ("token_log_prob_laws",),
        "token_loss_laws": ("as_token_loss", "token_loss_laws"),
        "transcript_cut_laws": ("transcript_cut_laws",),
        "transcript_families": ("own_transcripts",),
        "transcript_fork_laws": ("transcript_fork_laws",),
        "transcript_laws": ("transcript_laws",),
        "transcript_mutants": ("Transcripts",),
        "twin_laws": ("twin_laws",),
        "twin_plays": ("Twinning",),
        "unify_laws": ("unify_laws",),
        "update_laws": ("update_laws",),
        "walks": ("Walk", "walks"),
        "weights_laws": ("Transfer", "weights_laws"),
        "workers_laws": ("workers_laws",),
        "wrapper_laws": ("auto_reset_laws", "time_limit_laws"),
        "zorplex_laws": ("zorplex_laws",),
    }
    __all__ = [name for names in _MODULES.values() for name in names]
    __getattr__, __dir__ = _lazy(__name__, _MODULES, globals())
    _sys.modules[__name__].__class__ = _Package  # many a module has the name of what it holds
