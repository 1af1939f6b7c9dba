"""Laws of an advantage estimator that need not know its formula (E4, E5, E6, E8)."""

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from ...core.record import replace
from ..framework.compare import same
from ..framework.law import Law, Seen
from ..strategies.streams import (
    FRACTIONS,
    Discounted,
    Stream,
    bootstraps,
    discounted,
    episodes,
    events,
    last_of_episode,
    over,
    twins,
    with_rows,
)
from ..strategies.values import from_record
from . import estimator_mutants as mutants
from .estimator_definition import ENDS, Estimator, judge, law_of

Twins = tuple[Discounted, Stream]


def cut(convention: str) -> Law:
    """E4."""

    """E4."""

    def check(estimator: Estimator, drawn: Discounted, seen: Seen) -> None:
        events(drawn.stream, seen)
        pieces = [judge(estimator, drawn, episode) for episode in episodes(drawn.stream)]
        same("the whole against its episodes", judge(estimator, drawn), torch.cat(pieces))

    return law_of(
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


def causal(convention: str) -> Law:
    """E5."""

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

    return law_of(
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


def linear(convention: str) -> Law:
    """E6."""

    def check(estimator: Estimator, inputs: tuple[Twins, float], seen: Seen) -> None:
        (drawn, two), factor = inputs
        one = drawn.stream
        floats = ("rewards", "values", "next_values")
        mixed = replace(one, **{name: getattr(one, name) + factor * getattr(two, name) for name in floats})
        parts = judge(estimator, drawn, one) + factor * judge(estimator, drawn, two)
        same(f"A of x + {factor} y", judge(estimator, drawn, mixed), parts)

    inputs = st.tuples(_twins(), st.sampled_from((1.0, -1.0, 2.0)))
    return law_of(
        "linear",
        "Advantages are linear in rewards, values and next values together.",
        ("clamps advantages at 10", mutants.clamped),
        inputs,
        check,
        source="derived: a sum of temporal differences, each linear",
    )


def shaping(convention: str) -> Law:
    """E8."""

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

    return law_of(
        "shaping",
        "Rewards shaped by a potential, and values less by it, leave every advantage as it was.",
        ("discounts the value twice", mutants.discounted_twice),
        _twins(),
        check,
        *ENDS,
        source="derived from Ng, Harada and Russell 1999: the potential cancels in each temporal difference",
    )
