"""How processes end: SIGTERM is as Ctrl-C, also for what a shell has told to ignore that; who lost a rank ends at once."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping

import pytest

from purestep.runtime.cli import main
from purestep.runtime.effects.distributed.process_group import RankError
from purestep.runtime.effects.signals import interruptible

LOST = """
import atexit, sys
from purestep.runtime.cli import main
from purestep.runtime.effects.distributed.process_group import RankError

def lost(words):
    raise RankError("rank 0 is\\n alone")

main.COMMANDS = {"train": main.Command("", lost)}
atexit.register(print, "taken apart")
print("before", end="")
print(main.main(["train"]))
"""


def test_ctrl_c_inside_a_finalizer_is_not_lost() -> None:
    class Last:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    def wait() -> None:
        del [Last()][0]
        time.sleep(60)

    hook, begin = sys.unraisablehook, time.monotonic()
    with pytest.raises(KeyboardInterrupt), interruptible():
        wait()
    assert time.monotonic() - begin < 50, "it came after the sleep"
    assert sys.unraisablehook is hook


def test_sigterm_is_heard_where_sigint_is_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), interruptible():
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_who_has_lost_a_rank_is_not_taken_apart() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LOST], env={**os.environ, "WORLD_SIZE": "2"}, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (1, "before")
    assert ended.stderr == "purestep: rank 0 is alone\n"


def lost(words: list[str]) -> int:
    raise RankError("rank 0 is alone")


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, main.Command]:
    known = {"train": main.Command("", lost)}
    monkeypatch.setattr(main, "COMMANDS", known)
    return known


def test_with_debug_it_is_raised(commands: Mapping[str, main.Command], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RankError):
        main.main(["--debug", *commands])


def test_a_process_alone_ends_as_ever(
    commands: Mapping[str, main.Command], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert main.main([*commands]) == 1
    assert capsys.readouterr().err == "purestep: rank 0 is alone\n"


DONE = """
import atexit, signal, sys
from purestep.runtime.cli import main

main.COMMANDS = {"done": main.Command("", lambda words: 0)}
sys.argv = ["purestep", "done"]
for number in (signal.SIGINT, signal.SIGTERM):
    atexit.register(signal.raise_signal, number)
sys.exit(main.main())
"""


def test_a_program_that_is_over_is_not_interrupted() -> None:
    ended = subprocess.run([sys.executable, "-c", DONE], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
