"""The page on composing a pipeline is true: its code runs as it stands, and does what the text says."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import purestep as ps
from purestep import keys
from purestep.core.networks import functional
from purestep.core.tree import leaves, same_structure
from purestep.runtime.effects.reporting.metrics import read_metrics

PAGE = (Path(__file__).parents[3] / "docs" / "compose.md").read_text()
SECTIONS = dict(re.findall(r"^## (.*?)\n.*?```python\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))
BASIS = ("Environment", "Network")
PUBLIC: list[str] = vars(ps)["__all__"]
TAKEN = re.compile(r"\bps\.(\w+)")

Names = dict[str, Any]


def assert_bits(got: Any, wanted: Any) -> None:
    same_structure("test", got, wanted)
    assert all(torch.equal(a, b) for a, b in zip(leaves(got), leaves(wanted), strict=True))


def run(section: str, names: Names, code: str = "") -> Names:
    exec(compile(code or SECTIONS[section], f"compose.md: {section}", "exec"), names)
    return names


@pytest.fixture(scope="module")
def basis() -> Names:
    names: Names = {}
    for section in BASIS:
        run(section, names)
    return names


@pytest.fixture
def names(basis: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Names:
    """Every section continues the first two, and no other."""
    monkeypatch.chdir(tmp_path)
    return dict(basis)


def short_of(names: Names, algorithm: ps.Algorithm, iterations: int = 5) -> tuple[ps.RunState, Any]:
    """Some iterations of an algorithm on the page's environment and model."""
    trainer = ps.trainer(names["env"], names["model"], algorithm, envs=16, horizon=20)
    return ps.train(trainer, iterations)(trainer.init(keys.key(0)))


def plain_of(names: Names, **settings: Any) -> ps.Algorithm:
    return ps.ppo(names["model"], names["optimizer"], **settings)


def test_every_section_has_one_block_of_public_names() -> None:
    assert len(SECTIONS) == PAGE.count("\n## ") == PAGE.count("```python") == 13
    assert tuple(SECTIONS)[:2] == BASIS
    used = {name for code in SECTIONS.values() for name in TAKEN.findall(code)}
    assert used <= set(PUBLIC)


def test_environment_depends_on_its_key_and_its_parameters(names: Names) -> None:
    boat = names["boat"]
    state, _ = boat.reset(boat.params, keys.key(0))
    places = {float(boat.step(boat.params, state, torch.tensor(1), keys.key(seed))[0].place) for seed in range(4)}
    assert len(places) == 4
    still = torch.tensor(0.0)
    moved, _ = boat.step(still, state, torch.tensor(2), keys.key(0))
    torch.testing.assert_close(moved.place, state.place + 0.2)
    test = ps.evaluate(names["env"], names["model"], episodes=4, steps=30)
    assert int(test(names["state"].learner.params, (), keys.key(0)).lengths.max()) <= 20


@pytest.mark.slow
def test_network_learns(names: Names) -> None:
    returns = names["metrics"]["return_sum"] / names["metrics"]["episodes"]
    assert returns[-1] > returns[0] + 2
    names["learn"] = ps.train(names["trainer"], 15)
    _, metrics = names["learn"](names["state"])
    assert metrics["return_sum"][-1] / metrics["episodes"][-1] > -4.0
    torso = names["state"].learner.params["torso"]
    assert [tuple(layer.weight.shape) for layer in torso] == [(2, 32)]


# --- memory ---


@pytest.fixture(scope="module")
def remembered(basis: Names) -> Names:
    return run("Network with memory", dict(basis))


def mean_return(names: Names, params: Any) -> float:
    return float(names["test"](params, (), keys.key(3)).returns.mean())


@pytest.mark.slow
def test_memory_solves_what_chance_does_not(remembered: Names) -> None:
    untrained, trained = mean_return(remembered, remembered["params"]), mean_return(remembered, remembered["trained"])
    assert untrained < 0.7
    assert trained > 0.95
    assert remembered["losses"][-10:].mean() < 0.2 * remembered["losses"][:10].mean()


@pytest.mark.slow
def test_without_memory_the_same_training_stays_at_chance(names: Names) -> None:
    kept, lost = "torch.cat([observation, memory], -1)", "torch.cat([observation, 0.0 * memory], -1)"
    code = SECTIONS["Network with memory"]
    assert code.count(kept) == 1
    blind = run("Network with memory", names, code.replace(kept, lost))
    assert mean_return(blind, blind["trained"]) < 0.7


def test_memory_is_reset_at_the_end_of_an_episode_also_in_the_loss(remembered: Names) -> None:
    params, worlds, loss = remembered["trained"], remembered["worlds"], remembered["loss"]
    after, played = remembered["play"](params, worlds, keys.key(4))
    assert played.terminated.sum(0).tolist() == [2] * 32
    assert torch.equal(after.memory, torch.zeros(32, 16))
    midway, _ = ps.rollout(remembered["recalls"], remembered["recurrent"], 7)(params, worlds, keys.key(4))
    assert (midway.memory.abs().amax(-1) > 0.1).all()
    other = ps.replace(worlds, fresh=worlds.fresh + 1.0)
    endless = ps.replace(played, terminated=torch.zeros_like(played.terminated))
    assert loss(params, worlds, played) != loss(params, other, played)
    assert loss(params, worlds, endless) == loss(params, other, endless)


def test_probes_are_metrics_and_values(names: Names) -> None:
    run("Probe", names)
    means, largest = names["metrics"]["drift_mean"], names["metrics"]["drift_max"]
    assert means.shape == (5,)
    assert bool((means < largest).all())
    (drift,) = names["values"]["drift"]
    torch.testing.assert_close(
        drift, torch.cat([names["state"].worlds.observation.abs().T, names["trajectory"].observation[1:, :, 0].abs()])
    )


def test_the_loss_replays_the_memory_that_acted(remembered: Names) -> None:
    """At the acting parameters its log-probs are those of the trajectory; otherwise it would train another policy."""
    params, worlds = remembered["trained"], remembered["worlds"]
    _, played = remembered["play"](params, worlds, keys.key(4))
    replayed: list[torch.Tensor] = []

    def noting(log_prob: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
        replayed.append(log_prob)
        return ps.policy_gradient(log_prob, advantage)

    class Noting:
        policy_gradient = staticmethod(noting)

        def __getattr__(self, name: str) -> Any:
            return getattr(ps, name)

    again = run("Network with memory", dict(remembered), _functions_of("Network with memory", "loss"))
    again["ps"] = Noting()
    again["loss"](params, worlds, played)
    torch.testing.assert_close(replayed[0], played.behaviour_log_prob)


def _functions_of(section: str, name: str) -> str:
    """The source of one function at the top level of a block."""
    (found,) = re.findall(rf"^def {name}\(.*?(?=^\S)", SECTIONS[section], re.MULTILINE | re.DOTALL)
    return str(found)


# --- algorithms ---


@pytest.mark.slow
def test_loss_term_is_added_to_that_of_ppo(names: Names) -> None:
    run("Loss term", names)
    for clip in (0.2, 0.0):
        own, _ = short_of(names, names["my_ppo"](0.0, clip=clip), 2)
        plain, _ = short_of(names, plain_of(names, clip=clip), 2)
        assert_bits(own, plain)
    assert torch.isfinite(names["metrics"]["feature_size"]).all()
    _, sizes = short_of(names, names["my_ppo"](0.0))
    _, smaller = short_of(names, names["my_ppo"](10.0))
    assert smaller["feature_size"][-1] < 0.9 * sizes["feature_size"][-1]


@pytest.mark.slow
def test_schedules_are_those_of_the_text(names: Names) -> None:
    run("Schedule", names)
    count, factor = names["state"].learner.optimizer[-1].count, names["state"].learner.optimizer[-1].factor
    assert int(count) == 5 * 16
    assert float(factor) == pytest.approx(0.99**79, rel=1e-6)
    state = names["annealing"].init(keys.key(0))
    for number in range(5):
        clip = 0.2 * (1.0 - number / 5)
        fixed = ps.trainer(names["env"], names["model"], ps.ppo(names["model"], names["decayed"]), envs=16, horizon=20)
        state = ps.with_hyperparameters(state, {"clip": clip, "entropy_coefficient": clip / 10})
        state, _ = fixed.iterate(state)
    for got, wanted in zip(leaves(names["state"].learner), leaves(state.learner), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    constant, _ = short_of(names, ps.ppo(names["model"], names["decayed"], clip=0.2, entropy_coefficient=0.02))
    assert not torch.allclose(constant.learner.params["torso"][0].weight, state.learner.params["torso"][0].weight)


def test_params_of_the_environment_are_in_the_state(names: Names) -> None:
    run("Params of the environment", names)
    mixed, harder = names["mixed"], names["harder"]
    assert mixed.env_params.pole_mass[1] == 3 * mixed.env_params.pole_mass[0] == harder.env_params.pole_mass[0]
    assert int(harder.env_steps) == 2 * int(mixed.env_steps)


def test_imitation_learns_the_actions_that_are_shown(names: Names) -> None:
    untrained = names["metrics"]["return_sum"][0] / names["metrics"]["episodes"][0]
    run("Imitation", names)
    assert names["losses"][-1] < 0.1 < names["losses"][0]
    assert names["metrics"]["return_sum"][0] / names["metrics"]["episodes"][0] > untrained / 3  # returns are negative


@pytest.mark.slow
def test_metric_appears_in_the_metrics_and_in_the_file(names: Names) -> None:
    run("Metric", names)
    stays = names["metrics"]["stays"]
    assert stays.shape == (5,)
    assert ((stays > 0.0) & (stays < 1.0)).all()
    rows = read_metrics(Path("runs/compose/metrics.jsonl"))
    assert [row["iteration"] for row in rows] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert [row["stays"] for row in rows] == stays.tolist()
    _, plain = short_of(names, plain_of(names))
    assert all(torch.equal(names["metrics"][name], value) for name, value in plain.items())
    boats = ps.batched(ps.auto_reset(names["env"]), 16)
    state = plain_of(names).init(keys.key(0))
    _, played = ps.rollout(boats, names["model"], 20)(state.params, ps.reset_rollout(boats, keys.key(1)), keys.key(2))
    _, counted = names["counting"].update(state, played, keys.key(3))
    assert float(counted["stays"]) == pytest.approx(sum(row.count(1) for row in played.action.tolist()) / 320)


# --- a run ---


@pytest.mark.slow
def test_evaluation_improves_and_leaves_the_run_as_it_is(names: Names) -> None:
    run("Evaluation between iterations", names)
    means = [score.mean_return for score in names["scores"]]
    assert torch.isfinite(torch.tensor(means)).all()
    assert means[-1] > means[0] + 3.0
    state = names["trainer"].init(keys.key(0))
    for _ in range(3):
        state, _ = names["learn"](state)
    assert_bits(names["state"], state)


@pytest.mark.slow
def test_resumed_run_equals_the_uninterrupted_one(names: Names, capsys: pytest.CaptureFixture[str]) -> None:
    run("Checkpoint and resume", names)
    assert capsys.readouterr().out == "5 True\n"
    assert_bits(names["resumed"], names["whole"])
    assert_bits(names["saved"].tree, names["state"])
    moved = names["whole"].learner.params["torso"][0].weight
    assert not torch.equal(moved, names["state"].learner.params["torso"][0].weight)


def test_replay_buffer_and_queue_keep_their_limits(names: Names, capsys: pytest.CaptureFixture[str]) -> None:
    run("Replay buffer and queue", names)
    assert capsys.readouterr().out == "torch.Size([64]) 256 0\naccepted\naccepted\naccepted\nfull\n1 old\n"
    assert_bits([names["first"], names["second"]], names["trajectories"][:2])
    assert names["versions"].tolist() == [0] * 64
    stored = {tuple(row) for row in torch.stack([names["rows"].observation[:, 0], names["rows"].reward], -1).tolist()}
    drawn = {tuple(row) for row in torch.stack([names["batch"].observation[:, 0], names["batch"].reward], -1).tolist()}
    assert drawn <= stored
    assert len(drawn) == 64
    assert names["buffer"].draw(keys.key(3), 257, 2) == ()


@pytest.mark.slow
def test_run_is_on_the_device_of_its_key(names: Names) -> None:
    """The meta device, which holds no numbers, refuses to mix with the CPU as a GPU does."""
    run("Device", names)
    assert names["state"].env_steps == 5 * 320
    assert {leaf.device.type for leaf in leaves(names["state"])} == {names["device"]}
    state, metrics = names["on_device"].iterate(names["on_device"].init(keys.key(0, device="meta")))
    assert {leaf.device.type for leaf in leaves((state, metrics))} == {"meta"}


def test_what_the_page_says_stays_where_it_was_made_does() -> None:
    """If one of these fails, the library follows the key further than the page says: change the page."""
    weights = functional(torch.nn.Linear(2, 1)).init(keys.key(0, device="meta"))
    assert {leaf.device.type for leaf in leaves(weights)} == {"cpu"}
    grid = ps.make("gridworld")
    with pytest.raises(RuntimeError, match="device"):
        grid.reset(grid.params, keys.key(0, device="meta"))


# --- compiled ---


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import sections as one module: the compiler finds a function's names by importing its module."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def load(section: str) -> Names:
        name = "composed_" + section.lower().replace(" ", "_")
        (tmp_path / f"{name}.py").write_text("\n".join(SECTIONS[each] for each in dict.fromkeys((*BASIS, section))))
        return vars(importlib.import_module(name))

    return load


@pytest.mark.slow
def test_a_trainer_with_a_loss_of_its_own_compiles(imported: Any) -> None:
    trainer = imported("Loss term")["regularized"]
    learn, start = ps.train(trainer, 2), trainer.init(keys.key(0))
    state, metrics = learn(start)
    compiled, figures = ps.program(learn)(start)
    same_structure("compiled", compiled, state)
    for name, value in metrics.items():
        torch.testing.assert_close(figures[name], value, rtol=1e-2, atol=1e-2)


@pytest.mark.slow
def test_schedules_of_numbers_compile(imported: Any) -> None:
    trainer = imported("Schedule")["annealing"]
    ps.program(ps.train(trainer, 2))(trainer.init(keys.key(0)))


@pytest.mark.slow
def test_the_loop_with_memory_compiles(imported: Any) -> None:
    names = imported("Network with memory")
    start = names["params"], names["optimizer"].init(names["params"]), names["worlds"]
    loop = ps.program(lambda start, draws: ps.scan(names["iterate"], start, draws))
    _, losses = loop(start, keys.split(keys.key(2), 50))
    torch.testing.assert_close(losses[:5], names["losses"][:5], rtol=1e-3, atol=1e-3)
    assert losses[-10:].mean() < 0.2 * losses[:10].mean()
