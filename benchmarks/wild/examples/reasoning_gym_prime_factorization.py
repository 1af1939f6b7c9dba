"""
package: reasoning-gym
function: prime_factorization score_answer
suite: reward_function_laws
law: any_text
judgement: defect
other side: a caller can catch errors and give 0.
why: the other data sets give a score to any text, and the annotated result is a float for `answer: Optional[str]`;
  here every answer that is no product of numbers raises ValueError.
"""

import reasoning_gym

data = reasoning_gym.create_dataset("prime_factorization", size=1, seed=1)
print("the answer scores", data.score_answer(data[0]["answer"], data[0]))
try:
    data.score_answer("I do not know", data[0])
except ValueError as error:
    print(type(error).__name__, error)
else:
    raise AssertionError("no error")
