"""Demonstrations for a policy: the choices on proofs that a search finds of train facts."""

import torch
from attrs import evolve
from torch import Tensor

from ...algorithms.imitation import Demonstrations
from ...core import keys
from ...core.errors import ChoiceError, message
from ...core.keys import Key
from ...core.logic.corrupt import HEAD, TAIL
from ...core.logic.env import ProofObservation
from ...core.logic.terms import Vocabulary
from ...core.tree import tree_map
from .answers import opened_query
from .guide import plain
from .proof_scores import ProofSearcher
from .search import UNUSED, ProofsFound, States, opened_states, successors

CHUNK = 256  # facts whose proofs are searched for at once
DRAWN = 4  # proofs of a fact and form of its query, with replacement
SUCCESSORS = 32  # shown with a state


def demonstrations(
    own: ProofSearcher, names: Vocabulary, facts: Tensor, side: str, count: int, key: Key
) -> Demonstrations:
    """Return `count` choices on proofs of facts int64 [F, 3], of which each is none for its own proof.

    A fact is asked for as it is, and with one argument open: the one of `side`, "head" or "tail", or with "both" either. Of the
    proofs that are found for it, some are drawn with probabilities in proportion to their weights, and of all choices on these
    between two states or more, `count`, with replacement. States have the names of the policy's vocabulary. Of more than
    `SUCCESSORS` states to choose from the first ones are shown, and the one chosen in place of the last.
    Raises: ChoiceError where no proof is found.

    >>> from .family import family
    >>> from .proofs import proofs
    >>> from .proof_scores import prover
    >>> from .search import SearchLimits
    >>> made = proofs(family(10), max_depth=5)
    >>> own = prover(made, torch.full((len(made.dataset.rules),), 0.5, dtype=torch.float64), SearchLimits(rules=2))
    >>> shown = demonstrations(own, made.game.names, made.world.queries[:8], "tail", 16, keys.key(0))
    >>> bool(shown.observation.action_mask.gather(1, shown.action[:, None]).all())  # each action is there
    True
    """
    sides = {"head": (HEAD,), "tail": (TAIL,), "both": (HEAD, TAIL)}[side]
    parts = list[Demonstrations]()
    for number, at in enumerate(range(0, len(facts), CHUNK)):
        some = facts[at : at + CHUNK]
        for form, queries in enumerate((some, *(opened_query(own.names, some, open_) for open_ in sides))):
            found = own.proofs(queries, some)
            own_key = keys.fold_in(keys.fold_in(key, number), form)
            parts += _choices(own, names, queries, some, _drawn(found, some, own_key))
    if not parts:
        wanted, remedy = (
            "a proof of one",
            "allow more --imitated-rules or --imitated-expansions, or omit --imitated-facts",
        )
        raise ChoiceError(message(f"proofs of {len(facts):,} facts", got="none", wanted=wanted, remedy=remedy))
    every: Demonstrations = tree_map(lambda *leaves: torch.cat(leaves), *parts)
    chosen = keys.randint(keys.fold_in(key, len(facts)), (count,), 0, every.action.shape[0])
    return tree_map(lambda leaf: leaf[chosen], every)


def _drawn(found: ProofsFound, facts: Tensor, key: Key) -> ProofsFound:
    """Return `DRAWN` proofs of each fact that has one, drawn by their weights."""
    right = (found.answer == facts[found.owner][:, 1:]).all(-1).nonzero()[:, 0]
    right = right[torch.sort(found.owner[right], stable=True).indices]
    _, place = torch.unique_consecutive(found.owner[right], return_inverse=True)
    proven = int(place.max()) + 1 if place.numel() else 0
    mass = found.log_weight[right].exp()
    share = mass / torch.zeros(proven, dtype=torch.float64, device=mass.device).index_add(0, place, mass)[place]
    draws = keys.uniform(key, (proven, DRAWN), dtype=torch.float64) + torch.arange(proven, device=mass.device)[:, None]
    last = right.shape[0] - 1
    chosen = right[torch.searchsorted(share.cumsum(0), draws.reshape(-1)).clamp_max(last)]
    return evolve(found, owner=found.owner[chosen], moves=found.moves[chosen])


def _choices(
    own: ProofSearcher, names: Vocabulary, queries: Tensor, excluded: Tensor, found: ProofsFound
) -> list[Demonstrations]:
    """Return the choices on the proofs, move by move."""
    states, moves = opened_states(own.names, own.base, queries, own.bounds)[found.owner], found.moves
    shown = list[Demonstrations]()
    for step in range(moves.shape[1]):
        going = (moves[:, step] != UNUSED).nonzero()[:, 0]
        if not going.shape[0]:
            break
        states, moves = states[going], moves[going]
        after, row = successors(own.names, own.base, own.weights.log(), states, excluded, own.bounds)
        taken = (after.moves[:, step] == moves[row, step]).nonzero()[:, 0]
        shown.append(_observed(names, states, after, row, taken))
        states = after[taken]
    return shown


def _observed(names: Vocabulary, states: States, after: States, row: Tensor, taken: Tensor) -> Demonstrations:
    """Return the choices of the states that have two successors and more: all of these, and the one taken of each state."""
    count = torch.bincount(row, minlength=states.owner.shape[0])
    first = count.cumsum(0) - count
    action = (taken - first).clamp_max(SUCCESSORS - 1)
    places = torch.arange(SUCCESSORS, device=row.device)
    mask = places < count[:, None]
    index = torch.where(mask, first[:, None] + places, 0).scatter(1, action[:, None], taken[:, None])
    chosen = (count > 1).nonzero()[:, 0]
    seen = ProofObservation(
        sub_index=plain(names, states.goals[chosen]),
        derived_sub_indices=plain(names, after.goals)[index[chosen]],
        action_mask=mask[chosen],
    )
    return Demonstrations(observation=seen, action=action[chosen])
