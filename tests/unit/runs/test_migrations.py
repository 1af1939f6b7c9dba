"""Schemas of a run's record: settings that are absent, renamed or newer, and values that no run has."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import frozen

from purestep.core.errors import CheckpointError
from purestep.runtime.cli import main
from purestep.runtime.effects.checkpoint import single
from purestep.runtime.machine.json_codec import encode
from purestep.runtime.runs import migrations
from purestep.runtime.runs import recipe as recipe_module
from purestep.runtime.runs import run as runs
from purestep.runtime.runs.arguments import flatten
from purestep.runtime.runs.kinds import record_of
from purestep.runtime.runs.migrations import ADDED, LEAVES, SCHEMA, leaf_in, upgrade
from purestep.runtime.runs.recipe import Components, Context, Lines, Notice, Recipe, find, own
from purestep.runtime.runs.training_machine import Loop

from ...recorded_runs.record import FIELDS, HERE, fields
from ...support.run_folders import begun

LISTED: dict[str, dict[str, list[str]]] = json.loads((HERE / FIELDS).read_text(encoding="utf-8"))
COMMITS = tuple(name for name in LISTED if not name.isdigit() or len(name) > 4)


def schema(kind: str) -> int:
    return 0 if kind in COMMITS else int(kind)


def test_a_new_setting_has_a_row() -> None:
    """Fails where a settings class has another field than when its schema was recorded."""
    known, now = LISTED[str(SCHEMA)], fields()
    for recipe, names in now.items():
        new, gone = {*names} - {*known[recipe]}, {*known[recipe]} - {*names}
        example = f"Added({SCHEMA + 1}, ({recipe!r},), {min(new, default='')!r}, VALUE_THAT_OLD_RUNS_HAD)"
        assert not new, (
            f"{recipe} has new settings {sorted(new)}. In runtime/runs/migrations.py raise SCHEMA to {SCHEMA + 1} and add for "
            f"each a row such as {example}; then run: python -m tests.recorded_runs.record --fields"
        )
        assert not gone, (
            f"{recipe} has lost the settings {sorted(gone)}. In runtime/runs/migrations.py raise SCHEMA to {SCHEMA + 1} and "
            f"add a function to MIGRATED[{SCHEMA + 1}]; then run: python -m tests.recorded_runs.record --fields"
        )


@pytest.mark.parametrize("kind", LISTED)
def test_records_of_every_schema_have_todays_settings_once_they_are_upgraded(kind: str) -> None:
    today = fields()
    for recipe, names in LISTED[kind].items():
        values = flatten(find(recipe).defaults())
        old: dict[str, Any] = {name: values.get(name, 0) for name in names}
        found, arguments = runs.arguments_of({"recipe": recipe, "schema": schema(kind), **old})
        assert found.name == recipe
        own = flatten(arguments)
        assert {*own} == {*today[recipe]}
        rows = {row.name: row.value for row in ADDED if recipe in row.recipes and row.schema > schema(kind)}
        assert {name: own[name] for name in own if name not in names} == {
            name: rows[name] for name in own if name not in names
        }


def test_a_record_of_today_is_taken_as_it_is_and_lacks_nothing() -> None:
    held = runs.run_record(find("ppo"), find("ppo").defaults())
    assert held["schema"] == SCHEMA
    assert upgrade(held) == held
    with pytest.raises(CheckpointError, match=r"with other names: \['probes'\]"):
        runs.arguments_of({name: value for name, value in held.items() if name != "probes"})


@pytest.mark.parametrize("number", [SCHEMA + 1, 10**30, -1, "1", True, None])
def test_a_record_of_a_newer_version_is_refused_in_a_line(
    number: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = {**runs.run_record(find("ppo"), find("ppo").defaults()), "schema": number}
    run = begun(tmp_path / "run", encode(held))
    single.save(run, 1, {}, machine=Loop(iterations=4, chunk=1, every=1, iteration=1, saved=1), metadata=held)
    for command in (["evaluate"], ["resume"], ["plot"], ["view"]):
        assert main.main([*command, str(run)]) == 1
        (line,) = [text for text in capsys.readouterr().err.splitlines() if text.startswith("purestep: ")]
        assert "schema is " in line
        assert "wanted" in line


def test_the_recipe_of_a_users_task_and_moved_functions_are_renamed() -> None:
    assert upgrade({"recipe": "text", "reference": "a.py:TASK"})["recipe"] == "task"
    assert upgrade({"recipe": "text", "prompts": "a.jsonl"})["recipe"] == "text"
    old = "purestep.core.language.reasoning_tasks.list_rollout"
    assert upgrade({"recipe": "cache", "solution_rollout_policy": old})["solution_rollout_policy"] == (
        find("cache").defaults().rollouts.solution_rollout_policy
    )


def test_leaves_have_their_old_names_in_old_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    row = migrations.ChangedLeaf(2, r"learner\.(\w+)\.now", r"learner.\1.then")
    monkeypatch.setattr(migrations, "LEAVES", (*LEAVES, row))
    assert leaf_in("learner.a.now", 1, ["learner.a.then"]) == "learner.a.then"
    assert leaf_in("learner.a.now", 2, ["learner.a.then"]) == "learner.a.now"
    assert leaf_in("learner.numbers.clip", 0, []) == ()
    assert leaf_in("learner.numbers.clip", SCHEMA - 1, []) == ()
    assert leaf_in("learner.numbers.clip", SCHEMA, []) == "learner.numbers.clip"


@frozen
class Old:
    rate: float = 0.1


@frozen
class New:
    learning_rate: float = 0.1


class Hill(Recipe):
    name, about = "hill", ""

    def defaults(self, choice: str | None = None) -> Any:
        return Old()

    def build(self, settings: Any, context: Context) -> Components:
        raise NotImplementedError

    def evaluate(self, run: Path, options: Any, notice: Notice) -> Lines:
        raise NotImplementedError


class NewHill(Hill):
    schema = 1

    def defaults(self, choice: str | None = None) -> Any:
        return New()

    def migrate(self, settings: Mapping[str, Any], schema: int) -> Mapping[str, Any]:
        assert schema == 0
        return {"learning_rate": settings["rate"]}


class NewerHill(NewHill):
    schema = 2


def test_a_recipe_of_another_package_brings_its_own_migration(monkeypatch: pytest.MonkeyPatch) -> None:
    new, held = NewHill(), runs.run_record(Hill(), Old(0.5))
    monkeypatch.setattr(recipe_module, "find", lambda name, where="": new)
    assert runs.arguments_of(held) == (new, New(0.5))
    assert runs.arguments_of(runs.run_record(new, New(0.5))) == (new, New(0.5))
    with pytest.raises(CheckpointError, match="recipe_schema is 2, wanted at most 1"):
        runs.arguments_of(runs.run_record(NewerHill(), New()))


# --- arguments that belong to no run ---


@pytest.mark.parametrize("name", ["generators", "mode"])
@pytest.mark.parametrize("command", ["evaluate", "resume", "plot", "view"])
def test_a_text_where_a_number_stood_is_refused_in_a_line(
    name: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = encode({**runs.run_record(find("zorplex"), find("zorplex").defaults()), name: "four"})
    run = begun(tmp_path / "run", held)
    assert main.main([command, str(run)]) == (0 if command == "view" else 1)
    said = capsys.readouterr().err
    assert len([text for text in said.splitlines() if text.startswith("purestep: ")]) == (command != "view")
    assert "Traceback" not in said


@pytest.mark.parametrize("command", ["evaluate", "resume"])
@pytest.mark.parametrize("recipe", ["zorplex", "prove", "cache", "a2c", "task"])
def test_arguments_of_one_recipe_beside_checkpoints_of_another_are_refused_in_a_line(
    recipe: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small: dict[str, Any] = {"steps": 8, "envs": 2, "horizon": 4, "hidden": (4,), "backend": "none"}
    run = tmp_path / "run"
    runs.train("reinforce", run, **small, notice=runs.silent)
    other = find(recipe)
    (run / "arguments.json").write_text(json.dumps(encode(runs.run_record(other, other.defaults()))))
    assert main.main([command, str(run)]) == 1
    said = capsys.readouterr().err
    (line,) = [text for text in said.splitlines() if text.startswith("purestep: ")]
    assert "a checkpoint of 'reinforce', wanted one of" in line
    assert "Traceback" not in said


def test_a_damaged_record_is_refused_in_a_line(tmp_path: Path) -> None:
    run = begun(tmp_path / "run", {"recipe": "ppo", "clip": {"$float": "many"}})
    with pytest.raises(CheckpointError, match=r"arguments\.json is damaged"):
        record_of(run)


def test_numbers_that_older_states_lack_follow_from_the_arguments(tmp_path: Path) -> None:
    """A state of schema 0 without the algorithm's numbers has those of its arguments."""
    small: dict[str, Any] = {"steps": 64, "envs": 2, "horizon": 8, "hidden": (4,), "backend": "none", "clip": 0.125}
    run = tmp_path / "run"
    runs.train("ppo", run, **small, notice=runs.silent)
    found = runs.restore_run(run)
    tree = evolve_numbers(found.state)
    held = {name: value for name, value in found.manifest.metadata.items() if name != "schema"}
    old = begun(tmp_path / "old", encode(held))
    single.save(old, found.loop.iteration, tree, machine=found.loop, metadata=held)
    again = runs.restore_run(old)
    assert float(again.state.learner.numbers["clip"]) == 0.125
    assert torch.equal(again.state.learner.params, found.state.learner.params)


def evolve_numbers(state: Any) -> Any:
    from purestep.core.record import replace

    return replace(state, learner=replace(state.learner, numbers=()))


def test_every_recipe_is_listed() -> None:
    assert {*fields()} == {*own()} == {*LISTED[str(SCHEMA)]}
