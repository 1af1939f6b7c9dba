"""Laws of device assignment: in turn at first, then the place of the lost worker, and never twice while a place is free.

The subject is a `next_spot(known, there, devices, taken)` as in `runtime.effects.cluster.device_assignment`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

from attrs import Factory, frozen
from hypothesis import strategies as st

from purestep.properties.framework.compare import require
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always
from purestep.runtime.effects.cluster.device_assignment import Device, free, in_turn

# --- mutants ---
# Common errors in device assignment: each an edit of a right one.


def each_once(next_spot: Any) -> Any:
    """Count a device that is listed twice only once."""

    def wrong(known: Sequence[str], there: Sequence[str], devices: Sequence[str], taken: Sequence[Device]) -> Any:
        return next_spot(known, there, tuple(dict.fromkeys(devices)), taken)

    return wrong


def by_count(next_spot: Any) -> Any:
    """Assign places in turn, as if no worker had been lost."""

    def wrong(known: Sequence[str], there: Sequence[str], devices: Sequence[str], taken: Sequence[Device]) -> Any:
        spots = in_turn(there, devices)
        return spots[len(taken) % len(spots)]

    return wrong


def forgets_losses(next_spot: Any) -> Any:
    """Assign places on all hosts, lost ones included."""

    def wrong(known: Sequence[str], there: Sequence[str], devices: Sequence[str], taken: Sequence[Device]) -> Any:
        return next_spot(known, known, devices, taken)

    return wrong


def keeps_to_the_left(next_spot: Any) -> Any:
    """Use only the devices that the remaining hosts have in turn."""

    def wrong(known: Sequence[str], there: Sequence[str], devices: Sequence[str], taken: Sequence[Device]) -> Any:
        left = [spot for spot in in_turn(known, devices) if spot.host in there]
        return free(cycle(left), taken) if left else next_spot(known, there, devices, taken)

    return wrong


def _host_and_device_apart(next_spot: Any) -> Any:
    """Choose the least used host and the least used device independently."""

    def wrong(known: Sequence[str], there: Sequence[str], devices: Sequence[str], taken: Sequence[Device]) -> Any:
        hosts, used = Counter(spot.host for spot in taken), Counter(spot.device for spot in taken)
        host = min((one for one in known if one in there), key=lambda one: hosts[one])
        return Device(host, min(devices, key=lambda one: used[one] / devices.count(one)))

    return wrong


def _the_first_host(next_spot: Any) -> Any:
    """Put all replacements on the first host that is there."""

    def wrong(known: Sequence[str], there: Sequence[str], devices: Sequence[str], taken: Sequence[Device]) -> Any:
        return next_spot(known, there if [*there] == [*known] else there[:1], devices, taken)

    return wrong


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "looks for host and device apart": _host_and_device_apart,
    "replaces all on the first host": _the_first_host,
}


# --- laws ---


SOURCE = "runtime.effects.cluster.device_assignment: a host and a device for each worker"
NAMED = ("01", "0011", "001", "012", "0")  # numbers of devices, as people name them
NextSpot = Callable[[Sequence[str], Sequence[str], Sequence[str], Sequence[Device]], Device | tuple[()]]


@frozen
class Plan:
    """Hosts, listed devices, the number of workers, and events: (verb, index)."""

    hosts: tuple[str, ...]
    devices: tuple[str, ...]
    size: int
    acts: tuple[tuple[str, int], ...]


@frozen
class Pool:
    """Workers and their devices; lost workers are replaced when `fill` is called."""

    next_spot: NextSpot
    plan: Plan
    there: list[str] = Factory(list)  # a host that comes back is the last one
    spots: list[Device] = Factory(list)
    given: list[tuple[tuple[str, ...], tuple[Device, ...], Device]] = Factory(
        list
    )  # hosts there, spots taken, what was given

    def fill(self) -> None:
        """Start workers until there are enough."""
        while self.there and len(self.spots) < self.plan.size:
            taken = (*self.spots,)
            spot = self.next_spot(self.plan.hosts, (*self.there,), self.plan.devices, taken)
            require(isinstance(spot, Device), f"no spot on {self.there}")
            if isinstance(spot, Device):
                self.given.append(((*self.there,), taken, spot))
                self.spots.append(spot)

    def act(self, verb: str, which: int) -> None:
        """Apply one event; lost workers are not replaced yet."""
        if verb == "die" and self.spots:
            self.spots.pop(which % len(self.spots))
        elif verb == "lose" and self.there:
            host = self.there.pop(which % len(self.there))
            self.spots[:] = [spot for spot in self.spots if spot.host != host]
        elif verb == "back" and (away := [host for host in self.plan.hosts if host not in self.there]):
            self.there.append(away[which % len(away)])
        elif verb == "fill":
            self.fill()


def played(next_spot: NextSpot, plan: Plan) -> Pool:
    """Return the pool after the events of a plan."""
    pool = Pool(next_spot, plan, [*plan.hosts])
    pool.fill()
    for act in plan.acts:
        pool.act(*act)
    pool.fill()
    return pool


def spots_laws() -> Suite:
    """The laws of device assignment."""
    return Suite("spots_laws", (_in_turn(), _the_same(), _there(), _least()))


def _law(name: str, claim: str, mutant: Mutant, verbs: str, check: Callable[[Pool, Seen], None], *needs: str) -> Law:
    def on_crew(next_spot: NextSpot, plan: Plan, seen: Seen) -> None:
        check(played(next_spot, plan), seen)

    acts = st.lists(st.tuples(st.sampled_from(verbs.split()), st.integers(0, 7)), min_size=4, max_size=16)
    plans = st.builds(
        Plan,
        hosts=st.sampled_from((2, 3, 1, 4)).map(lambda count: tuple("abcd"[:count])),
        devices=st.sampled_from(NAMED).map(lambda letters: tuple(f"cuda:{letter}" for letter in letters)),
        size=st.integers(2, 8),
        acts=acts.map(tuple) if verbs else st.just(()),
    )
    inputs = always(plans)
    return Law(
        name=name, claim=claim, source=SOURCE, inputs=inputs, check=on_crew, mutant=mutant, needs=needs, most=300
    )


def _turns(plan: Plan) -> list[Device]:
    hosts, devices = plan.hosts, plan.devices
    return [Device(hosts[i % len(hosts)], devices[i % len(devices)]) for i in range(plan.size)]


def _in_turn() -> Law:
    def check(pool: Pool, seen: Seen) -> None:
        plan = pool.plan
        seen("a device is named twice among others", 1 < len({*plan.devices}) < len(plan.devices) <= plan.size)
        require(pool.spots == _turns(plan), f"{pool.spots}, wanted {_turns(plan)}")

    claim = "While nobody is lost, worker i has host i and device i, each modulo how many are named."
    mutant = Mutant("takes each device once, however often it is named", each_once)
    return _law("spots_in_turn", claim, mutant, "", check, "a device is named twice among others")


def _the_same() -> Law:
    def check(pool: Pool, seen: Seen) -> None:
        wanted = _turns(pool.plan)
        seen("one is replaced", len(pool.given) > pool.plan.size and len({*wanted}) > 1)
        seen(
            "two were away at once",
            any(len(taken) < pool.plan.size - 1 for _, taken, _ in pool.given[pool.plan.size :]),
        )
        got = sorted(map(str, pool.spots))
        require(got == sorted(map(str, wanted)), f"{got} behind losses, wanted those of the beginning")

    claim = "While no host is lost, whoever was lost: when all are replaced, the spots are those of the beginning."
    mutant = Mutant("goes by how many there are", by_count)
    needs = ("one is replaced", "two were away at once")
    return _law("spots_of_the_lost", claim, mutant, "die die fill", check, *needs)


def _there() -> Law:
    def check(pool: Pool, seen: Seen) -> None:
        for there, _, spot in pool.given:
            seen("a host is gone", len(there) < len(pool.plan.hosts))
            require(spot.host in there, f"{spot}, where {there} are there")

    claim = "A worker gets a host that is there."
    mutant = Mutant("forgets that hosts can be gone", forgets_losses)
    return _law("spots_on_hosts_there", claim, mutant, "die lose back fill", check, "a host is gone")


def _least() -> Law:
    def check(pool: Pool, seen: Seen) -> None:
        for there, taken, spot in pool.given:
            own = [one for one in in_turn(pool.plan.hosts, pool.plan.devices) if one.host in there]
            if any(taken.count(one) < own.count(one) for one in own):
                seen("a spot is free", len(there) < len(pool.plan.hosts) or [*there] != sorted(there))
                require(taken.count(spot) < own.count(spot), f"{spot} beside {taken}, where one of {own} is free")
                continue
            seen("all are taken, and a host is gone", len(there) < len(pool.plan.hosts))
            shares = in_turn([host for host in pool.plan.hosts if host in there], pool.plan.devices)
            rounds = {one: taken.count(one) // shares.count(one) for one in shares}
            require(rounds.get(spot) == min(rounds.values()), f"{spot} beside {taken}, of {shares}")

    claim = "No spot is used more often than it is named while another one is free; where a host is gone, its work is spread."
    mutant = Mutant("keeps to the spots that are left", keeps_to_the_left)
    needs = ("a spot is free", "all are taken, and a host is gone")
    return _law("spots_used_least", claim, mutant, "die lose lose back fill fill", check, *needs)
