"""A policy's weights and the statistics of its normaliser as a safetensors file, with a description in JSON."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import torch.utils._pytree as pytree
from attrs import asdict, evolve
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ....core.errors import ExportError, message
from ....core.record import replace
from ....core.spaces import Fields, Space, Tuple, parts
from ....core.tree import leaf_names, leaves
from ...normalizer import RunningScales, observed_part
from ...trained_policy import TrainedPolicy
from ..checkpoint.atomic_files import read_bytes
from .module import inputs_of

ABOUT, FORM = "purestep", 1
PARAMS, STATISTICS = "params", "normalizer"


def tensors_of(policy: TrainedPolicy) -> dict[str, Tensor]:
    """Return the tensors by name: params.NAME, as in messages, and normalizer.NAME, those that observations are scaled by."""
    found: dict[str, Tensor] = {}
    for prefix, tree in ((PARAMS, policy.model.named(policy.params)), (STATISTICS, _statistics(policy.statistics))):
        for name, leaf in zip(leaf_names(tree), leaves(tree), strict=True):
            found[".".join(filter(None, (prefix, name)))] = leaf.detach().contiguous().clone()
    return found


def _statistics(statistics: Any) -> Any:
    part = observed_part(statistics)
    return part.observation if isinstance(part, RunningScales) else part


def description(policy: TrainedPolicy, observation: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description: recipe, settings, spaces, the observation's tensors, and how it is scaled."""
    scales = policy.statistics
    tensors = {name: [list(one.shape), str(one.dtype)] for name, one in inputs_of(observation).items()}
    scaled = isinstance(scales, RunningScales) and bool(leaves(scales.observation))
    return {
        "form": FORM,
        "recipe": policy.recipe,
        "settings": dict(settings),
        "iteration": policy.iteration,
        "observation_space": _space(policy.env.observation_space),
        "action_space": _space(policy.env.action_space),
        "observation": tensors,
        "normalizer": {"clip": scales.clip, "eps": 1e-8} if scaled else {},
    }


def _space(space: Space) -> dict[str, Any]:
    if isinstance(space, Fields | Tuple):
        return {"fields": {str(name): _space(inner) for name, inner in parts(space)}}
    return {"kind": type(space).__name__, **asdict(space)}


def tensor_file_bytes(policy: TrainedPolicy, observation: Any, settings: Mapping[str, Any]) -> bytes:
    """Return the content of the file."""
    about = json.dumps(description(policy, observation, settings), default=str)
    return safetensors.torch.save(tensors_of(policy), {ABOUT: about})


def with_weights(policy: TrainedPolicy, path: Path | str) -> TrainedPolicy:
    """Return the policy with the weights and statistics of such a file, which a policy of the same networks wrote.

    Raises: ExportError for another file, and for tensors of other names, shapes or dtypes.
    """
    try:
        stored = safetensors.torch.load(read_bytes(Path(path)))
    except SafetensorError as cause:
        got, remedy = f"no safetensors file ({cause})", "name one that purestep export wrote"
        raise ExportError(message(str(path), got=got, wanted="the tensors of a policy", remedy=remedy)) from cause
    return put_tensors(policy, stored, str(path))


def put_tensors(policy: TrainedPolicy, stored: Mapping[str, Tensor], where: str) -> TrainedPolicy:
    """Return the policy with these tensors in place of its own. Raises: ExportError."""
    own = tensors_of(policy)
    shapes = [{name: (tuple(one.shape), one.dtype) for name, one in those.items()} for those in (own, stored)]
    if shapes[0] != shapes[1]:
        differing = sorted(name for name in {*own, *stored} if shapes[0].get(name) != shapes[1].get(name))
        remedy = "take a policy of the same networks"
        got = f"without the tensors of this policy: {', '.join(differing[:4])} differ"
        raise ExportError(message(where, got=got, wanted="them", remedy=remedy))
    found = {
        prefix: [stored[name] for name in own if name.partition(".")[0] == prefix] for prefix in (PARAMS, STATISTICS)
    }
    part = _statistics(policy.statistics)
    statistics: Any = pytree.tree_unflatten(found[STATISTICS], pytree.tree_structure(part))
    if isinstance(policy.statistics, RunningScales):
        statistics = replace(policy.statistics, observation=statistics)
    return evolve(policy, params=_like(policy.params, found[PARAMS]), statistics=statistics)


def _like(params: Any, found: list[Tensor]) -> Any:
    """Return params like these with the named leaves, which may be the parts of one vector."""
    if isinstance(params, Tensor) and len(found) > 1:
        return torch.cat([one.flatten() for one in found])
    if isinstance(params, Tensor):
        return found[0].reshape(params.shape)
    return pytree.tree_unflatten(found, pytree.tree_structure(params))


def read_about(path: Path | str) -> dict[str, Any]:
    """Return the description in such a file. Raises: ExportError for another file."""
    try:
        with safe_open(str(path), "pt") as file:
            return dict(json.loads((file.metadata() or {})[ABOUT]))
    except (SafetensorError, KeyError) as cause:
        remedy = "name one that purestep export wrote"
        raise ExportError(message(str(path), got="another file", wanted="a policy's", remedy=remedy)) from cause
