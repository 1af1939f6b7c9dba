"""
package: torch
function: optim.lr_scheduler.CosineAnnealingWarmRestarts.step(epoch)
suite: schedule_laws
law: ends
judgement: defect
other side: the documentation gives the smallest rate for the end of a cycle, and epoch 121 is the end of the fourth.
why: it is also the start of the fifth, and step() without an epoch, as well as step(1), step(4), step(13) and step(40), give
  the largest rate there. The number of the cycle is int(log(243, 3)), and the logarithm is 4.999...; the documentation calls
  both ways of stepping interchangeable.
"""

import math

import torch
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts


def made():
    return CosineAnnealingWarmRestarts(torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0), T_0=1, T_mult=3)


stepped = made()
for epoch in range(1, 122):
    stepped.step()
    direct = made()
    direct.step(epoch)
    if epoch in (1, 4, 13, 40, 121):
        print(f"epoch {epoch}: step() gives {stepped.get_last_lr()[0]}, step({epoch}) gives {direct.get_last_lr()[0]}")
print("log(243, 3) is", math.log(243, 3))
assert (stepped.get_last_lr()[0], direct.get_last_lr()[0]) == (1.0, 0.0)
