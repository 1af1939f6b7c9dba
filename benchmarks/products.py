"""Matrix products of PPO on CartPole: the kernel of compiled programs beside the library, oneDNN, and the core's peak.

Each product of the programs of 4 x 128, 64 x 128 and 1,024 x 32 worlds x steps and of populations of 8 and 32, with its
strides, is called from C++: the library (torch's, MKL on x86) through the shim that compiled programs use, oneDNN likewise for
two axes, and the kernel, runtime/inductor/products.h (AVX-512 or AVX2). The peak is that of independent multiply-and-adds in
registers. Then whole iterations, compiled with the library's calls alone and as always. All on one thread, in turns; ratios are
medians of rounds with their quartiles, above 1 where the kernel is faster. Writes results/products.json.
"""

import argparse
import contextlib
import ctypes
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from purestep.core.networks import FEW_ROWS, MANY_ROWS
from purestep.runtime.compile import Program, program
from purestep.runtime.train import RunState, train
from tests.laws.runtime.products import error, kernel_arguments, reference

from . import evidence
from .parts import purestep_ppo
from .parts.product_calls import compiled, handle, library_products
from .parts.timing import ratio, spread, turns

PROGRAMS: dict[str, tuple[int, int, int]] = {  # worlds, steps, members
    "4 x 128": (4, 128, 1),
    "64 x 128": (64, 128, 1),
    "1024 x 32": (1024, 32, 1),
    "8 members": (4, 128, 8),
    "32 members": (4, 128, 32),
}
EPOCHS, MINIBATCHES = 4, 4
HIDDEN, OBSERVED, PARAMETERS = 64, 4, 9155  # widths; numbers of both networks, whose weights are views of one vector
ROUNDS, SAMPLE, CALL = (
    15,
    2e-3,
    1e-5,
)  # rounds; seconds of a side in each; seconds that a call takes at least, for the first guess


@frozen
class Product:
    """C = A B (+ bias) of one shape, for `members` at once."""

    what: str
    rows: int
    inner: int
    columns: int
    members: int = 1
    a: str = "rows"  # along what the memory runs: "rows", or "columns" for a transposed matrix
    b: str = "rows"
    bias: bool = False

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.members * self.rows * self.inner * self.columns


def layers(rows: int, members: int = 1, *, bias: bool = False) -> list[Product]:
    """The hidden layers.

    >>> [one.inner for one in layers(8)]
    [4, 64]
    """
    made = partial(Product, members=members, bias=bias)
    return [made("x W of the first layer", rows, OBSERVED, HIDDEN), made("x W", rows, HIDDEN, HIDDEN)]


def gradients(rows: int, members: int = 1) -> list[Product]:
    """What follows backwards."""
    return [
        Product("x^T g", HIDDEN, rows, HIDDEN, members, a="columns"),
        Product("g W^T", rows, HIDDEN, HIDDEN, members, b="columns"),
        Product("x^T g of the first layer", OBSERVED, rows, HIDDEN, members, a="columns"),
    ]


def outputs(rows: int) -> list[Product]:
    """The last layers and what follows backwards where many rows make them products: one row for each output."""
    return [
        Product("W^T x^T of the policy", 2, HIDDEN, rows, b="columns"),
        Product("g x of the policy", 2, rows, HIDDEN),
        Product("g^T W^T of the policy", rows, 2, HIDDEN, a="columns"),
        Product("W^T x^T of the values", 1, HIDDEN, rows, b="columns"),
        Product("x^T g of the values", HIDDEN, rows, 1, a="columns"),
        Product("g W^T of the values", rows, 1, HIDDEN),
    ]


def counted(name: str) -> list[tuple[Product, int]]:
    """The products of one iteration of a program, and how often it does each: acting, values, and minibatches of both networks.

    >>> sum(count for _, count in counted("4 x 128"))
    166
    """
    worlds, steps, members = PROGRAMS[name]
    rows, updates = worlds * steps, EPOCHS * MINIBATCHES
    batch, alone = rows // MINIBATCHES, members == 1
    found: list[tuple[Product, int]] = []
    if worlds > FEW_ROWS:
        found += [(one, steps) for one in layers(worlds, bias=True)]
    if worlds >= MANY_ROWS:
        found += [(outputs(worlds)[0], steps)]
    found += [(one, 2) for one in [*layers(rows, members), *([outputs(rows)[3]] if alone else [])]]
    found += [(one, 2 * updates) for one in [*layers(batch, members, bias=alone), *gradients(batch, members)]]
    if alone and batch >= MANY_ROWS:
        found += [(one, updates) for one in outputs(batch)]
    return found


def products() -> list[Product]:
    """Each product that one of the programs does, once.

    >>> len(products()) == len(set(products()))
    True
    """
    return list(dict.fromkeys(one for name in PROGRAMS for one, _ in counted(name)))


def limit(name: str, seconds: Mapping[Product, Mapping[str, float]], peak: float, iteration: float) -> dict[str, float]:
    """Milliseconds of the products of an iteration, and how much faster it would be if all of them ran at the peak."""
    sides = {side: sum(count * seconds[one][side] for one, count in counted(name)) for side in ("library", "own")}
    sides["at the peak"] = sum(count * one.operations for one, count in counted(name)) / peak
    faster = iteration / (iteration - sides["library"] + sides["at the peak"])
    return {
        **{side: round(1e3 * each, 3) for side, each in sides.items()},
        "library / peak, iteration": round(faster, 3),
    }


def matrix(members: int, rows: int, columns: int, along: str = "rows") -> Tensor:
    """A random matrix, or one for each member."""
    shape = (members, rows, columns) if members > 1 else (rows, columns)
    made = torch.randn(*shape[:-2], *(shape[-2:] if along == "rows" else (columns, rows)))
    return made if along == "rows" else made.mT


def weight(members: int, rows: int, columns: int, along: str) -> Tensor:
    """A random weight, as a view of all parameters."""
    vector = torch.randn(members, PARAMETERS)[:, 4610 : 4610 + rows * columns]
    made = vector.view(members, rows, columns) if along == "rows" else vector.view(members, columns, rows).mT
    return made if members > 1 else made[0]


def operands(one: Product) -> tuple[Tensor, Tensor, Tensor | None]:
    """A, B and the bias of a product, with the strides that it has in a program."""
    of_weights = "W" in one.what and one.rows != 1 and "W^T x^T" not in one.what
    right = weight if of_weights else matrix
    b = right(one.members, one.inner, one.columns, one.b)
    bias = torch.randn(PARAMETERS)[256 : 256 + one.columns] if one.bias else None
    return matrix(one.members, one.rows, one.inner, one.a), b, bias


def measured(one: Product, library: ctypes.CDLL, peak: float) -> dict[str, Any]:
    """The seconds a call of each way, as parts of the peak, and the ratios."""
    a, b, bias = operands(one)
    out, ours = torch.empty(a.shape[:-1] + b.shape[-1:]), torch.empty(a.shape[:-1] + b.shape[-1:])
    calls = ctypes.c_int64(max(1, int(SAMPLE / (CALL + one.operations / 5e10))))
    given = [handle(bias), handle(a), handle(b)]
    sides: dict[str, Callable[[], float]] = {
        "library": partial(library.library_seconds, calls, handle(out), *given),
        "own": partial(library.own_seconds, calls, *kernel_arguments(a, b, bias, ours)),
    }
    if a.ndim == 2:
        sides["oneDNN"] = partial(library.onednn_seconds, calls, *given[:2], handle(b.T))
    spent = turns(sides, ROUNDS)
    exact, scale = reference(a, b, bias)
    speeds = {name: one.operations / min(seconds) for name, seconds in spent.items()}
    return {
        "product": f"{one.members} x " * (one.members > 1) + f"[{one.rows}, {one.inner}] [{one.inner}, {one.columns}]",
        "what": one.what + ", with bias" * one.bias,
        "microseconds": {name: round(1e6 * min(seconds), 2) for name, seconds in spent.items()},
        "gigaflops": {name: round(speed / 1e9, 1) for name, speed in speeds.items()},
        "part of the peak": {name: round(speed / peak, 2) for name, speed in speeds.items()},
        "library / own": ratio(spent["library"], spent["own"]),
        **({"library / oneDNN": ratio(spent["library"], spent["oneDNN"])} if a.ndim == 2 else {}),
        "error": {name: float(f"{error(got, exact, scale):.2g}") for name, got in (("library", out), ("own", ours))},
    }


def iterations(name: str, seconds: float) -> dict[str, Any]:
    """A whole iteration of PPO, compiled with the library's products and with ours."""
    worlds, horizon, members = PROGRAMS[name]
    options = {**purestep_ppo.DEFAULTS, "envs": worlds, "horizon": horizon, "seeds": members, "steps": 1}
    trainer, key, _, _ = purestep_ppo.build(argparse.Namespace(**options))
    runs, states = dict[str, Program[..., Any]](), dict[str, RunState]()
    for side, products_of in (("library", library_products()), ("own", contextlib.nullcontext())):
        runs[side] = program(train(trainer, 1), name=f"{name}, {side}")
        with products_of:
            states[side], _ = runs[side](trainer.init(key))

    def run(side: str, count: int) -> float:
        began = time.process_time()
        for _ in range(count):
            states[side], _ = runs[side](states[side])
        return (time.process_time() - began) / count

    count = max(1, int(seconds / run("library", 1)))
    spent = turns({side: partial(run, side, count) for side in runs}, ROUNDS)
    return {
        "milliseconds": {
            side: {k: round(1e3 * v, 3) for k, v in spread(each, digits=6).items()} for side, each in spent.items()
        },
        "library / own": ratio(spent["library"], spent["own"]),
        "compile seconds": {side: round(sum(runs[side].seconds), 1) for side in runs},
    }


def printed(rows: Sequence[dict[str, Any]]) -> None:
    """The products as a table."""
    print(f"{'':34}{'':32}{'library':>9}{'own':>9}{'oneDNN':>9} us {'of the peak':>18}{'library / own':>16}")
    for row in rows:
        times, parts, times_own = row["microseconds"], row["part of the peak"], row["library / own"]
        ways = "".join(f"{times[way]:9.2f}" if way in times else f"{'-':>9}" for way in ("library", "own", "oneDNN"))
        shares = "".join(f"{parts[way]:6.2f}" if way in parts else f"{'-':>6}" for way in ("library", "own", "oneDNN"))
        print(f"{row['product']:34}{row['what']:32}{ways}    {shares}{times_own['median']:10.2f}")


def parse() -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.products", description=__doc__)
    parser.add_argument(
        "--programs", nargs="*", choices=list(PROGRAMS), default=list(PROGRAMS), help="compiled (default: all)"
    )
    parser.add_argument("--seconds", type=float, default=0.2, help="of a program in each round (default: 0.2)")
    return parser.parse_args()


def main() -> None:
    given, began = parse(), time.perf_counter()
    torch.set_num_threads(1)
    library = compiled()
    peak = max(float(library.peak(ctypes.c_int64(1_000_000))) for _ in range(20))
    print(f"peak {peak / 1e9:.1f} gigaflops")
    rows = {one: measured(one, library, peak) for one in products()}
    printed(list(rows.values()))
    seconds = {one: {side: 1e-6 * each for side, each in row["microseconds"].items()} for one, row in rows.items()}
    whole = {}
    for name in given.programs:
        whole[name] = iterations(name, given.seconds)
        usual = 1e-3 * whole[name]["milliseconds"]["library"]["median"]
        whole[name]["milliseconds of products"] = limit(name, seconds, peak, usual)
        print(name, whole[name], flush=True)
    figures = {
        "machine": {"processor": platform.machine(), "vectors": torch.backends.cpu.get_cpu_capability()},
        "peak gigaflops": round(peak / 1e9, 1),
        "products": list(rows.values()),
        "iterations": whole,
    }
    evidence.write("products", seconds=time.perf_counter() - began, figures=figures)


if __name__ == "__main__":
    main()
