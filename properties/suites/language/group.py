"""Laws of advantages within groups (L8): f(reward [N], group [N], *, groups) -> [N], rows in any order, groups of any size."""

from collections.abc import Callable
from typing import Any

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from torch import Tensor

from ...framework.compare import EXACT, ROUNDING, Tolerance, require, same
from ...framework.law import Law, Seen, Suite, law_constructor
from ...strategies.values import dyadic, integers

# --- mutants ---
# Common mistakes in group advantages: each has the signature (reward [N], group [N], *, groups) -> [N].


Estimator = Callable[..., Tensor]


def _member(group: Tensor, groups: int) -> Tensor:
    return (group == torch.arange(groups)[:, None]).float()


def batch_mean(estimator: Estimator) -> Estimator:
    """Put all rows in one group, so that answers to different questions are compared."""
    return lambda reward, group, *, groups: estimator(reward, torch.where(group < 0, group, 0), groups=groups)


def uncentred(estimator: Estimator) -> Estimator:
    """Leave a tenth of the reward in."""
    return lambda reward, group, *, groups: (
        estimator(reward, group, groups=groups) + torch.where(group < 0, 0.0, 0.1 * reward)
    )


def divides_by_range(estimator: Estimator) -> Estimator:
    """Scale the advantages of every batch to a largest absolute value of 1."""

    def wrong(reward: Tensor, group: Tensor, *, groups: int) -> Tensor:
        advantage = estimator(reward, group, groups=groups)
        return advantage / advantage.abs().amax().clamp(min=1e-6)

    return wrong


def reward_units(estimator: Estimator) -> Estimator:
    """Multiply by the standard deviation of the rewards."""

    def wrong(reward: Tensor, group: Tensor, *, groups: int) -> Tensor:
        return estimator(reward, group, groups=groups) * reward.std(correction=0)

    return wrong


def unguarded(estimator: Estimator) -> Estimator:
    """Divide by the spread without a guard: 0 / 0 if all rewards of a group are equal."""

    def wrong(reward: Tensor, group: Tensor, *, groups: int) -> Tensor:
        member = _member(group, groups)
        mean = (member @ reward) / member.sum(-1).clamp(min=1)
        spread = (member * (reward - mean[:, None]).square()).sum(-1).sqrt()
        own = (member * spread[:, None]).sum(0) + (group < 0)
        return estimator(reward, group, groups=groups) * own / own

    return wrong


def unbiased_of_one(estimator: Estimator) -> Estimator:
    """Divide by n - 1, which is 0 in a group of one."""

    def wrong(reward: Tensor, group: Tensor, *, groups: int) -> Tensor:
        others = (_member(group, groups) * (_member(group, groups).sum(-1) - 1)[:, None]).sum(0)
        return torch.where((others == 0) & (group >= 0), torch.nan, estimator(reward, group, groups=groups))

    return wrong


def blocks(estimator: Estimator) -> Estimator:
    """Take neighbouring rows as a group: right only if the rows are sorted by group."""
    return lambda reward, group, *, groups: estimator(reward, group.sort().values, groups=groups)


def first_is_padding(estimator: Estimator) -> Estimator:
    """Treat the id 0 as no group."""
    return lambda reward, group, *, groups: estimator(reward, torch.where(group == 0, -1, group), groups=groups)


def matrix_product(estimator: Estimator) -> Estimator:
    """Sum groups by a product with a matrix of zeros and ones: 0 times NaN is NaN."""

    def wrong(reward: Tensor, group: Tensor, *, groups: int) -> Tensor:
        leak = (_member(group, groups) @ reward).sum() * 0.0
        return estimator(reward, group, groups=groups) + leak

    return wrong


def leaks(estimator: Estimator) -> Estimator:
    """Add a little of the mean over all rows."""
    return lambda reward, group, *, groups: (
        estimator(reward, group, groups=groups) + torch.where(group < 0, 0.0, 0.01 * reward.mean())
    )


def counts_the_ungrouped(estimator: Estimator) -> Estimator:
    """Count a row of no group (-1, the last index in Python) to the last group."""
    return lambda reward, group, *, groups: estimator(reward, group % groups, groups=groups)


def other_centre(estimator: Estimator) -> Estimator:
    """Mix up the mean of all and that of the others: wrong by a factor of n / (n - 1)."""

    def wrong(reward: Tensor, group: Tensor, *, groups: int) -> Tensor:
        size = (_member(group, groups) * _member(group, groups).sum(-1)[:, None]).sum(0)
        factor = torch.where(size > 1, size / (size - 1).clamp(min=1), 1.0)
        return estimator(reward, group, groups=groups) * factor

    return wrong


def forgets_late_rows(estimator: Estimator) -> Estimator:
    """Read at most twice as many rows as there are groups."""

    def wrong(reward: Tensor, group: Tensor, *, groups: int) -> Tensor:
        late = torch.arange(len(group)) >= 2 * groups
        return estimator(reward, torch.where(late, -1, group), groups=groups)

    return wrong


def counts_as_zero(estimator: Estimator) -> Estimator:
    """Count a reward of NaN as 0."""
    return lambda reward, group, *, groups: estimator(reward.nan_to_num(), group, groups=groups)


MUTANTS: dict[str, Callable[[Estimator], Estimator]] = {"reads too few rows": forgets_late_rows}


# --- laws ---


DAMPED = Tolerance("damped", 6e-3, 1e-4)  # an eps of up to 1e-4 beside the smallest variance drawn
LEAST = 1e-8  # eps of an estimator that declares none


def _damped(eps: float | None) -> Tolerance:
    """Return the tolerance of a division by a deviation, or the root of a variance, to which `eps` is added."""
    return DAMPED if eps is None else Tolerance("damped", max(6e-3, 60.0 * eps), 1e-4)


def _level_error(reward: Tensor, eps: float | None) -> Tensor:
    """Return the rounding of a mean of equal rewards over eps; multiples of 1/4 have none."""
    rounding = torch.where((4 * reward).frac() == 0, 0.0, reward.abs() * 2.0**-21)
    return 1e-4 + rounding / (LEAST if eps is None else eps)


SOURCE = "Shao et al. 2024, arXiv:2402.03300; Ahmadian et al. 2024, arXiv:2402.14740"


@attrs.frozen
class Groups:
    """Rewards of rows, the group id of each (-1: none), and the number of groups, which all ids are below."""

    reward: Tensor
    group: Tensor
    groups: int


@st.composite
def grouped(draw: DrawFn, rewards: SearchStrategy[Tensor] | None = None) -> Groups:
    """Up to 7 rows in up to 3 groups, some empty, some of one row; dyadic rewards."""
    groups = draw(st.sampled_from((1, 2, 3, 2)))
    rows = draw(st.sampled_from((1, 7, 4, 7)))
    reward = draw(dyadic((rows,)) if rewards is None else rewards)
    return Groups(reward, draw(integers((rows,), -1, groups)), groups)


def group_laws(
    *,
    centre: str = "mean",
    scaled: bool = True,
    singleton: str = "zero",
    correction: int = 1,
    nan_rewards: bool = False,
    ungrouped: bool = False,
    blocks: bool = False,
    rest: bool = False,
    abstains: bool = False,
    eps: float | None = None,
) -> Suite:
    """Return the laws of an estimator; the arguments describe it, in the terms of `group_advantages`.

    `scaled`: it divides by the standard deviation of each group, with this `correction` (1 divides by n - 1). `singleton`: the
    advantage of a group of one is "zero", "raw" (its reward), or "any", which asks nothing of it. `blocks`: groups are of one
    size and stand together; with `rest`, the last may be shorter. `eps` is added to the deviation or the variance; undeclared,
    it is from 1e-8 to 1e-4. Claims that the subject makes: `nan_rewards` stay in their group; a row whose reward is NaN takes
    no part in its group and gets 0 (`abstains`); rows of the id -1 have no group (`ungrouped`).
    """
    laws = [
        _sums_to_zero(),
        _shift(singleton),
        _scale(scaled, eps),
        _equal_rewards(eps),
        *([] if singleton == "any" else [_alone(singleton)]),
        *([] if rest else [_rows_permute()]),
        _names(),
        _own_group(nan_rewards),
        *([_no_group()] if ungrouped else []),
        _definition(centre, correction if scaled else None, eps),
        *([_abstained(centre, correction if scaled else None, eps)] if abstains else []),
    ]
    least = None if not blocks else 2 if singleton == "any" else 1
    return Suite("group_laws", tuple(laws if ungrouped else [_all_grouped(law, least, rest) for law in laws]))


def _all_grouped(law: Law, least: int | None, rest: bool) -> Law:
    """Return the law for rows that all have a group, or for groups of one size, `least` or more, that stand together."""

    def changed(drawn: Groups) -> Groups:
        if least is None:
            return attrs.evolve(drawn, group=drawn.group.clamp(min=0))
        alone = law.name == "group_of_one" and int(drawn.group.sum()) % 2
        size = 1 if alone else max(least, 2, len(drawn.reward) // drawn.groups)
        short = int(drawn.group.sum()) % size if rest and drawn.groups > 1 else 0
        reward = drawn.reward.repeat(2 * drawn.groups)[: size * drawn.groups - short]
        return Groups(reward, torch.arange(drawn.groups).repeat_interleave(size)[: len(reward)], drawn.groups)

    needs = tuple(need for need in law.needs if least is None or need != "rows not in the order of groups")
    return attrs.evolve(law, inputs=lambda subject: law.inputs(subject).map(changed), needs=needs)


_law = law_constructor(grouped, SOURCE, numeric=True)


def _ask(estimator: Estimator, drawn: Groups, **changes: Any) -> Tensor:
    asked = attrs.evolve(drawn, **changes)
    return estimator(asked.reward, asked.group, groups=asked.groups)


def _sizes(drawn: Groups) -> Tensor:
    return (drawn.group[:, None] == drawn.group).sum(-1) * (drawn.group >= 0)


def _sums_to_zero() -> Law:
    def check(estimator: Estimator, drawn: Groups, seen: Seen) -> None:
        got, sizes = _ask(estimator, drawn), _sizes(drawn)
        names = sorted(set(drawn.group[sizes > 1].tolist()))
        seen("two groups of several", len(names) > 1)
        for name in names:
            total = got[drawn.group == name].sum()
            require(total.abs() <= 1e-4, f"the advantages of group {name} sum to {float(total)}")

    claim = "The advantages of a group of several sum to 0."
    mutant = ("takes the mean over all groups", batch_mean)
    return _law("sums_to_zero", claim, mutant, check, "two groups of several")


def _shift(singleton: str) -> Law:
    def check(estimator: Estimator, drawn: Groups, seen: Seen) -> None:
        among = _sizes(drawn) > (1 if singleton == "raw" else 0)
        seen("a group", among.any())
        wanted = _ask(estimator, drawn)
        for shift in (4.0, -16.0):
            got = _ask(estimator, drawn, reward=drawn.reward + shift)
            same(f"the advantages of rewards plus {shift}", got[among], wanted[among], EXACT)

    claim = "Adding one number to all rewards changes no bit."
    return _law("shift", claim, ("leaves part of the reward in", uncentred), check, "a group")


def _scale(scaled: bool, eps: float | None) -> Law:
    def check(estimator: Estimator, drawn: Groups, seen: Seen) -> None:
        several = _sizes(drawn) > 1
        wanted = _ask(estimator, drawn)
        seen("an advantage", wanted[several].any())
        got = _ask(estimator, drawn, reward=2.0 * drawn.reward)[several]
        if scaled:
            same("the advantages of doubled rewards", got, wanted[several], _damped(eps))
        else:
            same("the advantages of doubled rewards", got, 2.0 * wanted[several], EXACT)

    if scaled:
        claim, mutant = "Rewards in other units give the same advantages.", reward_units
        return _law("scale", claim, ("gives advantages in the units of rewards", mutant), check, "an advantage")
    claim, wrong = "Twice the rewards give twice the advantages.", divides_by_range
    return _law("scale", claim, ("normalises the batch to the size of 1", wrong), check, "an advantage")


@st.composite
def _level(draw: DrawFn) -> Groups:
    """Groups in which all rewards are equal, with values that are dyadic or not."""
    drawn = draw(grouped())
    levels = torch.tensor(draw(st.lists(st.integers(-20, 20), min_size=4, max_size=4))) / draw(st.sampled_from((10, 4)))
    return attrs.evolve(drawn, reward=levels[drawn.group])


def _equal_rewards(eps: float | None) -> Law:
    def check(estimator: Estimator, drawn: Groups, seen: Seen) -> None:
        several = _sizes(drawn) > 1
        seen("a group of several", several.any())
        first = (drawn.group[:, None] == drawn.group).int().argmax(1)  # of each row's group
        reward = drawn.reward[first]
        got, allowed = _ask(estimator, drawn, reward=reward)[several], _level_error(reward, eps)[several]
        seen("rewards whose mean is exact", (allowed < 1e-3).any())
        require(got.abs() <= allowed, f"the advantages of equal rewards {reward.tolist()} are {got.tolist()}, wanted 0")

    claim = "Where all rewards of a group are equal, its advantages are 0, never NaN."
    mutant = ("divides by a spread of 0", unguarded)
    needs = ("a group of several", "rewards whose mean is exact")
    return _law("equal_rewards", claim, mutant, check, *needs, inputs=_level())


def _alone(singleton: str) -> Law:
    def check(estimator: Estimator, drawn: Groups, seen: Seen) -> None:
        alone = _sizes(drawn) == 1
        seen("a group of one", alone.any())
        wanted = drawn.reward if singleton == "raw" else torch.zeros_like(drawn.reward)
        same("the advantage of a group of one", _ask(estimator, drawn)[alone], wanted[alone], DAMPED)

    said = "its reward" if singleton == "raw" else "0"
    mutant = ("divides by n - 1 in a group of one", unbiased_of_one)
    return _law("group_of_one", f"A group of one has the advantage {said}.", mutant, check, "a group of one")


def _rows_permute() -> Law:
    def check(estimator: Estimator, drawn: Groups, seen: Seen) -> None:
        seen("rows not in the order of groups", (drawn.group.diff() < 0).any())
        turned = _ask(estimator, drawn, reward=drawn.reward.flip(0), group=drawn.group.flip(0))
        same("the advantages of rows in another order", turned, _ask(estimator, drawn).flip(0), ROUNDING)
        ordered = drawn.group.argsort(stable=True)
        got = _ask(estimator, drawn, reward=drawn.reward[ordered], group=drawn.group[ordered])
        same("the advantages of rows sorted by group", got, _ask(estimator, drawn)[ordered], ROUNDING)

    claim = "Another order of rows gives the same advantages in that order: groups need not stand together."
    mutant = ("takes neighbours for a group", blocks)
    return _law("rows_permute", claim, mutant, check, "rows not in the order of groups")


def _names() -> Law:
    def check(estimator: Estimator, drawn: Groups, seen: Seen) -> None:
        seen("several groups", drawn.groups > 1 and (drawn.group >= 0).any())
        renamed = torch.where(drawn.group < 0, -1, drawn.groups - 1 - drawn.group)
        same("the advantages of renamed groups", _ask(estimator, drawn, group=renamed), _ask(estimator, drawn), EXACT)

    claim = "What a group is called does not matter."
    return _law("names", claim, ("takes the id 0 for no group", first_is_padding), check, "several groups")


def _own_group(nan_rewards: bool) -> Law:
    def check(estimator: Estimator, drawn: Groups, seen: Seen) -> None:
        own = drawn.group == drawn.group[0]
        seen("another group", (~own & (drawn.group >= 0)).any())
        wanted = _ask(estimator, drawn)
        for other in (torch.nan, torch.inf, 100.0) if nan_rewards else (100.0, -4.0):
            got = _ask(estimator, drawn, reward=torch.where(own, drawn.reward, other))
            same(f"the advantages beside rewards of {other}", got[own], wanted[own], EXACT)

    claim = f"Advantages depend on rewards of their own group alone{', even beside NaN and infinity' if nan_rewards else ''}."
    mutant = ("sums groups by a matrix product", matrix_product) if nan_rewards else ("adds a mean of all", leaks)
    return _law("own_group", claim, mutant, check, "another group")


def _no_group() -> Law:
    def check(estimator: Estimator, drawn: Groups, seen: Seen) -> None:
        none = drawn.group < 0
        seen("a row of no group beside others", none.any() & (~none).any())
        got = _ask(estimator, drawn, reward=torch.where(none, torch.nan, drawn.reward))
        same("the advantage of a row of no group", got[none], torch.zeros_like(got[none]), EXACT)
        kept = attrs.evolve(drawn, reward=drawn.reward[~none], group=drawn.group[~none])
        if len(kept.group):
            same("the advantages without such rows", got[~none], _ask(estimator, kept), ROUNDING)

    claim = "A row with the id -1 has the advantage 0, whatever its reward, and changes nobody else's."
    mutant = ("counts a row of no group to the last one", counts_the_ungrouped)
    return _law("no_group", claim, mutant, check, "a row of no group beside others")


def _wanted(own: list[float], reward: float, centre: str, correction: int | None) -> Tensor:
    """Return the advantage of a reward among those of its group, of which there are two or more."""
    mean = (sum(own) - reward) / (len(own) - 1) if centre == "leave_one_out" else sum(own) / len(own)
    if len(set(own)) == 1:
        return torch.zeros(())
    spread = torch.ones(()) if correction is None else torch.tensor(own).double().std(correction=correction)
    return (reward - mean) / spread


def _definition(centre: str, correction: int | None, eps: float | None) -> Law:
    scaled = correction is not None

    def check(estimator: Estimator, drawn: Groups, seen: Seen) -> None:
        got = _ask(estimator, drawn)
        for i, name in enumerate(drawn.group.tolist()):
            own = [r for r, g in zip(drawn.reward.tolist(), drawn.group.tolist(), strict=True) if g == name]
            if name < 0 or len(own) < 2:
                continue
            wanted = _wanted(own, float(drawn.reward[i]), centre, correction)
            seen("an advantage", wanted != 0)
            same(f"advantage {i} of {own}", got[i], wanted.to(got.dtype), _damped(eps))

    means = "the mean of the others" if centre == "leave_one_out" else "the mean of its group"
    claim = f"An advantage is the reward less {means}{', over the standard deviation of the group' if scaled else ''}."
    mutant = ("mixes up the mean of all and that of the others", other_centre)
    return _law("definition", claim, mutant, check, "an advantage")


def _abstained(centre: str, correction: int | None, eps: float | None) -> Law:
    def check(estimator: Estimator, drawn: Groups, seen: Seen) -> None:
        none = (4 * drawn.reward).long() % 3 == 0
        reward = torch.where(none, torch.nan, drawn.reward)
        got = _ask(estimator, drawn, reward=reward)
        for i, name in enumerate(drawn.group.tolist()):
            if none[i]:
                same(f"the advantage of row {i}, which has no reward", got[i], torch.zeros_like(got[i]), DAMPED)
                continue
            own = drawn.reward[(drawn.group == name) & ~none].tolist()
            if name < 0 or len(own) < 2:
                continue
            wanted = _wanted(own, float(drawn.reward[i]), centre, correction)
            seen("an advantage beside a row without a reward", wanted != 0 and (none & (drawn.group == name)).any())
            same(f"advantage {i} of {reward.tolist()}", got[i], wanted.to(got.dtype), _damped(eps))

    claim = "A row whose reward is NaN gets 0, and counts neither in the mean nor in the deviation of its group."
    mutant = ("counts NaN as a reward of 0", counts_as_zero)
    return _law("no_reward", claim, mutant, check, "an advantage beside a row without a reward")
