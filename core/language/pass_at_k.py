"""pass@k: the probability that at least one of k attempts at a task is right, estimated from n >= k attempts."""

import math
from collections.abc import Sequence

from ..errors import ChoiceError, message


def pass_at_k(attempts: int, solved: int, k: int) -> float:
    """Return the unbiased estimate of pass@k from n attempts at a task, of which c are right.

    1 - C(n - c, k) / C(n, k)

    It is the share of the choices of k among the n attempts that hold a right one. The plug-in estimate 1 - (1 - c / n)^k is
    biased: it is too low. Raises: ChoiceError.
    Source: Chen et al. 2021, arXiv:2107.03374, section 2.1.

    >>> pass_at_k(4, 1, 2)  # 3 of the 6 pairs hold the right attempt
    0.5
    >>> pass_at_k(4, 3, 2), pass_at_k(4, 0, 4)
    (1.0, 0.0)
    """
    for name, number, least, most in (("k", k, 1, attempts), ("solved", solved, 0, attempts)):
        if not least <= number <= most:
            wanted, remedy = f"from {least} to the {attempts} attempts", "count all attempts at the task"
            raise ChoiceError(message(f"pass_at_k: {name}", got=number, wanted=wanted, remedy=remedy))
    wrong, choices = math.comb(attempts - solved, k), math.comb(attempts, k)
    return (choices - wrong) / choices


def mean_pass_at_k(solved: Sequence[int], attempts: int, k: int) -> float:
    """Return the mean of `pass_at_k` over tasks with so many attempts each. Raises: ChoiceError, also for no tasks.

    >>> mean_pass_at_k([0, 1, 4], 4, 2)
    0.5
    """
    if not solved:
        remedy = "evaluate one or more"
        raise ChoiceError(message("mean_pass_at_k: tasks", got=0, wanted="at least 1", remedy=remedy))
    return math.fsum(pass_at_k(attempts, each, k) for each in solved) / len(solved)


def shown_ks(attempts: int) -> tuple[int, ...]:
    """Return the k for which pass@k is reported: the powers of two below the number of attempts, and that number.

    >>> shown_ks(1), shown_ks(6), shown_ks(8)
    ((1,), (1, 2, 4, 6), (1, 2, 4, 8))
    """
    return (*(1 << power for power in range((attempts - 1).bit_length())), attempts)
