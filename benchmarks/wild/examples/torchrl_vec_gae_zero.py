"""
package: torchrl
function: vec_generalized_advantage_estimate, vec_td_lambda_return_estimate, vec_td1_return_estimate
suite: estimator_laws, lambda_return_laws
law: lambda_0_is_td_error
judgement: defect
other side: lambda 0 has a function of its own, td0_advantage_estimate.
why: the loop version of the same function takes the same arguments; lambda = 0 is in the documented range, and a
  sweep over lambda or gamma meets an IndexError.
"""

import torch
from torchrl.objectives.value.functional import generalized_advantage_estimate, vec_generalized_advantage_estimate

column = torch.ones(3, 1)
flags = torch.zeros(3, 1, dtype=torch.bool)
print("loop:", generalized_advantage_estimate(0.9, 0.0, column, column, column, flags, flags)[0].flatten().tolist())
try:
    vec_generalized_advantage_estimate(0.9, 0.0, column, column, column, flags, flags)
except IndexError as error:
    print("vectorised:", type(error).__name__, error)
else:
    raise AssertionError("no error")
