"""Demonstrations as people get them wrong."""

from collections.abc import Callable
from typing import Any

from attrs import evolve, frozen

from purestep.core import keys as core_keys
from purestep.core.language.attempt import Attempt
from purestep.core.language.demonstrations import right_calls
from purestep.core.language.requests import key_of


@frozen
class Showing:
    """What the laws of demonstrations judge: `script(params, task, key, *, skill)` and `demonstrate(protocol, ...)`."""

    script: Callable[..., tuple[str, ...]]
    demonstrate: Callable[..., Attempt[Any]]


def _played(change: Callable[..., tuple[Any, ...]]) -> Callable[[Showing], Showing]:
    """An edit of what a demonstration is made with: (spell, rollout, key, numbers) -> the same."""

    def make(subject: Showing) -> Showing:
        def demonstrate(protocol: Any, codec: Any, spell: Any, rollout: Any, key: Any, **numbers: Any) -> Attempt[Any]:
            spell, rollout, key, numbers = change(spell, rollout, key, numbers)
            return subject.demonstrate(protocol, codec, spell, rollout, key, **numbers)

        return evolve(subject, demonstrate=demonstrate)

    return make


def _texts(change: Callable[[str], str]) -> Callable[..., tuple[Any, ...]]:
    def edit(spell: Any, rollout: Any, key: Any, numbers: Any) -> tuple[Any, ...]:
        return (lambda text: spell(change(text))), rollout, key, numbers

    return edit


def _shorter(spell: Any, rollout: Any, key: Any, numbers: Any) -> tuple[Any, ...]:
    """Cuts a text that finds no room, wherever the limit falls."""
    return (lambda text: spell(text)[: numbers["max_new_tokens"]]), rollout, key, numbers


def _by_task(spell: Any, rollout: Any, key: Any, numbers: Any) -> tuple[Any, ...]:
    return spell, rollout, key_of(rollout.request.task), numbers


def _always_half(spell: Any, rollout: Any, key: Any, numbers: Any) -> tuple[Any, ...]:
    return spell, rollout, key, {**numbers, "skill": 0.5}


wrong_tag = _played(_texts(lambda text: text.replace("[ANSWER]", "[answer]")))
cuts_texts, one_for_a_task, deaf_to_skill = _played(_shorter), _played(_by_task), _played(_always_half)


def one_way(subject: Showing) -> Showing:
    """Fails in one way only."""

    def script(params: Any, task: Any, key: Any, *, skill: float) -> tuple[str, ...]:
        texts = subject.script(params, task, key, skill=skill)
        known = right_calls(params, task)
        return texts if texts == (*known, f"[ANSWER] {task.answer}") else (*known, f"[ANSWER] {task.answer + 1}")

    return evolve(subject, script=script)


def generous(subject: Showing) -> Showing:
    """Draws once more where it would fail."""

    def script(params: Any, task: Any, key: Any, *, skill: float) -> tuple[str, ...]:
        texts = subject.script(params, task, key, skill=skill)
        right = texts[-1] == f"[ANSWER] {task.answer}"
        return texts if right else subject.script(params, task, core_keys.fold_in(key, 1), skill=skill)

    return evolve(subject, script=script)


MUTANTS: dict[str, Callable[[Showing], Showing]] = {
    "leaves out a word's last letter": _played(_texts(lambda text: text.replace("]", "x]"))),
}
