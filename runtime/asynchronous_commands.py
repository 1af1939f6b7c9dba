"""What the commands of `purestep` do with runs whose samples come from generators: train, resume, evaluate, plot, replay."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro
from attrs import evolve, frozen

from ..core.errors import CheckpointError, ChoiceError, message
from .effects import folder
from .effects.png import check_picture
from .effects.step_folders import steps
from .evaluate_command import looked, trust_of
from .recipes.zorplex import NAME
from .runs.kinds import with_generators
from .runs.trusting import NOTHING, Trust
from .words import check_runs, loading, option, say, trusting

if TYPE_CHECKING:
    from torch import Tensor

    from .asynchronous import session
    from .language.config import TextConfig
    from .language.parts import Parts
    from .language.team import Team

Place = Literal["", "sync", "async"]


def run_among(words: Sequence[str]) -> bool:
    """Whether the words name the folder of such a run."""
    return any(with_generators(Path(word)) for word in words if not word.startswith("-"))


def train(run: Path, arguments: "TextConfig", *, overwrite: bool, team: "Team") -> int:
    """`purestep train zorplex` with generators."""
    from .asynchronous import session

    return _through(run, lambda: session.start(run, arguments, overwrite=overwrite, notice=say, team=team))


def resume(run: Path, moved: Mapping[str, Any], *, team: "Team", trust: Trust) -> int:
    """`purestep resume RUN`; `moved` says where its generators work from now on."""
    from .asynchronous import session

    return _through(run, lambda: session.resume(run, notice=say, moved=moved, team=team, trust=trust))


def _through(run: Path, work: "Callable[[], session.Outcome]") -> int:
    """Does the work; then compares, draws and says what it took, or how to go on if it was interrupted."""
    go_on = f"purestep resume {run}"
    try:
        outcome = work()
    except KeyboardInterrupt:
        say(
            f"stopped at once; {go_on} goes on from the last checkpoint"
            if folder.begun(run)
            else "nothing was saved yet"
        )
        return 130
    if outcome.interrupted:
        over = f"; {' and '.join(outcome.phases)} is over" if outcome.phases else ""
        say(f"interrupted and saved{over}; go on with: {go_on}")
        return 130
    from .asynchronous import report
    from .language import report as zorplex_report

    parts, params, _ = speaker(run, trust=Trust(every=True))  # it has just been trained
    print(report.write_comparison(run, parts.task))
    for line in _drawn(run, run):
        print(line)
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


def speaker(run: Path, phase: str = "", trust: Trust = NOTHING) -> "tuple[Parts, dict[str, Tensor], str]":
    """What speaks in a run: its parts, all parameters of a phase's newest checkpoint, and the phase, the last one unless named.

    Raises: CheckpointError where there is no checkpoint of it; TrustError.
    """
    from .asynchronous import session

    there = [name for name in (session.SYNC, session.ASYNC) if steps(run / name / folder.CHECKPOINTS)]
    named = phase or (there[-1] if there else session.phases_of(session.arguments_in(run))[-1])
    parts, policy = session.phase_policy(run, named, trust)
    return parts, dict(parts.whole(policy)), named


@frozen
class Named:
    """A phase of a run with generators."""

    phase: Place = ""  # which; without it the last one there is


def evaluate(words: list[str]) -> int:
    """`purestep evaluate RUN`: tries held-out tasks with the newest checkpoint of a phase."""
    about = (
        "Try held-out tasks with the newest checkpoint of a phase, as it samples and as it takes the likeliest token."
    )
    given = looked(words, about, Named())
    loading(given.run)
    trusting(given.trust)
    import torch

    from .asynchronous import session
    from .language import report

    usual = session.arguments_in(given.run)
    asked = usual.evaluated(given.trial)
    torch.set_num_threads(usual.machine.threads)
    parts, params, named = speaker(given.run, given.more.phase, trust_of(given, words))
    parts = parts if asked == usual else evolve(parts, task=asked.task())
    found = report.evaluation(parts, params, tasks=asked.episodes.held_out, draw=asked.episodes.draw)
    before = report.read_before(given.run, parts.task) if asked == usual else ()
    print(report.table_of({**({} if isinstance(before, tuple) else {"before": before}), f"after {named}": found}))
    print(f"evaluation: {found.line()}")
    return 0


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

    files = {
        label: [path for run in runs if (path := run / phase / folder.METRICS).exists()]
        for label, phase in (("in turns", session.SYNC), ("at once", session.ASYNC))
    }
    kinds = {label: paths for label, paths in files.items() if paths}
    if not kinds:
        wanted, remedy = "runs with one", f"go on with them: purestep resume {runs[0]}"
        raise ChoiceError(message("purestep plot: RUN", got="runs without an update", wanted=wanted, remedy=remedy))
    return learning_curve(
        kinds,
        out,
        x="steps" if over == "samples" else "seconds",
        y="accuracy",
        title="zorplex, in turns and at once",
        x_label="attempts learned from" if over == "samples" else "seconds since the phase began",
        y_label="share of attempts that succeed",
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
