"""
package: skrl
function: agents.torch.ppo.ppo.compute_gae
suite: estimator_laws
law: cut_at_endings
judgement: defect
other side: time_limit_bootstrap=True, which is not the default, cuts at truncations.
why: with automatic resets, the row after a truncation is the next episode's; by default its value and advantage are
  added to the episode before, though the argument `truncated` says where it ended.
"""

import torch
from skrl.agents.torch.ppo.ppo import compute_gae

no, column = torch.zeros(2, 1, dtype=torch.bool), torch.zeros(2, 1)
cut = torch.tensor([[True], [False]])
first = []
for reward in (0.0, 100.0):  # of the next episode
    rewards = torch.tensor([[1.0], [reward]])
    returns, _ = compute_gae(
        rewards=rewards, terminated=no, truncated=cut, values=column, last_values=torch.zeros(1),
        discount_factor=0.5, lambda_coefficient=1.0,
    )  # fmt: skip
    first.append(returns[0].item())
print("return of the first episode, for two rewards of the next:", first)
assert first[0] != first[1]
