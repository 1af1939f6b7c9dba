"""Laws of advantage estimators (E1 to E8, E11, E12).

The subject: f(rewards, values, next_values, terminated, truncated, *, gamma, lambda_) -> advantages, all [T]. On drawn
values (multiples of 1/4, gamma and lambda 0, 1/2 or 1) every law but the last two requires equal bits.
"""

from collections.abc import Callable
from typing import Any

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from ...core.record import replace
from ..framework.compare import same
from ..framework.law import Law, Mutant, Seen, Suite, always, law_constructor
from ..strategies.exact import (
    EstimatorCase,
    arithmetic_of,
    ending_problems,
    estimator_columns,
    exact_events,
    expectations,
    map_streams,
    problems,
)
from ..strategies.mdps import action_values, exact_policy_gradient, histories, logits_of, values
from ..strategies.streams import (
    FRACTIONS,
    Discounted,
    Stream,
    bootstraps,
    episodes,
    events,
    kept_steps,
    last_of_episode,
    over,
    streams_with_numbers,
    twins,
    with_rows,
)
from ..strategies.values import from_record

# --- mutants ---
# Common mistakes in generalized advantages, each the reference below with one edit; and two other conventions.


Estimator = Callable[..., Tensor]


def backward_sum(slopes: Tensor, terms: Tensor) -> Tensor:
    """Return x_t = terms_t + slopes_t x_{t+1}, computed in a loop."""
    total, out = terms[0] * 0, []
    for t in reversed(range(len(terms))):
        total = terms[t] + slopes[t] * total
        out.append(total)
    return torch.stack(out[::-1])


def _parts(rewards: Tensor, values: Tensor, next_values: Tensor, terminated: Tensor, truncated: Tensor) -> list[Tensor]:
    lasting = (~terminated).to(values.dtype)
    inside = (~(terminated | truncated)).to(values.dtype)
    return [rewards, values, next_values, lasting, inside]


def _edited(
    errors: Callable[..., Tensor],
    slopes: Callable[[float, float, Tensor, Tensor], Tensor] = lambda gamma, lambda_, lasting, inside: (
        gamma * lambda_ * inside
    ),
) -> Estimator:
    """Return an estimator made from its temporal differences (r, v, v', lasting, inside, gamma) and its trace."""

    def gae(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
        rewards, values, next_values, lasting, inside = _parts(*columns)
        terms = errors(rewards, values, next_values, lasting, inside, gamma)
        return backward_sum(slopes(gamma, lambda_, lasting, inside), terms)

    return gae


def _td(r: Tensor, v: Tensor, after: Tensor, lasting: Tensor, inside: Tensor, gamma: float) -> Tensor:
    return r + gamma * lasting * after - v


reference = _edited(_td)
"""The definition, written as a loop."""


def _following(v: Tensor, after: Tensor) -> Tensor:
    return torch.cat([v[1:], after[-1:]])


def _shift(inside: Tensor) -> Tensor:
    return torch.cat([inside[1:], torch.ones_like(inside[-1:])])


def _twice(r: Tensor, v: Tensor, after: Tensor, lasting: Tensor, inside: Tensor, gamma: float) -> Tensor:
    return _td(r, v, after, lasting, inside, gamma) + gamma * lasting * (1 - inside) * after


bootstrap_twice = _edited(_twice)
truncation_terminates = _edited(lambda r, v, after, lasting, inside, gamma: r + gamma * inside * after - v)
reset_value = _edited(lambda r, v, after, lasting, inside, gamma: r + gamma * lasting * _following(v, after) - v)
past_termination = _edited(lambda r, v, after, lasting, inside, gamma: r + gamma * after - v)
discounted_twice = _edited(lambda r, v, after, lasting, inside, gamma: r + gamma * gamma * lasting * after - v)
endings_shifted = _edited(_td, lambda gamma, lambda_, lasting, inside: gamma * lambda_ * _shift(inside))
leaks = _edited(_td, lambda gamma, lambda_, lasting, inside: gamma * lambda_ * lasting)
trace_without_gamma = _edited(_td, lambda gamma, lambda_, lasting, inside: lambda_ * inside)
trace_without_lambda = _edited(_td, lambda gamma, lambda_, lasting, inside: gamma * inside)


def one_lambda_missing(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
    """Return r + gamma V'_t - v with V' the lambda-return of the next row, which has one lambda less than gae."""
    rewards, values, next_values, lasting, inside = _parts(*columns)
    targets = values + backward_sum(gamma * lambda_ * inside, _td(rewards, values, next_values, lasting, inside, gamma))
    following = torch.where(_shift(inside) * inside > 0, _following(targets, next_values), next_values)
    return rewards + gamma * lasting * torch.where(inside > 0, following, next_values) - values


def cuts_before_bad(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
    """Stop the trace before a step with a negative TD error: biased, unlike Watkins' stop before an exploring step."""
    rewards, values, next_values, lasting, inside = _parts(*columns)
    errors = _td(rewards, values, next_values, lasting, inside, gamma)
    good = torch.cat([(errors[1:] >= 0).to(errors.dtype), torch.ones_like(errors[-1:])])
    return backward_sum(gamma * lambda_ * inside * good, errors)


def normalised(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
    """Centre the advantages before returning them."""
    advantages = reference(*columns, gamma=gamma, lambda_=lambda_)
    return advantages - advantages.mean()


def clamped(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
    """Clamp the advantages to [-10, 10]."""
    return reference(*columns, gamma=gamma, lambda_=lambda_).clamp(-10.0, 10.0)


def time_reversed(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
    """Return the result of the backward loop in reversed order."""
    return reference(*columns, gamma=gamma, lambda_=lambda_).flip(0)


def late_baseline(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
    """Subtract the value of the next row as baseline: G_t - V of the state that action t led to."""
    return reference(*columns, gamma=gamma, lambda_=lambda_) + columns[1] - columns[2]


def drops_truncated(*columns: Tensor, gamma: float, lambda_: float) -> Tensor:
    """Give a truncated step no advantage: a convention, not a mistake."""
    rewards, values, next_values, lasting, inside = _parts(*columns)
    kept = (columns[3] | ~columns[4]).to(values.dtype)
    errors = kept * _td(rewards, values, next_values, lasting, inside, gamma)
    return backward_sum(gamma * lambda_ * inside, errors)


MUTANTS: dict[str, Estimator] = {
    "stops the trace before a bad step": cuts_before_bad,
    "takes a truncation for a termination": truncation_terminates,
    "bootstraps from the value of the reset observation": reset_value,
    "shifts the endings by one row": endings_shifted,
    "forgets lambda in the trace": trace_without_lambda,
    "gives the advantages in reversed order": time_reversed,
    "gives truncated steps no advantage": drops_truncated,
}


# --- definition ---
# Laws that define an advantage (E1, E2, E3, E7), under a convention on truncation.


PAPER = "Schulman et al. 2016, arXiv:1506.02438"
ENDS = ("a termination", "a truncation")


def advantages_of(estimator: Estimator, drawn: Discounted, stream: Stream | None = None) -> Tensor:
    """Return the estimator's advantages for a stream, with the drawn gamma and lambda."""
    return estimator(*(stream or drawn.stream).columns, gamma=drawn.gamma, lambda_=drawn.lambda_)


def td_errors(convention: str, stream: Stream, gamma: float) -> Tensor:
    """Return delta_t = r_t + gamma b_t v'_t - v_t, b the convention's bootstrap mask; 0 where it drops the step: [T]."""
    beyond = gamma * bootstraps(convention, stream.terminated, stream.truncated) * stream.next_values
    return (stream.rewards + beyond - stream.values) * kept_steps(convention, stream.terminated, stream.truncated)


law_of = law_constructor(st.nothing, PAPER, replaced=True, numeric=True)


def recursion(convention: str) -> Law:
    """Return law E1, the recursion of advantages."""

    def check(estimator: Estimator, drawn: Discounted, seen: Seen) -> None:
        stream, advantage, wanted = drawn.stream, torch.zeros(()), []
        events(stream, seen)
        errors = td_errors(convention, stream, drawn.gamma)
        for t in reversed(range(len(errors))):
            trace = 0.0 if bool(over(stream)[t]) else drawn.gamma * drawn.lambda_
            advantage = errors[t] + trace * advantage
            wanted.append(advantage)
        same("advantages", advantages_of(estimator, drawn), torch.stack(wanted[::-1]))

    return law_of(
        "recursion",
        "A_t = delta_t + gamma lambda (1 - ended_t) A_t+1.",
        ("forgets gamma in the trace", trace_without_gamma),
        check,
        *ENDS,
        inputs=streams_with_numbers(),
    )


def td_error(convention: str) -> Law:
    """Return law E2, the temporal difference at lambda 0."""

    def check(estimator: Estimator, drawn: Discounted, seen: Seen) -> None:
        events(drawn.stream, seen)
        seen("two rows of one episode", (~over(drawn.stream))[:-1].any() and drawn.gamma)
        same(
            "advantages at lambda 0", advantages_of(estimator, drawn), td_errors(convention, drawn.stream, drawn.gamma)
        )

    return law_of(
        "lambda_0_is_td_error",
        "At lambda 0 the advantage is the temporal difference delta_t.",
        ("adds a lambda-return where gae adds lambda times an advantage", one_lambda_missing),
        check,
        "two rows of one episode",
        *ENDS,
        inputs=streams_with_numbers(lambdas=(0.0,)),
    )


def monte_carlo_law(convention: str) -> Law:
    """Return law E3, the Monte Carlo return at lambda 1, computed without recursion."""

    def check(estimator: Estimator, drawn: Discounted, seen: Seen) -> None:
        stream = drawn.stream
        events(stream, seen)
        counts = bootstraps(convention, stream.terminated, stream.truncated)
        keeps = kept_steps(convention, stream.terminated, stream.truncated)
        wanted = []
        for t in range(len(stream.rewards)):
            last = last_of_episode(stream, t)
            # A dropped step ends the sum before it: its own value stands for the return from there on.
            rows = range(t, last + 1 if bool(keeps[last]) else last)
            total = sum((drawn.gamma ** (k - t) * stream.rewards[k] for k in rows), torch.zeros(()))
            if bool(keeps[last]):
                total = total + drawn.gamma ** (last + 1 - t) * counts[last] * stream.next_values[last]
            else:
                total = total + drawn.gamma ** (last - t) * stream.values[last]
            wanted.append(total - stream.values[t])
        same("advantages at lambda 1", advantages_of(estimator, drawn), torch.stack(wanted))

    return law_of(
        "lambda_1_is_monte_carlo",
        "At lambda 1 the advantage is the discounted sum to the episode's end, and the value beyond it, minus v_t.",
        ("adds the value beyond an ending twice", bootstrap_twice),
        check,
        *ENDS,
        inputs=streams_with_numbers(lambdas=(1.0,)),
    )


def value_beyond(convention: str) -> Law:
    """Return law E7, the effect of the value beyond an ending."""

    def check(estimator: Estimator, drawn: Discounted, seen: Seen) -> None:
        stream = drawn.stream
        events(stream, seen)
        before = advantages_of(estimator, drawn)
        counts = bootstraps(convention, stream.terminated, stream.truncated)
        counts = counts & kept_steps(convention, stream.terminated, stream.truncated)
        for t in range(len(before)):
            if bool(over(stream)[t]):
                raised = stream.next_values + (torch.arange(len(before)) == t)
                change = advantages_of(estimator, drawn, replace(stream, next_values=raised))[t] - before[t]
                wanted = drawn.gamma * counts[t].to(change.dtype)
                same(f"dA/dv' at the ending {t}", change, wanted)

    return law_of(
        "value_beyond_an_ending",
        "At a termination v'_t has no effect; at a truncation dA_t/dv'_t is gamma.",
        ("bootstraps past a termination", past_termination),
        check,
        *ENDS,
        inputs=streams_with_numbers(),
    )


# --- symmetries ---
# Laws of an advantage estimator that do not use its formula (E4, E5, E6, E8).


Twins = tuple[Discounted, Stream]


def cut_law(convention: str) -> Law:
    """Return law E4, the cut at endings."""

    """E4."""

    def check(estimator: Estimator, drawn: Discounted, seen: Seen) -> None:
        events(drawn.stream, seen)
        pieces = [advantages_of(estimator, drawn, episode) for episode in episodes(drawn.stream)]
        same("the whole against its episodes", advantages_of(estimator, drawn), torch.cat(pieces))

    return law_of(
        "cut_at_endings",
        "A stream gives what its episodes, cut apart, give alone.",
        ("lets advantages through a truncation", leaks),
        check,
        "an ending inside",
        "a truncation",
        inputs=streams_with_numbers(),
    )


@st.composite
def _disturbed(draw: DrawFn) -> tuple[Discounted, int, Stream]:
    drawn = draw(streams_with_numbers())
    length = len(drawn.stream.rewards)
    return drawn, draw(st.integers(0, length - 1)), draw(from_record(Stream, T=length))


def causal(convention: str) -> Law:
    """Return law E5, causality."""

    def check(estimator: Estimator, inputs: tuple[Discounted, int, Stream], seen: Seen) -> None:
        drawn, t, other = inputs
        rows, last = torch.arange(len(other.rewards)), last_of_episode(drawn.stream, t)
        seen("a row before", t > 0)
        seen("a row beyond the ending", last + 1 < len(rows))
        before = advantages_of(estimator, drawn)
        earlier = advantages_of(estimator, drawn, with_rows(drawn.stream, rows < t, other))
        same(f"A_{t} onwards, with other rows before {t}", earlier[t:], before[t:])
        later = advantages_of(
            estimator, drawn, with_rows(drawn.stream, (rows > last) & over(drawn.stream)[last], other)
        )
        same(f"A up to {last}, with other rows beyond", later[: last + 1], before[: last + 1])

    return law_of(
        "causal",
        "A_t ignores what came before t and what lies beyond its episode.",
        ("centres the advantages over the stream", normalised),
        check,
        "a row before",
        "a row beyond the ending",
        inputs=_disturbed(),
    )


@st.composite
def _twins(draw: DrawFn) -> Twins:
    """A discounted stream, and another whose episodes end at the same steps."""
    one, two = draw(twins())
    return Discounted(one, draw(st.sampled_from(FRACTIONS)), draw(st.sampled_from(FRACTIONS))), two


def linearity_law(convention: str) -> Law:
    """Return law E6, linearity."""

    def check(estimator: Estimator, inputs: tuple[Twins, float], seen: Seen) -> None:
        (drawn, two), factor = inputs
        one = drawn.stream
        floats = ("rewards", "values", "next_values")
        mixed = replace(one, **{name: getattr(one, name) + factor * getattr(two, name) for name in floats})
        parts = advantages_of(estimator, drawn, one) + factor * advantages_of(estimator, drawn, two)
        same(f"A of x + {factor} y", advantages_of(estimator, drawn, mixed), parts)

    inputs = st.tuples(_twins(), st.sampled_from((1.0, -1.0, 2.0)))
    return law_of(
        "linear",
        "Advantages are linear in rewards, values and next values together.",
        ("clamps advantages at 10", clamped),
        check,
        source="derived: a sum of temporal differences, each linear",
        inputs=inputs,
    )


def shaping(convention: str) -> Law:
    """Return law E8, invariance to reward shaping."""

    def check(estimator: Estimator, inputs: Twins, seen: Seen) -> None:
        drawn, potential = inputs
        stream = drawn.stream
        events(stream, seen)
        counts = bootstraps(convention, stream.terminated, stream.truncated)
        shaped = replace(
            stream,
            rewards=stream.rewards + drawn.gamma * counts * potential.next_values - potential.values,
            values=stream.values - potential.values,
            next_values=stream.next_values - potential.next_values,
        )
        same(
            "advantages after shaping", advantages_of(estimator, drawn, shaped), advantages_of(estimator, drawn, stream)
        )

    return law_of(
        "shaping",
        "Rewards shaped by a potential, and values less by it, leave every advantage as it was.",
        ("discounts the value twice", discounted_twice),
        check,
        *ENDS,
        source="derived from Ng, Harada and Russell 1999: the potential cancels in each temporal difference",
        inputs=_twins(),
    )


# --- exact ---
# Laws of advantage estimators against exact answers (E11, E12), without sampling.


def expected_advantage() -> Law:
    """Return law E11 for advantages: the expected advantage is Q - V."""

    def check(estimator: Callable[..., Tensor], problem: EstimatorCase, seen: Seen) -> None:
        mdp, policy, gamma = problem.mdp, problem.behaviour, problem.gamma
        all_ = histories(mdp, policy, problem.horizon, truncated_at=problem.truncated_at)
        exact_events(all_, seen)
        exact = values(mdp, policy, gamma)
        got = map_streams(
            lambda *c: estimator(*c, gamma=gamma, lambda_=problem.lambda_), *estimator_columns(all_, exact)
        )
        table, known = expectations(all_, got[0], tuple(policy.shape), all_.state[0], all_.action[0])
        wanted = action_values(mdp, policy, gamma) - exact[:, None]
        same("E[A | s, a] against Q - V", torch.where(known, table, wanted), wanted, arithmetic_of(got))

    return Law(
        numeric=True,
        name="expected_advantage",
        claim="With exact values the expected advantage of (s, a) is Q(s, a) - V(s), for every lambda.",
        source="Schulman et al. 2016, arXiv:1506.02438, section 3; by enumeration",
        inputs=always(problems()),
        check=check,
        mutant=Mutant("bootstraps from the value of the reset observation", lambda subject: reset_value),
        needs=("a termination", "a truncation", "chance"),
    )


def gradient_is_exact() -> Law:
    """Return law E12: the expected policy gradient is exact."""

    def check(estimator: Callable[..., Tensor], problem: EstimatorCase, seen: Seen) -> None:
        mdp, policy, gamma = problem.mdp, problem.policy, problem.gamma
        all_ = histories(mdp, policy, problem.horizon)
        inside = all_.first_episode
        seen("an episode of several steps", inside[1:].any())
        seen("a baseline that is not the value", problem.lambda_ == 1.0)
        baseline = problem.baseline if problem.lambda_ == 1.0 else values(mdp, policy, gamma)
        got = map_streams(
            lambda *c: estimator(*c, gamma=gamma, lambda_=problem.lambda_), *estimator_columns(all_, baseline)
        )
        discount = gamma ** torch.arange(problem.horizon, dtype=torch.float64)[:, None]
        weights = all_.probability * discount * got * inside

        def surrogate(logits: Tensor) -> Tensor:
            return (weights * logits.log_softmax(-1)[all_.state, all_.action]).sum()

        logits = logits_of(policy)
        exact = exact_policy_gradient(mdp, logits, gamma)
        same("the gradient", torch.func.grad(surrogate)(logits), exact, arithmetic_of(got))

    return Law(
        numeric=True,
        name="gradient_is_exact",
        claim="sum_t gamma^t A_t grad log pi, expected over all histories, is grad J: for any baseline at lambda 1, "
        "for the exact one below.",
        source="Sutton et al. 2000, policy gradient theorem; by enumeration, the gradient through the linear solve",
        inputs=always(ending_problems()),
        check=check,
        mutant=Mutant("subtracts the value of the row after for a baseline", lambda subject: late_baseline),
        needs=("an episode of several steps", "a baseline that is not the value"),
    )


# --- laws ---


def one_episode(inputs: Any) -> Any:
    """Return drawn inputs with each stream as one episode that terminates with its last row."""
    if isinstance(inputs, Stream):
        last = torch.arange(len(inputs.rewards)) == len(inputs.rewards) - 1
        following = torch.cat([inputs.values[1:], inputs.next_values[-1:]])
        return replace(inputs, terminated=last, truncated=torch.zeros_like(last), next_values=following)
    if isinstance(inputs, Discounted):
        return attrs.evolve(inputs, stream=one_episode(inputs.stream))
    return tuple(one_episode(one) for one in inputs) if isinstance(inputs, tuple) else inputs


ELSEWHERE = ("a truncation", "an ending inside", "a row beyond the ending")  # events that one episode does not have


def in_one_episode(law: Law) -> Law:
    """Return the law for streams of one episode."""
    needs = tuple(need for need in law.needs if need not in ELSEWHERE)
    return attrs.evolve(law, inputs=lambda subject: law.inputs(subject).map(one_episode), needs=needs)


def estimator_laws(convention: str = "bootstrap", *, one_episode: bool = False) -> Suite:
    """Return the laws of an advantage estimator under a convention on truncation: "bootstrap", "terminate" or "drop".

    "bootstrap" counts the value beyond a truncation, "terminate" counts it as 0, "drop" gives truncated steps advantage 0.
    Only the first is unbiased, so only its suite has the two laws against exact answers. `one_episode`: the estimator takes
    no endings, and is called for one episode, which terminates with its last row.
    Raises: ChoiceError.
    """
    if one_episode:
        alone = (recursion, td_error, monte_carlo_law, causal, linearity_law, shaping)
        return Suite("estimator_laws", tuple(in_one_episode(law("terminate")) for law in alone))
    bootstraps(convention, *(torch.zeros(1, dtype=torch.bool),) * 2)
    own = (recursion, td_error, monte_carlo_law, cut_law, causal, linearity_law, value_beyond, shaping)
    exact = (expected_advantage(), gradient_is_exact()) if convention == "bootstrap" else ()
    return Suite("estimator_laws", (*(law(convention) for law in own), *exact))
