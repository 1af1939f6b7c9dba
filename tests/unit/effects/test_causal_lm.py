"""Hugging Face models as values: their own numbers, the laws of causal models, folders, LoRA."""

import importlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor

from purestep.core import keys
from purestep.core.bigram import bigram
from purestep.core.causal import CausalModel
from purestep.core.errors import CheckpointError, ChoiceError, PurestepError, ShapeError, StructureError
from purestep.core.tree import tree_map
from purestep.properties import Tolerance, causal_laws, check, same
from purestep.properties.framework.law import Suite
from purestep.properties.strategies.table_causal import table_causal
from purestep.properties.strategies.tiny_causal import tiny_causal
from purestep.runtime.effects.hugging_face.causal_lm import causal_model, from_config, tiny_llama
from purestep.runtime.effects.hugging_face.folder import open_model, save_model
from purestep.runtime.effects.hugging_face.lora import with_lora
from purestep.runtime.effects.hugging_face.optional import library

os.environ["HF_HUB_OFFLINE"] = "1"
transformers: Any = pytest.importorskip("transformers")

NEAR = Tolerance("another order of sums", 1e-4, 1e-5)
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
}


def small(vocabulary: int = 24, **changes: Any) -> Any:
    return tiny_llama(vocabulary, **{"width": 16, "layers": 2, "inner": 24, "window": 32, **changes})


CONFIGS: dict[str, Callable[[], Any]] = {
    "llama": small,
    "untied": lambda: small(tied=False),
    "qwen2": lambda: transformers.Qwen2Config(**SIZES),
    "qwen3": lambda: transformers.Qwen3Config(**SIZES, head_dim=8),
}
each_config = pytest.mark.parametrize("name", CONFIGS)


def few(suite: Suite) -> Suite:
    return evolve(suite, laws=tuple(evolve(law, most=6) for law in suite))


test_bigram = check(causal_laws(), bigram(5))
test_table = check(causal_laws(), table_causal())
test_tiny = check(few(causal_laws(NEAR)), tiny_causal())
test_llama = check(few(causal_laws(NEAR)), from_config(small()))
test_qwen2 = check(few(causal_laws(NEAR)), from_config(CONFIGS["qwen2"]()))
test_qwen3 = check(few(causal_laws(NEAR)), from_config(CONFIGS["qwen3"]()))


def module_of(config: Any, params: dict[str, Tensor]) -> Any:
    """The library's own module with these weights."""
    module = transformers.AutoModelForCausalLM.from_config(config)
    module.load_state_dict(params, strict=False)
    return module.eval()


def tokens(rows: int = 3, length: int = 9, vocabulary: int = 24) -> Tensor:
    return keys.randint(keys.key(5), (rows, length), 0, vocabulary)


def logits(model: CausalModel, params: Any, ids: Tensor) -> Tensor:
    return model.head(params, model.apply(params, ids, (), ()))


@each_config
def test_logits_are_the_library_s_own(name: str) -> None:
    config = CONFIGS[name]()
    model = from_config(config)
    params = model.init(keys.key(0))
    with torch.no_grad():
        wanted = module_of(config, params)(input_ids=tokens(), use_cache=False).logits
    same("logits", logits(model, params, tokens()), wanted, NEAR)


@each_config
def test_gradients_are_the_library_s_own(name: str) -> None:
    config = CONFIGS[name]()
    model = from_config(config)
    params, ids = model.init(keys.key(0)), tokens()
    got = torch.func.grad(lambda given: logits(model, given, ids).square().mean())(params)
    module = module_of(config, params)
    module(input_ids=ids, use_cache=False).logits.square().mean().backward()
    same("gradients", got, {name: value.grad for name, value in module.named_parameters()}, NEAR)


def test_weights_are_a_function_of_the_key_and_of_nothing_else() -> None:
    before = torch.get_rng_state()
    model = from_config(small())
    torch.manual_seed(7)
    one = model.init(keys.key(3))
    torch.manual_seed(8)
    same("weights of a model made again", from_config(small()).init(keys.key(3)), one)
    torch.set_rng_state(before)
    from_config(small())
    assert torch.equal(torch.get_rng_state(), before)
    wide = from_config(tiny_llama(400)).init(keys.key(0))
    assert abs(float(wide["model.layers.0.mlp.up_proj.weight"].std()) - 128**-0.5) < 2e-3
    assert torch.equal(wide["model.norm.weight"], torch.ones(128))
    assert sum(value.numel() for value in wide.values()) == 641_920
    assert "lm_head.weight" not in wide


EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
FEW: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: transformers.GPT2Config(vocab_size=24, n_embd=16, n_layer=2, n_head=2, n_positions=32),
    "mixtral": lambda: transformers.MixtralConfig(**SIZES, num_local_experts=2),
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(**SIZES, head_dim=8, **EXPERTS),
}


@pytest.mark.parametrize("name", FEW)
def test_matrices_of_every_kind_of_layer_are_drawn_with_the_key(name: str) -> None:
    """Convolutions that are matrices, experts and the gates to them."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = from_config(FEW[name]())
        torch.default_generator.manual_seed(1)
        same("weights of a model made again", from_config(FEW[name]()).init(keys.key(3)), model.init(keys.key(3)))
    one, other = (model.init(keys.key(seed)) for seed in (0, 1))
    matrices = {which for which, value in one.items() if value.ndim > 1}
    assert matrices == {which for which, value in one.items() if not torch.equal(value, other[which])}
    assert all(not bool(value.any()) for which, value in one.items() if which.endswith("bias"))


def test_weights_lie_where_the_key_lies() -> None:
    weights = from_config(CONFIGS["qwen2"]()).init(keys.key(0, device="meta"))
    assert {value.device.type for value in weights.values()} == {"meta"}


def test_a_population_is_one_call() -> None:
    """vmap over weights, which needs the attention that has a rule for it."""
    config = small()
    config._attn_implementation = "eager"
    model, ids = from_config(config), tokens()
    each = [model.init(keys.key(seed)) for seed in range(3)]
    together: Any = tree_map(lambda *group: torch.stack(group), *each)
    got = torch.vmap(lambda params: logits(model, params, ids))(together)
    same("logits", got, torch.stack([logits(model, params, ids) for params in each]), NEAR)

    def cached(params: Any) -> Any:
        cache = model.begin(params, 3, 12)
        _, cache = model.extend(params, cache, ids[:, :5], torch.zeros(3, dtype=torch.int64))
        return model.extend(params, cache, ids[:, 5:6], torch.tensor([5, 4, 3]))

    wanted: Any = tree_map(lambda *group: torch.stack(group), *map(cached, each))
    same("extended", torch.vmap(cached)(together), wanted, NEAR)
    usual = from_config(small())
    same("the usual attention", logits(usual, each[0], ids), logits(model, each[0], ids), NEAR)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_both_ways_compile_as_one_graph(name: str) -> None:
    model = from_config(CONFIGS[name]())
    params, ids = model.init(keys.key(0)), tokens()

    def both(params: Any, cache: Any, ids: Tensor, position: Tensor) -> Any:
        hidden, cache = model.extend(params, cache, ids[:, :2], position)
        return logits(model, params, ids), model.head(params, hidden), cache

    with torch.no_grad():
        given = params, model.begin(params, 3, 12), ids, torch.tensor([0, 3, 7])
        compiled = torch.compile(both, fullgraph=True, dynamic=False, backend="aot_eager")
        same("compiled", compiled(*given), both(*given), NEAR)


# --- what is refused ---


def test_what_does_not_fit_is_refused() -> None:
    model, other = from_config(small()), from_config(small(width=32))
    params = model.init(keys.key(0))
    with pytest.raises(ShapeError, match=r"embed_tokens.weight is \[24, 32\], wanted \[24, 16\]; .*this very model"):
        model.apply(other.init(keys.key(0)), tokens(), (), ())
    with pytest.raises(ShapeError, match=r"params: model.norm.weight is absent"):
        model.begin({name: value for name, value in params.items() if name != "model.norm.weight"}, 1, 4)
    with pytest.raises(ShapeError, match=r"params: more is there"):
        model.begin({**params, "more": torch.ones(1)}, 1, 4)
    with pytest.raises(ShapeError, match=r"apply: tokens is 33, wanted at most 32 in a row"):
        model.apply(params, tokens(length=33), (), ())
    with pytest.raises(ChoiceError, match=r"begin: capacity is 33, wanted at most the window 32"):
        model.begin(params, 1, 33)


def test_models_that_mean_something_else_are_refused() -> None:
    moving = small()
    moving.rope_parameters = {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 2.0}
    with pytest.raises(StructureError, match="rope_type is dynamic"):
        from_config(moving)
    capped = transformers.Gemma2Config(**SIZES, head_dim=8)
    with pytest.raises(StructureError, match="final_logit_softcapping"):
        from_config(capped)
    scaled = transformers.CohereConfig(**{**SIZES, "logit_scale": 0.5, "pad_token_id": 0})
    with pytest.raises(StructureError, match=r"off by .* in its logits"):
        from_config(scaled)
    asking = transformers.OPTConfig(**SIZES, ffn_dim=32, word_embed_proj_dim=SIZES["hidden_size"])
    with pytest.raises(
        StructureError, match="is a model that asks its cache for get_seq_length, wanted one that keeps"
    ):
        from_config(asking)


@pytest.mark.parametrize(
    ("config", "absent"),
    [
        (
            lambda: transformers.BloomConfig(vocab_size=24, hidden_size=16, n_layer=2, n_head=2),
            "max_position_embeddings",
        ),
        (lambda: transformers.MambaConfig(vocab_size=24, hidden_size=16, num_hidden_layers=2), "num_attention_heads"),
    ],
)
def test_models_without_positions_or_heads_are_refused(config: Callable[[], Any], absent: str) -> None:
    with pytest.raises(StructureError, match=f"{absent} is absent, wanted a number; take a model"):
        from_config(config())


def test_a_sliding_window_is_the_window() -> None:
    config = transformers.MistralConfig(**SIZES, sliding_window=8)
    assert from_config(config).window == 8


def test_the_module_is_left_alone() -> None:
    module = transformers.AutoModelForCausalLM.from_config(small()).train()
    module.model.layers[0].eval()
    modes = [part.training for part in module.modules()]
    before = {name: value.clone() for name, value in module.state_dict().items()}
    model = causal_model(module)
    model.apply(model.init(keys.key(0)), tokens(), (), ())
    same("its state", dict(module.state_dict()), before)
    assert [part.training for part in module.modules()] == modes
    assert all(value.device.type == "cpu" for value in module.parameters())


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_dropout_is_off_whatever_mode_the_module_is_in(attention: str) -> None:
    config = transformers.MistralConfig(**SIZES, attention_dropout=0.5, attn_implementation=attention)
    module = transformers.AutoModelForCausalLM.from_config(config).train()
    model = causal_model(module)
    params, luck = model.init(keys.key(0)), torch.get_rng_state()
    first, second = (model.apply(params, tokens(), (), ()) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), luck)
    module.eval()
    with torch.no_grad():
        torch.testing.assert_close(model.head(params, first), module(tokens()).logits, rtol=1e-4, atol=1e-5)


def test_an_absent_library_has_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(ModuleNotFoundError, match=r"transformers is absent, .* pip install 'purestep\[llm\]'"):
        library()


@pytest.mark.slow
def test_importing_brings_no_library() -> None:
    names = (
        "hugging_face.causal_lm",
        "hugging_face.folder",
        "hugging_face.lora",
        "generation.engine",
        "generation.scheduling",
    )
    code = (
        f"import importlib, sys\nfor name in {names!r}: importlib.import_module('purestep.runtime.effects.' + name)\n"
        "print([name for name in ('transformers', 'tokenizers', 'openai', 'peft') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


# --- folders ---


@each_config
def test_a_saved_model_opens_everywhere_with_the_same_logits(name: str, tmp_path: Path) -> None:
    config = CONFIGS[name]()
    model = from_config(config)
    params = model.init(keys.key(1))
    save_model(tmp_path / "model", params, config)
    opened = open_model(tmp_path / "model")
    same("weights", opened.params, params)
    same("weights it begins with", opened.model.init(keys.key(9)), params)
    wanted = logits(model, params, tokens())
    same("logits", logits(opened.model, opened.params, tokens()), wanted)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    with torch.no_grad():
        same("the library's logits", theirs(input_ids=tokens(), use_cache=False).logits, wanted, NEAR)
    save_model(tmp_path / "again", opened.params, opened.config)
    same("opened again", open_model(str(tmp_path / "again")).params, params)


def test_how_a_folder_says_to_generate_is_kept(tmp_path: Path) -> None:
    """Models of chats name ends there that their configuration does not have."""
    config = small(stop=3)
    save_model(tmp_path / "model", from_config(config).init(keys.key(0)), config)
    transformers.GenerationConfig(eos_token_id=[3, 5], top_k=7, do_sample=True).save_pretrained(tmp_path / "model")
    opened = open_model(tmp_path / "model")
    save_model(tmp_path / "again", opened.params, opened.config, generation=opened.generation)
    again = transformers.GenerationConfig.from_pretrained(tmp_path / "again")
    assert (again.eos_token_id, again.top_k, again.do_sample) == ([3, 5], 7, True)


def test_a_tokenizer_lies_beside_the_weights(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    fast = Tokenizer(models.WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=fast)
    params = from_config(small()).init(keys.key(0))
    save_model(tmp_path, params, small(), tokenizer)
    again = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert again.get_vocab() == tokenizer.get_vocab()


def test_folders_can_be_opened_by_several_threads_at_once(tmp_path: Path) -> None:
    params = from_config(small()).init(keys.key(1))
    save_model(tmp_path, params, small())
    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(open_model, [tmp_path] * 8))
    for one in opened:
        same("weights", one.params, params)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(StructureError, match=r"open_model: .* is no model .*, wanted a model; name a folder"):
            open_model(path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(StructureError, match="wanted a model"):
        open_model(tmp_path)


def test_weights_that_are_absent_or_of_another_shape_are_named(tmp_path: Path) -> None:
    """The library would draw them anew and go on."""
    from safetensors.torch import load_file, save_file

    params = from_config(small()).init(keys.key(0))
    save_model(tmp_path, params, small())
    file, queries = tmp_path / "model.safetensors", "self_attn.q_proj.weight"
    held = load_file(file)
    for change, said in (
        ({name: leaf for name, leaf in held.items() if queries not in name}, rf"is without .*{queries}.*, wanted all"),
        ({**held, "model.norm.weight": torch.ones(5)}, r"model\.norm\.weight is \[5\], wanted \[16\]; fetch"),
    ):
        save_file(change, file, metadata={"format": "pt"})
        with pytest.raises(StructureError, match=said) as caught:
            open_model(tmp_path)
        assert "\n" not in str(caught.value)
    save_file({**held, "of.others": torch.ones(5)}, file, metadata={"format": "pt"})
    same("weights", open_model(tmp_path).params, params)
    for name in ("model.safetensors", "model-1.safetensors"):
        (tmp_path / name).unlink(missing_ok=True)
    weight_map = dict.fromkeys(held, "model-1.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    with pytest.raises(
        CheckpointError, match=r"index\.json is without model-1\.safetensors, wanted all 1 files; fetch"
    ):
        open_model(tmp_path)


def in_other_forms(folder: Path) -> dict[str, Path]:
    """Folders with the same model in other files; the value is the file that says where its weights are."""
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    short = {name: leaf.bfloat16() for name, leaf in weights.items()}
    bare = {name.removeprefix("model."): leaf for name, leaf in weights.items()}
    forms: dict[str, Callable[[Path], Any]] = {
        "short": lambda at: save_file(
            {**short, "of.others": torch.ones(3)}, at / "model.safetensors", {"format": "pt"}
        ),
        "bare": lambda at: save_file(bare, at / "model.safetensors", {"format": "pt"}),
        "pickled": lambda at: torch.save(weights, at / "pytorch_model.bin"),
        "trained": lambda at: torch.save({"model": weights, "step": 3}, at / "last.pt"),
    }
    for name, write in forms.items():
        shutil.copytree(folder, folder.parent / name)
        (folder.parent / name / "model.safetensors").unlink()
        write(folder.parent / name)
    library().AutoModelForCausalLM.from_pretrained(folder).save_pretrained(folder.parent / "cut", max_shard_size="4KB")
    files = dict.fromkeys(("short", "bare"), "model.safetensors")
    files |= {"pickled": "pytorch_model.bin", "trained": "last.pt", "cut": "model.safetensors.index.json"}
    return {name: folder.parent / name / file for name, file in files.items()}


@pytest.mark.parametrize("tied", [True, False])
def test_a_folder_is_opened_as_the_library_opens_it_and_its_file_is_named(tmp_path: Path, tied: bool) -> None:
    config, lines = small(tied=tied), list[str]()
    params = from_config(config).init(keys.key(1))
    save_model(tmp_path / "model", params, config)
    for name, file in in_other_forms(tmp_path / "model").items():
        opened = open_model(file.parent, report=lines.append)
        assert re.fullmatch(rf"weights: \d+ tensors from {re.escape(str(file))}", lines[-1])
        if name == "trained":  # which the library does not read
            same(name, opened.params, params)
            continue
        theirs = transformers.AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32)
        same(name, opened.params, dict(theirs.named_parameters()))
        assert opened.config.to_dict() == theirs.config.to_dict()
        assert opened.config.name_or_path == str(file.parent)
        assert opened.generation.to_dict() == theirs.generation_config.to_dict()
    assert len(list((tmp_path / "cut").glob("*.safetensors"))) > 1


@pytest.mark.parametrize("name", ["model.safetensors", "model.pt"])
def test_what_was_opened_stays_when_its_file_is_written_over(tmp_path: Path, name: str) -> None:
    params, path = from_config(small()).init(keys.key(1)), tmp_path / name
    save_model(tmp_path, params, small())
    if name.endswith(".pt"):
        (tmp_path / "model.safetensors").unlink()
        torch.save(dict(params), path)
    opened = open_model(tmp_path, report=lambda text: None)
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    same(name, opened.params, params)
    same(name, opened.model.init(keys.key(0)), params)


def test_what_a_folder_holds_besides_is_left_out_with_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(tmp_path / "model", from_config(small()).init(keys.key(1)), small())
    folder = in_other_forms(tmp_path / "model")["short"].parent
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    open_model(folder, report=lambda text: None)
    (said,) = {record.getMessage() for record in caplog.records if "of.others" in record.getMessage()}
    assert f"from: {folder}" in said


def test_the_first_rank_says_what_all_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(tmp_path, from_config(small()).init(keys.key(1)), small())
    for rank, lines in (("", 1), ("0", 1), ("1", 0)):
        monkeypatch.setenv("RANK", rank)
        open_model(tmp_path)
        assert capsys.readouterr().err.count(f"tensors from {tmp_path / 'model.safetensors'}\n") == lines


def test_weights_of_another_model_are_not_saved(tmp_path: Path) -> None:
    params = from_config(small(width=32)).init(keys.key(0))
    with pytest.raises(StructureError, match=r"save_model: model.embed_tokens.weight is \[24, 32\], wanted \[24, 16\]"):
        save_model(tmp_path, params, small())
    assert list(tmp_path.iterdir()) == []


# --- LoRA ---


def test_lora_begins_as_the_model_and_learns_its_factors_alone() -> None:
    model = from_config(small())
    params = model.init(keys.key(0))
    lora = with_lora(model, params, rank=2, alpha=4.0, targets=("q_proj", "layers.1.mlp.up_proj"))
    adapters: Any = lora.model.init(keys.key(1))
    names = [f"model.layers.{i}.self_attn.q_proj.weight" for i in range(2)] + ["model.layers.1.mlp.up_proj.weight"]
    assert sorted(adapters) == sorted(names)
    same("logits at first", logits(lora.model, adapters, tokens()), logits(model, params, tokens()), NEAR)
    gradient: Any = torch.func.grad(lambda given: logits(lora.model, given, tokens()).square().mean())(adapters)
    assert all(bool((one.b != 0).any()) and not bool((one.a != 0).any()) for one in gradient.values())
    moved: Any = tree_map(lambda value, change: value - change, adapters, gradient)
    changed = {name for name, value in lora.merged(moved).items() if not torch.equal(value, params[name])}
    assert changed == set(names)
    wanted = logits(model, lora.merged(moved), tokens())
    same("merged", logits(lora.model, moved, tokens()), wanted)
    assert not torch.allclose(wanted, logits(model, params, tokens()))


test_lora = check(
    few(causal_laws(NEAR)),
    with_lora(from_config(small()), from_config(small()).init(keys.key(0)), rank=2, alpha=4.0).model,
)


def test_factors_may_be_more_precise_than_their_matrices() -> None:
    whole = from_config(small())
    params = whole.init(keys.key(0))
    short = {name: value.bfloat16() for name, value in params.items()}
    lora = with_lora(whole, short, rank=2, alpha=4.0, dtype=torch.float32)
    adapters: Any = lora.model.init(keys.key(1))
    assert {value.dtype for one in adapters.values() for value in (one.a, one.b)} == {torch.float32}
    same("merged at first", lora.merged(adapters), short)
    gradient: Any = torch.func.grad(lambda given: logits(lora.model, given, tokens()).float().square().mean())(adapters)
    assert all(one.b.dtype == torch.float32 and bool((one.b != 0).any()) for one in gradient.values())
    usual: Any = with_lora(whole, short, rank=2, alpha=4.0).model.init(keys.key(1))
    assert {value.dtype for one in usual.values() for value in (one.a, one.b)} == {torch.bfloat16}


def test_lora_has_the_numbers_of_peft() -> None:
    peft: Any = pytest.importorskip("peft")
    model, config = from_config(small()), small()
    params = model.init(keys.key(0))
    lora = with_lora(model, params, rank=2, alpha=8.0, targets=("q_proj", "v_proj"))
    adapters: Any = lora.model.init(keys.key(1))
    adapters = tree_map(lambda value: value + 0.1 * keys.normal(keys.key(2), tuple(value.shape)), adapters)
    settings = peft.LoraConfig(r=2, lora_alpha=8, target_modules=["q_proj", "v_proj"])
    theirs = peft.inject_adapter_in_model(settings, module_of(config, params)).eval()
    state = theirs.state_dict()
    for name, one in adapters.items():
        stem = name.removesuffix(".weight")
        state[f"{stem}.lora_A.default.weight"].copy_(one.a)
        state[f"{stem}.lora_B.default.weight"].copy_(one.b)
    with torch.no_grad():
        wanted = theirs(input_ids=tokens(), use_cache=False).logits
    same("logits", logits(lora.model, adapters, tokens()), wanted, NEAR)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rank": 0}, "rank is 0, wanted at least 1"),
        ({"targets": ("q_proj", "proj_q")}, r"targets is \['proj_q'\], wanted some of \['down_proj'"),
        ({"targets": ()}, "targets is empty"),
    ],
)
def test_lora_refuses_what_means_nothing(options: dict[str, Any], says: str) -> None:
    model = from_config(small())
    with pytest.raises(PurestepError, match=says):
        with_lora(model, model.init(keys.key(0)), **{"rank": 2, "alpha": 2.0, **options})
