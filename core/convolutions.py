"""Networks from images to features, for the encoder of a policy: see `encoded_actor_critic` and `encoded_action_values`."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from . import keys
from .errors import ShapeError, at_least, choose, message
from .keys import Key
from .networks import Linear, Network, init_linear, orthogonal
from .record import record, tensor

Params = dict[str, Any]


@record
class Convolution:
    """The parameters of y = x * W + b."""

    weight: Tensor = tensor("* outputs inputs height width", "float")
    bias: Tensor = tensor("* outputs", "float")


def init_convolution(key: Key, inputs: int, outputs: int, size: int, gain: float) -> Convolution:
    """Return orthogonal rows, one for each output channel, as a weight [*, outputs, inputs, size, size], and a zero bias.

    >>> init_convolution(keys.key(0), 3, 2, 5, 1.0).weight.shape
    torch.Size([2, 3, 5, 5])
    """
    rows = orthogonal(key, (outputs, inputs * size * size), gain)
    weight = rows.reshape(*key.shape[:-1], outputs, inputs, size, size)
    return Convolution(weight=weight, bias=weight.new_zeros((*key.shape[:-1], outputs)))


def nature_cnn(shape: tuple[int, int, int], size: int = 512, *, channels: str = "last") -> Network:
    """The network of the deep Q-network paper: three convolutions and a layer of `size` features, each with a relu.

    Convolutions have 32, 64, 64 channels, windows of 8, 4, 3 and strides of 4, 2, 1. `shape` is that of an image: (height,
    width, channels), or with `channels` "first" (channels, height, width). Shapes: [*, *shape] -> [*, size]; uint8 is divided
    by 255, other numbers are taken as they are. Weights are orthogonal, scaled by sqrt(2), biases zero.

    Raises: ShapeError for an image below 36 x 36, ChoiceError.  Source: Mnih et al. 2015, doi:10.1038/nature14236.

    >>> network = nature_cnn((36, 36, 3), 8)
    >>> network.apply(network.init(keys.key(0)), torch.zeros(2, 5, 36, 36, 3, dtype=torch.uint8)).shape
    torch.Size([2, 5, 8])
    """
    layers = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
    depth, height, width = _depth_first("nature_cnn", shape, size, channels)
    for _, window, stride in layers:
        height, width = (height - window) // stride + 1, (width - window) // stride + 1
    if min(height, width) < 1:
        remedy = "enlarge the image, or take impala_cnn"
        raise ShapeError(message("nature_cnn: shape", got=shape, wanted="36 x 36 or more", remedy=remedy))
    depths = (depth, *(outputs for outputs, _, _ in layers))
    features = depths[-1] * height * width

    def init(key: Key) -> Params:
        *own, last = keys.split(key, len(layers) + 1)
        rows = [
            init_convolution(one, inputs, outputs, window, math.sqrt(2.0))
            for one, inputs, (outputs, window, _) in zip(own, depths, layers, strict=False)
        ]
        return {"convolutions": tuple(rows), "output": init_linear(last, features, size, math.sqrt(2.0))}

    def apply(params: Params, x: Tensor) -> Tensor:
        for layer, (_, _, stride) in zip(params["convolutions"], layers, strict=True):
            x = torch.relu(F.conv2d(x, layer.weight, layer.bias, stride))
        return _features(params["output"], x)

    return _of_images("nature_cnn", shape, channels, init, apply)


def impala_cnn(
    shape: tuple[int, int, int],
    size: int = 256,
    *,
    depths: tuple[int, ...] = (16, 32, 32),
    channels: str = "last",
) -> Network:
    """The residual network of IMPALA, of 15 convolutions and a layer of `size` features; for images of any size.

    For each of `depths`: a convolution of that many channels, a maximum over windows of 3 with a stride of 2, and two residual
    blocks x + conv(relu(conv(relu(x)))); all windows are 3 x 3 with a margin of 1. Then relu, the layer, relu. `shape`,
    `channels`, shapes and uint8 are as in `nature_cnn`. Weights are orthogonal, those of a block's second convolution scaled
    by 1 / sqrt(number of blocks), the last layer's by sqrt(2), the others by 1; biases zero.

    Raises: ShapeError, ChoiceError.  Source: Espeholt et al. 2018, arXiv:1802.01561, figure 3, without the memory.

    >>> network = impala_cnn((9, 9, 3), 8, depths=(2, 4))
    >>> network.apply(network.init(keys.key(0)), torch.zeros(2, 5, 9, 9, 3)).shape
    torch.Size([2, 5, 8])
    """
    depth, height, width = _depth_first("impala_cnn", shape, size, channels)
    for count in depths:
        at_least("impala_cnn: a depth", count, 1)
        height, width = (height + 1) // 2, (width + 1) // 2
    features = (depths[-1] if depths else depth) * height * width
    small = 1.0 / math.sqrt(max(2 * len(depths), 1))

    def block(key: Key, inputs: int) -> tuple[Convolution, Convolution]:
        first, second = keys.split(key)
        return init_convolution(first, inputs, inputs, 3, 1.0), init_convolution(second, inputs, inputs, 3, small)

    def init(key: Key) -> Params:
        *own, last = keys.split(key, len(depths) + 1)
        stages = []
        for one, inputs, outputs in zip(own, (depth, *depths), depths, strict=False):
            first, *others = keys.split(one, 3)
            stages.append((init_convolution(first, inputs, outputs, 3, 1.0), *(block(k, outputs) for k in others)))
        return {"stages": tuple(stages), "output": init_linear(last, features, size, math.sqrt(2.0))}

    def apply(params: Params, x: Tensor) -> Tensor:
        for first, *blocks in params["stages"]:
            x = F.max_pool2d(_same_size(first, x), 3, 2, 1)
            for one, two in blocks:
                x = x + _same_size(two, torch.relu(_same_size(one, torch.relu(x))))
        return _features(params["output"], torch.relu(x))

    return _of_images("impala_cnn", shape, channels, init, apply)


def _same_size(layer: Convolution, x: Tensor) -> Tensor:
    return F.conv2d(x, layer.weight, layer.bias, padding=1)


def _features(layer: Linear, x: Tensor) -> Tensor:
    return torch.relu(x.flatten(1) @ layer.weight + layer.bias)


def _depth_first(where: str, shape: tuple[int, ...], size: int, channels: str) -> tuple[int, ...]:
    """Return (channels, height, width)."""
    at_least(f"{where}: size", size, 1)
    order = choose(f"{where}: channels", channels, {"last": (2, 0, 1), "first": (0, 1, 2)})
    if len(shape) != 3 or not all(isinstance(one, int) and one >= 1 for one in shape):
        remedy = "pass the shape of one image, with an axis of channels"
        raise ShapeError(message(f"{where}: shape", got=shape, wanted="three sizes", remedy=remedy))
    return tuple(shape[axis] for axis in order)


def _of_images(
    where: str,
    shape: tuple[int, int, int],
    channels: str,
    init: Callable[[Key], Params],
    apply: Callable[[Params, Tensor], Tensor],
) -> Network:
    """Return the network of images [*, *shape] of a function of float images [N, C, H, W]."""

    def with_leading_axes(params: Params, x: Tensor) -> Tensor:
        if tuple(x.shape[-3:]) != tuple(shape):
            wanted, remedy = f"[*, {str(list(shape))[1:-1]}]", "make the network for the shape of the image"
            raise ShapeError(message(f"{where}: image", got=list(x.shape), wanted=wanted, remedy=remedy))
        rows = x.reshape(-1, *shape)
        numbers = rows if rows.is_floating_point() else rows.to(torch.float32)
        numbers = numbers / 255.0 if x.dtype == torch.uint8 else numbers
        features = apply(params, numbers.permute(0, 3, 1, 2) if channels == "last" else numbers)
        return features.reshape(*x.shape[:-3], features.shape[-1])

    return Network(init=init, apply=with_leading_axes)
