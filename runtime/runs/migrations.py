"""Schemas of a run's record and of its states: what has changed since a run was made, in three tables.

A record holds the number of its schema; one without a number has number 0. `upgrade` brings a record to today's. To change the
settings of a recipe raise SCHEMA by one, then add

- for a new setting a row of ADDED: the value that runs had before there was the setting;
- for a removed or renamed setting, or a value with a new meaning, a function of MIGRATED;
- for a new or renamed leaf of a state a row of LEAVES; a new number of an algorithm or optimizer needs none.

`python -m tests.recorded_runs.record` then keeps runs of the new schema, and with `--fields` the names of its settings. A
package's recipe has a number and a function of its own: `Recipe.schema` and `Recipe.migrate`.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from attrs import frozen

from ...core.errors import CheckpointError, message
from ..machine.json_codec import short

SCHEMA = 6
RECIPE, NUMBER, OWN_NUMBER, CHANGES = "recipe", "schema", "recipe_schema", "changes"  # of a record, besides settings
APART = (RECIPE, NUMBER, OWN_NUMBER, CHANGES)
Record = Mapping[str, Any]

CLASSIC = ("ppo", "a2c", "reinforce")
REPLAYED = ("dqn", "quantile_dqn", "categorical_dqn", "iqn", "pqn", "td3", "ddpg", "sac", "discrete_sac")
LANGUAGE = ("zorplex", "cache", "text", "task")


@frozen
class Added:
    """A setting that is absent from records of an older schema than `schema`, and the value that those runs had."""

    schema: int
    recipes: tuple[str, ...]
    name: str
    value: Any


@frozen
class ChangedLeaf:
    """A leaf of a state that has another name, or is absent, in checkpoints of an older schema than `schema`."""

    schema: int
    name: str  # a regular expression of the whole name today
    before: str | tuple[()] = ()  # the name then, with \\1 for the first group; (): the arguments determine the value


ADDED: tuple[Added, ...] = (
    Added(6, (*CLASSIC, *REPLAYED), "critic", "own"),
    Added(6, (*CLASSIC, *REPLAYED), "agents", "shared"),
    Added(5, CLASSIC, "memory", "none"),
    Added(1, CLASSIC, "probes", ()),
    Added(1, (*CLASSIC, "prove"), "device", "cpu"),
    Added(1, ("prove",), "confidence", "own"),
    Added(1, ("prove",), "smoothing", 5.0),
    Added(1, ("prove",), "mined_rules", 10),
    Added(1, ("prove",), "mined_length", 2),
    Added(1, ("prove",), "mined_confidence", 0.1),
    Added(1, ("prove",), "mined_support", 2),
    Added(1, ("prove",), "mining_seconds", math.inf),
    Added(1, ("prove",), "imitated_facts", 0),
    Added(1, ("prove",), "imitated_rules", 2),
    Added(1, ("prove",), "imitated_expansions", 400),
    Added(1, ("prove",), "imitation_rounds", 1),
    Added(1, ("prove",), "imitation_steps", 500),
    Added(1, ("zorplex", "cache", "task"), "muon_precision", "bfloat16"),
    Added(1, LANGUAGE, "wandb", ""),
    Added(1, LANGUAGE, "keep_conversations", 0),
    Added(1, LANGUAGE, "conversations_megabytes", 256),
    Added(1, LANGUAGE, "zero_spread", "keep"),
    Added(1, ("zorplex", "text", "task"), "eval_samples", 1),
    Added(1, LANGUAGE, "eval_every_n_versions", 0),
    Added(1, ("zorplex", "text", "task"), "resample", 0),
    Added(1, ("zorplex", "text", "task"), "skip_solved", 0),
    Added(1, ("cache",), "problems_file", ""),
    Added(1, ("cache",), "server", ""),
    Added(1, ("cache",), "mode", "sync"),
    Added(1, ("cache",), "generators", -1),
    Added(1, ("cache",), "compare", True),
    Added(1, ("cache",), "generator_engine", "process"),
    Added(1, ("cache",), "engine", "processes"),
    Added(1, ("cache",), "hosts", ""),
    Added(1, ("cache",), "transfer", "auto"),
    Added(1, ("cache",), "trust_network", False),
    Added(1, ("cache",), "generator_slots", 64),
    Added(1, ("cache",), "staleness", 1),
    Added(1, ("cache",), "stale", "drop"),
    Added(1, ("cache",), "loss", "plain"),
    Added(1, ("cache",), "proximal", "recomputed"),
    Added(1, ("cache",), "interruptible", True),
    Added(1, ("cache",), "patience", 120.0),
    Added(1, ("cache",), "tool_replicas", 0),
    Added(1, ("cache",), "tool_engine", "thread"),
    Added(1, ("cache",), "tool_timeout", 10.0),
    Added(1, ("cache",), "devices", ""),
    Added(2, CLASSIC, "action_bounds", "clip"),
    Added(3, LANGUAGE, "server_seconds", 600.0),
    Added(3, LANGUAGE, "server_log_probs", "raw"),
    Added(4, ("prove",), "value_clip", math.inf),
    Added(4, ("prove",), "advantages", "minibatch"),
)


def tasks_of_users(record: Record) -> Record:
    """Rename the recipe of a user's task: "text" until "text" became that of prompts.

    >>> tasks_of_users({"recipe": "text", "reference": "a.py:TASK"})["recipe"]
    'task'
    """
    named = record.get(RECIPE) == "text" and "reference" in record
    return {**record, RECIPE: "task"} if named else record


MOVED: Mapping[str, str] = {  # functions of ours that settings name
    "purestep.core.language.reasoning_tasks.list_rollout": "purestep.core.language.list_reduction.tasks.list_rollout",
    "purestep.core.language.reasoning_rollouts.summarization_rollout": (
        "purestep.core.language.reasoning_cache.rollouts.summarization_rollout"
    ),
}


def moved_functions(record: Record) -> Record:
    """Rename functions that have moved to another module."""
    return {name: MOVED.get(value, value) if isinstance(value, str) else value for name, value in record.items()}


Migration = Callable[[Record], Record]
MIGRATED: Mapping[
    int, tuple[Migration, ...]
] = {  # schema -> functions that make its records from those of the one before
    1: (tasks_of_users, moved_functions),
}

LEAVES: tuple[ChangedLeaf, ...] = (ChangedLeaf(4, r"(.*\.numbers\.)gae_lambda", r"\1lambda_"),)


NUMBERS = re.compile(r"(.*\.)?(hyperparameters|numbers)\.\w+|normalizer\.gamma")  # leaves that the arguments determine


def schema_of(record: Record, where: str, name: str = NUMBER, newest: int = SCHEMA) -> int:
    """Return the number of a record's schema. Raises: CheckpointError for one that is newer than ours, and for no number.

    >>> schema_of({}, "RUN"), schema_of({"schema": 1}, "RUN")
    (0, 1)
    >>> schema_of({"schema": 99}, "RUN", newest=1)
    Traceback (most recent call last):
    purestep.core.errors.CheckpointError: RUN: schema is 99, wanted at most 1; use the version of purestep that made the run
    """
    number = record.get(name, 0)
    if type(number) is not int or number < 0:
        raise CheckpointError(message(f"{where}: {name}", got=short(number), wanted="a number", remedy="train anew"))
    if number > newest:
        remedy = "use the version of purestep that made the run"
        raise CheckpointError(message(f"{where}: {name}", got=number, wanted=f"at most {newest}", remedy=remedy))
    return number


def upgrade(record: Record, where: str = "checkpoint: arguments") -> dict[str, Any]:
    """Return a record of any schema as one of today's. Raises: CheckpointError for one of a newer schema.

    >>> upgrade({"recipe": "ppo"})["probes"], upgrade({"recipe": "ppo", "schema": SCHEMA}).keys() == {"recipe", "schema"}
    ((), True)
    """
    begun = schema_of(record, where)
    for number in range(begun + 1, SCHEMA + 1):
        for migrate in MIGRATED.get(number, ()):
            record = migrate(record)
        recipe = record.get(RECIPE)
        new = {row.name: row.value for row in ADDED if row.schema == number and recipe in row.recipes}
        record = {**new, **record}
    return {**record, **({NUMBER: SCHEMA} if begun < SCHEMA else {})}


def leaf_in(name: str, schema: int, saved: Collection[str]) -> str | tuple[()]:
    """Return the name of a leaf in a checkpoint of this schema with these leaves; () where the run's arguments determine it.

    They do so for a row of LEAVES that says it, and for each number that an older schema did not have.

    >>> leaf_in("learner.numbers.clip", 0, ["learner.params"]), leaf_in("learner.params", 0, ["learner.params"])
    ((), 'learner.params')
    """
    if name in saved:
        return name
    for row in LEAVES:
        found = re.fullmatch(row.name, name)
        if row.schema > schema and found:
            before = found.expand(row.before) if isinstance(row.before, str) else ()
            if before == () or before in saved:
                return before
    return () if schema < SCHEMA and NUMBERS.fullmatch(name) else name
