"""
package: reasoning-gym
function: coin_flip score_answer
suite: reward_function_laws
law: any_text
judgement: defect
other side: no sensible answer is 1e999.
why: answers are texts of a model in training, and the function catches ValueError and ZeroDivisionError for that
  reason; OverflowError of float(Fraction) passes through and ends the run.
"""

import reasoning_gym

data = reasoning_gym.create_dataset("coin_flip", size=1, seed=1)
print("1/0 scores", data.score_answer("1/0", data[0]))
try:
    data.score_answer("1e999", data[0])
except OverflowError as error:
    print("1e999:", type(error).__name__, error)
else:
    raise AssertionError("no error")
