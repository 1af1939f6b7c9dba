"""Parsers from completions to actions, which compose and never raise.

A tool call is `NAME[word]`, an answer `[ANSWER] 12`. One pattern defines both answers and where sampling may stop, so that
exactly the texts that stop an episode can be rewarded as answers.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve, frozen

NUMBER = r"-?\d{1,18}"  # fits int64; int() refuses texts of some thousand digits
TAG = rf"\[ANSWER\] ({NUMBER})"
ANSWER = re.compile(rf"{TAG}(?!\d|\.\d)", re.ASCII)
FINAL_ANSWER = re.compile(rf"{TAG}(?=[^\d.]|\.\D)", re.ASCII)  # as ANSWER, when no further text can change the number
LENIENT = (
    re.compile(rf"\[answer\] *({NUMBER})(?!\d)", re.ASCII | re.IGNORECASE),
    re.compile(rf"answer is:? ?({NUMBER})(?!\d)", re.ASCII | re.IGNORECASE),
    re.compile(rf"= *({NUMBER})\Z", re.ASCII),
    re.compile(rf"(?<!\d)({NUMBER})(?!\d)", re.ASCII),
)


@frozen
class Call:
    """A tool call: the tool's name in capitals, and its argument as written."""

    name: str
    argument: str


@frozen
class Answer:
    """A final answer."""

    value: int


@frozen
class Parsed:
    """The result of a parser: an action, or () and feedback to the model; and the reward for it."""

    action: Any = ()
    reward: float = 0.0
    feedback: str = ""

    @property
    def failed(self) -> bool:
        """True if there is no action."""
        return isinstance(self.action, tuple) and not self.action


Parser = Callable[[str], Parsed]  # in a chain, each reads the action of the previous one, which then is a text


def _calls(names: Sequence[str]) -> re.Pattern[str]:
    either = "|".join(map(re.escape, names)) or r"(?!)"
    # ASCII: otherwise the Kelvin sign would match K.
    return re.compile(rf"(?<!\w)({either})\[([\"']?)(\w+)\2\]", re.ASCII | re.IGNORECASE)


def find_calls(text: str, names: Sequence[str]) -> tuple[Call, ...]:
    """Return the complete calls of these tools in a text, in order: `NAME[word]`, the word quoted or not, any case.

    >>> find_calls("lookup[kramun], LOOKUP['blivit'], LOOKUP[half", ["LOOKUP"])
    (Call(name='LOOKUP', argument='kramun'), Call(name='LOOKUP', argument='blivit'))
    """
    return tuple(Call(match[1].upper(), match[3]) for match in _calls(names).finditer(text))


def strict_answer(text: str) -> int | tuple[()]:
    """Return the number of the last `[ANSWER] n` in a text, () without one. Only this parser decides rewards.

    Capitals, one space, an optional minus, up to 18 digits, no decimals: strict_answer(x) finds an answer exactly when
    stop(x + "\\n", ()) > 0.

    >>> strict_answer("[ANSWER] 3, no: [ANSWER] -4."), strict_answer("[answer] 5"), strict_answer("[ANSWER] 2.5")
    (-4, (), ())
    """
    numbers = ANSWER.findall(text)
    return int(numbers[-1]) if numbers else ()


def lenient_answer(text: str) -> int | tuple[()]:
    """Return the probably intended number of a text; for diagnosis, not for rewards.

    In this order: the last tag in upper or lower case, the last "answer is n", "= n" at the end, the last number.

    >>> lenient_answer("[answer]7"), lenient_answer("The answer is 5, of 9."), lenient_answer("2 + 3 = 5."), lenient_answer("?")
    (7, 5, 5, ())
    """
    for pattern in LENIENT:
        numbers = pattern.findall(text.rstrip().removesuffix("."))
        if numbers:
            return int(numbers[-1])
    return ()


def stop(text: str, names: Sequence[str]) -> int:
    """Return the index after the first complete call or final answer, where sampling may stop; 0 if there is none.

    "[ANSWER] 1" may still become "[ANSWER] 12", so an answer is final only with the character after it; the end of a
    completion counts as the end of a line.

    >>> stop("LOOKUP[kramun] and", ["LOOKUP"]), stop("[ANSWER] 1", []), stop("[ANSWER] 12\\n", [])
    (14, 0, 11)
    """
    found = (_calls(names).search(text), FINAL_ANSWER.search(text))
    return min((match.end() for match in found if match), default=0)


def tool_call(names: Sequence[str], *, reward: float = 0.0, penalty: float = 0.0) -> Parser:
    """Return the parser of one call of one of these tools; the action is the `Call`. No call, or several calls, fail.

    >>> tool_call(["LOOKUP"])("I try LOOKUP[kramun]").action
    Call(name='LOOKUP', argument='kramun')
    """

    def parse(text: str) -> Parsed:
        calls = find_calls(text, names)
        if len(calls) == 1:
            return Parsed(calls[0], reward)
        return Parsed((), 0.0 - penalty, "Call one tool at a time." if calls else "Invalid action.")

    return parse


def answer(*, reward: float = 0.0, penalty: float = 0.0) -> Parser:
    """Return the parser of a strict answer; the action is the `Answer`.

    >>> answer(reward=0.5)("[ANSWER] 5")
    Parsed(action=Answer(value=5), reward=0.5, feedback='')
    """

    def parse(text: str) -> Parsed:
        value = strict_answer(text)
        if isinstance(value, tuple):
            return Parsed((), 0.0 - penalty, "Invalid action.")
        return Parsed(Answer(value), reward)

    return parse


def tagged(tag: str, *, reward: float = 0.0, penalty: float = 0.0) -> Parser:
    """Return the parser of a text with one `<tag>...</tag>`; the action is the text inside, stripped.

    Tags that are missing, not closed, in the wrong order, nested or repeated fail.

    >>> tagged("answer")("so <answer> 5 </answer>").action
    '5'
    """
    opening, closing = f"<{tag}>", f"</{tag}>"

    def parse(text: str) -> Parsed:
        inside, closed, _ = text.partition(opening)[2].partition(closing)
        if not closed or text.count(opening) != 1 or text.count(closing) != 1:
            return Parsed((), 0.0 - penalty, f"Write one {opening}...{closing}.")
        return Parsed(inside.strip(), reward)

    return parse


def after(tag: str, *, reward: float = 0.0, penalty: float = 0.0) -> Parser:
    """Return the parser of a text that begins with one `<tag>...</tag>`; the action is the text after it, stripped.

    >>> chain(after("think"), tagged("answer"))("<think>2 + 3</think> <answer>5</answer>").action
    '5'
    """
    within = tagged(tag, reward=reward, penalty=penalty)

    def parse(text: str) -> Parsed:
        parsed = within(text)
        if parsed.failed or not text.lstrip().startswith(f"<{tag}>"):
            return Parsed((), 0.0 - penalty, f"Begin with <{tag}>...</{tag}>.")
        return evolve(parsed, action=text.partition(f"</{tag}>")[2].strip())

    return parse


def chain(*parsers: Parser) -> Parser:
    """Return the chain of parsers: each reads the action of the previous one; the first failure fails the chain.

    The reward is the sum of the rewards of the parsers that ran. The empty chain returns the text itself as action.

    >>> chain(tagged("act", reward=0.25), answer(reward=0.5))("<act>[ANSWER] 5</act>")
    Parsed(action=Answer(value=5), reward=0.75, feedback='')
    """

    def parse(text: str) -> Parsed:
        parsed = Parsed(text)
        for parser in parsers:
            following = parser(parsed.action)
            parsed = evolve(following, reward=parsed.reward + following.reward)
            if parsed.failed:
                break
        return parsed

    return parse


def either(*parsers: Parser) -> Parser:
    """Return the parser that uses the first parser with an action, or the last if all fail; only that one's reward counts.

    >>> either(answer(), tool_call(["LOOKUP"]))("LOOKUP[kramun]").action
    Call(name='LOOKUP', argument='kramun')
    """

    def parse(text: str) -> Parsed:
        parsed = Parsed((), 0.0, "Invalid action.")
        for parser in parsers:
            parsed = parser(text)
            if not parsed.failed:
                break
        return parsed

    return parse
