"""Laws of estimators related to generalized advantages: lambda-returns (E9) and V-trace (E10).

A V-trace subject is called as f(log_ratios, rewards, values, next_values, terminated, truncated, *, gamma, lambda_, rho_bar,
c_bar) and returns an object with `targets` and `advantages`.
"""

import math
from collections.abc import Callable
from typing import Any

import attrs
import torch
from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from torch import Tensor

from ...core.errors import choose
from ..framework.compare import ROUNDING, same
from ..framework.law import Law, Mutant, Seen, Suite, always
from ..strategies.exact import (
    EstimatorCase,
    arithmetic_of,
    estimator_columns,
    exact_events,
    expectations,
    map_streams,
    problems,
)
from ..strategies.mdps import histories, values
from ..strategies.streams import (
    Discounted,
    Stream,
    bootstraps,
    episodes,
    events,
    last_of_episode,
    over,
    streams_with_numbers,
    with_rows,
)
from ..strategies.values import from_record
from . import estimator as advantages
from .estimator import Estimator, advantages_of, backward_sum, in_one_episode, td_errors
from .estimator import reference as gae

# --- mutants ---
# Common errors in lambda-returns and V-trace, each the reference with one edit.


def squares_lambda(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
    """Multiply by lambda twice per step: right at lambda 0 and 1 only."""
    return columns[1] + advantages.reference(*columns, gamma=gamma, lambda_=lambda_ * lambda_)


def forgets_lambda(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
    """Return the full return, whatever lambda is."""
    return columns[1] + advantages.reference(*columns, gamma=gamma, lambda_=1.0)


def stops_before_bad(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
    """Stop the trace before a step that turned out badly, as `estimator.cuts_before_bad`."""
    return columns[1] + advantages.cuts_before_bad(*columns, gamma=gamma, lambda_=lambda_)


def endings_shifted(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
    """Shift the ends of episodes by one row."""
    return columns[1] + advantages.endings_shifted(*columns, gamma=gamma, lambda_=lambda_)


def forgets_gamma(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
    """Leave gamma out of the trace."""
    return columns[1] + advantages.trace_without_gamma(*columns, gamma=gamma, lambda_=lambda_)


LAMBDA_RETURNS: dict[str, Callable[..., Tensor]] = {"forgets gamma in the trace": forgets_gamma}


@frozen
class VTraceResult:
    """The result of V-trace."""

    targets: Tensor
    advantages: Tensor


Parts = dict[str, Any]


def _parts(log_ratios: Tensor, columns: tuple[Tensor, ...], gamma: float) -> Parts:
    rewards, values, next_values, terminated, truncated = columns
    beyond = torch.where(terminated, 0.0, next_values)
    return {
        "ratio": torch.exp(log_ratios),
        "error": rewards + gamma * beyond - values,
        "beyond": beyond,
        "inside": (~(terminated | truncated)).to(values.dtype),
        "lasting": (~terminated).to(values.dtype),
        "values": values,
        "rewards": rewards,
    }


def _bounded(ratio: Tensor, bar: float) -> Tensor:
    return ratio.clamp(max=bar)


def _next_target(parts: Parts, targets: Tensor) -> Tensor:
    last = torch.zeros_like(parts["inside"]).index_fill(0, torch.tensor(len(targets) - 1), 1.0)
    cut = (parts["inside"] == 0) | (last > 0)
    return torch.where(cut, parts["beyond"], torch.cat([targets[1:], targets[-1:]]))


def _edited(**edits: Callable[..., Tensor]) -> Callable[..., VTraceResult]:
    """Return V-trace with some of its parts replaced: rho, c, trace, following."""

    def vtrace(
        log_ratios: Tensor,
        *columns: Tensor,
        gamma: float,
        lambda_: float = 1.0,
        rho_bar: float = 1.0,
        c_bar: float = 1.0,
    ) -> VTraceResult:
        parts = _parts(log_ratios, columns, gamma)
        rho = edits.get("rho", _bounded)(parts["ratio"], rho_bar)
        c = edits.get("c", _bounded)(parts["ratio"], c_bar)
        plain_trace = gamma * lambda_ * c * parts["inside"]
        trace = edits["trace"](parts, gamma, lambda_, c) if "trace" in edits else plain_trace
        targets = parts["values"] + backward_sum(trace, rho * parts["error"])
        following = edits.get("following", _next_target)(parts, targets)
        return VTraceResult(targets, rho * (parts["rewards"] + gamma * following - parts["values"]))

    return vtrace


no_lambda = _edited(trace=lambda parts, gamma, lambda_, c: gamma * c * parts["inside"])
value_for_target = _edited(following=lambda parts, targets: parts["beyond"])
lower_bound = _edited(rho=lambda ratio, bar: ratio.clamp(0.1, bar))
trace_without_ratio = _edited(trace=lambda parts, gamma, lambda_, c: gamma * lambda_ * parts["inside"])
unbounded_error = _edited(rho=lambda ratio, bar: ratio)
self_normalised = _edited(rho=lambda ratio, bar: (ratio / ratio.mean().clamp(min=1e-6)).clamp(max=bar))
leaks = _edited(
    following=lambda parts, targets: torch.where(
        parts["lasting"] > 0, torch.cat([targets[1:], parts["beyond"][-1:]]), 0.0
    )
)
ratio_twice = _edited(rho=lambda ratio, bar: (ratio * ratio).clamp(max=bar))
ratio_shifted = _edited(rho=lambda ratio, bar: torch.cat([ratio[1:], ratio[-1:]]).clamp(max=bar))

VTRACE: dict[str, Callable[..., VTraceResult]] = {
    "takes the ratio of the next row": ratio_shifted,
}


# --- exact ---
# Laws of returns against exact answers (E11): no sampling anywhere.


def expected_target() -> Law:
    """E11 for lambda-returns: with exact values the expected target is the value."""

    def check(returns: Callable[..., Tensor], problem: EstimatorCase, seen: Seen) -> None:
        mdp, policy, gamma = problem.mdp, problem.behaviour, problem.gamma
        all_ = histories(mdp, policy, problem.horizon, truncated_at=problem.truncated_at)
        exact_events(all_, seen)
        exact = values(mdp, policy, gamma)
        got = map_streams(lambda *c: returns(*c, gamma=gamma, lambda_=problem.lambda_), *estimator_columns(all_, exact))
        table, known = expectations(all_, got[0], tuple(exact.shape), all_.state[0])
        same("E[target | s] against V", torch.where(known, table, exact), exact, arithmetic_of(got))

    return Law(
        numeric=True,
        name="expected_target",
        claim="With exact values the expected lambda-return of a state is its value, for every lambda.",
        source="Sutton and Barto 2018, chapter 12; by enumeration",
        inputs=always(problems()),
        check=check,
        mutant=Mutant("stops the trace before a bad step", lambda subject: stops_before_bad),
        needs=("a termination", "a truncation", "chance"),
    )


def fixed_point() -> Law:
    """E11 for V-trace: the fixed point is the value of the bounded policy."""

    def check(subject: Callable[..., Any], problem: EstimatorCase, seen: Seen) -> None:
        mdp, behaviour, policy, gamma = problem.mdp, problem.behaviour, problem.policy, problem.gamma
        bar = 1.0
        clipped = torch.minimum(bar * behaviour, policy)
        learnt = clipped / clipped.sum(-1, keepdim=True)
        seen("a ratio above the bound", (policy > bar * behaviour).any())
        exact = values(mdp, learnt, gamma)
        all_ = histories(mdp, behaviour, problem.horizon, truncated_at=problem.truncated_at)
        exact_events(all_, seen)
        ratios = (policy / behaviour).log()[all_.state, all_.action]

        def targets(*arguments: Tensor) -> Tensor:
            result = subject(*arguments, gamma=gamma, lambda_=problem.lambda_, rho_bar=bar, c_bar=bar)
            found: Tensor = result.targets
            return found

        got = map_streams(targets, ratios, *estimator_columns(all_, exact))
        table, known = expectations(all_, got[0], tuple(exact.shape), all_.state[0])
        same(
            "E[target | s] against V of the bounded policy", torch.where(known, table, exact), exact, arithmetic_of(got)
        )

    return Law(
        numeric=True,
        name="fixed_point",
        claim="The value of the policy proportional to min(rho_bar mu, pi) is what V-trace's targets expect to be.",
        source="Espeholt et al. 2018, arXiv:1802.01561, appendix A; by enumeration, the value by a linear solve",
        inputs=always(problems()),
        check=check,
        mutant=Mutant("weighs each error by the squared ratio", lambda subject: ratio_twice),
        needs=("a ratio above the bound", "a truncation", "chance"),
    )


# --- laws ---


DEFINITION = "Sutton and Barto 2018, equation 12.3; Schulman et al. 2016, arXiv:1506.02438"
IMPALA = "Espeholt et al. 2018, arXiv:1802.01561"
ENDS = ("a termination", "a truncation")
VTrace = Callable[..., Any]
POWERS = (-1, 0, 1)  # of two: the ratios are 1/2, 1 and 2


def lambda_return_laws(convention: str = "bootstrap", *, one_episode: bool = False) -> Suite:
    """The laws of lambda-returns; the subject takes the arguments of an advantage estimator.

    `convention` on truncation: "bootstrap", or "terminate", which counts the value beyond a truncation as 0. `one_episode`: the
    subject takes no endings, and is called for one episode, which terminates with its last row. Raises: ChoiceError.
    """
    advantage = choose("convention", convention, {"bootstrap": gae, "terminate": advantages.truncation_terminates})
    own = (_value_plus_gae(advantage), _one_step(convention), _whole_return(convention))
    if one_episode:
        return Suite("lambda_return_laws", tuple(in_one_episode(law) for law in own))
    return Suite("lambda_return_laws", (*own, *((expected_target(),) if convention == "bootstrap" else ())))


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
    return Law(
        numeric=True,
        name=name,
        claim=claim,
        source=source,
        inputs=always(inputs),
        check=check,
        mutant=made,
        needs=needs,
    )


def _value_plus_gae(advantage: Estimator) -> Law:
    def check(returns: Estimator, drawn: Discounted, seen: Seen) -> None:
        events(drawn.stream, seen)
        same("targets - values", advantages_of(returns, drawn) - drawn.stream.values, advantages_of(advantage, drawn))

    mutant = ("multiplies by lambda twice", squares_lambda)
    claim = "A lambda-return is the value plus the generalized advantage."
    return _law("value_plus_advantage", claim, mutant, streams_with_numbers(), check, *ENDS, source=DEFINITION)


def _one_step(convention: str) -> Law:
    def check(returns: Estimator, drawn: Discounted, seen: Seen) -> None:
        events(drawn.stream, seen)
        wanted = td_errors(convention, drawn.stream, drawn.gamma) + drawn.stream.values
        same("targets at lambda 0", advantages_of(returns, drawn), wanted)

    mutant = ("gives the whole return, whatever lambda is", forgets_lambda)
    claim = "At lambda 0 a lambda-return is r_t + gamma v'_t."
    return _law(
        "lambda_0_is_one_step",
        claim,
        mutant,
        streams_with_numbers(lambdas=(0.0,)),
        check,
        "a truncation",
        source=DEFINITION,
    )


def _whole_return(convention: str) -> Law:
    def check(returns: Estimator, drawn: Discounted, seen: Seen) -> None:
        stream, wanted = drawn.stream, []
        events(stream, seen)
        for t in range(len(stream.rewards)):
            last = last_of_episode(stream, t)
            total = sum((drawn.gamma ** (k - t) * stream.rewards[k] for k in range(t, last + 1)), torch.zeros(()))
            counts = bootstraps(convention, stream.terminated, stream.truncated)
            beyond = torch.where(counts[last], stream.next_values[last], 0.0)
            wanted.append(total + drawn.gamma ** (last + 1 - t) * beyond)
        same("targets at lambda 1", advantages_of(returns, drawn), torch.stack(wanted))

    mutant = ("shifts the endings by one row", endings_shifted)
    claim = "At lambda 1 a lambda-return is the discounted sum to the episode's end and the value beyond it."
    return _law(
        "lambda_1_is_the_return", claim, mutant, streams_with_numbers(lambdas=(1.0,)), check, *ENDS, source=DEFINITION
    )


@attrs.frozen
class OffPolicy:
    """A discounted stream with actions of another policy: the ratio pi/mu is 2^powers, [T]."""

    drawn: Discounted
    powers: Tensor

    @property
    def log_ratios(self) -> Tensor:
        """log pi - log mu: [T]."""
        return self.powers.to(torch.float32) * math.log(2.0)


@st.composite
def off_policy(draw: DrawFn) -> OffPolicy:
    """Draw streams with ratios 1/2, 1 and 2."""
    drawn = draw(streams_with_numbers())
    rows = len(drawn.stream.rewards)
    return OffPolicy(drawn, torch.tensor(draw(st.lists(st.sampled_from(POWERS), min_size=rows, max_size=rows))))


def trace(subject: VTrace, drawn: Discounted, log_ratios: Tensor, **bars: float) -> Any:
    """Return the subject's result for a stream and its log-ratios."""
    return subject(log_ratios, *drawn.stream.columns, gamma=drawn.gamma, lambda_=drawn.lambda_, **bars)


def vtrace_laws(convention: str = "bootstrap", *, lambda_: bool = True, advantages: bool = True) -> Suite:
    """The laws of V-trace.

    `convention` on truncation: "bootstrap", or "terminate", which counts the value beyond a truncation as 0. `lambda_=False`:
    it has no lambda, which is 1; `advantages=False`: it returns targets alone. Raises: ChoiceError.
    """
    terminate = choose("convention", convention, {"bootstrap": False, "terminate": True})
    plain = lambda_ and advantages and not terminate
    laws = [_on_policy(), _ratio_zero(), _unclipped(), _bounds(), _cut(), _causal()]
    laws += [_policy_advantage()] if advantages else []
    laws += [fixed_point()] if plain else []
    return Suite("vtrace_laws", tuple(laws if plain else [_declared(law, terminate, not lambda_) for law in laws]))


def _declared(law: Law, terminate: bool, whole: bool) -> Law:
    """Return the law for V-trace to which every ending is a termination, and whose lambda is 1 (`whole`)."""

    def changed(drawn: Any) -> Any:
        if isinstance(drawn, tuple):
            return changed(drawn[0]), *drawn[1:]
        if isinstance(drawn, OffPolicy):
            return attrs.evolve(drawn, drawn=changed(drawn.drawn))
        stream = drawn.stream
        if terminate:
            none = torch.zeros_like(stream.truncated)
            stream = attrs.evolve(stream, terminated=over(stream), truncated=none)
        return Discounted(stream, drawn.gamma, 1.0 if whole else drawn.lambda_)

    def both(subject: VTrace) -> VTrace:
        def called(*columns: Tensor, **named: Any) -> Any:
            found = subject(*columns, **named)
            return VTraceResult(found, torch.zeros_like(found)) if isinstance(found, Tensor) else found

        return called

    needs = tuple(need for need in law.needs if not (terminate and need == "a truncation"))
    inputs = law.inputs
    return attrs.evolve(law, inputs=lambda subject: inputs(subject).map(changed), prepare=both, needs=needs)


def _on_policy() -> Law:
    def check(subject: VTrace, drawn: Discounted, seen: Seen) -> None:
        events(drawn.stream, seen)
        targets = trace(subject, drawn, torch.zeros_like(drawn.stream.rewards)).targets
        same("targets - values at ratio 1", targets - drawn.stream.values, advantages_of(gae, drawn))

    mutant = ("forgets lambda in the trace", no_lambda)
    claim = "On policy the targets are values plus generalized advantages."
    return _law("on_policy_is_gae", claim, mutant, streams_with_numbers(), check, *ENDS, source=IMPALA)


def _policy_advantage() -> Law:
    def check(subject: VTrace, drawn: Discounted, seen: Seen) -> None:
        events(drawn.stream, seen)
        advantages = trace(subject, drawn, torch.zeros_like(drawn.stream.rewards)).advantages
        same("advantages at ratio 1, lambda 1", advantages, advantages_of(gae, drawn))

    mutant = ("takes the value of the next row, not its target", value_for_target)
    claim = "On policy and at lambda 1 the policy's advantages are generalized advantages."
    return _law("on_policy_advantage", claim, mutant, streams_with_numbers(lambdas=(1.0,)), check, *ENDS, source=IMPALA)


def _ratio_zero() -> Law:
    def check(subject: VTrace, drawn: Discounted, seen: Seen) -> None:
        never = torch.full_like(drawn.stream.rewards, -math.inf)
        result = trace(subject, drawn, never)
        same("targets at ratio 0", result.targets, drawn.stream.values)
        same("advantages at ratio 0", result.advantages, torch.zeros_like(result.advantages))

    mutant = ("bounds the ratio from below, by 1/10", lower_bound)
    claim = "What the policy would never do teaches nothing: at ratio 0 the targets are the values."
    return _law("ratio_0_keeps_values", claim, mutant, streams_with_numbers(), check, source=IMPALA)


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

    mutant = ("leaves the ratio out of the trace", trace_without_ratio)
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

    mutant = ("bounds the ratio in the trace, not that of the error", unbounded_error)
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

    mutant = ("takes the next episode's target for what a truncation led to", leaks)
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

    mutant = ("divides the ratios by their mean", self_normalised)
    claim = "Targets and advantages ignore what came before and what lies beyond their episode."
    return _law("causal", claim, mutant, _disturbed(), check, "a row outside", source=IMPALA)
