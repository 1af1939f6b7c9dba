"""Models that are saved open with the same bits, and what cannot be saved is refused before training."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from purestep.core import keys
from purestep.core.errors import CheckpointError, StructureError
from purestep.core.tree import tree_map
from purestep.properties import same
from purestep.runtime.effects.hugging_face.causal_lm import from_config, new_buffers, tiny_llama
from purestep.runtime.effects.hugging_face.check_saved import check_saved
from purestep.runtime.effects.hugging_face.folder import Opened, open_model, save_model
from purestep.runtime.effects.hugging_face.lora import with_lora

os.environ["HF_HUB_OFFLINE"] = "1"
transformers: Any = pytest.importorskip("transformers")

SIZES: dict[str, Any] = {
    "vocab_size": 24,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
    "initializer_range": 0.25,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
EXPERTS: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 8}
CONFIGS: dict[str, Callable[[], Any]] = {
    "glm4_moe": lambda: transformers.Glm4MoeConfig(
        **SIZES, **EXPERTS, n_routed_experts=4, n_group=1, topk_group=1, first_k_dense_replace=1, head_dim=4
    ),
    "minimax_m2": lambda: transformers.MiniMaxM2Config(**SIZES, num_local_experts=4, num_experts_per_tok=2, head_dim=4),
    "apertus": lambda: transformers.ApertusConfig(**SIZES),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=24, n_embd=16, n_layer=2, n_head=4, n_positions=32, bos_token_id=None, eos_token_id=None
    ),
    "phi3": lambda: transformers.Phi3Config(**SIZES),
    "qwen3": lambda: transformers.Qwen3Config(**SIZES, head_dim=4, tie_word_embeddings=True),
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(**SIZES, **EXPERTS, num_experts=4, head_dim=4),
}
BUFFERS = {"glm4_moe": 1, "minimax_m2": 2, "apertus": 4}  # stored and not trained
each_config = pytest.mark.parametrize("name", sorted(CONFIGS))


def folder_of(place: Path, name: str, dtype: torch.dtype = torch.float32) -> Path:
    """A model's folder as the library writes it, with weights and buffers of no rule."""
    torch.manual_seed(3)
    module = transformers.AutoModelForCausalLM.from_config(CONFIGS[name](), dtype=dtype)
    stored = module.state_dict()
    for key, value in module.named_buffers():
        if key in stored:
            value.copy_(value + 0.25 * torch.rand(value.shape))
    module.save_pretrained(place)
    return place


def opened_in(place: Path, **how: Any) -> Opened:
    return open_model(place, report=lambda text: None, **how)


def logits(opened: Opened, params: Any) -> torch.Tensor:
    with torch.no_grad():
        tokens = torch.arange(10).reshape(2, 5)
        return opened.model.head(params, opened.model.apply(params, tokens, (), ()))


def trained(opened: Opened, params: Any) -> Any:
    """The parameters after a step of gradient descent, none of which keeps its value where its gradient is not 0."""
    tokens = torch.arange(10).reshape(2, 5)
    leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
    loss = opened.model.head(leaves, opened.model.apply(leaves, tokens, (), ())).float().log_softmax(-1)[..., 3].mean()
    slopes = torch.autograd.grad(-loss, list(leaves.values()), allow_unused=True)
    steps = (torch.zeros(()) if slope is None else slope for slope in slopes)
    return {name: (value - 0.1 * step).detach() for (name, value), step in zip(params.items(), steps, strict=True)}


def parts(opened: Opened) -> dict[str, Any]:
    return {"config": opened.config, "generation": opened.generation, "buffers": opened.buffers}


@each_config
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_that_was_trained_is_saved_and_opens_with_the_same_bits(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    opened = opened_in(folder_of(tmp_path / "model", name, dtype), dtype=dtype)
    assert len(opened.buffers) == BUFFERS.get(name, 0)
    check_saved(tmp_path / "copy", opened.model, opened.params, **parts(opened))
    assert not (tmp_path / "copy").exists()
    params = trained(opened, opened.params)
    assert not torch.equal(logits(opened, params), logits(opened, opened.params))
    before = {key: value.clone() for key, value in params.items()}
    save_model(tmp_path / "trained", params, **parts(opened))
    same("what was saved", params, before)
    again = opened_in(tmp_path / "trained", dtype=dtype)
    same("parameters", again.params, params)
    same("buffers", again.buffers, opened.buffers)
    same("logits", logits(again, again.params), logits(opened, params))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "trained", dtype=dtype)
    same("the library's parameters", dict(theirs.named_parameters()), params)


@pytest.mark.parametrize("name", ["glm4_moe", "apertus"])
def test_merged_adapters_are_saved_beside_the_buffers(name: str, tmp_path: Path) -> None:
    opened = opened_in(folder_of(tmp_path / "model", name))
    lora = with_lora(opened.model, opened.params, rank=2, alpha=4.0)
    adapters = tree_map(lambda leaf: leaf + 0.1, lora.model.init(keys.key(0)))
    params = lora.merged(adapters)
    check_saved(tmp_path / "copy", opened.model, params, **parts(opened))
    save_model(tmp_path / "merged", params, **parts(opened))
    again = opened_in(tmp_path / "merged")
    same("logits", logits(again, again.params), logits(opened, params))
    assert not torch.equal(logits(again, again.params), logits(opened, opened.params))


def test_a_model_with_buffers_is_not_saved_without_them(tmp_path: Path) -> None:
    opened = opened_in(folder_of(tmp_path / "model", "glm4_moe"))
    wanted = (
        r"^save_model: model\.layers\.1\.mlp\.gate\.e_score_correction_bias is absent, wanted \[4\]; pass the model's"
    )
    with pytest.raises(StructureError, match=wanted):
        save_model(tmp_path / "again", opened.params, opened.config)
    assert not (tmp_path / "again").exists()


def test_a_new_model_has_the_buffers_of_the_library(tmp_path: Path) -> None:
    config = CONFIGS["apertus"]()
    params = from_config(config).init(keys.key(0))
    save_model(tmp_path / "new", params, config, buffers=new_buffers(config))
    same("buffers", opened_in(tmp_path / "new").buffers, new_buffers(config))
    assert len(new_buffers(config)) == BUFFERS["apertus"]


# --- the check before training ---


def refused(tmp_path: Path, model: Any, params: Any, **more: Any) -> str:
    with pytest.raises((StructureError, CheckpointError)) as caught:
        check_saved(tmp_path / "copy", model, params, **more)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "copy").exists()
    return str(caught.value)


def test_parameters_that_do_not_come_back_are_named(tmp_path: Path) -> None:
    config = tiny_llama(24, width=16, layers=1, inner=24, window=32)
    model = from_config(config)
    params = {**model.init(keys.key(0))}
    params["model.norm.weight"] = params["model.norm.weight"].double()
    said = refused(tmp_path, model, params, config=config)
    assert re.match(
        r"model is another one after it is saved and opened \(other parameters: model\.norm\.weight\), wanted the same; "
        r"it would be lost after training: choose another model",
        said,
    )


def test_buffers_and_logits_that_do_not_come_back_are_named(tmp_path: Path) -> None:
    opened = opened_in(folder_of(tmp_path / "model", "glm4_moe"))
    (name,) = opened.buffers
    said = refused(tmp_path, opened.model, opened.params, config=opened.config)
    assert f"save_model: {name} is absent" in said
    said = refused(tmp_path, opened.model, opened.params, config=opened.config, buffers={name: torch.ones(4).double()})
    assert f"other buffers: {name}" in said
    other = {name: opened.buffers[name] + torch.tensor([9.0, 0.0, 0.0, 9.0])}
    said = refused(tmp_path, opened.model, opened.params, config=opened.config, buffers=other)
    assert "other logits with the same weights" in said


def test_an_error_of_the_library_and_a_folder_that_is_taken_are_one_line(tmp_path: Path) -> None:
    config = tiny_llama(24, width=16, layers=1, inner=24, window=32)
    model = from_config(config)
    params = {name: value.to("meta") for name, value in model.init(keys.key(0)).items()}
    assert "another one after it is saved and opened (" in refused(tmp_path, model, params, config=config)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CheckpointError, match=r"file is a file, wanted a folder"):
        check_saved(tmp_path / "file", model, model.init(keys.key(0)), config=config)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_disk_without_room_is_a_line_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_llama(24, width=16, layers=1, inner=24, window=32)
    model = from_config(config)
    params = model.init(keys.key(0))
    size = sum(value.nbytes for value in params.values())
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=size - 1))
    with pytest.raises(CheckpointError, match=r"is a disk with .* GB free, wanted room for its .* GB; free some space"):
        check_saved(tmp_path / "copy", model, params, config=config)
    assert [*tmp_path.iterdir()] == []
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=size))
    check_saved(tmp_path / "copy", model, params, config=config)
