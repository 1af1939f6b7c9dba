"""Families of laws of turns, requests, rollouts and tasks of text."""

from purestep.core.language import curriculum, protocol, requests, rollout, to_transcript
from purestep.core.language.pass_at_k import pass_at_k
from purestep.core.language.tool_calls import hermes_calls
from purestep.core.language.zorplex import demonstrations
from purestep.core.language.zorplex.demonstrate import demonstrate
from purestep.core.language.zorplex.env import zorplex
from purestep.properties.framework.families import Family, edits

from .attempt import MUTANTS as ATTEMPT_MUTANTS
from .attempt import Trying, attempt_laws
from .curriculum import Curriculum, curriculum_laws
from .demonstration import MUTANTS as DEMONSTRATION_MUTANTS
from .demonstration import Showing, demonstration_laws
from .pass_at_k import pass_at_k_laws
from .protocol import MUTANTS as PROTOCOL_MUTANTS
from .protocol import Turns, protocol_laws
from .request import MUTANTS as REQUEST_MUTANTS
from .request import Asking, request_laws
from .tool_calls import MUTANTS as TOOL_CALL_MUTANTS
from .tool_calls import CallFormat, hermes_text, tool_call_laws
from .zorplex import MUTANTS as ZORPLEX_MUTANTS
from .zorplex import zorplex_laws


def own_turns() -> Turns:
    """Return the library's turn protocol."""
    return Turns(protocol.begin_episode, protocol.turn_after)


def own_asking() -> Asking:
    """Return the library's requests."""
    return Asking(requests.task_keys, requests.expand, requests.repeat, requests.rollouts)


def own_trying() -> Trying:
    """Return the library's attempts and transcripts."""
    return Trying(rollout.begin_rollout, rollout.add_output, to_transcript.transcripts)


def own_showing() -> Showing:
    """Return the library's demonstrations."""
    return Showing(demonstrations.script, demonstrate)


def own_curriculum() -> Curriculum:
    """Return the library's choice of prompts."""
    return Curriculum(
        curriculum.choose_prompts,
        curriculum.add_results,
        curriculum.missing,
        curriculum.add_round,
        curriculum.batch_of,
    )


def own_calls() -> CallFormat:
    """Return the library's parser of calls in tags."""
    return CallFormat(hermes_calls, hermes_text)


def families() -> list[Family]:
    """Return one subject for each suite."""
    return [
        Family(protocol_laws(), own_turns(), edits(PROTOCOL_MUTANTS)),
        Family(request_laws(), own_asking(), edits(REQUEST_MUTANTS)),
        Family(attempt_laws(), own_trying(), edits(ATTEMPT_MUTANTS)),
        Family(zorplex_laws(), zorplex, edits(ZORPLEX_MUTANTS)),
        Family(demonstration_laws(), own_showing(), edits(DEMONSTRATION_MUTANTS)),
        Family(pass_at_k_laws(), pass_at_k),
        Family(curriculum_laws(), own_curriculum()),
        Family(tool_call_laws(), own_calls(), edits(TOOL_CALL_MUTANTS)),
    ]
