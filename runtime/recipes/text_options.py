"""Options of the commands on runs of language models, besides their settings. Imports no torch."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import tyro
from attrs import field, frozen

from ...core.errors import ChoiceError, message
from ..runs.arguments import flatten
from ..runs.trusting import Trust
from ..text.config import TextConfig


@frozen
class NoPolicies:
    """No functions that a run's folder names."""


@frozen
class Policies:
    """Functions of yours that a run's folder names: they are called only if named here, or with --trust."""

    solution_rollout_policy: str = ""  # the function of that name
    summarization_rollout_policy: str = ""  # the function of that name


@frozen
class Functions:
    """Reward functions and tools that a run's folder names: they are called only if named here, or with --trust."""

    reward: tuple[str, ...] = ()  # the reward functions of these names
    tools: tuple[str, ...] = ()  # the tools of these names


@frozen
class Moves:
    """Go on with a run from its newest checkpoint, with the arguments it was begun with; the samplers may move elsewhere."""

    # what starts generators from now on; as it was, unless given, and so are the others
    engine: Literal["processes", "monarch", "ray"] | None = None
    hosts: str | None = None  # where generators work from now on, each with `purestep host`; "" is this machine
    # how weights reach hosts: as fits them; by memory that all see; by Ray's object store; by Monarch's RDMA
    transfer: Literal["auto", "shared", "ray", "monarch"] | None = None
    trust_network: tyro.conf.FlagCreatePairsOff[bool] = False  # also use what no engine encrypts with other hosts
    devices: str | None = None  # of the generators in turn
    server: str | None = None  # the vLLM server that samples from now on, where one does
    server_seconds: float | None = None  # to wait for a server that is not there yet
    functions: Annotated[Any, tyro.conf.arg(name="")] = NoPolicies()
    trust: tyro.conf.FlagCreatePairsOff[bool] = False  # import the task or the functions that the run's folder names
    words: tyro.conf.Suppress[tuple[str, ...]] = ()  # of the command line

    def check(self) -> None:
        """Refuse an empty address. Raises: ChoiceError."""
        if self.server == "":
            remedy = "leave it out to go on with its own"
            raise ChoiceError(message("--server", got="''", wanted="http://HOST:PORT/v1", remedy=remedy))


@frozen
class ChangedTextNumbers:
    """Numbers that change from now on; those that are not given stay."""

    steps: int | None = None  # of training in all, more than before; a learning rate that anneals then ends later
    learning_rate: float | None = None  # of AdamW
    weight_decay: float | None = None  # of AdamW
    max_gradient_norm: float | None = None  # longer gradients are shortened to it
    clip: float | None = None  # how far a ratio may fall
    clip_high: float | None = None  # how far a ratio may rise; of cispo, where its weight is cut
    kl: float | None = None  # weight of the divergence from the policy before reinforcement, where there is one
    entropy_coefficient: float | None = None  # weight of the policy's entropy
    budget: int | None = None  # tokens that go through the model at once, at most
    generators: int | None = None  # workers that sample beside the trainer, of a run that has some
    eval_every_n_versions: int | None = None  # updates between two evaluations on the way; 0 means none
    held_out: int | None = None  # tasks of the evaluation at the end, of a run without generators
    draw: int | None = None  # decides which tasks are held out, of a run without generators


@frozen
class TextMoving:
    """Settings that change from now on; those that are not given stay."""

    numbers: ChangedTextNumbers = field(factory=ChangedTextNumbers)
    temperature: float | None = None  # of training's samples
    eval_samples: int | None = None  # attempts at each held-out task, of a run without generators

    def check(self) -> None:
        """Accept any options: the recipe checks its arguments."""


@frozen
class CacheMoving:
    """Settings that change from now on; those that are not given stay."""

    numbers: ChangedTextNumbers = field(factory=ChangedTextNumbers)
    llm_temperature: float | None = None  # of training's samples

    def check(self) -> None:
        """Accept any options: the recipe checks its arguments."""


@frozen
class HeldOut:
    """Try held-out tasks with the newest checkpoint, as it samples and as it takes the likeliest token."""

    settings: tyro.conf.Suppress[Callable[[], TextConfig]]
    trial: Annotated[Any, tyro.conf.arg(name="")]  # the options of the recipe
    functions: Annotated[Any, tyro.conf.arg(name="")]
    server: str | None = None  # the vLLM server that samples, where one does; '' is this process
    phase: Literal["", "sync", "async"] = ""  # of a run with generators; by default the last one there is
    trust: tyro.conf.FlagCreatePairsOff[bool] = False  # import the task or the functions that the run's folder names
    words: tyro.conf.Suppress[tuple[str, ...]] = ()  # of the command line

    def check(self) -> None:
        """Refuse invalid numbers. Raises: ChoiceError."""
        self.settings().evaluated(self.trial)


def trust_of(options: Moves | HeldOut) -> Trust:
    """Return the functions that a command line trusts."""
    named = flatten(options.functions).values()
    names = tuple(" ".join(value) if isinstance(value, tuple) else value for value in named)
    return Trust(names, options.trust, options.words)


@frozen
class Over:
    """Draw one run in its pictures, or the success of several seeds in one."""

    over: Literal["samples", "seconds"] = "samples"  # what the success of several runs with generators is drawn over

    def check(self) -> None:
        """Accept any options."""
