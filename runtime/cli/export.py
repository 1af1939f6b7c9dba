"""`purestep export RUN OUT --to FORM`: write a trained policy as a file for other programs."""

from pathlib import Path
from typing import Literal

import tyro

from ...core.errors import ChoiceError, message
from ..effects.policy_files.place import check_place
from ..recipes.text import TextRecipe
from ..runs.arguments import check_whole
from ..runs.kinds import record_of
from ..runs.recipe import find
from ..runs.trusting import Trust
from .common import loading


def export_command(words: list[str]) -> int:
    """`purestep export RUN OUT --to FORM`: writes the policy of the newest checkpoint and prints how it was checked."""

    def export(
        run: tyro.conf.Positional[Path],
        out: tyro.conf.Positional[Path],
        /,
        *,
        to: Literal["torch", "onnx", "safetensors"],
        batch: int = 0,
        overwrite: tyro.conf.FlagCreatePairsOff[bool] = False,
        trust: tyro.conf.FlagCreatePairsOff[bool] = False,
    ) -> int:
        """Write the policy of a run as a file that needs no purestep: it maps an observation to the likeliest action.

        The normaliser and the bounds of the action space are part of it. The file's actions are compared with the policy's on
        recorded observations before it is written.

        Args:
            run: the run's folder
            out: the file
            to: a program of torch.export; of ONNX (extra `onnx`); or the weights with a description
            batch: observations that it takes at once; 0 is one, without an axis for them
            overwrite: replace the file if there is one
            trust: import the environment that the run's folder names
        """
        check_whole("--batch", batch, 0)
        place = check_place(out, overwrite=overwrite)
        loading(run)
        _check_kind(run)
        from ..recipes.export_policy import exported  # here: it imports torch

        trusted = Trust(every=trust, typed=("export", *words), by_name=False)
        print(exported(run, place, trusted, to=to, batch=batch, overwrite=overwrite).line())
        return 0

    return tyro.cli(export, args=words, prog="purestep export")


def _check_kind(run: Path) -> None:
    """Refuse the run of a language model. Raises: ChoiceError."""
    held = record_of(run)
    if "recipe" in held and isinstance(find(str(held["recipe"])), TextRecipe):
        got, wanted = "a run of a language model", "one whose policy maps observations to actions"
        remedy = f"its model is a Hugging Face folder already: {run / 'model'}"
        raise ChoiceError(message(str(run), got=got, wanted=wanted, remedy=remedy))
