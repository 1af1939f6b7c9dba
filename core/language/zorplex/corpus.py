"""Corpus for a tokenizer of zorplex texts, in which a word has two tokens and all other text few."""

from ..protocol import CUT_OFF, INVALID
from .env import KINDS, ZorplexEnv, instructions

TIMES = 8  # repetitions of each word; syllables are shared, so they occur far more often
OFTEN = 64  # repetitions of all other texts


def zorplex_texts(params: ZorplexEnv) -> tuple[str, ...]:
    """Return the texts of an environment, each repeated according to its weight.

    >>> from .env import zorplex
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
