"""Draw docs/architecture.png from the imports of the source: `python docs/draw_architecture.py`."""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "architecture.png"
COLOURS: Mapping[str, str] = {"core": "#d7e8d2", "algorithms": "#f6e3b4", "runtime": "#cfdff2", "properties": "#ecd3e3"}
NOTE = (
    "Description"  # the field of the file that holds which packages import which, by which a test finds an old picture
)
WIDE = 7.4  # columns that the box of a package covers


def packages() -> tuple[str, ...]:
    """Return the packages, each before all that import it; two modules are packages of their own."""
    return (
        *("core", "algorithms", "runtime.files", "runtime.inductor", "runtime", "runtime.machine"),
        *("runtime.text.trainer", "runtime.distributed", "runtime.logic"),
        *("runtime.async_rl.scheduler", "runtime.async_rl.simulation"),
        *("runtime.effects", "runtime.runs", "runtime.text", "runtime.async_rl", "runtime.recipes", "runtime.cli"),
        "properties",
    )


def package(parts: tuple[str, ...]) -> str:
    """Return the package of a module: the longest name of `packages` that it lies in."""
    name = ".".join(parts)
    return max((one for one in packages() if f"{name}.".startswith(f"{one}.")), key=len)


def sources() -> Iterator[tuple[Path, str]]:
    """Yield the path and the text of each source file, the path relative to the root."""
    for top in dict.fromkeys(name.partition(".")[0] for name in packages()):
        for path in sorted((ROOT / top).rglob("*.py")):
            yield path.relative_to(ROOT), path.read_text()


def imported(path: Path, source: str) -> set[tuple[str, ...]]:
    """Return the modules of purestep that a file imports, wherever in the file; imports inside purestep are relative."""
    found, here = set[tuple[str, ...]](), path.parent.parts
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = (*here[: len(here) - node.level + 1], *(node.module.split(".") if node.module else ()))
            for alias in node.names:
                module = ROOT.joinpath(*base, alias.name)
                found.add((*base, alias.name) if module.is_dir() or module.with_suffix(".py").exists() else base)
    return found - {()}


def imports() -> Counter[tuple[str, str]]:
    """Return the number of imports from one package to another: pairs of a file and a module that it imports."""
    counts = Counter[tuple[str, str]]()
    for path, source in sources():
        own = package(path.with_suffix("").parts)
        counts.update((own, package(module)) for module in imported(path, source) if package(module) != own)
    return counts


def lines() -> Counter[str]:
    """Return the number of lines of each package."""
    counts = Counter[str]()
    for path, source in sources():
        counts[package(path.with_suffix("").parts)] += source.count("\n")
    return counts


def draw(target: Path, counts: Counter[tuple[str, str]]) -> None:
    """Write the picture of these `imports`: a box for each package, to its left the numbers of those from packages above."""
    names, sizes = packages(), lines()
    figure = Figure(figsize=(10, 6.9), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.01, 0.01, 0.98, 0.98))
    axes.set_axis_off()
    axes.set_xlim(-0.2, len(names) + WIDE - 0.6)
    axes.set_ylim(len(names) + 0.1, -0.1)
    for row, name in enumerate(names):
        colour = COLOURS[name.partition(".")[0]]
        axes.add_patch(Rectangle((row + 0.04, row + 0.5), 0.92, len(names) - row - 0.5, color=colour, alpha=0.35, lw=0))
        for column, other in enumerate(names[:row]):
            if number := counts[name, other]:
                axes.text(column + 0.5, row + 0.52, str(number), ha="center", va="center", fontsize=8.5)
        style = "round,pad=0,rounding_size=0.15"
        box = FancyBboxPatch(
            (row + 0.04, row + 0.08), WIDE, 0.84, boxstyle=style, fc=colour, ec="#666666", lw=0.8, zorder=2
        )
        axes.add_patch(box)
        axes.text(row + 0.25, row + 0.52, name, va="center", fontsize=9, weight="bold", zorder=3)
        axes.text(row + WIDE - 0.15, row + 0.52, f"{sizes[name]:,}", ha="right", va="center", fontsize=9, zorder=3)
    about = (
        "Packages of purestep, with lines of code.",
        "A number in the row of a package counts its",
        "imports from the package at the top of the",
        "column. No package imports one below it.",
    )
    for number, text in enumerate(about):
        axes.text(len(names) + WIDE - 0.8, 0.6 + 0.8 * number, text, ha="right", va="center", fontsize=10)
    edges = sorted(f"{one} {other}" for one, other in counts)
    figure.savefig(target, metadata={"Software": "purestep", NOTE: ", ".join(edges)})


if __name__ == "__main__":
    draw(PICTURE, imports())
    print(PICTURE.relative_to(ROOT))
