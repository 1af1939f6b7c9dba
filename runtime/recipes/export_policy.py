"""Export of a run's policy: what `purestep export` does."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import has

from ...core import keys
from ...core.errors import ExportError, message
from ..effects.gymnasium_name import is_gymnasium_name
from ..effects.policy_files.export import RECORDED, Exported, export
from ..runs.arguments import flatten
from ..runs.trusting import Trust
from ..trained_policy import WORLDS, TrainedPolicy, visited
from .load_policy import load_trusted


def exported(run: Path, out: Path, trust: Trust, *, to: str, batch: int, overwrite: bool) -> Exported:
    """Write the policy of the run's newest checkpoint to a file. Raises: errors of `load` and `export`."""
    found = load_trusted(run, trust)
    if not isinstance(found, TrainedPolicy):
        wanted, remedy = "one of observations and actions", f"its model is a folder already: {run / 'model'}"
        raise ExportError(message(str(run), got="a language model's", wanted=wanted, remedy=remedy))
    settings: Mapping[str, Any] = flatten(found.arguments) if has(type(found.arguments)) else {}
    observations: Any = ()
    if is_gymnasium_name(str(settings.get("env", ""))):
        from ..effects.gymnasium.named import named_world  # here: Gymnasium is an extra

        with named_world(settings["env"], WORLDS) as world:
            observations = visited(found, max(RECORDED, batch), keys.key(0), world.env)
    return export(found, out, to=to, batch=batch, observations=observations, overwrite=overwrite, settings=settings)
