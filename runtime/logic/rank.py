"""Ranking by a policy's proofs: each query among its negatives, proven or not, scored."""

from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from ...core.keys import Key
from ...core.logic.ranking import LEAST_PENALTY, NOTHING, Means, average_precision, penalty, ranking, ranks
from ...core.logic.terms import PADDING, Names, atom_numbers
from ...core.policy import ActorCritic
from ..compile import program
from .proofs import Proofs, candidates
from .recycle import FinishedProofs, Play, empty_proof_slots, play, proven_all

CHUNK = 32  # steps in one call of the compiled program


@frozen
class Scored:
    """Scores of all candidates. Axes: modes, queries, candidates, the query itself first [M, Q, K]."""

    score: Tensor  # log-prob of the proof found, minus `penalty` where there is none; NOTHING without a candidate
    present: Tensor  # whether there is a candidate
    proven: Tensor
    depth: Tensor  # moves made
    too_long: Tensor  # successors left out, see `Successors`
    too_many: Tensor


@frozen
class RankingResult:
    """Metrics of a ranking, and counts."""

    ranking: Means  # over all queries and modes
    average_precision: float
    positives: tuple[int, ...]  # number of queries proven in 0, 1, 2, ... moves
    negatives: tuple[int, ...]  # negatives likewise
    queries: int
    candidates: int  # negatives in all
    too_long: int  # candidates with a state left out because it has too many goals
    too_many: int  # candidates with states left out because they are too many

    def line(self, protocol: str) -> str:
        """Return the metrics as one line of text, with the name of the protocol."""
        means = self.ranking
        hits = "/".join(f"{float(hit):.3f}" for hit in (means.hits_at_1, means.hits_at_3, means.hits_at_10))
        shares = f"proven {sum(self.positives) / self.queries:.1%} of what is true"
        shares += f" and {sum(self.negatives) / max(self.candidates, 1):.1%} of what is not"
        head = (
            f"{self.queries} rankings among {protocol}: MRR {float(means.mean_reciprocal_rank):.3f}, Hits@1/3/10 {hits}"
        )
        return f"{head}, AUC-PR {self.average_precision:.3f}, {shares}"


@frozen
class Scorer:
    """A scorer of candidates: one program for any number of them."""

    made: Proofs
    run: Play
    slots: int  # proofs at a time
    feed: int  # rows that one call of `run` can use

    def __call__(self, params: Any, every: Tensor) -> Scored:
        """Score candidates: int64 [M, Q, K, 3] -> Scored."""
        flat = every.reshape(-1, 3)
        begun = empty_proof_slots(self.made.game, self.slots)
        told = proven_all(self.run, params, self.made.world.base, begun, flat, feed=self.feed)
        lost = penalty(self.made.game.max_depth, self.made.game.widths.successors)
        return score_candidates(told, flat[:, 0] != PADDING, every.shape[:-1], lost)


def scorer(made: Proofs, model: ActorCritic, *, slots: int = 256, compiled: bool = True) -> Scorer:
    """Return a scorer of candidates by the policy's most probable proofs."""
    run: Play = play(made.game, model, CHUNK)
    if compiled:
        run = program(run, name="rank proofs")
    return Scorer(made, run, slots, feed=slots * CHUNK)


def score_candidates(told: FinishedProofs, present: Tensor, shape: tuple[int, ...], lost: float) -> Scored:
    """Return the scores of candidates [N], in the shape `shape`; `lost` is subtracted where there is no proof."""
    score = torch.where(present, told.score - torch.where(told.proven, 0.0, lost), NOTHING)
    parts = (score, present, told.proven, told.depth, told.too_long, told.too_many)
    return Scored(*(part.reshape(shape) for part in parts))


def scored_by_length(steps: Tensor, present: Tensor) -> Scored:
    """Score candidates by the length of their proofs, 0 where there is none: int64, bool [M, Q, K]; shorter is better.

    >>> scored_by_length(torch.tensor([[[2, 1, 0]]]), torch.ones(1, 1, 3, dtype=torch.bool)).score
    tensor([[[  -2.,   -1., -100.]]])
    """
    lost = max(LEAST_PENALTY, float(steps.max()) + 1.0)
    score = torch.where(present, torch.where(steps > 0, -steps.to(torch.float32), -lost), NOTHING)
    nothing = torch.zeros_like(steps)
    return Scored(score, present, steps > 0, steps, nothing, nothing)


def ranking_result(every: Scored, *, ties: str = "realistic", key: Key | tuple[()] = ()) -> RankingResult:
    """Rank each query among its negatives, see `ranks`, and count the proofs by their number of moves."""
    rank = ranks(every.score, every.present, ties, key)
    positive = torch.zeros_like(every.present)
    positive[..., 0] = True
    longest = int(every.depth.max()) + 1
    own, other = (
        torch.bincount(every.depth[every.proven & which & every.present], minlength=longest).tolist()
        for which in (positive, ~positive)
    )
    flat = (every.score.flatten(), positive.flatten(), every.present.flatten())
    return RankingResult(
        ranking=ranking(rank.flatten()),
        average_precision=float(average_precision(*flat)),
        positives=tuple(own),
        negatives=tuple(other),
        queries=rank.numel(),
        candidates=int((every.present & ~positive).sum()),
        too_long=int((every.too_long > 0).sum()),
        too_many=int((every.too_many > 0).sum()),
    )


def candidates_of(made: Proofs, split: tuple[Names, ...], most: int, key: Key, queries: int = 0) -> Tensor:
    """Return the candidates of a split: [M, Q, 1 + most, 3]; of only the first `queries` facts unless that is 0."""
    names = made.game.names
    atoms = atom_numbers(names, split[:queries] if queries else split)
    return candidates(names, made.world.within, made.world.known, atoms, made.game.argument, most, key)
