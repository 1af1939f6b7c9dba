"""Keys and tokens of engines: which are used, that others cannot read them, and what wants a network that is trusted."""

from pathlib import Path

import pytest

from purestep.core.errors import ChoiceError
from purestep.runtime.effects.cluster import open_cluster
from purestep.runtime.effects.cluster.interface import EngineError
from purestep.runtime.effects.cluster.security import MONARCH, RAY, describe_security, monarch_scheme, ray_security
from purestep.runtime.effects.distributed.launched import within_machine


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A certificate, a key, an authority and a token, which their owner alone can read."""
    made = {name: tmp_path / name for name in ("cert", "key", "ca", "token")}
    for path in made.values():
        path.write_text("0123456789abcdef" * 4)
        path.chmod(0o600)
    return made


def test_tls_of_monarch_wants_all_its_files_and_a_key_of_ones_own(files: dict[str, Path]) -> None:
    named: dict[str, str] = dict(zip(MONARCH, (str(files[name]) for name in ("cert", "key", "ca")), strict=True))
    assert (monarch_scheme({}), monarch_scheme(named)) == ("tcp", "tls")
    for name in MONARCH:
        with pytest.raises(EngineError, match=f"^{name} is not set, wanted a file; name all of HYPERACTOR_TLS_CERT"):
            monarch_scheme({**named, name: ""})
        with pytest.raises(EngineError, match=f"^{name} is /nowhere, no file, wanted a file"):
            monarch_scheme({**named, name: "/nowhere"})
    for mode in (0o640, 0o604, 0o644):
        files["key"].chmod(mode)
        with pytest.raises(
            EngineError, match=rf"^HYPERACTOR_TLS_KEY: .* is readable by others \({mode:o}\), wanted 600; chmod"
        ):
            monarch_scheme(named)


def test_token_and_tls_of_ray(files: dict[str, Path]) -> None:
    token = {"RAY_AUTH_TOKEN_PATH": str(files["token"])}
    named = dict(zip(RAY, (str(files[name]) for name in ("cert", "key", "ca")), strict=True))
    assert ray_security(token) == (True, False)
    assert ray_security({"RAY_AUTH_TOKEN": "secret"}) == (True, False)
    assert ray_security({"RAY_AUTH_TOKEN_PATH": "/nowhere"}) == (False, False)
    assert ray_security({**token, "RAY_AUTH_MODE": "disabled"}) == (False, False)
    assert ray_security({**token, **named, "RAY_USE_TLS": "1"}) == (True, True)
    with pytest.raises(EngineError, match=r"^RAY_TLS_CA_CERT is not set"):
        ray_security({**named, "RAY_USE_TLS": "1", "RAY_TLS_CA_CERT": ""})
    for name, variable in (("token", "RAY_AUTH_TOKEN_PATH"), ("key", "RAY_TLS_SERVER_KEY")):
        files[name].chmod(0o644)
        with pytest.raises(EngineError, match=rf"^{variable}: .* is readable by others \(644\), wanted 600; chmod 600"):
            ray_security({**token, **named, "RAY_USE_TLS": "1"})
        files[name].chmod(0o600)


def test_a_key_that_others_can_read_opens_nothing(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """And no line has the secret."""
    files["token"].chmod(0o644)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(files["token"]))
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(EngineError, match=r"readable by others|is not installed") as raised, open_cluster("ray"):
        pass
    assert "0123456789abcdef" not in str(raised.value)
    files["token"].chmod(0o600)
    line = describe_security("ray", "")
    assert line == "ray at 10.0.0.1:6379 is spoken to with a token and without TLS"
    assert describe_security("monarch", "10.0.0.2:7000", {}).endswith(
        "without TLS: whoever reaches its ports can run code there"
    )


@pytest.mark.parametrize("rank", ["0", "1"])
def test_ranks_on_several_machines_want_a_network_that_is_trusted(monkeypatch: pytest.MonkeyPatch, rank: str) -> None:
    given = {"RANK": rank, "WORLD_SIZE": "2", "MASTER_PORT": "29400", "MASTER_ADDR": "10.0.0.1"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    with pytest.raises(SystemExit if rank == "1" else ChoiceError) as raised:
        within_machine()
    if rank == "0":
        assert str(raised.value) == (
            "ranks: MASTER_ADDR is 10.0.0.1, and what ranks exchange is not encrypted, wanted a network that is trusted; "
            "--trust-network, where it is your own"
        )
    for name, value in (("MASTER_ADDR", "127.0.0.1"), ("MASTER_ADDR", "localhost"), ("LOCAL_WORLD_SIZE", "2")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            within_machine()
