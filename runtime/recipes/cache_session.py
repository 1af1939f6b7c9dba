"""A run of the reasoning cache in a folder: the machine of `machine`, with handlers that train, write metrics and save.

RUN/rollouts.jsonl    the stream of finished rollouts, readable while it is written
RUN/tokenizer/  model/  before.json  diverged.safetensors       as in the runs of `zorplex`
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from attrs import frozen

from ...algorithms.language import LanguageState
from ...core.errors import CheckpointError, ChoiceError, NonFiniteError, message
from ...core.language.reasoning_report import published_rows
from ..drive import Handlers, drive, serial
from ..effects import checkpoint, folder, stream
from ..effects.files import INSIDE
from ..effects.layout import names_of
from ..effects.manifest import Manifest, describe
from ..effects.tokenizer import save_tokenizer
from ..language.session import FACTS, TOKENIZER, Notice
from ..language.session import Outcome as Outcome
from ..language.world import Held
from ..language.world import policy_of as policy_of
from ..reasoning.evaluate import evaluated
from ..reasoning.parts import Parts, check_room, parts_of
from ..reasoning.standing import Standing
from ..reasoning.world import CacheWorld, Publish, held_at, learning_parts, phases
from ..runs.arguments import changed, flag, flatten, from_record
from ..runs.logging import divergence, metrics_log
from ..runs.loop_check import check_loop
from ..runs.training_machine import Log, Loop, Save, Saved, Train, trainer_machine
from ..values import decode, encode
from .cache import NAME, POLICIES, POLICY, SUMMED_UP, Cache, cache_defaults, check
from .cache_report import write_before
from .trusting import NOTHING, Trust, check_trust

T = TypeVar("T")
ROLLOUTS = "rollouts.jsonl"
OWN = (POLICY, SUMMED_UP)
SHOWN = ("episode_return", "right", "reasoning_turn_1", "throughput", "warm_loss")


def described(arguments: Cache) -> dict[str, Any]:
    """The recipe's name and all arguments, flat; `arguments_of` undoes it."""
    return {"recipe": NAME, **flatten(arguments)}


def arguments_of(held: Mapping[str, Any]) -> Cache:
    """The arguments of a run, from what its checkpoints or its folder hold. Raises: CheckpointError, ChoiceError."""
    return from_record(NAME, cache_defaults(), held)


def start(run: Path, arguments: Cache, *, overwrite: bool, notice: Notice) -> Outcome:
    """A new run in the folder, which must hold no checkpoints unless they may be overwritten; what is refused removes none.

    Raises: CheckpointError, ChoiceError, StructureError.
    """
    check(arguments)
    if arguments.model.model and Path(arguments.model.model).is_dir():
        arguments = changed(arguments, {"model": str(Path(arguments.model.model).absolute())})
    with folder.starting(run, NAME, overwrite=overwrite):
        return _begin(run, arguments, notice)


def _begin(run: Path, arguments: Cache, notice: Notice, keep: Collection[str] = ()) -> Outcome:
    """A run from its beginning, in a folder from which all else that a run has left is removed but what `keep` names."""
    torch.set_num_threads(arguments.machine.threads)
    parts, held = _begun(run, arguments)
    folder.clear(run, NAME, keep=keep)
    folder.write_json(run / folder.ARGUMENTS, encode(described(arguments)))
    if not arguments.model.model:
        save_tokenizer(parts.tokenizer, run / TOKENIZER)
    return _perform(run, arguments, parts, held, phases(arguments).loop(arguments.machine.save_every), notice)


def _begun(run: Path, arguments: Cache) -> tuple[Parts, Held]:
    """What a new run begins with. All that may be refused is, before anything of an older run in the folder is removed."""
    model = Path(arguments.model.model).resolve()
    if arguments.model.model and any(model.is_relative_to((run / name).resolve()) for name in names_of(NAME)):
        got, remedy = f"{model}, which this run would remove", "choose another --run"
        raise ChoiceError(message("--model", got=got, wanted="a folder elsewhere", remedy=remedy))
    parts = parts_of(arguments, str(run))
    check_room(parts)
    algorithm, _ = learning_parts(arguments, parts)
    return parts, held_at(arguments, parts, algorithm, 0)


def resume(run: Path, *, notice: Notice, trust: Trust = NOTHING) -> Outcome:
    """Goes on with the run in the folder, from its newest checkpoint, with its own arguments; begins it where it has none yet.

    Functions that its record names are called where `trust` says so. Raises: CheckpointError, ChoiceError, StructureError;
    TrustError.
    """
    with folder.resuming(run):
        if folder.unsaved(run):
            arguments = arguments_of(decode(folder.read_json(run / folder.ARGUMENTS)))
            check(arguments)
            _check_trust(run, arguments, trust)
            notice(f"no checkpoint yet: {run} begins again, with its own arguments")
            return _begin(run, arguments, notice, keep=(folder.ARGUMENTS,))
        found = restored_newest(run, trust)
        now = {**checkpoint.environment(), **_facts(found.parts)}
        for difference in checkpoint.differences(found.manifest.environment, now):
            notice(f"not necessarily the bits of a run that never stopped: {difference}")
        return _perform(run, found.arguments, found.parts, found.held, found.loop, notice)


def arguments_in(run: Path) -> Cache:
    """The arguments of the run in a folder; what is damaged is named by whoever loads it. Raises: CheckpointError."""
    return of_newest(run, lambda where: arguments_of(describe(where).metadata), report=lambda text: None)


def newest(run: Path) -> Path:
    """The folder of a run's newest good checkpoint. Raises: CheckpointError."""
    return of_newest(run, lambda where: where)


def of_newest(run: Path, use: Callable[[Path], T], *, report: Notice = checkpoint.to_stderr) -> T:
    """Return the result of `use` on a run's newest usable checkpoint. Raises: CheckpointError, and what `use` raises."""
    remedy = f"train it: purestep {f'resume {run}' if folder.unsaved(run) else f'train {NAME} --run {run} --overwrite'}"
    return checkpoint.of_newest(run, use, remedy=remedy, report=report)


@frozen
class Restored:
    """A run as a checkpoint of it holds it."""

    manifest: Manifest
    arguments: Cache
    parts: Parts
    held: Held
    loop: Loop


def restored_newest(run: Path, trust: Trust = NOTHING) -> Restored:
    """A run as its newest checkpoint that is good holds it; a damaged one is named on standard error.

    Raises: CheckpointError; ChoiceError, StructureError; TrustError for functions that are not trusted.
    """
    return of_newest(run, partial(_loaded, run, trust))


def restored(run: Path, where: Path, trust: Trust = NOTHING) -> tuple[Parts, Held, Loop]:
    """The parts of a run, and what the checkpoint holds.

    Raises: CheckpointError, also where a model that the run was begun with is another now; ChoiceError, StructureError.
    """
    found = _loaded(run, trust, where)
    return found.parts, found.held, found.loop


def _loaded(run: Path, trust: Trust, where: Path) -> Restored:
    manifest = describe(where)
    arguments = arguments_of(manifest.metadata)
    check(arguments)
    _check_trust(run, arguments, trust)
    torch.set_num_threads(arguments.machine.threads)
    parts = parts_of(arguments, str(run), run / TOKENIZER)
    if manifest.environment.get("base", parts.base) != parts.base:
        got, wanted = "another model or tokenizer than when the run began", "the same"
        remedy = "put the old one back, or train anew"
        raise CheckpointError(message(f"{run}: {arguments.model.model}", got=got, wanted=wanted, remedy=remedy))
    algorithm, _ = learning_parts(arguments, parts)
    held = checkpoint.load(where, held_at(arguments, parts, algorithm, manifest.step), classes=[Loop])
    check_loop(where, held.machine, held.step)
    checkpoint.check_finite(where, policy_of(held.tree), "policy")
    return Restored(manifest, arguments, parts, held.tree, held.machine)


def _check_trust(run: Path, arguments: Cache, trust: Trust) -> None:
    named = {flag(name): getattr(arguments.rollouts, name) for name in POLICIES}
    check_trust(run, trust, named, OWN)


def standing_of(parts: Parts, state: LanguageState) -> Standing:
    """How the weights of a learner's state stand on the run's own held-out problems."""
    run = parts.arguments.run
    whole = parts.whole(state.params.policy)
    return evaluated(parts, whole, problems=run.held_out, draw=run.draw, cycles=run.cycles, version=int(state.step))[0]


def _facts(parts: Parts) -> dict[str, str]:
    return {**FACTS, **({"base": parts.base} if parts.base else {})}


def _perform(run: Path, arguments: Cache, parts: Parts, held: Held, loop: Loop, notice: Notice) -> Outcome:
    """Runs the machine from `loop` on."""
    algorithm, trainer = learning_parts(arguments, parts)

    def before(state: LanguageState) -> None:
        write_before(run, standing_of(parts, state), arguments.rollouts.num_reasoning_steps, notice)

    with metrics_log(run, loop, SHOWN) as log, _publishing(run, parts) as publish:
        world = CacheWorld(
            run=run,
            arguments=arguments,
            parts=parts,
            algorithm=algorithm,
            trainer=trainer,
            publish=publish,
            before=before,
            evaluate=partial(standing_of, parts),
            notice=notice,
            held=held,
            iteration=loop.iteration,
        )
        handlers: Handlers = {Train: world.train, Log: log, Save: partial(_save, run, arguments, world)}
        for now in drive(trainer_machine(), loop, serial(handlers)):
            loop = now
    if loop.diverged:
        raise NonFiniteError(divergence(run, loop, warm=phases(arguments).warm))
    spent = {
        "warm start": world.warmed,
        "cycles": world.rolled,
        "next steps": world.sampled,
        "updates": world.updated,
    }
    return Outcome(loop, spent)


@contextmanager
def _publishing(run: Path, parts: Parts) -> Iterator[Publish]:
    """What appends finished groups to the run's stream; one that is there already is passed over."""
    with stream.writer(run / ROLLOUTS, most=parts.settings.shared_memory_entry_size) as write:
        yield lambda number, result: write(number, published_rows(result))


def _save(run: Path, arguments: Cache, world: CacheWorld, command: Save) -> Saved:
    loop = command.loop
    facts, metadata = _facts(world.parts), described(arguments)
    checkpoint.save(run, loop.iteration, world.held, machine=loop, facts=facts, metadata=metadata, files=INSIDE)
    return Saved(loop.iteration)
