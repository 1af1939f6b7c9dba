"""Classification of an advantage estimator by its convention on truncation, for code that fails the default laws."""

from ..strategies.streams import CONVENTIONS
from ..suites.estimator import Estimator, estimator_laws
from .profiles import Profile, named_profile
from .report import PASSED
from .run import run


def classify(estimator: Estimator, *, profile: Profile | None = None) -> str:
    """Return the convention whose laws an estimator obeys, or "none of these".

    >>> from ...algorithms.advantages import gae
    >>> classify(gae)
    'bootstrap'
    """
    profile = profile or named_profile("quick")
    for convention in CONVENTIONS:
        laws = estimator_laws(convention)
        if all(run(law, estimator, profile=profile, shrink=False).outcome == PASSED for law in laws):
            return convention
    return "none of these"
