"""The settings of algorithms, read from the text of their signatures: those that Python sees, and what their flags say."""

import inspect
import math
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from purestep.algorithms.hyperparameters import numbers_of
from purestep.algorithms.kinds import Kind
from purestep.core.errors import ChoiceError
from purestep.runtime.recipes.algorithm_flags import (
    algorithm_of,
    changes_class,
    check_algorithm,
    settings_class,
    settings_of,
)
from purestep.runtime.recipes.classic import RECIPES, ROWS
from purestep.runtime.runs.arguments import flag

TARGETS = [target for _, _, target, _ in ROWS.values()]


@pytest.mark.parametrize("target", TARGETS)
def test_the_text_says_what_python_sees(target: str) -> None:
    function = algorithm_of(settings_class(target)())
    signature, hints = inspect.signature(function), get_type_hints(function, include_extras=True)
    settings = settings_of(target)
    seen = {name: one for name, one in signature.parameters.items() if one.kind is inspect.Parameter.KEYWORD_ONLY}
    assert [(one.name, one.default) for one in settings] == [(name, one.default) for name, one in seen.items()]
    for one in settings:
        hint = hints[one.name]
        known = hint.__metadata__[0] if hasattr(hint, "__metadata__") else get_args(hint)
        assert one.kind == known, one.name
        assert one.help, f"{one.name} has no help"


@pytest.mark.parametrize(
    ("parameter", "wrong"),
    [
        ("root: float = 0.5", "root is float, wanted Fraction, Weight, .* or a Literal; give it a kind of"),
        ("root=0.5", "root is without an annotation, wanted Fraction"),
        ("root: Fraction", "root is without a default, wanted one"),
    ],
)
def test_a_parameter_that_can_be_no_flag_is_refused(
    parameter: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rooted_algorithm.py").write_text(f"def rooted(model, optimizer, *, {parameter}):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ChoiceError, match=f"^rooted_algorithm:rooted: {wrong}"):
        settings_of.__wrapped__("rooted_algorithm:rooted")


@pytest.mark.parametrize("name", RECIPES)
def test_each_setting_is_a_flag_that_is_checked_and_moves_if_it_is_an_input(name: str) -> None:
    target = ROWS[name][2]
    moving = changes_class(target)()
    for one in settings_of(target):
        assert hasattr(moving, one.name) == one.is_input()
        if isinstance(one.kind, Kind):
            for wrong in (2 * one.kind.low - 1, math.nan) if one.kind.type is float else (0,):
                with pytest.raises(ChoiceError, match=flag(one.name)):
                    check_algorithm(settings_class(target)(**{one.name: wrong}))


def test_the_numbers_of_a_program_are_its_inputs_and_finite_limits() -> None:
    target = ROWS["ppo"][2]
    function, usual = algorithm_of(settings_class(target)()), {one.name: one.default for one in settings_of(target)}
    inputs = {one.name for one in settings_of(target) if one.is_input()}

    def names(**changes: Any) -> set[str]:
        return {*numbers_of(function, {**usual, **changes})}

    assert names() == inputs
    assert names(target_kl=0.1) == {*inputs, "target_kl"}
    assert names(clip=(0.1, 0.3)) == {*inputs, "clip_low", "clip_high"} - {"clip"}
    with pytest.raises(ChoiceError, match="ppo: advantages is 'rows', wanted one of"):
        names(advantages="rows")
    assert get_origin(get_type_hints(function)["advantages"]) is not None
