"""The page of a run: its settings, curves, evaluations and conversations, as one HTML text that loads nothing.

All texts of the run are escaped; conversations are data, which the script shows as text only. The page's policy lets no other
script run and nothing be loaded.
"""

import json
import math
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

from attrs import frozen

from ....core.errors import ChoiceError, message
from ...files.reading import parse_json
from ...machine.json_codec import json_line
from .. import folder
from ..checkpoint.atomic_files import ABSENT, FILE, kind
from ..json_lines import objects
from ..layout import CONVERSATIONS
from .page_charts import Points, chart, four_digits
from .page_script import SCRIPT
from .page_style import STYLE

STEPS = re.compile(r"([0-9]{1,15})(?:-([0-9]{1,15}))?")
FIRST = re.compile(rb'\{"step":(\d+),')
DRAWN = "picture"  # in a file of results: the curves of a task's own evaluation
WARM = "warm_loss"
STEP, ENV_STEPS, ITERATION = "step", "steps", "iteration"
ACROSS = {STEP: "step", ENV_STEPS: "environment step", ITERATION: "iteration"}  # names of the axis
HIDDEN = (*ACROSS, "finite", "seconds")  # columns that are no curve
AHEAD = ("episode_return", "accuracy", "entropy", "tokens", "loss")  # columns shown first, if there are any
VISIBLE = 8  # curves; others are shown when they are asked for
LABEL = "label/"
Row = Mapping[str, float]


@frozen(kw_only=True)
class About:
    """Facts about a run that its page begins with."""

    title: str
    settings: Mapping[str, Any]
    changed: frozenset[str]  # names of settings that are not the recipe's defaults
    absent: str  # text in place of conversations where there are none; "" leaves the section out


@frozen
class Kept:
    """Conversations for a page, as JSON texts, and a sentence on those that are left out."""

    texts: tuple[str, ...]
    note: str = ""


def steps_of(text: str) -> tuple[int, float]:
    """Return the first and the last step that a range names; "" names all. Raises: ChoiceError.

    >>> steps_of("40-60"), steps_of("7"), steps_of("")
    ((40, 60), (7, 7), (0, inf))
    """
    if not text:
        return 0, math.inf
    found = STEPS.fullmatch(text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if first > last:
        remedy = "leave it out for all steps"
        raise ChoiceError(message("--steps", got=repr(text), wanted="a step, or a range such as 40-60", remedy=remedy))
    return first, last


def run_page(run: Path, about: About, *, steps: tuple[int, float], most: int) -> str:
    """Return the page of the run in a folder, after the first lines of `page_file`.

    It has the conversations of these steps, or so many of them, evenly spread, as have at most `most` bytes.
    Raises: CheckpointError, StructureError for files of a run with other contents.
    """
    found = kept_conversations(run, steps, most)
    rows, (tables, pictures) = reported(run), evaluations(run)
    parts = (
        _header(run, about, rows),
        _section("Evaluation", _table(tables)),
        _section("Learning curves", _curves(rows, pictures)),
        _section("Conversations", _conversations(found, about.absent)),
        _section("Settings", _settings(about)),
    )
    data = _data("[" + ",".join(found.texts) + "]")
    policy = f"default-src 'none'; script-src '{_digest(SCRIPT)}'; style-src '{_digest(STYLE)}'; base-uri 'none'"
    return (
        '<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}; form-action \'none\'">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(about.title)}</title><style>{STYLE}</style></head>\n"
        f'<body>{"".join(parts)}\n<script type="application/json" id="data">{data}</script>\n'
        f"<script>{SCRIPT}</script></body></html>\n"
    )


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _data(text: str) -> str:
    """Return JSON text that ends no script, whatever it holds.

    >>> _data('["</script>"]')
    '["\\\\u003c/script\\\\u003e"]'
    """
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# --- reading ---


def homes(run: Path) -> dict[str, Path]:
    """Return the folders with steps of a run by the name of their phase, which is "" for the run's own."""
    return {"": run, **{name: run / name for name in folder.PHASES if (run / name).is_dir()}}


def kept_conversations(run: Path, steps: tuple[int, float], most: int) -> Kept:
    """Return the conversations of a run in these steps, at most `most` bytes of them."""
    files = {name: home / CONVERSATIONS for name, home in homes(run).items() if kind(home / CONVERSATIONS) == FILE}
    there = {name: _sizes(path) for name, path in files.items()}
    sizes = {name: {step: held[step] for step in held if steps[0] <= step <= steps[1]} for name, held in there.items()}
    every = 1
    chosen = {name: _spread(held, every) for name, held in sizes.items()}
    longest = max((len(held) for held in sizes.values()), default=0)
    while every < longest and sum(sum(held.values()) for held in chosen.values()) > most:
        every += 1
        chosen = {name: _spread(held, every) for name, held in sizes.items()}
    texts, left, room = list[str](), 0, most
    for name, path in files.items():
        for step, text in _lines(path):
            if step not in chosen[name]:
                continue
            row = _row(text)
            room -= len(text)
            if row and room >= 0:
                texts.append(json_line({"phase": name, **row} if name else row))
            else:
                left += 1
    known = {step for held in there.values() for step in held}
    if known and not any(sizes.values()):
        note = f"There are no conversations of these steps; those of steps {min(known)} to {max(known)} are there."
        return Kept((), note)
    more = "--steps 40-60 shows those of a range, and --megabytes makes room for more."
    notes = (
        f"The page has the conversations of one step in {every}; {more}" if every > 1 else "",
        f"Left out, as too long for the page or not readable: {left} of them." if left else "",
    )
    return Kept(tuple(texts), " ".join(filter(None, notes)))


def _sizes(path: Path) -> dict[int, int]:
    found = dict[int, int]()
    for step, text in _lines(path):
        found[step] = found.get(step, 0) + len(text)
    return found


def _spread(sizes: Mapping[int, int], every: int) -> dict[int, int]:
    """Return each `every`-th step, counted from the last.

    >>> _spread({1: 5, 2: 6, 3: 7}, 2)
    {1: 5, 3: 7}
    """
    there = sorted(sizes)
    return {step: sizes[step] for step in sorted(there[::-1][::every])}


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        for text in file:
            found = FIRST.match(text)
            if found and text.endswith(b"\n"):
                yield int(found[1]), text


def _row(text: bytes) -> dict[str, Any]:
    """Return the conversation of a line; {} if it is none."""
    try:
        row = parse_json(text)
    except ValueError:
        return {}
    messages = row.get("messages")
    known = isinstance(messages, list) and all(
        isinstance(one, dict) and isinstance(one.get("role"), str) and isinstance(one.get("text"), str)
        for one in messages
    )
    return row if known else {}


def reported(run: Path) -> dict[str, list[dict[str, float]]]:
    """Return the rows of metrics of a run by phase, without numbers that are not finite. Raises: StructureError.

    Rows of a language model's run have the number of their training step, which begins at 1 after a warm start.
    """
    found = {name: list(objects(home / folder.METRICS)) for name, home in homes(run).items()}
    return {name: _counted(rows) for name, rows in found.items() if rows}


def _counted(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    found = [{name: float(value) for name, value in row.items() if _finite(value)} for row in rows]
    if not any(WARM in row for row in rows):
        return found
    warm = max((row.get(ITERATION, 0.0) for row in found if not row.get(ENV_STEPS)), default=0.0)
    return [{**row, **({STEP: row[ITERATION] - warm} if row.get(ENV_STEPS) else {})} for row in found]


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def evaluations(run: Path) -> tuple[dict[str, dict[str, float]], list[Mapping[str, Any]]]:
    """Return the figures of a run's evaluations by column, and the pictures of a task's own evaluation.

    Raises: CheckpointError for a file with other contents.
    """
    tables, pictures = dict[str, dict[str, float]](), list[Mapping[str, Any]]()
    files = {"before": run / "before.json", "": run / folder.EVALUATION}
    files |= {f"after {name}": home / folder.EVALUATION for name, home in homes(run).items() if name}
    for name, path in files.items():
        if kind(path) == ABSENT:
            continue
        held = folder.read_json(path)
        pictures += [held[DRAWN]] if isinstance(held.get(DRAWN), dict) else []
        if name != "before" and "after" in held:
            held = held["after"]
            name = name or "after"
        for column, figures in _columns(name or "evaluation", held).items():
            tables[column] = dict(_flat(figures))
    return {name: figures for name, figures in tables.items() if figures}, pictures


def _columns(name: str, held: Any) -> dict[str, Any]:
    """Return the figures of one evaluation, sampled and greedy in columns of their own."""
    if isinstance(held, dict) and "sampled" in held:
        return {f"{name}{'' if how == 'sampled' else f', {how}'}": figures for how, figures in held.items()}
    return {name: held}


def _flat(held: Any, before: str = "") -> Iterator[tuple[str, float]]:
    """Return the numbers of an evaluation by name; of a list of numbers, the last."""
    for name, value in held.items() if isinstance(held, dict) else ():
        if _finite(value) and not isinstance(value, bool):
            yield f"{before}{name}", float(value)
        elif isinstance(value, list) and value and _finite(value[-1]):
            yield f"{before}{name}", float(value[-1])
        elif isinstance(value, dict) and name != DRAWN:
            yield from _flat(value, "ended as " if name == "modes" else f"{before}{name} ")


# --- writing ---


def _section(title: str, body: str) -> str:
    where = title.lower().replace(" ", "-")
    return f'\n<section aria-labelledby="{where}"><h2 id="{where}">{title}</h2>{body}</section>' if body else ""


def _header(run: Path, about: About, rows: Mapping[str, Sequence[Row]]) -> str:
    length = about.settings.get("steps")
    last = {phase: row.get(STEP, row.get(ENV_STEPS, 0.0)) for phase, each in rows.items() for row in each[-1:]}
    of = f" of {four_digits(length)}" if isinstance(length, int) else ""
    at = [f"{phase} at step {four_digits(step)}{of}".strip() for phase, step in last.items() if step]
    changed = ", ".join(
        f"{_name(name)} {_value(about.settings[name])}" for name in about.settings if name in about.changed
    )
    differing = f"<p>Not the defaults: {escape(changed)}.</p>" if changed else ""
    where = f"<p>Run in the folder <code>{escape(str(run))}</code>{', ' + ', '.join(at) if at else ''}.</p>"
    return f"<header><h1>{escape(about.title)}</h1>{where}{differing}</header>"


def _name(name: str) -> str:
    return name.replace("_", " ").replace("/", " ")


def _value(value: Any) -> str:
    return str(value) if not isinstance(value, dict | list) else json.dumps(value)


def _settings(about: About) -> str:
    bold = {name: ' class="changed"' if name in about.changed else "" for name in about.settings}
    rows = "".join(
        f"<div{bold[name]}><dt>{escape(name)}</dt><dd>{escape(_value(value))}</dd></div>"
        for name, value in about.settings.items()
    )
    note = "Bold settings are not the defaults of the recipe." if about.changed else ""
    return f"<details><summary>All {len(about.settings)} settings</summary><p>{note}</p><dl>{rows}</dl></details>"


def _table(tables: Mapping[str, Mapping[str, float]]) -> str:
    names = dict.fromkeys(name for figures in tables.values() for name in figures)
    bounds = {
        name: (f"{name}_low", f"{name}_high") for name in names if {f"{name}_low", f"{name}_high"} <= names.keys()
    }
    hidden = {bound for both in bounds.values() for bound in both}
    if not names:
        return ""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in tables)
    rows = "".join(
        f'<tr><th scope="row">{escape(_name(name))}</th>'
        + "".join(f"<td>{_cell(name, figures, bounds.get(name, ()))}</td>" for figures in tables.values())
        + "</tr>"
        for name in names
        if name not in hidden
    )
    note = "<p>In brackets: the 95 % interval.</p>" if bounds else ""
    return f'<div class="wide"><table><thead><tr><td></td>{head}</tr></thead><tbody>{rows}</tbody></table></div>{note}'


def _cell(name: str, figures: Mapping[str, float], bounds: Sequence[str]) -> str:
    if name not in figures:
        return ""
    interval = [f"{figures[bound]:.3f}" for bound in bounds if bound in figures]
    value = figures[name]
    text = four_digits(value) if value.is_integer() or abs(value) >= 100 else f"{value:.3f}"
    return text + (f" <small>[{', '.join(interval)}]</small>" if interval else "")


def _curves(rows: Mapping[str, list[dict[str, float]]], pictures: Sequence[Mapping[str, Any]]) -> str:
    names = dict.fromkeys(name for each in rows.values() for row in each for name in row)
    order = [*(name for name in AHEAD if name in names), *(name for name in names if name not in (*AHEAD, *HIDDEN))]
    charts, constant = [one for picture in pictures[-1:] if (one := _own(picture))], list[str]()
    phases = [name for name in rows if name != "warm"]
    for name in order:
        across = {phase: _across(each, name) for phase, each in rows.items()}
        found = {phase: _points(each, name, across[phase]) for phase, each in rows.items()}
        curves = {phase: points for phase, points in found.items() if points and (phase in phases or name == WARM)}
        values = {value for points in curves.values() for _, value in points}
        if len(values) > 1:
            charts.append(chart(_name(name), curves, x=ACROSS[across[next(iter(curves))]], order=(*phases, *curves)))
        elif values:
            constant.append(f"{_name(name)} {four_digits(values.pop())}")
    legend = "".join(f'<span><i class="c{place}"></i>{name}</span>' for place, name in enumerate(phases))
    before = f'<p class="legend">{legend}</p>' if len(phases) > 1 else ""
    after = f"<p>The same in all steps: {escape(', '.join(constant))}.</p>" if constant else ""
    first, more = "".join(charts[:VISIBLE]), "".join(charts[VISIBLE:])
    many = len(charts) - VISIBLE
    rest = f"<summary>{many} more curve{'s' if many > 1 else ''}</summary>" + f'<div class="charts">{more}</div>{after}'
    return f'{before}<div class="charts">{first}</div>' + (f"<details>{rest}</details>" if more else after)


def _across(rows: Sequence[Row], name: str) -> str:
    """Return the column over which a metric is drawn."""
    there = {column for row in rows for column in row}
    if name == WARM or (WARM in there and STEP not in there):
        return ITERATION
    return next((column for column in ACROSS if column in there), ITERATION)


def _points(rows: Sequence[Row], name: str, across: str) -> Points:
    return [(row[across], row[name]) for row in rows if name in row and across in row]


def _own(picture: Mapping[str, Any]) -> str:
    """Return the chart of a task's own evaluation; "" for a picture of another form."""
    try:
        curves = {str(name): list(enumerate(map(float, one["mean"]), 1)) for name, one in picture["curves"].items()}
        return chart(str(picture["axis"]["heading"]), curves, x=str(picture["axis"]["x"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        return ""


def _conversations(found: Kept, absent: str) -> str:
    if not found.texts:
        text = found.note or absent
        return f"<p>{escape(text)}</p>" if text else ""
    note = f"<p>{escape(found.note)}</p>" if found.note else ""
    return (
        f'{note}<noscript><p>Conversations are shown by a script in this page.</p></noscript><div id="browser"></div>'
    )
