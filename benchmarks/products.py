"""Matrix products of PPO on CartPole: the library's speed beside oneDNN's, a small kernel of our own, and the core's peak.

Each product of the programs of 4 x 128, 64 x 128 and 1,024 x 32 worlds x steps and of populations of 8 and 32, with its
strides, is called from C++: the library (torch's, MKL on x86) through the shim that compiled programs use, oneDNN likewise for
two axes, and the kernel of parts/products.h (AVX-512, AVX2 or plain C, as the compiler targets this processor). The peak is
that of independent multiply-and-adds in registers. Then whole iterations, compiled with the library's calls and with ours. All
on one thread, in turns; ratios are medians of rounds with their quartiles, above 1 where ours is faster. Ends with exit code 1
where a drawn product is further from float64 than BOUND allows, or a wrong one is not noticed. Writes results/products.json.
"""

import argparse
import contextlib
import ctypes
import platform
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from purestep.core.networks import FEW_ROWS, MANY_ROWS
from purestep.runtime.compile import Program, program
from purestep.runtime.train import RunState, train

from . import evidence
from .parts import purestep_ppo
from .parts.product_calls import compiled, handle, own_arguments, own_products
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
BOUND = 1.01 * 2.0**-24  # of |A| |B| + |bias|, times K + 2: float32 sums in any order are within it
SIZES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17, 31, 33, 63, 64, 65, 100, 130, 300)
LAYOUTS = ("rows", "columns", "spaced", "one row", "one column")
BIASES = ("none", "of columns", "of both", "of rows", "transposed", "one number")


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
        "own": partial(library.own_seconds, calls, *own_arguments(a, b, bias, ours)),
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


def reference(a: Tensor, b: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """The product in float64, and what an error is measured by: (K + 2) (|A| |B| + |bias|)."""
    added = torch.zeros((), dtype=torch.float64) if bias is None else bias.double()
    exact, scale = a.double() @ b.double() + added, a.double().abs() @ b.double().abs() + added.abs()
    return exact, (a.shape[-1] + 2) * scale


def error(got: Tensor, exact: Tensor, scale: Tensor) -> float:
    """The largest error relative to its measure; infinite where something is no number, or where nothing may differ.

    >>> error(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]))
    0.25
    """
    if got.numel() == 0:
        return 0.0
    far = torch.where(got == exact, 0.0, (got - exact).abs() / scale)
    return float(torch.nan_to_num(far, nan=float("inf")).max())


def drawn(count: int, seed: int = 0) -> Iterator[tuple[Tensor, Tensor, Tensor | None, Tensor]]:
    """A, B, bias and an empty output of random shapes, strides and batches."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(count):
        rows, columns, inner = (draw.choice(SIZES) for _ in range(3))
        members = draw.choice((1, 1, 1, 2, 3))
        a = laid_out(draw.choice(LAYOUTS), members, rows, inner)
        b = laid_out(draw.choice(LAYOUTS), members, inner, columns)
        out = laid_out(draw.choice(LAYOUTS[:3]), members, rows, columns).fill_(float("nan"))
        yield a, b, biased(draw.choice(BIASES), members, rows, columns), out


def laid_out(layout: str, members: int, rows: int, columns: int) -> Tensor:
    """A random matrix [rows, columns], or one for each member, with strides of this kind.

    >>> laid_out("one row", 1, 3, 2).stride()
    (0, 1)
    """
    if layout == "columns":
        return matrix(members, rows, columns, "columns")
    if layout == "spaced":
        return matrix(members, 2 * rows, 3 * columns)[..., ::2, ::3]
    if layout == "one row":
        made = matrix(members, 1, columns)
    elif layout == "one column":
        made = matrix(members, rows, 1)
    else:
        return matrix(members, rows, columns)
    return made.expand(*made.shape[:-2], rows, columns)


def biased(kind: str, members: int, rows: int, columns: int) -> Tensor | None:
    """A random bias, None for "none"."""
    shapes = {"of columns": (columns,), "of both": (rows, columns), "of rows": (rows, 1), "one number": (1, 1)}
    if kind == "transposed":
        return torch.randn(columns, rows).T
    return torch.randn(shapes[kind]) if kind in shapes else None


def wrong(a: Tensor, b: Tensor, bias: Tensor | None) -> Iterator[tuple[str, Tensor]]:
    """Results that a faulty kernel would give, where they are wrong for these operands."""
    added = torch.zeros(()) if bias is None else bias
    right = a @ b + added
    results = {
        "the bias forgotten": a @ b,
        "the bias of the first row for all": a @ b + (added[:1] if added.ndim == 2 else added),
        "the first block of the sum lost": a[..., 64:] @ b[..., 64:, :] + added,
        "the first member for all": (right[:1] if right.ndim == 3 else right).expand_as(right),
        "the last columns not written": torch.cat([right[..., :-1], torch.full_like(right[..., -1:], torch.nan)], -1),
    }
    return ((name, result) for name, result in results.items() if not torch.allclose(result, right, rtol=1e-3))


def law(library: ctypes.CDLL, count: int) -> dict[str, Any]:
    """The largest error of drawn products as a part of BOUND; how often each wrong result was noticed."""
    worst, noticed = 0.0, dict[str, list[bool]]()
    for a, b, bias, out in drawn(count):
        library.own_seconds(ctypes.c_int64(1), *own_arguments(a, b, bias, out))
        exact, scale = reference(a, b, bias)
        worst = max(worst, error(out, exact, scale) / BOUND)
        for name, result in wrong(a, b, bias) if out.numel() else ():
            noticed.setdefault(name, []).append(error(result, exact, scale) > BOUND)
    shares = {name: sum(each) / len(each) for name, each in noticed.items()}
    return {"products": count, "largest error, of the bound": round(worst, 3), "wrong results noticed": shares}


def iterations(name: str, seconds: float) -> dict[str, Any]:
    """A whole iteration of PPO, compiled with the library's products and with ours."""
    worlds, horizon, members = PROGRAMS[name]
    options = {**purestep_ppo.DEFAULTS, "envs": worlds, "horizon": horizon, "seeds": members, "steps": 1}
    trainer, key, _, _ = purestep_ppo.build(argparse.Namespace(**options))
    runs, states = dict[str, Program[..., Any]](), dict[str, RunState]()
    replaced = dict[str, int]()
    for side, products_of in (("library", contextlib.nullcontext([0])), ("own", own_products())):
        runs[side] = program(train(trainer, 1), name=f"{name}, {side}")
        with products_of as counts:
            states[side], _ = runs[side](trainer.init(key))
        replaced[side] = sum(counts)

    def run(side: str, count: int) -> float:
        began = time.process_time()
        for _ in range(count):
            states[side], _ = runs[side](states[side])
        return (time.process_time() - began) / count

    count = max(1, int(seconds / run("library", 1)))
    spent = turns({side: partial(run, side, count) for side in runs}, ROUNDS)
    return {
        "calls replaced": replaced["own"],
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
    parser.add_argument(
        "--drawn", type=int, default=2000, help="products that are compared with float64 (default: 2000)"
    )
    return parser.parse_args()


def main() -> None:
    given, began = parse(), time.perf_counter()
    torch.set_num_threads(1)
    library = compiled()
    checked = law(library, given.drawn)
    print(checked)
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
        "law": checked,
    }
    evidence.write("products", seconds=time.perf_counter() - began, figures=figures)
    if checked["largest error, of the bound"] > 1 or min(checked["wrong results noticed"].values()) < 1:
        sys.exit(1)


if __name__ == "__main__":
    main()
