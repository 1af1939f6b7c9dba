"""Readings of an object: conventions of the field under which a suite may call it and read what it returns.

Where a law is broken under the first reading, the others are tried, and the object is right under any with which all laws hold.
A reading declares keywords of the suite, and may read the result in another way: as its negative, or as a mean of its rows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import torch
from attrs import frozen
from torch import Tensor

from .catalogue import CatalogueRow
from .law import Broken, Law, Suite, Unlike

Post = Callable[[Callable[..., Any]], Callable[..., Any]]


@frozen
class ResultReading:
    """Keywords of the suite, and how results are read, in words; "" is as they are."""

    declared: Mapping[str, Any]
    result: str = ""

    def line(self) -> str:
        """Return the reading as options and words."""
        options = [f"--declare {name}={value}" for name, value in self.declared.items()]
        return ", and ".join([*([" ".join(options)] if options else []), *([self.result] if self.result else [])])


def negative(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the negative of what a function returns: a loss of an objective."""
    return lambda *given, **named: -function(*given, **named)


def doubled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return twice what a function returns: its half is a convention."""
    return lambda *given, **named: 2 * function(*given, **named)


def of_first_column(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of advantages [B, L] that calls one of advantages [B]."""

    def called(*given: Any, **named: Any) -> Any:
        words = {k: v[..., 0] if "adv" in k and isinstance(v, Tensor) and v.ndim == 2 else v for k, v in named.items()}
        return function(*given, **words)

    return called


def row_by_row(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of rows [N] that calls one of a batch, whose result is the mean (or the sum) over rows, for each row.

    Raises: Broken where the result of the batch is neither.
    """

    def called(*given: Any, **named: Any) -> Any:
        def part(i: slice) -> Any:
            cut = [x[i] if isinstance(x, Tensor) and x.ndim else x for x in given]
            return function(*cut, **{k: x[i] if isinstance(x, Tensor) and x.ndim else x for k, x in named.items()})

        tensors = [x for x in (*given, *named.values()) if isinstance(x, Tensor) and x.ndim]
        found = [torch.as_tensor(part(slice(i, i + 1))) for i in range(len(tensors[0]))]
        if any(one.numel() != 1 for one in found):
            raise Unlike("the result of a row is not one number")
        rows = torch.stack([one.reshape(()) for one in found])
        whole = torch.as_tensor(part(slice(None))).to(rows.dtype).reshape(-1)
        near = [torch.allclose(whole, x.reshape(1), rtol=1e-4, atol=1e-5) for x in (rows.mean(), rows.sum())]
        if len(whole) != 1 or not any(near):
            raise Broken("the result of a batch is neither the mean nor the sum over its rows")
        return rows

    return called


RESULTS: Mapping[str, Post] = {
    "its result is an objective, the negative of a loss": negative,
    "its result is the mean or sum over a batch": row_by_row,
    "its advantages are of sequences [B]": of_first_column,
}


def read_as(subject: Any, result: str) -> Any:
    """Return the subject with its result read in another way."""
    inner = getattr(subject, "function", subject) if hasattr(subject, "with_function") else subject
    made = RESULTS[result](inner)
    made.__name__ = getattr(subject, "__name__", type(subject).__name__)
    return made if inner is subject else subject.with_function(made)


def readings(row: CatalogueRow, declared: Mapping[str, Any]) -> Iterator[ResultReading]:
    """Yield the further readings of a suite's objects, except those of keywords that are declared."""
    open_ = [words for words in row.conventions if not set(words) & set(declared)]
    yield from (ResultReading(words) for words in open_)
    for result in row.results:
        yield ResultReading({}, result)
        yield from (ResultReading(words, result) for words in open_)


def with_merged_endings(suite: Suite) -> Suite:
    """Return the suite for objects that know one kind of ending: each truncation is drawn as a termination."""
    return attrs.evolve(suite, laws=tuple(_merged(law) for law in suite.laws))


def _merged(law: Law) -> Law:
    needs = tuple(need for need in law.needs if "truncation" not in need)
    return attrs.evolve(law, inputs=lambda subject: law.inputs(subject).map(merge_endings), needs=needs)


def merge_endings(drawn: Any) -> Any:
    """Return drawn inputs without truncations: an ending is a termination."""
    if isinstance(drawn, tuple) and not hasattr(drawn, "_fields"):
        return tuple(merge_endings(one) for one in drawn)
    if not attrs.has(type(drawn)):
        return drawn
    changes = {f.name: merge_endings(getattr(drawn, f.name)) for f in attrs.fields(type(drawn)) if f.init}
    if {"terminated", "truncated"} <= set(changes):
        changes["terminated"] = changes["terminated"] | changes["truncated"]
        changes["truncated"] = torch.zeros_like(changes["truncated"])
    return attrs.evolve(drawn, **changes)


def keeps_enough(passed: Sequence[str], failed: Sequence[str], row: CatalogueRow) -> bool:
    """Return whether an object keeps enough of the laws to be of the suite's kind in this reading.

    That is half of them, or one of the row's `tells`: laws that no object of another kind keeps by chance.
    """
    return bool(set(passed) & set(row.tells)) or (bool(passed) and 2 * len(passed) >= len(failed) + len(passed))
