"""The commands `purestep verify`, `purestep write` and `purestep laws`.

`purestep verify TARGET` finds the suite that fits an object, and checks the object against its laws. Only the target itself is
called, as the suite calls its subject; a factory or class is called only with `--call`.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import PurestepError, StructureError, choose, message
from .catalogue import ROWS, CatalogueRow, rows, suite_of
from .choice import Chosen, best_row, choose_laws
from .matching import matches
from .target import load_target, values_of
from .verdict import LIMIT, NO_VERDICT, NoVerdict, written_command

if TYPE_CHECKING:
    from .judgement import Choice
    from .law import Suite
    from .report import Report

PROFILES = ("quick", "ci", "night")


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
    """Print the report of an object's laws.

    Returns 0 if all hold, also under a convention that the report names; 1 (and a line on stderr) if one is broken; 2 if the
    command is wrong or the target cannot be loaded; 3 if nobody knows how to call the object: no verdict, and a command.
    """
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
    from .judgement import judge

    skipped, declared, given = (
        skips(options.skip),
        values_of("--declare", options.declare),
        values_of("--with", options.given),
    )
    if options.gym:
        value: Any = options.gym
        target, call = options.gym, False
    else:
        value, target, call = load_target(options.target), options.target, options.call
    if options.only_name and options.gym:
        print(f"{target}: gym, because --gym names an environment")
        return [], 0
    if options.only_name and not call:
        row, reasons = best_row(value, matches(value))  # also where a parameter keeps the suite from calling the object
        print(f"{target}: {row.suite}, because {'; '.join(reasons)}")
        return [], 0
    suite = options.suite or ("gym" if options.gym else "")

    def choice(extra: Mapping[str, Mapping[str, Any]]) -> Chosen:
        words = {**(declared or {}), **extra.get("--declare", {})}
        values = {**(given or {}), **extra.get("--with", {})}
        return choose_laws(value, suite, call=call or "--call" in extra, declared=words, given=values)

    try:
        found = choice({})
    except NoVerdict as missing:
        return [], _no_verdict(options, value, str(missing), missing, choice)
    print(f"{target}: {found.line()}")
    if options.only_name:
        return [], 0
    certain = bool(options.suite or options.declare or options.gym)
    found_out = judge(found, certain=certain, skip=skipped, exact=options.exact, laws=options.laws, limit=options.limit)
    for line in found_out.lines:
        print(line)
    report, doubt = found_out.report, found_out.doubt
    if doubt and report.empty:
        print(f"purestep verify: {target}: {doubt}", file=sys.stderr)
    elif doubt:
        return [report], _no_verdict(options, value, str(doubt), doubt, choice)
    elif found_out.status:
        print(f"purestep verify: {target} {report.failures[0].line()}", file=sys.stderr)
    return [report], found_out.status


def _no_verdict(options: argparse.Namespace, value: Any, text: str, missing: NoVerdict, choice: "Choice") -> int:
    """Print why the object cannot be judged and, where values for what is missing are found, the command that judges it."""
    target = options.target or options.gym
    print(f"purestep verify: {target}: no verdict: {text.removeprefix('verify: ')}", file=sys.stderr)
    from .judgement import words_that_judge

    certain = bool(options.suite or options.declare)
    words = words_that_judge(value, missing, choice, options.limit, certain=certain)
    if words:
        given = [*(["--suite", options.suite] if options.suite else []), *(["--call"] if options.call else [])]
        given += [word for pair in options.declare for word in ("--declare", pair)]
        given += [word for pair in options.given for word in ("--with", pair)]
        given += [word for pair in options.skip for word in ("--skip", pair)]
        example = "with values of yours in place of these examples:" if missing.missing else "paste:"
        print(f"{example}\n{written_command([target], [*given, *words])}")
    else:
        print(f"what the suites call:\npurestep laws{missing.row and ' ' + missing.row}")
    return NO_VERDICT


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
        found = choose_laws(
            load_target(options.target), options.suite, call=options.call, declared=declared, given=given
        )
        text = test_source(options.target, found, options.declare, options.given, options.call)
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


def test_source(target: str, found: Chosen, declare: Sequence[str], given: Sequence[str], call: bool) -> str:
    """Return the source of a test of a choice.

    >>> from purestep.algorithms.kl import k3
    >>> print(test_source("purestep.algorithms.kl:k3", choose_laws(k3), (), (), False).splitlines()[-1])
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


def _laws_of(row: CatalogueRow) -> "Suite":
    """Return the suite of a row, of an example where something has to be declared for it."""
    try:
        return suite_of(row)
    except NoVerdict:
        from .families import families

        return next(one.suite for one in families() if one.suite.name == f"{row.suite}_laws")


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
            print(f"{row.suite}\n    {row.signature}\n    {row.example}")
            for law in _laws_of(row):
                print(f"{law.name}\n    {law.claim}\n    catches: {law.mutant.edit}; source: {law.source}")
            return 0
    except PurestepError as error:
        print(f"purestep laws: {error}", file=sys.stderr)
        return 2
    for row in ROWS:
        print(f"{row.suite}\n    {row.signature}\n    {row.example}")
    return 0
