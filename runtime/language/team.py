"""Who learns in a run and keeps its checkpoints: this process, or several ranks that it leads; see `ranked` for those."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import frozen

from ...algorithms.language import LanguageAlgorithm, LanguageState, learner
from ...algorithms.language_batch import Reading
from ...core.errors import CheckpointError
from ...core.transcript import Transcript
from ..effects import folder
from ..effects.checkpoint import Checkpoint
from ..effects.sharded.description import Description, described
from ..effects.step_folders import steps
from ..language_train import Trainer, language_reader
from ..runs.store import PROCESS
from .config import TextConfig
from .learning import algorithm_of, objective_of, optimizer_of, trainer_of
from .parts import Parts

Reader = Callable[[LanguageState, Transcript], Reading]


@frozen(kw_only=True)
class Team:
    """The learner of a run and its `Store`. Each `init` of a learner gives a state that the others' functions take."""

    size: int  # ranks
    check: Callable[[TextConfig], None]  # raises ChoiceError for what so many cannot do
    parts: Callable[[Parts], Parts]  # the same parts, whose `whole` takes parameters wherever they are
    learner: Callable[
        [TextConfig, Parts], tuple[LanguageAlgorithm, Trainer]
    ]  # of the algorithm `init` alone may be called
    reader: Callable[[TextConfig, Parts], Reader]  # what a state says of samples
    save: Callable[..., None]  # these are those of `Store`
    settle: Callable[[], None]
    newest: Callable[..., Path | None]
    load: Callable[..., Checkpoint[Any]]


def learner_alone(arguments: TextConfig, parts: Parts) -> tuple[LanguageAlgorithm, Trainer]:
    """What learns in a run of one process, and what makes its updates. Raises: ChoiceError."""
    algorithm = algorithm_of(arguments, parts.model)
    return algorithm, trainer_of(arguments, algorithm)


def reader_alone(arguments: TextConfig, parts: Parts) -> Reader:
    """What a policy says of samples, by parts that fit into the budget."""
    reading = learner(parts.model, optimizer_of(arguments), objective_of(arguments), proximal="recomputed")
    return language_reader(reading, budget=arguments.learning.budget)


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


ALONE = Team(
    size=PROCESS.size,
    check=lambda arguments: None,
    parts=lambda parts: parts,
    learner=learner_alone,
    reader=reader_alone,
    save=PROCESS.save,
    settle=PROCESS.settle,
    newest=PROCESS.newest,
    load=PROCESS.load,
)
