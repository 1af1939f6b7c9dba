"""Records of a phase, read from its files with the types of each row checked: events, ledger, timeline, totals."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...core.errors import StructureError, message
from ..effects import folder
from ..effects.json_lines import objects
from ..machine.json_codec import TAG
from .checkpoint import EVENTS, LEDGER, TIMELINE, TOTALS
from .scheduler import events as say

WORKERS = 100_000  # largest number of generators, and of slots of one generator
VERSIONS = 10_000_000  # largest version of weights
SAMPLE = 7  # numbers of a sample in the ledger: its name, its request, the versions of head and tail, its tokens
COUNTS = (
    *("version", "submitted", "accepted", "rejected", "filtered", "consumed", "tokens_used", "tokens_wasted"),
    *("generators", "staleness", "sessions", "lost_generators", "tool_failures"),
)
Row = Mapping[str, Any]


def recorded_events(home: Path) -> Iterator[Row]:
    """Return the rows of the event log: sessions, and the events that were sent to the scheduler. Raises: StructureError."""
    return objects(home / EVENTS, _is_event, "a JSON object of a session or an event")


def recorded_ledger(home: Path) -> Iterator[Row]:
    """Return the rows of the ledger: each version and the samples that it was trained on. Raises: StructureError."""
    return objects(home / LEDGER, _is_update, f"a JSON object with a version and samples of {SAMPLE} numbers")


def timeline(home: Path) -> Iterator[dict[str, Any]]:
    """Return the rows of the timeline: actor, kind, begin, end and version of each span. Raises: StructureError."""
    return objects(home / TIMELINE, _is_span, "a JSON object with actor, kind, begin, end and version")


def recorded_totals(home: Path) -> dict[str, Any]:
    """Return the counts of a phase at its end. Raises: CheckpointError, StructureError."""
    held = folder.read_json(home / TOTALS)
    wrong = [name for name in COUNTS if not _whole(held.get(name))]
    wrong += [] if _number(held.get("seconds")) else ["seconds"]
    if wrong:
        got, remedy = f"without a number of {wrong}", "bring back the file as it was"
        raise StructureError(message(str(home / TOTALS), got=got, wanted="all counts of a phase", remedy=remedy))
    return held


def _whole(value: Any) -> bool:
    return type(value) is int and abs(value) < 2**63


def _number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_event(row: Row) -> bool:
    if "session" in row:
        return all(_whole(row.get(name)) and 0 <= row[name] <= WORKERS for name in ("generators", "slots"))
    event = row.get("event", {})
    if not isinstance(event, dict) or not isinstance(event.get(TAG, ""), str):
        return False
    names = {
        say.Consumed.TAG: ("version",),
        say.TokenChunk.TAG: ("group", "seat", "attempt", "tokens"),
        say.Finished.TAG: ("group", "seat", "attempt", "tokens", "head", "tail"),
    }
    return all(_whole(event.get(name)) for name in names.get(event.get(TAG, ""), ()))


def _is_update(row: Row) -> bool:
    samples = row.get("samples")
    if not isinstance(samples, list) or not all(isinstance(one, list) and len(one) == SAMPLE for one in samples):
        return False
    versions: list[Any] = [row.get("version"), *(one[at] for one in samples for at in (4, 5))]
    fit = all(_whole(version) and 0 <= version <= VERSIONS for version in versions)
    return fit and all(_whole(number) for one in samples for number in one)


def _is_span(row: Row) -> bool:
    texts: tuple[Callable[[Any], bool], ...] = (lambda value: isinstance(value, str), _number, _whole)
    kinds = {"actor": texts[0], "kind": texts[0], "begin": texts[1], "end": texts[1], "version": texts[2]}
    return all(fits(row.get(name)) for name, fits in kinds.items())
