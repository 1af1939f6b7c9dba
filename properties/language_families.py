"""The suites about worlds of text, each beside a subject that obeys it and edits beyond those its laws name themselves."""

from collections.abc import Callable, Mapping
from typing import Any

from ..core.language import attempt, parsers, protocol, requests, transcribe
from ..core.language.codec import byte_codec
from ..core.language.zorplex import zorplex
from . import attempt_mutants, protocol_mutants, request_mutants, text_env_mutants, zorplex_mutants
from .attempt_laws import attempt_laws
from .attempt_mutants import Trying
from .codec_laws import codec_laws
from .decode_families import decode_families
from .language_strategies import MOVES, Ledger, ledger, ledger_parser
from .law import Subject, Suite
from .parser_laws import parser_laws
from .parser_mutants import Reading
from .protocol_laws import protocol_laws
from .protocol_mutants import Turns
from .reasoning_families import reasoning_families
from .request_laws import request_laws
from .request_mutants import Asking
from .text_env_laws import text_env_laws
from .zorplex_laws import zorplex_laws

Edits = Mapping[str, Callable[[Any], Any]]


def own_reading() -> Reading:
    """Our own parsers."""
    return Reading(
        parsers.find_calls,
        parsers.strict_answer,
        parsers.lenient_answer,
        parsers.stop,
        parsers.tagged,
        parsers.after,
        parsers.chain,
    )


def own_turns() -> Turns:
    """Our own turn protocol."""
    return Turns(protocol.begin, protocol.step)


def own_asking() -> Asking:
    """Our own requests."""
    return Asking(requests.task_keys, requests.expand, requests.repeat, requests.rollouts)


def own_trying() -> Trying:
    """Our own attempts and transcripts."""
    return Trying(attempt.begin_attempt, attempt.hear, transcribe.transcripts)


def own_world_laws() -> Suite:
    """The laws of worlds of text, for the ledger."""
    return text_env_laws(ledger_parser(), *MOVES.values(), classes=(Ledger,), tools=("sum", ""))


def language_families() -> list[tuple[Suite, Subject, Edits]]:
    """Suites, subjects and more edits."""
    return [
        (parser_laws(), own_reading(), {}),
        (protocol_laws(), own_turns(), protocol_mutants.MUTANTS),
        (request_laws(), own_asking(), request_mutants.MUTANTS),
        (attempt_laws(), own_trying(), attempt_mutants.MUTANTS),
        (codec_laws(), byte_codec(), {}),
        *decode_families(),
        (own_world_laws(), ledger(), text_env_mutants.MUTANTS),
        (zorplex_laws(), zorplex, zorplex_mutants.MUTANTS),
        *reasoning_families(),
    ]
