"""Facts of a model folder that decide the limits of a run on prompts: its window, its size and the longest prompt."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from ...core.errors import StructureError, message
from ...core.language.codec import NOTHING
from ...core.language.events import Event, System
from ...core.language.prompts import ROLES, PromptRow
from ..effects.hugging_face.checks import window_of
from ..effects.hugging_face.folder import why_unreadable
from ..effects.hugging_face.hub_cache import local_folder
from ..effects.hugging_face.optional import library
from ..effects.hugging_face.tokenizer import load_tokenizer
from .components import codec_of

BYTES = 4  # of a number in the cache
WEIGHTS = ("*.safetensors", "*.bin", "*.pt")  # a folder may hold the same weights in several of these forms


@frozen
class ModelFacts:
    """The window of a model, bytes of its weights and of one token in its cache, and the longest prompt in tokens."""

    window: int
    bytes: int
    cache_bytes: int
    longest: int
    longest_text: str


def model_facts(
    folder: Path, rows: Sequence[PromptRow], *, system: str = "", tools: Sequence[Mapping[str, Any]] = ()
) -> ModelFacts:
    """Return the facts of a model folder and of prompts as its chat template writes them. Reads no weights.

    Raises: StructureError for a folder without a configuration or a tokenizer; ChoiceError for a tokenizer without a template.
    """
    local = local_folder(folder)
    try:
        config: Any = library().AutoConfig.from_pretrained(str(local), trust_remote_code=False)
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        window, cache = window_of(config), 2 * config.num_hidden_layers * heads * width * BYTES
    except ModuleNotFoundError:
        raise
    except Exception as cause:  # a damaged configuration can raise anything in transformers
        remedy = "name a folder with config.json, tokenizer and weights"
        got = f"no model that can be trained ({why_unreadable(cause)})"
        raise StructureError(message(f"--model {folder}", got=got, wanted="a model", remedy=remedy)) from cause
    codec, _ = codec_of(load_tokenizer(folder), tools)
    longest, text = 0, ""
    for row in rows:
        events: list[Event] = [ROLES[role](content) for role, content in row.messages]
        if system and not any(isinstance(event, System) for event in events):
            events = [System(system), *events]
        length = sum(map(len, codec.encode(events, NOTHING)))
        if length > longest:
            longest, text = length, row.messages[-1][1]
    return ModelFacts(
        window=window,
        bytes=max(sum(path.stat().st_size for path in local.glob(pattern)) for pattern in WEIGHTS),
        cache_bytes=cache,
        longest=longest,
        longest_text=text,
    )
