"""Running a phase: its newest checkpoint, generators, files, and the loop that drives its scheduler."""

from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from attrs import asdict, evolve

from ...algorithms.language.learner import LanguageState
from ...core.machine import Event
from ..effects import folder
from ..effects.hugging_face.tokenizer import tokenizer_files
from ..effects.json_lines import Lines, open_lines
from ..effects.weight_sync.interface import WeightPublisher
from ..effects.workers.pool import Body, Inbox, WorkerHandle, Workers, working
from ..machine.drive import Effects, drive
from ..machine.json_codec import json_line
from ..machine.replay_log import observe_events, to_lines
from ..text.config import TextConfig, generator_count
from ..text.conversations import keep_conversations
from ..text.run import preparations_writer
from . import checkpoint
from .checkpoint import EVENTS, LEDGER, TIMELINE, TOTALS, PhaseCheckpoint, PhaseState
from .metrics import metering
from .orchestrator import connections_of, faults_of_answers, orchestrator_effects
from .preparation import Starts, starts_from
from .rollout_worker import Spec, generate
from .scheduler import events as say
from .scheduler.machine import begin_schedule, scheduler
from .scheduler.state import KEEP, PUBLISH, RECOMPUTE, Rules, Schedule, with_workers
from .training_phase import Phase, PhaseConfig, learning_of, segment_wise
from .version_check import packages

COUNTS = (  # counters of the scheduler that are recorded at the end of a phase
    *("version", "submitted", "accepted", "rejected", "filtered", "consumed", "queued", "cached", "running", "waiting"),
    *("ignored", "tokens_used", "tokens_wasted"),
)


def rules_of(arguments: TextConfig) -> Rules:
    """Return the settings of the scheduler of a phase.

    >>> from ..text.config import TaskRun
    >>> rules_of(TaskRun()).batch, rules_of(TaskRun()).group
    (128, 8)
    """
    tasks, given = arguments.episodes, arguments.asynchronous
    return Rules(
        batch=tasks.groups * tasks.samples,
        concurrency=max(1, generator_count(arguments)) * given.generator_slots,
        staleness=given.staleness,
        updates=tasks.steps,
        group=tasks.samples,
        stale=given.stale,
        proximal=RECOMPUTE if segment_wise(arguments) else KEEP,
    )


def run_phase(setting: PhaseConfig, begun: LanguageState) -> Schedule:
    """Run a phase to its end or to Ctrl-C; return the last state of its scheduler.

    `begun` is the learner's state at version 0. Raises: CheckpointError, WorkersError, NonFiniteError.
    """
    standing, given = _standing(setting, begun), setting.arguments.asynchronous
    events: deque[Event] = deque()
    with _at_work(setting, standing, events) as (phase, effects, log):
        rules, groups = rules_of(setting.arguments), setting.arguments.episodes.groups
        first = with_workers(standing.kept.schedule, generator_count(setting.arguments), given.generator_slots)
        saved, state = (first.version if standing.kept.sessions else -1), first
        for now in drive(scheduler(rules), first, effects):
            state = now
            phase.meter.wasted = state.tokens_wasted
            if state.version > saved and to_be_kept(state, rules, setting.arguments.machine.save_every):
                phase.save(state, log.sync())
                saved = state.version
            if state.fresh + len(state.again) < groups and not state.stopped:
                events.append(say.Submitted(groups))
        setting.backend.settle()
        if state.version >= rules.updates:
            folder.write_json(setting.folder / TOTALS, phase_totals(setting.arguments, state, phase))
    return state


def to_be_kept(state: Schedule, rules: Rules, every: int) -> bool:
    """Return whether to write a checkpoint of this version: every `every` versions, at the last one, and when a run is stopped.

    A stopped run writes none in the publish phase: the learner has already made an update that the version does not count yet.

    >>> from ..text.config import TaskRun
    >>> rules = rules_of(TaskRun())
    >>> [to_be_kept(Schedule(version=version, phase=PUBLISH), rules, 4) for version in (0, 1, 4, 100)]
    [True, False, True, True]
    >>> [to_be_kept(Schedule(version=1, phase=phase, stopped=True), rules, 4) for phase in ("train", PUBLISH)]
    [True, False]
    """
    if state.stopped:
        return state.phase != PUBLISH
    return state.version % every == 0 or state.version >= rules.updates


def _standing(setting: PhaseConfig, begun: LanguageState) -> PhaseState:
    """Return the state of the phase: that of its newest checkpoint, or the initial one."""
    backend = setting.backend
    found = checkpoint.use_newest_of_phase(
        setting.folder, lambda where: checkpoint.load_state(where, setting.arguments, begun, backend), backend
    )
    if not isinstance(found, tuple):
        return found
    given = setting.arguments.asynchronous
    rules, number = rules_of(setting.arguments), generator_count(setting.arguments)
    schedule = begin_schedule(
        rules, prompts=setting.arguments.episodes.groups, workers=number, slots=given.generator_slots
    )
    return PhaseState(kept=PhaseCheckpoint(schedule=schedule), learner=begun, past={}, samples={})


@contextmanager
def _at_work(
    setting: PhaseConfig, standing: PhaseState, events: deque[Event]
) -> Iterator[tuple[Phase, Effects, Lines]]:
    """Yield a running phase with its generators, its effects and its event log."""
    arguments, kept = setting.arguments, standing.kept
    version, home, given = kept.schedule.version, setting.folder, arguments.asynchronous
    learning = learning_of(arguments, setting.parts, version, standing.learner, dict(standing.past), setting.backend)
    with ExitStack() as stack:
        publisher = stack.enter_context(setting.place.publishing(learning.whole()))
        publisher.publish(version, learning.whole())
        log = stack.enter_context(open_lines(home / EVENTS, kept.events))
        session = {"session": kept.sessions + 1, "version": version, "generators": generator_count(arguments)}
        log.write(json_line({**session, "slots": given.generator_slots}) + "\n")
        phase = Phase(
            setting=setting,
            learning=learning,
            publisher=publisher,
            meter=stack.enter_context(metering(home, arguments, setting.parts.task, version)),
            ledger=stack.enter_context(open_lines(home / LEDGER, version)),
            timeline=stack.enter_context(open_lines(home / TIMELINE, kept.spans)),
            kept=evolve(kept, sessions=kept.sessions + 1),
            samples=dict(standing.samples),
            publish_record=stack.enter_context(preparations_writer(home, setting.parts)),
            starts=_starts(setting, kept),
            keep=keep_conversations(home, arguments, setting.parts.codec, last=version, notice=setting.notice),
            states={version: (standing.learner, dict(standing.past))},
        )
        workers = stack.enter_context(_generators(setting, publisher))
        effects = orchestrator_effects(connections_of(phase, workers), events)
        yield phase, observe_events(effects, lambda entry: log.write(to_lines([entry]))), log
        phase.failures.report()


def _starts(setting: PhaseConfig, kept: PhaseCheckpoint) -> Starts:
    """Return the starts of a phase's groups, those of its checkpoint."""
    preparation = setting.parts.task.preparation
    if isinstance(preparation, tuple):
        return Starts()
    return Starts(groups=preparation.groups, ready=starts_from(kept.starts, preparation, str(setting.folder)))


def _generators(setting: PhaseConfig, publisher: WeightPublisher) -> AbstractContextManager[Workers]:
    """Return the generators of a phase, which fetch their weights from the publisher."""
    arguments, number = setting.arguments, generator_count(setting.arguments)

    def engine(worker: int, body: Body, given: tuple[Any, ...], inbox: Inbox) -> WorkerHandle:
        (own,) = given  # those in place of lost ones may need another address than the first
        return setting.place.engine(worker, body, (evolve(own, weights=publisher.renewed()),), inbox)

    spec = Spec(
        arguments=arguments,
        tokenizer=tokenizer_files(setting.tokenizer) if isinstance(setting.tokenizer, Path) else {},
        weights=publisher.address,
        packages=packages(),
    )
    return working(
        generate,
        (spec,),
        size=number,
        patience=arguments.asynchronous.patience,
        engine=engine,
        refuse=faults_of_answers(arguments, setting.parts),
        tries=2 * number + 3,  # a lost host loses all of its generators at once
    )


def phase_totals(arguments: TextConfig, state: Schedule, phase: Phase) -> dict[str, Any]:
    """Return the final counters and settings of a phase."""
    kept = phase.kept
    return {
        **{name: getattr(state, name) for name in COUNTS},
        "seconds": phase.now(),
        "sessions": kept.sessions,
        "lost_generators": kept.lost,
        "tool_failures": kept.tool_failures,
        "generators": generator_count(arguments),
        "batch": rules_of(arguments).batch,
        "group": arguments.episodes.samples,
        "staleness": arguments.asynchronous.staleness,
        "settings": asdict(arguments.asynchronous),
    }
