"""Trust in functions that a run's record may name: those of purestep, and those that the command line names again."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from attrs import frozen

from ...core.errors import TrustError, message
from .arguments import flag

FLAG = "--trust"


@frozen
class Trust:
    """The functions that a command line trusts besides purestep's own, and the command itself."""

    names: Collection[str] = ()
    every: bool = False  # trust all functions that the run's record names
    typed: Sequence[str] = ("resume", "RUN")  # the words of the command, for the error message
    by_name: bool = True  # whether the command has flags that name functions
    call: str = ""  # the call from Python that trusts them, where there is no command


NOTHING = Trust()


def trusted(command: str, run: Path, every: bool) -> Trust:
    """Return the trust of a command that has only the flag --trust."""
    return Trust(every=every, typed=(command, str(run)), by_name=False)


def check_trust(run: Path, trust: Trust, named: Mapping[str, str]) -> None:
    """Refuse functions that the command line does not name, before anything is imported.

    `named` are the functions of others that the run's record names, by the settings that name them; several of one setting
    are separated by spaces.
    Raises: TrustError, with the command that trusts them.

    >>> check_trust(Path("run"), Trust(typed=("resume", "run")), {"policy": "os.abort"})
    Traceback (most recent call last):
    purestep.core.errors.TrustError: run is a run that calls os.abort, wanted a function that this command names; \
if you trust it: purestep resume run --policy os.abort
    """
    foreign = {flag(setting): name for setting, name in named.items() if name not in trust.names}
    if trust.every or not foreign:
        return
    flags = [word for name, values in foreign.items() for word in (name, *values.split())] if trust.by_name else [FLAG]
    again = trust.call or shlex.join(["purestep", *trust.typed, *flags])
    got, wanted = f"a run that calls {' and '.join(foreign.values())}", "a function that this command names"
    raise TrustError(message(str(run), got=got, wanted=wanted, remedy=f"if you trust it: {again}"))
