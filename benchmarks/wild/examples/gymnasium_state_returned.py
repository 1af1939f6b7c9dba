"""
package: gymnasium
function: MountainCarContinuous-v0 step
suite: gym_laws(writable=True)
law: observations_owned
judgement: defect
other side: no page promises that a caller may write into an observation.
why: the reset and the steps of all other classic environments return a copy; here an in-place normalisation of the
  observation moves the car.
"""

import gymnasium
import numpy as np

positions = []
for write in (False, True):
    env = gymnasium.make("MountainCarContinuous-v0")
    env.reset(seed=0)
    observation = env.step(np.zeros(1, np.float32))[0]
    if write:
        observation -= observation  # as a normalisation in place does
    positions.append(env.step(np.zeros(1, np.float32))[0])
print("left alone:", positions[0], "written into:", positions[1])
assert not np.array_equal(*positions)
