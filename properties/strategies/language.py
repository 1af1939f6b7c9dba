"""Texts and a small text environment for the laws of language."""

from typing import Any

from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ...core.keys import Key
from ...core.language.parsers import Answer, Call, Parser, answer, either, tool_call
from ...core.language.text_env import Outcome, TextEnv

NAMES = ("LOOKUP", "FETCH")
FRAGMENTS = (
    "[ANSWER] ",
    "[ANSWER] 5",
    "[ANSWER] -12",
    "[ANSWER] 2.5",
    "[answer] 5",
    "[ANSWER]5",
    "[Answer] 7.",
    "the answer is 4",
    "= 9",
    "LOOKUP[kra]",
    "lookup['kra']",
    'FETCH["ZK_1"]',
    "LOOKUP[kra",
    "LOO\u212aUP[kra]",
    "XLOOKUP[kra]",
    "[[",
    "]]",
    "<think>",
    "</think>",
    "<answer>",
    "</answer>",
    "\n",
    " ",
    ".",
    "-",
    "7",
    "9" * 19,
    "1" * 5000,
    "\u0663",
)


def texts(*more: str) -> SearchStrategy[str]:
    """Texts made mostly of fragments that parsers look for, whole or broken, and of `more`; any text is possible."""
    pieces = st.sampled_from((*FRAGMENTS, *more)) | st.text(max_size=3)
    return st.lists(pieces, max_size=6).map("".join)


@frozen
class LanguageLedger:
    """The numbers that the ledger environment has recorded."""

    numbers: tuple[int, ...]


ADD, PEEK = "ADD", "PEEK"  # an env tool and an auxiliary one
MOVES = {
    "add": "ADD[3]",
    "peek": "PEEK[sum]",
    "end": "[ANSWER] 0",
    "cut": "[ANSWER] 1",
    "both": "[ANSWER] 2",
    "quiet": "[ANSWER] 3",
    "babble": "hm",
}
PAID, CALLED, PENALTY = 0.25, 0.125, 0.5  # rewards by the parser: for an answer, for a call, for neither


def _ledger_reset(start: int, key: Key) -> tuple[LanguageLedger, str]:
    return LanguageLedger((start,)), f"The sum is {start}."


def _ledger_step(start: int, ledger: LanguageLedger, action: Any, key: Key) -> tuple[LanguageLedger, Outcome]:
    if isinstance(action, Call):
        digits = action.argument if action.argument.isascii() and action.argument.isdigit() else "0"
        numbers = (*ledger.numbers, int(digits[:9]))
        return LanguageLedger(numbers), Outcome(str(sum(numbers)), reward=0.5)
    value = action.value if isinstance(action, Answer) else 3
    return LanguageLedger((*ledger.numbers, 0)), Outcome(
        "" if value == 3 else "Over.", reward=1.0, terminated=value in (0, 2), truncated=value in (1, 2)
    )


def _peek(start: int, ledger: LanguageLedger, argument: str) -> str:
    return f"{argument} {sum(ledger.numbers)}"


def ledger() -> TextEnv[int, LanguageLedger]:
    """Return the ledger environment: ADD records a number, an answer of 0, 1 or 2 ends the episode, PEEK returns the sum."""
    return TextEnv(1, _ledger_reset, _ledger_step, {PEEK: _peek})


def ledger_parser() -> Parser:
    """Return the parser of completions for the ledger environment."""
    return either(answer(reward=PAID), tool_call([ADD, PEEK], reward=CALLED, penalty=PENALTY))
