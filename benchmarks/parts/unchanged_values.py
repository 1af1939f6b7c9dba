"""The values that a run has left in its folder, without the names that a refactoring may change, and how two of them differ.

Leaves of a checkpoint are compared as a multiset of dtype, shape and hash; columns of metrics and figures of an evaluation by
name, through `RENAMED`; samples in order. What is new beside the recorded values is no difference.
"""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

Values = dict[
    str, Any
]  # of one run: {"leaves": ..., "metrics": ..., "samples": ..., "figures": ..., "evaluation": ...}

RENAMED: Mapping[str, str] = {}  # names of columns and figures: as they are now -> as they were recorded
TAGS: Mapping[
    str, str
] = {}  # classes as they were recorded -> their tags now, where that is not their name in small letters
FIELDS: Mapping[str, str] = {}  # fields of tagged values, "Tag.field": as they were recorded -> the field as it is now
SETTINGS: Mapping[str, Any] = {
    "conversations_megabytes": 256,
    "eval_every_n_versions": 0,
    "eval_samples": 1,
    "keep_conversations": 0,
    "muon_precision": "bfloat16",
    "resample": 0,
    "skip_solved": 0,
    "wandb": "",
    "zero_spread": "keep",
}  # that there were not yet
WRITTEN: Mapping[
    str, Mapping[str, Any]
] = {  # top-level fields of a recorded file, by its name, as they are written now
    "arguments.json": SETTINGS,
    "manifest.json": {"schema": "purestep-checkpoint-2"},
}
ADDED: Mapping[str, Mapping[str, Any]] = {"Kept": {"starts": []}}  # fields that a recorded class had not yet

CLASS, TAG, SUM, MANIFEST, STATE = "$class", "$tag", "checksum", "manifest.json", "state.safetensors"
STEP = re.compile(r"step_(\d+)(-\d+)?$")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
TIMES = re.compile(r"seconds|per_second|throughput|^time$")  # names whose values are those of a clock
SAMPLED = re.compile(r"\b(answer|failed|prompt_text|output_text|reward|said)\b")  # of published rows, what is compared
SHOWN = (
    "loss",
    "policy_loss",
    "warm_loss",
    "episode_return",
    "accuracy",
    "entropy",
)  # in results, to be read by people
INPUTS = re.compile(r"\.(numbers|hyperparameters)\.|^normalizer\.gamma$")  # leaves that were constants of a program
DIGITS = 16  # of a hash


def newest(home: Path) -> int:
    """The number of a folder's newest checkpoint; 0 where there is none.

    >>> newest(Path("/nowhere"))
    0
    """
    return max(
        (int(found[1]) for path in home.glob("checkpoints/step_*") if (found := STEP.match(path.name))), default=0
    )


def leaves(home: Path) -> dict[str, str]:
    """Dtype, shape and hash of each tensor in a folder's newest checkpoint."""
    name = (home / "checkpoints" / "latest").read_text().strip()
    held = safetensors.torch.load_file(home / "checkpoints" / name / STATE)
    return {leaf: described(value) for leaf, value in held.items()}


def described(value: Tensor) -> str:
    """Dtype, shape and hash of a tensor.

    >>> described(torch.ones(2, 3))
    'float32 [2, 3] f46913286d895f62'
    """
    content = value.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)} {digest(content)}"


def digest(content: bytes) -> str:
    """The first digits of a hash."""
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def columns(path: Path) -> dict[str, list[Any]]:
    """The columns of a file of metrics but those of a clock."""
    rows = objects(path)
    names = dict.fromkeys(name for row in rows for name in row if not TIMES.search(name))
    return {name: [row.get(name, "absent") for row in rows] for name in names}


def objects(path: Path) -> list[dict[str, Any]]:
    """The objects in a file of JSON lines; [] where there is none."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def texts(path: Path) -> list[str]:
    """A hash of texts, tokens, log-probs and rewards in each published row, in the order of the stream."""
    rows = ([value for name, value in scalars(row) if SAMPLED.search(name)] for row in objects(path))
    return [digest(json.dumps(row).encode()) for row in rows]


def scalars(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The numbers and texts in a JSON value with their dotted names, but those of a clock.

    >>> list(scalars({"a": [1, {"b": "x"}], "seconds": 3.5}))
    [('a.0', 1), ('a.1.b', 'x')]
    """
    if isinstance(value, dict | list):
        each = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in each:
            if not TIMES.search(str(key)):
                yield from scalars(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def figures(path: Path) -> dict[str, Any]:
    """What a file of JSON says, flat; {} where there is none."""
    return dict(scalars(json.loads(path.read_text()))) if path.exists() else {}


def printed(text: str) -> list[float]:
    """The numbers in the lines of an evaluation, in order.

    >>> printed("time: 4 s\\nevaluation: 10 episodes, mean return 30.5")
    [10.0, 30.5]
    """
    lines = (line for line in text.splitlines() if "evaluation: " in line)
    return [float(number) for line in lines for number in NUMBER.findall(line.partition("evaluation: ")[2])]


def differences(recorded: Values, now: Values) -> list[str]:
    """A line for each kind of value that differs, naming the first one that does; [] where all is as it was.

    >>> was = {"leaves": {"w": "float32 [2] aa"}, "metrics": {"loss": [1.0, 0.5]}}
    >>> differences(was, {"leaves": {"v": "float32 [2] aa"}, "metrics": {"loss": [1.0, 0.5], "new": [0.0, 0.0]}})
    []
    >>> differences(was, {"leaves": {"w": "float32 [2] bb"}, "metrics": {"loss": [1.0, 0.25]}})
    ['leaves: 1 of 1 differ, first float32 [2] (w)', 'metrics: loss, row 2: 0.5 recorded, 0.25 now']
    """
    found = []
    for kind, was in recorded.items():
        at = now.get(kind)
        if at is None:
            found.append(f"{kind}: none now")
        elif kind.startswith("leaves"):
            found += other_leaves(was, at)
        elif isinstance(was, dict):
            found += [f"{kind}: {line}" for line in other_named(was, at)]
        elif kind == "printed":
            found += [f"{kind}: {line}" for line in other_printed(was, at)]
        elif line := other_rows(was, at):
            found.append(f"{kind}: {line}")
    return found


def other_leaves(was: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """A line where the leaves differ as a multiset; numbers that were constants of a program may be leaves now.

    >>> other_leaves({"w": "float32 [2] aa"}, {"w": "float32 [2] aa", "learner.numbers.clip": "float64 [] bb"})
    []
    >>> other_leaves({"w": "float32 [2] aa"}, {"w": "float32 [2] aa", "learner.v": "float32 [2] bb"})
    ['leaves: 1 of 1 differ, first float32 [2] (learner.v)']
    """
    gone = Counter(was.values()) - Counter(now.values())
    new = Counter(text for name, text in now.items() if not INPUTS.search(name)) - Counter(was.values())
    if not gone and not new:
        return []
    first = next(
        f"{text.rpartition(' ')[0]} ({name})" for name, text in {**now, **was}.items() if text in gone or text in new
    )
    return [f"leaves: {gone.total() or new.total()} of {len(was)} differ, first {first}"]


def other_named(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A line for the first row in which named values differ."""
    at = {RENAMED.get(name, name): value for name, value in now.items()}
    lines: list[tuple[int, str]] = []
    for name, value in was.items():
        if name not in at:
            return [f"{name}: none now"]
        one, other = (each if isinstance(each, list) else [each] for each in (value, at[name]))
        for row, (before, after) in enumerate(zip_longest(one, other, fillvalue="absent"), 1):
            if repr(before) != repr(after):
                where = f"{name}, row {row}" if isinstance(value, list) else name
                lines.append((row, f"{where}: {before!r} recorded, {after!r} now"))
                break
    return [min(lines, key=lambda each: each[0])[1]] if lines else []


def other_printed(was: Sequence[float], now: Sequence[float]) -> list[str]:
    """A line where printed numbers are not those recorded, in order, others between them.

    >>> other_printed([0.5, 3.0], [0.5, 0.4, 0.6, 3.0])
    []
    >>> other_printed([0.5, 3.0], [3.0, 0.5])
    ['3.0 recorded, not printed now, or earlier']
    """
    left = iter(now)
    gone = next((one for one in was if one not in left), None)
    return [] if gone is None else [f"{gone} recorded, not printed now, or earlier"]


def other_rows(was: Sequence[Any], now: Sequence[Any]) -> str:
    """The first of the rows that differs, in words; "" where all are equal.

    >>> other_rows([1, 2], [1]), other_rows([1], [1])
    ('row 2 of 2: 2 recorded, nothing now', '')
    """
    for row, (before, after) in enumerate(zip_longest(was, now, fillvalue="nothing"), 1):
        if repr(before) != repr(after):
            return f"row {row} of {len(was)}: {before} recorded, {after} now"
    return ""


def shown(values: Values) -> dict[str, Any]:
    """A few figures of a run for people: its leaves in one hash, the last numbers of its metrics and losses.

    >>> shown({"leaves, a": {}, "metrics, a": {"loss": [1.0, 0.5], "tokens": [3.0, 3.0]}, "losses": [0.25]})
    {'leaves, a': 'e3b0c44298fc1c14', 'loss, a': 0.5, 'losses': 0.25}
    """
    found = dict[str, Any]()
    for kind, held in values.items():
        name, comma, part = kind.partition(",")
        if name == "leaves":
            found[kind] = digest("".join(sorted(held.values())).encode())
        elif name == "metrics":
            last = {
                each: [x for x in held[each] if not isinstance(x, str) and math.isfinite(x)][-1:]
                for each in SHOWN
                if each in held
            }
            found |= {f"{each}{comma}{part}": numbers[0] for each, numbers in last.items() if numbers}
        elif name == "losses":
            found[kind] = held[-1]
    return found


def translate(folder: Path) -> None:
    """Rewrites the JSON files of a recorded run with the names of now: see `TAGS`, `FIELDS` and `WRITTEN`."""
    for path in sorted((*folder.rglob("*.json"), *folder.rglob("*.jsonl"))):
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        made = [renamed(json.loads(line)) for line in lines]
        for value in made:
            if path.name in WRITTEN:
                value.update(WRITTEN[path.name])
            if isinstance(value, dict) and "recipe" in value.get("metadata", {}):
                value["metadata"].update(SETTINGS)
            if path.name == MANIFEST and SUM in value:
                body = {name: part for name, part in value.items() if name != SUM}
                text = json.dumps(body, allow_nan=False, separators=(",", ":"))
                value[SUM] = hashlib.sha256(text.encode()).hexdigest()
        path.write_text("".join(json.dumps(value, separators=(",", ":")) + "\n" for value in made))


def renamed(value: Any) -> Any:
    """A JSON value whose tags and fields have their names of now.

    >>> renamed({"$class": "Loop", "saved": [1]})
    {'$tag': 'loop', 'saved': [1]}
    """
    if isinstance(value, list):
        return [renamed(one) for one in value]
    if not isinstance(value, dict):
        return value
    name = value.get(CLASS, "")
    fields = {FIELDS.get(f"{name}.{key}", key): renamed(inner) for key, inner in value.items() if key != CLASS}
    tag = {TAG: TAGS.get(name, re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower())} if name else {}
    return {**tag, **ADDED.get(name, {}), **fields}
