"""How a user would point a suite at each bug: the suite, what is declared, and a few lines that call the object as it is."""

import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

from purestep.core.tree import leaves, tree_map
from purestep.properties.suites.aggregate import WEIGHTS, Reduction
from purestep.properties.suites.normalizer import NormalizerFunctions

from . import chat_templates, policies
from .use import Use


def per_step(call: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A loss that is reduced, one step at a time."""

    def loss(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, **words: Any) -> Tensor:
        flat = [x.reshape(-1) for x in (log_prob, behaviour_log_prob, advantage)]
        found = [call(*[x[i : i + 1] for x in flat], **words) for i in range(len(flat[0]))]
        return torch.stack(found).reshape(log_prob.shape) if found else log_prob * 0

    return loss


# --- distributions ---


def mean_squashed(actor: Any) -> Any:
    """The actor with the mean and the deviation of a network."""

    def make(mean: Tensor, log_std: Tensor) -> Any:
        made = actor(1, mean.shape[-1])
        del made.mu, made.log_std
        made.mu, made.log_std = (lambda obs: mean), log_std
        return SimpleNamespace(sample=lambda: made.sample(mean)[0], log_prob=lambda action: made.log_prob(mean, action))

    return make


def sparse(make: Any) -> Any:
    """Legal actions by their indices, for a mask that is the same in all rows."""
    return lambda logits: make(torch.cat([logits, logits[..., :1]], -1), torch.arange(0, logits.shape[-1] + 1)[1:])


def truncated(make: Any) -> Any:
    """By its own name of a sampler."""

    def made(mean: Tensor, log_std: Tensor) -> Any:
        found = make(mean, log_std.exp())
        found.sample = found.rsample
        return found

    return made


def of_scaled_actor(actor: Any) -> Any:
    """The pair that it samples."""

    def sample(mean: Tensor, log_std: Tensor) -> Any:
        made = actor(1, mean.shape[-1])
        made.forward = lambda state: (mean, log_std.exp())
        return made.sample_normal(mean)

    return sample


def of_layers(actor: Any) -> Any:
    """With the outputs of its two heads."""

    def sample(mean: Tensor, log_std: Tensor) -> Any:
        made = actor(1, 1, mean.shape[-1])
        del made.fc1, made.fc_mu, made.fc_std
        made.fc1, made.fc_mu, made.fc_std = (lambda x: x), (lambda x: mean), (lambda x: log_std.exp().expm1().log())
        return made(mean)

    return sample


def of_ppo_actor(actor: Any) -> Any:
    """With the output of its network."""

    def sample(mean: Tensor, log_std: Tensor) -> Any:
        made = actor(1, mean.shape[-1])
        del made.net, made.action_std_log
        made.net, made.action_std_log = (lambda state: mean), log_std
        return made.get_action(mean)

    return sample


def rescored(make: Any) -> Any:
    """A sample and what its distribution says of it."""

    def sample(mean: Tensor, log_std: Tensor) -> Any:
        found = make(mean, log_std.exp())
        action = found.rsample()
        return action, found.log_prob(action)

    return sample


# --- optimisers ---


def functional_adam(step: Any) -> Any:
    """A pair of functions around an optimiser in place."""

    def make(learning_rate: float) -> Any:
        def init(params: Any) -> Any:
            return tree_map(torch.zeros_like, params), tree_map(torch.zeros_like, params), 0

        def update(gradients: Any, state: Any, params: Any) -> Any:
            first, second, count = state
            new, first, second = (tree_map(torch.clone, tree) for tree in (params, first, second))
            trees = (leaves(new), leaves(gradients), leaves(first), leaves(second))
            step(*trees, count + 1, lr=learning_rate, weight_decay=0.1)
            return tree_map(torch.sub, new, params), (first, second, count + 1)

        return SimpleNamespace(init=init, update=update)

    return make


class Clipped(torch.optim.SGD):
    """Gradient descent with gradients clipped by a function of the user's."""

    def __init__(self, params: Any, lr: float, before: Callable[[list[Tensor]], None]):
        super().__init__(params, lr=lr)
        self.before = before

    def step(self, closure: Any = None) -> Any:
        """Clips, then steps."""
        self.before([p for group in self.param_groups for p in group["params"] if p.grad is not None])
        return super().step(closure)


def clips(clip: Any) -> Any:
    """In place, of parameters."""
    return lambda params, lr: Clipped(params, lr, lambda owners: clip(owners, 1.0))


def clips_list(clip: Any) -> Any:
    """Of a list of gradients."""

    def before(owners: Any) -> None:
        for p, grad in zip(owners, clip([p.grad for p in owners], 1.0), strict=True):
            p.grad = grad

    return lambda params, lr: Clipped(params, lr, before)


class Trained(torch.optim.SGD):
    """Gradient descent by a training step of the user's."""

    def __init__(self, params: Any, lr: float, update: Any):
        super().__init__(params, lr=lr)
        self.update = update

    def step(self, closure: Any = None) -> Any:
        """With a loss that has the gradients at hand."""
        owners = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        with torch.enable_grad():
            loss = sum(((p * p.grad.clone()).sum() for p in owners), torch.zeros(()))
        plain = SimpleNamespace(zero_grad=self.zero_grad, step=super().step)
        self.update(SimpleNamespace(parameters=lambda: owners), plain, loss, 1.0)


# --- schedules ---


def stepping(make: Callable[[], Any]) -> Callable[[int], float]:
    """What the n-th step gives, from 0."""

    def rate(n: int) -> float:
        scheduler = make()
        return [scheduler.step() for _ in range(n + 1)][-1]

    return rate


# --- estimators and targets ---


def windows(sum_of: Any, value_of: Any) -> Any:
    """n-step returns from the sum of a window's rewards [B, n] and the value after it."""

    def returns(r: Tensor, n: Tensor, te: Tensor, tr: Tensor, *, gamma: float, n_steps: int) -> Tensor:
        over, found = te | tr, []
        for t in range(len(r)):
            last = next((k for k in range(t, len(r)) if over[k] or k == t + n_steps - 1), len(r) - 1)
            rewards, ends = torch.zeros(1, n_steps), torch.zeros(1, n_steps, dtype=torch.bool)
            rewards[0, : last - t + 1], ends[0, : last - t + 1] = r[t : last + 1], over[t : last + 1]
            total = sum_of(rewards, ends, gamma)[0]
            found.append(value_of(total, n[last], te[last], gamma, last - t + 1))
        return torch.stack(found)

    return lambda r, nv, te, tr, *, gamma, n: returns(r, nv, te, tr, gamma=gamma, n_steps=n)


def summed(rewards: Tensor, ends: Tensor, gamma: float) -> Tensor:
    """The discounted sum; what follows an end is 0 already."""
    del ends
    return (rewards * gamma ** torch.arange(rewards.shape[1])).sum(1)


def valued(total: Tensor, value: Tensor, terminated: Tensor, gamma: float, count: int) -> Tensor:
    """And the value beyond."""
    return total + gamma**count * value * ~terminated


# --- buffers ---


class Buffered:
    """A buffer of the user's as the suite calls one."""

    def __init__(self, buffer: Any):
        self.buffer = buffer


class Compact(Buffered):
    """add(obs, next_obs, action, reward, done)."""

    def add(self, step: Mapping[str, Tensor]) -> None:
        """One step."""
        x = {name: value.numpy()[None] for name, value in step.items()}
        over = bool(step["terminated"] | step["truncated"])
        self.buffer.add(x["observation"], x["next_observation"], x["action"], float(step["reward"]), over)

    def sample(self, count: int) -> Mapping[str, Any]:
        """Their columns."""
        found = self.buffer.sample(count)
        names = {"observation": "obs", "next_observation": "next_obs", "action": "action"}
        return {"reward": found["reward"], **{name: found[key][:, 0] for name, key in names.items()}}

    def __len__(self) -> int:
        return int(self.buffer.buffer_size if self.buffer.full else self.buffer.pos)


class Newest(Buffered):
    """push(obs, reward, next_obs, terminated)."""

    def add(self, step: Mapping[str, Tensor]) -> None:
        """One step."""
        obs, after = (step[name].numpy()[None] for name in ("observation", "next_observation"))
        self.buffer.push(obs, float(step["reward"]), after, bool(step["terminated"]))

    def sample(self, count: int) -> Mapping[str, Any]:
        """Their columns."""
        obs, reward, after, terminated = self.buffer.sample(count)
        return {"observation": obs[:, 0], "reward": reward, "next_observation": after[:, 0], "terminated": terminated}

    def __len__(self) -> int:
        return len(self.buffer)


class Rows:
    """Steps in a ring, drawn by something of the user's."""

    def __init__(self, capacity: int):
        self.capacity, self.rows, self.count = capacity, list[Any](), 0

    def put(self, step: Any) -> int:
        """Stores a step; its slot."""
        slot = self.count % self.capacity
        if len(self.rows) < self.capacity:
            self.rows.append(step)
        else:
            self.rows[slot] = step
        self.count += 1
        return slot

    def taken(self, slots: Sequence[int]) -> dict[str, Tensor]:
        """The columns of slots."""
        return {name: torch.stack([self.rows[i][name] for i in slots]) for name in self.rows[0]}

    def __len__(self) -> int:
        return len(self.rows)


class Relabelled(Rows):
    """Steps with goals of the user's."""

    def __init__(self, make: Any, capacity: int):
        super().__init__(capacity)
        self.goals, self.episode, self.rng = make(capacity), 0, np.random.default_rng(0)

    def add(self, step: Any) -> None:
        """What a step achieves is its observation."""
        self.put(step)
        self.goals.add(int(step["observation"]), self.episode)
        self.episode += int(step["terminated"] | step["truncated"])

    def sample(self, count: int) -> Mapping[str, Any]:
        """With goals."""
        slots = self.rng.integers(0, len(self), count).tolist()
        return {**self.taken(slots), "goal": torch.tensor([float(self.goals.relabel(i)) for i in slots])}


class ByPriority:
    """A prioritised buffer of the user's."""

    def __init__(self, make: Any, capacity: int):
        self.buffer = make(capacity, 0.5)

    def add(self, step: Any) -> None:
        """As it is."""
        self.buffer.add(step)

    def sample(self, count: int) -> Mapping[str, Any]:
        """In columns."""
        items, index, weight = self.buffer.sample(count, 1.0)
        columns = {name: torch.stack([item[name] for item in items]) for name in items[0]}
        return {**columns, "index": torch.as_tensor(index), "weight": torch.as_tensor(weight)}

    def update_priorities(self, index: Tensor, priority: Tensor) -> None:
        """As it is."""
        self.buffer.update_priorities(index.tolist(), priority.tolist())

    def __len__(self) -> int:
        return len(self.buffer.items)


class Stacked(Rows):
    """Steps beside frames of the user's: a stack of two is a step and the one after it."""

    def __init__(self, make: Any, capacity: int):
        super().__init__(capacity)
        self.frames, self.rng = make(capacity), np.random.default_rng(0)

    def add(self, step: Any) -> None:
        """Its slot is the frame."""
        self.frames.add(self.put(step), bool(step["terminated"]), bool(step["truncated"]))

    def sample(self, count: int) -> Mapping[str, Any]:
        """The first of two, whose next observation is the observation of the second."""
        places = self.frames.valid()
        if not places:
            return self.taken(self.rng.integers(0, len(self), count).tolist())
        pairs = [self.frames.stacked(int(i)).tolist() for i in self.rng.choice(places, count)]
        found = self.taken([first for first, _ in pairs])
        found["next_observation"] = torch.stack([self.rows[second]["observation"] for _, second in pairs])
        return found


class InSequences(Rows):
    """Sequences of the user's: actions and the observations that they led to."""

    def __init__(self, make: Any, capacity: int):
        super().__init__(capacity)
        self.make, self.rng = make, np.random.default_rng(0)

    def add(self, step: Any) -> None:
        """Into the ring."""
        self.put(step)

    def sample(self, count: int) -> Mapping[str, Any]:
        """The columns that the sequence of all steps gives."""
        rows = self.rows
        actions = torch.stack([*[row["action"] for row in rows], torch.zeros(())])[None]
        after = torch.stack([torch.zeros(()), *[row["next_observation"] for row in rows]])[None]
        found = self.make(actions, after).sample(torch.tensor([0]))
        slots = torch.from_numpy(self.rng.integers(0, len(rows), count))
        action, after = found["prev_action"][0][slots], found["obs"][0][slots]
        before = {float(row["next_observation"]): row["observation"] for row in rows}
        return {
            "observation": torch.stack([before[float(x)] for x in after]),
            "action": action,
            "next_observation": after,
        }


class NSteps(Buffered):
    """A ring whose draws follow n steps."""

    def add(self, step: Mapping[str, Tensor]) -> None:
        """One step."""
        over = bool(step["terminated"] | step["truncated"])
        self.buffer.add(step["observation"], step["reward"], step["next_observation"], over)

    def sample(self, count: int) -> Mapping[str, Any]:
        """Their columns."""
        obs, reward, after = self.buffer.sample(count)
        return {"observation": obs, "reward": reward, "next_observation": after}

    def __len__(self) -> int:
        return max(0, min(self.buffer.capacity, self.buffer.ptr) - self.buffer.n + 1)


class Queued(Rows):
    """What a queue of n steps gives."""

    def __init__(self, queue: Any, capacity: int):
        super().__init__(capacity)
        self.queue, self.rng = queue(3, 0.5), np.random.default_rng(0)

    def add(self, step: Mapping[str, Tensor]) -> None:
        """Into the queue."""
        over = bool(step["terminated"] | step["truncated"])
        names = ("observation", "action", "reward", "next_observation")
        found = self.queue.push(*(step[name] for name in names), over)
        if found is not None:
            self.put(dict(zip(names, found[:4], strict=True)))

    def sample(self, count: int) -> Mapping[str, Any]:
        """Any of them."""
        return self.taken(self.rng.integers(0, len(self), count).tolist())


# --- statistics ---


def in_place(
    init: Callable[..., Any], update: Callable[[Any, Any], Any], mean: Any, variance: Any, scale: Any = None
) -> Any:
    """Functions of an object that changes."""
    return NormalizerFunctions(init, lambda state, batch: (update(state, batch), None)[1], mean, variance, scale)


def running_stats(make: Any) -> Any:
    """By its deviation."""
    return in_place(
        lambda shape: make(shape[0]),
        lambda s, x: s.update(x),
        lambda s: s.mean,
        lambda s: s.std**2,
        lambda s, x: s.normalize(x),
    )


def in_modes(module: Any, x: Any) -> Any:
    """Evaluated, and back to training."""
    module.eval()
    found = module(x)
    module.train()
    return found


def empirical(make: Any) -> Any:
    """A module in its modes."""
    return in_place(lambda shape: make(shape[0]), lambda s, x: s(x), lambda s: s._mean, lambda s: s._var, in_modes)


def of_wrapper(make: Any) -> Any:
    """Observations one by one."""

    class Plain(gymnasium.Env[Any, Any]):
        """Only a space."""

        def __init__(self, shape: tuple[int, ...]) -> None:
            self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float64)
            self.action_space = gymnasium.spaces.Discrete(2)

    def update(state: Any, batch: Any) -> None:
        for row in batch:
            state.observation(row)

    return in_place(
        lambda shape: make(Plain(shape)),
        update,
        lambda s: s.mean,
        lambda s: np.broadcast_to(s.m2 / max(1, s.count), s.mean.shape),
    )


def with_eval(make: Any) -> Any:
    """Frozen by `eval`."""
    return in_place(
        lambda shape: make(shape[0]), lambda s, x: s(x), lambda s: s.stats.mean, lambda s: s.stats.std**2, in_modes
    )


# --- policies ---


def on_cartpole(evaluate: Any) -> Any:
    """One short episode."""
    return lambda policy: evaluate(policy, short())


def no_gradient(module: Any) -> Any:
    """As a rollout calls it."""
    return torch.no_grad()(lambda *inputs: module(*inputs))


def in_two(gradients: Any) -> Any:
    """A critic with a weight for each value, in two minibatches; a number whose gradient is what comes back."""

    def loss(value: Tensor, target: Tensor) -> Tensor:
        critic = torch.nn.Linear(len(value), 1, bias=False)
        critic.weight.data = value.detach()[None].clone()
        (found,) = gradients(critic, torch.eye(len(value)), target, 2)
        return (found[0] * value).sum()

    return loss


# --- texts ---


def pythonic(calls: Sequence[Any]) -> str:
    """As Python writes a call."""
    name, arguments = calls[0]
    return f"[{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})]"


def single(parse: Any) -> Any:
    """One call or none."""
    return lambda text: [call] if (call := parse(text)) else []


KINDS: dict[str, str] = {}


def xml(calls: Sequence[Any]) -> str:
    """As the template of Qwen 3 writes a call, whose values are Python's texts."""
    name, arguments = calls[0]
    KINDS.clear()
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    KINDS.update({key: kinds.get(type(value), "object") for key, value in arguments.items()})
    written = {
        key: json.dumps(x, ensure_ascii=False) if isinstance(x, (list, dict)) else str(x)
        for key, x in arguments.items()
    }
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in written.items())
    return f"<function={name}>\n{body}</function>"


def typed(parse: Any) -> Any:
    """With the types of the tool that is called."""
    return single(lambda text: parse(text, dict(KINDS)))


def openai(calls: Sequence[Any]) -> str:
    """A message whose calls without arguments have the empty text."""
    made = [{"function": {"name": name, "arguments": json.dumps(x) if x else ""}} for name, x in calls]
    return json.dumps({"tool_calls": made})


def of_message(parse: Any) -> Any:
    """No message, no calls."""

    def calls(text: str) -> Any:
        try:
            message = json.loads(text)
        except ValueError:
            return []
        return parse(message) if isinstance(message, dict) else []

    return calls


def last_number(text: str) -> str:
    """Of a text."""
    found = re.findall(r"-?\d+", text)
    return found[-1] if found else ""


UNIT = {"low": 0.0, "high": 1.0}
LENGTHS = [{"completion": "x" * 20}, {"completion": "x" * 5}, {"completion": ""}]
SOLVED = [{"completion": "it is 4", "solution": "4"}, {"completion": "it is 5", "solution": "4"}]
BOXED = [
    {"completion": "\\boxed{5}", "ground_truths": "5"},
    {"completion": "\\boxed{6}", "ground_truths": "5"},
    {"completion": "so 5", "ground_truths": "5"},
]
COLUMN = [{"completion": "4", "ground_truth": "4"}, {"completion": "5", "ground_truth": "4"}]


# --- estimators ---


def windowed(gae: Any) -> Any:
    """Ends of any kind, and the value after the window."""
    return lambda r, v, n, te, tr, *, gamma, lambda_: gae(r, v, te | tr, n[-1], gamma, lambda_)


def first_of(gae: Any) -> Any:
    """The advantages of a pair."""
    return lambda r, v, n, te, tr, *, gamma, lambda_: gae(r, v, te | tr, n[-1], gamma, lambda_)[0]


def batched(gae: Any) -> Any:
    """A batch of one."""
    return lambda *columns, gamma, lambda_: gae(*[x[None] for x in columns], gamma, lambda_)[0]


def plain_gae(gae: Any) -> Any:
    """By position."""
    return lambda *columns, gamma, lambda_: gae(*columns, gamma, lambda_)


def of_pair(vtrace: Any) -> Any:
    """Advantages and targets, at lambda 1."""

    def found(
        ratios: Tensor, r: Tensor, v: Tensor, n: Tensor, te: Tensor, tr: Tensor, *, gamma: Any, **bars: Any
    ) -> Any:
        advantages, targets = vtrace(ratios, r, v, n, te, te | tr, gamma)
        return SimpleNamespace(advantages=advantages, targets=targets)

    return found


def of_chunk(vtrace: Any) -> Any:
    """Targets of a chunk; ends of any kind, and the value after it."""

    def targets(log_ratios: Tensor, r: Tensor, v: Tensor, n: Tensor, te: Tensor, tr: Tensor, **words: Any) -> Any:
        bars = words.get("rho_bar", 1.0), words.get("c_bar", 1.0)
        return vtrace(log_ratios.exp(), r, v, te | tr, n[-1], words["gamma"], *bars)

    return targets


def plain_target(target: Any) -> Any:
    """By position."""
    return lambda r, n, te, tr, *, gamma: target(r, n, te, tr, gamma)


def without_values(target: Any) -> Any:
    """Next values alone, and ends of any kind."""
    return lambda r, v, n, te, tr, *, gamma, lambda_: target(r, te | tr, n, gamma, lambda_)


def whole(returns: Any) -> Any:
    """Lists; the return to the end and what lies beyond."""
    return lambda r, v, n, te, tr, *, gamma, lambda_: torch.tensor(
        returns(*(x.tolist() for x in (r, te, tr, n)), gamma), dtype=r.dtype
    )


# --- losses ---


def halves(loss: Any) -> Any:
    """An action of two parts."""
    return per_step(
        lambda lp, old, adv, *, clip: loss({"a": lp / 2, "b": lp / 2}, {"a": old / 2, "b": old / 2}, adv, clip)
    )


def one_token(loss: Any) -> Any:
    """Completions of one token."""
    return per_step(lambda lp, old, adv, *, clip: loss(lp[None], old[None], adv, torch.ones_like(lp)[None], clip))


def two_way(log_prob: Tensor) -> Tensor:
    """Logits of two outcomes, the first of which has this log-prob."""
    return torch.stack([log_prob, torch.log1p(-log_prob.exp().clamp(max=1 - 1e-6))], -1)


def at_temperature(ratio: Any) -> Any:
    """A sampler at temperature 1/2."""

    def weights(log_prob: Tensor, sampler: Tensor, mask: Tensor) -> Tensor:
        lp, old = torch.where(mask, log_prob, -1.0), torch.where(mask, sampler, -1.0)
        found = ratio(0.5 * two_way(lp), torch.zeros_like(mask, dtype=torch.long), old, 0.5)
        return torch.where(mask, found.clamp(0.5, 2.0), 0.0)

    return weights


def each_sample(penalty: Any) -> Any:
    """One token at a time."""

    def estimate(log_prob: Tensor, reference_log_prob: Tensor) -> Tensor:
        one = torch.ones(1, 1)
        return torch.stack(
            [penalty(p[None, None], q[None, None], one) for p, q in zip(log_prob, reference_log_prob, strict=True)]
        )

    return estimate


def micro_batches(loss: Any) -> Any:
    """Rows one by one."""

    def reduce(losses: Tensor, mask: Tensor, *, denominator: Any = None) -> Tensor:
        quiet = torch.where(mask, losses, 0.0)
        found = loss(list(quiet.split(1)), list(mask.to(losses.dtype).split(1)))
        return found if denominator is None else found * mask.sum() / max(float(denominator), 1.0)

    return Reduction(reduce, lambda mask: mask.sum().clamp(min=1))


def by_prompt(advantages: Any) -> Any:
    """Rows of no group get 0; the largest group says the size."""

    def call(reward: Tensor, group: Tensor, *, groups: int) -> Tensor:
        rows, found = group >= 0, torch.zeros_like(reward)
        if rows.any():
            size = int(torch.bincount(group[rows]).max())
            found[rows] = advantages(reward[rows], group[rows], size)
        return found

    return call


def in_runs(advantages: Any) -> Any:
    """Groups that stand together; their size is that of the first."""
    return lambda reward, group, *, groups: advantages(reward, int((group == group[0]).sum()))


def as_rows(whiten: Any) -> Any:
    """Groups as masked rows, each at its own columns."""

    def call(reward: Tensor, group: Tensor, *, groups: int) -> Tensor:
        mask = group == torch.arange(groups)[:, None]
        found: Tensor = whiten(torch.where(mask, reward, 0.0), mask.to(reward.dtype)).sum(0)
        return found

    return call


def by_prefixes(score: Any) -> Any:
    """Each token as the only one after its prompt; the first has no log-prob."""

    def scores(logits: Tensor, tokens: Tensor, *, temperature: Any = 1.0) -> Tensor:
        heat = temperature if isinstance(temperature, Tensor) else torch.tensor(float(temperature))
        heat = (heat[:, None] if heat.ndim == 1 else heat).expand(tokens.shape)
        shifted = torch.cat([heat[:, 1:], heat[:, :1]], 1).unsqueeze(-1)
        rows = [score((logits / shifted)[:, : t + 1], tokens[:, : t + 1], t)[:, 0] for t in range(1, tokens.shape[1])]
        return torch.stack([torch.zeros(len(tokens)), *rows], 1)

    return scores


# --- envs ---


def twice(action: Any) -> Any:
    """What Pendulum gets for an action in [-1, 1]."""
    return (2 * np.asarray(action)).astype(np.float32)


def short() -> Any:
    """CartPole with a limit of 6 steps."""
    return gymnasium.make("CartPole-v1", max_episode_steps=6)


def rows_of(make: Any) -> Any:
    """By the number of rows."""
    return lambda rows: make([short] * rows)


def around_vectors(wrap: Any, mode: str = "NEXT_STEP") -> Any:
    """Around Gymnasium's own."""
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    return lambda rows: wrap(SyncVectorEnv([short] * rows, autoreset_mode=AutoresetMode[mode]))


# --- the table ---

FIGURES: dict[str, float | str] = {"r": 1.0, "l": "length"}
GAMMA = {"convention": "terminate"}
DECAY = {"weight_decay": 0.1}
USES: dict[str, Use] = {
    "decay_during_warmup": Use(
        "schedule",
        lambda f: f(10, 40),
        {"start": 0.0, "peak": 1.0, "end": 0.0, "warmup": 10, "steps": 40, "argument": "int"},
    ),
    "warmup_only_shortens_cosine": Use(
        "schedule",
        lambda f: lambda optimizer: f(optimizer, 5, 20),
        {"start": 0.0, "peak": 1.0, "end": 0.0, "warmup": 5, "steps": 20, "argument": "int"},
    ),
    "handoff_over_peak": Use(
        "schedule",
        lambda make: stepping(lambda: make(1.0, 4, 10)),
        {"start": 0.25, "peak": 1.0, "end": 0.0, "warmup": 3, "steps": 14, "argument": "int"},
    ),
    "first_steps_at_zero": Use(
        "schedule",
        lambda make: stepping(lambda: make(30, 10)),
        {"start": 0.1, "peak": 1.0, "end": 0.0, "warmup": 9, "steps": 30, "argument": "int"},
    ),
    "return_of_past_rewards": Use(
        "target",
        lambda f: lambda rewards, *, gamma: torch.tensor(f(rewards.tolist(), gamma)),
        {"kind": "reward_to_go", "endings": "none"},
    ),
    "column_times_row": Use(
        "target",
        lambda f: lambda rewards, *, gamma: torch.as_tensor(f(rewards.numpy()[:, None], gamma), dtype=rewards.dtype),
        {"kind": "reward_to_go", "endings": "none"},
    ),
    "no_value_beyond_truncation": Use("target", plain_target),
    "value_of_next_episode_as_target": Use("lambda_return", without_values, GAMMA),
    "return_cut_at_truncation": Use("lambda_return", whole, only=("lambda_1_is_the_return",)),
    "discount_of_one_step": Use("n_step", lambda f: windows(summed, f)),
    "reward_of_end_masked": Use("n_step", lambda f: windows(f, valued)),
    "runs_across_the_write_position": Use(
        "replay", lambda make: lambda capacity: NSteps(make(capacity, 3, 0.5)), {"n": 3, "sized": False}
    ),
    "bootstraps_from_next_episode": Use("replay", lambda make: lambda capacity: Queued(make, capacity), {"n": 3}),
    "final_observation_overwritten": Use("replay", lambda make: lambda capacity: Compact(make(capacity, 1))),
    "newest_has_oldest_as_next": Use("replay", lambda make: lambda capacity: Newest(make(capacity, 1))),
    "tree_of_three_leaves": Use("sum_tree"),
    "prefix_on_the_edge": Use("sum_tree"),
    "largest_priority_rounded": Use(
        "replay", lambda make: functools.partial(ByPriority, make), {"alpha": 0.5, "beta": 1.0, "new": "largest"}
    ),
    "hindsight_stops_at_the_edge": Use(
        "replay",
        lambda make: functools.partial(Relabelled, make),
        {"goals": "future"},
        only=("goals_of_the_future",),  # the rows are ours
    ),
    "stack_across_truncation": Use("replay", lambda make: functools.partial(Stacked, make), only=("next_observation",)),
    "overlapping_copy": Use("replay", lambda make: functools.partial(InSequences, make), only=("rows_stay_together",)),
    "mean_adds_the_share": Use("normalizer", declared={"prior": 1e-4}),
    "variance_overwritten": Use("normalizer", running_stats, {"arrays": "numpy", "eps": 0.0}),
    "difference_from_new_mean": Use("normalizer", empirical),
    "one_variance_for_all": Use("normalizer", of_wrapper, {"arrays": "numpy"}),
    "updates_in_evaluation": Use("normalizer", with_eval, {"arrays": "numpy", "eps": 0.0, "clip": 10.0}),
    "values_against_every_return": Use(
        "value_loss",
        lambda f: lambda v, old, target, *, clip: f(v, target[:, None], old[:, None], clip),
        {"reduction": "mean", "detached": False},
    ),
    "head_against_flat_returns": Use(
        "value_loss",
        lambda f: lambda v, target: f(torch.nn.Identity(), v[:, None], target),
        {"clipped": False, "scale": 1.0, "reduction": "mean", "detached": False},
    ),
    "clipped_around_the_return": Use(
        "value_loss",
        lambda f: lambda v, old, target, *, clip: f(v, old, target, clip),
        {"reduction": "mean", "detached": False},
    ),
    "pass_without_right_sample": Use("metric", declared={"kind": "pass_at_k", "k_above_n": True}),
    "mean_of_explained_variances": Use(
        "metric", lambda f: lambda v, target: f(list(v.split(2)), list(target.split(2))), {"kind": "explained_variance"}
    ),
    "variance_around_zero": Use(
        "metric",
        lambda f: lambda v, target: f(target[:, None], v[:, None]),
        {"kind": "explained_variance", "shift_counts": True},
    ),
    "clipped_where_it_is_not": Use("metric", declared={"kind": "clip_fraction"}),
    "score_before_the_end": Use("token_mask", declared={"kind": "score_at_end"}),
    "filled_with_ends": Use("token_mask", declared={"kind": "cut_at_end"}),
    "mask_not_shifted": Use("token_mask", declared={"kind": "log_prob_of_mask"}),
    "no_head_after_first_turn": Use(
        "chat_mask", declared={"render": chat_templates.render, "end": "<|end|>", "masked": False, "system": False}
    ),
    "mask_of_all": Use("chat_mask", declared={"render": chat_templates.render, "end": "<|end|>"}),
    "mask_of_rewritten_prefix": Use(
        "chat_mask",
        declared={"render": chat_templates.render_thoughts, "end": "<|end|>", "thoughts": ("<think>", "</think>")},
    ),
    "level_of_wrong_axis": Use("value_loss", declared={"quantiles": True}),
    "value_loss_of_minibatches_added": Use(
        "value_loss",
        in_two,
        {"clipped": False, "scale": 1.0, "reduction": "mean", "detached": False},
        only=("gradient",),  # it returns gradients
    ),
    "divided_by_steps_again": Use(
        "aggregate",
        lambda f: micro_batches(lambda losses, masks: f(torch.ones((), requires_grad=True), losses, masks)),
        {"weights": WEIGHTS["token_mean"]},
        leave=("declared_weights",),  # it returns a number without a graph
    ),
    "last_row_bootstraps_from_itself": Use(
        "vtrace", of_chunk, {"convention": "terminate", "lambda_": False, "advantages": False}
    ),
    "evaluation_mode_left_on": Use("module", on_cartpole, {"evaluated": policies.DropoutPolicy}),
    "memory_cleared_one_step_late": Use("memory", lambda make: no_gradient(make()), {"recurrent": (3, 8)}),
    "end_tag_within_argument": Use("tool_parser"),
    "comma_within_single_quotes": Use("tool_parser", single, {"render": pythonic, "most": 1}, leave=("text_around",)),
    "none_is_text": Use("tool_parser", typed, {"render": xml, "most": 1}),
    "call_without_arguments_raises": Use("tool_parser", of_message, {"render": openai}, leave=("text_around",)),
    "end_of_last_turn_only": Use("chat_template", declared={"end": "<|eos|>"}),
    "further_is_better": Use("reward_function", declared={"rows": LENGTHS, "low": 0.0, "high": 1.0}),
    "unread_solution_is_right": Use("reward_function", declared={"rows": SOLVED, **UNIT, "answer": "solution"}),
    "answer_within_another": Use("reward_function", declared={"rows": BOXED, **UNIT, "answer": "ground_truths"}),
    "column_of_another_name": Use(
        "reward_function",
        declared={"rows": COLUMN, "low": 0.0, "high": 2.0, "answer": "ground_truth"},
        leave=("near_misses",),  # an answer counts wherever it occurs
    ),
    "masked_nan_spreads": Use("masked_loss", declared={"nan_padding": True}),
    "logits_of_the_prompt": Use("token_log_prob", by_prefixes),
    "rest_divided_by_epsilon": Use("group", in_runs, {"blocks": True, "rest": True, "correction": 0}),
    "row_statistics_along_columns": Use("group", as_rows, {"correction": 0}),
    "abstained_counts_as_zero": Use(
        "group",
        lambda f: in_runs(lambda reward, size: f(reward[:, None], size)),
        {"blocks": True, "correction": 0, "abstains": True},
    ),
    "single_completion_is_nan": Use("group", in_runs, {"blocks": True}),
    "tanh_on_mean_corrected": Use("distribution", mean_squashed),
    "mode_is_an_offset": Use("distribution", sparse, {"outcomes": lambda n: torch.arange(1, n + 1)}),
    "entropy_is_no_method": Use("distribution", truncated, {"low": -1.0, "high": 1.0, "event": False}),
    "saturated_sample_rescored": Use("sampler", rescored, {"low": -1.0, "high": 1.0, "precise": 12.0}),
    "atanh_of_clamped_action": Use("sampler", declared={"low": -1.0, "high": 1.0, "precise": 12.0}),
    "tanh_correction_of_scaled_action": Use("sampler", of_scaled_actor, {"low": -2.0, "high": 2.0}),
    "tanh_taken_twice": Use("sampler", of_layers, {"low": -1.0, "high": 1.0, "sizes": (1,), "column": True}),
    "clipped_action_with_raw_log_prob": Use(
        "sampler", lambda f: lambda mean, log_std: f(mean, log_std.exp(), -1.0, 1.0)
    ),
    "log_prob_for_each_dimension": Use("sampler", of_ppo_actor),
    "schedule_not_saved": Use("resume"),
    "moments_not_restored": Use("resume"),
    "seeded_after_load": Use("resume"),
    "decay_after_update": Use("optimizer", lambda o: functools.partial(o, **DECAY), {"rule": "adamw", **DECAY}),
    "decay_without_parameter": Use("optimizer", lambda o: functools.partial(o, **DECAY), {"rule": "adamw", **DECAY}),
    "adamw_is_adam_with_l2": Use("optimizer", lambda o: functools.partial(o, **DECAY), {"rule": "adamw", **DECAY}),
    "adam_with_decoupled_decay": Use("optimizer", functional_adam, {"rule": "adam", **DECAY}),
    "norm_squared_twice": Use("optimizer", clips, {"rule": "sgd", "clip_norm": 1.0}),
    "norm_of_each_tensor": Use("optimizer", clips_list, {"rule": "sgd", "clip_norm": 1.0}),
    "clipped_after_step": Use(
        "optimizer", lambda f: lambda params, lr: Trained(params, lr, f), {"rule": "sgd", "clip_norm": 1.0}
    ),
    "bootstrap_counted_twice": Use("estimator", windowed, GAMMA),
    "truncation_masks_value": Use("estimator", plain_gae),
    "end_of_the_next_step": Use("estimator", first_of, GAMMA),
    "timeout_of_state_before": Use("estimator", batched),
    "target_of_next_trajectory": Use(
        "vtrace", of_pair, {"lambda_": False}, leave=("unbounded_is_importance_sampling",)
    ),  # its bounds are 1
    "clipped_from_epsilon": Use("loss", lambda f: per_step(lambda lp, old, adv, *, clip: f(lp, old, adv, clip))),
    "each_part_clipped": Use("loss", halves),
    "ratio_to_itself": Use("loss", one_token),
    "kl_the_other_way": Use("kl"),
    "estimators_fall_through": Use("kl", lambda f: functools.partial(f, kl_estimator="k2"), {"unbiased": False}),
    "square_not_halved": Use("kl", each_sample, {"unbiased": False}),
    "temperature_on_one_side": Use("importance", at_temperature, {"low": 0.5, "high": 2.0}),
    "mean_of_means": Use("aggregate", micro_batches, {"weights": WEIGHTS["token_mean"]}),
    "groups_of_fixed_stride": Use("group", by_prompt, {"singleton": "zero", "correction": 0}),
    "seed_ignored": Use("gym"),
    "global_generator": Use("gym"),
    "space_too_small": Use("gym"),
    "space_not_rescaled": Use("wrapper", declared={"inner": "Pendulum-v1", "action": twice}),
    "stack_begins_with_zeros": Use("wrapper", declared={"inner": "CartPole-v1", "stack": 3}),
    "repeats_in_first_episode_only": Use("wrapper", declared={"inner": short, "repeat": 3}),
    "first_reward_discounted": Use("wrapper", declared={"inner": short, "statistics": {**FIGURES, "dr": 0.9}}),
    "resets_one_step_early": Use("vector_env", rows_of, {"single": short}),
    "reset_keeps_ends": Use("vector_env", rows_of, {"single": short}),
    "one_observation_for_all": Use("vector_env", rows_of, {"single": short}),
    "reset_counted_as_step": Use("vector_env", around_vectors, {"single": short, "statistics": FIGURES}),
}
