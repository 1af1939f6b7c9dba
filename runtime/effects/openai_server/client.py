"""An OpenAI-compatible server as a value, and one request to it: a result in time, or one error that states the cause.

Connections, time-outs and retries are the `openai` client's own (extra `llm`), which is imported at the first request. Each
request also has a deadline of its own: the client's time-out never ends a response that keeps sending single bytes.
"""

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from attrs import evolve, frozen

from ....core.errors import ChoiceError, PurestepError, message
from ....core.language.requests import RolloutSpec, call_key, words_of
from ..clock import result
from ..hugging_face.optional import library

T = TypeVar("T")

PAUSES = 8.0  # seconds: the longest that the client waits before a retry
PAUSE = 0.5  # seconds between two attempts to connect to a server that starts
LOOK = 1.0  # seconds that such an attempt has at least
LEAVE = 1.0  # seconds that a cancelled job has to end
EXACT = 53  # bits of an integer that every JSON parser keeps


class ServerError(PurestepError, RuntimeError):
    """Error for a server that cannot be reached, refuses, or sends an answer that cannot be used."""


@frozen(kw_only=True)
class Server:
    """Address of an API, name of its model, and request settings; make it with `server`."""

    url: str
    model: str
    connect: Callable[[], Any]  # an AsyncOpenAI: one for each event loop
    seconds: float  # deadline of a request, all its retries included
    concurrency: int


def nothing() -> None:
    """Do nothing: the notice of a silent wait."""


def server(
    url: str,
    model: str,
    *,
    api_key: str = "none",
    timeout: float = 60.0,
    retries: int = 2,
    concurrency: int = 64,
    http_client: Callable[[], Any] | tuple[()] = (),
) -> Server:
    """Return the server whose API is at `url`, such as http://127.0.0.1:8000/v1.

    `timeout` in seconds and `retries` (of time-outs, lost connections and the statuses 408, 409, 429 and 5xx) are the
    client's; at most `concurrency` requests run at once. `http_client()` makes the HTTP client, if it is not to be the
    `openai` client's own. Raises: ChoiceError.

    >>> server("http://127.0.0.1:8000/v1/", "tiny", timeout=10.0, retries=1).url
    'http://127.0.0.1:8000/v1'
    """
    wrong = [
        ("url", url, "http://... or https://...", not url.startswith(("http://", "https://"))),
        ("timeout", timeout, "more than 0", not timeout > 0),
        ("retries", retries, "at least 0", retries < 0),
        ("concurrency", concurrency, "at least 1", concurrency < 1),
    ]
    for name, got, wanted, is_wrong in wrong:
        if is_wrong:
            raise ChoiceError(message(f"server: {name}", got=repr(got), wanted=wanted, remedy="correct it"))

    def connect() -> Any:
        client = library("openai").AsyncOpenAI
        carrier = {} if isinstance(http_client, tuple) else {"http_client": http_client()}
        return client(base_url=url, api_key=api_key, timeout=timeout, max_retries=retries, **carrier)

    seconds = (retries + 1) * timeout + retries * PAUSES
    return Server(url=url.rstrip("/"), model=model, connect=connect, seconds=seconds, concurrency=concurrency)


def wait_for(one: Server, within: float, waiting: Callable[[], None] = nothing) -> None:
    """Wait until the server answers, up to `within` seconds, and has its model.

    An attempt that has started gets at least one second, so the wait may be one second longer; a server that denies access
    (401, 403) is not retried. `waiting` is called once, when the first attempt has failed. Raises: ServerError if it does not
    answer or has other models; KeyboardInterrupt, at once, on Ctrl-C or SIGTERM.
    """
    names = run_job(_models(one, within, waiting))
    if one.model not in names:
        raise refused(one.url, "models", got=names, wanted=repr(one.model), remedy="name the one to ask")


async def _models(one: Server, within: float, waiting: Callable[[], None]) -> list[Any]:
    """Return the names of the server's models, once it lists them."""
    end = time.monotonic() + within
    openai = library("openai")
    while True:
        look = evolve(one, seconds=min(one.seconds, max(end - time.monotonic(), LOOK)))
        try:
            async with one.connect() as client:
                listed = await read_response(look, client.with_options(max_retries=0).models.with_raw_response.list)
        except ServerError as error:
            shut = isinstance(error.__cause__, openai.AuthenticationError | openai.PermissionDeniedError)
            if shut or time.monotonic() > end:
                raise
            waiting()
            waiting = nothing
            await asyncio.sleep(min(PAUSE, within))
        else:
            rows = listed.get("data") if isinstance(listed, dict) else None
            return [row["id"] for row in rows or () if isinstance(row, dict) and "id" in row]


def json_of(raw: Any) -> Any:
    """Return the JSON value in a raw response of the client. Raises: ValueError.

    >>> from types import SimpleNamespace
    >>> json_of(SimpleNamespace(text="[1, 2]"))
    [1, 2]
    """
    return json.loads(raw.text)


async def read_response(
    server: Server, create: Callable[[], Awaitable[Any]], read: Callable[[Any], Any] = json_of
) -> Any:
    """Return `read` of the answer to a request, which `create` sends through the client.

    Raises: ServerError, in one line.
    """
    import openai

    def error(got: str, remedy: str) -> ServerError:
        return refused(server.url, "answer", got=got, wanted="a result", remedy=remedy)

    try:
        async with asyncio.timeout(server.seconds):
            return read(await create())
    except (openai.APITimeoutError, TimeoutError) as cause:
        raise error("silent until the time-out", "raise the time-out, or ask for less at once") from cause
    except openai.APIConnectionError as cause:
        raise error(f"none ({cause.__cause__ or cause})", "see whether the server runs, and its address") from cause
    except openai.APIStatusError as cause:
        raise error(f"status {cause.status_code}: {_first_line(cause.message)}", "see what it says") from cause
    except ValueError as cause:
        got = f"not JSON ({_first_line(str(cause))})"
        raise error(got, "see whether it is an OpenAI-compatible API") from cause


def _first_line(text: str) -> str:
    return next(iter(text.splitlines()), "")[:300]


def refused(server_url: str, what: str, *, got: object, wanted: object, remedy: str) -> ServerError:
    """Return the error for an answer that was received and cannot be used.

    >>> str(refused("http://a/v1", "token_ids", got="absent", wanted="the ids", remedy="ask another server"))
    'http://a/v1: token_ids is absent, wanted the ids; ask another server'
    """
    return ServerError(message(f"{server_url}: {what}", got=got, wanted=wanted, remedy=remedy))


async def all_of(jobs: list[Coroutine[Any, Any, T]]) -> tuple[T, ...]:
    """Return the results of all the jobs, in their order; if one fails, or this is cancelled, the others are cancelled.

    Raises: the exception of the first job that failed.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(job) for job in jobs]
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from several.exceptions[0].__cause__
    return tuple(task.result() for task in tasks)


async def aside(function: Callable[..., T], *arguments: Any) -> T:
    """Return the function's result, called in a thread of its own. If it hangs, neither the loop nor the process waits for it.

    >>> asyncio.run(aside(divmod, 7, 2))
    (3, 1)
    """
    made: Future[T] = Future()
    made.set_running_or_notify_cancel()

    def work() -> None:
        try:
            made.set_result(function(*arguments))
        except BaseException as error:  # SystemExit too: in a thread it would vanish
            made.set_exception(error)

    threading.Thread(target=work, name="purestep-world", daemon=True).start()
    return await asyncio.wrap_future(made)


def run_job(job: Coroutine[Any, Any, T]) -> T:
    """Return the job's result, waiting for its end in a loop of its own, also if one already runs, as in a notebook.

    Ctrl-C and SIGTERM cancel it at once, in any thread: see `clock`.

    >>> run_job(asyncio.sleep(0, "slept"))
    'slept'
    """
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = Future()
    made: Future[T] = Future()

    async def known() -> T:
        begun.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        return await job

    def work() -> None:
        try:
            made.set_result(asyncio.run(known()))
        except BaseException as error:  # SystemExit too: in a thread it would vanish
            made.set_exception(error)

    try:
        threading.Thread(target=work, name="purestep-loop", daemon=True).start()
        return result(made)
    except KeyboardInterrupt:
        with suppress(Exception, asyncio.CancelledError):  # it has ended, or does not end in time
            loop, task = begun.result(LEAVE)
            loop.call_soon_threadsafe(task.cancel if task else nothing)
            made.result(LEAVE)
        raise


def seed_of(rollout: RolloutSpec, call: int) -> int:
    """Return the seed in [0, 2**53) that a model call sends to a server: a function of the call's key alone.

    >>> from purestep.core.language.requests import Request, rollouts
    >>> rollout = rollouts(Request(id=0, group=0, task=(0, 0), sampling=(1, 1)))[0]
    >>> seed_of(rollout, 0) == seed_of(rollout, 0) != seed_of(rollout, 1)
    True
    """
    first, second = words_of(call_key(rollout, call))
    return (second << 32 | first) & ((1 << EXACT) - 1)
