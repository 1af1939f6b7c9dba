"""Names of a given Ray's nodes as hosts, also where a node comes back before Ray has noticed that it was gone."""

from types import SimpleNamespace
from typing import Any

import pytest

from purestep.runtime.effects.cluster.local.cluster import State
from purestep.runtime.effects.cluster.local.members import ENDED, HostAccess
from purestep.runtime.effects.cluster.ray import existing_cluster


def test_a_node_that_replaces_one_of_its_name_gets_the_name_once_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    def place(ray: Any, number: str, *given: Any, **named: Any) -> HostAccess:
        ignore = lambda *told: None  # noqa: E731
        return HostAccess(ignore, ignore, ignore, lambda: closed.append(number))

    monkeypatch.setattr(existing_cluster, "on_node", place)
    nodes: list[dict[str, Any]] = []
    ray = SimpleNamespace(nodes=lambda: nodes, get_runtime_context=lambda: SimpleNamespace(get_node_id=lambda: "0"))
    state = State()
    given = existing_cluster.ExistingCluster(ray, state)

    def seen(**alive: bool) -> tuple[str, ...]:
        nodes[:] = [
            {"NodeID": number, "NodeName": "gpu", "NodeManagerPort": 71, "Alive": there}
            for number, there in alive.items()
        ]
        given.look()
        return state.hosts()

    assert seen(first=True) == ("gpu",)
    assert seen(first=True, second=True) == ("gpu", "gpu:71")
    assert seen(first=False, second=True) == ("gpu",)
    assert given.numbers == {"gpu": "second"}
    assert closed == ["second"]  # members that were begun under the other name end
    assert seen(second=True) == ("gpu",)
    nodes[0]["Alive"] = False
    given.pass_report(
        ENDED, (0, 0), b"its process ended (The node specified via NodeAffinitySchedulingStrategy doesn't exist)"
    )
    assert state.hosts() == ()  # before another member is asked for on it
    state.stop(timeout=1.0)
