"""Reports of a suite: one result for each law, formatted as text."""

from typing import Any

from attrs import Factory, frozen

from .law import Law

PASSED, BROKEN, VACUOUS, SKIPPED = "passed", "broken", "vacuous", "skipped"
# Faults: an exception, another shape or type, other values, the same ones to the rounding of float32.
RAISED, UNLIKE, DIFFERS, ROUNDS = "raised", "unlike", "differs", "rounds"


@frozen
class Result:
    """Result of one law on one subject.

    `inputs` is the shrunk counterexample as source and `imports` the lines that it needs, `detail` the difference (or the
    reason of a skip), `seen` the numbers of inputs with each event, `examples` the number of inputs tried, `way` another
    way in which the subject had to be called (see `calling.py`), `notes` what it did beside returning,
    `script` the counterexample without purestep, and `fault` the kind of a broken law's failure, such as RAISED.
    """

    law: Law
    subject: str
    outcome: str
    detail: str = ""
    inputs: str = ""
    seen: dict[str, int] = Factory(dict)
    examples: int = 0
    seconds: float = 0.0
    error: BaseException | None = None
    imports: tuple[str, ...] = ()
    way: str = ""
    notes: tuple[str, ...] = ()
    script: str = ""
    fault: str = ""

    @property
    def holds(self) -> bool:
        """Return whether the law passed or was skipped for a reason."""
        return self.outcome in (PASSED, SKIPPED)

    def line(self) -> str:
        """Return the result in one line."""
        tail = {
            PASSED: self.events(),
            BROKEN: self.detail + (f"; for {self.inputs}" if self.inputs else ""),
            VACUOUS: self.detail,
            SKIPPED: self.detail,
        }[self.outcome]
        tail = "; ".join(part for part in (tail, self.way and f"called with {self.way}", *self.notes) if part)
        return f"{self.outcome:8}{self.law.name}" + (f": {tail}" if tail else "")

    def text(self) -> str:
        """Return the result as a paragraph: the claim, the difference, the input to paste, the events seen, the source."""
        heads = {
            BROKEN: f"{self.subject} breaks the law {self.law.name}",
            VACUOUS: f"{self.law.name} says nothing about {self.subject}",
        }
        rows = [
            ("claim", self.law.claim),
            ("found", self.detail),
            ("called", f"with {self.way}" if self.way else ""),
            ("input", self.inputs),
            ("needs", "; ".join(self.imports)),
            ("seen", self.events()),
            ("source", self.law.source),
            ("keep", f'examples={{"{self.law.name}": [{self.inputs}]}}' if self.inputs else ""),
        ]
        head = heads.get(self.outcome, f"{self.subject}: {self.law.name} {self.outcome}")
        lines = [head, *(f"  {name:7} {value}" for name, value in rows if value)]
        return "\n".join([*lines, *(["  as a script:", self.script] if self.script else [])])

    def events(self) -> str:
        """Return the number of inputs, and the share of them in which each event occurred."""
        tried = f"{self.examples} inputs" if self.examples != 1 else "1 input"
        shares = (f"{name} in {count / max(1, self.examples):.0%}" for name, count in self.seen.items())
        return ", ".join([tried, *shares]) if self.examples else ""


@frozen
class Report:
    """Results of a suite on a subject. True if every law holds."""

    suite: str
    subject: str
    results: tuple[Result, ...]

    @property
    def empty(self) -> bool:
        """Return whether no law could run, so that nothing is known."""
        return not any(result.outcome != SKIPPED for result in self.results)

    def __bool__(self) -> bool:
        return all(result.holds for result in self.results)

    def __getitem__(self, law: str) -> Result:
        return {result.law.name: result for result in self.results}[law]

    @property
    def uncallable(self) -> bool:
        """Return whether no call returned what the suite can compare: nothing passed, and every failure is of the call."""
        failed = [result for result in self.failures if result.outcome == BROKEN]
        passed = any(result.outcome == PASSED for result in self.results)
        of_calls = all(result.fault in (RAISED, UNLIKE) and result.examples <= 1 for result in failed)
        return bool(failed) and not passed and of_calls

    @property
    def failures(self) -> tuple[Result, ...]:
        """The results of the laws that were broken or vacuous."""
        return tuple(result for result in self.results if not result.holds)

    def short(self) -> str:
        """Return the report without a paragraph for each failure."""
        return str(self).partition("\n\n")[0]

    def __str__(self) -> str:
        count = sum(result.outcome == PASSED for result in self.results)
        seconds = sum(result.seconds for result in self.results)
        head = f"{self.suite}, {self.subject}: {count} of {len(self.results)} laws passed in {seconds:.1f} s"
        lines = [head, *(f"  {result.line()}" for result in self.results)]
        first = {
            result.detail: result for result in reversed(self.failures)
        }  # of laws that fail in the same words, one
        return "\n".join([*lines, *(f"\n{result.text()}" for result in reversed(first.values()))])


def name_of(subject: Any) -> str:
    """Return the name of a subject: its `__name__`, or that of its type."""
    return getattr(subject, "__name__", None) or type(subject).__name__
