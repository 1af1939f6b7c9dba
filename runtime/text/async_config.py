"""Settings of asynchronous sampling and training, and the checks that refuse values with which a run could not work."""

from typing import Literal

from attrs import frozen

from ...core.errors import ChoiceError, check_within, message
from ..runs.arguments import check_whole, flag


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
    for name, least in (("generators", -1), ("generator_slots", 1), ("staleness", 0), ("tool_replicas", 0)):
        check_whole(flag(name), getattr(given, name), least)
    for name in ("patience", "tool_timeout"):
        check_within(flag(name), getattr(given, name), 1e-3)
    for device in given.named_devices():
        _check_device(device, here=not given.named_hosts() and given.engine != "ray")
    beside = generators > 0
    faults = (
        (
            given.mode == "sync" and given.staleness > AsyncConfig().staleness,
            "--staleness",
            f"{given.staleness} in turns",
            "--mode async as well",
            "in turns no sample is old",
        ),
        (
            given.mode == "async" and not beside,
            "--generators",
            given.generators,
            "at least 1 with --mode async",
            "let somebody sample beside the trainer",
        ),
        (
            beside and server,
            "--server",
            "given with generators",
            "one of the two",
            "a server samples for --mode sync --generators 0",
        ),
    )
    for fault, where, got, wanted, remedy in (*faults, *_faults_of_places(given, beside=beside)):
        if fault:
            raise ChoiceError(message(where, got=got, wanted=wanted, remedy=remedy))


def _faults_of_places(given: AsyncConfig, *, beside: bool) -> tuple[tuple[bool, str, object, str, str], ...]:
    """Return the possible faults of the hosts of generators: whether each applies, and the parts of its message."""
    hosts = given.named_hosts()
    elsewhere = bool(hosts) or given.engine != "processes"
    return (
        *(
            (
                given.engine == "monarch" and not _is_place(name),
                "--hosts",
                repr(name),
                "HOST:PORT",
                "e.g. 10.0.0.2:7000",
            )
            for name in hosts
        ),
        (len({*hosts}) < len(hosts), "--hosts", given.hosts, "each host once", "leave the second one out"),
        (
            elsewhere and not beside,
            "--engine and --hosts",
            "given without generators",
            "--generators as well, or --mode async",
            "let somebody work there",
        ),
        (
            elsewhere and given.generator_engine == "thread",
            "--generator-engine",
            "'thread' with --engine or --hosts",
            "process",
            "a thread is of this process",
        ),
        (
            bool(hosts) and given.engine == "processes",
            "--hosts",
            "given with --engine processes, which is of this machine",
            "--engine monarch, or --engine ray with RAY_ADDRESS",
            "start `purestep host` or `ray start` on each host",
        ),
        (
            given.transfer in ("ray", "monarch") and given.engine != given.transfer,
            "--transfer",
            f"{given.transfer!r} with --engine {given.engine}",
            f"--engine {given.transfer} as well",
            "its own processes alone can fetch so; or --transfer auto",
        ),
    )


def _is_place(name: str) -> bool:
    """Return whether a name is HOST:PORT.

    >>> _is_place("10.0.0.2:7000"), _is_place("[::1]:7000"), _is_place("10.0.0.2"), _is_place("host:port")
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
