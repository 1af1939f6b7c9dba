"""Generators that fetch by Ray's object store: a run whose node, a namespace with memory of its own, is killed and replaced."""

import os
import subprocess
import sys
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path

import pytest

from purestep.runtime.async_rl.replay import replay_phase
from purestep.runtime.async_rl.report import audit

from ...support.engine_spaces import Space, spaces
from ...support.programs import END, until
from ...support.ray_clusters import TOKEN, head, node
from ...unit.async_rl.test_asynchronous import TINY, learned_from

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("ray") is None, reason="Ray is an extra")]
COMMAND = [sys.executable, "-m", "purestep.runtime.cli.main"]
OWN = ("generator_engine", "mode")  # of the arguments, for which this test has others
STEPS = 30


def test_a_node_that_is_killed_is_replaced(tmp_path: Path) -> None:
    run, log, token = tmp_path / "run", tmp_path / "log", tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    given = {**{name: value for name, value in TINY.items() if name not in OWN}, "steps": STEPS, "generators": 1}
    words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    own = ["--mode=async", "--no-compare", "--engine=ray", f"--run={run}", "--hosts=away"]
    secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}

    def updates() -> int:
        path = run / "async" / "ledger.jsonl"
        return path.read_text().count("\n") if path.exists() else 0

    def away(space: Space, address: str) -> AbstractContextManager["subprocess.Popen[bytes]"]:
        names = ("--node-name=away", f"--node-ip-address={space.address}")
        return node(f"--address={address}", *names, within=space.apart, environment=secret)

    with spaces(1) as (space,), head(space.ours, environment=secret) as first, log.open("w") as said:
        subprocess.run(["ip", "-n", space.name, "route", "add", "default", "via", space.ours], check=True)
        command = [*COMMAND, "train", "zorplex", *own, *words]
        environment = {**os.environ, **secret, "RAY_ADDRESS": first.address}
        with away(space, first.address) as there:
            training = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=environment)
            alive = lambda: training.poll() is None  # noqa: E731
            try:
                until(lambda: updates() > 2, "update 3", alive=alive, said=log.read_text)
                there.kill()
                subprocess.run(["ip", "netns", "pids", space.name], check=True)
            except BaseException:
                training.kill()
                raise
        made = updates()
        try:
            with away(space, first.address):
                code = training.wait(4 * END)
        finally:
            training.kill()
    text = log.read_text()
    assert code == 0, text
    assert f"ray at {first.address} is spoken to with a token and without TLS" in text
    assert "weights go by ray: 2 hosts share Ray's object store" in text
    assert "generator 0 is lost" in text  # its host is not where another node takes its name before that is noticed
    assert TOKEN not in text
    assert all(TOKEN not in path.read_text(errors="ignore") for path in run.rglob("*.json*"))
    assert 2 < made < STEPS - 5
    heads = [head for *_, head, _, _ in learned_from(run, "async")]
    assert {*heads[-4:]} <= {STEPS - 2, STEPS - 1}  # versions that were there long after the node had been killed
    assert audit(run, "async").wrong == replay_phase(run, "async").wrong == ()
