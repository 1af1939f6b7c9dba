"""A policy's module as a program of torch.export, or of ONNX."""

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor

from ....core.errors import ExportError, describe_error, message
from .module import OBSERVATION, PolicyModule, call_policy, outputs_of

Run = Callable[[Mapping[str, Tensor]], Any]  # inputs by name -> action
EXTRA = "pip install 'purestep[onnx]'"


def torch_bytes(module: PolicyModule, inputs: Mapping[str, Tensor]) -> bytes:
    """Return the file of torch.export (.pt2) of a module. Raises: ExportError for operations that it does not capture."""
    with _quiet():
        program = _captured(module, inputs)
        file = io.BytesIO()
        torch.export.save(program, file)
    return file.getvalue()


def _captured(module: PolicyModule, inputs: Mapping[str, Tensor]) -> Any:
    alone = list(inputs) == [OBSERVATION]
    try:
        with torch.no_grad():
            return torch.export.export(
                module, tuple(inputs.values()) if alone else (), None if alone else dict(inputs), strict=False
            )
    except Exception as cause:  # whatever the model's own code raises
        got, remedy = f"not to be captured ({describe_error(cause)})", "--to safetensors writes its weights"
        wanted = "one of operations that torch.export captures"
        raise ExportError(message("export: the policy", got=got, wanted=wanted, remedy=remedy)) from cause


def opened_torch(data: bytes) -> Run:
    """Return the function in a file of torch.export."""
    with _quiet():
        module = torch.export.load(io.BytesIO(data)).module()
    return lambda inputs: call_policy(module, inputs)


def onnx_bytes(module: PolicyModule, inputs: Mapping[str, Tensor]) -> bytes:
    """Return the ONNX file of a module. Raises: ExportError for operations that ONNX lacks."""
    with _quiet():
        program, outputs = _captured(module, inputs), list(outputs_of(call_policy(module, inputs)))
        try:
            found = torch.onnx.export(
                program, input_names=list(inputs), output_names=outputs, dynamo=True, verbose=False
            )
            assert found is not None
            return bytes(found.model_proto.SerializeToString())
        except Exception as cause:  # of the exporter's registry of operations
            got, remedy = f"not to be written ({describe_error(cause)})", "--to torch writes the same function"
            text = message("export: the policy", got=got, wanted="one of operations that ONNX has", remedy=remedy)
            raise ExportError(text) from cause


def opened_onnx(data: bytes, like: Any = 0) -> Run:
    """Return the function in an ONNX file, called by onnxruntime on the CPU; its action is one tensor, or a tree as `like`."""
    onnxruntime: Any = import_module("onnxruntime")  # it has no types
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    structure = pytree.tree_structure(like)

    def run(inputs: Mapping[str, Tensor]) -> Any:
        found = session.run(None, {name: one.numpy() for name, one in inputs.items()})
        return pytree.tree_unflatten([torch.as_tensor(one) for one in found], structure)

    return run


def check_onnx() -> None:
    """Refuse to go on without the packages of the extra. Raises: ExportError."""
    absent = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    if absent:
        text = message("export: --to onnx", got=f"without {' and '.join(absent)}", wanted="them", remedy=EXTRA)
        raise ExportError(text)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporters' warnings and logs, which are about their own code, from the user."""
    logs = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [log.level for log in logs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for log in logs:
            log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for log, level in zip(logs, levels, strict=True):
                log.setLevel(level)
