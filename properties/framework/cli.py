"""`purestep verify package.module:object`: check the object of that name against the laws of its kind."""

import argparse
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import PurestepError, StructureError, choose, described, message

if TYPE_CHECKING:
    from .law import Suite

# The modules below are imported when a suite is requested; the help text needs none of them.
SUITES: Mapping[str, tuple[str, str]] = {  # a module, and the name of a suite in it or of a function that returns one
    "env": ("..suites.env", "env_laws"),
    "gym": ("..suites.gym", "gym_laws"),
    "estimator": ("..suites.estimator", "estimator_laws"),
    "lambda_return": ("..suites.returns", "lambda_return_laws"),
    "vtrace": ("..suites.returns", "vtrace_laws"),
    "loss": ("..suites.loss", "loss_laws"),
    "masked_loss": ("..suites.masked_loss", "masked_loss_laws"),
    "kl": ("..suites.kl", "kl_laws"),
    "categorical": ("..suites.categorical", "categorical_laws"),
    "distribution": ("..suites.distribution", "distribution_laws"),
    "optimizer": ("..suites.optimizer", "optimizer_laws"),
    "update": ("..suites.update", "update_laws"),
    "probe": ("..suites.probe", "probe_laws"),
    "order": ("..suites.order", "order_laws"),
    "scan": ("..suites.scan", "scan_laws"),
    "checkpoint": ("..suites.checkpoint", "checkpoint_laws"),
    "machine": ("..suites.machine", "machine_laws"),
}
KINDS: Mapping[str, tuple[str, str]] = {  # for suites about objects of one class: the class's module and name
    "env": ("...core.env", "Env"),
    "checkpoint": ("..suites.checkpoint", "TreeStore"),
    "machine": ("..suites.machine", "MachineCase"),
}
PROFILES = ("quick", "ci", "night")
CALL = "add --call to check the object that it returns"


def load(target: str) -> Any:
    """Return the object at "package.module:name". Raises: StructureError."""
    module_name, _, name = target.partition(":")
    if not name:
        remedy = "write package.module:object"
        raise StructureError(message("verify: target", got=repr(target), wanted="module:object", remedy=remedy))
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        value: Any = importlib.import_module(module_name)
        for part in name.split("."):
            value = getattr(value, part)
    except (Exception, SystemExit) as error:  # importing runs the user's module, which may raise anything
        remedy = "check the spelling, and that it can be imported from here"
        raise StructureError(
            message(f"verify: {target}", got=described(error), wanted="an object", remedy=remedy)
        ) from error
    return value


def subject_of(value: Any, suite: str = "", *, call: bool = False) -> tuple[Any, "Suite"]:
    """Return the object to check and the laws for it; with `call`, the object is the result of `value()`.

    Without `call`, nothing is called. Raises: StructureError if no suite is named and none fits the object's class, or if the
    object is not of the class that the suite needs; ChoiceError for an unknown suite.

    >>> from purestep.core.envs.cartpole import cartpole
    >>> subject_of(cartpole, call=True)[1].name
    'env_laws'
    >>> subject_of(cartpole, "env")
    Traceback (most recent call last):
    purestep.core.errors.StructureError: verify: object is a function, wanted Env; add --call to check the object that it \
returns
    """
    if suite:
        choose("verify: suite", suite, SUITES)
    kinds = {name: _named(place) for name, place in KINDS.items()}
    subject = _called(value) if call else value
    found = suite or next((name for name, kind in kinds.items() if isinstance(subject, kind)), "")
    got, suites = _kind(subject), f"--suite {' | '.join(SUITES)}"
    if not found:
        wanted = f"one of {sorted(kind.__name__ for kind in kinds.values())}"
        remedy = f"{CALL}, or say which laws: {suites}" if callable(subject) else f"say which laws: {suites}"
        raise StructureError(message("verify: object", got=got, wanted=wanted, remedy=remedy))
    if found in kinds and not isinstance(subject, kinds[found]):
        remedy = CALL if callable(subject) else f"name another object, or other laws: {suites}"
        raise StructureError(message("verify: object", got=got, wanted=kinds[found].__name__, remedy=remedy))
    if found not in kinds and not callable(subject):
        remedy = "name another object or other laws"
        raise StructureError(message(f"verify: object for {found}", got=got, wanted="a function", remedy=remedy))
    laws = _named(SUITES[found])
    if found == "probe":
        laws = laws(gamma=0.99)
    return subject, laws() if inspect.isfunction(laws) else laws


def _named(place: tuple[str, str]) -> Any:
    module, name = place
    return getattr(importlib.import_module(module, __package__), name)


def _called(value: Any) -> Any:
    if not (callable(value) and _takes_nothing(value)):
        remedy = "leave --call out, or name a function that needs no arguments"
        raise StructureError(
            message("verify: --call", got=_kind(value), wanted="a function without arguments", remedy=remedy)
        )
    try:
        return value()
    except PurestepError:
        raise
    except Exception as error:
        remedy = "mend the function, or name an object"
        raise StructureError(
            message("verify: --call", got=described(error), wanted="an object", remedy=remedy)
        ) from error


def _takes_nothing(value: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return False
    return all(p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)


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


def verify_command(arguments: Sequence[str]) -> int:
    """Print the report of an object's laws; return 0 if all hold, 1 (and a line on stderr) if one fails, 2 on an error."""
    parser = argparse.ArgumentParser(
        prog="purestep verify", description="Checks an object against the laws of its kind."
    )
    parser.add_argument("target", help="package.module:object; the module is imported, and nothing in it is called")
    parser.add_argument(
        "--call", action="store_true", help="call the target without arguments, and check the object that it returns"
    )
    parser.add_argument("--suite", default="", help=f"which laws: {', '.join(SUITES)}")
    parser.add_argument("--laws", choices=PROFILES, default="quick", help="how hard to look")
    parser.add_argument(
        "--skip", action="append", default=[], metavar="LAW=REASON", help="leave a law out, and say why"
    )
    try:
        options = parser.parse_args(list(arguments))
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        skipped = skips(options.skip)
        subject, suite = subject_of(load(options.target), options.suite, call=options.call)
        return _report(options.target, subject, suite, skipped, options.laws)
    except PurestepError as error:
        print(f"purestep verify: {error}", file=sys.stderr)
        return 2


def _report(target: str, subject: Any, suite: "Suite", skipped: Mapping[str, str], laws: str) -> int:
    from .check import verify
    from .classify import classify
    from .profiles import named_profile

    report = verify(suite, subject, skip=skipped, profile=named_profile(laws))
    print(report)
    if report:
        return 0
    if suite.name == "estimator_laws":
        print(f"its convention on truncation: {classify(subject)}")
    print(f"purestep verify: {target} {report.failures[0].line()}", file=sys.stderr)
    return 1
