"""Laws of samples: a row is its attempt's transcript, what is said beside it is true, and what cannot be true is found.

The subject is a `Writing`, the functions of `runtime.asynchronous.samples`; attempts are at zorplex tasks.
"""

from collections.abc import Callable, Sequence

import torch

from purestep.core.language.diagnosis import FAILURE_MODES
from purestep.core.language.transcribe import transcripts
from purestep.core.language.zorplex_task import zorplex_task
from purestep.core.record import take
from purestep.core.transcript import Transcript
from purestep.core.tree import leaves
from purestep.properties.framework.compare import ROUNDING, bits, require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always
from purestep.runtime.asynchronous.samples import Sample
from purestep.runtime.language.evaluate import standing

from . import sample_mutants as mutants
from .conversations import CALLS, CODEC, ROOM, AnyAttempt, Talk, Writing, ended, talks, versions_of, written
from .sample_faults import SPOILED

SOURCE = "runtime.asynchronous.samples: what a generator gives for a request"
Drawn = tuple[Talk, ...]


def sample_laws() -> Suite:
    """The laws of a `Writing`."""
    return Suite("sample_laws", (_rows(), _summaries(), _figures(), _stacked(), _sent(), _faults()))


def _law(
    name: str, claim: str, mutant: Mutant, check: Callable[[Writing, list[AnyAttempt], Seen], None], *needs: str
) -> Law:
    def each(writing: Writing, drawn: Drawn, seen: Seen) -> None:
        check(writing, [ended(talk) for talk in drawn], seen)

    return Law(
        name=name,
        claim=claim,
        source=SOURCE,
        inputs=always(talks()),
        check=each,
        mutant=mutant,
        needs=needs,
        most=300,
    )


def _same_rows(claim: str, got: Transcript, wanted: Transcript) -> None:
    same(claim, [bits(leaf) for leaf in leaves(got)], [bits(leaf) for leaf in leaves(wanted)])


def _rows() -> Law:
    def check(writing: Writing, attempts: list[AnyAttempt], seen: Seen) -> None:
        samples = written(writing, attempts)
        require(len(samples) == len(attempts), f"{len(attempts)} attempts, {len(samples)} samples")
        seen("attempts of different lengths", len({len(attempt.ids) for attempt in attempts}) > 1)
        for number, attempt in enumerate(attempts):
            alone = transcripts([attempt], capacity=ROOM["capacity"], calls=CALLS)
            _same_rows(f"row {number}", samples[number].row, alone)
            _same_rows(f"row {number} alone", written(writing, [attempt])[0].row, alone)

    claim = "A sample's row is its attempt's transcript, whichever attempts are written beside it."
    mutant = Mutant("gives each attempt the row of the one before", mutants.row_before)
    return _law("row_is_the_transcript", claim, mutant, check, "attempts of different lengths")


def _summaries() -> Law:
    def check(writing: Writing, attempts: list[AnyAttempt], seen: Seen) -> None:
        for sample, attempt in zip(written(writing, attempts), attempts, strict=True):
            versions = versions_of(attempt)
            seen("an older version behind a newer one", versions != sorted(versions))
            got = sample.head, sample.tail, sample.tokens
            same("head, tail, tokens", got, (min(versions), max(versions), len(versions)))
            same("the tokens of the row", int(sample.row.is_action.sum()), len(versions))

    claim = (
        "Head and tail are the oldest and the newest version among the sampled tokens, and all of those are counted."
    )
    mutant = Mutant("takes the first token's version for the oldest", mutants.first_is_head)
    return _law("summary_is_true", claim, mutant, check, "an older version behind a newer one")


def _figures() -> Law:
    def check(writing: Writing, attempts: list[AnyAttempt], seen: Seen) -> None:
        samples, wanted = written(writing, attempts), standing(zorplex_task(), attempts)
        for mode in FAILURE_MODES:
            seen(mode, wanted.modes[mode])
            share = sum(sample.mode == mode for sample in samples) / len(samples)
            same(f"the share of {mode}", torch.tensor(share), torch.tensor(wanted.modes[mode]), ROUNDING)
        for name, value in writing.figures_of(samples).items():
            same(name, torch.tensor(value), torch.tensor(wanted.described()[name]), ROUNDING)

    claim = "Means of figures over samples are what an evaluation says of their attempts."
    mutant = Mutant("calls an answer well formed only where it is right", mutants.strict_format)
    return _law("figures_are_the_standing", claim, mutant, check, *FAILURE_MODES)


def _stacked() -> Law:
    def check(writing: Writing, attempts: list[AnyAttempt], seen: Seen) -> None:
        samples = written(writing, attempts)
        ids = [int(sample.row.id[0]) for sample in samples]
        seen("ids that go down", ids != sorted(ids))
        rows = writing.stacked(samples)
        for number, sample in enumerate(samples):
            _same_rows(f"row {number}", take(rows, [number]), sample.row)

    claim = "Stacked rows are the samples' own, in their order."
    mutant = Mutant("stacks rows in the order of their requests", mutants.stacked_by_id)
    return _law("stacked_in_order", claim, mutant, check, "ids that go down")


def _sent() -> Law:
    def check(writing: Writing, attempts: list[AnyAttempt], seen: Seen) -> None:
        for sample in written(writing, attempts):
            back = writing.sent(sample)
            seen("a row longer than what was said", int(sample.row.length[0]) < ROOM["capacity"])
            _same_rows("the row", back.row, sample.row)
            same("what is said of it", _said(back), _said(sample))

    claim = "What arrives is, bit for bit, what was sent."
    mutant = Mutant("sends numbers of half the size", mutants.sends_halves)
    return _law("arrives_as_sent", claim, mutant, check, "a row longer than what was said")


def _said(sample: Sample) -> list[object]:
    return [*sorted(sample.figures.items()), sample.mode, sample.head, sample.tail, sample.tokens]


def _faults() -> Law:
    room = {"capacity": ROOM["capacity"], "calls": CALLS, "vocabulary": CODEC.vocabulary}

    def check(writing: Writing, attempts: list[AnyAttempt], seen: Seen) -> None:
        samples: Sequence[Sample] = written(writing, attempts)
        for sample in samples:
            said = writing.fault(sample, **room)
            require(not said, f"of a right sample it is said: {said}")
        for name, spoil in SPOILED.items():
            seen(name)
            require(writing.fault(spoil(samples[0]), **room), f"nothing is found in a sample with {name}")

    claim = "Nothing is found in a right sample, and something in each that cannot be true."
    mutant = Mutant("does not look at log-probs", mutants.any_log_prob)
    return _law("faults_are_found", claim, mutant, check, *SPOILED)
