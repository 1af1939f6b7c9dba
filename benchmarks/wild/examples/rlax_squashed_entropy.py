"""
package: rlax
function: squashed_gaussian().entropy
suite: distribution_laws
law: entropy
judgement: convention
other side: the entropy of a squashed Gaussian has no closed form, the package's test wants that of the Gaussian, and the
  function is to be replaced by distrax.
why: samples and log-probs are of the squashed distribution, the entropy is the one before the squashing; an entropy bonus with
  it pays for actions that all lie on the bounds.
"""

import warnings

import jax
import jax.numpy as jnp

warnings.simplefilter("ignore")
import rlax  # noqa: E402

made = rlax.squashed_gaussian(sigma_min=-1.0, sigma_max=1.0)
mu, sigma = jnp.zeros((20000, 1)), jnp.zeros((20000, 1))
actions = made.sample(jax.random.key(0), mu, sigma, None)
estimate = -made.logprob(actions, mu, sigma, None).mean()
print(f"entropy {made.entropy(mu, sigma)[0]:.2f}, mean of -log-prob of samples {estimate:.2f}")
assert made.entropy(mu, sigma)[0] > estimate + 0.5
