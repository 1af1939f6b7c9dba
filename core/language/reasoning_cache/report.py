"""Reports of finished groups: rows to be published, and metrics per turn."""

from collections.abc import Sequence
from typing import Any

from attrs import asdict

from .events import FinishedAttempt, GroupResult
from .state import TrainingText


def published_rows(result: GroupResult) -> tuple[dict[str, Any], ...]:
    """Return a row for each attempt of a group: its ids, its failure, and its training texts in the order of cycle_step.

    Every training text has its metadata, and the token ids, log-probs and versions of its output, if they are known.

    >>> from .state import InferenceProblemState, Problem
    >>> state = InferenceProblemState(problem=Problem(problem_id="7", problem_text="2 + 3?", answer="5"))
    >>> (row,) = published_rows(GroupResult(number=0, attempts=(FinishedAttempt(state=state),)))
    >>> row["problem_id"], row["failed"], row["training_texts"]
    ('7', '', ())
    """
    return tuple(
        {
            "group": result.number,
            "problem_id": one.state.problem.problem_id,
            "dataset_name": one.state.problem.dataset_name,
            "answer": one.state.problem.answer,
            "sample_id": one.state.sample_id,
            "rollout_index": one.state.rollout_index,
            "failed": one.failed,
            "training_texts": tuple(_row(text) for text in attempt_texts(one)),
        }
        for one in result.attempts
    )


def attempt_texts(one: FinishedAttempt) -> tuple[TrainingText, ...]:
    """Return all training texts of an attempt, of both turn types, in the order of its calls.

    >>> from .state import InferenceProblemState, Problem
    >>> state = InferenceProblemState(problem=Problem(problem_id="7", problem_text="2 + 3?", answer="5"))
    >>> attempt_texts(FinishedAttempt(state=state))
    ()
    """
    reasoned, summed_up = one.state.reasoning_rollout_store, one.state.summarization_rollout_store
    turns = range(max(len(reasoned), len(summed_up)))
    results = (result for turn in turns for store in (reasoned, summed_up) for result in store[turn : turn + 1])
    return tuple(text for result in results for text in result.training_texts)


def _row(text: TrainingText) -> dict[str, Any]:
    said = {} if isinstance(text.said, tuple) else asdict(text.said, recurse=False)
    metadata = {} if isinstance(text.metadata, tuple) else asdict(text.metadata)
    told = {"prompt_text": text.prompt_text, "output_text": text.output_text, "reward": text.reward}
    return {**told, "metadata": metadata, "said": said}


def turn_figures(results: Sequence[GroupResult]) -> dict[str, float]:
    """Return means over the training texts of each turn of each type: reward, tokens (0 if unknown), and number of texts.

    >>> turn_figures(())
    {}
    """
    found: dict[str, list[TrainingText]] = {}
    for text in (text for result in results for one in result.attempts for text in attempt_texts(one)):
        if not isinstance(text.metadata, tuple):
            name = f"{text.metadata.turn_type}_turn_{text.metadata.turn_number}"
            found = {**found, name: [*found.get(name, []), text]}
    return {
        f"{name}/{figure}": value
        for name, each in found.items()
        for figure, value in (
            ("reward", sum(text.reward for text in each) / len(each)),
            ("tokens", sum(0 if isinstance(text.said, tuple) else len(text.said.ids) for text in each) / len(each)),
            ("texts", float(len(each))),
        )
    }
