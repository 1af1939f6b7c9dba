"""
package: gymnasium
function: wrappers.NormalizeReward
suite: none
law: an episode's return has its own rewards alone
judgement: defect
other side: statistics of rewards go on over all episodes, and for that reason a maintainer closed pull request 761 as no fix
  of a bug in 2023.
why: the statistics may go on, but what they are statistics of is a discounted return, and that of a new episode starts with
  the return of the last: there is no reset in the wrapper, and a termination keeps the last reward. Its page names a vector
  form; that of the same release clears the return in its reset, and in 2026 pull request 1668 made it so after each ending.
"""

import gymnasium
import numpy as np
from gymnasium.wrappers import NormalizeReward
from gymnasium.wrappers.vector import NormalizeReward as VectorNormalizeReward

env = NormalizeReward(gymnasium.make("CartPole-v1", max_episode_steps=5), gamma=0.5)  # each reward is 1
returns = []
for _ in range(2):
    env.reset(seed=0)
    env.step(0)
    returns.append(env.discounted_reward.item())
    for action in (1, 0, 1, 0):
        env.step(action)
print("return after the first step of two episodes:", returns)

envs = VectorNormalizeReward(gymnasium.make_vec("CartPole-v1", 1), gamma=0.5)
for _ in range(2):
    envs.reset(seed=0)
    envs.step(np.array([0]))
    print("vector form:", envs.accumulated_reward.item())
assert returns[0] == envs.accumulated_reward.item() == 1.0
assert returns[1] > 1.9
