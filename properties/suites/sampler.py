"""Laws of a function that returns an action together with its log-prob, as actors of SAC and `get_action` of PPO do.

The subject is `f(*outputs [*, D]) -> (action [*, D], log_prob [*])`; no other log-prob can be asked for, so that the actions
themselves are compared with the density.

>>> from purestep.properties import sampler_laws, verify
>>> def wrong(mean: Tensor, log_std: Tensor) -> tuple[Tensor, Tensor]:
...     x = mean + log_std.exp() * torch.randn_like(mean)
...     return torch.tanh(x), torch.distributions.Normal(mean, log_std.exp()).log_prob(x).sum(-1)
>>> verify(sampler_laws(low=-1.0, high=1.0), wrong)["inverse_density_is_volume"].outcome
'broken'
"""

import itertools
import math
from collections.abc import Callable

import torch
from hypothesis import strategies as st
from torch import Tensor

from ..framework.compare import require
from ..framework.law import Law, Seen, Suite, law_constructor
from .distribution import SAMPLES, SOURCE, Drawn, Settings, Support, batched_inputs, extreme, repeated_outputs

Sampler = Callable[..., tuple[Tensor, Tensor]]


# --- mutants ---


def _edited(change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Callable[[Sampler], Sampler]:
    return lambda sampler: lambda *outputs: change(*sampler(*outputs))


off_by_scale = _edited(lambda action, log_prob: (action, log_prob + math.log(2.0)))
summed = _edited(lambda action, log_prob: (action, log_prob.sum()))
low_precision = _edited(
    lambda action, log_prob: (action, log_prob.clamp_max(14.0) if log_prob.dtype == torch.float32 else log_prob)
)


def clipped_to(low: float, high: float) -> Callable[[Sampler], Sampler]:
    """Clip actions, and keep the density of the action before."""
    middle, width = 0.5 * (low + high), 0.25 * (high - low)
    return _edited(lambda action, log_prob: (action.clamp(middle - width, middle + width), log_prob))


# --- laws ---

_law = law_constructor(st.nothing, SOURCE)


def sampler_laws(
    *,
    low: float = -math.inf,
    high: float = math.inf,
    outputs: int = 2,
    sizes: tuple[int, ...] = (1, 2),
    batches: tuple[tuple[int, ...], ...] = ((1,), (3,)),
    column: bool = False,
    precise: float = 0.0,
    dtype: torch.dtype = torch.float64,
) -> Suite:
    """Return the laws of f(*outputs [*, D]) -> (action [*, D], log_prob [*]), where no other log-prob can be asked for.

    `low`, `high`, `outputs`, `sizes` and `batches` are those of `distribution_laws`. `column`: log_prob is [*, 1]. `precise`:
    with a first output so far from 0, float32 gives the mean log_prob of float64. The global generator is seeded and restored.
    """
    how = Settings(Support(low, high), outputs, True, sizes, batches, 0.0, dtype, True)
    laws = [_volume(how, column), _one_number(how, column), _no_atoms(how)]
    laws += [_precise(how, column, precise)] if precise else []
    return Suite("sampler_laws", tuple(laws))


def _pairs(sampler: Sampler, outputs: tuple[Tensor, ...], seed: int, column: bool) -> tuple[Tensor, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        action, log_prob = sampler(*outputs)
    return action.detach(), (log_prob[..., 0] if column else log_prob).detach()


def _volume(how: Settings, column: bool) -> Law:
    def check(sampler: Sampler, inputs: Drawn, seen: Seen) -> None:
        action, log_prob = _pairs(sampler, inputs.row(2 * SAMPLES), inputs.seed, column)
        seen("two coordinates", action.shape[-1] > 1)
        require(log_prob.isfinite(), "a log_prob is not finite")
        outside = (action < how.support.low) | (action > how.support.high)
        require(~outside, f"the action {action[outside][:1].tolist()} lies outside of the bounds")
        ordered = action[:SAMPLES].double().sort(0).values
        edges = ordered[[int(q * SAMPLES) for q in (0.1, 0.35, 0.65, 0.9)]]
        density = (-log_prob[SAMPLES:].double()).exp()
        for left, right in itertools.pairwise(edges):
            inside = ((action[SAMPLES:] >= left) & (action[SAMPLES:] < right)).all(-1)
            terms = torch.where(inside, density, 0.0)
            got, wanted = float(terms.mean()), float((right - left).prod())
            allowed = 5 * float(terms.std()) / SAMPLES**0.5 + 1e-3 * wanted
            box = f"from {left.tolist()} to {right.tolist()}"
            found = f"actions {box} have a mean exp(-log_prob) of {got:.4f}, wanted the volume {wanted:.4f} +- {allowed:.4f}"
            require(abs(got - wanted) <= allowed, found)

    claim = (
        "The mean of exp(-log_prob) over actions in a box is the volume of the box: log_prob is the density of actions."
    )
    mutant = ("leaves out a scale of 2", off_by_scale)
    return _law("inverse_density_is_volume", claim, mutant, check, inputs=how.inputs(), most=60)


def _one_number(how: Settings, column: bool) -> Law:
    def check(sampler: Sampler, drawn_: tuple[Drawn, tuple[int, ...]], seen: Seen) -> None:
        inputs, batch = drawn_
        outputs, rows = repeated_outputs(batch, inputs.outputs)
        seen("several rows", len(rows) > 1)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(inputs.seed)
            action, log_prob = sampler(*outputs)
        wanted = [*batch, outputs[0].shape[-1]], [*batch, 1] if column else [*batch]
        got = list(action.shape), list(log_prob.shape)
        require(got == tuple(wanted), f"action and log_prob are {got}, wanted {wanted}")

    claim = "log_prob is one number for each row."
    inputs = batched_inputs(how.inputs(), how.batches)
    return _law("one_number_per_row", claim, ("sums over the batch", summed), check, "several rows", inputs=inputs)


def _no_atoms(how: Settings) -> Law:
    low, high = (
        (how.support.low, how.support.high) if math.isfinite(how.support.low + how.support.high) else (-1.0, 1.0)
    )

    def check(sampler: Sampler, inputs: Drawn, seen: Seen) -> None:
        action, _ = _pairs(sampler, inputs.row(SAMPLES), inputs.seed, False)
        values, counts = torch.unique(action[:, 0], return_counts=True)
        most = int(counts.max())
        value = float(values[counts.argmax()])
        require(most <= SAMPLES // 50, f"{most} of {SAMPLES} actions are {value}: such an action has no density")

    claim = "No action has a probability of its own, as one clipped to a bound has: it would have no density."
    mutant = ("clips actions", clipped_to(low, high))
    return _law("no_repeated_action", claim, mutant, check, inputs=how.inputs(), most=60)


def _precise(how: Settings, column: bool, most: float) -> Law:
    def check(sampler: Sampler, inputs: Drawn, seen: Seen) -> None:
        for first in (-most, most):
            outputs = extreme(inputs, first, SAMPLES)
            wide = _pairs(sampler, tuple(output.double() for output in outputs), inputs.seed, column)[1]
            narrow = _pairs(sampler, tuple(output.float() for output in outputs), inputs.seed, column)[1].double()
            require(narrow.isfinite(), f"for a first output of {first} a log_prob is not finite in float32")
            allowed = 5 * float((wide.var() / SAMPLES + narrow.var() / SAMPLES).sqrt()) + 0.01
            means = float(narrow.mean()), float(wide.mean())
            found = f"for a first output of {first} the mean log_prob is {means[0]:.3f} in float32, {means[1]:.3f} in float64"
            require(abs(means[0] - means[1]) <= allowed, found)

    claim = "Where actions saturate, the mean log_prob in float32 is that in float64."
    mutant = ("inverts tanh at the last number below the bound", low_precision)
    return _law("precise_when_saturated", claim, mutant, check, inputs=how.inputs(), most=20)
