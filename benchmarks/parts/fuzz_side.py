"""The side of `fuzz` that calls the command line: lays out a folder, calls, judges. Reads inputs from its standard input.

python -m benchmarks.parts.fuzz_side FOLDER RUN,... COMMAND,... SIDES [KEPT]    as an ordinary user; FOLDER is empty

Its first line of output is the ground from which inputs are drawn; then it prints a verdict for each input, after the number
that the input had. SIDES forks of it judge side by side. A call is a fork of one of these, which has imported everything and
has one thread, so that it costs no import; an input that says so gets a process of its own. A call sees a folder of its own:
HOME, a cache, temporary files, files of others, and the folder it is called in.
"""

import atexit
import contextlib
import faulthandler
import hashlib
import importlib
import io
import json
import math
import os
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from attrs import evolve

from .fuzz_inputs import CANARY, KEPT, MADE, Ground, Input, Step

LIMIT = 60.0  # seconds of a call, without those in which its processor was busy with others
PATIENCE = 2.0  # seconds until Ctrl-C is pressed where a call may be long, and a third of those between two presses
SPACE = 4 << 30  # bytes of memory beyond what a process has that was only started
FILE = 1 << 28  # bytes of a file
PROCESSES = 500
SHOWN = 4000  # characters of what a call said
CODES = (0, 1, 2, 130)
GRACE = 20.0  # seconds in which a signal has to end a call, on a machine that is busy
FLOOD = 100  # times that a call may say the same line
WRITES = {"stdout": "output", "stderr": "errors"}
CLOSED = {"no input": {"stdin": 0}, "no output": {"stdout": 1}, "no errors": {"stderr": 2}}
BARE = re.compile(r"\b(?!Interrupt)[A-Z]\w*(Error|Exception|Exit|Iteration|Interrupt|Warning)\b: ")
OWN = "failed and are left out of the update, the first with "  # of a notice that quotes an error of a user's function
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
    "rewards.py": """
import math, time

def length(completions, **columns):
    return [-float(len(text)) for text in completions]

def fails(completions, **columns):
    raise ValueError('no')

def text(completions, **columns):
    return ['a'] * len(completions)

def nan(completions, **columns):
    return [math.nan] * len(completions)

def none(completions, **columns):
    return [None] * len(completions)

def few(completions, **columns):
    return [1.0]

def sleeps(completions, **columns):
    time.sleep(1000)

def tool(a: int) -> int:
    \"\"\"One more.

    Args:
        a: a number
    \"\"\"
    return a + 1
""",
    "sums.jsonl": "".join(f'{{"prompt": "{n} + 1?", "answer": "{n + 1}"}}\n' for n in range(8)),
    "task.py": """
from purestep.core import keys
from purestep.core.language.parsers import Parsed
from purestep.core.language.task import TextTask
from purestep.core.language.text_env import Outcome, TextEnv

def reset(params, key):
    return int(keys.randint(key, (), 0, 10)), "0-9?"

def step(params, state, action, key):
    return state, Outcome("no", reward=float(action == str(state)), terminated=action == str(state))

def fails(params, state, action, key):
    raise ValueError("no")

def odd(params, state, action, key):
    return state, 3

def made(step):
    return TextTask(name="least", env=lambda stream: TextEnv((), reset, step), parser=lambda text: Parsed(text[:1] or "?"))

TASK, FAILS, ODD = made(step), made(fails), made(odd)
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
    "move": lambda here, runs, source, path: (here / source).rename(here / path),
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
    deaf: float = 0.0  # seconds from the first signal to the end


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


def _limited(room: int = 0) -> None:
    """Limit memory, file sizes and processes; a session of its own, so that what it leaves behind can be ended."""
    os.setsid()
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for kind, most in (
        (resource.RLIMIT_AS, size + SPACE),
        (resource.RLIMIT_FSIZE, room or FILE),
        (resource.RLIMIT_NPROC, PROCESSES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


class _Absent:
    """A finder of modules by which some packages are not there."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def find_spec(self, name: str, *_: object) -> None:
        """Raise ModuleNotFoundError for a module of one of these packages."""
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _without(names: Sequence[str]) -> None:
    """Take away packages, and what of purestep has imported them."""
    for name in list(sys.modules):
        if name.partition(".")[0] in names:
            del sys.modules[name]
    sys.meta_path.insert(0, _Absent(names))


def _child(given: Input, here: Path, variables: Mapping[str, str], after: Callable[[], None]) -> int:
    """Run the command in the forked process, as a shell's process would run it, and return its exit code."""
    words = given.words
    _limited(given.most)
    if given.absent:
        _without(given.absent)
    os.chdir(here)
    os.environ.clear()
    os.environ.update(variables)
    tempfile.tempdir = None
    sys.argv = ["purestep", *words]
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False), "utf-8")
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), "utf-8", write_through=True)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), "utf-8", "backslashreplace", write_through=True)
    for name, number in CLOSED.get(given.streams, {}).items():  # as Python finds them where a descriptor is closed
        setattr(sys, name, None)
        os.close(number)
    faults = os.dup(2) if given.streams != "no errors" else os.open(os.devnull, os.O_WRONLY)
    faulthandler.enable(faults)
    faulthandler.register(signal.SIGQUIT, faults)
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
    for number in (signal.SIGINT, signal.SIGTERM):  # Python ends, and has not half of what it had
        signal.signal(number, signal.SIG_IGN)
    after()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if sys.stdout is not None:
        sys.stdout.flush()
    return code


def call(given: Input, case: Path, here: Path, shared: Path, after: Callable[[], None] = lambda: None) -> Ended:
    """Calls the command and waits for it."""
    said = [case.parent / name for name in ("stdin", "stdout", "stderr")]
    for path in said[1:]:
        path.write_bytes(b"")
    said[0].write_bytes(given.typed.encode("utf-8", "surrogatepass"))
    variables, began = surroundings(case, shared), time.monotonic()
    variables = {name: value for name, value in {**variables, **dict(given.variables)}.items() if value is not None}
    with said[0].open("rb") as typed, _stream(given, said[1]) as out, _stream(given, said[2]) as err:
        if (
            given.alone
            and not given.stop
            and not given.absent
            and given.streams not in CLOSED
            and "\0" not in "".join(given.words)
        ):
            program = [sys.executable, "-P", "-m", "purestep.runtime.cli.main", *given.words]
            pid = subprocess.Popen(
                program,
                stdin=typed,
                stdout=out,
                stderr=err,
                cwd=here,
                env=variables,
                preexec_fn=lambda: _limited(given.most),
            ).pid
        else:
            pid = os.fork()
            if not pid:
                left = 70
                try:
                    for number, file in enumerate((typed, out, err)):
                        os.dup2(file.fileno(), number)
                    left = _child(given, here, variables, after)
                except BaseException:
                    os.write(2, traceback.format_exc().encode("ascii", "backslashreplace"))
                finally:
                    with contextlib.suppress(BaseException):
                        sys.stderr.flush()
                    os._exit(left)
    code, cpu, deaf = _waited(pid, given)
    seconds = time.monotonic() - began
    out_text, err_text = (path.read_bytes()[:1_000_000].decode("utf-8", "replace") for path in said[1:])
    return Ended(code, round(seconds, 2), round(cpu, 2), out_text, err_text, round(deaf, 2))


def _stream(given: Input, path: Path) -> Any:
    """Open what a call writes to: a file, or what its input says in its place."""
    if given.streams == f"{WRITES[path.name]} full":
        return open("/dev/full", "wb")
    if given.streams == f"{WRITES[path.name]} gone":
        ours, theirs = os.pipe()
        os.close(ours)
        return os.fdopen(theirs, "wb")
    return path.open("ab")


def _queued(pid: int) -> float:
    """Return the seconds that a process has waited for a processor; 0 where the system does not count them."""
    try:
        return float(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def _waited(pid: int, given: Input) -> tuple[int | None, float, float]:
    """Wait for the end of a process: its exit code, its processor's seconds, and the seconds from the first signal to the end.

    It is stopped where its input says so, and where it may be long; its group is ended.
    """
    began, pressed, step, patience = time.monotonic(), list[float](), 0.002, given.stop or PATIENCE
    limit = LIMIT if given.command != "warm" else math.inf
    try:
        while True:
            seconds = time.monotonic() - began - _queued(pid)
            ended, status, used = os.wait4(pid, os.WNOHANG)
            if ended:
                deaf = seconds - pressed[0] if pressed else 0.0
                return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, deaf
            if (given.long or given.stop) and seconds > patience + 3 * PATIENCE * len(pressed):
                pressed.append(seconds)
                os.kill(pid, signal.SIGTERM) if given.signal == "TERM" else os.killpg(pid, signal.SIGINT)
            if seconds > limit:
                os.kill(pid, signal.SIGQUIT)  # says where it stands
                time.sleep(0.3)
                os.kill(pid, signal.SIGKILL)
                used = os.wait4(pid, 0)[2]
                return None, used.ru_utime + used.ru_stime, 0.0
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
    result = result or (given.command == "verify" and ended.code == 3)  # no verdict, for a call that cannot be made
    if ended.code is None:
        found["hang"] = lines[-1] if lines else ""
    elif ended.deaf > GRACE:
        found["hang"] = f"{ended.deaf} s after a signal"
    elif ended.code in (-signal.SIGTERM, -signal.SIGINT) and (given.stop or given.long) and not ended.out + ended.err:
        pass  # before it had begun
    elif ended.code < 0 or "Fatal Python error" in ended.err:
        found["crash"] = f"ended by signal {-ended.code}"
    elif ended.code not in CODES and not result and not (ended.code == 141 and given.streams == "output gone"):
        found["crash"] = f"exit code {ended.code}"
    if "Traceback (most recent call last)" in ended.err + ended.out:
        found["traceback"] = lines[-1] if lines else ""
    else:
        bare = [
            line
            for line in lines
            if "(--debug shows where)" in line
            or (BARE.search(line) and ", wanted " not in line and not (given.trusted and OWN in line))
        ]
        if bare and not result:
            found["bare"] = bare[0]
    heard = given.streams not in ("no errors", "errors gone") and not 0 < given.most <= len(ended.err.encode()) + 4
    if not found and ended.code in (1, 2) and not lines and not result and heard:
        found["silent"] = "nothing on standard error"
    if not found and ended.code == 1 and not result and heard:
        last = lines[-1]
        whole = ", wanted " in last and "; " in last.partition(", wanted ")[2]
        if not (whole and last.startswith("purestep: ") and sum(line.startswith("purestep: ") for line in lines) == 1):
            found["lines"] = last
    said = [line for text in (ended.err, ended.out) for line in text.splitlines() if len(line) > 3]
    again = Counter(line for line in said if not any(line.strip(" │") in word for word in given.words))
    if again and again.most_common(1)[0][1] > FLOOD:
        found["flood"] = f"{again.most_common(1)[0][1]} times: {again.most_common(1)[0][0]}"
    if "out of memory" in ended.err:
        found["memory"] = lines[-1]
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


def prepared(root: Path, kinds: Sequence[str], commands: Sequence[str], silent: str, kept: Path | None) -> Ground:
    """Train the small runs and ask commands for help, in forks; import what they have imported.

    In the folder `kept` they are left for the next time, or found from the last.
    """
    (root / "matplotlib").mkdir(exist_ok=True)
    if kept and (kept / "ground.json").is_file():
        shutil.copytree(kept / "runs", root / "runs", symlinks=True)
        for path in (root / "runs").rglob("*.json"):  # the run of text names the model of another
            path.write_text(path.read_text().replace((kept / "root").read_text(), str(root)))
        _import((kept / "modules").read_text())
        return evolve(Ground(**json.loads((kept / "ground.json").read_text())), silent=silent)
    (root / "runs").mkdir()
    options, modules = {}, dict[str, None]()
    for kind in kinds:
        _warm(root, [word.format(runs=root / "runs") for word in MADE[kind]], modules, f"{root}/runs/{kind}")
    for command in commands:
        words = () if command == "help" else command.split()
        said = _warm(root, (*words, "--help"), modules)
        text = " ".join(re.sub("[│╭╮╰╯─]", " ", line) for line in said.splitlines())
        options[command] = sorted({(name, kind.strip()) for name, kind in OPTION.findall(text)} - {("--help", "")})
    _warm(root, ("verify", "victims:save"), modules)
    files = {
        kind: sorted(
            str(path.relative_to(root / "runs" / kind)) for path in (root / "runs" / kind).rglob("*") if path.is_file()
        )
        for kind in kinds
    }
    ground = Ground(options, files, silent)
    if kept:
        shutil.copytree(root / "runs", kept / "runs", symlinks=True)
        (kept / "root").write_text(str(root))
        (kept / "modules").write_text("\n".join(modules))
        (kept / "ground.json").write_text(json.dumps(attrs.asdict(ground)))
    return ground


def _import(names: str) -> None:
    """Import the modules that a call has imported, but not those of its folder."""
    for name in names.split("\n"):
        if name not in (*(file.removesuffix(".py") for file in MODULES), "__main__"):
            importlib.import_module(name)


def _warm(root: Path, words: Sequence[str], modules: dict[str, None], run: str = "") -> str:
    """Call a command that has to succeed; import what it has imported, and add it to `modules`; return what it printed."""
    note = root / "modules"
    given = Input("warm", (*words, *(("--run", run) if run else ())))
    said = judged(given, root, lambda: note.write_text("\n".join(sys.modules)) and None)
    if said["code"] not in (0, 2) and words[0] != "verify":
        raise RuntimeError(f"{' '.join(given.words)}: {said['err']}")
    _import(note.read_text())
    modules.update(dict.fromkeys(note.read_text().split("\n")))
    return (root / "stdout").read_text("utf-8", "replace")


def _ended(*_: object) -> None:
    """End this process and those that judge for it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    os._exit(143)


def _leaving(*_: object) -> None:
    """End a process that judges, and a call under way with it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def begun(root: Path, number: int) -> tuple[int, int]:
    """Fork a process that judges inputs in a folder of its own; return where it reads them, and where it writes verdicts."""
    theirs, ours = os.pipe()
    answers, said = os.pipe()
    if os.fork():
        os.close(theirs)
        os.close(said)
        return ours, answers
    os.close(ours)
    os.close(answers)
    signal.signal(signal.SIGTERM, _leaving)
    try:
        own = root / f"side{number}"
        own.mkdir()
        for name in ("runs", "matplotlib"):
            (own / name).symlink_to(root / name)
        with os.fdopen(theirs, encoding="utf-8") as lines, os.fdopen(said, "w", encoding="utf-8") as out:
            for line in lines:
                given = json.loads(line)
                given = Input(**{**given, **{name: tuple(map(tuple, given[name])) for name in ("steps", "variables")}})
                print(json.dumps(judged(given, own)), file=out, flush=True)
    finally:
        os._exit(0)


def main() -> int:
    root, kinds, commands, sides, *kept = sys.argv[1:]
    signal.signal(signal.SIGTERM, _ended)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    server = socket.create_server(("127.0.0.1", 0), backlog=50)  # it accepts, and says nothing
    silent = f"127.0.0.1:{server.getsockname()[1]}"
    ground = prepared(Path(root), kinds.split(","), commands.split(","), silent, Path(kept[0]) if kept else None)
    if threading.active_count() > 1 or len(os.listdir("/proc/self/task")) > 1:
        raise RuntimeError("fuzz_side has threads, and a fork may hang for them")
    ends = [begun(Path(root), number) for number in range(int(sides))]
    print(json.dumps(attrs.asdict(ground)), file=answers, flush=True)
    reading, printing = threading.Lock(), threading.Lock()
    lines = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8")

    def serve(given: int, verdicts: int) -> None:
        with os.fdopen(given, "w", encoding="utf-8") as words, os.fdopen(verdicts, encoding="utf-8") as found:
            while True:
                with reading:
                    line = lines.readline()
                if not line:
                    return
                number, _, text = line.partition(" ")
                words.write(text)
                words.flush()
                verdict = found.readline()
                with printing:
                    print(number, verdict or "null", end="" if verdict else "\n", file=answers, flush=True)

    threads = [threading.Thread(target=serve, args=each) for each in ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
