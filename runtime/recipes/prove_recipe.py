"""The recipe prove: it is built, ranked and titled here. Imports no torch before it is built."""

from collections.abc import Sequence
from typing import Any

from ..deferred import deferred
from ..runs.arguments import check_memory, option
from ..runs.recipe import Recipe
from .algorithm_flags import changes_class
from .arguments import Changes, run_steps
from .prove_settings import ATOM, PPO, TRAINS, USUAL, Prove, Ranking, check_policy, check_prove, prove_defaults


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


def defaults(words: Sequence[str]) -> Prove:
    """Return the default arguments of a command line."""
    return prove_defaults(option(words, "--data", USUAL))


def _build(arguments: Prove, context: Any) -> Any:
    from .pipeline import components_of  # here: it imports torch
    from .prove import prove_pipeline

    return components_of(NAME, arguments, prove_pipeline(arguments, context.notice))


def _length(arguments: Prove) -> str:
    if not arguments.trains_policy:
        return f"by its rules alone ({TRAINS} trains a policy)"
    if not arguments.experience.steps:
        return "by its rules and a policy that imitates searched proofs"
    return f"for {run_steps(arguments):,} steps"


NAME = "prove"
RECIPE = Recipe(
    name=NAME,
    about="proofs on a knowledge graph, by its rules or learnt with PPO",
    defaults=defaults,
    build=_build,
    evaluate=deferred(str(__package__), "ranking", "evaluation_lines"),
    check=check_prove,
    ready=check_ranking,
    chosen_by="data",
    folder="{data}-prove-{seed}",
    title=lambda arguments: f"{NAME} on {arguments.experience.data} {_length(arguments)}",
    closing=Ranking,
    resuming=Ranking,
    moving=lambda: Changes(algorithm=changes_class(PPO)()),
    evaluating=Ranking,
    report=deferred(str(__package__), "ranking", "final_lines"),
)
