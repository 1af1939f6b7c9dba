"""The page on algorithms is true: its code runs, and its table has every recipe of an environment, with what it takes."""

import re
from pathlib import Path
from typing import Any

import pytest

from purestep.core.errors import ChoiceError, StructureError
from purestep.runtime.recipes.classic import RECIPES
from purestep.runtime.recipes.pipeline import actor_critic_pipeline
from purestep.runtime.runs.arguments import changed

PAGE = (Path(__file__).parents[3] / "docs" / "algorithms.md").read_text()
ROWS = {
    name: [cell.strip() for cell in rest.split("|")[:-1]]
    for name, rest in re.findall(r"^\| `(\w+)` \|(.*)$", PAGE, re.M)
}
SMALL = {"envs": 4, "horizon": 4, "hidden": (4,), "backend": "none"}


def test_the_code_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        assert len(code.splitlines()) <= 15
        exec(compile(code, "algorithms.md", "exec"), names)
    assert len(capsys.readouterr().out.splitlines()) == 5


@pytest.mark.parametrize("name", RECIPES)
def test_a_row_says_which_actions_and_whether_a_memory(name: str) -> None:
    actions, _, memory, _ = ROWS[name]

    def builds(env: str, **changes: Any) -> bool:
        recipe = RECIPES[name]
        arguments = changed(recipe.defaults(env), {**SMALL, **changes})
        try:
            recipe.check(arguments)
            actor_critic_pipeline(arguments)
        except (ChoiceError, StructureError):
            return False
        return True

    assert builds("cartpole") == ("discrete" in actions)
    assert builds("pendulum") == ("box" in actions)
    assert builds("cartpole", memory="lstm") == (memory == "yes")


def test_every_recipe_has_a_row() -> None:
    assert ROWS.keys() == RECIPES.keys()
