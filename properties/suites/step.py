"""Laws of every step: a pure function of tensors, whatever it computes (S1 to S4 and S6 of the catalogue).

The subject is a function, called as `subject(*arguments)`; the suite takes a strategy that draws its arguments.
"""

import logging
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from ...core.record import record, replace, stack, take, tensor
from ...core.tree import leaf_names, leaves, tree_map
from ..framework.compare import EXACT, Tolerance, bits_of, require, same
from ..framework.compiling import Compiled, compile_each
from ..framework.law import Broken, Law, Mutant, Seen, Subject, Suite, always
from ..framework.outside import generator_states, seeded
from ..framework.profiles import current_profile
from ..strategies.values import dyadic, integers

# --- mutants ---
# A running total as a pure step, and edits that make it impure.


Step = Callable[["Total", Tensor], tuple["Total", Tensor]]


@record
class Total:
    """A discounted total and the number of rewards in it."""

    total: Tensor = tensor("*", "float")
    count: Tensor = tensor("*", "int")


def running_total(state: Total, reward: Tensor) -> tuple[Total, Tensor]:
    """The reference step: total' = total / 2 + reward. Returns the new state, and half of the old total."""
    return Total(total=state.total * 0.5 + reward, count=state.count + 1), state.total * 0.5


def totals() -> SearchStrategy[tuple[Total, Tensor]]:
    """Draw arguments of `running_total`, scalars."""
    return st.tuples(st.builds(Total, total=dyadic(), count=integers((), 0, 8)), dyadic())


def stale(step: Step) -> Step:
    """Keep results in a cache and return that of the call before."""
    results: list[tuple[Total, Tensor]] = []

    def mutant(state: Total, reward: Tensor) -> tuple[Total, Tensor]:
        results.append(step(state, reward))
        return results[-2] if len(results) > 1 else results[-1]

    return mutant


def seeds_globally(step: Step) -> Step:
    """Draw from torch's global generator after seeding it."""

    def mutant(state: Total, reward: Tensor) -> tuple[Total, Tensor]:
        torch.manual_seed(0)
        return step(state, reward + torch.rand(()))

    return mutant


def global_noise(step: Step) -> Step:
    """Add noise from torch's global generator."""
    return lambda state, reward: step(state, reward + torch.rand_like(reward))


def python_noise(step: Step) -> Step:
    """Add noise from Python's generator, which a compiler turns into a constant."""
    return lambda state, reward: step(state, reward + random.random())


def halves_input(step: Step) -> Step:
    """Halve the caller's total in place."""

    def mutant(state: Total, reward: Tensor) -> tuple[Total, Tensor]:
        half = state.total.mul_(0.5)
        return Total(total=half + reward, count=state.count + 1), half.clone()

    return mutant


def scales_by_one(step: Step) -> Step:
    """Write the same values into the caller's tensor in place."""

    def mutant(state: Total, reward: Tensor) -> tuple[Total, Tensor]:
        state.total.mul_(1.0)
        return step(state, reward)

    return mutant


def view(step: Step) -> Step:
    """Return a view of the input."""

    def mutant(state: Total, reward: Tensor) -> tuple[Total, Tensor]:
        return step(state, reward)[0], state.total[...]

    return mutant


def branches(step: Step) -> Step:
    """Branch in Python on a tensor's value."""

    def mutant(state: Total, reward: Tensor) -> tuple[Total, Tensor]:
        return step(state, -reward if state.count > 3 else reward)

    return mutant


def logs(step: Step) -> Step:
    """Write a log record in each call."""
    logger = logging.getLogger(__name__)

    def mutant(state: Total, reward: Tensor) -> tuple[Total, Tensor]:
        logger.debug("a step")
        return step(state, reward)

    return mutant


def widens(step: Step) -> Step:
    """Return the carry in another dtype than it was passed in."""

    def mutant(state: Total, reward: Tensor) -> tuple[Total, Tensor]:
        after, before = step(state, reward)
        return replace(after, total=after.total.double()), before

    return mutant


def counts_in_python(step: Step) -> Step:
    """Keep a counter outside the state."""
    calls: list[Any] = []

    def mutant(state: Total, reward: Tensor) -> tuple[Total, Tensor]:
        calls.append(None)
        return step(state, reward + len(calls))

    return mutant


def on_the_cpu(step: Step) -> Step:
    """Create a tensor on the default device."""

    def mutant(state: Total, reward: Tensor) -> tuple[Total, Tensor]:
        after, before = step(state, reward)
        return after, torch.cat([torch.zeros(1), before.reshape(1)])[1]

    return mutant


MUTANTS: dict[str, Callable[[Step], Step]] = {
    "draws noise from torch's global generator": global_noise,
    "draws noise from the module random": python_noise,
    "scales its input in place by 1, which changes nothing": scales_by_one,
    "counts its calls in a list": counts_in_python,
}


# --- laws ---


Arguments = Any  # a tuple, or an input from which `lifted` makes one
Buckets = SearchStrategy[Any] | Sequence[SearchStrategy[Any]]

PURITY = "properties: a step is a function of its arguments and of nothing else"
DESIGN = "design: steps run alone, in batches and compiled, and mean the same"


def step_laws(inputs: Buckets, *, tolerance: Tolerance = EXACT, carry: int | None = None) -> Suite:
    """The laws of a pure function whose arguments `inputs` draws: one strategy, or one for each bucket of shapes.

    `tolerance` is for batch against singles and compiled against eager, where a kernel may round differently; all else is
    bit-equal. `carry` is the index of the argument whose new value is the first result.
    """
    buckets = (inputs,) if isinstance(inputs, SearchStrategy) else tuple(inputs)
    one = _any(buckets)
    pair = st.one_of([st.tuples(bucket, bucket) for bucket in buckets])
    return Suite(
        "step_laws",
        (
            _same_twice(pair),
            _global_state(one),
            _inputs_stay(one),
            _own_storage(one),
            _batch(pair, tolerance),
            _compiled(one, tolerance),
            _structure(pair, carry),
            _device(one),
        ),
    )


def _any(buckets: Sequence[SearchStrategy[Arguments]]) -> SearchStrategy[Arguments]:
    return st.one_of(list(buckets))


def fresh(arguments: Arguments) -> Arguments:
    """Return a copy of the arguments in new storage."""
    return tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, arguments)


def _same_twice(pair: SearchStrategy[tuple[Arguments, Arguments]]) -> Law:
    def check(function: Subject, drawn: tuple[Arguments, Arguments], seen: Seen) -> None:
        arguments, other = drawn
        with seeded(1):
            first = fresh((function(*fresh(arguments)),))[0]
        with seeded(2):
            function(*fresh(other))
            same("the second call with the same inputs", function(*fresh(arguments)), first)

    return Law(
        name="same_twice",
        claim="The same inputs give the same bits: after other calls and under another global seed.",
        source=PURITY,
        inputs=always(pair),
        check=check,
        mutant=Mutant("serves the result of the call before, from a cache", stale),
    )


def _global_state(one: SearchStrategy[Arguments]) -> Law:
    def check(function: Subject, arguments: Arguments, seen: Seen) -> None:
        threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
        with seeded(3):
            before = generator_states()
            function(*arguments)
            moved = [name for name, state in generator_states().items() if state != before[name]]
        require(not moved, f"the global generator of {' and '.join(moved)} moved")
        require(threads == torch.get_num_threads(), "the number of threads changed")
        require(dtype == torch.get_default_dtype(), "the default dtype changed")

    return Law(
        name="global_state_stays",
        claim="A step leaves the global random states, the number of threads and the default dtype as they were.",
        source=PURITY,
        inputs=always(one),
        check=check,
        mutant=Mutant("seeds torch's global generator itself before it draws", seeds_globally),
    )


def _inputs_stay(one: SearchStrategy[Arguments]) -> Law:
    def check(function: Subject, arguments: Arguments, seen: Seen) -> None:
        names, given = leaf_names(arguments), leaves(arguments)
        before = [(leaf._version, leaf.clone()) for leaf in given]
        function(*arguments)
        for name, leaf, (version, old) in zip(names, given, before, strict=True):
            if not torch.equal(bits_of(leaf), bits_of(old)):
                same(f"input {name} after the call", leaf, old)
            require(leaf._version == version, f"input {name} was written to, with the value it had")

    return Law(
        name="inputs_stay",
        claim="A step writes to none of its inputs, not even the value that stood there.",
        source=PURITY,
        inputs=always(one),
        check=check,
        mutant=Mutant("adds in place: total.mul_(1 / 2)", halves_input),
    )


def storages(tree: Any) -> list[int]:
    """The address of each leaf's storage; 0 for an empty one."""
    return [leaf.untyped_storage().data_ptr() for leaf in leaves(tree)]


def _own_storage(one: SearchStrategy[Arguments]) -> Law:
    def check(function: Subject, arguments: Arguments, seen: Seen) -> None:
        given = leaves(arguments)
        inputs = zip(storages(arguments), leaf_names(arguments), strict=True)
        names = dict(reversed(list(inputs)))  # of inputs that share storage, the first one's name is used
        result = function(*arguments)
        for name, leaf, address in zip(leaf_names(result), leaves(result), storages(result), strict=True):
            if address and address in names and not any(leaf is own for own in given):
                raise Broken(f"output {name or 'the result'} is a view of input {names[address]}; clone it")

    return Law(
        name="outputs_own_storage",
        claim="An output either is an input, the very tensor, or shares no storage with one.",
        source=PURITY,
        inputs=always(one),
        check=check,
        mutant=Mutant("gives a view of the state: total[...] where it should give total", view),
    )


def _batch(pair: SearchStrategy[tuple[Arguments, Arguments]], tolerance: Tolerance) -> Law:
    def check(function: Subject, drawn: tuple[Arguments, Arguments], seen: Seen) -> None:
        shapes = [[leaf.shape for leaf in leaves(arguments)] for arguments in drawn]
        assume(shapes[0] == shapes[1])
        both = stack(drawn)
        structure = pytree.tree_structure(both)

        def on_leaves(*flat: Tensor) -> Any:
            return function(*pytree.tree_unflatten(list(flat), structure))

        batch = torch.vmap(on_leaves)(*leaves(both)) if leaves(both) else stack([function(*a) for a in drawn])
        for i, arguments in enumerate(drawn):
            same(f"entry {i} of a batch of 2", take(batch, i), function(*fresh(arguments)), tolerance)

    return Law(
        name="batch_is_singles",
        claim="A batch (torch.vmap) gives what its entries give alone.",
        source=DESIGN,
        inputs=always(pair),
        check=check,
        mutant=Mutant("asks Python: if count > 3", branches),
    )


def _compiled(one: SearchStrategy[Arguments], tolerance: Tolerance) -> Law:
    def prepare(function: Subject) -> tuple[Subject, list[Compiled]]:
        return function, compile_each(function, current_profile().backends)

    def check(prepared: tuple[Subject, list[Compiled]], arguments: Arguments, seen: Seen) -> None:
        function, compilations = prepared
        wanted = function(*fresh(arguments))
        for compiled in compilations:
            got = compiled(*fresh(arguments))
            seen.measure(f"difference, {compiled.backend}", largest_difference(got, wanted))
            same(f"compiled with {compiled.backend}", got, wanted, tolerance)

    return Law(
        name="compiled_is_eager",
        claim="Compiled as one full graph, once for each shape, a step gives what it gives eagerly.",
        source=DESIGN,
        inputs=always(one),
        prepare=prepare,
        check=check,
        mutant=Mutant("logs what it does: logger.debug(...)", logs),
    )


def largest_difference(got: Any, wanted: Any) -> float:
    """The largest absolute difference between the floating-point leaves of two trees; 0 if there are none."""
    pairs = zip(leaves(got), leaves(wanted), strict=False)
    gaps = [float((a - b).abs().nan_to_num().max()) for a, b in pairs if a.is_floating_point() and a.numel()]
    return max(gaps, default=0.0)


def _structure(pair: SearchStrategy[tuple[Arguments, Arguments]], carry: int | None) -> Law:
    def check(function: Subject, drawn: tuple[Arguments, Arguments], seen: Seen) -> None:
        results = [function(*arguments) for arguments in drawn]
        for name, leaf in zip(leaf_names(results[0]), leaves(results[0]), strict=True):
            require(isinstance(leaf, Tensor), f"output {name} is {type(leaf).__name__}, wanted a tensor")
        shapes = [[leaf.shape for leaf in leaves(arguments)] for arguments in drawn]
        if shapes[0] == shapes[1]:
            same_kind("the result of another call", results[1], results[0])
        if carry is not None:
            same_kind("the carry", results[0][0], drawn[0][carry])

    return Law(
        name="structure_is_fixed",
        claim="The tree, shapes and dtypes of a result never change, and a carry leaves as it came.",
        source=DESIGN,
        inputs=always(pair),
        check=check,
        mutant=Mutant("sums the total in double precision and leaves it so", widens),
    )


def same_kind(where: str, got: Any, wanted: Any) -> None:
    """Raise Broken unless both trees have the same structure, shapes and dtypes, static fields included."""
    if pytree.tree_structure(got) != pytree.tree_structure(wanted):
        raise Broken(f"{where}: got {pytree.tree_structure(got)}, wanted {pytree.tree_structure(wanted)}")
    for name, a, b in zip(leaf_names(got), leaves(got), leaves(wanted), strict=True):
        kinds = [f"{list(leaf.shape)} {leaf.dtype}" for leaf in (a, b)]
        require(kinds[0] == kinds[1], f"{where}{name and f' at {name}'}: got {kinds[0]}, wanted {kinds[1]}")


def _device(one: SearchStrategy[Arguments]) -> Law:
    def check(function: Subject, arguments: Arguments, seen: Seen) -> None:
        # The meta device has shapes and devices but no values, so few inputs are enough. Like an accelerator, it does not mix
        # with the CPU.
        result = function(*tree_map(lambda leaf: leaf.to("meta"), arguments))
        for name, leaf in zip(leaf_names(result), leaves(result), strict=True):
            require(leaf.is_meta, f"output {name or 'the result'} is on {leaf.device}, wanted where the inputs are")

    return Law(
        name="device_follows_inputs",
        claim="Every tensor is made where the inputs lie, and the results lie there too.",
        source=DESIGN,
        inputs=always(one),
        check=check,
        mutant=Mutant("makes a tensor without asking where: torch.zeros(1)", on_the_cpu),
        most=5,
    )
