"""The ranking after a run of prove: by the policy's proofs and by confidences, as text, in a file and in a picture."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from attrs import asdict, evolve, frozen
from torch import Tensor

from ...algorithms.logic.rule_weights import learn_rule_weights
from ...core import keys
from ...core.errors import ChoiceError, message
from ...core.logic.ranking import Means
from ...core.logic.state import ProofState
from ..compile import Program
from ..effects import folder
from ..effects.clock import seconds
from ..logic import hybrid, proof_scores
from ..logic.answers import Join
from ..logic.dataset import Dataset
from ..logic.link_ranking import LinkRanking, Table, among_all, among_negatives, ranked_by
from ..logic.proof_scores import Effort, ProofTable
from ..logic.proofs import Proofs
from ..logic.rank import RankingResult, candidates_of, ranking_result, scorer
from ..logic.weigh import weighed_proofs
from ..runs.arguments import flatten
from ..runs.curves import draw_curve
from ..runs.recipe import Notice
from . import prove
from .explain_query import Prover, deepest, deepest_by_rules, prover_of, searcher_of
from .prove_settings import Ranking, Search, check_policy

RANKED = ("mean_reciprocal_rank", "hits_at_1", "hits_at_3", "hits_at_10")
FIT_STEPS, FIT_DECAY = 150, 1e-5  # of learned weights
EMBEDDING_STEPS = 3000
JOINS: tuple[Join, ...] = ("noisy_or", "max", "groundings")
TUNED = 1000  # valid facts, at most, by which something is chosen


def evaluation_lines(run: Path, options: Ranking, notice: Notice) -> Iterator[str]:
    """Rank with the run's newest checkpoint; yield the lines to print. Raises: CheckpointError, ChoiceError."""
    yield from rank_facts(options, prover_of(run), notice)


def final_lines(run: Path, options: Ranking, notice: Notice) -> Iterator[str]:
    """Rank with the run's newest checkpoint, draw a proof and the learning curve; yield the lines to print.

    Raises: CheckpointError, ChoiceError.
    """
    prover = prover_of(run)
    notice_left_out("of the training's proofs", *lost_in_training(prover.worlds), notice)
    yield from rank_facts(options, prover, notice)
    picture = deepest(prover) if prover.trained else deepest_by_rules(prover, options.searching)
    if picture:
        yield f"proof: {picture}"
    else:
        notice("no picture of a proof: none of the first test queries was proven")
    if prover.arguments.experience.steps:
        yield from draw_curve(run, notice)


def rank_facts(options: Ranking, prover: Prover, notice: Notice) -> Iterator[str]:
    """Rank as the options say; yield a line for each score and protocol, and write evaluation.json. Raises: ChoiceError."""
    options.check()
    check_policy(prover.arguments, options.score, options.searching)
    check_split(options, prover.made.dataset)
    about: dict[str, Any] = {"iteration": prover.iteration, "options": flatten(options)}
    rows: list[dict[str, Any]] = []
    if prover.trained and options.score != "confidence" and _greedy_policy(options):
        result, rate = _standing(options, prover)
        counted = {name: value for name, value in asdict(result, recurse=False).items() if name != "ranking"}
        about |= {**_numbers(result.ranking), **counted}
        protocol = f"{options.candidates} filtered negatives"
        rows.append({"score": POLICY, "protocol": protocol, **_numbers(result.ranking)})
        every = f"of {result.queries + result.candidates:,} proofs tried"
        notice_left_out(every, result.too_long, result.too_many, notice)
        notice(f"ranked {rate:,.0f} candidates a second, compilation apart")
        yield f"evaluation: {POLICY}, {result.line(protocol)}"
    for score, each in _by_tables(options, prover, notice):
        rows.append({"score": score, "protocol": each.protocol, **_row(prover.made, each)})
        yield f"evaluation: {score}, {each.line()}"
    if "mean_reciprocal_rank" not in about:
        about |= {name: rows[0][name] for name in RANKED}
    folder.write_json(prover.run / folder.EVALUATION, {**about, "rankings": rows})


POLICY = "policy's most probable proof"


def _greedy_policy(options: Ranking) -> bool:
    """Return whether the policy's score is that of its own proofs, not of a search."""
    return options.score == "both" or options.searching.search == "greedy"


def _numbers(means: Means) -> dict[str, float]:
    return {name: float(getattr(means, name)) for name in RANKED}


def _row(made: Proofs, each: LinkRanking) -> dict[str, Any]:
    """Return the metrics of a ranking: of all queries, by argument and by relation."""
    relations = each.by_relation(made.game.names)
    return {
        **_numbers(each.means()),
        "by_argument": {side: _numbers(means) for side, means in each.by_argument().items()},
        "by_relation": {name: {"rankings": many, **_numbers(means)} for name, (many, means) in relations.items()},
    }


@frozen
class Ranker:
    """Tables of scores by proofs, for the options of a ranking."""

    prover: Prover
    made: Proofs  # with confidences
    search: Search
    efforts: list[Effort]

    def table(self, weights: Tensor, join: Join) -> ProofTable:
        """Return the table of these weights."""
        return ProofTable(searcher_of(self.prover, self.made, weights, self.search), join, self.efforts.append)


def _by_tables(options: Ranking, prover: Prover, notice: Notice) -> Iterator[tuple[str, LinkRanking]]:
    """Yield the name of each score and its ranking, in each protocol."""
    if options.score == "policy" and _greedy_policy(options):
        return
    arguments = prover.arguments
    if options.score == "policy":
        ranker = Ranker(prover, prover.made, evolve(options.searching, guide="policy"), [])
        ones = torch.ones(len(prover.made.dataset.rules), dtype=torch.float64)
        table: Table = ranker.table(ones, "probability")
        yield from _in_protocols(options, prover.made, f"policy's search {options.searching.search}", table)
        _notice_cut(ranker, notice)
        return
    made = prove.confident(arguments, prover.made)
    ranker = Ranker(prover, made, options.searching, [])
    weights = proof_scores.rule_weights(made)
    key = keys.key(arguments.experience.seed)
    name = "confidence"
    if options.learn:
        notice(f"learning the weights of {len(weights):,} rules from {options.learn:,} train facts")
        chosen = made.world.queries[keys.permutation(key, len(made.world.queries))[: options.learn]]
        weights, _ = learn_rule_weights(FIT_STEPS, decay=FIT_DECAY)(
            weights, weighed_proofs(made, ranker.table(weights, "noisy_or").prover, chosen)
        )
        name = "learned confidence"
    joins: dict[str, Table] = {join: ranker.table(weights, join) for join in JOINS}
    joined = options.searching.join
    join = joined if joined != "valid" else _best(made, joins, notice, "--join", "noisy_or")
    by_proofs = joins[join]
    own = options.searching
    score = f"{name} of proofs ({join}, {own.search}, up to {own.depth} rule{'s' * (own.depth > 1)})"
    if options.embedding == "none":
        yield from _in_protocols(options, made, score, by_proofs)
    else:
        compiled = arguments.process.backend != "none"
        params = hybrid.embeddings(made, options.embedding, steps=EMBEDDING_STEPS, key=key, compiled=compiled)
        alone = hybrid.plausibilities(made, params, options.embedding)
        yield from _in_protocols(options, made, f"{options.embedding} embedding", alone)
        tables = {f"{weight:g}": hybrid.hybrid(by_proofs, alone, weight) for weight in hybrid.WEIGHTS}
        weight = _best(made, tables, notice, "weight of the proofs", "1")
        yield from _in_protocols(options, made, f"{score} x {weight} + {options.embedding}", tables[weight])
    _notice_cut(ranker, notice)


def _best(made: Proofs, tables: Mapping[str, Table], notice: Notice, what: str, usual: str) -> str:
    """Return the name of the table that ranks the valid split best among all entities; `usual` without such a split."""
    facts = made.dataset.valid[:TUNED]
    if not facts:
        notice(f"{what}: {usual}, because {made.dataset.name} has no valid split to choose by")
        return usual
    split = among_all(made, facts, made.game.argument)
    told = {
        name: float(ranked_by(made, table, split)[0].means().mean_reciprocal_rank) for name, table in tables.items()
    }
    return max(told, key=lambda name: told[name])


def _in_protocols(options: Ranking, made: Proofs, score: str, table: Table) -> Iterator[tuple[str, LinkRanking]]:
    facts = getattr(made.dataset, options.split)
    facts = facts[: options.queries] if options.queries else facts
    side, key = made.game.argument, keys.key(options.draw)
    each = []
    if options.protocol != "all":
        each.append(among_negatives(made, facts, side, options.candidates, key))
    if options.protocol != "negatives":
        each.append(among_all(made, facts, side))
    with torch.no_grad():
        for told in ranked_by(made, table, *each, ties=options.ties, key=keys.fold_in(key, 1)):
            yield score, told


def _notice_cut(ranker: Ranker, notice: Notice) -> None:
    """Report the share of searches that their bounds have cut, if there is one."""
    cut, searches = (sum(getattr(each, name) for each in ranker.efforts) for name in ("cut", "searches"))
    if cut:
        share = f"{cut / searches:.1%} of {searches:,} searches"
        notice(f"{share} left states unexpanded; more --expansions or a wider beam may find further proofs")


def _standing(options: Ranking, prover: Prover) -> tuple[RankingResult, float]:
    """Return the ranking of the trained policy, and the number of candidates tried in a second, without compilation."""
    made, arguments = prover.made, prover.arguments
    every = candidates_of(
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
