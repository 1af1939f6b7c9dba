"""Explanation of a query: a trained policy's attempt at it, or its answers with scores and proofs; as text and as a picture."""

import difflib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from attrs import asdict, evolve, frozen
from torch import Tensor

from ...core import keys
from ...core.errors import ChoiceError, message
from ...core.logic.knowledge import is_fact
from ...core.logic.parse import parse_query
from ...core.logic.rules import constant_name, names_variable
from ...core.logic.state import ProofState
from ...core.logic.terms import Names, Vocabulary, atom_numbers
from ..effects import folder
from ..effects.reporting.proof_picture import proof_picture
from ..logic.answers import JoinedAnswers, join_scores
from ..logic.attempts import Move, ProofAttempt, attempts, ending, left_out
from ..logic.explain import ProofRow, by_confidence, tree_lines, tree_rows
from ..logic.guide import policy_guide
from ..logic.proof_scores import ProofSearcher, rule_weights
from ..logic.proof_scores import prover as searcher
from ..logic.proof_tree import Goal, proof_tree
from ..logic.proofs import Proofs
from ..logic.search import Guide, ProofsFound, SearchLimits
from ..runs.run import restore_run
from . import prove
from .prove_settings import Prove, Search, check_policy

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

    @property
    def trained(self) -> bool:
        """Return whether there is a policy, and not the rules alone."""
        return self.arguments.trains_policy

    def tried(self, queries: Sequence[Names]) -> tuple[tuple[ProofAttempt, Goal], ...]:
        """Return the policy's attempt at each query, and its tree. Raises: ChoiceError for unknown names."""
        game, base = self.made.game, self.made.world.base
        for query in queries:
            _check_known(self.made, query)
        atoms = atom_numbers(game.names, queries)
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
    held = restore_run(run, "prove", changes={"device": "cpu"})
    made: Proofs = held.components.opened.opened
    return Prover(run, held.arguments, made, held.state.learner.params, held.state.worlds.state, held.loop.iteration)


def explain_query(run: Path, query: str, out: Path | tuple[()] = ()) -> Explanation:
    """Try the query, a text such as "in(spain, europe)", and draw the result to `out`, by default into the run's folder.

    Raises: CheckpointError; ChoiceError for a malformed query and for names that are not in the run's data.
    """
    asked = parse_query(query)
    prover = prover_of(run)
    asked = _unquoted(prover.made, asked)
    ((attempt, tree),) = prover.tried([asked])
    return draw_attempt(prover, attempt, tree, out or run / folder.PROOF)


class Options(Protocol):
    """Options of an explanation."""

    @property
    def score(self) -> Literal["policy", "confidence"]:
        """Return the score of a query without variables."""
        ...

    @property
    def answers(self) -> int:
        """Return the number of answers to show."""
        ...

    @property
    def json(self) -> bool:
        """Return whether to print JSON."""
        ...

    @property
    def searching(self) -> Search:
        """Return the search."""
        ...


def lines_of(run: Path, query: str, out: Path, options: Options) -> Iterator[str]:
    """Yield the explanation of a query as lines: answers of an open one, else the policy's attempt unless by confidence.

    Raises: CheckpointError; ChoiceError for a malformed query and for names that are not in the run's data.
    """
    asked = parse_query(query)
    prover = prover_of(run)
    check_policy(prover.arguments, "confidence", options.searching)
    asked = _unquoted(prover.made, asked)
    if prover.trained and not is_open(prover, asked) and options.score == "policy" and not options.json:
        ((attempt, tree),) = prover.tried([asked])
        found = draw_attempt(prover, attempt, tree, out)
        yield from found.text
        yield f"picture: {found.picture}"
        return
    (told,) = answer_queries(prover, [asked], options.searching)
    if options.json:
        yield json.dumps(told.json(options.answers), indent=1)
        return
    yield from told.lines(options.answers)
    picture = answers_drawn(prover, told, out)
    if picture:
        yield f"picture: {picture}"


def is_open(prover: Prover, query: Names) -> bool:
    """Return whether a query has a variable."""
    return any(names_variable(word) and word not in prover.made.game.names.constants for word in query[1:])


@frozen
class QueryAnswer:
    """An instance of a query."""

    atom: str
    probability: float  # that one of its proofs holds, or of the best one
    known: bool  # a train fact
    proofs: int  # number of those found
    proof: tuple[ProofRow, ...]  # the best one, goal by goal
    tree: Goal


@frozen
class Answered:
    """The answers of a query."""

    query: str
    answers: tuple[QueryAnswer, ...]  # the most probable first
    expanded: int  # states whose successors were computed
    cut: bool  # whether states were left because of the bounds

    def lines(self, most: int) -> Iterator[str]:
        """Yield the first answers with their best proofs as text, one line a goal."""
        new = sum(not answer.known for answer in self.answers)
        count = f"{len(self.answers)} answer{'s' * (len(self.answers) != 1)}"
        yield f"{self.query}: {count}, {new} of them not among the facts"
        for answer in self.answers[:most]:
            proofs = "known fact" if answer.known else f"{answer.proofs} proof{'s' * (answer.proofs != 1)}, the best:"
            yield f"{answer.probability:.3f} {answer.atom}   {proofs}"
            yield from () if answer.known else ("  " + line for line in tree_lines(answer.proof))
        if len(self.answers) > most:
            yield f"... and {len(self.answers) - most} more; --answers shows more"
        if self.cut:
            yield f"states were left after {self.expanded:,} expansions; a wider --search or more --expansions may find more"

    def json(self, most: int) -> dict[str, Any]:
        """Return the same as numbers and text."""
        rows = [
            {
                "atom": answer.atom,
                "probability": answer.probability,
                "known": answer.known,
                "proofs": answer.proofs,
                "proof": [asdict(row) for row in answer.proof],
            }
            for answer in self.answers[:most]
        ]
        return {
            "query": self.query,
            "answers": rows,
            "found": len(self.answers),
            "expanded": self.expanded,
            "complete within the bounds": not self.cut,
        }


def answer_queries(prover: Prover, queries: Sequence[Names], own: Search) -> tuple[Answered, ...]:
    """Return the answers of many queries at once, by the confidences of their proofs.

    Words that are no constants but begin with a capital or _ are variables. A query without variables has one answer, or none.
    Raises: ChoiceError for unknown names.
    """
    for query in queries:
        _check_known(prover.made, query, variables=True)
    made = prove.confident(prover.arguments, prover.made)
    searcher = searcher_of(prover, made, rule_weights(made), own)
    names, base = searcher.names, searcher.base
    atoms = torch.stack([_with_variables(names, query) for query in queries])
    ground = (atoms[:, 1:] <= len(names.constants)).all(-1)
    found = searcher.proofs(atoms, torch.where(ground[:, None], atoms, 0))
    every = join_scores(names, found, "noisy_or" if own.join == "valid" else own.join)
    best = _best_proofs(found, every)
    told: list[list[QueryAnswer]] = [[] for _ in queries]
    counts = torch.bincount(every.proof_of, minlength=every.owner.shape[0]).tolist()
    weights = searcher.weights
    columns = (every.owner.tolist(), every.atom.tolist(), every.probability.tolist(), counts, best.tolist())
    for owner, terms, probability, many, place in zip(*columns, strict=True):
        origins = [int(origin) for origin in found.moves[place] if origin >= 0]
        moves = [Move(float(weights[o - found.facts]) if o >= found.facts else 1.0, o, 1) for o in origins]
        tree = proof_tree(names, base, atoms[owner].tolist(), moves, bound_first=True)
        steps = tree_rows(names, base, tree, by_confidence)
        known = bool(is_fact(names, base, torch.tensor([int(atoms[owner, 0]), *terms])))
        told[owner].append(QueryAnswer(steps[0].goal, probability, known, many, steps, tree))
    return tuple(
        Answered(
            query=f"{query[0]}({query[1]}, {query[2]})",
            answers=tuple(sorted(own_answers, key=lambda answer: (-answer.probability, answer.atom))),
            expanded=int(found.expanded[number]),
            cut=bool(found.cut[number] > 0),
        )
        for number, (query, own_answers) in enumerate(zip(queries, told, strict=True))
    )


def searcher_of(prover: Prover, made: Proofs, weights: Tensor, own: Search) -> ProofSearcher:
    """Return the searcher of these weights of the rules, guided by the policy where the options say so."""
    strategy, width = own.strategy()
    kind = "beam" if strategy == "greedy" else strategy
    bounds = SearchLimits(own.depth, own.expansions, kind, width, "policy" if strategy == "greedy" else own.guide)
    guide: Guide | None = None
    if bounds.order == "policy" or kind == "sample":
        guide = policy_guide(made.game.names, prove.model_of(prover.arguments, prover.made), prover.params)
    seed = keys.key(prover.arguments.experience.seed)
    return evolve(searcher(made, weights, bounds), guide=guide, key=seed)


def _with_variables(names: Vocabulary, query: Names) -> Tensor:
    """Return a query as numbers, its variables n+1 and n+2, the same one for the same word."""
    predicate, *words = query
    constants = {word: number for number, word in enumerate(names.constants, 1)}
    variables = {word: len(constants) + 1 + place for place, word in enumerate(dict.fromkeys(words))}
    terms = [constants.get(word, variables[word]) for word in words]
    lowest = min((term for term in terms if term > len(constants)), default=0)
    terms = [term - lowest + len(constants) + 1 if term > len(constants) else term for term in terms]
    return torch.tensor([names.predicates.index(predicate) + 1, *terms])


def _best_proofs(found: ProofsFound, every: JoinedAnswers) -> Tensor:
    """Return the index of a proof of the largest weight for each answer, the first among equals."""
    order = torch.sort(found.log_weight, stable=True, descending=True).indices
    place = torch.empty_like(order).scatter(0, order, torch.arange(order.shape[0]))
    first = torch.full((every.owner.shape[0],), order.shape[0], dtype=torch.int64)
    return order[first.scatter_reduce(0, every.proof_of, place, "amin")]


def answers_drawn(prover: Prover, told: Answered, out: Path) -> Path | None:
    """Draw the best proof of the most probable answer that is no fact, else of the first one; return None without answers."""
    if not told.answers:
        return None
    answer = next((answer for answer in told.answers if not answer.known), told.answers[0])
    note = f"{answer.probability:.3f} by {answer.proofs} proofs; {prover.made.dataset.name}"
    proof_picture(answer.proof, out, title=answer.atom, note=note)
    return out


def draw_attempt(prover: Prover, attempt: ProofAttempt, tree: Goal, out: Path) -> Explanation:
    """Draw an attempt at a query, and return its explanation."""
    names, base = prover.made.game.names, prover.made.world.base
    steps, end = tree_rows(names, base, tree), ending(attempt)
    proof_picture(
        steps, out, title=steps[0].goal, note=f"{end}; {prover.made.dataset.name}, iteration {prover.iteration}"
    )
    return Explanation((f"{steps[0].goal}: {end}", *tree_lines(steps), *left_out(attempt)), out)


def deepest(prover: Prover) -> Path | None:
    """Draw the policy's tallest proof of the first test queries into the run's folder; return None where none is proven."""
    queries = prover.made.dataset.test[:TRIED]
    proven = [each for each in prover.tried(queries) if each[0].end == "proven"]
    if not proven:
        return None
    attempt, tree = max(proven, key=lambda each: each[1].height())
    return draw_attempt(prover, attempt, tree, prover.run / folder.PROOF).picture


def deepest_by_rules(prover: Prover, own: Search) -> Path | None:
    """Draw the tallest of the best proofs of the first test queries, as `deepest` does with the policy's."""
    found = [each for each in answer_queries(prover, prover.made.dataset.test[:TRIED], own) if each.answers]
    if not found:
        return None
    told = max(found, key=lambda each: each.answers[0].tree.height())
    return answers_drawn(prover, told, prover.run / folder.PROOF)


def _unquoted(made: Proofs, query: Names) -> Names:
    """Return the query without quotes. Raises: ChoiceError for a quoted name that is unknown, which would be a variable."""
    predicate, *words = query
    for word in words:
        if constant_name(word) != word:
            _check_known(made, (predicate, constant_name(word), constant_name(word)))
    return predicate, constant_name(words[0]), constant_name(words[1])


def _check_known(made: Proofs, query: Names, *, variables: bool = False) -> None:
    predicate, *terms = query
    names = made.game.names
    if variables:
        terms = [term for term in terms if term in names.constants or not names_variable(term)]
    for kind, word, known in [
        ("predicate", predicate, names.predicates),
        *(("constant", term, names.constants) for term in terms),
    ]:
        if word not in known:
            near = difflib.get_close_matches(word, known, n=1)
            wanted = f"one of {list(known)}" if len(known) <= FEW else f"one of {len(known)} names"
            remedy = f"did you mean {near[0]!r}?" if near else f"take one of {made.dataset.name}, e.g. {known[0]!r}"
            raise ChoiceError(message(f"query: {kind}", got=repr(word), wanted=wanted, remedy=remedy))
