"""Suites pointed at bugs from public threads and at their twins, with the conventions that a user would declare.

    python -m benchmarks.own_bugs                       # all; writes benchmarks/results/own_bugs.json
    python -m benchmarks.own_bugs --only gae kl -v      # families or names; the rest of the file stays
    python -m benchmarks.own_bugs --second              # the set that was collected without a look at the suites

A bug is killed where a law breaks that its twin keeps, and a twin is alarmed where any law breaks. Prints shares by family, and
CPU seconds to the kill.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .. import evidence
from .bug import Bug
from .registry import ALL
from .second import BUGS as SECOND
from .second_uses import USES as SECOND_USES
from .trial import Verdict, tried
from .uses import USES


def judged(bug: Bug) -> tuple[Verdict, Verdict]:
    """What the suite says of a bug and of its twin."""
    use = {**USES, **SECOND_USES}.get(bug.name)
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


def summary(each: Mapping[str, Any]) -> dict[str, Any]:
    """Shares, all in all and by family, of what was written of each bug."""
    families = dict.fromkeys(row["family"] for row in each.values())
    parts = {name: _shares([row for row in each.values() if row["family"] == name]) for name in families}
    survivors = [name for name, row in each.items() if not row["bug"]["broken"]]
    alarmed = [name for name, row in each.items() if row["twin"]["broken"]]
    return {**_shares(list(each.values())), "families": parts, "survivors": survivors, "alarmed": alarmed}


def _shares(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    seconds = [row["bug"]["seconds"] for row in rows if row["bug"]["broken"]]
    return {
        "bugs": len(rows),
        "killed": len(seconds),
        "killed_share": round(len(seconds) / max(len(rows), 1), 4),
        "twins_alarmed": sum(bool(row["twin"]["broken"]) for row in rows),
        "no_suite": sum(not row["twin"]["laws"] for row in rows),
        "median_seconds": round(statistics.median(seconds), 2) if seconds else None,
    }


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.own_bugs", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], help="families or names; what is written of others stays")
    parser.add_argument("--second", action="store_true", help="the second set")
    parser.add_argument("-v", "--verbose", action="store_true", help="what broke, and on which inputs")
    return parser.parse_args(words)


def main() -> int:
    """Judges all, prints, and writes."""
    options, start = parse(), time.perf_counter()
    name, bugs = ("own_bugs_second", SECOND) if options.second else ("own_bugs", ALL)
    each = written(name, bugs) if options.only else {}
    for bug in bugs:
        if options.only and not {bug.family, bug.name} & set(options.only):
            continue
        found, twin = judged(bug)
        made = evidence.origin(name, 0.0)
        each[bug.name] = {
            "family": bug.family,
            "link": bug.link,
            "bug": found.plain(),
            "twin": twin.plain(),
            "commit": made["commit"],
        }
        print(line(bug, found, twin), flush=True)
        for verdict in (found, twin) if options.verbose else ():
            print(
                f"    {verdict.detail}\n    {verdict.inputs}\n    vacuous {verdict.vacuous} skipped {verdict.skipped}"
            )
    each = {bug.name: each[bug.name] for bug in bugs if bug.name in each}
    figures = summary(each)
    print(*(f"{name}: {value}" for name, value in figures.items() if name != "families"), sep="\n")
    for family, shares in figures["families"].items():
        print(f"  {family:17} {shares}")
    evidence.write(name, seconds=time.perf_counter() - start, figures={**figures, "each": each})
    return int(figures["killed_share"] < 0.95 or figures["twins_alarmed"] > 0)


def written(name: str, bugs: Sequence[Bug]) -> dict[str, Any]:
    """What an earlier run wrote of each bug."""
    path = evidence.RESULTS / f"{name}.json"
    known = {bug.name for bug in bugs}
    each = json.loads(path.read_text())["figures"]["each"] if path.exists() else {}
    return {key: row for key, row in each.items() if key in known}


if __name__ == "__main__":
    sys.exit(main())
