"""Weights broadcast between hosts in namespaces of their own: a member's link goes down, the others know, and go on."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.runtime.effects.transfer import inlet, outlet
from purestep.runtime.effects.weights_layout import WeightsError

from .engine_spaces import Space
from .network_spaces import inside, limit, sent, switched
from .programs import until

pytestmark = pytest.mark.slow

NUMBERS = 1 << 20
PATIENCE = 2.0  # seconds in which a member must say something


def of(version: int) -> dict[str, Tensor]:
    return {"a": torch.arange(float(NUMBERS)) + version, "b": torch.full((7,), version, dtype=torch.uint8)}


def equal(found: Any, version: int) -> bool:
    return found[0] == version and all(torch.equal(found[1][name], leaf) for name, leaf in of(version).items())


class Member(threading.Thread):
    """A reader on a host, which fetches until the end, over groups that break."""

    def __init__(self, space: Space, address: str) -> None:
        super().__init__(daemon=True)
        self.space, self.address, self.over = space, address, threading.Event()
        self.versions, self.torn, self.errors = list[int](), list[int](), list[str]()
        self.start()

    def run(self) -> None:
        with inside(self.space), inlet(self.address, of(0), seconds=PATIENCE) as reader:
            version = -1
            while not self.over.is_set():
                try:
                    given = reader.fetch(version)
                except WeightsError as error:
                    self.errors.append(str(error))
                    continue
                if given:
                    torn = not (given[0] > version and equal(given, given[0]))
                    self.torn += [given[0]] if torn else []
                    version = given[0]
                    self.versions.append(version)
                time.sleep(0.01)

    def end(self) -> None:
        """Waits for the thread."""
        self.over.set()
        self.join(60.0)
        assert not self.is_alive()


def test_a_link_that_goes_down_is_known_to_all_and_those_who_are_left_go_on() -> None:
    with switched(3) as there, ThreadPoolExecutor(1) as pool:
        lost, kept, near = there
        limit(near, 5)
        made = outlet("broadcast", of(0), readers=2, host=near.address, seconds=PATIENCE, bucket=1 << 17)
        with inside(near):
            weights = made.__enter__()

        def publish(version: int) -> None:
            with inside(near):
                weights.publish(version, of(version))

        far, stays = members = [Member(space, weights.address) for space in (lost, kept)]
        publish(0)
        before = sent(near)
        publishing = pool.submit(publish, 1)
        until(lambda: sent(near) - before > NUMBERS, "a transfer is under way")
        lost.cut()
        with pytest.raises(
            WeightsError, match=r"^publish: broadcast is broken \(.*\), wanted all members; outlet\.renew"
        ):
            publishing.result(60.0)
        until(lambda: bool(stays.errors and far.errors), "both are told")
        weights.renew(1)
        for version in (2, 3):
            publish(version)
        until(lambda: len(far.errors) > 2, "it has tried three times")  # none of its fetches goes on for ever
        lost.mend()
        assert stays.versions == [0, 2, 3]
        until(lambda: any("the group is full" in line for line in far.errors), "it is told that the group is full")
        weights.renew(2)
        publish(4)
        until(lambda: all(member.versions[-1] == 4 for member in members), "all have the last version")
        for member in members:
            member.end()
        made.__exit__(None, None, None)
    assert stays.versions == [0, 2, 3, 4]
    assert far.versions == [0, 4]
    assert len(stays.errors) == 1
    for line in (*stays.errors, *far.errors):
        assert line.startswith(("fetch: ", "broadcast: "))
        assert "\n" not in line
    assert not stays.torn + far.torn
