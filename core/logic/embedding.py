"""Embeddings of atoms and states of a proof: one trained vector per term and predicate, and functions that combine three."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from .. import keys
from ..errors import ChoiceError, choose, message
from ..keys import Key
from ..networks import Network
from ..record import record, tensor
from .terms import PADDING, Vocabulary

Form = Callable[[Tensor, Tensor, Tensor], Tensor]


@record
class Embedding:
    """Trained vectors; those of padding are not used."""

    predicates: Tensor = tensor("* P D", "float")  # including the marks
    terms: Tensor = tensor("* N D", "float")  # constants, then variables


def transe(predicate: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return h + r - t: [*, D] each -> [*, D].

    Source: Bordes et al. 2013, "Translating embeddings for modeling multi-relational data".

    >>> transe(torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([3.0]))
    tensor([0.])
    """
    return predicate + first - second


def distmult(predicate: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return h * r * t, elementwise: [*, D] each -> [*, D]. Source: Yang et al. 2014, arXiv:1412.6575.

    >>> distmult(torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([3.0]))
    tensor([6.])
    """
    return predicate * first * second


def _parts(vector: Tensor) -> tuple[Tensor, Tensor]:
    """Return the real and the imaginary half."""
    real, imaginary = vector.chunk(2, -1)
    return real, imaginary


def complex_product(predicate: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return h * r * conj(t) of complex numbers: [*, D] each -> [*, D], the first half of D real, the second imaginary.

    Source: Trouillon et al. 2016, arXiv:1606.06357 (ComplEx).

    >>> complex_product(torch.tensor([0.0, 1.0]), torch.tensor([2.0, 0.0]), torch.tensor([0.0, 1.0]))  # 2 i conj(i)
    tensor([2., 0.])
    """
    (a, b), (c, d), (e, f) = _parts(predicate), _parts(first), _parts(second)
    real, imaginary = a * c - b * d, a * d + b * c
    return torch.cat([real * e + imaginary * f, imaginary * e - real * f], -1)


def rotate(predicate: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return h * exp(i angle) - t of complex numbers, the first half of r being angles: [*, D] each -> [*, D], as above.

    Source: Sun et al. 2019, arXiv:1902.10197 (RotatE).

    >>> rotate(torch.tensor([0.0, 0.0]), torch.tensor([2.0, 1.0]), torch.tensor([1.0, 1.0]))
    tensor([1., 0.])
    """
    (angle, _), (c, d), (e, f) = _parts(predicate), _parts(first), _parts(second)
    cosine, sine = torch.cos(angle), torch.sin(angle)
    return torch.cat([cosine * c - sine * d - e, sine * c + cosine * d - f], -1)


FORMS: Mapping[str, Form] = {
    "transe": transe,
    "distmult": distmult,
    "complex": complex_product,
    "rotate": rotate,
}


def _mean(total: Tensor, count: Tensor) -> Tensor:
    return total / count.clamp_min(1)[..., None]


def _sum(total: Tensor, count: Tensor) -> Tensor:
    del count
    return total


POOLS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {"mean": _mean, "sum": _sum}


def state_embedding(names: Vocabulary, size: int, *, form: str = "transe", pool: str = "mean") -> Network:
    """Return a network of state embeddings: int [*, A, 3] -> [*, size], the mean or sum over atoms of `form`'s vectors.

    Params are an `Embedding` of normal numbers with variance 1 / size. Raises: ChoiceError (unknown names; an odd size for the
    complex forms; a size below 1).

    >>> from .terms import vocabulary
    >>> network = state_embedding(vocabulary(["p"], ["a"], variables=1), 4)
    >>> network.apply(network.init(keys.key(0)), torch.tensor([[1, 1, 2], [0, 0, 0]])).shape
    torch.Size([4])
    """
    join, gather = choose("embedding: form", form, FORMS), choose("embedding: pool", pool, POOLS)
    if size < 1 or (size % 2 and form in ("complex", "rotate")):
        wanted = "an even number for complex and rotate, at least 1 for all"
        raise ChoiceError(message("embedding: size", got=size, wanted=wanted, remedy="change it"))

    def init(key: Key) -> Embedding:
        predicate_key, term_key = keys.split(key)
        scale = size**-0.5
        return Embedding(
            predicates=scale * keys.normal(predicate_key, (names.end + 1, size)),
            terms=scale * keys.normal(term_key, (names.base, size)),
        )

    def apply(params: Embedding, atoms: Tensor) -> Tensor:
        predicate, first, second = atoms.unbind(-1)
        joined = join(params.predicates[predicate], params.terms[first], params.terms[second])
        # A mark has no arguments: use its own vector.
        joined = torch.where((predicate > len(names.predicates))[..., None], params.predicates[predicate], joined)
        real = predicate != PADDING
        return gather(torch.where(real[..., None], joined, 0.0).sum(-2), real.sum(-1))

    return Network(init=init, apply=apply)
