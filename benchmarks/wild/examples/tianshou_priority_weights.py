"""
package: tianshou
function: data.PrioritizedReplayBuffer(weight_norm=False)
suite: replay_laws
law: importance_weights
judgement: defect
other side: all weights are wrong by one factor, which a learning rate absorbs, and by default they are divided by the largest.
why: the comment in the code wants (p_j / p_min)^-beta, 1 for the row of the smallest priority. The p_j of the code is
  priority^alpha and its p_min the priority itself, so that the factor changes with the priorities seen and with beta, which
  users anneal.
"""

import numpy as np
from tianshou.data import Batch, PrioritizedReplayBuffer

for smallest in (0.25, 0.01):
    rows = PrioritizedReplayBuffer(3, alpha=0.5, beta=1.0, weight_norm=False)
    for time in range(3):
        ends = {"terminated": False, "truncated": False}
        rows.add(Batch(obs=time, act=0, rew=0.0, obs_next=time, info={}, **ends))
    priority = np.array([smallest, 4 * smallest, 16 * smallest])
    rows.update_weight(np.arange(3), priority)
    got = rows.get_weight(np.arange(3))
    wanted = (priority**0.5 / smallest**0.5) ** -1.0
    print(f"priorities {priority}: weights {got.round(4)}, wanted {wanted}")
    assert got[0] < 0.6
