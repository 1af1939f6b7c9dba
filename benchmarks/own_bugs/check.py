"""Shows for each bug that it and its twin differ: `python -m benchmarks.own_bugs.check`."""

import math
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .registry import ALL


def outcome(shown: Callable[[Any], object], subject: Any) -> object:
    """What the call gives, or the kind of its error."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return plain(shown(subject))
        except Exception as error:
            return f"raises {type(error).__name__}"


def plain(value: object) -> object:
    """Tensors and arrays as lists."""
    if isinstance(value, torch.Tensor):
        return value.detach().tolist()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(part) for part in value]
    return value


def same(left: object, right: object) -> bool:
    """Whether two outcomes agree, numbers to 1e-5."""
    if isinstance(left, float | int) and isinstance(right, float | int):
        both = math.isnan(left) and math.isnan(right)
        return both or math.isclose(left, right, rel_tol=1e-5, abs_tol=1e-5)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return left == right


def main() -> int:
    """Prints each outcome; 1 where a bug cannot be told from its twin, or a twin fails."""
    wrong = 0
    for bug in ALL:
        got, wanted = outcome(bug.shown, bug.bug), outcome(bug.shown, bug.twin)
        bad = same(got, wanted) or str(wanted).startswith("raises")
        wrong += bad
        print(f"{'FAILED' if bad else 'differs':8}{bug.family:18}{bug.name}", flush=True)
        if bad or "-v" in sys.argv:
            print(f"    bug  {str(got)[:300]}\n    twin {str(wanted)[:300]}")
    print(f"{len(ALL)} bugs in {len({bug.family for bug in ALL})} families; {wrong} failed")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
