"""Distributions over actions, as records: log-probs, entropies and samples that are functions of noise."""

import math
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from . import keys
from .errors import ShapeError, StructureError, message
from .keys import Key
from .record import record, replace, static, tensor
from .spaces import field

LOG_2, LOG_2_PI = math.log(2.0), math.log(2.0 * math.pi)
FEW_ACTIONS = 32  # up to here a comparison and a sum fuse with other kernels; a gather would be its own kernel
# Gauss-Hermite rule of five points for a standard normal variable: exact for polynomials of degree 9
NODES = (0.0, 1.3556261799742659, -1.3556261799742659, 2.8569700138728056, -2.8569700138728056)
WEIGHTS = (8.0 / 15.0, 0.22207592200561266, 0.22207592200561266, 0.011257411327720691, 0.011257411327720691)


class Distribution(Protocol):
    """The output of a policy: parameters with leading axes [*] for actions [*, ...], tensors or trees of them.

    A sample is a function of noise, so that a rollout can draw the noise of all its steps at once:
    `sample(key) == transform(noise(key))`.
    """

    def log_prob(self, action: Any) -> Tensor:
        """Return log p(action): [*, ...] -> [*]."""
        ...

    def entropy(self) -> Tensor:
        """Return the entropy, or its usual estimate if it has no closed form: [*]."""
        ...

    def mode(self) -> Any:
        """Return the most probable action: [*, ...]."""
        ...

    def noise(self, key: Key) -> Any:
        """Return the noise for `transform`; it depends on the key [*, 2] and the parameters' shape only."""
        ...

    def transform(self, noise: Any) -> Any:
        """Return the action for this noise: [*, ...]."""
        ...

    def sample(self, key: Key) -> Any:
        """Return transform(noise(key)), key [*, 2]."""
        ...


@record
class Categorical:
    """Categorical distribution, p(a) = softmax(logits)_a for actions 0..A-1.

    >>> Categorical(logits=torch.tensor([0.0, 0.0])).entropy()
    tensor(0.6931)
    """

    logits: Tensor = tensor("* A", "float")  # log-probs up to a constant

    def log_prob(self, action: Tensor) -> Tensor:
        """Return log p(action): int64 [*] -> [*]."""
        log_probs = torch.log_softmax(self.logits, -1)
        actions = log_probs.shape[-1]
        if actions > FEW_ACTIONS:
            return log_probs.gather(-1, action[..., None])[..., 0]
        chosen = action[..., None] == torch.arange(actions, device=action.device)
        return torch.where(chosen, log_probs, 0.0).sum(-1)

    def entropy(self) -> Tensor:
        """Return -sum_a p(a) log p(a), where 0 log 0 = 0, with finite gradients there too: [*]."""
        log_probs = torch.log_softmax(self.logits, -1)
        finite = log_probs.clamp_min(torch.finfo(log_probs.dtype).min)
        return -(torch.exp(log_probs) * finite).sum(-1)

    def mode(self) -> Tensor:
        """Return the first action with the largest probability: int64 [*]."""
        return self.logits.argmax(-1)

    def noise(self, key: Key) -> Tensor:
        """Return one uniform number for each action: [*, 2] -> [*]."""
        return keys.uniform(key)

    def transform(self, noise: Tensor) -> Tensor:
        """Return the action whose interval of [0, 1) contains the number: [*] -> int64 [*]."""
        return keys.inverse_cdf(noise, self.logits)

    def sample(self, key: Key) -> Tensor:
        """Return a sampled action: [*, 2] -> int64 [*]."""
        return self.transform(self.noise(key))


def masked(logits: Tensor, mask: Tensor) -> Categorical:
    """Return the softmax over the legal actions: logits [*, A], bool mask [*, A], true where legal.

    An illegal action has probability exactly 0, is never sampled and gets no gradient; its log-prob is hugely negative but
    finite, since its logit is replaced by half the lowest float instead of -inf. If no action is legal, all actions are
    equally likely and there is no gradient. Source: Huang and Ontanon 2020, arXiv:2006.14171.

    >>> masked(torch.zeros(3), torch.tensor([True, False, True])).entropy()
    tensor(0.6931)
    """
    return Categorical(logits=torch.where(mask, logits, illegal(logits.dtype)))


@record
class MultiCategorical:
    """K independent Categorical distributions, of `sizes[k]` values each: p(a) = prod_k softmax(logits of k)_{a_k}.

    >>> MultiCategorical(logits=torch.zeros(5), sizes=(2, 3)).entropy().exp()  # as of 6 equally likely actions
    tensor(6.)
    """

    logits: Tensor = tensor("* A", "float")  # those of each number behind those of the number before; A = sum(sizes)
    sizes: tuple[int, ...] = static()

    def log_prob(self, action: Tensor) -> Tensor:
        """Return log p(action), summed over the numbers: int64 [*, K] -> [*]."""
        return self.each().log_prob(action).sum(-1)

    def entropy(self) -> Tensor:
        """Return the sum of the entropies: [*]."""
        return self.each().entropy().sum(-1)

    def mode(self) -> Tensor:
        """Return the first value with the largest probability, of each number: int64 [*, K]."""
        return self.each().mode()

    def noise(self, key: Key) -> Tensor:
        """Return one uniform number for each: [*, 2] -> [*, K]."""
        return keys.uniform(key, (len(self.sizes),))

    def transform(self, noise: Tensor) -> Tensor:
        """Return for each number the value whose interval of [0, 1) contains the noise: [*, K] -> int64 [*, K]."""
        return self.each().transform(noise)

    def sample(self, key: Key) -> Tensor:
        """Return a sampled action: [*, 2] -> int64 [*, K]."""
        return self.transform(self.noise(key))

    def each(self) -> Categorical:
        """Return the distributions [*, K] of the numbers, as wide as the widest; values beyond its size are impossible."""
        widest = max(self.sizes)
        if set(self.sizes) == {widest}:
            return Categorical(logits=self.logits.reshape(*self.logits.shape[:-1], len(self.sizes), widest))
        rows = [
            F.pad(one, (0, widest - size), value=-math.inf)
            for one, size in zip(torch.split(self.logits, list(self.sizes), -1), self.sizes, strict=True)
        ]
        return Categorical(logits=torch.stack(rows, -2))


@record
class Product:
    """Independent distributions of the parts of an action: p(a) = prod_k p_k(a_k).

    >>> coin = Categorical(logits=torch.zeros(2))
    >>> both = Product(parts={"left": coin, "right": coin})
    >>> both.mode(), both.log_prob(both.mode()).exp()
    ({'left': tensor(0), 'right': tensor(0)}, tensor(0.2500))
    """

    parts: Any  # a dict or tuple of distributions, as the action is one of its parts; Products where it is a tree

    def log_prob(self, action: Any) -> Tensor:
        """Return log p(action), the sum over the parts: [*, ...] -> [*]."""
        return _sum([one.log_prob(field(action, name)) for name, one in _named(self.parts)])

    def entropy(self) -> Tensor:
        """Return the sum of the entropies: [*]."""
        return _sum([one.entropy() for _, one in _named(self.parts)])

    def mode(self) -> Any:
        """Return the most probable value of each part: [*, ...]."""
        return self.like([one.mode() for _, one in _named(self.parts)])

    def noise(self, key: Key) -> Any:
        """Return the noise of each part, from a key of its own: [*, 2] -> a tree [*, ...]."""
        own = keys.split(key, len(self.parts))
        return self.like([one.noise(k) for (_, one), k in zip(_named(self.parts), own, strict=True)])

    def transform(self, noise: Any) -> Any:
        """Return the action for this noise: [*, ...]."""
        return self.like([one.transform(field(noise, name)) for name, one in _named(self.parts)])

    def sample(self, key: Key) -> Any:
        """Return a sampled action: [*, 2] -> [*, ...]."""
        return self.transform(self.noise(key))

    def like(self, values: list[Any]) -> Any:
        """Return a value for each part, as a dict or tuple."""
        return dict(zip(self.parts, values, strict=True)) if isinstance(self.parts, dict) else tuple(values)


def _named(parts: Any) -> list[tuple[Any, Any]]:
    """Return the parts of a dict, tuple or record, each with its name or position."""
    if isinstance(parts, tuple):
        return list(enumerate(parts))
    return [(name, field(parts, name)) for name in (parts if isinstance(parts, dict) else parts.__record_fields__)]


def _sum(terms: list[Tensor]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def with_mask(distribution: Any, mask: Any) -> Any:
    """Return the distribution over legal actions: of a Categorical [*, A] or MultiCategorical [*, sum(sizes)], see `masked`.

    `mask` is true where legal, bool or a number that is not 0, as many as there are logits. Of a Product it is a dict or tuple
    of masks; `()`, or a name that is absent, leaves a part as it is. A number without a legal value takes any, equally likely.
    Raises: StructureError, ShapeError.

    >>> both = MultiCategorical(logits=torch.zeros(5), sizes=(2, 3))
    >>> with_mask(both, torch.tensor([True, True, False, False, True])).mode()
    tensor([0, 2])
    """
    if isinstance(mask, tuple) and not mask:
        return distribution
    if isinstance(distribution, Product):
        return _with_masks(distribution, mask)
    if not isinstance(distribution, Categorical | MultiCategorical):
        got, remedy = type(distribution).__name__, "mask discrete actions only"
        wanted = "Categorical, MultiCategorical or a Product of them"
        raise StructureError(message("with_action_mask: model", got=got, wanted=wanted, remedy=remedy))
    logits = distribution.logits
    if not isinstance(mask, Tensor) or mask.shape != logits.shape:
        got = str(list(mask.shape)) if isinstance(mask, Tensor) else type(mask).__name__
        remedy = "give one flag for each value of each number of the action"
        raise ShapeError(message("action_mask", got=got, wanted=list(logits.shape), remedy=remedy))
    legal = mask if mask.dtype == torch.bool else mask != 0
    return replace(distribution, logits=masked(logits, legal).logits)


def _with_masks(product: Product, mask: Any) -> Product:
    named = _named(product.parts)
    given = {"one tensor"} if isinstance(mask, Tensor) else {name for name, _ in _named(mask)}
    if not given <= {name for name, _ in named}:
        wanted, remedy = f"of {[name for name, _ in named]}", "name each mask as its part of the action"
        raise StructureError(message("action_mask", got=f"of {sorted(map(str, given))}", wanted=wanted, remedy=remedy))
    rows = [with_mask(one, field(mask, name)) if name in given else one for name, one in named]
    return Product(parts=product.like(rows))


def illegal(dtype: torch.dtype) -> float:
    """Return the logit or value of an action that a mask forbids: half the lowest number of the dtype.

    >>> illegal(torch.float16)
    -32752.0
    """
    return float(torch.finfo(dtype).min) / 2


@record
class EpsilonGreedy:
    """The action of the highest value, but with probability epsilon one of the legal actions 0..A-1, each equally likely.

    An action is illegal if its value is at most half of `illegal(dtype)`. If none is legal, all are.

    >>> EpsilonGreedy(values=torch.tensor([1.0, 3.0]), epsilon=torch.tensor(0.5)).log_prob(torch.tensor([0, 1])).exp()
    tensor([0.2500, 0.7500])
    """

    values: Tensor = tensor("* A", "float")
    epsilon: Tensor = tensor("*", "float")

    def probs(self) -> Tensor:
        """Return the probability of each action: [*, A]."""
        greedy = self._is(self.mode()).to(self.values.dtype)
        at_random = torch.softmax(self._legal(), -1)
        return torch.lerp(greedy, at_random, self.epsilon[..., None])

    def log_prob(self, action: Tensor) -> Tensor:
        """Return log p(action), hugely negative but finite for an action that is never taken: int64 [*] -> [*]."""
        probability = torch.where(self._is(action), self.probs(), 0.0).sum(-1)
        return torch.log(probability.clamp_min(torch.finfo(probability.dtype).tiny))

    def entropy(self) -> Tensor:
        """Return -sum_a p(a) log p(a), where 0 log 0 = 0: [*]."""
        probs = self.probs()
        return -(probs * torch.log(probs.clamp_min(torch.finfo(probs.dtype).tiny))).sum(-1)

    def mode(self) -> Tensor:
        """Return the first action with the highest value: int64 [*]."""
        return self.values.argmax(-1)

    def noise(self, key: Key) -> tuple[Tensor, Tensor]:
        """Return two uniform numbers for each action, for epsilon and for the random action: [*, 2] -> [*] twice."""
        both = keys.uniform(key, (2,))
        return both[..., 0], both[..., 1]

    def transform(self, noise: tuple[Tensor, Tensor]) -> Tensor:
        """Return the action for this noise: int64 [*]."""
        luck, which = noise
        return torch.where(luck < self.epsilon, keys.inverse_cdf(which, self._legal()), self.mode())

    def sample(self, key: Key) -> Tensor:
        """Return a sampled action: [*, 2] -> int64 [*]."""
        return self.transform(self.noise(key))

    def _is(self, action: Tensor) -> Tensor:
        return action[..., None] == torch.arange(self.values.shape[-1], device=action.device)

    def _legal(self) -> Tensor:
        lowest = illegal(self.values.dtype)
        return torch.where(self.values > lowest / 2, 0.0, lowest).to(self.values.dtype)


@record
class Normal:
    """Diagonal normal distribution: p(a) = prod_d N(a_d; mean_d, exp(log_std_d)^2).

    >>> Normal(mean=torch.zeros(2), log_std=torch.zeros(2)).log_prob(torch.zeros(2))
    tensor(-1.8379)
    """

    mean: Tensor = tensor("* D", "float")
    log_std: Tensor = tensor("* D", "float")

    def log_prob(self, action: Tensor) -> Tensor:
        """Return log p(action), summed over the last axis: [*, D] -> [*]."""
        standard = (action - self.mean) * torch.exp(-self.log_std)
        return (-0.5 * (standard * standard + LOG_2_PI) - self.log_std).sum(-1)

    def entropy(self) -> Tensor:
        """Return sum_d log_std_d + log(2 pi e) / 2: [*]."""
        return (self.log_std + 0.5 * (1.0 + LOG_2_PI)).sum(-1)

    def mode(self) -> Tensor:
        """Return the mean: [*, D]."""
        return self.mean

    def noise(self, key: Key) -> Tensor:
        """Return standard normal numbers: [*, 2] -> [*, D]."""
        return _standard_normal(key, self.mean)

    def transform(self, noise: Tensor) -> Tensor:
        """Return mean + exp(log_std) noise: [*, D] -> [*, D]."""
        return self.mean + torch.exp(self.log_std) * noise

    def sample(self, key: Key) -> Tensor:
        """Return a sampled action: [*, 2] -> [*, D]."""
        return self.transform(self.noise(key))


@record
class TanhNormal:
    """Diagonal normal squashed into a box: a = low + (high - low) (1 + tanh x) / 2, x ~ N(mean, exp(log_std)^2).

    Source: Haarnoja et al. 2018, arXiv:1812.05905, appendix C.

    >>> one = torch.ones(1)
    >>> TanhNormal(mean=0 * one, log_std=0 * one, low=-2 * one, high=4 * one).mode()
    tensor([1.])
    """

    mean: Tensor = tensor("* D", "float")  # of x
    log_std: Tensor = tensor("* D", "float")  # of x
    low: Tensor = tensor("* D", "float")  # of the action
    high: Tensor = tensor("* D", "float")  # of the action, above `low`

    def log_prob(self, action: Tensor) -> Tensor:
        """Return log p(action): [*, D] in [low, high] -> [*]; an action on a bound is moved to its inner neighbour."""
        edge = 1.0 - torch.finfo(action.dtype).eps
        squashed = ((2.0 * action - self.low - self.high) / (self.high - self.low)).clamp(-edge, edge)
        return self.log_prob_before(0.5 * (torch.log1p(squashed) - torch.log1p(-squashed)))

    def log_prob_before(self, x: Tensor) -> Tensor:
        """Return log p of squash(x), accurate for any x, unlike `log_prob`, which must invert tanh: [*, D] -> [*].

        log N(x) - sum_d log(da/dx)_d with log(1 - tanh^2 x) = 2 (log 2 - x - softplus(-2x)).
        """
        return self.before().log_prob(x) - self._log_slope(x).sum(-1)

    def entropy(self) -> Tensor:
        """Return the entropy of x plus E[log da/dx], by five-point Gauss-Hermite quadrature in each dimension: [*].

        For std 1 the error is below 0.01 per dimension, for std 3 below 0.3; the gradient is that of the estimate.
        """
        std = torch.exp(self.log_std)
        slope = WEIGHTS[0] * self._log_slope(self.mean)
        for node, weight in zip(NODES[1:], WEIGHTS[1:], strict=True):
            slope = slope + weight * self._log_slope(self.mean + node * std)
        return self.before().entropy() + slope.sum(-1)

    def mode(self) -> Tensor:
        """Return the action at x = mean, the median: [*, D]. (The density may peak elsewhere, even at both bounds.)"""
        return self.squash(self.mean)

    def noise(self, key: Key) -> Tensor:
        """Return standard normal numbers: [*, 2] -> [*, D]."""
        return _standard_normal(key, self.mean)

    def transform(self, noise: Tensor) -> Tensor:
        """Return squash(mean + exp(log_std) noise): [*, D] -> [*, D]."""
        return self.squash(self.before().transform(noise))

    def sample(self, key: Key) -> Tensor:
        """Return a sampled action: [*, 2] -> [*, D]."""
        return self.transform(self.noise(key))

    def before(self) -> Normal:
        """Return the distribution of x."""
        return Normal(mean=self.mean, log_std=self.log_std)

    def squash(self, x: Tensor) -> Tensor:
        """Return the action for x: [*, D] -> [*, D], never outside the bounds."""
        action = 0.5 * (self.low + self.high) + 0.5 * (self.high - self.low) * torch.tanh(x)
        return torch.minimum(torch.maximum(action, self.low), self.high)

    def _log_slope(self, x: Tensor) -> Tensor:
        return 2.0 * (LOG_2 - x - F.softplus(-2.0 * x)) + torch.log(0.5 * (self.high - self.low))


def _standard_normal(key: Key, like: Tensor) -> Tensor:
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    return keys.normal(key, like.shape[-1:], dtype=dtype).to(like.dtype)


def kl(p: Distribution, q: Distribution) -> Tensor:
    """Return the exact KL(p || q) = E_p[log p - log q] of two distributions of one kind: [*].

    They are Categorical, MultiCategorical, Normal, TanhNormal of the same bounds, or Products of these, whose KLs add up.
    Normal: sum_d log(s_q / s_p) + (s_p^2 + (m_p - m_q)^2) / (2 s_q^2) - 1/2. The same squashing of both does not change it.
    Raises: StructureError for any other pair.

    >>> half, sure = torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0])
    >>> kl(Categorical(logits=sure.log()), Categorical(logits=half.log()))
    tensor(0.6931)
    """
    if isinstance(p, Categorical) and isinstance(q, Categorical):
        log_p, log_q = torch.log_softmax(p.logits, -1), torch.log_softmax(q.logits, -1)
        difference = torch.where(
            log_p == -math.inf, 0.0, log_p - log_q
        )  # before the product: its gradient has no 0 * inf
        return (torch.exp(log_p) * difference).sum(-1)
    if isinstance(p, MultiCategorical) and isinstance(q, MultiCategorical) and p.sizes == q.sizes:
        return kl(p.each(), q.each()).sum(-1)
    if (
        isinstance(p, Product)
        and isinstance(q, Product)
        and [n for n, _ in _named(p.parts)] == [n for n, _ in _named(q.parts)]
    ):
        return _sum([kl(one, field(q.parts, name)) for name, one in _named(p.parts)])
    if isinstance(p, TanhNormal) and isinstance(q, TanhNormal):
        return kl(p.before(), q.before())
    if isinstance(p, Normal) and isinstance(q, Normal):
        ratio = torch.exp(p.log_std - q.log_std)
        distance = (p.mean - q.mean) * torch.exp(-q.log_std)
        return (0.5 * (ratio * ratio + distance * distance - 1.0) + q.log_std - p.log_std).sum(-1)
    got = f"{type(p).__name__} and {type(q).__name__}"
    wanted = "two of one kind: Categorical, MultiCategorical, Normal, TanhNormal or Product"
    raise StructureError(message("kl: p, q", got=got, wanted=wanted, remedy="compare policies over one action space"))
