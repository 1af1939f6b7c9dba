"""How people get the zorplex world wrong: edits of `zorplex(kind, **options) -> TextEnv`."""

from collections.abc import Callable
from typing import Any

from attrs import evolve

from purestep.core import keys
from purestep.core.language.parsers import Answer
from purestep.core.language.tasks import Task
from purestep.core.language.world import Outcome, TextEnv
from purestep.core.language.zorplex import Play

World = Callable[..., TextEnv[Any, Play]]


def _generating(change: Callable[[Any, Task, Any], Task]) -> Callable[[World], World]:
    """The edit that changes each task: `change(vocabulary, task, key)`."""

    def make(world: World) -> World:
        def zorplex(kind: str, **options: Any) -> TextEnv[Any, Play]:
            env = world(kind, **options)
            generate = env.params.generate
            params = evolve(
                env.params, generate=lambda vocabulary, key: change(vocabulary, generate(vocabulary, key), key)
            )
            return evolve(env, params=params)

        return zorplex

    return make


def _stepping(change: Callable[[Any, Play, Any, Play, Outcome], tuple[Play, Outcome]]) -> Callable[[World], World]:
    """The edit that changes what follows: `change(params, before, action, after, outcome)`."""

    def make(world: World) -> World:
        def zorplex(kind: str, **options: Any) -> TextEnv[Any, Play]:
            env = world(kind, **options)

            def step(params: Any, play: Play, action: Any, key: Any) -> tuple[Play, Outcome]:
                return change(params, play, action, *env.step(params, play, action, key))

            return evolve(env, step=step)

        return zorplex

    return make


def _pay(after: Play, outcome: Outcome, **parts: float) -> tuple[Play, Outcome]:
    reward = evolve(after.reward, **parts)
    return evolve(after, reward=reward), evolve(outcome, reward=outcome.reward + reward.total - after.reward.total)


def _format_alone(params: Any, before: Play, action: Any, after: Play, outcome: Outcome) -> tuple[Play, Outcome]:
    return _pay(after, outcome, format=params.format) if isinstance(action, Answer) else (after, outcome)


def _every_call(params: Any, before: Play, action: Any, after: Play, outcome: Outcome) -> tuple[Play, Outcome]:
    return (after, outcome) if isinstance(action, Answer) else _pay(after, outcome, tool_spam=-after.calls * 0.125)


def _any_call_counts(params: Any, before: Play, action: Any, after: Play, outcome: Outcome) -> tuple[Play, Outcome]:
    return evolve(after, valid_calls=after.calls), outcome


def _links_at_will(vocabulary: Any, task: Task, key: Any) -> Task:
    """Lets a word redirect to any word, itself and those that lead back included."""
    n = len(vocabulary.words)
    if not task.links:
        return task
    anywhere = tuple(map(int, keys.randint(keys.fold_in(key, 1), (n,), 0, n)))
    return evolve(task, links=tuple(to if link >= 0 else -1 for to, link in zip(anywhere, task.links, strict=True)))


def _right_to_left(vocabulary: Any, task: Task, key: Any) -> Task:
    """Computes a - b - c as a - (b - c)."""
    value = dict(zip(vocabulary.words, task.values, strict=True))
    if " - " not in task.question or len(task.asked) < 3:
        return task
    first, second, third = (value[word] for word in task.asked)
    return evolve(task, answer=first - (second - third))


def counts_tasks(world: World) -> World:
    """Draws the table anew at each reset, whatever the key."""
    made: list[int] = []

    def zorplex(kind: str, **options: Any) -> TextEnv[Any, Play]:
        env = world(kind, **options)

        def reset(params: Any, key: Any) -> tuple[Play, str]:
            made.append(1)
            return env.reset(params, keys.fold_in(key, len(made)))

        return evolve(env, reset=reset)

    return zorplex


def remembers_beside(world: World) -> World:
    """Keeps the number of calls beside the state."""

    def zorplex(kind: str, **options: Any) -> TextEnv[Any, Play]:
        env, made = world(kind, **options), list[int]()

        def step(params: Any, play: Play, action: Any, key: Any) -> tuple[Play, Outcome]:
            made.append(1)
            return env.step(params, evolve(play, calls=len(made)), action, key)

        return evolve(env, step=step)

    return zorplex


format_alone = _stepping(_format_alone)
links_at_will = _generating(_links_at_will)
right_to_left = _generating(_right_to_left)
every_call_costs = _stepping(_every_call)

MUTANTS: dict[str, Callable[[World], World]] = {
    "takes any call for a valid one": _stepping(_any_call_counts),
}
