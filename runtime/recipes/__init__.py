"""Whole pipelines, wired from the parts, and the table of those that have a name.

The table and all that sets a run imports no torch; the pipelines do, once one of them is made.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import frozen

from ..deferred import deferred
from .defaults import a2c_defaults, ppo_defaults, reinforce_defaults
from .prove_settings import USUAL, check_prove, prove_defaults
from .settings import check_a2c, check_ppo, check_reinforce

if TYPE_CHECKING:
    from .common import Pipeline


@frozen
class Recipe:
    """Something that can be trained by name."""

    about: str
    defaults: Callable[[str], Any]  # an environment's name -> arguments
    check: Callable[[Any], None]  # raises for arguments that make no sense
    pipeline: Callable[[Any], "Pipeline"]  # arguments -> parts; raises as `check`, and for what it finds in files
    world: str = "env"  # the argument that names the world
    usual: str = "cartpole"  # the world where none is named


RECIPES: Mapping[str, Recipe] = {
    "ppo": Recipe("proximal policy optimisation", ppo_defaults, check_ppo, deferred(__name__, "ppo", "ppo_pipeline")),
    "a2c": Recipe("advantage actor-critic", a2c_defaults, check_a2c, deferred(__name__, "a2c", "a2c_pipeline")),
    "reinforce": Recipe(
        "REINFORCE with a baseline",
        reinforce_defaults,
        check_reinforce,
        deferred(__name__, "reinforce", "reinforce_pipeline"),
    ),
    "prove": Recipe(
        "proofs on a knowledge graph, learnt with PPO",
        prove_defaults,
        check_prove,
        deferred(__name__, "prove", "prove_pipeline"),
        "data",
        USUAL,
    ),
}
