"""What the laws of every step say of small steps of ours."""

from hypothesis import strategies as st
from torch import Tensor

from purestep.core import keys
from purestep.core.normalize import Statistics, merge
from purestep.properties import check, from_record, step_laws
from purestep.properties import keys as drawn_keys
from purestep.properties.step_mutants import running_total, totals


def draws(key: Tensor) -> tuple[Tensor, ...]:
    """What keys are for, without a logarithm."""
    first, second = keys.split(key)
    return keys.uniform(first, (3,)), keys.permutation(second, 5), keys.randint(keys.fold_in(key, 1), (2,), 0, 7)


test_running_total = check(step_laws(totals(), carry=0), running_total)
test_keys = check(step_laws(st.tuples(drawn_keys())), draws)
