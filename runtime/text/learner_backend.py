"""The learner of a run and its store of checkpoints: this process, or several ranks (`distributed_learner`)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import frozen

from ...algorithms.language.batch import Reading
from ...algorithms.language.learner import LanguageState
from ...core.errors import CheckpointError
from ...core.language.types import Transcript
from ..effects import folder
from ..effects.checkpoint.description import Description, read_description
from ..effects.checkpoint.directory import step_folders
from ..effects.checkpoint.single import Checkpoint
from ..runs.store import PROCESS
from .build_learner import language_algorithm, reading_of, trainer_of
from .components import TextComponents
from .config import TextConfig
from .trainer import Trainer, language_reader

Reader = Callable[[LanguageState, Transcript], Reading]


@frozen
class LearnerInit:
    """The function of a learner that a run calls itself; the trainer calls the others."""

    init: Callable[[Any], LanguageState]  # of the policy's parameters


@frozen(kw_only=True)
class LearnerBackend:
    """The learner of a run and its `Store`. The state that a learner's `init` returns fits the backend's other functions."""

    size: int  # ranks
    check: Callable[[TextConfig], None]  # raises ChoiceError for settings that this number of ranks does not support
    parts: Callable[[TextComponents], TextComponents]  # the same parts, whose `whole` also takes sharded parameters
    learner: Callable[[TextConfig, TextComponents], tuple[LearnerInit, Trainer]]
    reader: Callable[[TextConfig, TextComponents], Reader]  # returns a state's readings of samples
    save: Callable[..., None]  # this and the following as in `Store`
    settle: Callable[[], None]
    newest: Callable[..., Path | None]
    load: Callable[..., Checkpoint[Any]]


def learner_alone(arguments: TextConfig, parts: TextComponents) -> tuple[LearnerInit, Trainer]:
    """Return the learner and the trainer of a run of one process. Raises: ChoiceError."""
    algorithm = language_algorithm(arguments, parts.model)
    return LearnerInit(algorithm.init), trainer_of(arguments, algorithm)


def reader_alone(arguments: TextConfig, parts: TextComponents) -> Reader:
    """Return a policy's reading of samples, in micro-batches that fit into the budget."""
    return language_reader(reading_of(arguments, parts.model), budget=arguments.learning.budget)


def of_ranks(run: Path) -> bool:
    """Return whether a run's folder, or a phase of it, holds a checkpoint written by ranks; damaged ones do not count.

    The first rank alone writes that of a warm start, and records the number of ranks; a single process does not.
    """
    homes = (run, *(run / name for name in folder.PHASES))
    return any(
        "ranks" in description.manifest.environment
        for home in homes
        for where in step_folders(home / folder.CHECKPOINTS)
        for description in _described(where)
    )


def _described(where: Path) -> tuple[Description, ...]:
    try:
        return (read_description(where),)
    except CheckpointError:
        return ()


SINGLE_PROCESS = LearnerBackend(
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
