"""Laws of weight transfer through a ring (W1 to W6): the weights that a reader gets, under any interleaving of accesses.

The subject is a `Ring`, the two procedures of `runtime.effects.weight_sync.shared_memory.ring_buffer`; they run on a
memory of a few cells.
"""

from collections.abc import Callable
from typing import Any

from attrs import evolve
from hypothesis.strategies import SearchStrategy

from purestep.properties.framework.compare import require
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always
from purestep.runtime.effects.weight_sync.shared_memory.ring_buffer import (
    CHECKSUM,
    LATEST,
    NUMBER,
    VERSION,
    Fill,
    Load,
    Ring,
    SharedWords,
    Steps,
    slot_start,
)

from .ring_model import CELLS, Operation, Plan, World, plans, played

# --- mutants ---
# Common errors in rings: each an edit of the writer or of the reader.


Edit = Callable[[Any], Any]


def _with_words(ring: Ring, reader: Callable[[SharedWords, int], SharedWords]) -> Ring:
    def fetching(words: SharedWords, slots: int, newer_than: int, load: Load) -> Steps[tuple[Any, ...]]:
        return ring.fetching(reader(words, slots), slots, newer_than, load)

    return evolve(ring, fetching=fetching)


def looks_once(ring: Ring) -> Ring:
    """Skip the check of the slot's number after the copy."""

    def blind(words: SharedWords, slots: int) -> SharedWords:
        asked: list[int] = [0]

        def read(index: int) -> int:
            if index == LATEST:
                asked[0] = words.read(LATEST)
                return asked[0]
            number = any(index == slot_start(slot) + NUMBER for slot in range(slots))
            return asked[0] if number else words.read(index)

        return evolve(words, read=read)

    return _with_words(ring, blind)


def version_of_latest(ring: Ring) -> Ring:
    """Return the version of the latest slot instead of the copied one."""

    def fetching(words: SharedWords, slots: int, newer_than: int, load: Load) -> Steps[tuple[Any, ...]]:
        found = yield from ring.fetching(words, slots, newer_than, load)
        yield False
        latest = words.read(LATEST)
        return (words.read(slot_start(latest % slots) + VERSION), found[1]) if found else ()

    return evolve(ring, fetching=fetching)


def any_version(ring: Ring) -> Ring:
    """Accept versions that do not increase."""

    def publication(words: SharedWords, slots: int, version: int, fill: Fill) -> Steps[int]:
        def forgetful(index: int) -> int:
            versions = [slot_start(slot) + VERSION for slot in range(slots)]
            return -1 if index in versions else words.read(index)

        return ring.publication(evolve(words, read=forgetful), slots, version, fill)

    return evolve(ring, publication=publication)


def counts_first(ring: Ring) -> Ring:
    """Publish the number before the bytes are written."""

    def publication(words: SharedWords, slots: int, version: int, fill: Fill) -> Steps[int]:
        def announced(slot: int, number: int, label: int) -> Steps[int]:
            words.write(slot_start(slot) + VERSION, label)
            words.write(LATEST, number)
            yield False
            return (yield from fill(slot, number, label))

        return ring.publication(words, slots, version, announced)

    return evolve(ring, publication=publication)


def one_behind(ring: Ring) -> Ring:
    """Read from the slot before the latest one."""

    def reader(words: SharedWords, slots: int) -> SharedWords:
        def read(index: int) -> int:
            value = words.read(index)
            return max(value - 1, min(value, 1)) if index == LATEST else value

        return evolve(words, read=read)

    return _with_words(ring, reader)


def one_slot(ring: Ring) -> Ring:
    """Use a single slot."""

    def publication(words: SharedWords, slots: int, version: int, fill: Fill) -> Steps[int]:
        return ring.publication(words, 1, version, fill)

    def fetching(words: SharedWords, slots: int, newer_than: int, load: Load) -> Steps[tuple[Any, ...]]:
        return ring.fetching(words, 1, newer_than, load)

    return Ring(publication, fetching)


def zero_is_none(ring: Ring) -> Ring:
    """Treat version 0 as absent: `if version`."""

    def fetching(words: SharedWords, slots: int, newer_than: int, load: Load) -> Steps[tuple[Any, ...]]:
        return ring.fetching(words, slots, max(newer_than, 0), load)

    return evolve(ring, fetching=fetching)


def no_checksum(ring: Ring) -> Ring:
    """Skip the check of the checksum."""

    def fetching(words: SharedWords, slots: int, newer_than: int, load: Load) -> Steps[tuple[Any, ...]]:
        total: list[int] = [0]
        sums = [slot_start(slot) + CHECKSUM for slot in range(slots)]

        def read(index: int) -> int:
            value = words.read(index)
            if index in sums:
                total[0] = value
            return value

        def trusting(slot: int, number: int, version: int) -> Steps[tuple[Any, int]]:
            found, _ = yield from load(slot, number, version)
            return found, total[0]

        return ring.fetching(evolve(words, read=read), slots, newer_than, trusting)

    return evolve(ring, fetching=fetching)


def stubborn(ring: Ring) -> Ring:
    """Read the latest number only once."""

    def reader(words: SharedWords, slots: int) -> SharedWords:
        first: list[int] = []

        def read(index: int) -> int:
            if index != LATEST:
                return words.read(index)
            if not first:
                first.append(words.read(LATEST))
            return first[0]

        return evolve(words, read=read)

    return _with_words(ring, reader)


def numbers_afterwards(ring: Ring) -> Ring:
    """Write a slot's number after the bytes, not before."""

    def publication(words: SharedWords, slots: int, version: int, fill: Fill) -> Steps[int]:
        late: list[tuple[int, int]] = []
        numbers = [slot_start(slot) + NUMBER for slot in range(slots)]

        def write(index: int, value: int) -> None:
            if index in numbers:
                late.append((index, value))
                return
            if index == LATEST:
                for kept in late:
                    words.write(*kept)
            words.write(index, value)

        return ring.publication(evolve(words, write=write), slots, version, fill)

    return evolve(ring, publication=publication)


def few_bits(ring: Ring) -> Ring:
    """Compare only the parity of numbers."""

    def reader(words: SharedWords, slots: int) -> SharedWords:
        asked: list[int] = [0]

        def read(index: int) -> int:
            value = words.read(index)
            if index == LATEST:
                asked[0] = value
            if any(index == slot_start(slot) + NUMBER for slot in range(slots)) and (value - asked[0]) % 2 == 0:
                return asked[0]
            return value

        return evolve(words, read=read)

    return _with_words(ring, reader)


MUTANTS: dict[str, Edit] = {
    "notes a slot's number behind the bytes": numbers_afterwards,
    "compares only whether numbers are odd": few_bits,
}


# --- laws ---


SOURCE = "runtime.effects.weight_sync.shared_memory.ring_buffer: a sequence lock over a ring of slots"
Check = Callable[[Ring, Plan, Seen], None]


def ring_laws() -> Suite:
    """The laws of a ring of slots."""
    return Suite("ring_laws", (_whole(), _label(), _up(), _failed(), _register(), _crash(), _zero(), _late(), _again()))


def _law(name: str, claim: str, mutant: Mutant, inputs: SearchStrategy[Plan], check: Check, *needs: str) -> Law:
    return Law(
        name=name, claim=claim, source=SOURCE, inputs=always(inputs), check=check, mutant=mutant, needs=needs, most=500
    )


def _fetches(world: World) -> list[Operation]:
    return [each for each in world.history if each.who and each.given]


def _whole() -> Law:
    def check(ring: Ring, plan: Plan, seen: Seen) -> None:
        world = played(ring, plan)
        seen("a reader that was overtaken", world.vain > 0)
        for each in _fetches(world):
            cells = each.given[1]
            require(len(set(cells)) == 1, f"reader {each.who} got the cells of versions {cells}")

    claim = "A read gives all the bytes of one publication, also when the writer laps it."
    mutant = Mutant("does not look again behind the copy", looks_once)
    return _law("reads_are_whole", claim, mutant, plans(), check, "a reader that was overtaken")


def _label() -> Law:
    def check(ring: Ring, plan: Plan, seen: Seen) -> None:
        for each in _fetches(played(ring, plan)):
            version, cells = each.given
            seen("a version above 0", version > 0)
            require(version in cells, f"the bytes of version {cells[0]} came as version {version}")

    claim = "The version that comes with the bytes is the one they were published under."
    mutant = Mutant("asks for the version of the latest when the copy is there", version_of_latest)
    return _law("version_is_that_of_the_bytes", claim, mutant, plans(), check, "a version above 0")


def _up() -> Law:
    def check(ring: Ring, plan: Plan, seen: Seen) -> None:
        world, last = played(ring, plan), -1
        for each in world.history:
            if each.who == 0:
                wanted = "published" if each.asked > last else "ChoiceError"
                seen("a version that goes back", wanted == "ChoiceError")
                require(each.given == wanted, f"version {each.asked} after {last}: {each.given}, wanted {wanted}")
                last = max(last, each.asked)
        for who in (1, 2):
            versions = [each.given[0] for each in _fetches(world) if each.who == who]
            require(versions == sorted(set(versions)), f"reader {who} got versions {versions}")

    claim = "Versions never go back: one that is not above the last is refused, and no reader sees them fall."
    mutant = Mutant("takes whatever version it is given", any_version)
    return _law("versions_go_up", claim, mutant, plans(rising=False), check, "a version that goes back")


def _failed() -> Law:
    def check(ring: Ring, plan: Plan, seen: Seen) -> None:
        world = played(ring, plan)
        good = [each.asked for each in world.history if each.who == 0 and each.given == "published"]
        seen("a publication that failed", len(good) < len(plan.versions))
        for each in _fetches(world):
            require(each.given[0] in good, f"version {each.given[0]} was read, though its bytes were never all there")
        for who in (1, 2):
            last = [each.given[0] for each in _fetches(world) if each.who == who][-1:]
            require(last == good[-1:], f"reader {who} ends with {last}, wanted {good[-1:]}")

    claim = "A publication whose bytes cannot be written changes nothing: no version, no bytes, and the next one works."
    mutant = Mutant("counts the publication when it begins", counts_first)
    return _law("failed_is_not_published", claim, mutant, plans(failing=True), check, "a publication that failed")


def _register() -> Law:
    """The law that reads are linearizable: with one writer and rising versions these three bounds on every read suffice."""

    def check(ring: Ring, plan: Plan, seen: Seen) -> None:
        world = played(ring, plan)
        published = [each for each in world.history if each.who == 0]
        reads = [each for each in world.history if each.who]
        known = {id(each): each.given[0] if each.given else each.asked for each in reads}
        for each in reads:
            before = max((other.asked for other in published if other.ended <= each.began), default=-1)
            begun = max((version for moment, version in world.started if moment < each.ended), default=-1)
            seen("a read beside a publication", begun > before)
            got = known[id(each)]
            require(before <= got, f"a read gave {got}, after {before} had been published")
            require(got <= begun, f"a read gave {got}, before more than {begun} was begun")
            for other in reads:
                if other.who == each.who and other.ended <= each.began:
                    require(known[id(other)] <= got, f"a read gave {got}, after one that gave {known[id(other)]}")

    claim = "A read gives no less than what was published before it began, no more than what was begun before it ended."
    mutant = Mutant("gives the publication before the last, which nobody can be writing", one_behind)
    return _law("reads_are_linearizable", claim, mutant, plans(), check, "a read beside a publication")


def _crash() -> Law:
    def check(ring: Ring, plan: Plan, seen: Seen) -> None:
        world = played(ring, plan, crash=True)
        finished = [each.asked for each in world.history if each.who == 0]
        seen("a writer that died while it wrote", world.writing >= 0 and finished)
        possible = {*finished[-1:], *([plan.versions[len(finished)]] if len(finished) < len(plan.versions) else [])}
        for who in (1, 2):
            ended = [each for each in world.history if each.who == who]
            require(bool(ended), f"reader {who} never came to an end")
            last = [each.given[0] for each in ended if each.given][-1:]
            require(set(last) <= possible, f"reader {who} ends with {last}, wanted one of {sorted(possible)}")
            require(bool(last) or not finished, f"reader {who} has nothing, though {finished} were published")
            require(all(len(set(each.given[1])) == 1 for each in ended if each.given), "torn bytes were read")

    claim = "A writer that dies at any moment leaves the old publication or the new one, and readers wait for nobody."
    mutant = Mutant("has all publications in one slot", one_slot)
    return _law("crash_leaves_old_or_new", claim, mutant, plans(turns=9), check, "a writer that died while it wrote")


def _zero() -> Law:
    def check(ring: Ring, plan: Plan, seen: Seen) -> None:
        world = played(ring, plan)
        for who in (1, 2):
            mine = [each for each in world.history if each.who == who]
            seen("nothing newer", any(not each.given for each in mine))
            require(bool(_fetches(world)), "nothing was read, though version 0 was published")
            for each in mine:
                got = each.given[:1]
                require(not got or got[0] > each.asked, f"a fetch of what is newer than {each.asked} gave {got}")

    claim = "A fetch gives what is newer than the version named, and () otherwise; version 0 is newer than none."
    mutant = Mutant("takes version 0 for none", zero_is_none)
    return _law("zero_is_a_version", claim, mutant, plans(turns=5).map(_one), check, "nothing newer")


def _one(plan: Plan) -> Plan:
    return Plan((0,), plan.fails, plan.slots, plan.order)


def _late() -> Law:
    def check(ring: Ring, plan: Plan, seen: Seen) -> None:
        world = played(ring, plan, late=True, guarded=True)
        seen("a copy that was refused", world.vain > 0)
        for each in _fetches(world):
            version, cells = each.given
            require(cells == (version,) * CELLS, f"bytes of {cells} came as version {version}")

    claim = "With a checksum reads are whole and rightly labelled, in whatever order the writer's stores arrive."
    mutant = Mutant("does not compare the checksum", no_checksum)
    return _law("checksum_holds_without_order", claim, mutant, plans(turns=24), check, "a copy that was refused")


def _again() -> Law:
    def check(ring: Ring, plan: Plan, seen: Seen) -> None:
        world = played(ring, plan)
        wanted = plan.versions[-1]
        seen("a reader that was overtaken", world.vain > 0)
        for who in (1, 2):
            versions = [each.given[0] for each in _fetches(world) if each.who == who]
            require(versions[-1:] == [wanted], f"reader {who}, alone at last, ends with {versions[-1:]}, not {wanted}")

    claim = "A reader that was overtaken gets the last publication as soon as the writer pauses."
    mutant = Mutant("tries again for the publication it came for", stubborn)
    return _law("overtaken_readers_arrive", claim, mutant, plans(), check, "a reader that was overtaken")
