"""What is told of a run with generators: figures from its files, checked by hand; audits, replays, pictures, commands."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

pytest.importorskip("transformers")

from purestep.core.errors import CheckpointError, ChoiceError, StructureError
from purestep.properties import check
from purestep.runtime.async_rl import report
from purestep.runtime.async_rl import run as session
from purestep.runtime.async_rl.audit import audited
from purestep.runtime.async_rl.replay import fold_rows, replay_phase
from purestep.runtime.async_rl.scheduler.state import Schedule
from purestep.runtime.async_rl.scheduler.timeline import Span, merged, shifts
from purestep.runtime.async_rl.training_phase import Phase
from purestep.runtime.cli import main
from purestep.runtime.effects import folder
from purestep.runtime.effects.json_lines import objects
from purestep.runtime.effects.reporting import plot, timeline_picture
from purestep.runtime.machine.json_codec import encode, json_line
from purestep.runtime.recipes.zorplex import zorplex_defaults
from purestep.runtime.runs import run as runs
from purestep.runtime.runs.arguments import changed
from purestep.runtime.runs.kinds import with_generators
from purestep.runtime.runs.recipe import SessionResult
from purestep.runtime.text import run as turns
from purestep.runtime.text.evaluation import wilson

from ...laws.async_rl.auditing import auditing_laws
from ...laws.async_rl.comparing import comparing_laws, own_comparing
from ...laws.async_rl.replaying import replaying_laws
from ...laws.async_rl.timeline import own_timing, timeline_laws
from ...support.run_folders import begun

Rows = list[dict[str, Any]]
Said = pytest.CaptureFixture[str]

test_timeline_laws = check(timeline_laws(), own_timing())
test_auditing_laws = check(auditing_laws(), audited)
test_comparing_laws = check(comparing_laws(), own_comparing())
test_replaying_laws = check(replaying_laws(), fold_rows)


# --- a run as files: two updates of one group of two samples, in turns and at once ---


def standing(right: int, tasks: int = 100) -> dict[str, Any]:
    low, high = wilson(right, tasks)
    names = ("format", "meant", "reward", "turns", "tool_calls", "tokens")
    modes = {"success": right / tasks, "wrong_format": 0.0, "tool_spam": 0.0, "wrong_answer": 1 - right / tasks}
    shares = {"accuracy": right / tasks, "accuracy_low": low, "accuracy_high": high}
    return {"attempts": tasks, **shares, **dict.fromkeys(names, 1.0), "modes": modes}


def span(actor: str, kind: str, begin: float, end: float, version: int) -> dict[str, Any]:
    return {"actor": actor, "kind": kind, "begin": begin, "end": end, "version": version}


def told(kind: str, **fields: int) -> dict[str, Any]:
    return {"command": 0, "kind": "dispatch", "event": {"$tag": kind, **fields}}


def finished(name: tuple[int, int, int], tokens: int, head: int, tail: int) -> dict[str, Any]:
    group, seat, attempt = name
    return told("finished", group=group, seat=seat, attempt=attempt, tokens=tokens, head=head, tail=tail)


IN_TURNS = [
    span("generator 0", "generate", 1.0, 3.0, 0),
    span("generator 1", "generate", 1.0, 2.0, 0),
    span("trainer", "train", 3.0, 4.0, 0),
    span("trainer", "publish", 4.0, 4.5, 1),
    span("trainer", "save", 4.0, 5.0, 1),
    span("generator 0", "generate", 4.5, 6.5, 1),
    span("generator 1", "sync", 4.5, 5.0, 1),
    span("generator 1", "generate", 5.0, 6.0, 1),
    span("trainer", "train", 6.5, 7.5, 1),
    span("trainer", "publish", 7.5, 8.0, 2),
]
AT_ONCE = [
    span("generator 0", "generate", 0.5, 3.5, 0),
    span("generator 0", "generate", 3.5, 5.0, 1),
    span("generator 2", "generate", 1.0, 4.0, 0),
    span("trainer", "recompute", 2.0, 2.5, 0),
    span("trainer", "train", 2.5, 3.5, 0),
    span("trainer", "train", 3.5, 4.5, 1),
]
LEDGERS: dict[str, Rows] = {
    "sync": [
        {"version": 0, "samples": [[0, 0, 0, 0, 0, 0, 5], [0, 1, 0, 1, 0, 0, 7]]},
        {"version": 1, "samples": [[1, 0, 0, 2, 1, 1, 6], [1, 1, 0, 3, 1, 1, 6]]},
    ],
    "async": [
        {"version": 0, "samples": [[0, 0, 0, 0, 0, 0, 5], [0, 1, 1, 1, 0, 0, 7]]},
        {"version": 1, "samples": [[1, 0, 0, 2, 0, 1, 6], [1, 1, 0, 3, 1, 1, 6]]},
    ],
}
CHUNKS = {"sync": [], "async": [(0, 1, 0, 4), (1, 0, 0, 6), (2, 0, 0, 3)]}  # group, seat, attempt, tokens
TOTALS = {
    "version": 2,
    "sessions": 1,
    "submitted": 8,
    "waiting": 3,
    "running": 1,
    "accepted": 4,
    "rejected": 0,
    "filtered": 0,
    "consumed": 4,
    "queued": 0,
    "cached": 0,
    "ignored": 0,
    "tokens_used": 24,
    "lost_generators": 0,
    "tool_failures": 0,
    "generators": 2,
    "batch": 2,
    "group": 2,
}
OWN = {
    "sync": {"seconds": 9.0, "staleness": 0, "tokens_wasted": 0},
    "async": {"seconds": 5.0, "staleness": 1, "tokens_wasted": 4, "lost_generators": 1},
}


def write(path: Path, rows: Rows) -> None:
    path.write_text("".join(json_line(row) + "\n" for row in rows))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose numbers one can check by hand."""
    home = tmp_path / "run"
    own = {"mode": "async", "generators": 2, "groups": 1, "samples": 2, "steps": 2, "staleness": 1}
    folder.write_json(tmp_path / "arguments.json", {})
    begun(home, encode(turns.text_record(changed(zorplex_defaults(), own))))
    folder.write_json(home / "before.json", {"sampled": standing(40), "greedy": standing(44)})
    for name, spans, right in (("sync", IN_TURNS, 60), ("async", AT_ONCE, 70)):
        (home / name).mkdir()
        write(home / name / "timeline.jsonl", spans)
        write(home / name / "ledger.jsonl", LEDGERS[name])
        events = [{"session": 1, "version": 0, "generators": 2, "slots": 1}]
        for group, seat, attempt, tokens in CHUNKS[name]:
            events.append(told("token_chunk", group=group, seat=seat, attempt=attempt, tokens=tokens, version=0))
        for row in LEDGERS[name]:
            events += [finished(tuple(one[:3]), one[6], one[4], one[5]) for one in row["samples"]]
            events.append(told("consumed", version=row["version"]))
        write(home / name / "events.jsonl", events)
        each = {"rollout_seconds": 2.0, "update_seconds": 1.0, "proximal_seconds": 0.25, "accuracy": 0.5}
        write(home / name / "metrics.jsonl", [{"iteration": n, "steps": 2 * n, "seconds": n, **each} for n in (1, 2)])
        folder.write_json(home / name / "totals.json", {**TOTALS, **OWN[name]})
        folder.write_json(
            home / name / "evaluation.json", {"after": {"sampled": standing(right), "greedy": standing(90)}}
        )
    return home


def test_figures_of_a_phase_are_those_of_its_files(run: Path) -> None:
    held = report.phase_of(run, "sync")
    assert (held.start, held.working()) == (1.0, 8.0)
    trainer, first, second = held.shifts
    assert (trainer.busy, trainer.idle) == (3.5, 4.5)
    assert trainer.kinds == {"train": 2.0, "publish": 1.0, "save": 1.0}
    assert (first.busy, second.busy, second.kinds) == (4.0, 2.5, {"generate": 2.0, "sync": 0.5})
    assert held.trainer_at_work() == 3.5 / 8
    assert held.generators_at_work() == (4.0 + 2.5) / 16
    assert (held.ages, held.mean_age(), held.largest_age()) == ((4,), 0.0, 0)
    assert (held.tokens_sampled, held.tokens_used, held.tokens_wasted) == (24, 24, 0)
    assert (held.waited, held.updated, held.anchored) == ((4.0 - 1.0) / 2, 1.0, 0.25)

    held = report.phase_of(run, "async")
    assert (held.start, held.ages, held.mean_age(), held.largest_age()) == (0.5, (3, 1), 0.25, 1)
    assert (
        held.tokens_sampled == 24 + 4 + 3
    )  # an attempt given up, and one under way; chunks of what was whole count once
    assert held.generators_at_work() == pytest.approx((4.5 + 3.0) / (2 * 4.5))
    assert held.lost_generators == 1


def test_ratios_are_async_by_sync_and_what_is_better_is_read_off_them(run: Path) -> None:
    text, written = report.write_comparison(run), json.loads((run / "comparison.json").read_text())
    assert (run / "comparison.txt").read_text() == text + "\n"
    wanted = {
        "wall seconds": 5.0 / 9.0,
        "seconds an update": 2.25 / 4.0,
        "samples learned from a second": (4 / 4.5) / (4 / 8),
        "tokens sampled a second": (31 / 4.5) / (24 / 8),
        "trainer at work, share": (2.5 / 4.5) / (3.5 / 8),
    }
    for name, value in wanted.items():
        assert written["ratios"][name] == pytest.approx(value)
    assert written["figures"]["async"]["tokens not used at the end"] == 31 - 24 - 4
    assert written["ages"] == {"sync": [4], "async": [3, 1]}
    assert written["wrong"] == {"sync": [], "async": []}
    rows = {row[:32].strip(): row[32:].split() for row in text.splitlines()}
    assert rows["wall seconds"] == ["9.0", "5.0", "0.556", "async"]
    assert rows["age, mean updates"] == ["0.000", "0.250", "sync"]
    assert rows["generators lost"] == ["0", "1"]
    speed = "0.562 of the seconds for an update, 1.78 times as many updates a second"
    assert f"speed, async by sync: {speed}" in text
    assert "speed, async by sync: 1.78 times as many tokens learned from a second" in text
    assert "not those of the same work" not in text
    assert "accuracy, sync less before: +0.200 [+0.061, +0.328], better" in text
    assert "accuracy, async less sync: +0.100 [-0.032, +0.227], no difference that 100 tasks show" in text
    assert "audit, async: 2 updates learned from 4 samples in 2 groups, each once, 1 update old at most" in text


def test_samples_of_another_length_are_told_beside_the_speed(run: Path) -> None:
    folder.write_json(run / "async" / "totals.json", {**TOTALS, **OWN["async"], "tokens_used": 30})
    assert "samples of 1.25 times the tokens, so that" in report.comparison(run).text()


def test_one_phase_alone_has_a_table_without_ratios(run: Path) -> None:
    (run / "sync" / "totals.json").unlink()
    held = report.comparison(run)
    assert [one.name for one in held.phases] == ["async"]
    assert held.ratios() == {}
    assert "better" not in held.text().splitlines()[1]
    assert "async less before" in held.text()


def test_a_run_without_a_phase_that_has_ended_says_how_to_go_on(run: Path) -> None:
    for name in ("sync", "async"):
        (run / name / "evaluation.json").unlink()
    with pytest.raises(
        CheckpointError, match=r"without a phase that has ended, wanted one; go on with it: purestep resume"
    ):
        report.comparison(run)


# --- audits ---


def edited(run: Path, change: Callable[[Rows], Rows], file: str = "ledger.jsonl") -> tuple[str, ...]:
    """What the audit finds in a phase one of whose files was changed."""
    path = run / "async" / file
    write(path, change(list(objects(path))))
    return report.audit(run, "async").wrong


FAULTS: dict[str, tuple[Callable[[Rows], Rows], str]] = {
    "lost": (lambda rows: [rows[0], {**rows[1], "samples": rows[1]["samples"][:1]}], "1 samples of 2"),
    "an update lost": (lambda rows: rows[1:], "update 0 is missing"),
    "the last update lost": (lambda rows: rows[:1], "update 1 was told to be made and is not written down"),
    "twice": (
        lambda rows: [rows[0], {**rows[1], "samples": rows[0]["samples"]}],
        "seat 0 of group 0 was learned from 2 times, by updates",
    ),
    "too old": (
        lambda rows: [*rows, {"version": 2, "samples": [[7, 0, 0, 4, 0, 2, 5], [7, 1, 0, 5, 2, 2, 5]]}],
        "sample (7, 0, 0) was 2 updates old at update 2, allowed 1",
    ),
    "torn": (
        lambda rows: [
            {**rows[0], "samples": [rows[0]["samples"][0], rows[1]["samples"][1]]},
            {**rows[1], "samples": [rows[1]["samples"][0], rows[0]["samples"][1]]},
        ],
        "group 0 was spread over updates [0, 1]",
    ),
    "of other tokens": (
        lambda rows: [rows[0], {**rows[1], "samples": [[1, 0, 0, 2, 0, 1, 9], rows[1]["samples"][1]]}],
        "told with (tokens, head, tail) = (6, 0, 1) and learned from with (9, 0, 1)",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_audit_names_what_is_wrong(run: Path, fault: str) -> None:
    change, said = FAULTS[fault]
    assert report.audit(run, "async").wrong == ()
    assert any(said in one for one in edited(run, change)), report.audit(run, "async").wrong


def test_an_audit_holds_counts_against_each_other(run: Path) -> None:
    folder.write_json(run / "async" / "totals.json", {**TOTALS, **OWN["async"], "accepted": 5})
    found = report.audit(run, "async").wrong
    assert "submitted is 8, waiting + running + accepted + rejected 9" in found
    assert "accepted is 5, consumed + filtered + queued + cached 4" in found
    assert "accepted is 5, told to be whole 4" in found


def test_a_phase_that_has_not_ended_is_audited_as_far_as_it_is(run: Path) -> None:
    (run / "async" / "totals.json").unlink()
    with (run / "async" / "ledger.jsonl").open("a") as file:
        file.write('{"version": 2, "samp')
    found = report.audit(run, "async")
    assert (found.updates, found.whole, found.wrong) == (2, False, ())
    with pytest.raises(CheckpointError, match="no phase of a run, wanted one of"):
        report.audit(run, "other")


def test_a_line_that_is_no_object_is_named(run: Path) -> None:
    (run / "sync" / "ledger.jsonl").write_text('{"version": 0, "samples": []}\n[1]\n')
    with pytest.raises(StructureError, match=r"line 2 of .*ledger\.jsonl is \[1\], wanted a JSON object"):
        report.audit(run, "sync")


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("ledger.jsonl", {"version": "0", "samples": []}),
        ("ledger.jsonl", {"version": 10**9, "samples": []}),
        ("ledger.jsonl", {"version": 0, "samples": [[1, 2]]}),
        ("ledger.jsonl", {"version": 0, "samples": [[1, 1, 1, 1, 1, 1, "a"]]}),
        ("events.jsonl", {"session": 1, "generators": 10**12, "slots": 1}),
        ("events.jsonl", {"event": 3}),
        ("events.jsonl", {"event": {"$tag": ["consumed"]}}),
        ("events.jsonl", {"event": {"$tag": "finished", "group": 0}}),
        ("timeline.jsonl", {"actor": "trainer", "kind": "train", "begin": "0", "end": 1.0, "version": 0}),
    ],
)
def test_a_row_of_other_types_is_named_by_its_line(run: Path, file: str, line: Any) -> None:
    (run / "sync" / file).write_text(json.dumps(line) + "\n")
    timeline = file == "timeline.jsonl"
    with pytest.raises(StructureError, match=rf"line 1 of .*{file} is .*, wanted a JSON object"):
        report.write_timeline(run, run / "timeline.png") if timeline else report.audit(run, "sync")


@pytest.mark.parametrize("held", [{}, {"version": 3}, {"version": "3"}], ids=str)
def test_totals_without_their_counts_are_named(run: Path, held: dict[str, Any]) -> None:
    (run / "sync" / "totals.json").write_text(json.dumps(held))
    with pytest.raises(StructureError, match=r"totals\.json is without a number of .*, wanted all counts of a phase"):
        report.audit(run, "sync")


# --- the timeline ---


def test_time_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ChoiceError, match=r"shifts: end is 1.0, wanted at least begin, 2.0"):
        shifts((), 2.0, 1.0)
    assert merged([Span("a", "train", 2.0, 1.0, 0)]) == ()


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures drawn, with all their parts."""
    found: list[Figure] = []
    save = plot.save_figure

    def keep(figure: Figure, out: Path) -> Path:
        found.append(figure)
        return save(figure, out)

    monkeypatch.setattr(timeline_picture, "save_figure", keep)
    return found


def bars(axes: Any) -> dict[int, set[tuple[float, float]]]:
    """From and to of all bars of each row."""
    found: dict[int, set[tuple[float, float]]] = {}
    for collection in axes.collections:
        for path in collection.get_paths():
            (left, low), (right, high) = path.vertices.min(axis=0), path.vertices.max(axis=0)
            found.setdefault(round((low + high) / 2 - 0.01), set()).add((round(left, 6), round(right, 6)))
    return found


def test_the_timeline_has_a_row_for_each_actor_on_one_scale(run: Path, tmp_path: Path, drawn: list[Figure]) -> None:
    out = report.write_timeline(run, tmp_path / "pictures" / "timeline.png")
    assert out.read_bytes().startswith(b"\x89PNG")
    sync, async_, close, other = drawn[0].axes
    assert [label.get_text() for label in sync.get_yticklabels()] == ["trainer", "generator 0", "generator 1"]
    assert [label.get_text() for label in async_.get_yticklabels()] == ["trainer", "generator 0", "generator 2"]
    assert sync.get_xlim() == async_.get_xlim()
    assert bars(sync)[1] == {(1.0, 3.0), (4.5, 6.5)}
    assert bars(sync)[2] == {(1.0, 2.0), (4.5, 5.0), (5.0, 6.0)}
    assert {"50 %", "36 %"} <= {text.get_text() for text in sync.texts}  # of 7 s: the picture ends with its last span
    assert {"v0", "v1"} <= {text.get_text() for text in other.texts}
    width = [axes.get_xlim()[1] - axes.get_xlim()[0] for axes in (close, other)]
    assert width[0] == pytest.approx(width[1])
    assert close.get_xlim()[0] == 3.0  # where the first of the updates in the middle begins


def test_the_ages_are_drawn_as_shares(run: Path, tmp_path: Path, drawn: list[Figure]) -> None:
    report.write_staleness(run, tmp_path / "ages.png")
    axes = drawn[0].axes[0]
    assert sorted(patch.get_height() for patch in axes.patches) == [25.0, 75.0, 100.0]  # type: ignore[attr-defined]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]  # type: ignore[union-attr]
    assert labels[1] == "async: 4 samples, mean 0.25, at most 1 of 1 allowed"


def test_actors_beyond_the_room_are_counted(tmp_path: Path, drawn: list[Figure]) -> None:
    spans = [Span(f"generator {n}", "generate", 0.0, 1.0 + n, 0) for n in range(14)]
    lane = timeline_picture.Lane(
        name="async",
        actors=tuple(one.actor for one in spans),
        spans=spans,
        close=spans,
        end=15.0,
        shares={},
        window=(),
    )
    timeline_picture.timeline_picture([lane], tmp_path / "many.png")
    assert drawn[0].axes[0].get_title(loc="left") == "async, at once: 15.0 s; 4 more actors are not drawn"


# --- commands ---

TINY = [
    *("--width", "16", "--layers", "1", "--heads", "2", "--warm-steps", "4", "--demonstrations", "8"),
    *("--warm-batch", "4", "--steps", "3", "--minibatches", "1", "--groups", "2", "--samples", "2", "--held-out", "4"),
    *("--max-turns", "2", "--max-new-tokens", "6", "--capacity", "48", "--mode", "async", "--generators", "1"),
    *("--generator-engine", "thread", "--generator-slots", "4"),
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the command line."""
    place = tmp_path_factory.mktemp("runs") / "one"
    assert main.main(["train", "zorplex", "--run", str(place), *TINY]) == 0
    return place


@pytest.mark.slow
def test_training_compares_draws_and_leaves_a_model(trained: Path, capsys: Said) -> None:
    assert main.main(["resume", str(trained)]) == 0
    said = capsys.readouterr().out
    assert f"timeline: {trained / 'timeline.png'}" in said
    assert f"model: {trained / 'model'}" in said
    assert "async/sync" in said
    assert "accuracy, async less sync" in said
    for name in ("comparison.json", "timeline.png", "staleness.png", "learning_curve.png", "model/config.json"):
        assert (trained / name).stat().st_size > 0
    assert math.isfinite(json.loads((trained / "comparison.json").read_text())["ratios"]["seconds an update"])


@pytest.mark.slow
def test_what_happened_can_be_gone_through_again(trained: Path, capsys: Said) -> None:
    for name in ("sync", "async"):
        assert replay_phase(trained, name).wrong == ()
    assert main.main(["replay", str(trained / "async")]) == 0
    said = capsys.readouterr().out
    assert "of 1 session give the scheduler of version 3 again, bit for bit" in said
    assert "3 updates learned from 12 samples in 6 groups, each once" in said
    assert main.main(["replay", str(trained.parent)]) == 1
    assert "no run with generators, wanted the folder of one" in capsys.readouterr().err


@pytest.mark.slow
def test_a_log_that_was_tampered_with_gives_another_scheduler(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    path = trained / "async" / "events.jsonl"
    rows, held = list(objects(path)), path.read_text()
    last = max(n for n, row in enumerate(rows) if row.get("event", {}).get("$tag") == "finished")
    changed_row = {**rows[last], "event": {**rows[last]["event"], "tokens": 999}}
    try:
        write(path, [*rows[:last], changed_row, *rows[last + 1 :]])
        assert replay_phase(trained, "async").wrong
        assert main.main(["replay", str(trained)]) == 1
        assert "do not give the scheduler of version 3" in capsys.readouterr().out
        write(path, rows[1:])
        with pytest.raises(StructureError, match="replay: the first row is"):
            replay_phase(trained, "async")
    finally:
        path.write_text(held)


@pytest.mark.slow
def test_such_a_run_is_evaluated_talked_to_and_drawn(trained: Path, tmp_path: Path, capsys: Said) -> None:
    assert main.main(["evaluate", str(trained), "--tasks", "2", "--phase", "sync"]) == 0
    assert "evaluation: accuracy" in capsys.readouterr().out
    assert main.main(["evaluate", str(trained)]) == 0
    said = capsys.readouterr().out
    assert "after async, greedy" in said
    assert "before, greedy" in said
    assert main.main(["chat", str(trained), "--task", "1"]) == 0
    assert "task 1 (right:" in capsys.readouterr().out
    assert main.main(["plot", str(trained), "--out", str(tmp_path / "pictures")]) == 0
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == [
        "learning_curve.png",
        "staleness.png",
        "timeline.png",
    ]
    out = tmp_path / "both.png"
    assert main.main(["plot", str(trained), str(trained), "--out", str(out), "--over", "seconds"]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")


def test_a_run_with_generators_is_not_begun_over_another_unasked(trained: Path, capsys: Said) -> None:
    words = ["train", "zorplex", "--run", str(trained), *TINY]
    assert main.main(words) == 1
    assert "a run with checkpoints, wanted a new folder; go on with it: purestep resume" in capsys.readouterr().err
    assert main.main([*words, "--mode", "sync", "--generators", "0"]) == 1
    assert "a run with checkpoints, wanted a new folder" in capsys.readouterr().err
    assert (trained / "async" / "ledger.jsonl").exists()


def test_ctrl_c_says_how_to_go_on(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said) -> None:
    def ended(*given: Any, **named: Any) -> SessionResult:
        return session.outcome_of(("sync",), True, {})

    def struck(*given: Any, **named: Any) -> SessionResult:
        raise KeyboardInterrupt

    monkeypatch.setattr(turns, "resume", ended)
    assert main.main(["resume", str(trained)]) == 130
    assert f"interrupted and saved; sync is over; go on with: purestep resume {trained}" in capsys.readouterr().err
    monkeypatch.setattr(turns, "resume", struck)
    assert main.main(["resume", str(trained)]) == 130
    assert f"stopped at once; purestep resume {trained} goes on from the last checkpoint" in capsys.readouterr().err
    monkeypatch.setattr(runs, "start", struck)
    assert main.main(["train", "zorplex", "--run", str(tmp_path / "none"), *TINY]) == 130
    assert "nothing was saved yet" in capsys.readouterr().err


def test_a_folder_of_somebody_else_is_not_removed(tmp_path: Path) -> None:
    begun(tmp_path / "run", {"recipe": "zorplex"})
    (tmp_path / "run" / "sync").mkdir()
    (tmp_path / "run" / "sync" / "mine").write_text("mine")
    folder.clear(tmp_path / "run", "ppo")
    assert (tmp_path / "run" / "sync" / "mine").read_text() == "mine"
    assert not (tmp_path / "run" / "arguments.json").exists()
    assert not with_generators(tmp_path / "run")


class Cut(BaseException):
    """A crash."""


@pytest.mark.slow
def test_a_run_that_was_cut_off_and_went_on_is_gone_through_over_its_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    place, save = tmp_path / "run", Phase.save

    def once(self: Phase, schedule: Schedule, events: int) -> None:
        save(self, schedule, events)
        if schedule.version == 2:
            raise Cut

    monkeypatch.setattr(Phase, "save", once)
    words = ["train", "zorplex", "--run", str(place), *TINY, "--no-compare", "--warm-steps", "0", "--steps", "4"]
    with pytest.raises(Cut):
        main.main(words)
    monkeypatch.setattr(Phase, "save", save)
    assert report.audit(place, "async").wrong == ()
    assert (
        replay_phase(place, "async").line().endswith("of 1 session give the scheduler of version 2 again, bit for bit")
    )
    assert main.main(["resume", str(place)]) == 0
    assert "async/sync" not in capsys.readouterr().out
    assert (
        replay_phase(place, "async").line().endswith("of 2 sessions give the scheduler of version 4 again, bit for bit")
    )
    assert report.audit(place, "async").wrong == ()
