"""No law without a mistake it catches: every law kills its own mutant, spares the original, and is told apart from others."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from purestep.properties.framework.families import Family
from purestep.properties.framework.families import families as for_users
from purestep.properties.framework.law import Law, Mutant
from purestep.properties.framework.matrix import Row, Table, commit, faults, laws_here, main, matrix_values
from purestep.properties.framework.profiles import Profile, named_profile
from purestep.properties.framework.report import BROKEN, PASSED, SKIPPED, VACUOUS
from purestep.properties.framework.run import run

from ...laws.families import families as for_ourselves
from ...support.quick_draws import FEWER

TESTS = Path(__file__).parents[2]
QUICK, NIGHT = named_profile("quick"), named_profile("night")
FAMILIES = (*for_users(), *for_ourselves())
ALL = [laws_here(family, QUICK) for family in FAMILIES if not family.night]
LAWS = [pytest.param(family, law, id=f"{family.suite.name}-{law.name}") for family in ALL for law in family.suite]
OF_THE_NIGHT = [laws_here(family, NIGHT) for family in FAMILIES if family.night]
NIGHT_LAWS = [
    pytest.param(family, law, id=f"{family.suite.name}-{law.name}") for family in OF_THE_NIGHT for law in family.suite
]
OWNED = {(family.suite.name, law.mutant.edit) for family in ALL for law in family.suite}  # killed where laws are tested
PAIRS = [(family, mutant) for family in ALL for mutant in family.mutants]
# suites of our own machinery, whose mutants beyond those of laws are killed in the slow set
OURS = {family.suite.name for family in for_ourselves()}
UNOWNED = [
    pytest.param(
        family,
        made,
        id=f"{family.suite.name}-{made.edit}",
        marks=pytest.mark.slow if family.suite.name in OURS else (),
    )
    for family, made in PAIRS
    if (family.suite.name, made.edit) not in OWNED
]
TESTED = "".join(path.read_text() for path in TESTS.rglob("test_*.py"))
CHECKED = set(re.findall(r"\bcheck\w*\(\s*(\w+_laws)\b", TESTED))  # suites that a test of their own checks in full
FEW, ONE = evolve(QUICK, examples=5), evolve(QUICK, examples=1)
COMPILES = "compiled_is_eager"


def outcome(law: Law, subject: Any, profile: Profile = QUICK) -> str:
    return run(law, subject, profile=profile, shrink=False).outcome


@pytest.mark.parametrize(("family", "law"), LAWS)
def test_every_law_kills_its_mutant_and_spares_the_original(family: Family, law: Law) -> None:
    """The original is tried with at least as many draws as the mutant needs, here or where its suite is tested."""
    killed = run(law, law.mutant.make(family.subject), profile=QUICK, shrink=False)
    assert killed.outcome == BROKEN
    if family.suite.name in CHECKED and killed.examples <= FEWER.examples:
        assert outcome(law, family.subject, ONE) != BROKEN
        return
    found = outcome(law, family.subject, evolve(QUICK, examples=max(FEWER.examples, killed.examples)))
    assert (outcome(law, family.subject) if found == VACUOUS else found) in (PASSED, SKIPPED)


@pytest.mark.parametrize(("family", "mutant"), UNOWNED)
def test_every_mutant_of_no_law_is_killed_by_some_law(family: Family, mutant: Mutant) -> None:
    laws = [law for law in family.suite if law.name != COMPILES]
    for profile in (FEW, QUICK):  # most laws need no more than a few draws
        if any(outcome(law, mutant.make(family.subject), profile) == BROKEN for law in laws):
            return
    pytest.fail("no law kills it")


@pytest.mark.slow
@pytest.mark.parametrize("family", [pytest.param(family, id=family.suite.name) for family in ALL])
def test_every_mutant_is_spared_by_some_law(family: Family) -> None:
    """What every law kills tells no law from another."""
    laws = [law for law in reversed(list(family.suite)) if law.name != COMPILES]

    def spared(mutant: Mutant) -> bool:
        return any(outcome(law, mutant.make(family.subject), FEW) != BROKEN for law in laws)

    assert len(laws) < 3 or [mutant.edit for mutant in family.mutants if not spared(mutant)] == []


def row(edit: str, owners: tuple[str, ...], **outcomes: str) -> Row:
    return Row(edit, owners, outcomes)


def test_faults_of_a_matrix_are_named() -> None:
    table = Table(
        "some_laws",
        (
            row("(the original)", (), one=PASSED, two=BROKEN, three=PASSED),
            row("spared by its own", ("one",), one=PASSED, two=BROKEN, three=PASSED),
            row("harmless", (), one=PASSED, two=PASSED, three=PASSED),
            row("coarse", (), one=BROKEN, two=BROKEN, three=BROKEN),
            row("good", ("one",), one=BROKEN, two=PASSED, three=PASSED),
        ),
        0.0,
    )
    assert faults([table]) == [
        "some_laws: (the original): does not pass ['two']",
        "some_laws: spared by its own: spared by the law it belongs to, ['one']",
        "some_laws: harmless: killed by no law",
        "some_laws: coarse: killed by every law, too coarse to tell them apart",
    ]
    assert matrix_values([table])["killed"] == 3


def test_suites_of_users_and_of_our_own_machinery_are_counted_apart(capsys: pytest.CaptureFixture[str]) -> None:
    users, own = ({family.suite.name for family in families()} for families in (for_users, for_ourselves))
    assert users.isdisjoint(own)
    assert main(["--families", f"{for_ourselves.__module__}:families", "--suite", "hands_laws"]) == 0
    assert capsys.readouterr().out.splitlines()[-2].startswith("1 suites, ")
    assert main(["--suite", "hands_laws"]) == 0
    assert capsys.readouterr().out.startswith("0 suites, ")


def test_the_command_prints_a_table_and_writes_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "matrix.json"
    assert main(["--suite", "categorical_laws", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "| gives logits for log-probs | **KILL** | . | KILL | . |" in printed
    assert "every law kills its own mutant and spares the original" in printed
    written = json.loads(out.read_text())
    assert set(written) == {"commit", "command", "seconds", "figures"}
    assert written["figures"]["mutants"] == written["figures"]["killed"] == 4
    assert written["commit"] == commit()
    monkeypatch.setenv("PATH", "")
    assert commit() == "unknown"  # without git


@pytest.mark.slow
@pytest.mark.parametrize(("family", "law"), NIGHT_LAWS)
def test_every_law_of_the_night_kills_its_mutant_which_another_spares(family: Family, law: Law) -> None:
    mutant = law.mutant.make(family.subject)
    assert outcome(law, mutant, NIGHT) == BROKEN
    assert outcome(law, family.subject, NIGHT) == PASSED
    assert any(outcome(other, mutant, NIGHT) == PASSED for other in family.suite if other is not law)
