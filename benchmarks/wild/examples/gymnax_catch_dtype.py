"""
package: gymnax
function: Catch-bsuite observation_space
suite: gym_laws (spaces), on gymnax's own spaces
law: spaces
judgement: defect
other side: the numbers 0 and 1 are the same in both dtypes, and `contains` of this package looks at values alone.
why: a buffer that is allocated from the declared space is int32, while observations are float32; of the registered
  environments this one alone differs.
"""

import gymnax
import jax

env, params = gymnax.make("Catch-bsuite")
observation = env.reset(jax.random.key(0), params)[0]
space = env.observation_space(params)
print("observation:", observation.dtype, "space:", space.dtype)
assert observation.dtype != space.dtype
