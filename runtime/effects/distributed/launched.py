"""The environment variables with which a launcher starts several processes; they can be read without importing torch."""

import contextlib
import os

from ....core.errors import ChoiceError, PurestepError, message

SET = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class RankError(PurestepError, RuntimeError):
    """Error for a process that is gone, did not answer in time, or does something else than the others."""


def several() -> bool:
    """Return whether a launcher has started more than one process; reads only WORLD_SIZE."""
    return os.environ.get("WORLD_SIZE", "1") not in ("", "0", "1")


def on_one_rank(what: str) -> None:
    """Refuse several ranks for a command that only one process may run; ranks other than 0 exit silently.

    Raises: ChoiceError; SystemExit, with 1.
    """
    if several():
        if launched()[0]:
            raise SystemExit(1)
        remedy = "start it without a launcher; several ranks train zorplex, cache, or a task of yours"
        raise ChoiceError(message(what, got=f"on {launched()[1]} ranks", wanted="on one", remedy=remedy))


def within_machine() -> None:
    """Refuse ranks on several machines: torch's store and gloo neither authenticate nor encrypt their messages.

    torchrun sets LOCAL_WORLD_SIZE; another launcher's ranks are on one machine if MASTER_ADDR is a loopback address. Ranks
    other than 0 exit silently. Raises: ChoiceError; SystemExit, with 1.
    """
    rank, size = launched()
    address = os.environ.get("MASTER_ADDR", "")
    here = os.environ.get("LOCAL_WORLD_SIZE") == str(size) or address == "localhost" or address.startswith("127.")
    if here or address == "::1":
        return
    if rank:
        raise SystemExit(1)
    got, wanted = f"{address}, and what ranks exchange is not encrypted", "a network that is trusted"
    raise ChoiceError(
        message("ranks: MASTER_ADDR", got=got, wanted=wanted, remedy="--trust-network, where it is your own")
    )


def launched() -> tuple[int, int]:
    """Return the rank of this process and the number of ranks, as a launcher has set them; (0, 1) without a launcher.

    Raises: ChoiceError for a variable that is missing or has an impossible value.
    """
    missing = [name for name in SET if not os.environ.get(name)]
    if len(missing) == len(SET):
        return 0, 1
    if missing:
        remedy = "start it with torchrun, or set all of " + ", ".join(SET)
        raise ChoiceError(message(f"joined: {missing[0]}", got="not set", wanted="set", remedy=remedy))
    size = launcher_number("WORLD_SIZE", range(1, 2**31))
    launcher_number(
        "MASTER_PORT", range(0 if size == 1 else 1, 2**16)
    )  # 0 is any port, which other ranks could not find
    return launcher_number("RANK", range(size)), size


def launcher_number(name: str, among: range, usual: str = "") -> int:
    """Return the number in this variable of the launcher, else `usual`. Raises: ChoiceError unless it is in `among`."""
    said = os.environ.get(name) or usual
    with contextlib.suppress(ValueError):
        if int(said) in among:
            return int(said)
    wanted = f"a whole number from {among[0]} " + (f"to {among[-1]}" if among[-1] < 2**30 else "on")
    remedy = "start it with torchrun, or set " + ", ".join(SET) + " for each process"
    raise ChoiceError(message(f"joined: {name}", got=said, wanted=wanted, remedy=remedy))
