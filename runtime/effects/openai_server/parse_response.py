"""Parsing of a server's answer to one model call, with strict checks: a learner needs the exact ids that were sampled, and
their probabilities under the distribution they were sampled from. Pure; nothing here sends a request.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ....core.errors import ChoiceError, choose, message
from ....core.language.codec import Codec
from ....core.language.events import ABORT, LENGTH, STOP, TOOL_CALL
from ....core.language.types import ModelOutput, Rollout
from .client import refused, seed_of

FINISH = {"stop": STOP, "length": LENGTH, "tool_calls": TOOL_CALL, "abort": ABORT}
RAW, PROCESSED = "raw", "processed"
LOG_PROBS = {  # the distribution that a server's log-probs refer to
    RAW: "the model's own distribution",
    PROCESSED: "the distribution sampled from, temperature and top_p included",
}
UNKNOWN = "\ufffd"  # replaces invalid bytes in texts; decoders differ in how many they write
TEXT_ONLY = "train with a server that gives it (vLLM does)"


def check_sampling(log_probs: str, temperature: float, top_p: float) -> None:
    """Check that a server's log-probs are those of the distribution it samples from, at this temperature and top_p.

    Raw ones are so at temperature 1 and top_p 1. At temperature 0 nothing is sampled, and they are not needed.
    Raises: ChoiceError.

    >>> check_sampling("raw", 1.0, 1.0)
    >>> check_sampling("processed", 0.7, 0.9)
    """
    choose("served: log_probs", log_probs, LOG_PROBS)
    if not (temperature >= 0 and 0 < top_p <= 1):
        got, wanted, remedy = (temperature, top_p), "temperature >= 0 and 0 < top_p <= 1", "correct them"
        raise ChoiceError(message("served: temperature, top_p", got=got, wanted=wanted, remedy=remedy))
    if log_probs == RAW and temperature > 0 and (temperature, top_p) != (1.0, 1.0):
        remedy = 'start vLLM with --logprobs-mode processed_logprobs and say log_probs="processed"'
        got, wanted = (temperature, top_p), "(1.0, 1.0) or temperature 0"
        raise ChoiceError(message("served: temperature, top_p", got=got, wanted=wanted, remedy=remedy))


def request_of(attempt: Rollout[Any], codec: Codec, model: str, *, temperature: float, top_p: float) -> dict[str, Any]:
    """Return the arguments of the completions request for the attempt's next model call.

    The prompt is ids and ids are returned. The stop tokens are the codec's and no others, and the server's own sampling
    defaults that would change the distribution (a model's folder can set them) are switched off.
    """
    return {
        "model": model,
        "prompt": list(attempt.ids),
        "max_tokens": attempt.room,
        "temperature": temperature,
        "top_p": top_p,
        "logprobs": 0,
        "seed": seed_of(attempt.rollout, attempt.call),
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "extra_body": {
            "return_token_ids": True,
            "stop_token_ids": list(codec.stop),
            "ignore_eos": True,
            "skip_special_tokens": False,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
        },
    }


def output_of(
    reply: Any, attempt: Rollout[Any], codec: Codec, url: str, *, version: int, temperature: float, top_p: float
) -> ModelOutput:
    """Return the completion of one model call from a server's answer to `request_of`. Raises: ServerError if data are missing.

    >>> from types import SimpleNamespace
    >>> from purestep.core.language.codec import byte_codec
    >>> choice = {"text": "hi", "finish_reason": "stop", "prompt_token_ids": [259, 63, 256, 257], "token_ids": [104, 105, 256]}
    >>> reply = {"choices": [{**choice, "logprobs": {"token_logprobs": [-0.5, -0.25, -0.125]}}]}
    >>> attempt = SimpleNamespace(ids=(259, 63, 256, 257), room=8)
    >>> output_of(reply, attempt, byte_codec(), "http://a/v1", version=3, temperature=1.0, top_p=1.0).versions
    (3, 3, 3)
    """
    choice = _choice(reply, url)
    finish = FINISH.get(str(choice.get("finish_reason")))
    if finish is None:
        got, remedy = repr(choice.get("finish_reason")), "see what the server means by it"
        raise refused(url, "finish_reason", got=got, wanted=f"one of {sorted(FINISH)}", remedy=remedy)
    if finish == ABORT:
        return ModelOutput(ids=(), log_probs=(), versions=(), finish_reason=ABORT)
    ids = _numbers(choice.get("token_ids"), int, "token_ids", url)
    log_probs = _numbers((choice.get("logprobs") or {}).get("token_logprobs"), float, "token_logprobs", url)
    _check_columns(ids, log_probs, attempt, url)
    _check_prompt(reply, choice, attempt, url)
    _check_model(ids, choice.get("text"), codec, url)
    _check_stop(ids, finish, codec, url)
    return ModelOutput(
        ids=ids,
        log_probs=log_probs if temperature > 0 else (0.0,) * len(ids),
        versions=(version,) * len(ids),
        finish_reason=STOP if ids and ids[-1] in codec.stop else finish,
        temperature=temperature,
        top_p=top_p,
    )


def _choice(reply: Any, url: str) -> Mapping[str, Any]:
    choices = reply.get("choices") if isinstance(reply, Mapping) else None
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], Mapping):
        wanted, remedy = "one choice", "see whether it is an OpenAI-compatible API"
        raise refused(url, "answer", got=repr(reply)[:200], wanted=wanted, remedy=remedy)
    return choices[0]


def _numbers(values: Any, kind: type, what: str, url: str) -> tuple[Any, ...]:
    """Return one list of an answer as a tuple. Raises: ServerError if it is absent or holds values of another type."""
    if values is None:
        raise refused(url, what, got="absent", wanted="one for each token sampled", remedy=TEXT_ONLY)
    allowed = (int,) if kind is int else (int, float)
    if not isinstance(values, list) or any(not isinstance(one, allowed) or isinstance(one, bool) for one in values):
        remedy = "see what the server means by it"
        raise refused(url, what, got=repr(values)[:200], wanted=f"a list of {kind.__name__}", remedy=remedy)
    return tuple(kind(one) for one in values)


def _check_columns(ids: Sequence[int], log_probs: Sequence[float], attempt: Rollout[Any], url: str) -> None:
    if len(ids) != len(log_probs):
        got, remedy = f"{len(log_probs)} for {len(ids)} tokens", TEXT_ONLY
        raise refused(url, "token_logprobs", got=got, wanted="one for each", remedy=remedy)
    if len(ids) > attempt.room:
        remedy = "see whether max_tokens reached it"
        raise refused(url, "number of tokens", got=len(ids), wanted=f"at most {attempt.room}", remedy=remedy)
    strange = [one for one in log_probs if not (math.isfinite(one) and one <= 1e-6)]
    if strange:
        remedy = "see whether its weights are sound"
        raise refused(url, "token_logprobs", got=strange[0], wanted="finite and at most 0", remedy=remedy)


def _check_prompt(reply: Mapping[str, Any], choice: Mapping[str, Any], attempt: Rollout[Any], url: str) -> None:
    """Check that the server read exactly the ids we sent: by the ids that it echoes, or by the number that it reports."""
    echo = choice.get("prompt_token_ids") or reply.get("prompt_token_ids")
    remedy = "a server that adds or drops tokens samples from another context; ask one that takes ids as they are"
    if echo is not None and list(echo) != list(attempt.ids):
        raise refused(url, "prompt", got=f"read as {echo!r}"[:200], wanted="the ids sent", remedy=remedy)
    if echo is None:
        number = (reply.get("usage") or {}).get("prompt_tokens")
        if number != len(attempt.ids):
            raise refused(url, "prompt", got=f"{number} tokens", wanted=f"{len(attempt.ids)}", remedy=remedy)


def _check_model(ids: Sequence[int], text: Any, codec: Codec, url: str) -> None:
    """Check that the ids fit our vocabulary, and that our codec decodes them to the server's text: the models must agree."""
    remedy = "serve the model that the codec was made for"
    foreign = [token for token in ids if not 0 <= token < codec.vocabulary]
    if foreign:
        wanted = f"0 to {codec.vocabulary - 1}"
        raise refused(url, "token_ids", got=f"{foreign[0]} among others", wanted=wanted, remedy=remedy)
    ours = codec.decode(ids)
    if not isinstance(text, str) or (UNKNOWN not in ours + text and _letters(ours) != _letters(text)):
        raise refused(
            url, "text", got=repr(text)[:200], wanted=f"what its ids say to us: {ours!r}"[:200], remedy=remedy
        )


def _check_stop(ids: Sequence[int], finish: str, codec: Codec, url: str) -> None:
    """Reject stop reasons whose stop token was not sampled: training would attribute it to the model."""
    if finish == STOP and ids[-1:] not in [(token,) for token in codec.stop]:
        got = f"ended by {ids[-1] if ids else 'nothing'} at a finish of 'stop'"
        remedy = "see what else it stops at; only tokens of the codec, sampled and given, can end a call"
        raise refused(url, "token_ids", got=got, wanted=f"one of {tuple(codec.stop)}", remedy=remedy)


def _letters(text: str) -> str:
    """Return a text without its whitespace: tokenizers differ in how they treat it at the edges."""
    return "".join(text.split())
