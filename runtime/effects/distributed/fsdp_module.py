"""Computation with a sharded model: a module whose weights are gathered layer by layer as they are used.

Parameters stay values, trees of shards in a state. For each gradient they are copied into the module, torch's `fully_shard`
gathers them in time and adds up the gradients of the processes, and the gradient is taken out again as a tree of shards. So a
process holds its share of the parameters twice, besides that of the optimiser, and one or two whole layers.
"""

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import torch
from attrs import frozen
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from ....algorithms.language.scoring import LearnerParams
from ....core.causal import CausalModel
from ....core.errors import ChoiceError, ShapeError, message
from ....core.networks import Linear
from ....core.record import replace
from ....core.tree import same_structure
from ..hugging_face.causal_lm import added_mask, groups_of, hollow, seen_by
from ..hugging_face.checks import check_supported, window_of
from .process_group import ProcessGroup
from .shard import spread

T = TypeVar("T")
Absent = tuple[()]


class ShardedModule(nn.Module):
    """A policy and its critic's head as one module: inside its forward, and only there, both have whole weights."""

    def __init__(self, policy: nn.Module, critic: nn.Module) -> None:
        super().__init__()
        self.policy = policy
        self.critic = critic

    def forward(self, work: Callable[[], T]) -> T:
        """Return `work()`, with whole weights."""
        return work()


@frozen(kw_only=True, eq=False)
class Workspace:
    """A sharded module. All processes must use it in the same way, in the same order."""

    ranks: ProcessGroup
    desk: Any  # a sharded Desk
    critic: bool
    at_once: bool  # True: gradients are added up over parts on each process, and over processes once at the end


def sharded_module(module: Any) -> tuple[nn.Module, CausalModel]:
    """Return a copy of a `PreTrainedModel` without values, and its functions, which use only the copy's own parameters.

    Only `apply` and `head` work, `within` a workspace that was made of the copy.
    Raises: StructureError for a model that is not supported.
    """
    check_supported(module)
    policy: Any = hollow(module).requires_grad_(True)
    groups, window = groups_of(module.config), window_of(module.config)

    def apply(params: Any, tokens: Tensor, position: Tensor | Absent = (), mask: Tensor | Absent = ()) -> Tensor:
        del params
        if tokens.shape[-1] > window:
            remedy = "cut them, or take a model with a longer window"
            wanted = f"at most {window} in a row"
            raise ShapeError(message("apply: tokens", got=tokens.shape[-1], wanted=wanted, remedy=remedy))
        at, seen = seen_by(tokens, position, mask)
        like = policy.get_output_embeddings().weight
        added = added_mask(seen, like.dtype, groups)
        hidden: Tensor = policy.base_model(
            tokens, attention_mask=added, position_ids=at, use_cache=False
        ).last_hidden_state
        return hidden

    def head(params: Any, hidden: Tensor) -> Tensor:
        del params
        logits: Tensor = policy.get_output_embeddings()(hidden)
        return logits

    model = CausalModel(
        init=_refuses("init"),
        apply=apply,
        head=head,
        begin=_refuses("begin"),
        extend=_refuses("extend"),
        vocabulary=policy.get_output_embeddings().weight.shape[0],
        width=module.config.hidden_size,
        window=window,
    )
    return policy, model


def _refuses(name: str) -> Callable[..., NoReturn]:
    def refuse(*arguments: Any) -> NoReturn:
        remedy = "sample and begin with a model of whole parameters, as causal_model makes it"
        raise ChoiceError(message(f"{name} of a sharded model", got="called", wanted="apply or head", remedy=remedy))

    return refuse


def workspace(
    policy: nn.Module,
    ranks: ProcessGroup,
    *,
    width: int,
    critic: bool = False,
    precision: torch.dtype | Absent = (),
    reduction: torch.dtype | Absent = (),
) -> Workspace:
    """Return a workspace of a copy by `sharded_module`, which it takes over. `width` is the model's, for the head of a critic.

    Each layer is gathered on its own. `precision` is the dtype of gathered weights and so of the computation, e.g. bfloat16;
    shards keep the dtype of the parameters. With a `reduction`, gradients are added up in that dtype, unsharded on each
    process until the last part, and only then reduced and rounded; without it, in float32 and reduced after every part.
    """
    like = next(policy.parameters())
    head = nn.Module()
    if critic:
        head.weight = nn.Parameter(torch.empty(width, 1, dtype=like.dtype, device="meta"))
        head.bias = nn.Parameter(torch.empty(1, dtype=like.dtype, device="meta"))
    desk = ShardedModule(policy, head)
    given: dict[str, Any] = {"mesh": ranks.mesh, "mp_policy": _mixed(precision, reduction)}
    for layer in _layers(policy):
        fully_shard(layer, **given)
    fully_shard(desk, **given)
    made: Any = desk
    made._apply(lambda leaf: torch.empty_like(leaf, device=ranks.device) if leaf.is_meta else leaf.to(ranks.device))
    for part in _sharded(desk):
        # Losses are divided by counts of the whole batch, so gradients must be summed over processes, not averaged.
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)
    return Workspace(ranks=ranks, desk=desk, critic=critic, at_once=not isinstance(reduction, tuple))


def _mixed(precision: torch.dtype | Absent, reduction: torch.dtype | Absent) -> MixedPrecisionPolicy:
    own = () if isinstance(precision, tuple) else precision
    wide = reduction if not isinstance(reduction, tuple) else torch.float32 if own else ()
    return MixedPrecisionPolicy(param_dtype=own or None, reduce_dtype=wide or None)


def _layers(policy: Any) -> list[nn.Module]:
    """Return the model's blocks: the entries of its first list whose length is the configuration's number of layers."""
    number = policy.config.num_hidden_layers
    lists = [part for part in policy.modules() if isinstance(part, nn.ModuleList) and len(part) == number]
    return list(lists[0]) if lists else []


def _sharded(desk: nn.Module) -> list[Any]:
    return [part for part in desk.modules() if isinstance(part, FSDPModule)]


def within(space: Workspace, work: Callable[[], T]) -> T:
    """Return `work()`, called while the module's weights are whole; a loss that it returns can be differentiated."""
    result: T = space.desk(work)
    return result


def inside(space: Workspace) -> LearnerParams:
    """Return the parameters for functions of `sharded_module` within a workspace: only the critic's are used."""
    if not space.critic:
        return LearnerParams(policy=())
    head = space.desk.critic
    return LearnerParams(policy=(), critic=Linear(weight=head.weight, bias=head.bias))


def load_parameters(space: Workspace, params: LearnerParams) -> None:
    """Copy parameters, in shards, into the module, and discard its gradient. Raises: StructureError."""
    for part in _sharded(space.desk):
        part.reshard()  # discards gathered older weights
    own = _tree(space, {name: value.detach() for name, value in space.desk.named_parameters()})
    given = spread(space.ranks, params)
    same_structure("load: params", _sorted(given), _sorted(own))
    with torch.no_grad():
        for mine, leaf in zip(_locals(own), _locals(given), strict=True):
            mine.copy_(leaf)
    for value in space.desk.parameters():
        value.grad = None


def descend(space: Workspace, loss: Tensor, *, last: bool) -> None:
    """Add the gradient of a part's loss to the sum so far; `last` marks the last part before `slopes`."""
    if space.at_once:
        space.desk.set_requires_gradient_sync(last)
    loss.backward()  # type: ignore[no-untyped-call]


def slopes(space: Workspace, params: LearnerParams) -> LearnerParams:
    """Return the gradient that all processes have accumulated since `load_parameters`, in shards: a tree like the parameters.

    It is 0 for parameters without a gradient.
    """
    found = {
        name: torch.zeros_like(value.detach()) if value.grad is None else value.grad.detach()
        for name, value in space.desk.named_parameters()
    }
    for value in space.desk.parameters():
        value.grad = None
    gradient = _tree(space, found)
    return replace(gradient, policy={name: gradient.policy[name] for name in params.policy})


def _sorted(params: LearnerParams) -> LearnerParams:
    return replace(params, policy=dict(sorted(params.policy.items())))


def _tree(space: Workspace, named: dict[str, Tensor]) -> LearnerParams:
    cut = len("policy.")
    policy = {name[cut:]: value for name, value in named.items() if name.startswith("policy.")}
    if not space.critic:
        return LearnerParams(policy=policy)
    return LearnerParams(policy=policy, critic=Linear(weight=named["critic.weight"], bias=named["critic.bias"]))


def _locals(tree: LearnerParams) -> list[Any]:
    head = [] if isinstance(tree.critic, tuple) else [tree.critic.weight, tree.critic.bias]
    return [value.to_local() for value in (*(tree.policy[name] for name in sorted(tree.policy)), *head)]
