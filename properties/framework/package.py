"""The public functions of an installed package, matched with suites and checked: `purestep verify --package NAME`."""

import importlib
import inspect
import pkgutil
import time
from collections.abc import Iterator
from typing import Any

from attrs import frozen

from ...core.errors import PurestepError, StructureError, describe_error, message
from .binding import subject_for
from .catalogue import suite_of
from .choice import Chosen
from .judgement import verify_apart
from .matching import CERTAIN, matches
from .report import Report


@frozen
class Found:
    """A public object of a package, and the name under which it is imported."""

    place: str
    value: Any


def public(package: str, unimported: list[str]) -> Iterator[Found]:
    """Yield the public functions and classes that a package defines, each once; modules that fail go into `unimported`."""
    try:
        root = importlib.import_module(package)
    except (Exception, SystemExit) as error:
        remedy = "install it here, or check its name"
        raise StructureError(
            message(f"verify: --package {package}", got=describe_error(error), wanted="a package", remedy=remedy)
        ) from error
    known: set[int] = set()
    for name in [package, *_modules(root, package)]:
        try:
            module = importlib.import_module(name)
        except (Exception, SystemExit) as error:
            unimported.append(f"{name}: {describe_error(error, limit=100)}")
            continue
        for word, value in sorted(vars(module).items()):
            own = str(getattr(value, "__module__", "")).partition(".")[0] == package.partition(".")[0]
            plain = inspect.isfunction(value) or inspect.isclass(value)
            if not word.startswith("_") and plain and own and id(value) not in known:
                known.add(id(value))
                yield Found(f"{name}:{word}", value)


def _modules(root: Any, package: str) -> Iterator[str]:
    paths = getattr(root, "__path__", None)
    if paths is not None:
        for one in pkgutil.walk_packages(paths, f"{package}.", onerror=lambda name: None):
            if not any(part.startswith("_") or part in ("tests", "test") for part in one.name.split(".")[1:]):
                yield one.name


def verify_package(package: str, *, laws: str = "quick", limit: float = 20.0) -> tuple[list[Report], int]:
    """Print a line for each object that a suite fits, with the smallest example of its first broken law.

    Classes and factories are named and not called. Returns the reports, and 1 if a law was broken, else 0.
    """
    reports, unimported, start, looked = [], list[str](), time.perf_counter(), 0
    print(f"{'object':48} {'suite':16} {'laws':8} outcome")
    for found in public(package, unimported):
        looked += 1
        fitting = [one for one in matches(found.value) if one.score >= CERTAIN]
        if not fitting:
            continue
        best = fitting[0]
        head = f"{found.place:48} {best.row.suite:16}"
        if best.calls or best.row.kind[1] or inspect.isclass(found.value):
            print(f"{head} {'-':8} not called: purestep verify {found.place} --call")
            continue
        try:
            subject, declared = subject_for(best.row, found.value)
            choice = Chosen(best.row, subject, suite_of(best.row, declared), best.reasons)
        except PurestepError as error:
            print(f"{head} {'-':8} {error}")
            continue
        report = verify_apart(choice, laws=laws, limit=limit)
        reports.append(report)
        kept = sum(one.holds for one in report.results)
        outcome = report.failures[0].line() if report.failures else "all laws hold"
        print(f"{head} {kept}/{len(report.results):<6} {outcome}", flush=True)
    for line in unimported:
        print(f"not imported: {line}")
    seconds = time.perf_counter() - start
    broken = sum(not report for report in reports)
    print(f"{looked} functions and classes, {len(reports)} checked, {broken} with a broken law, {seconds:.0f} s")
    return reports, int(broken > 0)
