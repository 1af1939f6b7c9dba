"""A data set as a game of proofs: vocabulary, knowledge base, limits of resolution, queries and candidates."""

from collections.abc import Sequence
from typing import Unpack

import torch
from attrs import frozen
from torch import Tensor

from ...core import keys
from ...core.errors import ChoiceError, message
from ...core.keys import Key
from ...core.logic.call_patterns import calls, match_room
from ...core.logic.corrupt import HEAD, TAIL, Domains, corruptions, domains, known_atoms
from ...core.logic.derive import Widths
from ...core.logic.knowledge import knowledge
from ...core.logic.rules import Rule, encode_rules, names_variable
from ...core.logic.state import Game, GameRules, ProofWorld
from ...core.logic.terms import Vocabulary, atom_numbers
from .dataset import Dataset, vocabulary_of

ARGUMENTS = {"head": (HEAD,), "tail": (TAIL,), "both": (HEAD, TAIL)}


@frozen
class Proofs:
    """A data set as a game, with the data that its evaluation needs."""

    dataset: Dataset
    game: Game
    world: ProofWorld  # its queries are the train facts that rules can prove


def proofs(
    dataset: Dataset, *, atoms: int = 6, successors: int = 64, facts: int = 64, **rules: Unpack[GameRules]
) -> Proofs:
    """Return the game of proving the data set's facts by its rules: at most `atoms` goals in a state, `successors` per state.

    Train facts are the knowledge base; those with a predicate that some rule proves are the queries, each of which is no fact
    for its own proof. There is room for all successors, but for no more than `successors` states and `facts` tried with
    one goal. No fact of any split is a negative.
    Raises: ChoiceError without rules, or where no rule proves any train fact.

    >>> from .family import family
    >>> made = proofs(family(30), max_depth=5)
    >>> made.game.max_depth, made.game.widths.atoms
    (5, 6)
    """
    if not dataset.rules:
        remedy = "pass a file of rules, or mine them"
        raise ChoiceError(message(f"{dataset.name}: rules", got="none", wanted="some", remedy=remedy))
    every = (*dataset.train, *dataset.valid, *dataset.test)
    names = vocabulary_of(dataset, variables=_variables(dataset.rules, atoms))
    base = knowledge(names, atom_numbers(names, dataset.train), *encode_rules(names, dataset.rules))
    provable = {rule.head[0] for rule in dataset.rules}
    queries = [atom for atom in dataset.train if atom[0] in provable]
    if not queries:
        remedy = "check the predicates of the rules"
        raise ChoiceError(
            message(f"{dataset.name}: train facts that a rule proves", got="none", wanted="some", remedy=remedy)
        )
    most_facts, by_rule = (int(most) for most in match_room(names, base, calls(dataset.rules, names.predicates)))
    most_facts = min(most_facts, facts)
    following = min(most_facts + by_rule, successors) + int(rules.get("end_proof", False))
    world = ProofWorld(
        base=base,
        queries=atom_numbers(names, queries),
        within=domains(names, dataset.domains),
        known=known_atoms(names, atom_numbers(names, every)),
    )
    return Proofs(dataset, Game(names, Widths(atoms, following, most_facts, by_rule), **rules), world)


def _variables(rules: Sequence[Rule], atoms: int) -> int:
    """Return the number of variables of a state and of one rule together."""
    words = [{word for atom in (rule.head, *rule.body) for word in atom[1:] if names_variable(word)} for rule in rules]
    return 2 * atoms + max(map(len, words))


def candidates(
    names: Vocabulary, within: Domains, known: Tensor, queries: Tensor, argument: str, most: int, key: Key
) -> Tensor:
    """Return each query and its negatives: int64 [Q, 3] -> [modes, Q, 1 + most, 3], the query first, padding at the end.

    A mode for each argument that is replaced: one for "head" or "tail", both in this order for "both". At most `most` negatives
    are drawn of those that are not known to be true.

    >>> from ...core.logic.borders import borders
    >>> game, world = borders()
    >>> candidates(game.names, world.within, world.known, world.queries, "tail", 1, keys.key(0)).tolist()  # in(_, america)
    [[[[2, 6, 2], [2, 6, 1]], [[2, 5, 2], [2, 5, 1]]]]
    """
    modes = []
    for number in ARGUMENTS[argument]:
        rows = []
        for place, query in enumerate(queries):
            own = keys.fold_in(keys.fold_in(key, number), place)
            rows.append(corruptions(names, within, known, query, number, most, own))
        modes.append(torch.cat([queries[:, None], torch.stack(rows)], 1))
    return torch.stack(modes)
