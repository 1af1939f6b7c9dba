"""The state of an unfinished proof, its knowledge base and queries, and the rules of the game."""

from typing import Literal, TypedDict

import torch
from attrs import frozen
from torch import Tensor

from ..record import record, replace, tensor
from .canonical import state_hash
from .corrupt import Domains
from .derive import Widths
from .knowledge import Knowledge
from .terms import PADDING, Vocabulary


class GameRules(TypedDict, total=False):
    """Overrides for the rules of a `Game`; the defaults are those of `Game`."""

    max_depth: int
    reward: int
    negatives: int
    argument: Literal["head", "tail", "both"]
    order: Literal["random", "in_turn"]
    end_proof: bool
    skip_unary: int
    memory: bool


@frozen
class Game:
    """The rules of the game."""

    names: Vocabulary
    widths: Widths
    max_depth: int = 20  # moves; then the episode is truncated
    reward: int = 4  # a row of REWARDS; with 4 and 5 an unproven negative is worth 1 / negatives
    negatives: int = 1  # for each positive query
    argument: Literal["head", "tail", "both"] = "both"  # the argument replaced in a negative
    order: Literal["random", "in_turn"] = "random"  # the order of queries
    end_proof: bool = False  # whether a policy may abandon a proof
    skip_unary: int = 0  # how many states with a single successor are skipped in a row, without counting as moves
    memory: bool = True  # whether states already seen in an episode are excluded

    def history(self) -> int:
        """Return the maximum number of states in an episode's history."""
        return self.max_depth * (1 + self.skip_unary) + 1


@record
class ProofWorld:
    """The knowledge base, the queries, and the data for negatives."""

    base: Knowledge
    queries: Tensor = tensor("* Q 3", "int")  # positives
    within: Domains  # of the constants in negatives
    known: Tensor = tensor("* N", "int")  # packed atoms that are not negatives: `known_atoms`


@record
class ProofState:
    """The state of an unfinished proof."""

    current: Tensor = tensor("* A 3", "int")  # the goals
    derived: Tensor = tensor("* S A 3", "int")  # the successors
    derived_count: Tensor = tensor("*", "int")  # number of successors; 0 once the episode is over
    origin: Tensor = tensor("* S", "int")  # the fact or rule of each: see `Successors`
    original_query: Tensor = tensor("* 3", "int")  # never used as a fact
    label: Tensor = tensor("*", "bool")  # whether the query is a positive
    next_variable: Tensor = tensor("*", "int")  # the first variable not used by `current`
    depth: Tensor = tensor("*", "int")  # moves made
    terminated: Tensor = tensor("*", "bool")
    truncated: Tensor = tensor("*", "bool")
    success: Tensor = tensor("*", "bool")  # whether `current` is a proof
    history: Tensor = tensor("* H", "int")  # hashes of the states seen, 0 in unused entries
    history_count: Tensor = tensor("*", "int")
    step_reward: Tensor = tensor("*", "float")  # of the last move
    cumulative_reward: Tensor = tensor("*", "float")  # of the episode
    pointer: Tensor = tensor("*", "int")  # index of the query with order "in_turn"
    negative_counter: Tensor = tensor("*", "int")  # 0 modulo negatives + 1: the query is a positive
    too_long: Tensor = tensor("*", "int")  # successors dropped in this episode, see `Successors`
    too_many: Tensor = tensor("*", "int")
    were_too_long: Tensor = tensor("*", "int")  # earlier episodes of this slot with dropped successors, by the reason
    were_too_many: Tensor = tensor("*", "int")


def first_state_of(game: Game, query: Tensor, label: Tensor, pointer: Tensor, counter: Tensor) -> ProofState:
    """Return an episode's first state, before its successors are computed: query int64 [*, 3], the others [*].

    Padding instead of a query gives a finished episode.

    >>> from .borders import borders
    >>> game, world = borders()
    >>> zero, yes = torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.bool)
    >>> first_state_of(game, world.queries, yes, zero, zero).current[0]
    tensor([[2, 6, 2],
            [0, 0, 0]])
    """
    atoms, successors = game.widths.atoms, game.widths.successors
    lead = query.shape[:-1]
    current = torch.nn.functional.pad(query[..., None, :], (0, 0, 0, atoms - 1))
    zero, no = torch.zeros_like(pointer), torch.zeros_like(label)
    state = ProofState(
        current=current,
        derived=query.new_zeros((*lead, successors, atoms, 3)),
        derived_count=zero,
        origin=query.new_full((*lead, successors), -1),
        original_query=query,
        label=label,
        next_variable=zero + len(game.names.constants) + 1,
        depth=zero.clone(),
        terminated=query[..., 0] == PADDING,
        truncated=no,
        success=no.clone(),
        history=query.new_zeros((*lead, game.history())),
        history_count=zero.clone(),
        step_reward=torch.zeros_like(pointer, dtype=torch.float32),
        cumulative_reward=torch.zeros_like(pointer, dtype=torch.float32),
        pointer=pointer,
        negative_counter=counter,
        too_long=zero.clone(),
        too_many=zero.clone(),
        were_too_long=zero.clone(),
        were_too_many=zero.clone(),
    )
    return remember_current(game, state, ~state.terminated)


def remember_current(game: Game, state: ProofState, now: Tensor) -> ProofState:
    """Return the state with `current` added to its history where `now` [*]; unchanged if the game has no memory.

    >>> from .borders import borders
    >>> game, world = borders()
    >>> zero, yes = torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.bool)
    >>> state = first_state_of(game, world.queries, yes, zero, zero)
    >>> remember_current(game, state, torch.tensor([True, False])).history_count
    tensor([2, 1])
    """
    if not game.memory:
        return state
    place = torch.arange(game.history(), device=now.device) == state.history_count[..., None]
    value = state_hash(game.names, state.current)
    return replace(
        state,
        history=torch.where(place & now[..., None], value[..., None], state.history),
        history_count=state.history_count + now.to(torch.int64),
    )
