"""Starting states of training episodes that the model itself brings about, and what is published on the way.

For tasks whose episodes do not begin where a key says, but where the present policy has come to: cycles of reasoning and
summaries, openings of self-play, curricula from states that the model reaches now and then.
"""

from collections.abc import Mapping
from typing import Any

from attrs import Factory, frozen

from .prompting import Prompting


@frozen(kw_only=True)
class Start:
    """Where a group of episodes begins: a state of the task's world, and its first observation."""

    state: Any
    observation: str


@frozen(kw_only=True)
class Record:
    """Rows to be published under a number that no other record of the run has."""

    number: int
    rows: tuple[Mapping[str, Any], ...]


@frozen(kw_only=True)
class Prepared:
    """The result of a preparation.

    Each of `starts` is a group of attempts; those whose observation leaves no room to answer are left out, and `otherwise`
    takes their place where none is left. `texts` is how many completions are counted as published.
    """

    starts: tuple[Start, ...]
    otherwise: tuple[Start, ...] = ()
    records: tuple[Record, ...] = ()
    figures: Mapping[str, float] = Factory(dict)
    texts: int = 0


@frozen(kw_only=True)
class Preparation:
    """How training episodes are prepared: prompts to the current weights, then starts.

    In turns a step of training is one preparation of all its tasks; generators prepare each task by itself, and begin
    `groups` groups from what comes of it.
    """

    prompting: Prompting[Any, Prepared]
    max_new_tokens: int  # of any of its queries, at most
    groups: int = 1  # starts of a task
    figures: tuple[str, ...] = ()  # names of those that it reports
    workers: int = 1  # models that are prompted side by side
    window: int = 10  # steps of which the rate of published texts is the mean
    most: int = 5_242_880  # bytes of a record
    classes: tuple[type, ...] = ()  # that states of starts are made of, as checkpoints have to know them
