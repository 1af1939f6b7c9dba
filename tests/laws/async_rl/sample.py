"""Laws of samples: a row is its attempt's transcript, the fields besides it agree with it, and impossible values are found.

The subject is a `Writing`, the functions that write, check and stack samples; attempts are at zorplex tasks.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import evolve

from purestep.core.language.to_transcript import transcripts
from purestep.core.language.types import Sample, Transcript
from purestep.core.language.zorplex.failure_modes import FAILURE_MODES
from purestep.core.language.zorplex.task import zorplex_task
from purestep.core.record import replace, take
from purestep.core.tree import leaves, tree_map
from purestep.properties.framework.compare import ROUNDING, bits_of, require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always
from purestep.runtime.text.evaluation import evaluation_result

from .conversations import CALLS, CODEC, ROOM, AnyAttempt, Talk, Writing, ended, talks, versions_of, written
from .sample_faults import SPOILED

# --- mutants ---
# Common errors in samples: edits of their construction from attempts, and of the search for faults.


def _making(change: Callable[[AnyAttempt, Sample], Sample]) -> Callable[[Writing], Writing]:
    """The edit that changes each sample: `change(attempt, sample)`."""

    def make(writing: Writing) -> Writing:
        def samples_of(attempts: Sequence[AnyAttempt], **room: int) -> tuple[Sample, ...]:
            made = writing.samples_of(attempts, **room)
            return tuple(change(attempt, sample) for attempt, sample in zip(attempts, made, strict=True))

        return evolve(writing, samples_of=samples_of)

    return make


def row_before(writing: Writing) -> Writing:
    """Swap the rows that were written together by one place."""

    def samples_of(attempts: Sequence[AnyAttempt], **room: int) -> tuple[Sample, ...]:
        made = writing.samples_of(attempts, **room)
        return tuple(evolve(sample, row=made[place - 1].row) for place, sample in enumerate(made))

    return evolve(writing, samples_of=samples_of)


def _figured(sample: Sample, **values: float) -> Sample:
    return evolve(sample, figures={**sample.figures, **values})


def _first_is_head(attempt: AnyAttempt, sample: Sample) -> Sample:
    return evolve(sample, head=versions_of(attempt)[0])


def _last_is_tail(attempt: AnyAttempt, sample: Sample) -> Sample:
    return evolve(sample, tail=versions_of(attempt)[-1])


def _all_tokens(attempt: AnyAttempt, sample: Sample) -> Sample:
    return evolve(sample, tokens=len(attempt.ids))


def stacked_by_id(writing: Writing) -> Writing:
    """Sort rows by their request ids when they are stacked."""

    def stacked(samples: Sequence[Sample]) -> Transcript:
        return writing.stacked(sorted(samples, key=lambda sample: int(sample.row.id[0])))

    return evolve(writing, stacked=stacked)


def sends_halves(writing: Writing) -> Writing:
    """Round floats to bfloat16 in the transfer."""

    def halved(column: torch.Tensor) -> torch.Tensor:
        return column.to(torch.bfloat16).to(column.dtype) if column.is_floating_point() else column

    def sent(sample: Sample) -> Sample:
        row: Transcript = tree_map(halved, writing.sent(sample).row)
        return evolve(sample, row=row)

    return evolve(writing, sent=sent)


def _blind(name: str, value: float) -> Callable[[Writing], Writing]:
    """The edit that ignores one column of a row when it looks for faults."""

    def make(writing: Writing) -> Writing:
        def fault(sample: Any, **room: int) -> str:
            if isinstance(sample, Sample) and isinstance(sample.row, Transcript):
                column = torch.full_like(getattr(sample.row, name), value)
                sample = evolve(sample, row=replace(sample.row, **{name: column}))
            return writing.fault(sample, **room)

        return evolve(writing, fault=fault)

    return make


def _takes_any_summary(writing: Writing) -> Writing:
    """Skip the check of the fields besides a row."""

    def fault(sample: Any, **room: int) -> str:
        if isinstance(sample, Sample) and isinstance(sample.row, Transcript):
            made = sample.row.version[sample.row.is_action].tolist() or [0]
            sample = evolve(sample, head=min(made), tail=max(made), tokens=len(made))
        return writing.fault(sample, **room)

    return evolve(writing, fault=fault)


def _wants_version_one(writing: Writing) -> Writing:
    """Treat version 0 as absent."""

    def fault(sample: Any, **room: int) -> str:
        zero = isinstance(sample, Sample) and sample.head == 0
        return "a version that is none" if zero else writing.fault(sample, **room)

    return evolve(writing, fault=fault)


first_is_head = _making(_first_is_head)
strict_format = _making(lambda attempt, sample: _figured(sample, format=sample.figures["accuracy"]))
any_log_prob = _blind("behaviour_log_prob", 0.0)
MUTANTS: dict[str, Callable[[Writing], Writing]] = {
    "takes the last token's version for the newest": _making(_last_is_tail),
    "counts what the model was told": _making(_all_tokens),
    "counts turns of the world that lie behind": _making(
        lambda attempt, sample: _figured(sample, turns=float(attempt.episode.turn))
    ),
    "pays the last call alone": _making(
        lambda attempt, sample: _figured(sample, reward=attempt.episode.steps[-1].reward)
    ),
    "does not look at rewards": _blind("reward", 0.0),
    "does not look at what found no room": _blind("overflow", 0),
    "believes what is said beside a row": _takes_any_summary,
    "takes version 0 for none": _wants_version_one,
}


# --- laws ---


SOURCE = "runtime.async_rl.rollout_worker: what a generator gives for a request"
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
    same(claim, [bits_of(leaf) for leaf in leaves(got)], [bits_of(leaf) for leaf in leaves(wanted)])


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
    mutant = Mutant("gives each attempt the row of the one before", row_before)
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
    mutant = Mutant("takes the first token's version for the oldest", first_is_head)
    return _law("summary_is_true", claim, mutant, check, "an older version behind a newer one")


def _figures() -> Law:
    def check(writing: Writing, attempts: list[AnyAttempt], seen: Seen) -> None:
        samples, wanted = written(writing, attempts), evaluation_result(zorplex_task(), attempts)
        for mode in FAILURE_MODES:
            seen(mode, wanted.modes[mode])
            share = sum(sample.mode == mode for sample in samples) / len(samples)
            same(f"the share of {mode}", torch.tensor(share), torch.tensor(wanted.modes[mode]), ROUNDING)
        for name, value in writing.figures_of(samples).items():
            same(name, torch.tensor(value), torch.tensor(wanted.described()[name]), ROUNDING)

    claim = "Means of figures over samples are what an evaluation says of their attempts."
    mutant = Mutant("calls an answer well formed only where it is right", strict_format)
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
    mutant = Mutant("stacks rows in the order of their requests", stacked_by_id)
    return _law("stacked_in_order", claim, mutant, check, "ids that go down")


def _sent() -> Law:
    def check(writing: Writing, attempts: list[AnyAttempt], seen: Seen) -> None:
        for sample in written(writing, attempts):
            back = writing.sent(sample)
            seen("a row longer than what was said", int(sample.row.length[0]) < ROOM["capacity"])
            _same_rows("the row", back.row, sample.row)
            same("what is said of it", _said(back), _said(sample))

    claim = "What arrives is, bit for bit, what was sent."
    mutant = Mutant("sends numbers of half the size", sends_halves)
    return _law("arrives_as_sent", claim, mutant, check, "a row longer than what was said")


def _said(sample: Sample) -> list[object]:
    return [*sorted(sample.figures.items()), sample.mode, sample.head, sample.tail, sample.tokens, *sample.parts]


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
    mutant = Mutant("does not look at log-probs", any_log_prob)
    return _law("faults_are_found", claim, mutant, check, *SPOILED)
