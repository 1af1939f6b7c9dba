"""Learning on several ranks obeys its laws, in one process that plays them all, and so do its parts."""

from purestep.properties import check
from purestep.runtime.distributed.simulated_ranks import simulated_ranks

from .distributed.handles import naming_laws, own_naming
from .distributed.partition import dealing_laws, own_dealing
from .distributed.ranks import ranks_laws
from .distributed.reduce import own_putting, putting_laws

test_ranks = check(ranks_laws(), simulated_ranks)
test_dealing = check(dealing_laws(), own_dealing())
test_putting = check(putting_laws(), own_putting())
test_naming = check(naming_laws(), own_naming())
