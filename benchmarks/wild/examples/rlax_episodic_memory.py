"""
package: rlax
function: episodic_memory_intrinsic_rewards
suite: none
law: the kernel of its page
judgement: defect
other side: with distances far above the constant the sign of the constant hardly matters.
why: the negative distances of knn_query are taken for distances. Rate = d / (mean + constant), where the page has the constant
  for stability, becomes d / (mean - constant): a division by almost 0 near it, and where the mean is below it all rates are
  negative and cut to 0, so that every state counts as one already seen. Pull request 171, open, corrects the sign.
"""

import warnings

import jax.numpy as jnp
import numpy as np

warnings.simplefilter("ignore")
import rlax  # noqa: E402

CONSTANT, EPSILON, CLUSTER = 1e-3, 1e-4, 8e-3  # the function's defaults


def wanted(points, memory, neighbors):
    squares = np.sort(((points[:, None] - memory[None]) ** 2).sum(-1), axis=1)[:, :neighbors]
    rate = np.maximum(squares / (squares.mean() + CONSTANT) - CLUSTER, 0)
    return 1 / (np.sqrt((EPSILON / (rate + EPSILON)).sum(-1)) + CONSTANT)


for scale in (1.0, 0.01):
    points = scale * np.array([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]], np.float32)
    got, _ = rlax.episodic_memory_intrinsic_rewards(jnp.asarray(points), 2, 1.0, max_memory_size=4)
    memory = np.zeros((2, 2), np.float32)  # the function's own padding
    print(f"scale {scale}: got {np.asarray(got).round(2)}, wanted {wanted(points, memory, 2).round(2)}")
assert np.allclose(got, got[0])
assert wanted(points, memory, 2).min() > 10 * got[0]
