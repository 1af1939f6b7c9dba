"""Tables of scores by proofs: for each query all entities at once, by one search with the argument open."""

from collections.abc import Callable

import torch
from attrs import frozen
from torch import Tensor

from ...core.errors import ChoiceError, message
from ...core.keys import Key
from ...core.logic.knowledge import Knowledge
from ...core.logic.rules import Rule
from ...core.logic.terms import Vocabulary
from .answers import Join, dense, join_scores, opened_query
from .proofs import Proofs
from .search import Guide, ProofsFound, SearchLimits, roomy, search


@frozen
class ProofSearcher:
    """Names and facts with room for a search, the weights of the rules in the order of the knowledge, and the bounds."""

    names: Vocabulary
    base: Knowledge
    weights: Tensor  # float64 [R]
    bounds: SearchLimits
    guide: Guide | None = None
    key: Key | tuple[()] = ()

    def proofs(self, queries: Tensor, excluded: Tensor | None = None) -> ProofsFound:
        """Return the proofs of queries, open or ground: int64 [Q, 3]."""
        asked = (self.names, self.base, self.weights, queries, self.bounds)
        return search(*asked, excluded=excluded, guide=self.guide, key=self.key)

    def open_proofs(self, queries: Tensor, side: int) -> tuple[ProofsFound, Tensor]:
        """Return the proofs of all instances of the queries with that argument open, and the search of each query [Q]."""
        distinct, search_of = torch.unique(opened_query(self.names, queries, side), dim=0, return_inverse=True)
        return self.proofs(distinct), search_of


def prover(made: Proofs, weights: Tensor, bounds: SearchLimits) -> ProofSearcher:
    """Return the prover of a data set's rules with these weights [R], in the order of its knowledge base."""
    return ProofSearcher(*roomy(made.game.names, made.world.base, bounds.rules), weights, bounds)


def rule_weights(made: Proofs) -> Tensor:
    """Return the confidences of the rules, in the order of the knowledge base: float64 [R].

    Raises: ChoiceError for rules without one.
    """
    rules = sorted_rules(made)
    absent = [rule for rule in rules if rule.confidence is None]
    if absent:
        got = f"absent for {len(absent)} of {len(rules)} rules, e.g. {absent[0]}"
        raise ChoiceError(message("confidence", got=got, wanted="one for each", remedy="pass --confidence standard"))
    return torch.tensor([rule.confidence for rule in rules], dtype=torch.float64)


def sorted_rules(made: Proofs) -> list[Rule]:
    """Return the rules in the order of the knowledge base: by the number of the head's predicate, else as they came."""
    numbers = {name: number for number, name in enumerate(made.game.names.predicates)}
    return sorted(made.dataset.rules, key=lambda rule: numbers[rule.head[0]])


@frozen
class Effort:
    """The effort of searches."""

    searches: int = 0
    expanded: int = 0  # states
    cut: int = 0  # searches that left states because of their bounds


@frozen
class ProofTable:
    """A table of scores by proofs; see `Table` in `link_ranking`."""

    prover: ProofSearcher
    join: Join
    told: Callable[[Effort], None] = lambda effort: None  # receives the effort of each call

    def __call__(self, queries: Tensor, side: int) -> Tensor:
        found, search_of = self.prover.open_proofs(queries, side)
        searches = found.expanded.shape[0]
        self.told(Effort(searches, int(found.expanded.sum()), int((found.cut > 0).sum())))
        return dense(self.prover.names, join_scores(self.prover.names, found, self.join), searches, side)[search_of]
