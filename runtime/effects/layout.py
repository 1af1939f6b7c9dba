"""The names that a run writes into its folder, by recipe, and the parts of each that another run in its place may remove.

RUN/.purestep.json        the marker: that this is a run's folder, and which of its names purestep wrote; see `folder`
RUN/arguments.json        the recipe and its arguments; each checkpoint has its own copy
RUN/checkpoints/          see effects.checkpoint
RUN/metrics.jsonl         a row for each iteration
RUN/tensorboard/          the same rows; RUN/wandb/ where --wandb sends them on
RUN/learning_curve.png
RUN/evaluation.json       results of the last evaluation
RUN/proof.png             of runs that prove: the last proof drawn
RUN/tokenizer/  model/  before.json  evaluation.txt  diverged.safetensors  served/       of language models' runs
RUN/warm/  sync/  async/  comparison.json  comparison.txt  timeline.png  staleness.png   of runs with generators
RUN/conversations.jsonl   of language models' runs: the attempts of each step; with generators, of each phase
RUN/view.html             the page of the run
RUN/.partial-NAME  .partial-older-NAME    a file or folder while it is written or replaced; see `checkpoint.replace_folder`
RUN/rollouts.jsonl        of tasks whose episodes are prepared: data that preparations publish; with generators, of each phase
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from attrs import frozen

from ...core.errors import CheckpointError, message
from .checkpoint.atomic_files import ABSENT, FOLDER, PARTIAL, kind
from .checkpoint.atomic_files import FILE as PLAIN
from .reporting.page_file import written_here
from .reporting.png import drawn_here

ARGUMENTS, METRICS, TENSORBOARD, WANDB = "arguments.json", "metrics.jsonl", "tensorboard", "wandb"
PICTURE, EVALUATION, CHECKPOINTS = "learning_curve.png", "evaluation.json", "checkpoints"
PROOF = "proof.png"
TOTALS = "totals.json"  # of a phase that has ended
PAGE, CONVERSATIONS = "view.html", "conversations.jsonl"
MODEL, TOKENIZER = "model", "tokenizer"
REPLACED = (MODEL, TOKENIZER)  # folders that are complete or absent
LANGUAGE = (
    *(TOKENIZER, MODEL, "before.json", "evaluation.txt", "diverged.safetensors", "served", "rollouts.jsonl"),
    *(CONVERSATIONS, WANDB),
)
PHASES = ("warm", "sync", "async")
GENERATORS = (*PHASES, "comparison.json", "comparison.txt", "timeline.png", "staleness.png")
COMMON = (ARGUMENTS, METRICS, TENSORBOARD, PICTURE, EVALUATION, CHECKPOINTS, PAGE)
OWN: Mapping[str, tuple[str, ...]] = {
    "prove": (PROOF,),
    **dict.fromkeys(("zorplex", "text", "task", "cache"), (*LANGUAGE, *GENERATORS)),
}
ALL = frozenset((*COMMON, *(name for names in OWN.values() for name in names)))

FILE: Literal["file"] = "file"
PNG: Literal["picture"] = "picture"  # one that purestep drew
HTML: Literal["page"] = "page"  # one that purestep wrote
LINK: Literal["link"] = "link"
WHOLE: Literal["whole"] = "whole"  # a folder with all its content


@frozen
class Within:
    """A folder in which only the entries that match these patterns are ours; it is removed if nothing else is in it."""

    names: "Mapping[str, Kind]"


Kind = Literal["file", "picture", "page", "link", "whole"] | Within

VERSION = r"[0-9]{6,}(-[0-9]+)?"
STEPS = Within({rf"step_{VERSION}": WHOLE, rf"\{PARTIAL}step_.*": WHOLE, rf"(\{PARTIAL})?latest": FILE})
EVENTS = Within({r"events\.out\.tfevents\..*": FILE})
SPOKEN: Mapping[str, Kind] = {
    r"(tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab)\.json": FILE,
    r"vocab\.txt|merges\.txt|(tokenizer|spiece|sentencepiece\.bpe)\.model|chat_template\.(jinja|json)": FILE,
    r"additional_chat_templates": Within({r".*\.jinja": FILE}),
}
WEIGHTS: Mapping[str, Kind] = {
    r"(config|generation_config)\.json|model(-[0-9]+-of-[0-9]+)?\.safetensors(\.index\.json)?": FILE
}
FIRST = ("config.json", "tokenizer.json")  # removed first: without it a folder is not taken for a whole one
LAID_OUT = Within({rf"version_{VERSION}": WHOLE, r"\.partial": WHOLE})
PHASE = Within(
    {
        CHECKPOINTS: STEPS,
        TENSORBOARD: EVENTS,
        WANDB: WHOLE,
        rf"(\{PARTIAL})?(metrics|events|ledger|timeline|rollouts|conversations)\.jsonl": FILE,
        rf"(\{PARTIAL})?((totals|evaluation|before)\.json|diverged\.safetensors)": FILE,
    }
)
KINDS: Mapping[str, Kind] = {
    CHECKPOINTS: STEPS,
    TENSORBOARD: EVENTS,
    WANDB: WHOLE,
    TOKENIZER: Within(SPOKEN),
    MODEL: Within({**SPOKEN, **WEIGHTS}),
    "served": Within({r"(\.partial_)?served": LINK, "weights": LAID_OUT}),
    **dict.fromkeys(PHASES, PHASE),
    **dict.fromkeys((PICTURE, PROOF, "timeline.png", "staleness.png"), PNG),
    PAGE: HTML,
}


def names_of(recipe: str) -> tuple[str, ...]:
    """Return the names that a run of the recipe may write into its folder, its arguments first.

    >>> names_of("prove")[0], "proof.png" in names_of("prove"), "model" in names_of("ppo")
    ('arguments.json', True, False)
    """
    return (*COMMON, *OWN.get(recipe, ()))


def removals(path: Path) -> tuple[tuple[Path, bool], ...]:
    """Return the paths to remove for an entry of ours, in order: (path, whether to remove it only if it is an empty folder).

    For a link, the link itself is removed, not its target. Files that no run writes stay. Raises: CheckpointError if an entry
    of another kind has a name of ours.

    >>> removals(Path("/nowhere/metrics.jsonl"))
    ()
    """
    if path.name not in ALL:
        return ()
    what = KINDS.get(path.name, FILE)
    begun = () if isinstance(what, Within) else _removals(path.with_name(f"{PARTIAL}{path.name}"), FILE)
    return (*_removals(path, what), *begun)


def own_entries(name: str) -> Callable[[Path], tuple[tuple[Path, bool], ...]]:
    """Return a function that lists, as `removals` does, the entries that are ours in a folder that is or was RUN/name.

    >>> own_entries("model")(Path("/nowhere/.partial-older-model"))
    ()
    """
    return lambda path: tuple(_removals(path, KINDS[name]))


def holds_others(path: Path, name: str) -> bool:
    """Return whether a folder that stands for RUN/name has an entry that no run writes, or is no folder.

    >>> holds_others(Path("/etc"), "model")
    True
    """
    what = KINDS[name]
    if not isinstance(what, Within) or kind(path) != FOLDER:
        return kind(path) != ABSENT
    return any(not any(re.fullmatch(one, entry.name) for one in what.names) for entry in path.iterdir())


def _removals(path: Path, what: Kind) -> Iterator[tuple[Path, bool]]:
    found = kind(path)
    if found == ABSENT:
        return
    if found == "a link":
        yield path, False
    elif isinstance(what, Within):
        _check(path, found, FOLDER)
        for entry in sorted(path.iterdir(), key=lambda entry: (entry.name not in FIRST, entry.name)):
            for pattern, inner in what.names.items():
                if re.fullmatch(pattern, entry.name):
                    yield from _removals(entry, inner)
        yield path, True
    else:
        _check(path, found, {WHOLE: FOLDER, LINK: "a link"}.get(what, PLAIN))
        if what == PNG and not drawn_here(path):
            _check(path, "a picture that purestep did not draw", "one that it drew")
        if what == HTML and not written_here(path):
            _check(path, "a page that purestep did not write", "one that it wrote")
        yield path, False


def _check(path: Path, found: str, wanted: str) -> None:
    if found != wanted:
        remedy = "move it away, or choose another --run"
        raise CheckpointError(message(str(path), got=found, wanted=wanted, remedy=remedy))
