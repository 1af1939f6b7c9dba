"""Settings of asynchronous sampling and training, and the checks that refuse values with which a run could not work."""

import math
from typing import Literal

from attrs import frozen

from ...core.errors import ChoiceError, message
from ..runs.arguments import check_memory, check_numbers, check_wholes

WORKER = {"process": 100_000_000, "thread": 100_000}  # bytes of a worker, at least


@frozen
class AsyncConfig:
    """Rollout workers: how many, where, and how old their samples may be."""

    mode: Literal["sync", "async"] = "sync"  # sample and learn in turns, or at once
    generators: int = -1  # workers that sample beside the trainer; -1 means none in turns, and 2 at once
    compare: bool = True  # at once: first the same in turns, from the same warm start
    generator_engine: Literal["process", "thread"] = "process"  # what a generator is
    engine: Literal["processes", "monarch", "ray"] = "processes"  # what starts generators on hosts
    # where they work: with monarch 10.0.0.2:7000,10.0.0.3:7000, each with `purestep host`; with ray nodes of RAY_ADDRESS's
    # cluster by their names, all of them by default
    hosts: str = ""
    # how weights reach hosts: as fits them; by memory that all see; by the object store of ray; by RDMA with monarch
    transfer: Literal["auto", "shared", "ray", "monarch"] = "auto"
    trust_network: bool = False  # also use what is not encrypted with other hosts: Monarch's TCP without TLS, and ranks
    generator_slots: int = 64  # attempts that a generator samples side by side
    staleness: int = 1  # updates by which a sample may be older than the weights it changes; in turns it never is
    # leave samples that are too old out, or also begin them anew, or wait for them
    stale: Literal["drop", "requeue", "pace"] = "drop"
    loss: Literal["plain", "decoupled"] = "plain"  # near the sampler's policy, or near one of its own: --proximal
    # decoupled: before each update; from two others; for each token one version after its own
    proximal: Literal["recomputed", "interpolated", "segment_wise"] = "recomputed"
    interruptible: bool = True  # generators take new weights in the middle of an attempt
    patience: float = 120.0  # seconds after which a generator that has work and is silent is replaced
    tool_replicas: int = 0  # tools behind a service of so many replicas; 0 calls them in the generator
    tool_engine: Literal["process", "thread"] = "thread"  # what a replica is
    tool_timeout: float = 10.0  # seconds of a call of a tool
    devices: str = ""  # of the generators in turn, cuda:0,cuda:1; without it the CPU

    def named_devices(self) -> tuple[str, ...]:
        """Return the devices of the generators, one at least.

        >>> AsyncConfig(devices="cuda:0, cuda:1").named_devices(), AsyncConfig().named_devices()
        (('cuda:0', 'cuda:1'), ('cpu',))
        """
        named = tuple(name.strip() for name in self.devices.split(",") if name.strip())
        return named or ("cpu",)

    def named_hosts(self) -> tuple[str, ...]:
        """Return the hosts of the generators; none where they are on this machine.

        >>> AsyncConfig(hosts="10.0.0.2:7000, 10.0.0.3:7000").named_hosts(), AsyncConfig().named_hosts()
        (('10.0.0.2:7000', '10.0.0.3:7000'), ())
        """
        return tuple(name.strip() for name in self.hosts.split(",") if name.strip())


def check_asynchronous(given: AsyncConfig, *, generators: int, server: bool) -> None:
    """Refuse values with which nothing could be sampled or trained on, by the name of their flag. Raises: ChoiceError.

    >>> check_asynchronous(AsyncConfig(staleness=-1), generators=0, server=False)
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: --staleness is -1, wanted at least 0; change it
    """
    check_wholes(given, -1, "generators")
    check_wholes(given, 1, "generator_slots")
    check_wholes(given, 0, "staleness", "tool_replicas")
    local = given.engine == "processes"
    needs = {
        "--generators": float(WORKER[given.generator_engine] * generators) if local else 0.0,
        "--tool-replicas": float(WORKER[given.tool_engine] * given.tool_replicas) if local else 0.0,
    }
    check_memory(needs)
    check_numbers(given, 1e-3, math.inf, "patience", "tool_timeout")
    for device in given.named_devices():
        _check_device(device, here=not given.named_hosts() and given.engine != "ray")
    if given.mode == "sync" and given.staleness > AsyncConfig().staleness:
        got, remedy = f"{given.staleness} in turns", "in turns no sample is old"
        raise ChoiceError(message("--staleness", got=got, wanted="--mode async as well", remedy=remedy))
    if given.mode == "async" and generators < 1:
        wanted, remedy = "at least 1 with --mode async", "let somebody sample beside the trainer"
        raise ChoiceError(message("--generators", got=given.generators, wanted=wanted, remedy=remedy))
    if generators > 0 and server:
        got, remedy = "given with generators", "a server samples for --mode sync --generators 0"
        raise ChoiceError(message("--server", got=got, wanted="one of the two", remedy=remedy))
    _check_hosts(given, generators=generators)


def _check_hosts(given: AsyncConfig, *, generators: int) -> None:
    """Refuse hosts on which no generator could work, or that weights could not reach. Raises: ChoiceError."""
    hosts = given.named_hosts()
    for name in hosts if given.engine == "monarch" else ():
        if not _is_address(name):
            raise ChoiceError(message("--hosts", got=repr(name), wanted="HOST:PORT", remedy="e.g. 10.0.0.2:7000"))
    if len({*hosts}) < len(hosts):
        remedy = "leave the second one out"
        raise ChoiceError(message("--hosts", got=given.hosts, wanted="each host once", remedy=remedy))
    elsewhere = bool(hosts) or given.engine != "processes"
    if elsewhere and generators < 1:
        where, wanted = "--engine and --hosts", "--generators as well, or --mode async"
        raise ChoiceError(
            message(where, got="given without generators", wanted=wanted, remedy="let somebody work there")
        )
    if elsewhere and given.generator_engine == "thread":
        got, remedy = "'thread' with --engine or --hosts", "a thread is of this process"
        raise ChoiceError(message("--generator-engine", got=got, wanted="process", remedy=remedy))
    if hosts and given.engine == "processes":
        got = "given with --engine processes, which is of this machine"
        wanted = "--engine monarch, or --engine ray with RAY_ADDRESS"
        remedy = "start `purestep host` or `ray start` on each host"
        raise ChoiceError(message("--hosts", got=got, wanted=wanted, remedy=remedy))
    if given.transfer in ("ray", "monarch") and given.engine != given.transfer:
        got, wanted = f"{given.transfer!r} with --engine {given.engine}", f"--engine {given.transfer} as well"
        remedy = "its own processes alone can fetch so; or --transfer auto"
        raise ChoiceError(message("--transfer", got=got, wanted=wanted, remedy=remedy))


def _is_address(name: str) -> bool:
    """Return whether a name is HOST:PORT.

    >>> _is_address("10.0.0.2:7000"), _is_address("[::1]:7000"), _is_address("10.0.0.2"), _is_address("host:port")
    (True, True, False, False)
    """
    host, _, port = name.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and int(port) < 1 << 16


def _check_device(name: str, *, here: bool) -> None:
    """Refuse a device that does not exist, or one of this machine (`here`) that cannot hold tensors. Raises: ChoiceError."""
    if name == "cpu":
        return
    import torch  # here: help and the checks of all other flags need none

    try:
        if torch.device(name).type not in ("cpu", "meta") and not here:
            return
        fault = "" if torch.empty(0, device=name).device.type != "meta" else "it holds no numbers"
    except (RuntimeError, AssertionError) as error:  # torch asserts where it was built without that kind
        fault = (str(error).splitlines() or ["?"])[0]
    if fault:
        remedy = f"name devices of this machine ({fault[:80]})"
        raise ChoiceError(
            message("--devices", got=repr(name), wanted="cpu, or cuda:0 where there is one", remedy=remedy)
        )
