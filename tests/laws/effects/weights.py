"""Laws of weights in shared memory: a fetch returns the published weights, and never those of another publisher.

The subject is a `Transfer`, `publishing` and `reading` of `runtime.effects.weight_sync.shared_memory.publisher`,
on files in a temporary folder.
Interleavings of single accesses are covered by `ring_laws`.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from purestep.core.errors import ChoiceError
from purestep.core.tree import leaves, tree_map
from purestep.properties.framework.compare import bits_of, require, same
from purestep.properties.framework.law import Broken, Law, Mutant, Seen, Suite, always
from purestep.properties.suites.checkpoint import trees
from purestep.runtime.effects.weight_sync.shared_memory.layout import WeightsError, layout
from purestep.runtime.effects.weight_sync.shared_memory.publisher import Publisher, Reader, publishing, reading

from . import ring_overrun

# --- mutants ---
# Common errors in transfers of weights: each an edit of a right one.


def _publish(transfer: Any, edit: Callable[[Any], Any]) -> Any:
    @contextmanager
    def publishing(params: Any, **options: Any) -> Iterator[Any]:
        with transfer.publishing(params, **options) as weights:
            yield evolve(weights, publish=lambda version, tree: weights.publish(version, edit(tree)))

    return evolve(transfer, publishing=publishing)


def loses_strides(transfer: Any) -> Any:
    """Copy a leaf's memory in storage order, without its strides."""

    def edit(leaf: torch.Tensor) -> torch.Tensor:
        plain = torch.empty(leaf.shape).stride()
        return leaf.as_strided(leaf.shape, plain) if leaf.numel() and 0 not in leaf.stride() else leaf

    return _publish(transfer, lambda tree: tree_map(edit, tree))


def through_half(transfer: Any) -> Any:
    """Round floats to bfloat16 in the transfer."""

    def edit(leaf: torch.Tensor) -> torch.Tensor:
        return leaf.to(torch.bfloat16).to(leaf.dtype) if leaf.is_floating_point() else leaf

    return _publish(transfer, lambda tree: tree_map(edit, tree))


def gives_views(transfer: Any) -> Any:
    """Return the same tensors in every fetch."""

    def reading(path: Path, like: Any) -> Any:
        reader = transfer.reading(path, like)
        room = tree_map(lambda leaf: torch.empty(leaf.shape, dtype=leaf.dtype), like)

        def fetch(newer_than: int = -1, into: Any = (), seconds: float = 60.0) -> Any:
            return reader.fetch(newer_than, into if leaves(into) else room, seconds)

        return evolve(reader, fetch=fetch)

    return evolve(transfer, reading=reading)


def counts_fetches(transfer: Any) -> Any:
    """Count fetches as overtaken as well."""

    def reading(path: Path, like: Any, **how: Any) -> Any:
        reader, fetched = transfer.reading(path, like, **how), list[int]()

        def fetch(*asked: Any, **more: Any) -> Any:
            fetched.append(1)
            return reader.fetch(*asked, **more)

        return evolve(reader, fetch=fetch, overtaken=lambda: reader.overtaken() + len(fetched))

    return evolve(transfer, reading=reading)


def compares_sizes(transfer: Any) -> Any:
    """Compare the number of bytes only."""

    def reading(path: Path, like: Any) -> Any:
        try:
            return transfer.reading(path, like)
        except WeightsError:
            known = {"value": torch.zeros(()), "block": torch.zeros(8)}
            if layout(known).size != layout(like).size:
                raise
            return transfer.reading(path, known)

    return evolve(transfer, reading=reading)


def locks_nothing(transfer: Any) -> Any:
    """Publish without a lock on the path."""

    @contextmanager
    def publishing(params: Any, *, path: Path, **options: Any) -> Iterator[Any]:
        if path.exists():
            path = path.with_name("another")
        with transfer.publishing(params, path=path, **options) as weights:
            yield weights

    return evolve(transfer, publishing=publishing)


def begins_anew(transfer: Any) -> Any:
    """Remove an existing file at the path."""

    @contextmanager
    def publishing(params: Any, *, path: Path, **options: Any) -> Iterator[Any]:
        with suppress(FileNotFoundError):
            if path.name == "left":
                path.unlink()
        with transfer.publishing(params, path=path, **options) as weights:
            yield weights

    return evolve(transfer, publishing=publishing)


def never_checks(transfer: Any) -> Any:
    """Write no checksum and check none."""

    @contextmanager
    def publishing(params: Any, *, guard: str = "sequence", **options: Any) -> Iterator[Any]:
        with transfer.publishing(params, guard="sequence", **options) as weights:
            yield weights

    return evolve(transfer, publishing=publishing)


def leaves_the_file(transfer: Any) -> Any:
    """Leave the file behind at the end."""

    @contextmanager
    def publishing(params: Any, *, path: Path, **options: Any) -> Iterator[Any]:
        kept = b""
        try:
            with transfer.publishing(params, path=path, **options) as weights:
                yield weights
                kept = path.read_bytes()
        finally:
            if kept:
                path.write_bytes(kept)

    return evolve(transfer, publishing=publishing)


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "sends floats as bfloat16": through_half,
    "counts what was fetched as thrown away": counts_fetches,
}


# --- laws ---


SOURCE = "runtime.effects.weight_sync.shared_memory.publisher: one publisher, any number of readers"
GUARDS = ("sequence", "checksum")


@frozen
class Transfer:
    """The subject: functions that publish and read weights."""

    publishing: Callable[..., AbstractContextManager[Publisher]]  # (params, path=, slots=, guard=)
    reading: Callable[[Path, Any], Reader]


def own_transfer() -> Transfer:
    """Return the library's own functions."""
    return Transfer(publishing, reading)


def weights_laws() -> Suite:
    """The laws of weights that move between processes."""
    safe = (_one(), _after_death(), _checked(), _lapped(), _left())
    return Suite("weights_laws", (_same(), _values(), _architecture(), *safe))


def _law(
    name: str,
    claim: str,
    mutant: Mutant,
    inputs: SearchStrategy[Any],
    check: Callable[[Transfer, Any, Seen, Path], None],
    *needs: str,
) -> Law:
    def in_folder(transfer: Transfer, drawn: Any, seen: Seen) -> None:
        with tempfile.TemporaryDirectory() as folder:
            check(transfer, drawn, seen, Path(folder) / "weights")

    return Law(
        name=name,
        claim=claim,
        source=SOURCE,
        inputs=always(inputs),
        check=in_folder,
        mutant=mutant,
        needs=needs,
        most=100,
    )


def _of(value: float) -> dict[str, Tensor]:
    return {"value": torch.tensor(value), "block": torch.full((8,), value)}


def _same() -> Law:
    def check(transfer: Transfer, drawn: tuple[Any, str], seen: Seen, path: Path) -> None:
        tree, guard = drawn
        for leaf in (tree["leaf"], tree["part"].weight):
            seen("bfloat16", leaf.dtype == torch.bfloat16)
            seen("a leaf that is not contiguous", not leaf.is_contiguous())
            seen("an empty leaf", leaf.numel() == 0)
        with transfer.publishing(tree, path=path, guard=guard) as weights:
            weights.publish(3, tree)
            reader = transfer.reading(path, tree)
            into = tree_map(lambda leaf: torch.zeros(leaf.shape, dtype=leaf.dtype), tree)
            for found in (reader.fetch(), reader.fetch(2, into)):
                require(found[:1] == (3,), f"version {found[:1]} was fetched, 3 was published")
                same("what was fetched", tree_map(bits_of, found[1]), tree_map(bits_of, tree))
            same("what it was fetched into", tree_map(bits_of, into), tree_map(bits_of, tree))

    claim = "What is fetched is what was published, bit for bit: every dtype and layout, empty and shared leaves."
    mutant = Mutant("writes a view's memory as it lies", loses_strides)
    inputs = st.tuples(trees(), st.sampled_from(GUARDS))
    needs = ("bfloat16", "a leaf that is not contiguous", "an empty leaf")
    return _law("fetched_is_published", claim, mutant, inputs, check, *needs)


def _values() -> Law:
    def check(transfer: Transfer, count: int, seen: Seen, path: Path) -> None:
        params = _of(0.0)
        with transfer.publishing(params, path=path, slots=2) as weights:
            reader = transfer.reading(path, params)
            fetched = []
            for version in range(count):
                weights.publish(version, _of(float(version)))
                params["block"].add_(1.0)  # a learner that goes on does not reach what it has published
                fetched.append(reader.fetch(version - 1)[1])
            seen("a slot that was used again", count > 2)
            for version, found in enumerate(fetched):
                same(f"version {version}, after {count - 1} was published", found, _of(float(version)))

    claim = "What was fetched stays as it was, whatever is published later."
    mutant = Mutant("gives views of the slot", gives_views)
    return _law("fetched_are_values", claim, mutant, st.integers(1, 5), check, "a slot that was used again")


def _architecture() -> Law:
    def check(transfer: Transfer, change: str, seen: Seen, path: Path) -> None:
        own = _of(1.0)
        other = {
            "shape": {"value": own["value"], "block": torch.zeros(2, 4)},
            "dtype": {"value": own["value"], "block": torch.zeros(8, dtype=torch.int32)},
            "name": {"value": own["value"], "brick": torch.zeros(8)},
            "missing": {"value": own["value"]},
        }[change]
        with transfer.publishing(own, path=path) as weights:
            weights.publish(0, own)
            before = transfer.reading(path, own).fetch()
            for what in (lambda: transfer.reading(path, other).fetch(), lambda: weights.publish(1, other)):
                _refused(what, change)
            same("what is there after all refusals", transfer.reading(path, own).fetch(), before)

    claim = (
        "Weights of other names, shapes or dtypes are refused, to read and to publish, and the refusal names the leaf."
    )
    mutant = Mutant("compares numbers of bytes", compares_sizes)
    inputs = st.sampled_from(("shape", "dtype", "name", "missing"))
    return _law("another_architecture_is_refused", claim, mutant, inputs, check)


def _refused(what: Callable[[], Any], change: str) -> None:
    try:
        what()
    except WeightsError as error:
        named = "block" in str(error) or "brick" in str(error)
        require(named, f"the refusal of another {change} does not name the leaf: {error}")
        return
    raise Broken(f"weights of another {change} were taken")


def _one() -> Law:
    def check(transfer: Transfer, versions: list[int], seen: Seen, path: Path) -> None:
        with transfer.publishing(_of(0.0), path=path) as weights:
            weights.publish(0, _of(0.0))
            try:
                with transfer.publishing(_of(0.0), path=path):
                    raise Broken("two publish to one file at once")
            except WeightsError:
                seen("a second publisher")
            last = 0
            for version in versions:
                try:
                    weights.publish(version, _of(float(version)))
                    require(version > last, f"version {version} was published after {last}")
                    last = version
                except ChoiceError:
                    seen("a version that goes back")
                    require(version <= last, f"version {version} was refused after {last}")
            found = transfer.reading(path, _of(0.0)).fetch()
            same("what is there at last", found, (last, _of(float(last))))

    claim = "One publisher at a time, whose versions go up."
    mutant = Mutant("locks nothing", locks_nothing)
    inputs = st.lists(st.integers(0, 5), min_size=1, max_size=5)
    return _law(
        "one_publisher_at_a_time", claim, mutant, inputs, check, "a second publisher", "a version that goes back"
    )


def _after_death() -> Law:
    def check(transfer: Transfer, last: int, seen: Seen, path: Path) -> None:
        with transfer.publishing(_of(0.0), path=path) as weights:
            weights.publish(last, _of(float(last)))
            left = path.with_name("left")  # what a publisher that was killed leaves: the bytes, and no lock
            left.write_bytes(path.read_bytes())
        seen("version 0", last == 0)
        reader = transfer.reading(left, _of(0.0))
        same("what is read after its publisher died", reader.fetch(), (last, _of(float(last))))
        with transfer.publishing(_of(0.0), path=left) as weights:
            same("what is read when another took over", reader.fetch(), (last, _of(float(last))))
            weights.publish(last + 1, _of(7.0))
            same("what the other one published", reader.fetch(last), (last + 1, _of(7.0)))

    claim = "What was published stays readable when the publisher dies, and another one goes on where it stopped."
    mutant = Mutant("begins with an empty file", begins_anew)
    return _law("publishers_may_die", claim, mutant, st.integers(0, 3), check, "version 0")


def _checked() -> Law:
    def check(transfer: Transfer, place: int, seen: Seen, path: Path) -> None:
        own = _of(1.0)
        with transfer.publishing(own, path=path, slots=2, guard="checksum") as weights:
            weights.publish(0, own)
            data = bytearray(path.read_bytes())
            marks = torch.full((8,), 1.0).numpy().tobytes()
            at = bytes(data).index(marks) + place
            with path.open("r+b") as file:
                file.seek(at)
                file.write(bytes([data[at] ^ 1]))
            reader = transfer.reading(path, own)
            try:
                found = reader.fetch(seconds=0.0)
            except WeightsError:
                weights.publish(1, own)
                same("what is published next", reader.fetch(), (1, own))
                return
            raise Broken(f"a byte that was changed in the slot came through: {found}")

    claim = "With a checksum no byte that differs from what was published is given."
    mutant = Mutant("takes the guard for a hint", never_checks)
    return _law("checksum_sees_each_byte", claim, mutant, st.integers(0, 31), check)


def _lapped() -> Law:
    return _law(
        "lapped_copies_are_thrown_away",
        ring_overrun.CLAIM,
        ring_overrun.MUTANT,
        ring_overrun.INPUTS,
        ring_overrun.lapped,
        *ring_overrun.NEEDS,
    )


def _left() -> Law:
    def check(transfer: Transfer, fails: bool, seen: Seen, path: Path) -> None:
        class Stop(Exception):
            """Raised in the block by a test."""

        reader = None
        try:
            with transfer.publishing(_of(0.0), path=path) as weights:
                weights.publish(0, _of(0.0))
                reader = transfer.reading(path, _of(0.0))
                require(not reader.closed(), "a reader takes an open publisher for closed")
                if fails:
                    raise Stop
        except Stop:
            seen("a block that raised")
        require(not list(path.parent.iterdir()), f"left behind: {[one.name for one in path.parent.iterdir()]}")
        require(reader is not None and reader.closed(), "a reader is not told that nothing more comes")
        same("what a reader still has", reader.fetch(), (0, _of(0.0)))  # type: ignore[union-attr]

    claim = "At the end no file is left, readers know it, and what they have open stays readable."
    mutant = Mutant("leaves the file for the next run", leaves_the_file)
    return _law("nothing_is_left_behind", claim, mutant, st.booleans(), check, "a block that raised")
