"""Laws of the update of a target network: f(target, params, rate) -> target, or in place on tensors or modules.

    test_values = check(target_network_laws(), my_average)                             # dicts of tensors, returned
    test_tensors = check(target_network_laws(form="tensors"), my_polyak)               # lists of tensors, the first in place
    test_modules = check(target_network_laws(form="modules", kept=True), my_update)    # modules; the rate is what is kept

>>> from purestep.properties import target_network_laws, verify
>>> def swapped(target, params, rate):
...     return {name: (1.0 - rate) * params[name] + rate * target[name] for name in params}
>>> verify(target_network_laws(), swapped)["average"].outcome
'broken'
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import frozen
from hypothesis import strategies as st
from torch import Tensor, nn

from ...core.errors import ChoiceError, message
from ..framework.compare import EXACT, ROUNDING, require, same
from ..framework.law import Law, Seen, Suite, law_constructor
from ..strategies.values import dyadic

Params = dict[str, Tensor]
Update = Callable[..., Any]
SOURCE = "Lillicrap et al. 2015, arXiv:1509.02971, section 3: theta' <- rate theta + (1 - rate) theta'"
NAMES = ("weight", "bias", "mean")  # of a matrix, a vector, and a buffer that gets no gradient


class _Network(nn.Module):
    """A network with a parameter of two axes, one of one axis, and a buffer."""

    mean: Tensor

    def __init__(self, params: Params) -> None:
        super().__init__()
        self.weight = nn.Parameter(params["weight"].clone())
        self.bias = nn.Parameter(params["bias"].clone())
        self.register_buffer("mean", params["mean"].clone())

    def values(self) -> Params:
        return {name: getattr(self, name).detach().clone() for name in NAMES}


@frozen
class Form:
    """A way to call an update: as a function of values, and back."""

    to_values: Callable[[Update], Update]
    from_values: Callable[[Update], Update]


def _of_tensors(update: Update) -> Update:
    def called(target: Params, params: Params, rate: float) -> Params:
        own = {name: leaf.clone() for name, leaf in target.items()}
        update(list(own.values()), [params[name] for name in own], rate)
        return own

    return called


def _to_tensors(update: Update) -> Update:
    def called(target: Sequence[Tensor], params: Sequence[Tensor], rate: float) -> None:
        new = update(dict(zip(NAMES, target, strict=True)), dict(zip(NAMES, params, strict=True)), rate)
        for name, leaf in zip(NAMES, target, strict=True):
            leaf.copy_(new[name])

    return called


def _of_modules(update: Update) -> Update:
    def called(target: Params, params: Params, rate: float) -> Params:
        network, follower = _Network(params), _Network(target)
        update(follower, network, rate)
        changed = [name for name, leaf in network.values().items() if not torch.equal(leaf, params[name])]
        require(not changed, f"the network that is followed has changed: {changed}")
        return follower.values()

    return called


def _to_modules(update: Update) -> Update:
    def called(target: _Network, network: _Network, rate: float) -> None:
        new = update(target.values(), network.values(), rate)
        with torch.no_grad():
            for name in NAMES:
                getattr(target, name).copy_(new[name])

    return called


FORMS: Mapping[str, Form] = {
    "values": Form(lambda update: update, lambda update: update),
    "tensors": Form(_of_tensors, _to_tensors),
    "modules": Form(_of_modules, _to_modules),
}


# --- mutants ---
# Common mistakes; each changes a right update of values, whatever its form is.

Mistake = Callable[[Update, Params, Params, float], Params]


def _edited(mistake: Mistake, form: str) -> Callable[[Update], Update]:
    def mutant(update: Update) -> Update:
        inner = FORMS[form].to_values(update)
        return FORMS[form].from_values(lambda target, params, rate: mistake(inner, target, params, rate))

    return mutant


def swaps_parts(update: Update, target: Params, params: Params, rate: float) -> Params:
    """Keep the part that should be taken, and take the part that should be kept."""
    new: Params = update(target, params, 1.0 - rate)
    return new


def skips_vectors(update: Update, target: Params, params: Params, rate: float) -> Params:
    """Leave leaves of one axis as they are."""
    new = update(target, params, rate)
    return {name: leaf if leaf.ndim > 1 else target[name] for name, leaf in new.items()}


def never_arrives(update: Update, target: Params, params: Params, rate: float) -> Params:
    """Move by at most 0.99 of the way."""
    new: Params = update(target, params, min(max(rate, 0.01), 0.99))
    return new


def squares_rate(update: Update, target: Params, params: Params, rate: float) -> Params:
    """Apply the rate twice."""
    new: Params = update(target, params, rate * rate)
    return new


# --- laws ---


@frozen
class Networks:
    """The params of a network and of its target, and the rate, a multiple of 1/8."""

    params: Params
    target: Params
    rate: float


@st.composite
def _networks(draw: st.DrawFn) -> Networks:
    rows, columns = draw(st.sampled_from((2, 3))), draw(st.sampled_from((1, 2)))
    shapes = {"weight": (rows, columns), "bias": (rows,), "mean": (columns,)}
    params, target = ({name: draw(dyadic(shape, limit=4)) for name, shape in shapes.items()} for _ in range(2))
    return Networks(params, target, draw(st.sampled_from((0.5, 0.125, 0.25, 0.75, 0.875))))


_law = law_constructor(_networks, SOURCE, numeric=True)


def target_network_laws(*, form: str = "values", kept: bool = False, buffers: bool = True) -> Suite:
    """Return the laws of an update of a target network: target' = target + rate (params - target), each leaf by itself.

    The subject is f(target, params, rate): of dicts of tensors, and returns the new target ("values"); of lists of tensors, and
    changes the target's in place ("tensors"); or of two modules, likewise ("modules"). With `kept` the rate is the part of the
    target that stays. `buffers=False`: tensors of a module that are no parameters may stay.
    Raises: ChoiceError.

    >>> from purestep.properties import verify
    >>> from purestep.algorithms.off_policy import follow
    >>> bool(verify(target_network_laws(), follow))
    True
    """
    if form not in FORMS:
        wanted, remedy = f"one of {sorted(FORMS)}", "say how it is called"
        raise ChoiceError(message("target_network_laws: form", got=form, wanted=wanted, remedy=remedy))

    def asked(update: Update, drawn: Networks, rate: float) -> Params:
        target = {name: leaf.clone() for name, leaf in drawn.target.items()}
        params = {name: leaf.clone() for name, leaf in drawn.params.items()}
        new: Params = FORMS[form].to_values(update)(target, params, 1.0 - rate if kept else rate)
        for what, tree, before in (("params", params, drawn.params), ("the old target", target, drawn.target)):
            for name in before:
                same(f"{what}.{name}, an input", tree[name], before[name], EXACT)
        return new

    names = [name for name in NAMES if buffers or form != "modules" or name != "mean"]

    def average(update: Update, drawn: Networks, seen: Seen) -> None:
        new = asked(update, drawn, drawn.rate)
        seen("leaves that differ", all((drawn.params[name] != drawn.target[name]).any() for name in names))
        seen("another rate than one half", drawn.rate != 0.5)
        for name in names:
            wanted = drawn.target[name] + drawn.rate * (drawn.params[name] - drawn.target[name])
            same(f"{name} for a rate of {drawn.rate}", new[name], wanted, ROUNDING)

    def ends(update: Update, drawn: Networks, seen: Seen) -> None:
        seen("leaves that differ", any((drawn.params[name] != drawn.target[name]).any() for name in names))
        whole, nothing = asked(update, drawn, 1.0), asked(update, drawn, 0.0)
        for name in names:
            same(f"{name} for a rate of 1", whole[name], drawn.params[name], EXACT)
            same(f"{name} for a rate of 0", nothing[name], drawn.target[name], EXACT)

    def converges(update: Update, drawn: Networks, seen: Seen) -> None:
        seen("leaves that differ", any((drawn.params[name] != drawn.target[name]).any() for name in names))
        moved = drawn
        for _ in range(4):
            moved = Networks(moved.params, asked(update, moved, drawn.rate), moved.rate)
        left = (1.0 - drawn.rate) ** 4
        for name in names:
            wanted = drawn.params[name] + left * (drawn.target[name] - drawn.params[name])
            same(f"{name} after four updates", moved.target[name], wanted, ROUNDING)

    claim = "Each leaf moves by the rate of the way to its params."
    laws: list[Law] = [
        _law(
            "average",
            claim,
            ("swaps the parts", _edited(swaps_parts, form)),
            average,
            "leaves that differ",
            "another rate than one half",
        ),
        _law(
            "copies_or_stays",
            "A rate of 1 copies the params, bit for bit, and a rate of 0 changes nothing.",
            ("never arrives", _edited(never_arrives, form)),
            ends,
            "leaves that differ",
        ),
        _law(
            "distance_shrinks",
            "Each of several updates leaves 1 - rate of the distance.",
            ("applies the rate twice", _edited(squares_rate, form)),
            converges,
            "leaves that differ",
        ),
    ]
    return Suite("target_network_laws", tuple(laws))


MUTANTS: dict[str, Callable[[Update], Update]] = {
    "leaves vectors as they are": _edited(skips_vectors, "values"),
}
