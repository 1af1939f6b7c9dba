"""Errors: one line each, caught as ours or as Python's."""

import pickle

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from purestep.core import errors
from purestep.core.errors import ChoiceError, PurestepError, choose, message

COUSINS: dict[type[PurestepError], type[Exception]] = {
    errors.ShapeError: ValueError,
    errors.DtypeError: TypeError,
    errors.StructureError: TypeError,
    errors.FrozenError: AttributeError,
    errors.ChoiceError: ValueError,
    errors.NonFiniteError: ArithmeticError,
    errors.CheckpointError: RuntimeError,
    errors.RecompileError: RuntimeError,
    errors.WorldError: RuntimeError,
    errors.TrustError: RuntimeError,
    errors.CompileError: RuntimeError,
    errors.ExportError: RuntimeError,
}


def test_every_error_stands_in_the_table() -> None:
    defined = {
        value for value in vars(errors).values() if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert defined - {PurestepError} == set(COUSINS)


@pytest.mark.parametrize("error", COUSINS)
def test_an_error_is_ours_and_its_cousin(error: type[PurestepError]) -> None:
    with pytest.raises(PurestepError, match=r"^text$") as caught:
        raise error("text")
    assert isinstance(caught.value, COUSINS[error])
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (error, "text")


def test_a_write_to_a_record_is_also_what_attrs_raises() -> None:
    assert issubclass(errors.FrozenError, attrs.exceptions.FrozenInstanceError)


def test_message_says_got_wanted_and_remedy_in_one_line() -> None:
    assert message("gae: values", got=[5], wanted=[4], remedy="cut it") == "gae: values is [5], wanted [4]; cut it"


@given(st.dictionaries(st.text(max_size=5), st.integers(), max_size=4), st.text(max_size=5))
def test_choose_finds_what_is_there_and_lists_it_otherwise(table: dict[str, int], name: str) -> None:
    if name in table:
        assert choose("mode", name, table) == table[name]
    else:
        with pytest.raises(ChoiceError) as caught:
            choose("mode", name, table)
        assert str(caught.value).startswith(f"mode is {name!r}, wanted one of {sorted(table)}; ")


@pytest.mark.parametrize(
    ("name", "end"),
    [("poold", "did you mean 'pooled'?"), ("zzz", "choose one of these"), ("", "choose one of these")],
)
def test_choose_names_the_nearest(name: str, end: str) -> None:
    with pytest.raises(ChoiceError) as caught:
        choose("mode", name, {"pooled": 1, "select": 2})
    assert str(caught.value) == f"mode is {name!r}, wanted one of ['pooled', 'select']; {end}"


def test_choose_survives_a_name_that_is_no_string() -> None:
    number: object = 3
    with pytest.raises(ChoiceError, match="mode is 3, wanted one of"):
        choose("mode", number, {"pooled": 1})  # type: ignore[arg-type]
