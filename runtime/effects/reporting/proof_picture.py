"""Pictures of proofs: each goal in a box, above the rule or fact that settled it; a rule's subgoals below it, to the right."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import frozen
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Text

from ...logic.explain import ProofRow
from .plot import COLOURS, FAINT, INK
from .png import save_figure as save_figure

EDGES = {"rule": COLOURS[0], "fact": COLOURS[2], "known": COLOURS[2], "open": COLOURS[3]}
FILLS = {"rule": "#f3f7fb", "fact": "#f0f8f4", "known": "#f0f8f4", "open": "#fdf3f6"}
DPI = 150
MARGIN, HEAD, INDENT, PITCH, HEIGHT, PAD = 0.3, 0.82, 0.42, 0.62, 0.47, 0.11  # inches
STEM = 0.17  # inches from a box's left edge to the line that leaves it


@frozen
class _Box:
    """A row and its position, in inches from the upper left corner."""

    row: ProofRow
    left: float
    top: float
    width: float

    def middle(self) -> float:
        """Return the vertical position of its middle."""
        return self.top + HEIGHT / 2


def proof_picture(rows: Sequence[ProofRow], out: Path, *, title: str, note: str = "") -> Path:
    """Draw a proof, or an attempt at one, and return `out`; the page grows with the number of goals and their words."""
    figure = Figure(figsize=(4.0, 3.0), dpi=DPI, facecolor="white")
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    FigureCanvasAgg(figure)
    heads = [
        _text(axes, MARGIN, MARGIN + 0.08, title, fontsize=13, fontweight="bold", color=INK),
        _text(axes, MARGIN, MARGIN + 0.32, note, fontsize=8.5, color=FAINT),
    ]
    boxes = [_box(axes, number, row) for number, row in enumerate(rows)]
    width = MARGIN + max(*(box.left + box.width for box in boxes), *(MARGIN + _width(head) for head in heads))
    height = HEAD + len(rows) * PITCH + MARGIN / 2
    for box in boxes:
        _frame(axes, box)
    for parent, child in _pairs(boxes):
        stem = parent.left + STEM
        corner = [stem, stem, child.left], [parent.top + HEIGHT, child.middle(), child.middle()]
        axes.plot(*corner, color="#aab2bb", linewidth=1.1, zorder=1, solid_joinstyle="round")
    figure.set_size_inches(width, height)
    axes.set_xlim(0.0, width)
    axes.set_ylim(height, 0.0)
    return save_figure(figure, out)


def _box(axes: Axes, number: int, row: ProofRow) -> _Box:
    left, top = MARGIN + row.depth * INDENT, HEAD + number * PITCH
    goal = _text(axes, left + PAD, top + 0.15, row.goal, fontsize=10, color=INK)
    below = ",  ".join(filter(None, [row.by, row.chosen]))
    how = _text(axes, left + PAD, top + 0.34, below, fontsize=8, color=EDGES[row.kind])
    return _Box(row, left, top, 2 * PAD + max(_width(goal), _width(how)))


def _text(axes: Axes, x: float, y: float, words: str, **look: Any) -> Text:
    return axes.text(x, y, words, va="center", ha="left", parse_math=False, zorder=3, **look)


def _width(text: Text) -> float:
    """Return the width of a drawn text, in inches."""
    return float(text.get_window_extent().width) / DPI


def _frame(axes: Axes, box: _Box) -> None:
    look: dict[str, Any] = {"facecolor": FILLS[box.row.kind], "edgecolor": EDGES[box.row.kind], "linewidth": 1.1}
    style = "--" if box.row.kind == "open" else "-"
    shape = "round,pad=0,rounding_size=0.07"
    patch = FancyBboxPatch((box.left, box.top), box.width, HEIGHT, boxstyle=shape, linestyle=style, zorder=2, **look)
    axes.add_patch(patch)


def _pairs(boxes: Sequence[_Box]) -> list[tuple[_Box, _Box]]:
    """Return each box but the first, with its parent in front: (parent, box)."""
    pairs, above = list[tuple[_Box, _Box]](), list[_Box]()
    for box in boxes:
        above = above[: box.row.depth]
        pairs += [(above[-1], box)] if above else []
        above = [*above, box]
    return pairs
