"""The turn protocol as a pure step: from an episode and a completion to the next episode and prompt.

A completion is an action (one env step), a call of an auxiliary tool (context only), or neither: then the environment does not
change, the model gets feedback, and a step without an action is recorded. An action may be several calls, with a result for
each. The end of a model call (`finish_reason`), the end of an episode (`Terminated | Truncated(reason)`) and a parsing
failure (`parse_error`) are recorded separately.
If the environment, a tool or the parser raises, the episode ends as `Raised`, without a step; purestep's own errors are
propagated.
"""

from typing import Any, Generic, TypeVar

from attrs import evolve, frozen

from ..errors import ChoiceError, PurestepError, WorldError, choose, describe_error, message
from ..keys import Key
from .episode import Completion, Episode, Prompt, Step
from .events import ABORT, FINISH_REASONS, LENGTH, Event, Feedback, Sampled, System, ToolResult, User
from .parsers import Call, Parsed, Parser
from .text_env import ENV, MAX_SEQ_LEN, MAX_STEPS, End, Raised, Terminated, TextEnv, Truncated

P = TypeVar("P")
S = TypeVar("S")

INVALID = "Invalid action."
CUT_OFF = "Your text was cut off before its end. Write a shorter one."
NO_TOOLS = "No tool calls are left. Act now."
TRUNCATE = "truncate"
INCOMPLETE = {
    "reject": True,
    "accept": False,
    TRUNCATE: False,
}  # whether a completion cut at its length limit is refused


@frozen(kw_only=True)
class Protocol(Generic[P, S]):
    """The rules of turns in an environment; construct it with `protocol`."""

    env: TextEnv[P, S]
    parser: Parser
    system: str
    max_steps: int
    tool_budget: int
    incomplete: str
    incomplete_reward: float


def protocol(
    env: TextEnv[P, S],
    parser: Parser,
    *,
    system: str = "",
    max_steps: int,
    tool_budget: int = 4,
    incomplete: str = "reject",
    incomplete_reward: float = -0.1,
) -> Protocol[P, S]:
    """Return the protocol of an environment whose actions are parsed by `parser`.

    `max_steps` bounds the recorded steps, `tool_budget` the auxiliary calls before each env step, so that an episode has at
    most max_steps (tool_budget + 1) model calls, not counting aborted ones. `incomplete="reject"` refuses a completion that
    was cut at its length limit, with the reward `incomplete_reward`; "accept" parses it; "truncate" parses it, and an
    episode that ends with it is truncated in place of terminated. Raises: ChoiceError.

    >>> from purestep.core.language.parsers import answer
    >>> protocol(TextEnv((), lambda _, key: ((), "2 + 3?"), ()), answer(), max_steps=0)
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: protocol: max_steps is 0, wanted at least 1; leave room for an action
    """
    _check(env, max_steps, tool_budget, incomplete)
    return Protocol(
        env=env,
        parser=parser,
        system=system,
        max_steps=max_steps,
        tool_budget=tool_budget,
        incomplete=incomplete,
        incomplete_reward=incomplete_reward,
    )


def _check(env: TextEnv[P, S], max_steps: int, tool_budget: int, incomplete: str) -> None:
    choose("protocol: incomplete", incomplete, INCOMPLETE)
    remedy = "leave room for an action"
    if max_steps < 1:
        raise ChoiceError(message("protocol: max_steps", got=max_steps, wanted="at least 1", remedy=remedy))
    if tool_budget < 0:
        remedy = "0 allows none"
        raise ChoiceError(message("protocol: tool_budget", got=tool_budget, wanted="at least 0", remedy=remedy))
    small = [name for name in env.tools if name != name.upper()]
    if small:
        remedy = "calls are found in any case, and named in capitals"
        raise ChoiceError(message("protocol: tools", got=small, wanted="names in capitals", remedy=remedy))


def begin_episode(protocol: Protocol[P, S], key: Key) -> tuple[Episode[S], Prompt]:
    """Return the first turn of the episode that the environment resets to with `key`. Raises: WorldError if the reset raises.

    >>> from purestep.core import keys
    >>> world = TextEnv((), lambda _, key: ((), "2 + 3?"), ())
    >>> begin_episode(protocol(world, Parsed, max_steps=1), keys.key(0))[1]
    Prompt(added=(User(text='2 + 3?'),), tools_left=4)
    """
    try:
        world, observation = protocol.env.reset(protocol.env.params, key)
        opening = protocol.env.opening(protocol.env.params, world, observation)
    except PurestepError:
        raise
    except Exception as error:
        remedy = "an episode cannot begin without them, see to what the reset depends on"
        raise WorldError(
            message("world: reset", got=describe_error(error), wanted="a state and an observation", remedy=remedy)
        ) from error
    own = any(isinstance(event, System) for event in opening)
    events = opening if own or not protocol.system else (System(protocol.system), *opening)
    return Episode(world=world, events=events), Prompt(events, protocol.tool_budget)


def turn_after(
    protocol: Protocol[P, S], episode: Episode[S], completion: Completion, key: Key
) -> tuple[Episode[S], Prompt | End]:
    """Return the episode after a completion, and the next prompt to the model or the end of the episode.

    A step's reward is the sum of the environment's and the parser's for the call that led to it; the parser's rewards for
    auxiliary calls are recorded in their events only. An aborted call and a call after the end leave the episode unchanged.
    Raises: ChoiceError for an unknown finish_reason.

    >>> from purestep.core import keys
    >>> from purestep.core.language.text_env import Outcome
    >>> world = TextEnv((), lambda _, key: (0, "?"), lambda _, told, action, key: (told + 1, Outcome(reward=0.5)))
    >>> rules, key = protocol(world, Parsed, max_steps=1), keys.key(0)
    >>> episode, end = turn_after(rules, begin_episode(rules, key)[0], Completion("5"), key)
    >>> episode.world, episode.steps[0].reward, end
    (1, 0.5, Truncated(reason='max_steps'))
    """
    choose("step: finish_reason", completion.finish_reason, dict.fromkeys(FINISH_REASONS))
    if not isinstance(episode.end, tuple):
        return episode, episode.end
    if completion.finish_reason == ABORT:
        return episode, Prompt((), protocol.tool_budget - episode.tools_used)
    try:
        parsed, incomplete = _read(protocol, episode, completion)
    except PurestepError:
        raise
    except Exception as error:
        parsed, incomplete = Parsed(()), False
        sampled = _sampled(episode, completion, parsed, incomplete)
        after = spoken = evolve(_spoken(episode, sampled), end=Raised(describe_error(error)))
    else:
        sampled = _sampled(episode, completion, parsed, incomplete)
        spoken = _spoken(episode, sampled)
        after = _answered(protocol, spoken, sampled, parsed, key)
    if not isinstance(after.end, tuple):
        return after, after.end
    return after, Prompt(after.events[len(spoken.events) :], protocol.tool_budget - after.tools_used)


def _spoken(episode: Episode[S], sampled: Sampled) -> Episode[S]:
    return evolve(episode, events=(*episode.events, sampled), calls=episode.calls + 1)


def _answered(protocol: Protocol[P, S], spoken: Episode[S], sampled: Sampled, parsed: Parsed, key: Key) -> Episode[S]:
    """Return the episode after the reply of environment, tool or parser; if it raises, the episode ends."""
    if parsed.failed:
        return _refused(protocol, spoken, sampled, parsed)
    try:
        if _auxiliary(protocol, parsed.action):
            return _told(protocol, spoken, parsed.action)
        return _acted(protocol, spoken, sampled, parsed, key)
    except PurestepError:
        raise
    except Exception as error:
        return evolve(spoken, end=Raised(describe_error(error)))


def _sampled(episode: Episode[S], completion: Completion, parsed: Parsed, incomplete: bool) -> Sampled:
    return Sampled(
        text=completion.text,
        call=episode.calls,
        turn=episode.turn,
        finish_reason=completion.finish_reason,
        parse_error=parsed.failed,
        incomplete=incomplete,
        reward=parsed.reward,
    )


def _auxiliary(protocol: Protocol[P, S], action: Any) -> bool:
    return isinstance(action, Call) and action.name in protocol.env.tools


def _read(protocol: Protocol[P, S], episode: Episode[S], completion: Completion) -> tuple[Parsed, bool]:
    """Return the parsed completion, and whether it was refused as incomplete."""
    if completion.finish_reason == LENGTH and INCOMPLETE[protocol.incomplete]:
        return Parsed((), protocol.incomplete_reward, CUT_OFF), True
    parsed = protocol.parser(completion.text)
    if _auxiliary(protocol, parsed.action) and episode.tools_used >= protocol.tool_budget:
        return Parsed((), parsed.reward, NO_TOOLS), False
    return parsed, False


def _refused(protocol: Protocol[P, S], episode: Episode[S], sampled: Sampled, parsed: Parsed) -> Episode[S]:
    cut = len(episode.steps) + 1 >= protocol.max_steps
    feedback = parsed.feedback or INVALID
    made = Step(
        reward=parsed.reward,
        truncated=cut,
        reason=MAX_STEPS if cut else "",
        observation=feedback,
        acted=False,
        parse_error=True,
        incomplete=sampled.incomplete,
        finish_reason=sampled.finish_reason,
        call=sampled.call,
    )
    return _recorded(episode, made, (Feedback(feedback),))


def _told(protocol: Protocol[P, S], episode: Episode[S], call: Call) -> Episode[S]:
    text = protocol.env.tools[call.name](protocol.env.params, episode.world, call.argument)
    event = ToolResult(call.name, call.argument, text, auxiliary=True)
    return evolve(episode, events=(*episode.events, event), tools_used=episode.tools_used + 1)


def _acted(protocol: Protocol[P, S], episode: Episode[S], sampled: Sampled, parsed: Parsed, key: Key) -> Episode[S]:
    action = parsed.action
    world, outcome = protocol.env.step(protocol.env.params, episode.world, action, key)
    ended = outcome.terminated or outcome.truncated
    cut = not ended and len(episode.steps) + 1 >= protocol.max_steps
    cut_off = ended and protocol.incomplete == TRUNCATE and sampled.finish_reason == LENGTH
    made = Step(
        reward=outcome.reward + parsed.reward,
        terminated=outcome.terminated and not cut_off,
        truncated=outcome.truncated or cut or cut_off,
        reason=MAX_SEQ_LEN if cut_off else ENV if outcome.truncated else MAX_STEPS if cut else "",
        observation=() if cut else outcome.observation,
        acted=True,
        finish_reason=sampled.finish_reason,
        call=sampled.call,
    )
    shown: tuple[Event, ...] = () if cut else outcome.results
    if outcome.observation and not cut and not outcome.results:
        text = outcome.observation
        shown = (
            ToolResult(action.name, action.argument, text, auxiliary=False) if isinstance(action, Call) else User(text),
        )
    return _recorded(evolve(episode, world=world, turn=episode.turn + 1, tools_used=0), made, shown)


def _recorded(episode: Episode[S], made: Step, shown: tuple[Event, ...]) -> Episode[S]:
    end = Terminated() if made.terminated else Truncated(made.reason) if made.truncated else ()
    return evolve(episode, steps=(*episode.steps, made), events=(*episode.events, *shown), end=end)
