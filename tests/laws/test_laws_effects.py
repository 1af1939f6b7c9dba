"""Our checkpoints and the logs of our machines obey their laws."""

from purestep.properties import check, checkpoint_laws, machine_laws
from purestep.properties.suites.checkpoint import own_store
from purestep.properties.suites.machine import fetcher

test_checkpoint = check(checkpoint_laws(), own_store())
test_machine = check(machine_laws(), fetcher())
