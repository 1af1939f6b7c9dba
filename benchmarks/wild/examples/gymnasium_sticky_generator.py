"""
package: gymnasium
function: wrappers.StickyAction
suite: wrapper_laws
law: observation
judgement: convention
other side: a wrapper's np_random is the environment's, as Gymnasium's Wrapper defines it.
why: with a probability of 0 no action sticks, yet the second episode starts elsewhere, since the wrapper's draws move
  the generator from which the environment draws its resets; comparisons with and without the wrapper under one seed
  are not paired.
"""

import gymnasium
from gymnasium.wrappers import StickyAction

starts = []
for wrap in (lambda env: env, lambda env: StickyAction(env, 0.0)):
    env = wrap(gymnasium.make("CartPole-v1"))
    env.reset(seed=0)
    for _ in range(3):
        env.step(0)
    starts.append(env.reset()[0].tolist())
print(starts)
assert starts[0] != starts[1]
