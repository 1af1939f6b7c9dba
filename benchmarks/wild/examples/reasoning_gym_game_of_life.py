"""
package: reasoning-gym
function: game_of_life score_answer
suite: reward_function_laws
law: any_text
judgement: defect
other side: a JSON object is not the format that the question asks for.
why: texts that are no JSON, and lists of wrong shape, get a score; a JSON object raises KeyError.
"""

import reasoning_gym

data = reasoning_gym.create_dataset("game_of_life", size=1, seed=1)
print("no JSON scores", data.score_answer("?", data[0]))
try:
    data.score_answer("{}", data[0])
except KeyError as error:
    print("{}:", type(error).__name__, error)
else:
    raise AssertionError("no error")
