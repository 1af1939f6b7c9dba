"""A small tokenizer of our own: byte pairs learnt from a few texts in milliseconds, with a chat template, for transformers.

Every text can be encoded, since all bytes are tokens; each digit is a token, so that numbers can be copied and added. Each
role has a token of its own that begins its message, and `<|end|>` ends the model's messages.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ....core.errors import CheckpointError, ChoiceError, message
from ...files.reading import irregular, read_bounded
from ..checkpoint.atomic_files import plain_folder
from .optional import library

PAD, END = "<|pad|>", "<|end|>"
ROLES = ("system", "user", "tool", "assistant")
SPECIAL = (PAD, END, *(f"<|{role}|>" for role in ROLES))
LEAST = len(SPECIAL) + 256
TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|' + message['role'] + '|>' + message['content'] -}}"
    "{%- if message['role'] == 'assistant' -%}{{- '<|end|>' -}}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)


def train_tokenizer(texts: Iterable[str], *, vocabulary: int = 512, least: int = 2, window: int = 1024) -> Any:
    """Return a tokenizer of transformers that has learnt its tokens from the texts, the same for the same texts.

    At most `vocabulary` tokens; pairs that occur less than `least` times are not merged. Raises: ChoiceError, ImportError.
    """
    if vocabulary < LEAST:
        wanted, remedy = f"at least {LEAST}", "leave room for all bytes"
        raise ChoiceError(message("train_tokenizer: vocabulary", got=vocabulary, wanted=wanted, remedy=remedy))
    tokenizers = library("tokenizers")
    before = tokenizers.pre_tokenizers
    learnt = tokenizers.Tokenizer(tokenizers.models.BPE())
    learnt.pre_tokenizer = before.Sequence(
        [before.Digits(individual_digits=True), before.ByteLevel(add_prefix_space=False)]
    )
    learnt.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=least,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(before.ByteLevel.alphabet()),
        show_progress=False,
    )
    learnt.train_from_iterator(list(texts), trainer)
    fast = library().PreTrainedTokenizerFast
    return fast(
        tokenizer_object=learnt,
        eos_token=END,
        pad_token=PAD,
        extra_special_tokens=[f"<|{role}|>" for role in ROLES],
        chat_template=TEMPLATE,
        model_max_length=window,
        clean_up_tokenization_spaces=False,
    )


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write a tokenizer into a folder, as transformers does, so that `AutoTokenizer` finds it next to a model.

    Raises: CheckpointError if the folder, or something in it, is a link or not a regular file, or cannot be written.
    """
    place = plain_folder(folder)
    try:
        tokenizer.save_pretrained(str(place))
    except OSError:
        raise
    except Exception as cause:  # the library's Rust code raises bare exceptions for errors of the operating system
        wanted, remedy = "a folder that can be written to", "see its rights, and those of its files"
        raise CheckpointError(
            message(str(folder), got=f"unwritable ({cause})", wanted=wanted, remedy=remedy)
        ) from cause


def tokenizer_files(folder: Path) -> dict[str, bytes]:
    """Return the files of a tokenizer's folder, to be sent to processes without that folder."""
    return {path.name: read_bounded(path) for path in sorted(folder.iterdir()) if path.is_file()}


@contextmanager
def unfolded(files: Mapping[str, bytes]) -> Iterator[Path]:
    """Write these files to a temporary folder, and yield it.

    >>> with unfolded({"a.txt": b"a"}) as folder:
    ...     tokenizer_files(folder)
    {'a.txt': b'a'}
    """
    with TemporaryDirectory(prefix="purestep-") as name:
        for file, content in files.items():
            (Path(name) / Path(file).name).write_bytes(content)
        yield Path(name)


def load_tokenizer(folder: Path) -> Any:
    """Return the tokenizer in a folder, without downloads. Raises: ChoiceError if there is none, ImportError."""
    auto = library().AutoTokenizer
    odd = irregular(folder) if folder.is_dir() else ""
    if odd:
        remedy = "keep files alone in it"
        raise ChoiceError(message(str(folder / odd), got="no regular file", wanted="a file", remedy=remedy))
    try:
        found = auto.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        found.encode("a", add_special_tokens=False)  # wrong types show only in use
        return found
    except Exception as cause:  # damaged files can raise anything in the library
        got, remedy = f"without a tokenizer ({type(cause).__name__})", "name a folder that save_pretrained wrote"
        raise ChoiceError(message(str(folder), got=got, wanted="a tokenizer's folder", remedy=remedy)) from cause
