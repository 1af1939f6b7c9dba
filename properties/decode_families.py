"""The suites about causal models, drawing and decoding, each beside a subject that obeys it and further edits."""

from collections.abc import Callable, Mapping
from typing import Any

from ..core import decode, sampling, slots
from . import causal_mutants, decode_mutants, sampling_mutants
from .causal_laws import causal_laws
from .decode_laws import decode_laws
from .decode_mutants import Slots
from .law import Subject, Suite
from .sampling_laws import sampling_laws
from .sampling_mutants import Sampling
from .table_causal import table_causal

Edits = Mapping[str, Callable[[Any], Any]]


def own_slots() -> Slots:
    """Our own."""
    return Slots(slots.idle, slots.seat, slots.forget, decode.step, decode.chunk, decode.prefill)


def own_sampling() -> Sampling:
    """Our own."""
    return Sampling(sampling.sampled, sampling.greedy, sampling.nucleus)


def decode_families() -> list[tuple[Suite, Subject, Edits]]:
    """One subject for each suite."""
    return [
        (causal_laws(), table_causal(), causal_mutants.MUTANTS),
        (sampling_laws(), own_sampling(), sampling_mutants.MUTANTS),
        (decode_laws(), own_slots(), decode_mutants.MUTANTS),
    ]
