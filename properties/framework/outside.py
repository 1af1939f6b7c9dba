"""What lies outside a step and must not move: the global random generators."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def generators() -> dict[str, Any]:
    """The states of the global random generators, as values to compare."""
    name, words, *rest = np.random.get_state()
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": (name, np.asarray(words).tobytes(), *rest),
        "random": random.getstate(),
    }


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Other global generators than usual; the caller's are back afterwards."""
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
