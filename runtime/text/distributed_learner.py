"""A run on several ranks: the first runs the recipe, all of them train, and a checkpoint is written by all.

Collective operations are methods of `RankWorker`: every rank has one, and runs the calls of the first rank in their order.
The partition of a batch does not depend on the number of ranks, and partial results are added in float64, so that updates
do not depend on it either.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from attrs import define, evolve, field, frozen
from torch import Tensor

from ...algorithms.language.batch import Reading
from ...algorithms.language.learner import LanguageAlgorithm, LanguageState
from ...core.causal import CausalModel
from ...core.errors import ChoiceError, message
from ...core.tree import leaves, tree_map
from ..distributed.clip import clip_by_whole_norm
from ..distributed.partition import by_batches
from ..effects.checkpoint import save as at_once
from ..effects.checkpoint.async_save import Saver, saving
from ..effects.checkpoint.formats import FULL
from ..effects.checkpoint.group import RankGroup
from ..effects.checkpoint.group import join_ranks as grouped
from ..effects.checkpoint.load import Names, latest, load
from ..effects.checkpoint.single import Checkpoint, to_stderr
from ..effects.distributed.driver import GRACE, Driver, Handlers, is_sharded, led
from ..effects.distributed.learner import ranked_learner
from ..effects.distributed.process_group import ProcessGroup, RankError, join_processes, let_go
from ..effects.distributed.shard import gather_shards
from ..effects.hugging_face.optional import library
from ..effects.signals import end_at_once
from ..runs.arguments import flag
from ..runs.store import as_today
from ..runs.store import load_content as load_full
from .build_learner import LearnerBackend, LearnerInit, Reader, language_algorithm, reading_of, trainer_of
from .components import TextComponents
from .config import TextConfig
from .trainer import Trainer, TrainStepResult, language_reader

WAIT = 600.0  # seconds after which a rank that does not answer counts as lost
ALL = 1 << 40  # tokens: the trainer does not split batches, `by_batches` does


@frozen(kw_only=True)
class Open:
    """Learner and trainer of the ranks, for the current arguments."""

    arguments: TextConfig
    algorithm: LanguageAlgorithm
    trainer: Trainer
    make: Callable[[Callable[[CausalModel], LanguageAlgorithm]], LanguageAlgorithm]  # of the same model


@define(eq=False)
class RankWorker:
    """Collective operations of one rank, called by the first rank; all ranks run the same ones."""

    ranks: ProcessGroup
    group: RankGroup
    opened: tuple[Open, ...] = ()
    reading: tuple[Reader, ...] = ()
    savers: dict[Path, Saver] = field(factory=dict)
    files: ExitStack = field(factory=ExitStack)
    said: set[str] = field(factory=set)  # faults of checkpoints that were printed

    def handlers(self) -> Handlers:
        """Return all operations by name."""
        own = (self.open, self.begin, self.learn, self.read, self.whole, self.save, self.settle, self.newest, self.load)
        return {work.__name__: work for work in own}

    def open(self, arguments: TextConfig, config: Any, buffers: dict[str, Tensor]) -> tuple[()]:
        """Build the learner, of a model with these stored buffers. Raises: ChoiceError, StructureError."""
        torch.set_num_threads(arguments.machine.threads)
        module = library().AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        module.load_state_dict(buffers, strict=False)
        deal = by_batches(arguments.learning.budget, ranks=self.ranks.size)

        def make(of: Callable[[CausalModel], LanguageAlgorithm]) -> LanguageAlgorithm:
            return ranked_learner(of, module, self.ranks, deal=deal, reduction=torch.float64)

        algorithm = make(lambda model: language_algorithm(arguments, model, clip=clip_by_whole_norm))
        trainer = trainer_of(arguments, algorithm, budget=ALL)
        self.opened = (Open(arguments=arguments, algorithm=algorithm, trainer=trainer, make=make),)
        self.reading = ()
        return ()

    def begin(self, params: dict[str, Tensor]) -> LanguageState:
        """Return a learner's initial state from full parameters."""
        return self.opened[0].algorithm.init(params)

    def learn(
        self, state: LanguageState, transcripts: Any, key: Any
    ) -> tuple[LanguageState, dict[str, float], str, Any]:
        """Run the updates of a batch. Raises: NonFiniteError."""
        learned = self.opened[0].trainer(state, transcripts, key)
        return learned.state, learned.figures, learned.note, learned.advantage

    def read(self, state: LanguageState, transcripts: Any) -> Reading:
        """Return the reading (log-probs) of samples by the policy of a state."""
        now = self.opened[0]
        if not self.reading:
            reading = now.make(lambda model: reading_of(now.arguments, model))
            self.reading = (language_reader(reading, budget=ALL),)
        return self.reading[0](state, transcripts)

    def whole(self, tree: Any) -> Any:
        """Return the tree with its leaves gathered from all ranks."""
        return gather_shards(tree)

    def save(self, run: Path, step: int, tree: Any, machine: Any, about: dict[str, Any]) -> tuple[()]:
        """Begin to write a checkpoint. Raises: CheckpointError, also if the previous one could not be written."""
        if run not in self.savers:
            self.savers[run] = self.files.enter_context(saving(run, group=self.group))
        self.savers[run].save(step, tree, machine=machine, **about)
        return ()

    def settle(self) -> tuple[()]:
        """Wait until all checkpoints are written. Raises: CheckpointError."""
        self.savers = {}
        self.files.close()
        return ()

    def newest(self, run: Path, without: tuple[Path, ...]) -> Path | None:
        """Return the folder of the newest good checkpoint, once all are written. Raises: CheckpointError."""
        self.settle()
        return latest(run, group=self.group, report=self._report, without=without)

    def _report(self, fault: str) -> None:
        """Print a fault once."""
        if fault not in self.said:
            self.said.add(fault)
            to_stderr(fault)

    def load(self, where: Path, like: Any, classes: tuple[type, ...], names: Names) -> tuple[int, Any, Any, Any]:
        """Return the contents of a checkpoint, once all are written. Raises: CheckpointError."""
        self.settle()
        found = load(where, like, classes=classes, group=self.group, names=names)
        return found.step, found.tree, found.machine, found.manifest


def distributed_backend(driver: Driver) -> LearnerBackend:
    """Return the backend of all ranks, for the first of them."""
    ready: list[TextConfig] = []  # the arguments for which all have a learner

    def prepared(arguments: TextConfig, parts: TextComponents) -> None:
        if ready != [arguments]:
            ready.clear()
            driver.call("open", arguments, parts.config, parts.buffers)
            ready.append(arguments)

    def of_ranks(arguments: TextConfig, parts: TextComponents) -> tuple[LearnerInit, Trainer]:
        check_ranks(arguments, driver.ranks.size)
        language_algorithm(arguments, parts.model)  # raises ChoiceError here and not on the ranks

        def init(params: Any) -> LanguageState:
            prepared(arguments, parts)
            state: LanguageState = driver.call("begin", dict(params))
            return state

        def train(state: LanguageState, transcripts: Any, key: Any = ()) -> TrainStepResult:
            prepared(arguments, parts)
            return TrainStepResult(*driver.call("learn", state, transcripts, key))

        return LearnerInit(init), train

    def reader(arguments: TextConfig, parts: TextComponents) -> Reader:
        def read(state: LanguageState, transcripts: Any) -> Reading:
            prepared(arguments, parts)
            found: Reading = driver.call("read", state, transcripts)
            return found

        return read

    return LearnerBackend(
        size=driver.ranks.size,
        check=lambda arguments: check_ranks(arguments, driver.ranks.size),
        parts=lambda parts: evolve(parts, whole=lambda params: parts.whole(_gathered(driver, params))),
        learner=of_ranks,
        reader=reader,
        **_store(driver),
    )


def check_ranks(arguments: TextConfig, size: int) -> None:
    """Refuse settings that several ranks cannot train. Raises: ChoiceError.

    >>> from .config import TaskRun
    >>> check_ranks(TaskRun(), 2)
    """
    for name in ("resample", "skip_solved"):
        if value := getattr(arguments.episodes, name):
            remedy = "leave it out, or train in one process"
            raise ChoiceError(message(flag(name), got=f"{value} on {size} ranks", wanted="0", remedy=remedy))
    rank = arguments.model.lora
    if rank:
        got, remedy = f"{rank} on {size} ranks", "train adapters in one process, or all weights on ranks"
        raise ChoiceError(message("--lora", got=got, wanted="none", remedy=remedy))


def _gathered(driver: Driver, tree: Any) -> Any:
    found = driver.call("whole", tree) if _divided(tree) else tree
    return tree_map(lambda leaf: leaf.cpu(), found)


def _divided(tree: Any) -> bool:
    return any(is_sharded(leaf) for leaf in leaves(tree))


def _store(driver: Driver) -> dict[str, Any]:
    """Return a backend's functions for checkpoints: all ranks write sharded trees, the first alone full ones (a warm start's).

    Each checkpoint records the number of ranks in its facts.
    """

    def save(run: Path, step: int, tree: Any, *, machine: Any, facts: Any, metadata: Any) -> None:
        about: dict[str, Any] = {"facts": {**facts, "ranks": driver.ranks.size}, "metadata": dict(metadata)}
        if _divided(tree):
            driver.start_call("save", run.absolute(), step, tree, machine, about)
        else:
            at_once.save(run, step, tree, form=FULL, machine=machine, **about)

    def settle() -> None:
        driver.settled()
        driver.call("settle")

    def newest(run: Path, *, report: Callable[[str], None] = to_stderr, without: Collection[Path] = ()) -> Path | None:
        del report  # the first rank prints what is wrong
        driver.settled()
        found: Path | None = driver.call("newest", run.absolute(), tuple(without)) if run.is_dir() else None
        return found

    def loaded(where: Path, like: Any, *, classes: Any = (), names: Names = as_today) -> Checkpoint[Any]:
        if not _divided(like):
            return load_full(where, like, classes=classes, names=names)
        driver.settled()
        step, tree, machine, manifest = driver.call("load", where.absolute(), like, tuple(classes), names)
        return Checkpoint(step=step, tree=tree, machine=machine, manifest=manifest)

    return {"save": save, "settle": settle, "newest": newest, "load": loaded}


def in_process_group(program: Callable[[LearnerBackend], int]) -> int:
    """Run a program on the first rank, with the backend of all ranks; return its exit code on all ranks. Raises: as `led`."""
    code = _led(program)
    let_go()
    return code


def _led(program: Callable[[LearnerBackend], int]) -> int:
    with join_processes(timeout=WAIT, device="cpu") as ranks, _rank_worker(ranks) as worker:
        return led(ranks, worker.handlers(), lambda driver: program(distributed_backend(driver)))


@contextmanager
def _rank_worker(ranks: ProcessGroup) -> Iterator[RankWorker]:
    worker = RankWorker(ranks, grouped(seconds=WAIT))
    with worker.files:
        try:
            yield worker
        except RankError as gone:  # a checkpoint under way would wait for the lost rank
            if ranks.size > 1 and not all(saver.ended(GRACE) for saver in worker.savers.values()):
                end_at_once(str(gone))
            raise
