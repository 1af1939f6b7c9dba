"""Schedules that add attempts to a generation and remove them, for a model of integers and an environment of a few letters."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from attrs import Factory, evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from purestep.core import keys
from purestep.core.decoding.decode import drawing
from purestep.core.language.codec import OPEN, Codec, Ids, Standing
from purestep.core.language.events import Event
from purestep.core.language.parsers import Parsed
from purestep.core.language.protocol import protocol
from purestep.core.language.requests import Request, call_key, rollouts
from purestep.core.language.rollout import begin_rollout
from purestep.core.language.text_env import Outcome, TextEnv
from purestep.core.language.types import ModelTurn
from purestep.properties.strategies.table_causal import table_causal
from purestep.runtime.effects.generation import scheduling as own
from purestep.runtime.effects.generation.engine import Generator, complete, generator
from purestep.runtime.effects.generation.scheduling import ActiveRollouts, AnyAttempt, Chunk, Generation

LETTERS, STOP, MARK, MODEL_SPEAKS = "abcde", 5, 6, 7
MODEL = table_causal(8)
TEMPERATURE = 4.0
ROOM: dict[str, Any] = {"capacity": 40, "max_new_tokens": 4}
FIRST = 10  # the number of the first task: a task is no place
BEGINNING = (("add", 0), ("add", 0), ("advance", 0))
MOST = 6  # tasks of a scene
LONG = 24  # chunks that one attempt may take, at most
SEEDS = 3
Told = tuple[int, int, int]  # task, tokens, version


@frozen
class Desking:
    """The functions of `runtime.effects.generation.scheduling`, and the function that advances the generation between them."""

    added: Callable[[ActiveRollouts, int, AnyAttempt], ActiveRollouts]
    given_up: Callable[[ActiveRollouts, int], ActiveRollouts]
    taken: Callable[[ActiveRollouts], tuple[ActiveRollouts, tuple[tuple[int, AnyAttempt], ...]]]
    chunks: Callable[[ActiveRollouts], tuple[ActiveRollouts, tuple[Chunk, ...]]]
    advance: Callable[[Generator, Any, int, Generation], Generation]


def own_desking() -> Desking:
    """Return the library's own functions."""
    return Desking(own.add, own.cancel, own.pop_finished, own.token_progress, lambda made, *given: made.advance(*given))


def _encode(events: Sequence[Event], standing: Standing) -> tuple[Ids, ...]:
    whole = []
    for number, event in enumerate(events):
        letters = [LETTERS.index(letter) for letter in event.text]
        end = [STOP] if standing == OPEN and not number else []
        whole.append((*end, MARK, *letters, STOP, *([MODEL_SPEAKS] if number == len(events) - 1 else [])))
    return tuple(whole)


CODEC = Codec(
    encode=_encode,
    decode=lambda ids: "".join(LETTERS[token] for token in ids if token < STOP),
    stop=(STOP,),
    vocabulary=8,
)


def _reset(params: Any, key: Tensor) -> tuple[int, str]:
    return 0, LETTERS[: int(key[0]) // 2 % 4]


def _step(params: Any, state: int, action: str, key: Tensor) -> tuple[int, Outcome]:
    over = state == 1 or action.startswith("e")
    return state + 1, Outcome(LETTERS[: len(action) % 3], 0.25, terminated=over)


RULES = protocol(TextEnv((), _reset, _step), Parsed, max_steps=4, incomplete="accept")


@frozen
class Scene:
    """A schedule: acts in their order, (verb, number), with the numbers of slots and of steps per chunk."""

    slots: int
    steps: int
    every: int  # how many chunks one version of the weights makes; 0 for all of them
    seed: int
    acts: tuple[tuple[str, int], ...]


@frozen
class Look:
    """The state observed after one more chunk."""

    live: int  # attempts that had not ended before
    slots: int
    sat: tuple[int, ...]  # the tasks that had a slot


@frozen
class Course:
    """The results of a scene."""

    begun: dict[int, AnyAttempt] = Factory(dict)  # by task, as they were added
    taken: list[tuple[int, AnyAttempt]] = Factory(list)
    dropped: dict[int, str] = Factory(dict)  # tasks given up while they were there: "waiting" or "sitting"
    late: list[int] = Factory(list)  # tasks given up that were not there
    told: list[Told] = Factory(list)
    looks: list[Look] = Factory(list)

    def there(self) -> set[int]:
        """The tasks that neither have been taken nor given up."""
        return self.begun.keys() - self.dropped.keys() - {task for task, _ in self.taken}


def scenes(*, versions: bool) -> SearchStrategy[Scene]:
    """Draw scenes with few slots; with `versions`, the weights change now and then."""
    verbs = st.sampled_from(("add", "add", "advance", "give_up"))
    acts = st.lists(st.tuples(verbs, st.integers(0, 9)), min_size=5, max_size=9).map(lambda more: (*BEGINNING, *more))
    slots, steps = st.sampled_from((1, 2, 3)), st.sampled_from((2, 3))
    every = st.sampled_from((1, 2)) if versions else st.just(0)
    return st.builds(Scene, slots, steps, every, st.integers(0, SEEDS - 1), acts)


@lru_cache
def params_of(seed: int, version: int) -> Tensor:
    """The weights of a version."""
    params: Tensor = MODEL.init(keys.fold_in(keys.key(seed), version))
    return params


@lru_cache
def made_with(slots: int, steps: int) -> Generator:
    """A generator."""
    return generator(MODEL, RULES, CODEC, slots=slots, chunk_length=steps, temperature=TEMPERATURE, **ROOM)


def attempt_at(number: int) -> AnyAttempt:
    """The attempt at a request, before its first call."""
    request = Request(id=number, group=number, task=(2 * number, 0), sampling=(number, 7))
    return begin_rollout(RULES, CODEC, rollouts(request)[0], **ROOM)


@lru_cache
def alone(number: int, seed: int) -> AnyAttempt:
    """The finished attempt under the first weights, generated without any others."""
    return complete(made_with(1, 2), params_of(seed, 0), 0, [attempt_at(number)])[0]


def played(desking: Desking, scene: Scene) -> Course:
    """Run a scene, then continue until no attempt is left, or for as many chunks as that may take."""
    made, course = made_with(scene.slots, scene.steps), Course()
    desk = ActiveRollouts(generation=made.begin(params_of(scene.seed, 0), 0, ()))
    for verb, number in scene.acts:
        if verb == "give_up":
            desk = _given_up(desking, desk, course, number)
        elif verb == "add" and len(course.begun) < MOST:
            task = FIRST + len(course.begun)
            course.begun[task] = attempt_at(task - FIRST)
            desk = desking.added(desk, task, course.begun[task])
        else:
            desk = _advanced(desking, desk, course, scene)
    for _ in range(LONG * len(course.begun)):
        if not desk.idle:
            desk = _advanced(desking, desk, course, scene)
    return course


def _given_up(desking: Desking, desk: ActiveRollouts, course: Course, number: int) -> ActiveRollouts:
    """Cancel a task that is there, or now and then one that is not."""
    there = sorted(course.there())
    if number < 6 and there:
        task = there[number % len(there)]
        course.dropped[task] = "sitting" if task in _sitting(desk) else "waiting"
    else:
        task = next(one for one in (FIRST + number - 6, FIRST + MOST) if one not in there)
        course.late.append(task)
    return desking.given_up(desk, task)


def _sitting(desk: ActiveRollouts) -> tuple[int, ...]:
    return tuple(desk.tasks[number] for number, _ in desk.generation.seats if 0 <= number < len(desk.tasks))


def _advanced(desking: Desking, desk: ActiveRollouts, course: Course, scene: Scene) -> ActiveRollouts:
    live, version = len(course.there()), len(course.looks) // scene.every if scene.every else 0
    made, params = made_with(scene.slots, scene.steps), params_of(scene.seed, version)
    desk = evolve(desk, generation=desking.advance(made, params, version, desk.generation))
    desk, more = desking.chunks(desk)
    course.told.extend((task, tokens, version) for task, tokens in more)
    sitting = _sitting(desk)
    desk, over = desking.taken(desk)
    course.taken.extend(over)
    course.looks.append(Look(live, scene.slots, (*sitting, *(task for task, _ in over))))
    return desk


def calls_of(attempt: AnyAttempt) -> list[ModelTurn]:
    """The calls of an attempt."""
    return [piece for piece in attempt.pieces if isinstance(piece, ModelTurn)]


def by_definition(seed: int, attempt: AnyAttempt) -> list[tuple[int, float]]:
    """Each sampled token with its log-prob: drawn with its own number under its version, from a pass over all before it."""
    draw, tokens = drawing(temperature=TEMPERATURE), torch.tensor([attempt.ids])
    versions = {version for heard in calls_of(attempt) for version in heard.said.versions}
    logits = {}
    for version in versions:
        params = params_of(seed, version)
        logits[version] = MODEL.head(params, MODEL.apply(params, tokens, (), ()))[0]
    found, place, call = list[tuple[int, float]](), 0, 0
    for piece in attempt.pieces:
        if not isinstance(piece, ModelTurn):
            place += len(piece.ids)
            continue
        number = torch.arange(len(piece.said.ids))
        uniform = keys.uniform(keys.fold_in(call_key(attempt.rollout, call), number))
        rows = torch.stack([logits[version][place + i - 1] for i, version in enumerate(piece.said.versions)])
        token, log_prob = draw(uniform, rows)
        found.extend(zip(token.tolist(), log_prob.tolist(), strict=True))
        place, call = place + len(piece.said.ids), call + 1
    return found
