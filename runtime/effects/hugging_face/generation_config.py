"""The generation settings in a model's folder: the tokens that end its outputs, and the settings of sampling in it.

They stand in generation_config.json, in older folders in config.json (transformers, "Generation config").
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....core.errors import StructureError, message
from ...files.reading import MOST_JSON, parse_json, read_bounded

FILE, OLDER = "generation_config.json", "config.json"
# Settings that change which tokens are sampled, with the values at which they change nothing.
SAMPLING: Mapping[str, tuple[Any, ...]] = {
    "temperature": (1,),
    "top_k": (0,),
    "top_p": (1,),
    "min_p": (0,),
    "top_h": (),
    "typical_p": (1,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "repetition_penalty": (1,),
    "encoder_repetition_penalty": (1,),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "exponential_decay_length_penalty": (),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "max_new_tokens": (),
    "stop_strings": ([],),
    "bad_words_ids": ([],),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "sequence_bias": ({},),
    "guidance_scale": (1,),
    "penalty_alpha": (0,),
    "dola_layers": (),
    "watermarking_config": (),
    "num_beams": (1,),
}


def read_generation_config(folder: Path) -> dict[str, Any]:
    """Return the generation settings of a model's folder; {} if it has none.

    Raises: StructureError for a file that cannot be read, or is no JSON object.
    """
    for name in (FILE, OLDER):
        path = folder / name
        if not path.exists():
            continue
        try:
            found = parse_json(read_bounded(path, MOST_JSON))
        except (OSError, ValueError) as cause:
            found = f"unreadable ({type(cause).__name__})"
        if not isinstance(found, dict):
            got = found if isinstance(found, str) else type(found).__name__
            raise StructureError(message(str(path), got=got, wanted="a JSON object", remedy="fetch it again"))
        return found if name == FILE else {"eos_token_id": _end_of(found)}
    return {}


def _end_of(config: Mapping[str, Any]) -> Any:
    """Return the end tokens of a model's configuration, or of that of its text part."""
    text = config.get("text_config")
    own = config.get("eos_token_id")
    return text.get("eos_token_id") if own is None and isinstance(text, Mapping) else own


def end_tokens(config: Mapping[str, Any], *, vocabulary: int, where: str = FILE) -> tuple[int, ...]:
    """Return the ids of generation settings that end an output, without repetition.

    Raises: StructureError for one that is no id of the vocabulary.

    >>> end_tokens({"eos_token_id": [7, 2, 7]}, vocabulary=10), end_tokens({"eos_token_id": 2}, vocabulary=10)
    ((7, 2), (2,))
    >>> end_tokens({}, vocabulary=10)
    ()
    """
    stored = config.get("eos_token_id")
    every = () if stored is None else tuple(stored) if isinstance(stored, list) else (stored,)
    for one in every:
        if isinstance(one, bool) or not isinstance(one, int) or not 0 <= one < vocabulary:
            remedy = "take the tokenizer and the settings of one model"
            wanted = f"ids of the tokenizer, below {vocabulary}"
            raise StructureError(message(f"{where}: eos_token_id", got=repr(one), wanted=wanted, remedy=remedy))
    return tuple(dict.fromkeys(every))


def unused_settings(config: Mapping[str, Any], used: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of sampling that ask for something else than `used`, the run's own ones by the same names.

    >>> unused_settings({"temperature": 0.6, "top_p": 0.9, "top_k": 0, "use_cache": True}, {"temperature": 1.0, "top_p": 0.9})
    {'temperature': 0.6}
    """
    return {
        name: value
        for name, neutral in SAMPLING.items()
        if (value := config.get(name)) is not None and value not in ((used[name],) if name in used else neutral)
    }
