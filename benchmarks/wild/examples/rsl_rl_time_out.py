"""
package: rsl-rl-lib
function: PPO.process_env_step
suite: estimator_laws
law: value_beyond_an_ending
judgement: documented choice
other side: its environments reset themselves and do not return the last observation, so that its value is not known.
why: a time-out adds gamma V(s_t) to the reward where the estimator has V(s_t+1); with a value that changes in a step
  the advantage is biased, but the code's comment states what it does.
"""

import inspect

from rsl_rl.algorithms.ppo import PPO

source = inspect.getsource(PPO.process_env_step)
line = next(line.strip() for line in source.splitlines() if "self.transition.values *" in line)
print(line)
assert "time_outs" in line
