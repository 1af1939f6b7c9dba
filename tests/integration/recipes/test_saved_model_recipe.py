"""Runs of models with stored buffers: RUN/model is what was trained, and what cannot be saved is refused before training."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from purestep.core.tree import leaves
from purestep.properties import same
from purestep.runtime.cli import main
from purestep.runtime.effects.hugging_face.folder import open_model
from purestep.runtime.effects.hugging_face.tokenizer import train_tokenizer
from purestep.runtime.effects.reporting.metrics import read_metrics
from purestep.runtime.recipes.text_run import sampler_of
from purestep.runtime.runs.arguments import changed
from purestep.runtime.runs.recipe import find
from purestep.runtime.runs.run import start
from purestep.runtime.runs.trusting import Trust
from purestep.runtime.text import run as session
from purestep.runtime.text.build_learner import SINGLE_PROCESS

os.environ["HF_HUB_OFFLINE"] = "1"
transformers: Any = pytest.importorskip("transformers")

SMALL = "--groups 2 --samples 2 --held-out 2 --max-new-tokens 3 --reward-workers 1 --steps 1"
BIAS = "model.layers.1.mlp.gate.e_score_correction_bias"
REWARD = """
def length(completions, **columns):
    return [float(sum(map(ord, text)) % 7) for text in completions]
"""
Said = pytest.CaptureFixture[str]


def config_of(kind: str, vocabulary: int) -> Any:
    sizes: dict[str, Any] = {
        **{"vocab_size": vocabulary, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2},
        **{"num_key_value_heads": 1, "intermediate_size": 24, "max_position_embeddings": 64, "head_dim": 8},
        **{"bos_token_id": None, "eos_token_id": 1, "pad_token_id": None, "initializer_range": 0.25},
    }
    if kind == "glm4_moe":
        experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "n_group": 1}
        return transformers.Glm4MoeConfig(**sizes, **experts, topk_group=1, first_k_dense_replace=1)
    if kind == "minimax_m2":
        return transformers.MiniMaxM2Config(**sizes, num_local_experts=4, num_experts_per_tok=2)
    sizes.pop("head_dim")
    return transformers.ApertusConfig(**sizes)


def given(home: Path, kind: str, dtype: torch.dtype = torch.float32) -> Path:
    """A folder with a model, whose buffers are not those of a new one, and prompts."""
    rows = [{"prompt": f"{first} + {first}?", "answer": str(2 * first)} for first in range(12)]
    home.mkdir(parents=True)
    (home / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (home / "rewards.py").write_text(REWARD)
    tokenizer = train_tokenizer([row["prompt"] for row in rows], vocabulary=270)
    torch.manual_seed(3)
    module = transformers.AutoModelForCausalLM.from_config(config_of(kind, len(tokenizer)), dtype=dtype)
    stored = module.state_dict()
    for name, value in module.named_buffers():
        if name in stored:
            value.add_(0.25 * torch.rand(value.shape))
    module.generation_config.eos_token_id = [1, 2]
    module.save_pretrained(home / "model")
    tokenizer.save_pretrained(home / "model")
    return home


def words(home: Path, run: Path, *more: str) -> list[str]:
    own = [
        "--reward",
        f"{home / 'rewards.py'}:length",
        "--model",
        f"{home / 'model'}",
        "--prompts",
        f"{home / 'sums.jsonl'}",
        "--run",
        f"{run}",
    ]
    return ["train", "text", *own, *SMALL.split(), *more]


def logits(model: Any, params: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.head(params, model.apply(params, torch.arange(10).reshape(2, 5), (), ()))
    return found


def check_model(run: Path, home: Path) -> None:
    """RUN/model is the policy of the newest checkpoint, beside the buffers of the model that it began with."""
    parts, params, *_ = sampler_of(run, Trust(every=True))
    opened = open_model(run / "model", report=lambda text: None)
    same("parameters", opened.params, params)
    same("logits", logits(opened.model, opened.params), logits(parts.speaker, params))
    begun = open_model(home / "model", report=lambda text: None)
    same("buffers", opened.buffers, begun.buffers)
    assert len(leaves(opened.buffers)) > 0
    assert opened.generation.eos_token_id == [1, 2]
    assert not torch.equal(logits(opened.model, opened.params), logits(begun.model, begun.params))
    assert not [path for path in run.iterdir() if path.name.startswith(".partial")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "dtype", "more"),
    [
        ("glm4_moe", torch.float32, ()),
        ("glm4_moe", torch.bfloat16, ("--lora", "2")),
        ("minimax_m2", torch.float32, ()),
        ("apertus", torch.bfloat16, ()),
    ],
)
def test_what_was_trained_is_saved_and_evaluated(
    kind: str, dtype: torch.dtype, more: tuple[str, ...], tmp_path: Path, capsys: Said
) -> None:
    home, run = given(tmp_path / "given", kind, dtype), tmp_path / "run"
    assert main.main(words(home, run, "--learning-rate", "0.1", *more)) == 0, capsys.readouterr().err
    check_model(run, home)
    (run / "model" / "notes.txt").write_text("mine")
    shutil.rmtree(run / "model" / "additional_chat_templates", ignore_errors=True)
    (run / "model" / "config.json").unlink()  # as after a removal that was cut short
    assert main.main(["evaluate", str(run), "--trust"]) == 0, capsys.readouterr().err
    check_model(run, home)
    assert (run / "model" / "notes.txt").read_text() == "mine"
    assert main.main(["resume", str(run), "--trust"]) == 0, capsys.readouterr().err


@pytest.mark.slow
def test_ranks_train_and_save_with_the_buffers_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from purestep.runtime.text.distributed_learner import in_process_group

    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    home, recipe = given(tmp_path / "given", "glm4_moe"), find("text")
    small: dict[str, Any] = {"groups": 2, "samples": 2, "held_out": 2, "max_new_tokens": 3, "reward_workers": 1}
    small |= {"model": str(home / "model"), "prompts": str(home / "sums.jsonl"), "steps": 2, "learning_rate": 0.03}
    arguments = changed(recipe.defaults(), {**small, "reward": (f"{home / 'rewards.py'}:length",)})

    def train(name: str, backend: Any) -> int:
        start(tmp_path / name, recipe, arguments, overwrite=False, notice=lambda text: None, store=backend)
        return 0

    train("plain", SINGLE_PROCESS)
    assert in_process_group(lambda backend: train("ranked", backend)) == 0
    rows, others = (read_metrics(tmp_path / name / "metrics.jsonl") for name in ("plain", "ranked"))
    for row, other in zip(rows, others, strict=True):
        assert abs(row["loss"] - other["loss"]) < 1e-4
        assert other["log_prob_difference"] < 1e-4  # of the samplers' model and that of the ranks
    assert main.main(["evaluate", str(tmp_path / "ranked"), "--trust"]) == 0
    check_model(tmp_path / "ranked", home)


@pytest.mark.slow
def test_generators_sample_with_the_buffers_and_the_model_is_saved(tmp_path: Path, capsys: Said) -> None:
    home, run = given(tmp_path / "given", "minimax_m2"), tmp_path / "run"
    more = ("--mode", "async", "--generators", "1", "--learning-rate", "0.1")
    assert main.main(words(home, run, *more)) == 0, capsys.readouterr().err
    check_model(run, home)
    rows = read_metrics(run / "async" / "metrics.jsonl")
    assert max(row["log_prob_difference"] for row in rows) < 1e-4


def test_a_model_that_would_be_lost_is_refused_and_an_older_run_stays(tmp_path: Path, capsys: Said) -> None:
    home, run = given(tmp_path / "given", "glm4_moe"), tmp_path / "run"
    assert main.main(words(home, run)) == 0, capsys.readouterr().err
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file() and path.name != ".lock"}
    (run / ".partial-model").write_text("mine")
    assert main.main(words(home, run, "--overwrite")) == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.endswith(".partial-model is there already, wanted no such name; move it away")
    (run / ".partial-model").unlink()
    file = home / "model" / "model.safetensors"
    held = load_file(file)
    save_file({name: held[name] for name in held if name != BIAS}, file, {"format": "pt"})
    assert main.main(words(home, run, "--overwrite")) == 1
    assert BIAS in capsys.readouterr().err.strip().splitlines()[-1]
    after = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file() and path.name != ".lock"}
    assert after == before


def test_buffers_that_changed_in_the_folder_are_not_trained_on(
    tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints hold the parameters alone, so the others must be those that the run began with."""
    home, run = given(tmp_path / "given", "glm4_moe"), tmp_path / "run"
    monkeypatch.setattr(session, "LARGE", 0.0)
    assert main.main(words(home, run)) == 0
    said = capsys.readouterr().err
    assert f"saving the model once as a check, 0.0 GB in {run / '.partial-model'}" in said
    assert re.search(r"it was saved and opened with the same bits in \d+\.\d s, and removed", said)
    file = home / "model" / "model.safetensors"
    held = load_file(file)
    save_file({**held, BIAS: held[BIAS] + 1.0}, file, {"format": "pt"})
    for command in ("resume", "evaluate"):
        assert main.main([command, str(run), "--trust"]) == 1
        said = capsys.readouterr().err.strip().splitlines()[-1]
        assert "another model or tokenizer than when the run began, wanted the same" in said
