"""The command line: `purestep train|sweep|evaluate|explain|chat|export|resume|plot|view|host|replay`, and those of packages.

Exit codes: 0; 1 for an error, reported in one line on stderr; 2 for a malformed command line; 130 after Ctrl-C or SIGTERM;
141 where the reader of the output has closed it (`purestep laws | head -1`).
A package adds commands in the entry-point group `purestep.commands`, each a function of the words after its name.
"""

import atexit
import errno
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from typing import Any

from attrs import frozen

from ...core.errors import ChoiceError, PurestepError, choose, message
from ..deferred import deferred
from ..effects.distributed.launched import RankError, several
from ..effects.signals import deaf, drop_output, end_at_once, fill_streams, interruptible, output_closed
from .common import check_text, say

GROUP = "purestep.commands"
LONGEST = 8192  # characters of a word
MEMORY = (  # parts of error messages that mean that the process is out of memory
    *("size calculation overflowed", "allocate memory", "failed to map segment", "can't start new thread", "bad_alloc"),
    os.strerror(errno.ENOMEM),
)
TOO_LARGE = ("cannot be represented as a SymInt", "Overflow when unpacking", "too large to convert")  # parts of others'
SYSTEM = re.compile(r"\(os error (\d+)\)")  # part of the message of an error of a library in Rust
REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space; what was saved stays"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "see its rights, or name another"),
    errno.EFBIG: "raise the limit (ulimit -f); what was saved stays",
    errno.EMFILE: "let this process open more files (ulimit -n)",
}
EXTRAS: Mapping[str, tuple[str, ...]] = {  # extra of purestep -> the packages that are imported of it
    "data": ("datasets", "pyarrow"),
    "gym": ("gymnasium",),
    "kg": ("pykeen",),
    "llm": ("openai", "tokenizers", "transformers"),
    "lora": ("peft",),
    "math": ("math_verify",),
    "monarch": ("monarch",),
    "notebook": ("marimo",),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "openenv": ("openenv",),
    "optuna": ("optuna",),
    "properties": ("hypothesis", "pytest"),
    "ray": ("ray",),
    "verifiers": ("verifiers",),
    "wandb": ("wandb",),
}


@frozen
class Command:
    """A subcommand: its line in `purestep --help`, and the function of the words that follow its name."""

    about: str
    call: Callable[[list[str]], int]


def _own(about: str, module: str, name: str) -> Command:
    return Command(about, deferred(str(__package__), module, name))


COMMANDS: Mapping[str, Command] = {
    "train": _own("train a policy, evaluate it and draw its learning curve", "run", "train_command"),
    "sweep": _own("train many settings and seeds at once and rank them", "sweep", "sweep_command"),
    "evaluate": _own("play episodes with a trained policy, or rank by its proofs", "run", "evaluate_command"),
    "explain": _own("show proofs, or the answers of an open question, on a run of prove", "run", "explain_command"),
    "chat": _own("try tasks with a trained language model and see the turns", "chat", "chat_command"),
    "export": _own("write a trained policy as a program of torch or ONNX, or its tensors", "export", "export_command"),
    "resume": _own("go on with a run that was stopped", "run", "resume_command"),
    "plot": _own("draw the learning curve of one run, or of several seeds", "run", "plot_command"),
    "view": _own("write a page with the curves and conversations of a run", "view", "view_command"),
    "host": _own("serve this machine as a host for remote rollout workers", "host", "host_command"),
    "replay": _own(
        "go again through what generators and trainer of a run did, and check it",
        "replay",
        "replay_command",
    ),
}


def commands() -> dict[str, Command]:
    """Return purestep's own commands and those of the entry-point group, which are loaded when they are called."""
    added = {
        point.name: Command(f"of {point.value.partition(':')[0]}", _loader(point))
        for point in entry_points(group=GROUP)
    }
    return {**added, **COMMANDS}


def _loader(point: Any) -> Callable[[list[str]], int]:
    def call(words: list[str]) -> int:
        try:
            command = point.load()
        except ModuleNotFoundError as absent:
            remedy = "install the package's extras, e.g. pip install 'purestep[properties]'"
            where = f"purestep {point.name}: {absent.name}"
            raise ChoiceError(message(where, got="not installed", wanted="it installed", remedy=remedy)) from absent
        return int(command(words))

    return call


def usage(known: Mapping[str, Command]) -> str:
    """Return the text of `purestep --help`."""
    rows = "\n".join(f"  {name:10} {command.about}" for name, command in known.items())
    tail = "Options of a command: purestep COMMAND --help. With --debug an error shows its traceback."
    return f"usage: purestep [--debug] COMMAND ...\n\ncommands:\n{rows}\n\n{tail}"


def error_line(error: Exception) -> str:
    """Return an error as one line of text.

    >>> error_line(FileNotFoundError(2, "No such file or directory", "run"))
    'run is not usable (No such file or directory), wanted a file or folder that is; check the path'
    >>> error_line(ModuleNotFoundError("No module named 'pykeen'", name="pykeen"))
    "pykeen is not installed, wanted installed; pip install 'purestep[kg]'"
    >>> error_line(MemoryError())
    'this process is out of memory (MemoryError), wanted more; raise its limit, or ask for less; what was saved stays'
    >>> error_line(RuntimeError("I/O error: File too large (os error 27)"))
    'a file is not usable (File too large), wanted a file or folder that is; raise the limit (ulimit -f); what was saved stays'
    >>> error_line(OverflowError("int too large to convert to float"))
    'a number is too large (int too large to convert to float), wanted one that fits; choose a smaller one'
    """
    if isinstance(error, PurestepError):
        return " ".join(str(error).split())
    first = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    if isinstance(error, ModuleNotFoundError):
        return _absent(error.name or "a module", first)
    if isinstance(error, ValueError) and first.startswith("embedded null"):
        wanted, remedy = "a path without one", "look for it in the files that were given"
        return message("a path", got="text with a NUL byte", wanted=wanted, remedy=remedy)
    if number := SYSTEM.search(first):
        error = OSError(int(number[1]), os.strerror(int(number[1])))
    if isinstance(error, OverflowError) or any(words in first for words in TOO_LARGE):
        remedy = "choose a smaller one"
        return message("a number", got=f"too large ({first[:160]})", wanted="one that fits", remedy=remedy)
    if isinstance(error, MemoryError) or any(words in str(error) for words in MEMORY):
        remedy = "raise its limit, or ask for less; what was saved stays"
        return message("this process", got=f"out of memory ({first[:160]})", wanted="more", remedy=remedy)
    if isinstance(error, OSError):
        where, got = str(error.filename or "a file"), f"not usable ({error.strerror or first})"
        remedy = REMEDIES.get(error.errno or 0, "check the path")
        return message(where, got=got, wanted="a file or folder that is", remedy=remedy)
    return f"{type(error).__name__}: {first} (--debug shows where)"


def _absent(name: str, text: str) -> str:
    """Return the line for a module that is not there, with the extra of purestep that has it."""
    if ", wanted " in text:
        return text
    package = name.partition(".")[0]
    extra = next((extra for extra, packages in EXTRAS.items() if package in packages), "")
    remedy = f"pip install 'purestep[{extra}]'" if extra else "install the package that has it"
    return message(
        name if package != name and not extra else package, got="not installed", wanted="installed", remedy=remedy
    )


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line; return the exit code."""
    fill_streams()
    code = _called(list(sys.argv[1:] if words is None else words))
    if words is None:
        atexit.register(deaf)
    if several():
        from ..effects.distributed.process_group import let_go  # here: it imports torch

        let_go()
    return code


def _called(words: list[str]) -> int:
    debug = "--debug" in words
    name, *rest = [word for word in words if word != "--debug"] or ["--help"]
    try:
        known = commands()
        if name in ("-h", "--help"):
            print(usage(known), flush=True)
            return 0
        for word in rest:  # some libraries cannot handle names that are not valid text
            check_text("a word of the command line", word, remedy="rename what it names")
            if len(word) > LONGEST:  # a refusal would show all of it
                got, remedy = f"{len(word):,} characters long", "shorten it, or put it into a file"
                where, wanted = f"the word {word[:20]!a}...", f"at most {LONGEST:,}"
                raise ChoiceError(message(where, got=got, wanted=wanted, remedy=remedy))
        with interruptible():
            code = choose("purestep: command", name, known).call(rest)
        sys.stdout.flush()
        return code
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    except KeyboardInterrupt:
        say("purestep: interrupted")
        return 130
    except Exception as error:
        if debug:
            raise
        if isinstance(error, BrokenPipeError) and output_closed():
            return 141
        drop_output()
        line = " ".join(f"purestep: {error_line(error)}".split())
        if isinstance(error, RankError) and several():
            end_at_once(line)
        with suppress(OSError):  # nobody reads it
            say(line)
        return 1


if __name__ == "__main__":
    sys.exit(main())
