"""`purestep verify package.module:object`: laws for whatever stands under that name."""

import argparse
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.env import Env
from ..core.errors import PurestepError, StructureError, choose, message
from .categorical_laws import categorical_laws
from .check import verify
from .checkpoint_laws import Store, checkpoint_laws
from .classify import classify
from .env_laws import env_laws
from .estimator_laws import estimator_laws
from .kl_laws import kl_laws
from .law import Suite
from .loss_laws import loss_laws
from .machine_laws import Play, machine_laws
from .masked_loss_laws import masked_loss_laws
from .order_laws import order_laws
from .probe_laws import probe_laws
from .profiles import ORDER, named_profile
from .return_laws import lambda_return_laws, vtrace_laws
from .scan_laws import scan_laws
from .update_laws import update_laws

SUITES: Mapping[str, Callable[[], Suite]] = {
    "env": lambda: env_laws,
    "estimator": estimator_laws,
    "lambda_return": lambda_return_laws,
    "vtrace": vtrace_laws,
    "loss": loss_laws,
    "masked_loss": masked_loss_laws,
    "kl": kl_laws,
    "categorical": categorical_laws,
    "update": update_laws,
    "probe": lambda: probe_laws(gamma=0.99),
    "order": order_laws,
    "scan": scan_laws,
    "checkpoint": checkpoint_laws,
    "machine": machine_laws,
}
KINDS: Mapping[type, str] = {Env: "env", Store: "checkpoint", Play: "machine"}


def load(target: str) -> Any:
    """The object at "package.module:name". Raises: StructureError."""
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
    except (ImportError, AttributeError) as error:
        remedy = "check the spelling, and that it can be imported from here"
        raise StructureError(message(f"verify: {target}", got=str(error), wanted="an object", remedy=remedy)) from error
    return value


def subject_of(value: Any, suite: str) -> tuple[Any, Suite]:
    """What to judge, and by which suite; a function without arguments that makes a world is called for it.

    Raises: StructureError when the kind of the object does not say which suite; ChoiceError for an unknown one.
    """
    if not suite and callable(value) and not isinstance(value, tuple(KINDS)) and _takes_nothing(value):
        value = value()
    found = suite or next((name for kind, name in KINDS.items() if isinstance(value, kind)), "")
    if not found:
        got, wanted = type(value).__name__, f"one of {sorted(kind.__name__ for kind in KINDS)}"
        remedy = f"say which laws: --suite {' | '.join(sorted(SUITES))}"
        raise StructureError(message("verify: object", got=got, wanted=wanted, remedy=remedy))
    if suite == "env" and not isinstance(value, Env) and callable(value):
        value = value()
    return value, choose("verify: suite", found, SUITES)()


def _takes_nothing(value: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return False
    return all(p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)


def skips(words: Sequence[str]) -> dict[str, str]:
    """`law=reason` pairs as a mapping. Raises: StructureError without a reason."""
    pairs = [word.partition("=") for word in words]
    for name, _, reason in pairs:
        if not reason:
            remedy = "write --skip law=reason"
            raise StructureError(message("verify: --skip", got=repr(name), wanted="law=reason", remedy=remedy))
    return {name: reason for name, _, reason in pairs}


def verify_command(arguments: Sequence[str]) -> int:
    """Prints the report of an object's laws; 0 when all hold, 1 and a line on stderr when one does not, 2 when it cannot."""
    parser = argparse.ArgumentParser(
        prog="purestep verify", description="Checks an object against the laws of its kind."
    )
    parser.add_argument(
        "target", help="package.module:object; a function without arguments that makes a world is called"
    )
    parser.add_argument("--suite", default="", help=f"which laws: {', '.join(SUITES)}")
    parser.add_argument("--laws", choices=ORDER, default="quick", help="how hard to look")
    parser.add_argument(
        "--skip", action="append", default=[], metavar="LAW=REASON", help="leave a law out, and say why"
    )
    try:
        options = parser.parse_args(list(arguments))
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        subject, suite = subject_of(load(options.target), options.suite)
        report = verify(suite, subject, skip=skips(options.skip), profile=named_profile(options.laws))
    except PurestepError as error:
        print(f"purestep verify: {error}", file=sys.stderr)
        return 2
    print(report)
    if report:
        return 0
    if suite.name == "estimator_laws":
        print(f"its convention on truncation: {classify(subject)}")
    print(f"purestep verify: {options.target} {report.failures[0].line()}", file=sys.stderr)
    return 1
