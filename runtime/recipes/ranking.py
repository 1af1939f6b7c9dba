"""The ranking after a run of prove: each query among its negatives, as text, in a file and in a picture."""

from collections.abc import Iterator
from pathlib import Path

import torch
from attrs import asdict

from ...core import keys
from ...core.errors import ChoiceError, message
from ...core.logic.state import ProofState
from ..compile import Program
from ..effects import folder
from ..effects.clock import seconds
from ..logic.dataset import Dataset
from ..logic.rank import RankingResult, asked, ranking_result, scorer
from ..runs.curves import curve
from ..runs.recipe import Notice
from . import prove
from .explain import Prover, deepest, prover_of
from .prove_settings import Ranking

RANKED = ("mean_reciprocal_rank", "hits_at_1", "hits_at_3", "hits_at_10")


def evaluation_lines(run: Path, options: Ranking, notice: Notice) -> Iterator[str]:
    """Rank with the run's newest checkpoint; yield the line to print. Raises: CheckpointError, ChoiceError."""
    yield f"evaluation: {ranked(options, prover_of(run), notice).line()}"


def final_lines(run: Path, options: Ranking, notice: Notice) -> Iterator[str]:
    """Rank with the run's newest checkpoint, draw a proof and the learning curve; yield the lines to print.

    Raises: CheckpointError, ChoiceError.
    """
    prover = prover_of(run)
    notice_left_out("of the training's proofs", *lost_in_training(prover.worlds), notice)
    yield f"evaluation: {ranked(options, prover, notice).line()}"
    found = deepest(prover)
    if found:
        yield f"proof: {found.picture}"
    else:
        notice("no picture of a proof: none of the first test queries was proven")
    yield from curve(run, notice)


def ranked(options: Ranking, prover: Prover, notice: Notice) -> RankingResult:
    """Return the ranking of the trained policy; write evaluation.json. Raises: ChoiceError."""
    options.check()
    result, rate = _standing(options, prover)
    numbers = {name: float(getattr(result.ranking, name)) for name in RANKED}
    about = {"iteration": prover.iteration, "options": asdict(options)}
    counted = {name: value for name, value in asdict(result, recurse=False).items() if name != "ranking"}
    folder.write_json(prover.run / folder.EVALUATION, {**about, **numbers, **counted})
    every = f"of {result.queries + result.candidates:,} proofs tried"
    notice_left_out(every, result.too_long, result.too_many, notice)
    notice(f"ranked {rate:,.0f} candidates a second, compilation apart")
    return result


def _standing(options: Ranking, prover: Prover) -> tuple[RankingResult, float]:
    """Return the ranking of the trained policy, and the number of candidates tried in a second, without compilation."""
    made, arguments = prover.made, prover.arguments
    check_split(options, made.dataset)
    every = asked(
        made, getattr(made.dataset, options.split), options.candidates, keys.key(options.draw), options.queries
    )
    compiled = arguments.process.backend != "none"
    score = scorer(made, prove.model_of(arguments, made), slots=options.slots, compiled=compiled)
    begin = seconds()
    with torch.no_grad():
        scores = score(prover.params, every)
    spent = seconds() - begin - sum(score.run.seconds if isinstance(score.run, Program) else ())
    result = ranking_result(scores, ties=options.ties, key=keys.fold_in(keys.key(options.draw), 1))
    return result, (result.queries + result.candidates) / spent


def check_split(options: Ranking, dataset: Dataset) -> None:
    """Refuse a split without facts. Raises: ChoiceError."""
    if not getattr(dataset, options.split):
        where, remedy = f"{dataset.name}: {options.split}", "rank another --split"
        raise ChoiceError(message(where, got="empty", wanted="facts to rank", remedy=remedy))


def lost_in_training(worlds: ProofState) -> tuple[int, int]:
    """Return the numbers of training proofs with states left out as too long, and with states left out as too many."""
    too_long = worlds.were_too_long.sum() + (worlds.too_long > 0).sum()
    return int(too_long), int(worlds.were_too_many.sum() + (worlds.too_many > 0).sum())


def notice_left_out(proofs: str, too_long: int, too_many: int, notice: Notice) -> None:
    """Report the number of proofs with states left out for lack of room, and the flags that make room."""
    if too_long:
        notice(f"{too_long:,} {proofs} met states of more goals than --atoms, which were left out")
    if too_many:
        notice(f"{too_many:,} {proofs} met more states than --successors or --facts, of which some were left out")
