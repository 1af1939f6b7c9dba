"""Laws of advantage estimators (E1 to E8, E11, E12).

The subject: f(rewards, values, next_values, terminated, truncated, *, gamma, lambda_) -> advantages, all [T]. On drawn
values (multiples of 1/4, gamma and lambda 0, 1/2 or 1) every law but the last two asks for equal bits.
"""

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from torch import Tensor

from ..core.record import replace
from . import estimator_mutants as mutants
from .compare import same
from .exact_laws import expected_advantage, gradient_is_exact
from .law import Law, Mutant, Seen, Suite, always
from .step_laws import step_laws
from .strategies import LENGTHS, dyadic, flags, from_record
from .streams import (
    FRACTIONS,
    Discounted,
    Stream,
    bootstraps,
    discounted,
    episodes,
    events,
    kept,
    last_of_episode,
    over,
    twins,
    with_rows,
)

Estimator = Callable[..., Tensor]
Twins = tuple[Discounted, Stream]
PAPER = "Schulman et al. 2016, arXiv:1506.02438"
ENDS = ("a termination", "a truncation")


def estimator_laws(convention: str = "bootstrap") -> Suite:
    """The laws of an advantage estimator under a convention on truncation: "bootstrap", "terminate" or "drop".

    "bootstrap" counts the value beyond a truncation, "terminate" takes it for 0, "drop" gives truncated steps advantage 0.
    Only the first is unbiased, so only its suite has the two laws against exact answers.
    Raises: ChoiceError.
    """
    bootstraps(convention, *(torch.zeros(1, dtype=torch.bool),) * 2)
    own = (_recursion, _td_error, _monte_carlo, _cut, _causal, _linear, _value_beyond, _shaping)
    exact = (expected_advantage(), gradient_is_exact()) if convention == "bootstrap" else ()
    return Suite("estimator_laws", (*(law(convention) for law in own), *exact))


def estimator_step_laws(columns: int = 1) -> Suite:
    """The laws of every step, for an estimator of `columns` streams side by side; shapes from the usual buckets."""

    def arguments(length: int) -> SearchStrategy[tuple[Tensor, ...]]:
        shape = (length,) if columns == 1 else (length, columns)
        return st.tuples(dyadic(shape), dyadic(shape), dyadic(shape), flags(shape), flags(shape))

    return step_laws([arguments(length) for length in LENGTHS])


def judge(estimator: Estimator, drawn: Discounted, stream: Stream | None = None) -> Tensor:
    """What the estimator gives for a stream, under the drawn gamma and lambda."""
    return estimator(*(stream or drawn.stream).columns, gamma=drawn.gamma, lambda_=drawn.lambda_)


def td_errors(convention: str, stream: Stream, gamma: float) -> Tensor:
    """delta_t = r_t + gamma b_t v'_t - v_t, b the convention's bootstrap mask; 0 where it drops the step: [T]."""
    beyond = gamma * bootstraps(convention, stream.terminated, stream.truncated) * stream.next_values
    return (stream.rewards + beyond - stream.values) * kept(convention, stream.terminated, stream.truncated)


def _law(
    name: str,
    claim: str,
    mutant: tuple[str, Estimator],
    inputs: SearchStrategy[Any],
    check: Callable[[Estimator, Any, Seen], None],
    *needs: str,
    source: str = PAPER,
) -> Law:
    edited = mutant[1]
    return Law(
        name=name,
        claim=claim,
        source=source,
        inputs=always(inputs),
        check=check,
        mutant=Mutant(mutant[0], lambda subject: edited),
        needs=needs,
    )


def _recursion(convention: str) -> Law:
    def check(estimator: Estimator, drawn: Discounted, seen: Seen) -> None:
        stream, advantage, wanted = drawn.stream, torch.zeros(()), []
        events(stream, seen)
        errors = td_errors(convention, stream, drawn.gamma)
        for t in reversed(range(len(errors))):
            trace = 0.0 if bool(over(stream)[t]) else drawn.gamma * drawn.lambda_
            advantage = errors[t] + trace * advantage
            wanted.append(advantage)
        same("advantages", judge(estimator, drawn), torch.stack(wanted[::-1]))

    return _law(
        "recursion",
        "A_t = delta_t + gamma lambda (1 - ended_t) A_t+1.",
        ("forgets gamma in the trace", mutants.trace_without_gamma),
        discounted(),
        check,
        *ENDS,
    )


def _td_error(convention: str) -> Law:
    def check(estimator: Estimator, drawn: Discounted, seen: Seen) -> None:
        events(drawn.stream, seen)
        seen("two rows of one episode", (~over(drawn.stream))[:-1].any() and drawn.gamma)
        same("advantages at lambda 0", judge(estimator, drawn), td_errors(convention, drawn.stream, drawn.gamma))

    return _law(
        "lambda_0_is_td_error",
        "At lambda 0 the advantage is the temporal difference delta_t.",
        ("adds a lambda-return where gae adds lambda times an advantage", mutants.one_lambda_missing),
        discounted(lambdas=(0.0,)),
        check,
        "two rows of one episode",
        *ENDS,
    )


def _monte_carlo(convention: str) -> Law:
    def check(estimator: Estimator, drawn: Discounted, seen: Seen) -> None:
        stream = drawn.stream
        events(stream, seen)
        counts = bootstraps(convention, stream.terminated, stream.truncated)
        keeps = kept(convention, stream.terminated, stream.truncated)
        wanted = []
        for t in range(len(stream.rewards)):
            last = last_of_episode(stream, t)
            # A dropped step ends the sum before it: what it would have led to is worth the value it had.
            rows = range(t, last + 1 if bool(keeps[last]) else last)
            total = sum((drawn.gamma ** (k - t) * stream.rewards[k] for k in rows), torch.zeros(()))
            if bool(keeps[last]):
                total = total + drawn.gamma ** (last + 1 - t) * counts[last] * stream.next_values[last]
            else:
                total = total + drawn.gamma ** (last - t) * stream.values[last]
            wanted.append(total - stream.values[t])
        same("advantages at lambda 1", judge(estimator, drawn), torch.stack(wanted))

    return _law(
        "lambda_1_is_monte_carlo",
        "At lambda 1 the advantage is the discounted sum to the episode's end, and the value beyond it, minus v_t.",
        ("adds the value beyond an ending twice", mutants.bootstrap_twice),
        discounted(lambdas=(1.0,)),
        check,
        *ENDS,
    )


def _cut(convention: str) -> Law:
    def check(estimator: Estimator, drawn: Discounted, seen: Seen) -> None:
        events(drawn.stream, seen)
        pieces = [judge(estimator, drawn, episode) for episode in episodes(drawn.stream)]
        same("the whole against its episodes", judge(estimator, drawn), torch.cat(pieces))

    return _law(
        "cut_at_endings",
        "A stream gives what its episodes, cut apart, give alone.",
        ("lets advantages through a truncation", mutants.leaks),
        discounted(),
        check,
        "an ending inside",
        "a truncation",
    )


@st.composite
def _disturbed(draw: DrawFn) -> tuple[Discounted, int, Stream]:
    drawn = draw(discounted())
    length = len(drawn.stream.rewards)
    return drawn, draw(st.integers(0, length - 1)), draw(from_record(Stream, T=length))


def _causal(convention: str) -> Law:
    def check(estimator: Estimator, inputs: tuple[Discounted, int, Stream], seen: Seen) -> None:
        drawn, t, other = inputs
        rows, last = torch.arange(len(other.rewards)), last_of_episode(drawn.stream, t)
        seen("a row before", t > 0)
        seen("a row beyond the ending", last + 1 < len(rows))
        before = judge(estimator, drawn)
        earlier = judge(estimator, drawn, with_rows(drawn.stream, rows < t, other))
        same(f"A_{t} onwards, with other rows before {t}", earlier[t:], before[t:])
        later = judge(estimator, drawn, with_rows(drawn.stream, (rows > last) & over(drawn.stream)[last], other))
        same(f"A up to {last}, with other rows beyond", later[: last + 1], before[: last + 1])

    return _law(
        "causal",
        "A_t ignores what came before t and what lies beyond its episode.",
        ("centres the advantages over the stream", mutants.normalised),
        _disturbed(),
        check,
        "a row before",
        "a row beyond the ending",
    )


@st.composite
def _twins(draw: DrawFn) -> Twins:
    """A discounted stream, and another whose episodes end at the same steps."""
    one, two = draw(twins())
    return Discounted(one, draw(st.sampled_from(FRACTIONS)), draw(st.sampled_from(FRACTIONS))), two


def _linear(convention: str) -> Law:
    def check(estimator: Estimator, inputs: tuple[Twins, float], seen: Seen) -> None:
        (drawn, two), factor = inputs
        one = drawn.stream
        floats = ("rewards", "values", "next_values")
        mixed = replace(one, **{name: getattr(one, name) + factor * getattr(two, name) for name in floats})
        parts = judge(estimator, drawn, one) + factor * judge(estimator, drawn, two)
        same(f"A of x + {factor} y", judge(estimator, drawn, mixed), parts)

    inputs = st.tuples(_twins(), st.sampled_from((1.0, -1.0, 2.0)))
    return _law(
        "linear",
        "Advantages are linear in rewards, values and next values together.",
        ("clamps advantages at 10", mutants.clamped),
        inputs,
        check,
        source="derived: a sum of temporal differences, each linear",
    )


def _value_beyond(convention: str) -> Law:
    def check(estimator: Estimator, drawn: Discounted, seen: Seen) -> None:
        stream = drawn.stream
        events(stream, seen)
        before = judge(estimator, drawn)
        counts = bootstraps(convention, stream.terminated, stream.truncated)
        counts = counts & kept(convention, stream.terminated, stream.truncated)
        for t in range(len(before)):
            if bool(over(stream)[t]):
                raised = stream.next_values + (torch.arange(len(before)) == t)
                change = judge(estimator, drawn, replace(stream, next_values=raised))[t] - before[t]
                wanted = drawn.gamma * counts[t].to(change.dtype)
                same(f"dA/dv' at the ending {t}", change, wanted)

    return _law(
        "value_beyond_an_ending",
        "At a termination v'_t has no effect; at a truncation dA_t/dv'_t is gamma.",
        ("bootstraps past a termination", mutants.past_termination),
        discounted(),
        check,
        *ENDS,
    )


def _shaping(convention: str) -> Law:
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
        same("advantages after shaping", judge(estimator, drawn, shaped), judge(estimator, drawn, stream))

    return _law(
        "shaping",
        "Rewards shaped by a potential, and values less by it, leave every advantage as it was.",
        ("discounts the value twice", mutants.discounted_twice),
        _twins(),
        check,
        *ENDS,
        source="derived from Ng, Harada and Russell 1999: the potential cancels in each temporal difference",
    )
