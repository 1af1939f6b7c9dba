"""Pages of runs from the files in their folders: what they hold, what they leave out, and that texts stay texts."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from purestep.core.errors import ChoiceError, StructureError
from purestep.runtime.cli import main
from purestep.runtime.effects import folder
from purestep.runtime.effects.reporting import page_charts
from purestep.runtime.effects.reporting.run_page import About, run_page, steps_of

from ...support.run_folders import begun

HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)">&amp;'
EVERY = steps_of("")
Said = pytest.CaptureFixture[str]


def conversation(step: int, number: int = 0, text: str = "[ANSWER] 5") -> dict[str, Any]:
    said: dict[str, Any] = {"role": "assistant", "ids": [7], "text": text, "pieces": [text]}
    said |= {"log_probs": [-0.5], "versions": [step], "advantages": [1.0], "finish_reason": "stop", "reward": 1.0}
    asked = {"role": "user", "ids": [1, 2], "text": "2 + 3?"}
    facts = {"reward": 1.0, "parts": {"right": 1.0}, "end": "terminated", "label": "terminated", "error": ""}
    return {"step": step, "id": number, "group": number, **facts, "messages": [asked, said]}


def written(home: Path, rows: list[dict[str, Any]]) -> Path:
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    (home / "conversations.jsonl").write_text(text)
    return home


def about(**given: Any) -> About:
    return About(**{"title": "sums", "settings": {"steps": 9}, "changed": frozenset(), "absent": "none", **given})


def page(run: Path, *, most: int = 1 << 20, steps: str = "", **given: Any) -> str:
    return run_page(run, about(**given), steps=steps_of(steps), most=most)


class Parts(HTMLParser):
    """The tags of a page with their attributes, and the text of its data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def shown(text: str) -> list[dict[str, Any]]:
    """The conversations in a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    rows: list[dict[str, Any]] = json.loads(found[1])
    return rows


# --- conversations ---


def test_a_page_holds_the_conversations_as_they_are_in_the_file(tmp_path: Path) -> None:
    rows = [conversation(step, number) for step in (1, 2) for number in (0, 1)]
    assert shown(page(written(tmp_path, rows))) == rows


def test_phases_are_named(tmp_path: Path) -> None:
    for phase in ("sync", "async"):
        (tmp_path / phase).mkdir()
        written(tmp_path / phase, [conversation(1)])
    assert [row["phase"] for row in shown(page(tmp_path))] == ["sync", "async"]


@pytest.mark.parametrize(("steps", "wanted"), [("3", [3]), ("2-3", [2, 3]), ("9", []), ("", [1, 2, 3, 4])])
def test_steps_can_be_chosen(tmp_path: Path, steps: str, wanted: list[int]) -> None:
    run = written(tmp_path, [conversation(step) for step in (1, 2, 3, 4)])
    assert [row["step"] for row in shown(page(run, steps=steps))] == wanted


@pytest.mark.parametrize("text", ["x", "4-3", "-1", "1-", "1.5", "1-2-3"])
def test_a_range_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ChoiceError, match=r"--steps is '.*', wanted a step, or a range such as 40-60"):
        steps_of(text)


def test_of_many_steps_some_are_shown_evenly_spread_and_the_page_says_so(tmp_path: Path) -> None:
    rows = [conversation(step) for step in range(1, 41)]
    size = len(json.dumps(rows[-1], separators=(",", ":"))) + 1
    text = page(written(tmp_path, rows), most=10 * size)
    assert [row["step"] for row in shown(text)] == list(range(4, 41, 4))
    assert "The page has the conversations of one step in 4; --steps 40-60 shows those of a range" in text
    assert "one step in" not in page(tmp_path, most=40 * size).split('id="data"')[0]


def test_one_step_longer_than_a_page_is_shown_in_part(tmp_path: Path) -> None:
    rows = [conversation(1, number) for number in range(8)]
    size = len(json.dumps(rows[-1], separators=(",", ":"))) + 1
    text = page(written(tmp_path, rows), most=5 * size)
    assert [row["id"] for row in shown(text)] == [0, 1, 2, 3, 4]
    assert "Left out, as too long for the page or not readable: 3 of them." in text


@pytest.mark.parametrize("line", ['{"step":2,', '{"step":2,"messages":[{"role":1}]}', '{"step":2,"messages":3}'])
def test_lines_that_cannot_be_read_are_left_out_and_counted(tmp_path: Path, line: str) -> None:
    written(tmp_path, [conversation(1)])
    with (tmp_path / "conversations.jsonl").open("a") as file:
        file.write(line + '\n{"step":3,"mess')
    text = page(tmp_path)
    assert [row["step"] for row in shown(text)] == [1]
    assert "not readable: 1 of them." in text


def test_a_range_without_conversations_names_those_there_are(tmp_path: Path) -> None:
    text = page(written(tmp_path, [conversation(step) for step in (2, 3)]), steps="7-9")
    assert "There are no conversations of these steps; those of steps 2 to 3 are there." in text
    assert 'id="browser"' not in text


def test_a_run_without_conversations_says_how_to_keep_them(tmp_path: Path) -> None:
    text = page(tmp_path, absent="train with --keep-conversations 16")
    assert '<h2 id="conversations">' in text
    assert "train with --keep-conversations 16" in text
    assert 'id="browser"' not in text
    assert '<h2 id="conversations">' not in page(tmp_path, absent="")


# --- texts ---


def test_no_text_of_a_run_becomes_part_of_the_page(tmp_path: Path) -> None:
    run = tmp_path / "a&b<i>"
    run.mkdir()
    row = conversation(1, text=HOSTILE)
    row |= {"label": HOSTILE, "error": HOSTILE, "parts": {HOSTILE: 1.0}}
    written(run, [row])
    (run / "metrics.jsonl").write_text(
        "".join(json.dumps({"iteration": step, HOSTILE: float(step)}) + "\n" for step in (1, 2))
    )
    folder.write_json(run / "before.json", {"sampled": {HOSTILE: 1.0}, "greedy": {}})
    settings = {HOSTILE: HOSTILE, "other": [HOSTILE]}
    text = page(run, title=HOSTILE, settings=settings, changed=frozenset(settings), absent=HOSTILE)
    parts = Parts(text)
    assert {tag for tag, _ in parts.tags}.isdisjoint({"img", "i", "iframe", "link", "a"})
    assert [attributes.get("type") for tag, attributes in parts.tags if tag == "script"] == ["application/json", None]
    assert not [name for _, attributes in parts.tags for name in attributes if name.startswith("on")]
    assert shown(text) == [row]
    assert HOSTILE in "".join(parts.texts)


def test_a_page_loads_nothing_and_lets_its_own_script_alone_run(tmp_path: Path) -> None:
    written(tmp_path, [conversation(1)])
    parts = Parts(page(tmp_path))
    for _, attributes in parts.tags:
        assert {"src", "href", "srcset", "data", "action", "style"}.isdisjoint(attributes)
    (policy,) = [found["content"] for tag, found in parts.tags if "http-equiv" in found]
    assert re.fullmatch(
        r"default-src 'none'; script-src 'sha256-\S{44}'; style-src 'sha256-\S{44}'; base-uri 'none'; form-action 'none'",
        policy or "",
    )


# --- curves and tables ---


def metrics(home: Path, rows: list[dict[str, Any]]) -> None:
    (home / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def charts(text: str) -> dict[str, Any]:
    """The data of each chart of a page by its title."""
    parts = Parts(text)
    found = [json.loads(str(held["data-chart"])) for tag, held in parts.tags if "data-chart" in held]
    titles = re.findall(r"<figcaption>(.*?) <output>", text)
    return dict(zip(titles, found, strict=True))


def test_curves_of_a_classic_run_are_over_environment_steps(tmp_path: Path) -> None:
    metrics(
        tmp_path, [{"iteration": 1.0, "steps": 512.0 * i, "episode_return": 2.0 * i, "applied": 1.0} for i in (1, 2)]
    )
    text = page(tmp_path, absent="")
    assert charts(text) == {"episode return": {"x": "environment step", "curves": [["", [[512, 2], [1024, 4]]]]}}
    assert "The same in all steps: applied 1." in text
    assert "at step 1,024 of 9" in text


def test_curves_of_a_language_model_are_over_steps_after_the_warm_start(tmp_path: Path) -> None:
    warm = [{"iteration": i, "steps": 0.0, "warm_loss": 1.0 / i, "accuracy": "nan", "gradient_norm": i} for i in (1, 2)]
    after = [
        {"iteration": 2 + i, "steps": 8.0 * i, "warm_loss": "nan", "accuracy": i / 4, "gradient_norm": 9 + i}
        for i in (1, 2)
    ]
    metrics(tmp_path, [*warm, *after])
    assert charts(page(tmp_path)) == {
        "accuracy": {"x": "step", "curves": [["", [[1, 0.25], [2, 0.5]]]]},
        "warm loss": {"x": "iteration", "curves": [["", [[1, 1], [2, 0.5]]]]},
        "gradient norm": {"x": "step", "curves": [["", [[1, 10], [2, 11]]]]},
    }


def test_phases_share_a_chart_and_have_a_legend(tmp_path: Path) -> None:
    for phase, height in (("sync", 1.0), ("async", 2.0)):
        (tmp_path / phase).mkdir()
        rows = [{"iteration": i, "steps": 8.0 * i, "warm_loss": "nan", "accuracy": height * i} for i in (1, 2)]
        metrics(tmp_path / phase, rows)
    text = page(tmp_path)
    assert charts(text)["accuracy"]["curves"] == [["sync", [[1, 1], [2, 2]]], ["async", [[1, 2], [2, 4]]]]
    assert '<i class="c0"></i>sync</span><span><i class="c1"></i>async' in text


def test_metrics_that_are_none_are_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("[]\n")
    with pytest.raises(StructureError, match=r"line 1 of .*metrics\.jsonl"):
        page(tmp_path)


def test_evaluations_stand_side_by_side_with_their_intervals(tmp_path: Path) -> None:
    one = {"accuracy": 0.25, "accuracy_low": 0.125, "accuracy_high": 0.5, "attempts": 32, "modes": {"success": 0.25}}
    folder.write_json(tmp_path / "before.json", {"sampled": one, "greedy": one})
    folder.write_json(tmp_path / folder.EVALUATION, {"iteration": 3, "after": {"sampled": {**one, "accuracy": 0.375}}})
    text = page(tmp_path)
    table = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", text)]
    assert table == [
        ["", "before", "before, greedy", "after"],
        ["accuracy", *(f"{value} <small>[0.125, 0.500]</small>" for value in ("0.250", "0.250", "0.375"))],
        ["attempts", "32", "32", "32"],
        ["ended as success", "0.250", "0.250", "0.250"],
    ]


def test_a_long_curve_has_few_points_and_the_same_mean() -> None:
    points = [(float(place), float(place % 7)) for place in range(5000)]
    thin = page_charts.thinned(points)
    assert len(thin) <= page_charts.MOST
    assert sum(y for _, y in thin) / len(thin) == pytest.approx(sum(y for _, y in points) / len(points), abs=0.05)


# --- the command ---


def test_the_command_writes_a_page_and_replaces_only_its_own(tmp_path: Path, capsys: Said) -> None:
    run = begun(tmp_path / "run", {"recipe": "zorplex", "mode": "sync", "generators": -1, "keep_conversations": 0})
    assert main.main(["view", str(run)]) == 0
    assert capsys.readouterr().out == f"{run / 'view.html'}\n"
    text = (run / "view.html").read_text()
    assert "There are no conversations: none was kept; train with --keep-conversations 16 to keep those of" in text
    assert main.main(["view", str(run), "--out", str(tmp_path / "a" / "b.html")]) == 0
    assert (tmp_path / "a" / "b.html").read_text() == text
    (run / "view.html").write_text("mine")
    assert main.main(["view", str(run)]) == 1
    assert "page " in (said := capsys.readouterr().err)
    assert "a file that purestep did not draw" in said
    assert (run / "view.html").read_text() == "mine"
    folder_left = sorted(path.name for path in run.iterdir())
    assert folder_left == [".purestep.json", "arguments.json", "view.html"]


@pytest.mark.parametrize("words", [["--megabytes", "0"], ["--steps", "x"], ["--out", "/"]])
def test_the_command_refuses_in_one_line(tmp_path: Path, words: list[str], capsys: Said) -> None:
    run = begun(tmp_path / "run", {"recipe": "ppo"})
    assert main.main(["view", str(run), *words]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(("purestep: --", "purestep: page / is a folder"))


def test_a_run_of_an_absent_recipe_has_a_page(tmp_path: Path) -> None:
    run = begun(tmp_path / "run", {"recipe": "hill", "steps": 3})
    assert main.main(["view", str(run)]) == 0
    assert "<h1>hill</h1>" in (run / "view.html").read_text()


def test_a_new_run_removes_a_page_of_ours_alone(tmp_path: Path) -> None:
    run = begun(tmp_path / "run", {"recipe": "ppo"})
    assert main.main(["view", str(run)]) == 0
    folder.clear(run, "ppo")
    assert not (run / "view.html").exists()
    (run / "view.html").write_text("mine")
    with pytest.raises(Exception, match="a page that purestep did not write"):
        folder.clear(run, "ppo")
    assert (run / "view.html").read_text() == "mine"
