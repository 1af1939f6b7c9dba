"""Laws of parsers of text: no text raises, and sampling stops at exactly the answers that count. Subject: `ParserFunctions`."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve, frozen
from hypothesis import strategies as st

from ....core.language.parsers import Call, Parsed, Parser
from ...framework.compare import require, same
from ...framework.law import Law, Mutant, Seen, Suite, law_constructor
from ...strategies.language import NAMES, texts

# --- mutants ---
# Common errors in parsers of text.


@frozen
class ParserFunctions:
    """Functions that parse text: those of core.language.parsers, under their names there."""

    find_calls: Callable[[str, Sequence[str]], tuple[Call, ...]]
    strict_answer: Callable[[str], Any]
    lenient_answer: Callable[[str], Any]
    stop: Callable[[str, Sequence[str]], int]
    tagged: Callable[..., Parser]
    after: Callable[..., Parser]
    chain: Callable[..., Parser]


def raises_on_rubbish(reading: ParserFunctions) -> ParserFunctions:
    """Convert the text after the last tag to a number, and raise if it is none."""

    def strict_answer(text: str) -> int | tuple[()]:
        return int(text.rpartition("[ANSWER] ")[2]) if "[ANSWER] " in text else ()

    return evolve(reading, strict_answer=strict_answer)


def any_case(reading: ParserFunctions) -> ParserFunctions:
    """Accept `[answer] 5` as an answer, though sampling does not stop there."""
    return evolve(reading, strict_answer=lambda text: reading.strict_answer(text.upper()))


def stops_at_a_digit(reading: ParserFunctions) -> ParserFunctions:
    """Stop at the first digit of an answer: at `[ANSWER] 1` of `[ANSWER] 12`."""

    def stop(text: str, names: Sequence[str]) -> int:
        found = re.search(r"\[ANSWER\] -?\d", text, re.ASCII)
        return reading.stop(text[: found.end()] + "\n" if found else text, names)

    return evolve(reading, stop=stop)


def first_answer(reading: ParserFunctions) -> ParserFunctions:
    """Return the first answer of several, not the last."""

    def strict_answer(text: str) -> int | tuple[()]:
        numbers = [reading.strict_answer(f"[ANSWER] {part}") for part in text.split("[ANSWER] ")[1:]]
        return next((number for number in numbers if number != ()), ())

    return evolve(reading, strict_answer=strict_answer)


def by_name(reading: ParserFunctions) -> ParserFunctions:
    """Return all calls of one tool before those of the next, not in the order of the text."""

    def find_calls(text: str, names: Sequence[str]) -> tuple[Call, ...]:
        return tuple(call for name in names for call in reading.find_calls(text, [name]))

    return evolve(reading, find_calls=find_calls)


def last_reward(reading: ParserFunctions) -> ParserFunctions:
    """Return the reward of a chain's last parser instead of the sum."""

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


def nested_tags(reading: ParserFunctions) -> ParserFunctions:
    """Return the text from the first opening tag to the last closing one."""

    def tagged(tag: str, **rewards: float) -> Parser:
        def parse(text: str) -> Parsed:
            found = re.search(f"<{tag}>(.*)</{tag}>", text, re.DOTALL)
            return Parsed(found[1].strip(), rewards.get("reward", 0.0)) if found else reading.tagged(tag, **rewards)("")

        return parse

    return evolve(reading, tagged=tagged)


# --- laws ---


SOURCE = "core.language.parsers: one pattern decides what is an answer and where sampling may stop"
SEVERAL = st.lists(texts(), min_size=1, max_size=10)


def parser_laws() -> Suite:
    """The laws of parsers of text."""
    return Suite("parser_laws", (_total(), _strict(), _final(), _last(), _order(), _tags(), _rewards()))


_law = law_constructor(lambda: SEVERAL, SOURCE)


def _total() -> Law:
    def check(reading: ParserFunctions, several: list[str], seen: Seen) -> None:
        read = reading.chain(reading.after("think"), reading.tagged("answer"))
        for text in several:
            seen("half an answer", "[ANSWER] " in text and reading.strict_answer(text) == ())
            for value in (reading.strict_answer(text), reading.lenient_answer(text)):
                require(isinstance(value, int) or value == (), "an answer is a number or ()")
            require(0 <= reading.stop(text, NAMES) <= len(text), "a stop lies in the text")
            require(all(isinstance(call, Call) for call in reading.find_calls(text, NAMES)), "calls are calls")
            require(isinstance(read(text), Parsed), "a chain gives a Parsed")

    mutant = Mutant("takes whatever follows the tag for a number", raises_on_rubbish)
    return _law("any_text", "Any text whatever has a meaning; none raises.", mutant, check, "half an answer")


def _strict() -> Law:
    def check(reading: ParserFunctions, several: list[str], seen: Seen) -> None:
        for text in several:
            answered, stops = reading.strict_answer(text) != (), reading.stop(f"{text}\n", ()) > 0
            seen("an answer", answered)
            seen("a text with a tag in small letters", "[answer]" in text and not answered)
            same(f"whether {text[:60]!r} holds an answer", answered, stops)

    mutant = Mutant("reads tags in any case", any_case)
    claim = "A text holds a strict answer exactly when sampling stops at one in it."
    return _law("answers_are_stops", claim, mutant, check, "an answer", "a text with a tag in small letters")


def _final() -> Law:
    def check(reading: ParserFunctions, inputs: tuple[list[str], str], seen: Seen) -> None:
        several, more = inputs
        for text in several:
            end, whole = reading.stop(text, NAMES), text + more
            if not end:
                continue
            head, rest = text[:end], whole[end:].partition("[ANSWER]")[0]
            first = reading.strict_answer(head)
            seen("an answer", first != ())
            seen("a call", first == ())
            same(f"the stop in {text[:60]!r} and more", reading.stop(whole, NAMES), end)
            require(
                first != () or reading.find_calls(head, NAMES), f"an answer or a call ends at {end} of {text[:60]!r}"
            )
            if first != ():
                same(f"the answer that ends at {end}, with more behind it", reading.strict_answer(head + rest), first)

    mutant = Mutant("stops at the first digit of an answer", stops_at_a_digit)
    claim = "Where sampling stops, an answer or a call has ended, and no further text changes that."
    inputs = st.tuples(SEVERAL, st.sampled_from(("2", ".5", ".", "]", "[ANSWER] 3\n", "x")))
    return _law("stops_are_final", claim, mutant, check, "an answer", "a call", inputs=inputs)


def _last() -> Law:
    def check(reading: ParserFunctions, inputs: tuple[list[str], int], seen: Seen) -> None:
        several, value = inputs
        for text in several:
            before = reading.strict_answer(text)
            seen("another answer before it", before not in ((), value))
            for ending in ("", ".", "\n", " is it"):
                same("the last answer", reading.strict_answer(f"{text}\n[ANSWER] {value}{ending}"), value)
            same("read leniently", reading.lenient_answer(f"{text}\n[answer] {value}"), value)

    mutant = Mutant("takes the first answer of several", first_answer)
    inputs = st.tuples(SEVERAL, st.integers(-(10**18) + 1, 10**18 - 1))
    claim = "The last answer counts, whatever came before and whatever sign it has."
    return _law("the_last_answer", claim, mutant, check, "another answer before it", inputs=inputs)


def _order() -> Law:
    def check(reading: ParserFunctions, calls: list[tuple[str, str, str]], seen: Seen) -> None:
        text = " then ".join(f"{name}[{quote}{word}{quote}]" for name, word, quote in calls)
        wanted = tuple(Call(name.upper(), word) for name, word, _ in calls)
        seen(
            "two tools, not in the order of their names",
            [call.name for call in wanted] != sorted(call.name for call in wanted),
        )
        same("the calls", reading.find_calls(text, sorted(NAMES)), wanted)
        same("those of one tool", reading.find_calls(text, NAMES[:1]), tuple(c for c in wanted if c.name == NAMES[0]))

    one = st.tuples(
        st.sampled_from(("LOOKUP", "lookup", "Fetch", "FETCH")),
        st.sampled_from(("kra", "ZK_1")),
        st.sampled_from(("", "'", '"')),
    )
    mutant = Mutant("gives the calls of one tool before those of the next", by_name)
    claim = "Calls are found in the order of the text, quoted or not, in any case."
    needs = "two tools, not in the order of their names"
    return _law("calls_in_order", claim, mutant, check, needs, inputs=st.lists(one, max_size=6))


def _tags() -> Law:
    def check(reading: ParserFunctions, several: list[str], seen: Seen) -> None:
        parse = reading.tagged("answer", reward=0.5, penalty=0.25)
        for text in several:
            parsed, tags = parse(text), text.replace("</answer>", "\x00>").replace("<answer>", "\x00<")
            marks = [tags[place + 1] for place, letter in enumerate(tags) if letter == "\x00"]
            seen("tags that are nested or there twice", len(marks) > 2)
            seen("one pair", marks == ["<", ">"])
            wanted = (False, 0.5) if marks == ["<", ">"] else (True, -0.25)
            same(f"what {text[:60]!r} is", (parsed.failed, parsed.reward), wanted)

    mutant = Mutant("reads from the first opening tag to the last closing one", nested_tags)
    pieces = ("<answer>", "</answer>", "5", "\n", "<answer> 5 </answer>", "<answer></answer>")
    texts_of_tags = st.lists(st.sampled_from(pieces), max_size=4).map("".join)
    drawn = st.lists(texts_of_tags, min_size=1, max_size=10)
    claim = "Exactly one pair of tags, in their order, is read; anything else fails and pays the penalty."
    return _law(
        "one_pair_of_tags", claim, mutant, check, "tags that are nested or there twice", "one pair", inputs=drawn
    )


def _rewards() -> Law:
    def check(reading: ParserFunctions, several: list[str], seen: Seen) -> None:
        first = reading.after("think", reward=0.25, penalty=0.5)
        second = reading.tagged("answer", reward=0.125, penalty=1.0)
        third = reading.tagged("number", reward=2.0, penalty=4.0)
        for text in several:
            one = first(text)
            two = second(one.action) if not one.failed else Parsed((), 0.0)
            seen("both read", not one.failed and not two.failed)
            seen("the second failed", not one.failed and two.failed)
            both = reading.chain(first, second)(text)
            same("what a chain pays", both.reward, one.reward + two.reward)
            same("what it finds", both.action, two.action if not one.failed else ())
            left = reading.chain(reading.chain(first, second), third)(text)
            same("a chain of chains", left, reading.chain(first, reading.chain(second, third))(text))
            same("the chain of one", reading.chain(first)(text), one)

    mutant = Mutant("pays for the last parser of a chain alone", last_reward)
    parts = ("<think>a</think>", "<answer>5</answer>", "<answer>", "<answer><number>5</number></answer>")
    drawn = st.lists(st.lists(st.sampled_from(parts), max_size=3).map("".join), min_size=1, max_size=10)
    claim = "Rewards add up along a chain as far as it was read, and chains of chains are chains."
    return _law("rewards_add_up", claim, mutant, check, "both read", "the second failed", inputs=drawn, share=0.05)
