"""A generator: a worker that makes attempts with the newest weights there are, and says what comes of them chunk by chunk.

    with working(generate, (spec,), size=2, patience=120.0, refuse=refusing(arguments, parts)) as workers:
        workers.send(0, 7, Job(request, version=0))          # worker 0, task 7
        report = workers.receive(1.0)                        # a Note of Progress, an Answer of Made, ...

It takes new weights between two chunks, in the middle of attempts too, whose tokens then carry the versions that made them;
or, where it is not to be interrupted, once all that it has begun is over. With nothing to do it waits for tasks.
"""

import threading
from pathlib import Path
from typing import Any

import torch
from attrs import define, evolve

from ...core.errors import StructureError, message
from ...core.tree import tree_map
from ..effects.clock import seconds
from ..effects.generate import Generator, generator
from ..effects.tools import Failed
from ..effects.weights import Reader, reading
from ..effects.workers_engines import Mailbox
from ..language.parts import Parts, attempts_at, parts_of
from ..recipes.zorplex import Zorplex
from .generating_checks import refusing as refusing
from .generating_checks import remembering as remembering
from .generating_messages import GivenUp, GiveUp, Job, Made, Progress, Spec
from .generating_slots import Work, added, counted, gathered, given_up, placed
from .samples import samples_of
from .tools import world_through

IDLE = 60.0  # seconds to wait for a task at a time, with nothing to do
LOOK = 0.02  # seconds between two looks for weights that a task waits for
OPENING = threading.Lock()  # the library makes one model at a time
Span = tuple[str, float, float, int]
Weights = tuple[int, Any]  # (version, params)


def generate(mailbox: Mailbox, spec: Spec) -> None:
    """The body of a generator, for `working`. Raises: WeightsError where weights of another architecture are published."""
    torch.set_num_threads(spec.arguments.machine.threads)
    with OPENING:
        parts = parts_of(spec.arguments, spec.tokenizer)

    def failed(call: Failed) -> None:
        del call
        mailbox.note(Progress(tool_failures=1))  # at once: who waits for tools is alive

    with world_through(parts.rules, spec.arguments.asynchronous, failed) as rules:
        hand = begun(mailbox, spec.arguments, evolve(parts, rules=rules), spec.weights, spec.device)
        while True:
            hand.listen()
            hand.go_on()


@define(kw_only=True)
class Hand:
    """A generator at work."""

    mailbox: Mailbox
    arguments: Zorplex
    parts: Parts
    made: Generator
    reader: Reader
    work: Work
    held: Weights  # what is sampled with; the version is -1 before there are any
    coming: Weights | tuple[()] = ()  # newer ones, to be taken once nothing is under way
    spare: Any = ()  # memory for the next

    def listen(self) -> None:
        """Takes all tasks there are; waits for one where there is nothing to do."""
        under_way = bool(self.work.generation.attempts)
        letter = self.mailbox.receive(0.0 if under_way else LOOK if self.work.waiting else IDLE)
        while letter:
            self.take(*letter)
            letter = self.mailbox.receive(0.0)

    def take(self, task: int, payload: Any) -> None:
        """Takes a task. Raises: StructureError for one of another kind, ChoiceError for a prompt that leaves no room."""
        if isinstance(payload, Job):
            self.work = added(self.work, task, attempts_at(self.parts, (payload.request,))[0], payload.version)
        elif isinstance(payload, GiveUp):
            self.work, there = given_up(self.work, payload.task)
            for answered in (payload.task, task) if there else (task,):
                self.mailbox.answer(answered, GivenUp())
        else:
            got, remedy = type(payload).__name__, "send one of these"
            raise StructureError(message(f"generate: task {task}", got=got, wanted="a Job or GiveUp", remedy=remedy))

    def go_on(self) -> None:
        """One chunk of whatever is under way, and word of it."""
        if not (self.work.generation.attempts or self.work.waiting):
            return
        spans = self.renewed()
        version, params = self.held
        self.work = placed(self.work, version) if not self.coming else self.work
        if not self.work.generation.attempts:
            if spans:
                self.mailbox.note(Progress(spans=spans))
            return
        start = seconds()
        generation = self.made.advance(params, version, self.work.generation)
        work, tokens = counted(evolve(self.work, generation=generation))
        self.work, ended = gathered(work)
        room = {"capacity": self.parts.sampling.capacity, "calls": self.arguments.tasks.max_turns}
        samples = samples_of([attempt for _, attempt in ended], **room)
        spans = (*spans, ("generate", start, seconds(), version))
        self.mailbox.note(Progress(tuple((task, number, version) for task, number in tokens), spans))
        for (task, _), sample in zip(ended, samples, strict=True):
            self.mailbox.answer(task, Made(sample))

    def renewed(self) -> tuple[Span, ...]:
        """Looks for newer weights and takes them where it may; gives the time that they took to come."""
        start, newest = seconds(), self.coming[0] if self.coming else self.held[0]
        if self.arguments.asynchronous.interruptible:
            found = self.reader.fetch(newest, self.held[1])
            self.held = found or self.held
        else:
            found = self.reader.fetch(newest, self.coming[1] if self.coming else self.spare)
            self.coming = found or self.coming
            if self.coming and not self.work.generation.attempts:
                self.held, self.coming, self.spare = self.coming, (), self.held[1]
        return (("sync", start, seconds(), found[0]),) if found else ()


def begun(mailbox: Mailbox, arguments: Zorplex, parts: Parts, weights: Path, device: str = "cpu") -> Hand:
    """A generator with nothing to do, on its device. Raises: WeightsError, ChoiceError."""
    sampling = parts.sampling
    own = tree_map(lambda leaf: leaf.detach().to(device, copy=True), parts.whole(parts.begin()))
    made = generator(
        parts.speaker,
        parts.rules,
        parts.codec,
        slots=arguments.asynchronous.generator_slots,
        capacity=sampling.capacity,
        max_new_tokens=sampling.max_new_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
    )
    return Hand(
        mailbox=mailbox,
        arguments=arguments,
        parts=parts,
        made=made,
        reader=reading(weights, own),
        work=Work(generation=made.begin(own, -1, ())),
        held=(-1, own),
        spare=() if arguments.asynchronous.interruptible else tree_map(torch.empty_like, own),
    )
