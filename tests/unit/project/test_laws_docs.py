"""docs/laws.md: each block of Python runs, and the table has all suites with their laws and mutants."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from purestep.properties.framework.catalogue import rows as catalogue
from purestep.properties.framework.families import families

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "laws.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def table() -> list[str]:
    """The rows of the table: suite, laws, mutants of the families that check it, and the mistakes of others that it caught."""
    laws: dict[str, set[str]] = {}
    mutants: dict[str, set[str]] = {}
    for family in families():
        laws.setdefault(family.suite.name, set()).update(law.name for law in family.suite)
        mutants.setdefault(family.suite.name, set()).update(mutant.edit for mutant in family.mutants)
    bugs, defects = caught()
    rows = [
        f"| `{name}` | {len(own)} | {len(mutants[name])} | {bugs[name]} | {defects[name]} | {', '.join(sorted(own))} |"
        for name, own in laws.items()
    ]
    return ["| suite | laws | mutants | public bugs | defects | names |", "|---|---|---|---|---|---|", *sorted(rows)]


def caught() -> tuple[Counter[str], Counter[str]]:
    """Bugs of public threads that a suite kills, and defects that it found in released packages, by suite."""
    bugs = Counter[str]()
    for name in ("own_bugs", "own_bugs_second"):
        each = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())["figures"]["each"]
        found = [one["bug"]["suite"] for one in each.values() if one["bug"]["broken"]]
        bugs.update(catalogue()[suite].laws[1] if suite in catalogue() else f"{suite}_laws" for suite in found)
    texts = [path.read_text() for path in (ROOT / "benchmarks" / "wild" / "examples").glob("*.py")]
    suites = [re.search(r"^suite: (.*)$", text, re.MULTILINE) for text in texts if "\njudgement: defect\n" in text]
    return bugs, Counter(name for suite in suites if suite for name in re.findall(r"\w+_laws", suite[1]))


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_blocks_run(block: str) -> None:
    names: dict[str, Any] = {}
    exec(compile(block, "docs/laws.md", "exec"), names)


def test_the_table_is_that_of_the_registry() -> None:
    assert [line for line in PAGE.partition("## Suites")[2].splitlines() if line.startswith("|")] == table()
