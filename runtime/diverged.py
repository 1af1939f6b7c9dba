"""Runs that became NaN or infinite: an error as soon as Python sees the numbers, never a branch inside a graph."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from ..core.errors import NonFiniteError, message

Result = tuple[Any, Mapping[str, Tensor]]  # the final state of a run, and its metrics
AFTERWARDS = "afterwards"  # a function's attribute: called by its program with each result, outside the graph


def refusing(run: Callable[[Any], Result]) -> Callable[[Any], Result]:
    """Return `run` with `require_finite` applied to its result wherever the numbers are known: in Python, and as a `program`.

    >>> refusing(lambda state: (state, {"finite": torch.tensor([1.0])}))(3)[0]
    3
    """

    def checked(state: Any) -> Result:
        result = run(state)
        if not torch.compiler.is_compiling():
            require_finite(result)
        return result

    checked.__dict__[AFTERWARDS] = require_finite
    return checked


def require_finite(result: Result) -> None:
    """Raise NonFiniteError if `finite` among the metrics, [iterations] or [iterations, S], has a row of zeros.

    Numbers inside a transformation such as vmap are not known yet, and are not checked.

    >>> try:
    ...     require_finite(((), {"finite": torch.tensor([1.0, 0.0])}))
    ... except NonFiniteError as error:
    ...     print(str(error).split(",")[0])
    train: iteration 2 of 2 is NaN or infinite in parameters or rewards
    """
    finite = result[1].get("finite", ())
    if not isinstance(finite, Tensor) or not _is_known(finite):
        return
    lost = (finite.reshape(finite.shape[0], -1) == 0.0).all(-1).tolist() if finite.numel() else []
    if True in lost:
        where, got = (
            f"train: iteration {lost.index(True) + 1} of {len(lost)}",
            "NaN or infinite in parameters or rewards",
        )
        remedy = "lower the learning rate or scale the rewards, and begin from the state before"
        raise NonFiniteError(message(where, got=got, wanted="finite numbers", remedy=remedy))


def _is_known(numbers: Tensor) -> bool:
    wrapped = is_functorch_wrapped_tensor(numbers)
    return type(numbers) is Tensor and not wrapped and numbers.device.type != "meta"
