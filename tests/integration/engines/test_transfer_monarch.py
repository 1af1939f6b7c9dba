"""Weights by Monarch's buffers: every byte between processes, lapped readers, the end, and a publisher that is killed."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from purestep.runtime.effects.weight_sync.hosts import DEVICES

here = importlib.util.find_spec("monarch") is not None  # an import would start Monarch's threads in this process
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not here, reason="the extra monarch is not installed")]

PROGRAM = '''
import json
import os
import signal
import time

import monarch.actor
import torch
from monarch.actor import Actor, endpoint, this_host, this_proc

from purestep.core.errors import PurestepError
from purestep.runtime.effects.weight_sync import weight_reader, weight_publisher


def of(version):
    return {"a": torch.arange(500_000.0) + version, "b": torch.full((7,), version, dtype=torch.uint8)}


def right(found):
    return all(torch.equal(found[1][name], leaf) for name, leaf in of(found[0]).items())


class Reader(Actor):
    @endpoint
    def fetched(self, address, last, lends):
        """The versions fetched up to this one, and whether every byte of each was right."""
        versions, good, into = [], True, ()
        with weight_reader(address, of(0)) as reader:
            while not versions or versions[-1] < last:
                found = reader.fetch(versions[-1] if versions else -1, into)
                if found:
                    versions.append(found[0])
                    good = good and right(found)
                    into = found[1] if lends else ()
        return versions, good

    @endpoint
    def asked(self, address):
        """What there is for a reader that knows nothing, and whether more may come."""
        with weight_reader(address, of(0)) as reader:
            return len(reader.fetch()), reader.closed()


class Trainer(Actor):
    @endpoint
    def published(self):
        """Publishes, and goes on to live."""
        self.opened = weight_publisher("monarch", of(0))
        weights = self.opened.__enter__()
        weights.publish(0, of(0))
        return weights.address, os.getpid()


def fetched_as(address, like):
    with weight_reader(address, like) as reader:
        return reader.fetch()


def said(act):
    try:
        return repr(act())
    except PurestepError as error:
        return str(error)


if __name__ == "__main__":
    monarch.actor.unhandled_fault_hook = lambda failure: None
    told, owned, spawn = {}, [], type(this_proc()).spawn
    type(this_proc()).spawn = lambda *given: owned.append(spawn(*given)) or owned[-1]
    procs = this_host().spawn_procs(per_host={"gpus": 1})
    reader = procs.spawn("reader", Reader)
    owned.clear()
    with weight_publisher("monarch", of(0), slots=2, chunk=1 << 18) as weights:
        told["nothing yet"] = reader.asked.call_one(weights.address).get(timeout=60)
        weights.publish(0, of(0))
        told["one"] = reader.fetched.call_one(weights.address, 0, False).get(timeout=60)
        for lends in (False, True):
            first = 1 if not lends else told["lapped"][0][-1] + 1
            waiting, version = reader.fetched.call_one(weights.address, first + 19, lends), first
            while version < first + 20:
                weights.publish(version, of(version))
                version += 1
                time.sleep(0.01)
            told["lent" if lends else "lapped"] = waiting.get(timeout=120)
        owned[0].stop().get(timeout=60)
        told["stopped"] = said(lambda: fetched_as(weights.address, of(0)))
        told["renewed"] = weights.renewed() not in (weights.address, "") and weights.renewed() == weights.renewed()
        told["from the new one"] = right(fetched_as(weights.renewed(), of(0)))
        told["another"] = said(lambda: fetched_as(weights.renewed(), {"a": torch.zeros(3), "b": of(0)["b"]}))
        told["goes back"] = said(lambda: weights.publish(3, of(3)))
    told["torn"] = said(lambda: fetched_as(weights.address[:60], of(0)))
    told["ended"] = reader.asked.call_one(weights.renewed()).get(timeout=60)
    other = this_host().spawn_procs(per_host={"gpus": 1})
    address, pid = other.spawn("trainer", Trainer).published.call_one().get(timeout=60)
    with weight_reader(address, of(0)) as weights:
        told["of another process"] = right(weights.fetch())
        os.kill(pid, signal.SIGKILL)
        told["killed"] = said(lambda: weights.fetch(-1, (), 20.0))
        told["closed"] = weights.closed()
    monarch.configure(rdma_allow_tcp_fallback=False)
    told["without devices"] = said(lambda: weight_publisher("monarch", of(0)).__enter__())
    print(json.dumps(told), flush=True)
    os._exit(0)
'''


def test_every_byte_comes_whatever_happens_to_the_publisher(tmp_path: Path) -> None:
    """One program for all, since Monarch's client is one for a process and cannot be had anew."""
    path = tmp_path / "transfers.py"
    path.write_text(PROGRAM)
    run = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)
    assert run.returncode == 0, run.stderr[-2000:]
    told = json.loads(run.stdout.splitlines()[-1])
    assert told["nothing yet"] == [0, False]
    assert told["one"] == [[0], True]
    for name in ("lapped", "lent"):
        versions, good = told[name]
        assert good
        assert versions == sorted(set(versions))
    assert told["stopped"].startswith("fetch: monarch is not to be had (SupervisionError: ")
    assert told["renewed"] is True
    assert told["from the new one"] is True
    assert "a is [500000] float32, wanted [3] float32" in told["another"]
    assert told["goes back"].startswith("publish: version is 3, wanted at least")
    assert told["torn"].startswith("weight_reader: address is 'monarch://")
    assert told["ended"] == [0, True]
    assert told["of another process"] is True
    assert told["killed"].startswith("fetch: monarch is not to be had (")
    assert told["closed"] is True
    assert told["without devices"].startswith("monarch: a buffer is not to be had (") or DEVICES.is_dir()
