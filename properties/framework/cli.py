"""The commands `purestep verify`, `purestep write` and `purestep laws`.

`purestep verify TARGET` finds the suite that fits an object, and checks the object against its laws. Only the target itself is
called, as the suite calls its subject; a factory or class is called only with `--call`.
"""

import argparse
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, frozen

from ...core.errors import PurestepError, StructureError, choose, described, message
from .catalogue import ROWS, CatalogueRow, named, rows, suite_of
from .matching import CERTAIN, Match, matches
from .target import load, values_of

if TYPE_CHECKING:
    from .law import Suite
    from .report import Report

PROFILES = ("quick", "ci", "night")
CALL = "add --call to check the object that it returns"
LIMIT = 60.0  # seconds for a law


@frozen
class Chosen:
    """The subject and the suite to check it with, the reasons for the suite, and the other suites that may fit."""

    row: CatalogueRow
    subject: Any
    suite: "Suite"
    reasons: tuple[str, ...] = ()
    others: tuple[Match, ...] = ()
    declared: Mapping[str, Any] = field(factory=dict)

    def line(self) -> str:
        """Return the choice in one line."""
        others = ", ".join(f"{one.row.suite} ({one.score})" for one in self.others)
        why = f", because {'; '.join(self.reasons)}" if self.reasons else ""
        return f"{self.suite.name}{why}" + (f"; --suite offers {others}" if others else "")


def chosen(
    value: Any,
    suite: str = "",
    *,
    call: bool = False,
    declared: Mapping[str, Any] | None = None,
    given: Mapping[str, Any] | None = None,
) -> Chosen:
    """Return the object to check and the laws for it; with `call`, the object is the result of `value()`.

    `declared` are keywords of the suite, `given` values or strategies of parameters that the suite does not know (with `call`,
    of the call). Without `call`, nothing is called. Raises: StructureError if no suite is named and none fits for certain, or
    if the object is not of the class that the suite needs; ChoiceError for an unknown suite.

    >>> from purestep.core.envs.cartpole import cartpole
    >>> chosen(cartpole, call=True).suite.name
    'env_laws'
    >>> chosen(cartpole, "env")
    Traceback (most recent call last):
    purestep.core.errors.StructureError: verify: object is a function, wanted Env; add --call to check the object that it \
returns
    """
    from .binding import subject_for
    from .matching import adapter_of, marks_of

    table = rows()
    if suite:
        choose("verify: suite", suite, table)
    subject = _called(value, given or {}) if call else value
    found = matches(subject)
    if suite:
        row = table[suite]
        reasons = next((one.reasons for one in found if one.row.suite == suite), ())
    else:
        row, reasons = _best(subject, found)
    if adapter_of(row.suite, marks_of(subject)) is None:
        _check_kind(row, subject)
    subject, forms = subject_for(row, subject, {} if call else given)
    others = tuple(one for one in found if one.row is not row)
    words = {**forms, **(declared or {})}
    return Chosen(row, subject, suite_of(row, words), reasons, others, words)


def _best(subject: Any, found: Sequence[Match]) -> tuple[CatalogueRow, tuple[str, ...]]:
    """Return the suite that fits for certain. Raises: StructureError, with those that may fit."""
    best = found[0] if found else None
    suites = f"--suite {' | '.join(row.suite for row in ROWS)}"
    if best and best.score >= CERTAIN and not best.calls:
        return best.row, best.reasons
    offers = "; ".join(one.line() for one in found[:3])
    wanted = f"an object that a suite fits for certain (may fit: {offers})" if offers else "an object that a suite fits"
    remedy = f"{CALL}, or say which laws: {suites}" if callable(subject) else f"say which laws: {suites}"
    raise StructureError(message("verify: object", got=_kind(subject), wanted=wanted, remedy=remedy))


def _check_kind(row: CatalogueRow, subject: Any) -> None:
    got, suites = _kind(subject), f"--suite {' | '.join(row.suite for row in ROWS)}"
    if row.kind[1]:
        if not isinstance(subject, named(row.kind)):
            remedy = CALL if callable(subject) else f"name another object, or other laws: {suites}"
            raise StructureError(message("verify: object", got=got, wanted=row.kind[1], remedy=remedy))
    elif row.signature.startswith(("f(", "make(")) and not callable(subject) and not isinstance(subject, str):
        remedy = "name another object or other laws"
        raise StructureError(message(f"verify: object for {row.suite}", got=got, wanted="a function", remedy=remedy))


def _called(value: Any, given: Mapping[str, Any]) -> Any:
    missing = _required(value)
    absent = [name for name in missing if name not in given]
    if not callable(value) or absent:
        remedy = f"add {' '.join(f'--with {name}=VALUE' for name in absent)}" if absent else "leave --call out"
        if not callable(value) or not missing:
            remedy = "leave --call out, or name a function that needs no arguments"
        wanted = "a function without arguments"
        raise StructureError(message("verify: --call", got=_kind(value), wanted=wanted, remedy=remedy))
    try:
        return value(**given)
    except PurestepError:
        raise
    except Exception as error:
        remedy = "mend the function, or name an object"
        raise StructureError(
            message("verify: --call", got=described(error), wanted="an object", remedy=remedy)
        ) from error


def _required(value: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return ["its arguments"]
    return [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def skips(words: Sequence[str]) -> dict[str, str]:
    """Return `law=reason` pairs as a dict. Raises: StructureError for a pair without a reason."""
    pairs = [word.partition("=") for word in words]
    for name, _, reason in pairs:
        if not reason:
            remedy = "write --skip law=reason"
            raise StructureError(message("verify: --skip", got=repr(name), wanted="law=reason", remedy=remedy))
    return {name: reason for name, _, reason in pairs}


def _parsed(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace | int:
    try:
        return parser.parse_args(list(arguments))
    except SystemExit as stop:
        return int(stop.code or 0)


def _target_options(parser: argparse.ArgumentParser, *, nargs: str | None = None) -> None:
    about = "package.module:object or file.py:object; its module is imported, and nothing but the object is called"
    parser.add_argument("target", nargs=nargs, help=about)
    parser.add_argument("--suite", default="", help=f"which laws: {', '.join(row.suite for row in ROWS)}")
    parser.add_argument(
        "--call", action="store_true", help="call the target, with the values of --with, and check what it returns"
    )
    pair = {"action": "append", "default": [], "metavar": "NAME=VALUE"}
    parser.add_argument("--declare", **pair, help="a keyword of the suite, such as convention=drop")  # type: ignore[arg-type]
    about = "a value or strategy of a parameter that the suite does not draw, such as tau=0.5 or tau=st.floats(0, 1)"
    parser.add_argument("--with", dest="given", **pair, help=about)  # type: ignore[arg-type]


def verify_command(arguments: Sequence[str]) -> int:
    """Print the report of an object's laws; return 0 if all hold, 1 (and a line on stderr) if one fails, 2 on an error."""
    parser = argparse.ArgumentParser(
        prog="purestep verify", description="Checks an object against the laws of its kind."
    )
    _target_options(parser, nargs="?")
    parser.add_argument("--gym", metavar="ID", help="check this Gymnasium environment")
    parser.add_argument("--package", metavar="NAME", help="check the public functions of a package that suites fit")
    parser.add_argument("--only-name", action="store_true", help="name the suite, and run no law")
    parser.add_argument("--laws", choices=PROFILES, default="quick", help="how hard to look")
    parser.add_argument(
        "--skip", action="append", default=[], metavar="LAW=REASON", help="leave a law out, and say why"
    )
    parser.add_argument("--exact", action="store_true", help="the object promises equal bits, not only equal numbers")
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="SECONDS", help="time for each law (%(default)g)")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the results as JUnit XML")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the results as one page")
    options = _parsed(parser, arguments)
    if isinstance(options, int):
        return options
    if sum(map(bool, (options.target, options.gym, options.package))) != 1:
        print("purestep verify: name one target, --gym ID or --package NAME", file=sys.stderr)
        return 2
    try:
        pages = _pages(options)
        if options.package:
            from .package import verify_package

            reports, failed = verify_package(options.package, laws=options.laws, limit=options.limit)
        else:
            reports, failed = _verify_one(options)
        for file, make in pages.items():
            file.write_text(make(reports), encoding="utf-8")
        return failed
    except PurestepError as error:
        print(f"purestep verify: {str(error).removeprefix('verify: ')}", file=sys.stderr)
        return 2


def _verify_one(options: argparse.Namespace) -> tuple[list["Report"], int]:
    skipped, declared, given = (
        skips(options.skip),
        values_of("--declare", options.declare),
        values_of("--with", options.given),
    )
    if options.gym:
        value: Any = options.gym
        target, call = options.gym, False
    else:
        value, target, call = load(options.target), options.target, options.call
    if options.only_name and options.gym:
        print(f"{target}: gym, because --gym names an environment")
        return [], 0
    if options.only_name and not call:
        row, reasons = _best(value, matches(value))  # also where a parameter keeps the suite from calling the object
        print(f"{target}: {row.suite}, because {'; '.join(reasons)}")
        return [], 0
    found = chosen(value, options.suite or ("gym" if options.gym else ""), call=call, declared=declared, given=given)
    print(f"{target}: {found.line()}")
    if options.only_name:
        return [], 0
    report = verify_apart(found, skip=skipped, exact=options.exact, laws=options.laws, limit=options.limit)
    print(report)
    if report.empty:
        print(f"purestep verify: {target}: no law could run: {report.results[0].detail}", file=sys.stderr)
        return [report], 1
    if report:
        return [report], 0
    if found.suite.name == "estimator_laws":
        print(f"its convention on truncation: {_convention(found.subject, options.limit)}")
    elif hint := _holds_with(found, options.limit):
        print(f"all its laws hold {hint}")
    print(f"purestep verify: {target} {report.failures[0].line()}", file=sys.stderr)
    return [report], 1


def _convention(subject: Any, limit: float) -> str:
    from .classify import classify
    from .isolated import ItemResult, each_apart

    (answer,) = each_apart(1, lambda i: classify(subject), limit=5 * limit)
    return str(answer.value) if isinstance(answer, ItemResult) else "not found in time"


def _holds_with(found: Chosen, limit: float) -> str:
    """Return the first convention of the suite with which every law holds, as options; "" if none is found in time."""
    from .isolated import ItemResult, each_apart
    from .run import run

    known = found.row.conventions

    def work(i: int) -> bool:
        suite = suite_of(found.row, {**found.declared, **known[i]})
        return all(run(law, found.subject, shrink=False).holds for law in suite)

    for words, one in zip(known, each_apart(len(known), work, limit=limit), strict=True):
        if isinstance(one, ItemResult) and one.value:
            return "with " + " ".join(f"--declare {name}={value}" for name, value in words.items())
    return ""


def verify_apart(
    found: Chosen,
    *,
    skip: Mapping[str, str] | None = None,
    exact: bool = False,
    laws: str = "quick",
    limit: float = LIMIT,
) -> "Report":
    """Return the report of a choice, with each law in a child process that has `limit` seconds."""
    from .isolated import ItemResult, each_apart
    from .law import reasons
    from .profiles import named_profile
    from .report import BROKEN, SKIPPED, Report, Result, name_of
    from .run import run

    skipped, name, profile = reasons(found.suite, skip), name_of(found.subject), named_profile(laws)
    left = [law for law in found.suite if law.name not in skipped]

    def work(i: int) -> Result:
        import torch

        torch.set_num_threads(1)  # a fork has no worker threads
        # A law holds functions, which cannot be sent; it is added again below.
        return evolve(run(left[i], found.subject, profile=profile, exact=exact), law=None, error=None)  # type: ignore[arg-type]

    results = {law: Result(law, name, SKIPPED, skipped[law.name]) for law in found.suite if law.name in skipped}
    for law, one in zip(left, each_apart(len(left), work, limit=limit), strict=True):
        if isinstance(one, ItemResult):
            results[law] = evolve(one.value, law=law, notes=one.notes)
        else:
            results[law] = Result(law, name, BROKEN, one.reason)
    return Report(found.suite.name, name, tuple(results[law] for law in found.suite))


def _pages(options: argparse.Namespace) -> dict[Path, "Callable[[Sequence[Report]], str]"]:
    """Return the files to write and their makers. Raises: StructureError without a folder for one."""
    from .pages import html_of, junit_of

    asked: list[tuple[Path | None, Callable[[Sequence[Report]], str]]] = [
        (options.junit, junit_of),
        (options.html, html_of),
    ]
    pages = {file: make for file, make in asked if file}
    for file in pages:
        if not file.parent.is_dir():
            wanted, remedy = "a file in a folder that exists", f"make {file.parent} first"
            raise StructureError(message("verify: page", got=file, wanted=wanted, remedy=remedy))
    return pages


def write_command(arguments: Sequence[str]) -> int:
    """Write a test file that checks an object against the laws of its kind; return 0, or 2 on an error."""
    parser = argparse.ArgumentParser(prog="purestep write", description="Writes a test file to keep, for pytest.")
    _target_options(parser)
    parser.add_argument("--out", type=Path, help="the file; without it the test is printed")
    options = _parsed(parser, arguments)
    if isinstance(options, int):
        return options
    try:
        declared, given = values_of("--declare", options.declare), values_of("--with", options.given)
        found = chosen(load(options.target), options.suite, call=options.call, declared=declared, given=given)
        text = written(options.target, found, options.declare, options.given, options.call)
    except PurestepError as error:
        print(f"purestep write: {str(error).removeprefix('verify: ')}", file=sys.stderr)
        return 2
    if options.out is None:
        print(text, end="")
    elif options.out.exists():
        print(f"purestep write: {options.out} exists, wanted a new file; name another", file=sys.stderr)
        return 2
    else:
        options.out.write_text(text, encoding="utf-8")
        print(f"{options.out}: run it with pytest {options.out}")
    return 0


def written(target: str, found: Chosen, declare: Sequence[str], given: Sequence[str], call: bool) -> str:
    """Return the source of a test of a choice.

    >>> from purestep.algorithms.kl import k3
    >>> print(written("purestep.algorithms.kl:k3", chosen(k3), (), (), False).splitlines()[-1])
    test_k3 = check_as("kl", k3)
    """
    module, _, name = target.rpartition(":")
    lines = [f'"""Laws of {name}: {found.line()}."""', ""]
    if module.endswith(".py"):
        lines += ["import sys", "", f"sys.path.insert(0, {str(Path(module).resolve().parent)!r})", ""]
        module = Path(module).stem
    top = name.partition(".")[0]
    needs = [
        *(["from hypothesis import strategies as st"] if any("st." in word for word in given) else []),
        *(["import torch"] if any("torch." in word for word in (*declare, *given)) else []),
    ]
    lines += [*needs, "from purestep.properties import check_as", f"from {module} import {top}", ""]

    def pairs(words: Sequence[str]) -> str:
        values = {w.partition("=")[0]: w.partition("=")[2] for w in words}
        plain = {n: v if any(c in v for c in "().[") or _literal(v) else repr(v) for n, v in values.items()}
        return "{" + ", ".join(f"{n!r}: {v}" for n, v in plain.items()) + "}"

    made = f"{name}({', '.join(given)})" if call else name
    options = f", declared={pairs(declare)}" if declare else ""
    options += f", given={pairs(given)}" if given and not call else ""
    lines.append(f'test_{name.replace(".", "_").lower()} = check_as("{found.row.suite}", {made}{options})')
    return "\n".join(lines) + "\n"


def _literal(text: str) -> bool:
    import ast

    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return False
    return True


def laws_command(arguments: Sequence[str]) -> int:
    """Print each suite with its subject's signature and an example, or the laws of one; return 0, or 2 on an error."""
    parser = argparse.ArgumentParser(prog="purestep laws", description="Lists the suites, or the laws of one suite.")
    parser.add_argument("suite", nargs="?", help="list the laws of this suite")
    options = _parsed(parser, arguments)
    if isinstance(options, int):
        return options
    try:
        if options.suite:
            row = choose("laws: suite", options.suite, rows())
            for law in suite_of(row):
                print(f"{law.name}\n    {law.claim}\n    catches: {law.mutant.edit}; source: {law.source}")
            return 0
    except PurestepError as error:
        print(f"purestep laws: {error}", file=sys.stderr)
        return 2
    for row in ROWS:
        print(f"{row.suite}\n    {row.signature}\n    {row.example}")
    return 0
