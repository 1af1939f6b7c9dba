"""Sampling of a run: in this process, or from a server that receives new weights before each step."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from ...algorithms.language.learner import LanguageState
from ...core.language.codec import widened
from ...core.language.grading import graded
from ...core.language.protocol import Protocol
from ...core.language.requests import Request
from ...core.transcript.log_probs import token_log_probs
from ..effects.hugging_face.folder import save_model
from ..effects.openai_server.client import Server, server
from ..effects.openai_server.sample import served
from ..effects.openai_server.vllm_weights import SERVED as LINK
from ..effects.openai_server.vllm_weights import lay_out, publish
from ..runs.recipe import Notice
from .components import Attempts, TextComponents, attempts_at, sampler
from .config import TextConfig
from .prompting import Complete, in_process
from .training_loop import Asking, Completing

SERVED, LATEST = "served", "current"  # the folder of the weights for a server, and the name it serves them under
WAIT = 600.0  # time-out in seconds for the answer of a server


def check_server(arguments: TextConfig) -> None:
    """Refuse a --server that is no address. Raises: ChoiceError."""
    if arguments.sampling.server:
        server(arguments.sampling.server, LATEST)


@frozen
class RunSampler:
    """The sampler of a run: requests to finished attempts, and completion of begun attempts, with the weights of a state."""

    ask: Asking
    complete: Completing


def run_sampler(run: Path, arguments: TextConfig, parts: TextComponents, notice: Notice) -> RunSampler:
    """Return the sampler of a run.

    With a server, write the files that it is started with, report how to start it, and wait for it at the first request.
    """
    sampling = arguments.sampling
    if sampling.server:
        root = run / SERVED
        if not (root / LINK).exists():
            lay_out(root, _saver(parts, parts.whole(parts.begin())), version=0)
        notice(f"samples come from {sampling.server}; let it serve {root / LINK} as {LATEST!r}")
        return _from_server(root, server(sampling.server, LATEST), parts)
    sample = sampler(parts, temperature=sampling.temperature, top_p=sampling.top_p)

    def ask(state: LanguageState, requests: Sequence[Request]) -> Attempts:
        return sample(parts.whole(state.params.policy), int(state.step), requests)

    def complete(state: LanguageState) -> Complete:
        how = {"temperature": sampling.temperature, "top_p": sampling.top_p}
        return in_process(parts, parts.whole(state.params.policy), int(state.step), **how)

    return RunSampler(ask, complete)


def _saver(parts: TextComponents, params: dict[str, torch.Tensor]) -> Callable[[Path], object]:
    return lambda folder: save_model(folder, params, parts.config, parts.tokenizer, generation=parts.generation)


def _from_server(root: Path, where: Server, parts: TextComponents) -> RunSampler:
    """Return a sampler on a server, which gets the weights of the state first if this process has not published them yet."""
    choices: dict[str, Any] = {"temperature": parts.sampling.temperature, "top_p": parts.sampling.top_p}
    codec = widened(parts.codec, parts.speaker.vocabulary)
    published: list[int] = []  # the version that the server was verified to have
    lock = threading.Lock()  # workers that complete concurrently publish each version once

    def complete(state: LanguageState) -> Complete:
        version = int(state.step)

        def ended(rules: Protocol[Any, Any], begun: Attempts, worker: int) -> Attempts:
            with lock:
                if published != [version]:
                    params, probe = parts.whole(state.params.policy), begun[0].ids
                    expected: dict[str, Any] = {"probe": probe, "log_probs": _log_probs(parts, params, probe)}
                    publish(where, root, _saver(parts, params), version=version, within=WAIT, **expected)
                    published[:] = [version]
            return served(where, rules, codec, begun, version=version, **choices)

        return ended

    def ask(state: LanguageState, requests: Sequence[Request]) -> Attempts:
        return graded(parts.task.grader, complete(state)(parts.rules, attempts_at(parts, requests), 0))

    return RunSampler(ask, complete)


def _log_probs(parts: TextComponents, params: dict[str, torch.Tensor], ids: Sequence[int]) -> tuple[float, ...]:
    """Return the log-probs of each id after the first under the weights."""
    tokens = torch.tensor([ids])
    with torch.no_grad():
        logits = parts.speaker.head(params, parts.speaker.apply(params, tokens, (), ()))
        return tuple(token_log_probs(logits, tokens)[0, 1:].tolist())
