"""A server of this process, in place of one that is reached over HTTP: it knows nothing but the folder it was pointed to."""

import time
from pathlib import Path
from typing import Any

import pytest

from purestep.runtime.effects.generation.engine import complete, generator
from purestep.runtime.effects.hugging_face.folder import open_model
from purestep.runtime.effects.openai_server.vllm_weights import lay_out
from purestep.runtime.text import sampling


def stood_in(
    patch: pytest.MonkeyPatch, run: Path, *, capacity: int, max_new_tokens: int, seconds: float = 0.0
) -> list[tuple[str, int]]:
    """Sample for that run from now on. Return a list that gains (where, version) with each publication of `seconds`."""
    published = list[tuple[str, int]]()

    def answer(where: Any, rules: Any, codec: Any, begun: Any, *, version: int, **choices: Any) -> Any:
        opened = open_model(run / "served" / "served")
        slots = len(begun)
        del choices["log_probs"]  # of the distribution that is sampled from
        made = generator(
            opened.model, rules, codec, slots=slots, capacity=capacity, max_new_tokens=max_new_tokens, **choices
        )
        return complete(made, opened.params, version, begun)

    def take(where: Any, root: Path, save: Any, *, version: int, **told: Any) -> float:
        lay_out(root, save, version=version)
        time.sleep(seconds)
        published.append((where.url, version))
        return 0.0

    patch.setattr(sampling, "sample_from_server", answer)
    patch.setattr(sampling, "publish", take)
    patch.setattr(sampling, "wait_for", lambda where, within: None)
    return published
