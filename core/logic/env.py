"""The proving game as an environment: queries from a pool, mixed with negatives, and observations of the successors."""

from collections.abc import Callable

import torch
from torch import Tensor

from .. import keys
from ..env import Env
from ..errors import choose
from ..keys import Key
from ..record import record, replace, select, tensor
from ..spaces import Box, Discrete, Fields
from ..steps import TimeStep, ended, first
from .corrupt import HEAD, TAIL, corrupt
from .derive import check_widths
from .game import advance, look
from .state import Game, ProofState, ProofWorld, first_state_of


@record
class ProofObservation:
    """The observation: the goals, and the successor states."""

    sub_index: Tensor = tensor("* A 3", "int")
    derived_sub_indices: Tensor = tensor("* S A 3", "int")
    action_mask: Tensor = tensor("* S", "bool")  # true for existing successors


def observe(state: ProofState) -> ProofObservation:
    """Return the observation of a state.

    >>> from .borders import borders
    >>> game, world = borders()
    >>> env = proving(game, world)
    >>> observe(env.reset(world, torch.tensor([1, 0]))[0]).action_mask
    tensor([ True, False])
    """
    places = torch.arange(state.origin.shape[-1], device=state.origin.device)
    return ProofObservation(
        sub_index=state.current,
        derived_sub_indices=state.derived,
        action_mask=places < state.derived_count[..., None],
    )


def begin_proof(game: Game, world: ProofWorld, key: Key, pointer: Tensor, counter: Tensor) -> ProofState:
    """Return the first state of an episode, before its successors are computed: key [*, 2], pointer and counter [*].

    The query is a random one of the pool, or number `pointer` modulo its size. If `counter` modulo negatives + 1 is not 0,
    one of its arguments is replaced, with "both" either one with probability 1/2; if no replacement was found it stays a
    positive.

    >>> from .borders import borders
    >>> game, world = borders(order="in_turn")
    >>> begin_proof(game, world, torch.tensor([1, 0]), torch.tensor(1), torch.tensor(1)).original_query  # in(portugal, america)
    tensor([2, 5, 1])
    """
    query_key, side_key, negative_key = keys.split(key, 3)
    count = world.queries.shape[0]
    drawn = keys.randint(query_key, (), 0, count)
    number = choose("game: order", game.order, {"random": drawn, "in_turn": pointer % count})
    query = world.queries[number[..., None]][..., 0, :]  # a compiled graph cannot read a 0-d index
    either = keys.randint(side_key, (), HEAD, TAIL + 1)
    sides = {"head": torch.full_like(either, HEAD), "tail": torch.full_like(either, TAIL), "both": either}
    side = choose("game: argument", game.argument, sides)
    negative, found = corrupt(game.names, world.within, world.known, query, side, negative_key)
    false = found & (counter % (game.negatives + 1) != 0)
    return first_state_of(game, torch.where(false[..., None], negative, query), ~false, pointer, counter)


def proving(game: Game, world: ProofWorld, *, reset: str = "none") -> Env[ProofWorld, ProofState]:
    """Return the env of proving queries of the world's pool, in which an action selects one of the successor states.

    `reset` selects what happens at the end of an episode: "none" returns the final state, without successors, for
    `auto_reset`; "own" starts the next episode before computing successors, so that a step derives once and not twice. With
    "own", pointers and counters continue from one episode to the next, else each episode starts at random ones.
    Raises: ChoiceError (an unknown name; too few variables or slots for the game, see `check_room`).

    >>> from .borders import borders
    >>> env, key = proving(*borders(negatives=0)), torch.tensor([1, 0])
    >>> state, told = env.reset(env.params, key)
    >>> for _ in range(2):
    ...     state, told = env.step(env.params, state, torch.tensor(0), key)
    >>> told.observation.sub_index[0], told.terminated  # the query was in(spain, europe): the mark of truth
    (tensor([3, 0, 0]), tensor(True))
    """
    check_widths(game.names, world.base, game.widths, end_proof=game.end_proof)
    widths = game.widths
    steps: dict[str, Callable[[ProofWorld, ProofState, Tensor, Key], tuple[ProofState, TimeStep]]] = {
        "none": lambda world, state, action, key: _step(game, world, state, action),
        "own": lambda world, state, action, key: _step_and_reset(game, world, state, action, key),
    }
    goals = Box(0.0, float(max(game.names.base - 1, game.names.end)), (widths.atoms, 3))
    following = Box(goals.low, goals.high, (widths.successors, *goals.shape))
    mask = Box(0.0, 1.0, (widths.successors,))
    space = Fields((("sub_index", goals), ("derived_sub_indices", following), ("action_mask", mask)))
    return Env(
        params=world,
        reset=lambda world, key: _reset(game, world, key),
        step=choose("proving: reset", reset, steps),
        observation_space=space,
        action_space=Discrete(widths.successors),
    )


def _reset(game: Game, world: ProofWorld, key: Key) -> tuple[ProofState, TimeStep]:
    begin_key, pointer_key, counter_key = keys.split(key, 3)
    pointer = keys.randint(pointer_key, (), 0, world.queries.shape[0])
    counter = keys.randint(counter_key, (), 0, game.negatives + 1)
    state = look(game, world.base, begin_proof(game, world, begin_key, pointer, counter))
    return state, first(observe(state))


def _step(game: Game, world: ProofWorld, state: ProofState, action: Tensor) -> tuple[ProofState, TimeStep]:
    after = look(game, world.base, advance(game, state, action))
    return after, _told(after, after, observe(after))


def _step_and_reset(
    game: Game, world: ProofWorld, state: ProofState, action: Tensor, key: Key
) -> tuple[ProofState, TimeStep]:
    moved = advance(game, state, action)
    over = ended(moved.terminated, moved.truncated)
    fresh = begin_proof(game, world, key, state.pointer + 1, state.negative_counter + 1)
    fresh = replace(
        fresh,
        were_too_long=moved.were_too_long + (moved.too_long > 0).to(torch.int64),
        were_too_many=moved.were_too_many + (moved.too_many > 0).to(torch.int64),
    )
    after = look(game, world.base, select(over, fresh, moved))
    seen = observe(after)
    beyond = ProofObservation(
        sub_index=torch.where(over[..., None, None], moved.current, seen.sub_index),
        derived_sub_indices=torch.where(over[..., None, None, None], 0, seen.derived_sub_indices),
        action_mask=seen.action_mask & ~over[..., None],
    )
    return after, _told(moved, after, beyond)


def _told(moved: ProofState, after: ProofState, beyond: ProofObservation) -> TimeStep:
    return TimeStep(
        observation=observe(after),
        reward=moved.step_reward,
        terminated=moved.terminated,
        truncated=moved.truncated,
        next_observation=beyond,
    )
