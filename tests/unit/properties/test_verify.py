"""Strangers' objects: matched with a suite, called in the way that they need, judged by the convention that they declare."""

import inspect
import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from attrs import evolve
from hypothesis import strategies as st
from torch import Tensor

from purestep.core.errors import StructureError
from purestep.properties import Law, Mutant, Seen, Suite, dyadic, run, same, verify
from purestep.properties.framework import cli, paste, profiles
from purestep.properties.framework.catalogue import ROWS, named, suite_of
from purestep.properties.framework.cli import chosen, laws_command, verify_command, write_command
from purestep.properties.framework.isolated import ItemResult, each_apart
from purestep.properties.framework.matching import CERTAIN, matches
from purestep.properties.framework.pages import html_of, junit_of
from purestep.properties.framework.paste import evaluated
from purestep.properties.framework.report import BROKEN
from purestep.properties.framework.source import source
from purestep.properties.framework.target import load

from ...support import strangers

pytest_plugins = ("pytester",)

NUMBERS = Law(
    name="doubles",
    claim="f(x) = 2 x.",
    source="here",
    inputs=lambda subject: dyadic((2,)),
    check=lambda subject, x, seen: same("twice the number", subject(x), 2 * x),
    mutant=Mutant("triples", lambda subject: lambda x: 3 * x),
    numeric=True,
)


@pytest.mark.parametrize("name", strangers.SUITES)
def test_a_typical_object_finds_its_suite(name: str) -> None:
    found = matches(getattr(strangers, name))
    assert found[0].row.suite in strangers.SUITES[name].split("|")
    assert found[0].score >= CERTAIN
    assert strangers.CALLED == []


def test_rows_stand_in_order_and_lead_to_suites() -> None:
    names = [row.suite for row in ROWS]
    assert names == sorted(set(names))
    for row in ROWS:
        made = named(row.laws)
        if callable(made):
            takes = inspect.signature(made).parameters
            needed = {n for n, p in takes.items() if p.default is p.empty and p.kind is not p.VAR_KEYWORD}
            if needed <= set(row.declared):
                assert len(suite_of(row)) > 0


def numpy_double(x: Any) -> Any:
    return np.multiply(np.asarray(x.tolist() if isinstance(x, Tensor) else x, dtype=np.float64), 2)


def list_double(x: list[float]) -> list[float]:
    return [2 * one for one in x if isinstance(one, float)] or [0.0]


def in_place_double(x: Tensor) -> Tensor:
    return x.mul_(2)


@pytest.mark.parametrize(
    ("subject", "way"), [(numpy_double, "numpy arrays"), (list_double, "lists"), (in_place_double, "copies")]
)
def test_a_subject_not_of_tensors_is_called_in_its_way(subject: Any, way: str) -> None:
    def check(function: Any, x: Tensor, seen: Seen) -> None:
        before = x.clone()
        same("twice the number", function(x), 2 * before)
        same("again", function(x), 2 * before)

    law = Law(
        name="doubles_again",
        claim="f(x) = 2 x, twice.",
        source="here",
        inputs=lambda subject: dyadic((2,)),
        check=check,
        mutant=NUMBERS.mutant,
        numeric=True,
    )
    result = run(law, subject)
    assert (result.outcome, result.way.partition(",")[0]) == ("passed", way)
    assert f"called with {way}" in result.line()


def test_numbers_may_round_and_bits_are_asked_where_they_are_promised() -> None:
    def rounds(x: Tensor) -> Tensor:
        return 2 * (x + 1e-6) - 2e-6

    assert verify(Suite("mine", (NUMBERS,)), rounds)
    assert not verify(Suite("mine", (NUMBERS,)), rounds, exact=True)


def test_an_event_must_occur_in_a_share_of_the_draws() -> None:
    def check(subject: Any, x: int, seen: Seen) -> None:
        seen("an even number", x % 2 == 0)
        seen("an even number", x % 2 == 0)

    def law(share: float) -> Law:
        return Law(
            name="sevens",
            claim="Nothing.",
            source="here",
            inputs=lambda subject: st.integers(0, 999),
            check=check,
            mutant=NUMBERS.mutant,
            needs=("an even number",),
            share=share,
        )

    result = run(law(0.99), None)
    assert result.outcome == "vacuous"
    assert result.detail.startswith(f"of 20 inputs only an even number in {result.seen['an even number']}, wanted 99%")
    assert run(law(0.05), None).outcome == "passed"
    assert "an even number in " in run(law(0.05), None).line()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ("rlax_gae", "inplace_gae") else [])
        for name in strangers.RIGHT
    ],
)
def test_right_code_in_other_conventions_is_not_called_broken(name: str) -> None:
    found = chosen(getattr(strangers, name), **strangers.RIGHT[name])
    report = verify(found.suite, found.subject, profile=evolve(profiles.named_profile("quick"), examples=12))
    assert report, str(report)


@pytest.mark.parametrize("name", strangers.WRONG)
def test_wrong_code_in_these_conventions_is_caught(name: str) -> None:
    found = chosen(getattr(strangers, name), **strangers.WRONG[name])
    assert any(run(law, found.subject, shrink=False).outcome == BROKEN for law in found.suite)


def test_values_print_as_source_with_their_imports() -> None:
    value = (
        torch.tensor([0.1, -torch.inf]),
        np.float64(0.25),
        torch.zeros((0, 2)),
        float("nan"),
        Path("a"),
        torch.int8,
    )
    text, imports = source(value)
    assert evaluated(text, imports) == ""
    assert "0.10000000149011612, float('-inf')" in text


@pytest.mark.slow
def test_a_script_reproduces_the_fault_without_purestep(tmp_path: Path) -> None:
    (tmp_path / "their_kl.py").write_text("def kl_turned(logp, ref_logp):\n    return (logp - ref_logp).expm1() + 1\n")
    found = chosen(load(f"{tmp_path / 'their_kl.py'}:kl_turned"))
    script = verify(found.suite, found.subject)["zero_at_equality"].script
    assert "purestep" not in script.replace("purestep:", "")
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=bare, cwd=tmp_path
    )
    assert ran.stdout.splitlines() == ["got tensor([1.])", "wanted tensor([0.])"]


def test_work_apart_ends_in_time_and_notes_what_it_does(tmp_path: Path) -> None:
    def work(i: int) -> int:
        if i == 1:
            time.sleep(60)
        if i == 2:
            os._exit(3)
        if i == 3:
            print("hello")
            (tmp_path / "written").write_text("x")
            time.sleep(0.001)
        return i

    found = list(each_apart(5, work, limit=1.0))
    kinds = [one.value if isinstance(one, ItemResult) else one.reason for one in found]
    assert kinds == [0, "did not end within 1 s", "ended the process (exit code 3)", 3, 4]
    assert isinstance(found[3], ItemResult)
    assert found[3].notes == (f"writes to {tmp_path / 'written'}", "prints 1 lines", "sleeps 0.0 s in all")


MODULE = """
    def kl_forever(logp, ref_logp):
        while True:
            pass

    def kl_gpu(logp, ref_logp):
        return (logp - ref_logp).cuda()

    def kl_of_four(logp, ref_logp, tau, nu):
        return tau * (logp - ref_logp)

    def kl_square(logp, ref_logp):
        return (logp - ref_logp).square() / 2
"""


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"theirs_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return f"{name}.py"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["kl_forever", "--limit", "0.1"], 1, "did not end within 0.1 s"),
        (
            ["kl_of_four"],
            2,
            "kl_of_four as kl is a function of tau, nu, wanted parameters that the suite draws; add --with tau=",
        ),
        (["kl_square", "--declare", "unbaised=True"], 2, "did you mean 'unbiased'"),
        (["nothing"], 2, "has no attribute 'nothing'"),
        *([] if torch.cuda.is_available() else [(["kl_gpu"], 1, "no law could run: it needs a GPU")]),
    ],
)
def test_bad_targets_end_in_one_line(
    theirs: str, capsys: pytest.CaptureFixture[str], words: list[str], code: int, says: str
) -> None:
    assert verify_command([f"{theirs}:{words[0]}", *words[1:]]) == code
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "name one target, --gym ID or --package NAME"),
        (["--gym", "CartPole-v1", "--package", "json"], "name one target, --gym ID or --package NAME"),
        (["--package", "no_such_package"], "no_such_package"),
        (["absent.py:x"], "absent.py"),
        (["THEIRS:kl_square", "--declare", "unbiased"], "wanted name=value"),
        (["THEIRS:kl_square", "--declare", "unbiased=(("], "write a Python expression"),
        (
            ["THEIRS:kl_square", "--suite", "wrapper"],
            "wanted inner declared; add --declare inner=VALUE",
        ),
        (
            ["THEIRS:kl_square", "--html", "no_folder/laws.html"],
            "wanted a file in a folder that exists; make no_folder first",
        ),
    ],
)
def test_a_command_that_cannot_be_is_one_line(
    theirs: str, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    assert verify_command([word.replace("THEIRS", theirs) for word in words]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "verify: verify:" not in error
    assert error.count("\n") == 1


def test_an_id_of_gymnasium_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify_command(["--gym", "CartPole-v1", "--only-name"]) == 0
    assert capsys.readouterr().out == "CartPole-v1: gym, because --gym names an environment\n"


def test_a_test_file_is_printed_and_its_errors_are_one_line(theirs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert write_command([f"{theirs}:kl_square"]) == 0
    assert "test_kl_square = " in capsys.readouterr().out
    assert write_command([f"{theirs}:nothing"]) == 2
    assert capsys.readouterr().err.startswith("purestep write: ")


def test_counterexamples_can_be_pasted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert paste.main(["--suite", "kl_laws", "--out", str(tmp_path / "paste.json")]) == 0
    pasted = json.loads((tmp_path / "paste.json").read_text())["figures"]
    assert pasted["pasted"] == pasted["counterexamples"] >= 3
    assert "counterexamples can be pasted" in capsys.readouterr().out


def test_a_convention_that_an_object_obeys_is_named(theirs: str, capsys: pytest.CaptureFixture[str]) -> None:
    pages = ["--junit", "laws.xml", "--html", "laws.html"]
    assert verify_command([f"{theirs}:kl_square", *pages]) == 1
    said = capsys.readouterr().out
    assert "because its name is kl_square; takes logp (log_prob), ref_logp (reference_log_prob)" in said
    assert "all its laws hold with --declare unbiased=False" in said
    suite = ElementTree.parse("laws.xml").getroot()[0]
    assert int(suite.attrib["failures"]) >= 1
    assert "<td class=broken>broken" in Path("laws.html").read_text()


def test_reports_are_printable_as_pages() -> None:
    report = verify(Suite("mine", (NUMBERS,)), lambda x: 3 * x)
    root = ElementTree.fromstring(junit_of([report]))
    assert root[0][0][0].tag == "failure"
    assert "&lt;lambda&gt;" in html_of([report])


def test_a_test_file_is_written_and_runs(theirs: str, tmp_path: Path, pytester: pytest.Pytester) -> None:
    out = pytester.path / "test_theirs.py"
    words = ["--declare", "unbiased=False", "--declare", "gradient=formula", "--out", str(out)]
    assert write_command([f"{tmp_path / theirs}:kl_square", *words]) == 0
    assert write_command([f"{tmp_path / theirs}:kl_square", *words]) == 2  # it exists
    result = pytester.runpytest("-p", "no:cacheprovider")
    assert result.parseoutcomes()["passed"] >= 4


def test_a_package_is_walked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "stranger_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("from .kl import kl_penalty\n")
    (folder / "kl.py").write_text("def kl_penalty(logp, ref_logp):\n    return 0 * logp + 1\nclass Buffer: pass\n")
    (folder / "broken.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert verify_command(["--package", "stranger_package"]) == 1
    said = capsys.readouterr().out
    assert "stranger_package:kl_penalty" in said
    assert "broken  zero_at_equality" in said
    assert "not imported: stranger_package.broken: SystemExit: 3" in said


def test_the_listing_shows_each_suite_with_signature_and_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert laws_command([]) == 0
    said = capsys.readouterr().out
    assert all(row.signature in said and row.example in said for row in ROWS)
    assert laws_command(["kl"]) == 0
    assert "catches: " in capsys.readouterr().out
    assert laws_command(["kll"]) == 2


def test_with_gives_values_and_strategies(theirs: str) -> None:
    value = load(f"{theirs}:kl_of_four")
    given = {"tau": st.sampled_from([1.0, 1.0]), "nu": 3}
    found = chosen(value, given=given, declared={"never_negative": False})
    assert verify(found.suite, found.subject)
    with pytest.raises(StructureError, match="nu"):
        chosen(value, given={"tau": 1.0})


def test_the_profiles_of_the_command_are_those_of_the_laws() -> None:
    assert cli.PROFILES == profiles.ORDER


def test_a_suite_is_named_also_where_it_cannot_call_the_object(theirs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify_command([f"{theirs}:kl_of_four", "--only-name"]) == 0
    assert f"{theirs}:kl_of_four: kl, because its name is kl_of_four" in capsys.readouterr().out
