"""`purestep replay RUN`: replay the events of the generators and the trainer of a run, and check them."""

from pathlib import Path

import tyro

from ...core.errors import ChoiceError, message
from ..effects import folder
from ..runs.kinds import with_generators
from .common import loading


def replay_command(words: list[str]) -> int:
    """`purestep replay RUN`: 0 where all is as it should be."""

    def again(run: tyro.conf.Positional[Path], /) -> int:
        """Go through what generators and trainer did: is the scheduler the same again, was each sample learned from once?

        Args:
            run: the folder of a run with generators, or of one of its phases, RUN/sync or RUN/async
        """
        home, names = (run.parent, (run.name,)) if with_generators(run.parent) else (run, folder.PHASES[1:])
        there = [name for name in names if (home / name).is_dir()]
        if with_generators(home) or not home.is_dir():
            loading(home)
        if not with_generators(home) or not there:
            wanted, remedy = "the folder of one", "train one: purestep train zorplex --mode async"
            raise ChoiceError(message(str(run), got="no run with generators", wanted=wanted, remedy=remedy))
        from ..async_rl import report
        from ..async_rl.replay import replay_phase

        wrong = []
        for name in there:
            replay, audit = replay_phase(home, name), report.audit(home, name)
            print(f"{name}: {replay.line()}\n{name}: {audit.line()}")
            wrong += [*replay.wrong, *audit.wrong]
        return int(bool(wrong))

    return tyro.cli(again, args=words, prog="purestep replay")
