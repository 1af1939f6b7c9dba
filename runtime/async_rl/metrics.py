"""The rows of a phase's metrics: one for each update, into a file, TensorBoard and the progress display."""

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from attrs import define, field

from ...core.errors import ChoiceError, message
from ...core.language.task import TextTask
from ...core.language.types import Sample
from ..effects import folder
from ..effects.clock import seconds
from ..effects.reporting.metrics import Row, jsonl, rewind, tensorboard
from ..effects.reporting.progress import progress
from ..effects.reporting.wandb_sink import wandb_sink
from ..runs.logging import finite_part
from ..text.columns import LABEL, LENGTHS, label_columns, learner_columns, shares
from ..text.config import TextConfig
from ..text.preparation import STATES, THROUGHPUT
from ..text.report import evaluation_names
from ..text.training_loop import episodes_of, metric_columns
from .preparation import Ready


@define
class Meter:
    """Counts since the last row of metrics, and the sink of rows."""

    arguments: TextConfig
    task: TextTask
    out: Callable[[Row], None]
    wasted: int = 0  # tokens so far
    _tokens: int = 0  # of samples that have arrived
    _anchoring: float = 0.0  # seconds
    _prepared: list[Ready] = field(factory=list)  # finished preparations
    _since: float = field(factory=seconds)  # the end of the last update
    _lock: threading.Lock = field(factory=threading.Lock)

    def arrived(self, sample: Sample) -> None:
        """Count the tokens of a finished sample."""
        with self._lock:
            self._tokens += sample.tokens

    def prepared(self, ready: Ready) -> None:
        """Record a finished preparation."""
        with self._lock:
            self._prepared.append(ready)

    def add_recompute_seconds(self, spent: float) -> None:
        """Add the seconds that proximal log-probs took."""
        self._anchoring += spent

    def trained(
        self, version: int, batch: Sequence[Sample], figures: Mapping[str, float], spent: float, now: float
    ) -> None:
        """Write the row of metrics of the update of this version's weights."""
        since, self._since = self._since, seconds()
        with self._lock:
            tokens, self._tokens = self._tokens, 0
            prepared, self._prepared = self._prepared, []
        anchoring, self._anchoring = self._anchoring, 0.0
        elapsed = max(1e-9, self._since - since)
        means = mean_figures(batch)
        heads, tails = [version - one.head for one in batch], [version - one.tail for one in batch]
        given = self.arguments
        known = {*learner_columns(given.sampling.top_p), *evaluation_names(self.task, given.episodes.eval_samples)}
        unknown = () if self.arguments.learning.kl else ("kl",)  # without a reference policy the figure is 0, not a KL
        row = {
            "iteration": float(version + 1),
            "steps": float((version + 1) * episodes_of(self.arguments, self.task)),
            **dict.fromkeys(metric_columns(self.arguments, self.task), math.nan),
            "episode_return": means["reward"],
            **{name: means[name] for name in (*self.task.figures, *LENGTHS)},
            **label_columns(shares(self.task, [one.mode for one in batch])),
            **{name: value for name, value in figures.items() if name in known and name not in unknown},
            **prepared_figures(prepared, elapsed),
            "rollout_seconds": max(0.0, elapsed - spent - anchoring),
            "update_seconds": spent,
            "proximal_seconds": anchoring,
            "tokens_per_second": tokens / elapsed,
            "staleness_max": float(max(heads)),
            "staleness_mean": sum(heads) / len(heads),
            "staleness_tail_max": float(max(tails)),
            "wasted_tokens": float(self.wasted),
            "seconds": now,
        }
        self.out(row)


def prepared_figures(prepared: Sequence[Ready], elapsed: float) -> dict[str, float]:
    """Return the metrics of the preparations finished within these seconds: the means of their finite figures, and throughput.

    >>> prepared_figures([Ready(preparation=0, starts=(), figures={"depth": 2.0}, texts=6)], 2.0)
    {'depth': 2.0, 'states': 0.0, 'throughput': 3.0}
    """
    if not prepared:
        return {}
    names = dict.fromkeys(name for one in prepared for name in one.figures)
    each = {name: [value for one in prepared if math.isfinite(value := one.figures[name])] for name in names}
    means = {name: sum(values) / len(values) for name, values in each.items() if values}
    starts, texts = sum(len(one.starts) for one in prepared), sum(one.texts for one in prepared)
    return {**means, STATES: float(starts), THROUGHPUT: texts / elapsed}


@contextmanager
def metering(home: Path, arguments: TextConfig, task: TextTask, version: int) -> Iterator[Meter]:
    """Yield the meter of a phase that resumes at a version."""
    shown = ("episode_return", *tuple(task.figures)[:1], LABEL, "staleness_max", "tokens_per_second")
    rewind(home / folder.METRICS, version)
    with ExitStack() as stack:
        file = stack.enter_context(jsonl(home / folder.METRICS))
        outlet = tensorboard(home / folder.TENSORBOARD, by="iteration", resumed_at=version)
        boards = [finite_part(stack.enter_context(outlet))]
        if project := arguments.machine.wandb:
            name = f"{home.parent.name}-{home.name}"
            boards.append(finite_part(stack.enter_context(wandb_sink(home, project, name=name))))
        bar = stack.enter_context(progress(arguments.episodes.steps, unit="updates", by="iteration", show=shown))

        def out(row: Row) -> None:
            file(row)
            for board in boards:
                board(row)
            bar({name: value for name, value in row.items() if math.isfinite(value)})

        yield Meter(arguments, task, out)


def mean_figures(samples: Sequence[Sample]) -> dict[str, float]:
    """Return the mean of each figure. Raises: ChoiceError where there are no samples.

    >>> made = [Sample((), {"accuracy": value}, "success", 0, 0, 1) for value in (1.0, 0.0)]
    >>> mean_figures(made)["accuracy"]
    0.5
    """
    if not samples:
        raise ChoiceError(message("figures_of: samples", got="empty", wanted="at least one", remedy="wait for some"))
    return {name: sum(sample.figures[name] for sample in samples) / len(samples) for name in samples[0].figures}
