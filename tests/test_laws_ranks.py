"""Learning on several ranks obeys its laws, in one process that plays them all, and so do its parts."""

from purestep.properties import (
    check,
    dealing_laws,
    naming_laws,
    own_dealing,
    own_naming,
    own_putting,
    putting_laws,
    ranks_laws,
)
from purestep.runtime.ranks.simulated import simulated_ranks

test_ranks = check(ranks_laws(), simulated_ranks)
test_dealing = check(dealing_laws(), own_dealing())
test_putting = check(putting_laws(), own_putting())
test_naming = check(naming_laws(), own_naming())
