"""Families of laws of turns, requests, rollouts and tasks of text."""

from purestep.core.language import attempt, demonstrations, protocol, requests, transcribe
from purestep.core.language.demonstrate import demonstrate
from purestep.core.language.zorplex import zorplex
from purestep.properties.framework.families import Family, edits

from . import attempt_mutants, demonstration_mutants, protocol_mutants, request_mutants, zorplex_mutants
from .attempt import attempt_laws
from .attempt_mutants import Trying
from .demonstration import demonstration_laws
from .demonstration_mutants import Showing
from .protocol import protocol_laws
from .protocol_mutants import Turns
from .request import request_laws
from .request_mutants import Asking
from .zorplex import zorplex_laws


def own_turns() -> Turns:
    """Our own turn protocol."""
    return Turns(protocol.begin, protocol.step)


def own_asking() -> Asking:
    """Our own requests."""
    return Asking(requests.task_keys, requests.expand, requests.repeat, requests.rollouts)


def own_trying() -> Trying:
    """Our own attempts and transcripts."""
    return Trying(attempt.begin_attempt, attempt.hear, transcribe.transcripts)


def own_showing() -> Showing:
    """Our own demonstrations."""
    return Showing(demonstrations.script, demonstrate)


def families() -> list[Family]:
    """One subject for each suite."""
    return [
        Family(protocol_laws(), own_turns(), edits(protocol_mutants.MUTANTS)),
        Family(request_laws(), own_asking(), edits(request_mutants.MUTANTS)),
        Family(attempt_laws(), own_trying(), edits(attempt_mutants.MUTANTS)),
        Family(zorplex_laws(), zorplex, edits(zorplex_mutants.MUTANTS)),
        Family(demonstration_laws(), own_showing(), edits(demonstration_mutants.MUTANTS)),
    ]
