"""What a model is worth in cycles: accuracy on held-out problems after T = 1, 2, ... of them. Nothing here trains."""

from typing import Any

from attrs import evolve

from ...core import keys
from ...core.errors import PurestepError, message
from ...core.language.reasoning_events import GroupResult
from ..recipes.cache import lists_of
from .cycles import cycled
from .parts import Parts, Voice
from .speaking import speaking
from .standing import Standing, problems_of, standing


def evaluated(
    parts: Parts, params: dict[str, Any], *, problems: int, draw: int, cycles: int, version: int = 0
) -> tuple[Standing, tuple[GroupResult, ...]]:
    """How parameters, all those of the library's model, stand on held-out problems, and the runs.

    Raises: ChoiceError; PurestepError where calls failed for good, as what is left would say nothing about all problems.
    """
    settings = evolve(parts.settings, num_reasoning_steps=cycles, attempts=1, num_samples_per_problem=1)
    voice = Voice(params=params, version=version, how=settings.test_llm)
    found = cycled(
        evolve(parts.cache, num_reasoning_steps=cycles),
        settings,
        problems_of(lists_of(parts.arguments.problems, "evaluation"), "evaluation", draw, problems),
        speaking(parts, voice),
        parts.codec.decode,
        keys.fold_in(keys.key(draw), 1),
        limits=(settings.test_llm.max_tokens, parts.arguments.speech.summary_tokens),
        version=version,
        stream="evaluation",
    )
    ended = [one for result in found for one in result.attempts]
    failed = [one.failed for one in ended if one.failed]
    if failed:
        where, wanted = "evaluation: runs of cycles", "all of them at their end"
        got, remedy = f"{len(failed)} of {len(ended)} given up ({failed[0]})", "try again when the model answers"
        raise PurestepError(message(where, got=got, wanted=wanted, remedy=remedy))
    return standing([one.state for one in ended]), found
