"""A policy's attempt at a query: its moves one after another, the origin of each state, and the end."""

from typing import Any, Literal

import torch
from attrs import evolve, frozen
from torch import Tensor

from ...core.logic.env import observe
from ...core.logic.game import advance, look
from ...core.logic.knowledge import Knowledge
from ...core.logic.state import Game, ProofState, first_state_of
from ...core.logic.terms import PADDING, Vocabulary
from ...core.policy import ActorCritic
from ...core.record import replace, select
from ...core.steps import ended

OPEN = -1  # the origin of a goal that is not settled
REMEDY = "train with more --atoms, --successors or --facts to make room"

End = Literal["proven", "dead end", "given up", "out of moves"]


@frozen
class Move:
    """One step of the policy."""

    probability: float
    origin: int  # the fact 0..F-1 or rule F..F+R-1 that led to the state taken, OPEN where none did
    choices: int  # number of states to choose from


@frozen
class ProofAttempt:
    """The policy's attempt at a query."""

    moves: tuple[Move, ...]
    end: End
    left_out: int  # number of states for which there was no room


def attempts(game: Game, model: ActorCritic, params: Any, base: Knowledge, queries: Tensor) -> tuple[ProofAttempt, ...]:
    """Return the policy's most probable moves from each query to the end of its episode: int64 [N, 3] -> N attempts.

    States that the game skips because only one follows are moves here, with a single choice, so that no step of a proof is
    missing; the game's `max_depth` does not count them.

    >>> from ...core.logic.borders import borders
    >>> from ...core.logic.policy import proof_policy
    >>> game, world = borders()
    >>> model = proof_policy(game.names)  # has no choice here: in(X, Z) :- borders(X, Y), in(Y, Z), then borders(spain, france)
    >>> attempts(game, model, model.init(torch.tensor([1, 0])), world.base, world.queries[:1])[0].moves
    (Move(probability=1.0, origin=4, choices=1), Move(probability=1.0, origin=1, choices=1))
    """
    plain = evolve(game, skip_unary=0, max_depth=game.max_depth * (1 + game.skip_unary))
    passed = made = torch.zeros_like(queries[:, 0])
    yes = torch.ones_like(passed, dtype=torch.bool)
    begun = first_state_of(plain, queries, yes, passed, passed)
    state, alone = _offered(plain, base, begun, passed < game.skip_unary)
    going = ~ended(state.terminated, state.truncated)
    moves: list[list[Move]] = [[] for _ in queries]
    while bool(going.any()):
        distribution, _, _ = model.apply(params, observe(state), ())
        action = distribution.mode()
        origin = state.origin.gather(-1, action[:, None])[:, 0]
        columns = (distribution.log_prob(action).exp(), origin, state.derived_count)
        for row, asked, *told in zip(moves, going.tolist(), *(part.tolist() for part in columns), strict=True):
            row += [Move(*told)] if asked else []
        passed = torch.where(alone, passed + 1, 0)
        made = made + (~alone).to(torch.int64)
        after = _offered(plain, base, advance(plain, state, action), passed < game.skip_unary)
        counts = state.too_long, state.too_many
        state, alone = select(going, after, (state, alone))
        stopped = made >= game.max_depth  # the game derives no successors there
        too_long, too_many = select(stopped, counts, (state.too_long, state.too_many))
        state = replace(state, too_long=too_long, too_many=too_many)
        going = going & ~ended(state.terminated, state.truncated) & ~stopped
    left_out = (state.too_long + state.too_many).tolist()
    marks = state.current[:, 0, 0].tolist()
    return tuple(
        ProofAttempt(tuple(row), _end(game.names, mark), lost)
        for row, mark, lost in zip(moves, marks, left_out, strict=True)
    )


def _offered(plain: Game, base: Knowledge, state: ProofState, may_pass: Tensor) -> tuple[ProofState, Tensor]:
    """Return the state with its successors, and whether the game skips it.

    It does where one state follows that is no mark; giving up is not possible there, so its mark is not among the successors.
    """
    unmarked = look(evolve(plain, end_proof=False), base, state)
    goal = unmarked.derived[:, 0, 0, 0]
    single = (unmarked.derived_count == 1) & (goal <= len(plain.names.predicates)) & (goal != PADDING)
    alone = single & may_pass
    return (select(alone, unmarked, look(plain, base, state)) if plain.end_proof else unmarked), alone


def _end(names: Vocabulary, mark: int) -> End:
    if mark == names.true:
        return "proven"
    return "dead end" if mark == names.false else "given up" if mark == names.end else "out of moves"


def ending(attempt: ProofAttempt) -> str:
    """Return the end of an attempt in words; a step into a mark does not count as a move.

    >>> ending(ProofAttempt((Move(1.0, 0, 1),), "proven", 0))
    'proven in 1 move'
    >>> ending(ProofAttempt((Move(1.0, 0, 1), Move(0.5, OPEN, 2)), "given up", 0))
    'not proven: the policy gave up after 1 move'
    """
    count = sum(move.origin != OPEN for move in attempt.moves)
    moves = f"{count} move{'s' * (count != 1)}"
    return {
        "proven": f"proven in {moves}",
        "dead end": f"not proven: after {moves} nothing followed that the policy had not seen",
        "given up": f"not proven: the policy gave up after {moves}",
        "out of moves": f"not proven: out of moves after {moves}",
    }[attempt.end]


def left_out(attempt: ProofAttempt) -> tuple[str, ...]:
    """Return a line on the states for which there was no room; () if there was room for all.

    >>> left_out(ProofAttempt((), "dead end", 2))
    ('2 states left out for want of room; train with more --atoms, --successors or --facts to make room',)
    >>> left_out(ProofAttempt((), "dead end", 0))
    ()
    """
    count = attempt.left_out
    return (f"{count} state{'s' * (count != 1)} left out for want of room; {REMEDY}",) if count else ()
