"""Laws of the update of a target network: f(target, params, rate) -> target, or in place on tensors or modules.

    test_mine = check(target_network_laws(), my_polyak)              # dicts of tensors, returned; or lists, modules in place
    test_kept = check(target_network_laws(kept=True), my_update)     # the rate is the part of the target that stays

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

from ..framework.compare import EXACT, ROUNDING, require, same
from ..framework.law import Seen, Suite, law_constructor
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


def _edited(mistake: Mistake) -> Callable[[Update], Update]:
    def mutant(update: Update) -> Update:
        form = FORMS[form_of(update)]
        inner = form.to_values(update)
        return form.from_values(lambda target, params, rate: mistake(inner, target, params, rate))

    return mutant


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


def form_of(update: Update) -> str:
    """Return the form in which the update can be called: the first in which it raises nothing and changes the target.

    >>> def polyak(target, params, tau):
    ...     for old, new in zip(target, params):
    ...         old.copy_(tau * new + (1 - tau) * old)
    >>> form_of(polyak)
    'tensors'
    """
    shapes = {"weight": (2, 1), "bias": (2,), "mean": (1,)}
    zero, one = ({name: torch.full(shape, fill) for name, shape in shapes.items()} for fill in (0.0, 1.0))
    for form in ("modules", "tensors"):
        try:
            new = FORMS[form].to_values(update)(zero, one, 0.5)
        except Exception:  # of any kind: the subject is a user's
            continue
        if any(bool(leaf.any()) for leaf in new.values()):
            return form
    return "values"


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


def target_network_laws(*, kept: bool = False, buffers: bool = True) -> Suite:
    """Return the laws of an update of a target network: target' = target + rate (params - target), each leaf by itself.

    The subject is f(target, params, rate): of dicts of tensors, and returns the new target; of lists of tensors, and changes
    those of the target in place; or of two modules, likewise. With `kept` the rate is the part of the target that stays.
    `buffers=False`: tensors of a module that are no parameters may stay.

    >>> from purestep.properties import verify
    >>> from purestep.algorithms.off_policy import follow
    >>> bool(verify(target_network_laws(), follow))
    True
    """
    others = ("bias", "mean") if buffers else ("bias",)

    def asked(update: Update, drawn: Networks, rate: float) -> Params:
        target = {name: leaf.clone() for name, leaf in drawn.target.items()}
        params = {name: leaf.clone() for name, leaf in drawn.params.items()}
        new: Params = FORMS[form_of(update)].to_values(update)(target, params, 1.0 - rate if kept else rate)
        for what, tree, before in (("params", params, drawn.params), ("the old target", target, drawn.target)):
            for name in before:
                same(f"{what}.{name}, an input", tree[name], before[name], EXACT)
        return new

    def moves(update: Update, drawn: Networks, names: Sequence[str]) -> None:
        new = asked(update, drawn, drawn.rate)
        for name in names:
            wanted = drawn.target[name] + drawn.rate * (drawn.params[name] - drawn.target[name])
            same(f"{name} for a rate of {drawn.rate}", new[name], wanted, ROUNDING)

    def average(update: Update, drawn: Networks, seen: Seen) -> None:
        seen("params that differ from the target", (drawn.params["weight"] != drawn.target["weight"]).any())
        seen("another rate than one half", drawn.rate != 0.5)
        moves(update, drawn, ["weight"])

    def every_leaf(update: Update, drawn: Networks, seen: Seen) -> None:
        seen("leaves that differ", all((drawn.params[name] != drawn.target[name]).any() for name in others))
        moves(update, drawn, others)

    def ends(update: Update, drawn: Networks, seen: Seen) -> None:
        seen("params that differ from the target", (drawn.params["weight"] != drawn.target["weight"]).any())
        whole, nothing = asked(update, drawn, 1.0), asked(update, drawn, 0.0)
        same("weight for a rate of 1", whole["weight"], drawn.params["weight"], EXACT)
        same("weight for a rate of 0", nothing["weight"], drawn.target["weight"], EXACT)

    differ = "params that differ from the target"
    claim, mutant = (
        "A matrix moves by the rate of the way to its params.",
        ("applies the rate twice", _edited(squares_rate)),
    )
    laws = [_law("average", claim, mutant, average, differ, "another rate than one half")]
    claim = "So do vectors, and tensors that get no gradient: every leaf by itself."
    mutant = ("leaves vectors as they are", _edited(skips_vectors))
    laws += [_law("every_leaf", claim, mutant, every_leaf, "leaves that differ")]
    claim = "A rate of 1 copies the params, bit for bit, and a rate of 0 changes nothing."
    laws += [_law("copies_or_stays", claim, ("never arrives", _edited(never_arrives)), ends, differ)]
    return Suite("target_network_laws", tuple(laws))
