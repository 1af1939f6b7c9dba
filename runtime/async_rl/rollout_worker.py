"""A generator: the body of a worker that samples several attempts at a time and fetches new weights when they are published."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import torch
from attrs import define, evolve, field, frozen

from ...core import keys
from ...core.errors import ChoiceError, StructureError, message
from ...core.keys import Key
from ...core.language.episode import total_reward
from ...core.language.preparation import Preparation, Start
from ...core.language.prompting import Response
from ...core.language.protocol import Protocol
from ...core.language.requests import Request
from ...core.language.task import TextTask
from ...core.language.text_env import Raised
from ...core.language.to_transcript import transcripts
from ...core.language.types import ModelTurn, Rollout, Sample, Transcript
from ...core.record import take
from ...core.tree import tree_map
from ..effects.clock import seconds
from ..effects.generation.engine import Generator, generator
from ..effects.generation.scheduling import ActiveRollouts, AnyAttempt, add, cancel, pop_finished, token_progress
from ..effects.hugging_face.tokenizer import unfolded
from ..effects.task_reference import trust
from ..effects.tools.guard import ToolFailed
from ..effects.weight_sync import WeightReader, this_host, weight_reader
from ..effects.workers.program import Mailbox
from ..text.columns import figure_of, label_of
from ..text.components import TextComponents, attempts_at, text_components
from ..text.config import TextConfig
from ..text.conversations import named_rewards
from ..text.preparation import attempt_from, usable
from ..text.prompting import RULES, query_attempt, response_of
from .grading import Grading
from .preparation import Prepare, Ready, Work, begin_preparation, ready_of, replied
from .tool_service import served_tools
from .version_check import Packages, packages, refuse_others

NONE = -1  # the version before any weights are published
REST = 0.25  # seconds that an idle generator waits for a message
LOOK = 0.02  # seconds between two polls for weights when all jobs wait for them
OWN = ("reward", "turns", "tokens")  # figures of any task's samples


@frozen
class RolloutRequest:
    """A task: sample this attempt, with weights of at least this version. Its answer is the `Sample`."""

    request: Request
    version: int
    start: Start | tuple[()] = ()  # of its group, where the task's episodes are prepared


@frozen
class Cancel:
    """A task: cancel that task, which is answered with `Cancelled` too if it was not answered before."""

    task: int


@frozen
class Cancelled:
    """The answer to a cancelled task, and to the request to cancel it."""


@frozen
class Progress:
    """A generator's report after each chunk of tokens."""

    tokens: tuple[tuple[int, int, int], ...] = ()  # (task, number of new tokens, their version)
    spans: tuple[tuple[str, float, float, int], ...] = ()  # (kind of work, begin, end, version)
    tool_failures: int = 0


@frozen
class Spec:
    """Arguments of a generator at its start."""

    arguments: TextConfig
    tokenizer: Mapping[str, bytes]  # the files of its folder; none where the model's folder has one
    weights: str  # the address of the weights
    device: str = "cpu"
    packages: Packages = field(factory=dict)  # versions required on its host


def figure_names(task: TextTask) -> tuple[str, ...]:
    """Return the names of a sample's figures: those of any task, and the task's own."""
    return (*OWN, *task.figures)


def samples_of(task: TextTask, attempts: Sequence[Rollout[Any]], *, capacity: int, calls: int) -> tuple[Sample, ...]:
    """Return the samples of finished attempts at a task, each in a row with room for this many tokens and calls.

    head = min_t version_t,   tail = max_t version_t,   over the tokens that the model sampled; turns are calls of the model.
    Raises: StructureError for an attempt that is under way, or for which there is no room.
    """
    if not attempts:
        return ()
    rows = transcripts(attempts, capacity=capacity, calls=calls)
    for attempt, missing in zip(attempts, rows.overflow.tolist(), strict=True):
        if isinstance(attempt.end, tuple):
            remedy = "take it to its end first"
            raise StructureError(message("samples_of: attempt", got="under way", wanted="ended", remedy=remedy))
        if missing:
            where, got = "samples_of: (capacity, calls)", (capacity, calls)
            remedy = "take those that the attempts were made with"
            raise StructureError(message(where, got=got, wanted="room for the attempt", remedy=remedy))
    return tuple(_sample(task, attempt, take(rows, [place])) for place, attempt in enumerate(attempts))


def _sample(task: TextTask, attempt: Rollout[Any], row: Transcript) -> Sample:
    said = [piece.said for piece in attempt.pieces if isinstance(piece, ModelTurn)]
    versions = [version for one in said for version in one.versions]
    if not versions:
        remedy = "let the model speak before the attempt ends"
        raise ChoiceError(message("samples_of: attempt", got="without a sampled token", wanted="one", remedy=remedy))
    figures = dict(zip(OWN, (total_reward(attempt.episode), float(len(said)), float(len(versions))), strict=True))
    return Sample(
        row=row,
        figures={**figures, **{name: figure_of(task, name, figure, attempt) for name, figure in task.figures.items()}},
        mode=label_of(task, attempt),
        head=min(versions),
        tail=max(versions),
        tokens=len(versions),
        raised=attempt.end.error if isinstance(attempt.end, Raised) else "",
        parts=named_rewards(attempt),
    )


@define
class RolloutWorker:
    """State of a running generator."""

    mailbox: Mailbox
    arguments: TextConfig
    parts: TextComponents
    generator: Generator
    reader: WeightReader
    params: Any
    version: int
    active: ActiveRollouts
    prompts: "Prompts | tuple[()]" = ()  # of preparations, where the task has one
    grading: Grading = field(factory=Grading)
    # tasks that are not begun, some for newer weights
    waiting: deque[tuple[int, RolloutRequest | Prepare]] = field(factory=deque)

    @property
    def idle(self) -> bool:
        """Return whether no attempt is under way."""
        return self.active.idle and (isinstance(self.prompts, tuple) or self.prompts.active.idle)

    def message(self, task: int, payload: RolloutRequest | Prepare | Cancel) -> None:
        """Queue a task, or cancel one and answer both."""
        if not isinstance(payload, Cancel):
            self.waiting.append((task, payload))
            return
        waited = [one for one, _ in self.waiting if one == payload.task]
        if waited or payload.task in self.active.tasks or self.grading.cancel(payload.task):
            self.waiting = deque(one for one in self.waiting if one[0] != payload.task)
            self.active = cancel(self.active, payload.task)
            self.mailbox.answer(payload.task, Cancelled())
        self.mailbox.answer(task, Cancelled())

    def listen(self) -> None:
        """Receive all messages; wait for one if there is nothing to do. Raises: EOFError when the mailbox is closed."""
        rest = (LOOK if self.waiting or self.grading.tasks else REST) if self.idle else 0.0
        while found := self.mailbox.receive(rest):
            self.message(*found)
            rest = 0.0

    def fetch(self) -> tuple[tuple[str, float, float, int], ...]:
        """Fetch newer weights, if there are any: attempts under way continue with them or, if not interruptible, end first."""
        if not self.arguments.asynchronous.interruptible and not self.idle:
            return ()
        start = seconds()
        found = self.reader.fetch(self.version)
        if not found:
            return ()
        self.version, self.params = found
        return (("sync", start, seconds(), self.version),)

    def seat(self) -> None:
        """Begin the tasks whose weights are there."""
        later = deque[tuple[int, RolloutRequest | Prepare]]()
        for task, job in self.waiting:
            if job.version > self.version or later:
                later.append((task, job))
            elif isinstance(job, Prepare):
                self.prepare(task, job.preparation)
            else:
                self.active = add(self.active, task, self.attempt(job))
        self.waiting = later

    def attempt(self, job: RolloutRequest) -> AnyAttempt:
        """Return the attempt that a job asks for, before the first output of the model."""
        if isinstance(job.start, tuple):
            return attempts_at(self.parts, (job.request,))[0]
        return attempt_from(self.parts, job.start, job.request)

    def prepare(self, task: int, preparation: int) -> None:
        """Begin a preparation; one that needs no prompts is answered at once."""
        if isinstance(self.prompts, tuple):
            where, remedy = f"generator: task {task}", "let the trainer and its generators have the same task"
            raise ChoiceError(message(where, got="a preparation", wanted="none", remedy=remedy))
        self.ready(self.prompts.begin(task, preparation))

    def ready(self, answers: Iterable[tuple[int, Ready]]) -> None:
        """Answer the preparations that are finished."""
        for task, answer in answers:
            self.mailbox.answer(task, answer)

    def work(self) -> None:
        """Sample one chunk of tokens for all attempts, those of preparations first; report progress and finished samples.

        Samples whose rewards take their time are reported after a later chunk.
        """
        spans = self.fetch()
        self.seat()
        self.answer(self.grading.graded(self.parts.task.grader))
        if self.idle:
            if spans or self.grading.shows_life():
                self.mailbox.note(Progress(spans=spans))
            return
        start = seconds()
        if not isinstance(self.prompts, tuple) and not self.prompts.active.idle:
            self.ready(self.prompts.advance(self.params, self.version))
        tokens, over = self._chunk()
        self.mailbox.note(Progress(tokens, (*spans, ("generate", start, seconds(), self.version))))
        if isinstance(self.parts.task.grader, tuple):
            self.answer(over)
        else:
            self.grading.add(over)
            self.answer(self.grading.graded(self.parts.task.grader))

    def answer(self, over: Sequence[tuple[int, AnyAttempt]]) -> None:
        """Answer the tasks of finished attempts."""
        room = {"capacity": self.arguments.sampling.capacity, "calls": self.arguments.episodes.max_turns}
        samples = samples_of(self.parts.task, [attempt for _, attempt in over], **room) if over else ()
        for (task, _), sample in zip(over, samples, strict=True):
            self.mailbox.answer(task, sample)

    def _chunk(self) -> tuple[tuple[tuple[int, int, int], ...], tuple[tuple[int, AnyAttempt], ...]]:
        """Sample one chunk of tokens for samples; return the new token counts and the finished attempts."""
        if self.active.idle:
            return (), ()
        generation = self.generator.advance(self.params, self.version, self.active.generation)
        self.active, more = token_progress(evolve(self.active, generation=generation))
        self.active, over = pop_finished(self.active)
        return tuple((task, number, self.version) for task, number in more), over


@define
class Prompts:
    """The preparations of a generator: their queries are attempts of one turn, in slots of their own."""

    parts: TextComponents
    preparation: Preparation
    key: Key
    generator: Generator
    active: ActiveRollouts
    works: dict[int, Work] = field(factory=dict)  # by task
    places: dict[int, tuple[int, int]] = field(factory=dict)  # by number among the active: (task, index of its query)
    following: Iterator[int] = field(factory=count)

    def begin(self, task: int, number: int) -> tuple[tuple[int, Ready], ...]:
        """Begin a preparation; return those that are finished."""
        return self._on(task, begin_preparation(self.preparation.prompting, self.key, number), NONE)

    def advance(self, params: Any, version: int) -> tuple[tuple[int, Ready], ...]:
        """Sample one chunk of tokens; return the preparations that are finished."""
        generation = self.generator.advance(params, version, self.active.generation)
        self.active, over = pop_finished(evolve(self.active, generation=generation))
        found = list[tuple[int, Ready]]()
        for number, attempt in over:
            task, place = self.places.pop(number)
            found += self._respond(task, place, response_of(self.parts, attempt, version), version)
        return tuple(found)

    def _respond(self, task: int, place: int, response: Response, version: int) -> tuple[tuple[int, Ready], ...]:
        work, moved = replied(self.preparation.prompting, self.works[task], place, response)
        self.works[task] = work
        return self._on(task, work, version) if moved else ()

    def _on(self, task: int, work: Work, version: int) -> tuple[tuple[int, Ready], ...]:
        """Begin the queries that are due, or return the finished preparation.

        A query without room gets its response at once.
        """
        self.works[task] = work
        if work.over:
            del self.works[task]
            prepared = self.preparation.prompting.result(work.state)
            return (
                (task, ready_of(work.preparation, self.preparation.groups, usable(self.parts, prepared), prepared)),
            )
        found: tuple[tuple[int, Ready], ...] = ()
        for place, query in enumerate(work.queries):
            number = next(self.following)
            attempt = query_attempt(self.parts, query, number)
            if isinstance(attempt, tuple):
                found += self._respond(task, place, response_of(self.parts, (), max(0, version)), version)
            else:
                self.places[number] = task, place
                self.active = add(self.active, number, attempt)
        return found


def prompts_of(arguments: TextConfig, parts: TextComponents, like: Any) -> Prompts | tuple[()]:
    """Return the object that runs a generator's preparations; () for a task whose episodes need none."""
    preparation = parts.task.preparation
    if isinstance(preparation, tuple):
        return ()
    made, active = decoding(arguments, parts, RULES, preparation.max_new_tokens, like)
    return Prompts(parts, preparation, keys.key(arguments.episodes.seed), made, active)


def decoding(
    arguments: TextConfig, parts: TextComponents, rules: Protocol[Any, Any], max_new_tokens: int, like: Any
) -> tuple[Generator, ActiveRollouts]:
    """Return a decoder of the run's model, and its rollouts: none yet. `like` are parameters of the same structure."""
    sampling = parts.sampling
    how: dict[str, Any] = {"temperature": sampling.temperature, "top_p": sampling.top_p, "capacity": sampling.capacity}
    how |= {"slots": arguments.asynchronous.generator_slots, "max_new_tokens": max_new_tokens}
    made = generator(parts.speaker, rules, parts.codec, **how)
    return made, ActiveRollouts(generation=made.begin(like, NONE, ()))


def generate(mailbox: Mailbox, spec: Spec) -> None:
    """Run a generator, as `workers.working(generate, (spec,), ...)`; it ends with its mailbox, which raises EOFError.

    Between two chunks of tokens it receives messages and fetches the newest weights, the first ones too: attempts under way
    continue with them, and each token carries the version that sampled it. If it is not interruptible, it fetches weights only
    when nothing is under way, and begins no task that asks for newer ones before.
    Raises: WeightsError for weights of another architecture, ChoiceError for a request that leaves no room to answer, or where
    its packages differ from those of the machine that trains.
    """
    refuse_others(spec.packages, packages(), this_host().name)
    trust(getattr(spec.arguments, "reference", ""))  # the trainer that sent it trusts it
    torch.set_num_threads(spec.arguments.machine.threads)
    with unfolded(spec.tokenizer) as folder:
        whole = text_components(spec.arguments, folder if spec.tokenizer else ())
    like = tree_map(lambda leaf: leaf.to(spec.device), whole.whole(whole.begin()))

    def failed(call: ToolFailed) -> None:
        del call
        mailbox.note(Progress(tool_failures=1))  # at once: shows that a generator waiting for several tools is alive

    with (
        weight_reader(spec.weights, like) as reader,
        served_tools(whole, spec.arguments.asynchronous, failed) as parts,
    ):
        made, active = decoding(spec.arguments, parts, parts.rules, parts.sampling.max_new_tokens, like)
        prompts = prompts_of(spec.arguments, parts, like)
        worker = RolloutWorker(mailbox, spec.arguments, parts, made, reader, like, NONE, active, prompts)
        while True:
            worker.listen()
            worker.work()
