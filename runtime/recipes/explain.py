"""Explanation of a trained policy's attempt at a query: its proof, or its partial proof, as text and as a picture."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from ...core.errors import ChoiceError, message
from ...core.logic.parse import parse_query
from ...core.logic.state import ProofState
from ...core.logic.terms import Names, encode
from ..effects import folder
from ..effects.reporting.proof_picture import proof_picture
from ..logic.attempts import ProofAttempt, attempts, ending, left_out
from ..logic.explain import lines, rows
from ..logic.proof_tree import Goal, proof_tree
from ..logic.proofs import Proofs
from ..runs.run import restored
from . import prove
from .prove_settings import Prove

TRIED = 50  # first test queries that are tried for the picture of a run
FEW = 20  # names that an error lists


@frozen
class Prover:
    """The policy of a run of `prove` at its newest checkpoint."""

    run: Path
    arguments: Prove
    made: Proofs
    params: Any
    worlds: ProofState  # [B] the proofs under way when it was saved
    iteration: int

    def tried(self, queries: Sequence[Names]) -> tuple[tuple[ProofAttempt, Goal], ...]:
        """Return the policy's attempt at each query, and its tree. Raises: ChoiceError for unknown names."""
        game, base = self.made.game, self.made.world.base
        for query in queries:
            _check_known(self.made, query)
        atoms = encode(game.names, queries)
        with torch.no_grad():
            found = attempts(game, prove.model_of(self.arguments, self.made), self.params, base, atoms)
        trees = [
            proof_tree(game.names, base, atom, each.moves) for atom, each in zip(atoms.tolist(), found, strict=True)
        ]
        return tuple(zip(found, trees, strict=True))


@frozen
class Explanation:
    """The explanation of a query."""

    text: tuple[str, ...]  # lines
    picture: Path


def prover_of(run: Path) -> Prover:
    """Return the policy of a run's newest checkpoint.

    Raises: CheckpointError, also where its data has changed; ChoiceError for another recipe.
    """
    held = restored(run, "prove")
    made: Proofs = held.components.opened.opened
    return Prover(run, held.arguments, made, held.state.learner.params, held.state.worlds.state, held.loop.iteration)


def explained(run: Path, query: str, out: Path | tuple[()] = ()) -> Explanation:
    """Try the query, a text such as "in(spain, europe)", and draw the result to `out`, by default into the run's folder.

    Raises: CheckpointError; ChoiceError for a malformed query and for names that are not in the run's data.
    """
    asked = parse_query(query)
    prover = prover_of(run)
    ((attempt, tree),) = prover.tried([asked])
    return drawn(prover, attempt, tree, out or run / folder.PROOF)


def drawn(prover: Prover, attempt: ProofAttempt, tree: Goal, out: Path) -> Explanation:
    """Draw an attempt at a query, and return its explanation."""
    names, base = prover.made.game.names, prover.made.world.base
    steps, end = rows(names, base, tree), ending(attempt)
    proof_picture(
        steps, out, title=steps[0].goal, note=f"{end}; {prover.made.dataset.name}, iteration {prover.iteration}"
    )
    return Explanation((f"{steps[0].goal}: {end}", *lines(steps), *left_out(attempt)), out)


def deepest(prover: Prover) -> Explanation | tuple[()]:
    """Draw the tallest proof tree of the first test queries into the run's folder; return () where none is proven."""
    queries = prover.made.dataset.test[:TRIED]
    proven = [each for each in prover.tried(queries) if each[0].end == "proven"]
    if not proven:
        return ()
    attempt, tree = max(proven, key=lambda each: each[1].height())
    return drawn(prover, attempt, tree, prover.run / folder.PROOF)


def _check_known(made: Proofs, query: Names) -> None:
    predicate, *terms = query
    names = made.game.names
    for kind, word, known in [
        ("predicate", predicate, names.predicates),
        *(("constant", term, names.constants) for term in terms),
    ]:
        if word not in known:
            near = difflib.get_close_matches(word, known, n=1)
            wanted = f"one of {list(known)}" if len(known) <= FEW else f"one of {len(known)} names"
            remedy = f"did you mean {near[0]!r}?" if near else f"take one of {made.dataset.name}, e.g. {known[0]!r}"
            raise ChoiceError(message(f"query: {kind}", got=repr(word), wanted=wanted, remedy=remedy))
