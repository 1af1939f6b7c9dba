"""Demonstrations of a task: the completions of a demonstrator, with the replies of the world, through the turn protocol."""

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ChoiceError, message
from ..keys import Key
from .attempt import Attempt, Said, begin_attempt, hear
from .codec import Codec, Ids
from .protocol import Protocol
from .requests import Rollout


def demonstrate(
    protocol: Protocol[Any, Any],
    codec: Codec,
    spell: Callable[[str], Ids],
    rollout: Rollout,
    key: Key,
    *,
    script: Callable[[Any, Any, Key, float], Sequence[str]],
    skill: float,
    capacity: int,
    max_new_tokens: int,
) -> Attempt[Any]:
    """Return the attempt that a demonstrator makes: what `script` says, its last text again until the episode ends.

    `script(params, state, key, skill)` gives the completions for the episode that begins with this state. `spell(text)` gives
    the ids of a completion, its stop token among them. Their log-probs are 0 and their version is 0, as nobody drew them. A
    text that finds no room is left out, and the attempt stays open. Raises: ChoiceError.

    >>> from .. import keys
    >>> from .codec import END, byte_codec
    >>> from .demonstrations import play_script
    >>> from .protocol import protocol
    >>> from .requests import Request, rollouts
    >>> from .zorplex import zorplex, zorplex_parser
    >>> rules = protocol(zorplex("simple"), zorplex_parser(), max_steps=4)
    >>> rollout = rollouts(Request(id=0, group=0, task=(0, 0), sampling=(0, 0)))[0]
    >>> how = {"script": play_script, "skill": 1.0, "capacity": 99, "max_new_tokens": 32}
    >>> spell = lambda text: (*text.encode(), END)
    >>> demonstrate(rules, byte_codec(), spell, rollout, keys.key(0), **how).episode.world.reward.correct
    1.0
    """
    attempt = begin_attempt(protocol, codec, rollout, capacity=capacity, max_new_tokens=max_new_tokens)
    texts = script(protocol.env.params, attempt.episode.world, key, skill)
    if not texts:
        remedy = "give at least one completion"
        raise ChoiceError(message("demonstrations: completions", got="none", wanted="some", remedy=remedy))
    for number in range(protocol.max_steps):
        ids = spell(texts[min(number, len(texts) - 1)])
        if len(ids) > attempt.room:
            break
        zeros = (0,) * len(ids)
        attempt = hear(protocol, codec, attempt, Said(ids=ids, log_probs=tuple(map(float, zeros)), versions=zeros))
    return attempt
