"""Texts from which a tokenizer learns to spell what is said in zorplex worlds: a word is two tokens, all else few."""

from .protocol import CUT_OFF, INVALID
from .zorplex import KINDS, Zorplex, instructions

TIMES = 8  # that each word comes: its syllables come far more often, being shared
OFTEN = 64  # that all else comes


def zorplex_texts(params: Zorplex) -> tuple[str, ...]:
    """The texts of a world, each as often as it should count.

    >>> from .zorplex import zorplex
    >>> zorplex_texts(zorplex().params)[:2]
    ('LOOKUP[blivit]', 'LOOKUP[blivit]')
    """
    words = tuple(f"LOOKUP[{word}]" for word in params.vocabulary.words for _ in range(TIMES))
    around = (
        "What is zorplex[] + zorplex[] - zorplex[] * zorplex[]?",
        "What is zorplex[]? It is stored under the key of the word.",
        "What is zorplex[], once redirections are followed?",
        "LOOKUP[]",
        "GETKEY[] ZK_",
        "FETCH[ZK_]",
        "SEE: ",
        "UNKNOWN UNKNOWN_WORD UNKNOWN_TOOL INVALID_KEY",
        "[ANSWER] ",
        "[ANSWER] -",
        f"{INVALID} {CUT_OFF} Call one tool at a time.",
    )
    return *words, *around * OFTEN, *(instructions(kind) for kind in KINDS)
