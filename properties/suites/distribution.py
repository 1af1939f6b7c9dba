"""Laws of a distribution over actions: log_prob, sample, entropy and mode belong to one another, in any batch.

The subject makes a distribution from the outputs of a network: `make(*outputs)`, each float [*, D] (or logits [*, A], with
`outcomes`). A distribution is an object with `log_prob(action)` and `sample()`, and with `entropy()` and `mode` (a function or
a value) if it has them: one of torch.distributions, of purestep, of another library, or a SimpleNamespace of functions.
If `sample` needs an argument, it is given keys [*, 2].

    from torch.distributions import Independent, Normal
    test_mine = check(distribution_laws(), lambda mean, log_std: Independent(Normal(mean, log_std.exp()), 1))

>>> from purestep.properties import distribution_laws, verify
>>> from torch.distributions import Normal
>>> def wrong(mean: Tensor, log_std: Tensor) -> Normal:
...     return Normal(mean, log_std)  # wanted exp(log_std)
>>> verify(distribution_laws(event=False), wrong)["density_integrates_to_1"].outcome
'broken'
"""

import inspect
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from torch import Tensor

from ...core import keys
from ...core.errors import ChoiceError, message
from ..framework.compare import CURVATURE, ROUNDING, Tolerance, require, same
from ..framework.law import Law, NotHere, Seen, Suite, law_constructor
from ..strategies.values import dyadic, flags, seeds
from .policy import Wrapped

Make = Callable[..., Any]

# --- mutants ---
# Common mistakes in distributions: each wraps a correct constructor.


def _changed(**changes: Callable[..., Callable[..., Any]]) -> Callable[[Make], Make]:
    """Return the edit that replaces functions of the distribution; each change gets (distribution, make, outputs)."""

    def mutant(make: Make) -> Make:
        def made(*outputs: Tensor) -> Any:
            inner = make(*outputs)
            return Wrapped(inner, **{name: change(inner, make, outputs) for name, change in changes.items()})

        return made

    return mutant


without_constant = _changed(log_prob=lambda d, make, outputs: lambda action: d.log_prob(action) + 0.9189)
samples_squared = _changed(sample=lambda d, make, outputs: lambda *key: make(outputs[0], 2 * outputs[-1]).sample(*key))
one_noise = _changed(sample=lambda d, make, outputs: lambda *key: _repeated(d.sample(*key)))
half_entropy = _changed(entropy=lambda d, make, outputs: lambda: d.entropy() - 0.5)
mode_is_sample = _changed(mode=lambda d, make, outputs: lambda: draw_sample(d, outputs[0].shape[:-1], 3))
uniform_samples = _changed(
    sample=lambda d, make, outputs: lambda *key: make(torch.zeros_like(outputs[0]), *outputs[1:]).sample(*key)
)
flat_entropy = _changed(entropy=lambda d, make, outputs: lambda: -outputs[0].log_softmax(-1).mean(-1))
first_mode = _changed(mode=lambda d, make, outputs: lambda: torch.zeros_like(_value(d.mode)))
logits_for_log_probs = _changed(log_prob=lambda d, make, outputs: lambda action: d.log_prob(action) + 0.25)


def _repeated(sample: Tensor) -> Tensor:
    return sample[:1].expand_as(sample)


def repeats_first_row(make: Make) -> Make:
    """Use the last output of the first row for all rows."""
    return lambda *outputs: make(*outputs[:-1], outputs[-1][:1].expand_as(outputs[-1]))


def detached_output(make: Make) -> Make:
    """Compute the last output without a gradient."""
    return lambda *outputs: make(*outputs[:-1], outputs[-1].detach())


def not_rescaled(low: float, high: float) -> Callable[[Make], Make]:
    """Leave actions in the middle half of the bounds, and their densities with them."""
    centre = 0.5 * (low + high)

    def inner(action: Tensor) -> Tensor:
        return centre + 2.0 * (action - centre)

    return _changed(
        sample=lambda d, make, outputs: lambda *key: centre + 0.5 * (d.sample(*key) - centre),
        log_prob=lambda d, make, outputs: (
            lambda action: torch.where(
                ((inner(action) >= low) & (inner(action) <= high)).reshape(*outputs[0].shape[:-1], -1).all(-1),
                d.log_prob(inner(action).clamp(low, high)) + outputs[0].shape[-1] * math.log(2.0),
                -math.inf,
            )
        ),
    )


infinite_on_bounds = _changed(
    log_prob=lambda d, make, outputs: lambda action: d.log_prob(action) + math.inf * (action == d.high).any(-1)
)


def zero_logits(make: Make) -> Make:
    """Multiply logits by the mask: an illegal action has the logit 0, and a positive probability."""
    return lambda logits, mask: make(logits * mask, torch.ones_like(mask))


def counts_all_actions(make: Make) -> Make:
    """Compute the entropy without the mask."""
    return _changed(entropy=lambda d, inner, outputs: lambda: inner(outputs[0], torch.ones_like(outputs[1])).entropy())(
        make
    )


# --- one interface ---


def draw_sample(distribution: Any, batch: Sequence[int], seed: int) -> Tensor:
    """Return a sample; `sample` gets keys [*, 2] if it needs an argument, else the global generator is seeded and restored."""
    if _needs_an_argument(distribution.sample):
        count = math.prod(batch)
        key = keys.split(keys.key(seed), count).reshape(*batch, 2)
        return torch.as_tensor(distribution.sample(key)).detach()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return torch.as_tensor(distribution.sample()).detach()


def _needs_an_argument(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in (*kinds, inspect.Parameter.VAR_POSITIONAL)]
    needed = [p for p in parameters if p.default is p.empty and p.kind in kinds]
    return bool(needed) or names == ["key"]


def _value(found: Any) -> Tensor:
    return torch.as_tensor(found() if callable(found) else found)


def _has(make: Make, outputs: tuple[Tensor, ...], name: str) -> None:
    """Raise NotHere if the distribution has no such function, or says so by NotImplementedError or None."""
    try:
        found = getattr(make(*outputs), name, None)
        found = found() if callable(found) else found
    except NotImplementedError:
        found = None
    except RuntimeError as error:
        if not re.search(r"(?i)\b(no|not) .*(analytic|closed|implement|support)", str(error)):
            raise
        found = None
    if found is None:
        raise NotHere(f"the distribution has no {name}")


# --- quadrature ---


@frozen
class Support:
    """Bounds of each coordinate, or infinity; and the map from a real number u to a coordinate x."""

    low: float
    high: float

    def grid(self, size: int, samples: Tensor) -> "Grid":
        """Return nodes for each of `size` coordinates; samples [N, size] place them where there is no bound."""
        nodes = 1001 if size == 1 else 201
        bounded = math.isfinite(self.low) and math.isfinite(self.high)
        reach = 16.0 if bounded else 8.0
        u = torch.linspace(-reach, reach, nodes, dtype=torch.float64)
        ordered = samples.double().sort(0).values
        centre, spread = ordered[len(ordered) // 2], ordered[3 * len(ordered) // 4] - ordered[len(ordered) // 4]
        centre = torch.where(centre.isfinite(), centre, 0.0)
        spread = torch.where(spread.isfinite() & (spread > 1e-6), spread, 1.0)
        return Grid(self, u, centre, spread)

    def change_of_variable(self, u: Tensor, centre: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
        """Return x and dx/du."""
        if math.isfinite(self.low) and math.isfinite(self.high):
            half = 0.5 * (self.high - self.low)
            x = (self.low + half + half * torch.tanh(u)).clamp(self.low, self.high)
            return x, half / torch.cosh(u).square()
        if math.isfinite(self.low):
            return self.low + (centre - self.low) * torch.exp(u), (centre - self.low) * torch.exp(u)
        return centre + spread * torch.sinh(u), spread * torch.cosh(u)

    def back(self, x: Tensor, centre: Tensor, spread: Tensor) -> Tensor:
        """Return u of x."""
        if math.isfinite(self.low) and math.isfinite(self.high):
            half = 0.5 * (self.high - self.low)
            return torch.atanh(((x - self.low - half) / half).clamp(-1.0, 1.0))
        if math.isfinite(self.low):
            return torch.log(((x - self.low) / (centre - self.low)).clamp_min(0.0))
        return torch.asinh((x - centre) / spread)


@frozen
class Grid:
    """Nodes of a product rule over one or two coordinates."""

    support: Support
    u: Tensor  # [N]
    centre: Tensor  # [D]
    spread: Tensor  # [D]

    def points(self) -> tuple[Tensor, Tensor]:
        """Return the points [N^D, D] and their weights [N^D]."""
        placed = [self.support.change_of_variable(self.u, c, s) for c, s in zip(self.centre, self.spread, strict=True)]
        step = self.u[1] - self.u[0]
        x = torch.cartesian_prod(*[x for x, _ in placed]).reshape(-1, len(placed))
        w = torch.cartesian_prod(*[step * slope for _, slope in placed]).reshape(-1, len(placed)).prod(-1)
        return x, w

    def uniforms(self, mass: Tensor, samples: Tensor) -> Tensor:
        """Return the distribution function of each coordinate at samples [M, D], from the mass at each node [N^D]."""
        shape = [len(self.u)] * samples.shape[-1]
        found = []
        for d in range(samples.shape[-1]):
            axes = [a for a in range(len(shape)) if a != d]
            marginal = mass.reshape(shape).sum(axes) if axes else mass
            below = (marginal.cumsum(0) - 0.5 * marginal) / marginal.sum()
            u = self.support.back(samples[:, d].double(), self.centre[d], self.spread[d])
            place = ((u - self.u[0]) / (self.u[1] - self.u[0])).clamp(0.0, len(self.u) - 1.001)
            left = place.floor().long()
            found.append(torch.lerp(below[left], below[left + 1], place - left))
        return torch.stack(found, -1)


# --- inputs ---


@frozen
class Drawn:
    """Outputs of a network for a few rows [R, D], and a seed of samples."""

    outputs: tuple[Tensor, ...]
    seed: int

    def row(self, count: int = 1) -> tuple[Tensor, ...]:
        """Return the first row, repeated: [count, D]."""
        return tuple(output[:1].expand(count, -1) for output in self.outputs)


@frozen
class Settings:
    """Arguments of `distribution_laws`."""

    support: Support
    outputs: int
    event: bool
    sizes: tuple[int, ...]
    batches: tuple[tuple[int, ...], ...]
    entropy: float
    dtype: torch.dtype
    independent: bool

    def inputs(self) -> SearchStrategy[Drawn]:
        """Outputs of three rows: the last in [-3/4, 1/4), the others in [-1, 1)."""

        @st.composite
        def outputs(draw: DrawFn) -> Drawn:
            shape = (3, draw(st.sampled_from(self.sizes)))
            first = [draw(dyadic(shape, limit=1, dtype=self.dtype)) for _ in range(self.outputs - 1)]
            last = 0.5 * draw(dyadic(shape, limit=1, dtype=self.dtype)) - 0.25
            return Drawn((*first, last), draw(seeds()))

        return outputs()

    def make(self, subject: Make, outputs: tuple[Tensor, ...]) -> Any:
        """Return the distribution; without an event axis, D is 1 and left out."""
        return subject(*(outputs if self.event else [output[..., 0] for output in outputs]))

    def log_prob(self, distribution: Any, action: Tensor) -> Tensor:
        """Return the log-probs of actions [*, D]."""
        found: Tensor = distribution.log_prob(action if self.event else action[..., 0])
        return found

    def sample(self, subject: Make, outputs: tuple[Tensor, ...], seed: int) -> Tensor:
        """Return a sample for each row of the outputs: [*, D]."""
        found = draw_sample(self.make(subject, outputs), outputs[0].shape[:-1], seed)
        return found if self.event else found[..., None]

    def grid(self, subject: Make, inputs: Drawn) -> Grid:
        """Return a grid for the first row."""
        size = inputs.outputs[0].shape[-1]
        return self.support.grid(size, self.sample(subject, inputs.row(200), 7).reshape(200, size))

    def on_grid(self, subject: Make, inputs: Drawn, grid: Grid) -> tuple[Tensor, Tensor]:
        """Return log-prob and weight of each point."""
        points, weights = grid.points()
        distribution = self.make(subject, inputs.row(len(points)))
        return self.log_prob(distribution, points.to(self.dtype)).double(), weights


# --- laws ---


SAMPLES = 2000
KS = 2.4  # P(sup |F_n - F| > KS / sqrt(n)) < 2e-5
QUADRATURE = Tolerance("quadrature", 0.0, 5e-3)
SOURCE = (
    "definition of a density; Haarnoja et al. 2018, arXiv:1812.05905, appendix C, for squashed and rescaled actions"
)


def classes(size: int) -> Tensor:
    """Return all outcomes of a categorical distribution: int64 [A]."""
    return torch.arange(size)


def distribution_laws(
    *,
    low: float = -math.inf,
    high: float = math.inf,
    outputs: int = 2,
    event: bool = True,
    sizes: tuple[int, ...] = (1, 2),
    batches: tuple[tuple[int, ...], ...] = ((1,), (3,)),
    entropy: float = 5e-3,
    independent: bool = True,
    finite_on_bounds: bool = False,
    dtype: torch.dtype = torch.float64,
    outcomes: Callable[[int], Tensor] | None = None,
    masked: bool = False,
) -> Suite:
    """Return the laws of distributions that `make(*outputs)` returns.

    `low` and `high` bound every coordinate, and the mode of a squashed distribution may be its median. `outputs` are so many
    tensors [*, D], D one of `sizes` (at most 2). `event=False`: the distribution does not sum over the last axis, which is
    then left out. `batches` are the shapes * that it takes. `entropy` is its allowed error; a distribution without entropy or
    mode skips these laws. `independent`: the coordinates are. `finite_on_bounds`: log_prob of a sample that rounds to a
    bound in float32 is finite. With `outcomes` the distribution is discrete: a function from A to all outcomes [K, ...],
    such as `classes`, and `make(logits [*, A])`, or with `masked` `make(logits, mask)`.
    """
    if outcomes is not None:
        return Suite("distribution_laws", _discrete_laws(outcomes, batches, entropy, masked, dtype))
    if not (low < high and (low > -math.inf or high == math.inf)):
        got, remedy = f"{low} to {high}", "negate the actions of a distribution that is bounded above only"
        raise ChoiceError(message("distribution_laws: low, high", got=got, wanted="low below high", remedy=remedy))
    sizes = sizes if event else (1,)
    how = Settings(Support(low, high), outputs, event, sizes, batches, entropy, dtype, independent)
    bounded = math.isfinite(low) and math.isfinite(high)
    laws = [_integrates(how), _counts(how), _rows_differ(how), _shapes(how), _entropy(how), _mode(how), _slope(how)]
    laws += [_reaches_bounds(how)] if bounded else []
    laws += [_finite(how)] if finite_on_bounds else []
    return Suite("distribution_laws", tuple(laws))


_law = law_constructor(st.nothing, SOURCE)


def _integrates(how: Settings) -> Law:
    def check(make: Make, inputs: Drawn, seen: Seen) -> None:
        seen("two coordinates", inputs.outputs[0].shape[-1] > 1)
        log_prob, weights = how.on_grid(make, inputs, how.grid(make, inputs))
        same("the integral of exp(log_prob)", (log_prob.exp() * weights).sum(), torch.tensor(1.0).double(), QUADRATURE)

    claim = "exp(log_prob) integrates to 1 over the support."
    mutant = ("leaves out a constant of log_prob", without_constant)
    needs = ("two coordinates",) if max(how.sizes) > 1 else ()
    return _law("density_integrates_to_1", claim, mutant, check, *needs, inputs=how.inputs())


def _counts(how: Settings) -> Law:
    def check(make: Make, inputs: Drawn, seen: Seen) -> None:
        grid = how.grid(make, inputs)
        log_prob, weights = how.on_grid(make, inputs, grid)
        samples = how.sample(make, inputs.row(SAMPLES), inputs.seed)
        require(samples.isfinite(), "a sample is not finite")
        inside = (samples >= how.support.low) & (samples <= how.support.high)
        require(inside, f"the sample {samples[~inside][:1].tolist()} lies outside of the support")
        uniform = grid.uniforms((log_prob.exp() * weights), samples)
        ordered = uniform.sort(0).values
        share = (torch.arange(SAMPLES, dtype=torch.float64) + 0.5) / SAMPLES
        distance = (ordered - share[:, None]).abs().max()
        seen("a scale other than 1", bool((inputs.outputs[-1][0] != 0).all()))
        found = f"{float(distance):.3f}, allowed {KS / SAMPLES**0.5:.3f}"
        require(
            distance <= KS / SAMPLES**0.5,
            f"largest distance of samples to the distribution function of log_prob: {found}",
        )

    claim = "The shares of samples below each action are those that log_prob gives."
    mutant = ("samples with the squared scale", samples_squared)
    return _law("samples_follow_log_prob", claim, mutant, check, "a scale other than 1", inputs=how.inputs(), most=200)


def _rows_differ(how: Settings) -> Law:
    def check(make: Make, inputs: Drawn, seen: Seen) -> None:
        samples = how.sample(make, inputs.row(SAMPLES), inputs.seed)
        ranks = samples.double().argsort(0).argsort(0).double() / SAMPLES - 0.5
        pairs = {"one row and the next": (ranks[1:, 0], ranks[:-1, 0])}
        if samples.shape[-1] > 1 and how.independent:
            seen("two coordinates")
            pairs["two coordinates of one action"] = (ranks[:, 0], ranks[:, 1])
        for name, (a, b) in pairs.items():
            found = float((a * b).mean() * 12)
            allowed = 5 / SAMPLES**0.5
            require(abs(found) <= allowed, f"the correlation of {name} is {found:.3f}, allowed {allowed:.3f}")
            require(
                len(set(samples[:, 0].tolist())) > SAMPLES // 2,
                "most rows of a batch have one sample, so they share the noise",
            )

    claim = "Rows of a batch, and coordinates of an action, are drawn independently."
    mutant = ("draws one noise for all rows", one_noise)
    needs = ("two coordinates",) if max(how.sizes) > 1 and how.independent else ()
    return _law("draws_are_independent", claim, mutant, check, *needs, inputs=how.inputs(), most=50)


@st.composite
def batched_inputs(draw: DrawFn, inputs: SearchStrategy[Any], batches: tuple[tuple[int, ...], ...]) -> Any:
    """Draw inputs, and the shape of a batch that repeats them."""
    return draw(inputs), draw(st.sampled_from(batches))


def repeated_outputs(batch: tuple[int, ...], outputs: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], list[int]]:
    """Return outputs [*batch, D] whose rows repeat the drawn ones, and the drawn row of each."""
    rows = [i % len(outputs[0]) for i in range(math.prod(batch))]
    return tuple(output[rows].reshape(*batch, -1) for output in outputs), rows


def _shapes(how: Settings) -> Law:
    def check(make: Make, drawn_: tuple[Drawn, tuple[int, ...]], seen: Seen) -> None:
        inputs, batch = drawn_
        outputs, rows = repeated_outputs(batch, inputs.outputs)
        seen("several rows", len(rows) > 1)
        action = how.sample(make, outputs, inputs.seed)
        wanted = [*batch, outputs[0].shape[-1]]
        require(list(action.shape) == wanted, f"a sample is {list(action.shape)}, wanted {wanted}")
        distribution = how.make(make, outputs)
        got = {"log_prob": how.log_prob(distribution, action), "entropy": _entropy_of(distribution)}
        for name, value in got.items():
            if value is not None:
                require(tuple(value.shape) == batch, f"{name} is {list(value.shape)}, wanted {list(batch)}")
        flat = action.reshape(-1, action.shape[-1])
        alone = [
            how.log_prob(how.make(make, tuple(output[r : r + 1] for output in inputs.outputs)), flat[i : i + 1])
            for i, r in enumerate(rows)
        ]
        same("log_prob of a batch against its rows", got["log_prob"].reshape(-1), torch.cat(alone), ROUNDING)

    claim = "log_prob and entropy are one number for each row of a batch, and each row's are its own."
    mutant = ("takes the last output of the first row for all rows", repeats_first_row)
    inputs = batched_inputs(how.inputs(), how.batches)
    return _law("batch_is_rows", claim, mutant, check, "several rows", inputs=inputs)


def _entropy_of(distribution: Any) -> Any:
    try:
        return distribution.entropy() if hasattr(distribution, "entropy") else None
    except NotImplementedError:
        return None


def _probe(how: Settings, name: str) -> Callable[[Make], Make]:
    def prepare(make: Make) -> Make:
        zeros = tuple(torch.zeros(1, how.sizes[0], dtype=how.dtype) for _ in range(how.outputs))
        _has(lambda *outputs: how.make(make, outputs), zeros, name)
        return make

    return prepare


def _entropy(how: Settings) -> Law:
    def check(make: Make, inputs: Drawn, seen: Seen) -> None:
        seen("two coordinates", inputs.outputs[0].shape[-1] > 1)
        log_prob, weights = how.on_grid(make, inputs, how.grid(make, inputs))
        mass = log_prob.exp() * weights
        wanted = -torch.where(mass > 0, mass * log_prob, 0.0).sum()
        got = how.make(make, inputs.row()).entropy().reshape(()).double()
        same("the entropy", got, wanted, Tolerance("entropy", 0.0, how.entropy))

    claim = "The entropy is the integral of -p log p."
    mutant = ("leaves out the half of 1 + log(2 pi)", half_entropy)
    prepare = _probe(how, "entropy")
    return _law("entropy", claim, mutant, check, inputs=how.inputs(), prepare=prepare)


def _mode(how: Settings) -> Law:
    def check(make: Make, inputs: Drawn, seen: Seen) -> None:
        seen("a mode other than 0", bool((inputs.outputs[0][0] != 0).any()))
        grid = how.grid(make, inputs)
        log_prob, weights = how.on_grid(make, inputs, grid)
        mode = _value(how.make(make, inputs.row()).mode)
        mode = (mode if how.event else mode[..., None]).reshape(1, -1)
        again = _value(how.make(make, inputs.row()).mode).reshape(1, -1)
        same("the mode, asked for again", again, mode)
        peak = how.log_prob(how.make(make, inputs.row()), mode).reshape(()).double()
        below = grid.uniforms(log_prob.exp() * weights, mode)
        most = bool(peak >= log_prob[log_prob.isfinite()].max() - 1e-6)
        middle = bool(((below - 0.5).abs() < 0.01).all())
        found = f"log_prob {float(peak):.4f}, the largest is {float(log_prob.max()):.4f}; below it {below[0].tolist()}"
        require(
            most or middle, f"the mode {mode[0].tolist()} is neither the most probable action nor the median: {found}"
        )

    claim = "The mode is the most probable action, or the median (as tanh of the mean is), and no sample."
    mutant = ("gives a sample for the mode", mode_is_sample)
    return _law("mode", claim, mutant, check, inputs=how.inputs(), prepare=_probe(how, "mode"))


def _slope(how: Settings) -> Law:
    def check(make: Make, inputs: Drawn, seen: Seen) -> None:
        action = how.sample(make, inputs.row(1), inputs.seed)
        for i in range(how.outputs):

            def log_prob(x: Tensor, i: int = i) -> Tensor:
                outputs = list(inputs.row(1))
                outputs[i] = x
                return how.log_prob(how.make(make, tuple(outputs)), action).sum()

            at, step = inputs.row(1)[i], 1e-4
            got = _gradient(log_prob, at)
            seen("a gradient", bool(got.any()))
            for d in range(at.shape[-1]):
                side = torch.zeros_like(at)
                side[..., d] = step
                slope = (log_prob(at + side) - log_prob(at - side)) / (2 * step)
                same(f"the gradient of log_prob in output {i}", got[0, d], slope.detach(), CURVATURE)

    claim = "The gradient of log_prob in each output of the network is its slope."
    mutant = ("detaches the last output", detached_output)
    return _law("gradient_is_the_slope", claim, mutant, check, "a gradient", inputs=how.inputs())


def _gradient(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    leaf = at.detach().clone().requires_grad_()
    value = function(leaf)
    if not value.requires_grad:
        return torch.zeros_like(at)
    return torch.autograd.grad(value, leaf, allow_unused=True, materialize_grads=True)[0]


def extreme(inputs: Drawn, first: float, count: int) -> tuple[Tensor, ...]:
    rows = inputs.row(count)
    return (torch.full_like(rows[0], first), *rows[1:])


def _reaches_bounds(how: Settings) -> Law:
    low, high = how.support.low, how.support.high

    def check(make: Make, inputs: Drawn, seen: Seen) -> None:
        found = [how.sample(make, extreme(inputs, first, 200), inputs.seed) for first in (-8.0, 8.0)]
        least, most = float(torch.cat(found).min()), float(torch.cat(found).max())
        near = 0.05 * (high - low)
        require(least >= low and most <= high, f"actions from {least} to {most}, wanted within {low} to {high}")
        require(
            least <= low + near and most >= high - near,
            f"for first outputs of -8 and 8 actions go from {least} to {most}, wanted close to {low} and {high}",
        )

    claim = "Extreme outputs give actions next to both bounds: they are rescaled to all of [low, high]."
    mutant = ("rescales to the middle half of the bounds", not_rescaled(low, high))
    return _law("reaches_both_bounds", claim, mutant, check, inputs=how.inputs())


def _finite(how: Settings) -> Law:
    def check(make: Make, inputs: Drawn, seen: Seen) -> None:
        for first in (-20.0, 20.0):
            outputs = tuple(output.float() for output in extreme(inputs, first, 4))
            sample = how.sample(make, outputs, inputs.seed)
            seen("a sample on a bound", bool(((sample == how.support.low) | (sample == how.support.high)).any()))
            got = how.log_prob(how.make(make, outputs), sample)
            require(got.isfinite(), f"log_prob of the sample {sample[0].tolist()} is {got.tolist()}")

    claim = "Where a sample rounds to a bound in float32, its log_prob is finite."
    mutant = ("inverts tanh on the bound", infinite_on_bounds)
    return _law("finite_on_bounds", claim, mutant, check, "a sample on a bound", inputs=how.inputs())


# --- discrete ---


@frozen
class DrawnLogits:
    """Logits of three rows [3, A], a mask of legal actions (at least one in each row), and a seed of samples."""

    logits: Tensor
    mask: Tensor
    seed: int


@frozen
class DiscreteClaims:
    """Arguments of the laws of discrete distributions."""

    outcomes: Callable[[int], Tensor]
    masked: bool
    dtype: torch.dtype

    def inputs(self) -> SearchStrategy[DrawnLogits]:
        """Logits of three rows for one to five actions."""

        @st.composite
        def logits(draw: DrawFn) -> DrawnLogits:
            actions = draw(st.sampled_from((2, 4, 1)))
            shape = (3, actions)
            mask = ~draw(flags(shape)) if self.masked else torch.ones(shape, dtype=torch.bool)
            mask[:, 0] |= ~mask.any(-1)
            return DrawnLogits(draw(dyadic(shape, limit=3, dtype=self.dtype)), mask, draw(seeds()))

        return logits()

    def make(self, subject: Make, logits: Tensor, mask: Tensor) -> Any:
        """Return the distribution."""
        return subject(logits, mask) if self.masked else subject(logits)

    def table(self, subject: Make, inputs: DrawnLogits) -> tuple[Tensor, Tensor]:
        """Return all outcomes [K, ...] and the log-prob of each in the first row [K]."""
        outcomes = self.outcomes(inputs.logits.shape[-1])
        rows = [x[:1].expand(len(outcomes), -1) for x in (inputs.logits, inputs.mask)]
        return outcomes, self.make(subject, *rows).log_prob(outcomes)


def _discrete_laws(
    outcomes: Callable[[int], Tensor],
    batches: tuple[tuple[int, ...], ...],
    entropy: float,
    masked: bool,
    dtype: torch.dtype,
) -> tuple[Law, ...]:
    how = DiscreteClaims(outcomes, masked, dtype)
    laws = (_sums_to_1(how), _frequencies(how), _discrete_batch(how, batches), _enumerated_entropy(how, entropy))
    return (*laws, _most_probable(how), *((_illegal(how), _legal_entropy(how)) if masked else ()))


def _sums_to_1(how: DiscreteClaims) -> Law:
    def check(make: Make, inputs: DrawnLogits, seen: Seen) -> None:
        seen("several actions", inputs.logits.shape[-1] > 1)
        total = how.table(make, inputs)[1].double().exp().sum()
        same("the sum of exp(log_prob)", total, torch.ones_like(total), ROUNDING)

    claim = "exp(log_prob) of all outcomes sums to 1."
    mutant = ("gives logits for log-probs", logits_for_log_probs)
    return _law("probabilities_sum_to_1", claim, mutant, check, "several actions", inputs=how.inputs())


def _frequencies(how: DiscreteClaims) -> Law:
    def check(make: Make, inputs: DrawnLogits, seen: Seen) -> None:
        outcomes, log_prob = how.table(make, inputs)
        rows = [x[:1].expand(SAMPLES, -1) for x in (inputs.logits, inputs.mask)]
        sample = draw_sample(how.make(make, *rows), (SAMPLES,), inputs.seed)
        require(sample.shape[1:] == outcomes.shape[1:], f"a sample is {list(sample.shape[1:])}")
        hits = (sample[:, None] == outcomes).reshape(SAMPLES, len(outcomes), -1).all(-1)
        require(hits.any(-1), f"the sample {sample[~hits.any(-1)][:1].tolist()} is none of the outcomes")
        wanted, share = log_prob.double().exp(), hits.double().mean(0)
        seen("unequal probabilities", bool((wanted.max() - wanted.min()) > 0.2))
        allowed = 5 * (wanted * (1 - wanted) / SAMPLES).clamp_min(0).sqrt() + 1 / SAMPLES
        i = int(((share - wanted).abs() - allowed).argmax())
        found = (
            f"{float(share[i]):.3f} of the samples are {outcomes[i].tolist()}, log_prob gives {float(wanted[i]):.3f}"
        )
        require((share - wanted).abs() <= allowed, found)
        pairs = int((hits[1:] & hits[:-1]).any(-1).sum())
        expected = float(wanted.square().sum())
        found = (
            f"{pairs} of {SAMPLES - 1} rows have the sample of the row before, wanted about {expected * SAMPLES:.0f}"
        )
        require(abs(pairs / SAMPLES - expected) <= 0.1, found)

    claim = "Outcomes are drawn as often as log_prob says, independently in each row."
    mutant = ("samples uniformly", uniform_samples)
    return _law("samples_follow_log_prob", claim, mutant, check, "unequal probabilities", inputs=how.inputs(), most=200)


def _discrete_batch(how: DiscreteClaims, batches: tuple[tuple[int, ...], ...]) -> Law:
    def check(make: Make, drawn_: tuple[DrawnLogits, tuple[int, ...]], seen: Seen) -> None:
        inputs, batch = drawn_
        (logits, mask), rows = repeated_outputs(batch, (inputs.logits, inputs.mask))
        seen("several rows", len(rows) > 1)
        distribution = how.make(make, logits, mask)
        action = draw_sample(distribution, batch, inputs.seed)
        got = distribution.log_prob(action)
        for name, value in {"log_prob": got, "entropy": _entropy_of(distribution)}.items():
            if value is not None:
                require(tuple(value.shape) == batch, f"{name} is {list(value.shape)}, wanted {list(batch)}")
        flat = action.reshape(len(rows), *action.shape[len(batch) :])
        alone = [
            how.make(make, inputs.logits[r : r + 1], inputs.mask[r : r + 1]).log_prob(flat[i : i + 1])
            for i, r in enumerate(rows)
        ]
        same("log_prob of a batch against its rows", got.reshape(-1), torch.cat(alone), ROUNDING)

    claim = "log_prob and entropy are one number for each row of a batch, and each row's are its own."
    mutant = ("takes the last output of the first row for all rows", repeats_first_row)
    return _law("batch_is_rows", claim, mutant, check, "several rows", inputs=batched_inputs(how.inputs(), batches))


def _needs_of(how: DiscreteClaims, name: str) -> Callable[[Make], Make]:
    def prepare(make: Make) -> Make:
        _has(lambda *rows: how.make(make, *rows), (torch.zeros(1, 2), torch.ones(1, 2).bool()), name)
        return make

    return prepare


def _enumerated_entropy(how: DiscreteClaims, allowed: float) -> Law:
    def check(make: Make, inputs: DrawnLogits, seen: Seen) -> None:
        log_prob = how.table(make, inputs)[1].double()
        p = log_prob.exp()
        seen("unequal probabilities", bool((p.max() - p.min()) > 0.1))
        wanted = -torch.where(p > 0, p * log_prob, 0.0).sum()
        got = how.make(make, inputs.logits[:1], inputs.mask[:1]).entropy().reshape(()).double()
        same("the entropy", got, wanted, Tolerance("entropy", 1e-5, min(allowed, 1e-5)))

    claim = "The entropy is -sum p log p over all outcomes."
    mutant = ("gives the mean of -log p, not its expectation", flat_entropy)
    prepare = _needs_of(how, "entropy")
    return _law("entropy", claim, mutant, check, "unequal probabilities", inputs=how.inputs(), prepare=prepare)


def _most_probable(how: DiscreteClaims) -> Law:
    def check(make: Make, inputs: DrawnLogits, seen: Seen) -> None:
        _, log_prob = how.table(make, inputs)
        distribution = how.make(make, inputs.logits[:1], inputs.mask[:1])
        mode = _value(distribution.mode)
        best = log_prob == log_prob.max()
        seen("unequal probabilities", bool(log_prob.max() > log_prob.min()))
        if int(best.sum()) > 1 and bool(mode.isnan().any()):
            return  # a documented answer of torch.distributions where several outcomes are most probable
        same("log_prob of the mode", distribution.log_prob(mode).reshape(()), log_prob.max(), ROUNDING)

    claim = "No outcome is more probable than the mode."
    mutant = ("gives the first action for the mode", first_mode)
    prepare = _needs_of(how, "mode")
    return _law("mode", claim, mutant, check, "unequal probabilities", inputs=how.inputs(), prepare=prepare)


def _illegal(how: DiscreteClaims) -> Law:
    def check(make: Make, inputs: DrawnLogits, seen: Seen) -> None:
        _, log_prob = how.table(make, inputs)
        legal = inputs.mask[0]
        seen("an illegal action", bool((~legal).any()))
        wanted = torch.where(legal, inputs.logits[0], -math.inf).softmax(-1)
        same("the probabilities", log_prob.exp(), wanted, ROUNDING)
        leaf = inputs.logits[:1].detach().clone().requires_grad_()
        action = torch.where(legal)[0][:1]
        value = how.make(make, leaf, inputs.mask[:1]).log_prob(action).sum()
        slope = torch.autograd.grad(value, leaf)[0][0]
        require(slope.isfinite(), f"the gradient of log_prob is {slope.tolist()}")
        require(slope[~legal] == 0, f"illegal actions {(~legal).tolist()} have the gradient {slope.tolist()}")

    claim = "An illegal action has probability 0 and no gradient; the legal ones are a softmax among themselves."
    mutant = ("multiplies logits by the mask", zero_logits)
    return _law("illegal_is_impossible", claim, mutant, check, "an illegal action", inputs=how.inputs())


def _legal_entropy(how: DiscreteClaims) -> Law:
    def check(make: Make, inputs: DrawnLogits, seen: Seen) -> None:
        legal = inputs.mask[0]
        seen("an illegal action", bool((~legal).any()))
        p = inputs.logits[0][legal].double().softmax(-1)
        leaf = inputs.logits[:1].detach().clone().requires_grad_()
        got = how.make(make, leaf, inputs.mask[:1]).entropy()
        same("the entropy", got.reshape(()).double(), -(p * p.log()).sum(), ROUNDING)
        slope = torch.autograd.grad(got.sum(), leaf)[0]
        require(slope.isfinite(), f"the gradient of the entropy is {slope[0].tolist()}")

    claim = "The entropy is that of the legal actions, with a finite gradient."
    mutant = ("computes the entropy without the mask", counts_all_actions)
    return _law("entropy_of_legal_actions", claim, mutant, check, "an illegal action", inputs=how.inputs())
