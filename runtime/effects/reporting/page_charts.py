"""Curves of metrics as inline SVG, for a page without scripts or other files."""

import json
import math
from collections.abc import Mapping, Sequence
from html import escape

from attrs import frozen

WIDTH, HEIGHT = 320, 150
LEFT, RIGHT, TOP, BOTTOM = 44, 8, 8, 20  # margins, for the labels of the axes
MOST = 400  # points of a curve; of a longer one, each is the mean of several rows
TICKS = 4  # lines across a chart, about
Point = tuple[float, float]
Points = Sequence[Point]


@frozen
class Scale:
    """The bounds of a chart's axes."""

    x: tuple[float, float]
    y: tuple[float, float]

    def position(self, point: Point) -> Point:
        """Return the position of a point in the picture, from its upper left corner.

        >>> Scale((0.0, 1.0), (0.0, 1.0)).position((0.0, 1.0))
        (44.0, 8.0)
        """
        return (
            LEFT + share(point[0], self.x) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - share(point[1], self.y) * (HEIGHT - TOP - BOTTOM),
        )


def share(value: float, bounds: tuple[float, float]) -> float:
    """Return the position of a value between two bounds, from 0 to 1; 0.5 where they are the same.

    >>> share(3.0, (2.0, 4.0)), share(2.0, (2.0, 2.0))
    (0.5, 0.5)
    """
    low, high = bounds
    return (value - low) / (high - low) if high > low else 0.5


def four_digits(value: float) -> str:
    """Return a number for people, in four digits; what rounding leaves of a 0 is 0.

    >>> [four_digits(value) for value in (3.0, 0.123456, 501760.0, 2.5e-7)]
    ['3', '0.1235', '501,760', '2.5e-07']
    """
    value = 0.0 if abs(value) < 1e-12 else float(value)
    if value.is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def ticks(low: float, high: float, most: int = TICKS) -> tuple[float, ...]:
    """Return round numbers between two bounds.

    >>> ticks(0.0, 1.0), ticks(3.0, 3.0)
    ((0.0, 0.5, 1.0), (3.0,))
    """
    if high <= low:
        return (low,)
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    return tuple(round(place * step, 12) for place in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1))


def thinned(points: Points, most: int = MOST) -> tuple[Point, ...]:
    """Return at most about `most` points: each is the mean of several that follow one another.

    >>> thinned([(1.0, 0.0), (2.0, 1.0), (3.0, 5.0)], 2)
    ((1.5, 0.5), (3.0, 5.0))
    """
    size = -(-len(points) // most)
    groups = [points[place : place + size] for place in range(0, len(points), max(1, size))]
    return tuple((sum(x for x, _ in one) / len(one), sum(y for _, y in one) / len(one)) for one in groups)


def chart(title: str, curves: Mapping[str, Points], *, x: str, order: Sequence[str] = ()) -> str:
    """Return a figure of curves over a common axis, which `x` names; each has at least one point, with finite numbers.

    A curve's colour is that of its place in `order`, by default in `curves`.
    """
    places = list(order or curves)
    thin = {name: thinned(points) for name, points in curves.items()}
    every = [point for points in thin.values() for point in points]
    across, up = [one for one, _ in every], [one for _, one in every]
    scale = Scale((min(across), max(across)), (min(up), max(up)))
    inside = [_grid(scale, x), *(_curve(places.index(name), points, scale) for name, points in thin.items())]
    ends = "; ".join(_summary(name, points) for name, points in curves.items())
    data = escape(json.dumps({"x": x, "curves": [[name, points] for name, points in thin.items()]}))
    return (
        f'<figure class="chart"><figcaption>{escape(title)} <output></output></figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(f"{title}: {ends}")}" data-chart="{data}">'
        f"{''.join(inside)}</svg></figure>"
    )


def _summary(name: str, points: Points) -> str:
    begin, end = (four_digits(points[place][1]) for place in (0, -1))
    return f"{name + ', ' if name else ''}from {begin} to {end}"


def _grid(scale: Scale, name: str) -> str:
    middle = (LEFT + WIDTH - RIGHT) / 2
    found = [f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(name)}</text>']
    for value in ticks(*scale.y):
        _, y = scale.position((scale.x[0], value))
        found.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        found.append(f'<text x="{LEFT - 4}" y="{y + 3:.1f}" text-anchor="end">{four_digits(value)}</text>')
    ends = dict.fromkeys(scale.x)
    for value, anchor in zip(ends, ("start", "end") if len(ends) > 1 else ("start",), strict=True):
        x, _ = scale.position((value, scale.y[0]))
        found.append(f'<text x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{four_digits(value)}</text>')
    return "".join(found)


def _curve(place: int, points: Points, scale: Scale) -> str:
    at = [scale.position(point) for point in points]
    if len(at) == 1:
        return f'<circle class="c{place % 4}" cx="{at[0][0]:.1f}" cy="{at[0][1]:.1f}" r="2.5"/>'
    return f'<polyline class="c{place % 4}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in at)}"/>'
