"""How a user would point a suite at each bug of the second set; those that no suite speaks of are not here."""

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from purestep.properties.suites.aggregate import WEIGHTS, Reduction

from .uses import FIGURES, UNIT, Rows, Use, around_vectors, plain_gae, pythonic, short, single, windowed


def selects(target: Any) -> Any:
    """Networks whose outputs are at hand."""
    return lambda r, online, other, te, tr, *, gamma: target(lambda s: online, lambda s: other, r, r, te, gamma)


def of_probs(make: Any) -> Any:
    """By the shares that logits stand for."""
    return lambda logits: make(logits.softmax(-1))


def rollout(gae: Any) -> Any:
    """Ends of any kind; the last is also the next."""
    return lambda r, v, n, te, tr, *, gamma, lambda_: gae(r, v, te | tr, n[-1], (te | tr)[-1], gamma, lambda_)


def of_written(kl: Any) -> Any:
    """All attended to."""

    def reduce(losses: Tensor, mask: Tensor, *, denominator: Any = None) -> Tensor:
        found: Tensor = kl(losses, torch.zeros_like(losses), torch.ones_like(losses), mask.to(losses.dtype))
        return found if denominator is None else found * mask.sum() / max(float(denominator), 1.0)

    return Reduction(reduce, lambda mask: mask.sum().clamp(min=1))


def each_group(whiten: Any) -> Callable[..., Tensor]:
    """Groups one by one, each as the mask."""

    def advantages(reward: Tensor, group: Tensor, *, groups: int) -> Tensor:
        found = torch.zeros_like(reward)
        for index in group.unique():
            mask = (group == index).to(reward.dtype)
            found = torch.where(group == index, whiten(reward[None], mask[None])[0], found)
        return found

    return advantages


def in_pieces(make: Any) -> Any:
    """Text in pieces of three characters; at most one call."""

    def parse(text: str) -> list[Any]:
        parser = make()
        found = [call for i in range(0, len(text), 3) if (call := parser.feed(text[i : i + 3])) is not None]
        return [{"name": call["name"], "arguments": json.loads(call["arguments"])} for call in found]

    return parse


def plain_json(calls: Sequence[Any]) -> str:
    """A call alone."""
    name, arguments = calls[0]
    return json.dumps({"name": name, "arguments": arguments})


def scored(score: Any) -> Any:
    """Completions one by one."""
    return lambda completions, answer, **columns: [score(*pair) for pair in zip(completions, answer, strict=True)]


def on_noise(make: Any) -> Any:
    """An agent that is trained on noise."""

    def made(seed: int) -> Any:
        agent = make(seed=seed)
        train = agent.train
        agent.train = lambda steps: [train(torch.randn(2)) for _ in range(steps)]
        return agent

    return made


def acts(agent: Any) -> Tensor:
    """What is compared."""
    found: Tensor = agent.act(torch.ones(2))
    return found


def with_temperature(score: Any) -> Any:
    """Logits are divided by the temperature of the token that they predict."""

    def scores(logits: Tensor, tokens: Tensor, *, temperature: Any = 1.0) -> Tensor:
        heat = temperature if isinstance(temperature, Tensor) else torch.tensor(float(temperature))
        heat = (heat[:, None] if heat.ndim == 1 else heat).expand(tokens.shape)
        found: Tensor = score(logits / torch.cat([heat[:, 1:], heat[:, :1]], 1).unsqueeze(-1), tokens)
        return found

    return scores


class Runs(Rows):
    """Runs of two steps of whole episodes: a step, and the one after it."""

    def __init__(self, make: Any, capacity: int):
        super().__init__(capacity)
        self.make, self.rng = make, np.random.default_rng(0)

    def add(self, step: Any) -> None:
        """In the ring."""
        self.put(step)

    def sample(self, count: int) -> dict[str, Tensor]:
        """The next observation of the first is the observation of the second."""
        episodes: list[list[int]] = [[]]
        oldest = self.count % self.capacity if len(self.rows) == self.capacity else 0
        for i in [*range(oldest, len(self.rows)), *range(oldest)]:
            episodes[-1].append(i)
            row = self.rows[i]
            if row["terminated"] | row["truncated"]:
                episodes.append([])
        sampler = self.make(2)
        for episode in filter(None, episodes):
            sampler.add_episode(episode)
        if not any(len(episode) > 1 for episode in episodes):
            return self.taken(self.rng.integers(0, len(self), count).tolist())
        pairs = sampler.sample(count)
        found = self.taken([first for first, _ in pairs])
        found["next_observation"] = torch.stack([self.rows[second]["observation"] for _, second in pairs])
        return found


LITERALS = (
    st.integers(-9, 9) | st.booleans() | st.none() | st.floats(-2, 2, width=16) | st.sampled_from(("", "x", "5", "a b"))
)
ANSWERS = [{"completion": "so #### 5", "answer": "5"}, {"completion": "so #### 6", "answer": "5"}]
NUMBERS = [{"completion": "3.5", "answer": "3.5"}, {"completion": "3.6", "answer": "3.5"}]
LISTS = [{"completion": "1, 2", "targets": [1.0, 2.0]}, {"completion": "1, 3", "targets": [1.0, 2.0]}]

USES: dict[str, Use] = {
    "target_network_selects": Use("target", selects, {"kind": "double"}),
    "decay_ends_above_zero": Use(
        "schedule",
        lambda make: make(1.0, 5, 20).get_lr,
        {"start": 0.0, "peak": 1.0, "end": 0.0, "warmup": 5, "steps": 20, "argument": "int"},
    ),
    "decay_without_initial_value": Use(
        "schedule",
        lambda make: make(0.5, 20),
        {"start": 0.5, "peak": 0.5, "end": 0.0, "warmup": 0, "steps": 20, "argument": "int"},
    ),
    "epsilon_after_the_root": Use("optimizer", declared={"rule": "adam"}),
    "logarithm_of_base_ten": Use("distribution", of_probs, {"outcomes": torch.arange}),
    "whitening_of_one_token": Use("group", each_group, {"singleton": "raw"}),
    "divided_by_variance": Use("group", each_group, {"singleton": "zero", "correction": 0}),
    "first_step_not_counted": Use(
        "vector_env",
        lambda wrap: around_vectors(wrap, "SAME_STEP"),
        {"single": short, "statistics": FIGURES},
    ),
    "stale_frames_at_the_end": Use("wrapper", declared={"inner": short, "repeat": 4, "pooled": 2}),
    "constants_are_texts": Use(
        "tool_parser",
        single,
        {"render": lambda calls: pythonic(calls)[1:-1], "most": 1, "marks": (), "values": LITERALS},
        leave=("text_around",),  # a call is the whole text
    ),
    "empty_arguments_dropped": Use("tool_parser", in_pieces, {"render": plain_json, "most": 1}, leave=("text_around",)),
    "answer_before_the_window": Use(
        "reward_function", scored, {"rows": ANSWERS, **UNIT, "answer": "answer", "after": "\nThis is the answer."}
    ),
    "dot_matches_anything": Use(
        "reward_function", declared={"rows": NUMBERS, **UNIT, "answer": "answer", "before": "7 "}
    ),
    "commas_of_lists_removed": Use(
        "reward_function", declared={"rows": LISTS, **UNIT, "alike": lambda text: text.replace(", ", ",")}
    ),
    "statistics_not_saved": Use("resume", on_noise, {"observe": acts}, only=("load_gives_what_was_saved",)),
    "masked_twice": Use("estimator", windowed, {"convention": "terminate"}),
    "timeout_not_discounted": Use("estimator", plain_gae),
    "mask_one_step_late": Use("estimator", rollout, {"convention": "terminate"}),
    "kl_of_retrieved_tokens": Use("aggregate", of_written, {"weights": WEIGHTS["token_mean"]}),
    "numpy_s_global_generator": Use("gym"),
    "labels_shifted": Use("token_log_prob", with_temperature),
    "run_across_episodes": Use("replay", lambda make: functools.partial(Runs, make), only=("next_observation",)),
}
