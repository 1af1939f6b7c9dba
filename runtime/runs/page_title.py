"""Title and settings of a run for its page, from its record: read without torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...core.errors import CheckpointError, ChoiceError
from ..effects.reporting.run_page import About
from .arguments import flatten, from_record, settings_in
from .kinds import record_of
from .recipe import recipe_of

KEPT = "keep_conversations"


def title_and_settings(run: Path) -> About:
    """Return the title and the settings of a run; of a recipe that is not installed, none counts as changed.

    Raises: CheckpointError.
    """
    held = record_of(run)
    settings = settings_in(held)
    name = str(held.get("reference", "")).rpartition(":")[2] or str(held.get("recipe", run.name))
    try:
        recipe = recipe_of(held)
        by = recipe.chosen_by
        usual = recipe.defaults(str(held.get(by, "")) if by else None)
        title = recipe.title(from_record(recipe.name, usual, held))
    except (CheckpointError, ChoiceError):
        return About(title=name, settings=settings, changed=frozenset(), absent=why_no_conversations(held))
    changed = frozenset(one for one, value in flatten(usual).items() if settings[one] != value and one != "reference")
    return About(
        title=title.replace(recipe.name, name, 1),
        settings=settings,
        changed=changed,
        absent=why_no_conversations(held),
    )


def why_no_conversations(held: Mapping[str, Any]) -> str:
    """Return the text in place of conversations, for a run without any; "" for one that is not of a language model.

    >>> why_no_conversations({"recipe": "ppo"})
    ''
    """
    if not held.keys() >= {"mode", "generators"}:
        return ""
    why = "no step is finished yet" if held.get(KEPT) else "none was kept"
    how = "train with --keep-conversations 16 to keep those of the first 16 groups of each step"
    return f"There are no conversations: {why}; {how}."
