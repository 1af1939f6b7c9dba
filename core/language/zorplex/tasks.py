"""Zorplex tasks: questions about invented words whose values must be looked up with tools, each drawn from one key.

Four kinds: the value of a word (simple), a sum or another expression of values (compositional), a value stored under a key
that must be looked up first (multi_step), and a value at the end of redirections (recursive).
"""

from collections.abc import Callable, Sequence
from operator import add, mul, sub

from attrs import frozen

from ... import keys
from ...errors import ChoiceError, message
from ...keys import Key

FIRST = "bli kra zor mup tel van shi gro plo dre fen quo jas wib ner hul"
SECOND = "vit mun lex dak pon rig sef tow bax nil gud yor cham fep zin kot"
LETTERS = (
    "apple bridge candle dragon ember forest garden harbor island jungle kettle lantern meadow needle orchid pepper "
    "quartz ribbon saddle timber umbrella violet window xylophone yellow zebra"
)
LIMIT = 10**6  # of values, so that a product of three has at most 18 digits
OPERATORS: dict[str, Callable[[int, int], int]] = {"+": add, "-": sub, "*": mul}
DIFFICULTIES = {"easy": (2, ("+",)), "medium": (2, ("+", "-", "*")), "hard": (3, ("+", "-", "*"))}
CODES = 1 << 24  # keys of the multi-step task have six hexadecimal digits


@frozen
class WordTable:
    """The words, and their values: a fixed table, or () if each episode draws them from low..high, inclusive."""

    words: tuple[str, ...]
    low: int
    high: int
    values: tuple[int, ...] = ()


@frozen(kw_only=True)
class ZorplexTask:
    """One question with its words, its answer, and the data for all tool results in its episode.

    `values` has a number for each word of the vocabulary, `links` the index of the word that it redirects to (-1: none),
    and `code` the two numbers from which the keys of words are computed. `needed` is the number of calls of the shortest
    solution, `depth` the number of its redirections.
    """

    kind: str
    question: str
    asked: tuple[str, ...]
    answer: int
    needed: int
    values: tuple[int, ...]
    depth: int = 0
    links: tuple[int, ...] = ()
    code: tuple[int, int] = (1, 0)


def two_syllables(low: int = 0, high: int = 5) -> WordTable:
    """Return 256 words of two syllables, with new values in each episode, so that nothing can be memorised.

    >>> two_syllables().words[:2], len(set(two_syllables().words))
    (('blivit', 'blimun'), 256)
    """
    return WordTable(tuple(first + second for first in FIRST.split() for second in SECOND.split()), low, high)


def letters(key: Key, low: int = 1, high: int = 100) -> WordTable:
    """Return 26 words, one per letter, with one table of values, drawn from the key and fixed for all episodes.

    >>> len(letters(keys.key(0)).values), letters(keys.key(0)) == letters(keys.key(0))
    (26, True)
    """
    words = tuple(LETTERS.split())
    return WordTable(words, low, high, _draws(key, len(words), low, high))


def check_vocabulary(vocabulary: WordTable) -> WordTable:
    """Return `vocabulary` if it is valid for tasks. Raises: ChoiceError.

    >>> check_vocabulary(WordTable(("one", "One", "two"), 0, 5))
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: vocabulary: words is ('One',), wanted small ASCII letters; write them so
    """
    words, values, bounds = vocabulary.words, vocabulary.values, (vocabulary.low, vocabulary.high)
    strange = tuple(word for word in words if not (word.isascii() and word.isalpha() and word.islower()))
    largest = max(map(abs, (*bounds, *values)))
    faults = (
        (strange, "words", strange, "small ASCII letters", "write them so"),
        (len(set(words)) < max(len(words), 3), "words", words, "at least 3, all different", "add or remove some"),
        (bounds[0] > bounds[1], "low and high", bounds, "low <= high", "exchange them"),
        (largest >= LIMIT, "largest value", largest, f"below {LIMIT}", "answers must fit 18 digits"),
        (len(values) not in (0, len(words)), "number of values", len(values), len(words), "give each word one"),
    )
    for fault, what, got, wanted, remedy in faults:
        if fault:
            raise ChoiceError(message(f"vocabulary: {what}", got=got, wanted=wanted, remedy=remedy))
    return vocabulary


def simple(vocabulary: WordTable, key: Key) -> ZorplexTask:
    """Return a task that asks for the value of one word. The same key gives the same task, here and below.

    >>> simple(WordTable(("bli", "kra", "zor"), 0, 5, (4, 4, 4)), keys.key(0)).answer
    4
    """
    pick, table = keys.split(key)
    values = _values(vocabulary, table)
    (word,) = _words(pick, vocabulary, 1)
    return ZorplexTask(
        kind="simple",
        question=f"What is zorplex[{vocabulary.words[word]}]?",
        asked=(vocabulary.words[word],),
        answer=values[word],
        needed=1,
        values=values,
    )


def compositional(vocabulary: WordTable, key: Key, *, difficulty: str = "easy") -> ZorplexTask:
    """Return a task on an expression of different words: easy a + b; medium one of + - *; hard three words, one operator twice.

    >>> compositional(WordTable(("bli", "kra", "zor"), 0, 5, (4, 4, 4)), keys.key(0)).answer
    8
    """
    count, operators = DIFFICULTIES[difficulty]
    pick, table, choice = keys.split(key, 3)
    values = _values(vocabulary, table)
    operator = operators[_draws(choice, 1, 0, len(operators) - 1)[0]]
    first, *rest = _words(pick, vocabulary, count)
    answer = values[first]
    for word in rest:
        answer = OPERATORS[operator](answer, values[word])
    asked = tuple(vocabulary.words[word] for word in (first, *rest))
    return ZorplexTask(
        kind="compositional",
        question=f"What is {f' {operator} '.join(f'zorplex[{word}]' for word in asked)}?",
        asked=asked,
        answer=answer,
        needed=count,
        values=values,
    )


def multi_step(vocabulary: WordTable, key: Key) -> ZorplexTask:
    """Return a task that asks for the value of one word, stored under a key that must be looked up first.

    Key of word i = (a i + b) mod 2**24 with a odd, so that all keys are different.

    >>> multi_step(WordTable(("bli", "kra", "zor"), 0, 5, (4, 4, 4)), keys.key(0)).needed
    2
    """
    pick, table, choice = keys.split(key, 3)
    values = _values(vocabulary, table)
    (word,) = _words(pick, vocabulary, 1)
    factor, offset = _draws(choice, 2, 0, CODES - 1)
    return ZorplexTask(
        kind="multi_step",
        question=f"What is zorplex[{vocabulary.words[word]}]? It is stored under the key of the word.",
        asked=(vocabulary.words[word],),
        answer=values[word],
        needed=2,
        values=values,
        code=(factor | 1, offset),
    )


def recursive(vocabulary: WordTable, key: Key, *, max_depth: int = 3) -> ZorplexTask:
    """Return a task that asks for the value at the end of `depth` redirections, 1 <= depth <= max_depth.

    Half of the words, in random order, have values and are level 0; the others are distributed over the levels 1..max_depth,
    and each points to a word one level below. So paths have no cycles, and the depth of a word is its level.

    >>> task = recursive(WordTable(("bli", "kra"), 0, 5, (4, 4)), keys.key(0), max_depth=1)
    >>> sorted(task.links), task.depth, task.answer
    ([-1, 0], 1, 4)
    """
    order, table, choice, targets = keys.split(key, 4)
    values, n = _values(vocabulary, table), len(vocabulary.words)
    shuffled = _words(order, vocabulary, n)
    half = n - n // 2
    levels = (shuffled[:half], *(shuffled[half + level :: max_depth] for level in range(max_depth)))
    draws = tuple(map(int, keys.bits(targets, (n,))))
    below = {word: levels[level - 1] for level in range(1, max_depth + 1) for word in levels[level]}
    links = tuple(below[word][draws[word] * len(below[word]) >> 32] if word in below else -1 for word in range(n))
    deep, which = map(int, keys.bits(choice, (2,)))
    depth = 1 + (deep * max_depth >> 32)
    word = levels[depth][which * len(levels[depth]) >> 32]
    return ZorplexTask(
        kind="recursive",
        question=f"What is zorplex[{vocabulary.words[word]}], once redirections are followed?",
        asked=(vocabulary.words[word],),
        answer=values[follow_redirections(links, word)[-1]],
        needed=depth + 1,
        values=values,
        depth=depth,
        links=links,
    )


def follow_redirections(links: Sequence[int], word: int) -> tuple[int, ...]:
    """Return the path of word indices from a word to the end of its redirections.

    >>> follow_redirections((2, -1, 1), 0)
    (0, 2, 1)
    """
    path: tuple[int, ...] = (word,)
    while links[path[-1]] >= 0:
        path = (*path, links[path[-1]])
    return path


def _draws(key: Key, n: int, low: int, high: int) -> tuple[int, ...]:
    return tuple(map(int, keys.randint(key, (n,), low, high + 1)))


def _values(vocabulary: WordTable, key: Key) -> tuple[int, ...]:
    return vocabulary.values or _draws(key, len(vocabulary.words), vocabulary.low, vocabulary.high)


def _words(key: Key, vocabulary: WordTable, n: int) -> tuple[int, ...]:
    """Return the indices of n different words."""
    return tuple(map(int, keys.permutation(key, len(vocabulary.words))[:n]))
