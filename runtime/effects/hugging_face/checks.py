"""Checks that a Hugging Face model can be wrapped as a `CausalModel`: by its configuration, and by comparing its logits."""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from ....core.causal import CausalModel
from ....core.errors import StructureError, message

MOVING = ("dynamic", "longrope")  # rotary embeddings that depend on the length of the longest sequence of a batch
NUMBERS = ("num_attention_heads", "num_hidden_layers", "hidden_size", "max_position_embeddings")
BENT = ("final_logit_softcapping", "attn_logit_softcapping")  # logits that are not a linear map of hidden states
PROBE = {torch.float32: 1e-4, torch.float64: 1e-10}  # largest allowed error of logits, relative to the largest logit
COARSE = 5e-2  # the same for dtypes of lower precision
SURPLUS = 1 << 26  # numbers that a configuration may ask for beyond those stored: less than is worth a refusal by size


def window_of(config: Any) -> int:
    """Return the longest sequence length; with sliding windows, the longest length at which they still cover everything."""
    longest = int(config.max_position_embeddings)
    sliding, kinds = getattr(config, "sliding_window", None), getattr(config, "layer_types", None)
    slides = any("sliding" in kind for kind in kinds) if kinds else sliding is not None
    return min(longest, int(sliding)) if slides and sliding else longest


def check_layers(config: Any, stored: int, where: str) -> None:
    """Raise StructureError for a configuration of more layers than its weights are tensors; it is called before any is made.

    >>> from types import SimpleNamespace
    >>> check_layers(SimpleNamespace(num_hidden_layers=2), 21, "folder")
    """
    layers = getattr(config, "num_hidden_layers", None) or 0
    if layers > stored:
        wanted, remedy = f"at most the {stored} tensors of its weights", "fetch the configuration of these weights"
        raise StructureError(message(f"{where}: num_hidden_layers", got=layers, wanted=wanted, remedy=remedy))


def check_size(module: Any, stored: Sequence[Sequence[int]], where: str) -> None:
    """Raise StructureError for a module, on the meta device, of far more numbers than the shapes `stored` hold."""
    tensors = {name: tuple(value.shape) for name, value in (*module.named_parameters(), *module.named_buffers())}
    numbers, held = sum(map(prod, tensors.values())), sum(map(prod, stored))
    if numbers > held + SURPLUS:
        name = max(tensors, key=lambda one: prod(tensors[one]))
        got, wanted = f"of {numbers:,} numbers ({name} is {list(tensors[name])})", f"the {held:,} of its weights"
        remedy = "fetch the configuration of these weights"
        raise StructureError(message(f"{where}: the model", got=got, wanted=wanted, remedy=remedy))


def check_supported(module: Any) -> None:
    """Raise StructureError if the configuration shows that a `CausalModel` cannot represent the model."""
    config, name = module.config, type(module).__name__
    absent = [word for word in NUMBERS if getattr(config, word, None) is None]
    if absent:
        remedy = "take a model of attention with positions of its own"
        raise StructureError(message(f"{name}: {absent[0]}", got="absent", wanted="a number", remedy=remedy))
    bent = [word for word in BENT if getattr(config, word, None)]
    if bent:
        got, remedy = getattr(config, bent[0]), "take a model without it"
        raise StructureError(message(f"{name}: {bent[0]}", got=got, wanted="none", remedy=remedy))
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope in MOVING:
        remedy = "take a model with positions that stand still"
        raise StructureError(message(f"{name}: rope_type", got=rope, wanted=f"none of {MOVING}", remedy=remedy))
    if config._attn_implementation not in ("sdpa", "eager"):
        got, remedy = config._attn_implementation, "load it with attn_implementation='sdpa'"
        raise StructureError(message(f"{name}: attention", got=got, wanted="sdpa or eager", remedy=remedy))


def check_logits(module: Any, model: CausalModel, params: dict[str, Tensor]) -> None:
    """Raise StructureError unless `apply` and `begin` + `extend` give the logits that the module itself gives."""
    name, modes = type(module).__name__, [(part, part.training) for part in module.modules()]
    length = min(5, model.window)
    tokens = torch.arange(2 * length).reshape(2, length).to(next(iter(params.values())).device) % model.vocabulary
    at = torch.zeros(2, dtype=torch.int64, device=tokens.device)
    remedy = "only models whose logits are a linear map of what their layers give, with plain attention, are supported"
    try:
        with torch.no_grad():
            wanted = module.eval()(input_ids=tokens, use_cache=False).logits
            first, cache = model.extend(params, model.begin(params, 2, length), tokens[:, :-1], at)
            last, _ = model.extend(params, cache, tokens[:, -1:], at + length - 1)
            ways = (model.apply(params, tokens, (), ()), torch.cat([first, last], 1))
            gaps = [float((model.head(params, hidden) - wanted).abs().max() / wanted.abs().max()) for hidden in ways]
    except Exception as cause:
        got, expected = f"{type(cause).__name__}: {cause}", "logits"
        if isinstance(cause, AttributeError) and hasattr(cause.obj, "update"):
            got, expected = f"a model that asks its cache for {cause.name}", "one that keeps keys and values alone"
        raise StructureError(message(name, got=got, wanted=expected, remedy=remedy)) from cause
    finally:
        for part, training in modes:
            part.training = training
    if not max(gaps) < PROBE.get(wanted.dtype, COARSE):
        got = f"off by {max(gaps):.1%} in its logits"
        raise StructureError(message(name, got=got, wanted="its own logits", remedy=remedy))
