"""Our checkpoints, the logs of our machines and our rewards obey their laws."""

from purestep.properties import check, checkpoint_laws, machine_laws
from purestep.properties.suites.checkpoint import own_store
from purestep.properties.suites.machine import fetcher
from purestep.runtime.effects.rewards.grader import rewards_of

from .effects.rewards import rewards_laws

test_checkpoint = check(checkpoint_laws(), own_store())
test_machine = check(machine_laws(), fetcher())
test_rewards = check(rewards_laws(), rewards_of)
