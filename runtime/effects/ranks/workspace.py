"""Where the arithmetic of a sharded model is done: a module whose weights are gathered layer by layer as they are used.

Parameters stay values, trees of shards that a state holds. For each gradient they are copied into the module, torch's
`fully_shard` gathers them in time and adds up what the processes found, and the gradient is taken out again as a tree of
shards. So a process holds its share of the parameters twice, beside that of the optimiser, and a layer or two whole.
"""

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import torch
from attrs import frozen
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from ....algorithms.token_policy import LearnerParams
from ....core.causal import CausalModel
from ....core.errors import ChoiceError, ShapeError, message
from ....core.networks import Linear
from ....core.record import replace
from ....core.tree import same_structure
from ..causal_checks import check_supported, window_of
from ..causal_lm import added_mask, groups_of, hollow, seen_by
from .spread import spread
from .world import Ranks

T = TypeVar("T")
Absent = tuple[()]


class Desk(nn.Module):
    """A policy and the head of its critic, in whose forward, and there alone, both have whole weights."""

    def __init__(self, policy: nn.Module, critic: nn.Module) -> None:
        super().__init__()
        self.policy = policy
        self.critic = critic

    def forward(self, work: Callable[[], T]) -> T:
        """What `work` gives."""
        return work()


@frozen(kw_only=True, eq=False)
class Workspace:
    """A sharded module. All processes must do the same things with it, in the same order."""

    ranks: Ranks
    desk: Any  # a Desk that is sharded
    critic: bool
    at_once: bool  # whether gradients are added up over parts on each process, and over processes at the end


def desk_model(module: Any) -> tuple[nn.Module, CausalModel]:
    """A copy of a `PreTrainedModel` without numbers, and its functions, which look at no parameters but the copy's own.

    Only `apply` and `head` are there, for `within` a workspace that was made of the copy.
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
    ranks: Ranks,
    *,
    width: int,
    critic: bool = False,
    precision: torch.dtype | Absent = (),
    reduction: torch.dtype | Absent = (),
) -> Workspace:
    """A workspace of what `desk_model` copied, which is used up. `width` is the model's, for the head of a critic.

    Each layer is gathered for itself. `precision` is that of gathered weights and so of what is computed with them, bfloat16
    say; shards keep the dtype of the parameters. With a `reduction` gradients are added up in that dtype, whole on each
    process until the last part, and only then sent and rounded; without, in float32 and sent after every part.
    """
    like = next(policy.parameters())
    head = nn.Module()
    if critic:
        head.weight = nn.Parameter(torch.empty(width, 1, dtype=like.dtype, device="meta"))
        head.bias = nn.Parameter(torch.empty(1, dtype=like.dtype, device="meta"))
    desk = Desk(policy, head)
    given: dict[str, Any] = {"mesh": ranks.mesh, "mp_policy": _mixed(precision, reduction)}
    for layer in _layers(policy):
        fully_shard(layer, **given)
    fully_shard(desk, **given)
    made: Any = desk
    made._apply(lambda leaf: torch.empty_like(leaf, device=ranks.device) if leaf.is_meta else leaf.to(ranks.device))
    for part in _sharded(desk):
        # Losses are divided by counts of the whole batch, so that gradients are to be added, not averaged.
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)
    return Workspace(ranks=ranks, desk=desk, critic=critic, at_once=not isinstance(reduction, tuple))


def _mixed(precision: torch.dtype | Absent, reduction: torch.dtype | Absent) -> MixedPrecisionPolicy:
    own = () if isinstance(precision, tuple) else precision
    wide = reduction if not isinstance(reduction, tuple) else torch.float32 if own else ()
    return MixedPrecisionPolicy(param_dtype=own or None, reduce_dtype=wide or None)


def _layers(policy: Any) -> list[nn.Module]:
    """The model's blocks: the entries of its first list that is as long as its configuration says."""
    number = policy.config.num_hidden_layers
    lists = [part for part in policy.modules() if isinstance(part, nn.ModuleList) and len(part) == number]
    return list(lists[0]) if lists else []


def _sharded(desk: nn.Module) -> list[Any]:
    return [part for part in desk.modules() if isinstance(part, FSDPModule)]


def within(space: Workspace, work: Callable[[], T]) -> T:
    """What `work` gives when the module's weights are whole around it; a loss it gives can be differentiated."""
    result: T = space.desk(work)
    return result


def inside(space: Workspace) -> LearnerParams:
    """The parameters that functions of `desk_model` take within a workspace: only the critic's are looked at."""
    if not space.critic:
        return LearnerParams(policy=())
    head = space.desk.critic
    return LearnerParams(policy=(), critic=Linear(weight=head.weight, bias=head.bias))


def load(space: Workspace, params: LearnerParams) -> None:
    """Copies parameters, in shards, into the module, and forgets its gradient. Raises: StructureError."""
    for part in _sharded(space.desk):
        part.reshard()  # what was gathered is of older weights
    own = _tree(space, {name: value.detach() for name, value in space.desk.named_parameters()})
    given = spread(space.ranks, params)
    same_structure("load: params", _sorted(given), _sorted(own))
    with torch.no_grad():
        for mine, leaf in zip(_locals(own), _locals(given), strict=True):
            mine.copy_(leaf)
    for value in space.desk.parameters():
        value.grad = None


def descend(space: Workspace, loss: Tensor, *, last: bool) -> None:
    """Adds the gradient of a part's loss to what there is; `last` says that no other part comes before `slopes`."""
    if space.at_once:
        space.desk.set_requires_gradient_sync(last)
    loss.backward()  # type: ignore[no-untyped-call]


def slopes(space: Workspace, params: LearnerParams) -> LearnerParams:
    """The gradient that all processes have found together since `load`, in shards: a tree like the parameters.

    It is 0 where nothing was differentiated.
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
