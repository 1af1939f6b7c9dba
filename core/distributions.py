"""Distributions over actions, as records: log-probs, entropies and samples that are functions of noise."""

from typing import Any, Protocol

from torch import Tensor

from .keys import Key


class Distribution(Protocol):
    """What a policy gives: parameters with leading axes [*] for actions [*, ...].

    A sample is a function of noise, so that a rollout may draw the noise of all its steps at once:
    `sample(key) == transform(noise(key))`.
    """

    def log_prob(self, action: Tensor) -> Tensor:
        """log p(action): [*, ...] -> [*]."""
        ...

    def entropy(self) -> Tensor:
        """The entropy, or its usual estimate where it has no closed form: [*]."""
        ...

    def mode(self) -> Tensor:
        """The most probable action: [*, ...]."""
        ...

    def noise(self, key: Key) -> Any:
        """What `transform` needs; depends on the key [*, 2] and the parameters' shape alone."""
        ...

    def transform(self, noise: Any) -> Tensor:
        """The action the noise leads to: [*, ...]."""
        ...

    def sample(self, key: Key) -> Tensor:
        """transform(noise(key)), key [*, 2]."""
        ...
