"""The text of each token of a sequence, for display: the pieces of a sequence, joined, are its decoded text."""

from collections.abc import Callable

from .codec import Ids

HALF = "\ufffd"  # decoded in place of a character of which bytes are missing
Decode = Callable[[Ids], str]


def token_pieces(decode: Decode, ids: Ids) -> tuple[str, ...]:
    """Return a piece of text for each token, such that the pieces joined are `decode(ids)`.

    A character of several tokens is the piece of the last of them; the pieces of the others are empty. Tokens are decoded one
    by one, or each after the ones before it where the text of a token depends on them. Where neither gives the decoded text,
    the first piece is all of it.

    >>> from .codec import byte_codec
    >>> token_pieces(byte_codec().decode, tuple("né".encode()))
    ('n', '', 'é')
    """
    if not ids:
        return ()
    text = decode(ids)
    alone = tuple(decode((token,)) for token in ids)
    if "".join(alone) == text:
        return alone
    after = _after_those_before(decode, ids)
    return after if "".join(after) == text else (text, *("",) * (len(ids) - 1))


def _after_those_before(decode: Decode, ids: Ids) -> tuple[str, ...]:
    """Return the text that each token adds; a window of the last tokens before it is decoded with it."""
    pieces: list[str] = []
    first = known = 0  # the window begins at `first`; the text up to `known` is in pieces
    for place in range(len(ids)):
        before, now = decode(ids[first:known]), decode(ids[first : place + 1])
        last = place == len(ids) - 1
        if now.endswith(HALF) and not last:
            pieces.append("")
        else:
            pieces.append(now[len(before) :])
            first, known = known, place + 1
    return tuple(pieces)
