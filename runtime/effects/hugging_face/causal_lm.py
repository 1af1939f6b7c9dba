"""A causal language model of Hugging Face as a `CausalModel`: its own forward, called as a pure function of parameters.

Parameters are a dict of named tensors, under transformers' names; a tied head is not among them and follows the embedding;
buffers are constants. Positions and masks are always passed explicitly, so that data-dependent code in transformers is never
reached. A model whose logits or cache differ from those of its own forward is refused.

The functions of one model are not thread-safe: each runs one call at a time. For two threads, make two models of one module.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from attrs import define, evolve, frozen
from torch import Tensor, nn

from ....core import keys
from ....core.causal import Cache, CausalModel
from ....core.errors import ChoiceError, ShapeError, message
from ....core.keys import Key
from .checks import check_logits, check_supported, window_of
from .optional import library

Params = dict[str, Tensor]
Absent = tuple[()]
STACKED = "purestep_stacked"  # the name under which `stacked_attention` is registered in transformers


def tiny_llama(
    vocabulary: int,
    *,
    width: int = 128,
    layers: int = 3,
    heads: int = 4,
    kv_heads: int = 2,
    inner: int = 384,
    window: int = 512,
    theta: float = 100.0,
    tied: bool = True,
    stop: int | None = None,
) -> Any:
    """Return the configuration of a small Llama: 0.64 million parameters with 400 tokens.

    Weights start with the standard deviation 1 / sqrt(width): transformers' 0.02 is made for wide models, and a narrow one
    learns nothing for hundreds of steps with it. `theta` is small because the window is. `stop` is the token that ends a
    text, for programs that open the saved folder.
    """
    return library().LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=inner,
        max_position_embeddings=window,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
        initializer_range=width**-0.5,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=stop,
    )


def from_config(config: Any, *, dtype: torch.dtype = torch.float32) -> CausalModel:
    """Return the model of a configuration; `init` draws its weights, a function of the key alone.

    Matrices and stacks of matrices are normal with the configuration's `initializer_range`, biases 0, everything else as
    transformers initialises it. They are on the key's device.
    Raises: StructureError for a model that is not supported, ModuleNotFoundError.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        module = library().AutoModelForCausalLM.from_config(config, dtype=dtype)
    scale = float(getattr(config, "initializer_range", 0.02))
    begun = {name: value.detach().clone() for name, value in module.named_parameters()}

    def drawn(key: Key, name: str, value: Tensor) -> Tensor:
        if name.endswith("bias"):
            return torch.zeros_like(value, device=key.device)
        if value.ndim < 2:
            return value.to(key.device, copy=True)
        return (scale * keys.normal(key, tuple(value.shape))).to(value.dtype)

    def init(key: Key) -> Params:
        own = keys.split(key, len(begun))
        return {name: drawn(one, name, value) for one, (name, value) in zip(own, begun.items(), strict=True)}

    return causal_model(module, init)


def causal_model(module: Any, init: Any = ()) -> CausalModel:
    """Return the model of a `PreTrainedModel`, which is not modified; without `init` it starts with the module's own weights.

    Raises: StructureError for a model that is not supported.
    """
    config = module.config
    check_supported(module)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    params = {name: value.detach() for name, value in module.named_parameters()}
    parts = _ModelFunctions(
        prefix=f"{module.base_model_prefix}.",
        whole=hollow(module.base_model),
        cached=hollow(module.base_model),
        head=_names(module.get_output_embeddings(), module),
        shapes={name: tuple(value.shape) for name, value in params.items()},
        window=window_of(config),
        groups=groups_of(config),
    )
    model = CausalModel(
        init=init or (lambda key: dict(params)),
        apply=parts.apply,
        head=parts.logits,
        begin=lambda given, rows, capacity: parts.begin(given, (rows, capacity, heads, size), config.num_hidden_layers),
        extend=parts.extend,
        vocabulary=module.get_output_embeddings().weight.shape[0],
        width=config.hidden_size,
        window=parts.window,
    )
    check_logits(module, model, params)
    return model


def kept_buffers(module: nn.Module) -> Params:
    """Return copies of the tensors that are stored beside a module's parameters and never trained, as a router's bias."""
    stored = module.state_dict(keep_vars=True)
    named = module.named_buffers(remove_duplicate=False)
    return {name: value.detach().clone() for name, value in named if name in stored}


def new_buffers(config: Any) -> Params:
    """Return the `kept_buffers` of a new model of a configuration, for `save_model`; {} for most models.

    >>> new_buffers(tiny_llama(8))
    {}
    """
    with torch.device("meta"):
        module = library().AutoModelForCausalLM.from_config(config)
    if not kept_buffers(module):
        return {}
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return kept_buffers(library().AutoModelForCausalLM.from_config(config))


def reusing_cache(model: CausalModel) -> CausalModel:
    """Return the model with an `extend` that writes into the cache passed to it, which must then not be used again.

    For a caller that holds the only reference to a cache: copying it costs more than a step of a small model. A model that
    was not made by `causal_model` is returned unchanged.
    """
    parts = getattr(model.extend, "__self__", None)
    return evolve(model, extend=parts.overwrite) if isinstance(parts, _ModelFunctions) else model


@frozen
class _ModelFunctions:
    """The functions of a model. Its two copies of the body hold no weights; one may be called while the other is in use."""

    prefix: str
    whole: nn.Module
    cached: nn.Module
    head: tuple[str, ...]  # the names of its weight and, where it has one, its bias
    shapes: dict[str, tuple[int, ...]]
    window: int
    groups: int  # number of query heads stacked on one key head

    def apply(
        self, params: Params, tokens: Tensor, position: Tensor | Absent = (), mask: Tensor | Absent = ()
    ) -> Tensor:
        self.check(params)
        length = tokens.shape[-1]
        if length > self.window:
            where, remedy = "apply: tokens", "cut them, or take a model with a longer window"
            raise ShapeError(message(where, got=length, wanted=f"at most {self.window} in a row", remedy=remedy))
        at, seen = seen_by(tokens, position, mask)
        return self._hidden(self.whole, params, tokens, at, seen, None)

    def begin(self, params: Params, shape: tuple[int, ...], layers: int) -> Cache:
        self.check(params)
        if shape[1] > self.window:
            where, remedy = "begin: capacity", "ask for less, or take a model with a longer window"
            raise ChoiceError(message(where, got=shape[1], wanted=f"at most the window {self.window}", remedy=remedy))
        like = params[self.head[0]]
        return tuple(torch.zeros(shape, dtype=like.dtype, device=like.device) for _ in range(2 * layers))

    def extend(self, params: Params, cache: Cache, tokens: Tensor, position: Tensor) -> tuple[Tensor, Cache]:
        return self._extended(params, cache, tokens, position, torch.Tensor.index_put)

    def overwrite(self, params: Params, cache: Cache, tokens: Tensor, position: Tensor) -> tuple[Tensor, Cache]:
        return self._extended(params, cache, tokens, position, torch.Tensor.index_put_)

    def _extended(
        self, params: Params, cache: Cache, tokens: Tensor, position: Tensor, put: Callable[..., Tensor]
    ) -> tuple[Tensor, Cache]:
        at = position[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        seen = torch.arange(cache[0].shape[1], device=tokens.device) <= at[..., None]
        written = _Written(list(cache), (torch.arange(tokens.shape[0], device=tokens.device)[:, None], at), put)
        hidden = self._hidden(self.cached, params, tokens, at, seen, written)
        return hidden, tuple(written.tensors)

    def logits(self, params: Params, hidden: Tensor) -> Tensor:
        weight, *bias = (params[name] for name in self.head)
        return F.linear(hidden, weight, *bias)

    def _hidden(
        self, body: nn.Module, params: Params, tokens: Tensor, at: Tensor, seen: Tensor, cache: "_Written | None"
    ) -> Tensor:
        cut = len(self.prefix)
        values = {name[cut:]: value for name, value in params.items() if name.startswith(self.prefix)}
        like = next(iter(values.values()))
        mask = added_mask(seen, like.dtype, self.groups)
        named = {"attention_mask": mask, "position_ids": at, "past_key_values": cache, "use_cache": False}
        hidden: Tensor = torch.func.functional_call(body, values, (tokens,), named, tie_weights=False).last_hidden_state
        return hidden

    def check(self, params: Mapping[str, Tensor]) -> None:
        """Raise ShapeError, naming the first difference, unless these are parameters of this model."""
        for name, shape in self.shapes.items():
            if name not in params or tuple(params[name].shape) != shape:
                got = list(params[name].shape) if name in params else "absent"
                remedy = "pass parameters of this very model"
                raise ShapeError(message(f"params: {name}", got=got, wanted=list(shape), remedy=remedy))
        more = sorted(set(params) - set(self.shapes))
        if more:
            remedy = "pass parameters of this very model"
            raise ShapeError(message(f"params: {more[0]}", got="there", wanted="no such name", remedy=remedy))


@define
class _Written:
    """The cache object that a layer receives: it is updated with new keys and values, and returns all of them."""

    tensors: list[Tensor]  # of each layer its keys and its values [B, capacity, heads, size]
    place: tuple[Tensor, Tensor]  # where new ones go: rows [B, 1], positions [B, Q]
    put: Callable[..., Tensor]  # into a copy, or into the tensor itself

    def update(self, key: Tensor, value: Tensor, layer: int, *rest: Any, **named: Any) -> tuple[Tensor, Tensor]:
        """Keys and values [B, heads, Q, size] -> [B, heads, capacity, size]."""
        for number, new in ((2 * layer, key), (2 * layer + 1, value)):
            self.tensors[number] = self.put(self.tensors[number], self.place, new.transpose(1, 2))
        return self.tensors[2 * layer].transpose(1, 2), self.tensors[2 * layer + 1].transpose(1, 2)


def groups_of(config: Any) -> int:
    """Return how many query heads `hollow` stacks on one key head; 1 if transformers' own attention is used."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return config.num_attention_heads // heads if config._attn_implementation == "sdpa" else 1


def seen_by(tokens: Tensor, position: Tensor | Absent, mask: Tensor | Absent) -> tuple[Tensor, Tensor]:
    """Return the position of each token [B, L] and the tokens that it sees [B, L, L], as `CausalModel.apply` takes them."""
    place = torch.arange(tokens.shape[-1], device=tokens.device)
    at = position if isinstance(position, Tensor) else place[None].expand_as(tokens)
    seen = mask if isinstance(mask, Tensor) else (place <= place[:, None]).expand(tokens.shape[0], -1, -1)
    return at, seen


def added_mask(seen: Tensor, dtype: torch.dtype, groups: int) -> Tensor:
    """Return the mask added to scores of stacked queries, 0 or -inf: bool [B, Q, K] -> [B, 1, groups Q, K]."""
    return torch.zeros_like(seen, dtype=dtype).masked_fill(~seen, -torch.inf).repeat(1, groups, 1)[:, None]


def hollow(module: nn.Module) -> nn.Module:
    """Return a copy of the module, in eval mode, whose parameters have shapes and no values (meta tensors)."""
    empty = {id(p): nn.Parameter(p.detach().to("meta"), requires_grad=False) for p in module.parameters()}
    made: Any = copy.deepcopy(module, dict(empty)).eval()
    if made.config._attn_implementation == "sdpa":
        library().AttentionInterface.register(STACKED, stacked_attention)
        made.config._attn_implementation = STACKED
    hollow: nn.Module = made
    return hollow


def stacked_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, *, scaling: float, **named: Any
) -> tuple[Tensor, None]:
    """softmax(Q K^T scaling + mask) V, where the query heads that share a key head are concatenated along the query axis.

    Transformers repeats keys and values instead, which copies the whole cache. Shapes: query [B, G H, Q, D], key and value
    [B, H, K, D], mask [B, 1, G Q, K] -> [B, Q, G H, D]. Raises: ValueError for attention of another kind.
    """
    del module
    strange = [word for word in ("softcap", "s_aux", "position_bias") if named.get(word) is not None]
    if strange:
        raise ValueError(f"attention with {strange[0]}")
    rows, heads, length, size = query.shape
    stacked = query.reshape(rows, key.shape[1], -1, size)
    seen = F.scaled_dot_product_attention(stacked, key, value, attn_mask=mask, scale=scaling)
    return seen.reshape(rows, heads, length, -1).transpose(1, 2).contiguous(), None


def _names(head: nn.Module, module: nn.Module) -> tuple[str, ...]:
    """Return the names of the head's parameters among the module's; for a tied weight, the name of the embedding."""
    names = {id(value): name for name, value in module.named_parameters()}
    return tuple(names[id(value)] for value in (head.weight, getattr(head, "bias", None)) if isinstance(value, Tensor))
