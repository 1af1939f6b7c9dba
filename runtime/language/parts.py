"""What a run of a language model is made of, wired from its arguments: world, tokenizer, model, and what samples with it."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import evolve, frozen

from ...core import keys
from ...core.causal import CausalModel
from ...core.errors import ChoiceError, message
from ...core.language.attempt import Attempt, begin_attempt
from ...core.language.codec import Codec, Ids
from ...core.language.protocol import Protocol, protocol
from ...core.language.requests import Request, rollouts
from ...core.language.tasks import Vocabulary, letters, two_syllables
from ...core.language.zorplex import Play, instructions, zorplex, zorplex_parser
from ...core.language.zorplex import Zorplex as World
from ..effects.causal_folder import open_model
from ..effects.causal_lm import from_config, tiny_llama
from ..effects.chat_template import chat_codec, speller
from ..effects.generate import complete, generator
from ..effects.lora import with_lora
from ..effects.tokenizer import load_tokenizer, train_tokenizer
from ..recipes.zorplex import Sampling, Tasks, Zorplex
from .remember import remembering
from .spelling import LEAST, zorplex_texts

INITIAL, ADAPTERS, TABLE = 0, 1, 6  # what is drawn from a run's key, beside `world`
ALPHA = 2.0  # of adapters, for each rank
Attempts = tuple[Attempt[Any], ...]
Progress = Callable[[int, int], None]


@frozen(kw_only=True)
class Parts:
    """Of one run. `params` are those it begins with, `whole(params)` all that the library's model has."""

    rules: Protocol[World, Play]  # of training
    trial: Protocol[World, Play]  # of held-out tasks
    tokenizer: Any
    codec: Codec
    spell: Callable[[str], Ids]
    model: CausalModel  # that learns
    speaker: CausalModel  # that samples, with `whole` parameters
    config: Any  # the library's, of the model
    begin: Callable[[], Any]  # -> params
    whole: Callable[[Any], dict[str, torch.Tensor]]
    sampling: Sampling
    generation: Any = ()  # what a model of somebody else's says on how to generate
    base: str = ""  # digest of a model of somebody else's, as far as checkpoints rest on it


def vocabulary_of(tasks: Tasks, stream: str = "training") -> Vocabulary:
    """The words of a run's world. A fixed table is another in evaluation, so that nothing that was memorised helps.

    >>> from ..recipes.zorplex import Tasks
    >>> one, other = (vocabulary_of(Tasks(words="letters"), stream) for stream in ("training", "evaluation"))
    >>> one.words == other.words, one.values == other.values
    (True, False)
    """
    if tasks.words == "letters":
        key = keys.key(tasks.seed)
        return letters(key if stream == "training" else keys.fold_in(key, TABLE), tasks.low, tasks.high)
    return two_syllables(tasks.low, tasks.high)


def rules_of(tasks: Tasks, system: str = "", *, preface: str = "", stream: str = "training") -> Protocol[World, Play]:
    """The world of a run and how turns are taken in it. A preface stands before each question. Raises: ChoiceError."""
    world = zorplex(
        tasks.kind,
        difficulty=tasks.difficulty,
        vocabulary=vocabulary_of(tasks, stream),
        max_depth=tasks.max_depth,
        correct=tasks.correct,
        format=tasks.format,
        tool_spam=tasks.tool_spam,
    )
    reset = world.reset

    def prefaced(params: World, key: keys.Key) -> tuple[Play, str]:
        play, question = reset(params, key)
        return play, f"{preface}\n\n{question}"

    world = evolve(world, reset=prefaced) if preface else world
    return protocol(remembering(world), zorplex_parser(), system=system, max_steps=tasks.max_turns)


def tokenizer_of(arguments: Zorplex, kept: Path | tuple[()] = ()) -> Any:
    """The tokenizer of a run: the one it has kept, the model's own, or a new one that its world's texts have made.

    Raises: ChoiceError.
    """
    if not isinstance(kept, tuple) and (kept / "tokenizer.json").exists():
        return load_tokenizer(kept)
    if arguments.model.model:
        return load_tokenizer(Path(arguments.model.model))
    texts = zorplex_texts(rules_of(arguments.tasks).env.params)
    return train_tokenizer(texts, vocabulary=arguments.model.vocabulary, least=LEAST)


def codec_of(tokenizer: Any) -> tuple[Codec, bool]:
    """The tokenizer's codec, and whether its conversations begin with a system message. Raises: ChoiceError."""
    faults = []
    for opens_with, tool_role in (("system", "tool"), ("system", "user"), ("user", "tool"), ("user", "user")):
        try:
            return chat_codec(tokenizer, opens_with=opens_with, tool_role=tool_role), opens_with == "system"
        except ChoiceError as fault:
            faults.append(fault)
    raise faults[0]


def parts_of(arguments: Zorplex, kept: Path | tuple[()] = ()) -> Parts:
    """The parts of a run whose tokenizer is in the folder `kept`, if it has one. Raises: ChoiceError, StructureError."""
    tokenizer = tokenizer_of(arguments, kept)
    codec, told_once = codec_of(tokenizer)
    known = bool(arguments.model.model)
    told = instructions(arguments.tasks.kind) if known else ""
    system, preface = (told, "") if told_once else ("", told)
    shared: dict[str, Any] = {
        "rules": rules_of(arguments.tasks, system, preface=preface),
        "trial": rules_of(arguments.tasks, system, preface=preface, stream="evaluation"),
        "tokenizer": tokenizer,
        "codec": codec,
        "spell": speller(tokenizer, codec),
        "sampling": arguments.sampling,
    }
    key = keys.key(arguments.tasks.seed)
    if not known:
        return _made(arguments, len(tokenizer), keys.fold_in(key, INITIAL), shared)
    opened = open_model(arguments.model.model)
    shared |= {"config": opened.config, "generation": opened.generation}
    if not arguments.model.lora:
        own: dict[str, Any] = {"begin": lambda: opened.params, "whole": dict, "base": digest(tokenizer, {})}
        return Parts(**shared, **own, model=opened.model, speaker=opened.model)
    rank = arguments.model.lora
    lora = with_lora(opened.model, opened.params, rank=rank, alpha=ALPHA * rank)
    adapted: dict[str, Any] = {"begin": lambda: lora.model.init(keys.fold_in(key, ADAPTERS)), "whole": lora.merged}
    adapted["base"] = digest(tokenizer, opened.params)
    return Parts(**shared, **adapted, model=lora.model, speaker=opened.model)


def digest(tokenizer: Any, params: Mapping[str, torch.Tensor]) -> str:
    """What tells a tokenizer and parameters from others."""
    made = hashlib.sha256(repr((sorted(tokenizer.get_vocab().items()), tokenizer.chat_template)).encode())
    for name in sorted(params):
        made.update(name.encode())
        made.update(params[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return made.hexdigest()


def _made(arguments: Zorplex, vocabulary: int, key: keys.Key, shared: dict[str, Any]) -> Parts:
    size = arguments.model
    config = tiny_llama(
        vocabulary,
        width=size.width,
        layers=size.layers,
        heads=size.heads,
        kv_heads=size.heads // 2,
        inner=3 * size.width,
        window=arguments.sampling.capacity,
        tied=not arguments.sampling.server,
    )
    model = from_config(config)
    return Parts(**shared, begin=lambda: model.init(key), whole=dict, model=model, speaker=model, config=config)


def attempts_at(parts: Parts, asked: Sequence[Request]) -> Attempts:
    """Attempts at requests, before the model's first call. Raises: ChoiceError where a prompt leaves no room."""
    room = {"capacity": parts.sampling.capacity, "max_new_tokens": parts.sampling.max_new_tokens}
    return tuple(begin_attempt(parts.rules, parts.codec, rollouts(request)[0], **room) for request in asked)


Sampler = Callable[[dict[str, torch.Tensor], int, Sequence[Request]], Attempts]  # (params, version, requests) -> ended


def sampler(parts: Parts, *, temperature: float, top_p: float = 1.0, slots: int = 0) -> Sampler:
    """What takes requests to ended attempts in this process, with all parameters of the library's model."""
    sampling = parts.sampling
    made = generator(
        parts.speaker,
        parts.rules,
        parts.codec,
        slots=slots or sampling.slots,
        capacity=sampling.capacity,
        max_new_tokens=sampling.max_new_tokens,
        temperature=temperature,
        top_p=top_p,
    )

    def sample(params: dict[str, torch.Tensor], version: int, asked: Sequence[Request]) -> Attempts:
        return complete(made, params, version, attempts_at(parts, asked))

    return sample


def check_room(parts: Parts) -> None:
    """Refuses a capacity beyond the model's window. Raises: ChoiceError."""
    if parts.sampling.capacity > parts.speaker.window:
        wanted, remedy = f"at most the model's window {parts.speaker.window}", "shorten --capacity"
        raise ChoiceError(message("--capacity", got=parts.sampling.capacity, wanted=wanted, remedy=remedy))
