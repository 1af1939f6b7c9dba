"""One call that trains a model of yours on prompts with reward functions: `purestep.train_text`."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from ...core.errors import ChoiceError, message
from ..effects.checkpoint.atomic_files import FILE, kind, read_bytes, write_whole
from ..effects.layout import ARGUMENTS
from ..effects.rewards.given import name_of_function
from ..runs.recipe import SessionResult, find
from ..runs.run import train

Reward = str | Callable[..., Any]


def train_text(
    *,
    model: str | Path,
    prompts: str | Path | Sequence[Mapping[str, Any]],
    reward: Reward | Sequence[Reward],
    run: str | Path = "runs/text",
    overwrite: bool = False,
    notice: Callable[[str], None] = print,
    **settings: Any,
) -> SessionResult:
    """Train the model in a folder on prompts, with reward functions, in a new folder `run`; evaluate it before and after.

    `prompts` is a file as for `purestep train text --prompts`, or rows of a column "prompt" and others, which are written to
    RUN.prompts.jsonl. A reward is a function (prompts, completions, **columns) -> numbers as in TRL, MODULE:FUNCTION,
    FILE.py:FUNCTION or the name of one built in. `settings` are the flags of the command, with underscores. The run can be
    resumed, evaluated and viewed by the commands. Raises: ChoiceError, StructureError, CheckpointError.
    """
    rewards = [reward] if isinstance(reward, str) or callable(reward) else [*reward]
    recipe, folder = find("text"), Path(run)
    where = prompts if isinstance(prompts, str | Path) else folder.with_name(f"{folder.name}.prompts.jsonl")
    given = {"model": str(model), "prompts": str(where), "reward": tuple(map(name_of_function, rewards)), **settings}
    with nullcontext() if isinstance(prompts, str | Path) else _written(folder, Path(where), prompts):
        result = train(recipe, folder, overwrite=overwrite, notice=notice, **given)
    if not result.interrupted:
        for line in recipe.report(folder, (), notice):
            notice(line)
    return result


@contextmanager
def _written(run: Path, path: Path, rows: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """Write the rows for the block; if it raises and an older run is still in the folder, that run's rows are put back."""
    try:
        lines = [json.dumps(dict(row)) for row in rows]
    except (TypeError, ValueError) as cause:
        wanted, remedy = "rows of texts, numbers and lists of these", "leave other columns out"
        raise ChoiceError(
            message("train_text: prompts", got=f"not to be written ({cause})", wanted=wanted, remedy=remedy)
        ) from cause
    path.parent.mkdir(parents=True, exist_ok=True)
    older, record = _held(path), _held(run / ARGUMENTS)
    write_whole(path, "".join(f"{line}\n" for line in lines).encode())
    try:
        yield
    except BaseException:
        if not isinstance(older, tuple) and not isinstance(record, tuple) and _held(run / ARGUMENTS) == record:
            write_whole(path, older)
        raise


def _held(path: Path) -> bytes | tuple[()]:
    return read_bytes(path) if kind(path) == FILE else ()
