"""A task of another kind in one file: twenty turns in which nothing is earned, and a reward on the last day alone.

    purestep train examples/text_market.py:MARKET --run runs/market --max-turns 20 --capacity 240 --max-new-tokens 4
    purestep resume runs/market --trust      # after Ctrl-C; --trust imports the task that the folder names
    purestep evaluate runs/market --trust
    purestep chat runs/market --trust --task 3

Each day has a price from 1 to 9, and the model says "buy" or "sell": who buys holds a piece until the next day. What is paid
on the last day is what was earned, as a share of what could have been.
"""

from itertools import pairwise

from attrs import evolve, frozen

from purestep.core import keys
from purestep.core.language.parsers import Parsed
from purestep.core.language.task import TextTask
from purestep.core.language.text_env import Outcome, TextEnv
from purestep.core.language.types import Rollout

DAYS, LOW, HIGH = 20, 1, 9
LABELS = ("rich", "poor", "ruined", "unfinished")


@frozen
class Market:
    """The prices of all days, and on which of those that are over a piece was held."""

    prices: tuple[int, ...]
    held: tuple[bool, ...] = ()

    @property
    def share(self) -> float:
        rises = [after - before for before, after in pairwise(self.prices)]
        earned = sum(rise for rise, held in zip(rises, self.held, strict=False) if held)
        return earned / max(1, sum(rise for rise in rises if rise > 0))


def reset(params: tuple[()], key: keys.Key) -> tuple[Market, str]:
    market = Market(tuple(keys.randint(key, (DAYS,), LOW, HIGH + 1).tolist()))
    return market, f"price {market.prices[0]}"


def step(params: tuple[()], market: Market, action: str, key: keys.Key) -> tuple[Market, Outcome]:
    after = evolve(market, held=(*market.held, action == "buy"))
    if len(after.held) == DAYS:
        return after, Outcome(reward=after.share, terminated=True)
    return after, Outcome(f"price {after.prices[len(after.held)]}")


def parser(text: str) -> Parsed:
    word = text.strip().lower()
    return Parsed(word) if word in ("buy", "sell") else Parsed((), 0.0, "buy or sell?")


def demonstrated(params: tuple[()], market: Market, key: keys.Key, skill: float) -> list[str]:
    trader = float(keys.uniform(key, ())) < skill  # a novice buys every day
    return ["sell" if trader and price > (LOW + HIGH) / 2 else "buy" for price in market.prices]


def label(attempt: Rollout[Market]) -> str:
    share = attempt.episode.world.share
    return "unfinished" if len(attempt.episode.world.held) < DAYS else LABELS[(share < 0.5) + (share <= 0)]


MARKET = TextTask(
    name="market",
    env=lambda stream: TextEnv((), reset, step),
    parser=parser,
    instructions='Each day has a price from 1 to 9. Say "buy" or "sell".',
    figures={
        "accuracy": lambda attempt: label(attempt) == "rich",
        "days_held": lambda attempt: sum(attempt.episode.world.held),
    },
    label=label,
    labels=LABELS,
    demonstrations=demonstrated,
    solution=lambda market: " ".join("sell" if price > (LOW + HIGH) / 2 else "buy" for price in market.prices),
)
