"""Pictures: the numbers in them are those of the runs, and drawing leaves nothing behind but a file."""

import math
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.image
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from purestep.core.errors import ChoiceError, ShapeError
from purestep.runtime.effects.reporting import plot
from purestep.runtime.effects.reporting.metrics import Row, jsonl
from purestep.runtime.effects.reporting.plot import average, bars, curve, learning_curve


def run(seed: int, rows: int = 60) -> list[Row]:
    return [
        {"steps": 100.0 * (index + 1), "episode_return": 20.0 + 8.0 * index * (1 + 0.1 * math.sin(seed + index))}
        for index in range(rows)
    ]


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures drawn, with all their parts."""
    drawn: list[Figure] = []
    save = plot.save_figure

    def keep(figure: Figure, out: Path) -> Path:
        drawn.append(figure)
        return save(figure, out)

    monkeypatch.setattr(plot, "save_figure", keep)
    return drawn


dyadic = st.integers(-64, 64).map(lambda value: value / 4)
points = st.lists(st.tuples(st.integers(0, 40), dyadic), min_size=1, max_size=12, unique_by=lambda point: point[0])


@given(points, st.integers(1, 15))
def test_a_curve_is_the_trailing_mean_in_order_of_x(values: list[tuple[int, float]], smooth: int) -> None:
    xs, ys = curve([{"x": float(x), "y": y} for x, y in values], "x", "y", smooth)
    ordered = sorted(values)
    assert xs.tolist() == [x for x, _ in ordered]
    for index, y in enumerate(ys):
        window = [value for _, value in ordered[max(0, index - smooth + 1) : index + 1]]
        assert y == pytest.approx(sum(window) / len(window), abs=1e-12)


def test_rows_without_a_finite_number_are_left_out() -> None:
    rows = [{"x": 1.0, "y": math.nan}, {"x": 2.0, "y": 5.0}, {"x": 3.0, "y": math.inf}, {"x": 4.0, "y": 7.0}]
    xs, ys = curve(rows, "x", "y", smooth=2)
    assert xs.tolist() == [2, 4]
    assert ys.tolist() == [5, 6]


@given(st.lists(points, min_size=2, max_size=4))
def test_the_mean_of_runs_is_theirs_at_every_x_that_all_cover(runs: list[list[tuple[int, float]]]) -> None:
    curves = [curve([{"x": float(x), "y": y} for x, y in values], "x", "y") for values in runs]
    first, last = max(xs[0] for xs, _ in curves), min(xs[-1] for xs, _ in curves)
    if first > last:
        with pytest.raises(ShapeError, match="wanted runs that overlap"):
            average(curves)
        return
    grid, mean, deviation = average(curves)
    assert (grid[0], grid[-1]) == (first, last)
    for x, m, s in zip(grid, mean, deviation, strict=True):
        values = [np.interp(x, *one) for one in curves]
        assert m == pytest.approx(np.mean(values), abs=1e-9)
        assert s == pytest.approx(np.std(values, ddof=1), abs=1e-9)


def test_many_points_are_drawn_as_a_thousand() -> None:
    xs = np.arange(5000.0)
    grid, mean, deviation = average([(xs, xs), (xs, 3 * xs)])
    assert len(grid) == 1000
    np.testing.assert_allclose(mean, 2 * grid)
    np.testing.assert_allclose(deviation, np.sqrt(2.0) * grid)


def test_seeds_become_one_mean_in_a_band(tmp_path: Path, figures: list[Figure]) -> None:
    out = learning_curve([run(s) for s in range(4)], tmp_path / "deep" / "a.png", title="A title", threshold=475)
    assert out == tmp_path / "deep" / "a.png"
    (axes,) = figures[0].axes
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["mean of 4 seeds ± 1 std", "solved (475)"]
    assert axes.get_title(loc="left") == "A title"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("environment steps", "mean episode return")
    thick = max(axes.lines, key=lambda drawn: float(drawn.get_linewidth()))
    expected = np.mean([[row["episode_return"] for row in run(s)] for s in range(4)], axis=0)
    np.testing.assert_allclose(np.asarray(thick.get_ydata()), expected)
    assert len(axes.collections) == 1
    assert len(axes.lines) == 4 + 1 + 1


def test_kinds_have_a_colour_and_a_label_each(tmp_path: Path, figures: list[Figure]) -> None:
    kinds = {"PPO": [run(0), run(1)], "A2C": [run(2)]}
    learning_curve(kinds, tmp_path / "a.png", x="steps", smooth=3, note="a note")
    (axes,) = figures[0].axes
    lines = {drawn.get_label(): drawn.get_color() for drawn in axes.lines if not str(drawn.get_label()).startswith("_")}
    assert list(lines) == ["PPO, mean of 2 seeds ± 1 std", "A2C"]
    assert len(set(lines.values())) == 2
    assert figures[0].get_supxlabel() == "a note"


def test_a_file_of_rows_is_drawn_as_the_rows(tmp_path: Path) -> None:
    with jsonl(tmp_path / "metrics.jsonl") as sink:
        for row in run(3):
            sink(row)
    one = learning_curve([tmp_path / "metrics.jsonl"], tmp_path / "a.png")
    two = learning_curve([run(3)], tmp_path / "b.png")
    assert one.read_bytes() == two.read_bytes()
    assert one.read_bytes() != learning_curve([run(4)], tmp_path / "c.png").read_bytes()
    assert not list(tmp_path.glob(".partial*"))


def test_the_picture_is_a_png_of_a_readable_size_with_ink_in_it(tmp_path: Path) -> None:
    image = matplotlib.image.imread(learning_curve([run(0)], tmp_path / "a.png", threshold=475.0))
    height, width, _ = image.shape
    assert (width, height) == (1200, 690)
    blue = np.abs(image[..., :3] - to_rgb(plot.COLOURS[0])).max(axis=-1) < 0.02
    assert blue.any(axis=0).mean() > 0.8
    assert (image[..., :3] > 0.99).all(axis=-1).mean() > 0.8


def test_a_run_without_data_or_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ShapeError, match="a run is without any finite 'episode_return'"):
        learning_curve([[{"steps": 1.0, "episode_return": math.nan}]], tmp_path / "a.png")
    with pytest.raises(ShapeError, match=r"m\.jsonl is without"), jsonl(tmp_path / "m.jsonl"):
        learning_curve([tmp_path / "m.jsonl"], tmp_path / "a.png")
    with pytest.raises(ChoiceError, match=r"column 'loss' is absent, wanted \['episode_return', 'steps'\]"):
        learning_curve([run(0)], tmp_path / "a.png", y="loss")
    assert not (tmp_path / "a.png").exists()


GROUPS: Mapping[str, Mapping[str, float]] = {
    "4 x 128": {"purestep": 68000.0, "SB3": 5700.4},
    "64 x 128": {"rejax": 131000.0, "purestep": 221000.0},
}


def test_bars_are_as_long_as_their_numbers_and_say_them(tmp_path: Path, figures: list[Figure]) -> None:
    bars(GROUPS, tmp_path / "b.png", title="Speed", unit="steps per second", note="2 cores")
    (axes,) = figures[0].axes
    drawn: list[Any] = list(axes.patches)
    assert [bar.get_width() for bar in drawn] == [68000.0, 5700.4, 131000.0, 221000.0]
    assert {text.get_text() for text in axes.texts} == {"68,000", "5,700", "131,000", "221,000"}
    assert [label.get_text() for label in axes.get_yticklabels()] == ["4 x 128", "64 x 128"]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["purestep", "SB3", "rejax"]
    colours = [bar.get_facecolor() for bar in drawn]
    assert colours[0] == colours[3]
    assert len({*colours}) == 3
    places = [bar.get_y() for bar in drawn]
    assert places == sorted(places)
    assert axes.yaxis_inverted()


def test_one_series_needs_no_legend(tmp_path: Path, figures: list[Figure]) -> None:
    bars({"a": {"": 1500.0}, "b": {"": 25.0}}, tmp_path / "b.png", title="Speed", unit="tokens/s")
    (axes,) = figures[0].axes
    assert axes.get_legend() is None
    assert {text.get_text() for text in axes.texts} == {"1,500", "25"}
    with pytest.raises(ShapeError, match="groups is empty"):
        bars({"a": {}}, tmp_path / "c.png", title="", unit="")


@pytest.mark.slow
def test_drawing_needs_no_pyplot_and_changes_no_setting(tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    learning_curve([run(0), run(1)], tmp_path / "a.png")
    bars(GROUPS, tmp_path / "b.png", title="", unit="")
    assert dict(mpl.rcParams) == before
    code = "import sys, purestep.runtime.effects.reporting.plot; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-W", "error", "-c", code], check=False).returncode == 0
