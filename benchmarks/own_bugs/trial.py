"""A suite applied to a bug or its twin, in a process of its own with a time limit: laws, verdicts and seconds of CPU."""

import time
import warnings
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from attrs import asdict, define, field

from purestep import properties
from purestep.properties import run
from purestep.properties.framework.binding import subject_for
from purestep.properties.framework.catalogue import rows, suite_of
from purestep.properties.framework.isolated import ItemResult, each_apart
from purestep.properties.framework.law import Suite

from .use import Use

LIMIT = 240.0  # seconds for a law


@define
class Verdict:
    """What the laws of a suite said. `seconds` is CPU time until the first that broke, or of all."""

    suite: str = ""
    laws: int = 0
    broken: list[str] = field(factory=list)
    vacuous: list[str] = field(factory=list)
    skipped: list[str] = field(factory=list)
    detail: str = ""  # of the first that broke, or why nothing ran
    inputs: str = ""
    seconds: float = 0.0

    def plain(self) -> Mapping[str, Any]:
        """As JSON has it."""
        return asdict(self)


def tried(use: Use, subject: Any, *, stop: bool, without: Collection[str] = ()) -> Verdict:
    """The verdict of a suite on a subject; `stop` at the first law that breaks, other than those of `without`."""
    verdict = Verdict(use.suite)
    for outcome in each_apart(1, lambda i: _laws(use, subject, stop, without), limit=3 * LIMIT):
        verdict = outcome.value if isinstance(outcome, ItemResult) else Verdict(use.suite, detail=outcome.reason)
    return verdict


def _laws(use: Use, subject: Any, stop: bool, without: Collection[str]) -> Verdict:
    verdict, start = Verdict(use.suite), time.process_time()
    warnings.simplefilter("ignore")
    try:
        made, suite = applied(use, subject)
    except Exception as error:
        verdict.detail = f"cannot be applied: {type(error).__name__}: {error}"
        return verdict
    for result in _results(suite - left_out(use, suite, without), made):
        verdict.laws += 1
        if result.outcome == "broken":
            verdict.broken.append(result.law.name)
            if not verdict.detail:
                verdict.detail, verdict.inputs = result.detail[:300], str(result.inputs)[:300]
                verdict.seconds = time.process_time() - start
            if stop:
                return verdict
        elif result.outcome == "vacuous":
            verdict.vacuous.append(result.law.name)
        elif result.outcome == "skipped":
            verdict.skipped.append(f"{result.law.name}: {result.detail}")
    if not verdict.broken:
        verdict.seconds = time.process_time() - start
    return verdict


def applied(use: Use, subject: Any) -> tuple[Any, Suite]:
    """The subject that the suite checks, and the suite with what the user declared."""
    made = use.subject(subject)
    if not use.bound:
        found = getattr(properties, f"{use.suite}_laws")
        return made, found if isinstance(found, Suite) else found(**use.declared)
    row = rows()[use.suite]
    bound, forms = subject_for(row, made, use.given)
    return bound, suite_of(row, {**forms, **use.declared})


def left_out(use: Use, suite: Suite, without: Collection[str]) -> set[str]:
    """Laws that are not asked."""
    unasked = {*without, *use.leave}
    return {law.name for law in suite if law.name in unasked or (use.only and law.name not in use.only)}


def _results(suite: Suite, subject: Any) -> Iterator[Any]:
    for law in suite:
        yield run(law, subject)
