"""The clock for measuring durations."""

import time


def seconds() -> float:
    """Return the seconds since an arbitrary moment: only differences have a meaning. The clock never goes back."""
    return time.perf_counter()
