"""Laws of what is made of an advantage estimator: lambda-returns (E9) and V-trace (E10).

A V-trace subject is called as f(log_ratios, rewards, values, next_values, terminated, truncated, *, gamma, lambda_, rho_bar,
c_bar) and gives an object with `targets` and `advantages`.
"""

import math
from collections.abc import Callable
from typing import Any

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from torch import Tensor

from ..framework.compare import ROUNDING, same
from ..framework.law import Law, Mutant, Seen, Suite, always
from ..strategies.streams import Discounted, Stream, discounted, episodes, events, last_of_episode, over, with_rows
from ..strategies.values import from_record
from . import returns_mutants as mutants
from .estimator_definition import Estimator, judge, td_errors
from .estimator_mutants import reference as gae
from .returns_exact import expected_target, fixed_point

DEFINITION = "Sutton and Barto 2018, equation 12.3; Schulman et al. 2016, arXiv:1506.02438"
IMPALA = "Espeholt et al. 2018, arXiv:1802.01561"
ENDS = ("a termination", "a truncation")
VTrace = Callable[..., Any]
POWERS = (-1, 0, 1)  # of two: the ratios are 1/2, 1 and 2


def lambda_return_laws() -> Suite:
    """The laws of lambda-returns; the subject takes what an advantage estimator takes."""
    return Suite("lambda_return_laws", (_value_plus_gae(), _one_step(), _whole_return(), expected_target()))


def _law(
    name: str,
    claim: str,
    mutant: tuple[str, Any],
    inputs: SearchStrategy[Any],
    check: Callable[[Any, Any, Seen], None],
    *needs: str,
    source: str,
) -> Law:
    edited = mutant[1]
    made = Mutant(mutant[0], lambda subject: edited)
    return Law(name=name, claim=claim, source=source, inputs=always(inputs), check=check, mutant=made, needs=needs)


def _value_plus_gae() -> Law:
    def check(returns: Estimator, drawn: Discounted, seen: Seen) -> None:
        events(drawn.stream, seen)
        same("targets - values", judge(returns, drawn) - drawn.stream.values, judge(gae, drawn))

    mutant = ("multiplies by lambda twice", mutants.squares_lambda)
    claim = "A lambda-return is the value plus the generalized advantage."
    return _law("value_plus_advantage", claim, mutant, discounted(), check, *ENDS, source=DEFINITION)


def _one_step() -> Law:
    def check(returns: Estimator, drawn: Discounted, seen: Seen) -> None:
        events(drawn.stream, seen)
        wanted = td_errors("bootstrap", drawn.stream, drawn.gamma) + drawn.stream.values
        same("targets at lambda 0", judge(returns, drawn), wanted)

    mutant = ("gives the whole return, whatever lambda is", mutants.forgets_lambda)
    claim = "At lambda 0 a lambda-return is r_t + gamma v'_t."
    return _law(
        "lambda_0_is_one_step", claim, mutant, discounted(lambdas=(0.0,)), check, "a truncation", source=DEFINITION
    )


def _whole_return() -> Law:
    def check(returns: Estimator, drawn: Discounted, seen: Seen) -> None:
        stream, wanted = drawn.stream, []
        events(stream, seen)
        for t in range(len(stream.rewards)):
            last = last_of_episode(stream, t)
            total = sum((drawn.gamma ** (k - t) * stream.rewards[k] for k in range(t, last + 1)), torch.zeros(()))
            beyond = torch.where(stream.terminated[last], 0.0, stream.next_values[last])
            wanted.append(total + drawn.gamma ** (last + 1 - t) * beyond)
        same("targets at lambda 1", judge(returns, drawn), torch.stack(wanted))

    mutant = ("shifts the endings by one row", mutants.endings_shifted)
    claim = "At lambda 1 a lambda-return is the discounted sum to the episode's end and the value beyond it."
    return _law("lambda_1_is_the_return", claim, mutant, discounted(lambdas=(1.0,)), check, *ENDS, source=DEFINITION)


@attrs.frozen
class OffPolicy:
    """A discounted stream whose actions came from another policy: pi/mu is 2^powers, [T]."""

    drawn: Discounted
    powers: Tensor

    @property
    def log_ratios(self) -> Tensor:
        """log pi - log mu: [T]."""
        return self.powers.to(torch.float32) * math.log(2.0)


@st.composite
def off_policy(draw: DrawFn) -> OffPolicy:
    """Streams with ratios 1/2, 1 and 2."""
    drawn = draw(discounted())
    rows = len(drawn.stream.rewards)
    return OffPolicy(drawn, torch.tensor(draw(st.lists(st.sampled_from(POWERS), min_size=rows, max_size=rows))))


def trace(subject: VTrace, drawn: Discounted, log_ratios: Tensor, **bars: float) -> Any:
    """What the subject gives for a stream and its ratios."""
    return subject(log_ratios, *drawn.stream.columns, gamma=drawn.gamma, lambda_=drawn.lambda_, **bars)


def vtrace_laws() -> Suite:
    """The laws of V-trace."""
    laws = (_on_policy, _policy_advantage, _ratio_zero, _unclipped, _bounds, _cut, _causal)
    return Suite("vtrace_laws", (*(law() for law in laws), fixed_point()))


def _on_policy() -> Law:
    def check(subject: VTrace, drawn: Discounted, seen: Seen) -> None:
        events(drawn.stream, seen)
        targets = trace(subject, drawn, torch.zeros_like(drawn.stream.rewards)).targets
        same("targets - values at ratio 1", targets - drawn.stream.values, judge(gae, drawn))

    mutant = ("forgets lambda in the trace", mutants.no_lambda)
    claim = "On policy the targets are values plus generalized advantages."
    return _law("on_policy_is_gae", claim, mutant, discounted(), check, *ENDS, source=IMPALA)


def _policy_advantage() -> Law:
    def check(subject: VTrace, drawn: Discounted, seen: Seen) -> None:
        events(drawn.stream, seen)
        advantages = trace(subject, drawn, torch.zeros_like(drawn.stream.rewards)).advantages
        same("advantages at ratio 1, lambda 1", advantages, judge(gae, drawn))

    mutant = ("takes the value of the next row, not its target", mutants.value_for_target)
    claim = "On policy and at lambda 1 the policy's advantages are generalized advantages."
    return _law("on_policy_advantage", claim, mutant, discounted(lambdas=(1.0,)), check, *ENDS, source=IMPALA)


def _ratio_zero() -> Law:
    def check(subject: VTrace, drawn: Discounted, seen: Seen) -> None:
        never = torch.full_like(drawn.stream.rewards, -math.inf)
        result = trace(subject, drawn, never)
        same("targets at ratio 0", result.targets, drawn.stream.values)
        same("advantages at ratio 0", result.advantages, torch.zeros_like(result.advantages))

    mutant = ("bounds the ratio from below, by 1/10", mutants.lower_bound)
    claim = "What the policy would never do teaches nothing: at ratio 0 the targets are the values."
    return _law("ratio_0_keeps_values", claim, mutant, discounted(), check, source=IMPALA)


def _unclipped() -> Law:
    def check(subject: VTrace, drawn: OffPolicy, seen: Seen) -> None:
        stream, ratios, wanted = drawn.drawn.stream, 2.0**drawn.powers, []
        events(stream, seen)
        seen("ratios of both sides", (ratios > 1).any() & (ratios < 1).any())
        errors = td_errors("bootstrap", stream, drawn.drawn.gamma)
        for t in range(len(errors)):
            weight, total = torch.ones(()), stream.values[t]
            for k in range(t, last_of_episode(stream, t) + 1):
                weight = weight * ratios[k]
                total = total + drawn.drawn.gamma ** (k - t) * weight * errors[k]
            wanted.append(total)
        got = trace(subject, attrs.evolve(drawn.drawn, lambda_=1.0), drawn.log_ratios, rho_bar=1e6, c_bar=1e6)
        same("targets without bounds", got.targets, torch.stack(wanted), ROUNDING)

    mutant = ("leaves the ratio out of the trace", mutants.trace_without_ratio)
    claim = "With bounds above all ratios, at lambda 1, the targets are per-decision importance sampling."
    source = f"{IMPALA}; Precup, Sutton and Singh 2000"
    return _law(
        "unbounded_is_importance_sampling", claim, mutant, off_policy(), check, "ratios of both sides", source=source
    )


def _bounds() -> Law:
    def check(subject: VTrace, drawn: OffPolicy, seen: Seen) -> None:
        seen("a ratio above the bound", (drawn.powers > 0).any())
        bars = {"rho_bar": 1.0, "c_bar": 1.0}
        cut = trace(subject, drawn.drawn, drawn.log_ratios.clamp(max=0.0), **bars)
        got = trace(subject, drawn.drawn, drawn.log_ratios, **bars)
        same("targets with ratios above the bound", got.targets, cut.targets)
        same("advantages with ratios above the bound", got.advantages, cut.advantages)

    mutant = ("bounds the ratio in the trace, not that of the error", mutants.unbounded_error)
    claim = "A ratio above both bounds counts as one that stands on them."
    return _law("ratios_are_bounded", claim, mutant, off_policy(), check, "a ratio above the bound", source=IMPALA)


def _cut() -> Law:
    def check(subject: VTrace, drawn: OffPolicy, seen: Seen) -> None:
        events(drawn.drawn.stream, seen)
        pieces, row = [], 0
        for episode in episodes(drawn.drawn.stream):
            rows = slice(row, row + len(episode.rewards))
            pieces.append(trace(subject, attrs.evolve(drawn.drawn, stream=episode), drawn.log_ratios[rows]))
            row = rows.stop
        whole = trace(subject, drawn.drawn, drawn.log_ratios)
        for name in ("targets", "advantages"):
            wanted = torch.cat([getattr(piece, name) for piece in pieces])
            same(f"{name} of the whole against its episodes", getattr(whole, name), wanted)

    mutant = ("takes the next episode's target for what a truncation led to", mutants.leaks)
    claim = "A stream gives what its episodes, cut apart, give alone."
    return _law("cut_at_endings", claim, mutant, off_policy(), check, "an ending inside", "a truncation", source=IMPALA)


@st.composite
def _disturbed(draw: DrawFn) -> tuple[OffPolicy, int, Stream]:
    drawn = draw(off_policy())
    rows = len(drawn.powers)
    return drawn, draw(st.integers(0, rows - 1)), draw(from_record(Stream, T=rows))


def _causal() -> Law:
    def check(subject: VTrace, inputs: tuple[OffPolicy, int, Stream], seen: Seen) -> None:
        drawn, t, other = inputs
        stream, rows = drawn.drawn.stream, torch.arange(len(other.rewards))
        last = last_of_episode(stream, t)
        outside = (rows < t) | ((rows > last) & over(stream)[last])
        seen("a row outside", outside.any())
        changed = attrs.evolve(drawn.drawn, stream=with_rows(stream, outside, other))
        ratios = torch.where(outside, -drawn.log_ratios, drawn.log_ratios)
        before, after = trace(subject, drawn.drawn, drawn.log_ratios), trace(subject, changed, ratios)
        for name in ("targets", "advantages"):
            got, wanted = getattr(after, name)[t : last + 1], getattr(before, name)[t : last + 1]
            same(f"{name} of rows {t} to {last}, with other rows outside", got, wanted)

    mutant = ("divides the ratios by their mean", mutants.self_normalised)
    claim = "Targets and advantages ignore what came before and what lies beyond their episode."
    return _law("causal", claim, mutant, _disturbed(), check, "a row outside", source=IMPALA)
