"""Laws of targets of values: TD(0), the maximum of Q (DQN), double Q, the smaller of two, reward-to-go, and n-step returns.

`target_laws(kind)` for plain functions of tensors [N], with Q of all actions [N, A] for "max" and "double":

    "td"            f(rewards, next_values, terminated, truncated, *, gamma)
    "max"           f(rewards, next_q, terminated, truncated, *, gamma)
    "double"        f(rewards, next_q_online, next_q_target, terminated, truncated, *, gamma)
    "min"           f(rewards, next_q1, next_q2, terminated, truncated, *, gamma), of the sampled action
    "reward_to_go"  f(rewards, terminated, truncated, *, gamma), one stream [T], without a value at its end

`n_step_laws()` is for f(rewards, next_values, terminated, truncated, *, gamma, n) of one stream [T]. Lambda-returns have
`lambda_return_laws`.

    test_mine = check(target_laws("double", endings="terminated"), my_double_q)

>>> from purestep.properties import target_laws, verify
>>> def dqn(rewards: Tensor, next_q: Tensor, terminated: Tensor, truncated: Tensor, *, gamma: float) -> Tensor:
...     return rewards + gamma * next_q.max(-1).values * ~(terminated | truncated)
>>> verify(target_laws("max"), dqn)["truncation_bootstraps"].outcome
'broken'
"""

from collections.abc import Callable
from typing import Any

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from torch import Tensor

from ...core.errors import ChoiceError, choose, message
from ...core.record import replace
from ..framework.compare import require, same
from ..framework.law import Law, Seen, Suite, law_constructor
from ..strategies.streams import FRACTIONS, Stream, bootstraps, episodes, events, last_of_episode, streams
from ..strategies.values import dyadic, flags

Target = Callable[..., Tensor]

# --- mutants ---
# Common mistakes in targets: each wraps a correct one, called with columns (rewards, ..., endings) and gamma.


def past_termination(target: Target) -> Target:
    """Bootstrap past a termination."""
    return lambda *columns, **named: target(*columns[:-1], torch.zeros_like(columns[-1]), **named)


def past_both(target: Target) -> Target:
    """Bootstrap past a termination, where a truncation follows as last column."""
    return lambda *columns, **named: target(*columns[:-2], torch.zeros_like(columns[-2]), columns[-1], **named)


def truncation_ends(target: Target) -> Target:
    """Take a truncation for a termination."""
    return lambda *columns, **named: target(*columns[:-2], columns[-2] | columns[-1], columns[-1], **named)


def discounts_reward(target: Target) -> Target:
    """Discount the reward too: gamma (r + v')."""
    return lambda rewards, *columns, gamma: target(gamma * rewards, *columns, gamma=gamma)


def clamps(target: Target) -> Target:
    """Clamp the targets to [-5, 5]."""
    return lambda *columns, **named: target(*columns, **named).clamp(-5.0, 5.0)


def not_double(target: Target) -> Target:
    """Choose and evaluate with the target network: DQN."""
    return lambda rewards, online, goal, *ends, gamma: target(rewards, goal, goal, *ends, gamma=gamma)


def first_of_two(target: Target) -> Target:
    """Take the first of two Q-functions."""
    return lambda rewards, first, second, *ends, gamma: target(rewards, first, first, *ends, gamma=gamma)


def mean_of_actions(target: Target) -> Target:
    """Take the mean of Q over actions."""
    return lambda rewards, q, *ends, gamma: target(rewards, q.mean(-1, keepdim=True).expand_as(q), *ends, gamma=gamma)


def best_of_batch(target: Target) -> Target:
    """Take the maximum over the batch as well."""

    def wrong(rewards: Tensor, *columns: Tensor, gamma: float) -> Tensor:
        found = target(rewards, *columns, gamma=gamma)
        return found if len(found) == 1 else found + 0.5 * (found.amax() - found)

    return wrong


def attached(target: Target) -> Target:
    """Leave a gradient in the next values."""
    return lambda *columns, **named: target(*columns, **named) + (columns[1] - columns[1].detach()).sum()


def whole_return(target: Target) -> Target:
    """Give all steps the return of the whole stream."""
    return lambda rewards, *ends, gamma: target(rewards, *ends, gamma=gamma)[:1].expand_as(rewards)


def discounts_from_start(target: Target) -> Target:
    """Discount by the time since the start of the stream: gamma^t G_t."""
    return lambda rewards, *ends, gamma: (
        target(rewards, *ends, gamma=gamma) * torch.tensor([gamma**t for t in range(len(rewards))])
    )


def next_episode_leaks(target: Target) -> Target:
    """Add rewards of the next episode."""
    return lambda rewards, *ends, gamma: target(rewards, *[torch.zeros_like(end) for end in ends], gamma=gamma)


def one_step_more(target: Target) -> Target:
    """Sum n + 1 rewards."""
    return lambda *columns, gamma, n: target(*columns, gamma=gamma, n=n + 1)


def own_next_value(target: Target) -> Target:
    """Bootstrap from the first step's next value, whatever n is."""

    def wrong(rewards: Tensor, next_values: Tensor, *ends: Tensor, gamma: float, n: int) -> Tensor:
        without = target(rewards, torch.zeros_like(next_values), *ends, gamma=gamma, n=n)
        weight = target(torch.zeros_like(rewards), torch.ones_like(next_values), *ends, gamma=gamma, n=n)
        return without + weight * next_values

    return wrong


def one_gamma(target: Target) -> Target:
    """Multiply the value by gamma once, not n times."""

    def wrong(rewards: Tensor, next_values: Tensor, *ends: Tensor, gamma: float, n: int) -> Tensor:
        without = target(rewards, torch.zeros_like(next_values), *ends, gamma=gamma, n=n)
        value = target(torch.zeros_like(rewards), next_values, *ends, gamma=1.0, n=n)
        return without + gamma * value

    return wrong


def over_endings(target: Target) -> Target:
    """Sum over the end of an episode."""

    def wrong(rewards: Tensor, next_values: Tensor, terminated: Tensor, truncated: Tensor, **named: Any) -> Tensor:
        none = torch.zeros_like(terminated)
        return target(rewards, next_values, terminated & none, truncated & none, **named)

    return wrong


def stops_early(target: Target) -> Target:
    """Stop at two rewards."""
    return lambda *columns, gamma, n: target(*columns, gamma=gamma, n=min(n, 2))


MUTANTS: dict[str, Callable[[Target], Target]] = {"clamps the targets": clamps}

# --- one step ---

KINDS = ("td", "max", "double", "min", "reward_to_go")
ENDINGS = ("both", "terminated", "none")
SOURCE = "Sutton and Barto 2018; Mnih et al. 2015; van Hasselt et al. 2015, arXiv:1509.06461; Fujimoto et al. 2018"


@attrs.frozen
class Rows:
    """Rewards [N], two tables of Q [N, A], endings [N], and gamma."""

    rewards: Tensor
    first: Tensor
    second: Tensor
    terminated: Tensor
    truncated: Tensor
    gamma: float


@st.composite
def action_rows(draw: DrawFn) -> Rows:
    """Up to four rows of three actions, in multiples of 1/4."""
    count = draw(st.sampled_from((4, 3, 1)))
    first, second = draw(dyadic((count, 3))), draw(dyadic((count, 3)))
    terminated, truncated = draw(flags((count,))), draw(flags((count,)))
    return Rows(draw(dyadic((count,))), first, second, terminated, truncated, draw(st.sampled_from(FRACTIONS)))


@attrs.frozen
class TargetClaims:
    """Arguments of `target_laws`."""

    kind: str
    endings: str
    truncation: str

    def ask(self, target: Target, drawn: Rows, **changes: Any) -> Tensor:
        """Return the subject's targets."""
        d = attrs.evolve(drawn, **changes)
        return target(d.rewards, *self.values(d), *self.ends(d), gamma=d.gamma)

    def values(self, d: Rows) -> tuple[Tensor, ...]:
        """Return the columns of next values."""
        tables = {"td": (d.first[:, 0],), "max": (d.first,), "double": (d.first, d.second)}
        return tables.get(self.kind, (d.first[:, 0], d.second[:, 0]))

    def ends(self, d: Any) -> tuple[Tensor, ...]:
        """Return the columns of endings."""
        over = d.terminated | d.truncated if self.truncation == "terminate" else d.terminated
        return {"both": (d.terminated, d.truncated), "terminated": (over,), "none": ()}[self.endings]

    def next_value(self, d: Rows) -> Tensor:
        """Return the value of the next state."""
        rows_ = torch.arange(len(d.rewards))
        return {
            "td": d.first[:, 0],
            "max": d.first.amax(-1),
            "double": d.second[rows_, d.first.argmax(-1)],
            "min": torch.minimum(d.first[:, 0], d.second[:, 0]),
        }[self.kind]

    def wanted(self, d: Rows) -> Tensor:
        """Return r + gamma b v'."""
        return d.rewards + d.gamma * bootstraps(self.truncation, d.terminated, d.truncated) * self.next_value(d)


def target_laws(
    kind: str = "td", *, endings: str = "both", truncation: str = "bootstrap", detached: bool = False
) -> Suite:
    """Return the laws of targets of one kind: td, max, double, min or reward_to_go (see the module).

    `endings` are the columns that the function takes: "both" terminated and truncated, "terminated" alone, or "none"
    (reward_to_go of one episode). `truncation` "bootstrap" or "terminate": the value after a truncation counts, or not.
    `detached`: next values get no gradient, as targets should; else nobody asks. Raises: ChoiceError.
    """
    for name, got, known in (("kind", kind, KINDS), ("endings", endings, ENDINGS)):
        choose(f"target_laws: {name}", got, dict.fromkeys(known, 0))
    if truncation not in ("bootstrap", "terminate") or (endings == "none" and kind != "reward_to_go"):
        wanted, remedy = "bootstrap or terminate, and endings", "say what an end means"
        raise ChoiceError(message("target_laws", got=(truncation, endings), wanted=wanted, remedy=remedy))
    how = TargetClaims(kind, endings, truncation)
    if kind == "reward_to_go":
        own = () if endings == "none" else (_own_episode(how),)
        return Suite("target_laws", (_sum_of_rest(how), _at_start(how), _linear(how), *own))
    laws = [_definition(how), _termination(how), _own_row(how)]
    laws += [_truncation(how)] if endings == "both" else []
    laws += [_choice(how)] if kind != "td" else []
    laws += [_detached(how)] if detached else []
    return Suite("target_laws", tuple(laws))


_law = law_constructor(action_rows, SOURCE, numeric=True)


def _definition(how: TargetClaims) -> Law:
    def check(target: Target, drawn: Rows, seen: Seen) -> None:
        seen("a value that counts", bool((how.wanted(drawn) != drawn.rewards).any()))
        seen("gamma 1/2", drawn.gamma == 0.5)
        same("targets", how.ask(target, drawn), how.wanted(drawn))

    claim = "The target is r + gamma v', v' 0 after a termination."
    mutant = ("discounts the reward too", discounts_reward)
    return _law("definition", claim, mutant, check, "a value that counts", "gamma 1/2")


def _termination(how: TargetClaims) -> Law:
    def check(target: Target, drawn: Rows, seen: Seen) -> None:
        over = ~bootstraps(how.truncation, drawn.terminated, drawn.truncated).bool()
        seen("a termination", bool(over.any()) and drawn.gamma > 0)
        far = [torch.where(over[:, None], 1000.0, table) for table in (drawn.first, drawn.second)]
        same("targets", how.ask(target, drawn, first=far[0], second=far[1]), how.ask(target, drawn))

    claim = "What lies beyond a termination has no effect."
    wrong = past_both if how.endings == "both" else past_termination
    return _law("termination_ends", claim, ("bootstraps past a termination", wrong), check, "a termination")


def _truncation(how: TargetClaims) -> Law:
    def check(target: Target, drawn: Rows, seen: Seen) -> None:
        cut = drawn.truncated & ~drawn.terminated
        seen("a truncation", bool(cut.any()) and drawn.gamma > 0)
        higher = [torch.where(cut[:, None], table + 4.0, table) for table in (drawn.first, drawn.second)]
        got = how.ask(target, drawn, first=higher[0], second=higher[1]) - how.ask(target, drawn)
        counts = drawn.gamma * 4.0 if how.truncation == "bootstrap" else 0.0
        same("the change of targets, for 4 more beyond", got, torch.where(cut, counts, 0.0))

    claim = "Beyond a truncation the value counts." if how.truncation == "bootstrap" else "A truncation is an end."
    mutant = ("takes a truncation for a termination", truncation_ends)
    if how.truncation == "terminate":
        mutant = ("takes a truncation for no end", _forgets_truncation)
    name = "truncation_bootstraps" if how.truncation == "bootstrap" else "truncation_terminates"
    return _law(name, claim, mutant, check, "a truncation")


def _forgets_truncation(target: Target) -> Target:
    return lambda *columns, **named: target(*columns[:-1], torch.zeros_like(columns[-1]), **named)


def _own_row(how: TargetClaims) -> Law:
    def check(target: Target, drawn: Rows, seen: Seen) -> None:
        seen("several rows", len(drawn.rewards) > 1)
        names = ("rewards", "first", "second", "terminated", "truncated")
        alone = [
            how.ask(target, drawn, **{name: getattr(drawn, name)[i : i + 1] for name in names})
            for i in range(len(drawn.rewards))
        ]
        same("targets of a batch against its rows", how.ask(target, drawn), torch.cat(alone))

    claim = "A row's target depends on that row alone."
    return _law("batch_is_rows", claim, ("looks for the best of the batch", best_of_batch), check, "several rows")


def _choice(how: TargetClaims) -> Law:
    def check(target: Target, drawn: Rows, seen: Seen) -> None:
        going = attrs.evolve(
            drawn, terminated=drawn.terminated & False, truncated=drawn.truncated & False, gamma=max(drawn.gamma, 0.5)
        )
        d = going
        if how.kind == "double":
            seen("networks that choose differently", bool((d.first.argmax(-1) != d.second.argmax(-1)).any()))
        else:
            seen("networks that choose differently", bool((d.first[:, 0] != d.second[:, 0]).any()))
        same("targets - rewards", how.ask(target, d) - d.rewards, d.gamma * how.next_value(d))

    claims = {
        "max": "The best action's Q counts.",
        "double": "The first table chooses the action, the second one gives its value.",
        "min": "The smaller of both counts.",
    }
    mutants: dict[str, tuple[str, Callable[[Target], Target]]] = {
        "max": ("takes the mean over actions", mean_of_actions),
        "double": ("chooses with the second table", not_double),
        "min": ("takes the first of both", first_of_two),
    }
    names = {"max": "best_action", "double": "first_chooses", "min": "smaller_counts"}
    law = (names[how.kind], claims[how.kind], mutants[how.kind], check, "networks that choose differently")
    return _law(*law)


def _detached(how: TargetClaims) -> Law:
    def check(target: Target, drawn: Rows, seen: Seen) -> None:
        tables = [table.clone().requires_grad_() for table in (drawn.first, drawn.second)]
        value = how.ask(target, drawn, first=tables[0], second=tables[1]).sum()
        require(not value.requires_grad, "targets have a gradient in next values")

    claim = "Targets are constants."
    return _law("constants", claim, ("leaves a gradient in the next values", attached), check)


# --- streams ---


@attrs.frozen
class Horizon:
    """A stream, gamma and n."""

    stream: Stream
    gamma: float
    n: int


def horizons(*counts: int) -> SearchStrategy[Horizon]:
    """Streams with gamma and one of these n."""
    return st.builds(
        Horizon, _long_streams(), st.sampled_from((0.5, 1.0, 0.0)), st.sampled_from(counts or (2, 3, 2, 1, 8))
    )


_stream_law = law_constructor(horizons, SOURCE, numeric=True)


def _rest(how: TargetClaims, target: Target, drawn: Horizon) -> Tensor:
    return target(drawn.stream.rewards, *how.ends(drawn.stream), gamma=drawn.gamma)


def _end(how: TargetClaims, stream: Stream, t: int) -> int:
    return len(stream.rewards) - 1 if how.endings == "none" else last_of_episode(stream, t)


def _sum_of_rest(how: TargetClaims) -> Law:
    def check(target: Target, drawn: Horizon, seen: Seen) -> None:
        stream = _ended_by(how, drawn.stream)
        seen("several steps", len(stream.rewards) > 2)
        wanted = [
            sum(
                (drawn.gamma ** (k - t) * stream.rewards[k] for k in range(t, _end(how, stream, t) + 1)),
                torch.zeros(()),
            )
            for t in range(len(stream.rewards))
        ]
        same("returns", _rest(how, target, attrs.evolve(drawn, stream=stream)), torch.stack(wanted))

    claim = "The return of a step is the discounted sum of rewards from that step to the end of its episode."
    mutant = ("gives every step the whole return", whole_return)
    return _stream_law("definition", claim, mutant, check, "several steps")


def _ended_by(how: TargetClaims, stream: Stream) -> Stream:
    """Return the stream with the endings that the subject can see."""
    if how.endings == "terminated" and how.truncation == "bootstrap":
        return replace(stream, truncated=torch.zeros_like(stream.truncated))
    return stream


def _at_start(how: TargetClaims) -> Law:
    def check(target: Target, drawn: Horizon, seen: Seen) -> None:
        stream = drawn.stream
        none = torch.zeros_like(stream.terminated)
        quiet = attrs.evolve(drawn, stream=replace(stream, terminated=none, truncated=none))
        seen("several steps", len(stream.rewards) > 1)
        whole = _rest(how, target, quiet)
        for t in range(1, len(whole)):
            later = Stream(**{name: getattr(quiet.stream, name)[t:] for name in NAMES})
            same(f"returns from step {t} on", whole[t:], _rest(how, target, attrs.evolve(quiet, stream=later)))

    claim = "Returns do not depend on what was before."
    mutant = ("discounts by the time since the start", discounts_from_start)
    return _stream_law("forgets_the_past", claim, mutant, check, "several steps")


def _linear(how: TargetClaims) -> Law:
    def check(target: Target, drawn: Horizon, seen: Seen) -> None:
        stream = _ended_by(how, drawn.stream)
        seen("a large reward", bool((stream.rewards.abs() > 5).any()))
        doubled = replace(stream, rewards=2.0 * stream.rewards)
        got = _rest(how, target, attrs.evolve(drawn, stream=doubled))
        same("returns of doubled rewards", got, 2.0 * _rest(how, target, attrs.evolve(drawn, stream=stream)))

    claim = "Twice the rewards give twice the returns."
    return _stream_law("linear", claim, ("clamps the returns", clamps), check, "a large reward")


NAMES = ("rewards", "values", "next_values", "terminated", "truncated")


def _own_episode(how: TargetClaims) -> Law:
    def check(target: Target, drawn: Horizon, seen: Seen) -> None:
        stream = _ended_by(how, drawn.stream)
        pieces = episodes(stream)
        seen("several episodes", len(pieces) > 1)
        got = [_rest(how, target, attrs.evolve(drawn, stream=piece)) for piece in pieces]
        same(
            "returns of the stream against its episodes",
            _rest(how, target, attrs.evolve(drawn, stream=stream)),
            torch.cat(got),
        )

    claim = "Rewards of the next episode do not count."
    mutant = ("adds rewards of the next episode", next_episode_leaks)
    return _stream_law("own_episode", claim, mutant, check, "several episodes", inputs=_several_episodes())


def _several_episodes() -> SearchStrategy[Horizon]:
    return st.builds(Horizon, streams(), st.sampled_from((0.5, 1.0)), st.sampled_from((2, 3, 8)))


def n_step_laws() -> Suite:
    """Return the laws of n-step returns, f(rewards, next_values, terminated, truncated, *, gamma, n), all [T]."""
    return Suite("n_step_laws", (_n_rewards(), _one_step(), _all_steps(), _cut(), _value_weight()))


def _n_step(target: Target, drawn: Horizon, **changes: Any) -> Tensor:
    d = attrs.evolve(drawn, **changes)
    s = d.stream
    return target(s.rewards, s.next_values, s.terminated, s.truncated, gamma=d.gamma, n=d.n)


def _n_rewards() -> Law:
    def check(target: Target, drawn: Horizon, seen: Seen) -> None:
        stream, wanted = drawn.stream, []
        events(stream, seen)
        for t in range(len(stream.rewards)):
            last = min(last_of_episode(stream, t), t + drawn.n - 1)
            seen("n rewards inside an episode", last == t + drawn.n - 1 and drawn.n > 1 and drawn.gamma > 0)
            total = sum((drawn.gamma ** (k - t) * stream.rewards[k] for k in range(t, last + 1)), torch.zeros(()))
            beyond = torch.where(stream.terminated[last], 0.0, stream.next_values[last])
            wanted.append(total + drawn.gamma ** (last + 1 - t) * beyond)
        same("n-step returns", _n_step(target, drawn), torch.stack(wanted))

    claim = (
        "n rewards and then the value of the state reached, fewer rewards where the episode or the stream ends before."
    )
    mutant = ("bootstraps from the first step's next value", own_next_value)
    needs = ("a termination", "a truncation", "n rewards inside an episode")
    return _stream_law("definition", claim, mutant, check, *needs)


def _one_step() -> Law:
    def check(target: Target, drawn: Horizon, seen: Seen) -> None:
        stream = drawn.stream
        events(stream, seen)
        wanted = stream.rewards + drawn.gamma * torch.where(stream.terminated, 0.0, stream.next_values)
        same("returns for n = 1", _n_step(target, drawn, n=1), wanted)

    claim = "For n = 1 it is r + gamma v'."
    mutant = ("sums one reward more", one_step_more)
    return _stream_law("one_is_td", claim, mutant, check, "a termination", "no ending at the last step")


def _all_steps() -> Law:
    def check(target: Target, drawn: Horizon, seen: Seen) -> None:
        steps = len(drawn.stream.rewards)
        seen("more than four steps of one episode", any(len(piece.rewards) > 4 for piece in episodes(drawn.stream)))
        same("returns for a large n", _n_step(target, drawn, n=steps + 5), _n_step(target, drawn, n=steps))

    long = st.builds(Horizon, _long_streams(), st.sampled_from((0.5, 1.0)), st.just(8))
    claim = "From n = T on, a larger n changes nothing: the whole return."
    mutant = ("sums over the end of the stream", _wraps)
    return _stream_law("large_n", claim, mutant, check, "more than four steps of one episode", inputs=long)


def _long_streams() -> SearchStrategy[Stream]:
    """Streams of six steps, half of them without an ending."""

    def quiet(stream: Stream) -> Stream:
        none = torch.zeros_like(stream.terminated)
        return replace(
            stream, terminated=none, truncated=none, next_values=torch.cat([stream.values[1:], stream.next_values[-1:]])
        )

    return st.one_of(streams().map(quiet), streams())


def _wraps(target: Target) -> Target:
    def wrong(*columns: Tensor, gamma: float, n: int) -> Tensor:
        extra = max(0, n - len(columns[0]))
        return target(*columns, gamma=gamma, n=n) + extra * columns[0][0]

    return wrong


def _cut() -> Law:
    def check(target: Target, drawn: Horizon, seen: Seen) -> None:
        pieces = episodes(drawn.stream)
        seen("several episodes", len(pieces) > 1 and drawn.n > 1)
        apart = torch.cat([_n_step(target, drawn, stream=piece) for piece in pieces])
        same("returns of the stream against its episodes", _n_step(target, drawn), apart)

    claim = "A stream is its episodes one after another."
    mutant = ("sums over ends of episodes", over_endings)
    return _stream_law("own_episode", claim, mutant, check, "several episodes", inputs=_several_episodes())


def _value_weight() -> Law:
    def check(target: Target, drawn: Horizon, seen: Seen) -> None:
        stream = drawn.stream
        more = replace(stream, next_values=stream.next_values + 4.0)
        got = _n_step(target, drawn, stream=more) - _n_step(target, drawn)
        wanted = []
        for t in range(len(stream.rewards)):
            last = min(last_of_episode(stream, t), t + drawn.n - 1)
            seen(
                "a value after two rewards or more",
                last > t and drawn.gamma == 0.5 and not bool(stream.terminated[last]),
            )
            wanted.append(0.0 if bool(stream.terminated[last]) else 4.0 * drawn.gamma ** (last + 1 - t))
        same("the change of returns, for values higher by 4", got, torch.tensor(wanted))

    claim = "The value counts gamma^n, and not at all after a termination."
    mutant = ("multiplies the value by gamma once", one_gamma)
    return _stream_law("weight_of_value", claim, mutant, check, "a value after two rewards or more")


N_STEP: dict[str, Callable[[Target], Target]] = {"stops at two rewards": stops_early}
