"""Time passes here."""

import time


def seconds() -> float:
    """Seconds since some moment: only differences mean anything. It never goes back."""
    return time.perf_counter()
