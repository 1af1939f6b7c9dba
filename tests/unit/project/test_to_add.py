"""What CONTRIBUTING.md says about adding things: one small file of each kind, registered as it says, and used.

A file of the library is written to a folder of the test, and imported under the name that it would have in the library.
"""

import ast
import importlib.util
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from attrs import evolve

from purestep.algorithms import ppo as ppo_file
from purestep.core import envs, keys
from purestep.core.envs import cartpole
from purestep.core.errors import ChoiceError
from purestep.core.optim.optimizers import sgd
from purestep.core.policy import actor_critic_mlp
from purestep.core.steps import Trajectory
from purestep.properties import env_laws, loss_laws, verify
from purestep.properties.framework.families import Family
from purestep.properties.framework.law import Mutant, Suite
from purestep.properties.framework.matrix import Table, faults, row
from purestep.properties.framework.profiles import named_profile
from purestep.runtime.cli import main
from purestep.runtime.effects import cluster, task_reference
from purestep.runtime.effects.task_reference import load_task, trust
from purestep.runtime.recipes import classic, shared_settings
from purestep.runtime.runs import recipe as recipe_module
from purestep.runtime.runs.run import train
from purestep.runtime.text.validate_task import validate_task

from ...support.additions import ALGORITHM, ENV, LAW, TASK
from ...support.engine_contract import Bench, Claim, calls_are_made_one_by_one_in_order, many_threads_may_call, name_of

ROOT = Path(__file__).parents[3]
PART = " ".join((ROOT / "CONTRIBUTING.md").read_text().partition("## To add")[2].split())
QUICK = named_profile("quick")
Added = Callable[[str, str], ModuleType]  # (path in the library, its text)


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Added:
    """Write a file of the library, and import it under its name there."""

    def add(path: str, text: str) -> ModuleType:
        assert not (ROOT / path).exists()
        place, name = tmp_path / Path(path).name, ".".join(("purestep", *Path(path).with_suffix("").parts))
        place.write_text(text)
        spec = importlib.util.spec_from_file_location(name, place)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return add


def test_the_paths_and_names_are_there() -> None:
    named = re.findall(r"`([\w/.]+\.py)(?:: ([\w, ]+))?`", PART)
    assert len(named) >= 20
    for path, names in named:
        if path != "families.py":
            top = {
                getattr(part, "name", None) or getattr(part, "id", "")
                for node in ast.parse((ROOT / path).read_text()).body
                for part in ([node] if hasattr(node, "name") else ast.walk(node))
            }
            assert set(filter(None, names.split(", "))) <= top, path
    folders = re.findall(r"`([\w/]+/)`", PART)
    assert len(folders) >= 8
    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []


# --- an environment ---


def test_an_environment(added: Added, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    corridor = added("core/envs/corridor.py", ENV).corridor
    report = verify(env_laws, corridor(), profile=QUICK)
    assert report, report
    outside = added("core/envs/outside.py", ENV.replace(".clamp(min=0)", "")).corridor
    assert not verify(Suite("spaces", (env_laws["spaces_hold"],)), outside(), profile=QUICK)
    monkeypatch.setitem(envs.ENVS, "corridor", corridor)
    monkeypatch.setattr(shared_settings, "env_names", lambda: tuple(envs.ENVS))
    small: dict[str, Any] = {"steps": 32, "envs": 2, "horizon": 8, "hidden": (4,), "backend": "none"}
    found = train("reinforce", tmp_path / "run", env="corridor", notice=lambda text: None, **small)
    assert found.loop.iteration == 2


# --- an algorithm ---


def test_an_algorithm(
    added: Added, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    added("algorithms/rooted.py", ALGORITHM)
    row = ("of a root", "One step for each batch.", "purestep.algorithms.rooted:rooted", {"cartpole": {"root": 0.5}})
    monkeypatch.setitem(classic.RECIPES, "rooted", classic.ClassicRecipe("rooted", *row))
    assert recipe_module.listed()["rooted"] == "of a root"
    small = ["--steps", "32", "--envs", "2", "--horizon", "8", "--hidden", "4", "--backend", "none", "--episodes", "1"]
    run = str(tmp_path / "run")
    assert main.main(["train", "rooted", *small, "--run", run]) == 0
    assert json.loads((tmp_path / "run" / "arguments.json").read_text())["root"] == 0.5
    assert main.main(["resume", run, "--gamma", "0.75", "--steps", "64"]) == 0
    assert "--gamma 0.75 from iteration" in capsys.readouterr().err
    assert main.main(["train", "rooted", "--help"]) == 0
    assert "square root of the entropy's weight (default: 0.5)" in " ".join(capsys.readouterr().out.split())
    assert main.main(["train", "rooted", "--root", "-1", "--run", run]) == 1
    assert "--root is -1.0, wanted a number from 0.0 to 1e+30" in capsys.readouterr().err


# --- a loss ---

LOSS = '''"""The surrogate of the ratio alone, without a clip."""

import torch
from torch import Tensor

from ..core.shapes import same_shape


def ratio_surrogate(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor) -> Tensor:
    """Return L = -A p(a) / b(a) for each step: [*]."""
    same_shape("ratio_surrogate", log_prob=log_prob, behaviour_log_prob=behaviour_log_prob, advantage=advantage)
    return -advantage.detach() * torch.exp(log_prob - behaviour_log_prob.detach())
'''


def test_a_loss(added: Added) -> None:
    loss = added("algorithms/ratio_surrogate.py", LOSS).ratio_surrogate
    laws = loss_laws(clipped=False, detached=True)
    report = verify(laws, loss, profile=QUICK)
    assert report, report
    wrong = added(
        "algorithms/wrong.py", LOSS.replace("behaviour_log_prob.detach()", "behaviour_log_prob")
    ).ratio_surrogate
    assert not verify(laws, wrong, profile=QUICK)

    env = cartpole()
    model = actor_critic_mlp(env.observation_space, env.action_space, (4,))
    rows = 3
    numbers = {"clip": 0.2, "value_coefficient": 0.0, "entropy_coefficient": 0.0}
    sample = ppo_file.PPOSample(
        observation=keys.normal(keys.key(0), (rows, 4)),
        action=torch.zeros(rows, dtype=torch.int64),
        behaviour_log_prob=torch.full((rows,), -0.5),
        behaviour_value=torch.zeros(rows),
        advantage=torch.ones(rows),
        target=torch.zeros(rows),
    )
    surrogate: ppo_file.Surrogate = lambda log_prob, sample, advantage, numbers: (  # noqa: E731
        loss(log_prob, sample.behaviour_log_prob, advantage),
        sample.behaviour_log_prob,
        (),
    )
    made = surrogate, lambda *_: sample, ppo_file.METRICS
    algorithm = ppo_file.ppo_learner(model, sgd(0.1), numbers, *made, epochs=1, minibatches=1)
    state = algorithm.init(keys.key(1))
    no, played = torch.zeros(rows, 1, dtype=torch.bool), torch.zeros(rows, 1)  # `lambda *_: sample` reads none of it
    trajectory = Trajectory(
        observation=played,
        action=played,
        reward=played,
        terminated=no,
        truncated=no,
        next_observation=played,
        behaviour_log_prob=played,
    )
    _, told = algorithm.update(state, trajectory, keys.key(2))
    log_prob = model.apply(state.params, sample.observation, ())[0].log_prob(sample.action)
    assert torch.allclose(told["policy_loss"], -torch.exp(log_prob + 0.5).mean())


# --- a law ---


def test_a_law(added: Added) -> None:
    law = added("properties/suites/small_rewards.py", LAW).SMALL_REWARDS
    assert Suite("more", (*env_laws, law))["small_rewards"] is law

    def tried(suite: Suite) -> list[str]:
        family = Family(suite, cartpole())
        return faults([Table(suite.name, tuple(row(family, one, QUICK) for one in (None, *family.mutants)), 0.0)])

    assert tried(Suite("small", (law,))) == []
    spared = evolve(law, mutant=Mutant("changes nothing", lambda env: env))
    assert "changes nothing" in " ".join(tried(Suite("small", (spared,))))


# --- a task for a language model ---


def test_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr(task_reference, "_trusted", set[str]())
    (tmp_path / "repeat.py").write_text(TASK)
    reference = f"{tmp_path / 'repeat.py'}:REPEAT"
    trust(reference)
    assert validate_task(load_task(reference)).name == "repeat"
    tiny: dict[str, Any] = {"steps": 1, "groups": 2, "samples": 2, "held_out": 2, "width": 16, "layers": 1, "heads": 2}
    room: dict[str, Any] = {"capacity": 64, "max_turns": 1, "max_new_tokens": 2, "vocabulary": 280}
    found = train(reference, tmp_path / "run", notice=lambda text: None, **tiny, **room)
    assert (found.interrupted, found.loop.iteration) == (False, 1)


# --- a recipe ---

RECIPE = '''"""A recipe that halves a number."""

from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from ..runs.recipe import Components, Context, Lines, Notice, Recipe
from ..runs.run import restore_run, stepped
from ..runs.training_machine import plan


@frozen
class Settings:
    """Halve a number."""

    iterations: int = 3  # how often


class Halve(Recipe):
    """The recipe halve."""

    name, about = "halve", "halve a number"

    def defaults(self, choice: str | None = None) -> Settings:
        """Return the default settings."""
        return Settings()

    def build(self, settings: Settings, context: Context) -> Components:
        """Return the run of these settings."""
        halve = lambda state: (state / 2, {"episode_return": float(state)})
        return Components(loop=plan(settings.iterations, 3), begin=lambda: torch.ones(()), session=stepped(halve))

    def evaluate(self, run: Path, options: Any, notice: Notice) -> Lines:
        """Yield the number."""
        yield f"evaluation: {float(restore_run(run).state)}"


RECIPE = Halve()
'''


def test_a_recipe(
    added: Added, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    added("runtime/recipes/halve.py", RECIPE)
    with pytest.raises(ChoiceError, match="recipe is 'halve', wanted one of"):
        recipe_module.find("halve")
    monkeypatch.setitem(recipe_module.OWN, "halve", "recipes.halve:RECIPE")
    run = str(tmp_path / "run")
    for command in (["train", "halve", "--iterations", "4", "--run", run], ["resume", run], ["evaluate", run]):
        assert main.main(command) == 0
        assert "evaluation: 0.0625\n" in capsys.readouterr().out
    assert recipe_module.listed()["halve"] == "halve a number"


# --- an engine ---

ENGINE = '''"""An engine whose members are threads: they cannot be killed, so it keeps only a part of the contract."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

from ....core.errors import message
from .interface import Cluster, EngineError
from .local.cluster import State
from .local.member_program import HEAD, MemberStage
from .local.members import ENDED, SAID, HostAccess, Tell
from .local.rules import Seat


def threads(tell: Tell) -> HostAccess:
    """Return access to members in threads."""
    boxes: dict[Seat, SimpleQueue[bytes]] = {}

    def work(seat: Seat) -> None:
        stage = MemberStage()
        while letter := boxes[seat].get():
            tell(SAID, seat, stage.perform(*HEAD.unpack_from(letter), letter[HEAD.size :]))
        tell(ENDED, seat, b"ended")

    def start(seat: Seat) -> None:
        boxes[seat] = SimpleQueue()
        threading.Thread(target=work, args=(seat,), daemon=True).start()

    def end(seat: Seat) -> None:
        boxes[seat].put(b"")

    return HostAccess(start, lambda seat, letter: boxes[seat].put(letter), end, lambda: [*map(end, boxes)] and None)


@contextmanager
def clustered(hosts: tuple[str, ...] = (), *, store: int = 0) -> Iterator[Cluster]:
    """Open a cluster on this machine."""
    state = State()
    state.take_in("local", threads(state.handle_report))
    own = {"hosts": state.hosts, "spawn": state.spawn, "failure": state.failure, "stop": state.stop}
    try:
        yield Cluster(name="threads", add_host=refused, **own)
    finally:
        state.stop(timeout=5.0)


def refused(address: str, /, *, timeout: float = 0.0) -> str:
    """Refuse another host."""
    remedy = "take another engine"
    raise EngineError(message(f"host {address}", got="another", wanted="this machine", remedy=remedy))


def serve(address: str, *, ready: Callable[[str], None]) -> None:
    """Refuse to serve as a host."""
    refused(address)
'''


@pytest.mark.parametrize("claim", [calls_are_made_one_by_one_in_order, many_threads_may_call], ids=name_of)
def test_an_engine(claim: Claim, added: Added, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    added("runtime/effects/cluster/threads.py", ENGINE)
    monkeypatch.setitem(cluster.ENGINES, "threads", "threads")
    with cluster.open_cluster("threads") as found:
        bench = Bench(cluster=found, host=None, opened=lambda: cluster.open_cluster("threads"), nowhere="127.0.0.1:1")
        claim(bench, tmp_path)
        assert found.failure(0.1) == ()
    with pytest.raises(cluster.interface.EngineError, match=r"host 127\.0\.0\.1:1 is another, wanted this machine"):
        cluster.serve_host("threads", "127.0.0.1:1", ready=print)
