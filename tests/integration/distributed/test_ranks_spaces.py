"""Training on ranks on two hosts: a slow line between them changes no bit, and one that goes down ends both with one line."""

import json
import re
from pathlib import Path

import pytest

from ...support.forks import forks
from ...support.network_spaces import line, switched
from ...support.programs import until

pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

LINE = re.compile(
    r"ranks: rank \d is without another in training \(.*\), wanted all 2 at work; start all of them again .*\n"
)


def test_a_slow_line_changes_no_bit_and_one_that_goes_down_ends_all(tmp_path: Path) -> None:
    def met(number: int) -> bool:
        return all((tmp_path / f"{number}-{rank}").exists() for rank in range(2))

    with switched(2) as there, line(*there) as (wire, address, _), forks("ranks_hosts") as server:
        usual = {"MASTER_ADDR": address, "MASTER_PORT": 7000, "WORLD_SIZE": 2}
        children = [
            server.start(
                tmp_path / f"told{rank}",
                tmp_path,
                module="ranks_hosts",
                space=there[rank].name,
                environment={"RANK": rank, "GLOO_SOCKET_IFNAME": wire.names[rank], **usual},
            )
            for rank in range(2)
        ]
        until(lambda: met(0), "both ranks are there for the first time")
        before, wire.delay = wire.carried, 0.01
        (tmp_path / "go0").touch()
        until(lambda: met(1), "both ranks are there for the second time")
        assert wire.carried - before > 50
        found = [json.loads((tmp_path / f"{number}-{rank}").read_text()) for number in range(2) for rank in range(2)]
        assert len({json.dumps(each) for each in found}) == 1
        assert len(set(found[0])) == len(found[0]) > 2
        wire.delay = 0.0
        (tmp_path / "go1").touch()
        until(lambda: met(2), "both ranks are there for the third time")
        wire.down = True
        assert [server.code(child) for child in children] == [1, 1]
        told = [(tmp_path / f"told{rank}").read_text() for rank in range(2)]
        assert all(LINE.fullmatch(each) for each in told), told
