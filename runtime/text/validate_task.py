"""Validation of a text task before anything is built for it: short attempts in the environments of both streams."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from attrs import evolve

from ...core import keys
from ...core.errors import ChoiceError, StructureError, WorldError, describe_error, message
from ...core.keys import Key
from ...core.language.codec import END, byte_codec
from ...core.language.evaluation import TaskEvaluation
from ...core.language.parsers import Call, Parsed, Parser
from ...core.language.preparation import Preparation
from ...core.language.protocol import protocol
from ...core.language.requests import Request, key_of, requests, rollouts, task_keys
from ...core.language.rollout import add_output, begin_rollout
from ...core.language.task import EVALUATION, TRAINING, TextTask, World
from ...core.language.text_env import MAX_STEPS, Outcome, TextEnv, Truncated
from ...core.language.tools import ToolSet
from ...core.language.types import ModelOutput, Rollout
from .columns import ON_THE_WAY, PASS, TAKEN, call_task, figure_of, finite_number, label_of, show_value

PROBES = ("", "?", "0", "yes", "[ANSWER] 0")  # completions that a parser may accept or reject
STEPS = 64  # largest number of completions of an attempt
ROOM = 1 << 20  # tokens
DRAWN = 0  # seed of the probed tasks
Trace = list[tuple[Any, Outcome | str]]  # states with their outcomes, the first with its observation


def validate_task(task: TextTask) -> TextTask:
    """Return the task if its fields are valid, and attempts at one task of each stream keep to the contract.

    The attempts are those of its demonstrator, and one of arbitrary texts. The parser reads all of them; the same key and the
    same actions give the same states, texts and rewards; observations are texts, rewards finite numbers and flags bools; and
    figures, labels and the solution are valid for finished attempts, also for one that an error has ended.
    `purestep.properties.text_env_laws` checks more than a few attempts can show.

    Raises: ChoiceError, StructureError, NonFiniteError, WorldError; the first fault in one line, with its remedy.

    >>> from ...core.language.zorplex.task import zorplex_task
    >>> validate_task(zorplex_task("simple")).name
    'zorplex'
    """
    where = f"task {_name(task)}"
    _check_fields(where, task)
    for stream in (TRAINING, EVALUATION):
        _try(where, task, stream)
    if not isinstance(task.conversations, tuple):
        for skill in (1.0, 0.0):
            _check_conversations(f"{where}: conversations", task.conversations, skill)
    if not isinstance(task.corpus, tuple):
        _texts(f"{where}: corpus", call_task(f"{where}: corpus", "texts", task.corpus))
    return task


def _name(task: Any) -> str:
    if not isinstance(task, TextTask):
        remedy = "make one: purestep.core.language.task.TextTask(name=..., env=..., parser=...)"
        raise StructureError(message("task", got=type(task).__name__, wanted="a TextTask", remedy=remedy))
    if not isinstance(task.name, str) or not task.name.strip() or not task.name.isprintable():
        raise StructureError(message("task: name", got=repr(task.name), wanted="a word", remedy="give it one"))
    return task.name


def _check_fields(where: str, task: TextTask) -> None:
    for name in ("env", "parser", "label", "ask"):
        _callable(f"{where}: {name}", getattr(task, name), "a function")
    for name in ("corpus", "demonstrations", "conversations", "rooms", "solution", "grader", "draw"):
        if getattr(task, name) != ():
            _callable(f"{where}: {name}", getattr(task, name), "a function, or () for none")
    if not isinstance(task.instructions, str):
        got, remedy = type(task.instructions).__name__, "write it as one text"
        raise StructureError(message(f"{where}: instructions", got=got, wanted="a text", remedy=remedy))
    kinds = {"preparation": Preparation, "evaluation": TaskEvaluation, "tools": ToolSet}
    for name, kind in kinds.items():
        if getattr(task, name) != () and not isinstance(getattr(task, name), kind):
            got, wanted = type(getattr(task, name)).__name__, f"a value of {kind.__module__}.{kind.__name__}"
            raise StructureError(
                message(f"{where}: {name}", got=got, wanted=wanted, remedy="leave it out, or make one")
            )
    if type(task.tool_budget) is not int or task.tool_budget < 0:
        got, remedy = repr(task.tool_budget), "0 allows no auxiliary calls"
        raise ChoiceError(message(f"{where}: tool_budget", got=got, wanted="a whole number, 0 or more", remedy=remedy))
    for name in ("figures", "diagnostics"):
        _check_figures(f"{where}: {name}", getattr(task, name))
    both = sorted(task.figures.keys() & task.diagnostics.keys())
    if both:
        remedy = "diagnostics are reported beside figures: give each a name of its own"
        raise ChoiceError(message(f"{where}: diagnostics", got=both, wanted="no names of figures", remedy=remedy))
    names = task.labels
    known = isinstance(names, tuple) and all(isinstance(one, str) and one and one.isprintable() for one in names)
    if not known or not names or len(set(names)) < len(names):
        wanted, remedy = "a tuple of names, each once", "name all that `label` returns"
        raise ChoiceError(message(f"{where}: labels", got=repr(names)[:120], wanted=wanted, remedy=remedy))


def _callable(where: str, value: Any, wanted: str) -> None:
    if not callable(value):
        remedy = f"see {TextTask.__name__} in purestep.core.language.task"
        raise StructureError(message(where, got=type(value).__name__, wanted=wanted, remedy=remedy))


def _check_figures(where: str, figures: Any) -> None:
    if not isinstance(figures, Mapping):
        wanted, remedy = "a mapping of names to functions", "e.g. {'accuracy': right}"
        raise StructureError(message(where, got=type(figures).__name__, wanted=wanted, remedy=remedy))
    for name, figure in figures.items():
        taken = isinstance(name, str) and (name in TAKEN or name.startswith((ON_THE_WAY, PASS)))
        if not isinstance(name, str) or not name or not name.isprintable() or "/" in name or taken:
            got = f"{name!r}, which metrics have a column for" if taken else repr(name)
            wanted = "a name of its own, without a slash"
            raise ChoiceError(message(f"{where}: name", got=got, wanted=wanted, remedy="choose another one"))
        _callable(f"{where}: {name}", figure, "a function of an attempt")


def _try(where: str, task: TextTask, stream: str) -> None:
    """Run attempts at one task of a stream."""
    place = f"{where}: env({stream!r})"
    env = call_task(place, "a TextEnv", task.env, stream)
    if not isinstance(env, TextEnv):
        remedy = "return TextEnv(params, reset, step)"
        raise StructureError(message(place, got=type(env).__name__, wanted="a TextEnv", remedy=remedy))
    words = task_keys(keys.key(DRAWN), stream, 1)
    if not isinstance(task.draw, tuple):
        words = (call_task(f"{where}: draw", "a task key", task.draw, keys.key(DRAWN), stream, 0),)
    (request,) = requests(words, keys.key(DRAWN))
    key = key_of(request.task)
    for texts in (*_demonstrated(where, task, env, key), PROBES):
        first, again = (_played(where, task, env, key, texts) for _ in range(2))
        for moves, (one, other) in enumerate(zip(first, again, strict=False)):
            at = f"{where}: {'step' if moves else 'reset'}"
            _same(at, "state", one[0], other[0])
            _same(at, "outcome" if moves else "observation", one[1], other[1])
        _same(f"{where}: parser", "number of actions", len(first), len(again))
        _report(where, task, env, request, texts)


def _demonstrated(where: str, task: TextTask, env: World, key: Key) -> tuple[tuple[str, ...], ...]:
    """Return the texts of a correct and of an incorrect demonstrator; () where the task has none."""
    if isinstance(task.demonstrations, tuple):
        return ()
    where, script, (state, _) = f"{where}: demonstrations", task.demonstrations, _reset(where, env, key)
    found = []
    for skill in (1.0, 0.0):
        given = env.params, state, keys.key(DRAWN), skill
        one, other = (_texts(where, call_task(where, "a list of texts", script, *given)) for _ in range(2))
        _same(where, "list of texts", one, other)
        found.append(one[:STEPS])
    return tuple(found)


def _check_conversations(where: str, make: Callable[[Key, int, float], Any], skill: float) -> None:
    wanted = "a list of conversations"
    one, other = (call_task(where, wanted, make, keys.key(DRAWN), 2, skill) for _ in range(2))
    if not isinstance(one, Sequence) or not one:
        raise StructureError(message(where, got=_kind(one), wanted=wanted, remedy="return tuples of texts"))
    for spoken in one:
        _texts(where, spoken)
    _same(where, "list of conversations", one, other)


def _reset(where: str, env: World, key: Key) -> tuple[Any, str]:
    where, wanted = f"{where}: reset", "(state, observation)"
    result = call_task(where, wanted, env.reset, env.params, key)
    if not isinstance(result, tuple) or len(result) != 2:
        raise StructureError(message(where, got=_kind(result), wanted=wanted, remedy="return both"))
    _text(f"{where}: observation", result[1])
    _copied(where, result[0])
    return result


def _copied(where: str, state: Any) -> Any:
    """Return a copy of a state. Raises: StructureError for one that cannot be copied or compared."""
    remedy = "make states of numbers, strings, tuples and frozen classes (attrs.frozen)"
    try:
        kept = deepcopy(state)
    except Exception as error:
        got = f"a {type(state).__name__} that cannot be copied ({describe_error(error)})"
        raise StructureError(message(f"{where}: state", got=got, wanted="a value", remedy=remedy)) from error
    if not _alike(kept, state):
        got = f"a {type(state).__name__} that is not equal to its copy"
        raise StructureError(message(f"{where}: state", got=got, wanted="a value", remedy=remedy))
    return kept


def _played(where: str, task: TextTask, env: World, key: Key, texts: Sequence[str]) -> Trace:
    """Return the states and outcomes of an episode; a text that cannot be parsed is skipped."""
    state, shown = _reset(where, env, key)
    trace: Trace = [(state, shown)]
    for place, text in enumerate(texts):
        parsed = _parsed(where, task, text)
        if parsed.failed:
            continue
        if isinstance(parsed.action, Call) and parsed.action.name in env.tools:
            tool = f"{where}: tool {parsed.action.name}"
            use = env.tools[parsed.action.name]
            one, other = (call_task(tool, "a text", use, env.params, state, parsed.action.argument) for _ in range(2))
            _text(tool, one)
            _same(tool, "text", one, other)
            continue
        state, outcome = _moved(f"{where}: step on {text[:40]!r}", env, state, parsed.action, keys.key(place))
        trace.append((state, outcome))
        if outcome.terminated or outcome.truncated:
            break
    return trace


def _parsed(where: str, task: TextTask, text: str) -> Parsed:
    where = f"{where}: parser on {text[:40]!r}"
    parsed = call_task(where, "a Parsed", task.parser, text)
    if not isinstance(parsed, Parsed):
        remedy = "return Parsed(action), or Parsed((), reward, feedback) for what cannot be read"
        raise StructureError(message(where, got=_kind(parsed), wanted="a Parsed", remedy=remedy))
    finite_number(f"{where}: reward", parsed.reward)
    _text(f"{where}: feedback", parsed.feedback)
    return parsed


def _moved(where: str, env: World, state: Any, action: Any, key: Key) -> tuple[Any, Outcome]:
    wanted = "(state, Outcome)"
    kept = _copied(where, state)
    result = call_task(where, wanted, env.step, env.params, state, action, key)
    if not _alike(kept, state):
        remedy = "return a new state (attrs.evolve) and leave the old one as it was"
        raise WorldError(message(f"{where}: state", got="written to", wanted="left as it was", remedy=remedy))
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], Outcome):
        raise StructureError(message(where, got=_kind(result), wanted=wanted, remedy="return both"))
    outcome = result[1]
    _text(f"{where}: observation", outcome.observation)
    finite_number(f"{where}: reward", outcome.reward)
    for name in ("terminated", "truncated"):
        flag = getattr(outcome, name)
        if type(flag) is not bool:
            got, remedy = show_value(flag), "convert it with bool()"
            raise StructureError(message(f"{where}: {name}", got=got, wanted="a bool", remedy=remedy))
    return result


def _report(where: str, task: TextTask, env: World, request: Request, texts: Sequence[str]) -> None:
    """Check figures, labels and the solution on an attempt with these texts, and on one that an error ends at once."""
    ended = _attempt(task, env, request, texts, task.parser)
    for one in (ended, _attempt(task, env, request, texts[:1], _failing)):
        for name, figure in {**task.figures, **task.diagnostics}.items():
            figure_of(task, name, figure, one)
        label_of(task, one)
    if not isinstance(task.solution, tuple):
        solution = f"{where}: solution"
        _text(solution, call_task(solution, "a text", task.solution, ended.episode.world))


def _attempt(task: TextTask, env: World, request: Request, texts: Sequence[str], parser: Parser) -> Rollout[Any]:
    how: dict[str, Any] = {"tool_budget": task.tool_budget, "incomplete": task.incomplete}
    rules = protocol(env, parser, max_steps=len(texts), **how)
    codec, room = byte_codec(), {"capacity": ROOM, "max_new_tokens": ROOM}
    attempt: Rollout[Any] = begin_rollout(rules, codec, rollouts(request)[0], **room)
    for text in texts:
        ids = (*text.encode(errors="replace")[: ROOM // (2 * STEPS)], END)
        attempt = add_output(
            rules, codec, attempt, ModelOutput(ids=ids, log_probs=(0.0,) * len(ids), versions=(0,) * len(ids))
        )
    return evolve(attempt, end=Truncated(MAX_STEPS)) if isinstance(attempt.end, tuple) else attempt


def _failing(text: str) -> Parsed:
    raise ValueError(f"an error, to try what is reported of {text!r}")


def _same(where: str, what: str, one: Any, other: Any) -> None:
    """Raise WorldError if the second value differs from the first."""
    if not _alike(one, other):
        remedy = "draw everything from the key, and keep nothing beside the state"
        got, wanted = f"another {what} the second time", "the same for the same key and actions"
        raise WorldError(message(where, got=got, wanted=wanted, remedy=remedy))


def _alike(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # values that cannot be compared are not the same
        return False


def _texts(where: str, value: Any) -> tuple[str, ...]:
    """Return texts, at least one."""
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise StructureError(message(where, got=_kind(value), wanted="a list of texts", remedy="return at least one"))
    for text in value:
        _text(where, text)
    return tuple(value)


def _text(where: str, value: Any) -> None:
    if not isinstance(value, str):
        raise StructureError(message(where, got=_kind(value), wanted="a text", remedy="return a str"))


def _kind(value: Any) -> str:
    return "empty" if isinstance(value, list | tuple) and not value else show_value(value)
