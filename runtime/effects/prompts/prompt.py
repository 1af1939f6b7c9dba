"""The prompt of a row: a text, or chat messages, checked."""

import re
from typing import Any

from ....core.errors import ChoiceError, message
from ....core.language.prompts import ROLES
from ...files.reading import parse_json

MESSAGE = '{"role": "user", "content": "..."}'
WANTED = f"a text or messages [{MESSAGE}]"
MESSAGES = re.compile(r"\s*\[\s*\{")  # the start of a cell with messages

Prompt = str | tuple[tuple[str, str], ...]


def prompt_of(where: str, given: Any) -> Prompt:
    """Return a prompt, messages as pairs (role, text). Raises: ChoiceError.

    >>> prompt_of("line 1", [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 3?"}])
    (('system', 'Be brief.'), ('user', '2 + 3?'))
    """
    if isinstance(given, str):
        return _asked(where, given)
    if not isinstance(given, list | tuple):
        remedy = "give a prompt, or leave the row out"
        raise ChoiceError(message(where, got=_kind(given), wanted=WANTED, remedy=remedy))
    if not given:
        raise ChoiceError(message(where, got="without a message", wanted=WANTED, remedy="leave the row out"))
    messages = tuple(_message(f"{where}: message {number}", one) for number, one in enumerate(given, 1))
    last = f"{where}: the last message"
    if messages[-1][0] != "user":
        remedy = "leave out what follows the question"
        raise ChoiceError(message(last, got=f"the {messages[-1][0]}'s", wanted="the user's", remedy=remedy))
    _asked(last, messages[-1][1])
    return messages


def cell_prompt(where: str, cell: str) -> Any:
    """Return the prompt of a CSV cell, unchecked: messages for one that begins with `[{`, else its text. Raises: ChoiceError.

    >>> cell_prompt("line 2", '[{"role": "user", "content": "2 + 3?"}]'), cell_prompt("line 3", "[2, 1]: sort it")
    ([{'role': 'user', 'content': '2 + 3?'}], '[2, 1]: sort it')
    """
    if not MESSAGES.match(cell):
        return cell
    try:
        return parse_json(cell)
    except ValueError as cause:
        got, remedy = "no JSON, but begins with [{", "write messages with json.dumps, or texts that begin so in .jsonl"
        raise ChoiceError(message(where, got=got, wanted=WANTED, remedy=remedy)) from cause


def _message(where: str, given: Any) -> tuple[str, str]:
    if not isinstance(given, dict):
        raise ChoiceError(message(where, got=_kind(given), wanted=MESSAGE, remedy="write messages as objects"))
    role, content = given.get("role"), given.get("content")
    if not isinstance(role, str) or role not in ROLES:
        got, wanted = f"of role {role!r}", f"one of {sorted(ROLES)}"
        raise ChoiceError(message(where, got=got, wanted=wanted, remedy="leave out messages of other roles"))
    if not isinstance(content, str):
        remedy = "give one text for each message"
        raise ChoiceError(message(f"{where}: content", got=_kind(content), wanted="a text", remedy=remedy))
    more = [name for name, value in given.items() if name not in ("role", "content") and value is not None]
    if more:
        got, remedy = f"with {more[0]!r}", "the model would not see more, leave it out"
        raise ChoiceError(message(where, got=got, wanted=MESSAGE, remedy=remedy))
    return role, _text(where, content)


def _asked(where: str, text: str) -> str:
    if not text.strip():
        raise ChoiceError(message(where, got="empty", wanted="a text", remedy="give a prompt, or leave the row out"))
    return _text(where, text)


def _text(where: str, text: str) -> str:
    """Refuse half of a pair of surrogates, which JSON can spell and no tokenizer can read."""
    try:
        text.encode()
    except UnicodeEncodeError as cause:
        got, remedy = f"with half a character at position {cause.start}", "cut texts between characters"
        raise ChoiceError(message(where, got=got, wanted="a text", remedy=remedy)) from None
    return text


def _kind(given: Any) -> str:
    return "null" if given is None else f"of type {type(given).__name__}"
