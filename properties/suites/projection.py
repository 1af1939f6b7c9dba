"""Laws of the projection of a distribution of returns onto fixed atoms, as in C51.

The subject is f(probs [B, N], rewards [B], discounts [B], atoms [N]) -> probs [B, N]: the distribution of reward + discount Z,
for Z of `probs` over `atoms`, a grid of equal steps, projected onto the same atoms; a discount is 0 behind a termination.

>>> from purestep.properties import categorical_projection_laws, verify
>>> def nearest(probs, rewards, discounts, atoms):  # moves each atom to the nearest one, in place of to both neighbours
...     moved = (rewards[:, None] + discounts[:, None] * atoms).clamp(atoms[0], atoms[-1])
...     place = ((moved - atoms[0]) / (atoms[1] - atoms[0])).round().long()
...     return torch.zeros_like(probs).scatter_add(1, place, probs)
>>> verify(categorical_projection_laws(), nearest)["mean"].outcome
'broken'
"""

from collections.abc import Callable

import torch
from attrs import evolve, frozen
from hypothesis import strategies as st
from torch import Tensor

from ..framework.compare import ROUNDING, require, same
from ..framework.law import Law, Seen, Suite, law_constructor
from ..strategies.values import seeds

Projection = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
SOURCE = "Bellemare et al. 2017, arXiv:1707.06887, equation 7 and algorithm 1"

# --- mutants ---


def loses_whole_numbers(project: Projection) -> Projection:
    """Lose the mass of an atom that falls onto another one exactly: both neighbours are the same, and both shares are 0."""

    def wrong(probs: Tensor, rewards: Tensor, discounts: Tensor, atoms: Tensor) -> Tensor:
        moved = (rewards[:, None] + discounts[:, None] * atoms).clamp(atoms[0], atoms[-1])
        place = (moved - atoms[0]) / (atoms[1] - atoms[0])
        return project(torch.where(place == place.round(), 0.0, probs), rewards, discounts, atoms)

    return wrong


def ignores_discounts(project: Projection) -> Projection:
    """Bootstrap behind a termination, too."""
    return lambda probs, rewards, discounts, atoms: project(
        probs, rewards, torch.where(discounts == 0, 0.5, discounts), atoms
    )


def drops_outside(project: Projection) -> Projection:
    """Drop the mass that falls beyond the atoms."""

    def wrong(probs: Tensor, rewards: Tensor, discounts: Tensor, atoms: Tensor) -> Tensor:
        moved = rewards[:, None] + discounts[:, None] * atoms
        outside = (moved < atoms[0]) | (moved > atoms[-1])
        return project(torch.where(outside, 0.0, probs), rewards, discounts, atoms)

    return wrong


def one_reward_for_all(project: Projection) -> Projection:
    """Add the first row's reward to all rows."""
    return lambda probs, rewards, discounts, atoms: project(probs, rewards[:1].expand_as(rewards), discounts, atoms)


def to_nearest(project: Projection) -> Projection:
    """Move each atom's mass to the nearest atom alone."""

    def wrong(probs: Tensor, rewards: Tensor, discounts: Tensor, atoms: Tensor) -> Tensor:
        moved = (rewards[:, None] + discounts[:, None] * atoms).clamp(atoms[0], atoms[-1])
        place = ((moved - atoms[0]) / (atoms[1] - atoms[0])).round().long()
        return torch.zeros_like(probs).scatter_add(1, place, probs)

    return wrong


# --- laws ---


@frozen
class Returns:
    """Distributions [B, N] over atoms [N], rewards [B] and discounts [B]."""

    probs: Tensor
    rewards: Tensor
    discounts: Tensor
    atoms: Tensor

    def moved(self) -> Tensor:
        """Return reward + discount atom: [B, N]."""
        return self.rewards[:, None] + self.discounts[:, None] * self.atoms


@st.composite
def _returns(draw: st.DrawFn) -> Returns:
    rows, count = draw(st.sampled_from((3, 1))), draw(st.sampled_from((5, 3, 11)))
    atoms = torch.linspace(*draw(st.sampled_from(((-2.0, 2.0), (0.0, 4.0), (-1.0, 9.0)))), count)
    drawn = torch.rand((rows, count), generator=torch.Generator().manual_seed(draw(seeds())))
    weights = torch.where(drawn < 0.3, 0.0, drawn) + 1e-3  # some atoms have hardly any mass
    quarter = st.sampled_from((0.0, 0.25, -0.5, 1.0, 3.0, -3.0))
    rewards = torch.tensor(draw(st.lists(quarter, min_size=rows, max_size=rows)))
    discounts = torch.tensor(draw(st.lists(st.sampled_from((0.5, 0.0, 0.75, 1.0)), min_size=rows, max_size=rows)))
    return Returns(weights / weights.sum(1, keepdim=True), rewards, discounts, atoms)


_law = law_constructor(_returns, SOURCE, numeric=True)


def categorical_projection_laws() -> Suite:
    """Return the laws of f(probs [B, N], rewards [B], discounts [B], atoms [N]) -> probs [B, N], as the module says.

    >>> len(categorical_projection_laws())
    5
    """
    return Suite("categorical_projection_laws", (_mass(), _mean(), _termination(), _edges(), _rows()))


def _project(project: Projection, drawn: Returns) -> Tensor:
    return project(drawn.probs, drawn.rewards, drawn.discounts, drawn.atoms)


def _mass() -> Law:
    def check(project: Projection, drawn: Returns, seen: Seen) -> None:
        place = (drawn.moved().clamp(drawn.atoms[0], drawn.atoms[-1]) - drawn.atoms[0]) / (
            drawn.atoms[1] - drawn.atoms[0]
        )
        seen("an atom that falls onto another", ((place - place.round()).abs() < 1e-6).any())
        got = _project(project, drawn)
        require((got >= 0).all(), f"a probability is negative: {got.tolist()}")
        same("the sum of probabilities", got.sum(1), torch.ones(len(got)), ROUNDING)

    claim = "No mass is lost, also where an atom falls onto another one exactly."
    mutant = ("loses atoms that fall onto others", loses_whole_numbers)
    return _law("mass", claim, mutant, check, "an atom that falls onto another")


def _mean() -> Law:
    def check(project: Projection, drawn: Returns, seen: Seen) -> None:
        moved, step = drawn.moved(), drawn.atoms[1] - drawn.atoms[0]
        inside = ((moved >= drawn.atoms[0]) & (moved <= drawn.atoms[-1])).all(1)
        place = (moved - drawn.atoms[0]) / step
        seen("an atom between two others", (inside[:, None] & ((place - place.round()).abs() > 0.1)).any())
        got = (_project(project, drawn) * drawn.atoms).sum(1)
        same("the mean of a row inside the atoms", got[inside], (drawn.probs * moved).sum(1)[inside], ROUNDING)

    claim = "Between two atoms mass is divided so that the mean stays reward + discount times the old one."
    return _law("mean", claim, ("moves mass to the nearest atom", to_nearest), check, "an atom between two others")


def _termination() -> Law:
    def check(project: Projection, drawn: Returns, seen: Seen) -> None:
        over = evolve(drawn, discounts=torch.zeros_like(drawn.discounts))
        seen("a reward inside", ((over.rewards > over.atoms[0]) & (over.rewards < over.atoms[-1])).any())
        got = (_project(project, over) * over.atoms).sum(1)
        same("the mean behind a termination", got, over.rewards.clamp(over.atoms[0], over.atoms[-1]), ROUNDING)

    claim = "With a discount of 0 all mass is at the reward."
    return _law("termination", claim, ("ignores a discount of 0", ignores_discounts), check, "a reward inside")


def _edges() -> Law:
    def check(project: Projection, drawn: Returns, seen: Seen) -> None:
        width = float(drawn.atoms[-1] - drawn.atoms[0])
        same_size = drawn.probs.new_ones(len(drawn.rewards))
        for reward, end in ((3.0 * width + 10.0, -1), (-3.0 * width - 10.0, 0)):
            got = _project(project, evolve(drawn, rewards=reward * same_size, discounts=same_size))
            same(f"the mass of atom {end} for a reward of {reward}", got[:, end], same_size, ROUNDING)

    return _law(
        "edges", "Mass beyond the atoms is put on the outermost one.", ("drops mass beyond", drops_outside), check
    )


def _rows() -> Law:
    def check(project: Projection, drawn: Returns, seen: Seen) -> None:
        seen("rows with other rewards", (drawn.rewards != drawn.rewards[0]).any())
        got = _project(project, drawn)
        for row in range(len(got)):
            part = slice(row, row + 1)
            alone = Returns(drawn.probs[part], drawn.rewards[part], drawn.discounts[part], drawn.atoms)
            same(f"row {row} alone", _project(project, alone), got[part], ROUNDING)

    mutant = ("adds one reward to all rows", one_reward_for_all)
    return _law("rows_alone", "Each row is what it is alone.", mutant, check, "rows with other rewards")
