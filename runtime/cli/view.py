"""`purestep view RUN`: a page with the settings, curves, evaluations and conversations of a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tyro

from ...core.errors import CheckpointError, ChoiceError
from ..effects.layout import PAGE
from ..effects.reporting.page_file import check_page, save_page
from ..effects.reporting.run_page import About, run_page, steps_of
from ..machine.json_codec import decode
from ..runs.arguments import check_whole, flag, flatten, from_record
from ..runs.kinds import recorded
from ..runs.registry import recipe_of
from .common import loading

NOWHERE = Path()
KEPT = "keep_conversations"


def view_command(words: list[str]) -> int:
    """`purestep view RUN`: writes the page and prints its path."""

    def view(run: tyro.conf.Positional[Path], /, *, out: Path = NOWHERE, steps: str = "", megabytes: int = 32) -> int:
        """Write a page of a run, to be opened in a browser: curves, evaluations, the conversations it was trained on.

        The page loads nothing from anywhere. Of a run that is under way it shows what there is.

        Args:
            run: the run's folder
            out: the page; by default view.html in the run's folder
            steps: the steps whose conversations the page has, such as 40-60; by default all
            megabytes: of conversations on the page, at most; of more, steps evenly spread
        """
        check_whole("--megabytes", megabytes, 1, 1024)
        chosen = steps_of(steps)
        loading(run)
        place = check_page(run / PAGE if out == NOWHERE else out)
        print(save_page(run_page(run, about(run), steps=chosen, most=megabytes << 20), place))
        return 0

    return tyro.cli(view, args=words, prog="purestep view")


def about(run: Path) -> About:
    """Return the title and the settings of a run; all settings count as the defaults of a recipe that is not installed.

    Raises: CheckpointError.
    """
    held = decode(recorded(run))
    settings = {name: value for name, value in held.items() if name != "recipe"}
    name = str(held.get("reference", "")).rpartition(":")[2] or str(held.get("recipe", run.name))
    try:
        recipe = recipe_of(held)
        usual = recipe.defaults(
            [flag(recipe.chosen_by), str(held.get(recipe.chosen_by, ""))] if recipe.chosen_by else []
        )
        title = recipe.title(from_record(recipe.name, usual, held))
    except (CheckpointError, ChoiceError):
        return About(title=name, settings=settings, changed=frozenset(), absent=absent(held))
    changed = frozenset(one for one, value in flatten(usual).items() if settings[one] != value and one != "reference")
    title = title.replace(recipe.name, name, 1)
    return About(title=title, settings=settings, changed=changed, absent=absent(held))


def absent(held: Mapping[str, Any]) -> str:
    """Return the text in place of conversations of a run without any; "" of a run that has none by its nature.

    >>> absent({"recipe": "ppo"})
    ''
    """
    if not held.keys() >= {"mode", "generators"}:
        return ""
    how = "train with --keep-conversations 16 to keep those of the first 16 groups of each step"
    return (
        f"There are no conversations: {'none was kept; ' if not held.get(KEPT) else 'no step is finished yet; '}{how}."
    )
