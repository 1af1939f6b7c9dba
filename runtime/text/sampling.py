"""Sampling of a run: in this process, or from a server that receives new weights before each step."""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import define, field, frozen

from ...algorithms.language.learner import LanguageState
from ...core.errors import ChoiceError, message
from ...core.language.codec import widened
from ...core.language.grading import graded
from ...core.language.protocol import Protocol
from ...core.language.requests import Request
from ...core.transcript.log_probs import token_log_probs
from ..effects.openai_server.client import Server, ServerError, server, wait_for
from ..effects.openai_server.parse_response import PROCESSED, RAW
from ..effects.openai_server.sample import sample_from_server
from ..effects.openai_server.vllm_weights import SERVED as LINK
from ..effects.openai_server.vllm_weights import lay_out, publish
from ..runs.recipe import Notice
from ..runs.run import silent
from .components import Attempts, TextComponents, attempts_at, sampler
from .config import TextConfig
from .prompting import Complete, Source, completing_here
from .report import model_writer
from .training_loop import Asking, Completing

SERVED, LATEST = "served", "current"  # the folder of the weights for a server, and the name it serves them under


def check_server(arguments: TextConfig) -> None:
    """Refuse a --server that is no address, or whose log-probs are not those of the samples. Raises: ChoiceError."""
    sampling = arguments.sampling
    if not sampling.server:
        return
    server(sampling.server, LATEST)
    if sampling.server_log_probs == RAW and (sampling.temperature, sampling.top_p) != (1.0, 1.0):
        where, got = "--server-log-probs", f"'raw' at temperature {sampling.temperature:g} and top_p {sampling.top_p:g}"
        wanted, remedy = "'processed', or both 1", "start vLLM with --logprobs-mode processed_logprobs and give it"
        raise ChoiceError(message(where, got=got, wanted=wanted, remedy=remedy))


@frozen
class RunSampler:
    """The sampler of a run: requests to finished attempts, and completion of begun attempts, with the weights of a state.

    `source` is what its evaluations are sampled from: a server, or (), this process.
    """

    ask: Asking
    complete: Completing
    source: Callable[[LanguageState], Source | tuple[()]]


def run_sampler(run: Path, arguments: TextConfig, parts: TextComponents, notice: Notice) -> RunSampler:
    """Return the sampler of a run.

    With a server, write the files that it is started with, report how to start it and whether it is there, and wait for it at
    the first request. Raises: ServerError for one that serves other models.
    """
    sampling = arguments.sampling
    if sampling.server:
        given = ServerFolder(run / SERVED, server(sampling.server, LATEST), parts, sampling.server_seconds, notice)
        given.lay_out(lambda: parts.whole(parts.begin()))
        notice(f"samples come from {sampling.server}; let it serve {given.root / LINK} as {LATEST!r}")
        if sampling.server_log_probs == PROCESSED:
            notice(
                f"{sampling.server} is taken to return log-probs at temperature {sampling.temperature:g} and top_p "
                f"{sampling.top_p:g}: log_prob_difference shows whether it does"
            )
        given.look()
        return _from_server(given, arguments)
    sample = sampler(parts, temperature=sampling.temperature, top_p=sampling.top_p)

    def ask(state: LanguageState, requests: Sequence[Request]) -> Attempts:
        return sample(parts.whole(state.params.policy), int(state.step), requests)

    def complete(state: LanguageState) -> Complete:
        how = {"temperature": sampling.temperature, "top_p": sampling.top_p}
        return completing_here(parts, parts.whole(state.params.policy), int(state.step), **how)

    return RunSampler(ask, complete, lambda state: ())


def evaluation_source(
    run: Path, arguments: TextConfig, parts: TextComponents, params: Mapping[str, torch.Tensor], version: int
) -> Source | tuple[()]:
    """Return what the evaluation of a run is sampled from: its server, which has to be there, or (), this process.

    The server loads the parameters first: lock the run's folder, since it samples for a run that trains with others.
    Raises: ServerError, in one line, if the server is not there.
    """
    sampling = arguments.sampling
    if not sampling.server:
        return ()
    given = ServerFolder(run / SERVED, server(sampling.server, LATEST), parts, 0.0, silent)
    given.lay_out(lambda: dict(params))
    try:
        wait_for(given.where, 0.0)
    except ServerError as error:
        got, wanted = f"not there ({_reason(error)})", f"a server of {given.root / LINK} as {LATEST!r}"
        remedy = "start it, name another with --server URL, or sample in this process with --server ''"
        raise ServerError(message(sampling.server, got=got, wanted=wanted, remedy=remedy)) from error
    return given.source(lambda: dict(params), version)


def _reason(error: ServerError) -> str:
    """Return the cause of an error, or its own text."""
    cause = error.__cause__
    return " ".join(str((cause.__cause__ or cause) if cause else error).split())[:200]


@define
class ServerFolder:
    """A server, and the folder from which it loads weights."""

    root: Path
    where: Server
    parts: TextComponents
    seconds: float  # to wait for it
    notice: Notice
    _published: list[int] = field(factory=list)  # the version that the server was verified to have
    _lock: Any = field(factory=threading.Lock)  # workers that complete concurrently publish each version once

    def lay_out(self, params: Callable[[], dict[str, torch.Tensor]]) -> None:
        """Write the files that the server is started with, where there are none yet."""
        if not (self.root / LINK).exists():
            lay_out(self.root, model_writer(self.parts, params()), version=0)

    def waiting(self) -> None:
        """Report that the server is not there, and how long it is waited for."""
        self.notice(
            f"no server at {self.where.url} yet: waiting for it up to {self.seconds:g} s when it has to sample; "
            "--server-seconds changes that, Ctrl-C stops"
        )

    def look(self) -> None:
        """Report at once if the server is not there. Raises: ServerError for one that serves other models."""
        try:
            wait_for(self.where, 0.0)
        except ServerError as error:
            if error.__cause__ is None:
                raise
            self.waiting()

    def complete(self, params: Callable[[], dict[str, torch.Tensor]], version: int, **how: Any) -> Complete:
        """Return a function that completes begun attempts on the server, with these parameters, which it loads first."""

        def ended(rules: Protocol[Any, Any], begun: Attempts, worker: int) -> Attempts:
            with self._lock:
                if self._published != [version]:
                    given, probe = params(), begun[0].ids
                    expected: dict[str, Any] = {"probe": probe, "log_probs": _log_probs(self.parts, given, probe)}
                    wait: dict[str, Any] = {"within": self.seconds, "waiting": self.waiting}
                    publish(self.where, self.root, model_writer(self.parts, given), version=version, **wait, **expected)
                    self._published[:] = [version]
            codec = widened(self.parts.codec, self.parts.speaker.vocabulary)
            return sample_from_server(self.where, rules, codec, begun, version=version, **how)

        return ended

    def source(self, params: Callable[[], dict[str, torch.Tensor]], version: int) -> Source:
        """Return what an evaluation is sampled from. Its log-probs are not trained on, so those of any server will do."""
        how = {"log_probs": PROCESSED}
        return lambda temperature, top_p: self.complete(params, version, temperature=temperature, top_p=top_p, **how)


def _from_server(given: ServerFolder, arguments: TextConfig) -> RunSampler:
    """Return a sampler on a server, which gets the weights of the state first if this process has not published them yet."""
    sampling, parts = arguments.sampling, given.parts
    how: dict[str, Any] = {"temperature": sampling.temperature, "top_p": sampling.top_p}
    how |= {"log_probs": sampling.server_log_probs}

    def complete(state: LanguageState) -> Complete:
        return given.complete(lambda: parts.whole(state.params.policy), int(state.step), **how)

    def ask(state: LanguageState, requests: Sequence[Request]) -> Attempts:
        return graded(parts.task.grader, complete(state)(parts.rules, attempts_at(parts, requests), 0))

    def source(state: LanguageState) -> Source:
        return given.source(lambda: parts.whole(state.params.policy), int(state.step))

    return RunSampler(ask, complete, source)


def _log_probs(parts: TextComponents, params: dict[str, torch.Tensor], ids: Sequence[int]) -> tuple[float, ...]:
    """Return the log-probs of each id after the first under the weights."""
    tokens = torch.tensor([ids])
    with torch.no_grad():
        logits = parts.speaker.head(params, parts.speaker.apply(params, tokens, (), ()))
        return tuple(token_log_probs(logits, tokens)[0, 1:].tolist())
