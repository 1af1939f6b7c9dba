"""The graphs on which proving is measured, and how each is asked about.

Countries: the test facts' country is asked for its region, among the five regions, with one rule (S1) or two (S2). nations,
kinship, umls, wn18rr: rules mined from the train facts, 100 filtered negatives for either argument; wn18rr on 300 test facts
drawn by a key. lineage: see there; the founder is asked for.
"""

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from purestep.core import keys
from purestep.runtime.compile import program
from purestep.runtime.logic.proofs import Proofs
from purestep.runtime.recipes.prove import warmed_up
from purestep.runtime.recipes.prove_settings import MOVES, Prove, prove_defaults
from purestep.runtime.recipes.shared_settings import loop_of
from purestep.runtime.runs.arguments import changed
from purestep.runtime.train import train

from . import lineage

TRANSITIVE = "locatedin(X, Z) :- locatedin(X, Y), locatedin(Y, Z).\n"
NEIGHBOUR = "locatedin(X, Z) :- neighbor(X, Y), locatedin(Y, Z).\n"
REGIONS = ("africa", "americas", "asia", "europe", "oceania")


@frozen
class Case:
    """A data set, and what is asked of it."""

    rules: str = ""  # text of the rules; mined where there is none
    depth: int = 2  # of the longest proofs that the exact prover searches
    most: int = 2000  # states of one query that it goes on from
    queries: int = 0  # test facts that are ranked; 0 means all
    changes: Mapping[str, Any] = field(factory=dict)  # to the defaults of learning to prove


MINED: Mapping[str, Any] = {"rules": "mine", "successors": 32, "facts": 32, "steps": 400_000}
# Chosen on S2's valid split: most train facts are proven by transitivity, and a policy that learns fast forgets neighbours.
COUNTRIES: Mapping[str, Any] = {"argument": "tail", "embeddings": "fixed", "learning_rate": 1e-4, "steps": 100_000}
CASES: Mapping[str, Case] = {
    "countries_S1": Case(TRANSITIVE, depth=4, changes=COUNTRIES),
    "countries_S2": Case(TRANSITIVE + NEIGHBOUR, depth=8, changes=COUNTRIES),
    "nations": Case(depth=3, changes=MINED),
    "kinship": Case(changes=MINED),
    "umls": Case(changes=MINED),
    "wn18rr": Case(queries=300, changes=MINED),
    "lineage": Case(lineage.RULES, depth=8, changes={"argument": "tail", "max_depth": 20, "steps": 400_000}),
}


def prepared(name: str, data: Path, home: Path) -> Prove:
    """The arguments for a data set; for countries with rules and with the regions as a domain. A generated one is written."""
    case, source = CASES[name], data / name
    if not case.rules:
        return changed(prove_defaults(str(source)), {"steps": MOVES, **case.changes})
    folder = home / name
    if name == "lineage":
        folder.mkdir()
        lineage.written(folder, people=60, seed=0)
        return changed(prove_defaults(str(folder)), {"steps": MOVES, **case.changes})
    shutil.copytree(source, folder)
    (folder / "rules.txt").write_text(case.rules)
    words = {word for line in (folder / "train.txt").read_text().splitlines() for word in line.split("\t")[::2]}
    places = " ".join(sorted(words - set(REGIONS)))
    domains = f"place {places}\nregion {' '.join(REGIONS)}\nlocatedin:place:region\n"
    (folder / "domain2constants.txt").write_text(domains)
    return changed(prove_defaults(str(folder)), {"steps": MOVES, **case.changes})


def trainings(arguments: Prove, pipeline: Any) -> Callable[[Prove, Proofs, int], tuple[Any, float]]:
    """A function that trains a policy with other arguments from a seed, by one program: its params and the CPU seconds."""
    loop = loop_of(arguments.experience, arguments.process)
    learn = program(train(pipeline.trainer, loop.chunk), name="train prove")
    learn(pipeline.trainer.init(keys.key(0)))  # compiles

    def trained(own: Prove, made: Proofs, seed: int) -> tuple[Any, float]:
        start, state = time.process_time(), warmed_up(own, made)(pipeline.trainer.init(keys.key(seed)))
        for _ in range(loop.iterations // loop.chunk if own.experience.steps else 0):
            state, _ = learn(state)
        return state.learner.params, time.process_time() - start

    return trained


def chosen(made: Proofs, queries: int) -> Proofs:
    """The data with so many test facts, drawn by a fixed key; all where that is 0."""
    test = made.dataset.test
    if not queries:
        return made
    order = keys.permutation(keys.key(11), len(test))[:queries].tolist()
    return evolve(made, dataset=evolve(made.dataset, test=tuple(test[place] for place in order)))
