"""Laws of link prediction losses: f(params, facts, negatives, form) -> a loss for each fact [B]."""

import cmath
from collections.abc import Callable

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from purestep.algorithms.logic.link_prediction import plausibility
from purestep.core.logic.corrupt import HEAD, TAIL
from purestep.core.logic.embedding import FORMS, Embedding
from purestep.properties.framework.compare import DOUBLE, EXACT, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor
from purestep.properties.strategies.values import dyadic

# --- mutants ---
# Common errors in losses of link prediction.


Loss = Callable[[Embedding, Tensor, Tensor, str], Tensor]


def without_the_fact(loss: Loss) -> Loss:
    """Leave the fact out of the log-sum-exp."""
    del loss

    def mutant(params: Embedding, facts: Tensor, negatives: Tensor, form: str) -> Tensor:
        others = plausibility(params, negatives, form)
        return torch.logsumexp(others, -1) - plausibility(params, facts, form)

    return mutant


def averaged(loss: Loss) -> Loss:
    """Return the mean over the batch."""

    def mutant(params: Embedding, facts: Tensor, negatives: Tensor, form: str) -> Tensor:
        each = loss(params, facts, negatives, form)
        return each.mean().expand(each.shape)

    return mutant


def with_one_negative(loss: Loss) -> Loss:
    """Use the first negative only."""

    def mutant(params: Embedding, facts: Tensor, negatives: Tensor, form: str) -> Tensor:
        return loss(params, facts, negatives[:, :1], form)

    return mutant


MUTANTS: dict[str, Callable[[Loss], Loss]] = {"looks at the first negative only": with_one_negative}


# --- laws ---


Case = tuple[Embedding, Tensor, Tensor, str]
SOURCE = "Ruffinelli et al. 2020, You CAN teach an old dog new tricks!"
PREDICATES, TERMS, SIZE = 3, 4, 4


@st.composite
def cases(draw: DrawFn) -> Case:
    """Draw vectors of four numbers, up to three facts and up to three negatives for each, in any form."""
    facts, negatives = draw(st.integers(1, 3)), draw(st.integers(1, 3))

    def atoms(count: int) -> Tensor:
        term = st.integers(0, TERMS - 1)
        rows = st.lists(st.tuples(st.integers(0, PREDICATES - 1), term, term), min_size=count, max_size=count)
        return torch.tensor(draw(rows))

    params = Embedding(
        predicates=draw(dyadic((PREDICATES, SIZE), limit=1)).to(torch.float64),
        terms=draw(dyadic((TERMS, SIZE), limit=1)).to(torch.float64),
    )
    return (
        params,
        atoms(facts),
        atoms(facts * negatives).reshape(facts, negatives, 3),
        draw(st.sampled_from(list(FORMS))),
    )


def link_prediction_laws() -> Suite:
    """The laws of a loss of link prediction."""
    return Suite("link_prediction_laws", (_definition(), _alone()))


_law = law_constructor(cases, SOURCE)


def _numbers(vector: Tensor) -> list[complex]:
    real, imaginary = vector.chunk(2, -1)
    return [complex(float(a), float(b)) for a, b in zip(real, imaginary, strict=True)]


def _plausible(params: Embedding, atom: Tensor, form: str) -> float:
    """The plausibility of one atom, in Python floats."""
    predicate, first, second = params.predicates[atom[0]], params.terms[atom[1]], params.terms[atom[2]]
    if form == "transe":
        return -sum((float(h) + float(r) - float(t)) ** 2 for h, r, t in zip(first, predicate, second, strict=True))
    if form == "distmult":
        return sum(float(h) * float(r) * float(t) for h, r, t in zip(first, predicate, second, strict=True))
    triples = list(zip(_numbers(first), _numbers(predicate), _numbers(second), strict=True))
    if form == "complex":
        return sum((h * r * t.conjugate()).real for h, r, t in triples)
    return -sum(abs(h * cmath.exp(1j * r.real) - t) ** 2 for h, r, t in triples)


def _definition() -> Law:
    def check(loss: Loss, case: Case, seen: Seen) -> None:
        params, facts, negatives, form = case
        seen(form, True)
        wanted = []
        for fact, others in zip(facts, negatives, strict=True):
            every = torch.tensor([_plausible(params, atom, form) for atom in (fact, *others)], dtype=torch.float64)
            wanted.append(torch.logsumexp(every, 0) - every[0])
        same(f"the loss, {form}", loss(*case), torch.stack(wanted), DOUBLE)

    mutant = Mutant("compares a fact with its negatives alone", without_the_fact)
    claim = "-log of the fact's share: exp(its plausibility) over the sum of its own and its negatives'."
    return _law("definition", claim, mutant, check, *FORMS)


def _alone() -> Law:
    def check(loss: Loss, case: Case, seen: Seen) -> None:
        params, facts, negatives, form = case
        seen("several facts", len(facts) > 1)
        singles = [loss(params, facts[i : i + 1], negatives[i : i + 1], form) for i in range(len(facts))]
        same("facts together against alone", loss(*case), torch.cat(singles), DOUBLE if form == "rotate" else EXACT)

    mutant = Mutant("gives every fact the batch's mean", averaged)
    return _law("alone", "A fact has the loss that it has alone.", mutant, check, "several facts")


# --- all constants at once ---


All = Callable[[Embedding, Tensor, int, int, str], Tensor]
Asked = tuple[Embedding, Tensor, int, int, str]


@st.composite
def questions(draw: DrawFn) -> Asked:
    """Draw the vectors and facts of a case, the argument asked for, and a number of constants below that of the terms."""
    params, facts, _, form = draw(cases())
    return params, facts, draw(st.sampled_from((HEAD, TAIL))), draw(st.integers(1, TERMS - 1)), form


def for_the_tail(function: All) -> All:
    """Ask for the tail always."""
    return lambda params, queries, side, constants, form: function(params, queries, TAIL, constants, form)


def plausibility_of_all_laws() -> Suite:
    """The law of plausibilities of all constants: f(params, queries, side, constants, form) -> [Q, constants]."""

    def check(function: All, case: Asked, seen: Seen) -> None:
        params, queries, side, constants, form = case
        seen(form, True)
        seen("the head", side == HEAD)
        wanted = torch.empty(len(queries), constants, dtype=torch.float64)
        for row, query in enumerate(queries):
            for constant in range(1, constants + 1):
                atom = query.clone()
                atom[1 + side] = constant
                wanted[row, constant - 1] = _plausible(params, atom, form)
        same(f"plausibilities of all constants, {form}", function(*case), wanted, DOUBLE)

    claim = "Every constant in place of an argument has the plausibility of that atom."
    mutant = Mutant("asks for the tail always", for_the_tail)
    law = law_constructor(questions, "the forms in core.logic.embedding")
    return Suite("plausibility_of_all_laws", (law("definition", claim, mutant, check, *FORMS, "the head"),))
