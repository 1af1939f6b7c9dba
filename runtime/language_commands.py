"""What the commands of `purestep` do with runs of language models: train, resume, evaluate, plot, chat."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from attrs import evolve, frozen

from ..core.errors import ChoiceError, choose, message
from . import asynchronous_commands as asynchronous
from .effects import folder
from .effects.experiment_flags import ABOUT as CONFIG
from .effects.experiment_flags import with_config
from .effects.png import check_picture
from .effects.ranks.launched import launched, several, within_machine
from .evaluate_command import looked, trust_of
from .language.config import CHANGES, TaskRun, TextConfig, generators
from .recipes import cache, zorplex
from .runs.arguments import changed, flag
from .runs.kinds import is_language, with_generators
from .runs.trusting import Trust
from .words import FLAGS, check_runs, loading, option, run_folder, say, trusting

if TYPE_CHECKING:
    from .language import session
    from .language.team import Team


@frozen
class Training:
    """Where a run goes, and what follows it."""

    arguments: Annotated[zorplex.Zorplex, tyro.conf.arg(name="")]
    run: Path  # the run's folder
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False  # remove the run that the folder holds


@frozen
class TaskTraining:
    """Where a run of a task goes."""

    arguments: Annotated[TaskRun, tyro.conf.arg(name="")]
    run: Path  # the run's folder
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False  # remove the run that the folder holds


@frozen
class CacheTraining:
    """Where a run of the reasoning cache goes."""

    arguments: Annotated[cache.Cache, tyro.conf.arg(name="")]
    run: Annotated[Path, tyro.conf.arg(aliases=("--output-dir",))]  # the run's folder
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False  # remove the run that the folder holds


def train_task(words: list[str]) -> int:
    """`purestep train FILE.py:TASK`, on all ranks that a launcher has started."""
    return _led(words, lambda team: _train_task(words, team))


def _train_task(words: list[str], team_of: "Callable[[], Team]") -> int:
    reference, *words = words
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
        description=f"{TaskRun.__doc__}\n\nThe defaults shown are those of --algorithm {algorithm}.",
        config=FLAGS,
    )
    given.arguments.check()
    say(f"{name} by {algorithm}, {given.arguments.episodes.steps} steps, into {given.run}")
    from .effects.task_reference import absolute, trust

    arguments = changed(given.arguments, {"reference": absolute(given.arguments.reference)})
    trust(arguments.reference)
    task = arguments.task()
    if task.demonstrations == () and task.conversations == () and arguments.warm.warm_steps < 0:
        arguments = changed(arguments, {"warm_steps": 0})
    return _begun(given.run, arguments, given.overwrite, team_of())


def _begun(run: Path, arguments: TextConfig, overwrite: bool, team: "Team") -> int:
    team.check(arguments)
    start: dict[str, Any] = {"overwrite": overwrite, "team": team}
    if generators(arguments) > 0:
        return asynchronous.train(run, arguments, **start)
    from .language import session

    trust = Trust(tuple(arguments.functions().values()))
    return _through(run, lambda: session.start(run, arguments, **start, notice=say), trust)


def train(recipe: str, words: list[str]) -> int:
    """`purestep train zorplex|cache`, on all ranks that a launcher has started."""
    return _led(words, lambda team: (_train_cache if recipe == cache.NAME else _train)(words, team))


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
    defaults = zorplex.zorplex_defaults(algorithm)
    world = f"{zorplex.NAME}-{option(words, '--kind', defaults.tasks.kind)}"
    given = tyro.cli(
        Training,
        default=Training(defaults, run_folder(algorithm, world, option(words, "--seed", "0"))),
        args=words,
        prog=f"purestep train {zorplex.NAME}",
        description=_about(zorplex.Zorplex, algorithm, CONFIG),
        config=FLAGS,
    )
    return _checked(given.run, given.arguments, given.overwrite, team_of)


def _train_cache(words: list[str], team_of: "Callable[[], Team]") -> int:
    algorithm = option(words, "--algorithm", "grpo")
    defaults = cache.cache_defaults(algorithm)
    world = f"{option(words, '--kind', defaults.problems.kind)}-{cache.NAME}"
    place = run_folder(algorithm, world, option(words, "--seed", str(defaults.run.seed)))
    given = tyro.cli(
        CacheTraining,
        default=CacheTraining(defaults, place),
        args=words,
        prog=f"purestep train {cache.NAME}",
        description=_about(cache.Cache, algorithm),
        config=FLAGS,
    )
    return _checked(given.run, given.arguments, given.overwrite, team_of)


def _about(settings: type, algorithm: str, *more: str) -> str:
    return "\n\n".join((f"{settings.__doc__}\n\nThe defaults shown are those of --algorithm {algorithm}.", *more))


def _checked(run: Path, arguments: TextConfig, overwrite: bool, team_of: "Callable[[], Team]") -> int:
    arguments.check()
    steps, ranks = arguments.episodes.steps, f" on {launched()[1]} ranks" if several() else ""
    say(f"{arguments.recipe} by {arguments.learning.algorithm}, {steps} steps{ranks}, into {run}")
    return _begun(run, arguments, overwrite, team_of())


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
        solution_rollout_policy: str = "",
        summarization_rollout_policy: str = "",
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
            solution_rollout_policy: of a run of cache that names a function of yours: it is called only if named here
            summarization_rollout_policy: the same
            trust: import the task or the functions that the run's folder names
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
        trusted = Trust((solution_rollout_policy, summarization_rollout_policy), trust, ("resume", *words))
        from .language.team import ALONE, of_ranks

        team = team_of()
        if team is ALONE and of_ranks(run):
            from .language.ranked import in_world

            return in_world(lambda own: _resumed(run, own, moved, trusted))
        return _resumed(run, team, moved, trusted)

    return tyro.cli(go_on, args=words, prog="purestep resume")


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


def _resumed(run: Path, team: "Team", moved: Mapping[str, Any], trust: Trust) -> int:
    if with_generators(run):
        return asynchronous.resume(run, moved, team=team, trust=trust)
    from .language import session

    return _through(run, lambda: session.resume(run, notice=say, team=team, trust=trust, **moved), trust)


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
    print(_spent(outcome))
    return 0


def _evaluated(run: Path, trust: Trust, trial: Any = ()) -> str:
    """Evaluates the newest checkpoint and writes the model; gives what is to be printed."""
    from .language import report, session

    found_at = session.restored_newest(run, trust)
    usual, held, loop = found_at.arguments, found_at.held, found_at.loop
    asked = usual if isinstance(trial, tuple) else usual.evaluated(trial)
    parts = found_at.parts if asked == usual else evolve(found_at.parts, task=asked.task())
    params = parts.whole(session.policy_of(held))
    found = report.evaluation(parts, params, tasks=asked.episodes.held_out, draw=asked.episodes.draw)
    before = report.read_before(run, parts.task) if asked == usual else ()
    table = report.write_after(run, loop.iteration, found, asked.examined(), before)
    place = report.write_model(run, parts, params)
    return f"{table}\nevaluation: {found.line()}\nmodel: {place}"


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
    """`purestep evaluate RUN`: tries held-out tasks with the newest checkpoint."""
    if asynchronous.run_among(words):
        return asynchronous.evaluate(words)
    given = looked(
        words, "Try held-out tasks with the newest checkpoint, as it samples and as it takes the likeliest token."
    )
    loading(given.run)
    trusting(given.trust)
    print(_evaluated(given.run, trust_of(given, words), given.trial))
    return 0


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
