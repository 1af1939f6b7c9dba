"""
package: tianshou
function: data.HERReplayBuffer with ignore_obs_next=True
suite: none
law: a reward belongs to the goal beside it
judgement: defect
other side: next observations are stored by default.
why: the option is a documented one, which saves half of the memory. With it the goals of a sample are replaced and its rewards
  are not: they are computed from next observations that still hold the old goal, so that no reward says that the new goal is
  reached, which is all that the method is for.
"""

import numpy as np
from tianshou.data import Batch, HERReplayBuffer


def reward(achieved, goal):
    return -np.abs(achieved - goal).sum(-1)


def seen(time):
    return Batch(observation=np.array([time]), achieved_goal=np.array([time]), desired_goal=np.array([9.0]))


for ignored in (False, True):
    np.random.seed(0)
    rows = HERReplayBuffer(20, reward, horizon=4, future_k=100.0, ignore_obs_next=ignored)
    for _ in range(4):
        for time in range(4):
            ends = {"terminated": time == 3, "truncated": False}
            columns = {"obs": seen(float(time)), "obs_next": seen(time + 1.0), "act": 0, "rew": time + 1.0 - 9.0}
            rows.add(Batch(**columns, **ends, info={}))
    batch, _ = rows.sample(6)
    got, wanted = batch.rew, reward(batch.obs_next.achieved_goal, batch.obs.desired_goal)
    print(f"ignore_obs_next={ignored}: goals {batch.obs.desired_goal[:, 0]}, rewards {got}, wanted {wanted}")
    assert np.array_equal(got, wanted) is not ignored
