"""How people get the reading of texts wrong."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve, frozen

from ...core.language.parsers import Call, Parsed, Parser


@frozen
class Reading:
    """Functions that read texts: those of core.language.parsers, under their names there."""

    find_calls: Callable[[str, Sequence[str]], tuple[Call, ...]]
    strict_answer: Callable[[str], Any]
    lenient_answer: Callable[[str], Any]
    stop: Callable[[str, Sequence[str]], int]
    tagged: Callable[..., Parser]
    after: Callable[..., Parser]
    chain: Callable[..., Parser]


def raises_on_rubbish(reading: Reading) -> Reading:
    """Takes whatever follows the last tag for a number."""

    def strict_answer(text: str) -> int | tuple[()]:
        return int(text.rpartition("[ANSWER] ")[2]) if "[ANSWER] " in text else ()

    return evolve(reading, strict_answer=strict_answer)


def any_case(reading: Reading) -> Reading:
    """Reads `[answer] 5` for an answer, though sampling does not stop there."""
    return evolve(reading, strict_answer=lambda text: reading.strict_answer(text.upper()))


def stops_at_a_digit(reading: Reading) -> Reading:
    """Stops at `[ANSWER] 1` even where 12 was about to be written."""

    def stop(text: str, names: Sequence[str]) -> int:
        found = re.search(r"\[ANSWER\] -?\d", text, re.ASCII)
        return reading.stop(text[: found.end()] + "\n" if found else text, names)

    return evolve(reading, stop=stop)


def first_answer(reading: Reading) -> Reading:
    """Takes the first answer of several."""

    def strict_answer(text: str) -> int | tuple[()]:
        numbers = [reading.strict_answer(f"[ANSWER] {part}") for part in text.split("[ANSWER] ")[1:]]
        return next((number for number in numbers if number != ()), ())

    return evolve(reading, strict_answer=strict_answer)


def by_name(reading: Reading) -> Reading:
    """Gives the calls of one tool before those of the next, whatever stands first."""

    def find_calls(text: str, names: Sequence[str]) -> tuple[Call, ...]:
        return tuple(call for name in names for call in reading.find_calls(text, [name]))

    return evolve(reading, find_calls=find_calls)


def last_reward(reading: Reading) -> Reading:
    """Pays for the last parser of a chain alone."""

    def chain(*parsers: Parser) -> Parser:
        def parse(text: str) -> Parsed:
            parsed = Parsed(text)
            for parser in parsers:
                parsed = parser(parsed.action)
                if parsed.failed:
                    break
            return parsed

        return parse

    return evolve(reading, chain=chain)


def nested_tags(reading: Reading) -> Reading:
    """Reads from the first opening tag to the last closing one."""

    def tagged(tag: str, **rewards: float) -> Parser:
        def parse(text: str) -> Parsed:
            found = re.search(f"<{tag}>(.*)</{tag}>", text, re.DOTALL)
            return Parsed(found[1].strip(), rewards.get("reward", 0.0)) if found else reading.tagged(tag, **rewards)("")

        return parse

    return evolve(reading, tagged=tagged)
