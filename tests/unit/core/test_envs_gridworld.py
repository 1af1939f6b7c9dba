"""The gridworld, checked over all its states against the drawing itself."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from purestep.core import keys
from purestep.core.env import Env, batched
from purestep.core.envs.gridworld import FOUR_ROOMS, GridworldParams, GridworldState, gridworld
from purestep.core.errors import ChoiceError, ShapeError
from purestep.core.record import stack
from purestep.core.steps import TimeStep

Plan = tuple[str, ...]
World = Env[GridworldParams, GridworldState]
DIRECTIONS = {0: (-1, 0), 1: (0, 1), 2: (1, 0), 3: (0, -1)}
PLANS: list[Plan] = [FOUR_ROOMS, ("S.G",), ("G", ".", "S"), ("S#.", ".#G", "..."), ("G#G", "...", "###")]


def at(plan: Plan, row: int, column: int) -> str:
    """The drawing, surrounded by walls."""
    inside = 0 <= row < len(plan) and 0 <= column < len(plan[0])
    return plan[row][column] if inside else "#"


def free_cells(plan: Plan) -> list[tuple[int, int]]:
    return [(i, j) for i in range(len(plan)) for j in range(len(plan[0])) if at(plan, i, j) != "#"]


def step_everywhere(env: World, plan: Plan) -> tuple[Tensor, GridworldState, TimeStep]:
    """Every action in every free cell: [cells, 4] states and timesteps, and the cells [cells]."""
    cells = torch.tensor([i * len(plan[0]) + j for i, j in free_cells(plan)])
    over_actions = torch.vmap(env.step, in_dims=(None, None, 0, None))
    over_cells = torch.vmap(over_actions, in_dims=(None, 0, None, None))
    return cells, *over_cells(env.params, GridworldState(cell=cells), torch.arange(4), keys.key(0))


def check_against_the_drawing(plan: Plan) -> None:
    """Moves, masks, rewards and endings of every free cell and action."""
    width = len(plan[0])
    _, moved, timestep = step_everywhere(gridworld(plan), plan)
    for n, (i, j) in enumerate(free_cells(plan)):
        for action, (di, dj) in DIRECTIONS.items():
            possible = at(plan, i + di, j + dj) != "#"
            row, column = (i + di, j + dj) if possible else (i, j)
            assert moved.cell[n, action] == row * width + column
            assert at(plan, row, column) != "#"
            arrived = at(plan, row, column) == "G"
            assert timestep.terminated[n, action] == arrived
            assert timestep.reward[n, action] == float(arrived)
            seen = timestep.next_observation
            wanted = [at(plan, row + a, column + b) != "#" for a, b in DIRECTIONS.values()]
            assert seen.action_mask[n, action].tolist() == wanted
            assert any(wanted)
            drawn = [[(y, x) == (row, column) for y in range(len(plan)) for x in range(width)]]
            drawn += [[cell == sign for line in plan for cell in line] for sign in "#G"]
            assert seen.features[n, action].tolist() == [float(value) for plane in drawn for value in plane]


@pytest.mark.parametrize("plan", PLANS)
def test_no_action_in_any_cell_walks_through_a_wall(plan: Plan) -> None:
    check_against_the_drawing(plan)


@given(st.integers(1, 3), st.integers(1, 3), st.data())
def test_drawings_are_walked_as_drawn_or_refused(height: int, width: int, data: st.DataObject) -> None:
    size = height * width
    cells = "".join(data.draw(st.lists(st.sampled_from(".#GS"), min_size=size, max_size=size)))
    plan = tuple(cells[i * width : (i + 1) * width] for i in range(height))
    if "G" in cells and set(cells) & {".", "S"} and set(distances(plan)) == set(free_cells(plan)):
        check_against_the_drawing(plan)
    else:
        with pytest.raises(ChoiceError, match="plan is"):
            gridworld(plan)


def distances(plan: Plan) -> dict[tuple[int, int], int]:
    """Moves to the nearest goal, breadth first."""
    found = {cell: 0 for cell in free_cells(plan) if at(plan, *cell) == "G"}
    edge = list(found)
    while edge:
        cell = edge.pop(0)
        for di, dj in DIRECTIONS.values():
            near = (cell[0] + di, cell[1] + dj)
            if at(plan, *near) != "#" and near not in found:
                found[near] = found[cell] + 1
                edge.append(near)
    return found


@pytest.mark.parametrize("plan", PLANS)
def test_optimal_values_are_powers_of_gamma(plan: Plan) -> None:
    """Value iteration over the env's own steps gives gamma**(d - 1) at distance d."""
    gamma, size = 0.5, len(plan) * len(plan[0])
    cells, moved, timestep = step_everywhere(gridworld(plan), plan)
    values = torch.zeros(size)
    for _ in range(size):
        beyond = torch.where(timestep.terminated, 0.0, values[moved.cell])
        values = values.index_put((cells,), (timestep.reward + gamma * beyond).amax(-1))
    for (i, j), distance in distances(plan).items():
        if distance:
            assert values[i * len(plan[0]) + j] == gamma ** (distance - 1)


@pytest.mark.parametrize(("plan", "wanted"), [(("S.G", "S##"), {0, 3}), (("..G", ".##"), {0, 1, 3}), (FOUR_ROOMS, {0})])
def test_resets_begin_at_every_start_equally_often(plan: Plan, wanted: set[int]) -> None:
    env, n = gridworld(plan), 3_000
    cells = torch.vmap(env.reset, in_dims=(None, 0))(env.params, keys.split(keys.key(2), n))[0].cell
    assert set(cells.tolist()) == wanted
    for cell in wanted:
        assert abs((cells == cell).float().mean() - 1.0 / len(wanted)) < 5.0 * 0.5 / n**0.5


def test_many_mazes_are_one_env_under_their_stacked_records() -> None:
    plans: list[Plan] = [("S#G", "..."), ("S.G", "###"), ("G..", "#.S")]
    many = batched(gridworld(plans[0]), 3, own_params=True)
    params = stack([gridworld(plan).params for plan in plans])
    state, first = many.reset(params, keys.key(3))
    assert state.cell.tolist() == [0, 0, 5]
    assert first.observation.action_mask.tolist() == [
        [False, False, True, False],
        [False, True, False, False],
        [True, False, False, True],
    ]
    moved, _ = many.step(params, state, torch.tensor([1, 1, 0]), keys.key(4))
    assert moved.cell.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("plan", "error", "words"),
    [
        (["S.G", ".."], ShapeError, "one length"),
        ([], ShapeError, "one length"),
        (["S G"], ChoiceError, "drawn with"),
        (["S.."], ChoiceError, "without a goal"),
        (["GG#"], ChoiceError, "without a start"),
        (["S#G"], ChoiceError, "closed around"),
        (["S.G#."], ChoiceError, "closed around"),
    ],
)
def test_drawings_that_make_no_world_are_refused(plan: list[str], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        gridworld(plan)
