"""What the commands of `purestep` do with the words that follow their names: train, resume, evaluate, explain, plot.

What imports torch is imported where the words have been checked, so that help, refusals and the first line come at once.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import tyro
from attrs import frozen

from ..core.errors import ChoiceError, ShapeError, choose
from . import language_commands as language
from .effects import folder
from .effects.png import check_picture
from .effects.ranks.launched import on_one_rank
from .recipes import RECIPES, cache
from .recipes.arguments import run_steps
from .recipes.closing import Closing, Playing, Ranking, closing_of
from .recipes.prove_settings import USUAL
from .recipes.zorplex import ABOUT, NAME
from .runs.arguments import check_whole
from .runs.kinds import recorded
from .words import FLAGS, check_runs, loading, run_folder, say
from .words import option as option

if TYPE_CHECKING:
    from .recipes import session

C = TypeVar("C")


@frozen
class Training:
    """Where a run goes, and what follows it."""

    arguments: Annotated[Any, tyro.conf.arg(name="")]  # of the types that the defaults have
    closing: Annotated[Any, tyro.conf.arg(name="")]
    run: Path  # the run's folder
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False  # remove the run that the folder holds


@frozen
class Asking:
    """A run, and how it is to be evaluated."""

    run: tyro.conf.Positional[Path]  # the run's folder
    closing: Annotated[Any, tyro.conf.arg(name="")]


def train_command(words: list[str]) -> int:
    """`purestep train RECIPE`: trains, evaluates and draws."""
    if not words or words[0] in ("-h", "--help"):
        named = {**{name: recipe.about for name, recipe in RECIPES.items()}, NAME: ABOUT, cache.NAME: cache.ABOUT}
        named["FILE.py:TASK"] = "a language model learns a task of yours; or MODULE:TASK"
        rows = "\n".join(f"  {name:12} {about}" for name, about in named.items())
        print(f"usage: purestep train RECIPE [OPTIONS]\n\nrecipes:\n{rows}\n\nOptions: purestep train RECIPE --help")
        return 0
    if ":" in words[0]:
        return language.train_task(words)
    recipe, *words = words
    speaking = (NAME, cache.NAME)
    choose("purestep train", recipe, {**RECIPES, **dict.fromkeys(speaking)})
    if recipe in speaking:
        return language.train(recipe, words)
    on_one_rank(f"purestep train {recipe}")
    chosen = RECIPES[recipe]
    env, seed = option(words, f"--{chosen.world}", chosen.usual), option(words, "--seed", "0")
    defaults, closing = chosen.defaults(env), closing_of(recipe)
    given = tyro.cli(
        Training,
        default=Training(defaults, closing, run_folder(recipe, env, seed)),
        args=words,
        prog=f"purestep train {recipe}",
        description=f"{type(defaults).__doc__}\n\nThe defaults shown are those of --{chosen.world} {env}.",
        config=FLAGS,
    )
    given.closing.check()
    chosen.check(given.arguments)
    say(f"{recipe} on {env} for {run_steps(given.arguments):,} steps, into {given.run}")
    from .recipes import session

    given.closing.check(env)
    plan = session.plan(recipe, given.arguments)
    return _through(
        given.run, given.closing, lambda: session.start(given.run, plan, overwrite=given.overwrite, notice=say)
    )


def resume_command(words: list[str]) -> int:
    """`purestep resume RUN`: goes on with a run that was stopped."""
    if language.run_among(words):
        return language.resume(words)
    on_one_rank("purestep resume: a folder without a run of zorplex")

    def resume(closing: Closing, words: list[str]) -> int:
        about = "Go on with a run from its newest checkpoint, with the arguments it was begun with."
        run, given = _asked(words, "resume", about, closing)
        given.check()
        loading(run)
        from .recipes import session

        given.check(session.world_of(run) if folder.begun(run) else "")
        return _through(run, given, lambda: session.resume(run, notice=say))

    return _by_recipe(words, partial(resume, Playing()), partial(resume, Ranking()))


def _asked(words: list[str], command: str, about: str, closing: C) -> tuple[Path, C]:
    """A run, and how it is to be evaluated."""
    usual = Asking(tyro.MISSING, closing)
    given = tyro.cli(Asking, default=usual, args=words, prog=f"purestep {command}", description=about, config=FLAGS)
    return given.run, given.closing


def _by_recipe(words: list[str], play: Callable[[list[str]], int], rank: Callable[[list[str]], int]) -> int:
    """Does what fits the run among the words; gives help for both kinds of runs where no run is named."""
    runs = [Path(word) for word in words if not word.startswith("-") and folder.begun(Path(word))]
    words = words if {"-h", "--help"}.isdisjoint(words) else ["--help"]
    if runs:
        proving = isinstance(closing_of(_recipe_of(runs[0])), Ranking)
        return rank(words) if proving else play(words)
    if words == ["--help"]:
        with suppress(SystemExit):
            play(words)
        print("\nWhere RUN is one of `purestep train prove`:\n", flush=True)
        return rank(words)
    return play(words)


def _recipe_of(run: Path) -> str:
    """The recipe that a run follows: by the file in its folder or, where that is gone, by its newest checkpoint."""
    recipe = str(recorded(run).get("recipe", ""))
    if recipe:
        return recipe
    from .recipes import session

    return session.recipe_of(run)


def _through(run: Path, closing: Closing, work: "Callable[[], session.Outcome]") -> int:
    """Does the work; then evaluates, draws and says what it took, or how to go on if it was interrupted."""
    try:
        outcome = work()
    except KeyboardInterrupt:
        next_step = f"purestep resume {run} goes on from the last checkpoint"
        say(f"stopped at once; {next_step if folder.begun(run) else 'nothing was saved yet'}")
        return 130
    if outcome.loop.interrupted:
        say(f"interrupted after {outcome.steps:,} steps and saved; go on with: purestep resume {run}")
        return 130
    for line in closing.told(run, say):
        print(line)
    from .recipes import pictures

    try:
        print(f"learning curve: {pictures.picture([run], run / folder.PICTURE)}")
    except (ChoiceError, ShapeError) as nothing:
        say(f"no picture: {nothing}")
    print(spent(outcome, folder.install_seconds()))
    return 0


def spent(outcome: "session.Outcome", install: float | None) -> str:
    """What a run took, part by part, in one line."""
    parts = [f"install {install:.0f} s"] if install is not None else []
    if outcome.trained:
        how = " (loaded from the cache)" if outcome.loaded else ""
        rate = outcome.trained / outcome.train_seconds
        parts += [f"compile {outcome.compile_seconds:.1f} s{how}", f"train {outcome.train_seconds:.1f} s"]
        parts += [f"{rate:,.0f} environment steps/s"]
    else:
        parts += ["nothing was left to train"]
    return "time: " + ", ".join(parts)


def evaluate_command(words: list[str]) -> int:
    """`purestep evaluate RUN`: plays episodes with what was learnt, ranks with it, or tries held-out tasks."""
    if language.run_among(words):
        return language.evaluate(words)

    def evaluate(
        run: tyro.conf.Positional[Path],
        /,
        *,
        episodes: int = 100,
        seed: int = 0,
        action: Literal["mode", "sample"] = "mode",
    ) -> int:
        """Play episodes with the newest checkpoint's policy.

        Args:
            run: the run's folder
            episodes: how many
            seed: decides where they begin
            action: "mode" takes the likeliest action, "sample" draws one
        """
        check_whole("--episodes", episodes, 1)
        loading(run)
        from .recipes import report

        result = report.evaluated(run, episodes=episodes, seed=seed, action=action)
        print(f"evaluation: {result.line()}")
        return 0

    def rank(words: list[str]) -> int:
        about = "Rank each query among its negatives by the proofs of the newest checkpoint's policy."
        run, ranking = _asked(words, "evaluate", about, Ranking())
        ranking.check()
        loading(run)
        from .recipes.explain import prover_of
        from .recipes.ranking import ranked

        print(f"evaluation: {ranked(ranking, prover_of(run), say).line()}")
        return 0

    return _by_recipe(words, lambda words: tyro.cli(evaluate, args=words, prog="purestep evaluate"), rank)


def explain_command(words: list[str]) -> int:
    """`purestep explain QUERY`: shows how the policy proves something."""

    usual, picture = run_folder("prove", USUAL), Path(folder.PROOF)

    def ask(query: tyro.conf.Positional[str], /, *, run: Path = usual, out: Path = picture) -> int:
        """Try a query with the newest checkpoint's policy: each goal, what settled it, how likely that was.

        Args:
            query: such as "in(spain, europe)"
            run: the folder of a run of `purestep train prove`
            out: the picture; it goes into the run's folder unless given
        """
        place = run / folder.PROOF if option(words, "--out", "") == "" else out
        check_picture(place)
        loading(run)
        from .recipes import explain

        found = explain.explained(run, query, place)
        print("\n".join(found.text))
        print(f"picture: {found.picture}")
        return 0

    return tyro.cli(ask, args=words, prog="purestep explain")


def plot_command(words: list[str]) -> int:
    """`purestep plot RUN...`: draws the learning curve."""
    if language.run_among(words):
        return language.plot(words)

    def plot(runs: tyro.conf.Positional[tuple[Path, ...]], /, *, out: Path = Path("learning_curve.png")) -> int:
        """Draw returns over environment steps; runs that differ in their seed alone become a mean in a band.

        Args:
            runs: the runs' folders
            out: the picture; for a single run it goes into its folder unless given
        """
        check_runs(runs)
        from .recipes import pictures

        place = runs[0] / folder.PICTURE if len(runs) == 1 and option(words, "--out", "") == "" else out
        print(pictures.picture(list(runs), check_picture(place)))
        return 0

    return tyro.cli(plot, args=words, prog="purestep plot")
