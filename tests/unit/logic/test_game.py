"""Proving as a game and as an environment obeys its laws, and the environment's two resets tell the same story."""

from typing import Any, Literal

import pytest
import torch
from attrs import evolve
from torch import Tensor

import purestep.core.logic.game as game_module
from purestep.core import keys
from purestep.core.env import auto_reset, batched, reset_key
from purestep.core.errors import ChoiceError
from purestep.core.logic.borders import borders
from purestep.core.logic.derive import Widths
from purestep.core.logic.env import begin_proof, observe, proving
from purestep.core.logic.game import advance, look
from purestep.core.logic.terms import atom_text
from purestep.core.record import take
from purestep.core.steps import TimeStep
from purestep.properties import check, env_suite
from purestep.properties.framework.compare import EXACT, same
from purestep.runtime.compile import program
from purestep.runtime.logic.family import family
from purestep.runtime.logic.proofs import proofs
from purestep.runtime.rollout import Worlds, rollout
from purestep.runtime.rollout import reset_rollout as begin_worlds

from ...laws.logic.game import game_laws
from ...laws.logic.game_strategies import Moves
from ...laws.logic.table_policy import table_policy

LONGEST = 3  # steps of a walk, after up to three mixed ones: longer than either proof of the small world
KEY = torch.tensor([1, 0])
laws_of_an_env = env_suite(longest=LONGEST, tolerance=EXACT)

test_game = check(game_laws(), Moves(begin_proof, look, advance))
test_env = check(
    laws_of_an_env,
    proving(*borders(), reset="own"),
    skip={"compiled_is_eager": "a rollout of it is compiled below, and the others here in the slow tests"},
)
test_env_without_reset = pytest.mark.slow(
    check(laws_of_an_env, proving(*borders(end_proof=True, skip_unary=1, reward=5)))
)


def family_env(**rules: Any) -> Any:
    made = proofs(family(50), **rules)
    return proving(made.game, made.world)


test_env_of_a_family = pytest.mark.slow(check(laws_of_an_env, family_env(end_proof=True)))


def test_a_proof_by_hand() -> None:
    game, world = borders(negatives=0, order="in_turn")
    pointer = counter = torch.tensor(1)
    state = look(game, world.base, begin_proof(game, world, KEY, pointer, counter))
    said = []
    while not bool(state.terminated):
        atoms = (atom_text(game.names, atom) for atom in state.current.tolist())
        said.append([atom for atom in atoms if atom])
        state = look(game, world.base, advance(game, state, torch.tensor(0)))
    # borders(portugal, spain) is known and struck out as soon as X is spain, and so is in(france, europe).
    assert said == [
        ["in(portugal, europe)"],
        ["borders(portugal, X1)", "in(X1, europe)"],
        ["in(spain, europe)"],
        ["borders(spain, X1)", "in(X1, europe)"],
    ]
    assert bool(state.success)
    assert int(state.depth) == 4
    assert float(state.cumulative_reward) == 1.0


def test_an_action_beyond_the_last_successor_is_the_last() -> None:
    game, world = borders(negatives=0)
    state = look(game, world.base, begin_proof(game, world, KEY, torch.tensor(0), torch.tensor(0)))
    for action in (1, 7):
        same(f"action {action}", advance(game, state, torch.tensor(action)), advance(game, state, torch.tensor(0)))


def test_names_that_are_none_of_the_choices_are_refused() -> None:
    with pytest.raises(ChoiceError, match="reset"):
        proving(*borders(), reset="soon")
    wrongs: tuple[dict[str, Any], ...] = ({"order": "sideways"}, {"argument": "middle"})
    for wrong in wrongs:
        game, world = borders()
        env = proving(evolve(game, **wrong), world)
        with pytest.raises(ChoiceError, match=next(iter(wrong))):
            env.reset(world, KEY)


@pytest.mark.parametrize(
    ("widths", "end_proof", "wanted"),
    [
        (Widths(4, 2, 1, 1), False, "vocabulary: variables is 7, wanted 11 or more"),
        (Widths(2, 1, 1, 1), True, "widths is 1 successors, 2 atoms, wanted at least 2 and 1"),
        (Widths(0, 2, 1, 1), False, "widths is 2 successors, 0 atoms, wanted at least 1 and 1"),
    ],
)
def test_room_in_which_proofs_would_go_wrong_is_refused(widths: Widths, end_proof: bool, wanted: str) -> None:
    game, world = borders(end_proof=end_proof)
    with pytest.raises(ChoiceError, match=wanted):
        proving(evolve(game, widths=widths), world)


def story(step: Any, first: Any, count: int) -> list[TimeStep]:
    """What a world tells in so many steps: it goes by numbers that only the step number decides."""
    state, told = first, []
    for t in range(count):
        state, timestep = step(state, torch.tensor(t % 3), keys.fold_in(KEY, t))
        told.append(timestep)
    return told


@pytest.mark.parametrize("mode", ["select", "pooled"])
@pytest.mark.parametrize("rules", [{}, {"skip_unary": 2}, {"max_depth": 2, "memory": False}, {"end_proof": True}])
def test_a_reset_of_its_own_is_an_auto_reset(mode: str, rules: dict[str, Any]) -> None:
    """Without negatives an episode is its query, which both draw from a key that is a known part of the step's."""
    made = proofs(family(20, seed=3), negatives=0, **rules)
    plain, own = proving(made.game, made.world), proving(made.game, made.world, reset="own")
    wrapped, params, count = auto_reset(plain, mode), made.world, 12
    first, _ = plain.reset(params, KEY)

    def by_itself(state: Any, action: Tensor, key: Tensor) -> Any:
        return own.step(params, state, action, keys.split(reset_key(key), 3)[0])

    wanted = story(lambda state, action, key: wrapped.step(params, state, action, key), first, count)
    same("timesteps", story(by_itself, first, count), wanted, EXACT)
    assert sum(bool(told.terminated | told.truncated) for told in wanted) > 1
    assert any(not bool(told.terminated | told.truncated) for told in wanted)


def test_what_follows_a_state_passed_over_belongs_to_the_state_reached() -> None:
    """Where an episode goes on, the next observation is the observation, also when states were passed over in between."""
    game, world = borders(skip_unary=1, negatives=0)
    own, skipped = proving(game, world, reset="own"), 0
    state, _ = own.reset(world, KEY)
    for t in range(8):
        before = state.history_count
        state, told = own.step(world, state, torch.tensor(0), keys.fold_in(KEY, t))
        if not bool(told.terminated | told.truncated):
            same("next observation", told.next_observation, told.observation, EXACT)
            skipped += int(state.history_count - before > 1)
    assert skipped


def derivations(monkeypatch: pytest.MonkeyPatch, call: Any) -> int:
    count = 0

    def counted(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        return inner(*arguments)

    inner = game_module.derive  # type: ignore[attr-defined]
    with monkeypatch.context() as patched:
        patched.setattr(game_module, "derive", counted)
        call()
    return count


def test_a_reset_of_its_own_derives_once(monkeypatch: pytest.MonkeyPatch) -> None:
    game, world = borders()
    own, wrapped = proving(game, world, reset="own"), auto_reset(proving(game, world), "select")
    state, _ = own.reset(world, KEY)
    action = torch.tensor(0)
    assert derivations(monkeypatch, lambda: own.step(world, state, action, KEY)) == 1
    assert derivations(monkeypatch, lambda: wrapped.step(world, state, action, KEY)) == 2


@pytest.mark.parametrize(("negatives", "order"), [(0, "in_turn"), (1, "in_turn"), (3, "in_turn"), (3, "random")])
def test_turns_and_shares_go_on_from_episode_to_episode(negatives: int, order: Literal["random", "in_turn"]) -> None:
    """Every negatives + 1 episodes of a slot one is positive, and queries in turn come round and round."""
    game, world = borders(negatives=negatives, order=order, max_depth=1)
    env = batched(proving(game, world, reset="own"), 3)
    state, _ = env.reset(world, KEY)
    labels, pointers = [state.label], [state.pointer]
    for t in range(2 * (negatives + 1) - 1):
        state, _ = env.step(world, state, torch.zeros(3, dtype=torch.int64), keys.fold_in(KEY, t))
        labels.append(state.label)
        pointers.append(state.pointer)
    assert torch.stack(labels).sum(0).tolist() == [2, 2, 2]
    steps = torch.stack(pointers).diff(dim=0)
    assert torch.equal(steps, torch.ones_like(steps))
    if order == "in_turn":
        positive = world.queries[state.pointer % 2]
        assert torch.equal((state.original_query == positive).all(-1), state.label)


def test_an_ended_episode_stands_still_until_it_is_reset() -> None:
    game, world = borders(negatives=0, max_depth=1)
    env = proving(game, world)
    state, _ = env.reset(world, KEY)
    state, last = env.step(world, state, torch.tensor(0), KEY)
    assert bool(last.truncated)
    after, told = env.step(world, state, torch.tensor(0), KEY)
    assert float(told.reward) == 0.0
    assert not bool(observe(after).action_mask.any())
    same("a step later", after, evolve_reward(state), EXACT)


def evolve_reward(state: Any) -> Any:
    return evolve(state, step_reward=torch.zeros_like(state.step_reward))


@pytest.mark.slow
def test_a_rollout_compiled_is_eager() -> None:
    game, world = borders(end_proof=True, max_depth=3)
    env, model = batched(proving(game, world, reset="own"), 3), table_policy(game.names)
    run, params = rollout(env, model, 6), model.init(KEY)
    worlds = begin_worlds(env, KEY)

    def play(params: Tensor, worlds: Worlds, key: Tensor) -> Any:
        return run(params, worlds, key)

    eager = play(params, worlds, keys.key(5))
    same("compiled", program(play)(params, worlds, keys.key(5)), eager, EXACT)
    assert bool(eager[1].terminated.any())
    assert len({tuple(take(eager[1].action, t).tolist()) for t in range(6)}) > 1
