"""docs/laws.md: each block of Python runs, and the table has all suites with their laws and mutants."""

import re
from pathlib import Path
from typing import Any

import pytest

from purestep.properties.framework.families import families

PAGE = (Path(__file__).parents[3] / "docs" / "laws.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def table() -> list[str]:
    """The rows of the table: suite, laws, and mutants of the families that check it."""
    laws: dict[str, set[str]] = {}
    mutants: dict[str, set[str]] = {}
    for family in families():
        laws.setdefault(family.suite.name, set()).update(law.name for law in family.suite)
        mutants.setdefault(family.suite.name, set()).update(mutant.edit for mutant in family.mutants)
    rows = [
        f"| `{name}` | {len(laws[name])} | {len(mutants[name])} | {', '.join(sorted(laws[name]))} |" for name in laws
    ]
    return ["| suite | laws | mutants | names |", "|---|---|---|---|", *sorted(rows)]


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_blocks_run(block: str) -> None:
    names: dict[str, Any] = {}
    exec(compile(block, "docs/laws.md", "exec"), names)


def test_the_table_is_that_of_the_registry() -> None:
    assert [line for line in PAGE.partition("## Suites")[2].splitlines() if line.startswith("|")] == table()
