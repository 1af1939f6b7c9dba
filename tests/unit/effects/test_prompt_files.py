"""Files of prompts: of each format as other programs write it, refused by line, and split by content."""

import csv
import importlib
import io
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import assume, given
from hypothesis import strategies as st

from purestep.core.errors import ChoiceError, StructureError
from purestep.core.language.prompts import PromptRow
from purestep.runtime.effects.prompts import tables
from purestep.runtime.effects.prompts.read import (
    PromptSet,
    prompts_from_rows,
    read_prompts,
    split_prompts,
    without,
)

Row = Mapping[str, Any]
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where is the sun?"}]
PAIRS = (("system", "Be brief."), ("user", "Where is the sun?"))


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, bytes | str], Path]:
    def written(name: str, content: bytes | str) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return written


Write = Callable[[str, bytes | str], Path]


def json_lines(rows: Sequence[Row]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def pairs(prompts: PromptSet) -> list[tuple[Any, Row]]:
    return [(row.prompt, row.columns) for row in prompts.rows]


def texts(*prompts: str) -> PromptSet:
    return prompts_from_rows([{"prompt": prompt} for prompt in prompts])


def refusal(call: Callable[[], object]) -> str:
    """The text of the error of a call, one line."""
    with pytest.raises(ChoiceError) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    return text


# --- as other programs write them ---

GSM8K = [
    {"question": "Ann has 2 eggs, and buys 3.\nHow many are that?", "answer": "2 + 3 = <<2+3=5>>5 eggs.\n#### 5"},
    {"question": 'He said "four", twice; how much?', "answer": "4 + 4 = <<4+4=8>>8\n#### 8"},
]
GSM8K_PAIRS = [(row["question"], {"answer": row["answer"]}) for row in GSM8K]
PANDAS = (  # DataFrame(GSM8K).to_csv(PATH)
    ',question,answer\n0,"Ann has 2 eggs, and buys 3.\nHow many are that?","2 + 3 = <<2+3=5>>5 eggs.\n#### 5"\n'
    '1,"He said ""four"", twice; how much?","4 + 4 = <<4+4=8>>8\n#### 8"\n'
)
SPREADSHEET = (  # "CSV UTF-8" of a spreadsheet: a byte order mark, CRLF, plain line feeds inside cells
    '\ufeffquestion,answer\r\n"Ann has 2 eggs, and buys 3.\nHow many are that?","2 + 3 = <<2+3=5>>5 eggs.\n#### 5"\r\n'
    '"He said ""four"", twice; how much?","4 + 4 = <<4+4=8>>8\n#### 8"\r\n'
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("gsm8k.jsonl", json_lines(GSM8K)),
        ("bom_crlf.json", "\ufeff" + json_lines(GSM8K).replace("\n", "\r\n\r\n")),
        ("no_last_line_end.JSONL", json_lines(GSM8K)[:-1]),
        ("pandas.csv", PANDAS),
        ("spreadsheet.csv", SPREADSHEET),
        ("empty_columns.csv", SPREADSHEET.replace("\r\n", ",,\r\n")),
    ],
)
def test_questions_and_answers_are_read(write: Write, name: str, content: str) -> None:
    found = read_prompts(write(name, content), column="question")
    assert pairs(found) == GSM8K_PAIRS
    assert found.digest == prompts_from_rows(GSM8K, column="question").digest


def test_chat_messages_are_read_also_from_a_cell_of_csv(write: Write) -> None:
    lines = write("chat.jsonl", json_lines([{"prompt": CHAT, "n": 1}]))
    assert pairs(read_prompts(lines)) == [(PAIRS, {"n": 1})]
    text = io.StringIO(newline="")
    csv.writer(text).writerows([["n", "prompt"], ["1", json.dumps(CHAT)], ["2", "[2, 1]: sort it"], ["3", "[INST] Hi"]])
    found = read_prompts(write("chat.csv", text.getvalue()))
    assert pairs(found) == [(PAIRS, {"n": "1"}), ("[2, 1]: sort it", {"n": "2"}), ("[INST] Hi", {"n": "3"})]


def test_fields_of_messages_that_other_rows_have_are_null(write: Write) -> None:
    chat = [{"role": "user", "content": "Hi", "name": None}]
    assert read_prompts(write("x.jsonl", json_lines([{"prompt": chat}]))).rows[0].prompt == (("user", "Hi"),)


def library(name: str) -> Any:
    pytest.importorskip(name.partition(".")[0], reason="needs the extra data")
    return importlib.import_module(name)


VALUES = {"answer": "5", "level": 2, "share": 0.5, "hard": True, "hint": None, "tags": ["a"], "meta": {"by": "me"}}


def test_parquet_is_read(tmp_path: Path) -> None:
    arrow, parquet = library("pyarrow"), library("pyarrow.parquet")
    rows = [{"prompt": CHAT, **VALUES}, {"prompt": CHAT[1:], **VALUES, "level": None}]
    path = tmp_path / "chat.parquet"
    parquet.write_table(arrow.Table.from_pylist(rows), path)
    found = read_prompts(path)
    assert pairs(found) == [(PAIRS, VALUES), (PAIRS[1:], {**VALUES, "level": None})]
    assert found.digest == prompts_from_rows(rows).digest

    path.write_bytes(path.read_bytes()[:-20])
    text = refusal(lambda: read_prompts(path))
    assert text.startswith(f"{path} is unreadable (Arrow")
    parquet.write_table(arrow.Table.from_pylist([{"prompt": "a", "seen": "x"}, {"prompt": " ", "seen": "y"}]), path)
    text = refusal(lambda: read_prompts(path))
    assert text == f"{path}: row 2: column 'prompt' is empty, wanted a text; give a prompt, or leave the row out"
    parquet.write_table(arrow.table({"prompt": ["a"], "picture": [b"\xff"]}), path)
    assert f"{path}: row 1: column 'picture' is with a value of type bytes, wanted " in refusal(
        lambda: read_prompts(path)
    )
    parquet.write_table(arrow.table({"prompt": arrow.array([], arrow.string())}), path)
    assert refusal(lambda: read_prompts(path)) == f"{path} is empty, wanted at least 1 prompt; give one a row"


@pytest.fixture
def datasets() -> Any:
    found = library("datasets")
    found.disable_progress_bars()
    return found


def test_a_data_set_saved_in_a_folder_is_read(datasets: Any, tmp_path: Path) -> None:
    rows = [{"prompt": CHAT, **VALUES}, {"prompt": CHAT[1:], **VALUES}]
    saved = datasets.Dataset.from_list(rows)
    saved.save_to_disk(str(tmp_path / "one"))
    found = read_prompts(tmp_path / "one")
    assert pairs(found) == [(PAIRS, VALUES), (PAIRS[1:], VALUES)]
    assert found == prompts_from_rows(saved)
    last = saved.select([1]).with_format("numpy")
    datasets.DatasetDict(test=saved, train=last).save_to_disk(str(tmp_path / "two"))
    assert pairs(read_prompts(tmp_path / "two")) == [(PAIRS[1:], VALUES)]
    assert read_prompts(tmp_path / "two" / "test") == found


def test_damaged_folders_are_refused(datasets: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = datasets.Dataset.from_list([{"prompt": "2 + 3?"}])
    folder = tmp_path / "splits"
    datasets.DatasetDict(test=saved, validation=saved).save_to_disk(str(folder))
    wanted = "is of splits 'test', 'validation', wanted a split 'train'; name the folder of one of them"
    assert refusal(lambda: read_prompts(folder)) == f"{folder} {wanted}"

    monkeypatch.setattr(tables, "MOST", 100)
    assert "has more than 100 bytes)" in refusal(lambda: read_prompts(folder / "test"))
    monkeypatch.undo()
    (arrow,) = (folder / "test").glob("*.arrow")
    arrow.write_bytes(arrow.read_bytes()[:100])
    assert f"{folder / 'test'} is unreadable (ArrowInvalid: " in refusal(lambda: read_prompts(folder / "test"))
    arrow.unlink()
    os.mkfifo(arrow)
    assert f"{arrow} is no regular file)" in refusal(lambda: read_prompts(folder / "test"))


@pytest.mark.parametrize(("name", "needed"), [("x.parquet", "pyarrow"), ("folder", "datasets")])
def test_the_extra_is_named_where_it_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, needed: str
) -> None:
    (tmp_path / "folder").mkdir()
    for file in ("x.parquet", "folder/state.json"):
        (tmp_path / file).touch()
    monkeypatch.setitem(sys.modules, needed, None)
    with pytest.raises(ModuleNotFoundError) as caught:
        read_prompts(tmp_path / name)
    assert str(caught.value) == f"{needed} is absent, wanted installed; pip install 'purestep[data]'"


# --- what is refused ---

FINE = '{"prompt": "2 + 3?"}\n'
JSON_LINES = [
    (b"\xff\xfe{\0", 1, " is not UTF-8, wanted a JSON object; save the file as UTF-8"),
    (FINE + '{"prompt": "2', 2, " is no JSON (Unterminated string starting at, column 12), wanted a JSON object; "),
    (FINE + '\n{"prompt": "a", "x": NaN}', 3, " is no JSON (NaN is no JSON), wanted "),
    ("[" * 200, 1, " is no JSON (Expecting value, column 201), wanted "),
    ('{"prompt": "a", "x": ' + "[" * 200 + "]" * 200 + "}", 1, " is no JSON (nested more than 100 deep), wanted "),
    ('[{"prompt": "2 + 3?"}]', 1, " is of type list, wanted a JSON object; write one object a line, and no list "),
    (
        '{"question": "a", "answer": "b"}',
        1,
        " is without a column 'prompt', wanted one of its columns 'question', 'answer'; name the column of the prompts "
        "with --prompt-column",
    ),
    (FINE + "{}", 2, " is without a column 'prompt', wanted one; "),
    ('{"prompt": " \\n"}', 1, ": column 'prompt' is empty, wanted a text; "),
    ('{"prompt": null}', 1, ": column 'prompt' is null, wanted a text or messages "),
    ('{"prompt": 7}', 1, ": column 'prompt' is of type int, wanted a text or messages "),
    ('{"prompt": "\\ud83d"}', 1, ": column 'prompt' is with half a character at position 0, wanted a text; "),
    ('{"prompt": []}', 1, ": column 'prompt' is without a message, wanted "),
    ('{"prompt": ["Hi"]}', 1, ": column 'prompt': message 1 is of type str, wanted "),
]
MESSAGES: list[tuple[list[Any], str]] = [
    (
        [{"role": "tool", "content": "a"}],
        "message 1 is of role 'tool', wanted one of ['assistant', 'system', 'user']; ",
    ),
    ([{"role": ["user"], "content": "a"}], "message 1 is of role ['user'], wanted one of "),
    ([{"content": "a"}], "message 1 is of role None, wanted one of "),
    ([*CHAT, {"role": "user"}], "message 3: content is null, wanted a text; "),
    ([{"role": "user", "content": [{"type": "text", "text": "a"}]}], "message 1: content is of type list, wanted "),
    ([*CHAT, {"role": "assistant", "content": "Up."}], "the last message is the assistant's, wanted the user's; "),
    ([CHAT[0]], "the last message is the system's, wanted the user's; "),
    ([{"role": "user", "content": " "}], "the last message is empty, wanted a text; "),
    ([{"role": "assistant", "content": "a", "tool_calls": [1]}, CHAT[1]], "message 1 is with 'tool_calls', wanted "),
    ([{"role": "system", "content": "\ud83d"}, CHAT[1]], "message 1 is with half a character at position 0, wanted "),
]
CSV = [
    ("prompt,n\n\xe9,1\n".encode("latin-1"), 2, " is not UTF-8, wanted a text; save the file as UTF-8"),
    ('prompt,n\n"a\nb",1\n"c,2\n', 4, " is no CSV (unexpected end of data), wanted cells of at most 131,072 char"),
    ("prompt\n" + "a" * 200_000, 2, " is no CSV (field larger than field limit (131072)), wanted "),
    ("prompt,n\na,1\n2, or 3?,5\n", 3, " is of 3 cells, wanted 2; quote cells that have commas"),
    ("prompt,n\n\n\na\n", 4, " is of 1 cells, wanted 2; "),
    ("a,b,b\n1,2,3\n", 1, " is with two columns 'b', wanted columns of different names; rename one"),
    ("prompt;n\na;1\n", 1, " is one column 'prompt;n', wanted the names of columns; separate columns by commas"),
    ("question,n\na,1\n", 2, " is without a column 'prompt', wanted one of its columns 'question', 'n'; "),
    ("prompt,n\n,\n", 2, ": column 'prompt' is empty, wanted a text; "),
    (
        "prompt\n\"[{'role': 'user', 'content': 'a'}]\"\n",  # as pandas writes lists
        2,
        ": column 'prompt' is no JSON, but begins with [{, wanted ",
    ),
    ('prompt\n"[{""role"": ""user""}]"\n', 2, ": column 'prompt': message 1: content is null, wanted a text; "),
]
LINES = [
    *(("x.jsonl", *one) for one in JSON_LINES),
    *(
        ("x.jsonl", json_lines([{"prompt": "a"}, {"prompt": chat}]), 2, f": column 'prompt': {text}")
        for chat, text in MESSAGES
    ),
    *(("x.csv", *one) for one in CSV),
]


@pytest.mark.parametrize(("name", "content", "line", "text"), LINES)
def test_a_wrong_line_is_refused_by_its_number(
    write: Write, name: str, content: bytes | str, line: int, text: str
) -> None:
    path = write(name, content)
    assert refusal(lambda: read_prompts(path)).startswith(f"{path}: line {line}{text}")


@pytest.mark.parametrize(("name", "content"), [("x.jsonl", ""), ("x.json", "\ufeff\r\n\n"), ("x.csv", "prompt,n\r\n")])
def test_a_file_without_a_prompt_is_refused(write: Write, name: str, content: str) -> None:
    path = write(name, content)
    assert refusal(lambda: read_prompts(path)) == f"{path} is empty, wanted at least 1 prompt; give one a row"


def test_other_paths_are_refused(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(path: Path) -> str:
        return refusal(lambda: read_prompts(path)).partition(", wanted a .jsonl, .json, .csv or .parquet file")[0]

    for name in ("absent.jsonl", "absent"):
        assert start(tmp_path / name) == f"{tmp_path / name} is absent"
    assert start(write("x.txt", "a")) == f"{tmp_path / 'x.txt'} is of suffix '.txt'"
    assert start(tmp_path) == f"{tmp_path} is a folder of other files"
    os.mkfifo(tmp_path / "fifo.jsonl")
    assert start(tmp_path / "fifo.jsonl") == f"{tmp_path / 'fifo.jsonl'} is unreadable (a FIFO)"
    monkeypatch.setattr(tables, "MOST", 10)
    assert start(write("x.csv", "prompt\n2 + 3?\n")) == f"{tmp_path / 'x.csv'} is unreadable (of more than 10 bytes)"


def test_rows_in_python_are_refused_by_their_number() -> None:
    rows: list[Any] = [{"prompt": "a"}, "b"]
    with pytest.raises(
        StructureError, match=r"^train: row 2 is of type str, wanted a mapping with a column 'prompt'; "
    ):
        prompts_from_rows(rows, where="train")
    values: list[tuple[Any, str]] = [({1: "a"}, "int"), ([{"a": ("b",)}], "tuple"), (b"a", "bytes")]
    for value, kind in values:
        text = refusal(partial(prompts_from_rows, [{"prompt": "a", "x": value}]))
        assert text.startswith(f"prompts: row 1: column 'x' is with a value of type {kind}, wanted texts, ")
    assert refusal(lambda: prompts_from_rows([])) == "prompts is empty, wanted at least 1 prompt; give one a row"
    many = {f"c{number}": 1 for number in range(30)}
    assert "'c18', 'c19', ...; name " in refusal(lambda: prompts_from_rows([many]))


# --- what is written is read ---

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
ASKED = st.text(min_size=1).filter(str.strip)
MESSAGE = st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant"]), "content": st.text()})
CHATS = st.builds(
    lambda before, last: [*before, {"role": "user", "content": last}], st.lists(MESSAGE, max_size=3), ASKED
)
COLUMNS = st.dictionaries(st.text().filter(lambda name: name != "prompt"), JSON, max_size=3)
ROWS = st.lists(
    st.builds(lambda prompt, more: {**more, "prompt": prompt}, ASKED | CHATS, COLUMNS), min_size=1, max_size=8
)


def expected(row: Row) -> tuple[Any, Row]:
    given = row["prompt"]
    prompt = given if isinstance(given, str) else tuple((one["role"], one["content"]) for one in given)
    return prompt, {name: value for name, value in row.items() if name != "prompt"}


@given(ROWS, st.booleans(), st.sampled_from(["\n", "\r\n", "\n \n"]), st.sampled_from(["", "\ufeff"]))
def test_json_lines_that_are_written_are_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], ascii_only: bool, end: str, mark: str
) -> None:
    path = tmp_path_factory.mktemp("lines") / "x.jsonl"
    lines = "".join(f"{json.dumps(row, ensure_ascii=ascii_only)}{end}" for row in rows)
    path.write_text(mark + lines, encoding="utf-8", newline="")
    found = read_prompts(path)
    assert pairs(found) == [expected(row) for row in rows]
    assert found == prompts_from_rows(rows)


@given(st.lists(st.tuples(ASKED, st.text()), min_size=1))
def test_csv_that_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, cells: list[tuple[str, str]]) -> None:
    assume(not any(prompt.strip().startswith("[") for prompt, _ in cells))
    path = tmp_path_factory.mktemp("cells") / "x.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("prompt", "answer"), *cells])
    assert pairs(read_prompts(path)) == [(prompt, {"answer": answer}) for prompt, answer in cells]


@given(ROWS, st.data())
def test_the_digest_is_of_prompts_columns_and_order(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    digest = prompts_from_rows(rows).digest
    assert prompts_from_rows([dict(reversed(row.items())) for row in rows]).digest == digest
    place = data.draw(st.integers(0, len(rows) - 1))
    name = data.draw(st.sampled_from([*rows[place], "new"]))
    asked = [{"role": "system", "content": "other"}, {"role": "user", "content": "other"}]
    changed = {**rows[place], name: asked if name == "prompt" else [rows[place].get(name, 0)]}
    assume(changed != rows[place])
    assert prompts_from_rows([*rows[:place], changed, *rows[place + 1 :]]).digest != digest
    assert prompts_from_rows([*rows, rows[0]]).digest != digest
    if rows != rows[::-1]:
        assert prompts_from_rows(rows[::-1]).digest != digest


# --- the split ---

SHARES = st.floats(0.01, 0.99)
FEW = st.lists(st.sampled_from("abcdefgh"), min_size=2).filter(lambda some: len(set(some)) > 1)


def asked(prompts: PromptSet) -> set[Any]:
    return {row.messages for row in prompts.rows}


@given(FEW, SHARES)
def test_a_split_is_disjoint_by_content_and_covers_all_rows_in_order(given_texts: list[str], share: float) -> None:
    rows = [{"prompt": text, "n": number} for number, text in enumerate(given_texts)]
    training, held_out = split_prompts(prompts_from_rows(rows), share)
    assert not asked(training) & asked(held_out)
    sides = [[row.columns["n"] for row in side.rows] for side in (training, held_out)]
    assert sorted(sides[0] + sides[1]) == list(range(len(rows)))
    assert all(side and side == sorted(side) for side in sides)
    for side in (training, held_out):
        assert side == prompts_from_rows([{"prompt": row.prompt, **row.columns} for row in side.rows])


@given(
    st.lists(st.text("abc", min_size=1), min_size=20, max_size=40, unique=True),
    st.lists(st.text("abcd", min_size=1)),
    st.randoms(use_true_random=False),
    st.floats(0.25, 0.75),
)
def test_rows_that_are_added_move_no_others(some: list[str], more: list[str], random: Any, share: float) -> None:
    before = split_prompts(texts(*some), share)
    assume(min(len(side.rows) for side in before) > 1)  # a single one may be there so that the side is not empty
    every = [*some, *more]
    random.shuffle(every)
    training, held_out = split_prompts(texts(*every), share)
    assert asked(before[0]) <= asked(training)
    assert asked(before[1]) <= asked(held_out)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9])
def test_about_the_share_is_held_out(share: float) -> None:
    number = 4000
    prompts = texts(*(f"{first} + 1?" for first in range(number)))
    held_out = len(split_prompts(prompts, share)[1].rows)
    assert abs(held_out - share * number) < 4 * (number * share * (1 - share)) ** 0.5


def test_columns_and_the_form_of_a_prompt_do_not_matter_to_the_split() -> None:
    rows: list[Row] = [{"prompt": f"{number}?", "n": 0} for number in range(20)]
    forms: list[Row] = [{"prompt": [{"role": "user", "content": row["prompt"]}], "n": 1} for row in rows]
    both = split_prompts(prompts_from_rows([*rows, *forms]), 0.3)
    alone = split_prompts(prompts_from_rows(rows), 0.3)
    assert [asked(side) for side in both] == [asked(side) for side in alone]
    assert [len(side.rows) for side in both] == [2 * len(side.rows) for side in alone]


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 2, float("nan")])
def test_a_share_outside_of_0_and_1_is_refused(share: float) -> None:
    assert "split_prompts: share is" in refusal(lambda: split_prompts(texts("a", "b"), share))


def test_a_single_prompt_cannot_be_split() -> None:
    text = refusal(lambda: split_prompts(texts("a", "a"), 0.5))
    assert text.startswith("split_prompts: distinct prompts is 1, wanted at least 2")


@given(st.lists(st.sampled_from("abcd"), min_size=1), st.lists(st.sampled_from("abcd"), min_size=1))
def test_without_removes_the_prompts_of_the_other_file_and_no_more(some: list[str], others: list[str]) -> None:
    left = [text for text in some if text not in others]
    if left:
        assert without(texts(*some), texts(*others)) == texts(*left)
    else:
        text = refusal(lambda: without(texts(*some), texts(*others)))
        assert text.startswith("prompts is none but those held out, wanted at least 1 for training")


def test_columns_are_of_rows_not_of_the_caller() -> None:
    given_row = {"prompt": "a", "answer": 1}
    (row,) = prompts_from_rows([given_row]).rows
    given_row["answer"] = 2
    assert row == PromptRow("a")
    assert row.columns == {"answer": 1}
    assert evolve(row, prompt="b").columns == row.columns
