"""A taskset of the library verifiers as a task for a language model, with the environment that the library pairs it with.

    WORDLE = verifiers_task("textarena", game="Wordle-v0", tasks=200)

in a file, which `purestep train FILE.py:WORDLE --model FOLDER` trains. Needs the extra `verifiers` (0.4 or newer). The
environment's own `run(task, agents)` goes on in an event loop of this process; where it asks its agent for a reply, the model
that is trained gives it. The reward is that of the agent's trace, at the end of the episode.
"""

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

from attrs import define, field, frozen

from ....core.errors import ChoiceError, StructureError, at_least, describe_error, message
from ....core.keys import Key
from ....core.language.events import Assistant, Event, System, User
from ....core.language.parsers import Parsed
from ....core.language.prompts import row_keys
from ....core.language.requests import words_of
from ....core.language.task import EVALUATION, TRAINING, TextTask
from ....core.language.text_env import Outcome
from ..clock import result
from ..hugging_face.optional import library
from .sessions import session_env

V1 = "verifiers.v1"
EVENTS = {"system": System, "user": User, "assistant": Assistant}
ENDED = "the episode is over"


def verifiers_task(
    taskset: str,
    *,
    tasks: int = 256,
    held_out: int = 0,
    sessions: int = 256,
    seconds: float = 60.0,
    **settings: Any,
) -> TextTask:
    """Return the task of the first `tasks` tasks of a taskset, of which the last `held_out` are for evaluation, else a fifth.

    `settings` are those of the taskset. `sessions` is the number of unfinished episodes that this process keeps, `seconds` the
    time of the environment for its next message. Refused are what purestep cannot give: containers, tool servers and rewards
    that need a runtime, and environments of several agents.
    Raises: ChoiceError; StructureError; ModuleNotFoundError without the library.
    """
    where = f"verifiers {taskset}"
    at_least("verifiers_task: tasks", tasks, 2)
    at_least("verifiers_task: sessions", sessions, 1)
    env, agent = _environment(where, taskset, settings)
    try:
        rows = [*islice(iter(env.taskset), tasks)]
    except Exception as cause:
        remedy = "see that the library loads it on its own"
        raise ChoiceError(
            message(f"{where}: tasks", got=describe_error(cause), wanted="a list", remedy=remedy)
        ) from cause
    kept = held_out or max(1, len(rows) // 5)
    if not 0 < kept < len(rows):
        got, wanted = f"{kept} of {len(rows)} tasks", "some of them, not all"
        raise ChoiceError(message("verifiers_task: held_out", got=got, wanted=wanted, remedy="change it"))
    streams = {TRAINING: rows[:-kept], EVALUATION: rows[-kept:]}
    for row in rows:
        _check(where, row)

    def world(stream: str) -> Any:
        some = streams[stream]
        return session_env(
            lambda: _Episode(env, some, agent, seconds),
            most=sessions,
            seed_of=lambda key: _row(key, len(some)),
            opening=lambda sessions, state, text: _opening(some[state.seed], text),
        )

    worlds = {stream: world(stream) for stream in streams}
    return TextTask(
        name=taskset.rpartition("/")[2],
        env=lambda stream: worlds[stream],
        parser=Parsed,
        incomplete="accept",
        draw=row_keys(len(streams[TRAINING]), kept),
        prompts=len(streams[TRAINING]),
        digest=" ".join(row.hash for row in rows),
    )


def _row(key: Key, number: int) -> int:
    return (words_of(key)[0] >> 1) % number


def _environment(where: str, taskset: str, settings: dict[str, Any]) -> tuple[Any, str]:
    """Return the environment of a taskset, and the name of its agent."""
    loaders = library(f"{V1}.utils.loaders", extra="verifiers")
    agents = library(f"{V1}.configs.agent", extra="verifiers")
    configs = library(f"{V1}.configs.env", extra="verifiers")
    concrete = library(f"{V1}.utils.generic", extra="verifiers").concrete_type
    base = library(f"{V1}.env", extra="verifiers").Env
    try:
        kind = loaders.environment_class(taskset)
        config = concrete(kind, configs.EnvConfig, origin=base) or configs.EnvConfig
        env = kind(config.model_validate({"taskset": {"id": taskset, **settings}}))
    except Exception as cause:
        remedy = "see that the library loads it on its own"
        raise ChoiceError(message(where, got=describe_error(cause), wanted="an environment", remedy=remedy)) from cause
    names = [*agents.agent_config_fields(env.config)]
    if len(names) != 1:
        got, remedy = f"agents {', '.join(names)}", "take a taskset with one agent"
        raise ChoiceError(message(where, got=got, wanted="one agent, the model that is trained", remedy=remedy))
    if env.taskset.toolsets(env.taskset.config):
        raise ChoiceError(message(where, got="tool servers", wanted="none", remedy="take a taskset without"))
    return env, names[0]


def _check(where: str, task: Any) -> None:
    """Refuse a task that needs what is not there. Raises: ChoiceError."""
    needs = [
        *(["a container"] if task.NEEDS_CONTAINER else []),
        *(["tool servers"] if type(task).toolsets(task.config) else []),
        *(f"a runtime for {one.__name__}" for kind in ("reward", "metric") for one in task.hooks(kind) if _runs(one)),
    ]
    if needs:
        remedy = "take a taskset that needs none"
        raise ChoiceError(message(f"{where}: a task", got=f"in need of {needs[0]}", wanted="text alone", remedy=remedy))


def _runs(function: Any) -> bool:
    runtime = inspect.signature(function).parameters.get("runtime")
    return runtime is not None and runtime.default is inspect.Parameter.empty


def _opening(task: Any, text: str) -> tuple[Event, ...]:
    """Return the messages that a task begins with; the text is the last one."""
    system = (System(task.data.system_prompt),) if task.data.system_prompt else ()
    if task.data.prompt is None or isinstance(task.data.prompt, str):
        return (*system, User(text))
    earlier = [EVENTS[one.role](_plain(one)) for one in task.data.prompt[:-1]]
    return (*system, *earlier, User(text))


def _plain(given: Any) -> str:
    """Return the text of a message of the library. Raises: StructureError for pictures."""
    content = given if isinstance(given, str) else given.content
    if not isinstance(content, str):
        remedy = "take a taskset of texts"
        raise StructureError(message("verifiers: a message", got="parts", wanted="a text", remedy=remedy))
    return content


@define
class _Episode:
    """A session: one task of an environment at a time, each a coroutine in the process's event loop for them."""

    env: Any
    rows: Sequence[Any]
    agent: str
    seconds: float
    _player: Any = field(default=())
    _running: Any = field(default=())

    def begin(self, seed: int) -> Outcome:
        self.close()
        self._player = _Player()
        self._running = _spawn(_played(self.env, self.rows[seed], self.agent, self._player))
        return self._next()

    def step(self, action: Any) -> Outcome:
        self._player.answer(action)
        return self._next()

    def close(self) -> None:
        if not isinstance(self._running, tuple):
            self._running.cancel()
            self._running = ()

    def _next(self) -> Outcome:
        asked = asyncio.run_coroutine_threadsafe(self._player.asked(self._running), _loop())
        text, reward = result(asked, self.seconds)
        return Outcome("" if text is None else text, reward, terminated=text is None)


class _Player:
    """The one agent of an episode, as its environment sees it: replies come from outside."""

    def __init__(self) -> None:
        self._texts: asyncio.Queue[str] = asyncio.Queue()
        self._replies: asyncio.Queue[str] = asyncio.Queue()

    def answer(self, text: str) -> None:
        _loop().call_soon_threadsafe(self._replies.put_nowait, text)

    async def asked(self, running: Any) -> tuple[str | None, float]:
        """Return the next message to the model, or None and the reward once the episode is over. Raises: its errors."""
        texts = asyncio.ensure_future(self._texts.get())
        await asyncio.wait([texts, asyncio.wrap_future(running)], return_when=asyncio.FIRST_COMPLETED)
        if texts.done():
            return texts.result(), 0.0
        texts.cancel()
        return None, float(await asyncio.wrap_future(running))

    async def reply(self, text: str) -> str:
        await self._texts.put(text)
        return await self._replies.get()


@frozen
class _Agents:
    """The agents of an episode: one, by its name."""

    name: str
    agent: Any

    def __getattr__(self, name: str) -> Any:
        if name == self.name:
            return self.agent
        raise AttributeError(name)


@define
class _Agent:
    """The agent of an episode, as its environment calls it."""

    player: _Player
    trainable: bool = True
    traces: list[Any] = field(factory=list)

    async def run(self, task: Any, **options: Any) -> Any:
        """Return the trace of one reply to the task's prompt."""
        async with self.interaction(task) as exchange:
            await exchange.turn()
        return exchange.trace

    @asynccontextmanager
    async def interaction(self, task: Any, **options: Any) -> AsyncIterator["_Exchange"]:
        """Yield a conversation; its trace is scored at its end."""
        exchange = _Exchange(self.player, task, _trace(task))
        self.traces.append(exchange.trace)
        yield exchange
        exchange.trace.stop("user_closed")
        await task.score(exchange.trace)
        exchange.trace.ok = True


@define
class _Exchange:
    """A conversation of an environment with its agent."""

    player: _Player
    task: Any
    trace: Any

    async def turn(self, given: Any = None) -> Any:
        """Return the segment that answers a message, or the task's prompt."""
        types = library(f"{V1}.types", extra="verifiers")
        segment = library(f"{V1}.agent", extra="verifiers").Segment
        prompt = self.task.data.prompt if given is None else given
        messages = [types.UserMessage(content=prompt)] if isinstance(prompt, str) else list(prompt)
        messages = [types.parse_message(one) if isinstance(one, dict) else one for one in messages]
        if not self.trace.nodes and self.task.data.system_prompt:
            _add(self.trace, types.SystemMessage(content=self.task.data.system_prompt), sampled=False)
        for one in messages:
            _add(self.trace, one, sampled=False)
        said = types.AssistantMessage(content=await self.player.reply(_plain(messages[-1])))
        _add(self.trace, said, sampled=True)
        return segment(messages=[said])


def _add(trace: Any, said: Any, *, sampled: bool) -> None:
    node = library(f"{V1}.graph", extra="verifiers").MessageNode
    parent = len(trace.nodes) - 1 if trace.nodes else None
    trace.nodes.append(node(parent=parent, message=said, sampled=sampled))


def _trace(task: Any) -> Any:
    traces = library(f"{V1}.trace", extra="verifiers")
    config = library(f"{V1}.configs.agent", extra="verifiers").AgentConfig()
    state = library(f"{V1}.state", extra="verifiers").state_cls(type(task))()
    given = traces.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
    return traces.Trace(task=given, state=state, agent=traces.AgentInfo(config=config))


async def _played(env: Any, task: Any, name: str, player: _Player) -> float:
    """Return the reward of an episode."""
    agent = _Agent(player)
    agents = _Agents(name, agent)
    await env.setup(agents)
    await env.run(task, agents)
    episodes, traces = library(f"{V1}.episode", extra="verifiers"), library(f"{V1}.trace", extra="verifiers")
    given = traces.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
    episode = episodes.Episode(env=episodes.EnvInfo(id=env.config.env_id), task=given, traces=agent.traces)
    await env.finalize(task, episode)
    return float(sum(trace.reward for trace in agent.traces))


_started: list[asyncio.AbstractEventLoop] = []
_starting = threading.Lock()


def _loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of this process's episodes, in a thread of its own."""
    with _starting:
        if not _started:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="verifiers", daemon=True).start()
            _started.append(loop)
    return _started[0]


def _spawn(coroutine: Coroutine[Any, Any, float]) -> Any:
    return asyncio.run_coroutine_threadsafe(coroutine, _loop())
