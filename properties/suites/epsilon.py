"""Laws of epsilon-greedy actions. The subject is f(values [N, A], epsilon) -> actions [N], drawn by torch's global generator.

>>> from purestep.properties import epsilon_laws, verify
>>> def among_the_others(values, epsilon):  # a random action is never the best one
...     best = values.argmax(-1)
...     other = (best + torch.randint(1, values.shape[-1], best.shape)) % values.shape[-1]
...     return torch.where(torch.rand(best.shape) < epsilon, other, best)
>>> verify(epsilon_laws(), among_the_others)["shares"].outcome
'broken'
"""

from collections.abc import Callable

import torch
from attrs import frozen
from hypothesis import strategies as st
from torch import Tensor

from ...core.distributions import illegal
from ..framework.compare import require
from ..framework.law import Law, Seen, Suite, law_constructor
from ..strategies.values import seeds

Actor = Callable[[Tensor, float], Tensor]
SOURCE = "Sutton and Barto 2018, section 2.2: greedy, but with probability epsilon any action, each equally likely"
SAMPLES = 4096
DEVIATIONS = 5.0  # of a share from its expectation that chance explains

# --- mutants ---


def always_random(actor: Actor) -> Actor:
    """Take random actions with twice the probability."""
    return lambda values, epsilon: actor(values, min(1.0, 2.0 * epsilon))


def never_random(actor: Actor) -> Actor:
    """Take the best action alone."""
    return lambda values, epsilon: actor(values, 0.0)


def one_draw_for_all(actor: Actor) -> Actor:
    """Draw once for all rows."""
    return lambda values, epsilon: torch.where(
        torch.rand(()) < epsilon, torch.randint(values.shape[-1], values.shape[:1]), values.argmax(-1)
    )


def never_greedy(actor: Actor) -> Actor:
    """Take one action of a hundred at random, even with epsilon 0."""
    return lambda values, epsilon: actor(values, max(epsilon, 0.01))


def forgets_legal(actor: Actor) -> Actor:
    """Draw random actions among all, the illegal ones too."""

    def wrong(values: Tensor, epsilon: float) -> Tensor:
        some = torch.rand(values.shape[:1]) < epsilon
        return torch.where(some, torch.randint(values.shape[-1], values.shape[:1]), values.argmax(-1))

    return wrong


# --- laws ---


@frozen
class Values:
    """The values [A] of actions, one of them the best, an epsilon, and the seed of a draw."""

    values: Tensor
    epsilon: float
    seed: int


@st.composite
def _values(draw: st.DrawFn) -> Values:
    count = draw(st.sampled_from((3, 2, 5)))
    order = draw(st.permutations(range(count)))
    return Values(
        torch.tensor(order, dtype=torch.float32), draw(st.sampled_from((0.5, 0.125, 0.25, 1.0))), draw(seeds())
    )


_law = law_constructor(_values, SOURCE, most=60)


def epsilon_laws(*, masked: bool = False) -> Suite:
    """Return the laws of f(values [N, A], epsilon) -> actions [N]; the global generator is seeded and restored.

    `masked`: an action with a value of half the lowest float is illegal, and is never taken.

    >>> from purestep.core import keys
    >>> from purestep.core.distributions import EpsilonGreedy
    >>> from purestep.properties import verify
    >>> def ours(values, epsilon):
    ...     key = keys.split(keys.key(int(torch.randint(1 << 30, ()))), len(values))
    ...     return EpsilonGreedy(values=values, epsilon=torch.full(values.shape[:1], epsilon)).sample(key)
    >>> bool(verify(epsilon_laws(masked=True), ours))
    True
    """
    return Suite("epsilon_laws", (_greedy(), _shares(), _independent(), *([_legal()] if masked else [])))


def _actions(actor: Actor, values: Tensor, epsilon: float, seed: int) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        actions = actor(values.expand(SAMPLES, -1).clone(), epsilon)
    require(list(actions.shape) == [SAMPLES], f"actions are {list(actions.shape)}, wanted [{SAMPLES}]")
    require(((actions >= 0) & (actions < len(values))).all(), f"an action is not one of 0..{len(values) - 1}")
    return actions


def _near(what: str, got: Tensor, share: float) -> None:
    allowed = DEVIATIONS * (share * (1.0 - share) / SAMPLES) ** 0.5 + 1e-9
    require(abs(float(got) - share) <= allowed, f"{what} is {float(got):.4f}, wanted {share:.4f} +- {allowed:.4f}")


def _greedy() -> Law:
    def check(actor: Actor, drawn: Values, seen: Seen) -> None:
        got = _actions(actor, drawn.values, 0.0, drawn.seed)
        require(
            (got == drawn.values.argmax()).all(),
            f"with epsilon 0 the actions are {got.tolist()} of {drawn.values.tolist()}",
        )

    return _law(
        "greedy", "With epsilon 0 the best action is taken.", ("explores with epsilon 0, too", never_greedy), check
    )


def _shares() -> Law:
    def check(actor: Actor, drawn: Values, seen: Seen) -> None:
        seen("an epsilon below 1", drawn.epsilon < 1.0)
        got = _actions(actor, drawn.values, drawn.epsilon, drawn.seed)
        best, count = int(drawn.values.argmax()), len(drawn.values)
        for action in range(count):
            share = drawn.epsilon / count + (1.0 - drawn.epsilon) * (action == best)
            _near(f"the share of action {action} of {drawn.values.tolist()}", (got == action).float().mean(), share)

    claim = "The best action is taken with probability 1 - epsilon + epsilon / A, each other with epsilon / A."
    return _law("shares", claim, ("explores twice as often", always_random), check, "an epsilon below 1")


def _independent() -> Law:
    def check(actor: Actor, drawn: Values, seen: Seen) -> None:
        got = _actions(actor, drawn.values, drawn.epsilon, drawn.seed) == drawn.values.argmax()
        count = len(drawn.values)
        chance = 1.0 - drawn.epsilon + drawn.epsilon / count
        seen("a chance that is no certainty", chance < 1.0)
        both = (got[0::2] & got[1::2]).float().mean()
        allowed = DEVIATIONS * (chance * chance * (1.0 - chance * chance) / (SAMPLES // 2)) ** 0.5 + 1e-9
        found = f"two neighbours both take the best action in {float(both):.4f} of all pairs"
        require(
            abs(float(both) - chance * chance) <= allowed, f"{found}, wanted {chance * chance:.4f} +- {allowed:.4f}"
        )

    mutant = ("draws once for all rows", one_draw_for_all)
    return _law("rows_independent", "Each row draws by itself.", mutant, check, "a chance that is no certainty")


def _legal() -> Law:
    def check(actor: Actor, drawn: Values, seen: Seen) -> None:
        forbidden = int(drawn.values.argmin())
        seen("two legal actions", len(drawn.values) > 2)
        values = drawn.values.clone()
        values[forbidden] = illegal(values.dtype)
        got = _actions(actor, values, 1.0, drawn.seed)
        require((got != forbidden).all(), f"the illegal action {forbidden} is taken")
        for action in set(range(len(values))) - {forbidden}:
            share = 1.0 / (len(values) - 1)
            _near(f"the share of the legal action {action}", (got == action).float().mean(), share)

    claim = "An illegal action is never taken, and the legal ones are equally likely with epsilon 1."
    return _law("legal", claim, ("draws among illegal actions", forgets_legal), check, "two legal actions")


MUTANTS: dict[str, Callable[[Actor], Actor]] = {"never explores": never_random}
