"""Sweeps: many settings and seeds of a recipe, trained by one program in parts, several of them at once in threads.

    RUN/sweep.json     arguments, swept numbers and options
    RUN/sweep.jsonl    a row for each member and each rung that it finished, appended after each part
    RUN/rung_1/        states of the members after rung 1, a checkpoint for each part, until rung 2 is done

A sweep is always walked through from its first stage. Parts with rows in the file are not trained again, and the settings of a
later stage follow from the scores of the stages before it. So a sweep that was stopped ends as one that was never stopped.

A member's numbers depend on the size of its part, and not on the others in it or on the number of threads. Members that go on
to another rung may change their position in a part. Compiled programs gave the same bits at every position (parts of 3, 5 and
9), so such members end as in a sweep without halving that has parts of this size. Without the compiler that holds for parts of
one, else within rounding.
"""

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import asdict, define, field, fields, has

from ...core.errors import CheckpointError, message
from ...core.record import take
from ...core.tree import tree_map
from ..effects.checkpoint import single
from ..effects.checkpoint.atomic_files import DISK, write_whole
from ..effects.env_reference import digest_of
from ..effects.module_reference import is_reference
from ..effects.optuna_study import proposals
from ..files.reading import read_text, reason
from ..runs.arguments import changed, flatten, processors, settings_in
from ..runs.migrations import NUMBER, RECIPE, SCHEMA, upgrade
from ..runs.recipe import Notice
from .algorithm_flags import target_of
from .shared_settings import loop_of
from .sweep_members import Cohort, Member, Members
from .sweep_results import Trial, mean_score, trial_of, trial_row
from .sweep_settings import Point, SettingValues, Sweep, points
from .sweep_stages import Stage, stages, survivors

PLAN, ROWS = "sweep.json", "sweep.jsonl"
PART = 16  # members of one call of the program on the processor, at most; a GPU takes all that are trained at once


def trials(
    arguments: Any, axes: Sequence[SettingValues], options: Sweep, run: Path, *, notice: Notice
) -> Iterator[Trial]:
    """Train and evaluate all members, in parts of `members`, and yield their results, those of each rung.

    Raises: ChoiceError; CheckpointError for a folder with another sweep, or without states that are needed to go on.
    """
    options.check(axes)
    arguments = _as_begun(arguments, run)
    loop = loop_of(arguments.experience, arguments.process)
    planned = stages(axes, options, loop.iterations // loop.chunk)
    settled = {name: value for name, value in flatten(arguments).items() if name != "threads"}
    plan: dict[str, Any] = {"arguments": settled, "axes": [asdict(axis) for axis in axes], "options": asdict(options)}
    if is_reference(arguments.experience.env):
        plan["env"] = digest_of(arguments.experience.env)
    kept = _kept(run, target_of(arguments.algorithm).partition(":")[2], json.loads(json.dumps(plan, default=str)))
    # With halving the last rung fills its parts, so no rung trains copies for nothing. Small parts cost little: PPO on CartPole
    # ran 74,000 steps/s in parts of one and 79,000 in parts of 9.
    widest = planned[-1 if options.halving else 0].settings * options.seeds
    processor = arguments.process.device == "cpu"
    size = min(PART if processor else widest, options.members, widest)
    parallel = arguments.process.backend == "inductor" and processor
    asked = arguments.process.threads
    threads = processors() if asked == "auto" else asked
    together = min(threads, options.members // size) if parallel else 1
    training = _Training(arguments, options, run, planned, size, together, kept, notice)
    proposed = _proposals(axes, options, planned)
    settings = next(proposed)
    for number in range(len(planned)):
        found: list[Trial] = []
        for new in training.stage(number, settings):
            found += new
            yield from new
        if number + 1 < len(planned):
            each = [found[start : start + options.seeds] for start in range(0, len(found), options.seeds)]
            settings = proposed.send([mean_score([trial.score for trial in seeds]) for seeds in each])


def _proposals(
    axes: Sequence[SettingValues], options: Sweep, planned: Sequence[Stage]
) -> Generator[Sequence[Point], Sequence[float], None]:
    """Yield the settings of each stage, and take their scores."""
    if options.sampler == "optuna":
        yield from proposals(axes, [stage.settings for stage in planned], seed=options.draw)
        return
    settings = points(axes, options)
    for following in planned[1:]:
        scores = yield settings
        settings = [settings[position] for position in survivors(scores, following.settings)]
    yield settings


@define
class _Training:
    """Parts of a sweep, trained or found in its folder in the order of the stages."""

    arguments: Any
    options: Sweep
    run: Path
    planned: Sequence[Stage]
    size: int  # of a part
    together: int  # parts that are trained at once, each by a thread
    kept: list[Trial]  # results in the folder
    notice: Notice
    done: int = 0  # members so far
    before: list[Member] = field(factory=list)  # of the stage before
    states: Cohort | tuple[()] = ()  # of those, if they were needed
    trained: Members | tuple[()] = ()

    def stage(self, number: int, settings: Sequence[Point]) -> Iterator[list[Trial]]:
        """Yield the results of each part of a stage."""
        members = [(point, seed) for point in settings for seed in range(self.options.seeds)]
        parts = {start: members[start : start + self.size] for start in range(0, len(members), self.size)}
        while parts:
            start = next(iter(parts))
            known = self._known(parts[start], self._rung(number))
            group = {start: parts.pop(start) for start in list(parts)[: 1 if known else self.together]}
            for new in [known] if known else self._train(number, group):
                yield new
                self.done += len(new)
        if number and (old := self._folder(number - 1)).exists():
            DISK.remove(old)
        self.before, self.states = members, ()

    def _rung(self, number: int) -> int:
        return number + 1 if self.options.halving else 1

    def _folder(self, number: int) -> Path:
        return self.run / f"rung_{number + 1}"

    def _known(self, part: Sequence[Member], rung: int) -> list[Trial]:
        """Return the results of a part that the folder holds. Raises: CheckpointError if they are of other members."""
        found = self.kept[self.done : self.done + len(part)]
        if [(one.point, one.seed, one.rung) for one in found] != [(*one, rung) for one in part[: len(found)]]:
            where, remedy = str(self.run / ROWS), "use the version of optuna it was begun with, or another folder"
            raise CheckpointError(message(where, got="of other settings", wanted="those of this sweep", remedy=remedy))
        return found if len(found) == len(part) else []

    def _train(self, number: int, parts: Mapping[int, Sequence[Member]]) -> list[list[Trial]]:
        """Train parts side by side, by where they start in the stage, and append their results to the folder."""
        if not isinstance(self.trained, Members):
            self.trained = Members(self.arguments, self.options.episodes, self.notice)
            write_whole(self.run / ROWS, _lines(self.kept[: self.done]).encode())  # without a part that was cut off
        rung, chunks = self._rung(number), self.planned[number].chunks
        every = self.options.seeds * sum(stage.settings for stage in self.planned)
        where = f" (rung {rung} of {len(self.planned)})" if self.options.halving else ""
        self.notice(f"runs {self.done + 1} to {self.done + sum(map(len, parts.values()))} of {every}{where}")
        # One shape, so one program; the copies are not reported.
        full = [[*part, *[part[-1]] * (self.size - len(part))] for part in parts.values()]
        begun = [self._survived(self.trained, number, one) if rung > 1 else self.trained.begin(one) for one in full]
        found = []
        for (start, part), cohort in zip(parts.items(), self.trained.train(begun, chunks), strict=True):
            if rung < len(self.planned) and self.options.halving:
                single.save(self._folder(number) / f"part_{start}", chunks, cohort, keep=1)
            found.append(self.trained.results(part, cohort, rung))
            with (self.run / ROWS).open("a", encoding="utf-8") as file:
                file.write(_lines(found[-1]))
        return found

    def _survived(self, trained: Members, number: int, members: Sequence[Member]) -> Cohort:
        """Return these members as the rung before left them. Raises: CheckpointError."""
        if not isinstance(self.states, Cohort):
            like = trained.like([self.before[0]] * self.size, self.planned[number - 1].chunks)
            starts = range(0, len(self.before), self.size)
            parts = [_saved(self._folder(number - 1) / f"part_{start}", like) for start in starts]
            self.states = tree_map(lambda *leaves: torch.cat(leaves), *parts)
        return take(self.states, torch.tensor([self.before.index(member) for member in members]))


def _saved(folder: Path, like: Cohort) -> Cohort:
    """Return the states of a part. Raises: CheckpointError."""
    where = single.latest(folder)
    if where is None:
        remedy = "bring it back, or begin anew in another folder"
        raise CheckpointError(
            message(str(folder), got="without a checkpoint", wanted="states of a rung", remedy=remedy)
        )
    return single.read_checkpoint(where, like).tree


def _lines(found: Sequence[Trial]) -> str:
    return "".join(json.dumps(trial_row(trial)) + "\n" for trial in found)


def _stored(path: Path) -> Any:
    """Return the value in a JSON file, in which numbers may be infinite; () of a damaged one, or of a FIFO."""
    try:
        return json.loads(read_text(path))
    except (OSError, ValueError, RecursionError):
        return ()


def _upgraded(recipe: str, stored: Any, where: str) -> Any:
    """Return a sweep's stored plan, of any schema, as one of today's. Raises: CheckpointError."""
    known = isinstance(stored, dict) and isinstance(stored.get("arguments"), dict)
    if not known:
        remedy = "name another folder with --run"
        raise CheckpointError(message(where, got="damaged", wanted="the plan of a sweep", remedy=remedy))
    rest = {name: value for name, value in stored.items() if name != NUMBER}
    record = upgrade({RECIPE: recipe, NUMBER: stored.get(NUMBER, 0), **stored["arguments"]}, where)
    settings = {name: value for name, value in settings_in(record).items() if name != "threads"}
    return json.loads(json.dumps({**rest, "arguments": settings}, default=str))


def _as_begun(arguments: Any, run: Path) -> Any:
    """Return the arguments with an older sweep's values for settings that its plan lacks and that have today's default."""
    path = run / PLAN
    if not path.exists():
        return arguments
    stored = _stored(path)
    settings = _upgraded(target_of(arguments.algorithm).partition(":")[2], stored, str(path))["arguments"]
    now = json.loads(json.dumps(flatten(arguments), default=str))
    groups = [type(getattr(arguments, one.name)) for one in fields(type(arguments))]
    usual = {one.name: one.default for group in groups if has(group) for one in fields(group)}
    lacked = [name for name in settings if name not in stored["arguments"] and now[name] == usual.get(name)]
    return changed(arguments, {name: settings[name] for name in lacked if settings[name] != now[name]})


def _kept(run: Path, recipe: str, plan: Any) -> list[Trial]:
    """Return the results that the folder holds, after a check that they are of this sweep; begin one where there is none."""
    path = run / PLAN
    if not path.exists():
        if run.exists() and any(run.iterdir()):
            remedy = "name another folder with --run"
            raise CheckpointError(message(str(run), got="not empty", wanted="a new folder", remedy=remedy))
        run.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({NUMBER: SCHEMA, **plan}, indent=1).encode())
    elif _upgraded(recipe, _stored(path), str(path)) != plan:
        remedy = "give the arguments and the environment it was begun with, or name another folder with --run"
        raise CheckpointError(message(str(run), got="another sweep", wanted="this one", remedy=remedy))
    try:
        rows = read_text(run / ROWS).splitlines(keepends=True) if (run / ROWS).exists() else []
        return [trial_of(json.loads(line)) for line in rows if line.endswith("\n")]  # without a line that was cut off
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as cause:
        got, remedy = f"damaged ({reason(cause)})", "name another folder with --run"
        raise CheckpointError(message(str(run / ROWS), got=got, wanted="a sweep's results", remedy=remedy)) from cause
