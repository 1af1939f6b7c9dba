"""Export of a run's policy: what `purestep export` does."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import has

from ...core.errors import ExportError, message
from ..effects.policy_files.export import Exported, export
from ..runs.arguments import flatten
from ..runs.trusting import Trust
from ..trained_policy import TrainedPolicy
from .load_policy import load_trusted


def exported(run: Path, out: Path, trust: Trust, *, to: str, batch: int, overwrite: bool) -> Exported:
    """Write the policy of the run's newest checkpoint to a file. Raises: errors of `load` and `export`."""
    found = load_trusted(run, trust)
    if not isinstance(found, TrainedPolicy):
        wanted, remedy = "one of observations and actions", f"its model is a folder already: {run / 'model'}"
        raise ExportError(message(str(run), got="a language model's", wanted=wanted, remedy=remedy))
    settings: Mapping[str, Any] = flatten(found.arguments) if has(type(found.arguments)) else {}
    return export(found, out, to=to, batch=batch, overwrite=overwrite, settings=settings)
