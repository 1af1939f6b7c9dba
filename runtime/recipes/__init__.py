"""Whole pipelines, wired from the parts, and the table of those that have a name."""

from collections.abc import Mapping

from .a2c import a2c_pipeline
from .common import Recipe
from .defaults import a2c_defaults, ppo_defaults, reinforce_defaults
from .ppo import ppo_pipeline
from .prove import USUAL, prove_defaults, prove_pipeline
from .reinforce import reinforce_pipeline

RECIPES: Mapping[str, Recipe] = {
    "ppo": Recipe("proximal policy optimisation", ppo_defaults, ppo_pipeline),
    "a2c": Recipe("advantage actor-critic", a2c_defaults, a2c_pipeline),
    "reinforce": Recipe("REINFORCE with a baseline", reinforce_defaults, reinforce_pipeline),
    "prove": Recipe("proofs on a knowledge graph, learnt with PPO", prove_defaults, prove_pipeline, "data", USUAL),
}
