"""The files of examples/cluster ask for what there is: each is run with stand-ins for Slurm, for nodes, and for what it starts.

What its `purestep ...` are given is noted, and read by the real command line.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

pytest.importorskip("transformers", reason="the extra llm is not installed")

from purestep.runtime.cli import main
from purestep.runtime.effects import cluster as engine
from purestep.runtime.runs import run as runs
from purestep.runtime.runs.kinds import with_generators
from purestep.runtime.text import run as session
from purestep.runtime.text.config import generator_count

from ...support import run_folders
from ...support.programs import END, free_port, until

ROOT = Path(__file__).parents[3]
CLUSTER = ROOT / "examples" / "cluster"
PAGE = (ROOT / "docs" / "scaling.md").read_text()
BLOCKS = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
NODES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
Words = list[str]

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("bash") is None,
    reason="needs bash, and Linux's addresses of a machine's own",
)

SCONTROL = 'printf "%s\\n" $NODES'
SRUN = """
for word; do
    case $word in
        --nodelist=*) nodes=${word#*=} ;;
        --ntasks=*) export SLURM_NTASKS=${word#*=} ;;
        --*) ;;
        *) break ;;
    esac
    shift
done
export SLURM_PROCID=0 SLURM_LOCALID=0 SLURMD_NODENAME=${nodes%%,*}
exec "$@"
"""
PROGRAM = """
import json, os, pathlib, signal, socket, sys, time
notes, words = pathlib.Path(os.environ["NOTES"]), sys.argv[1:]
names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"]
names += ["RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"]
note = {"words": words, "env": {name: os.environ[name] for name in names if name in os.environ}}
(notes / f"part-{os.getpid()}").write_text(json.dumps(note))
(notes / f"part-{os.getpid()}").rename(notes / f"note-{os.getpid()}")
if words[0] in ("host", "start") and "--head" not in words and words[0] == "start":
    sys.exit(0)
if words[0] in ("host", "start"):
    listeners = [socket.create_server((node, int(os.environ["PORT"]))) for node in os.environ["NODES"].split()]
elif words[0] in ("train", "resume"):
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))  # as srun passes it on with --disable-status
    served = pathlib.Path(os.environ["RUN"], "served", "served")
    served.mkdir(parents=True, exist_ok=True)
    while len([*notes.glob("note-*")]) < int(os.environ.get("PROGRAMS", "2")):
        time.sleep(0.01)
    (notes / "learning").touch()
    if "STAY" not in os.environ:
        sys.exit(0)
time.sleep(60)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with stand-ins, first in PATH."""
    programs = tmp_path / "programs"
    programs.mkdir()
    python = f"#!{sys.executable} -S\n{PROGRAM}"
    shell = f"#!{shutil.which('bash')}\n"
    stand_ins = {"scontrol": shell + SCONTROL, "srun": shell + SRUN, "purestep": python, "vllm": python, "ray": python}
    for name, text in stand_ins.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (tmp_path / "notes").mkdir()
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    monkeypatch.setenv("SLURM_JOB_NODELIST", "all")
    monkeypatch.setenv("NODES", " ".join(NODES))
    monkeypatch.setenv("SAMPLING", " ".join(NODES[1:]))
    monkeypatch.setenv("RUN", str(tmp_path / "a run"))
    monkeypatch.setenv("VLLM", str(programs / "vllm"))
    monkeypatch.setenv("PORT", "0")
    return tmp_path


class Job:
    """A script at work, and all that it has started, which goes with it as with a job."""

    def __init__(self, place: Path, *words: str) -> None:
        self.place = place
        for note in (place / "notes").iterdir():
            note.unlink()
        self.popen = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )

    def ended(self) -> tuple[int, str]:
        """Its exit code and what it said."""
        try:
            code = self.popen.wait(END)
        finally:
            said = self.killed()
        return code, said

    def killed(self) -> str:
        """What it said until all of it was killed."""
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        return self.popen.communicate()[0]

    def notes(self) -> dict[str, dict[str, Any]]:
        """What each program was given, by the first word."""
        found = [json.loads(path.read_text()) for path in (self.place / "notes").glob("note-*")]
        return {note["words"][0]: note for note in found}

    def all_words(self) -> list[Words]:
        """Return the words that each program was given, also those of one name."""
        return [json.loads(path.read_text())["words"] for path in (self.place / "notes").glob("note-*")]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The real command line, which reads and checks and then does no work: gives what it would have done."""
    noted: list[str] = []

    def note(name: str, beside: Callable[..., Any] | tuple[()] = ()) -> Any:
        def work(*given: Any, **named: Any) -> Any:
            how = () if isinstance(beside, tuple) else ("at once" if beside(*given) else "in turns",)
            noted.append(" ".join((name, *how)))
            raise KeyboardInterrupt

        return work

    monkeypatch.setattr(engine, "serve_host", note("host"))
    monkeypatch.setattr(runs, "start", note("train", lambda run, recipe, arguments: generator_count(arguments)))
    monkeypatch.setattr(session, "resume", note("resume", with_generators))

    def line(words: Words) -> str:
        noted.clear()
        assert main.main(words) == 130, words
        return noted[0]

    return line


def begun(run: Path, **arguments: Any) -> None:
    """Leaves what a run that has begun leaves."""
    run_folders.begun(run, {"recipe": "zorplex", "generators": -1, **arguments})


def submissions(script: str) -> list[Words]:
    """The words that the page gives to a script, and those that the script's own comment does."""
    text = (CLUSTER / script).read_text()
    lines = [*(line for block in BLOCKS for line in block.splitlines()), *re.findall(r"^#\s+(RUN=.*)$", text, re.M)]
    found = [shlex.split(line, comments=True) for line in lines if script in line and "sbatch" in line]
    return [words[next(i for i, word in enumerate(words) if word.endswith(script)) + 1 :] for words in found]


@pytest.mark.parametrize("script", sorted(path.name for path in CLUSTER.glob("*.sh")))
def test_a_script_is_bash(script: str) -> None:
    subprocess.run(["bash", "-n", str(CLUSTER / script)], check=True)
    assert len(submissions(script)) >= 2


@pytest.mark.slow
def test_generators_on_their_nodes(place: Path, read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    port, run = free_port(), place / "a run"
    hosts = ",".join(f"{node}:{port}" for node in NODES[1:])
    monkeypatch.setenv("PORT", port)
    monkeypatch.setenv("RANKS_PER_NODE", "2")
    for number, words in enumerate(submissions("slurm_async.sh")):
        job = Job(place, "bash", str(CLUSTER / "slurm_async.sh"), *words)
        assert job.ended()[0] == 0
        host, trainer = job.notes()["host"]["words"], job.notes()["train"]
        assert host == ["host", "--listen", f"{NODES[1]}:{port}"]
        assert trainer["words"] == [
            *("train", "zorplex", "--mode", "async", "--run", str(run)),
            *(*words, "--engine", "monarch", "--trust-network", "--hosts", hosts),
        ]
        assert trainer["env"] == {
            **{"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"},
            **{"MASTER_ADDR": NODES[0], "MASTER_PORT": "29400"},
        }
        assert (read(host), read(trainer["words"])) == ("host", "train at once"), number


@pytest.mark.slow
def test_generators_on_nodes_of_ray(place: Path, read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    port, run = free_port(), place / "a run"
    monkeypatch.setenv("PORT", port)
    monkeypatch.setenv("ENGINE", "ray")
    monkeypatch.setenv("PROGRAMS", "3")
    monkeypatch.setenv("NODES", " ".join(NODES[:2]))
    monkeypatch.setenv("STORE", "5000000000")
    job = Job(place, "bash", str(CLUSTER / "slurm_async.sh"), "--steps", "9")
    code, said = job.ended()
    assert code == 0, said
    nodes = {"--head" in words: words for words in job.all_words() if words[0] == "start"}
    assert nodes[True][:4] == ["start", "--head", "--block", f"--port={port}"]
    assert nodes[False][:3] == ["start", f"--node-name={NODES[1]}", f"--address={NODES[0]}:{port}"]
    assert all("--object-store-memory=5000000000" in words for words in nodes.values())
    trainer = job.notes()["train"]
    own = [*("train", "zorplex", "--mode", "async", "--run", str(run)), "--steps", "9"]
    assert trainer["words"] == [*own, "--engine", "ray", "--trust-network", "--hosts", NODES[1]]
    assert trainer["env"]["RAY_ADDRESS"] == f"{NODES[0]}:{port}"
    assert trainer["env"]["RAY_AUTH_MODE"] == "token"
    token = Path(trainer["env"]["RAY_AUTH_TOKEN_PATH"])
    assert token == Path(f"{run}.cluster/token")
    assert len(token.read_text()) == 44  # 32 bytes
    assert token.stat().st_mode & 0o077 == 0
    assert read(trainer["words"]) == "train at once"


@pytest.mark.slow
def test_a_job_that_is_told_to_stop_stops_and_goes_on(place: Path, read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    port, run = free_port(), place / "a run"
    monkeypatch.setenv("PORT", port)
    monkeypatch.setenv("STAY", "1")
    begun(run, mode="async")
    job = Job(place, "bash", str(CLUSTER / "slurm_async.sh"), "--steps", "1000")
    learning, lives = place / "notes" / "learning", lambda: job.popen.poll() is None
    until(learning.exists, "the trainer learns", seconds=END, alive=lives, said=job.killed)
    os.kill(job.popen.pid, signal.SIGUSR1)
    assert job.ended()[0] == 130
    words = job.notes()["resume"]["words"]
    assert words[:2] == ["resume", str(run)]
    assert "--steps" not in words
    assert read(words) == "resume at once"


@pytest.mark.slow
def test_a_server_on_the_last_node(place: Path, read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run, url = place / "a run", f"http://{NODES[-1]}:8000/v1"
    monkeypatch.setenv("PORT", "8000")
    monkeypatch.setenv("VLLM_OPTIONS", "--enforce-eager --max-num-seqs 64")
    for words in submissions("slurm_server.sh"):
        job = Job(place, "bash", str(CLUSTER / "slurm_server.sh"), *words)
        assert job.ended()[0] == 0
        server, trainer = job.notes()["-m"]["words"], job.notes()["train"]
        assert server[server.index("--model") + 1] == str(run / "served" / "served")
        assert server[-3:] == ["--enforce-eager", "--max-num-seqs", "64"]
        assert trainer["words"] == ["train", "zorplex", "--run", str(run), *words, "--server", url, "--trust-network"]
        assert trainer["env"]["WORLD_SIZE"] == "2"
        assert read(trainer["words"]) == "train in turns"
    begun(run)
    job = Job(place, "bash", str(CLUSTER / "slurm_server.sh"))
    assert job.ended()[0] == 0
    assert job.notes()["resume"]["words"] == ["resume", str(run), "--server", url, "--trust-network"]
    assert read(job.notes()["resume"]["words"]) == "resume in turns"


@pytest.mark.parametrize(
    ("script", "changes", "said"),
    [
        ("slurm_async.sh", {"RUN": ""}, "name a folder that all nodes see"),
        ("slurm_async.sh", {"TRAINERS": "3"}, "3 of 3 nodes learn and none samples"),
        ("slurm_async.sh", {"ENGINE": "processes"}, "ENGINE is processes; wanted monarch or ray"),
        ("slurm_async.sh", {"PATIENCE": "0", "PORT": "1"}, "no host on 127.0.0.2:1 after 0 s"),
        ("slurm_server.sh", {"NODES": "one"}, "1 node; ask for at least 2"),
        ("slurm_server.sh", {"VLLM": ""}, "name the python of the environment of vLLM"),
    ],
)
def test_what_cannot_work_ends_at_once_and_is_told(
    place: Path, monkeypatch: pytest.MonkeyPatch, script: str, changes: dict[str, str], said: str
) -> None:
    monkeypatch.setenv("SAMPLING", "")
    for name, value in changes.items():
        monkeypatch.setenv(name, value)
    code, text = Job(place, "bash", str(CLUSTER / script)).ended()
    assert code == 1
    assert said in text


@pytest.mark.slow
def test_hosts_that_end_end_the_wait(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "none")
    code, text = Job(place, "bash", str(CLUSTER / "slurm_async.sh")).ended()
    assert code == 1
    assert "no host runs" in text


# --- Kubernetes ---


@pytest.fixture
def manifest() -> dict[str, Any]:
    """Its objects, by their kind."""
    return {one["kind"]: one for one in yaml.safe_load_all((CLUSTER / "kubernetes.yaml").read_text())}


def pod(one: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A template's spec and its only container."""
    spec = one["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    return spec, container


def test_the_manifest_fits_together(manifest: dict[str, Any]) -> None:
    assert set(manifest) == {"PersistentVolumeClaim", "Service", "NetworkPolicy", "StatefulSet", "Job"}
    policy = manifest["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"] == manifest["Service"]["spec"]["selector"]
    assert policy["ingress"] == [{"from": [{"podSelector": policy["podSelector"]}]}]
    service, job, generators = manifest["Service"], manifest["Job"], manifest["StatefulSet"]
    name, wanted = service["metadata"]["name"], service["spec"]["selector"]
    assert service["spec"]["clusterIP"] == "None"
    assert generators["spec"]["serviceName"] == pod(job)[0]["subdomain"] == name
    assert generators["spec"]["selector"]["matchLabels"] == generators["spec"]["template"]["metadata"]["labels"]
    for one in (job, generators):
        assert wanted.items() <= one["spec"]["template"]["metadata"]["labels"].items()
        spec, container = pod(one)
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    env = {one["name"]: one["value"] for one in pod(job)[1]["env"]}
    spec = job["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == int(env["WORLD_SIZE"])
    assert env["MASTER_ADDR"] == f"{job['metadata']['name']}-0.{name}"
    (volume,) = pod(job)[0]["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == manifest["PersistentVolumeClaim"]["metadata"]["name"]


def test_the_job_of_kuberay_runs_what_there_is(place: Path, read: Any) -> None:
    claim, job = yaml.safe_load_all((CLUSTER / "kuberay.yaml").read_text())
    run, spec = place / "runs" / "one", job["spec"]
    cluster = spec["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    (volume,) = cluster["headGroupSpec"]["template"]["spec"]["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    (place / "notes" / "note-of-another").write_text('{"words": [""]}')
    for told in ("train", "resume"):
        subprocess.run(shlex.split(spec["entrypoint"].replace("/runs/one", str(run))), check=True)
        notes = [json.loads(path.read_text()) for path in (place / "notes").glob("note-*")]
        (note,) = [one for one in notes if one["words"][0] == told]
        assert note["env"]["RAY_ADDRESS"] == "auto"
        assert read(note["words"]) == f"{told} at once"
        begun(run, mode="async")


def test_the_pods_run_what_there_is(place: Path, manifest: dict[str, Any], read: Any) -> None:
    generators, job = manifest["StatefulSet"], manifest["Job"]
    program, *words = pod(generators)[1]["command"]
    assert (program, read([word.replace("$(ADDRESS)", "10.0.0.2") for word in words])) == ("purestep", "host")
    (port,) = pod(generators)[1]["ports"]
    names = [f"{generators['metadata']['name']}-{n}.purestep" for n in range(generators["spec"]["replicas"])]
    run = place / "runs" / "one"
    for told in ("train", "resume"):
        command, (text,) = pod(job)[1]["command"], pod(job)[1]["args"]
        (place / "notes" / "note-of-another").write_text('{"words": [""]}')
        environment = {**os.environ, "JOB_COMPLETION_INDEX": "1"}
        subprocess.run([*command, text.replace("/runs/one", str(run))], env=environment, check=True)
        notes = [json.loads(path.read_text()) for path in (place / "notes").glob("note-*")]
        (note,) = [one for one in notes if one["words"][0] == told]
        assert note["env"]["RANK"] == "1"
        hosts = note["words"][note["words"].index("--hosts") + 1]
        assert hosts == ",".join(f"{name}:{port['containerPort']}" for name in names)
        assert read(note["words"]) == f"{told} at once"
        begun(run, mode="async")
