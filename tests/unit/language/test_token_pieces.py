"""The pieces of tokens are their text, whatever a tokenizer does with bytes and blanks."""

import importlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purestep.core.language.codec import byte_codec
from purestep.core.language.token_pieces import token_pieces
from purestep.runtime.text.conversations import decoder_of

BYTES = decoder_of(byte_codec())


@given(st.text(max_size=12))
def test_pieces_of_bytes_are_whole_characters(text: str) -> None:
    ids = tuple(text.encode())
    pieces = token_pieces(BYTES, ids)
    assert "".join(pieces) == text
    assert [piece for piece in pieces if piece] == list(text)


@given(st.lists(st.integers(0, 261), max_size=12).map(tuple))
def test_any_tokens_have_as_many_pieces_which_are_the_text(ids: tuple[int, ...]) -> None:
    pieces = token_pieces(BYTES, ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == BYTES(ids)


def words() -> Any:
    """A tokenizer of words whose first one loses the blank before it, as those of sentencepiece do."""
    tokenizers: Any = pytest.importorskip("tokenizers")
    vocabulary = {word: place for place, word in enumerate(("<unk>", "▁the", "▁cat", "s", "▁sat"))}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, "<unk>"))
    made.decoder = tokenizers.decoders.Metaspace()
    return made


def test_blanks_that_depend_on_the_tokens_before() -> None:
    tokenizer = words()

    def decode(ids: tuple[int, ...]) -> str:
        return str(tokenizer.decode(list(ids)))

    assert decode((1, 2, 3, 4)) == "the cats sat"
    assert token_pieces(decode, (1, 2, 3, 4)) == ("the", " cat", "s", " sat")


def test_a_decoder_whose_parts_are_not_its_text_gives_the_whole_text() -> None:
    assert token_pieces(lambda ids: "".join(map(str, ids[::-1])), (1, 2)) == ("21", "")


@pytest.mark.parametrize("text", ["plain text 12", "naïve 😀 日本", "\n\n a  b"])
def test_a_byte_pair_tokenizer(text: str) -> None:
    pytest.importorskip("transformers")
    made = importlib.import_module("purestep.runtime.effects.hugging_face.tokenizer")
    tokenizer = made.train_tokenizer(["plain text of a few words"] * 3, vocabulary=300)
    ids = tuple(tokenizer.encode(text, add_special_tokens=False))
    decode = lambda some: str(tokenizer.decode(list(some), skip_special_tokens=False))  # noqa: E731
    assert "".join(token_pieces(decode, ids)) == text
