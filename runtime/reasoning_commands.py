"""What the commands of `purestep` do with runs of the reasoning cache: train, resume, evaluate, plot."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from attrs import frozen

from ..core.errors import ChoiceError
from .effects import folder
from .effects.png import check_picture
from .recipes.cache import NAME, POLICIES, Cache, cache_defaults, check
from .recipes.trusting import Trust
from .runs.arguments import check_whole
from .runs.kinds import is_cache
from .words import FLAGS, check_runs, loading, option, run_folder, say

if TYPE_CHECKING:
    from .recipes import cache_session as session

AS_TRAINED = -1


@frozen
class Training:
    """Where a run goes, and what follows it."""

    arguments: Annotated[Cache, tyro.conf.arg(name="")]
    run: Annotated[Path, tyro.conf.arg(aliases=("--output-dir",))]  # the run's folder
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False  # remove the run that the folder holds


def train(words: list[str]) -> int:
    """`purestep train cache`."""
    algorithm = option(words, "--algorithm", "grpo")
    defaults = cache_defaults(algorithm)
    world = f"{option(words, '--kind', defaults.problems.kind)}-{NAME}"
    given = tyro.cli(
        Training,
        default=Training(defaults, run_folder(algorithm, world, option(words, "--seed", str(defaults.run.seed)))),
        args=words,
        prog=f"purestep train {NAME}",
        description=f"{Cache.__doc__}\n\nThe defaults shown are those of --algorithm {algorithm}.",
        config=FLAGS,
    )
    check(given.arguments)
    steps = given.arguments.run.steps
    say(f"{NAME} by {given.arguments.learning.algorithm}, {steps} steps, into {given.run}")
    from .recipes import cache_session as session

    trust = Trust(_functions(given.arguments))
    start = partial(session.start, given.run, given.arguments, overwrite=given.overwrite, notice=say)
    return _through(given.run, start, trust)


def _functions(arguments: Cache) -> tuple[str, ...]:
    return tuple(getattr(arguments.rollouts, name) for name in POLICIES)


def resume(words: list[str]) -> int:
    """`purestep resume RUN`."""

    def go_on(
        run: tyro.conf.Positional[Path],
        /,
        *,
        solution_rollout_policy: str = "",
        summarization_rollout_policy: str = "",
        trust: tyro.conf.FlagCreatePairsOff[bool] = False,
    ) -> int:
        """Go on with a run from its newest checkpoint, with the arguments it was begun with; or begin it again without one.

        Args:
            run: the run's folder
            solution_rollout_policy: the function of that name, if the run has one of yours: it is called only if named here
            summarization_rollout_policy: the same
            trust: call whatever functions the run's folder names
        """
        loading(run)
        from .recipes import cache_session as session

        named = (solution_rollout_policy, summarization_rollout_policy)
        trusted = Trust(named, trust, ("resume", *words))
        return _through(run, lambda: session.resume(run, notice=say, trust=trusted), trusted)

    return tyro.cli(go_on, args=words, prog="purestep resume", config=FLAGS)


def _through(run: Path, work: "Callable[[], session.Outcome]", trust: Trust) -> int:
    """Does the work; then evaluates, draws and says what it took, or how to go on if it was interrupted."""
    try:
        outcome = work()
    except KeyboardInterrupt:
        next_step = f"purestep resume {run} goes on from the last checkpoint"
        say(f"stopped at once; {next_step if folder.begun(run) else 'nothing was saved yet'}")
        return 130
    if outcome.loop.interrupted:
        say(f"interrupted after {outcome.loop.iteration} iterations and saved; go on with: purestep resume {run}")
        return 130
    print(_evaluated(run, trust))
    _drawn(run, run / folder.PICTURE)
    parts = [f"{name} {spent:.1f} s" for name, spent in outcome.seconds.items() if spent]
    print("time: " + (", ".join(parts) or "nothing was left to train"))
    return 0


def _evaluated(run: Path, trust: Trust, problems: int = 0, draw: int = AS_TRAINED, cycles: int = 0) -> str:
    """Evaluates the newest checkpoint and writes the model; gives what is to be printed."""
    from .reasoning.evaluate import evaluated
    from .recipes import cache_report as report
    from .recipes import cache_session as session

    restored = session.restored_newest(run, trust)
    parts, held, loop = restored.parts, restored.held, restored.loop
    own, params = parts.arguments.run, parts.whole(session.policy_of(held))
    usual = {"problems": own.held_out, "draw": own.draw, "cycles": own.cycles}
    asked = {
        "problems": problems or own.held_out,
        "draw": own.draw if draw == AS_TRAINED else draw,
        "cycles": cycles or own.cycles,
    }
    found, _ = evaluated(parts, params, **asked)
    before = report.read_before(run) if asked == usual else ()
    table = report.write_after(run, loop.iteration, found, asked, before)
    place = report.write_model(run, parts, params)
    trained_on = parts.settings.num_reasoning_steps
    return f"{table}\nevaluation: {found.line(trained_on)}\nmodel: {place}"


def _drawn(run: Path, out: Path) -> None:
    from .recipes import cache_report as report

    try:
        print(f"picture: {report.pictures([run], out, _trained_on(run))}")
    except ChoiceError as nothing:
        say(f"no picture: {nothing}")


def _trained_on(run: Path) -> int:
    from .recipes import cache_session as session

    return session.arguments_in(run).rollouts.num_reasoning_steps


def evaluate(words: list[str]) -> int:
    """`purestep evaluate RUN`."""

    def look(
        run: tyro.conf.Positional[Path],
        /,
        *,
        problems: int = 0,
        draw: int = AS_TRAINED,
        cycles: int = 0,
        solution_rollout_policy: str = "",
        summarization_rollout_policy: str = "",
        trust: tyro.conf.FlagCreatePairsOff[bool] = False,
    ) -> int:
        """Try held-out problems with the newest checkpoint, for T = 1, 2, ... cycles.

        Args:
            run: the run's folder
            problems: how many; 0 means as many as the run was told
            draw: decides which; -1 means those of the run
            cycles: the largest T; 0 means that of the run
            solution_rollout_policy: the function of that name, if the run has one of yours: it is called only if named here
            summarization_rollout_policy: the same
            trust: call whatever functions the run's folder names
        """
        check_whole("--problems", problems, 0)
        check_whole("--draw", draw, AS_TRAINED)
        check_whole("--cycles", cycles, 0)
        loading(run)
        named = (solution_rollout_policy, summarization_rollout_policy)
        print(_evaluated(run, Trust(named, trust, ("evaluate", *words)), problems, draw, cycles))
        return 0

    return tyro.cli(look, args=words, prog="purestep evaluate", config=FLAGS)


def plot(words: list[str]) -> int:
    """`purestep plot RUN...`: accuracy over cycles, before and after, and the rewards of training."""

    def draw(runs: tyro.conf.Positional[tuple[Path, ...]], /, *, out: Path = Path(folder.PICTURE)) -> int:
        """Draw accuracy over cycles before and after training, and rewards; of several runs the mean of them.

        Args:
            runs: the runs' folders
            out: the picture; for a single run it goes into its folder unless given
        """
        check_runs(runs)
        from .recipes import cache_report as report

        place = runs[0] / folder.PICTURE if len(runs) == 1 and option(words, "--out", "") == "" else out
        homes = [folder.existing(run) for run in runs]
        print(report.pictures(homes, check_picture(place), _trained_on(runs[0])))
        return 0

    return tyro.cli(draw, args=words, prog="purestep plot")


def run_among(words: list[str]) -> bool:
    """Whether the words name the folder of a run of the reasoning cache."""
    return any(is_cache(Path(word)) for word in words if not word.startswith("-"))
