"""Entry points: `check` and `check_as` make a pytest test of a suite and a subject, `verify` returns a report."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .choice import choose_laws
from .law import Broken, Suite, reasons
from .profiles import Profile, current_profile
from .report import SKIPPED, Report, Result, name_of
from .run import failure, run

Skip = Mapping[str, str] | None
Examples = Mapping[str, Sequence[Any]] | None


def check(
    suite: Suite, subject: Any, *, skip: Skip = None, examples: Examples = None, exact: bool = False
) -> Callable[..., None]:
    """Return a pytest test with one case for each law: `test_mine = check(env_laws, my_env)`.

    `skip` maps a law's name to the reason for skipping it, `examples` a law's name to inputs to try first. `exact`: the
    subject promises equal bits also where a law is about numbers and would let it round. The profile is read when the test
    runs. Raises: ChoiceError for a name that the suite does not have, or an empty reason.
    """
    import pytest

    skipped, kept = reasons(suite, skip), _examples(suite, examples)

    @pytest.mark.parametrize("law", [pytest.param(law, id=law.name) for law in suite])
    def test(law: Any) -> None:
        __tracebackhide__ = True
        if law.name in skipped:
            pytest.skip(skipped[law.name])
        result = run(law, subject, examples=kept.get(law.name, ()), exact=exact)
        if result.outcome == SKIPPED:
            pytest.skip(result.detail)
        if not result.holds:
            # Broken, raised by the law itself, needs no cause; an exception of the subject keeps its traceback.
            raise failure(result) from (None if isinstance(result.error, Broken) else result.error)

    test.__doc__ = f"{suite.name}, {name_of(subject)}"
    marked: Callable[..., None] = test
    return marked


def check_as(
    suite: str,
    value: Any,
    *,
    declared: Mapping[str, Any] | None = None,
    given: Mapping[str, Any] | None = None,
    skip: Skip = None,
    examples: Examples = None,
    exact: bool = False,
) -> Callable[..., None]:
    """Return a pytest test of an object against the suite of that name in the catalogue, as `purestep write` writes it.

    The object's parameters may have other names than the suite's subject; `declared` are keywords of the suite, `given`
    values or strategies of further parameters. Raises: ChoiceError for an unknown suite; StructureError for a parameter that
    nobody can draw.
    """
    found = choose_laws(value, suite, declared=declared, given=given)
    return check(found.suite, found.subject, skip=skip, examples=examples, exact=exact)


def verify(
    suite: Suite,
    subject: Any,
    *,
    skip: Skip = None,
    examples: Examples = None,
    exact: bool = False,
    profile: Profile | None = None,
) -> Report:
    """Return the report of a suite on a subject, without pytest; a broken law is reported, not raised.

    >>> from purestep.properties import step_laws, dyadic, verify
    >>> from hypothesis.strategies import tuples
    >>> bool(verify(step_laws(tuples(dyadic((3,)))) - {"compiled_is_eager"}, lambda x: 2 * x))
    True
    """
    skipped, kept = reasons(suite, skip), _examples(suite, examples)
    profile = profile or current_profile()

    def result(law: Any) -> Result:
        if law.name in skipped:
            return Result(law, name_of(subject), SKIPPED, skipped[law.name])
        return run(law, subject, profile=profile, examples=kept.get(law.name, ()), exact=exact)

    return Report(suite.name, name_of(subject), tuple(result(law) for law in suite))


def _examples(suite: Suite, examples: Examples) -> dict[str, Sequence[Any]]:
    for name in examples or {}:
        _ = suite[name]
    return dict(examples or {})
