"""Laws of optimizers: steps equal those of a named rule, computed in float64; state, groups, decay, clipping, NaN.

The subject makes an optimizer: `make(params, learning_rate)` for one with `step` and `param_groups`, such as torch.optim.Adam
itself (its first parameter is called `params`), or `make(learning_rate)` for a pair of pure functions `init(params)` and
`update(gradients, state, params) -> (updates, state)`.

    test_mine = check(optimizer_laws("adam", weight_decay=0.01), lambda params, lr: MyAdam(params, lr=lr, weight_decay=0.01))
    test_clip = check(optimizer_laws("sgd", clip_norm=1.0), lambda lr: chain(clip_by_global_norm(1.0), sgd(lr)))

>>> from purestep.properties import optimizer_laws, verify
>>> verify(optimizer_laws("adam", eps=1e-6), torch.optim.Adam)["tiny_gradients"].outcome  # its eps is 1e-8
'broken'
"""

import copy
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from attrs import frozen, mutable
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from torch import Tensor

from ...core.errors import ChoiceError, choose, message
from ...core.tree import leaves, tree_map
from ..framework.compare import Tolerance, require, same
from ..framework.law import Law, NotHere, Seen, Suite, law_constructor
from ..strategies.values import dyadic

Make = Callable[..., Any]
Numbers = Mapping[str, float]

# --- rules ---
# Each returns the new parameter: (parameter, gradient, state of this parameter, learning rate, step from 1, settings).

Rule = Callable[[Tensor, Tensor, dict[str, Tensor], float, int, Numbers], Tensor]


def _decayed(p: Tensor, g: Tensor, rate: float, s: Numbers) -> tuple[Tensor, Tensor]:
    """Return parameter and gradient after weight decay, which is decoupled from the gradient or added to it."""
    decay = s["weight_decay"]
    return (p * (1 - rate * decay), g) if s["decoupled"] else (p, g + decay * p)


def _sgd(p: Tensor, g: Tensor, state: dict[str, Tensor], rate: float, t: int, s: Numbers) -> Tensor:
    p, g = _decayed(p, g, rate, s)
    if s["momentum"]:
        state["v"] = g if t == 1 else s["momentum"] * state["v"] + (1 - s["dampening"]) * g
        g = g + s["momentum"] * state["v"] if s["nesterov"] else state["v"]
    return p - rate * g


def _moments(g: Tensor, state: dict[str, Tensor], t: int, s: Numbers) -> tuple[Tensor, Tensor]:
    """Return the first moment, and the square root of the second without bias."""
    m = s["beta1"] * state.get("m", 0 * g) + (1 - s["beta1"]) * g
    v = s["beta2"] * state.get("v", 0 * g) + (1 - s["beta2"]) * g * g
    state["m"], state["v"] = m, v
    return m, (v / (1 - s["beta2"] ** t)).sqrt()


def _adam(p: Tensor, g: Tensor, state: dict[str, Tensor], rate: float, t: int, s: Numbers) -> Tensor:
    p, g = _decayed(p, g, rate, s)
    m, root = _moments(g, state, t, s)
    if s["amsgrad"]:
        state["most"] = torch.maximum(state.get("most", 0 * g), state["v"])
        root = (state["most"] / (1 - s["beta2"] ** t)).sqrt()
    return p - rate * (m / (1 - s["beta1"] ** t)) / (root + s["eps"])


def _adamax(p: Tensor, g: Tensor, state: dict[str, Tensor], rate: float, t: int, s: Numbers) -> Tensor:
    p, g = _decayed(p, g, rate, s)
    state["m"] = s["beta1"] * state.get("m", 0 * g) + (1 - s["beta1"]) * g
    state["u"] = torch.maximum(s["beta2"] * state.get("u", 0 * g), g.abs() + s["eps"])
    return p - rate / (1 - s["beta1"] ** t) * state["m"] / state["u"]


def _nadam(p: Tensor, g: Tensor, state: dict[str, Tensor], rate: float, t: int, s: Numbers) -> Tensor:
    p, g = _decayed(p, g, rate, s)
    m, root = _moments(g, state, t, s)
    now, then = (s["beta1"] * (1 - 0.5 * math.pow(0.96, n * s["momentum_decay"])) for n in (t, t + 1))
    state["product"] = state.get("product", torch.ones((), dtype=g.dtype)) * now
    direction = (1 - now) / (1 - state["product"]) * g + then / (1 - state["product"] * then) * m
    return p - rate * direction / (root + s["eps"])


def _radam(p: Tensor, g: Tensor, state: dict[str, Tensor], rate: float, t: int, s: Numbers) -> Tensor:
    p, g = _decayed(p, g, rate, s)
    m, _ = _moments(g, state, t, s)
    mean, left = m / (1 - s["beta1"] ** t), s["beta2"] ** t
    longest = 2 / (1 - s["beta2"]) - 1
    length = longest - 2 * t * left / (1 - left)
    if length <= 5:
        return p - rate * mean
    above, below = (length - 4) * (length - 2) * longest, (longest - 4) * (longest - 2) * length
    return p - rate * mean * math.sqrt(above / below) * math.sqrt(1 - left) / (state["v"].sqrt() + s["eps"])


def _rooted(v: Tensor, s: Numbers) -> Tensor:
    return (v + s["eps"]).sqrt() if s["eps_inside"] else v.sqrt() + s["eps"]


def _rmsprop(p: Tensor, g: Tensor, state: dict[str, Tensor], rate: float, t: int, s: Numbers) -> Tensor:
    p, g = _decayed(p, g, rate, s)
    v = s["alpha"] * state.get("v", 0 * g) + (1 - s["alpha"]) * g * g
    mean = s["alpha"] * state.get("mean", 0 * g) + (1 - s["alpha"]) * g
    state["v"], state["mean"] = v, mean
    step = g / _rooted(v - mean * mean if s["centered"] else v, s)
    state["step"] = s["momentum"] * state.get("step", 0 * g) + step
    return p - rate * (state["step"] if s["momentum"] else step)


def _adagrad(p: Tensor, g: Tensor, state: dict[str, Tensor], rate: float, t: int, s: Numbers) -> Tensor:
    p, g = _decayed(p, g, rate, s)
    state["v"] = state.get("v", 0 * g + s["initial_accumulator"]) + g * g
    return p - rate / (1 + (t - 1) * s["rate_decay"]) * g / _rooted(state["v"], s)


def _adadelta(p: Tensor, g: Tensor, state: dict[str, Tensor], rate: float, t: int, s: Numbers) -> Tensor:
    p, g = _decayed(p, g, rate, s)
    state["v"] = s["rho"] * state.get("v", 0 * g) + (1 - s["rho"]) * g * g
    before = state.get("moved", 0 * g)
    step = (before + s["eps"]).sqrt() / (state["v"] + s["eps"]).sqrt() * g
    state["moved"] = s["rho"] * before + (1 - s["rho"]) * step * step
    return p - rate * step


def _lion(p: Tensor, g: Tensor, state: dict[str, Tensor], rate: float, t: int, s: Numbers) -> Tensor:
    p, g = _decayed(p, g, rate, s)
    m = state.get("m", 0 * g)
    state["m"] = s["beta2"] * m + (1 - s["beta2"]) * g
    return p - rate * (s["beta1"] * m + (1 - s["beta1"]) * g).sign()


DECAY = {"weight_decay": 0.0, "decoupled": False}
BETAS = {**DECAY, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
RULES: dict[str, tuple[Rule, dict[str, Any]]] = {
    "sgd": (_sgd, {**DECAY, "momentum": 0.0, "dampening": 0.0, "nesterov": False}),
    "adam": (_adam, {**BETAS, "amsgrad": False}),
    "adamw": (_adam, {**BETAS, "amsgrad": False, "weight_decay": 0.01, "decoupled": True}),
    "adamax": (_adamax, BETAS),
    "nadam": (_nadam, {**BETAS, "momentum_decay": 4e-3}),
    "radam": (_radam, BETAS),
    "rmsprop": (
        _rmsprop,
        {**DECAY, "alpha": 0.99, "eps": 1e-8, "centered": False, "momentum": 0.0, "eps_inside": False},
    ),
    "adagrad": (_adagrad, {**DECAY, "rate_decay": 0.0, "initial_accumulator": 0.0, "eps": 1e-10, "eps_inside": False}),
    "adadelta": (_adadelta, {**DECAY, "rho": 0.9, "eps": 1e-6}),
    "lion": (_lion, {**DECAY, "beta1": 0.9, "beta2": 0.99, "decoupled": True}),
}

# --- one interface ---


@mutable
class OptimizerRun:
    """An optimizer with parameters under way, of either kind."""

    params: list[Tensor]
    optimizer: Any
    state: Any = None  # of a pair of pure functions

    def step(self, gradients: list[Tensor | None]) -> None:
        """Take one step."""
        if self.state is None:
            for param, gradient in zip(self.params, gradients, strict=True):
                param.grad = None if gradient is None else gradient.clone()
            self.optimizer.step()
            return
        updates, self.state = self.optimizer.update(gradients, self.state, self.params)
        self.params = [param + update for param, update in zip(self.params, updates, strict=True)]

    def values(self) -> list[Tensor]:
        """Return copies of the parameters."""
        return [param.detach().clone() for param in self.params]


def takes_params(make: Make) -> bool:
    """Return whether a factory takes parameters, by the name of its first argument: `params` or `parameters`."""
    first = next(iter(inspect.signature(make).parameters), "")
    return first in ("params", "parameters")


def begin_steps(make: Make, values: list[Tensor], rate: float, *, groups: tuple[float, ...] = ()) -> OptimizerRun:
    """Return a run that starts with these parameters; with `groups`, each parameter is a group with its own rate."""
    if not takes_params(make):
        pair, params = make(rate), [value.clone() for value in values]
        return OptimizerRun(params, pair, pair.init(params))
    params = [torch.nn.Parameter(value.clone()) for value in values]
    if groups:
        rows = [{"params": [param], "lr": each} for param, each in zip(params, groups, strict=True)]
        return OptimizerRun([*params], make(rows, rate))
    return OptimizerRun([*params], make(params, rate))


def _must_take_params(make: Make) -> Make:
    if not takes_params(make):
        raise NotHere("a pair of pure functions has no parameter groups, and gets a gradient for each parameter")
    return make


def _must_be_pure(make: Make) -> Make:
    if takes_params(make):
        raise NotHere("it changes parameters in place")
    return make


# --- mutants ---
# Common mistakes in optimizers: each wraps a factory of either kind.


class Edited:
    """An optimizer with an edit of its gradients before a step, and of its parameters after it."""

    def __init__(self, inner: Any, before: Callable[..., Any], after: Callable[..., Any]) -> None:
        self.inner, self.before, self.after, self.count = inner, before, after, 0

    @property
    def param_groups(self) -> Any:
        return self.inner.param_groups

    def step(self) -> None:
        params = [param for group in self.inner.param_groups for param in group["params"]]
        held = [param for param in params if param.grad is not None]
        changed = self.before([param.grad for param in held], [param.detach() for param in held])
        old = [param.detach().clone() for param in held]
        for param, gradient in zip(held, changed, strict=True):
            param.grad = gradient
        self.inner.step()
        self.count += 1
        with torch.no_grad():
            for param, was in zip(held, old, strict=True):
                param.copy_(self.after(was, param.detach().clone(), self.count))

    def init(self, params: Any) -> Any:
        return self.inner.init(params), 0

    def update(self, gradients: Any, state: Any, params: Any) -> Any:
        inner, count = state
        updates, inner = self.inner.update(self.before(gradients, params), inner, params)
        pairs = zip(params, updates, strict=True)
        return [self.after(p, p + u, count + 1) - p for p, u in pairs], (inner, count + 1)

    def state_dict(self) -> Any:
        return self.inner.state_dict()

    def load_state_dict(self, state: Any) -> None:
        self.inner.load_state_dict(state)


def _as_is(gradients: list[Tensor], params: list[Tensor]) -> list[Tensor]:
    return gradients


def _moved(old: Tensor, new: Tensor, count: int) -> Tensor:
    return new


def _edited(before: Callable[..., Any] = _as_is, after: Callable[..., Any] = _moved) -> Callable[[Make], Make]:
    def mutant(make: Make) -> Make:
        if takes_params(make):
            return lambda params, lr: Edited(make(params, lr), before, after)
        return lambda lr: Edited(make(lr), before, after)

    return mutant


def _each(change: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    return lambda gradients, params: [change(gradient) for gradient in gradients]


def _norm(gradients: list[Tensor]) -> Tensor:
    norms = torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients])
    return torch.sqrt(norms.square().sum())


def _within(gradient: Tensor, norm: Tensor, most: float) -> Tensor:
    return gradient * norm.clamp_min(1e-12).reciprocal().mul(most).clamp_max(1.0)


small_first = _edited(after=lambda old, new, count: old + (0.3 if count == 1 else 1.0) * (new - old))
decays_gradient = _edited(
    before=lambda gradients, params: [g + 0.1 * p for g, p in zip(gradients, params, strict=True)]
)
drops_tiny = _edited(before=_each(lambda g: torch.where(g.abs() < 1e-6, 0.0, g)))
clips_unasked = _edited(before=lambda gradients, params: [_within(g, _norm(gradients), 4.0) for g in gradients])
decays_without_rate = _edited(after=lambda old, new, count: 0.99 * new)
hides_nan = _edited(before=_each(torch.nan_to_num))
nan_is_one = _edited(before=_each(lambda g: torch.where(g.isnan(), 1.0, g)))


def forgets_moments(make: Make) -> Make:
    """Begin each step with new state."""

    class Forgetful(Edited):
        def step(self) -> None:
            self.inner.state.clear()
            self.inner.step()

        def update(self, gradients: Any, state: Any, params: Any) -> Any:
            return self.inner.update(gradients, self.inner.init(params), params)[0], state

    if takes_params(make):
        return lambda params, lr: Forgetful(make(params, lr), _as_is, _moved)
    return lambda lr: Forgetful(make(lr), _as_is, _moved)


def hidden_momentum(make: Make) -> Make:
    """Keep a part of the last gradient outside of the state."""

    def fresh() -> Callable[..., Any]:
        last: list[Tensor] = []

        def before(gradients: list[Tensor], params: list[Tensor]) -> list[Tensor]:
            changed = [g + 0.25 * old for g, old in zip(gradients, last or gradients, strict=True)]
            last[:] = [gradient.clone() for gradient in gradients]
            return changed

        return before

    if takes_params(make):
        return lambda params, lr: Edited(make(params, lr), fresh(), _moved)
    return lambda lr: Edited(make(lr), fresh(), _moved)


def one_rate(make: Make) -> Make:
    """Use the rate of the first group for all."""

    class OneRate(Edited):
        def step(self) -> None:
            for group in self.inner.param_groups:
                group["lr"] = self.inner.param_groups[0]["lr"]
            self.inner.step()

    return lambda params, lr: OneRate(make(params, lr), _as_is, _moved)


def none_is_zero(make: Make) -> Make:
    """Take a missing gradient for zeros."""

    class Filled(Edited):
        def step(self) -> None:
            for group in self.inner.param_groups:
                for param in group["params"]:
                    param.grad = torch.zeros_like(param) if param.grad is None else param.grad
            self.inner.step()

    return lambda params, lr: Filled(make(params, lr), _as_is, _moved)


def writes_into_gradients(make: Make) -> Make:
    """Write into the gradients that it is given."""
    return _edited(before=_each(lambda g: g.mul_(0.5)))(make)


def decays_all(make: Make) -> Make:
    """Decay every parameter, with or without a gradient, whatever the rate."""

    class Decaying(Edited):
        def step(self) -> None:
            self.inner.step()
            with torch.no_grad():
                for group in self.inner.param_groups:
                    for param in group["params"]:
                        param.mul_(0.99)

    if takes_params(make):
        return lambda params, lr: Decaying(make(params, lr), _as_is, _moved)
    return decays_without_rate(make)


def clips_each(most: float) -> Callable[[Make], Make]:
    """Clip each tensor by its own norm."""
    return _edited(before=lambda gradients, params: [_within(g, g.norm(), most) for g in gradients])


# --- inputs ---

SHAPES: tuple[tuple[int, ...], ...] = ((2,), (2, 2), ())
SIZES = [math.prod(shape) for shape in SHAPES]
RATES = (0.5, 0.125, 0.0078125)
TINY = 2.0**-26  # beside the usual eps of 1e-8


@frozen
class Descent:
    """Parameters at the start and gradients of each step, seven numbers each; they are split into [2], [2, 2] and []."""

    start: Tensor
    gradients: list[Tensor]
    rate: float


@st.composite
def descents(draw: DrawFn, least: int = 1, longest: int = 8, limit: float = 4.0) -> Descent:
    """Up to eight steps of dyadic gradients, one in four of which are all zero."""
    step = st.sampled_from((1, 1, 1, 0)).flatmap(
        lambda kept: dyadic((sum(SIZES),), limit=limit) if kept else st.just(torch.zeros(sum(SIZES)))
    )
    lengths = st.one_of(st.just(least), st.integers(least, longest), st.just(longest))
    count = draw(lengths)
    gradients = draw(st.lists(step, min_size=count, max_size=count))
    return Descent(draw(dyadic((sum(SIZES),), limit=2.0)), gradients, draw(st.sampled_from(RATES)))


def split_leaves(values: Tensor) -> list[Tensor]:
    """Return the three parameters: [7] -> [2], [2, 2], []."""
    return [part.reshape(shape).clone() for part, shape in zip(torch.split(values, SIZES), SHAPES, strict=True)]


# --- laws ---

STEPS = Tolerance("steps", 2e-5, 4e-6)  # float32 state over eight steps against float64
CLIPPED = Tolerance("clipped", 1e-4, 1e-5)  # beside an eps of up to 1e-6 in the norm
PAPERS = "the rule's paper; torch.optim for the place of eps, decay and bias correction"


@frozen
class Named:
    """Arguments of `optimizer_laws`."""

    rule: Rule
    settings: Numbers
    clip_norm: float
    maximize: bool

    def steps(self, start: list[Tensor], gradients: list[list[Tensor]], rates: list[float]) -> list[Tensor]:
        """Return the parameters after these steps in float64, as float32; one rate for each parameter."""
        params = [value.double() for value in start]
        states: list[dict[str, Tensor]] = [{} for _ in params]
        for t, row in enumerate(gradients, 1):
            sign = -1.0 if self.maximize else 1.0
            wide = [sign * gradient.double() for gradient in row]
            clipped = [_within(g, _norm(wide), self.clip_norm) for g in wide]
            params = [
                self.rule(p, g, state, rate, t, self.settings)
                for p, g, state, rate in zip(params, clipped, states, rates, strict=True)
            ]
        return [param.float() for param in params]

    def of(self, drawn: Descent, scale: float = 1.0) -> list[Tensor]:
        """Return the parameters after all steps drawn."""
        rows = [split_leaves(scale * gradient) for gradient in drawn.gradients]
        return self.steps(split_leaves(drawn.start), rows, [drawn.rate] * len(SHAPES))

    @property
    def tolerance(self) -> Tolerance:
        """Allowed rounding."""
        return STEPS if math.isinf(self.clip_norm) else CLIPPED


def optimizer_laws(
    rule: str | Rule = "adam",
    *,
    clip_norm: float = math.inf,
    nan: str = "",
    maximize: bool = False,
    **settings: Any,
) -> Suite:
    """Return the laws of an optimizer that follows a rule: one of sgd, adam, adamw, adamax, nadam, radam, rmsprop, adagrad,
    adadelta, lion, or a function like those in `RULES`.

    `settings` are those that the subject uses, with torch's defaults: weight_decay and decoupled (from the gradient), momentum,
    dampening, nesterov, beta1, beta2, eps, amsgrad, alpha, centered, eps_inside (the root), rate_decay, initial_accumulator,
    momentum_decay, rho. `clip_norm` is the global norm to which the optimizer itself clips gradients first. A NaN in a gradient
    reaches its `nan` "own" entry, "all" entries (the default with `clip_norm`), or none: "skip" leaves out the step.
    Raises: ChoiceError for a setting that the rule does not have.
    """
    follows, defaults = choose("optimizer_laws: rule", rule, RULES) if isinstance(rule, str) else (rule, settings)
    for name in settings:
        choose("optimizer_laws: setting", name, defaults)
    nan = nan or ("own" if math.isinf(clip_norm) else "all")
    if nan not in ("own", "all", "skip"):
        wanted, remedy = "own, all or skip", "say which entries become NaN"
        raise ChoiceError(message("optimizer_laws: nan", got=nan, wanted=wanted, remedy=remedy))
    how = Named(follows, {**defaults, **settings}, clip_norm, maximize)
    laws = [_first(how), _follows(how), _resumes(how), _groups(how), _missing(how), _stays(how), _nan(nan)]
    laws += [_tiny(how)] if "eps" in how.settings else []
    laws += [_zero_rate(how), _unclipped(how) if math.isinf(clip_norm) else _global_norm(how)]
    laws += [_decay(how)] if how.settings.get("weight_decay") else []
    return Suite("optimizer_laws", tuple(laws))


_law = law_constructor(descents, PAPERS)


def _all(make: Make, drawn: Descent, scale: float = 1.0) -> OptimizerRun:
    run = begin_steps(make, split_leaves(drawn.start), drawn.rate)
    for gradient in drawn.gradients:
        run.step([*split_leaves(scale * gradient)])
    return run


def _first(how: Named) -> Law:
    def check(make: Make, drawn: Descent, seen: Seen) -> None:
        seen("a gradient", bool(drawn.gradients[0].any()))
        same("parameters after the first step", _all(make, drawn).values(), how.of(drawn), how.tolerance)

    claim = "The first step from new state is the rule's, bias correction included."
    mutant = ("does not correct the bias of the first step", small_first)
    return _law("first_step", claim, mutant, check, "a gradient", inputs=descents(1, 1))


def _follows(how: Named) -> Law:
    def check(make: Make, drawn: Descent, seen: Seen) -> None:
        moving = [bool(gradient.any()) for gradient in drawn.gradients]
        seen("several gradients", sum(moving) > 1)
        seen("a zero gradient after another", True in moving and False in moving[moving.index(True) :])
        same(f"parameters after {len(moving)} steps", _all(make, drawn).values(), how.of(drawn), how.tolerance)

    claim = "Up to eight steps are those of the rule in float64."
    mutant = ("begins each step with new state", forgets_moments)
    keeps = (
        any(how.settings.get(name) for name in ("momentum", "beta1", "alpha", "rho")) or "rate_decay" in how.settings
    )
    if not keeps:
        mutant = ("keeps the last gradient outside of its state", hidden_momentum)
    return _law("follows_the_rule", claim, mutant, check, "several gradients", inputs=descents())


def _tiny(how: Named) -> Law:
    def check(make: Make, drawn: Descent, seen: Seen) -> None:
        seen("a gradient", any(bool(gradient.any()) for gradient in drawn.gradients))
        for scale in (TINY, 64 * TINY):
            got = [a - b for a, b in zip(_all(make, drawn, scale).values(), split_leaves(drawn.start), strict=True)]
            wanted = [a - b for a, b in zip(how.of(drawn, scale), split_leaves(drawn.start), strict=True)]
            same(f"the way of parameters for gradients times {scale:.1e}", got, wanted, how.tolerance)

    def zeroed(drawn: Descent) -> Descent:
        return Descent(torch.zeros_like(drawn.start), drawn.gradients, drawn.rate)

    claim = "Gradients as small as eps move parameters as the rule says: eps has its size and its place."
    mutant = ("leaves out gradients below 1e-6", drops_tiny)
    return _law("tiny_gradients", claim, mutant, check, "a gradient", inputs=descents(1, 4).map(zeroed))


def _resumes(how: Named) -> Law:
    def check(make: Make, drawn: Descent, seen: Seen) -> None:
        cut = len(drawn.gradients) // 2
        seen("steps on both sides", cut > 0)
        run = begin_steps(make, split_leaves(drawn.start), drawn.rate)
        for gradient in drawn.gradients[:cut]:
            run.step([*split_leaves(gradient)])
        again = _restored(make, run, drawn.rate)
        for gradient in drawn.gradients[cut:]:
            run.step([*split_leaves(gradient)])
            again.step([*split_leaves(gradient)])
        same("the resumed run's parameters", again.values(), run.values())

    claim = "A new optimizer that loads the state continues with the same bits."
    mutant = ("keeps the last gradient outside of its state", hidden_momentum)
    return _law("state_is_complete", claim, mutant, check, "steps on both sides", inputs=descents(1, 6))


def _restored(make: Make, run: OptimizerRun, rate: float) -> OptimizerRun:
    fresh = begin_steps(make, run.values(), rate)
    if run.state is None:
        fresh.optimizer.load_state_dict(copy.deepcopy(run.optimizer.state_dict()))
    else:
        fresh.state = copy.deepcopy(run.state)
    return fresh


def _groups(how: Named) -> Law:
    def check(make: Make, drawn: Descent, seen: Seen) -> None:
        seen("a gradient", any(bool(gradient.any()) for gradient in drawn.gradients))
        rates = [drawn.rate, 0.5 * drawn.rate, 0.25 * drawn.rate]
        run = begin_steps(make, split_leaves(drawn.start), drawn.rate, groups=tuple(rates))
        for gradient in drawn.gradients:
            run.step([*split_leaves(gradient)])
        rows = [split_leaves(gradient) for gradient in drawn.gradients]
        wanted = how.steps(split_leaves(drawn.start), rows, rates)
        same("parameters in three groups", run.values(), wanted, how.tolerance)

    claim = "Each parameter group has its own learning rate."
    mutant = ("uses the first group's rate for all", one_rate)
    inputs = descents(1, 4)
    return _law("groups_have_own_rates", claim, mutant, check, "a gradient", inputs=inputs, prepare=_must_take_params)


def _missing(how: Named) -> Law:
    def check(make: Make, drawn: Descent, seen: Seen) -> None:
        first, *others = drawn.gradients
        seen("a gradient before", bool(first[: SIZES[0]].any()))
        run = begin_steps(make, split_leaves(drawn.start), drawn.rate)
        run.step([*split_leaves(first)])
        before = run.values()[0]
        for gradient in others:
            run.step([None, *split_leaves(gradient)[1:]])
        same("a parameter without gradient", run.values()[0], before)

    claim = "A parameter whose gradient is None stays, and the others are updated."
    mutant = ("takes a missing gradient for zeros", none_is_zero)
    inputs = descents(2, 4)
    moves = bool(how.settings.get("momentum") or how.settings.get("beta1") or how.settings.get("weight_decay"))
    if not moves:
        mutant = ("decays parameters without the rate", decays_all)
    return _law(
        "no_gradient_no_step", claim, mutant, check, "a gradient before", inputs=inputs, prepare=_must_take_params
    )


def _stays(how: Named) -> Law:
    def check(make: Make, drawn: Descent, seen: Seen) -> None:
        pair = make(drawn.rate)
        params, gradients = split_leaves(drawn.start), split_leaves(drawn.gradients[0])
        seen("a gradient", bool(drawn.gradients[0].any()))
        state = pair.init(params)
        before = copy.deepcopy((gradients, leaves(state), params))
        first = pair.update(gradients, state, params)
        same("gradients, state and parameters after an update", (gradients, leaves(state), params), before)
        again = pair.update(gradients, state, params)
        same("the same update again", tree_map(torch.clone, again[0]), tree_map(torch.clone, first[0]))

    claim = "An update writes into none of its arguments, and gives the same bits again."
    mutant = ("writes into the gradients", writes_into_gradients)
    inputs = descents(1, 1)
    return _law("inputs_stay", claim, mutant, check, "a gradient", inputs=inputs, prepare=_must_be_pure)


def _nan(convention: str) -> Law:
    def check(make: Make, drawn: Descent, seen: Seen) -> None:
        first, second, *others = drawn.gradients
        poisoned = second.clone()
        poisoned[1] = math.nan
        steps = [first, poisoned, *others]
        got = torch.cat([value.reshape(-1) for value in _all(make, _with(drawn, steps)).values()])
        if convention == "all":
            require(got.isnan(), f"beside a NaN in a gradient parameters are {got.tolist()}, wanted NaN")
            return
        calm = (
            [first, *others] if convention == "skip" else [first, torch.where(poisoned.isnan(), 0.0, second), *others]
        )
        wanted = torch.cat([value.reshape(-1) for value in _all(make, _with(drawn, calm)).values()])
        hit = torch.arange(len(got)) == 1
        others_only = hit if convention == "own" else torch.zeros_like(hit)
        same("parameters beside one whose gradient was NaN", got[~others_only], wanted[~others_only])
        if convention == "own":
            require(got[1].isnan(), f"a NaN gradient gives the parameter {got[1].item()}, as if nothing had happened")

    reaches = {"own": "its own entry", "all": "every entry", "skip": "nothing: the step is left out"}[convention]
    mutant = ("takes NaN for 0", hides_nan) if convention != "skip" else ("takes NaN for 1", nan_is_one)
    return _law("nan_shows", f"A NaN in a gradient reaches {reaches}.", mutant, check, inputs=descents(2, 4))


def _with(drawn: Descent, gradients: list[Tensor]) -> Descent:
    return Descent(drawn.start, gradients, drawn.rate)


def _zero_rate(how: Named) -> Law:
    def check(make: Make, drawn: Descent, seen: Seen) -> None:
        seen("a gradient", any(bool(gradient.any()) for gradient in drawn.gradients))
        in_place = takes_params(make)
        run = begin_steps(make, split_leaves(drawn.start), drawn.rate if in_place else 0.0)
        if in_place:  # as a schedule sets it
            for group in run.optimizer.param_groups:
                group["lr"] = 0.0
        for gradient in drawn.gradients:
            run.step([*split_leaves(gradient)])
        same("parameters at learning rate 0", run.values(), split_leaves(drawn.start))

    claim = "At learning rate 0 no bit of a parameter changes, whatever the decay."
    mutant = ("decays parameters without the rate", decays_without_rate)
    return _law("zero_rate", claim, mutant, check, "a gradient", inputs=descents(1, 3))


def _unclipped(how: Named) -> Law:
    def check(make: Make, drawn: Descent, seen: Seen) -> None:
        seen("a large gradient", max(float(gradient.norm()) for gradient in drawn.gradients) > 8)
        together = _all(make, drawn).values()
        for i, start in enumerate(split_leaves(drawn.start)):
            run = begin_steps(make, [start], drawn.rate)
            for gradient in drawn.gradients:
                run.step([split_leaves(gradient)[i]])
            same(f"parameter {i} with others against alone", together[i], run.values()[0], STEPS)

    claim = "A parameter moves the same with others as alone, however large the gradients."
    mutant = ("clips gradients by their norm", clips_unasked)
    return _law("parameters_are_separate", claim, mutant, check, "a large gradient", inputs=descents(1, 4, limit=8.0))


def _global_norm(how: Named) -> Law:
    def check(make: Make, drawn: Descent, seen: Seen) -> None:
        norm = float(drawn.gradients[0].norm())
        norms = [float(part.norm()) for part in split_leaves(drawn.gradients[0])]
        seen("a norm above the bound", norm > how.clip_norm)
        seen("a norm below the bound", 0 < norm < how.clip_norm)
        seen("one tensor above the bound, another below", max(norms) > how.clip_norm > min(norms) > 0)
        same(f"parameters after a gradient of norm {norm:.3f}", _all(make, drawn).values(), how.of(drawn), CLIPPED)

    claim = "Gradients are scaled by one factor, min(1, bound / norm of all of them)."
    mutant = ("clips each tensor by its own norm", clips_each(how.clip_norm))
    inputs = _scaled(how.clip_norm)
    return _law("global_norm", claim, mutant, check, "a norm above the bound", "a norm below the bound", inputs=inputs)


def _scaled(bound: float) -> SearchStrategy[Descent]:
    """One gradient of a norm around the bound."""

    @st.composite
    def scaled(draw: DrawFn) -> Descent:
        drawn = draw(descents(1, 1))
        return _with(drawn, [draw(st.sampled_from((1.0, 0.0625))) * bound * drawn.gradients[0]])

    return scaled()


def _decay(how: Named) -> Law:
    def check(make: Make, drawn: Descent, seen: Seen) -> None:
        seen("a parameter", bool(drawn.start.any()))
        still = _with(drawn, [torch.zeros_like(gradient) for gradient in drawn.gradients])
        same("parameters after zero gradients", _all(make, still).values(), how.of(still), how.tolerance)
        if how.settings["decoupled"]:
            factor = (1 - drawn.rate * how.settings["weight_decay"]) ** len(drawn.gradients)
            same("decayed parameters", _all(make, still).values(), split_leaves(factor * drawn.start), how.tolerance)

    where = "apart from the gradient" if how.settings["decoupled"] else "as a part of the gradient"
    mutant = ("adds a decay to the gradient", decays_gradient)
    return _law(
        "decay", f"With zero gradients parameters decay {where}.", mutant, check, "a parameter", inputs=descents()
    )
