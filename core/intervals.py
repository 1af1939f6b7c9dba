"""Confidence intervals: of proportions, of means, and of proportions over groups of dependent attempts."""

import math
from collections.abc import Sequence

Z = 1.959963984540054  # of 95 %
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201)  # for 2, 3, ... values


def wilson(successes: float, attempts: float) -> tuple[float, float]:
    """Return the 95 % Wilson score interval of a proportion.

    (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

    Source: Wilson 1927, doi:10.1080/01621459.1927.10502953.

    >>> tuple(round(bound, 4) for bound in wilson(8, 10))
    (0.4902, 0.9433)
    >>> wilson(0, 0)
    (0.0, 1.0)
    """
    if not attempts:
        return 0.0, 1.0
    share, extra = successes / attempts, Z * Z / attempts
    middle = (share + extra / 2) / (1 + extra)
    half = math.sqrt(share * (1 - share) * extra + extra * extra / 4) / (1 + extra)
    return max(0.0, middle - half), min(1.0, middle + half)


def wilson_of_groups(successes: Sequence[int], size: int) -> tuple[float, float]:
    """Return the 95 % interval of a proportion over groups of `size` attempts each, whose attempts depend on each other.

    It is the Wilson interval of n* attempts:   n* = p (1 - p) / v,   from m to m size,   v = var_i(p_i) / m

    for m groups of shares p_i with mean p: m attempts where those of a group are all alike, m size where they are as different
    as independent ones. With p of 0 or 1, which gives no v, n* = m.
    Source: Franco et al. 2019, PMC6690503, on intervals with an effective sample size.

    >>> tuple(round(bound, 4) for bound in wilson_of_groups([1] * 8 + [0] * 2, 1))
    (0.4902, 0.9433)
    >>> wilson_of_groups([4] * 8 + [0] * 2, 4) == wilson(8, 10), wilson_of_groups([2] * 10, 4) == wilson(20, 40)
    (True, True)
    """
    groups, total = len(successes), sum(successes)
    attempts = groups * size
    if not attempts:
        return wilson(0, 0)
    share = total / attempts
    between = _variance([solved / size for solved in successes]) / groups
    most = attempts if 0 < total < attempts else groups
    effective = min(most, max(groups, share * (1 - share) / between)) if between else most
    return wilson(total * effective / attempts, effective)


def mean_interval(values: Sequence[float]) -> tuple[float, float] | tuple[()]:
    """Return the 95 % interval of the mean of independent values, by Student's distribution; () where all are equal.

    m -+ t s / sqrt(n),   s^2 the variance by n - 1

    >>> tuple(round(bound, 3) for bound in mean_interval([2.0, 4.0, 6.0])), mean_interval([1.0, 1.0])
    ((-0.969, 8.969), ())
    """
    if len(set(values)) < 2:
        return ()
    mean = math.fsum(values) / len(values)
    half = student(len(values)) * math.sqrt(_variance(values) / len(values))
    return mean - half, mean + half


def student(number: int) -> float:
    """Return the 97.5 % point of Student's distribution for the mean of so many values; the normal one's beyond a dozen.

    >>> student(3), student(99)
    (4.303, 1.96)
    """
    return STUDENT[number - 2] if 2 <= number < 2 + len(STUDENT) else 1.96


def _variance(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
