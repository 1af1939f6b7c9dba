"""Weights broadcast to a fixed group: every byte, members that are lost, groups formed anew; and the way that is chosen."""

import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.core.errors import ChoiceError
from purestep.runtime.effects.transfer import Host, chosen, inlet, outlet, this_host
from purestep.runtime.effects.weights_layout import WeightsError

from .programs import first_line

NUMBERS = 100_000
READER = """
import sys, time, torch
from purestep.runtime.effects.transfer import inlet

like = {"a": torch.zeros(100_000), "b": torch.zeros(7, dtype=torch.uint8)}
with inlet(sys.argv[1], like) as reader:
    version = -1
    while version < 0:
        for version, params in [found] if (found := reader.fetch()) else []:
            print(version, float(params["a"].sum()), flush=True)
    time.sleep(600.0)
"""


def of(version: int) -> dict[str, Tensor]:
    return {"a": torch.arange(float(NUMBERS)) + version, "b": torch.full((7,), version, dtype=torch.uint8)}


def equal(found: Any, version: int) -> bool:
    return found[0] == version and all(torch.equal(found[1][name], leaf) for name, leaf in of(version).items())


class Member(threading.Thread):
    """A reader that fetches up to a version, over groups that break."""

    def __init__(self, address: str, last: int, *, keeps: bool = False) -> None:
        super().__init__(daemon=True)
        self.address, self.last, self.keeps = address, last, keeps
        self.found, self.errors = list[Any](), list[str]()

    def run(self) -> None:
        with inlet(self.address, of(0), seconds=20.0) as reader:
            version, into = -1, ()
            while version < self.last:
                try:
                    given = reader.fetch(version, into)
                except WeightsError as error:
                    self.errors.append(str(error))
                    continue
                if given:
                    self.found.append(given[0] > version and equal(given, given[0]))
                    version, into = given[0], given[1] if self.keeps else ()
                time.sleep(0.005)


def test_everybody_gets_each_publication_and_a_lost_member_is_told_to_all() -> None:
    with outlet("broadcast", of(0), readers=2, seconds=20.0, bucket=1 << 17) as weights:
        short, long = Member(weights.address, 1), Member(weights.address, 4, keeps=True)
        for member in (short, long):
            member.start()
        for version in (0, 1):
            weights.publish(version, of(version))
        short.join(30.0)
        with pytest.raises(
            WeightsError, match=r"^publish: broadcast is broken \(.*\), wanted all members; outlet\.renew"
        ):
            weights.publish(2, of(2))
        with pytest.raises(WeightsError, match="a reader was lost"):
            weights.publish(2, of(2))
        weights.renew(1)
        for version in (3, 4):
            weights.publish(version, of(version))
        long.join(30.0)
        assert short.found == [True, True]
        assert long.found == [True] * 4
        assert len(long.errors) == 1
        assert not short.errors
        with (
            inlet(weights.address, of(0)) as late,
            pytest.raises(WeightsError, match="the group is full with 1 readers"),
        ):
            late.fetch()


def test_what_is_not_as_it_should_be_is_refused() -> None:
    for options, says in (({"readers": 0}, "readers is 0"), ({"readers": 1, "bucket": 0}, "bucket is 0")):
        with pytest.raises(ChoiceError, match=says), outlet("broadcast", of(0), **options):
            pass
    with outlet("broadcast", of(0), readers=1) as weights:
        other = {"a": torch.zeros(3), "b": torch.zeros(7, dtype=torch.uint8)}
        named = pytest.raises(WeightsError, match=re.escape("a is [100000] float32, wanted [3] float32"))
        with named, inlet(weights.address, other):
            pass
        with pytest.raises(WeightsError, match=re.escape("publish: a is [3] float32, wanted [100000] float32")):
            weights.publish(0, other)
        with inlet(weights.address, of(0)) as reader:
            assert reader.fetch() == ()
            assert not reader.closed()
    with pytest.raises(ChoiceError, match="wanted broadcast://HOST:PORT"), inlet("broadcast://nowhere", of(0)):
        pass


def test_a_reader_that_never_comes_is_an_error_in_time() -> None:
    with outlet("broadcast", of(0), readers=1, seconds=2.0) as weights:
        with pytest.raises(WeightsError, match="broken"):
            weights.publish(0, of(0))
        with inlet(weights.address, of(0)) as reader:
            weights.renew(1)
            thread = threading.Thread(target=lambda: fetched(reader), daemon=True)
            thread.start()
            weights.publish(0, of(0))
            thread.join(20.0)
            assert not thread.is_alive()


def fetched(reader: Any) -> Any:
    while not (found := reader.fetch()):
        time.sleep(0.005)
    assert equal(found, 0)


@pytest.mark.slow
def test_a_reader_whose_process_is_killed_is_an_error_in_time() -> None:
    with outlet("broadcast", of(0), readers=1, seconds=60.0) as weights:
        words = [sys.executable, "-c", READER, weights.address]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            weights.publish(0, of(0))
            assert first_line(process).split() == ["0", str(float(of(0)["a"].sum()))]
            process.kill()
            process.wait()
        with pytest.raises(WeightsError, match="broken"):
            weights.publish(1, of(1))


def test_the_way_is_chosen_by_what_this_machine_has(tmp_path: Path) -> None:
    said: list[str] = []
    assert chosen([this_host(), this_host()], report=said.append).way == "shared"
    assert said == ["weights go by shared: all processes see the same memory"]
    boot, devices = tmp_path / "boot", tmp_path / "infiniband"
    boot.write_text("another machine\n")
    there = this_host(boot=boot, devices=devices)
    assert not there.verbs
    assert chosen([this_host(), there], report=said.append).way == "tcp"
    assert chosen([this_host(), there], fixed=True, report=said.append).way == "broadcast"
    (devices / "mlx5_0").mkdir(parents=True)
    assert this_host(boot=boot, devices=devices).verbs
    able = [Host(name=name, memory=name, monarch=True, verbs=True) for name in "ab"]
    assert chosen(able, report=said.append).way == "monarch"
    assert all("\n" not in line for line in said)
    with pytest.raises(ChoiceError, match="hosts is none, wanted at least 1"):
        chosen([])
