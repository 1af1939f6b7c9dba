"""Run one law on one subject through hypothesis and return the result."""

import copy
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Any

import attrs
import torch
import torch.utils._pytree as pytree
from attrs import evolve, field, mutable
from hypothesis import example, given, seed, target
from hypothesis import strategies as st
from hypothesis.errors import Flaky, FlakyReplay, StopTest, UnsatisfiedAssumption
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from .calling import COPIES, OTHERS, called_with, is_callable
from .compare import bits_of, rounding
from .law import Broken, Law, NotHere, Seen, Unlike, Vacuous
from .profiles import Profile, current_profile, hypothesis_settings, includes, using
from .report import BROKEN, DIFFERS, PASSED, RAISED, ROUNDS, SKIPPED, UNLIKE, VACUOUS, Result, name_of
from .script import script_of
from .settled import settled
from .source import source

NO_GPU = r"not compiled with CUDA|no NVIDIA driver|Found no NVIDIA|No CUDA GPUs|CUDA is not available"  # torch's words
ENGINE = (UnsatisfiedAssumption, StopTest)  # raised by hypothesis itself to leave a test


@mutable
class _Trial:
    """Data collected in one run of a law. Hypothesis replays the smallest failing input last, so the last failure stays."""

    seen: Seen = field(factory=Seen)
    examples: int = 0
    failure: Exception | None = None
    inputs: Any = None
    written: bool = False  # whether the check's copy of the inputs was changed


def absent(law: Law, subject: Any, profile: Profile) -> str:
    """Return the reason why the law cannot run in this profile or on this machine; "" if it can."""
    if not includes(profile, law.least):
        return f"runs in the profile {law.least}"
    with using(profile), suppress(Exception):  # any other error is the subject's: `run` reports it
        try:
            law.prepare(subject)
        except NotHere as missing:
            return str(missing)
    return ""


def run(
    law: Law,
    subject: Any,
    *,
    profile: Profile | None = None,
    examples: Sequence[Any] = (),
    shrink: bool = True,
    exact: bool = False,
) -> Result:
    """Return the result of one law: passed, broken, vacuous, or skipped if the profile or this machine cannot run it.

    `examples` are inputs to try first, such as those that a failure printed. `shrink`: look for the smallest failing input, and
    run it again, which shows a failure that does not repeat. `exact`: the subject promises equal bits also
    where a law is about numbers. A subject that refuses tensors, or writes into them, is called in another way, which the
    result names.
    """
    profile, name = profile or current_profile(), name_of(subject)
    if not includes(profile, law.least):
        return Result(law, name, SKIPPED, f"runs in the profile {law.least}")
    options: dict[str, Any] = {"profile": profile, "examples": examples, "exact": exact, "name": name}
    found, trial = _tried(law, subject, shrink=shrink, **options)
    if found.outcome != BROKEN or not law.numeric or not is_callable(subject):
        return found
    ways = [COPIES] if trial.written else []
    if not isinstance(trial.failure, Broken) or isinstance(trial.failure, Unlike):
        ways += OTHERS
    for way in ways:
        other, second = _tried(law, called_with(way, subject), shrink=shrink, **options)
        if other.outcome != BROKEN or (way != COPIES and _of_numbers(second.failure)):
            return evolve(_scripted(other, law, subject, way, second, shrink), way=way)
    return _scripted(found, law, subject, "", trial, shrink)


def _scripted(result: Result, law: Law, subject: Any, way: str, trial: _Trial, shrink: bool) -> Result:
    if result.outcome != BROKEN or trial.inputs is None or not shrink:
        return result
    with suppress(Exception):  # a script is an extra: the result stands without it
        return evolve(result, script=script_of(law, subject, way, trial.inputs, result.detail))
    return result


def _of_numbers(failure: Exception | None) -> bool:
    return isinstance(failure, Broken) and not isinstance(failure, Unlike)


def _tried(
    law: Law, subject: Any, *, profile: Profile, examples: Sequence[Any], exact: bool, name: str, shrink: bool
) -> tuple[Result, _Trial]:
    start, trial = time.perf_counter(), _Trial()
    with using(profile), rounding() if law.numeric and not exact else nullcontext():
        try:
            prepared = law.prepare(subject)
            _search(law, subject, prepared, trial, profile, examples, shrink)
        except NotHere as missing:
            return Result(law, name, SKIPPED, str(missing)), trial
        except Exception as error:
            trial.failure = trial.failure or error
    if trial.failure is not None and not torch.cuda.is_available() and re.search(NO_GPU, str(trial.failure)):
        return Result(law, name, SKIPPED, "it needs a GPU, which this machine does not have"), trial
    return _result(law, name, trial, time.perf_counter() - start), trial


def _search(
    law: Law, subject: Any, prepared: Any, trial: _Trial, profile: Profile, examples: Sequence[Any], shrink: bool
) -> None:
    extras = getattr(subject, "extras", {})

    def body(inputs: Any) -> None:
        if trial.failure is not None and not shrink:
            raise trial.failure  # hypothesis would run the failing input again, to print it
        inputs, more = inputs if extras else (inputs, {})
        if extras:
            subject.drawn.update(more)
        trial.examples += trial.failure is None
        seen, given = Seen(), copy.deepcopy(inputs)  # a copy, so that the inputs are printed unchanged
        try:
            law.check(prepared, given, seen)
        except ENGINE:
            raise
        except Exception as error:
            trial.failure, trial.inputs, trial.written = error, inputs, _changed(given, inputs)
            raise
        finally:
            if trial.failure is None:  # events of inputs tried in shrinking do not count
                trial.seen.add(seen)
        if not profile.fixed:
            for name, value in seen.measured.items():
                target(value, label=name)

    body.__name__ = law.name
    test: Callable[[], None] = given(inputs=_drawn(law.inputs(subject), extras))(body)
    for inputs in reversed(examples):
        test = example(inputs=inputs)(test)
    _own_key(test, f"{law.name} {name_of(subject)} {getattr(subject, '__module__', '')}")
    if not shrink:
        _unprinted(test)
    if profile.fixed:  # otherwise the draws would change with every edit of this function
        test = seed(zlib.crc32(f"{law.name} {profile.seed}".encode()))(test)
    try:
        with settled() if profile.fixed else nullcontext():
            hypothesis_settings(profile, shrink=shrink, most=law.most)(test)()
    except (Flaky, FlakyReplay) as error:
        if trial.failure is None:
            raise
        trial.failure = Broken(f"{_says(trial.failure)}; and not again with the same input")
        trial.failure.__cause__ = error


def _changed(given: Any, inputs: Any) -> bool:
    """Return whether a tensor of the copy differs from the input that it was copied from."""
    pairs = zip(_tensors(given), _tensors(inputs), strict=False)
    return any(a.shape != b.shape or not torch.equal(bits_of(a), bits_of(b)) for a, b in pairs)


def _tensors(value: Any) -> Iterator[Tensor]:
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, Tensor):
            yield leaf
        elif attrs.has(type(leaf)) and not isinstance(leaf, type):
            for part in attrs.fields(type(leaf)):
                yield from _tensors(getattr(leaf, part.name))


def _own_key(test: Any, key: str) -> None:
    """Set a database key for each law and subject; by default, all would share the key of this module's function."""
    test._hypothesis_internal_database_key = key.encode()


def _unprinted(test: Any) -> None:
    """Keep hypothesis from printing failing inputs, which takes longer than finding them where nothing is shrunk."""
    test._hypothesis_internal_print_given_args = False


def _result(law: Law, subject: str, trial: _Trial, seconds: float) -> Result:
    detail, inputs, outcome, imports = "", "", PASSED, tuple[str, ...]()
    if trial.failure is not None:
        outcome, detail = BROKEN, _says(trial.failure)
        inputs, imports = source(trial.inputs) if trial.inputs is not None else ("", ())
    else:
        detail = _missing(law, trial)
        outcome = VACUOUS if detail else PASSED
    seen, error = trial.seen.events, trial.failure
    return Result(
        law, subject, outcome, detail, inputs, seen, trial.examples, seconds, error, imports, fault=_fault(error)
    )


def _fault(failure: Exception | None) -> str:
    if failure is None:
        return ""
    if isinstance(failure, Broken) and _to_rounding(failure.got, failure.wanted):
        return ROUNDS
    if isinstance(failure, Unlike):
        return UNLIKE
    return DIFFERS if isinstance(failure, Broken) else RAISED


def _to_rounding(got: Any, wanted: Any) -> bool:
    """Return whether two tensors agree to the rounding of float32, where one of them may be of it."""
    if not (isinstance(got, Tensor) and isinstance(wanted, Tensor)) or got.shape != wanted.shape:
        return False
    return wanted.is_floating_point() and torch.allclose(
        got.double(), wanted.double(), rtol=1e-5, atol=1e-6, equal_nan=True
    )


def _drawn(inputs: SearchStrategy[Any], extras: Mapping[str, SearchStrategy[Any]]) -> SearchStrategy[Any]:
    return st.tuples(inputs, st.fixed_dictionaries(dict(extras))) if extras else inputs


def _missing(law: Law, trial: _Trial) -> str:
    """Return which events occurred in too small a share of the draws; "" if none."""
    never = [need for need in law.needs if not trial.seen.events.get(need)]
    if never:
        return f"in {trial.examples} inputs there never was {' or '.join(never)}"
    counts = {need: trial.seen.events[need] for need in law.needs}
    few = [f"{need} in {n}" for need, n in counts.items() if n < law.share * trial.examples]
    return f"of {trial.examples} inputs only {', '.join(few)}, wanted {law.share:.0%}" if few else ""


def _says(error: BaseException) -> str:
    """Return the error in one line; an error other than Broken with its type and its first two lines."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    if isinstance(error, Broken):
        return lines[0]
    return f"raised {type(error).__name__}: {' '.join(lines[:2])[:300]}"


def failure(result: Result) -> AssertionError:
    """Return the exception that a test raises for a result that does not hold."""
    return Vacuous(result.text()) if result.outcome == VACUOUS else Broken(result.text())
