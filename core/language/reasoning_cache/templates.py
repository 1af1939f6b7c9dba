"""Prompt templates of the reasoning cache, filled in one pass, and removal of think tags from replies.

A problem, a summary or a reasoning text may contain braces, backslashes and names in braces: they are inserted verbatim, and
not interpreted as a part of the template.
"""

import re
from collections.abc import Mapping, Sequence

from ...errors import ChoiceError, message

OPENING, CLOSING = "<think>", "</think>"
REASONING_NAMES = ("problem", "curr_summary")
SUMMARIZATION_NAMES = ("problem", "existing_summary", "reasoning")

REASONING_PROMPT = """Work on this problem step by step.

Problem: {problem}

Notes on the work so far, which may or may not be right: {curr_summary}

Check them, try another way, or go on from there:
"""
SUMMARIZATION_PROMPT = """Write down where the work on this problem stands. Add no new reasoning.

Problem: {problem}

Notes so far: {existing_summary}

Latest reasoning: {reasoning}

The new notes, short and complete:
"""


def fill_template(template: str, values: Mapping[str, str]) -> str:
    """Return the template with every {name} of `values` replaced; other braces stay, inserted text is not expanded again.

    >>> fill_template("{problem} from {1, 2}: {curr_summary}", {"problem": "{curr_summary}", "curr_summary": "\\\\frac{1}{2}"})
    '{curr_summary} from {1, 2}: \\\\frac{1}{2}'
    """
    names = "|".join(map(re.escape, values)) or r"(?!)"
    return re.sub(rf"\{{({names})\}}", lambda match: values[match[1]], template)


def check_template(where: str, template: str, names: Sequence[str]) -> str:
    """Return the template if it contains each of the names in braces. Raises: ChoiceError.

    >>> check_template("prompt", "Solve {problem}", ("problem",))
    'Solve {problem}'
    """
    missing = [f"{{{name}}}" for name in names if f"{{{name}}}" not in template]
    if missing:
        got, remedy = f"without {', '.join(missing)}", "say where they go"
        wanted = f"a template with {', '.join(f'{{{name}}}' for name in names)}"
        raise ChoiceError(message(where, got=got, wanted=wanted, remedy=remedy))
    return template


def open_think_tag(prompt: str) -> str:
    """Return a prompt with an opening think tag appended.

    >>> open_think_tag("2 + 3?")
    '2 + 3?\\n<think>\\n'
    """
    return f"{prompt}\n{OPENING}\n"


def close_think_tag(text: str) -> str:
    """Return a reply to an opened prompt, with the opening tag of the prompt in front.

    >>> close_think_tag("5</think> 5"), close_think_tag("<think>5</think> 5")
    ('<think>\\n5</think> 5', '<think>5</think> 5')
    """
    return text if text.lstrip().startswith(OPENING) else f"{OPENING}\n{text}"


def thought(text: str) -> str:
    """Return the reasoning in a reply: all text before the first closing tag, or all text if there is no closing tag.

    >>> thought("<think>2 + 3 = 5</think> [ANSWER] 5"), thought("<think> 2 + ")
    ('2 + 3 = 5', '2 +')
    """
    return text.partition(CLOSING)[0].replace(OPENING, "").strip()


def untagged(text: str) -> str:
    """Return a text without the two tags, but with the text between them.

    >>> untagged("<think>a</think> b")
    'a b'
    """
    return text.replace(OPENING, "").replace(CLOSING, "").strip()
