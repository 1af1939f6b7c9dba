"""Failure modes of attempts at zorplex tasks, and their probably intended answers. For reports, not for rewards."""

import re
from collections.abc import Sequence

from ..events import Event, ToolResult, model_text
from ..parsers import NUMBER, lenient_answer, strict_answer
from .env import KINDS, ZorplexState, free_calls
from .tasks import ZorplexTask

SUCCESS, WRONG_FORMAT, TOOL_SPAM, WRONG_ANSWER = "success", "wrong_format", "tool_spam", "wrong_answer"
FAILURE_MODES = (SUCCESS, WRONG_FORMAT, TOOL_SPAM, WRONG_ANSWER)


def failure_mode(play: ZorplexState) -> str:
    """Return the failure mode of an attempt, the first that fits: success, wrong_format (no answer), tool_spam, wrong_answer.

    Spam is more than one call beyond the free ones.

    >>> from purestep.core import keys
    >>> from purestep.core.language.zorplex.tasks import simple, two_syllables
    >>> failure_mode(ZorplexState(task=simple(two_syllables(), keys.key(0)), calls=9))
    'wrong_format'
    """
    if play.answer == play.task.answer:
        return SUCCESS
    if play.answer == ():
        return WRONG_FORMAT
    return TOOL_SPAM if play.calls > free_calls(play.task) + 1 else WRONG_ANSWER


def meant(task: ZorplexTask, events: Sequence[Event]) -> int | tuple[()]:
    """Return the probably intended answer of an attempt, for diagnosis only; () if there is no number at all.

    A strict answer first; then the number a tool returned (simple: the first of LOOKUP, multi_step: the first of FETCH,
    recursive: the last of LOOKUP), or for a compositional task the `lenient_answer` of the text.

    >>> from purestep.core import keys
    >>> from purestep.core.language.zorplex.tasks import simple, two_syllables
    >>> task = simple(two_syllables(), keys.key(0))
    >>> meant(task, (ToolResult("LOOKUP", "kramun", "4", auxiliary=False),))
    4
    """
    text = model_text(events)
    strict = strict_answer(text)
    if strict != ():
        return strict
    if task.kind == "compositional":
        return lenient_answer(text)
    last_tool = KINDS[task.kind][-1]
    results = [event.text for event in events if isinstance(event, ToolResult) and event.name == last_tool]
    numbers = [int(result) for result in results if re.fullmatch(NUMBER, result)]
    return numbers[-1 if task.kind == "recursive" else 0] if numbers else ()
