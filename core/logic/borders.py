"""A minimal proof environment for tests and examples: four countries, two regions, one rule."""

from typing import Unpack

from .corrupt import TAIL, domains, known_atoms
from .derive import Widths
from .knowledge import knowledge
from .rules import Rule, encode_rules
from .state import Game, GameRules, ProofWorld
from .terms import atom_numbers, vocabulary

FACTS = (
    ("in", "france", "europe"),
    ("in", "peru", "america"),
    ("borders", "spain", "france"),
    ("borders", "portugal", "spain"),
)
QUERIES = (("in", "spain", "europe"), ("in", "portugal", "europe"))
RULE = Rule(("in", "X", "Z"), (("borders", "X", "Y"), ("in", "Y", "Z")))
REGIONS = ("america", "europe")


def borders(**changes: Unpack[GameRules]) -> tuple[Game, ProofWorld]:
    """Return the game and the world of the rule that a country is in the region of its neighbour.

    Spain's proof takes two moves, Portugal's four; negatives replace the region. `changes` override the rules of the game.

    >>> game, world = borders(max_depth=5)
    >>> game.names.constants
    ('america', 'europe', 'france', 'peru', 'portugal', 'spain')
    >>> world.queries.tolist()  # in(spain, europe), in(portugal, europe)
    [[2, 6, 2], [2, 5, 2]]
    """
    names = vocabulary(
        [atom[0] for atom in FACTS], [constant for atom in (*FACTS, *QUERIES) for constant in atom[1:]], variables=7
    )
    rules: GameRules = {"argument": "tail", **changes}
    game = Game(names, Widths(2, 2, 1, 1), **rules)
    world = ProofWorld(
        base=knowledge(names, atom_numbers(names, FACTS), *encode_rules(names, [RULE])),
        queries=atom_numbers(names, QUERIES),
        within=domains(names, {("in", TAIL): REGIONS}),
        known=known_atoms(names, atom_numbers(names, FACTS + QUERIES)),
    )
    return game, world
