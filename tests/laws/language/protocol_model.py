"""The turn protocol for the ledger environment, as a plain table and a plain loop: the reference of its laws."""

from typing import Any

from attrs import frozen

from purestep.core.language.protocol import CUT_OFF, INVALID, NO_TOOLS
from purestep.properties.strategies.language import CALLED, PAID, PENALTY

from .scripts import Move, Options

Row = dict[str, Any]
ACTED: dict[str, Row] = {  # what a move does that the world sees, with the sum it makes for "add"
    "add": {"reward": 0.5 + CALLED, "terminated": False, "truncated": False, "reason": ""},
    "end": {"reward": 1.0 + PAID, "terminated": True, "truncated": False, "reason": "", "observation": "Over."},
    "cut": {"reward": 1.0 + PAID, "terminated": False, "truncated": True, "reason": "env", "observation": "Over."},
    "both": {"reward": 1.0 + PAID, "terminated": True, "truncated": True, "reason": "env", "observation": "Over."},
    "quiet": {"reward": 1.0 + PAID, "terminated": False, "truncated": False, "reason": "", "observation": ""},
}
UNREADABLE: dict[str, Row] = {  # what the world never sees
    "babble": {"reward": -PENALTY, "observation": INVALID, "incomplete": False},
    "length": {"reward": -1.0, "observation": CUT_OFF, "incomplete": True},
    "no tools": {"reward": CALLED, "observation": NO_TOOLS, "incomplete": False},
}


@frozen
class Expected:
    """The steps as rows, the end ("" if there is none), the environment's numbers, and the rows of the table that occurred."""

    rows: tuple[Row, ...]
    end: str
    numbers: tuple[int, ...]
    calls: int
    tools_used: int
    seen: tuple[str, ...]


def unread(kind: str, last: bool) -> Row:
    """The row of a completion without an action; `last`: it is the last step."""
    limit = {"truncated": last, "reason": "max_steps" if last else ""}
    return {**UNREADABLE[kind], **limit, "acted": False, "parse_error": True, "terminated": False}


def acted(kind: str, last: bool, total: int) -> Row:
    """The row of an action."""
    row = {"observation": str(total), **ACTED[kind], "acted": True, "parse_error": False, "incomplete": False}
    cut = last and not (row["terminated"] or row["truncated"])
    return row | ({"truncated": True, "reason": "max_steps", "observation": ()} if cut else {})


def expected(options: Options, script: list[Move]) -> Expected:
    """Return the expected result of a script, by the protocol's table."""
    rows: list[Row] = []
    seen: list[str] = []
    numbers, calls, tools, end = [1], 0, 0, ""
    for move, finish in script:
        if end or finish == "abort":
            continue
        kind = move
        if finish == "length" and options.incomplete == "reject":
            kind = "length"
        elif move == "peek" and tools == options.tool_budget:
            kind = "no tools"
        calls += 1
        if kind == "peek":
            tools += 1
            continue
        last, flags = len(rows) + 1 == options.max_steps, {"finish_reason": finish, "call": calls - 1}
        if kind in UNREADABLE:
            row = unread(kind, last) | flags
        else:
            numbers.append(3 if kind == "add" else 0)
            tools = 0
            row = acted(kind, last, sum(numbers)) | flags
        rows.append(row)
        end = "terminated" if row["terminated"] else row["reason"] if row["truncated"] else ""
        seen.append(f"{kind}, {end or 'goes on'}")
        if finish == "length" and kind != "length":
            seen.append("a text cut at its length and accepted")
    return Expected(tuple(rows), end, tuple(numbers), calls, tools, tuple(seen))
