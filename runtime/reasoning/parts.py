"""What a run of the reasoning cache is made of, wired from its arguments: cache, tokenizer, models, and how they are called."""

import importlib
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from ...core import keys
from ...core.causal import CausalModel
from ...core.errors import ChoiceError, choose, message
from ...core.language.attempt import Attempt, begin_attempt
from ...core.language.codec import NOTHING, Codec, Ids
from ...core.language.events import User
from ...core.language.parsers import chain
from ...core.language.protocol import Protocol, protocol
from ...core.language.reasoning_cache import ReasoningCache, cache_of
from ...core.language.reasoning_settings import Sampling, Settings
from ...core.language.requests import STREAMS, Request, rollouts
from ...core.language.world import TextEnv
from ..effects.causal_folder import open_model
from ..effects.causal_lm import from_config, tiny_llama
from ..effects.chat_template import chat_codec, speller
from ..effects.generate import complete, generator
from ..effects.lora import with_lora
from ..effects.tokenizer import load_tokenizer, train_tokenizer
from ..language.parts import ADAPTERS, ALPHA, INITIAL, digest
from ..recipes.cache import Cache, lists_of, settings_of
from ..runs.arguments import flatten
from .spelling import LEAST, longest_texts, reasoning_texts

Attempts = tuple[Attempt[Any], ...]


@frozen(kw_only=True)
class Parts:
    """Of one run. `params` are those it begins with, `whole(params)` all that the library's model has."""

    arguments: Cache
    settings: Settings
    cache: ReasoningCache  # of training
    tokenizer: Any
    codec: Codec
    spell: Callable[[str], Ids]
    model: CausalModel  # that learns
    speakers: tuple[CausalModel, ...]  # that sample, with `whole` parameters: one for each worker
    config: Any  # the library's, of the model
    begin: Callable[[], Any]  # -> params
    whole: Callable[[Any], dict[str, torch.Tensor]]
    generation: Any = ()  # what a model of somebody else's says on how to generate
    base: str = ""  # digest of a model of somebody else's, as far as checkpoints rest on it


def policy_named(name: str, arguments: Cache) -> Callable[..., Any]:
    """The rollout policy `module.function`; its keyword-only arguments are the run's of these names. Raises: ChoiceError.

    >>> from ..recipes.cache import POLICY
    >>> policy_named(POLICY, Cache()).keywords
    {'numbers': 2}
    """
    module, _, function = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), function)
        own = [one.name for one in inspect.signature(found).parameters.values() if one.kind is one.KEYWORD_ONLY]
    except Exception as cause:  # importing runs the module, which may raise anything
        where, remedy = f"rollout policy: {name}", "name a function that can be imported"
        raise ChoiceError(message(where, got=type(cause).__name__, wanted="a function", remedy=remedy)) from cause
    known = flatten(arguments)
    return partial(found, **{one: choose(f"rollout policy {name}: argument", one, known) for one in own})


def cache_with(arguments: Cache, settings: Settings) -> ReasoningCache:
    """The cache of a run's settings, with the policies that they name. Raises: ChoiceError."""
    names = settings.solution_rollout_policy, settings.summarization_rollout_policy
    return cache_of(settings, *(policy_named(name, arguments) for name in names))


def codec_of(tokenizer: Any) -> Codec:
    """The tokenizer's codec for conversations that a user begins. Raises: ChoiceError."""
    try:
        return chat_codec(tokenizer, opens_with="user")
    except ChoiceError:
        return chat_codec(tokenizer, opens_with="user", tool_role="user")


def tokenizer_of(arguments: Cache, cache: ReasoningCache, kept: Path | tuple[()] = ()) -> Any:
    """The tokenizer of a run: the one it has kept, the model's own, or a new one that the run's texts have made."""
    if not isinstance(kept, tuple) and (kept / "tokenizer.json").exists():
        return load_tokenizer(kept)
    if arguments.model.model:
        return load_tokenizer(Path(arguments.model.model))
    texts = reasoning_texts(cache, lists_of(arguments.problems))
    return train_tokenizer(texts, vocabulary=arguments.model.vocabulary, least=LEAST)


def parts_of(arguments: Cache, output_dir: str, kept: Path | tuple[()] = ()) -> Parts:
    """The parts of a run whose tokenizer is in the folder `kept`, if it has one. Raises: ChoiceError, StructureError."""
    settings = settings_of(arguments, output_dir)
    cache = cache_with(arguments, settings)
    tokenizer = tokenizer_of(arguments, cache, kept)
    codec = codec_of(tokenizer)
    shared: dict[str, Any] = {
        "arguments": arguments,
        "settings": settings,
        "cache": cache,
        "tokenizer": tokenizer,
        "codec": codec,
        "spell": speller(tokenizer, codec),
    }
    key, workers = keys.key(arguments.run.seed), settings.rollout_workers
    if not arguments.model.model:
        config = _small(arguments, len(tokenizer))
        model, *speakers = (from_config(config) for _ in range(workers + 1))
        begin = partial(model.init, keys.fold_in(key, INITIAL))
        return Parts(**shared, begin=begin, whole=dict, model=model, speakers=tuple(speakers), config=config)
    opened = open_model(arguments.model.model)
    speakers = [open_model(arguments.model.model, report=lambda text: None).model for _ in range(workers)]
    shared |= {"config": opened.config, "generation": opened.generation, "speakers": tuple(speakers)}
    if not arguments.model.lora:
        own: dict[str, Any] = {"begin": lambda: opened.params, "whole": dict, "base": digest(tokenizer, {})}
        return Parts(**shared, **own, model=opened.model)
    rank = arguments.model.lora
    lora = with_lora(opened.model, opened.params, rank=rank, alpha=ALPHA * rank)
    begin = partial(lora.model.init, keys.fold_in(key, ADAPTERS))
    return Parts(**shared, begin=begin, whole=lora.merged, base=digest(tokenizer, opened.params), model=lora.model)


def _small(arguments: Cache, vocabulary: int) -> Any:
    size = arguments.model
    return tiny_llama(
        vocabulary,
        width=size.width,
        layers=size.layers,
        heads=size.heads,
        kv_heads=size.heads // 2,
        inner=3 * size.width,
        window=arguments.speech.capacity,
    )


@frozen
class Calls:
    """A world of calls, and of each how many tokens its reply may have."""

    world: TextEnv[Any, Any]
    limits: tuple[int, ...]


def rules_of(world: TextEnv[Any, Any]) -> Protocol[Any, Any]:
    """How a model is asked in a world of calls: once, and whatever it says is an action."""
    return protocol(world, chain(), max_steps=1, incomplete="accept")


def attempts_at(parts: Parts, calls: Calls, asked: Sequence[Request]) -> Attempts:
    """Attempts at requests for calls, before the model speaks. Raises: ChoiceError where a prompt leaves no room."""
    rules, capacity = rules_of(calls.world), parts.arguments.speech.capacity
    return tuple(
        begin_attempt(rules, parts.codec, rollouts(request)[0], capacity=capacity, max_new_tokens=limit)
        for request, limit in zip(asked, calls.limits, strict=True)
    )


def fits(parts: Parts, prompt: str) -> bool:
    """Whether a prompt leaves room for a reply of one token and more."""
    return _length(parts, prompt) < parts.arguments.speech.capacity


def _length(parts: Parts, prompt: str) -> int:
    return len(parts.codec.encode((User(prompt),), NOTHING)[0])


@frozen(kw_only=True)
class Voice:
    """What speaks: a worker's model, with all parameters of the library's, and how it is sampled."""

    params: dict[str, torch.Tensor]
    version: int
    how: Sampling
    worker: int = 0


def sampled(parts: Parts, voice: Voice, calls: Calls, asked: Sequence[Request]) -> Attempts:
    """The ended attempts at requests for calls."""
    begun = attempts_at(parts, calls, asked)
    made = generator(
        parts.speakers[voice.worker],
        rules_of(calls.world),
        parts.codec,
        slots=max(1, min(parts.arguments.speech.slots, len(begun))),
        capacity=parts.arguments.speech.capacity,
        max_new_tokens=max(calls.limits),
        temperature=voice.how.temperature,
        top_p=voice.how.top_p,
    )
    return complete(made, voice.params, voice.version, begun)


def check_room(parts: Parts) -> None:
    """Refuses numbers of tokens that the longest right prompts and replies do not fit into. Raises: ChoiceError."""
    arguments, capacity = parts.arguments, parts.arguments.speech.capacity
    window = parts.speakers[0].window
    lists = [lists_of(arguments.problems, stream) for stream in STREAMS]
    longest = max(lists, key=lambda one: one.longest)
    numbers = arguments.problems.numbers
    asked, step, handed, summary = longest_texts(parts.cache, longest, numbers=numbers)
    said, summed_up = len(parts.spell(step)), len(parts.spell(summary))
    limits = arguments.speech.llm_max_tokens, arguments.speech.test_llm_max_tokens, arguments.speech.summary_tokens
    needed = max(_length(parts, asked) + max(limits[:2]), _length(parts, handed) + limits[2])
    faults = (
        (capacity > window, "--capacity", capacity, f"at most the model's window {window}", "shorten it"),
        (
            limits[0] < said,
            "--llm-max-tokens",
            limits[0],
            f"at least {said}",
            f"a right step of {numbers} numbers needs them",
        ),
        (limits[1] < said, "--test-llm-max-tokens", limits[1], f"at least {said}", "a right step needs them"),
        (limits[2] < summed_up, "--summary-tokens", limits[2], f"at least {summed_up}", "a right summary needs them"),
        (capacity < needed, "--capacity", capacity, f"at least {needed}", "the longest prompt and its reply need them"),
    )
    for fault, where, got, wanted, remedy in faults:
        if fault:
            raise ChoiceError(message(where, got=got, wanted=wanted, remedy=remedy))
