"""One rollout: what is to be run, what may come of it, and the thread it runs in."""

import threading
from collections.abc import Callable
from typing import Any

from attrs import frozen

from ....core.errors import PurestepError, StructureError, message
from .interfaces import InferenceEngine, Sample, Workflow
from .samples import is_sample, unlocked

Job = Callable[[], None]


class RolloutError(PurestepError, RuntimeError):
    """Rollouts cannot go on; what stopped them is the cause."""


@frozen
class Task:
    """A rollout to begin."""

    data: Any
    workflow: Workflow
    should_accept: Callable[[Sample], bool] | None = None

    def made(self, engine: InferenceEngine) -> Sample:
        """What the workflow gives, `unlocked`, None if it is not wanted.

        Raises: StructureError for what is no sample, and as the workflow does.

        >>> Task({"input_ids": [1]}, lambda engine, data: data, lambda sample: True).made(())
        {'input_ids': [1]}
        """
        sample = self.workflow(engine, self.data)
        if sample is None:
            return None
        if not is_sample(sample):
            got, remedy = type(sample).__name__, "return None for nothing"
            raise StructureError(message("workflow: result", got=got, wanted="a TensorDict or a dict", remedy=remedy))
        return unlocked(sample) if self.should_accept is None or self.should_accept(sample) else None


def in_thread(job: Job) -> None:
    """Runs a job in a thread that no process waits for."""
    threading.Thread(target=job, name="purestep-rollout", daemon=True).start()
