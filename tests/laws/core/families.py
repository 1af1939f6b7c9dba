"""Families of laws of the core's own machinery."""

from purestep.core import decode, sampling, slots
from purestep.core.envs.tabular import tabular
from purestep.core.muon import muon, orthogonal
from purestep.core.transcript_cuts import cut_to
from purestep.properties.framework.families import Family, edits
from purestep.properties.strategies.transcripts import own_transcripts

from . import (
    decode_mutants,
    muon_mutants,
    sampling_mutants,
    transcript_cut_mutants,
    transcript_fork_mutants,
    transcript_mutants,
)
from .conversations import Slots
from .decode import decode_laws
from .kernel import kernel_laws
from .muon import muon_laws
from .muon_mutants import Turning
from .sampling import sampling_laws
from .sampling_mutants import Sampling
from .transcript import transcript_laws
from .transcript_cut import transcript_cut_laws
from .transcript_fork import transcript_fork_laws


def own_slots() -> Slots:
    """Our own."""
    return Slots(slots.idle, slots.seat, slots.forget, decode.step, decode.chunk, decode.prefill)


def own_sampling() -> Sampling:
    """Our own."""
    return Sampling(sampling.sampled, sampling.greedy, sampling.nucleus)


def own_muon() -> Turning:
    """Our own."""
    return Turning(muon, orthogonal)


def families() -> list[Family]:
    """One subject for each suite."""
    return [
        Family(kernel_laws(), tabular),
        Family(sampling_laws(), own_sampling(), edits(sampling_mutants.MUTANTS)),
        Family(decode_laws(), own_slots(), edits(decode_mutants.MUTANTS)),
        Family(muon_laws(), own_muon(), edits(muon_mutants.MUTANTS)),
        Family(transcript_laws(), own_transcripts(), edits(transcript_mutants.MUTANTS)),
        Family(transcript_fork_laws(), own_transcripts(), edits(transcript_fork_mutants.MUTANTS)),
        Family(transcript_cut_laws(), cut_to, edits(transcript_cut_mutants.MUTANTS)),
    ]
