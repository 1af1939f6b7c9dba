"""A task from a list of prompts: one row is one episode, and functions of the completions give the rewards.

    task = prompt_task("sums", training, held_out, rewards=lambda replies: [Grade(float(one.text == "5")) for one in replies])

In training each row is asked once before one is asked again, in an order drawn anew for each pass; in evaluation rows are
asked in an order drawn once. So requests name rows, and runs of any kind ask the same rows in the same order.

With tools, a completion with calls is answered by their results, and the first one without a call ends the episode.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from attrs import evolve, field, frozen

from .. import keys
from ..errors import ChoiceError, message
from ..keys import Key
from .episode import Grade, total_reward
from .events import Assistant, Event, Sampled, System, ToolResult, User
from .grading import Attempts
from .parsers import Parsed
from .requests import STREAMS, Draw, Words, words_of
from .task import EVALUATION, TRAINING, Figure, TextTask
from .text_env import MAX_SEQ_LEN, Outcome, TextEnv, Truncated
from .tools import ToolSet, results_of
from .types import ModelTurn, Rollout

ROLES: Mapping[str, Callable[[str], Event]] = {"system": System, "user": User, "assistant": Assistant}
NAMES = {System: "system", User: "user", Assistant: "assistant", Sampled: "assistant"}
PASSES = 4  # orders of rows that are cached
CUT_OFF, TOOL_CALLS = "cut_off", "tool_calls"


@frozen
class PromptRow:
    """A prompt, as given: a text or chat messages (role, text); and the other columns of its line, for the rewards."""

    prompt: str | tuple[tuple[str, str], ...]
    columns: Mapping[str, Any] = field(factory=dict, eq=False, repr=False)

    @property
    def messages(self) -> tuple[tuple[str, str], ...]:
        """Return the messages (role, text); a text is one of the user.

        >>> PromptRow("2 + 3?").messages
        (('user', '2 + 3?'),)
        """
        return (("user", self.prompt),) if isinstance(self.prompt, str) else self.prompt


@frozen
class PromptState:
    """State of an episode: the number of its row, and of the tool calls so far."""

    row: int
    calls: int = field(default=0, repr=False)


@frozen
class RepliedPrompt:
    """A finished attempt, for a reward: its row, its last text and the ids of all that the model sampled."""

    row: PromptRow
    text: str
    ids: tuple[int, ...] = ()
    messages: tuple[tuple[str, str], ...] = ()  # (role, text) of all that follows the prompt
    cut_off: bool = False  # whether the attempt ended at a length limit


Rewards = Callable[[tuple[RepliedPrompt, ...]], Sequence[Grade]]


def prompt_env(
    rows: Sequence[PromptRow], tools: ToolSet | tuple[()] = ()
) -> TextEnv[tuple[PromptRow, ...], PromptState]:
    """Return the environment of prompts: the first word of a key is the number of its row, doubled; one text ends an episode.

    An action that is a tuple of calls does not end it: the tools make the calls in order, each with a result of its own.

    >>> env = prompt_env([PromptRow("2 + 3?"), PromptRow("1 + 1?")])
    >>> env.reset(env.params, keys.key(2))
    (PromptState(row=1), '1 + 1?')
    """
    if not rows:
        raise ChoiceError(message("prompts", got="none", wanted="at least 1", remedy="give one a line"))
    return TextEnv(
        tuple(rows), _reset, _step if isinstance(tools, tuple) else partial(_called, tools), opening=_opening
    )


def _reset(rows: tuple[PromptRow, ...], key: Key) -> tuple[PromptState, str]:
    row = (words_of(key)[0] >> 1) % len(rows)
    return PromptState(row), rows[row].messages[-1][1]


def _step(rows: tuple[PromptRow, ...], state: PromptState, action: Any, key: Key) -> tuple[PromptState, Outcome]:
    return state, Outcome(terminated=True)


def _called(
    tools: ToolSet, rows: tuple[PromptRow, ...], state: PromptState, action: Any, key: Key
) -> tuple[PromptState, Outcome]:
    if not isinstance(action, tuple):
        return _step(rows, state, action, key)
    results = results_of(tools, action, state.calls)
    text = "\n".join(result.text for result in results)
    return evolve(state, calls=state.calls + len(results)), Outcome(text, results=results)


def _opening(rows: tuple[PromptRow, ...], state: PromptState, observation: str) -> tuple[Event, ...]:
    """Return the messages of a row; the observation takes the place of the last one, whose text it is unless changed."""
    *before, (last, _) = rows[state.row].messages
    return (*(ROLES[role](text) for role, text in before), ROLES[last](observation))


def row_keys(training: int, held_out: int) -> Draw:
    """Return the function that gives prompt `number` of a stream its row: key = (2 row + stream, pass).

    row = pi_p(number mod n),   p = number div n,   pi_p a permutation of the n rows drawn for pass p; p = 0 in evaluation

    >>> draw = row_keys(3, 2)
    >>> sorted(draw(keys.key(0), "training", number)[0] // 2 for number in range(3, 6))
    [0, 1, 2]
    """
    sizes = {TRAINING: training, EVALUATION: held_out}

    @lru_cache(PASSES)
    def order(words: Words, number: int, size: int) -> tuple[int, ...]:
        key = keys.fold_in(keys.key(words[0]), words[1])
        return tuple(map(int, keys.permutation(keys.fold_in(key, number), size)))

    def draw(key: Key, stream: str, number: int) -> Words:
        size = sizes[stream]
        passed, place = divmod(number, size)
        row = order(words_of(key), passed if stream == TRAINING else 0, size)[place]
        return row << 1 | STREAMS[stream], passed

    return draw


def reply_of(rows: Sequence[PromptRow], attempt: Rollout[PromptState]) -> RepliedPrompt:
    """Return a finished attempt at a prompt as its rewards see it.

    >>> from types import SimpleNamespace
    >>> said = Sampled("5", call=0, turn=0, finish_reason="stop")
    >>> episode = SimpleNamespace(world=PromptState(0), events=(User("2 + 3?"), said))
    >>> reply_of([PromptRow("2 + 3?")], SimpleNamespace(episode=episode, pieces=(), end=())).messages
    (('assistant', '5'),)
    """
    row = rows[attempt.episode.world.row]
    events = attempt.episode.events
    first = next(place for place, event in enumerate(events) if isinstance(event, Sampled))
    said = [event for event in events if isinstance(event, Sampled)]
    ids = [piece.said.ids for piece in attempt.pieces if isinstance(piece, ModelTurn)]
    return RepliedPrompt(
        row=row,
        text=said[-1].text,
        ids=tuple(token for call in ids for token in call),
        messages=tuple((NAMES.get(type(event), "tool"), event.text) for event in events[first:]),
        cut_off=attempt.end == Truncated(MAX_SEQ_LEN),
    )


def prompt_task(
    name: str,
    training: Sequence[PromptRow],
    held_out: Sequence[PromptRow],
    *,
    rewards: Rewards,
    parts: Sequence[str] = (),
    solved_at: float = 1.0,
    instructions: str = "",
    digest: str = "",
    tools: ToolSet | tuple[()] = (),
) -> TextTask:
    """Return the task of prompts: one completion each, with the grades of `rewards`, whose parts have these names.

    Figures are accuracy, 1 for a reward of at least `solved_at`, the parts of the reward, and the share of completions that
    were cut off at their length limit: these are graded too, and end truncated.
    With `tools`, completions may call them for several turns, and a figure counts the calls.
    Raises: ChoiceError for a list without a row.

    >>> task = prompt_task("sums", [PromptRow("2 + 3?")], [PromptRow("1 + 1?")], rewards=lambda replies: [])
    >>> task.env("evaluation").reset((PromptRow("1 + 1?"),), keys.key(1))[1]
    '1 + 1?'
    """
    rows = {TRAINING: tuple(training), EVALUATION: tuple(held_out)}
    envs = {stream: prompt_env(some, tools) for stream, some in rows.items()}

    def grader(attempts: Attempts) -> Sequence[Grade]:
        return rewards(tuple(reply_of(rows[_stream(one)], one) for one in attempts))

    figures: dict[str, Figure] = {
        "accuracy": partial(_solved, solved_at),
        **{f"reward_{part}": partial(_part, part) for part in parts},
        CUT_OFF: _cut_off,
    }
    if not isinstance(tools, tuple):
        figures[TOOL_CALLS] = _tool_calls
        digest = f"{digest} {tools.digest}"
    return TextTask(
        name=name,
        env=lambda stream: envs[stream],
        parser=Parsed,
        instructions=instructions,
        figures=figures,
        incomplete="truncate",
        grader=grader,
        draw=row_keys(len(training), len(held_out)),
        prompts=len(training),
        digest=digest,
        tools=tools,
    )


def _stream(attempt: Rollout[Any]) -> str:
    return EVALUATION if attempt.rollout.request.task[0] & 1 else TRAINING


def _solved(solved_at: float, attempt: Rollout[Any]) -> float:
    return float(isinstance(attempt.grade, Grade) and total_reward(attempt.episode) >= solved_at)


def _part(name: str, attempt: Rollout[Any]) -> float:
    return attempt.grade.parts.get(name, 0.0) if isinstance(attempt.grade, Grade) else 0.0


def _cut_off(attempt: Rollout[Any]) -> float:
    return float(attempt.end == Truncated(MAX_SEQ_LEN))


def _tool_calls(attempt: Rollout[Any]) -> float:
    return float(sum(isinstance(event, ToolResult) for event in attempt.episode.events))
