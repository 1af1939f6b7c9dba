"""Kinds of hyper-parameters: the bounds of a number, and whether it is an input of the compiled program. Imports no torch."""

import math
from collections.abc import Mapping

from attrs import frozen

LARGEST = 1e30  # below the largest float32, with a margin


@frozen
class Kind:
    """The values that a hyper-parameter may have."""

    type: type  # of its flag's value
    low: float
    high: float = math.inf
    is_input: bool = True  # of the compiled program: another value compiles nothing anew


# by the name of the annotation in an algorithm's signature, which `hyperparameters` defines
KINDS: Mapping[str, Kind] = {
    "Fraction": Kind(float, 0.0, 1.0),
    "Weight": Kind(float, 0.0, LARGEST),  # of a loss
    "Coefficient": Kind(float, -LARGEST, LARGEST),  # of a loss that may be turned round
    "Clip": Kind(float, 0.0),  # how far a ratio may leave 1, or how far below and how far above
    "Limit": Kind(float, 0.0, is_input=False),  # an infinite one leaves a part of the update out
    "Count": Kind(int, 1, is_input=False),
    "Steps": Kind(int, 1),  # how many of something pass; it sizes nothing
}
