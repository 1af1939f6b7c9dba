"""The suites about transcripts, each beside a subject that obeys it and edits beyond those its laws name themselves."""

from collections.abc import Callable, Mapping
from typing import Any

from ..core import transcript, transcript_calls, transcript_forks
from ..core.transcript_scores import loss_mask, token_log_probs, with_proximal
from . import token_log_prob_mutants, transcript_fork_mutants, transcript_mutants
from .law import Subject, Suite
from .token_log_prob_laws import token_log_prob_laws
from .transcript_fork_laws import transcript_fork_laws
from .transcript_laws import transcript_laws
from .transcript_mutants import Transcripts

Edits = Mapping[str, Callable[[Any], Any]]


def own_transcripts() -> Transcripts:
    """Our own."""
    return Transcripts(
        empty=transcript.empty,
        append_context=transcript.append_context,
        append_sampled=transcript.append_sampled,
        begin_call=transcript_calls.begin_call,
        end_call=transcript_calls.end_call,
        next_turn=transcript_calls.next_turn,
        ended=transcript_calls.ended,
        fork=transcript_forks.fork,
        prefix_of=transcript_forks.prefix_of,
        per_token=transcript_calls.per_token,
        loss_mask=loss_mask,
        with_proximal=with_proximal,
    )


def transcript_families() -> list[tuple[Suite, Subject, Edits]]:
    """Suites, subjects and more edits."""
    return [
        (transcript_laws(), own_transcripts(), transcript_mutants.MUTANTS),
        (transcript_fork_laws(), own_transcripts(), transcript_fork_mutants.MUTANTS),
        (token_log_prob_laws(), token_log_probs, token_log_prob_mutants.MUTANTS),
    ]
