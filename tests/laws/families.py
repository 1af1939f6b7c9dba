"""Families of laws of the library's own machinery: each suite with a subject that obeys it and the mutants that it must catch.

python -m purestep.properties.framework.matrix --families tests.laws.families:families
"""

from purestep.properties.framework.families import Family

from .algorithms import families as algorithms
from .async_rl import families as async_rl
from .core import families as core
from .distributed import families as distributed
from .effects import families as effects
from .language import families as language
from .logic import families as logic
from .reasoning_cache import families as reasoning_cache
from .runtime import families as runtime
from .scheduler import families as scheduler
from .segment_wise import families as segment_wise
from .simulation import families as simulation

PACKAGES = (
    core,
    language,
    reasoning_cache,
    logic,
    algorithms,
    async_rl,
    scheduler,
    segment_wise,
    simulation,
    distributed,
    effects,
    runtime,
)


def families() -> tuple[Family, ...]:
    """Return every suite of the library's own machinery with a subject and its mutants."""
    return tuple(family for package in PACKAGES for family in package.families())
