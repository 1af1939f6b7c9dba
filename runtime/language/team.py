"""Who learns in a run and keeps its checkpoints: this process, or several ranks that it leads; see `ranked` for those."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from attrs import frozen

from ...algorithms.language import LanguageAlgorithm, LanguageState, learner
from ...algorithms.language_batch import Reading
from ...core.errors import CheckpointError
from ...core.transcript import Transcript
from ..effects import checkpoint, folder
from ..effects.checkpoint import Checkpoint
from ..effects.files import INSIDE
from ..effects.sharded.description import Description, described
from ..effects.step_folders import steps
from ..language_train import Trainer, language_reader
from .config import TextConfig
from .learning import algorithm_of, objective_of, optimizer_of, trainer_of
from .parts import Parts

Reader = Callable[[LanguageState, Transcript], Reading]
Report = Callable[[str], None]


@frozen(kw_only=True)
class Team:
    """What a run needs done by whoever learns. Each `init` of a learner gives a state that the others' functions take."""

    size: int  # ranks
    check: Callable[[TextConfig], None]  # raises ChoiceError for what so many cannot do
    parts: Callable[[Parts], Parts]  # the same parts, whose `whole` takes parameters wherever they are
    learner: Callable[
        [TextConfig, Parts], tuple[LanguageAlgorithm, Trainer]
    ]  # of the algorithm `init` alone may be called
    reader: Callable[[TextConfig, Parts], Reader]  # what a state says of samples
    save: Callable[..., None]  # (run, step, tree, *, machine, facts, metadata), as `checkpoint.save`, perhaps later
    settle: Callable[[], None]  # waits until everything is saved
    newest: Callable[..., Path | None]  # (run, *, report, without), as `checkpoint.latest`
    load: Callable[..., Checkpoint[Any]]  # (where, like, *, classes), as `checkpoint.load`


def learner_alone(arguments: TextConfig, parts: Parts) -> tuple[LanguageAlgorithm, Trainer]:
    """What learns in a run of one process, and what makes its updates. Raises: ChoiceError."""
    algorithm = algorithm_of(arguments, parts.model)
    return algorithm, trainer_of(arguments, algorithm)


def reader_alone(arguments: TextConfig, parts: Parts) -> Reader:
    """What a policy says of samples, by parts that fit into the budget."""
    reading = learner(parts.model, optimizer_of(arguments), objective_of(arguments), proximal="recomputed")
    return language_reader(reading, budget=arguments.learning.budget)


def newest_alone(run: Path, *, report: Report = checkpoint.to_stderr, without: Collection[Path] = ()) -> Path | None:
    """The folder of the newest good checkpoint, however many ranks wrote it. Raises: CheckpointError."""
    from ..effects.sharded.loading import (
        latest,  # here: it takes torch a second to import, which sampling does not need
    )

    return latest(run, report=report, without=without)


def load_alone(where: Path, like: Any, *, classes: Any = ()) -> Checkpoint[Any]:
    """What a checkpoint holds, however many ranks wrote it. Raises: CheckpointError."""
    from ..effects.sharded.loading import load

    return load(where, like, classes=classes)


def of_ranks(run: Path) -> bool:
    """Whether ranks have written a checkpoint that is in a run's folder or in a phase of it; damaged ones do not count.

    One of a warm start is written by the first of them alone, and says how many there were; that of one process does not.
    """
    homes = (run, *(run / name for name in folder.PHASES))
    return any(
        "ranks" in description.manifest.environment
        for home in homes
        for where in steps(home / folder.CHECKPOINTS)
        for description in _described(where)
    )


def _described(where: Path) -> tuple[Description, ...]:
    try:
        return (described(where),)
    except CheckpointError:
        return ()


def _save_alone(run: Path, step: int, tree: Any, *, machine: Any, facts: Any, metadata: Any) -> None:
    checkpoint.save(run, step, tree, machine=machine, facts=facts, metadata=metadata, files=INSIDE)


ALONE = Team(
    size=1,
    check=lambda arguments: None,
    parts=lambda parts: parts,
    learner=learner_alone,
    reader=reader_alone,
    save=_save_alone,
    settle=lambda: None,
    newest=newest_alone,
    load=load_alone,
)
