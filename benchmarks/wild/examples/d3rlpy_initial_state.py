"""
package: d3rlpy
function: metrics.InitialStateValueEstimationEvaluator
suite: none
law: the value of first states
judgement: defect
other side: batches of 1024 transitions bound the memory, and shorter episodes are one batch.
why: the page says that values at initial states are averaged; of an episode of 2000 steps, a usual length, step 1024 counts
  as an initial state too. DiscountedSumOfAdvantageEvaluator restarts its sum there for the same reason.
"""

import numpy as np
import structlog
from d3rlpy.dataset import Episode, create_infinite_replay_buffer
from d3rlpy.metrics import InitialStateValueEstimationEvaluator

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))


class Time:
    """The value of a state is its time, which is the observation."""

    def predict(self, observations):
        return np.zeros((len(observations), 1), np.float32)

    def predict_value(self, observations, actions):
        return observations[:, 0]


for length in (1000, 2000):
    times = np.arange(length, dtype=np.float32).reshape(-1, 1)
    episode = Episode(observations=times, actions=0.5 + 0 * times, rewards=0 * times, terminated=True)
    got = InitialStateValueEstimationEvaluator()(Time(), create_infinite_replay_buffer([episode]))
    print(f"{length} steps: got {got}, wanted 0.0")
assert got == 512.0
