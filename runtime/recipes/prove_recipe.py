"""The recipe prove: it is built, ranked and titled here. Imports no torch before it is built."""

from pathlib import Path

from ..runs.arguments import check_memory
from ..runs.recipe import Components, Context, Lines, Notice, Options, Recipe
from .algorithm_flags import changes_class
from .prove_settings import ATOM, PPO, TRAINS, USUAL, Prove, Ranking, check_policy, check_prove, prove_defaults
from .shared_settings import Changes, run_steps


def check_ranking(arguments: Prove, options: Ranking) -> None:
    """Refuse the ranking of facts that the run's data does not have, or by a policy that it lacks. Raises: ChoiceError."""
    check_policy(arguments, options.score, options.searching)
    state = ATOM * arguments.experience.atoms * arguments.experience.successors
    by_policy = arguments.trains_policy and options.score != "confidence"
    needs = {
        "--slots x --atoms x --successors": float(state * options.slots) if by_policy else 0.0,
        "--candidates": float(ATOM * options.candidates),
    }
    check_memory(needs)
    if options.split == "valid":
        from ..effects.datasets import open_dataset  # here: it imports torch
        from .ranking import check_split

        check_split(options, open_dataset(arguments.experience.data))


def _length(settings: Prove) -> str:
    if not settings.trains_policy:
        return f"by its rules alone ({TRAINS} trains a policy)"
    if not settings.experience.steps:
        return "by its rules and a policy that imitates searched proofs"
    return f"for {run_steps(settings):,} steps"


class ProveRecipe(Recipe):
    """The recipe prove."""

    name = "prove"
    about = "proofs on a knowledge graph, by its rules or learnt with PPO"
    chosen_by = "data"
    folder = "{data}-prove-{seed}"
    options = Options(
        train=Ranking(), resume=Ranking(), changes=Changes(algorithm=changes_class(PPO)()), evaluate=Ranking()
    )

    def defaults(self, choice: str | None = None) -> Prove:
        """Return the default settings for a data set."""
        return prove_defaults(USUAL if choice is None else choice)

    def check(self, settings: Prove, options: Ranking | tuple[()] = ()) -> None:
        """Refuse settings with which nothing can be learnt, and a ranking that does not suit them. Raises: ChoiceError."""
        check_prove(settings)
        if isinstance(options, Ranking):
            check_ranking(settings, options)

    def title(self, settings: Prove) -> str:
        """Return the data, and how long a policy is trained on it."""
        return f"{self.name} on {settings.experience.data} {_length(settings)}"

    def build(self, settings: Prove, context: Context) -> Components:
        """Return the run of these settings."""
        from .pipeline import components_of  # here: it imports torch
        from .prove import prove_pipeline

        return components_of(self.name, settings, prove_pipeline(settings, context.notice))

    def evaluate(self, run: Path, options: Ranking, notice: Notice) -> Lines:
        """Rank with the newest checkpoint."""
        from .ranking import evaluation_lines

        return evaluation_lines(run, options, notice)

    def report(self, run: Path, options: Ranking, notice: Notice) -> Lines:
        """Rank with the newest checkpoint, and draw a proof and the learning curve."""
        from .ranking import final_lines

        return final_lines(run, options, notice)


RECIPE = ProveRecipe()
