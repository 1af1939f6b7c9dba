"""Zorplex as a task: its environments, metrics, failure modes, demonstrations and tokenizer corpus."""

from typing import Any

from ... import keys
from ..task import TRAINING, TextTask
from ..text_env import TextEnv
from ..types import Rollout
from .corpus import zorplex_texts
from .demonstrations import play_script
from .env import ZorplexEnv, ZorplexState, instructions, zorplex, zorplex_parser
from .failure_modes import FAILURE_MODES, SUCCESS, failure_mode, meant
from .questions import typed
from .tasks import WordTable, letters, two_syllables

TABLE = 6  # folded into the key of the fixed table of evaluation


def word_vocabulary(words: str, low: int, high: int, *, seed: int, stream: str = TRAINING) -> WordTable:
    """Return the vocabulary of an environment: 256 words of two syllables, or 26 ("letters") with a fixed table.

    Evaluation has a different table, so that memorised values do not help.

    >>> one, other = (word_vocabulary("letters", 0, 5, seed=0, stream=stream) for stream in ("training", "evaluation"))
    >>> one.words == other.words, one.values == other.values
    (True, False)
    """
    if words == "letters":
        key = keys.key(seed)
        return letters(key if stream == TRAINING else keys.fold_in(key, TABLE), low, high)
    return two_syllables(low, high)


def zorplex_task(
    kind: str = "compositional",
    *,
    words: str = "syllables",
    low: int = 0,
    high: int = 5,
    seed: int = 0,
    **options: Any,
) -> TextTask:
    """Return the task of one kind of question; `options` are those of `zorplex`. Raises: ChoiceError.

    >>> task = zorplex_task("simple")
    >>> world = task.env("training")
    >>> state, question = world.reset(world.params, keys.key(0))
    >>> question, task.solution(state), tuple(task.figures)
    ('What is zorplex[quomun]?', '1', ('accuracy', 'format', 'tool_calls'))
    """

    def env(stream: str) -> TextEnv[ZorplexEnv, ZorplexState]:
        return zorplex(kind, vocabulary=word_vocabulary(words, low, high, seed=seed, stream=stream), **options)

    return TextTask(
        name="zorplex",
        env=env,
        parser=zorplex_parser(),
        instructions=instructions(kind),
        figures={"accuracy": _accuracy, "format": _format, "tool_calls": _tool_calls},
        diagnostics={"meant": _meant},
        label=_label,
        labels=FAILURE_MODES,
        corpus=lambda: zorplex_texts(env(TRAINING).params),
        demonstrations=play_script,
        ask=typed,
        solution=lambda play: str(play.task.answer),
    )


def _label(attempt: Rollout[ZorplexState]) -> str:
    return failure_mode(attempt.episode.world)


def _accuracy(attempt: Rollout[ZorplexState]) -> float:
    return float(_label(attempt) == SUCCESS)


def _format(attempt: Rollout[ZorplexState]) -> float:
    return float(attempt.episode.world.answer != ())


def _tool_calls(attempt: Rollout[ZorplexState]) -> float:
    return float(attempt.episode.world.calls)


def _meant(attempt: Rollout[ZorplexState]) -> float:
    """Return 1 if the leniently parsed answer is right, else 0."""
    task = attempt.episode.world.task
    return float(meant(task, attempt.episode.events) == task.answer)
