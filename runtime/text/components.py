"""Components of a language model's run, built from its arguments: environment, tokenizer, model and sampler."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import evolve, field, frozen

from ...core import keys
from ...core.causal import CausalModel
from ...core.errors import ChoiceError, message
from ...core.language.cached_reset import remembering
from ...core.language.codec import NOTHING, Codec, Ids
from ...core.language.events import User
from ...core.language.grading import graded
from ...core.language.protocol import Protocol, protocol
from ...core.language.requests import Request, rollouts
from ...core.language.rollout import begin_rollout
from ...core.language.task import EVALUATION, TRAINING, TextTask
from ...core.language.tool_calls import tool_call_parser
from ...core.language.types import Rollout
from ..effects.generation.engine import complete, generator
from ..effects.hugging_face.causal_lm import from_config, tiny_llama
from ..effects.hugging_face.chat_template import chat_codec, speller
from ..effects.hugging_face.folder import by_first_rank, open_model
from ..effects.hugging_face.generation_config import end_tokens, read_generation_config, unused_settings
from ..effects.hugging_face.hub_cache import local_folder
from ..effects.hugging_face.lora import with_lora
from ..effects.hugging_face.stored import some
from ..effects.hugging_face.tokenizer import load_tokenizer, train_tokenizer
from ..effects.hugging_face.tool_template import call_parser
from .config import Sampling, TextConfig

INITIAL, ADAPTERS = 0, 1  # streams of a run's key, besides those of `world`
LEAST = 48  # occurrences of a pair in a tokenizer's texts for it to become a token
EPISODES = 256  # episodes whose texts train a tokenizer where a task names no texts
ROLES = (("system", "tool"), ("system", "user"), ("user", "tool"), ("user", "user"))  # of openings, of tool results
MOST_ENDS = 8  # end tokens that are listed
ALPHA = 2.0  # of LoRA adapters, multiplied by their rank
Attempts = tuple[Rollout[Any], ...]
Progress = Callable[[int, int], None]


@frozen(kw_only=True)
class TextComponents:
    """Components of one run. `params` are its initial parameters, `whole(params)` all parameters of the library's model."""

    task: TextTask
    rules: Protocol[Any, Any]  # for training
    trial: Protocol[Any, Any]  # for held-out tasks
    tokenizer: Any
    codec: Codec
    spell: Callable[[str], Ids]
    model: CausalModel  # the model that is trained
    speaker: CausalModel  # the model that samples, with `whole` parameters
    config: Any  # the library's configuration of the model
    begin: Callable[[], Any]  # -> params
    whole: Callable[[Any], dict[str, torch.Tensor]]
    sampling: Sampling
    preface: str = ""  # text before each first observation
    speakers: tuple[CausalModel, ...] = ()  # more models that sample, where a preparation prompts several at a time
    generation: Any = ()  # the generation settings of a model from a folder
    buffers: dict[str, torch.Tensor] = field(factory=dict)  # its stored tensors that are not trained
    base: str = ""  # digest of the tokenizer and weights from a folder that checkpoints depend on


def protocol_rules(
    task: TextTask, *, max_turns: int, system: str = "", preface: str = "", stream: str = TRAINING
) -> Protocol[Any, Any]:
    """Return the protocol of a task's environment. A preface precedes each first observation. Raises: ChoiceError."""
    world = task.env(stream)
    reset = world.reset

    def prefaced(params: Any, key: keys.Key) -> tuple[Any, str]:
        state, observation = reset(params, key)
        return state, behind(preface, observation)

    world = evolve(world, reset=prefaced) if preface else world
    how: dict[str, Any] = {"tool_budget": task.tool_budget, "incomplete": task.incomplete}
    return protocol(remembering(world), task.parser, system=system, max_steps=max_turns, **how)


def behind(preface: str, observation: str) -> str:
    """Return an episode's first observation after a preface.

    >>> behind("Count.", "1 + 1?"), behind("", "1 + 1?")
    ('Count.\\n\\n1 + 1?', '1 + 1?')
    """
    return f"{preface}\n\n{observation}" if preface else observation


def tokenizer_of(arguments: TextConfig, task: TextTask, kept: Path | tuple[()] = ()) -> Any:
    """Return the tokenizer of a run: the one it has kept, the model's own, or a new one trained on its task's texts.

    Raises: ChoiceError.
    """
    if not isinstance(kept, tuple) and (kept / "tokenizer.json").exists():
        return load_tokenizer(kept)
    if arguments.model.model:
        return load_tokenizer(Path(arguments.model.model))
    texts = first_texts(task) if isinstance(task.corpus, tuple) else task.corpus()
    return train_tokenizer(texts, vocabulary=arguments.model.vocabulary, least=LEAST)


def first_texts(task: TextTask) -> tuple[str, ...]:
    """Return texts for a task that names none: its instructions, and the observations and demonstrations of its first episodes.

    >>> from ...core.language.zorplex.task import zorplex_task
    >>> first_texts(zorplex_task("simple"))[1:3]
    ('What is zorplex[dremun]?', 'LOOKUP[dremun]')
    """
    world, found = task.env(TRAINING), [task.instructions]
    for key in keys.split(keys.key(0), EPISODES):
        state, observation = world.reset(world.params, key)
        shown = () if isinstance(task.demonstrations, tuple) else task.demonstrations(world.params, state, key, 1.0)
        found += [observation, *shown]
    return tuple(found)


def codec_of(tokenizer: Any, tools: Sequence[Mapping[str, Any]] = (), ends: Sequence[int] = ()) -> tuple[Codec, bool]:
    """Return the tokenizer's codec, and whether its conversations begin with a system message. Raises: ChoiceError.

    With `tools`, their results have a role of their own. `ends` are more tokens that end an output.
    """
    faults = []
    for opens_with, tool_role in ROLES[::2] if tools else ROLES:
        try:
            found = chat_codec(tokenizer, opens_with=opens_with, tool_role=tool_role, tools=tools, ends=ends)
            return found, opens_with == "system"
        except ChoiceError as fault:
            faults.append(fault)
    raise faults[0]


def own_ends(arguments: TextConfig, tokenizer: Any) -> tuple[int, ...]:
    """Return the tokens that end an output by the generation settings of the model's folder; report others that are not used.

    Raises: StructureError for an end token that the tokenizer does not have.
    """
    if not arguments.model.model:
        return ()
    folder = local_folder(arguments.model.model)
    config = read_generation_config(folder)
    ends = end_tokens(config, vocabulary=len(tokenizer), where=str(folder))
    sampling = arguments.sampling
    used = {"temperature": sampling.temperature, "top_p": sampling.top_p, "max_new_tokens": sampling.max_new_tokens}
    unused = ", ".join(f"{name} {value}" for name, value in unused_settings(config, used).items())
    facts = []
    if len(ends) > 1:
        facts.append(
            f"an output ends with any of {some(map(repr, tokenizer.convert_ids_to_tokens(list(ends))), MOST_ENDS)}"
        )
    if unused:
        facts.append(
            f"not used: {unused}; training samples with --temperature {used['temperature']:g} --top-p {used['top_p']:g}"
        )
    if facts:
        by_first_rank(f"generation settings of {folder}: {'; '.join(facts)}")
    return ends


def with_calls(task: TextTask, tokenizer: Any, codec: Codec, opens_with: str) -> TextTask:
    """Return the task with the parser of calls in the tokenizer's format, if it has tools. Raises: ChoiceError."""
    if isinstance(task.tools, tuple):
        return task
    calls = call_parser(tokenizer, codec, task.tools.schemas, opens_with=opens_with)
    return evolve(task, parser=tool_call_parser(calls))


def text_components(arguments: TextConfig, kept: Path | tuple[()] = ()) -> TextComponents:
    """Return the components of a run, with the tokenizer in the folder `kept`, if any.

    Raises: ChoiceError, StructureError.
    """
    task = arguments.task()
    tokenizer = tokenizer_of(arguments, task, kept)
    schemas = () if isinstance(task.tools, tuple) else task.tools.schemas
    codec, has_system = codec_of(tokenizer, schemas, own_ends(arguments, tokenizer))
    task = with_calls(task, tokenizer, codec, "system" if has_system else "user")
    known = bool(arguments.model.model)
    instructions = task.instructions if known else ""
    how: dict[str, Any] = {
        "max_turns": arguments.episodes.max_turns,
        **({"system": instructions} if has_system else {"preface": instructions}),
    }
    shared: dict[str, Any] = {
        "task": task,
        "rules": protocol_rules(task, **how),
        "trial": protocol_rules(task, **how, stream=EVALUATION),
        "tokenizer": tokenizer,
        "codec": codec,
        "spell": speller(tokenizer, codec),
        "sampling": arguments.sampling,
        "preface": how.get("preface", ""),
    }
    more = range(0 if isinstance(task.preparation, tuple) else task.preparation.workers - 1)
    key = keys.key(arguments.episodes.seed)
    if not known:
        return _made(arguments, len(tokenizer), keys.fold_in(key, INITIAL), shared, more)
    opened = open_model(arguments.model.model)
    shared |= {"config": opened.config, "generation": opened.generation, "buffers": opened.buffers}
    shared["speakers"] = tuple(open_model(arguments.model.model, report=lambda text: None).model for _ in more)
    if not arguments.model.lora:
        own: dict[str, Any] = {
            "begin": lambda: opened.params,
            "whole": dict,
            "base": model_digest(tokenizer, opened.buffers),
        }
        return TextComponents(**shared, **own, model=opened.model, speaker=opened.model)
    rank = arguments.model.lora
    lora = with_lora(opened.model, opened.params, rank=rank, alpha=ALPHA * rank)
    adapted: dict[str, Any] = {"begin": lambda: lora.model.init(keys.fold_in(key, ADAPTERS)), "whole": lora.merged}
    adapted["base"] = model_digest(tokenizer, {**opened.params, **opened.buffers})
    return TextComponents(**shared, **adapted, model=lora.model, speaker=opened.model)


def model_digest(tokenizer: Any, params: Mapping[str, torch.Tensor]) -> str:
    """Return a digest that identifies a tokenizer and parameters."""
    made = hashlib.sha256(repr((sorted(tokenizer.get_vocab().items()), tokenizer.chat_template)).encode())
    for name in sorted(params):
        made.update(name.encode())
        made.update(params[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return made.hexdigest()


def _made(arguments: TextConfig, vocabulary: int, key: keys.Key, shared: dict[str, Any], more: range) -> TextComponents:
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
    shared["speakers"] = tuple(from_config(config) for _ in more)
    return TextComponents(
        **shared, begin=lambda: model.init(key), whole=dict, model=model, speaker=model, config=config
    )


def begin_attempt(
    parts: TextComponents, rules: Protocol[Any, Any], request: Request, max_new_tokens: int | tuple[()] = ()
) -> Rollout[Any]:
    """Return an attempt at a request, before the model's first call; `max_new_tokens` is the run's unless given.

    Raises: ChoiceError where the prompt leaves no room.
    """
    limit = parts.sampling.max_new_tokens if isinstance(max_new_tokens, tuple) else max_new_tokens
    room = {"capacity": parts.sampling.capacity, "max_new_tokens": limit}
    return begin_rollout(rules, parts.codec, rollouts(request)[0], **room)


def attempts_at(parts: TextComponents, asked: Sequence[Request]) -> Attempts:
    """Return attempts at requests, before the model's first call. Raises: ChoiceError where a prompt leaves no room."""
    return tuple(begin_attempt(parts, parts.rules, request) for request in asked)


Sampler = Callable[[dict[str, torch.Tensor], int, Sequence[Request]], Attempts]  # (params, version, requests) -> ended


def sampler(parts: TextComponents, *, temperature: float, top_p: float = 1.0, slots: int = 0) -> Sampler:
    """Return a function (params, version, requests) -> finished attempts, with all parameters, sampling in this process."""
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
        return graded(parts.task.grader, complete(made, params, version, attempts_at(parts, asked)))

    return sample


def check_room(parts: TextComponents) -> None:
    """Refuse a capacity beyond the model's window, and limits too small for the task's longest texts.

    Raises: ChoiceError.
    """
    capacity, window = parts.sampling.capacity, parts.speaker.window
    if capacity > window:
        wanted, remedy = f"at most the model's window {window}", "shorten --capacity"
        raise ChoiceError(message("--capacity", got=capacity, wanted=wanted, remedy=remedy))
    rooms = () if isinstance(parts.task.rooms, tuple) else tuple(parts.task.rooms())
    for room in rooms:
        needed = len(parts.spell(room.reply))
        if room.limit < needed:
            raise ChoiceError(message(room.setting, got=room.limit, wanted=f"at least {needed}", remedy=room.about))
    needed = max((prompt_length(parts, room.prompt) + room.limit for room in rooms), default=0)
    if capacity < needed:
        remedy = "the longest prompt and its reply need them"
        raise ChoiceError(message("--capacity", got=capacity, wanted=f"at least {needed}", remedy=remedy))


def prompt_length(parts: TextComponents, prompt: str) -> int:
    """Return the number of tokens of a conversation that begins with a prompt, up to the model's first output."""
    return len(parts.codec.encode((User(prompt),), NOTHING)[0])
