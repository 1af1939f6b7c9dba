"""What `unchanged` replays in a process of its own: asynchronous training on samples that were recorded once.

    python -m benchmarks.parts.unchanged_side RUN SAMPLES OUT

RUN is a recorded run, of which only arguments and tokenizer are read; SAMPLES holds the weights before its first update and
what each update learned from. The updates are made again, by each of the losses in `LOSSES`; OUT/NAME then holds metrics and a
checkpoint of the learner as a run's folder does. `--record` trains such a run in this process and writes RUN and SAMPLES.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch

from purestep import Transcript
from purestep.core.record import take
from purestep.runtime.async_rl import run_phase, training_phase
from purestep.runtime.async_rl.run import arguments_in
from purestep.runtime.async_rl.training_phase import Phase, segment_wise
from purestep.runtime.cli import main as cli
from purestep.runtime.effects.checkpoint.single import save
from purestep.runtime.effects.checkpoint.tensor_file import read_tensors, write_tensors
from purestep.runtime.runs.arguments import changed
from purestep.runtime.text.components import text_components
from purestep.runtime.text.training_loop import learning_components

from .ranks_agree_side import READ, batches_of, compact

# where they were before, too, as `unchanged` runs this file with older commits
learning_of: Any = vars(run_phase)["learning_of"]
Sample: Any = vars(training_phase)["Sample"]
stacked: Any = vars(training_phase)["stacked"]
with_versions: Any = vars(training_phase).get("SampleWithProximal", lambda sample: sample)

LOSSES: Mapping[str, Mapping[str, str]] = {
    "segment_wise": {"loss": "decoupled", "proximal": "segment_wise"},
    "recomputed": {"loss": "decoupled", "proximal": "recomputed"},
    "interpolated": {"loss": "decoupled", "proximal": "interpolated"},
    "plain": {"loss": "plain"},
}
RUN_WORDS = (  # of the recorded run
    *("train", "zorplex", "--mode", "async", "--no-compare", "--generators", "2", "--generator-engine", "thread"),
    *("--staleness", "2", "--loss", "decoupled", "--proximal", "segment_wise", "--generator-slots", "8"),
    *(
        "--kind",
        "simple",
        "--words",
        "letters",
        "--width",
        "24",
        "--layers",
        "1",
        "--heads",
        "2",
        "--vocabulary",
        "280",
    ),
    *("--warm-steps", "300", "--demonstrations", "400", "--groups", "4", "--samples", "4", "--steps", "6"),
    *("--max-turns", "3", "--max-new-tokens", "12", "--capacity", "64", "--held-out", "32", "--save-every", "6"),
    *("--skill", "0.35", "--format", "0.1", "--tool-spam", "0.1", "--muon-precision", "bfloat16"),
    *("--minibatches", "2", "--kl", "0"),
)
KEPT = (".purestep.json", "arguments.json", "before.json", "tokenizer", "async")  # of the run's folder
LEFT = ("tensorboard", "step_000000")  # of what is in them


def record(run: Path, samples: Path) -> None:
    """Trains the run and writes down its weights before the first update, and what each update learned from."""
    held = dict[str, Any]()
    arrived, train = Phase.arrived, Phase.train
    whole = dict[Any, Any]()

    def arriving(self: Phase, name: Any, sample: Any) -> None:
        whole[name] = sample
        arrived(self, name, sample)

    def training(self: Phase, command: Any) -> Any:
        if not held:
            held.update({f"policy.{name}": leaf for name, leaf in self.learning.state.params.policy.items()})
        batch = stacked([whole[name] for name in command.samples])
        columns = compact(batch, (*READ, "version"))
        held.update({f"batch.{command.version}.{name}": column for name, column in columns.items()})
        return train(self, command)

    Phase.arrived, Phase.train = arriving, training  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "run"
        if code := cli.main([*RUN_WORDS, "--run", str(place)]):
            raise SystemExit(code)
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir(parents=True)
        for each in KEPT:
            if (place / each).is_dir():
                shutil.copytree(place / each, run / each, ignore=shutil.ignore_patterns(*LEFT))
            else:
                shutil.copy(place / each, run / each)
    write_tensors(samples, held)


def replayed(run: Path, held: Mapping[str, torch.Tensor], out: Path, changes: Mapping[str, str]) -> None:
    """The updates of the recorded run again, by another loss where `changes` say so."""
    arguments = changed(arguments_in(run), dict(changes))
    parts = text_components(arguments, run / "tokenizer")
    algorithm, _ = learning_components(arguments, parts)
    policy = {
        name: held[f"policy.{name}"] for name in parts.begin()
    }  # in this order: the gradient's norm is a sum over it
    learning = learning_of(arguments, parts, 0, algorithm.init(policy), {})
    rows = []
    for version, batch in enumerate(batches_of(held, torch.float32)):
        given = {place: with_versions(sample_at(batch, place)) for place in range(len(batch.token))}
        if segment_wise(arguments):
            given = learning.with_proximal(given)
        learned = learning.update(version, [getattr(one, "sample", one) for one in given.values()])
        rows.append({"iteration": version + 1, **learned.figures})
    save(out, len(rows), {"learner": learning.state})
    (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def sample_at(batch: Transcript, place: int) -> Any:
    """A sample of a batch; nothing that reports say of it."""
    row = take(batch, [place])
    made = row.version[row.is_action].tolist()
    return Sample(row=row, figures={}, mode="", head=min(made), tail=max(made), tokens=len(made))


def main() -> int:
    """The exit code of this process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parts.unchanged_side", description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("samples", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--record", action="store_true", help="train the run anew")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.record:
        record(options.run, options.samples)
        return 0
    held = read_tensors(options.samples)
    for name, changes in LOSSES.items():
        replayed(options.run, held, options.out / name, changes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
