"""Gridworld: walk to a goal between walls, with a mask of the possible moves."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .. import keys
from ..env import Env, deterministic
from ..errors import ChoiceError, ShapeError, message
from ..keys import Key
from ..record import record, tensor
from ..spaces import Box, Discrete, Fields
from ..steps import TimeStep, first, following

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left: rows count downwards
FOUR_ROOMS = (
    "S..#...",
    "...#...",
    ".......",
    "#.###.#",
    "...#...",
    ".......",
    "...#..G",
)


@record
class GridworldParams:
    """A map of H rows and W columns. With leading axes, one map per environment."""

    walls: Tensor = tensor("* H W", "bool")
    goals: Tensor = tensor("* H W", "bool")  # entering one ends the episode with a reward of 1
    starts: Tensor = tensor("* H W", "float")  # a reset picks a cell with a probability proportional to this


@record
class GridworldState:
    """The agent's cell: row * W + column."""

    cell: Tensor = tensor("*", "int")


@record
class GridworldObservation:
    """The whole map, and the mask of possible moves."""

    features: Tensor = tensor("* F", "float")  # F = 3 H W: the agent's cell, the walls, the goals
    action_mask: Tensor = tensor("* A", "bool")  # true for moves to a free cell


def gridworld(plan: Sequence[str] = FOUR_ROOMS) -> Env[GridworldParams, GridworldState]:
    """Return the environment drawn in `plan`, one row of text per row of cells: `#` wall, `G` goal, `S` start, `.` free.

    Without any `S` every free cell except goals is a start. Actions: 0 up, 1 right, 2 down, 3 left; a masked one leaves the
    agent in its cell. Reward: 1 for entering a goal, which terminates, else 0; so the optimal value of a cell d moves away is
    gamma**(d - 1). Params of one size may be stacked: the observation contains the whole map.

    Raises: ShapeError (rows of different lengths), ChoiceError (another character; no goal; no start; a free cell from
    which no goal can be reached, where the mask could be empty).

    >>> env = gridworld(["S.G"])
    >>> state, timestep = env.reset(env.params, keys.key(0))
    >>> timestep.observation.action_mask
    tensor([False,  True, False, False])
    >>> state, timestep = env.step(env.params, state, torch.tensor(1), keys.key(1))
    >>> env.step(env.params, state, torch.tensor(1), keys.key(2))[1].reward
    tensor(1.)
    """
    params = _read(tuple(plan))
    features = 3 * params.walls.numel()
    space = Fields((("features", Box(0.0, 1.0, (features,))), ("action_mask", Box(0.0, 1.0, (len(MOVES),)))))
    return deterministic(params, _reset, _advance, observation_space=space, action_space=Discrete(len(MOVES)))


def _refuse(got: object, wanted: str, remedy: str) -> ChoiceError:
    return ChoiceError(message("gridworld: plan", got=got, wanted=wanted, remedy=remedy))


def _read(plan: tuple[str, ...]) -> GridworldParams:
    lengths = sorted({len(row) for row in plan})
    if len(lengths) != 1 or not lengths[0]:
        remedy = "draw walls where there is nothing"
        raise ShapeError(message("gridworld: plan", got=f"rows of {lengths}", wanted="one length", remedy=remedy))
    strange = sorted(set("".join(plan)) - set("#GS."))
    if strange:
        raise _refuse(f"drawn with {strange}", "only '#', 'G', 'S' and '.'", "draw free cells as '.'")
    _check_reachable(plan)
    has_start = any("S" in row for row in plan)
    start = "S" if has_start else "."
    return GridworldParams(
        walls=torch.tensor([[cell == "#" for cell in row] for row in plan]),
        goals=torch.tensor([[cell == "G" for cell in row] for row in plan]),
        starts=torch.tensor([[float(cell == start) for cell in row] for row in plan]),
    )


def _check_reachable(plan: tuple[str, ...]) -> None:
    """Refuse a plan without a goal, or with free cells that a flood fill from the goals does not reach."""
    free = {(i, j) for i, row in enumerate(plan) for j, cell in enumerate(row) if cell != "#"}
    goals = {(i, j) for i, j in free if plan[i][j] == "G"}
    if not goals or goals == free:
        raise _refuse("without a goal" if not goals else "without a start", "both", "draw a 'G' and an 'S'")
    seen, edge = goals, goals
    while edge:
        edge = {(i + di, j + dj) for i, j in edge for di, dj in MOVES} & free - seen
        seen = seen | edge
    if seen != free:
        lost = sorted(free - seen)
        raise _refuse(
            f"closed around {lost[:3]}", "a way to a goal from every free cell", "open it, or draw walls there"
        )


def _neighbours(params: GridworldParams, cell: Tensor) -> Tensor:
    """Return the target cell of each move, the agent's own cell if the move would leave the map: int64 [A]."""
    height, width = params.walls.shape[-2:]
    # Arithmetic instead of a table of MOVES: the compiler's C++ code cannot access a constant tensor in a scan's body.
    action = torch.arange(len(MOVES), device=cell.device)
    down = (action == 2).to(torch.int64) - (action == 0).to(torch.int64)
    right = (action == 1).to(torch.int64) - (action == 3).to(torch.int64)
    row = torch.clamp(cell // width + down, 0, height - 1)
    column = torch.clamp(cell % width + right, 0, width - 1)
    return row * width + column


def _observe(params: GridworldParams, state: GridworldState) -> GridworldObservation:
    walls, goals = params.walls.flatten(), params.goals.flatten()
    here = torch.arange(walls.shape[0], device=walls.device) == state.cell
    targets = _neighbours(params, state.cell)
    return GridworldObservation(
        features=torch.cat([here, walls, goals]).to(params.starts.dtype),
        action_mask=~walls.index_select(0, targets) & (targets != state.cell),
    )


def _reset(params: GridworldParams, key: Key) -> tuple[GridworldState, TimeStep]:
    state = GridworldState(cell=keys.categorical(key, torch.log(params.starts.flatten())))
    return state, first(_observe(params, state))


def _advance(params: GridworldParams, state: GridworldState, action: Tensor) -> tuple[GridworldState, TimeStep]:
    # A 0-d index would be read on the host, which vmap refuses; index_select takes it as a tensor of one element.
    target = _neighbours(params, state.cell).index_select(0, action.reshape(1))
    blocked = params.walls.flatten().index_select(0, target)
    cell = torch.where(blocked, state.cell, target).squeeze(0)
    arrived = params.goals.flatten().index_select(0, cell.reshape(1)).squeeze(0)
    moved = GridworldState(cell=cell)
    return moved, following(_observe(params, moved), arrived.to(params.starts.dtype), arrived)
