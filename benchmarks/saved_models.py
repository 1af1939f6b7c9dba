"""Architectures that transformers offers for causal language models: trained and saved with the same bits, or refused before.

Of each a tiny folder with random weights and buffers is written by transformers, opened, checked as a run checks it before its
first step, trained for one step, saved, and opened again by purestep and by transformers. Exit code 1 where a model is trained
and then cannot be saved, comes back with other bits, or is refused in more than one line, and where fewer than 20 are saved.
"""

import argparse
import logging
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from purestep.core.errors import PurestepError
from purestep.core.optim.optimizers import adamw, apply_updates
from purestep.runtime.effects.hugging_face.check_saved import check_saved
from purestep.runtime.effects.hugging_face.folder import Opened, open_model, save_model

from . import evidence

LEAST = 20  # architectures that are saved
LARGEST = 5_000_000  # parameters of a tiny model: larger ones have parts that these settings do not reach
PATIENCE = 120  # seconds for one architecture
SAVED, REFUSED, SKIPPED, WRONG = "saved", "refused", "not made small", "WRONG"
TINY: dict[str, Any] = {
    **{"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "head_dim": 8, "max_position_embeddings": 64},
    **{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "ffn_dim": 48, "d_model": 32},
    **{"n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 64, "n_ctx": 64, "n_inner": 48},
    **{"num_layers": 2, "num_heads": 4, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 48},
    **{"num_local_experts": 4, "num_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1},
    **{"moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "n_shared_experts": 1, "topk_group": 1},
    **{"first_k_dense_replace": 1, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "v_head_dim": 8},
    **{"qk_nope_head_dim": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}


def tiny_module(kind: str) -> Any:
    """The library's model of a kind, small, with random weights and buffers; () where these settings do not make one."""
    made = CONFIG_MAPPING[kind]
    known = {*made().to_dict(), *made.attribute_map.values()}
    config = made(**{name: value for name, value in TINY.items() if name in known})
    with torch.device("meta"):
        size = sum(value.numel() for value in transformers.AutoModelForCausalLM.from_config(config).parameters())
    if size > LARGEST:
        return ()
    torch.manual_seed(0)
    module = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    stored = module.state_dict()
    for name, value in module.named_buffers():
        if name in stored and value.is_floating_point():
            value.add_(0.25 * torch.rand(value.shape))
    return module


def logits(opened: Opened, params: dict[str, Tensor]) -> Tensor:
    """The logits of two rows of tokens."""
    tokens = torch.arange(10).reshape(2, 5) % opened.model.vocabulary
    return opened.model.head(params, opened.model.apply(params, tokens, (), ()))


def trained(opened: Opened) -> dict[str, Tensor]:
    """The parameters after a step of AdamW."""
    leaves = {name: value.detach().requires_grad_() for name, value in opened.params.items()}
    loss = -logits(opened, leaves).float().log_softmax(-1)[..., 3].mean()
    slopes = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    optimizer = adamw(1e-2)
    step, _ = optimizer.update(dict(zip(leaves, slopes, strict=True)), optimizer.init(opened.params), opened.params)
    return apply_updates(opened.params, step)


def differences(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[str]:
    """The names whose tensors do not have the same dtype and bits."""
    return [
        name
        for name in {**one, **other}
        if name not in one
        or name not in other
        or one[name].dtype != other[name].dtype
        or not torch.equal(one[name], other[name])
    ]


def fate(kind: str, place: Path) -> tuple[str, str]:
    """Return what became of an architecture, and why."""
    try:
        module = tiny_module(kind)
        if isinstance(module, tuple):
            return SKIPPED, f"more than {LARGEST:,} parameters"
        module.save_pretrained(place / "theirs")
    except Exception as cause:  # of the library, before anything of ours
        return SKIPPED, f"{type(cause).__name__}: {next(iter(str(cause).splitlines()), '')}"[:120]
    trained_already = False
    try:
        opened = open_model(place / "theirs", report=lambda text: None)
        how: dict[str, Any] = {"generation": opened.generation, "buffers": opened.buffers}
        check_saved(place / "copy", opened.model, opened.params, config=opened.config, **how)
        params, trained_already = trained(opened), True
        save_model(place / "ours", params, opened.config, **how)
        again = open_model(place / "ours", report=lambda text: None)
        theirs = transformers.AutoModelForCausalLM.from_pretrained(place / "ours", dtype=torch.float32)
    except PurestepError as refused:
        fault = trained_already or "\n" in str(refused)
        return WRONG if fault else REFUSED, str(refused)
    except Exception as cause:
        return WRONG, f"{type(cause).__name__}: {cause}"
    with torch.no_grad():
        same = torch.equal(logits(opened, params), logits(again, again.params))
        moved = not torch.equal(logits(opened, params), logits(opened, opened.params))
    other = [*differences(params, again.params), *differences(params, dict(theirs.named_parameters()))]
    other += differences(opened.buffers, again.buffers)
    if other or not same or not moved:
        return WRONG, f"same logits: {same}, moved: {moved}, other tensors: {other[:3]}"
    return SAVED, f"{len(opened.buffers)} buffers" if opened.buffers else ""


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in the block after so many seconds."""

    def end(number: int, frame: object) -> None:
        raise TimeoutError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def main() -> int:
    """Try all architectures, or those that are named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.saved_models", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], help="model types, such as glm4_moe")
    options = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    begin, fates = time.perf_counter(), dict[str, tuple[str, str]]()
    for kind in options.only or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        with tempfile.TemporaryDirectory() as place:
            try:
                with limited(PATIENCE):
                    fates[kind] = fate(kind, Path(place))
            except TimeoutError as slow:
                fates[kind] = WRONG, str(slow)
        print(f"{fates[kind][0]:15s}{kind:26s}{fates[kind][1][:200]}", flush=True)
    counts = Counter(end for end, _ in fates.values())
    print(", ".join(f"{name}: {count}" for name, count in sorted(counts.items())))
    if not options.only:
        figures = {
            "counts": dict(counts),
            "transformers": transformers.__version__,
            "saved": {name: why for name, (end, why) in fates.items() if end == SAVED},
            "refused": {name: why for name, (end, why) in fates.items() if end == REFUSED},
            "not_made_small": {name: why for name, (end, why) in fates.items() if end == SKIPPED},
            "wrong": {name: why for name, (end, why) in fates.items() if end == WRONG},
        }
        evidence.write("saved_models", seconds=time.perf_counter() - begin, figures=figures)
    return int(bool(counts[WRONG]) or (not options.only and counts[SAVED] < LEAST))


if __name__ == "__main__":
    sys.exit(main())
