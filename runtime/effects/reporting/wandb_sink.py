"""Metrics to Weights & Biases: a sink of rows, with the extra `wandb`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

from ....core.errors import ChoiceError, describe_error, message
from ..checkpoint.atomic_files import new_folder, write_whole
from ..hugging_face.optional import library
from ..layout import WANDB
from .metrics import Row, Sink, number_in_row

ID = "purestep_id"  # file with the id of the run, with which a resumed one goes on


@contextmanager
def wandb_sink(folder: Path, project: str, *, name: str, by: str = "iteration") -> Iterator[Sink]:
    """Send every column as a metric over the column `by` to a run in a project; its files are in FOLDER/wandb.

    Raises: ModuleNotFoundError without the library; ChoiceError if it cannot begin a run.
    """
    wandb = library("wandb", extra="wandb")
    place = new_folder(folder / WANDB) / ID
    known = place.read_text() if place.is_file() else token_hex(8)
    write_whole(place, known.encode())
    quiet = wandb.Settings(console="off", silent=True)
    try:
        run = wandb.init(project=project, name=name, id=known, resume="allow", dir=str(folder), settings=quiet)
    except Exception as cause:
        remedy = "wandb login, or export WANDB_MODE=offline"
        raise ChoiceError(
            message(f"--wandb {project}", got=describe_error(cause), wanted="a run", remedy=remedy)
        ) from cause

    def write(row: Row) -> None:
        run.log({name: value for name, value in row.items() if name != by}, step=int(number_in_row(row, by)))

    try:
        yield write
    finally:
        run.finish()
