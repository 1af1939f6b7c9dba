"""Confidence intervals of proportions."""

import math

Z = 1.959963984540054  # of 95 %


def wilson(successes: int, attempts: int) -> tuple[float, float]:
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
