"""The recipe that teaches a language model to use tools: whole runs of a very small one, cut, resumed, asked and drawn."""

import ast
import importlib
import io
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve

pytest.importorskip("transformers")


from purestep.core import keys
from purestep.core.errors import CheckpointError, ChoiceError, NonFiniteError, PurestepError
from purestep.core.language.requests import stream_of
from purestep.core.language.to_transcript import transcripts
from purestep.core.language.zorplex.corpus import zorplex_texts
from purestep.core.language.zorplex.env import zorplex
from purestep.core.language.zorplex.questions import typed
from purestep.core.language.zorplex.tasks import follow_redirections
from purestep.core.record import replace
from purestep.core.transcript.log_probs import token_log_probs
from purestep.runtime.cli import main
from purestep.runtime.cli import run as commands
from purestep.runtime.effects.checkpoint.tensor_file import read_tensors
from purestep.runtime.effects.generation.engine import complete, generator
from purestep.runtime.effects.hugging_face.causal_lm import from_config, tiny_llama
from purestep.runtime.effects.hugging_face.folder import open_model, save_model
from purestep.runtime.effects.hugging_face.tokenizer import train_tokenizer
from purestep.runtime.effects.openai_server.vllm_weights import lay_out
from purestep.runtime.effects.reporting.metrics import read_metrics
from purestep.runtime.recipes import text_run
from purestep.runtime.recipes.zorplex import Zorplex, zorplex_defaults
from purestep.runtime.runs import run as runs
from purestep.runtime.runs.arguments import changed, flag, flatten
from purestep.runtime.runs.recipe import SessionResult
from purestep.runtime.runs.training_machine import TrainChunk
from purestep.runtime.text import report, training_loop
from purestep.runtime.text import run as session
from purestep.runtime.text import sampling as serving
from purestep.runtime.text.build_learner import language_algorithm, objective_of, trainer_of
from purestep.runtime.text.components import LEAST, attempts_at, sampler, text_components
from purestep.runtime.text.config import CHANGES
from purestep.runtime.text.evaluation import held_out, wilson
from purestep.runtime.text.supervised_warm_start import draw_demonstrations, optimizer_label
from purestep.runtime.text.training_loop import phases, policy_of, training_requests, warm_start_settings

from ...support.run_folders import begun, restored

transformers: Any = importlib.import_module("transformers")
ROOT = Path(__file__).parents[3]
Said = pytest.CaptureFixture[str]
TINY: dict[str, Any] = {
    "width": 16,
    "layers": 1,
    "heads": 2,
    "warm_steps": 30,
    "skill": 0.35,
    "format": 0.1,
    "demonstrations": 12,
    "warm_batch": 4,
    "steps": 3,
    "minibatches": 1,
    "groups": 2,
    "samples": 3,
    "held_out": 6,
    "max_turns": 3,
    "max_new_tokens": 8,
    "capacity": 64,
}
WORDS = [word for name, value in TINY.items() for word in (flag(name), str(value))]


def tiny(algorithm: str = "grpo", **changes: Any) -> Zorplex:
    return changed(zorplex_defaults(algorithm), {**TINY, **changes})


def silent(text: str) -> None:
    """Nobody listens."""


def begin(run: Path, arguments: Zorplex) -> SessionResult:
    return session.start(run, arguments, overwrite=False, notice=silent)


def tensors(run: Path) -> dict[str, torch.Tensor]:
    """What the newest checkpoint holds."""
    import safetensors.torch

    return safetensors.torch.load_file(runs.newest_checkpoint(run) / "state.safetensors")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "one"
    assert main.main(["train", "zorplex", "--run", str(run), *WORDS]) == 0
    return run


# --- arguments ---


def test_arguments_survive_flattening_and_make_phases() -> None:
    arguments = tiny("ppo", kind="recursive")
    flat = flatten(arguments)
    assert runs.arguments_of({"recipe": "zorplex", **flat})[1] == arguments
    assert phases(arguments) == training_loop.PhaseLengths(warm=2, steps=3)
    assert phases(changed(arguments, {"warm_steps": 0})).warm == 0
    assert phases(changed(arguments, {"warm_steps": -1})).warm == 20
    assert phases(changed(arguments, {"warm_steps": -1, "model": "somewhere"})).warm == 0
    with pytest.raises(CheckpointError, match="with other names"):
        runs.arguments_of({"recipe": "zorplex", "width": 1})[1]


@pytest.mark.parametrize("algorithm", CHANGES)
def test_every_algorithm_has_settings_and_an_objective(algorithm: str) -> None:
    arguments = zorplex_defaults(algorithm)
    arguments.check()
    assert arguments.learning.algorithm == algorithm
    assert objective_of(arguments).critic == (algorithm == "ppo")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": 0}, "--steps is 0, wanted at least 1; change it"),
        ({"seed": -1}, "--seed is -1"),
        ({"samples": 0}, "--samples is 0"),
        ({"max_new_tokens": 0}, "--max-new-tokens is 0"),
        ({"skill": 1.5}, "--skill is 1.5"),
        ({"temperature": 0.0}, "--temperature is 0.0"),
        ({"learning_rate": math.nan}, "--learning-rate is nan"),
        ({"heads": 3}, r"--width and --heads is \(16, 3\)"),
        ({"minibatches": 7}, "--groups x --samples is 6, wanted at least --minibatches 7"),
        ({"lora": 4}, "--lora is without --model"),
        ({"budget": 63}, "--budget is 63, wanted at least --capacity 64"),
        ({"samples": 1}, "--samples is 1, wanted at least 2 for grpo"),
        ({"truncated": "bootstrap"}, "--truncated is 'bootstrap' with grpo, wanted --algorithm ppo"),
        ({"low": 5, "high": 1}, r"--low and --high is \(5, 1\)"),
        ({"kind": "recursive", "max_depth": 999}, "--max-depth is 999, wanted from 1 to 128"),
        ({"kind": "recursive", "max_depth": 14, "words": "letters"}, "--max-depth is 14, wanted from 1 to 13"),
        ({"top_p": 0.0}, "--top-p is 0.0"),
        ({"max_gradient_norm": 0.0}, "--max-gradient-norm is 0.0, wanted more than 0"),
    ],
)
def test_a_wrong_number_is_named_by_its_flag(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ChoiceError, match=said):
        tiny(**changes).check()


def test_one_attempt_at_a_task_is_enough_where_no_group_is_compared() -> None:
    for algorithm in ("reinforce", "ppo"):
        tiny(algorithm, samples=1).check()
    tiny("ppo", truncated="bootstrap").check()


@pytest.mark.parametrize(("correction", "weight"), [("none", 1.0), ("truncate", 2.0), ("mask", 0.0)])
def test_a_correction_acts_where_the_sampler_was_another(correction: str, weight: float, tmp_path: Path) -> None:
    """Each second row came from a sampler that gave every token a fourth of what the policy gives it."""
    arguments = tiny(correction=correction)
    parts = text_components(arguments, tmp_path)
    params = parts.begin()
    said = transcripts(draw_demonstrations(warm_start_settings(arguments, parts), keys.key(1), 8), capacity=64, calls=3)
    with torch.no_grad():
        own = token_log_probs(parts.model.head(params, parts.model.apply(params, said.token, (), ())), said.token)
    odd = torch.arange(8)[:, None] % 2 == 1
    told = torch.where(said.is_action, own - math.log(4) * odd, 0.0)
    said = replace(said, behaviour_log_prob=told, proximal_log_prob=told)
    algorithm = language_algorithm(arguments, parts.model)
    _, figures = algorithm.update(algorithm.init(params), said)
    weights = torch.where(odd, weight, 1.0).expand(said.token.shape)[said.is_action]
    wanted = weights.sum() ** 2 / (len(weights) * weights.square().sum())
    assert float(figures["effective_fraction"]) == pytest.approx(float(wanted), rel=1e-4)


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        ("grpo", {"top_p": 0.5, "temperature": 1.5}),
        ("gspo", {"top_p": 0.8}),
        ("ppo", {"top_p": 0.8}),
        ("cispo", {"top_p": 0.5, "correction": "truncate"}),
        ("dr_grpo", {"top_p": 0.8, "kl": 0.1}),
        ("rloo", {"top_p": 0.8, "kl": 0.1, "kl_in": "reward"}),
        ("reinforce", {"top_p": 1.0, "temperature": 0.7}),
    ],
)
def test_before_an_update_the_policy_is_the_one_sampled_from(
    algorithm: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    arguments = tiny(algorithm, **changes)
    parts = text_components(arguments, tmp_path)
    params = parts.begin()
    ask = sampler(parts, temperature=parts.sampling.temperature, top_p=parts.sampling.top_p)
    attempts = list(ask(params, 0, training_requests(arguments, keys.key(0), 0)))
    said = transcripts(attempts, capacity=max(len(one.ids) for one in attempts), calls=3)
    said = replace(said, reward=torch.where(torch.arange(3) == 0, torch.arange(len(attempts))[:, None] % 3 * 1.0, 0.0))
    own = language_algorithm(arguments, parts.model)
    learned = trainer_of(arguments, own)(own.init(parts.begin()), said, keys.key(1))
    assert learned.figures["log_prob_difference"] < 1e-5
    assert learned.figures["clip_fraction"] == 0.0
    assert abs(learned.figures["approximate_kl"]) < 1e-6
    assert learned.figures.get("outside_support", 0.0) == 0.0
    assert ("outside_support" in learned.figures) == (arguments.sampling.top_p < 1)


def test_help_explains_every_flag_and_shows_an_algorithms_own_settings(capsys: Said) -> None:
    assert main.main(["train", "zorplex", "--help", "--algorithm", "ppo"]) == 0
    text = capsys.readouterr().out
    assert [name for name in flatten(zorplex_defaults()) if flag(name) not in text] == []
    assert "The defaults shown are those of --algorithm ppo" in " ".join(text.split())
    assert main.main(["train"]) == 0
    assert "\n  zorplex " in capsys.readouterr().out
    assert main.main(["train", "zorplex", "--algorithm", "grpoo"]) == 1
    assert "did you mean 'grpo'" in capsys.readouterr().err


# --- what is asked, and how it is counted ---


def test_training_and_evaluation_share_no_task() -> None:
    arguments = tiny()
    key = keys.key(arguments.episodes.seed)
    training = [request for step in range(3) for request in training_requests(arguments, key, step)]
    assert {stream_of(request.task) for request in training} == {"training"}
    assert {stream_of(request.task) for request in held_out(64, 0)} == {"evaluation"}
    assert len({request.id for request in training}) == len(training) == 18
    assert len({request.sampling for request in training}) == 18
    groups = {group: [r.task for r in training if r.group == group] for group in {r.group for r in training}}
    assert all(len(tasks) == 3 and len(set(tasks)) == 1 for tasks in groups.values())
    assert len({tasks[0] for tasks in groups.values()}) == 6
    assert held_out(3, 0) == held_out(64, 0)[:3]


def test_intervals_are_those_of_the_book() -> None:
    """Brown, Cai and DasGupta 2001; statsmodels gives the same."""
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert wilson(243, 256) == pytest.approx((0.9149, 0.9701), abs=2e-4)


def needed_by(path: Path) -> set[Path]:
    """A file of ours and all of ours that it imports, wherever the import stands; the package's own front page apart."""
    found, waiting = set[Path](), [path]
    while waiting:
        here = waiting.pop()
        if here in found or not here.exists():
            continue
        found.add(here)
        for node in ast.walk(ast.parse(here.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = here.parents[node.level - 1].joinpath(*(node.module or "").split("."))
                waiting += [base.with_suffix(".py"), *(base / f"{alias.name}.py" for alias in node.names)]
    return found


def test_rollouts_and_evaluation_need_nothing_that_trains() -> None:
    for name in (
        "runtime/text/evaluation.py",
        "runtime/effects/generation/engine.py",
        "runtime/effects/openai_server/sample.py",
    ):
        found = {path.relative_to(ROOT).as_posix() for path in needed_by(ROOT / name)}
        assert "core/language/types.py" in found
        assert [name for name in found if name.startswith("algorithms") or "train" in name or "learn" in name] == []
    training = {path.relative_to(ROOT).as_posix() for path in needed_by(ROOT / "runtime/text/training_loop.py")}
    assert "algorithms/language/learner.py" in training


# --- whole runs ---


def test_train_evaluates_draws_and_leaves_a_model(trained: Path, capsys: Said) -> None:
    told = json.loads((trained / "evaluation.json").read_text())
    for when in ("before", "after"):
        for how in ("sampled", "greedy"):
            one = told[when][how]
            assert one["attempts"] == 6
            assert one["accuracy_low"] <= one["accuracy"] <= one["accuracy_high"]
            assert sum(one["modes"].values()) == pytest.approx(1.0)
    assert told["iteration"] == 5
    written = (trained / "evaluation.txt").read_text()
    for row in ("accuracy", "95 % interval", "format", "turns", "tool calls", "ended as tool_spam"):
        assert f"\n{row}" in written or f"\n  {row}" in written
    assert (trained / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    rows = read_metrics(trained / "metrics.jsonl")
    assert [row["iteration"] for row in rows] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert math.isfinite(rows[0]["warm_loss"])
    assert rows[1]["warm_loss"] < rows[0]["warm_loss"]
    assert all(math.isfinite(row["episode_return"]) for row in rows[2:])
    differences = [row["log_prob_difference"] for row in rows[2:] if math.isfinite(row["log_prob_difference"])]
    assert all(0.0 <= difference < 1e-4 for difference in differences)


def test_the_saved_folder_opens_and_gives_the_same_logits(trained: Path) -> None:
    parts, held, _ = restored(trained)
    params = parts.whole(policy_of(held))
    module = transformers.AutoModelForCausalLM.from_pretrained(str(trained / "model"), dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(trained / "model"))
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is zorplex[kramun]?"}], add_generation_prompt=True, return_dict=True
    )["input_ids"]
    (request,) = held_out(1, 0)
    assert tokenizer.get_vocab() == parts.tokenizer.get_vocab()
    for each in (ids, list(attempts_at(parts, [request])[0].ids)):
        tokens = torch.tensor([each])
        ours = parts.model.head(params, parts.model.apply(params, tokens, (), ()))
        with torch.no_grad():
            torch.testing.assert_close(module.eval()(tokens).logits, ours, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_another_run_with_the_same_seed_has_the_same_bits(trained: Path, tmp_path: Path) -> None:
    begin(tmp_path / "again", tiny())
    one, other = tensors(trained), tensors(tmp_path / "again")
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    begun = [text_components(tiny(seed=seed), tmp_path / "nowhere").begin() for seed in (0, 1)]
    assert any(not torch.equal(begun[0][name], leaf) for name, leaf in begun[1].items())


@pytest.mark.parametrize("cut", [2, *(pytest.param(cut, marks=pytest.mark.slow) for cut in (1, 3, 4))])
def test_a_run_that_was_cut_goes_on_to_the_same_bits(cut: int, trained: Path, tmp_path: Path) -> None:
    """Cut between any two iterations: in the warm start, at its end, and among the steps of reinforcement."""
    run = tmp_path / "run"

    said: list[str] = []

    class Cut(Exception):
        pass

    made = training_loop.TextTrainingLoop.train

    def train(self: Any, command: TrainChunk) -> Any:
        if self.iteration == cut:
            raise Cut
        return made(self, command)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_loop.TextTrainingLoop, "train", train)
        with pytest.raises(Cut):
            begin(run, tiny())
    assert len(read_metrics(run / "metrics.jsonl")) == cut
    session.resume(run, notice=said.append)
    assert [text for text in said if text.startswith("not necessarily")] == []
    one, other = tensors(trained), tensors(run)
    assert all(torch.equal(one[name], other[name]) for name in one)
    timed = ("tokens_per_second", "rollout_seconds", "update_seconds")
    for row, wanted in zip(read_metrics(run / "metrics.jsonl"), read_metrics(trained / "metrics.jsonl"), strict=True):
        left = {name: repr(value) for name, value in row.items() if name not in timed}
        assert left == {name: repr(value) for name, value in wanted.items() if name not in timed}
    assert (run / "before.json").read_bytes() == (trained / "before.json").read_bytes()


@pytest.mark.slow
def test_ctrl_c_saves_the_step_in_flight_and_resume_goes_on(trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = [sys.executable, "-m", "purestep.runtime.cli.main", "train", "zorplex", "--run", str(run), *WORDS]
    going = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    deadline = time.monotonic() + 120
    while not (run / "checkpoints").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    going.send_signal(signal.SIGINT)
    _, err = going.communicate(timeout=120)
    assert going.returncode == 130, err
    assert f"purestep resume {run}" in err
    assert main.main(["resume", str(run)]) == 0
    one, other = tensors(trained), tensors(run)
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_a_finished_run_has_nothing_left_and_is_not_begun_anew(trained: Path, capsys: Said) -> None:
    assert main.main(["train", "zorplex", "--run", str(trained), *WORDS]) == 1
    assert "wanted a new folder; go on with it: purestep resume" in capsys.readouterr().err
    before = tensors(trained)
    assert main.main(["resume", str(trained)]) == 0
    assert "nothing was left to train" in capsys.readouterr().out
    assert all(torch.equal(leaf, before[name]) for name, leaf in tensors(trained).items())


def test_evaluate_and_plot_know_such_runs(trained: Path, tmp_path: Path, capsys: Said) -> None:
    assert main.main(["evaluate", str(trained), "--tasks", "4"]) == 0
    assert "of 4 tasks" in capsys.readouterr().out
    assert json.loads((trained / "evaluation.json").read_text())["after"]["greedy"]["attempts"] == 4
    assert main.main(["plot", str(trained), "--out", str(tmp_path / "picture.png")]) == 0
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert main.main(["plot", str(trained), str(trained), "--out", str(tmp_path / "both.png")]) == 0
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")
    assert main.main(["evaluate", str(trained), "--tasks", "-1"]) == 1
    assert "--tasks is -1" in capsys.readouterr().err


def test_a_group_without_spread_everywhere_is_said_and_the_run_goes_on(tmp_path: Path) -> None:
    said: list[str] = []
    session.start(tmp_path, tiny(temperature=1e-3), overwrite=False, notice=said.append)  # all attempts at a task alike
    assert any("step 1: no advantage differs from 0" in text and "no update was made" in text for text in said)
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert [row["updates"] for row in rows[2:]] == [0.0, 0.0, 0.0]
    assert all(row["finite"] == 1.0 for row in rows)


def test_a_loss_that_is_not_finite_stops_the_run_and_leaves_the_batch(tmp_path: Path) -> None:
    made = training_loop.TextTrainingLoop._step

    def poisoned(self: Any, number: int) -> Any:
        if number == 1:
            state = self.held.learner
            params = state.params.policy
            name = next(iter(params))
            spoilt = {**params, name: torch.full_like(params[name], math.nan)}
            self.held = replace(self.held, learner=replace(state, params=replace(state.params, policy=params)))
            inner = self.trainer
            self.trainer = lambda own, batch, key: inner(
                replace(own, params=replace(own.params, policy=spoilt)), batch, key
            )
        return made(self, number)

    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_loop.TextTrainingLoop, "_step", poisoned)
        with pytest.raises(NonFiniteError, match=r"train: iteration 4 .*diverged.safetensors.*iteration 3 stays"):
            session.start(tmp_path, tiny(), overwrite=False, notice=said.append)
    batch = read_tensors(tmp_path / "diverged.safetensors")
    assert batch["token"].shape[0] == 6
    assert any("the batch is in" in text for text in said)
    assert runs.newest_checkpoint(tmp_path).name == "step_000003"


def test_an_evaluation_of_other_tasks_stands_alone(trained: Path, tmp_path: Path, capsys: Said) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    for words, beside in (([], True), (["--tasks", "4"], False), (["--draw", "1"], False)):
        assert main.main(["evaluate", str(run), *words]) == 0
        assert ("before" in json.loads((run / "evaluation.json").read_text())) == beside
        first, tasks, *_ = capsys.readouterr().out.splitlines()
        assert ("before" in first) == beside
        assert tasks.split() == ["tasks", *(["6"] * 4 if beside else ["4" if "--tasks" in words else "6"] * 2)]


def test_an_evaluation_samples_as_training_does(trained: Path) -> None:
    parts, held, _ = restored(trained)
    params = parts.whole(policy_of(held))

    def found(**changes: float) -> report.TextEvaluation:
        sampling = evolve(parts.sampling, **changes)
        given = report.evaluation(evolve(parts, sampling=sampling), params, tasks=12, draw=0)
        assert isinstance(given, report.TextEvaluation)
        return given

    for changes in ({"temperature": 1e-3}, {"top_p": 1e-3}):
        one = found(**changes)
        assert one.sampled == one.greedy
    other = found()
    assert other.sampled != other.greedy


def test_a_table_that_was_memorised_does_not_help_in_evaluation(tmp_path: Path) -> None:
    parts = text_components(tiny(words="letters", high=100), tmp_path)
    training, evaluation = (rules.env.params.vocabulary for rules in (parts.rules, parts.trial))
    assert training.words == evaluation.words
    same = sum(one == other for one, other in zip(training.values, evaluation.values, strict=True))
    assert same < 4
    seen = dict[str, Any]()

    def ask(made: Any, **given: Any) -> Any:
        seen["values"] = made.trial.env.params.vocabulary.values, made.rules.env.params.vocabulary.values
        return sampler(made, **given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "sampler", ask)
        report.evaluation(parts, parts.whole(parts.begin()), tasks=1, draw=0)
    assert seen["values"] == (evaluation.values, evaluation.values)


def test_a_run_has_a_folder_of_its_kind_and_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    where: list[str] = []

    def start(run: Path, *given: Any, **named: Any) -> Any:
        where.append(run.as_posix())
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "start", start)
    assert main.main(["train", "zorplex"]) == 130
    assert main.main(["train", "zorplex", "--algorithm", "ppo", "--kind", "recursive", "--seed", "3"]) == 130
    assert where == ["runs/zorplex-compositional-grpo-0", "runs/zorplex-recursive-ppo-3"]


def test_a_warm_start_that_diverges_names_its_own_flags(tmp_path: Path) -> None:
    def broken(*given: Any) -> Any:
        return given[1], {"loss": math.nan, "gradient_norm": math.nan, "finite": 0.0}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_loop, "taught", broken)
        with pytest.raises(NonFiniteError, match="lower --muon-rate or --adamw-rate"):
            begin(tmp_path, tiny())


@pytest.mark.parametrize("name", ["transformer.wte.weight", "transformer.wpe.weight", "model.embed_tokens.weight"])
def test_a_warm_start_keeps_muon_from_embeddings(name: str) -> None:
    assert optimizer_label(name, torch.zeros(2, 2)) == "adamw"
    assert optimizer_label("transformer.h.0.mlp.c_fc.weight", torch.zeros(2, 2)) == "muon"


# --- a folder that holds a run ---


def contents(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    "changes",
    [
        {"capacity": 8},
        {"model": "/nowhere"},
        {"server": "nowhere"},
        {"low": 5, "high": 1},
        {"words": "letters", "high": 10**9},
        {"vocabulary": 3},
    ],
)
def test_what_is_refused_removes_nothing(trained: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    with pytest.raises(PurestepError):
        session.start(run, tiny(**changes), overwrite=True, notice=silent)
    assert contents(run) == contents(trained)


def test_a_run_is_not_overwritten_by_one_of_its_own_model(trained: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    with pytest.raises(ChoiceError, match=r"--model is .*/model, which this run would remove"):
        session.start(run, tiny(model=str(run / "model")), overwrite=True, notice=silent)
    assert contents(run) == contents(trained)


def test_a_run_in_place_of_another_has_a_tokenizer_of_its_own(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "perform", lambda *given: ())
        session.start(tmp_path / "run", tiny(words="letters"), overwrite=True, notice=silent)
        session.start(tmp_path / "new", tiny(words="letters"), overwrite=False, notice=silent)
    kept = [(tmp_path / name / "tokenizer" / "tokenizer.json").read_bytes() for name in ("run", "new")]
    assert kept[0] == kept[1] != (trained / "tokenizer" / "tokenizer.json").read_bytes()
    assert not (tmp_path / "run" / "checkpoints").exists()


# --- a model of one's own ---


@pytest.fixture(scope="module")
def own_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder as somebody else might have written it, with a window that instructions fit into."""
    folder = tmp_path_factory.mktemp("models") / "own"
    tokenizer = train_tokenizer(zorplex_texts(zorplex().params), least=LEAST)
    config = tiny_llama(len(tokenizer), width=16, layers=1, heads=2, kv_heads=1, inner=32, window=512)
    ends = transformers.GenerationConfig(eos_token_id=[2, 5])
    save_model(folder, from_config(config).init(keys.key(3)), config, tokenizer, generation=ends)
    return str(folder)


def test_a_folder_s_model_is_trained_without_a_warm_start(own_model: str, tmp_path: Path) -> None:
    arguments = tiny(model=own_model, warm_steps=-1, steps=1, capacity=400)
    assert phases(arguments).warm == 0
    begin(tmp_path / "run", arguments)
    parts, _, loop = restored(tmp_path / "run")
    assert loop.iteration == 1
    before = parts.begin()
    wanted = transformers.AutoModelForCausalLM.from_pretrained(own_model, dtype=torch.float32)
    assert all(torch.equal(before[name], value) for name, value in wanted.named_parameters())
    (first, *_) = parts.rules.env.reset(parts.rules.env.params, keys.key(0))
    assert first.task.kind == "compositional"
    assert "LOOKUP[word] gives the zorplex value" in parts.tokenizer.decode(attempts_at(parts, held_out(1, 0))[0].ids)
    with pytest.raises(ChoiceError, match="--capacity is 999, wanted at most the model's window 512"):
        begin(tmp_path / "long", tiny(model=own_model, capacity=999))
    assert not (tmp_path / "long" / "arguments.json").exists()


def test_adapters_alone_are_trained_and_merged_into_the_model(own_model: str, tmp_path: Path) -> None:
    arguments = tiny(model=own_model, lora=2, steps=1, capacity=400, warm_steps=4, demonstrations=4)
    begin(tmp_path, arguments)
    parts, held, _ = restored(tmp_path)
    adapters = policy_of(held)
    assert all(".weight" in name and "_proj" in name for name in adapters)
    whole = parts.whole(adapters)
    assert any(bool(factors.b.any()) for factors in adapters.values())
    place = report.write_model(tmp_path, parts, whole)
    module = transformers.AutoModelForCausalLM.from_pretrained(str(place), dtype=torch.float32)
    assert all(torch.equal(whole[name], value) for name, value in module.named_parameters())
    assert module.generation_config.eos_token_id == [2, 5]


@pytest.mark.parametrize("lora", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_a_run_goes_on_with_the_model_it_began_with_and_no_other(
    lora: int, own_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(own_model, tmp_path / "base")
    monkeypatch.chdir(tmp_path)
    arguments = tiny(model="base", lora=lora, steps=1, capacity=400, held_out=1)
    begin(tmp_path / "run", arguments)
    monkeypatch.chdir("/")
    assert runs.arguments_in(tmp_path / "run")[1].model.model == str(tmp_path / "base")
    restored(tmp_path / "run")
    opened, parts = open_model(own_model), text_components(tiny(model=own_model))
    other = {name: leaf + 1 for name, leaf in opened.params.items()}
    save_model(tmp_path / "base", other, opened.config, parts.tokenizer)
    if lora:
        with pytest.raises(CheckpointError, match="another model or tokenizer than when the run began"):
            restored(tmp_path / "run")
        return
    restored(tmp_path / "run")  # whose own weights are in the checkpoint
    fewer = train_tokenizer(zorplex_texts(zorplex().params), vocabulary=300, least=LEAST)
    save_model(tmp_path / "base", other, opened.config, fewer)
    with pytest.raises(CheckpointError, match="another model or tokenizer than when the run began"):
        restored(tmp_path / "run")


def test_a_model_without_a_system_role_is_told_of_the_tools_with_the_question(own_model: str, tmp_path: Path) -> None:
    shutil.copytree(own_model, tmp_path / "base")
    tokenizer = text_components(tiny(model=own_model)).tokenizer
    refusing = "{%- if messages[0]['role'] == 'system' -%}{{- raise_exception('no system role') -}}{%- endif -%}"
    tokenizer.chat_template = refusing + tokenizer.chat_template
    tokenizer.save_pretrained(str(tmp_path / "base"))
    parts = text_components(tiny(model=str(tmp_path / "base"), capacity=400))
    asked_first = evolve(parts.trial, env=parts.task.ask(parts.trial.env, "zorplex[kramun]?")[0])
    for rules, question in ((parts.rules, "What is zorplex["), (asked_first, "zorplex[kramun]?")):
        text = parts.tokenizer.decode(attempts_at(evolve(parts, rules=rules), held_out(1, 0))[0].ids)
        assert text.startswith("<|user|>Words have zorplex values that only tools know.")
        assert text.index("LOOKUP[word] gives the zorplex value") < text.index(question)


# --- a server ---


@pytest.mark.parametrize(
    ("own", "given", "why"),
    [
        ("", "http://127.0.0.1:1/v1", "--server is given, wanted a run that a server samples for"),
        ("http://127.0.0.1:1/v1", "", "--server is '', wanted http://HOST:PORT/v1"),
    ],
)
def test_a_run_goes_on_with_a_server_only_where_it_had_one(tmp_path: Path, own: str, given: str, why: str) -> None:
    begun(tmp_path, {"recipe": "zorplex", "server": own})
    with pytest.raises(ChoiceError, match=re.escape(why)):
        commands.resume_command([str(tmp_path), "--server", given])


@pytest.mark.slow
def test_samples_come_from_the_weights_that_a_server_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of this process: it knows nothing but the folder it was pointed to, and is told when that has changed."""
    published: list[int] = []
    said: list[str] = []

    def answer(where: Any, rules: Any, codec: Any, begun: Any, *, version: int, **choices: Any) -> Any:
        opened = open_model(tmp_path / "run" / "served" / "served")
        del choices["log_probs"]
        room = {"capacity": TINY["capacity"], "max_new_tokens": TINY["max_new_tokens"]}
        made = generator(opened.model, rules, codec, slots=len(begun), **room, **choices)
        return complete(made, opened.params, version, begun)

    def take(where: Any, root: Path, save: Any, *, version: int, probe: Any, log_probs: Any, **wait: Any) -> float:
        opened = open_model(lay_out(root, save, version=version))
        tokens = torch.tensor([probe])
        logits = opened.model.head(opened.params, opened.model.apply(opened.params, tokens, (), ()))
        torch.testing.assert_close(token_log_probs(logits, tokens)[0, 1:], torch.tensor(log_probs))
        published.append(version)
        return 0.0

    for name, instead in (("sample_from_server", answer), ("publish", take)):
        monkeypatch.setattr(serving, name, instead)
    url = "http://127.0.0.1:9/v1"
    session.start(
        tmp_path / "run",
        tiny(server=url, format=2.0, width=32, warm_steps=100, warm_batch=8),
        overwrite=False,
        notice=said.append,
    )
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")[5:]
    learnt = [row for row in rows if row["updates"]]
    assert len(learnt) > 1
    assert all(row["log_prob_difference"] < 1e-4 for row in learnt)
    assert published == sorted({sum(int(row["updates"]) for row in rows[:number]) for number in range(3)})
    assert any(f"samples come from {url}; let it serve" in text for text in said)
    parts, held, _ = restored(tmp_path / "run")
    assert "lm_head.weight" in parts.whole(policy_of(held))


# --- talking ---


def chat(monkeypatch: pytest.MonkeyPatch, run: Path, text: str, *words: str) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    return main.main(["chat", str(run), *words])


def test_tasks_and_questions_can_be_piped_in(trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said) -> None:
    text = "\n3\nWhat is zorplex[kramun] + zorplex[blivit]?\nHow are you?\nq\nnever\n"
    assert chat(monkeypatch, trained, text) == 0
    said = capsys.readouterr().out
    assert said.count("task 0 (right: ") == said.count("task 3 (right: ") == 1
    assert said.count("your question (right: ") == 1
    assert "your question\n  user    How are you?" in said
    assert "never" not in said
    assert "  model   " in said


def test_one_task_is_shown_and_the_same_again(trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said) -> None:
    told = []
    for _ in range(2):
        assert chat(monkeypatch, trained, "", "--task", "2", "--temperature", "1.0") == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
    assert told[0].startswith("task 2 (right: ")
    assert chat(monkeypatch, trained, "", "--question", "zorplex[kramun] * zorplex[kramun]") == 0
    assert "your question (right: " in capsys.readouterr().out
    assert chat(monkeypatch, trained, "", "--question", "7") == 0
    assert "your question\n  user    7\n" in capsys.readouterr().out
    assert chat(monkeypatch, trained, "\u00b2\n99999999999999999999\n1000000\n") == 0
    out, err = capsys.readouterr()
    assert "your question\n  user    \u00b2\n" in out
    assert "task 1000000 (right: " in out
    assert "task is 1000000001, wanted from 0 to 1000000000" in err
    assert chat(monkeypatch, trained.parent, "") == 1
    assert "is no run of a language model" in capsys.readouterr().err


def test_a_question_of_ones_own_has_its_words_and_its_answer(trained: Path) -> None:
    parts, _, _ = restored(trained)
    words = parts.rules.env.params.vocabulary.words
    known: dict[str, Callable[[Callable[[str], int]], int]] = {
        "What is zorplex[kramun] + zorplex[blivit]?": lambda v: v("kramun") + v("blivit"),
        "zorplex[kramun] - zorplex[blivit] - zorplex[zorvit]": lambda v: v("kramun") - v("blivit") - v("zorvit"),
        "tell me zorplex[zorvit], please": lambda v: v("zorvit"),
    }
    for question, wanted in known.items():
        world, is_known = typed(parts.rules.env, question)
        play, shown = world.reset(world.params, keys.key(5))
        table = play.task.values
        assert is_known
        assert shown == question
        assert play.task.answer == wanted(lambda word, table=table: table[words.index(word)])  # type: ignore[misc]
    strange = (
        "What is zorplex[nothing]?",
        "(zorplex[kramun] + zorplex[blivit]) * zorplex[zormun]",
        "zorplex[kramun] + zorplex[blivit] * zorplex[zormun]",
        "2 * zorplex[kramun]",
        "zorplex[kramun] + 1",
        "zorplex[kramun] and zorplex[blivit]",
        "zorplex[kramun]\u00b2",
    )
    assert [question for question in strange if typed(parts.rules.env, question)[1]] == []
    with pytest.raises(ChoiceError, match="question is empty"):
        typed(parts.rules.env, "  ")


@pytest.mark.parametrize(("kind", "calls"), [("simple", 2), ("compositional", 2), ("multi_step", 4), ("recursive", 0)])
def test_a_question_of_ones_own_allows_the_calls_it_needs(kind: str, calls: int) -> None:
    world, _ = typed(tiny(kind=kind).task().env("training"), "zorplex[kramun] + zorplex[blivit]")
    words = world.params.vocabulary.words
    for number in range(4):
        task = world.reset(world.params, keys.key(number))[0].task
        if kind == "recursive":
            paths = [follow_redirections(task.links, words.index(word)) for word in ("kramun", "blivit")]
            calls = len({*paths[0], *paths[1]})
        assert task.needed == calls


def test_tasks_are_those_that_the_run_held_out(trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said) -> None:
    shown_at: list[int] = []
    own = runs.arguments_in(trained)[1]
    found = runs.restore_run(trained)
    redrawn = evolve(found, arguments=changed(own, {"draw": 5}))
    monkeypatch.setattr(text_run, "restore_run", lambda run, trust: redrawn)

    def noted(number: int, seed: int, **given: Any) -> Any:
        shown_at.append(seed)
        return held_out(number, seed, **given)

    monkeypatch.setattr("purestep.runtime.text.evaluation.held_out", noted)
    for more in ([], ["--seed", "2"]):
        assert chat(monkeypatch, trained, "", "--task", "1", *more) == 0
    assert shown_at == [5, 2]
    assert "task 1 (right: " in capsys.readouterr().out
