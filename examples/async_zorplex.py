"""Sampling and learning in turns, and at once: the same training twice, as a notebook with two sliders, or as a script.

    marimo edit examples/async_zorplex.py                                 # a notebook (the extras `notebook` and `llm`)
    python examples/async_zorplex.py --steps 5 --generators 1             # the same, printed
    python examples/async_zorplex.py --steps 5 --warm-steps 50 --staleness 4   # other words go to `purestep train zorplex`

Each cell says what it shows; numbers are those of the run, and so is what is said to be faster or better.
"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="In turns, and at once")

with app.setup:
    import json
    from collections import Counter
    from pathlib import Path

    import marimo as mo

    from purestep.runtime.cli.main import main as purestep

    MOST = {"steps": 200, "generators": 4}  # the ends of the sliders

    def rows(path: Path) -> list[dict]:
        """Those of a file that holds one JSON object a line."""
        return [json.loads(line) for line in path.read_text().splitlines()]

    def trained(run: Path) -> list[str]:
        """The ways in which a run has trained: with `--no-compare` it is one."""
        return [name for name in ("sync", "async") if (run / name / "evaluation.json").exists()]

    def picture(path: Path):
        """A picture of the run; as a script, its path."""
        print(path)
        return mo.image(path)


@app.cell(hide_code=True)
def _():
    mo.md("""
    # In turns, and at once

    A small language model learns to look words up with a tool and to add what it was told. Whoever samples (the
    *generators*, processes of their own) and whoever learns (the *trainer*) can work

    - **in turns**: everybody samples, then the trainer learns, then everybody gets the new weights. Somebody always waits;
    - **at once**: generators go on while the trainer learns. New weights reach them in the middle of an attempt, so that
      each token knows the version that made it. Samples are older than the weights they change, up to a bound.

    The same program does both; in turns means a bound of 0.
    """)
    return


@app.cell
def _():
    given = mo.cli_args().to_dict()
    asked = {name: int(given.pop(name, usual)) for name, usual in {"steps": 20, "generators": 2}.items()}
    for name, number in asked.items():
        if not 1 <= number <= MOST[name]:
            raise SystemExit(f"--{name} is {number}, wanted from 1 to {MOST[name]}, where its slider ends; change it")
    more = [word for name, value in given.items() for word in (f"--{name}", str(value)) if word]
    return asked, more


@app.cell
def _(asked):
    steps = mo.ui.slider(1, MOST["steps"], value=asked["steps"], debounce=True, show_value=True, label="Training steps")
    generators = mo.ui.slider(
        1, MOST["generators"], value=asked["generators"], debounce=True, show_value=True, label="Generators"
    )
    mo.vstack([steps, generators])
    return generators, steps


@app.cell(hide_code=True)
def _():
    mo.md("""
    A slider that is let go trains anew: a warm start on demonstrations of which only a third is right, then the given
    number of training steps in turns, and as many at once from the same warm start. Each step learns from 128 attempts.
    On two cores more than two generators have no core to run on: they share those there are, and the trainer's.
    """)
    return


@app.cell
def _(generators, more, steps):
    run = Path("runs") / f"async-zorplex-{steps.value}-steps-{generators.value}-generators"
    words = [
        "--steps",
        str(steps.value),
        "--generators",
        str(generators.value),
        "--run",
        str(run),
        "--overwrite",
        *more,
    ]
    code = purestep(["train", "zorplex", "--mode", "async", *words])
    mo.stop(code != 0, mo.md(f"It ended with exit code {code}; what it said stands below the cell."))
    return (run,)


@app.cell(hide_code=True)
def _():
    mo.md("""
    ## Before and after

    On tasks that training never draws, with the weights before reinforcement and after each way to train. *format* is the
    share of attempts that end with an answer: where it rises and accuracy does not, the model has learned to guess.
    """)
    return


@app.cell
def _(run):
    before = json.loads((run / "before.json").read_text())["sampled"]
    after = {
        name: json.loads((run / name / "evaluation.json").read_text())["after"]["sampled"] for name in trained(run)
    }
    standings = [
        {
            "weights": name,
            "accuracy": f"{told['accuracy']:.3f}",
            "95 % interval": f"{told['accuracy_low']:.3f} to {told['accuracy_high']:.3f}",
            "format": f"{told['format']:.3f}",
            "turns": f"{told['turns']:.2f}",
            "tool calls": f"{told['tool_calls']:.2f}",
            "most frequent ending": max(told["modes"], key=told["modes"].get),
        }
        for name, told in {"before": before, **{f"after {name}": told for name, told in after.items()}}.items()
    ]
    for standing in standings:
        print(", ".join(f"{name} {value}" for name, value in standing.items()))
    mo.ui.table(standings, selection=None)
    return


@app.cell(hide_code=True)
def _():
    mo.md("""
    ## Side by side

    Ratios are at once divided by in turns. Whether it is faster *per step* and whether it makes *more samples a second*
    are two questions: steps that take less time on older samples are no gain if more of them are needed.
    """)
    return


@app.cell
def _(run):
    mo.plain_text((run / "comparison.txt").read_text())
    return


@app.cell(hide_code=True)
def _():
    mo.md("""
    ## Who did what, when

    A row for each actor. In turns, look for the gaps: generators wait for weights, the trainer for samples. At once,
    rows overlap. Generators that pause there have been held back: more attempts would be too old when their turn comes.
    """)
    return


@app.cell
def _(run):
    picture(run / "timeline.png")
    return


@app.cell(hide_code=True)
def _():
    mo.md("""
    ## How old samples were

    The age of a sample is the version that learned from it, less the version that made its first token. It is counted
    before the update, so that in turns it is 0. None is learned from beyond the bound; what that cost is in the table, as
    tokens that were thrown away.
    """)
    return


@app.cell
def _(run):
    for phase in trained(run):
        ages = Counter(
            row["version"] - head for row in rows(run / phase / "ledger.jsonl") for *_, head, _, _ in row["samples"]
        )
        counted = ", ".join(f"{ages[age]} of age {age}" for age in sorted(ages))
        print(f"{phase}: {counted}")
    picture(run / "staleness.png")
    return


@app.cell(hide_code=True)
def _():
    mo.md("""
    ## To try

    - One generator: what is left to overlap?
    - `-- --staleness 0`, or 4, when the notebook is opened: the bound against speed and accuracy.
    - `-- --loss decoupled`: the ratio to the sampler's policy apart from the one that the step is clipped by.
    - Kill a generator (`kill -9`) while it trains: another one takes its place, and its work is given out again.
    """)
    return


if __name__ == "__main__":
    app.run()
