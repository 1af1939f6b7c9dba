"""The commands train, resume, evaluate, plot and explain for any recipe, as described by its `Recipe`.

Modules that import torch are imported only after the words were checked, so that help and refusals come at once.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from attrs import evolve, field, frozen

from ...core.errors import CheckpointError, ChoiceError, message
from ..effects import folder
from ..effects.distributed.launched import on_one_rank
from ..effects.reporting.png import check_picture
from ..recipes.prove_settings import Search
from ..runs.arguments import check_whole, flag, flatten, folder_label, join_repeated, option
from ..runs.kinds import record_of
from ..runs.recipe import HIDDEN, Nothing, Recipe, find, listed, own, this_process
from .common import FLAGS, loading, say

if TYPE_CHECKING:
    from ..runs.recipe import SessionResult


@frozen
class Training:
    """The folder of a run, and the steps after training."""

    arguments: Annotated[Any, tyro.conf.arg(name="")]  # of the types that the defaults have
    closing: Annotated[Any, tyro.conf.arg(name="")]
    run: Annotated[Path, tyro.conf.arg(aliases=("--output-dir",))]  # the run's folder
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False  # remove the run that the folder holds


@frozen
class Asking:
    """A run, and options."""

    run: tyro.conf.Positional[Path]  # the run's folder
    options: Annotated[Any, tyro.conf.arg(name="")]
    moving: Annotated[Any, tyro.conf.arg(name="")]


@frozen
class Drawing:
    """Runs, and options."""

    runs: tyro.conf.Positional[tuple[Path, ...]]  # the runs' folders; several become a mean in a band
    options: Annotated[Any, tyro.conf.arg(name="")]
    out: Path = Path(folder.PICTURE)  # the picture; that of a single run goes into its folder unless given


def train_command(words: list[str]) -> int:
    """`purestep train RECIPE`: trains, evaluates and draws."""
    if not words or words[0] in ("-h", "--help"):
        named = {**listed(), "FILE.py:TASK": find("task").about}
        width = max(map(len, named))
        rows = "\n".join(f"  {name:{width}} {about}" for name, about in named.items())
        print(f"usage: purestep train RECIPE [OPTIONS]\n\nrecipes:\n{rows}\n\nOptions: purestep train RECIPE --help")
        return 0
    name, *words = words
    recipe = find(name, "purestep train")
    return recipe.lead(f"purestep train {name}", words, lambda store: _train(recipe, name, words, store))


def _train(recipe: Recipe, name: str, words: list[str], store: Callable[[], Any]) -> int:
    words = recipe.words(words)
    by = recipe.chosen_by
    defaults = recipe.defaults(option(words, flag(by), None))
    words = join_repeated(words, [flag(name) for name, value in flatten(defaults).items() if isinstance(value, tuple)])
    shown = f"The defaults shown are those of {flag(by)} {flatten(defaults)[by]}." if by else ""
    given = tyro.cli(
        Training,
        default=Training(defaults, recipe.options.train, _usual_folder(recipe, defaults, words)),
        args=words,
        prog=f"purestep train {name}",
        description="\n\n".join(part for part in (type(defaults).__doc__, shown, recipe.notes) if part),
        config=FLAGS,
    )
    run, options = given.run, given.closing
    options.check()
    recipe.check(given.arguments)
    say(f"{recipe.title(given.arguments)}, into {run}")

    def work() -> "SessionResult":
        from ..runs.run import start  # here: it imports torch

        how: dict[str, Any] = {"options": options, "overwrite": given.overwrite, "notice": say}
        return start(run, recipe, given.arguments, **how, store=store())

    return _through(run, recipe, options, work)


def _usual_folder(recipe: Recipe, defaults: Any, words: Sequence[str]) -> Path:
    """Return the default folder of a run, with the arguments that appear in the recipe's folder pattern."""
    values = flatten(defaults)
    pattern = recipe.folder or recipe.name + ("-{seed}" if "seed" in values else "")
    named = [name for _, name, _, _ in Formatter().parse(pattern) if name]
    chosen = {name: folder_label(option(words, flag(name), str(values[name]))) for name in named}
    return Path("runs") / pattern.format(**chosen)


def _through(run: Path, recipe: Recipe, options: Any, work: "Callable[[], SessionResult]") -> int:
    """Do the work; then evaluate, draw and print its times, or how to go on if it was interrupted."""
    try:
        outcome = work()
    except KeyboardInterrupt:
        next_step = f"{folder.resume_command(run)} goes on from the last checkpoint"
        say(f"stopped at once; {next_step if folder.has_checkpoints(run) else 'nothing was saved yet'}")
        return 130
    if outcome.interrupted:
        say(f"interrupted{outcome.progress}; go on with: {folder.resume_command(run)}")
        return 130
    for line in recipe.report(run, options, say):
        print(line)
    print(spent(outcome.spent, folder.install_seconds()))
    return 0


def spent(parts: Sequence[str], install: float | None) -> str:
    """Return the times of a session, part by part, in one line.

    >>> spent(["train 4.0 s"], 40.0), spent([], None)
    ('time: install 40 s, train 4.0 s', 'time: nothing was left to train')
    """
    first = [f"install {install:.0f} s"] if install is not None else []
    return "time: " + ", ".join([*first, *(parts or ["nothing was left to train"])])


def resume_command(words: list[str]) -> int:
    """`purestep resume RUN`: goes on with a run that was stopped."""
    return _of_run(words, "resume", lambda recipe: recipe.options.resume, GO_ON, _resume)


def _resume(run: Path, recipe: Recipe, given: Asking, store: Callable[[], Any]) -> int:
    options = given.options
    changes = {name: value for name, value in flatten(given.moving).items() if value is not None}
    how: dict[str, Any] = {"options": options, "changes": changes, "notice": say}
    return _through(run, recipe, options, lambda: recipe.resume(run, **how, store=store()))


def evaluate_command(words: list[str]) -> int:
    """`purestep evaluate RUN`: plays episodes with what was learnt, ranks with it, or tries held-out tasks."""
    return _of_run(words, "evaluate", lambda recipe: recipe.options.evaluate, "", _evaluate)


def _evaluate(run: Path, recipe: Recipe, given: Asking, store: Callable[[], Any]) -> int:
    for line in recipe.evaluate(run, given.options, say):
        print(line)
    return 0


GO_ON = "Go on with a run from its newest checkpoint, with the arguments it was begun with."
Work = Callable[[Path, Recipe, Asking, Callable[[], Any]], int]  # (run, recipe, given, store)


def _moving(command: str, recipe: Recipe) -> Any:
    """Return the arguments that the command may change, as options."""
    return recipe.options.changes if command == "resume" else Nothing()


def _of_run(words: list[str], command: str, options: Callable[[Recipe], Any], about: str, work: Work) -> int:
    """Run a command on a run, with the options of its recipe; without a run, show help for the runs of all recipes."""
    recipe = _recipe_among(words)
    if recipe is None:
        on_one_rank(f"purestep {command}: a folder without a run")
        return _without_run(words, command, options, about)
    moving = _moving(command, recipe)
    if command == "resume":
        _check_fixed(words, recipe, {*flatten(moving), *flatten(options(recipe))})
    if command == "resume" and "device" not in flatten(moving) and option(words, "--device", "") != "":
        where, wanted = f"purestep resume: --device of a run of {recipe.name}", "none: it has no such setting"
        raise ChoiceError(message(where, got=option(words, "--device", ""), wanted=wanted, remedy="leave it out"))

    def program(store: Callable[[], Any]) -> int:
        given = _asked(words, command, options(recipe), about, moving)
        chosen = given.options
        chosen.check()
        given.moving.check()
        loading(given.run)
        if hasattr(chosen, "words"):
            chosen = evolve(chosen, words=(command, *words))
        return work(given.run, recipe, evolve(given, options=chosen), store)

    if command == "evaluate":  # on each rank alone
        return program(this_process)
    return recipe.lead(f"purestep {command}: a run of {recipe.name}", words, program)


def _check_fixed(words: Sequence[str], recipe: Recipe, offered: Collection[str]) -> None:
    """Refuse settings that a run keeps from its beginning to its end. Raises: ChoiceError."""
    own = flatten(recipe.defaults())
    for word in words:
        name = word.partition("=")[0].removeprefix("--").replace("-", "_")
        setting = name if name in own else name.removeprefix("no_")
        if word.startswith("--") and setting in own and setting not in offered:
            may = ", ".join(flag(one) for one in own if one in offered)
            got = option(words, flag(setting), "") or "given"
            wanted, remedy = "as the run began", f"train anew with it; these may change: {may}"
            raise ChoiceError(message(f"purestep resume: {flag(setting)}", got=got, wanted=wanted, remedy=remedy))


def _asked(words: list[str], command: str, options: Any, about: str, moving: Any) -> Asking:
    about = about or " ".join(str(type(options).__doc__).split())
    words = words if {"-h", "--help"}.isdisjoint(words) else ["--help"]
    usual = Asking(tyro.MISSING, options, moving)
    return tyro.cli(Asking, default=usual, args=words, prog=f"purestep {command}", description=about, config=FLAGS)


def _recipe_among(words: Sequence[str]) -> Recipe | None:
    """Return the recipe of the run among the words: by the file in its folder or, without that, by its newest checkpoint."""
    for word in words:
        run = Path(word)
        if not word.startswith("-") and folder.is_run(run):
            name = str(record_of(run).get("recipe", ""))
            if name:
                return find(name, f"{run / folder.ARGUMENTS}: recipe")
            from ..runs.run import arguments_in  # here: it imports torch

            return arguments_in(run)[0]
    return None


def _without_run(words: list[str], command: str, options: Callable[[Recipe], Any], about: str) -> int:
    """Show help by kinds of runs, or refuse words that name no run."""
    kinds: dict[tuple[str, ...], list[Recipe]] = {}
    for recipe in map(find, own()):
        kinds.setdefault((*flatten(options(recipe)), *flatten(_moving(command, recipe))), []).append(recipe)
    if {"-h", "--help"}.isdisjoint(words):
        for word in words:
            if not word.startswith("-"):
                folder.existing(Path(word))
                break
    for number, recipes in enumerate(kinds.values()):
        named = " or ".join(f"`purestep train {one.name}`" for one in recipes if one.name not in HIDDEN)
        if number:
            print(f"\nWhere RUN is one of {named}:\n", flush=True)
        given = words if {"-h", "--help"}.isdisjoint(words) else ["--help"]
        with suppress(SystemExit) if given == ["--help"] else nullcontext():
            asked = _asked(given, command, options(recipes[0]), about, _moving(command, recipes[0]))
            remedy = "train it anew, with --overwrite"
            raise CheckpointError(message(str(asked.run), got="without a recipe", wanted="a run", remedy=remedy))
    return 0


def plot_command(words: list[str]) -> int:
    """`purestep plot RUN...`: draws the learning curve."""
    recipe = _recipe_among(words)
    options = Nothing() if recipe is None else recipe.options.plot
    given = tyro.cli(
        Drawing,
        default=Drawing((), options),
        args=words,
        prog="purestep plot",
        description="Draw the learning curve of a run; runs that differ in their seed alone become a mean in a band.",
        config=FLAGS,
    )
    if not given.runs:
        raise ChoiceError(message("purestep plot: RUN", got="absent", wanted="one or more", remedy="name a run"))
    given.options.check()
    homes = [folder.existing(run) for run in given.runs]
    chosen = recipe or find(str(record_of(homes[0]).get("recipe", "")))
    for line in chosen.plot(homes, given.out if option(words, "--out", "") else (), given.options):
        print(line)
    return 0


def explain_command(words: list[str]) -> int:
    """`purestep explain QUERY`: shows proofs or answers."""

    prove = find("prove")
    usual, picture = _usual_folder(prove, prove.defaults(), ()), Path(folder.PROOF)

    @frozen
    class Asked:
        """Explain a query: answers and proofs; of one without variables, the attempt of a policy that was trained."""

        query: tyro.conf.Positional[str]  # such as "in(spain, europe)" or "in(X, europe)"
        run: Path = usual  # the folder of a run of `purestep train prove`
        out: Path = picture  # the picture; it goes into the run's folder unless given
        score: Literal["policy", "confidence"] = "policy"  # without variables: a policy's attempt, or all proofs
        answers: int = 10  # shown at most
        json: bool = False  # print answers as JSON
        searching: Search = field(factory=Search)

    given = tyro.cli(Asked, args=words, prog="purestep explain", config=FLAGS)
    place = given.run / folder.PROOF if option(words, "--out", "") == "" else given.out
    check_picture(place)
    given.searching.check()
    check_whole("--answers", given.answers, 1)
    loading(given.run)
    from ..recipes import explain_query

    for line in explain_query.lines_of(given.run, given.query, place, given):
        print(line)
    return 0
