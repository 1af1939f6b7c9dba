"""
package: torch
function: distributions.Weibull.mode
suite: distribution_laws
law: mode
judgement: defect
other side: the density has no largest value where the concentration is below 1, so that any answer is arbitrary.
why: it grows without bound towards 0, and NaN or 0 would say so. The formula of concentrations above 1 is applied to all of
  them: a finite number in the middle of the distribution, or a negative one, which the distribution itself rejects. The
  project has an open issue on it, 198186.
"""

import torch
from torch.distributions import Weibull

for concentration in (0.5, 0.25, 0.2):
    made = Weibull(1.0, concentration)
    log_prob = made.log_prob(torch.tensor([0.01, 0.1, 1.0]))
    print(f"concentration {concentration}: mode {made.mode.item()}, log-probs of 0.01, 0.1 and 1: {log_prob}")
    assert made.mode.isfinite()
    assert (log_prob.diff() < 0).all()
try:
    made.log_prob(made.mode)
except ValueError as error:
    print("ValueError", str(error)[:62])
else:
    raise AssertionError("no error")
