"""What a proof under way is, what it is made from, and the rules it is played by."""

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
    """What may be said of the rules of a `Game`; the rest is as there."""

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
    argument: Literal["head", "tail", "both"] = "both"  # what is replaced in a negative
    order: Literal["random", "in_turn"] = "random"  # in which queries come
    end_proof: bool = False  # whether a policy may give a proof up
    skip_unary: int = 0  # how often in a row a state that only one follows is passed over, without counting as a move
    memory: bool = True  # whether states already seen in an episode are left out

    def history(self) -> int:
        """How many states an episode can remember."""
        return self.max_depth * (1 + self.skip_unary) + 1


@record
class ProofWorld:
    """What proofs are made from, and of what."""

    base: Knowledge
    queries: Tensor = tensor("* Q 3", "int")  # positives
    within: Domains  # of the constants that negatives get
    known: Tensor = tensor("* N", "int")  # packed atoms that are no negatives: `known_atoms`


@record
class ProofState:
    """A proof under way."""

    current: Tensor = tensor("* A 3", "int")  # the goals
    derived: Tensor = tensor("* S A 3", "int")  # what may follow
    derived_count: Tensor = tensor("*", "int")  # how many of those there are; 0 once the episode is over
    origin: Tensor = tensor("* S", "int")  # by which fact or rule: see `Successors`
    original_query: Tensor = tensor("* 3", "int")  # never used as a fact
    label: Tensor = tensor("*", "bool")  # whether the query is a positive
    next_variable: Tensor = tensor("*", "int")  # the first that `current` does not use
    depth: Tensor = tensor("*", "int")  # moves made
    terminated: Tensor = tensor("*", "bool")
    truncated: Tensor = tensor("*", "bool")
    success: Tensor = tensor("*", "bool")  # whether `current` is a proof
    history: Tensor = tensor("* H", "int")  # hashes of the states seen, 0 where there is none yet
    history_count: Tensor = tensor("*", "int")
    step_reward: Tensor = tensor("*", "float")  # of the last move
    cumulative_reward: Tensor = tensor("*", "float")  # of the episode
    pointer: Tensor = tensor("*", "int")  # which query comes next when they come in turn
    negative_counter: Tensor = tensor("*", "int")  # 0 modulo negatives + 1: a positive is played
    too_long: Tensor = tensor("*", "int")  # successors left out in this episode, see `Successors`
    too_many: Tensor = tensor("*", "int")
    were_too_long: Tensor = tensor("*", "int")  # earlier episodes of this slot with successors left out, by the reason
    were_too_many: Tensor = tensor("*", "int")


def opened(game: Game, query: Tensor, label: Tensor, pointer: Tensor, counter: Tensor) -> ProofState:
    """An episode's first state, before it is known what follows: query int64 [*, 3], the others [*].

    Padding in place of a query is an episode that is over.

    >>> from .borders import borders
    >>> game, world = borders()
    >>> zero, yes = torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.bool)
    >>> opened(game, world.queries, yes, zero, zero).current[0]
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
    return remembered(game, state, ~state.terminated)


def remembered(game: Game, state: ProofState, now: Tensor) -> ProofState:
    """The state with `current` in its history, where `now` [*] says so; as it is where the game has no memory.

    >>> from .borders import borders
    >>> game, world = borders()
    >>> zero, yes = torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.bool)
    >>> state = opened(game, world.queries, yes, zero, zero)
    >>> remembered(game, state, torch.tensor([True, False])).history_count
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
