"""A run of a language model at a task, built from its settings; `runs.run` performs it.

RUN/tokenizer/        the tokenizer, if the run has trained its own
RUN/before.json       the evaluation before reinforcement learning
RUN/model/            the final model and its tokenizer, a Hugging Face folder
RUN/diverged.safetensors   the batch of a step whose loss was not finite
RUN/rollouts.jsonl    where episodes are prepared: the records that preparations publish, readable while it is written
RUN/conversations.jsonl    the attempts of each step, as they were trained on
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ...algorithms.language.learner import LanguageState
from ...core.errors import CheckpointError, ChoiceError, message
from ..effects import folder, jsonl_stream
from ..effects.checkpoint.manifest import Manifest
from ..effects.checkpoint.replace_folder import in_progress
from ..effects.clock import seconds
from ..effects.hugging_face.check_saved import check_saved, stored_bytes
from ..effects.hugging_face.tokenizer import save_tokenizer
from ..effects.layout import names_of
from ..effects.openai_server.vllm_weights import check_untied
from ..runs import run as runs
from ..runs.arguments import to_record
from ..runs.logging import divergence, metrics_log
from ..runs.recipe import Components, Context, Notice, SessionResult, find
from ..runs.training_machine import Loop
from ..runs.trusting import NOTHING, Trust, check_trust
from .build_learner import SINGLE_PROCESS, LearnerBackend
from .columns import LABEL
from .components import TextComponents, attempts_at, check_room, text_components
from .config import TextConfig, absolute, held_out_tasks
from .conversations import keep_conversations
from .curriculum import check_curriculum
from .evaluation import held_out
from .preparation import STREAM
from .report import check_samples, evaluation, on_the_way, write_before
from .sampling import SERVED, check_server, run_sampler
from .training_loop import LearnerState, Publish, TextTrainingLoop, held_at, learning_components, phases, policy_of
from .validate_task import validate_task

TOKENIZER = folder.TOKENIZER
LARGE = 1e9  # bytes of weights from which on a check of them is reported
DATA = "data"  # name of the fact with the digest of a task's data
FACTS: Mapping[str, str] = {"lowering": "eager"}  # besides its arguments, the bits of a run depend on these


def text_record(arguments: TextConfig) -> dict[str, Any]:
    """Return the record of a run; `runs.run.arguments_of` returns the arguments of one."""
    return to_record(arguments.recipe, arguments)


def start(
    run: Path, arguments: TextConfig, *, overwrite: bool, notice: Notice, backend: LearnerBackend = SINGLE_PROCESS
) -> SessionResult:
    """Start a new run in the folder, which must hold no checkpoints unless `overwrite` is set; a refused run removes none.

    Raises: CheckpointError, ChoiceError, StructureError, EngineError for hosts that are not available.
    """
    recipe = find(arguments.recipe)
    return runs.start(run, recipe, absolute(arguments), overwrite=overwrite, notice=notice, store=backend)


def resume(
    run: Path,
    *,
    notice: Notice,
    moved: Mapping[str, Any] = {},
    backend: LearnerBackend = SINGLE_PROCESS,
    trust: Trust = NOTHING,
) -> SessionResult:
    """Resume the run in the folder from its newest checkpoint, with its own arguments; start it if it has none yet.

    `moved` replaces arguments of the source of samples from now on; the folder that a server may be starting from stays.
    Functions that its record names are called where `trust` allows it. Raises: CheckpointError, ChoiceError, StructureError,
    EngineError; TrustError.
    """
    keep = (folder.ARGUMENTS, SERVED)
    return runs.resume(run, notice=notice, store=backend, changes=moved, keep=keep, trust=trust)


def backend_of(context: Context) -> LearnerBackend:
    """Return the learner and store of a run: this process, or all ranks."""
    return context.store if isinstance(context.store, LearnerBackend) else SINGLE_PROCESS


def components_in(arguments: TextConfig, context: Context) -> TextComponents:
    """Return the components of a run, and set PyTorch to its threads.

    Raises: ChoiceError, StructureError, TrustError; all refusals come before anything of an older run is removed.
    """
    check_trust(context.run, context.trust, arguments.functions())
    validate_task(arguments.task())
    torch.set_num_threads(arguments.machine.threads)
    run, backend = context.run, backend_of(context)
    if not context.kept:
        backend.check(arguments)
    return backend.parts(
        text_components(arguments, run / TOKENIZER) if context.kept else components_for(run, arguments, context.notice)
    )


def components(arguments: TextConfig, context: Context) -> Components:
    """Return the components of a run without generators. Raises: as `components_in`."""
    return components_of(context.run, arguments, components_in(arguments, context), backend_of(context))


def write_tokenizer(run: Path, arguments: TextConfig, parts: TextComponents) -> None:
    """Write the tokenizer of a run that has trained its own."""
    if not arguments.model.model:
        folder.replace_own(run / TOKENIZER, lambda place: save_tokenizer(parts.tokenizer, place))


def components_of(run: Path, arguments: TextConfig, parts: TextComponents, backend: LearnerBackend) -> Components:
    """Return the components of a run in a folder, from parts that are already built."""
    check_server(arguments)
    algorithm, trainer = learning_components(arguments, parts, backend)
    tasks = held_out_tasks(arguments)

    @contextmanager
    def session(held: LearnerState, loop: Loop, notice: Notice) -> Iterator[TextTrainingLoop]:
        samples = run_sampler(run, arguments, parts, notice)

        def before(state: LanguageState) -> None:
            given: dict[str, Any] = {**tasks, "version": int(state.step), "source": samples.source(state)}
            found = evaluation(parts, parts.whole(state.params.policy), **given)
            write_before(run, found, notice)

        def evaluate(state: LanguageState) -> Mapping[str, float]:
            version, whole = int(state.step), parts.whole(state.params.policy)
            line, figures = on_the_way(parts, whole, **tasks, version=version, source=samples.source(state))
            notice(f"version {version}: {line}")
            return figures

        last = max(0, loop.iteration - phases(arguments).warm)
        with preparations_writer(run, parts) as publish:
            yield TextTrainingLoop(
                run=run,
                arguments=arguments,
                parts=parts,
                algorithm=algorithm,
                trainer=trainer,
                ask=samples.ask,
                complete=samples.complete,
                publish=publish,
                before=before,
                evaluate=evaluate,
                notice=notice,
                held=held,
                keep=keep_conversations(run, arguments, parts.codec, last=last, notice=notice),
                iteration=loop.iteration,
            )

    def accept(where: Path, manifest: Manifest) -> None:
        if manifest.environment.get("base", parts.base) != parts.base:
            got, wanted = "another model or tokenizer than when the run began", "the same"
            remedy = "put the old one back, or train anew"
            raise CheckpointError(message(f"{where}: {arguments.model.model}", got=got, wanted=wanted, remedy=remedy))
        check_data(where, manifest.environment, parts)

    shown = ("episode_return", *tuple(parts.task.figures)[:1], LABEL, "log_prob_difference", "warm_loss")
    return Components(
        loop=phases(arguments).loop(arguments.machine.save_every),
        begin=lambda: held_at(arguments, parts, algorithm, 0),
        like=lambda iteration: held_at(arguments, parts, algorithm, iteration),
        session=session,
        log=lambda run, loop: metrics_log(run, loop, shown, wandb=arguments.machine.wandb),
        diverged=lambda loop: divergence(run, loop, warm=phases(arguments).warm),
        params=lambda held: ("policy", policy_of(held)),
        facts=facts(parts),
        write=lambda run: write_tokenizer(run, arguments, parts),
        accept=accept,
        opened=parts,
    )


def components_for(run: Path, arguments: TextConfig, notice: Notice) -> TextComponents:
    """Return the parts of a new run. All refusals come before anything of an older run in the folder is removed.

    Raises: CheckpointError, ChoiceError, StructureError.
    """
    model = Path(arguments.model.model).resolve()
    if arguments.model.model and any(
        model.is_relative_to((run / name).resolve()) for name in names_of(arguments.recipe)
    ):
        got, remedy = f"{model}, which this run would remove", "choose another --run"
        raise ChoiceError(message("--model", got=got, wanted="a folder elsewhere", remedy=remedy))
    check_server(arguments)
    parts = text_components(arguments)
    check_room(parts)
    check_groups(arguments, parts)
    check_samples(parts.task, arguments.episodes.eval_samples)
    check_curriculum(arguments, parts.task)
    attempts_at(parts, held_out(1, arguments.episodes.draw, draw=parts.task.draw))
    learning_components(arguments, parts)
    check_saved_model(run, arguments, parts, notice)
    return parts


def check_saved_model(run: Path, arguments: TextConfig, parts: TextComponents, notice: Notice) -> None:
    """Save and open the initial model once, in the run's folder, and compare it; of a large one, report size and seconds.

    Raises: StructureError for a model that would be lost after training; ChoiceError for one that a server cannot get;
    CheckpointError.
    """
    place, _ = in_progress(run / folder.MODEL)
    if folder.holds_others(place, folder.MODEL):
        raise CheckpointError(message(str(place), got="there already", wanted="no such name", remedy="move it away"))
    params, begin = parts.whole(parts.begin()), seconds()
    size = stored_bytes(params, parts.buffers)
    if size >= LARGE:
        notice(f"saving the model once as a check, {size / 1e9:.1f} GB in {place}")
    check: Callable[[Path], object] = check_untied if arguments.sampling.server else str
    more: dict[str, Any] = {"config": parts.config, "generation": parts.generation, "buffers": parts.buffers}
    check_saved(place, parts.speaker, params, parts.tokenizer, check=check, **more)
    if size >= LARGE:
        notice(f"it was saved and opened with the same bits in {seconds() - begin:.1f} s, and removed")


def check_groups(arguments: TextConfig, parts: TextComponents) -> None:
    """Refuse steps of fewer groups than one preparation begins. Raises: ChoiceError."""
    preparation, groups = parts.task.preparation, arguments.episodes.groups
    if not isinstance(preparation, tuple) and groups < preparation.groups:
        wanted, remedy = f"at least {preparation.groups}", "so many groups begin where one task was prepared"
        raise ChoiceError(message("--groups", got=groups, wanted=wanted, remedy=remedy))


def check_data(run: Path, recorded: Mapping[str, Any], parts: TextComponents) -> None:
    """Refuse a task whose data differ from those that the run began with. Raises: CheckpointError.

    Tasks that were held out then may be trained on now.
    """
    if recorded.get(DATA, parts.task.digest) != parts.task.digest:
        got, remedy = "others than when the run began", "put the old ones back, or train anew"
        raise CheckpointError(message(f"{run}: the task's data", got=got, wanted="the same", remedy=remedy))


@contextmanager
def preparations_writer(run: Path, parts: TextComponents) -> Iterator[Publish]:
    """Yield a function that appends records of preparations to the run's stream, and skips those that are already there."""
    preparation = parts.task.preparation
    if isinstance(preparation, tuple):
        yield lambda number, rows: None
        return
    with jsonl_stream.writer(run / STREAM, most=preparation.most) as write:
        yield write


def facts(parts: TextComponents) -> dict[str, str]:
    """Return the facts that the bits of a run depend on besides its arguments."""
    named = {"base": parts.base, DATA: parts.task.digest}
    return {**FACTS, **{name: value for name, value in named.items() if value}}
