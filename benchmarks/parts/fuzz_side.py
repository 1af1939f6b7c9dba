"""The side of `fuzz` that calls the command line: lays out a folder, calls, judges. Reads inputs from its standard input.

python -m benchmarks.parts.fuzz_side FOLDER RUN,... COMMAND,...    as an ordinary user; FOLDER is empty, and may be filled

Its first line of output is the ground from which inputs are drawn; then it prints a verdict for each input. A call is a fork of
this process, which has imported everything and has one thread, so that it costs no import; an input that says so gets a process
of its own. A call sees a folder of its own: HOME, a cache, temporary files, files of others, and the folder it is called in.
"""

import atexit
import contextlib
import faulthandler
import hashlib
import importlib
import io
import json
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from .fuzz_inputs import CANARY, KEPT, MADE, Ground, Input, Step

LIMIT = 60.0  # seconds of a call
PATIENCE = 5.0  # seconds until Ctrl-C is pressed where a call may be long, and a third of those between two presses
SPACE = 4 << 30  # bytes of memory beyond what a process has that was only started
FILE = 1 << 28  # bytes of a file
PROCESSES = 500
SHOWN = 4000  # characters of what a call said
CODES = (0, 1, 2, 130)
BARE = re.compile(r"\b(?!Interrupt)[A-Z]\w*(Error|Exception|Exit|Iteration|Interrupt|Warning)\b: ")
OPTION = re.compile(r"(--[a-z][a-z-]*)(?:, --no-[a-z-]+)? (\{[^}]*\}|[A-Z:|]+|\[[^│]*?\]\]|(?=\s))")
TOUCH = "import canary; canary.touch()"
MODULES = {
    "canary.py": f"""
def touch(*a, **k):
    open({CANARY!r}, 'w')

def fails(*a, **k):
    raise ValueError('no')

class Thing:
    def __init__(self, *a, **k):
        touch()
""",
    "canary_at_import.py": f"open({CANARY!r}, 'w')\ntouch = print\n",
    "victims.py": f"""
def save():
    {TOUCH}

def wrong(a, b):
    {TOUCH}
    return a / b

def world():
    {TOUCH}
    return 3

class Saver:
    def __init__(self):
        {TOUCH}

    def save(self):
        {TOUCH}

    def __call__(self):
        {TOUCH}

saver = object.__new__(Saver)
""",
    "broken.py": "def x(:\n",
    "leaving.py": "raise SystemExit(7)\n",
}
PROJECT = (
    "model/weights.bin",
    "tokenizer/words.txt",
    "metrics.jsonl",
    "arguments.json",
    "checkpoints/mine.pt",
    "warm/a",
    "notes.txt",
)


# --- what a call sees ---


def begin(case: Path, runs: Path, steps: Sequence[Step]) -> tuple[Path, int]:
    """Make the folder of a case; return the folder in which the command is called, and the number of steps not possible."""
    here, left_out = case / "here", 0
    for name in ("home", "cache", "tmp", "others/deep", "here/project"):
        (case / name).mkdir(parents=True)
    for name in ("kept.txt", "deep/kept.bin", "metrics.jsonl", "arguments.json", "manifest.json"):
        (case / "others" / name).write_text(f'{{"of": "others", "name": "{name}"}}\n')
    for name in PROJECT:
        (here / "project" / name).parent.mkdir(exist_ok=True)
        (here / "project" / name).write_text("{}\n" if name.endswith("n") else "mine\n")
    for name, text in MODULES.items():
        (here / name).write_text(text)
    os.mkfifo(here / "fifo")
    os.symlink("/dev/zero", here / "endless")
    for action, *rest in steps:
        try:  # a name may be too long, or an earlier step has left nothing to be harmed
            if all(stat.S_ISREG((here / rest[0] / name).lstat().st_mode) for name in READ.get(action, ())):
                LAY[action](here, runs, *rest)
        except Exception:
            left_out += 1
    return here, left_out


def _file(here: Path, runs: Path, path: str, text: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG((here / path).lstat().st_mode):
            _remove(here, runs, path)
    (here / path).parent.mkdir(parents=True, exist_ok=True)
    (here / path).write_bytes(text.encode("utf-8", "surrogatepass"))


def _remove(here: Path, runs: Path, path: str) -> None:
    if (here / path).is_dir() and not (here / path).is_symlink():
        shutil.rmtree(here / path)
    else:
        (here / path).unlink()


def _flip(here: Path, runs: Path, path: str, number: str) -> None:
    data = bytearray((here / path).read_bytes())
    if data:
        data[int(number) % len(data)] ^= 1 << (int(number) % 8)
        _file(here, runs, path, "")
        (here / path).write_bytes(data)


def _cut(here: Path, runs: Path, path: str, number: str) -> None:
    size = (here / path).lstat().st_size
    os.truncate(here / path, int(number) % max(size, 1))


def _nodes(value: Any, within: str = "") -> Iterator[tuple[Any, Any]]:
    """Yield the places of a document's values, as a holder and the name or number there; all but a schema."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        if key != "schema":
            yield value, key
            yield from _nodes(inner)


def _json(here: Path, runs: Path, path: str, number: str, text: str) -> None:
    """Another text in place of a value."""
    document = json.loads((here / path).read_bytes())
    nodes = list(_nodes(document))
    if nodes:
        holder, key = nodes[int(number) % len(nodes)]
        holder[key] = "@@"
        (here / path).write_text(json.dumps(document).replace('"@@"', text, 1))


def _key(here: Path, runs: Path, path: str, number: str, sign: str) -> None:
    """A name less, or one more."""
    document = json.loads((here / path).read_bytes())
    nodes = [(holder, key) for holder, key in _nodes(document) if isinstance(holder, dict)]
    if nodes:
        holder, key = nodes[int(number) % len(nodes)]
        if sign == "-":
            del holder[key]
        else:
            holder["nobody knows"] = "canary.touch"
        (here / path).write_text(json.dumps(document))


def _merge(here: Path, runs: Path, path: str, name: str, text: str) -> None:
    document = json.loads((here / path).read_bytes())
    (here / path).write_text(json.dumps({**document, name: json.loads(text)}))


def _line(here: Path, runs: Path, path: str, number: str, text: str) -> None:
    lines = (here / path).read_bytes().splitlines()
    if lines:
        lines[int(number) % len(lines)] = text.encode("utf-8", "surrogatepass")
    (here / path).write_bytes(b"\n".join(lines) + b"\n")


def _weights(here: Path, runs: Path, path: str, what: str) -> None:
    """Tensors that are wrong, in a file that is whole."""
    import safetensors.torch
    import torch

    file, manifest = here / path / "state.safetensors", here / path / "manifest.json"
    tensors = safetensors.torch.load(file.read_bytes())
    name = next(
        (name for name, leaf in sorted(tensors.items()) if leaf.is_floating_point() and leaf.numel()), min(tensors)
    )
    leaf = tensors.pop(name)
    changed = {
        "nan": lambda: {name: torch.full_like(leaf, torch.nan)},
        "inf": lambda: {name: torch.full_like(leaf, torch.inf)},
        "zero": lambda: {name: torch.zeros_like(leaf)},
        "drop": lambda: {},
        "shape": lambda: {name: leaf.reshape(-1)[:1].clone()},
        "dtype": lambda: {name: leaf.to(torch.int8)},
        "name": lambda: {f"{name}.more": leaf},
    }[what]()
    data = safetensors.torch.save({**tensors, **changed})
    old = hashlib.sha256(file.read_bytes()).hexdigest()
    file.write_bytes(data)
    manifest.write_text(manifest.read_text().replace(old, hashlib.sha256(data).hexdigest()))


def _swap(here: Path, runs: Path, one: str, other: str) -> None:
    (here / one).rename(here / "swapped")
    (here / other).rename(here / one)
    (here / "swapped").rename(here / other)


LAY: Mapping[str, Callable[..., object]] = {
    "run": lambda here, runs, path, kind: shutil.copytree(runs / kind, here / path, symlinks=True),
    "copy": lambda here, runs, source, path: _file(here, runs, path, "") or shutil.copyfile(here / source, here / path),
    "folder": lambda here, runs, path: (here / path).mkdir(parents=True, exist_ok=True),
    "link": lambda here, runs, path, target: os.symlink(target, here / path),
    "fifo": lambda here, runs, path: os.mkfifo(here / path),
    "mode": lambda here, runs, path, mode: (here / path).chmod(int(mode, 8)),
    "file": _file,
    "remove": _remove,
    "flip": _flip,
    "cut": _cut,
    "json": _json,
    "key": _key,
    "merge": _merge,
    "line": _line,
    "weights": _weights,
    "swap": _swap,
}


READ: Mapping[
    str, Sequence[str]
] = {  # what a step reads under its path, which an earlier one may have made an endless file
    **dict.fromkeys(("copy", "flip", "cut", "json", "key", "merge", "line"), ("",)),
    "weights": ("state.safetensors", "manifest.json"),
}


def looked(case: Path, own: Sequence[str]) -> dict[str, str]:
    """Return all that a command may not change in a case's folder: names, and digests of contents. Links are not followed."""
    found = {}
    free = [os.path.normpath(case / "here" / path) for path in own if path.strip("./")]
    for top, folders, files in os.walk(os.fsencode(case)):
        for entry in sorted((*folders, *files)):
            path = os.fsdecode(os.path.join(top, entry))
            name = os.path.relpath(path, case)
            if name.split("/")[0] in ("home", "cache", "tmp"):
                continue
            mine = any(path == root or path.startswith(root + "/") or root.startswith(path + "/") for root in free)
            if not mine or (entry == KEPT.encode() and len(name.split("/")) == 3):
                found[name] = _described(path)
    return found


def _described(path: str) -> str:
    about = os.lstat(path)
    kind = stat.filemode(about.st_mode)
    if stat.S_ISLNK(about.st_mode):
        return f"{kind} {os.readlink(path)!r}"
    if not stat.S_ISREG(about.st_mode) or about.st_mode & 0o400 == 0:
        return kind
    with open(path, "rb") as file:
        return f"{kind} {hashlib.file_digest(file, 'sha1').hexdigest()}"


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return a line for each name that was lost, changed or added."""
    lost = [f"{name} is gone" for name in before if name not in after]
    other = [f"{name} is {after[name]}, was {text}" for name, text in before.items() if after.get(name, text) != text]
    return [*lost, *other, *(f"{name} is new" for name in after if name not in before and not name.endswith(CANARY))]


# --- a call ---


@attrs.frozen
class Ended:
    """The end of a call: the exit code, minus the signal; None when it was killed for its time."""

    code: int | None
    seconds: float
    cpu: float
    out: str
    err: str


def surroundings(case: Path, shared: Path) -> dict[str, str]:
    """The environment variables of a call."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH", "LANG")}
    places = {"HOME": "home", "XDG_CACHE_HOME": "cache", "TMPDIR": "tmp", "TORCHINDUCTOR_CACHE_DIR": "cache/inductor"}
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONDONTWRITEBYTECODE"), "1")
    return {
        **kept,
        **{name: str(case / place) for name, place in places.items()},
        **one,
        "MPLCONFIGDIR": str(shared),
        "COLUMNS": "100",
    }


def _limited() -> None:
    """Limits of memory, file sizes and processes; a session of its own, so that what it leaves behind can be ended."""
    os.setsid()
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for kind, most in (
        (resource.RLIMIT_AS, size + SPACE),
        (resource.RLIMIT_FSIZE, FILE),
        (resource.RLIMIT_NPROC, PROCESSES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def _child(words: Sequence[str], here: Path, variables: Mapping[str, str], after: Callable[[], None]) -> int:
    """Run the command in the forked process, as a shell's process would run it, and return its exit code."""
    _limited()
    os.chdir(here)
    os.environ.clear()
    os.environ.update(variables)
    tempfile.tempdir = None
    sys.argv = ["purestep", *words]
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False), "utf-8")
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), "utf-8", write_through=True)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), "utf-8", "backslashreplace", write_through=True)
    faulthandler.enable(sys.stderr)
    faulthandler.register(signal.SIGQUIT, sys.stderr)
    try:
        from purestep.runtime.cli.main import main

        code = main(list(words))
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except KeyboardInterrupt:
        traceback.print_exc()
        code = 130
    except BaseException:
        traceback.print_exc()
        code = 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Python ends, and has not half of what it had
    after()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    return code


def call(given: Input, case: Path, here: Path, shared: Path, after: Callable[[], None] = lambda: None) -> Ended:
    """Calls the command and waits for it."""
    said = [case.parent / name for name in ("stdin", "stdout", "stderr")]
    said[0].write_bytes(given.typed.encode("utf-8", "surrogatepass"))
    variables, began = surroundings(case, shared), time.monotonic()
    with said[0].open("rb") as typed, said[1].open("wb") as out, said[2].open("wb") as err:
        if given.alone:
            program = [sys.executable, "-P", "-m", "purestep.runtime.cli.main", *given.words]
            pid = subprocess.Popen(
                program, stdin=typed, stdout=out, stderr=err, cwd=here, env=variables, preexec_fn=_limited
            ).pid
        else:
            pid = os.fork()
            if not pid:
                code = 70
                try:
                    for number, file in enumerate((typed, out, err)):
                        os.dup2(file.fileno(), number)
                    code = _child(given.words, here, variables, after)
                except BaseException:
                    os.write(2, traceback.format_exc().encode("ascii", "backslashreplace"))
                finally:
                    with contextlib.suppress(BaseException):
                        sys.stderr.flush()
                    os._exit(code)
    code, cpu = _waited(pid, given.long)
    seconds = time.monotonic() - began
    texts = [path.read_bytes()[:1_000_000].decode("utf-8", "replace") for path in said[1:]]
    return Ended(code, round(seconds, 2), round(cpu, 2), *texts)


def _waited(pid: int, long: bool) -> tuple[int | None, float]:
    """The exit code of a process, and its processor's seconds. Ctrl-C is pressed where it may be long; its group is ended."""
    began, presses, step = time.monotonic(), 0, 0.002
    try:
        while True:
            ended, status, used = os.wait4(pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
            seconds = time.monotonic() - began
            if long and seconds > PATIENCE * (3 * presses + 1):
                presses += 1
                os.killpg(pid, signal.SIGINT)
            if seconds > LIMIT:
                os.kill(pid, signal.SIGQUIT)  # says where it stands
                time.sleep(0.3)
                os.kill(pid, signal.SIGKILL)
                used = os.wait4(pid, 0)[2]
                return None, used.ru_utime + used.ru_stime
            time.sleep(step)
            step = min(step * 1.3, 0.05)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


# --- the verdict ---


def faults(given: Input, ended: Ended, changed: Sequence[str], touched: bool) -> dict[str, str]:
    """Return the faults in a call's end: kind -> what shows it."""
    found: dict[str, str] = {}
    lines = [line for line in ended.err.splitlines() if line.strip()]
    # The result of these two is on standard output: a broken law, with what a function raised, or rows that differ.
    result = given.command in ("verify", "replay") and ended.code == 1 and bool(ended.out.strip())
    if ended.code is None:
        found["hang"] = lines[-1] if lines else ""
    elif ended.code < 0 or "Fatal Python error" in ended.err:
        found["crash"] = f"ended by signal {-ended.code}"
    elif ended.code not in CODES:
        found["crash"] = f"exit code {ended.code}"
    if "Traceback (most recent call last)" in ended.err + ended.out:
        found["traceback"] = lines[-1] if lines else ""
    else:
        bare = [
            line for line in lines if "(--debug shows where)" in line or (BARE.search(line) and ", wanted " not in line)
        ]
        if bare and not result:
            found["bare"] = bare[0]
    if not found and ended.code in (1, 2) and not lines and not result:
        found["silent"] = "nothing on standard error"
    if not found and ended.code == 1 and not result:
        last = lines[-1]
        whole = ", wanted " in last and "; " in last.partition(", wanted ")[2]
        if not (whole and last.startswith("purestep: ") and sum(line.startswith("purestep: ") for line in lines) == 1):
            found["lines"] = last
    if changed:
        found["lost"] = "; ".join(changed[:5])
    if given.good and ended.code not in (0, 130) and not found:
        found["ignored"] = lines[-1] if lines else ""
    if touched and not given.trusted:
        found["executed"] = "the canary"
    return found


def judged(given: Input, root: Path, after: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Lays out a folder, calls, looks, cleans up; the verdict."""
    case = root / "case"
    try:
        here, left_out = begin(case, root / "runs", given.steps)
        before = looked(case, given.own)
        ended = call(given, case, here, root / "matplotlib", after)
        later = looked(case, given.own)
        touched = any(CANARY in files for _, _, files in os.walk(case))
    finally:
        cleaned(case)
    found = faults(given, ended, changes(before, later), touched)
    return {
        "code": ended.code,
        "seconds": ended.seconds,
        "cpu": ended.cpu,
        "left_out": left_out,
        "out": ended.out[:SHOWN],
        "err": ended.err[-SHOWN:],
        "faults": found,
    }


def cleaned(case: Path) -> None:
    """Removes a folder, whatever its modes."""
    for top, folders, _ in os.walk(os.fsencode(case)):
        os.chmod(top, 0o700)
        for name in folders:
            path = os.path.join(top, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    shutil.rmtree(os.fsencode(case), ignore_errors=True)


# --- the ground ---


def prepared(root: Path, kinds: Sequence[str], commands: Sequence[str]) -> Ground:
    """Trains the small runs and asks commands for help, in forks; imports what they have imported."""
    (root / "runs").mkdir()
    (root / "matplotlib").mkdir(exist_ok=True)
    options = {}
    for kind in kinds:
        _warm(root, MADE[kind], f"{root}/runs/{kind}")
    for command in commands:
        words = () if command == "help" else command.split()
        said = _warm(root, (*words, "--help"))
        text = " ".join(re.sub("[│╭╮╰╯─]", " ", line) for line in said.splitlines())
        options[command] = sorted({(name, kind.strip()) for name, kind in OPTION.findall(text)} - {("--help", "")})
    _warm(root, ("verify", "victims:save"))
    files = {
        kind: sorted(
            str(path.relative_to(root / "runs" / kind)) for path in (root / "runs" / kind).rglob("*") if path.is_file()
        )
        for kind in kinds
    }
    if threading.active_count() > 1 or len(os.listdir("/proc/self/task")) > 1:
        raise RuntimeError("fuzz_side has threads, and a fork may hang for them")
    return Ground(options, files)


def _warm(root: Path, words: Sequence[str], run: str = "") -> str:
    """Calls a command that has to succeed, and imports what it has imported; gives what it printed."""
    note = root / "modules"
    given = Input("warm", (*words, *(("--run", run) if run else ())))
    said = judged(given, root, lambda: note.write_text("\n".join(sys.modules)) and None)
    if said["code"] not in (0, 2) and words[0] != "verify":
        raise RuntimeError(f"{' '.join(given.words)}: {said['err']}")
    for name in note.read_text().split("\n"):
        if name not in ("canary", "victims", "canary_at_import", "__main__"):
            importlib.import_module(name)
    return str(said["out"])


def _ended(*_: object) -> None:
    """Ends this process, and a call under way with it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def main() -> int:
    root, kinds, commands = sys.argv[1:]
    signal.signal(signal.SIGTERM, _ended)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    ground = prepared(Path(root), kinds.split(","), commands.split(","))
    print(json.dumps(attrs.asdict(ground)), file=answers, flush=True)
    for line in io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8"):
        given = json.loads(line)
        given = Input(**{**given, "words": tuple(given["words"]), "steps": tuple(map(tuple, given["steps"]))})
        print(json.dumps(judged(given, Path(root))), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
