"""
package: torch
function: distributions.Beta.mode, Dirichlet.mode
suite: distribution_laws
law: mode
judgement: defect
other side: a density without bound has no largest value.
why: the code has an answer for it, the bound at which the density grows, and gives it for (1/2, 1.001). Where no parameter
  exceeds 1 it divides 0 by 0: NaN at a parameter of exactly 1, and where all are below 1 the argmax of NaNs, which is the
  first coordinate whatever the parameters are.
"""

import torch
from torch.distributions import Beta, Dirichlet

x = torch.tensor([0.01, 0.5, 0.99])
for other in (1.001, 1.0):
    made = Beta(0.5, other)
    print(f"Beta(0.5, {other}): mode {made.mode.item()}, log-probs of 0.01, 0.5 and 0.99: {made.log_prob(x)}")
    assert made.log_prob(x).argmax() == 0
assert made.mode.isnan()
print("Dirichlet(0.9, 0.1):", Dirichlet(torch.tensor([0.9, 0.1])).mode.tolist())
print("Dirichlet(0.1, 0.9):", Dirichlet(torch.tensor([0.1, 0.9])).mode.tolist())
