"""Objects of TorchRL as subjects: environments, replay buffers and loss modules."""

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class TensorDictBuffer:
    """A replay buffer of TensorDicts, filled with single steps: the subject of `replay_laws`."""

    def __init__(self, kind: Any, capacity: int, options: dict[str, Any]) -> None:
        storage = importlib.import_module("torchrl.data").LazyTensorStorage(capacity)
        self.rows = kind(storage=storage, **options)

    def add(self, step: Any) -> None:
        """Add a step as a TensorDict."""
        from tensordict import TensorDict

        self.rows.add(TensorDict(dict(step), batch_size=[]))

    def sample(self, count: int) -> dict[str, Tensor]:
        """Return the columns of a sample."""
        return dict(self.rows.sample(count).items())

    def __len__(self) -> int:
        return len(self.rows)


def replay_buffer(kind: Any, **options: Any) -> Callable[[int], TensorDictBuffer]:
    """Return `make(capacity)` for a class of replay buffers with these options, for `replay_laws`."""
    return lambda capacity: TensorDictBuffer(kind, capacity, options)


def clipped_loss(kind: Any, **options: Any) -> Callable[..., Tensor]:
    """Return the objective of a clipped loss module as a function of log-probs, for `loss_laws`.

    The actor of the module is a distribution whose log-prob is the one that a law draws.
    """

    def losses(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
        from tensordict import TensorDict
        from tensordict.nn import TensorDictModule

        shape, modules = log_prob.shape, importlib.import_module("torchrl.modules")
        inner = TensorDictModule(torch.nn.Identity(), in_keys=["given"], out_keys=["known"])
        actor = modules.ProbabilisticActor(inner, in_keys=["known"], distribution_class=_Known, return_log_prob=True)
        words = {"entropy_bonus": False, "critic_coeff": None, "reduction": "none", **options}
        bounds = clip if clip < 1 else (1 - 1e-6, 1e30)  # the module wants a bound below 1, and no ratio is below 0
        module = kind(actor, None, clip_epsilon=bounds, **words)
        columns = {"given": log_prob.reshape(-1), "action": torch.zeros(log_prob.numel())}
        columns |= {"action_log_prob": behaviour_log_prob.detach().reshape(-1)}
        columns |= {"advantage": advantage.reshape(-1, 1)}
        found: Tensor = module(TensorDict(columns, batch_size=[log_prob.numel()]))["loss_objective"]
        return found.reshape(shape)

    return losses


class _Known(torch.distributions.Distribution):
    """A distribution of known log-probs, whatever the action is."""

    def __init__(self, known: Tensor) -> None:
        super().__init__(known.shape, validate_args=False)
        self.known = known

    def log_prob(self, value: Tensor) -> Tensor:
        del value
        return self.known


class SpecSpace:
    """A spec as a space of Gymnasium: membership, and samples from a seed."""

    def __init__(self, spec: Any) -> None:
        self.spec, self.dtype, self._seed = spec, None, 0

    def contains(self, value: Any) -> bool:
        """Return whether a value is in the spec."""
        return bool(self.spec.is_in(torch.as_tensor(value)))

    def seed(self, number: int) -> None:
        """Seed the next sample."""
        self._seed = number

    def sample(self) -> Any:
        """Return a member, as a numpy array."""
        with torch.random.fork_rng():
            torch.manual_seed(self._seed)
            return self.spec.rand().numpy()


class TensorDictEnv:
    """An environment of TensorDicts with the methods of Gymnasium's; an observation is a dict of numpy arrays."""

    def __init__(self, env: Any) -> None:
        self.env: Any = env
        self.now: Any = None
        self.action_space, self.observation_space = SpecSpace(env.action_spec), self
        keys = env.observation_spec.keys(include_nested=True, leaves_only=True)
        self.names = {name if isinstance(name, str) else ".".join(name): name for name in keys}

    def contains(self, observation: dict[str, Any]) -> bool:
        """Return whether an observation is in the spec of the environment."""
        spec = self.env.observation_spec
        return all(spec[self.names[name]].is_in(torch.as_tensor(value)) for name, value in observation.items())

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode."""
        del options
        if seed is not None:
            self.env.set_seed(seed)
        self.now = self.env.reset()
        return self._seen(self.now), {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Take one step."""
        after = self.env.step(self.now.clone().set("action", torch.as_tensor(action)))["next"]
        reward = sum(float(after[name]) for name in self.env.reward_keys)  # one for each player
        ends = [bool(after.get(name, False)) for name in ("terminated", "truncated")]
        self.now = after.exclude(*self.env.reward_keys)
        return self._seen(after), reward, ends[0], ends[1], {}

    def _seen(self, tree: Any) -> dict[str, Any]:
        return {name: tree[key].detach().numpy().copy() for name, key in self.names.items()}

    def close(self) -> None:
        """Close the environment."""
        if not self.env.is_closed:
            self.env.close()


def gym_env(make: Callable[..., Any], **options: Any) -> Callable[[], TensorDictEnv]:
    """Return `make()` for a class or function that makes environments, for `gym_laws`."""
    return lambda: TensorDictEnv(make(**options))
