"""
package: gymnasium
function: wrappers.MaxAndSkipObservation
suite: wrapper_laws
law: observation
judgement: defect
other side: Stable-Baselines3, from whose wrapper this one is taken, says in a comment that the last observation does not
  matter.
why: it does after a truncation, whose value it gives. This page promises the larger of the last two observations; where an
  episode ends early in a skip, the buffer still holds those of the step before, of the episode before, or zeros.
"""

import gymnasium
import numpy as np
from gymnasium.wrappers import MaxAndSkipObservation

plain = gymnasium.make("CartPole-v1", max_episode_steps=5)
plain.reset(seed=0)
seen = [plain.step(action % 2)[0] for action in (0, 0, 0, 0, 0)]
env = MaxAndSkipObservation(gymnasium.make("CartPole-v1", max_episode_steps=5), skip=4)
env.reset(seed=0)
env.step(0)
got, _, terminated, truncated, _ = env.step(0)
print("terminated", terminated, "truncated", truncated)
print("got", got, "wanted", np.maximum(seen[3], seen[4]), "that of the step before", np.maximum(seen[2], seen[3]))
assert truncated
assert not terminated
assert np.array_equal(got, np.maximum(seen[2], seen[3]))
