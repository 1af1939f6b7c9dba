"""Export of a trained policy to a file, checked on recorded observations before the file gets its name."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import torch.utils._pytree as pytree
from attrs import frozen
from torch import Tensor

from ....core import keys
from ....core.errors import ChoiceError, ExportError, at_least, choose, message
from ....core.tree import leaves
from ...trained_policy import TrainedPolicy, visited
from ..checkpoint.atomic_files import write_whole
from . import programs, tensors
from .module import call_policy, inputs_of, module_of, portions
from .place import check_place

RECORDED = 256  # observations of the check
LIMITS = {"torch": 0.0, "onnx": 1e-6, "safetensors": 0.0}


@frozen
class Exported:
    """A policy's file, and the greatest difference of its actions from the policy's own on recorded observations."""

    path: Path
    form: str
    observations: int
    difference: float  # see `action_difference`

    def line(self) -> str:
        """Return the result as one line of text."""
        found = "the same bits" if self.difference == 0.0 else f"within {self.difference:.1g}"
        return f"{self.path}: {self.form}, actions on {self.observations} recorded observations: {found}"


def export(
    policy: TrainedPolicy,
    path: Path | str,
    *,
    to: str = "torch",
    batch: int = 0,
    observations: Any = (),
    overwrite: bool = False,
    settings: Mapping[str, Any] = {},
) -> Exported:
    """Write a module that maps an observation, as the env shows it, to the policy's likeliest action within its bounds.

    "torch" is a program of torch.export with the policy's bits, "onnx" one within 1e-6, "safetensors" the weights and the
    statistics of the normaliser with a description. With `batch` the module takes that number of observations at once. The
    file is compared on `observations` [N, ...], by default those of steps that the policy plays; a difference beyond the limit
    leaves no file.
    Raises: ExportError; ChoiceError, CheckpointError for a path that cannot be written.
    """
    limit = choose("export: to", to, LIMITS)
    at_least("export: batch", batch, 0)
    place = check_place(Path(path), overwrite=overwrite)
    if to == "onnx":
        programs.check_onnx()
    seen = observations if leaves(observations) else visited(policy, max(RECORDED, batch), keys.key(0))
    data, greatest, count = checked(policy, seen, to, batch, settings)
    if not greatest <= limit:
        got, remedy = f"{greatest:.3g} from the policy's own on {count} observations", "--to torch has its bits"
        raise ExportError(message(f"export: actions of {to}", got=got, wanted=f"at most {limit:g}", remedy=remedy))
    write_whole(place, data)
    return Exported(place, to, count, greatest)


def checked(
    policy: TrainedPolicy, observations: Any, to: str, batch: int, settings: Mapping[str, Any] = {}
) -> tuple[bytes, float, int]:
    """Return the file's content, the greatest difference of its actions from the policy's, and of how many observations."""
    parts = portions(observations, batch)
    if not parts:
        remedy = "pass at least as many as batch"
        raise ChoiceError(message("export: observations", got="too few", wanted="batch or more", remedy=remedy))
    data, run = _made(policy, parts[0], to, settings)
    with torch.no_grad():
        greatest = max(action_difference(policy, part, run(inputs_of(part))) for part in parts)
    return data, greatest, len(parts) * max(batch, 1)


def _made(
    policy: TrainedPolicy, observation: Any, to: str, settings: Mapping[str, Any]
) -> tuple[bytes, Callable[[Mapping[str, Tensor]], Any]]:
    """Return the content of the file and the function that it holds."""
    if to == "safetensors":
        data = tensors.tensor_file_bytes(policy, observation, settings)
        module = module_of(tensors.put_tensors(policy, safetensors.torch.load(data), "export"), observation)
        return data, lambda inputs: call_policy(module, inputs)
    module, inputs = module_of(policy, observation), inputs_of(observation)
    if to == "torch":
        data = programs.torch_bytes(module, inputs)
        return data, programs.opened_torch(data)
    data = programs.onnx_bytes(module, inputs)
    return data, programs.opened_onnx(data, policy.action(observation))


def action_difference(policy: TrainedPolicy, observation: Any, action: Any) -> float:
    """Return how far an action is from the policy's own: infinitely for one of another structure, shape or dtype.

    It is the greatest |a - b| / max(1, |b|) of floats; of whole numbers it is the difference of the actions' log-probs, 0 for
    equally likely ones.
    """
    own = policy.action(observation)
    if pytree.tree_structure(own) != pytree.tree_structure(action):
        return float("inf")
    pairs = list(zip(leaves(own), leaves(action), strict=True))
    if any(a.shape != b.shape or a.dtype != b.dtype for a, b in pairs):
        return float("inf")
    floats = [_distance(a, b) for a, b in pairs if a.is_floating_point()]
    if all(torch.equal(a, b) for a, b in pairs if not a.is_floating_point()):
        return max(floats, default=0.0)
    found = policy.distribution(observation)
    return max([float((found.log_prob(own) - found.log_prob(action)).abs().max()), *floats])


def _distance(own: Tensor, action: Tensor) -> float:
    if torch.equal(own, action):
        return 0.0
    return float(((action - own).abs() / own.abs().clamp_min(1.0)).nan_to_num(nan=float("inf")).max())
