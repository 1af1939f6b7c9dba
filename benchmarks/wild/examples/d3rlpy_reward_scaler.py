"""
package: d3rlpy
function: preprocessing.StandardRewardScaler, MinMaxRewardScaler: fit_with_trajectory_slicer
suite: normalizer_laws
law: statistics_of_all_data
judgement: defect
other side: the other scalers have to be used for such data.
why: this fit is the one for Decision Transformer, whose data are whole episodes; the code makes an array of the rewards of all
  episodes, which fails unless all are equally long. The fit of transitions, the observation scalers and the return scaler
  take the same episodes. Issue 454 is on it; the newest release is older than its correction.
"""

import numpy as np
from d3rlpy.dataset import BasicTrajectorySlicer, BasicTransitionPicker, Episode
from d3rlpy.preprocessing import MinMaxRewardScaler, StandardRewardScaler

episodes = []
for length in (2, 3):
    column = np.arange(length, dtype=np.float32).reshape(-1, 1)
    episodes.append(Episode(observations=column, actions=column, rewards=column, terminated=True))
for make in (MinMaxRewardScaler, StandardRewardScaler):
    scaler = make()
    scaler.fit_with_transition_picker(episodes, BasicTransitionPicker())
    print("transitions:", scaler)
    try:
        make().fit_with_trajectory_slicer(episodes, BasicTrajectorySlicer())
    except ValueError as error:
        print("trajectories: ValueError", str(error)[:45])
    else:
        raise AssertionError("no error")
