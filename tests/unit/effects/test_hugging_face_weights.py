"""Folders of weights: ours that Hugging Face's libraries open, and theirs, however old, that we read."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from purestep.core import keys
from purestep.core.errors import CheckpointError, StructureError
from purestep.core.optim.optimizers import adamw
from purestep.core.tree import leaves
from purestep.runtime.effects.checkpoint import load, save
from purestep.runtime.effects.checkpoint.formats import hugging_face
from purestep.runtime.effects.hugging_face.causal_lm import from_config, tiny_llama
from purestep.runtime.effects.hugging_face.folder import open_model, save_model
from purestep.runtime.effects.hugging_face.stored import stored
from purestep.runtime.effects.hugging_face.weight_files import read_weights

transformers: Any = pytest.importorskip("transformers")
Params = dict[str, Tensor]


def small(**changes: Any) -> Any:
    return tiny_llama(**{"vocabulary": 13, "width": 6, "layers": 2, "heads": 3, "kv_heads": 1, "inner": 7, **changes})


def weights(value: float) -> Params:
    return {"a.w": torch.full((3, 2), value), "b": torch.full((4,), value, dtype=torch.bfloat16)}


def refuse(text: str) -> None:
    raise AssertionError(text)


def equal(got: Any, wanted: Any) -> bool:
    return all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(leaves(got), leaves(wanted), strict=True))


# --- checkpoints that other libraries open ---


@pytest.mark.parametrize("tied", [True, False])
def test_a_checkpoint_holds_a_model_that_anybody_opens(tmp_path: Path, tied: bool) -> None:
    from tokenizers import Tokenizer, models

    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, "a")))
    generation = transformers.GenerationConfig(eos_token_id=[3, 5])
    config = small(tied=tied)
    params = from_config(config).init(keys.key(1))
    tree = {"params": params, "optimizer": adamw(0.1).init(params)}
    form = hugging_face(config, tokenizer, generation=generation, largest=300)
    path = save.save(tmp_path, 1, tree, form=form)
    opened = open_model(path / "model")
    assert equal(opened.params, params)
    assert len(list((path / "model").glob("*.safetensors"))) > 3
    assert opened.generation.eos_token_id == [3, 5]
    assert opened.config.architectures == ["LlamaForCausalLM"]
    assert json.loads((path / "model" / "config.json").read_text())["dtype"] == "float32"
    again = transformers.AutoTokenizer.from_pretrained(str(path / "model"))
    assert again.get_vocab() == {"a": 0}
    tokens = torch.tensor([[1, 2, 3]])
    module = transformers.AutoModelForCausalLM.from_pretrained(str(path / "model"))
    wanted = torch.func.functional_call(transformers.AutoModelForCausalLM.from_config(config), params, (tokens,))
    assert torch.equal(module(tokens).logits, wanted.logits)
    assert equal(read_weights(path / "model", params, report=lambda text: None), params)
    assert equal(load.load(path, tree).tree, tree)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda p: p.update({"model.norm.weight": torch.ones(7)}), r"model\.norm\.weight is \[7\], wanted \[6\]"),
        (lambda p: p.pop("model.norm.weight"), r"model\.norm\.weight is absent, wanted \[6\]"),
        (lambda p: p.update(more=torch.ones(1)), r"more is \[1\], wanted no such parameter"),
        (
            lambda p: p.update({"model.norm.weight": torch.ones(6, dtype=torch.int64)}),
            r"model\.norm\.weight is \[6\] int64, wanted floating point with a dimension or more; save sharded or full",
        ),
    ],
)
def test_parameters_of_another_model_are_refused_before_anything_is_written(
    tmp_path: Path, change: Callable[[Params], Any], fault: str
) -> None:
    config = small()
    params = from_config(config).init(keys.key(1))
    change(params)
    with pytest.raises(StructureError, match=fault) as caught:
        save.save(tmp_path, 1, {"params": params}, form=hugging_face(config))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "checkpoints").exists()


def test_what_a_module_says_twice_may_be_there_twice(tmp_path: Path) -> None:
    config = small()
    module = transformers.AutoModelForCausalLM.from_config(config)
    state = {name: value.detach().clone() for name, value in module.state_dict().items()}
    assert "lm_head.weight" in state
    path = save.save(tmp_path, 1, {"params": state}, form=hugging_face(config))
    named = dict(module.named_parameters())
    assert equal(open_model(path / "model").params, named)
    assert equal(read_weights(path / "model", named, report=lambda text: None), named)


# --- folders of anybody's ---


def save_index(folder: Path, name: str, files: dict[str, list[str]]) -> None:
    weight_map = {one: file for file, names in files.items() for one in names}
    (folder / name).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def in_two(folder: Path, value: float, ending: str, write: Callable[[Params, Path], Any]) -> None:
    files = {f"part-{number}{ending}": [name] for number, name in enumerate(weights(value))}
    for file, (name,) in files.items():
        write({name: weights(value)[name]}, folder / file)
    stem = "model.safetensors" if ending == ".safetensors" else "pytorch_model.bin"
    save_index(folder, f"{stem}.index.json", files)


SOURCES: dict[str, Callable[[Path, float], Any]] = {  # from the last choice to the first
    "weights.pt": lambda folder, value: torch.save({"model": weights(value), "step": 3}, folder / "weights.pt"),
    "pytorch_model.bin.index.json": lambda folder, value: in_two(folder, value, ".bin", torch.save),
    "pytorch_model.bin": lambda folder, value: torch.save(weights(value), folder / "pytorch_model.bin"),
    "model.safetensors.index.json": lambda f, v: in_two(f, v, ".safetensors", safetensors.torch.save_file),
    "model.safetensors": lambda f, v: safetensors.torch.save_file(weights(v), f / "model.safetensors"),
}


def test_sources_have_an_order_and_are_named(tmp_path: Path) -> None:
    lines: list[str] = []
    for value, (name, make) in enumerate(SOURCES.items(), start=1):
        make(tmp_path, float(value))
        assert equal(read_weights(tmp_path, weights(0.0), report=lines.append), weights(float(value)))
        assert lines[-1] == f"weights: 2 tensors from {tmp_path / name}"
    assert equal(read_weights(tmp_path / "weights.pt", weights(0.0), report=lines.append), weights(1.0))
    wide = {name: leaf.double() for name, leaf in weights(0.0).items()}
    assert equal(read_weights(tmp_path, wide, report=lines.append), {n: w.double() for n, w in weights(5.0).items()})


@pytest.mark.parametrize("name", ["weights.pt", "model.safetensors"])
def test_what_was_read_is_its_own(tmp_path: Path, name: str) -> None:
    SOURCES[name](tmp_path, 1.0)
    first, second = (read_weights(tmp_path, weights(0.0), report=lambda text: None) for _ in range(2))
    first["a.w"].fill_(9)
    assert equal(second, weights(1.0))
    assert equal(read_weights(tmp_path, weights(0.0), report=lambda text: None), weights(1.0))


def test_a_folder_that_the_library_wrote_is_read(tmp_path: Path) -> None:
    config = small()
    params = from_config(config).init(keys.key(1))
    save_model(tmp_path, params, config)
    assert equal(read_weights(tmp_path, params, report=lambda text: None), params)


@pytest.mark.parametrize("stem", ["model.safetensors", "pytorch_model.bin"])
def test_absent_files_and_weights_are_named(tmp_path: Path, stem: str) -> None:
    SOURCES[f"{stem}.index.json"](tmp_path, 1.0)
    ending = Path(stem).suffix
    save_index(tmp_path, f"{stem}.index.json", {f"part-0{ending}": ["a.w", "b"]})
    with pytest.raises(CheckpointError, match=rf"part-0{ending} is without b, wanted what the index says"):
        read_weights(tmp_path, weights(0.0), report=refuse)
    for number in (0, 1):
        (tmp_path / f"part-{number}{ending}").unlink()
    save_index(tmp_path, f"{stem}.index.json", {f"part-{n}{ending}": [name] for n, name in enumerate(weights(0.0))})
    with pytest.raises(CheckpointError, match=rf"without part-0{ending}, part-1{ending}, wanted all 2 files"):
        read_weights(tmp_path, weights(0.0), report=refuse)


def test_a_tied_weight_may_be_there_twice_and_another_may_not(tmp_path: Path) -> None:
    file = tmp_path / "pytorch_model.bin"
    torch.save({**weights(1.0), "head": torch.full((3, 2), 1.0), "rope.inv_freq": torch.ones(2)}, file)
    assert equal(read_weights(tmp_path, weights(0.0), report=lambda text: None), weights(1.0))
    torch.save({**weights(1.0), "head": torch.full((3, 2), 2.0)}, file)
    with pytest.raises(CheckpointError, match=r"is with head \[3, 2\], wanted no such weight"):
        read_weights(tmp_path, weights(0.0), report=refuse)


class Trap:
    """Runs where a pickle is trusted."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("trapped"),)


def scribble(path: Path) -> None:
    path.write_bytes(b"no weights at all")


@pytest.mark.parametrize(
    ("name", "harm", "fault"),
    [
        ("model.safetensors", scribble, r"unreadable .*, wanted a whole safetensors file"),
        ("pytorch_model.bin", scribble, r"unreadable .*, wanted a pickle of tensors alone"),
        ("weights.pt", lambda path: torch.save({"a.w": Trap()}, path), "unreadable .*, wanted a pickle"),
        ("weights.pt", lambda path: torch.save({"epoch": 3}, path), "something else, wanted named tensors"),
        ("weights.pt", lambda path: torch.save({"a.w": torch.ones(3, 2)}, path), "is without b, wanted all 2 weights"),
        ("model.safetensors.index.json", scribble, "unreadable .*, wanted a JSON index"),
        ("model.safetensors.index.json", lambda path: path.write_text("[]"), "another index, wanted a weight_map"),
    ],
)
def test_what_holds_no_weights_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, harm: Callable[[Path], Any], fault: str
) -> None:
    monkeypatch.chdir(tmp_path)
    harm(tmp_path / name)
    with pytest.raises(CheckpointError, match=fault) as caught:
        read_weights(tmp_path, weights(0.0), report=refuse)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "trapped").exists()


def damaged(whole: bytes, seed: int) -> bytes:
    """Cut short, or with some bytes changed."""
    chance = random.Random(seed)
    if seed % 3 == 0:
        return whole[: chance.randrange(len(whole))]
    changed = bytearray(whole)
    for _ in range(chance.choice((1, 4, 32))):
        changed[chance.randrange(len(whole))] = chance.randrange(256)
    return bytes(changed)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("ending", [".safetensors", pytest.param(".bin", marks=pytest.mark.slow), ".pt"])
def test_a_damaged_file_is_named_in_one_line_or_read(tmp_path: Path, ending: str) -> None:
    """What nothing can be told by, say a changed number, is read."""
    path, said = tmp_path / f"weights{ending}", list[str]()
    if ending == ".safetensors":
        safetensors.torch.save_file(weights(1.0), path)
    else:
        torch.save(weights(1.0), path, _use_new_zipfile_serialization=ending == ".bin")
    whole = path.read_bytes()
    for seed in range(300):
        path.write_bytes(damaged(whole, seed))
        try:
            with stored(path) as (_, shelf):
                assert all(tuple(one.read().shape) == one.shape for one in shelf.values())
        except CheckpointError as error:
            said.append(str(error))
    assert 150 < len(said) < 300
    assert [one for one in said if "\n" in one or not one.startswith(f"weights: {path} is ")] == []


def test_an_empty_folder_and_several_pickles_are_refused(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "absent"):
        with pytest.raises(CheckpointError, match=r"a folder without weights, wanted model\.safetensors, .*, a \.pt"):
            read_weights(place, weights(0.0), report=refuse)
    for name in ("x.pt", "y.pt"):
        torch.save(weights(1.0), tmp_path / name)
    with pytest.raises(CheckpointError, match=r"a folder with x\.pt, y\.pt, wanted one \.pt; name the file itself"):
        read_weights(tmp_path, weights(0.0), report=refuse)
