"""Laws of demonstrations; the subject is `Showing`: script(...) -> texts, demonstrate(...) -> Attempt."""

from collections.abc import Callable
from typing import Any

from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from purestep.core import keys
from purestep.core.language.codec import END, byte_codec
from purestep.core.language.protocol import Protocol, protocol
from purestep.core.language.requests import RolloutSpec, key_of, requests, rollouts, task_keys
from purestep.core.language.text_env import Terminated
from purestep.core.language.types import ModelTurn, Rollout
from purestep.core.language.zorplex.demonstrations import WRONG, play_script, right_calls
from purestep.core.language.zorplex.env import KINDS, zorplex, zorplex_parser
from purestep.core.language.zorplex.failure_modes import SUCCESS, failure_mode
from purestep.properties.framework.compare import require
from purestep.properties.framework.law import Law, Seen, Suite, law_constructor
from purestep.properties.strategies.values import seeds

# --- mutants ---
# Common errors in demonstrations.


@frozen
class Showing:
    """The subject of the laws of demonstrations: `script(params, task, key, *, skill)` and `demonstrate(protocol, ...)`."""

    script: Callable[..., tuple[str, ...]]
    demonstrate: Callable[..., Rollout[Any]]


def _played(change: Callable[..., tuple[Any, ...]]) -> Callable[[Showing], Showing]:
    """An edit of the arguments of a demonstration: (spell, rollout, key, numbers) -> the same."""

    def make(subject: Showing) -> Showing:
        def demonstrate(protocol: Any, codec: Any, spell: Any, rollout: Any, key: Any, **numbers: Any) -> Rollout[Any]:
            spell, rollout, key, numbers = change(spell, rollout, key, numbers)
            return subject.demonstrate(protocol, codec, spell, rollout, key, **numbers)

        return evolve(subject, demonstrate=demonstrate)

    return make


def _texts(change: Callable[[str], str]) -> Callable[..., tuple[Any, ...]]:
    def edit(spell: Any, rollout: Any, key: Any, numbers: Any) -> tuple[Any, ...]:
        return (lambda text: spell(change(text))), rollout, key, numbers

    return edit


def _shorter(spell: Any, rollout: Any, key: Any, numbers: Any) -> tuple[Any, ...]:
    """Cut a text to the limit, instead of leaving it out."""
    return (lambda text: spell(text)[: numbers["max_new_tokens"]]), rollout, key, numbers


def _by_task(spell: Any, rollout: Any, key: Any, numbers: Any) -> tuple[Any, ...]:
    return spell, rollout, key_of(rollout.request.task), numbers


def _always_half(spell: Any, rollout: Any, key: Any, numbers: Any) -> tuple[Any, ...]:
    return spell, rollout, key, {**numbers, "skill": 0.5}


wrong_tag = _played(_texts(lambda text: text.replace("[ANSWER]", "[answer]")))
cuts_texts, one_for_a_task, deaf_to_skill = _played(_shorter), _played(_by_task), _played(_always_half)


def one_way(subject: Showing) -> Showing:
    """Fail in one way only."""

    def script(params: Any, task: Any, key: Any, *, skill: float) -> tuple[str, ...]:
        texts = subject.script(params, task, key, skill=skill)
        known = right_calls(params, task)
        return texts if texts == (*known, f"[ANSWER] {task.answer}") else (*known, f"[ANSWER] {task.answer + 1}")

    return evolve(subject, script=script)


def generous(subject: Showing) -> Showing:
    """Draw a second time if the first script fails."""

    def script(params: Any, task: Any, key: Any, *, skill: float) -> tuple[str, ...]:
        texts = subject.script(params, task, key, skill=skill)
        right = texts[-1] == f"[ANSWER] {task.answer}"
        return texts if right else subject.script(params, task, keys.fold_in(key, 1), skill=skill)

    return evolve(subject, script=script)


MUTANTS: dict[str, Callable[[Showing], Showing]] = {
    "leaves out a word's last letter": _played(_texts(lambda text: text.replace("]", "x]"))),
}


# --- laws ---


SOURCE = "core.language.zorplex.demonstrations"
DRAWS = 128  # scripts of which a share is counted: off by a fifth once in a hundred thousand
ROOM: dict[str, Any] = {"script": play_script, "capacity": 999, "max_new_tokens": 64}


@frozen
class Lesson:
    """An environment, a task in it, and the key of a demonstration."""

    kind: str
    difficulty: str
    seed: int
    other: int
    capacity: int

    def world(self) -> Protocol[Any, Any]:
        """The protocol of the environment."""
        return protocol(zorplex(self.kind, difficulty=self.difficulty), zorplex_parser(), max_steps=8)

    def rollout(self) -> RolloutSpec:
        """A request for the task."""
        (request,) = requests(task_keys(keys.key(self.seed), "training", 1), keys.key(1))
        return rollouts(request)[0]


@st.composite
def lessons(draw: DrawFn) -> Lesson:
    """Draw tasks of all kinds."""
    return Lesson(
        kind=draw(st.sampled_from(tuple(KINDS))),
        difficulty=draw(st.sampled_from(("easy", "medium", "hard"))),
        seed=draw(seeds()),
        other=draw(seeds()),
        capacity=draw(st.sampled_from((100, 130, 160))),
    )


def spelled(text: str) -> tuple[int, ...]:
    """The UTF-8 bytes of a text, and the end token."""
    return *text.encode(), END


def demonstration_laws() -> Suite:
    """The laws of demonstrations."""
    return Suite("demonstration_laws", (_right(), _wrong(), _keyed(), _room(), _ways(), _share()))


_law = law_constructor(lessons, SOURCE)


def _shown(subject: Showing, lesson: Lesson, seed: int, **changes: Any) -> Rollout[Any]:
    given = {**ROOM, "skill": 0.0, **changes}
    return subject.demonstrate(lesson.world(), byte_codec(), spelled, lesson.rollout(), keys.key(seed), **given)


def _said(attempt: Rollout[Any]) -> tuple[str, ...]:
    decode = byte_codec().decode
    return tuple(decode(piece.said.ids) for piece in attempt.pieces if isinstance(piece, ModelTurn))


def _right() -> Law:
    def check(subject: Showing, lesson: Lesson, seen: Seen) -> None:
        attempt = _shown(subject, lesson, lesson.other, skill=1.0)
        play = attempt.episode.world
        seen("several calls", play.calls > 1)
        require(failure_mode(play) == SUCCESS, f"a right demonstration ends as {failure_mode(play)}: {_said(attempt)}")
        require(isinstance(attempt.end, Terminated), f"a right demonstration ends in {attempt.end}")
        require(play.calls == play.task.needed, f"{play.calls} calls where {play.task.needed} are needed")
        require(play.reward.total == 1.1, f"a right demonstration earns {play.reward.total}")

    claim = "With skill 1 each task is solved by the fewest calls, and nothing is left to earn."
    return _law("skill_solves", claim, ("writes the answer's tag small", wrong_tag), check, "several calls")


def _wrong() -> Law:
    def check(subject: Showing, lesson: Lesson, seen: Seen) -> None:
        for key in range(4):
            play = _shown(subject, lesson, lesson.other + key).episode.world
            lucky = play.answer == play.task.answer
            seen("calls", play.calls > 0)
            require(not lucky or play.calls == 0, f"skill 0 solves {play.task.question} with {play.calls} calls")

    claim = "With skill 0 nothing is solved, but by a lucky guess that called no tool."
    return _law("no_skill_fails", claim, ("is right half of the time", deaf_to_skill), check, "calls")


def _keyed() -> Law:
    def check(subject: Showing, lesson: Lesson, seen: Seen) -> None:
        first, again = (_shown(subject, lesson, lesson.other, skill=0.5) for _ in range(2))
        require(first.ids == again.ids, "the same key shows something else the second time")
        many = {_said(_shown(subject, lesson, lesson.other + number, skill=0.5)) for number in range(12)}
        require(len(many) > 1, "twelve keys show one and the same")

    claim = "The key decides what is shown, and different keys of one task show different things."
    return _law("key_decides", claim, ("draws from the task's key", one_for_a_task), check)


def _room() -> Law:
    def check(subject: Showing, lesson: Lesson, seen: Seen) -> None:
        for longest in (12, 32):
            room = {"capacity": lesson.capacity, "max_new_tokens": longest}
            attempt = _shown(subject, lesson, lesson.other, **room)
            seen("a text that found no room", isinstance(attempt.end, tuple))
            require(len(attempt.ids) <= lesson.capacity, f"{len(attempt.ids)} ids in a capacity of {lesson.capacity}")
            whole = _said(_shown(subject, lesson, lesson.other))
            require(_said(attempt) == whole[: len(_said(attempt))], f"{_said(attempt)} is no beginning of {whole}")
            heard = [piece.said.ids for piece in attempt.pieces if isinstance(piece, ModelTurn)]
            require(all(ids[-1] == END for ids in heard), "a text ends without its stop token")

    claim = "Texts stand whole or not at all, in whatever room there is."
    needs = ("a text that found no room",)
    return _law("whole_texts", claim, ("cuts texts to fit", cuts_texts), check, *needs)


def _scripts(subject: Showing, lesson: Lesson, skill: float) -> tuple[Any, list[tuple[str, ...]]]:
    rules = lesson.world()
    (task,) = task_keys(keys.key(lesson.seed), "training", 1)
    play, _ = rules.env.reset(rules.env.params, keys.key(task[0]))
    drawn = keys.split(keys.key(lesson.other), DRAWS)
    return play.task, [subject.script(rules.env.params, play.task, key, skill=skill) for key in drawn]


def _ways() -> Law:
    def check(subject: Showing, lesson: Lesson, seen: Seen) -> None:
        task, texts = _scripts(subject, lesson, 0.0)
        calls = right_calls(lesson.world().env.params, task)
        after = [one[-1] for one in texts if one[:-1] == calls]
        found = {
            "wrong_format": any("[ANSWER]" not in text for text in after),
            "spam": any("[ANSWER]" not in "".join(one) and len(one) > len(calls) + 1 for one in texts),
            "guess": any(len(one) == 1 and "[ANSWER]" in one[0] for one in texts),
            "wrong_answer": any("[ANSWER]" in text for text in after),
        }
        require(found.keys() == WRONG.keys(), "the law does not know all ways")
        missing = [way for way, there in found.items() if not there]
        require(not missing, f"{DRAWS} wrong demonstrations never show {missing}")

    claim = "Every way to fail is shown."
    return _law("every_way_is_shown", claim, ("fails in one way only", one_way), check, most=5)


def _share() -> Law:
    def check(subject: Showing, lesson: Lesson, seen: Seen) -> None:
        for skill in (0.25, 0.5):
            task, texts = _scripts(subject, lesson, skill)
            right = (*right_calls(lesson.world().env.params, task), f"[ANSWER] {task.answer}")
            share = sum(one == right for one in texts) / DRAWS
            require(abs(share - skill) < 0.2, f"a share of {share:.2f} is right where {skill} is asked for")

    claim = "The share of right ones is the skill."
    return _law("share_of_skill", claim, ("draws again where it would fail", generous), check, most=5)
