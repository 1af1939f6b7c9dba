"""Laws of optimisers of parameters below float32; the subject is `Descending`: make(learning_rate), and apply_updates."""

from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from ...core import keys
from ...core.optim.interface import Optimizer
from ...core.optim.master_weights import MasterState
from ...core.record import replace
from ...core.rounding import below_float32, rounded
from ...core.tree import leaf_names, leaves, size, tree_map
from ..framework.compare import require, same
from ..framework.law import Law, Seen, Suite, law_constructor
from ..strategies.values import seeds

# --- mutants ---
# Common errors in optimisers of parameters below float32.


@frozen
class Descending:
    """The subject of the laws of precision: `make(learning_rate) -> Optimizer` and `apply(params, updates) -> params`."""

    make: Callable[[float], Optimizer]
    apply: Callable[[Any, Any], Any]


Update = Callable[[Optimizer, Any, Any, Any], tuple[Any, Any]]


def _edited(change: Update) -> Callable[[Descending], Descending]:
    """Return an edit of the update that applies only to parameters below float32."""

    def make(subject: Descending) -> Descending:
        def optimizer(rate: float) -> Optimizer:
            right = subject.make(rate)

            def update(gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
                narrow = isinstance(state, MasterState)
                return (change if narrow else _unchanged)(right, gradients, state, params)

            return Optimizer(init=right.init, update=update)

        return evolve(subject, make=optimizer)

    return make


def _unchanged(right: Optimizer, gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
    return right.update(gradients, state, params)


def _shortened(leaf: Tensor) -> Tensor:
    return leaf.to(torch.bfloat16) if leaf.dtype == torch.float32 else leaf


def _short_moments(right: Optimizer, gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
    updates, after = right.update(gradients, state, params)
    return updates, replace(after, inner=tree_map(_shortened, after.inner))


def _still(right: Optimizer, gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
    updates, after = right.update(gradients, state, params)
    return updates, replace(after, master=state.master)


def _no_copy(right: Optimizer, gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
    begun = tree_map(lambda p: p.float() if below_float32(p) else (), params)
    return right.update(gradients, replace(state, master=begun), params)


def _stale(right: Optimizer, gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
    own = tree_map(lambda p, m: rounded(m, p.dtype).to(p.dtype) if below_float32(p) else p, params, state.master)
    updates, after = right.update(gradients, state, own)
    return tree_map(lambda u, o, p: u + (o.float() - p.float()), updates, own, params), after


def _short_updates(right: Optimizer, gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
    updates, after = right.update(gradients, state, params)
    return tree_map(lambda u, p: u.to(p.dtype), updates, params), after


def leaves_float32(subject: Descending) -> Descending:
    """Leave the sum of parameters and updates in float32, as torch.add returns it."""
    return evolve(subject, apply=lambda params, updates: tree_map(torch.add, params, updates))


def always_copies(subject: Descending) -> Descending:
    """Keep a copy of float32 parameters as well."""

    def optimizer(rate: float) -> Optimizer:
        right = subject.make(rate)

        def init(params: Any) -> Any:
            state = right.init(params)
            copied = isinstance(state, MasterState)
            return state if copied else MasterState(inner=state, master=tree_map(torch.clone, params))

        def update(gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
            if any(below_float32(leaf) for leaf in leaves(params)):
                return right.update(gradients, state, params)
            updates, inner = right.update(gradients, state.inner, params)
            return updates, MasterState(inner=inner, master=state.master)

        return Optimizer(init=init, update=update)

    return evolve(subject, make=optimizer)


short_moments, still, no_copy = _edited(_short_moments), _edited(_still), _edited(_no_copy)
stale, short_updates = _edited(_stale), _edited(_short_updates)

MUTANTS: dict[str, Callable[[Descending], Descending]] = {
    "never advances the copy": still,
    "rounds the updates": short_updates,
}


# --- laws ---


SOURCE = "Micikevicius et al. 2017, arXiv:1710.03740, section 3.1: an FP32 master copy of weights"
RATES = (1e-6, 1e-4, 1e-3)
STEPS = 12
SHAPE = (4, 6)


@frozen
class MixedDescent:
    """Parameters below float32 and others, the gradients of successive steps, weights to load midway, and a learning rate."""

    params: dict[str, Tensor]
    gradients: list[dict[str, Tensor]]
    loaded: dict[str, Tensor]
    rate: float


@st.composite
def small_descents(draw: DrawFn) -> MixedDescent:
    """Draw parameters with absolute values from 0.5 to 2, and rates so small that twelve steps cannot halve or double one."""
    dtype = draw(st.sampled_from((torch.bfloat16, torch.float16)))
    one, other, last = keys.split(keys.key(draw(seeds())), 3)

    def params(key: Tensor) -> dict[str, Tensor]:
        sizes, signs = keys.split(key)
        values = (0.5 + 1.5 * keys.uniform(sizes, SHAPE)) * keys.normal(signs, SHAPE).sign()
        return {"short": values.to(dtype), "long": values}

    drawn = keys.normal(other, (STEPS, *SHAPE))
    gradients = [{"short": gradient.to(dtype), "long": gradient} for gradient in drawn]
    return MixedDescent(params=params(one), gradients=gradients, loaded=params(last), rate=draw(st.sampled_from(RATES)))


def precision_laws() -> Suite:
    """The laws of float32 master copies and moments."""
    return Suite("precision_laws", (_follows(), _loaded(), _moments(), _dtypes(), _absent()))


_law = law_constructor(small_descents, SOURCE)


def _wide(tree: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: leaf.float() for name, leaf in tree.items()}


def _near(params: dict[str, Tensor], like: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return float32 parameters rounded to the dtypes of `like`."""
    short = rounded(params["short"], like["short"].dtype).to(like["short"].dtype)
    return {"short": short, "long": params["long"]}


def _followed(
    subject: Descending, descent: MixedDescent, *, loaded: bool
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the parameters after all steps, and those of the same steps in float32, rounded to the dtypes of the first.

    With `loaded`, the parameters are replaced by `descent.loaded` after half of the steps.
    """
    optimizer = subject.make(descent.rate)
    params, wide = descent.params, _wide(descent.params)
    state, other = optimizer.init(params), optimizer.init(wide)
    for number, gradients in enumerate(descent.gradients):
        if loaded and number == STEPS // 2:
            params, wide = descent.loaded, _wide(descent.loaded)
        updates, state = optimizer.update(gradients, state, params)
        params = subject.apply(params, updates)
        updates, other = optimizer.update(_wide(gradients), other, wide)
        wide = subject.apply(wide, updates)
    return params, _near(wide, descent.params)


def _follows() -> Law:
    def check(subject: Descending, descent: MixedDescent, seen: Seen) -> None:
        params, wanted = _followed(subject, descent, loaded=False)
        start = descent.params["short"]
        seen("steps too small for a last bit", bool(((start.float() + descent.rate).to(start.dtype) == start).any()))
        seen("numbers that change", not torch.equal(wanted["short"], start))
        same("parameters after all steps", params, wanted)

    claim = "After any number of steps parameters are those of the same steps on float32, rounded once, bit for bit."
    needs = ("steps too small for a last bit", "numbers that change")
    return _law("steps_add_up", claim, ("keeps no copy", no_copy), check, *needs)


def _loaded() -> Law:
    def check(subject: Descending, descent: MixedDescent, seen: Seen) -> None:
        params, wanted = _followed(subject, descent, loaded=True)
        same("parameters after others were loaded", params, wanted)

    claim = "Parameters that were changed from outside are gone on from, and what they were before does not come back."
    return _law("loaded_weights_stay", claim, ("goes on from the copy", stale), check)


def _moments() -> Law:
    def check(subject: Descending, descent: MixedDescent, seen: Seen) -> None:
        optimizer = subject.make(descent.rate)
        state = optimizer.init(descent.params)
        for gradients in descent.gradients[:2]:
            for name, leaf in zip(leaf_names(state), leaves(state), strict=True):
                enough = not leaf.is_floating_point() or leaf.dtype in (torch.float32, torch.float64)
                require(enough, f"the state's {name} is {leaf.dtype}, wanted float32 or more")
            _, state = optimizer.update(gradients, state, descent.params)

    claim = "All that is remembered is float32 or more, before and after an update."
    return _law("memory_is_float32", claim, ("moments in the parameters' dtype", short_moments), check)


def _dtypes() -> Law:
    def check(subject: Descending, descent: MixedDescent, seen: Seen) -> None:
        optimizer = subject.make(descent.rate)
        updates, _ = optimizer.update(descent.gradients[0], optimizer.init(descent.params), descent.params)
        after = subject.apply(descent.params, updates)
        for name, leaf in descent.params.items():
            require(after[name].dtype == leaf.dtype, f"{name} becomes {after[name].dtype}, wanted {leaf.dtype}")

    claim = "Parameters keep their dtypes."
    return _law("dtypes_stay", claim, ("leaves the sum in float32", leaves_float32), check)


def _absent() -> Law:
    def check(subject: Descending, descent: MixedDescent, seen: Seen) -> None:
        optimizer, params = subject.make(descent.rate), descent.params
        more = size(optimizer.init(params)) - size(optimizer.init(_wide(params)))
        wanted = size(params["short"])
        require(more == wanted, f"beside float32 parameters the state holds {more} more numbers, wanted {wanted}")

    claim = "A copy is kept of parameters below float32, and of no others."
    return _law("float32_has_no_copy", claim, ("copies float32 as well", always_copies), check)
