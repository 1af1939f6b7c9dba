"""A proof that a policy found, as a tree for people: which rule or fact settled each goal, and how likely that was."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from attrs import define, field, frozen

from ...core.logic.env import observe
from ...core.logic.game import advance, look
from ...core.logic.knowledge import Knowledge, contains
from ...core.logic.state import Game, opened
from ...core.logic.terms import PADDING, Vocabulary, decode
from ...core.policy import ActorCritic
from ...core.steps import ended

Atom = tuple[int, int, int]


@frozen
class Move:
    """One step of the policy."""

    probability: float
    origin: int  # the fact 0..F-1 or rule F..F+R-1 that led to the state taken, -1 where nothing did
    choices: int  # among how many successors


@frozen
class Attempt:
    """What the policy did with a query."""

    moves: tuple[Move, ...]
    proven: bool


@define
class Node:
    """A goal of a proof, and the goals that a rule put in its place."""

    atom: Atom
    by: str = ""  # the rule that settled it, or that it is a fact; empty while it is open
    probability: float = 1.0  # with which the policy chose that
    children: "list[Node]" = field(factory=list)

    def settled(self) -> bool:
        """Whether the whole tree below is."""
        return bool(self.by) and all(child.settled() for child in self.children)


def attempt(game: Game, model: ActorCritic, params: Any, base: Knowledge, query: Sequence[int]) -> Attempt:
    """The policy's most probable moves from a query on, to the end of the episode."""
    zero, yes = torch.zeros((), dtype=torch.int64), torch.ones((), dtype=torch.bool)
    state = look(game, base, opened(game, torch.tensor(list(query)), yes, zero, zero))
    moves = []
    while not bool(ended(state.terminated, state.truncated)):
        distribution, _, _ = model.apply(params, observe(state), ())
        action = distribution.mode()
        probability = float(distribution.log_prob(action).exp())
        moves.append(Move(probability, int(state.origin[action]), int(state.derived_count)))
        state = look(game, base, advance(game, state, action))
    return Attempt(tuple(moves), bool(state.success))


def proof_tree(names: Vocabulary, base: Knowledge, query: Sequence[int], moves: Sequence[Move]) -> Node:
    """The tree that the moves build, with the bindings of all of them applied.

    Goals are settled from left to right; one that is a known fact as soon as its variables are bound is settled at once,
    like in the engine.
    """
    root = Node(_atom(query))
    open_, binding, fresh = [root], dict[int, int](), names.base
    facts = base.keys.shape[0] - 1
    for move in moves:
        if not open_ or move.origin < 0:
            break
        goal, *rest = open_
        goal.probability = move.probability
        rule = move.origin >= facts
        atoms = [base.heads, base.bodies][0][move.origin - facts] if rule else base.facts[move.origin]
        head = _apart(names, _atom(atoms.tolist()), fresh)
        body = [_apart(names, atom, fresh) for atom in _body(base, move.origin - facts)] if rule else []
        fresh += names.base
        _bind(names, binding, goal.atom, head)
        goal.by = "rule " + _rule_text(names, base, move.origin - facts) if rule else "fact"
        goal.children = [Node(atom) for atom in body]
        open_ = [node for node in (*goal.children, *rest) if not _known(names, base, binding, node, query)]
    _apply(binding, root)
    return root


def _body(base: Knowledge, rule: int) -> Iterator[Atom]:
    yield from (_atom(row) for row in base.bodies[rule].tolist() if row[0] != PADDING)


def _atom(row: Sequence[int]) -> Atom:
    predicate, first, second = row
    return predicate, first, second


def _apart(names: Vocabulary, atom: Atom, fresh: int) -> Atom:
    first, second = (term + fresh if term > len(names.constants) else term for term in atom[1:])
    return atom[0], first, second


def _end(binding: dict[int, int], term: int) -> int:
    while term in binding:
        term = binding[term]
    return term


def _bind(names: Vocabulary, binding: dict[int, int], goal: Atom, head: Atom) -> None:
    for one, other in zip(goal[1:], head[1:], strict=True):
        left, right = _end(binding, one), _end(binding, other)
        if left != right:
            variable, term = (left, right) if left > len(names.constants) else (right, left)
            binding[variable] = term


def _known(names: Vocabulary, base: Knowledge, binding: dict[int, int], node: Node, query: Sequence[int]) -> bool:
    atom = (node.atom[0], _end(binding, node.atom[1]), _end(binding, node.atom[2]))
    if max(atom[1:]) > len(names.constants):
        return False
    known = bool(contains(names, base, torch.tensor(atom), torch.tensor(list(query))))
    node.by = "fact" if known else node.by
    return known


def _apply(binding: dict[int, int], node: Node) -> None:
    node.atom = (node.atom[0], _end(binding, node.atom[1]), _end(binding, node.atom[2]))
    for child in node.children:
        _apply(binding, child)


def _rule_text(names: Vocabulary, base: Knowledge, rule: int) -> str:
    head, *body = (decode(names, atom) for atom in (base.heads[rule].tolist(), *_body(base, rule)))
    return f"{head} :- {', '.join(body)}"


def lines(names: Vocabulary, node: Node, indent: str = "") -> Iterator[str]:
    """The tree as text, a line for each goal: what it is, what settled it, with which probability."""
    how = node.by or "open"
    chosen = f"   p = {node.probability:.2f}" if node.children or how == "fact" else ""
    yield f"{indent}{show(names, node.atom)}   {how}{chosen}"
    for child in node.children:
        yield from lines(names, child, indent + "  ")


def show(names: Vocabulary, atom: Atom) -> str:
    """An atom for people; variables that nothing bound are all called X."""
    beyond = len(names.constants)
    first, second = (term if term <= beyond else beyond + 1 for term in atom[1:])
    return decode(names, (atom[0], first, second)).replace("X1", "X")
