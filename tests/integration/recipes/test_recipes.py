"""Recipes: arguments, the training machine, and runs that can be cut, resumed and replayed with the same bits."""

import json
import math
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st

from purestep.core import keys
from purestep.core.envs import ENVS, make
from purestep.core.errors import CheckpointError, ChoiceError, NonFiniteError, StructureError
from purestep.core.machine import Failed, Interrupted, Started, Stop
from purestep.core.record import replace
from purestep.core.spaces import Box, Discrete
from purestep.core.tree import leaves
from purestep.runtime.effects import folder
from purestep.runtime.effects.checkpoint import single
from purestep.runtime.effects.checkpoint.atomic_files import DISK, lock
from purestep.runtime.effects.reporting.metrics import read_metrics
from purestep.runtime.machine.drive import Entry, Handlers, drive, serial
from purestep.runtime.machine.json_codec import encode
from purestep.runtime.machine.replay_log import from_lines, record_events, replay_events, to_lines
from purestep.runtime.recipes.classic import RECIPES, ROWS, Classic, ClassicRecipe
from purestep.runtime.recipes.pipeline import Pipeline, actor_critic_pipeline, components_of, lowered
from purestep.runtime.recipes.shared_settings import ExperienceOptions, loop_of
from purestep.runtime.runs import loop_state
from purestep.runtime.runs import run as runs
from purestep.runtime.runs.arguments import changed, flatten
from purestep.runtime.runs.curves import draw_metric, labels
from purestep.runtime.runs.recipe import Components, Context, Recipe, SessionResult
from purestep.runtime.runs.training_machine import (
    DIVERGED,
    FINISHED,
    INTERRUPTED,
    Log,
    Logged,
    Loop,
    Save,
    Saved,
    TrainChunk,
    Trained,
    plan,
    trainer_machine,
)

from ...support.run_folders import begun

TINY = {"steps": 48, "envs": 2, "horizon": 4, "hidden": (8,), "backend": "none", "checkpoints": 3}
GOOD, BAD = {"finite": 1.0}, {"finite": 0.0}


@frozen
class Plan:
    """A recipe and the arguments of a run."""

    recipe: Recipe
    arguments: Any

    @property
    def pipeline(self) -> Pipeline:
        return actor_critic_pipeline(self.arguments)

    def described(self) -> dict[str, Any]:
        return runs.run_record(self.recipe, self.arguments)

    def beginning(self) -> Loop:
        return loop_of(self.arguments.experience, self.arguments.process)


def defaults(recipe: str, env: str | None) -> Any:
    return RECIPES[recipe].defaults(env)


def tiny(recipe: str = "ppo", env: str | None = None, **changes: Any) -> Plan:
    own: dict[str, Any] = {"epochs": 1, "minibatches": 2} if recipe in ("ppo", "pqn") else {}
    if "replay_size" in flatten(defaults(recipe, env)):
        own = {"replay_size": 64, "learning_starts": 16, "batch_size": 8, "updates": 2}
    return Plan(RECIPES[recipe], changed(defaults(recipe, env), {**TINY, **own, **changes}))


def silent(text: str) -> None:
    """Nobody listens."""


def begin(run: Path, plan: Plan, *, overwrite: bool = False) -> SessionResult:
    return runs.start(run, plan.recipe, plan.arguments, overwrite=overwrite, notice=silent)


def newest(run: Path) -> tuple[bytes, dict[str, Any]]:
    """The tensors and the manifest of a run's newest checkpoint."""
    where = runs.newest_checkpoint(run)
    return (where / "state.safetensors").read_bytes(), json.loads((where / "manifest.json").read_text())


# --- arguments ---


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("env", ENVS)
def test_every_recipe_has_defaults_for_every_env_that_make_a_pipeline(recipe: str, env: str) -> None:
    arguments = defaults(recipe, env)
    assert arguments.experience.env == env
    discrete = ("dqn", "quantile_dqn", "categorical_dqn", "iqn", "pqn", "discrete_sac")
    wanted = {**dict.fromkeys(discrete, Discrete), "td3": Box, "ddpg": Box, "sac": Box}.get(recipe, object)
    if not isinstance(make(env).action_space, wanted):
        with pytest.raises(StructureError, match=r"_mlp: actions is \w+, wanted .*; use an algorithm for such actions"):
            actor_critic_pipeline(arguments)
        return
    pipeline = actor_critic_pipeline(arguments)
    assert pipeline.trainer.steps == arguments.experience.envs * arguments.experience.horizon


def test_arguments_survive_flattening() -> None:
    arguments = defaults("ppo", "pendulum")
    flat = flatten(arguments)
    assert flat["env"] == "pendulum"
    assert flat["gae_lambda"] == 0.95
    assert changed(defaults("ppo", "cartpole"), flat) == arguments
    assert changed(arguments, {}) == arguments
    with pytest.raises(ChoiceError, match="did you mean 'learning_rate'"):
        changed(arguments, {"learning_rat": 1.0})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"env": "cartpol"}, "'cartpol', wanted one of .*did you mean 'cartpole'"),
        ({"envs": 0}, "--envs is 0, wanted at least 1; change it"),
        ({"horizon": -1}, "--horizon is -1"),
        ({"steps": 0}, "--steps is 0"),
        ({"seed": -1}, "--seed is -1, wanted from 0 to"),
        ({"hidden": (64, 0)}, "--hidden is 0"),
        ({"threads": 0}, "--threads is 0"),
        ({"checkpoints": 0}, "--checkpoints is 0"),
        ({"gamma": 1.5}, "--gamma is 1.5, wanted a number from 0.0 to 1.0"),
        ({"gamma": math.nan}, "--gamma is nan"),
        ({"learning_rate": -1.0}, "--learning-rate is -1.0"),
        ({"gae_lambda": 2.0}, "--gae-lambda is 2.0"),
        ({"minibatches": 3}, "8 steps an iteration, wanted a multiple of --minibatches 3; change one of the three"),
        ({"epochs": 0}, "--epochs is 0"),
        ({"clip": -0.1}, "--clip is -0.1"),
        ({"activation": "tanhh"}, "did you mean 'tanh'"),
    ],
)
def test_a_wrong_number_is_named_by_its_flag(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ChoiceError, match=said):
        begin(tmp_path / "run", tiny(**changes))
    assert not (tmp_path / "run").exists()


@given(st.integers(0, 10**6), st.integers(1, 50))
def test_a_plan_covers_what_was_asked_in_whole_chunks(iterations: int, checkpoints: int) -> None:
    loop = plan(iterations, checkpoints)
    assert iterations <= loop.iterations < iterations + loop.chunk
    assert loop.iterations <= max(iterations, 1.05 * iterations)
    assert loop.iterations % loop.chunk == loop.every % loop.chunk == 0
    assert math.ceil(loop.iterations / loop.every) <= checkpoints


def test_steps_are_rounded_up_to_iterations() -> None:
    process = defaults("ppo", "cartpole").process
    assert loop_of(ExperienceOptions("cartpole", steps=500_000, envs=4, horizon=128), process).iterations == 980
    assert loop_of(ExperienceOptions("cartpole", steps=1, envs=4, horizon=128), process).iterations == 1


def test_threads_are_chosen_by_the_products_of_a_minibatch(tmp_path: Path) -> None:
    plan, lines = tiny(threads="auto"), list[str]()
    weights = leaves(plan.pipeline.model.init(keys.key(0)))[0].numel()
    assert plan.pipeline.products == 2 * 4 // 2 * weights
    runs.start(tmp_path / "run", plan.recipe, plan.arguments, overwrite=False, notice=lines.append)
    assert "--threads auto: 1" in lines
    manifest = newest(tmp_path / "run")[1]
    assert manifest["metadata"]["threads"] == "auto"
    assert manifest["environment"]["threads"] == 1
    resumed = runs.resume(tmp_path / "run", notice=silent)
    assert resumed.loop.iteration == plan.beginning().iterations


# --- the machine ---

step = trainer_machine().step
AT = Loop(iterations=6, chunk=2, every=4)


def test_it_trains_reports_and_saves_in_turn() -> None:
    assert step(AT, Started())[1] == (TrainChunk(2),)
    trained, commands = step(AT, Trained((GOOD, GOOD)))
    assert (trained.iteration, commands) == (2, (Log((GOOD, GOOD)),))
    assert step(trained, Logged())[1] == (TrainChunk(2),)
    four = evolve(AT, iteration=4)
    assert step(four, Logged())[1] == (Save(evolve(four, saved=4)),)
    assert step(four, Saved(4)) == (evolve(four, saved=4), (TrainChunk(2),))
    six = evolve(AT, iteration=6, saved=4)
    assert step(six, Logged())[1] == (Save(evolve(six, saved=6)),)
    assert step(six, Saved(6))[1] == (FINISHED,)


def test_it_goes_on_from_a_checkpoint_and_is_finished_where_nothing_is_left() -> None:
    assert step(evolve(AT, iteration=4, saved=4), Started())[1] == (TrainChunk(2),)
    assert step(evolve(AT, iteration=6, saved=6), Started())[1] == (FINISHED,)


def test_ctrl_c_saves_what_was_done_and_then_stops() -> None:
    noticed, commands = step(evolve(AT, iteration=2), Interrupted())
    assert commands == ()
    save = step(noticed, Logged())[1]
    assert save == (Save(evolve(AT, iteration=2, saved=2)),)  # whoever resumes from it is not interrupted
    assert step(noticed, Saved(2))[1] == (INTERRUPTED,)
    assert step(evolve(AT, interrupted=True), Logged())[1] == (INTERRUPTED,)


def test_a_failed_command_gets_no_answer_so_that_the_driver_raises() -> None:
    assert step(AT, Failed(TrainChunk(2), "boom")) == (AT, ())


def world_of(rows: list[Any], interrupts: set[int]) -> tuple[Loop, list[Any]]:
    """Answers the machine's commands with these rows, a chunk at a time, until it stops; Ctrl-C before some events."""
    loop, done, said = AT, 0, []
    event: Any = Started()
    for number in range(100):
        if number in interrupts:
            loop, nothing = step(loop, Interrupted())
            assert nothing == ()
        loop, (command,) = step(loop, event)
        said.append(command)
        if isinstance(command, Stop):
            return loop, said
        if isinstance(command, TrainChunk):
            event = Trained(tuple(rows[done : done + command.iterations]))
            done += command.iterations
        else:
            event = Logged() if isinstance(command, Log) else Saved(command.loop.iteration)
    raise AssertionError("it never stopped")


@given(st.lists(st.sampled_from([GOOD, GOOD, GOOD, BAD]), min_size=6, max_size=6), st.sets(st.integers(0, 12)))
def test_whatever_happens_one_command_at_a_time_and_nothing_bad_is_saved(rows: list[Any], interrupts: set[int]) -> None:
    loop, said = world_of(rows, interrupts)
    first_bad = rows.index(BAD) + 1 if BAD in rows else 7
    saved = [command.loop.iteration for command in said if isinstance(command, Save)]
    assert all(iteration < first_bad for iteration in saved)
    assert saved == sorted(set(saved))
    assert loop.diverged == (first_bad if loop.iteration >= first_bad else 0)
    trained = [command for command in said if isinstance(command, TrainChunk)]
    assert loop.iteration == 2 * len(trained)
    if said[-1] == FINISHED:
        assert loop.iteration == saved[-1] == 6
    elif said[-1] == INTERRUPTED:
        assert (saved or [0])[-1] == loop.iteration
    else:
        assert said[-1] == DIVERGED


# --- whole runs ---


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_run_writes_all_it_promises(recipe: str, tmp_path: Path) -> None:
    plan = tiny(recipe)
    outcome = begin(tmp_path / "run", plan)
    assert outcome.loop.iteration == outcome.loop.saved == 6
    assert outcome.session.trained == 6
    assert outcome.progress == " after 48 steps and saved"
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row["steps"] for row in rows] == [8, 16, 24, 32, 40, 48]
    assert set(plan.pipeline.trainer.metrics) - {"return_sum", "length_sum"} <= rows[0].keys()
    described = json.loads((tmp_path / "run" / "arguments.json").read_text())
    assert described["recipe"] == recipe
    assert described["hidden"] == [8]
    _, manifest = newest(tmp_path / "run")
    assert manifest["metadata"] == described
    assert manifest["environment"]["lowering"] == "none"
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 1


def cut(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """Ctrl-C in the middle of that chunk, counted from 1."""
    inner, calls = loop_state.LoopState.train, iter(range(1, 100))

    def train(self: loop_state.LoopState, command: TrainChunk) -> Trained:
        if next(calls) == chunk:
            signal.raise_signal(signal.SIGINT)
        return inner(self, command)

    monkeypatch.setattr(loop_state.LoopState, "train", train)


@pytest.mark.parametrize(
    ("recipe", "env"),
    [("ppo", "cartpole"), ("a2c", "pendulum"), ("reinforce", "cartpole"), ("dqn", "cartpole"), ("sac", "pendulum")],
)
def test_a_run_stopped_by_ctrl_c_and_resumed_has_the_bits_of_one_never_stopped(
    recipe: str, env: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tiny(recipe, env)
    begin(tmp_path / "whole", plan)
    with monkeypatch.context() as patched:
        cut(patched, 3)
        outcome = begin(tmp_path / "cut", plan)
    assert outcome.loop.interrupted
    assert outcome.loop.iteration == outcome.loop.saved == 3
    resumed = runs.resume(tmp_path / "cut", notice=silent)
    assert resumed.loop == evolve(plan.beginning(), iteration=6, saved=6)
    assert resumed.session.trained == 3
    tensors, manifest = newest(tmp_path / "whole")
    again, same_manifest = newest(tmp_path / "cut")
    assert again == tensors
    for differing in ("sequence", "checksum"):
        assert manifest.pop(differing)
        assert same_manifest.pop(differing)
    assert same_manifest == manifest
    assert (tmp_path / "cut" / "metrics.jsonl").read_bytes() == (tmp_path / "whole" / "metrics.jsonl").read_bytes()


def test_rows_beyond_the_checkpoint_are_taken_back_on_resume(tmp_path: Path) -> None:
    run, plan = tmp_path / "run", tiny(checkpoints=2)
    begin(run, plan)
    before = (run / "metrics.jsonl").read_bytes(), newest(run)[0]
    for late in (run / "checkpoints").glob("step_*6"):
        for path in [*late.iterdir(), late]:
            path.rmdir() if path.is_dir() else path.unlink()
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"iteration":7.0,"ste')
    assert runs.resume(run, notice=silent).session.trained == 3
    assert ((run / "metrics.jsonl").read_bytes(), newest(run)[0]) == before


def test_a_finished_run_is_left_as_it_is(tmp_path: Path) -> None:
    begin(tmp_path, tiny())
    before = newest(tmp_path)
    # as a kill leaves it that comes while older checkpoints are removed
    half = tmp_path / "checkpoints" / ".partial-step_000003"
    half.mkdir()
    (half / "manifest.json").write_text("{}")
    outcome = runs.resume(tmp_path, notice=silent)
    assert (outcome.session.trained, outcome.spent) == (0, ())
    assert newest(tmp_path) == before
    assert not half.exists()


def test_a_recorded_run_is_replayed_without_training(tmp_path: Path) -> None:
    plan = tiny()
    loop, log = plan.beginning(), list[Entry]()
    machine = trainer_machine()
    state = plan.pipeline.trainer.init(torch.tensor([1, 2]))
    living = loop_state.LoopState(
        state, lowered("ppo", plan.arguments, plan.pipeline, loop, state), plan.pipeline.trainer.steps
    )
    handlers: Handlers = {
        TrainChunk: living.train,
        Log: lambda command: Logged(),
        Save: lambda command: Saved(command.loop.iteration),
    }
    states = list(drive(machine, loop, record_events(serial(handlers), log)))
    text = to_lines(log)
    again = from_lines(text, [Trained, Logged, Saved])
    assert list(drive(machine, loop, replay_events(again))) == states
    assert states[-1].iteration == 6


def test_without_a_cache_folder_the_notice_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, told = tiny(backend="inductor"), list[str]()
    monkeypatch.setattr(loop_state.LoopState, "_timed", lambda self: (self.state, {}))
    monkeypatch.setattr(loop_state, "remember_seconds", lambda name, seconds: None)
    (tmp_path / "file").touch()
    for place in ("folder", "file"):  # no folder can be made in a file, whoever asks
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / place))
        with components_of("ppo", plan.arguments, plan.pipeline).session(
            plan.pipeline.trainer.init(keys.key(0)), plan.beginning(), told.append
        ):
            pass
    why = "this process, since the cache folder cannot be written (XDG_CACHE_HOME names another)"
    assert told == [f"compiling the program, once for {each} ..." for each in ("these arguments", why)]


# --- runs that go wrong ---


def diverging(plan: Plan, at: int) -> Plan:
    """The same run, whose parameters become NaN in that iteration."""
    pipeline = plan.pipeline
    trainer = pipeline.trainer

    def iterate(state: Any) -> Any:
        after, metrics = trainer.iterate(state)
        bad = after.learner.step == at
        learner = replace(after.learner, params=torch.where(bad, torch.nan, after.learner.params))
        return replace(after, learner=learner), {**metrics, "finite": torch.where(bad, 0.0, metrics["finite"])}

    broken = evolve(pipeline, trainer=evolve(trainer, iterate=iterate))

    class Broken(ClassicRecipe):
        def build(self, settings: Classic, context: Context) -> Components:
            return components_of(self.name, settings, broken)

    name = plan.recipe.name
    return evolve(plan, recipe=Broken(name, *ROWS[name]))


def test_numbers_that_are_not_finite_stop_the_run_and_are_never_saved(tmp_path: Path) -> None:
    said = (
        r"^train: iteration 5: learner.params.policy.0.weight is NaN in 32 of 32 numbers, wanted finite numbers; "
        r"lower --learning-rate.* checkpoint of iteration 4 stays$"
    )
    with pytest.raises(NonFiniteError, match=said) as caught:
        begin(tmp_path, diverging(tiny(), 5))
    assert "\n" not in str(caught.value)
    where = runs.newest_checkpoint(tmp_path)
    assert where.name == "step_000004"
    found = runs.restore_run(tmp_path)
    assert (found.where, found.loop.iteration) == (where, 4)
    assert all(bool(torch.isfinite(leaf).all()) for leaf in leaves(found.state) if leaf.is_floating_point())
    assert [row["finite"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [1, 1, 1, 1, 0]


def test_a_run_that_diverges_at_once_says_that_there_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError, match=r"iteration 1: .*there is no checkpoint yet"):
        begin(tmp_path, diverging(tiny(), 1))
    assert not folder.has_checkpoints(tmp_path)


def test_a_folder_with_checkpoints_is_not_begun_anew_unless_asked(tmp_path: Path) -> None:
    begin(tmp_path, tiny())
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match=r"a run with checkpoints.*purestep resume .*--overwrite"):
        begin(tmp_path, tiny(seed=1))
    assert begin(tmp_path, tiny(seed=1), overwrite=True).loop.iteration == 6
    assert json.loads((tmp_path / "arguments.json").read_text())["seed"] == 1
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == 6


def test_a_folder_with_somebody_elses_checkpoints_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "theirs").write_text("precious")
    for overwrite in (False, True):
        with pytest.raises(
            CheckpointError, match="a folder with 'checkpoints', and no run of purestep, wanted a new folder"
        ):
            begin(tmp_path, tiny(), overwrite=overwrite)
    assert (tmp_path / "checkpoints" / "theirs").read_text() == "precious"


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    begin(tmp_path, tiny())
    with lock(tmp_path):
        with pytest.raises(CheckpointError, match="in use by process"):
            runs.resume(tmp_path, notice=silent)
        with pytest.raises(CheckpointError, match="in use by process"):
            begin(tmp_path, tiny(), overwrite=True)


def test_what_is_no_run_is_refused_and_no_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no folder, wanted that of a run"):
        runs.resume(tmp_path / "absent", notice=silent)
    assert not (tmp_path / "absent").exists()
    with pytest.raises(CheckpointError, match="no run of purestep, wanted that of a run"):
        runs.resume(tmp_path, notice=silent)
    assert not any(tmp_path.iterdir())


def test_a_run_without_a_checkpoint_yet_is_begun_again(tmp_path: Path) -> None:
    notices: list[str] = []
    run = begun(tmp_path, encode(tiny().described()))
    with pytest.raises(CheckpointError, match=f"without a checkpoint, wanted .*train it: purestep resume {run}"):
        runs.restore_run(run)
    assert runs.resume(run, notice=notices.append).session.trained == 6
    assert notices[0] == f"no checkpoint yet: {run} begins again, with its own arguments"
    begin(tmp_path / "whole", tiny())
    assert newest(run)[0] == newest(tmp_path / "whole")[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"recipe": "pppo"}, "recipe is 'pppo', wanted .*did you mean 'ppo'"),
        ({"recipe": "a2c"}, "arguments of a2c is with other names"),
        ({"hidden": (16,)}, r"\[4, 8\]|\[\d+\] float32, wanted .*architecture"),
        ({"more": 1}, r"with other names: \['more'\]"),
        ({"env": "nowhere"}, "--env is 'nowhere'"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    plan = tiny()
    state = plan.pipeline.trainer.init(torch.tensor([1, 2]))
    single.save(
        begun(tmp_path, encode(plan.described())), 1, state, machine=AT, metadata={**plan.described(), **change}
    )
    with pytest.raises((ChoiceError, CheckpointError), match=said):
        runs.resume(tmp_path, notice=silent)


def test_a_change_of_what_bits_depend_on_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(tmp_path, tiny())
    told: list[str] = []
    runs.resume(tmp_path, notice=told.append)
    assert told == []
    monkeypatch.setattr(single, "environment", lambda: {"torch": "9.9"})
    runs.resume(tmp_path, notice=told.append)
    assert any("torch: 2" in line and "9.9 now" in line for line in told)


def test_a_full_disk_leaves_the_older_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    inner, calls = single.save, iter(range(1, 100))

    def save(*given: Any, **named: Any) -> Path:
        files = evolve(DISK, append=full) if next(calls) == 2 else DISK
        return inner(*given, **{**named, "files": files})

    monkeypatch.setattr(single, "save", save)
    with pytest.raises(CheckpointError, match=r"a full disk, wanted room for .*the older checkpoints are untouched"):
        begin(tmp_path, tiny())
    assert runs.newest_checkpoint(tmp_path).name == "step_000002"


# --- metrics and pictures ---


def test_rows_say_what_happened_and_nan_where_nothing_did() -> None:
    metrics = {name: torch.tensor([1.0, 0.0]) for name in ("episodes", "return_sum", "length_sum", "finite")}
    one, two = loop_state.iteration_rows(metrics, 4, 10)
    assert one == {"iteration": 5, "steps": 50, "episodes": 1, "episode_return": 1, "episode_length": 1, "finite": 1}
    assert math.isnan(two["episode_return"])


def test_runs_of_one_kind_share_a_label_and_others_say_how_they_differ() -> None:
    base = {"recipe": "ppo", "env": "cartpole", "seed": 0, "gamma": 0.9, "clip": 0.2}
    runs = [base, {**base, "seed": 1}, {**base, "gamma": 0.99}, {**base, "env": "acrobot"}]
    named = labels({Path(str(number)): run for number, run in enumerate(runs)})
    assert list(named.values()) == [
        "ppo cartpole, gamma 0.9",
        "ppo cartpole, gamma 0.9",
        "ppo cartpole, gamma 0.99",
        "ppo acrobot",
    ]


@pytest.mark.slow
def test_pictures_of_one_run_and_of_several(tmp_path: Path) -> None:
    runs = [tmp_path / str(seed) for seed in range(2)]
    for seed, run in enumerate(runs):
        begin(run, tiny(seed=seed, steps=160))
    for number, chosen in enumerate([runs[:1], runs]):
        out = draw_metric(chosen, tmp_path / f"{number}.png")
        assert out.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(CheckpointError, match="no run of purestep"):
        draw_metric([tmp_path], tmp_path / "none.png")
