"""Suites pointed at bugs from public threads and at their twins, with the conventions that a user would declare.

    python -m benchmarks.own_bugs                       # all; writes benchmarks/results/own_bugs.json
    python -m benchmarks.own_bugs --only gae kl -v      # families or names

A bug is killed where a law breaks that its twin keeps, and a twin is alarmed where any law breaks. Prints shares by family, and
CPU seconds to the kill.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence

from .. import evidence
from .bug import Bug
from .registry import ALL
from .trial import Verdict, tried
from .uses import USES


def judged(bug: Bug) -> tuple[Verdict, Verdict]:
    """What the suite says of a bug and of its twin."""
    use = USES.get(bug.name)
    if use is None:
        return Verdict(detail="no suite"), Verdict(detail="no suite")
    twin = tried(use, bug.twin, stop=False)
    return tried(use, bug.bug, stop=True, without=twin.broken), twin


def line(bug: Bug, found: Verdict, twin: Verdict) -> str:
    """A row of the table."""
    word = "killed" if found.broken else "SURVIVES"
    alarm = f"  TWIN ALARMED: {', '.join(twin.broken)}" if twin.broken else ""
    none = "" if twin.laws else f"  {twin.detail or found.detail}"
    law = found.broken[0] if found.broken else ""
    return f"{word:9}{bug.family:17}{bug.name:36}{found.suite:18}{law:34}{found.seconds:6.1f} s{alarm}{none}"


def summary(rows: Sequence[tuple[Bug, Verdict, Verdict]]) -> dict[str, object]:
    """Shares, all in all and by family."""
    families: dict[str, dict[str, object]] = {}
    for name in dict.fromkeys(bug.family for bug, _, _ in rows):
        own = [(found, twin) for bug, found, twin in rows if bug.family == name]
        seconds = [found.seconds for found, _ in own if found.broken]
        families[name] = {
            "bugs": len(own),
            "killed": sum(bool(found.broken) for found, _ in own),
            "twins_alarmed": sum(bool(twin.broken) for _, twin in own),
            "median_seconds": round(statistics.median(seconds), 2) if seconds else None,
        }
    seconds = [found.seconds for _, found, _ in rows if found.broken]
    killed = len(seconds)
    return {
        "bugs": len(rows),
        "killed": killed,
        "killed_share": round(killed / len(rows), 4),
        "twins_alarmed": sum(bool(twin.broken) for _, _, twin in rows),
        "median_seconds": round(statistics.median(seconds), 2) if seconds else None,
        "families": families,
    }


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.own_bugs", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], help="families or names; nothing is written")
    parser.add_argument("-v", "--verbose", action="store_true", help="what broke, and on which inputs")
    return parser.parse_args(words)


def main() -> int:
    """Judges all, prints, and writes."""
    options, start, rows = parse(), time.perf_counter(), []
    for bug in ALL:
        if options.only and not {bug.family, bug.name} & set(options.only):
            continue
        found, twin = judged(bug)
        rows.append((bug, found, twin))
        print(line(bug, found, twin), flush=True)
        if options.verbose:
            for verdict in (found, twin):
                print(
                    f"    {verdict.detail}\n    {verdict.inputs}\n    vacuous {verdict.vacuous} skipped {verdict.skipped}"
                )
    figures = summary(rows)
    print(*(f"{name}: {value}" for name, value in figures.items() if name != "families"), sep="\n")
    for name, family in figures["families"].items():  # type: ignore[union-attr]
        print(f"  {name:17} {family}")
    if not options.only:
        each = {
            bug.name: {"family": bug.family, "link": bug.link, "bug": found.plain(), "twin": twin.plain()}
            for bug, found, twin in rows
        }
        evidence.write("own_bugs", seconds=time.perf_counter() - start, figures={**figures, "each": each})
    return int(figures["killed_share"] < 0.95 or figures["twins_alarmed"] > 0)  # type: ignore[operator]


if __name__ == "__main__":
    sys.exit(main())
