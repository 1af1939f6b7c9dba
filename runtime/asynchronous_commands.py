"""What the commands of `purestep` do with runs whose samples come from generators: train, resume, evaluate, plot, replay."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from ..core.errors import CheckpointError, ChoiceError, message
from .effects import folder
from .effects.png import check_picture
from .effects.step_folders import steps
from .recipes.zorplex import NAME
from .runs.arguments import check_whole
from .runs.kinds import with_generators
from .words import check_runs, loading, option, say, trusting

if TYPE_CHECKING:
    from torch import Tensor

    from .asynchronous import session
    from .language.config import TextConfig
    from .language.parts import Parts
    from .language.team import Team

AS_TRAINED = -1
Place = Literal["", "sync", "async"]


def run_among(words: Sequence[str]) -> bool:
    """Whether the words name the folder of such a run."""
    return any(with_generators(Path(word)) for word in words if not word.startswith("-"))


def train(run: Path, arguments: "TextConfig", *, overwrite: bool, team: "Team") -> int:
    """`purestep train zorplex` with generators."""
    from .asynchronous import session

    return _through(run, lambda: session.start(run, arguments, overwrite=overwrite, notice=say, team=team))


def resume(run: Path, moved: Mapping[str, Any], *, team: "Team") -> int:
    """`purestep resume RUN`; `moved` says where its generators work from now on."""
    from .asynchronous import session

    return _through(run, lambda: session.resume(run, notice=say, moved=moved, team=team))


def _through(run: Path, work: "Callable[[], session.Outcome]") -> int:
    """Does the work; then compares, draws and says what it took, or how to go on if it was interrupted."""
    try:
        outcome = work()
    except KeyboardInterrupt:
        say(
            f"stopped at once; {folder.resume_command(run)} goes on from the last checkpoint"
            if folder.begun(run)
            else "nothing was saved yet"
        )
        return 130
    if outcome.interrupted:
        over = f"; {' and '.join(outcome.phases)} is over" if outcome.phases else ""
        say(f"interrupted and saved{over}; go on with: {folder.resume_command(run)}")
        return 130
    from .asynchronous import report
    from .language import report as zorplex_report

    print(report.write_comparison(run))
    for line in _drawn(run, run):
        print(line)
    parts, params, _ = speaker(run)
    print(f"model: {zorplex_report.write_model(run, parts, params)}")
    print("time: " + ", ".join(f"{name} {spent:.1f} s" for name, spent in outcome.seconds.items() if spent))
    return 0


def _drawn(run: Path, place: Path) -> list[str]:
    """Draws what there is of a run into a folder; a line for each picture."""
    from .asynchronous import report

    pictures = (
        ("timeline", report.write_timeline, report.TIMES),
        ("staleness", report.write_staleness, report.AGES),
        ("learning curve", report.write_curve, folder.PICTURE),
    )
    found = []
    for name, draw, file in pictures:
        try:
            found.append(f"{name}: {draw(run, place / file)}")
        except (CheckpointError, ChoiceError) as nothing:
            say(f"no picture: {nothing}")
    return found


def speaker(run: Path, phase: str = "") -> "tuple[Parts, dict[str, Tensor], str]":
    """What speaks in a run: its parts, all parameters of a phase's newest checkpoint, and the phase, the last one unless named.

    Raises: CheckpointError where there is no checkpoint of it.
    """
    from .asynchronous import session

    there = [name for name in (session.SYNC, session.ASYNC) if steps(run / name / folder.CHECKPOINTS)]
    named = phase or (there[-1] if there else session.phases_of(session.arguments_in(run))[-1])
    parts, policy = session.phase_policy(run, named)
    return parts, dict(parts.whole(policy)), named


def evaluate(words: list[str]) -> int:
    """`purestep evaluate RUN`."""

    def look(
        run: tyro.conf.Positional[Path],
        /,
        *,
        phase: Place = "",
        tasks: int = 0,
        draw: int = AS_TRAINED,
        trust: tyro.conf.FlagCreatePairsOff[bool] = False,
    ) -> int:
        """Try held-out tasks with the newest checkpoint of a phase, as it samples and as it takes the likeliest token.

        Args:
            run: the run's folder
            phase: which; without it the last one there is
            tasks: how many; 0 means as many as the run was told
            draw: decides which; -1 means those of the run
            trust: import the task that the run's folder names
        """
        check_whole("--tasks", tasks, 0)
        check_whole("--draw", draw, AS_TRAINED)
        loading(run)
        trusting(trust)
        import torch

        from .asynchronous import session
        from .language import report as zorplex_report
        from .language.evaluate import table

        arguments = session.arguments_in(run)
        torch.set_num_threads(arguments.machine.threads)
        parts, params, named = speaker(run, phase)
        usual = {"tasks": arguments.episodes.held_out, "draw": arguments.episodes.draw}
        asked = {"tasks": tasks or usual["tasks"], "draw": usual["draw"] if draw == AS_TRAINED else draw}
        found = zorplex_report.evaluation(parts, params, **asked)
        before: Any = zorplex_report.read_before(run) if asked == usual else ()
        columns = {} if isinstance(before, tuple) else {"before": before.sampled, "before, greedy": before.greedy}
        print(table({**columns, f"after {named}": found.sampled, f"after {named}, greedy": found.greedy}))
        print(f"evaluation: {found.sampled.line()}")
        return 0

    return tyro.cli(look, args=words, prog="purestep evaluate")


def plot(words: list[str]) -> int:
    """`purestep plot RUN...`: the pictures of one run, or the success of several seeds in one."""

    def draw(
        runs: tyro.conf.Positional[tuple[Path, ...]],
        /,
        *,
        out: Path = Path(folder.PICTURE),
        over: Literal["samples", "seconds"] = "samples",
    ) -> int:
        """Draw the timeline, the ages of samples and the learning curves of a run; of several, their success.

        Args:
            runs: the runs' folders; several become a mean in a band, for each of the phases
            out: the picture of several runs; for a single run, a folder for its pictures in place of its own
            over: what the success of several runs is drawn over
        """
        check_runs(runs)
        homes = [folder.existing(run) for run in runs]
        if len(homes) == 1:
            place = homes[0] if option(words, "--out", "") == "" else out
            from .asynchronous import report

            for file in (report.TIMES, report.AGES, folder.PICTURE):
                check_picture(place / file)
            print("\n".join(_drawn(homes[0], place)))
        else:
            print(_success(homes, check_picture(out), over))
        return 0

    return tyro.cli(draw, args=words, prog="purestep plot")


def _success(runs: Sequence[Path], out: Path, over: str) -> Path:
    """The share of attempts that succeed, the mean over runs, a line for each phase."""
    from .asynchronous import session
    from .effects.plot import learning_curve
    from .language.report import measured, title_of

    files = {
        label: [path for run in runs if (path := run / phase / folder.METRICS).exists()]
        for label, phase in (("in turns", session.SYNC), ("at once", session.ASYNC))
    }
    kinds = {label: paths for label, paths in files.items() if paths}
    if not kinds:
        wanted, remedy = "runs with one", f"go on with them: {folder.resume_command(runs[0])}"
        raise ChoiceError(message("purestep plot: RUN", got="runs without an update", wanted=wanted, remedy=remedy))
    column, label = measured([path for paths in kinds.values() for path in paths])
    return learning_curve(
        kinds,
        out,
        x="steps" if over == "samples" else "seconds",
        y=column,
        title=f"{title_of(runs[0])}, in turns and at once",
        x_label="attempts learned from" if over == "samples" else "seconds since the phase began",
        y_label=label,
        smooth=5,
    )


def replay_command(words: list[str]) -> int:
    """`purestep replay RUN`: 0 where all is as it should be."""

    def again(run: tyro.conf.Positional[Path], /) -> int:
        """Go through what generators and trainer did: is the scheduler the same again, was each sample learned from once?

        Args:
            run: the folder of a run with generators, or of one of its phases, RUN/sync or RUN/async
        """
        home, names = (run.parent, (run.name,)) if with_generators(run.parent) else (run, folder.PHASES[1:])
        there = [name for name in names if (home / name).is_dir()]
        if with_generators(home) or not home.is_dir():
            loading(home)
        if not with_generators(home) or not there:
            wanted, remedy = "the folder of one", f"train one: purestep train {NAME} --mode async"
            raise ChoiceError(message(str(run), got="no run with generators", wanted=wanted, remedy=remedy))
        from .asynchronous import report
        from .asynchronous.replaying import replayed

        wrong = []
        for name in there:
            replay, audit = replayed(home, name), report.audit(home, name)
            print(f"{name}: {replay.line()}\n{name}: {audit.line()}")
            wrong += [*replay.wrong, *audit.wrong]
        return int(bool(wrong))

    return tyro.cli(again, args=words, prog="purestep replay")
