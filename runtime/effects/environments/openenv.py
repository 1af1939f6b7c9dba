"""An OpenEnv server as a task for a language model: its text becomes an action by the server's schema.

    ECHO = openenv_task("http://127.0.0.1:8000", observe=lambda shown: shown["echoed_message"])

in a file, which `purestep train FILE.py:ECHO --model FOLDER` trains. Needs the extra `openenv`. Each step's reward is the
server's; `done` terminates. A server with few sessions is shared: an episode whose session began another one is repeated.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from attrs import frozen

from ....core.errors import ChoiceError, StructureError, at_least, describe_error, message
from ....core.language.parsers import Parsed
from ....core.language.task import TextTask
from ....core.language.text_env import Outcome
from ..hugging_face.optional import library
from .sessions import session_env

OUTSIDE = ("done", "reward", "metadata")  # fields of each observation, which are no text for the model
WAIT = 10.0  # seconds for the schema
Observe = Callable[[Mapping[str, Any]], str]


def openenv_task(
    url: str,
    *,
    name: str = "openenv",
    observe: Observe | tuple[()] = (),
    instructions: str = "",
    reset: Mapping[str, Any] | tuple[()] = (),
    sessions: int = 1,
    seconds: float = 60.0,
) -> TextTask:
    """Return the task of the server at a URL, which has to be running: its schema of actions is read here.

    A text is the value of the action's only required field, or JSON of an object with its fields. `observe` turns an
    observation into the model's text, by default its only text field, else JSON of its fields. `reset` has further arguments
    of each reset, besides the seed. `sessions` is at most the number that the server allows this process, `seconds` its time
    for an answer. Raises: ChoiceError; ModuleNotFoundError without the library.
    """
    at_least("openenv_task: sessions", sessions, 1)
    client = library("openenv.core.generic_client", extra="openenv").GenericEnvClient
    schema = action_schema(url)
    shown = observation_text if isinstance(observe, tuple) else observe
    given = dict(reset or {})

    def open_session() -> _Session:
        return _Session(client(base_url=url, message_timeout_s=seconds).sync(), shown, given)

    env = session_env(open_session, most=sessions)
    return TextTask(
        name=name,
        env=lambda stream: env,
        parser=lambda text: parsed(schema, text),
        instructions=instructions or instructions_for(schema),
        incomplete="accept",
        digest=json.dumps(schema, sort_keys=True),
    )


def action_schema(url: str) -> Mapping[str, Any]:
    """Return the JSON schema of a server's actions. Raises: ChoiceError if there is no server."""
    where, wanted = f"openenv {url}", "a running OpenEnv server"
    try:
        with urlopen(f"{url.rstrip('/')}/schema", timeout=WAIT) as answer:
            schema = json.loads(answer.read())["action"]
    except (URLError, OSError, ValueError, KeyError, TypeError) as cause:
        remedy = "start it, and name its http://HOST:PORT"
        raise ChoiceError(message(where, got=describe_error(cause), wanted=wanted, remedy=remedy)) from cause
    if not isinstance(schema, dict):
        raise ChoiceError(message(where, got="no schema of actions", wanted=wanted, remedy="see GET /schema"))
    return schema


def required(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the fields that an action needs.

    >>> required({"properties": {"message": {"type": "string"}, "metadata": {}}, "required": ["message"]})
    ('message',)
    """
    return tuple(schema.get("required", ()))


def instructions_for(schema: Mapping[str, Any]) -> str:
    """Return the system prompt for actions of a schema: none where a text alone is an action.

    >>> instructions_for({"required": ["message"], "properties": {"message": {"type": "string"}}})
    ''
    """
    if len(required(schema)) == 1:
        return ""
    fields = {name: one for name, one in schema.get("properties", {}).items() if name not in OUTSIDE}
    return f"Answer with one JSON object with these fields, and nothing else: {json.dumps(fields)}"


def parsed(schema: Mapping[str, Any], text: str) -> Parsed:
    """Return the action of a text, or feedback.

    >>> one = {"required": ["move"], "properties": {"move": {"type": "integer"}}}
    >>> parsed(one, "3").action, parsed(one, "up").feedback
    ({'move': 3}, 'Write move as JSON of type integer.')
    >>> both = {"required": ["x", "y"], "properties": {"x": {}, "y": {}}}
    >>> parsed(both, '{"x": 1, "y": 2}').action, parsed(both, '{"x": 1}').feedback
    ({'x': 1, 'y': 2}, 'Write one JSON object with the fields x, y.')
    """
    needed, fields = required(schema), schema.get("properties", {})
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, dict) and {*needed} <= {*value} <= {*fields}:
        return Parsed(value)
    if len(needed) != 1:
        return Parsed((), 0.0, f"Write one JSON object with the fields {', '.join(needed)}.")
    kind = fields.get(needed[0], {}).get("type", "string")
    if kind == "string":
        return Parsed({needed[0]: text.strip()})
    if value is None:
        return Parsed((), 0.0, f"Write {needed[0]} as JSON of type {kind}.")
    return Parsed({needed[0]: value})


def observation_text(observation: Mapping[str, Any]) -> str:
    """Return an observation as a text.

    >>> observation_text({"board": "x.o", "done": False}), observation_text({"echo": "hi", "length": 2})
    ('x.o', '{"echo": "hi", "length": 2}')
    """
    fields = {name: value for name, value in observation.items() if name not in OUTSIDE}
    values = [*fields.values()]
    return values[0] if len(values) == 1 and isinstance(values[0], str) else json.dumps(fields)


@frozen
class _Session:
    """One session of a client."""

    client: Any
    observe: Observe
    reset: Mapping[str, Any]

    def begin(self, seed: int) -> Outcome:
        return self._outcome(self.client.reset(seed=seed % (1 << 31), **self.reset))

    def step(self, action: Any) -> Outcome:
        return self._outcome(self.client.step(action))

    def close(self) -> None:
        self.client.close()

    def _outcome(self, result: Any) -> Outcome:
        text = self.observe(result.observation)
        if not isinstance(text, str):
            remedy = "return a str from `observe`"
            raise StructureError(
                message("openenv: observation", got=type(text).__name__, wanted="a text", remedy=remedy)
            )
        return Outcome(text, float(result.reward or 0.0), terminated=bool(result.done))
