"""A cluster of Slurm on this machine: its own daemons, and network namespaces as nodes, with addresses and memory of their own.

Needs root, and Slurm itself: on Debian `apt install slurmctld slurmd slurm-client munge`. Nothing of an installation that is
there is touched: configuration, key and state are in a folder of the cluster's own, which is gone with it.
"""

import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from attrs import frozen

from .engine_hosts import namespaces

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "ip", "unshare")
START = 60.0  # seconds in which all nodes have to be there
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
OWN = "hostname {name}; mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs tmpfs /sys/fs/cgroup; exec slurmd -D -f {config}"
CGROUP = "CgroupPlugin=cgroup/v1\nCgroupAutomount=yes\nCgroupMountpoint=/sys/fs/cgroup\n"
CONFIG = """ClusterName=namespaces
SlurmctldHost=login({ours})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
KillWait=30
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@frozen
class Slurm:
    """A cluster that is up."""

    config: Path
    version: str
    nodes: tuple[str, ...]

    def says(self, *words: str, env: Mapping[str, str] | None = None) -> str:
        """What a command of Slurm prints. Raises: CalledProcessError."""
        own = {**os.environ, **(env or {}), "SLURM_CONF": str(self.config)}
        return subprocess.run(words, env=own, check=True, capture_output=True, text=True).stdout.strip()

    def submitted(self, script: Path, *words: str, options: Sequence[str] = (), env: Mapping[str, str]) -> str:
        """Submits a job script; gives the job's number."""
        return self.says("sbatch", "--parsable", *options, str(script), *words, env=env)

    def state(self, job: str) -> str:
        """Of a job: RUNNING, COMPLETED, ...

        Slurm forgets jobs some minutes after they have ended.
        """
        told = self.says("scontrol", "show", "job", job)
        return next(word.partition("=")[2] for word in told.split() if word.startswith("JobState="))

    def over(self, job: str) -> bool:
        """Whether a job has ended, however."""
        return self.state(job) in ENDED


@contextmanager
def slurm(folder: Path, count: int) -> Iterator[Slurm]:
    """A cluster of so many nodes, node0 and on, for a block; jobs that are not over then are killed. Raises: RuntimeError."""
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        raise RuntimeError(
            f"there is no {missing[0]}: as root on Debian, apt install slurmctld slurmd slurm-client munge"
        )
    with ExitStack() as stack:
        places = stack.enter_context(namespaces(count))  # at its end it kills what runs there: jobs outlive slurmd
        if not all(space for _, space in places):
            raise RuntimeError("nodes of Slurm are network namespaces, which are not allowed here: be root")
        names = [f"node{number}" for number in range(count)]
        ours = places[0][0].rpartition(".")[0] + ".1"
        config = _configured(folder, ours, {name: address for name, (address, _) in zip(names, places, strict=True)})
        for _, space in places:
            stack.enter_context(_named(space, folder / "hosts"))
        stack.enter_context(_daemon(folder / "munged.log", *_munged(folder)))
        login = f"hostname login; exec slurmctld -D -f {config}"
        stack.enter_context(_daemon(folder / "controller.log", "unshare", "--uts", "sh", "-c", login))
        for name, (_, space) in zip(names, places, strict=True):
            inside = OWN.format(name=name, config=config)
            words = ("ip", "netns", "exec", space, "unshare", "--uts", "sh", "-c", inside)
            stack.enter_context(_daemon(folder / f"{name}.log", *words))
        found = Slurm(config, _version(), tuple(names))
        _awaited(found, count)
        yield found


def _version() -> str:
    return subprocess.run(["slurmd", "-V"], check=True, capture_output=True, text=True).stdout.strip()


def _configured(folder: Path, ours: str, addresses: Mapping[str, str]) -> Path:
    """Writes the cluster's configuration; gives its file."""
    nodes = [f"NodeName={name} NodeAddr={address} CPUs=8 RealMemory=4000" for name, address in addresses.items()]
    (folder / "state").mkdir()
    (folder / "cgroup.conf").write_text(CGROUP)
    lines = ["127.0.0.1 localhost", f"{ours} login", *(f"{address} {name}" for name, address in addresses.items())]
    (folder / "hosts").write_text("\n".join(lines) + "\n")
    config = folder / "slurm.conf"
    config.write_text(CONFIG.format(ours=ours, folder=folder, nodes="\n".join(nodes)))
    return config


@contextmanager
def _named(space: str, hosts: Path) -> Iterator[None]:
    """Lets processes of a namespace know nodes by their names: `ip netns exec` puts this file in the place of /etc/hosts."""
    place = Path("/etc/netns") / space
    place.mkdir(parents=True)
    shutil.copy(hosts, place / "hosts")
    try:
        yield
    finally:
        shutil.rmtree(place)


def _munged(folder: Path) -> tuple[str, ...]:
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(64))
    key.chmod(0o600)
    files = {"key-file": key, **{name: folder / f"munge.{name}" for name in ("socket", "pid", "seed", "log")}}
    names = {"pid": "pid-file", "seed": "seed-file", "log": "log-file"}
    return ("munged", "--foreground", "--force", *(f"--{names.get(name, name)}={path}" for name, path in files.items()))


@contextmanager
def _daemon(log: Path, *words: str) -> Iterator[None]:
    with log.open("wb") as file:
        process = subprocess.Popen(words, stdout=file, stderr=file, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _awaited(cluster: Slurm, count: int) -> None:
    until, idle, why = time.perf_counter() + START, 0, ""
    while idle < count:
        try:
            idle = cluster.says("sinfo", "--noheader", "--Node", "--format=%t").split().count("idle")
        except subprocess.CalledProcessError as error:
            why = error.stderr
        if time.perf_counter() > until:
            logs = "\n".join(path.read_text(errors="replace")[-500:] for path in cluster.config.parent.glob("*.log"))
            raise RuntimeError(f"{idle} of {count} nodes of Slurm are there: {why}\n{logs}")
        time.sleep(0.2)
