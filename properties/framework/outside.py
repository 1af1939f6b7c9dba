"""Global state outside a step that must not change: the global random generators."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def generator_states() -> dict[str, Any]:
    """Return the states of the global random generators, as values to compare."""
    name, words, *rest = np.random.get_state()
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": (name, np.asarray(words).tobytes(), *rest),
        "random": random.getstate(),
    }


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global random generators inside a `with` block, and restore their states afterwards."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])
