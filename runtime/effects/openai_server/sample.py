"""An OpenAI-compatible server as sampler: attempts are sent to it and returned finished, with its token ids and log-probs.

Prompts are sent as ids and completions come back as ids; sampled text is never tokenised again. The seed of a request is drawn
from the key of its call, so a server that honours seeds, and whose arithmetic does not depend on its other load, is
reproducible.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from ....core.errors import ChoiceError, message
from ....core.language.codec import Codec
from ....core.language.events import ABORT
from ....core.language.protocol import Protocol
from ....core.language.rollout import add_output
from ....core.language.types import ModelOutput, Rollout
from .client import Server, all_of, aside, read_response, refused, run_job
from .client import ServerError as ServerError
from .client import server as server
from .parse_response import RAW, check_sampling, output_of, request_of

P = TypeVar("P")
S = TypeVar("S")

ABORTS, PAUSE = (
    50,
    0.1,
)  # how often in a row a server may abort a call, as it does while it loads new weights; seconds


def sample_from_server(
    server: Server,
    protocol: Protocol[P, S],
    codec: Codec,
    attempts: Sequence[Rollout[S]],
    *,
    version: int,
    temperature: float = 1.0,
    top_p: float = 1.0,
    log_probs: str = RAW,
) -> tuple[Rollout[S], ...]:
    """Return the attempts, finished, in their order, sampled by the server; `version` is that of its current weights.

    `log_probs` states the distribution of the server's log-probs: "raw", the model's own distribution (vLLM's default), which
    can be trained on only at temperature 1 and top_p 1; or "processed", the distribution sampled from. At temperature 0 each
    token is the most probable one, and its log-prob is 0, that of a certain event.
    Requests run concurrently. If one fails, or on Ctrl-C, the others are cancelled.
    Raises: ServerError (unreachable, too slow, or its answer cannot be used for training), ChoiceError.
    """
    check_sampling(log_probs, temperature, top_p)
    if version < 0:
        remedy = "count the published weights from 0"
        raise ChoiceError(message("served: version", got=version, wanted="at least 0", remedy=remedy))
    how = {"temperature": temperature, "top_p": top_p}

    async def job() -> tuple[Rollout[S], ...]:
        turns = asyncio.Semaphore(server.concurrency)
        steps = asyncio.Semaphore(server.concurrency)
        async with server.connect() as client:
            create = client.completions.with_raw_response.create

            async def ask(attempt: Rollout[S]) -> ModelOutput:
                body = request_of(attempt, codec, server.model, **how)
                async with turns:
                    reply = await read_response(server, partial(create, **body))
                return output_of(reply, attempt, codec, server.url, version=version, **how)

            async def answer(attempt: Rollout[S], said: ModelOutput) -> Rollout[S]:
                # Slow tools of one environment must not delay the other requests.
                async with steps:
                    return await aside(add_output, protocol, codec, attempt, said)

            return await all_of([_attempted(server, ask, answer, attempt) for attempt in attempts])

    return run_job(job())


async def _attempted(
    server: Server,
    ask: Callable[[Rollout[S]], Awaitable[ModelOutput]],
    answer: Callable[[Rollout[S], ModelOutput], Awaitable[Rollout[S]]],
    attempt: Rollout[S],
) -> Rollout[S]:
    given_up = 0
    while isinstance(attempt.end, tuple):
        said = await ask(attempt)
        if said.finish_reason == ABORT:
            given_up += 1
            if given_up > ABORTS:
                got, remedy = f"{given_up} times in a row", "see whether it was left paused"
                raise refused(server.url, "abort", got=got, wanted=f"at most {ABORTS}", remedy=remedy)
            await asyncio.sleep(PAUSE)
        else:
            given_up = 0
            attempt = await answer(attempt, said)
    return attempt
