"""A training run in a folder: the machine of `machine`, with handlers that train, write metrics and save."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from attrs import define, field, frozen

from ...algorithms.algorithm import Metrics
from ...core import keys
from ...core.errors import CheckpointError, NonFiniteError, choose, message
from ..compile import Program, fingerprint, program
from ..drive import drive, serial
from ..effects import checkpoint, folder
from ..effects.clock import seconds
from ..effects.files import lock
from ..effects.manifest import describe
from ..effects.metrics import Sink, jsonl, rewind, stride, tensorboard, thin
from ..effects.progress import progress
from ..train import RunState, train
from . import RECIPES
from .arguments import changed, flatten, iteration_steps, loop_of
from .common import Pipeline
from .machine import Log, Logged, Loop, Row, Save, Saved, Train, Trained, trainer_machine

Notice = Callable[[str], None]
Run = Callable[[RunState], tuple[RunState, Metrics]]


@frozen
class Plan:
    """What a run is, before anything of it was done."""

    recipe: str
    arguments: Any
    pipeline: Pipeline

    def described(self) -> dict[str, Any]:
        """The recipe's name and all arguments, flat; `planned` undoes it."""
        return {"recipe": self.recipe, **flatten(self.arguments)}


@frozen
class Outcome:
    """How a session ended; seconds are those of this session alone."""

    loop: Loop
    steps: int  # in the environment, over the whole run
    trained: int  # of them in this session
    compile_seconds: float
    loaded: bool  # whether the compiled program was found on the disk
    train_seconds: float


def plan(recipe: str, arguments: Any) -> Plan:
    """Wires a recipe, with PyTorch set to its threads. Raises: ChoiceError for arguments that make no sense."""
    chosen = choose("recipe", recipe, RECIPES)
    pipeline = chosen.pipeline(arguments)
    torch.set_num_threads(arguments.process.threads)
    return Plan(recipe, arguments, pipeline)


def planned(described: Mapping[str, Any]) -> Plan:
    """The plan of a run, from what its checkpoints hold. Raises: CheckpointError, ChoiceError."""
    values = dict(described)
    recipe = str(values.pop("recipe", ""))
    defaults = choose("checkpoint: recipe", recipe, RECIPES).defaults(str(values.get("env", "")))
    differing = sorted(flatten(defaults).keys() ^ values.keys())
    if differing:
        remedy = "use the version of purestep that wrote it"
        raise CheckpointError(
            message(
                f"checkpoint: arguments of {recipe}",
                got=f"with other names: {differing}",
                wanted="its own",
                remedy=remedy,
            )
        )
    return plan(recipe, changed(defaults, values))


def newest(run: Path) -> Path:
    """The folder of a run's newest good checkpoint. Raises: CheckpointError."""
    found = checkpoint.latest(folder.existing(run))
    if found is None:
        remedy = "train it: purestep train ppo --run " + str(run)
        raise CheckpointError(message(str(run), got="without a checkpoint", wanted="a run with one", remedy=remedy))
    return found


def start(run: Path, plan: Plan, *, overwrite: bool, notice: Notice) -> Outcome:
    """A new run in the folder, which must hold no checkpoints unless they may be overwritten. Raises: CheckpointError."""
    with lock(run):
        if folder.begun(run) and not overwrite:
            remedy = f"go on with it: purestep resume {run}; or pass --overwrite, or another --run"
            raise CheckpointError(message(str(run), got="a run with checkpoints", wanted="a new folder", remedy=remedy))
        folder.clear(run)
        folder.write_json(run / folder.ARGUMENTS, readable(plan.described()))
        state = plan.pipeline.trainer.init(keys.key(plan.arguments.experience.seed))
        return _perform(run, plan, state, loop_of(plan.arguments.experience, plan.arguments.process), notice)


def resume(run: Path, *, notice: Notice) -> Outcome:
    """Goes on with the run in the folder, from its newest checkpoint, with its own arguments. Raises: CheckpointError."""
    folder.existing(run)
    with lock(run):
        where = newest(run)
        plan = planned(describe(where).metadata)
        restored, loop = restore(where, plan)
        manifest = describe(where)
        now = {**checkpoint.environment(), **facts(plan)}
        for difference in checkpoint.differences(manifest.environment, now):
            notice(f"not necessarily the bits of a run that never stopped: {difference}")
        rewind(run / folder.METRICS, loop.iteration)
        return _perform(run, plan, restored, loop, notice)


def restore(where: Path, plan: Plan) -> tuple[RunState, Loop]:
    """What the checkpoint holds. Raises: CheckpointError."""
    like = plan.pipeline.trainer.init(keys.key(plan.arguments.experience.seed))
    held = checkpoint.load(where, like, classes=[Loop])
    return held.tree, held.machine


def readable(described: Mapping[str, Any]) -> dict[str, Any]:
    """The same in values that JSON has words for."""
    infinite = {name: repr(value) for name, value in described.items() if value in (math.inf, -math.inf)}
    return {**described, **infinite}


def facts(plan: Plan) -> dict[str, str]:
    """What the bits of a run depend on beside its arguments: how and from what its program is compiled."""
    experience, learner, process = plan.arguments.experience, plan.arguments.learner, plan.arguments.process
    indifferent = {"seed": 0, "checkpoints": 1} | ({} if learner.anneal else {"steps": 1})
    decisive = flatten(changed(plan.arguments, indifferent))
    program_key = fingerprint(plan.recipe, decisive, loop_of(experience, process).chunk)
    return {"lowering": process.backend, "program": program_key}


def _perform(run: Path, plan: Plan, state: RunState, loop: Loop, notice: Notice) -> Outcome:
    """Runs the machine from `loop` on, compiling first: until then Ctrl-C stops at once."""
    world = _World(state, _lowered(plan, loop), iteration_steps(plan.arguments.experience))
    if loop.iteration < loop.iterations:
        world.warm(notice)
    with _sinks(run, plan, loop) as sinks:
        handlers = {Train: world.train, Log: partial(_log, sinks), Save: partial(_save, run, plan, world)}
        for state_of_loop in drive(trainer_machine(), loop, serial(handlers)):
            loop = state_of_loop
    if loop.diverged:
        raise NonFiniteError(_divergence(loop))
    return Outcome(
        loop=loop,
        steps=loop.iteration * world.steps,
        trained=world.trained * world.steps,
        compile_seconds=world.compile_seconds(),
        loaded=isinstance(world.run, Program) and world.run.loaded,
        train_seconds=world.seconds - world.compile_seconds(),
    )


def _lowered(plan: Plan, loop: Loop) -> Run:
    """The function that does a chunk of iterations: compiled, unless the arguments say otherwise."""
    chunk, backend = train(plan.pipeline.trainer, loop.chunk), plan.arguments.process.backend
    if backend == "none":
        return chunk
    cache = folder.cache_directory() if backend == "inductor" else None
    artefact = cache / facts(plan)["program"] if cache else None
    return program(chunk, name=f"train {plan.recipe}", artefact=artefact, backend=backend)


@define
class _World:
    """What the handlers share: where the run stands, and what moves it on."""

    state: RunState
    run: Run
    steps: int  # in the environment, for each iteration
    ready: list[tuple[RunState, Metrics]] = field(factory=list)  # the next chunk, when it is done already
    seconds: float = 0.0  # spent in `run`
    trained: int = 0  # iterations

    def compile_seconds(self) -> float:
        return sum(self.run.seconds) if isinstance(self.run, Program) else 0.0

    def warm(self, notice: Notice) -> None:
        """Does the first chunk, and with it what only a first call has to do."""
        if isinstance(self.run, Program):
            known = self.run.artefact is not None and self.run.artefact.exists()
            notice("loading the compiled program" if known else "compiling the program, once for these arguments ...")
        self.ready.append(self._timed())
        if isinstance(self.run, Program):
            self.run.settle()

    def train(self, command: Train) -> Trained:
        done = int(self.state.env_steps) // self.steps
        self.state, metrics = self.ready.pop() if self.ready else self._timed()
        self.trained += command.iterations
        return Trained(tuple(rows_of(metrics, done, self.steps)))

    def _timed(self) -> tuple[RunState, Metrics]:
        begin = seconds()
        result = self.run(self.state)
        self.seconds += seconds() - begin
        return result


def rows_of(metrics: Metrics, done: int, steps: int) -> Iterator[dict[str, float]]:
    """A row for each iteration of a chunk, each metric [chunk], `done` iterations of `steps` steps having gone before.

    episode_return and episode_length are means over the episodes that ended in the iteration, NaN where none did.

    >>> metrics = {"episodes": torch.tensor([2.0]), "return_sum": torch.tensor([5.0]), "length_sum": torch.tensor([6.0])}
    >>> next(rows_of(metrics, 3, 100))
    {'iteration': 4.0, 'steps': 400.0, 'episodes': 2.0, 'episode_return': 2.5, 'episode_length': 3.0}
    """
    names = list(metrics)
    for number, numbers in enumerate(torch.stack([metrics[name] for name in names], -1).tolist(), done + 1):
        row = dict(zip(names, numbers, strict=True))
        episodes, returns, lengths = (row.pop(name) for name in ("episodes", "return_sum", "length_sum"))
        yield {
            "iteration": float(number),
            "steps": float(number * steps),
            "episodes": episodes,
            "episode_return": returns / episodes if episodes else math.nan,
            "episode_length": lengths / episodes if episodes else math.nan,
            **row,
        }


def _log(sinks: Sequence[Sink], command: Log) -> Logged:
    for row in command.rows:
        for sink in sinks:
            sink(dict(row))
    return Logged()


def _save(run: Path, plan: Plan, world: _World, command: Save) -> Saved:
    loop = command.loop
    checkpoint.save(run, loop.iteration, world.state, machine=loop, facts=facts(plan), metadata=plan.described())
    return Saved(loop.iteration)


@contextmanager
def _sinks(run: Path, plan: Plan, loop: Loop) -> Iterator[list[Sink]]:
    steps = iteration_steps(plan.arguments.experience)
    with ExitStack() as stack:
        file = stack.enter_context(jsonl(run / folder.METRICS))
        board = stack.enter_context(tensorboard(run / folder.TENSORBOARD, resumed_at=loop.iteration * steps))
        bar = stack.enter_context(progress(loop.iterations * steps, show=("episode_return",)))
        every = stride(loop.iterations)
        yield [thin(file, every), thin(finite_part(board), every), remembering(bar, "episode_return")]


def finite_part(sink: Sink) -> Sink:
    """Leaves out the numbers that no curve can show.

    >>> finite_part(print)({"steps": 1.0, "episode_return": math.nan})
    {'steps': 1.0}
    """
    return lambda row: sink({name: value for name, value in row.items() if math.isfinite(value)})


def remembering(sink: Sink, name: str) -> Sink:
    """Shows the last finite number of that name where a row has none.

    >>> sink = remembering(print, "r")
    >>> sink({"r": 2.0}); sink({"r": math.nan})
    {'r': 2.0}
    {'r': 2.0}
    """
    last: dict[str, float] = {}

    def write(row: Row) -> None:
        if math.isfinite(row[name]):
            last[name] = row[name]
        sink({**row, **last})

    return write


def _divergence(loop: Loop) -> str:
    kept = f"the checkpoint of iteration {loop.saved} stays" if loop.saved else "there is no checkpoint yet"
    remedy = f"lower --learning-rate or pass --normalize both; {kept}"
    where, wanted = f"train: iteration {loop.diverged}", "finite numbers"
    return message(where, got="NaN or infinite in parameters or rewards", wanted=wanted, remedy=remedy)
