"""Families of laws of the core's own machinery."""

from purestep.core.decoding import decode, slots
from purestep.core.envs.tabular import tabular
from purestep.core.optim.muon import muon, orthogonalized
from purestep.core.transcript.edit import cut_to
from purestep.core.transcript.log_probs import nucleus
from purestep.properties.framework.families import Family, edits
from purestep.properties.strategies.transcripts import own_transcripts

from .conversations import Slots
from .decode import MUTANTS as DECODE_MUTANTS
from .decode import decode_laws
from .kernel import kernel_laws
from .muon import MUTANTS as MUON_MUTANTS
from .muon import Turning, muon_laws
from .sampling import MUTANTS as SAMPLING_MUTANTS
from .sampling import Sampling, sampling_laws
from .transcript import MUTANTS as TRANSCRIPT_MUTANTS
from .transcript import transcript_laws
from .transcript_cut import MUTANTS as TRANSCRIPT_CUT_MUTANTS
from .transcript_cut import transcript_cut_laws
from .transcript_fork import MUTANTS as TRANSCRIPT_FORK_MUTANTS
from .transcript_fork import transcript_fork_laws


def own_slots() -> Slots:
    """Return the library's own functions."""
    return Slots(slots.empty_slots, slots.seat, slots.forget, decode.decode_step, decode.chunk)


def own_sampling() -> Sampling:
    """Return the library's own functions."""
    return Sampling(decode.sampled, decode.greedy, nucleus)


def own_muon() -> Turning:
    """Return the library's own functions."""
    return Turning(muon, orthogonalized)


def families() -> list[Family]:
    """Return one subject for each suite."""
    return [
        Family(kernel_laws(), tabular),
        Family(sampling_laws(), own_sampling(), edits(SAMPLING_MUTANTS)),
        Family(decode_laws(), own_slots(), edits(DECODE_MUTANTS)),
        Family(muon_laws(), own_muon(), edits(MUON_MUTANTS)),
        Family(transcript_laws(), own_transcripts(), edits(TRANSCRIPT_MUTANTS)),
        Family(transcript_fork_laws(), own_transcripts(), edits(TRANSCRIPT_FORK_MUTANTS)),
        Family(transcript_cut_laws(), cut_to, edits(TRANSCRIPT_CUT_MUTANTS)),
    ]
