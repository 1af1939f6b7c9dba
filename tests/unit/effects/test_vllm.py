"""Weights for a server: the old ones or the new are whole at every moment, and a server that has others is found out."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from attrs import define, field

from purestep.core.errors import ChoiceError
from purestep.runtime.effects.openai_server.client import Server
from purestep.runtime.effects.openai_server.sample import ServerError, server
from purestep.runtime.effects.openai_server.vllm_process import running
from purestep.runtime.effects.openai_server.vllm_weights import SERVED, lay_out, publish

httpx2 = pytest.importorskip("httpx2")
pytest.importorskip("openai")

PROBE = (3, 1, 2, 0)


def save(number: float, *, tied: bool | None = False, head: bool = True) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "config.json").write_text(json.dumps({} if tied is None else {"tie_word_embeddings": tied}))
        tensors = {"model.embed_tokens.weight": torch.full((4,), number)}
        tensors |= {"lm_head.weight": torch.full((4,), -number)} if head else {}
        safetensors.torch.save_file(tensors, str(folder / "model.safetensors"))

    return write


def served_number(root: Path) -> float:
    return float(safetensors.torch.load_file(str(root / SERVED / "model.safetensors"))["model.embed_tokens.weight"][0])


# --- the folder ---


def test_the_link_points_to_the_newest_weights_and_old_ones_go(tmp_path: Path) -> None:
    for version in range(4):
        assert lay_out(tmp_path, save(version), version=version) == tmp_path / SERVED
        assert served_number(tmp_path) == version
    assert {path.name for path in tmp_path.iterdir()} == {SERVED, "weights"}
    assert {path.name for path in (tmp_path / "weights").iterdir()} == {"version_000002", "version_000003"}


@pytest.mark.parametrize("keep", [0, 1, 2, 3, 4, 5, 6, 9])
def test_as_many_folders_are_kept_as_asked(tmp_path: Path, keep: int) -> None:
    for version in range(6):
        lay_out(tmp_path, save(version), version=version, keep=keep)
    newest = {f"version_{version:06d}" for version in range(max(0, 6 - max(1, keep)), 6)}
    assert {path.name for path in (tmp_path / "weights").iterdir()} == newest


def test_a_save_that_breaks_off_leaves_the_old_weights_and_can_be_repeated(tmp_path: Path) -> None:
    def break_off(folder: Path) -> None:
        save(1.0)(folder)
        raise OSError("disk full")

    lay_out(tmp_path, save(0.5), version=0)
    with pytest.raises(OSError, match="disk full"):
        lay_out(tmp_path, break_off, version=1)
    assert served_number(tmp_path) == 0.5
    lay_out(tmp_path, save(1.0), version=1)
    assert served_number(tmp_path) == 1.0
    assert {path.name for path in tmp_path.iterdir()} == {SERVED, "weights"}
    assert {path.name for path in (tmp_path / "weights").iterdir()} == {"version_000000", "version_000001"}


def test_a_version_that_is_laid_out_again_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    lay_out(tmp_path, save(1.0), version=5)
    before = (tmp_path / SERVED).resolve()
    lay_out(tmp_path, save(2.0), version=5)
    assert served_number(tmp_path) == 2.0
    assert float(safetensors.torch.load_file(str(before / "model.safetensors"))["lm_head.weight"][0]) == -1.0
    lay_out(tmp_path, save(3.0), version=3)  # a run that went back
    assert served_number(tmp_path) == 3.0
    assert {path.name for path in (tmp_path / "weights").iterdir()} == {"version_000005-2", "version_000003"}


@pytest.mark.parametrize("tied", [{"tied": True}, {"tied": None, "head": False}, {"tied": False, "head": False}])
def test_a_tied_head_is_refused_with_the_reason(tmp_path: Path, tied: dict[str, Any]) -> None:
    with pytest.raises(ChoiceError, match=r"tied to its embedding, .*; set tie_word_embeddings=False; vLLM leaves"):
        lay_out(tmp_path, save(1.0, **tied), version=0)
    assert not (tmp_path / SERVED).exists()


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ChoiceError, match=r"no model, wanted config\.json"):
        lay_out(tmp_path, lambda folder: None, version=0)


# --- the server ---


def _patience(request: Any) -> float:
    """Seconds after which a client gives a request up, which a transport is to see to."""
    return float(request.extensions["timeout"]["read"])


@define
class Engine:
    """A server with weights: log-probs are -number for each token, once it has loaded them."""

    root: Path
    number: float = 0.0
    loads: bool = True
    calls: list[tuple[str, Any]] = field(factory=list)
    statuses: dict[str, int] = field(factory=dict)  # of routes that answer nothing but it
    seconds: float = 0.0  # that loading takes

    def answer(self, path: str, body: Any) -> Any:
        self.calls.append((path, body))
        if path == "/collective_rpc":
            self.number = served_number(self.root) if self.loads else self.number
            return {"results": [None]}
        if path == "/v1/models":
            return {"data": [{"id": "tiny"}]}
        if path == "/v1/completions":
            rows = [None, *({str(token): {"logprob": -self.number}} for token in body["prompt"][1:])]
            return {"choices": [{"prompt_logprobs": rows}]}
        return None

    def server(self, **options: Any) -> Server:
        async def respond(request: Any) -> Any:
            path = request.url.path
            made = self.answer(path, json.loads(request.content or "null"))
            if path in self.statuses:
                return httpx2.Response(self.statuses[path])
            await asyncio.wait_for(asyncio.sleep(self.seconds * (path == "/collective_rpc")), _patience(request))
            return httpx2.Response(200) if made is None else httpx2.Response(200, json=made)

        carrier = httpx2.MockTransport(respond)
        options = {"retries": 0, **options}
        return server("http://fake/v1", "tiny", **options, http_client=lambda: httpx2.AsyncClient(transport=carrier))


def test_weights_are_loaded_the_cache_forgotten_and_the_probe_compared(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    gap = publish(engine.server(), tmp_path, save(0.5), version=7, probe=PROBE, log_probs=(-0.5, -0.5, -0.50005))
    assert gap == pytest.approx(5e-5)
    assert engine.calls[:3] == [
        ("/collective_rpc", {"method": "reload_weights"}),
        ("/reset_prefix_cache", {}),
        ("/update_weight_version", {"new_version": "7"}),
    ]
    assert engine.calls[-1][1]["prompt"] == list(PROBE)


def test_a_slow_load_is_asked_for_once(tmp_path: Path) -> None:
    engine = Engine(tmp_path, seconds=0.3)
    one = engine.server(timeout=0.1, retries=2)
    assert publish(one, tmp_path, save(0.5), version=1, probe=PROBE, log_probs=(-0.5,) * 3) == 0.0
    assert [path for path, _ in engine.calls].count("/collective_rpc") == 1
    engine.statuses["/collective_rpc"] = 503
    with pytest.raises(ServerError, match="answer is status 503"):
        publish(one, tmp_path, save(0.5), version=2, probe=PROBE, log_probs=(-0.5,) * 3)
    assert [path for path, _ in engine.calls].count("/collective_rpc") == 2


def test_a_server_need_not_know_versions_and_must_know_how_to_load(tmp_path: Path) -> None:
    engine = Engine(tmp_path, statuses={"/update_weight_version": 404})
    assert publish(engine.server(), tmp_path, save(0.5), version=1, probe=PROBE, log_probs=(-0.5,) * 3) == 0.0
    for route, status in [("/update_weight_version", 500), ("/reset_prefix_cache", 404), ("/collective_rpc", 404)]:
        engine.statuses = {route: status}
        with pytest.raises(ServerError, match=f"answer is status {status}"):
            publish(engine.server(), tmp_path, save(0.5), version=2, probe=PROBE, log_probs=(-0.5,) * 3)


def test_a_server_may_start_when_its_first_weights_are_there(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    publish(engine.server(), tmp_path, save(0.5), version=0, probe=PROBE, log_probs=(-0.5,) * 3, within=5.0)
    assert [path for path, _ in engine.calls][:2] == ["/v1/models", "/collective_rpc"]
    assert served_number(tmp_path) == 0.5


def test_a_server_with_stale_weights_is_found_out(tmp_path: Path) -> None:
    engine = Engine(tmp_path, loads=False)
    with pytest.raises(ServerError, match=r"log-probs of the probe is off by 0\.5, wanted 0\.0001"):
        publish(engine.server(), tmp_path, save(0.5), version=1, probe=PROBE, log_probs=(-0.5,) * 3)
    with pytest.raises(ServerError, match="off by nan"):
        publish(engine.server(), tmp_path, save(0.5), version=2, probe=PROBE, log_probs=(float("nan"),) * 3)


def test_a_probe_needs_a_log_prob_for_each_id_after_the_first(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    with pytest.raises(ChoiceError, match="publish: log_probs is 4, wanted 3"):
        publish(engine.server(), tmp_path, save(0.5), version=1, probe=PROBE, log_probs=(-0.5,) * 4)
    assert not engine.calls
    with pytest.raises(ChoiceError, match="publish: probe"):
        publish(engine.server(), tmp_path, save(0.5), version=1, probe=PROBE[:1], log_probs=())


@pytest.mark.parametrize(
    "rows", [None, [None], [None, *[{"9": {"logprob": -1.0}}] * 3], [None, *[{}] * 3], [None, {"1": {"logprob": "x"}}]]
)
def test_a_server_that_cannot_be_probed_says_so(tmp_path: Path, rows: Any) -> None:
    async def respond(request: Any) -> Any:
        await asyncio.sleep(0)
        return httpx2.Response(200, json={"choices": [{"prompt_logprobs": rows}]})

    carrier = httpx2.MockTransport(respond)
    one = server("http://fake/v1", "tiny", http_client=lambda: httpx2.AsyncClient(transport=carrier))
    with pytest.raises(ServerError, match="wanted a log-prob for each id after the first"):
        publish(one, tmp_path, save(0.5), version=1, probe=PROBE, log_probs=(-0.5,) * 3)


# --- the process ---


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        pytest.raises(ServerError, match=r"gone with exit code 1, wanted an API.*ends with: .*No module named 'vllm'"),
        running(Path(sys.executable), tmp_path, name="policy", log=log),
    ):
        pass


def test_a_server_that_is_never_ready_is_ended(tmp_path: Path) -> None:
    sleeper, log = script(tmp_path / "python", "#!/bin/sh\necho $$\nsleep 30\n"), tmp_path / "log"
    with (
        pytest.raises(ServerError, match=r"is not ready, wanted an API within 0\.3 s"),
        running(sleeper, tmp_path, name="policy", log=log, within=0.3),
    ):
        pass
    with pytest.raises(ProcessLookupError):
        os.kill(int(log.read_text()), 0)


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_port_that_is_taken_is_refused_before_anything_starts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with (
            pytest.raises(ServerError, match=rf"port is {port}, which cannot be had \(.*in use\), wanted a free one"),
            running(Path(sys.executable), tmp_path, name="policy", log=log, port=port),
        ):
            pass
    assert not log.exists()


def test_a_server_that_answers_for_one_that_has_ended_is_not_ours(tmp_path: Path) -> None:
    other = """
import http.server, os, sys, time
port = int(sys.argv[sys.argv.index("--port") + 1])
class Well(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
there, ours = http.server.HTTPServer(("127.0.0.1", port), Well), os.getpid()
if os.fork():
    os._exit(3)
while os.getppid() == ours:
    time.sleep(0.001)
there.serve_forever()
"""
    python, log = script(tmp_path / "python", f"#!{sys.executable}\n{other}"), tmp_path / "log"
    with (
        pytest.raises(ServerError, match="gone with exit code 3"),
        running(python, tmp_path, name="policy", log=log, within=20.0),
    ):
        pass


@pytest.mark.parametrize("own", ["", "7"])
def test_the_room_for_keys_and_values_is_the_users_if_they_say_so(
    own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    if own:
        monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", own)
    python, log = script(tmp_path / "python", "#!/bin/sh\necho room $VLLM_CPU_KVCACHE_SPACE\n"), tmp_path / "log"
    with pytest.raises(ServerError, match=f"room {own or 1}$"), running(python, tmp_path, name="policy", log=log):
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script")
def test_the_example_says_how_to_get_a_server(tmp_path: Path) -> None:
    script = Path(__file__).parents[3] / "examples" / "server_zorplex.sh"
    nowhere = {**os.environ, "VLLM_PYTHON": str(tmp_path / "python")}
    run = subprocess.run(["sh", str(script)], env=nowhere, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith(f"no vLLM at {tmp_path / 'python'}: set VLLM_PYTHON")
    assert list(tmp_path.iterdir()) == []
