"""Strangers' objects: matched with a suite, called in the way that they need, judged by the convention that they declare."""

import importlib
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import time
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import gymnasium
import numpy as np
import pytest
import torch
from attrs import evolve, frozen
from hypothesis import strategies as st
from torch import Tensor

from purestep.algorithms.advantages import gae
from purestep.core.errors import StructureError
from purestep.properties import Broken, Law, Mutant, Seen, Suite, dyadic, kl_laws, require, run, same, verify
from purestep.properties.framework import cli, paste, profiles
from purestep.properties.framework.binding import subject_for
from purestep.properties.framework.calling import NO_GRADIENT
from purestep.properties.framework.catalogue import ROWS, import_named, rows, suite_of
from purestep.properties.framework.choice import choose_laws
from purestep.properties.framework.cli import laws_command, verify_command, write_command
from purestep.properties.framework.families import Family
from purestep.properties.framework.isolated import ItemResult, SideEffects, each_apart
from purestep.properties.framework.matching import CERTAIN, matches
from purestep.properties.framework.pages import html_of, junit_of
from purestep.properties.framework.paste import paste_fault
from purestep.properties.framework.report import BROKEN, SKIPPED
from purestep.properties.framework.script import script_of
from purestep.properties.framework.source import source
from purestep.properties.framework.target import load_target

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


def make_world() -> "gymnasium.Env[int, int]":
    raise NotImplementedError


def make_nothing() -> "a_name_that_is_not_here":  # type: ignore[name-defined]  # noqa: F821
    raise NotImplementedError


def test_annotations_in_quotes_and_functions_inside_of_a_partial_are_read() -> None:
    found = matches(make_world)[0]
    assert (found.row.suite, found.calls) == ("gym", True)
    assert not [one for one in matches(make_nothing) if one.score >= CERTAIN]
    kl = partial(strangers.kl_penalty, ref_logprob=torch.zeros(2))
    assert "its name is kl_penalty" in matches(partial(kl))[0].reasons


def test_a_subject_of_any_arguments_or_of_no_signature_stays_as_it_is() -> None:
    def kl_of_any(*columns: Tensor) -> Tensor:
        return columns[0] - columns[1]

    for value in (kl_of_any, max):
        assert subject_for(rows()["kl"], value) == (value, {})


def explained_var(prediction: Tensor, target: Tensor) -> Any:
    """Returns one minus a share of what is left."""
    if not target.numel() or float(target.var(correction=0)) == 0:
        return torch.tensor(torch.nan)
    return 1 - (target - prediction).var(correction=0) / target.var(correction=0)


def critic_loss(values: Tensor, returns: Tensor) -> Tensor:
    return 0.5 * (values - returns).square()


def clipped_critic_loss(values: Tensor, returns: Tensor, old_values: Tensor, clip: float) -> Tensor:
    near = old_values + (values - old_values).clamp(-clip, clip)
    return 0.5 * torch.maximum((values - returns).square(), (near - returns).square())


class PlainAdamW(torch.optim.AdamW): ...


class Columns:
    """An estimator that takes whatever it is given."""

    def __call__(self, *columns: Any, **numbers: Any) -> Tensor:
        found: Tensor = gae(*columns, **numbers)
        return found


@pytest.mark.parametrize(
    ("suite", "value", "declared"),
    [
        ("metric", explained_var, {"kind": "explained_variance"}),
        ("optimizer", PlainAdamW, {"rule": "adamw"}),
        ("value_loss", critic_loss, {"clipped": False, "detached": False}),
        ("value_loss", clipped_critic_loss, {"clipped": True, "detached": False}),
        ("estimator", gae, {}),
        ("estimator", Columns(), {}),
    ],
)
def test_a_name_and_parameters_declare_a_form_whose_laws_hold(suite: str, value: Any, declared: Any) -> None:
    found = choose_laws(value, suite)
    assert found.declared == declared
    report = verify(found.suite, found.subject, profile=evolve(profiles.named_profile("quick"), examples=10))
    assert report, str(report)


def test_a_metric_of_no_known_name_asks_for_its_kind() -> None:
    with pytest.raises(StructureError, match=r"kl_penalty, wanted one of .*; add --declare kind=KIND"):
        choose_laws(strangers.kl_penalty, "metric")


def test_an_estimator_that_returns_too_many_numbers_is_told_so() -> None:
    def gae_and_one(rewards: Tensor, values: Tensor, dones: Tensor, gamma: float, lam: float) -> Tensor:
        return torch.zeros(len(rewards) + 2)

    found = choose_laws(gae_and_one, "estimator")
    assert re.match(r"the result is \[\d+\], wanted \d+ numbers", run(found.suite.laws[0], found.subject).detail)


def test_a_suite_without_conventions_takes_no_declaration() -> None:
    with pytest.raises(StructureError, match=r"^env is \['steps'\], wanted no keyword; leave --declare out"):
        suite_of(rows()["env"], {"steps": 3})


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
        made = import_named(row.laws)
        if callable(made):
            takes = inspect.signature(made).parameters
            needed = {n for n, p in takes.items() if p.default is p.empty and p.kind is not p.VAR_KEYWORD}
            if needed <= set(row.declared):
                assert len(suite_of(row)) > 0


@pytest.mark.parametrize("suite", ["estimator", "reward_function", "schedule"])
def test_the_laws_of_a_suite_stand_below_its_signature(suite: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert laws_command([suite]) == 0
    head, signature, example, *laws = capsys.readouterr().out.splitlines()
    assert (head, signature.strip(), example.strip()) == (suite, str(rows()[suite].signature), rows()[suite].example)
    assert len(laws) % 3 == 0
    assert len(laws) > 6


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
    found = choose_laws(getattr(strangers, name), **strangers.RIGHT[name])
    report = verify(found.suite, found.subject, profile=evolve(profiles.named_profile("quick"), examples=12))
    assert report, str(report)


@pytest.mark.parametrize("name", strangers.WRONG)
def test_wrong_code_in_these_conventions_is_caught(name: str) -> None:
    found = choose_laws(getattr(strangers, name), **strangers.WRONG[name])
    assert any(run(law, found.subject, shrink=False).outcome == BROKEN for law in found.suite)


def test_values_print_as_source_with_their_imports() -> None:
    value = (
        torch.tensor([0.1, -torch.inf]),
        np.float64(0.25),
        torch.zeros((0, 2)),
        float("nan"),
        Path("a"),
        torch.int8,
        np.zeros((0, 2), np.float32),
        HTTPStatus.NOT_FOUND,
        partial(paste_fault, imports=["import torch"]),
        urlsplit("https://a/b"),
    )
    text, imports = source(value)
    assert paste_fault(text, imports) == ""
    assert "0.10000000149011612, float('-inf')" in text
    assert "HTTPStatus.NOT_FOUND, partial(paste_fault, imports=['import torch']), SplitResult(" in text


@frozen
class Numbers:
    """Functions of a subject of several, with its name."""

    double: Any
    name: str = "double"


def array_double(x: Any) -> dict[str, Any]:
    return {"twice": 2 * x.astype(np.float64), "name": "x"}


def of_parts(subject: Any, x: Tensor, seen: Seen) -> None:
    found = subject.double(x)
    same("twice the number", found["twice"], 2 * x)
    require(found["name"] == "x", "the name is kept")


def test_a_function_of_an_object_is_called_in_its_way_and_its_parts_are_tensors() -> None:
    law = evolve(NUMBERS, check=of_parts)
    result = run(law, Numbers(array_double))
    assert (result.outcome, result.way) == ("passed", "numpy arrays")
    wrong = run(law, Numbers(lambda x: {**array_double(x), "name": "y"}))
    assert (wrong.outcome, wrong.way) == (BROKEN, "numpy arrays")
    a_class = run(law, Numbers)
    assert (a_class.way, type(a_class.error)) == ("", TypeError)  # a class is called in no other way


def test_a_law_of_a_gradient_is_skipped_where_numbers_have_no_graph() -> None:
    def kl_of_arrays(log_prob: Any, reference_log_prob: Any) -> Any:
        off = np.subtract(np.asarray(reference_log_prob), np.asarray(log_prob))
        return np.exp(off) - off - 1

    report = verify(kl_laws() - {"scale"}, kl_of_arrays)
    assert (report["gradient_is_the_slope"].outcome, report["gradient_is_the_slope"].detail) == (SKIPPED, NO_GRADIENT)
    assert report["zero_at_equality"].outcome == "passed"
    assert f'message="{NO_GRADIENT}"' in junit_of([report])


@pytest.fixture
def their_doubles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    text = "def thrice(x):\n    return 3 * x\n\n\ndef refuses(x):\n    raise ValueError('not\\na number')\n"
    (tmp_path / "their_doubles.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("their_doubles")
    yield module
    monkeypatch.delitem(sys.modules, "their_doubles")


def test_a_script_shows_what_a_call_returned_or_raised(their_doubles: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def printed(script: str) -> list[str]:
        exec(script, {})
        return capsys.readouterr().out.splitlines()

    of_an_object = evolve(NUMBERS, check=lambda subject, x, seen: NUMBERS.check(subject.double, x, seen))
    script = run(of_an_object, Numbers(their_doubles.thrice)).script
    assert printed(script) == ["got tensor([0.0000, 0.7500])", "wanted tensor([0.0000, 0.5000])"]
    script = run(NUMBERS, their_doubles.refuses).script
    assert "# raises ValueError: not a number" in script
    with pytest.raises(ValueError, match="not"):
        printed(script)
    installed = run(NUMBERS, torch.nn.functional.relu).script
    assert "sys.path" not in installed
    assert printed(installed)[0].startswith("got ")
    assert script_of(NUMBERS, torch.add, "", torch.ones(2), "") == ""  # it raises, and is no function of a module
    assert script_of(evolve(NUMBERS, check=lambda *given: None), their_doubles.thrice, "", torch.ones(2), "") == ""


@pytest.mark.slow
def test_a_script_reproduces_the_fault_without_purestep(tmp_path: Path) -> None:
    (tmp_path / "their_kl.py").write_text("def kl_turned(logp, ref_logp):\n    return (logp - ref_logp).expm1() + 1\n")
    found = choose_laws(load_target(f"{tmp_path / 'their_kl.py'}:kl_turned"))
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
        if i == 4:
            sys.exit(5)
        if i == 5:
            raise ValueError(i)
        return i

    found = list(each_apart(7, work, limit=1.0))
    kinds = [one.value if isinstance(one, ItemResult) else one.reason for one in found]
    ended = [f"ended the process (exit code {code})" for code in (3, 5, 1)]
    assert kinds == [0, "did not end within 1 s", ended[0], 3, ended[1], ended[2], 6]
    assert isinstance(found[3], ItemResult)
    assert found[3].notes == (f"writes to {tmp_path / 'written'}", "prints 1 lines", "sleeps 0.0 s in all")


def test_work_is_done_here_where_there_are_no_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    found = list(each_apart(2, lambda i: (i, os.getpid()), limit=1.0))
    assert found == [ItemResult((0, os.getpid())), ItemResult((1, os.getpid()))]


def test_notes_are_of_files_processes_and_connections_each_once() -> None:
    """In a child nothing else than the work makes notes; here what an audit hook is told is passed by hand."""
    notes = SideEffects()
    notes.hook("open", ("before", "w", 0))
    notes.on = True
    for event in (("open", ("a", "w", 0)), ("open", ("b", "r", 0)), ("open", (3, None, 0)), ("open", ("a", "w", 0))):
        notes.hook(*event)
    for name in ("subprocess.Popen", "os.system", "socket.connect", "import"):
        notes.hook(name, ())
    assert notes.notes == ["writes to a", "starts a process", "opens a connection"]


MODULE = """
    import torch

    from purestep.core.errors import ShapeError

    def kl_forever(logp, ref_logp):
        while True:
            pass

    def kl_gpu(logp, ref_logp):
        return (logp - ref_logp).cuda()

    def kl_of_four(logp, ref_logp, tau, nu):
        return tau * (logp - ref_logp)

    def kl_square(logp, ref_logp):
        return (logp - ref_logp).square() / 2

    def kl_of_one(logp):
        return logp

    def kl_constant(logp, ref_logp):
        return 0 * logp - 1

    class ClippedBuffer:
        def __init__(self, capacity, low, high):
            self.capacity, self.rows = capacity, []

        def __len__(self):
            return len(self.rows)

        def add(self, step):
            self.rows = [*self.rows, step][-self.capacity :]

        def sample(self, count):
            drawn = [self.rows[i] for i in torch.randint(len(self.rows), (count,)).tolist()]
            return {name: torch.stack([torch.as_tensor(step[name]) for step in drawn]) for name in drawn[0]}

    class ListBuffer(ClippedBuffer):
        def sample(self, count):
            return self.rows[:count]

    def make_kl():
        return kl_square

    def refuses():
        raise ShapeError("no kl here")
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
            3,
            "kl_of_four as kl is a function of tau, nu, wanted parameters that the suite draws; add --with tau=",
        ),
        (["kl_square", "--declare", "unbaised=True"], 2, "did you mean 'unbiased'"),
        (["nothing"], 2, "has no attribute 'nothing'"),
        (["kl_of_one", "--suite", "kl"], 3, "kl is a function without reference_log_prob, wanted one with them"),
        (["refuses", "--call"], 2, "no kl here"),
        (["kl_constant", "--limit", "20"], 3, "and so called it keeps"),
        (["kl_constant", "--limit", "20", "--suite", "kl"], 1, "broken  zero_at_equality"),
        (["kl_square", "--suite", "wrapper"], 3, "wanted inner declared; add --declare inner=VALUE"),
        (["ClippedBuffer"], 3, "no verdict: ClippedBuffer as replay is a class whose constructor takes low, high"),
        *([] if torch.cuda.is_available() else [(["kl_gpu"], 3, "no law could run: it needs a GPU")]),
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
    assert write_command(["purestep.algorithms.kl:k3"]) == 0
    printed = capsys.readouterr().out
    assert "from purestep.algorithms.kl import k3" in printed
    assert "sys.path" not in printed
    assert write_command([f"{theirs}:nothing"]) == 2
    assert capsys.readouterr().err.startswith("purestep write: ")


def test_counterexamples_can_be_pasted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert paste.main(["--suite", "kl_laws", "--out", str(tmp_path / "paste.json")]) == 0
    pasted = json.loads((tmp_path / "paste.json").read_text())["figures"]
    assert pasted["pasted"] == pasted["counterexamples"] >= 3
    assert "counterexamples can be pasted" in capsys.readouterr().out


class Unprintable:
    """A value that no source makes again."""

    def __repr__(self) -> str:
        return "Nowhere()"


def families_of_three() -> tuple[Family, ...]:
    """A counterexample that can be pasted, one that cannot, and a mutant that its law does not catch."""
    unprintable = evolve(NUMBERS, name="unprintable", inputs=lambda subject: st.just(Unprintable()), check=fails)
    spared = evolve(NUMBERS, name="spared", mutant=Mutant("nothing", lambda subject: subject))
    return (Family(Suite("three_laws", (NUMBERS, unprintable, spared)), lambda x: 2 * x),)


def fails(subject: Any, x: Any, seen: Seen) -> None:
    raise Broken("always")


def test_a_counterexample_that_cannot_be_pasted_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "three_families", sys.modules[__name__])
    assert paste.main(["--families", "three_families:families_of_three"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "three_laws unprintable: NameError: name 'Nowhere' is not defined"
    assert said[-1] == "1 of 2 counterexamples can be pasted"


def test_a_convention_that_an_object_obeys_is_named(theirs: str, capsys: pytest.CaptureFixture[str]) -> None:
    pages = ["--junit", "laws.xml", "--html", "laws.html"]
    assert verify_command([f"{theirs}:kl_square", *pages]) == 0
    said = capsys.readouterr().out
    assert "because its name is kl_square; takes logp (log_prob), ref_logp (reference_log_prob)" in said
    assert "all its laws hold with --declare unbiased=False" in said
    suite = ElementTree.parse("laws.xml").getroot()[0]
    assert int(suite.attrib["tests"]) >= 1
    assert int(suite.attrib["failures"]) == 0
    assert "<td class=broken>broken" not in Path("laws.html").read_text()


def test_a_command_that_is_printed_gets_to_the_laws(theirs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify_command([f"{theirs}:kl_of_four"]) == 3
    command = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(rf"purestep verify {re.escape(theirs)}:kl_of_four --with tau=[\d.]+ --with nu=[\d.]+", command)
    assert verify_command(shlex.split(command)[2:]) in (0, 1)
    assert "kl_laws, kl_of_four: " in capsys.readouterr().out


def test_a_constructor_is_given_what_it_needs(theirs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify_command([f"{theirs}:ClippedBuffer"]) == 3
    command = capsys.readouterr().out.splitlines()[-1]
    assert command == f"purestep verify {theirs}:ClippedBuffer --with low=0.1 --with high=0.5"
    assert verify_command(shlex.split(command)[2:]) == 0
    assert verify_command([f"{theirs}:ListBuffer"]) == 3  # it has no verdict with any numbers, so no command has them
    said = capsys.readouterr()
    assert "ListBuffer as replay is a class whose constructor takes low, high" in said.err
    assert said.out.splitlines()[-1] == "purestep laws replay"


BANDIT = """
    import gymnasium
    import torch

    class Bandit(gymnasium.Env):
        observation_space, action_space = gymnasium.spaces.Discrete(1), gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return 0, {}

        def step(self, action):
            return 0, float(self.np_random.random() < 0.5), True, False, {}

    def capped_importance_weights(logprobs, old_logprobs, mask, cap=2.0):
        return torch.exp(logprobs - old_logprobs).clamp(max=cap) * mask
"""


def test_a_law_about_what_never_happens_to_an_object_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bandit.py").write_text(textwrap.dedent(BANDIT))
    assert verify_command(["bandit.py:Bandit"]) == 3
    said = capsys.readouterr()
    assert "it keeps the laws of gym, but no input was about reset_forgets and observations_stay" in said.err
    command = said.out.splitlines()[-1]
    assert command.endswith("--skip 'reset_forgets=never seen' --skip 'observations_stay=never seen'")
    assert verify_command(shlex.split(command)[2:]) == 0
    assert verify_command(["bandit.py:capped_importance_weights"]) == 0
    assert "all its laws hold with --declare low=0.0" in capsys.readouterr().out


def test_a_keyword_of_another_name_is_given_and_not_left_at_its_default(theirs: str) -> None:
    def compute_gae(
        rewards: Tensor,
        values: Tensor,
        next_values: Tensor,
        terminated: Tensor,
        truncated: Tensor,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
    ) -> Tensor:
        return gae(rewards, values, next_values, terminated, truncated, gamma=gamma, lambda_=gae_lambda)

    found = choose_laws(compute_gae)
    assert verify(found.suite, found.subject)


def test_no_convention_is_named_where_none_holds(theirs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify_command([f"{theirs}:kl_constant", "--suite", "kl"]) == 1
    assert "hold with" not in capsys.readouterr().out


def test_an_object_that_a_call_returns_is_named(theirs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify_command([f"{theirs}:make_kl", "--call", "--only-name"]) == 0
    assert "because its name is kl_square" in capsys.readouterr().out


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
    taken = "def kl_of_four(logp, ref_logp, tau, nu): pass\nclass ReplayBuffer:\n    def add(self): pass\n"
    (folder / "more.py").write_text(f"{taken}    def sample(self): pass\n")
    (folder / "tests.py").write_text("raise ValueError('a test is not imported')")
    (folder / "broken.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert verify_command(["--package", "stranger_package"]) == 1
    said = capsys.readouterr().out
    assert "stranger_package:kl_penalty" in said
    assert "broken  zero_at_equality" in said
    assert said.count("not imported: ") == 1
    assert "not imported: stranger_package.broken: SystemExit: 3" in said
    assert "not called: purestep verify stranger_package.more:ReplayBuffer --call" in said
    assert "kl_of_four as kl is a function of tau, nu" in said
    (tmp_path / "stranger_module.py").write_text("def kl_penalty(logp, ref_logp):\n    return logp - ref_logp\n")
    assert verify_command(["--package", "stranger_module"]) == 1
    assert "1 functions and classes, 1 checked, 1 with a broken law" in capsys.readouterr().out


def test_the_listing_shows_each_suite_with_signature_and_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert laws_command([]) == 0
    said = capsys.readouterr().out
    assert not [row.suite for row in ROWS if row.signature.text.startswith(("f(", "make("))], "these are data"
    assert all(str(row.signature) in said and row.example in said for row in ROWS)
    assert laws_command(["kl"]) == 0
    assert "catches: " in capsys.readouterr().out
    assert laws_command(["kll"]) == 2


def test_with_gives_values_and_strategies(theirs: str) -> None:
    value = load_target(f"{theirs}:kl_of_four")
    given = {"tau": st.sampled_from([1.0, 1.0]), "nu": 3}
    found = choose_laws(value, given=given, declared={"never_negative": False})
    assert verify(found.suite, found.subject)
    with pytest.raises(StructureError, match="nu"):
        choose_laws(value, given={"tau": 1.0})


def test_the_profiles_of_the_command_are_those_of_the_laws() -> None:
    assert cli.PROFILES == profiles.ORDER


def test_a_suite_is_named_also_where_it_cannot_call_the_object(theirs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify_command([f"{theirs}:kl_of_four", "--only-name"]) == 0
    assert f"{theirs}:kl_of_four: kl, because its name is kl_of_four" in capsys.readouterr().out
