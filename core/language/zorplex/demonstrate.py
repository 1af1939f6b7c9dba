"""Demonstrations of a task: the completions of a script, with the environment's replies, through the turn protocol."""

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import ChoiceError, message
from ...keys import Key
from ..codec import Codec, Ids
from ..protocol import Protocol
from ..requests import RolloutSpec
from ..rollout import add_output, begin_rollout
from ..types import ModelOutput, Rollout


def demonstrate(
    protocol: Protocol[Any, Any],
    codec: Codec,
    spell: Callable[[str], Ids],
    rollout: RolloutSpec,
    key: Key,
    *,
    script: Callable[[Any, Any, Key, float], Sequence[str]],
    skill: float,
    capacity: int,
    max_new_tokens: int,
) -> Rollout[Any]:
    """Return the attempt of a demonstrator: the texts of `script`, the last one repeated until the episode ends.

    `script(params, state, key, skill)` returns the completions for the episode that starts in this state. `spell(text)`
    returns the ids of a completion, including its stop token. Their log-probs and versions are 0, as they were not sampled.
    If a text does not fit, it is omitted and the attempt stays unfinished. Raises: ChoiceError.

    >>> from ... import keys
    >>> from ..codec import END, byte_codec
    >>> from .demonstrations import play_script
    >>> from ..protocol import protocol
    >>> from ..requests import Request, rollouts
    >>> from .env import zorplex, zorplex_parser
    >>> rules = protocol(zorplex("simple"), zorplex_parser(), max_steps=4)
    >>> rollout = rollouts(Request(id=0, group=0, task=(0, 0), sampling=(0, 0)))[0]
    >>> how = {"script": play_script, "skill": 1.0, "capacity": 99, "max_new_tokens": 32}
    >>> spell = lambda text: (*text.encode(), END)
    >>> demonstrate(rules, byte_codec(), spell, rollout, keys.key(0), **how).episode.world.reward.correct
    1.0
    """
    attempt = begin_rollout(protocol, codec, rollout, capacity=capacity, max_new_tokens=max_new_tokens)
    texts = script(protocol.env.params, attempt.episode.world, key, skill)
    if not texts:
        remedy = "give at least one completion"
        raise ChoiceError(message("demonstrations: completions", got="none", wanted="some", remedy=remedy))
    for number in range(protocol.max_steps):
        ids = spell(texts[min(number, len(texts) - 1)])
        if len(ids) > attempt.room:
            break
        zeros = (0,) * len(ids)
        attempt = add_output(
            protocol, codec, attempt, ModelOutput(ids=ids, log_probs=tuple(map(float, zeros)), versions=zeros)
        )
    return attempt
