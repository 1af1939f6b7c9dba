"""The verdict on an object: its laws in child processes, other readings where one is broken, and the reasons for no verdict."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from attrs import evolve, frozen
from torch import Tensor

from .catalogue import CatalogueRow, suite_of
from .choice import Chosen, suite_for
from .classify import classify
from .isolated import ItemResult, each_apart
from .law import Broken, Unlike, reasons
from .profiles import named_profile
from .report import BROKEN, PASSED, ROUNDS, SKIPPED, VACUOUS, Report, Result, name_of
from .run import run
from .target import values_of
from .verdict import LIMIT, NO_VERDICT, NoVerdict, combinations, is_data

NEUTRAL = r"(my|own|plain|simple|custom|vanilla|fused|paged|momentum|optim(i[sz]er)?|_)*"  # words of a name that change no rule


Choice = Callable[[Mapping[str, Mapping[str, Any]]], Chosen]
Post = Callable[[Callable[..., Any]], Callable[..., Any]]


def verify_apart(
    found: Chosen,
    *,
    skip: Mapping[str, str] | None = None,
    exact: bool = False,
    laws: str = "quick",
    limit: float = LIMIT,
    shrink: bool = True,
) -> Report:
    """Return the report of a choice, with each law in a child process that has `limit` seconds.

    `shrink`: look for the smallest input with which a law is broken.
    """

    skipped, name, profile = reasons(found.suite, skip), name_of(found.subject), named_profile(laws)
    left = [law for law in found.suite if law.name not in skipped]

    def work(i: int) -> Result:
        torch.set_num_threads(1)  # a fork has no worker threads
        # A law holds functions, which cannot be sent; it is added again below.
        return evolve(run(left[i], found.subject, profile=profile, exact=exact, shrink=shrink), law=None, error=None)  # type: ignore[arg-type]

    results = {law: Result(law, name, SKIPPED, skipped[law.name]) for law in found.suite if law.name in skipped}
    for law, one in zip(left, each_apart(len(left), work, limit=limit), strict=True):
        if isinstance(one, ItemResult):
            results[law] = evolve(one.value, law=law, notes=one.notes)
        else:
            results[law] = Result(law, name, BROKEN, one.reason)
    return Report(found.suite.name, name, tuple(results[law] for law in found.suite))


@frozen
class Judgement:
    """The verdict on an object, as the exit status of `purestep verify`: 0 holds, 1 broken, `NO_VERDICT`; with its report."""

    status: int
    report: Report
    lines: tuple[str, ...] = ()  # for the user, the report among them
    doubt: NoVerdict | None = None  # why there is no verdict


def judge(
    found: Chosen, *, certain: bool, skip: Mapping[str, str] | None, exact: bool, laws: str, limit: float
) -> Judgement:
    """Return the verdict on a choice: it holds under some reading, may be another kind of object, or is broken.

    `certain`: the user says which kind of object it is.
    """
    how: dict[str, Any] = {"skip": skip, "exact": exact, "laws": laws, "limit": limit}
    report = verify_apart(found, shrink=False, **how)
    if report.empty:
        return Judgement(NO_VERDICT, report, (str(report),), NoVerdict(f"no law could run: {report.results[0].detail}"))
    if report:
        return Judgement(0, report, (str(report),))
    if not exact and all(one.fault == ROUNDS for one in report.failures):
        return Judgement(0, report, (report.short(), "it computes in float32, to whose rounding all its laws hold"))
    seen: tuple[str, ...] = ()
    tried = reading_that_holds(found, skip or {}, limit)
    if tried is not None:
        report = verify_apart(tried, **how)
        seen = (str(report),)
        if report:
            return Judgement(0, report, (*seen, f"all its laws hold with {tried.reading}"))
    doubt = doubt_about(found, report, certain=certain)
    if doubt:
        return Judgement(NO_VERDICT, report, (*seen, *([] if report.uncallable else [report.short()])), doubt)
    report = verify_apart(found, **how)
    seen = (*seen, str(report))
    if found.suite.name == "estimator_laws":
        seen = (*seen, f"its convention on truncation: {convention_of(found.subject, limit)}")
    elif hint := convention_that_holds(found, found.row.hints, limit):
        seen = (*seen, f"if that is meant, declare it: all its laws hold with {hint}")
    return Judgement(1, report, seen)


def first_report(found: Chosen, *, laws: int = 2) -> Report:
    """Return the report of the first laws of a choice for a few inputs, in this process."""

    profile = evolve(named_profile("quick"), examples=3)
    results = tuple(run(law, found.subject, profile=profile, shrink=False) for law in found.suite.laws[:laws])
    return Report(found.suite.name, name_of(found.subject), results)


def doubt_about(found: Chosen, report: Report, *, certain: bool) -> NoVerdict | None:
    """Return why a report without success is no verdict: no call, another kind of object, nothing seen; else None."""

    row, failed = found.row, [result.law.name for result in report.failures]
    where = f"{row.suite} calls {row.signature}"
    if report.uncallable:
        return NoVerdict(f"{where}, and no call gave what it compares: {report.failures[0].detail}", row=row.suite)
    open_ = {row.claims[name] for name in failed if name in row.claims} - set(found.own)
    if open_ and set(failed) <= set(row.claims) and not _is_named_after(found):
        skips_ = [word for name in failed for word in ("--skip", f"{name}=not declared")]
        text = f"it keeps all laws of {row.suite} but {', '.join(failed)}, which hold of what it declares"
        return NoVerdict(f"{text}; declare {' and '.join(sorted(open_))}, or leave these laws out", words=skips_)
    passed = [result.law.name for result in report.results if result.outcome == PASSED]
    if passed and all(result.outcome == VACUOUS for result in report.failures):
        text = f"it keeps the laws of {row.suite}, but no input was about {' and '.join(failed)}"
        skips_ = [word for name in failed for word in ("--skip", f"{name}=never seen")]
        return NoVerdict(f"{text} ({report.failures[0].detail}); leave out what cannot happen to it", words=skips_)
    ended = any(
        result.outcome == BROKEN and not result.fault for result in report.failures
    )  # it hangs, or kills its process
    if certain or ended or keeps_enough(passed, failed, row):
        return None
    text = f"{where}, and so called it keeps {len(passed)} of {len(report.results)} laws, so it may be something else"
    return NoVerdict(f"{text} ({report.failures[0].detail}); --suite {row.suite} holds it to them", row=row.suite)


def _is_named_after(found: Chosen) -> bool:
    """Return whether an optimizer's whole name is that of its rule, as PlainAdam is: then it claims to follow it."""
    name = str(getattr(found.subject, "__name__", "")).lower()
    return bool(re.fullmatch(rf"{NEUTRAL}{found.declared.get('rule', '-')}{NEUTRAL}", name))


def reading_that_holds(found: Chosen, skip: Mapping[str, str], limit: float) -> Chosen | None:
    """Return the object in the first other reading with which every law holds; None if there is none."""

    known = list(readings(found.row, dict.fromkeys(found.own)))

    def taken(i: int) -> Chosen:
        words = {**found.declared, **known[i].declared}
        subject = read_as(found.subject, known[i].result) if known[i].result else found.subject
        return evolve(found, subject=subject, suite=suite_for(found.row, words, subject), reading=known[i].line())

    def work(i: int) -> bool:
        one = taken(i)
        return all(run(law, one.subject, shrink=False).holds for law in one.suite if law.name not in skip)

    for i, one in enumerate(each_apart(len(known), work, limit=limit)):
        if isinstance(one, ItemResult) and one.value:
            return taken(i)
    return None


def words_that_judge(
    value: Any, missing: NoVerdict, choice: Choice, limit: float, *, certain: bool = False
) -> list[str]:
    """Return options with which the command has a verdict, tried in a child process; [] if there are none.

    Data are in place of what only the user has, so with them the laws must hold.
    """

    if missing.words:
        return list(missing.words)
    if not missing.missing:
        return []
    data = missing.option == "--with" and any(map(is_data, missing.missing))
    tries = list(combinations(value, missing.missing))

    def work(i: int) -> int:
        try:
            report = first_report(choice({missing.option: values_of(missing.option, tries[i])}))
            return 1 if report.uncallable else 2 if any(one.outcome == BROKEN for one in report.results) else 3
        except NoVerdict:
            return 1
        except Exception:
            return 0

    def judged(i: int) -> tuple[bool, NoVerdict | None]:
        found = choice({missing.option: values_of(missing.option, tries[i])})
        report = verify_apart(found, limit=limit, shrink=False)
        none = NoVerdict("") if report.empty else None if report else doubt_about(found, report, certain=certain)
        return bool(report), none

    broken, doubtful = list[str](), list[str]()
    end = time.monotonic() + limit
    for i, one in enumerate(each_apart(len(tries), work, limit=limit)):
        if time.monotonic() > end:
            break
        if not isinstance(one, ItemResult) or one.value < (3 if data or broken else 2):
            continue
        words = [word for pair in tries[i] for word in (missing.option, pair)]
        holds, doubt = judged(i)
        if holds:
            return words
        if doubt is None and not data:
            broken = broken or words
        elif doubt and doubt.words:
            doubtful = doubtful or [*words, *doubt.words]
    return broken or doubtful


def convention_of(subject: Any, limit: float) -> str:

    (answer,) = each_apart(1, lambda i: classify(subject), limit=5 * limit)
    return str(answer.value) if isinstance(answer, ItemResult) else "not found in time"


def convention_that_holds(found: Chosen, known: Sequence[Mapping[str, Any]], limit: float) -> str:
    """Return the first of the conventions with which every law holds, as options; "" if none is found in time."""

    def work(i: int) -> bool:
        suite = suite_of(found.row, {**found.declared, **known[i]})
        return all(run(law, found.subject, shrink=False).holds for law in suite)

    for words, one in zip(known, each_apart(len(known), work, limit=limit), strict=True):
        if isinstance(one, ItemResult) and one.value:
            return " ".join(f"--declare {name}={value}" for name, value in words.items())
    return ""


# --- readings ---
# Conventions of the field under which a suite may call an object and read what it returns. Where a law is broken under the
# first reading, the others are tried, and the object is right under any with which all laws hold. A reading declares keywords
# of the suite, and may read the result in another way: as its negative, or as a mean of its rows.


@frozen
class ResultReading:
    """Keywords of the suite, and how results are read, in words; "" is as they are."""

    declared: Mapping[str, Any]
    result: str = ""

    def line(self) -> str:
        """Return the reading as options and words."""
        options = [f"--declare {name}={value}" for name, value in self.declared.items()]
        return ", and ".join([*([" ".join(options)] if options else []), *([self.result] if self.result else [])])


def negative(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the negative of what a function returns: a loss of an objective."""
    return lambda *given, **named: -function(*given, **named)


def doubled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return twice what a function returns: its half is a convention."""
    return lambda *given, **named: 2 * function(*given, **named)


def of_first_column(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of advantages [B, L] that calls one of advantages [B]."""

    def called(*given: Any, **named: Any) -> Any:
        words = {k: v[..., 0] if "adv" in k and isinstance(v, Tensor) and v.ndim == 2 else v for k, v in named.items()}
        return function(*given, **words)

    return called


def row_by_row(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of rows [N] that calls one of a batch, whose result is the mean (or the sum) over rows, for each row.

    Raises: Broken where the result of the batch is neither.
    """

    def called(*given: Any, **named: Any) -> Any:
        def part(i: slice) -> Any:
            cut = [x[i] if isinstance(x, Tensor) and x.ndim else x for x in given]
            return function(*cut, **{k: x[i] if isinstance(x, Tensor) and x.ndim else x for k, x in named.items()})

        tensors = [x for x in (*given, *named.values()) if isinstance(x, Tensor) and x.ndim]
        found = [torch.as_tensor(part(slice(i, i + 1))) for i in range(len(tensors[0]))]
        if any(one.numel() != 1 for one in found):
            raise Unlike("the result of a row is not one number")
        rows = torch.stack([one.reshape(()) for one in found])
        whole = torch.as_tensor(part(slice(None))).to(rows.dtype).reshape(-1)
        near = [torch.allclose(whole, x.reshape(1), rtol=1e-4, atol=1e-5) for x in (rows.mean(), rows.sum())]
        if len(whole) != 1 or not any(near):
            raise Broken("the result of a batch is neither the mean nor the sum over its rows")
        return rows

    return called


RESULTS: Mapping[str, Post] = {
    "its result is an objective, the negative of a loss": negative,
    "its result is the mean or sum over a batch": row_by_row,
    "its advantages are of sequences [B]": of_first_column,
}


def read_as(subject: Any, result: str) -> Any:
    """Return the subject with its result read in another way."""
    inner = getattr(subject, "function", subject) if hasattr(subject, "with_function") else subject
    made = RESULTS[result](inner)
    made.__name__ = getattr(subject, "__name__", type(subject).__name__)
    return made if inner is subject else subject.with_function(made)


def readings(row: CatalogueRow, declared: Mapping[str, Any]) -> Iterator[ResultReading]:
    """Yield the further readings of a suite's objects, except those of keywords that are declared."""
    open_ = [words for words in row.conventions if not set(words) & set(declared)]
    yield from (ResultReading(words) for words in open_)
    for result in row.results:
        yield ResultReading({}, result)
        yield from (ResultReading(words, result) for words in open_)


def keeps_enough(passed: Sequence[str], failed: Sequence[str], row: CatalogueRow) -> bool:
    """Return whether an object keeps enough of the laws to be of the suite's kind in this reading.

    That is half of them, or one of the row's `tells`: laws that no object of another kind keeps by chance.
    """
    return bool(set(passed) & set(row.tells)) or (bool(passed) and 2 * len(passed) >= len(failed) + len(passed))
