"""
package: gymnasium
function: SyncVectorEnv.step (VectorEnv._add_info)
suite: vector_env_laws
law: infos
judgement: defect
other side: infos are diagnostics, and an environment could return 1.0 instead of 1 in its reset.
why: the environment's own info says 1/3 and the vector environment's says 0, without a warning: the array of an entry
  takes the dtype of its first value, here the integer of a reset in the same step.
"""

import gymnasium

single = gymnasium.make("FrozenLake-v1")
vector = gymnasium.make_vec("FrozenLake-v1", 2, vectorization_mode="sync")
vector.reset(seed=0)
for step in range(200):
    _, _, terminated, truncated, infos = vector.step([2, 2])
    if infos["prob"].dtype.kind == "i":
        print(f"step {step}: prob {infos['prob']}, marked {infos['_prob']}")
        moved = [row for row in range(2) if infos["prob"][row] == 0]
        assert moved, "no row moved"
        break
single.reset(seed=0)
print("alone:", single.step(2)[4])
assert single.step(2)[4]["prob"] > 0
