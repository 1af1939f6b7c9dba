"""Laws of losses with a proximal policy besides the behaviour policy (L4): the subject is `Anchoring`."""

import math
from collections.abc import Callable
from typing import Any

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from purestep.algorithms.language.token_losses import token_clip
from purestep.algorithms.losses import policy_gradient
from purestep.properties.framework.compare import DOUBLE, ROUNDING, require, same
from purestep.properties.framework.law import Law, Seen, Suite, law_constructor
from purestep.properties.strategies.values import POISON, dyadic, flags, integers, log_prob_pairs
from purestep.properties.suites.loss import PADDING

# --- mutants ---
# Common errors in decoupled losses: each an edit of a right function.


@attrs.frozen
class Anchoring:
    """The subject of the laws of decoupled losses."""

    decoupled_clip: Callable[..., Tensor]  # (log_prob, proximal, behaviour, advantage, mask, *, clip)
    interpolation: Callable[[Tensor, int], Tensor]  # (version, current)
    interpolated: Callable[..., Tensor]  # (log_prob, behaviour, share, mask, *, form)


def _clip(change: Callable[..., Tensor]) -> Callable[[Anchoring], Anchoring]:
    def make(subject: Anchoring) -> Anchoring:
        def edited(*given: Tensor, **numbers: Any) -> Tensor:
            return change(subject.decoupled_clip, *given, **numbers)

        return attrs.evolve(subject, decoupled_clip=edited)

    return make


def _share(change: Callable[[Tensor, Tensor, int], Tensor]) -> Callable[[Anchoring], Anchoring]:
    def make(subject: Anchoring) -> Anchoring:
        return attrs.evolve(
            subject,
            interpolation=lambda version, current: change(subject.interpolation(version, current), version, current),
        )

    return make


clips_against_behaviour = _clip(lambda right, p, q, b, a, mask, **numbers: right(p, b, b, a, mask, **numbers))
unweighted = _clip(lambda right, p, q, b, a, mask, **numbers: right(p, q, q, a, mask, **numbers))
inverse_weight = _clip(
    lambda right, p, q, b, a, mask, **numbers: (
        torch.where(mask, torch.exp(b - q), 0.0) * token_clip(p, q, a, mask, **numbers)
    )
)
masks_afterwards = _clip(
    lambda right, p, q, b, a, mask, **numbers: right(p, q, b, a, torch.ones_like(mask), **numbers) * mask
)
live_weight = _clip(
    lambda right, p, q, b, a, mask, **numbers: torch.exp(p - p.detach()) * right(p, q, b, a, mask, **numbers)
)
one_more = _share(lambda share, version, current: (1 / (2 - share)).to(share.dtype))
forgets_version_0 = _share(lambda share, version, current: torch.where(version > 0, share, 0.0))


def live_anchor(subject: Anchoring) -> Anchoring:
    """Leave the proximal policy attached, so that it has a gradient."""

    def edited(log_prob: Tensor, *given: Tensor, **named: Any) -> Tensor:
        return subject.interpolated(log_prob, *given, **named) + (log_prob - log_prob.detach())

    return attrs.evolve(subject, interpolated=edited)


def the_other_end(subject: Anchoring) -> Anchoring:
    """Interpolate with 1 - share instead of share."""

    def edited(log_prob: Tensor, behaviour: Tensor, share: Tensor, mask: Tensor, **named: Any) -> Tensor:
        return subject.interpolated(log_prob, behaviour, 1 - share, mask, **named)

    return attrs.evolve(subject, interpolated=edited)


MUTANTS: dict[str, Callable[[Anchoring], Anchoring]] = {
    "weighs by the inverse": inverse_weight,
    "clips against what sampled": clips_against_behaviour,
    "takes version 0 for none": forgets_version_0,
}


# --- laws ---


HILTON = "Hilton et al. 2021, arXiv:2110.00641"
APPROXIMATED = "AReaL's loglinear approximation, arXiv:2512.06547"
CLIP = 0.25


@attrs.frozen
class Tokens:
    """Log-probs of tokens under three policies, and the versions of the weights that sampled them."""

    log_prob: Tensor
    proximal: Tensor
    behaviour: Tensor
    advantage: Tensor
    mask: Tensor
    version: Tensor
    current: int
    poison: float


@st.composite
def _tokens(draw: DrawFn) -> Tokens:
    shape = (draw(st.sampled_from((1, 2))), draw(st.sampled_from((1, 4))))
    log_prob, behaviour = (one.double() for one in draw(log_prob_pairs(shape)))
    proximal = -draw(dyadic(shape, limit=2, dtype=torch.float64)).abs()
    return Tokens(
        log_prob=log_prob,
        proximal=proximal,
        behaviour=behaviour,
        advantage=draw(dyadic(shape, dtype=torch.float64)),
        mask=~draw(flags(shape)),
        version=draw(integers(shape, -1, 4)),
        current=draw(st.integers(2, 5)),
        poison=draw(st.sampled_from(POISON)),
    )


def decoupled_laws() -> Suite:
    """The laws of a decoupled clip and of proximal log-probs between two versions."""
    return Suite("decoupled_laws", (_together(), _fresh(), _padding(), _weighted(), _between(), _newest(), _constant()))


_law = law_constructor(_tokens, HILTON)


def _ask(subject: Anchoring, drawn: Tokens, clip: float = CLIP) -> tuple[Tensor, Tensor]:
    """The losses and their gradient."""
    leaf = drawn.log_prob.clone().requires_grad_()
    loss = subject.decoupled_clip(leaf, drawn.proximal, drawn.behaviour, drawn.advantage, drawn.mask, clip=clip)
    return loss.detach(), torch.autograd.grad(loss.sum(), leaf)[0]


def _together() -> Law:
    def check(subject: Anchoring, drawn: Tokens, seen: Seen) -> None:
        drawn = attrs.evolve(drawn, proximal=drawn.behaviour)
        leaf = drawn.log_prob.clone().requires_grad_()
        wanted = token_clip(leaf, drawn.behaviour, drawn.advantage, drawn.mask, clip=CLIP)
        seen("a ratio", (drawn.mask & (drawn.log_prob != drawn.behaviour) & (drawn.advantage != 0)).any())
        slope = torch.autograd.grad(wanted.sum(), leaf)[0]
        same("(losses, gradient)", _ask(subject, drawn), (wanted.detach(), slope), DOUBLE)

    mutant = ("lets the gradient into the weight", live_weight)
    claim = "Where the proximal policy is the one that sampled, it is the clipped surrogate."
    return _law("proximal_is_behaviour", claim, mutant, check, "a ratio")


def _fresh() -> Law:
    def check(subject: Anchoring, drawn: Tokens, seen: Seen) -> None:
        drawn = attrs.evolve(drawn, proximal=drawn.log_prob)
        weight = (drawn.log_prob - drawn.behaviour).exp()
        outside = (weight > 1 + CLIP) | (weight < 1 - CLIP)
        seen("a weight that a clip would cut", (drawn.mask & outside & (drawn.advantage != 0)).any())
        ones = torch.ones_like(drawn.log_prob)
        wanted = torch.where(drawn.mask, policy_gradient(weight * ones, drawn.advantage), 0.0)
        same("(losses, gradient)", _ask(subject, drawn), (wanted, wanted), DOUBLE)

    mutant = ("forgets the weight", unweighted)
    claim = "Where the proximal policy is the current one, nothing is clipped: the gradient is weighed REINFORCE."
    return _law("proximal_is_current", claim, mutant, check, "a weight that a clip would cut")


def _padding() -> Law:
    def check(subject: Anchoring, drawn: Tokens, seen: Seen) -> None:
        seen("padding beside tokens", (~drawn.mask).any() & drawn.mask.any())
        names = ("log_prob", "proximal", "behaviour", "advantage")
        columns: dict[str, Any] = {name: torch.where(drawn.mask, getattr(drawn, name), drawn.poison) for name in names}
        got = _ask(subject, attrs.evolve(drawn, **columns))
        same(f"(losses, gradient) with padding of {drawn.poison}", got, _ask(subject, drawn))

    mutant = ("masks what was made of padding", masks_afterwards)
    claim = "Whatever stands in the padding, NaN and infinity included, losses and gradient keep their bits."
    return _law("padding_is_nothing", claim, mutant, check, "padding beside tokens", source=PADDING)


def _weighted() -> Law:
    def check(subject: Anchoring, drawn: Tokens, seen: Seen) -> None:
        seen("tokens", (drawn.mask & (drawn.advantage != 0)).any())
        less = attrs.evolve(drawn, behaviour=drawn.behaviour - math.log(2))
        wanted = tuple(2 * each for each in _ask(subject, drawn))
        same("(losses, gradient) of tokens sampled half as often", _ask(subject, less), wanted, DOUBLE)

    mutant = ("weighs by the inverse", inverse_weight)
    claim = "A token that the sampler was half as likely to choose weighs twice as much, and is clipped as before."
    return _law("weight", claim, mutant, check, "tokens")


def _between() -> Law:
    def check(subject: Anchoring, drawn: Tokens, seen: Seen) -> None:
        lag = (drawn.current - drawn.version).clamp(min=1)
        known = drawn.mask & (drawn.version >= 0)
        seen("tokens of an older version", (known & (lag > 1)).any())
        seen("tokens of version 0", (known & (drawn.version == 0) & (lag > 1)).any())
        share = subject.interpolation(drawn.version, drawn.current)
        between = subject.interpolated(drawn.log_prob, drawn.behaviour, share.double(), drawn.mask)
        wanted = torch.where(known, (drawn.log_prob - drawn.behaviour) / lag, drawn.log_prob - drawn.behaviour)
        got = torch.where(drawn.mask, drawn.log_prob - between, 0.0)
        same("log(p / q)", got, torch.where(drawn.mask, wanted, 0.0), ROUNDING)

    mutant = ("takes the share from the other end", the_other_end)
    claim = "A token d versions behind the proximal policy has log(p / q) = log(p / b) / (d + 1)."
    needs = ("tokens of an older version", "tokens of version 0")
    return _law("versions", claim, mutant, check, *needs, source=APPROXIMATED)


def _newest() -> Law:
    def check(subject: Anchoring, drawn: Tokens, seen: Seen) -> None:
        newest = (drawn.version < 0) | (drawn.version >= drawn.current - 1)
        seen("the newest tokens", (newest & (drawn.version >= 0)).any())
        share = subject.interpolation(drawn.version, drawn.current)
        require((share >= 0) & (share < 1), f"shares are {share.tolist()}")
        require(share[newest] == 0, f"the newest tokens have the shares {share[newest].tolist()}")
        for form in ("loglinear", "linear"):
            told = subject.interpolated(drawn.log_prob, drawn.behaviour, share.double(), drawn.mask, form=form)
            here = drawn.mask & newest
            same(f"{form}, of the newest tokens", told[here], drawn.behaviour[here], DOUBLE)
            low, high = (pick(drawn.log_prob, drawn.behaviour) for pick in (torch.minimum, torch.maximum))
            inside = (told >= low - 1e-9) & (told <= high + 1e-9)
            require(inside | ~drawn.mask, f"{form}: a proximal log-prob lies outside the two it is between")
            never = torch.full_like(drawn.log_prob, -math.inf)
            told = subject.interpolated(never, drawn.behaviour, share.double(), drawn.mask, form=form)
            same(f"{form}, of the newest tokens that became impossible", told[here], drawn.behaviour[here], DOUBLE)

    mutant = ("counts one version too many", one_more)
    claim = "The newest tokens' proximal policy is the one that sampled them, and every other lies between the two."
    return _law("newest", claim, mutant, check, "the newest tokens", source=APPROXIMATED)


def _constant() -> Law:
    def check(subject: Anchoring, drawn: Tokens, seen: Seen) -> None:
        leaf = drawn.log_prob.clone().requires_grad_()
        share = torch.full_like(drawn.log_prob, 0.5)
        seen("tokens", drawn.mask.any())
        for form in ("loglinear", "linear"):
            poisoned = torch.where(drawn.mask, drawn.behaviour, drawn.poison)
            told = subject.interpolated(leaf, poisoned, share, drawn.mask, form=form)
            require(not told.requires_grad, f"{form}: a gradient flows into the proximal policy")
            require(told[~drawn.mask] == 0, f"{form}: padding has a proximal log-prob")

    mutant = ("lets a gradient into the anchor", live_anchor)
    claim = "A proximal log-prob is a constant, and 0 in the padding."
    return _law("constant", claim, mutant, check, "tokens", source=APPROXIMATED)
