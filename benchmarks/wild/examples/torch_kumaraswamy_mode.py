"""
package: torch
function: distributions.Kumaraswamy.mode
suite: distribution_laws
law: mode
judgement: defect
other side: NaN is what the property gives where a distribution has no mode, and the distribution is rare.
why: with both parameters above 1 the density has one peak inside the interval, at ((a - 1) / (a b - 1))^(1 / a). The code
  takes the logarithm of 1 - b instead of a - 1, so that every pair of parameters with a peak gives NaN. The project has an
  open issue on it, 173912.
"""

import torch
from torch.distributions import Kumaraswamy

a, b = 2.0, 2.0
made = Kumaraswamy(a, b)
x = torch.linspace(0.001, 0.999, 999)
wanted = ((a - 1) / (a * b - 1)) ** (1 / a)
densest = x[made.log_prob(x).argmax()].item()
print(f"got {made.mode.item()}, wanted {wanted:.4f}; the densest point of a grid is {densest:.3f}")
assert made.mode.isnan()
assert abs(densest - wanted) < 0.001
