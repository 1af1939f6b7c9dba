"""
package: d3rlpy
function: metrics.TDErrorEvaluator
suite: none
law: true values have no error
judgement: defect
other side: the formula on its page is that of one step.
why: the transitions are those of the data set's own picker, with MultiStepTransitionPicker rewards of n steps and the value
  after n steps, which the evaluator discounts by gamma as after one; the batch says how many steps there are, and the
  algorithms of the package take gamma to that power. True values get an error, which grows with n.
"""

import numpy as np
import structlog
from d3rlpy.dataset import Episode, MultiStepTransitionPicker, create_infinite_replay_buffer
from d3rlpy.metrics import TDErrorEvaluator

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
STEPS, GAMMA = 10, 0.5


class TrueValues:
    """The value of an episode of 10 rewards of 1, from the time, which is the observation."""

    gamma, reward_scaler = GAMMA, None

    def predict(self, observations):
        return np.zeros((len(observations), 1), np.float32)

    def predict_value(self, observations, actions):
        return (1 - GAMMA ** (STEPS - observations[:, 0])) / (1 - GAMMA)


times = np.arange(STEPS, dtype=np.float32).reshape(-1, 1)
episode = Episode(observations=times, actions=0.5 + 0 * times, rewards=1 + 0 * times, terminated=True)
errors = {}
for n in (1, 2, 3):
    picker = MultiStepTransitionPicker(n_steps=n, gamma=GAMMA)
    errors[n] = TDErrorEvaluator()(TrueValues(), create_infinite_replay_buffer([episode], transition_picker=picker))
print("TD error of the true values, by steps:", errors)
assert errors[1] < 1e-9
assert errors[3] > errors[2] > 0.01
