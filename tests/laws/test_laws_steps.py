"""Small steps of ours obey the laws of every step."""

from typing import Any

from hypothesis import strategies as st
from torch import Tensor

from purestep.core import keys
from purestep.core.normalize import Statistics, merge
from purestep.core.optim.optimizers import adam, chain, clip_by_global_norm
from purestep.properties import ROUNDING, check, dyadic, from_record, integers, step_laws
from purestep.properties import keys as drawn_keys
from purestep.properties.suites.step import running_total, totals

optimizer = chain(clip_by_global_norm(1.0), adam(0.5))


def draws(key: Tensor) -> tuple[Tensor, ...]:
    """What keys are for, without a logarithm."""
    first, second = keys.split(key)
    return keys.uniform(first, (3,)), keys.permutation(second, 5), keys.randint(keys.fold_in(key, 1), (2,), 0, 7)


def two_updates(gradients: dict[str, Tensor], params: dict[str, Tensor]) -> tuple[Any, Any]:
    """An optimiser from its beginning."""
    updates, state = optimizer.update(gradients, optimizer.init(params), params)
    return optimizer.update(updates, state, params)


seen = from_record(
    Statistics,
    count=integers((), 0, 9).map(lambda count: count.double()),
    mean=dyadic((2,)),
    variance=dyadic((2,)).map(lambda x: x.abs()),
)
trees = st.fixed_dictionaries({"weight": dyadic((2, 3)), "bias": dyadic((2,))})

test_running_total = check(step_laws(totals(), carry=0), running_total)
test_keys = check(step_laws(st.tuples(drawn_keys())), draws)
test_merge = check(step_laws(st.tuples(seen, seen), tolerance=ROUNDING, carry=None), merge)
test_optimizer = check(
    step_laws(st.tuples(trees, trees), tolerance=ROUNDING),
    two_updates,
    skip={"compiled_is_eager": "compiled with the learners"},
)
