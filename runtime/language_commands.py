"""What the commands of `purestep` do with runs of language models: train, resume, evaluate, plot, chat."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from attrs import frozen

from ..core.errors import ChoiceError, choose, message
from . import asynchronous_commands as asynchronous
from .effects import folder
from .effects.experiment_flags import ABOUT as CONFIG
from .effects.experiment_flags import with_config
from .effects.png import check_picture
from .effects.ranks.launched import launched, several, within_machine
from .language.config import CHANGES, TaskRun, TextConfig, generators
from .recipes.zorplex import NAME, Zorplex, check, zorplex_defaults
from .runs.arguments import changed, check_whole, flag
from .runs.kinds import is_language, with_generators
from .words import FLAGS, check_runs, loading, option, run_folder, say, trusting

if TYPE_CHECKING:
    from .language import session
    from .language.team import Team

AS_TRAINED = -1


@frozen
class Training:
    """Where a run goes, and what follows it."""

    arguments: Annotated[Zorplex, tyro.conf.arg(name="")]
    run: Path  # the run's folder
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False  # remove the run that the folder holds


@frozen
class TaskTraining:
    """Where a run of a task goes."""

    arguments: Annotated[TaskRun, tyro.conf.arg(name="")]
    run: Path  # the run's folder
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False  # remove the run that the folder holds


def train_task(words: list[str]) -> int:
    """`purestep train FILE.py:TASK`, on all ranks that a launcher has started."""
    return _led(words, lambda team: _train_task(words, team))


def _train_task(words: list[str], team_of: "Callable[[], Team]") -> int:
    reference, *words = words
    words = with_config(words)
    algorithm = option(words, "--algorithm", "grpo")
    defaults = changed(TaskRun(), {**choose("--algorithm", algorithm, CHANGES), "algorithm": algorithm})
    name = reference.rpartition(":")[2].lower()
    given = tyro.cli(
        TaskTraining,
        default=TaskTraining(
            changed(defaults, {"reference": reference}), run_folder(algorithm, name, option(words, "--seed", "0"))
        ),
        args=words,
        prog=f"purestep train {reference}",
        description=f"{TaskRun.__doc__}\n\nThe defaults shown are those of --algorithm {algorithm}.\n\n{CONFIG}",
        config=FLAGS,
    )
    given.arguments.check()
    say(f"{name} by {algorithm}, {given.arguments.episodes.steps} steps{_on_ranks()}, into {given.run}")
    from .effects.task_reference import absolute, trust

    arguments = changed(given.arguments, {"reference": absolute(given.arguments.reference)})
    trust(arguments.reference)
    shown = arguments.task().demonstrations
    if isinstance(shown, tuple) and arguments.warm.warm_steps < 0:
        arguments = changed(arguments, {"warm_steps": 0})
    return _begun(given.run, arguments, given.overwrite, team_of())


def _begun(run: Path, arguments: TextConfig, overwrite: bool, team: "Team") -> int:
    team.check(arguments)
    start: dict[str, Any] = {"overwrite": overwrite, "team": team}
    if generators(arguments) > 0:
        return asynchronous.train(run, arguments, **start)
    from .language import session

    return _through(run, lambda: session.start(run, arguments, **start, notice=say))


def train(words: list[str]) -> int:
    """`purestep train zorplex`, on all ranks that a launcher has started."""
    return _led(words, lambda team: _train(words, team))


def _led(words: list[str], program: "Callable[[Callable[[], Team]], int]") -> int:
    """The program's exit code: on this process, or on the first of several, which do what it says.

    The program is given a function that returns its team. That of one process imports torch when it is called.
    """
    if not several():
        return program(_alone)
    if "--trust-network" not in words:
        within_machine()
    from .language.ranked import in_world  # here: it takes torch a second to import

    return in_world(lambda team: program(lambda: team))


def _alone() -> "Team":
    from .language.team import ALONE

    return ALONE


def _train(words: list[str], team_of: "Callable[[], Team]") -> int:
    words = with_config(words)
    algorithm = option(words, "--algorithm", "grpo")
    defaults = zorplex_defaults(algorithm)
    world = f"{NAME}-{option(words, '--kind', defaults.tasks.kind)}"
    place = run_folder(algorithm, world, option(words, "--seed", "0"))
    given = tyro.cli(
        Training,
        default=Training(defaults, place),
        args=words,
        prog=f"purestep train {NAME}",
        description=f"{Zorplex.__doc__}\n\nThe defaults shown are those of --algorithm {algorithm}.\n\n{CONFIG}",
        config=FLAGS,
    )
    check(given.arguments)
    steps = given.arguments.episodes.steps
    say(f"{NAME} by {given.arguments.learning.algorithm}, {steps} steps{_on_ranks()}, into {given.run}")
    return _begun(given.run, given.arguments, given.overwrite, team_of())


def resume(words: list[str]) -> int:
    """`purestep resume RUN`, on all ranks that a launcher has started."""
    return _led(words, lambda team: _resume(words, team))


def _resume(words: list[str], team_of: "Callable[[], Team]") -> int:
    def go_on(
        run: tyro.conf.Positional[Path],
        /,
        *,
        engine: Literal["processes", "monarch", "ray"] | None = None,
        hosts: str | None = None,
        transfer: Literal["auto", "shared", "ray", "monarch"] | None = None,
        trust_network: tyro.conf.FlagCreatePairsOff[bool] = False,
        devices: str | None = None,
        server: str | None = None,
        trust: tyro.conf.FlagCreatePairsOff[bool] = False,
    ) -> int:
        """Go on with a run from its newest checkpoint, with the arguments it was begun with, what samples maybe elsewhere.

        One that has no checkpoint yet is begun again.

        Args:
            run: the run's folder
            engine: what starts generators from now on; as it was, unless given, and so are the others
            hosts: where they work from now on, each with `purestep host`; "" is this machine
            transfer: how weights reach hosts: as fits them; by memory that all see; by Ray's object store; by Monarch's RDMA
            trust_network: also use what no engine encrypts with other hosts
            devices: of the generators in turn
            server: the vLLM server that samples from now on, where one does
            trust: import the task that the run's folder names
        """
        given = {
            "engine": engine,
            "hosts": hosts,
            "transfer": transfer,
            "trust_network": (trust_network and with_generators(run)) or None,
            "devices": devices,
            "server": server,
        }
        moved = {name: value for name, value in given.items() if value is not None}
        _check_moved(run, moved)
        loading(run)
        trusting(trust)
        from .language.team import ALONE, of_ranks

        team = team_of()
        if team is ALONE and of_ranks(run):
            from .language.ranked import in_world

            return in_world(lambda own: _resumed(run, own, moved))
        return _resumed(run, team, moved)

    return tyro.cli(go_on, args=words, prog="purestep resume")


def _on_ranks() -> str:
    return f" on {launched()[1]} ranks" if several() else ""


def _check_moved(run: Path, moved: Mapping[str, Any]) -> None:
    """Refuses what does not say where this run samples. Raises: ChoiceError."""
    generators = with_generators(run)
    wanted = "a run without generators" if generators else "a run with generators"
    for name in moved:
        if (name == "server") is generators:
            remedy = "leave it out, or train anew with it"
            raise ChoiceError(message(flag(name), got="given", wanted=wanted, remedy=remedy))
    path = run / folder.ARGUMENTS
    held = folder.read_json(path) if path.is_file() else {}
    if "server" in moved and held.get("server") == "":
        remedy = "leave it out, or train anew with it"
        raise ChoiceError(message("--server", got="given", wanted="a run that a server samples for", remedy=remedy))
    if moved.get("server") == "":
        remedy = "leave it out to go on with its own"
        raise ChoiceError(message("--server", got="''", wanted="http://HOST:PORT/v1", remedy=remedy))


def _resumed(run: Path, team: "Team", moved: Mapping[str, Any]) -> int:
    if with_generators(run):
        return asynchronous.resume(run, moved, team=team)
    from .language import session

    return _through(run, lambda: session.resume(run, notice=say, team=team, **moved))


def _through(run: Path, work: "Callable[[], session.Outcome]") -> int:
    """Does the work; then evaluates, draws and says what it took, or how to go on if it was interrupted."""
    try:
        outcome = work()
    except KeyboardInterrupt:
        next_step = f"{folder.resume_command(run)} goes on from the last checkpoint"
        say(f"stopped at once; {next_step if folder.begun(run) else 'nothing was saved yet'}")
        return 130
    if outcome.loop.interrupted:
        say(
            f"interrupted after {outcome.loop.iteration} iterations and saved; go on with: {folder.resume_command(run)}"
        )
        return 130
    print(_evaluated(run))
    _drawn(run, run / folder.PICTURE)
    print(_spent(outcome))
    return 0


def _evaluated(run: Path, tasks: int = 0, draw: int = AS_TRAINED) -> str:
    """Evaluates the newest checkpoint and writes the model; gives what is to be printed."""
    from .language import report, session

    found_at = session.restored_newest(run)
    parts, held, loop = found_at.parts, found_at.held, found_at.loop
    own, params = found_at.arguments.episodes, parts.whole(session.policy_of(held))
    usual = {"tasks": own.held_out, "draw": own.draw}
    held_out = {"tasks": tasks or own.held_out, "draw": own.draw if draw == AS_TRAINED else draw}
    found = report.evaluation(parts, params, **held_out)
    before = report.read_before(run) if held_out == usual else ()
    table = report.write_after(run, loop.iteration, found, held_out, before)
    place = report.write_model(run, parts, params)
    return f"{table}\nevaluation: {found.sampled.line()}\nmodel: {place}"


def _drawn(run: Path, out: Path) -> None:
    from .language import report

    try:
        print(f"learning curve: {report.picture(run, out)}")
    except ChoiceError as nothing:
        say(f"no picture: {nothing}")


def _spent(outcome: "session.Outcome") -> str:
    """What a session took, part by part, in one line."""
    parts = [f"{name} {spent:.1f} s" for name, spent in outcome.seconds.items() if spent]
    return "time: " + (", ".join(parts) or "nothing was left to train")


def evaluate(words: list[str]) -> int:
    """`purestep evaluate RUN`."""
    if asynchronous.run_among(words):
        return asynchronous.evaluate(words)

    def look(
        run: tyro.conf.Positional[Path],
        /,
        *,
        tasks: int = 0,
        draw: int = AS_TRAINED,
        trust: tyro.conf.FlagCreatePairsOff[bool] = False,
    ) -> int:
        """Try held-out tasks with the newest checkpoint, as it samples and as it takes the likeliest token.

        Args:
            run: the run's folder
            tasks: how many; 0 means as many as the run was told
            draw: decides which; -1 means those of the run
            trust: import the task that the run's folder names
        """
        check_whole("--tasks", tasks, 0)
        check_whole("--draw", draw, AS_TRAINED)
        loading(run)
        trusting(trust)
        print(_evaluated(run, tasks, draw))
        return 0

    return tyro.cli(look, args=words, prog="purestep evaluate")


def plot(words: list[str]) -> int:
    """`purestep plot RUN...`: one run in six pictures, or the success of several seeds in one."""
    if asynchronous.run_among(words):
        return asynchronous.plot(words)

    def draw(runs: tyro.conf.Positional[tuple[Path, ...]], /, *, out: Path = Path(folder.PICTURE)) -> int:
        """Draw success, reward, length, entropy, speed and the sampler's distance over a run's steps; of several, success.

        Args:
            runs: the runs' folders; several become a mean in a band
            out: the picture; for a single run it goes into its folder unless given
        """
        check_runs(runs)
        homes = [folder.existing(run) for run in runs]
        from .language import report

        if len(homes) == 1:
            place = homes[0] / folder.PICTURE if option(words, "--out", "") == "" else out
            print(report.picture(homes[0], check_picture(place)))
        else:
            print(report.pictures(homes, check_picture(out)))
        return 0

    return tyro.cli(draw, args=words, prog="purestep plot")


def run_among(words: list[str]) -> bool:
    """Whether the words name the folder of a language model's run."""
    return any(is_language(Path(word)) for word in words if not word.startswith("-"))
