"""
package: skrl
function: resources.preprocessors.torch.RunningStandardScaler
suite: normalizer_laws
law: batches_of_one
judgement: defect
other side: the library is built for thousands of parallel environments, whose batches are never of one row.
why: its wrappers give one row for an environment that is not vectorised; torch.var of one row is NaN (it divides by n
  - 1), and the running variance then stays NaN for ever. The same n - 1 makes it exceed the variance of all data with
  small batches.
"""

import torch
from skrl.resources.preprocessors.torch import RunningStandardScaler

scaler = RunningStandardScaler(2)
scaler(torch.zeros(1, 2), train=True)
for _ in range(10):
    shown = scaler(torch.randn(64, 2), train=True)
print("variance:", scaler.running_variance.tolist(), "output:", shown[0].tolist())
assert shown.isnan().all()
