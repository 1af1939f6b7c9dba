"""What the measurements of generation share: a small Llama, and a world in which every text has a given length."""

from collections.abc import Sequence
from typing import Any

import torch
from attrs import frozen

from purestep.core import keys
from purestep.core.causal import CausalModel
from purestep.core.language.codec import NOTHING, Codec, Standing
from purestep.core.language.events import Event
from purestep.core.language.parsers import Parsed
from purestep.core.language.protocol import Protocol, protocol
from purestep.core.language.requests import requests, rollouts, task_keys
from purestep.core.language.rollout import begin_rollout
from purestep.core.language.text_env import Outcome, TextEnv
from purestep.core.language.types import Rollout
from purestep.runtime.effects.hugging_face.causal_lm import from_config, tiny_llama

VOCABULARY = 400


@frozen
class Llama:
    """A model of 0.64 million parameters and its weights."""

    config: Any
    model: CausalModel
    params: dict[str, torch.Tensor]


def llama(window: int) -> Llama:
    """As `purestep train zorplex` begins with."""
    config = tiny_llama(VOCABULARY, window=window)
    model = from_config(config)
    return Llama(config=config, model=model, params=model.init(keys.key(0)))


def talk(turns: int) -> Protocol[Any, Any]:
    """A world that says something after each of so many texts, whatever they are."""

    def step(params: Any, state: int, action: str, key: Any) -> tuple[int, Outcome]:
        return state + 1, Outcome("and?", terminated=state + 1 == turns)

    world = TextEnv((), lambda params, key: (0, "well?"), step)
    return protocol(world, Parsed, max_steps=turns, incomplete="accept")


def numbers(first: int, later: int) -> Codec:
    """The codec that says `first` tokens at the beginning and `later` ones each time after it; nothing stops a completion."""

    def encode(events: Sequence[Event], standing: Standing) -> tuple[tuple[int, ...], ...]:
        length = first if standing == NOTHING else later
        return tuple(tuple((7 * i + 3) % VOCABULARY for i in range(length)) for _ in events)

    return Codec(encode=encode, decode=lambda ids: "so", stop=(), vocabulary=VOCABULARY)


def attempts(
    rules: Protocol[Any, Any], codec: Codec, rows: int, *, capacity: int, said: int
) -> tuple[Rollout[Any], ...]:
    """One for each row, before its first call."""
    asked = requests(task_keys(keys.key(1), "training", rows), keys.key(2))
    room = {"capacity": capacity, "max_new_tokens": said}
    return tuple(begin_rollout(rules, codec, rollouts(one)[0], **room) for one in asked)
