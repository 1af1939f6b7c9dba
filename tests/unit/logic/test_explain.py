"""Proofs for people: the tree is the proof that the policy found, step for step, and its picture can be read."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Unpack

import pytest
import torch
from attrs import evolve
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from torch import Tensor

from purestep.core import keys
from purestep.core.distributions import masked
from purestep.core.logic.borders import borders
from purestep.core.logic.canonical import canonical
from purestep.core.logic.derive import derive
from purestep.core.logic.policy import proof_policy
from purestep.core.logic.rules import Rule, names_variable
from purestep.core.logic.state import Game, GameRules
from purestep.core.logic.terms import Names, Vocabulary, atom_numbers
from purestep.core.policy import ActorCritic
from purestep.runtime.effects.reporting import proof_picture as drawing
from purestep.runtime.effects.reporting.proof_picture import proof_picture
from purestep.runtime.logic.attempts import OPEN, Move, ProofAttempt, attempts, ending, left_out
from purestep.runtime.logic.explain import ProofRow, tree_lines, tree_rows
from purestep.runtime.logic.family import family
from purestep.runtime.logic.proof_tree import Goal, proof_tree
from purestep.runtime.logic.proofs import Proofs, proofs
from purestep.runtime.logic.recycle import empty_proof_slots, play, proven_all

YES, NO = ("in", "portugal", "europe"), ("in", "portugal", "america")


def fixed(sign: float) -> ActorCritic:
    """A policy that takes the first of what follows, or for a negative sign the last."""

    def apply(params: Any, observation: Any, carry: Any) -> Any:
        mask = observation.action_mask
        logits = -sign * torch.arange(mask.shape[-1], dtype=torch.float32).expand(mask.shape)
        return masked(logits, mask), torch.zeros(mask.shape[:-1]), carry

    return ActorCritic(init=lambda key: (), apply=apply)


def tried(
    query: Names, sign: float = 1.0, *, goals: int = 2, **changes: Unpack[GameRules]
) -> tuple[ProofAttempt, Goal, tuple[ProofRow, ...]]:
    game, world = borders(**changes)
    game = evolve(game, widths=evolve(game.widths, atoms=goals))
    atom = atom_numbers(game.names, [query])
    (attempt,) = attempts(game, fixed(sign), (), world.base, atom)
    tree = proof_tree(game.names, world.base, atom[0].tolist(), attempt.moves)
    return attempt, tree, tree_rows(game.names, world.base, tree)


# --- by hand ---


def test_a_proof_one_can_follow() -> None:
    attempt, tree, told = tried(YES)
    assert ending(attempt) == "proven in 4 moves"
    assert [line.split() for line in tree_lines(told)] == [
        line.split()
        for line in (
            "in(portugal, europe)  in(X, Y) :- borders(X, Z), in(Z, Y)  p = 1.00, the only choice",
            "borders(portugal, spain)  fact  p = 1.00, the only choice",
            "in(spain, europe)  in(X, Y) :- borders(X, Z), in(Z, Y)  p = 1.00, the only choice",
            "borders(spain, france)  fact  p = 1.00, the only choice",
            "in(france, europe)  known fact",
        )
    ]
    assert [row.depth for row in told] == [0, 1, 1, 2, 2]
    assert tree.settled()
    assert tree.height() == 3
    assert left_out(attempt) == ()


def test_an_attempt_that_fails_says_how_far_it_came() -> None:
    attempt, tree, told = tried(NO)
    assert attempt.end == "dead end"
    assert ending(attempt) == "not proven: after 5 moves nothing followed that the policy had not seen"
    assert not tree.settled()
    assert [(row.goal, row.kind) for row in told[-2:]] == [("borders(france, X)", "open"), ("in(X, america)", "open")]


def test_a_policy_may_run_out_of_moves_or_give_up() -> None:
    attempt, _, told = tried(YES, max_depth=1)
    assert ending(attempt) == "not proven: out of moves after 1 move"
    assert [row.goal for row in told if row.kind == "open"] == ["borders(portugal, X)", "in(X, europe)"]
    attempt, tree, told = tried(YES, -1.0, end_proof=True)
    assert ending(attempt) == "not proven: the policy gave up after 0 moves"
    assert (tree.origin, told[0].by) == (OPEN, "open")


@pytest.mark.parametrize(
    ("skip_unary", "wanted"),
    [
        (0, "not proven: the policy gave up after 0 moves"),
        (1, "not proven: the policy gave up after 1 move"),
        (2, "not proven: the policy gave up after 2 moves"),
        (3, "proven in 4 moves"),
    ],
)
def test_nobody_gives_up_where_the_game_passes_a_state_over(skip_unary: int, wanted: str) -> None:
    attempt, _, _ = tried(YES, -1.0, end_proof=True, skip_unary=skip_unary)
    assert ending(attempt) == wanted
    assert [(move.probability, move.choices) for move in attempt.moves[:skip_unary]] == [(1.0, 1)] * skip_unary
    assert attempt.left_out == 0


def test_what_there_was_no_room_for_is_told() -> None:
    attempt, _, _ = tried(YES, goals=1)
    assert left_out(attempt) == (
        "1 state left out for want of room; train with more --atoms, --successors or --facts to make room",
    )


def test_a_variable_keeps_its_letter_and_many_variables_have_many() -> None:
    game, world = borders()
    first = len(game.names.constants) + 1
    goals = tuple(Goal((1, first + place, first + place + 1)) for place in range(7))
    told = tree_rows(game.names, world.base, Goal((1, 1, 1), goals=goals))
    assert [row.goal for row in told[1:4]] == ["borders(X, Y)", "borders(Y, Z)", "borders(Z, U)"]
    assert [row.goal for row in told[-2:]] == ["borders(W, X6)", "borders(X6, X7)"]


# --- policies on a family: the tree against the engine and against the rules themselves ---


@pytest.fixture(scope="module")
def made() -> Proofs:
    return proofs(family(60))


def learnt(made: Proofs, seed: int) -> tuple[ActorCritic, Any]:
    model = proof_policy(made.game.names, size=8, hidden=8, blocks=1)
    return model, model.init(keys.key(seed))


def queries_of(made: Proofs) -> Tensor:
    """True ones, and as many that are not."""
    true = atom_numbers(made.game.names, [*made.dataset.test, *made.dataset.valid])
    return torch.cat([true, true[:, [0, 2, 1]]])


def trees(made: Proofs, game: Game, seed: int) -> Iterator[tuple[list[int], ProofAttempt, Goal]]:
    queries, base = queries_of(made), made.world.base
    told = attempts(game, *learnt(made, seed), base, queries)
    for query, attempt in zip(queries.tolist(), told, strict=True):
        yield query, attempt, proof_tree(game.names, base, query, attempt.moves)


def walk(goal: Goal) -> Iterator[Goal]:
    yield goal
    for below in goal.goals:
        yield from walk(below)


def named(names: Vocabulary, goal: Goal) -> Names:
    predicate, first, second = goal.atom
    return names.predicates[predicate - 1], names.constants[first - 1], names.constants[second - 1]


def is_instance(rule: Rule, atoms: list[Names]) -> bool:
    """Whether names for the rule's variables make it say that the first atom follows from the others."""
    binding = dict[str, str]()
    if len(atoms) != 1 + len(rule.body):
        return False
    for said, atom in zip((rule.head, *rule.body), atoms, strict=True):
        if said[0] != atom[0]:
            return False
        for word, constant in zip(said[1:], atom[1:], strict=True):
            if (binding.setdefault(word, constant) if names_variable(word) else word) != constant:
                return False
    return True


@pytest.mark.parametrize("seed", [0, 1])
def test_leaves_of_a_proof_are_facts_and_what_stands_above_them_are_rules(made: Proofs, seed: int) -> None:
    facts, rules, names, inner = set(made.dataset.train), made.dataset.rules, made.game.names, 0
    for query, attempt, tree in trees(made, made.game, seed):
        assert tree.settled() == (attempt.end == "proven")
        for goal in walk(tree) if tree.settled() else ():
            atom = named(names, goal)
            if goal.goals:
                inner += 1
                atoms = [atom, *(named(names, below) for below in goal.goals)]
                (row, *_) = tree_rows(names, made.world.base, goal)
                (own,) = [rule for rule in rules if str(rule) == row.by]
                assert is_instance(own, atoms), (row, atoms)
            else:
                assert atom in facts
                assert list(goal.atom) != query
    assert inner > 20


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "end_proof"), [(0, False), (1, True)])
def test_open_goals_are_those_of_the_engine_after_every_move(made: Proofs, seed: int, end_proof: bool) -> None:
    game = evolve(made.game, end_proof=end_proof)
    names, base, compared = game.names, made.world.base, 0
    for query, attempt, tree in trees(made, game, seed):
        state = torch.zeros(game.widths.atoms, 3, dtype=torch.int64)
        state[0] = torch.tensor(query)
        moves = [move for move in attempt.moves if move.origin != OPEN]
        assert attempt.moves[: len(moves)] == tuple(moves)
        assert sum(goal.choices > 0 for goal in walk(tree)) == len(moves)
        for count, move in enumerate(moves, 1):
            found = derive(names, base, game.widths, state, torch.tensor(query))
            state = found.states[int((found.origin == move.origin).nonzero()[0, 0])]
            goals = walk(proof_tree(names, base, query, moves[:count]))
            open_ = [goal.atom for goal in goals if goal.origin == OPEN]
            padded = torch.tensor([*open_, *[(0, 0, 0)] * (len(state) - len(open_))])
            wanted = torch.zeros_like(state) if int(state[0, 0]) == names.true else state
            assert torch.equal(canonical(names, padded), wanted)
            compared += 1
    assert compared > 100


@pytest.mark.parametrize(("skip_unary", "end_proof"), [(0, False), (1, False), (1, True), (3, False), (3, True)])
@pytest.mark.parametrize("max_depth", [3, 20])
def test_an_attempt_ends_as_the_game_does(made: Proofs, skip_unary: int, end_proof: bool, max_depth: int) -> None:
    game = evolve(made.game, skip_unary=skip_unary, end_proof=end_proof, max_depth=max_depth)
    model, params = learnt(made, 2)
    queries, base = queries_of(made), made.world.base
    told = attempts(game, model, params, base, queries)
    ran = proven_all(
        play(game, model, max_depth), params, base, empty_proof_slots(game, 64), queries, feed=64 * max_depth
    )
    assert [attempt.end == "proven" for attempt in told] == ran.proven.tolist()
    assert [attempt.left_out for attempt in told] == (ran.too_long + ran.too_many).tolist()
    assert 0 < int(ran.proven.sum()) < len(told)
    scores = torch.tensor([math.fsum(math.log(move.probability) for move in each.moves) for each in told])
    torch.testing.assert_close(scores, ran.score, rtol=1e-4, atol=1e-4)
    if skip_unary == 0:
        assert [len(attempt.moves) for attempt in told] == ran.depth.tolist()
    else:
        assert all(len(each.moves) >= depth for each, depth in zip(told, ran.depth.tolist(), strict=True))
        assert sum(len(each.moves) for each in told) > int(ran.depth.sum())


@pytest.mark.parametrize("skip_unary", [1, 3])
def test_who_never_gives_up_makes_the_same_moves_where_states_are_passed_over(made: Proofs, skip_unary: int) -> None:
    plain = evolve(made.game, end_proof=True, max_depth=40)
    queries, base = queries_of(made), made.world.base
    every, skipped = (
        attempts(game, fixed(1.0), (), base, queries) for game in (plain, evolve(plain, skip_unary=skip_unary))
    )
    assert {"proven", "dead end"} <= {attempt.end for attempt in every}
    fewer = 0
    for one, other in zip(every, skipped, strict=True):
        assert other.end == one.end
        assert [move.origin for move in other.moves] == [move.origin for move in one.moves]
        for move, passed in zip(one.moves, other.moves, strict=True):
            assert passed.choices in (move.choices, move.choices - 1)
            assert passed.choices == move.choices or (passed.choices, passed.probability) == (1, 1.0)
            fewer += passed.choices < move.choices
    assert fewer > 20


def test_many_queries_are_tried_as_each_alone(made: Proofs) -> None:
    queries, base = queries_of(made)[:6], made.world.base
    together = attempts(made.game, *learnt(made, 3), base, queries)
    for query, whole in zip(queries, together, strict=True):
        (alone,) = attempts(made.game, *learnt(made, 3), base, query[None])
        assert (alone.end, alone.left_out) == (whole.end, whole.left_out)
        assert [(move.origin, move.choices) for move in alone.moves] == [(m.origin, m.choices) for m in whole.moves]


# --- pictures ---


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    drawn: list[Figure] = []
    save = drawing.save_figure

    def keep(figure: Figure, out: Path) -> Path:
        drawn.append(figure)
        return save(figure, out)

    monkeypatch.setattr(drawing, "save_figure", keep)
    return drawn


def test_a_picture_shows_every_goal_in_a_box_of_its_own(tmp_path: Path, figures: list[Figure]) -> None:
    told = [
        ProofRow(
            0, "rule", "in(a, b)", "in(X, Y) :- next(X, Z), in(Z, Y), and_so_on(X, Y, Z)", "p = 0.50, of 3 choices"
        )
    ]
    told += [
        ProofRow(1 + place % 7, "open" if place % 2 else "known", f"in(${place}_$, b^)", "fact", "")
        for place in range(14)
    ]
    assert proof_picture(told, tmp_path / "new" / "proof.png", title="in(a, b)", note="proven; " + "note " * 20)
    (figure,) = figures
    (axes,) = figure.axes
    boxes = [patch.get_window_extent() for patch in axes.patches if isinstance(patch, FancyBboxPatch)]
    words = [text for text in axes.texts if text.get_text()]
    page = figure.bbox
    assert len(boxes) == 15
    assert {row.goal for row in told} <= {text.get_text() for text in words}
    for place, box in enumerate(boxes):
        assert page.x0 <= box.x0 < box.x1 <= page.x1
        assert page.y0 <= box.y0 < box.y1 <= page.y1
        assert not any(box.overlaps(other) for other in boxes[:place])
    for text in words:
        inside = [box for box in [*boxes, page] if _within(text.get_window_extent(), box)]
        assert inside, text.get_text()
        head = text.get_text().startswith(("in(a, b)", "proven"))
        assert len(inside) == 2 or head, text.get_text()
    assert len(axes.lines) == 14
    dashed = [patch for patch in axes.patches if patch.get_linestyle() in ("--", "dashed")]
    assert len(dashed) == sum(row.kind == "open" for row in told)


def _within(inner: Any, outer: Any) -> bool:
    return bool(outer.x0 <= inner.x0 and inner.x1 <= outer.x1 and outer.y0 <= inner.y0 and inner.y1 <= outer.y1)


def test_lines_lead_from_a_box_to_those_right_below_it(tmp_path: Path, figures: list[Figure]) -> None:
    told = [ProofRow(depth, "known", f"p(a, {place})", "fact", "") for place, depth in enumerate([0, 1, 2, 1])]
    proof_picture(told, tmp_path / "proof.png", title="p")
    ((axes,),) = [figure.axes for figure in figures]
    boxes = [patch for patch in axes.patches if isinstance(patch, FancyBboxPatch)]
    for line, (parent, child) in zip(axes.lines, [(0, 1), (1, 2), (0, 3)], strict=True):
        points = [(float(x), float(y)) for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]  # type: ignore[arg-type]
        above, below = boxes[parent], boxes[child]
        assert points[0][1] == above.get_y() + above.get_height()
        assert above.get_x() < points[0][0] < above.get_x() + above.get_width()
        assert points[-1] == (below.get_x(), below.get_y() + below.get_height() / 2)


def test_the_same_proof_is_the_same_file(tmp_path: Path) -> None:
    attempt, _, told = tried(YES)
    for name in ("one", "two"):
        proof_picture(told, tmp_path / name, title=told[0].goal, note=ending(attempt))
    first, second = ((tmp_path / name).read_bytes() for name in ("one", "two"))
    assert first == second
    assert first.startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_a_move_that_led_nowhere_is_no_part_of_a_tree() -> None:
    game, world = borders()
    query = atom_numbers(game.names, [YES])[0].tolist()
    assert proof_tree(game.names, world.base, query, [Move(1.0, OPEN, 1)]) == Goal(tuple(query))
