"""Generators that fetch by Monarch's buffers: a run whose host, a namespace with memory of its own, is killed and comes again.

Monarch is one for a process, so that the run is a process of its own. Without a device for RDMA its buffers go over TCP.
"""

import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path

import pytest

from purestep.runtime.async_rl.replay import replay_phase
from purestep.runtime.async_rl.report import audit

from ...support.engine_spaces import Space, spaces
from ...support.programs import END, host, until
from ...unit.async_rl.test_asynchronous import TINY, learned_from

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("monarch") is None, reason="Monarch is an extra")]
COMMAND = [sys.executable, "-m", "purestep.runtime.cli.main"]
OWN = ("generator_engine", "mode")  # of the arguments, for which this test has others
WAY = "RDMA on none of them; Monarch's buffers fall back to TCP"
STEPS = 20


def there(space: Space) -> AbstractContextManager[tuple["subprocess.Popen[str]", str]]:
    """`purestep host` in a namespace."""
    return host(f"{space.address}:7000", within=space.apart)


def test_whoever_comes_in_the_place_of_a_killed_host_fetches_as_well(tmp_path: Path) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    given = {**{name: value for name, value in TINY.items() if name not in OWN}, "steps": STEPS, "generators": 1}
    words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    own = ["--mode=async", "--no-compare", "--engine=monarch", "--transfer=monarch", "--trust-network", f"--run={run}"]

    def updates() -> int:
        path = run / "async" / "ledger.jsonl"
        return path.read_text().count("\n") if path.exists() else 0

    with spaces(1) as (space,):
        subprocess.run(["ip", "-n", space.name, "route", "add", "default", "via", space.ours], check=True)
        with there(space) as (first, address), log.open("w") as said:
            command = [*COMMAND, "train", "zorplex", *own, *words, f"--hosts={address}"]
            with subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT) as training:
                try:
                    until(lambda: updates() > 2, "update 3", alive=lambda: training.poll() is None, said=log.read_text)
                    os.kill(first.pid, signal.SIGKILL)
                    first.wait()
                    made = updates()
                    with there(space):
                        code = training.wait(2 * END)
                finally:
                    training.kill()
    text = log.read_text()
    assert code == 0, text
    assert WAY in text
    assert f"host {address} is there again" in text
    assert 2 < made < STEPS - 5
    heads = [head for *_, head, _, _ in learned_from(run, "async")]
    assert {*heads[-4:]} <= {STEPS - 2, STEPS - 1}  # versions that were there long after the host had been killed
    assert audit(run, "async").wrong == replay_phase(run, "async").wrong == ()
