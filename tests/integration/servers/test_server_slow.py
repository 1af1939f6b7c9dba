"""A real vLLM server on this machine's processor: its ids and log-probs are a learner's, and new weights arrive.

It needs vLLM in an environment of its own, whose python VLLM_PYTHON names, or .peers/vllm;
benchmarks/machines/server_zorplex.py says how to make it.
"""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve, frozen

from purestep.algorithms.language.scoring import LearnerParams, score_tokens
from purestep.core import keys
from purestep.core.causal import CausalModel
from purestep.core.language.codec import Codec
from purestep.core.language.protocol import Protocol, protocol
from purestep.core.language.requests import RolloutSpec, requests, rollouts, task_keys
from purestep.core.language.rollout import begin_rollout
from purestep.core.language.to_transcript import transcripts
from purestep.core.language.types import Rollout
from purestep.core.language.zorplex.corpus import zorplex_texts
from purestep.core.language.zorplex.env import instructions, zorplex, zorplex_parser
from purestep.core.transcript.calls import per_token
from purestep.core.transcript.log_probs import loss_mask, token_log_probs
from purestep.runtime.effects.generation.engine import rollouts as generated
from purestep.runtime.effects.hugging_face.causal_lm import from_config, tiny_llama
from purestep.runtime.effects.hugging_face.chat_template import chat_codec
from purestep.runtime.effects.hugging_face.folder import save_model
from purestep.runtime.effects.hugging_face.tokenizer import train_tokenizer
from purestep.runtime.effects.openai_server.client import Server
from purestep.runtime.effects.openai_server.sample import ServerError, sample_from_server, server
from purestep.runtime.effects.openai_server.vllm_process import running
from purestep.runtime.effects.openai_server.vllm_weights import lay_out, publish

ROOT = Path(__file__).parents[3]
PYTHON = Path(os.environ.get("VLLM_PYTHON", ROOT / ".peers" / "vllm" / "bin" / "python"))
CAPACITY, LONGEST, CALLS = 96, 12, 3

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason=f"no vLLM at {PYTHON}: see benchmarks/machines/server_zorplex.py"),
]


@frozen
class Served:
    """A server, what it serves, and where its weights are laid out."""

    server: Server
    model: CausalModel
    config: Any
    tokenizer: Any
    codec: Codec
    rules: Protocol[Any, Any]
    root: Path

    def params(self, seed: int) -> Any:
        return self.model.init(keys.key(seed))

    def save(self, seed: int, folder: Path) -> Path:
        return save_model(folder, self.params(seed), self.config, self.tokenizer)

    def attempts(self, n: int) -> list[Rollout[Any]]:
        return [
            begin_rollout(self.rules, self.codec, one, capacity=CAPACITY, max_new_tokens=LONGEST) for one in asked(n)
        ]

    def sampled(self, n: int, version: int, **sampling: Any) -> tuple[Rollout[Any], ...]:
        options = {"log_probs": "processed", **sampling}
        return sample_from_server(self.server, self.rules, self.codec, self.attempts(n), version=version, **options)

    def difference(self, attempts: Sequence[Rollout[Any]], seed: int) -> float:
        """The largest |ours - theirs| log-prob of the tokens sampled."""
        written = transcripts(attempts, capacity=CAPACITY, calls=CALLS)
        heat = per_token(written, written.temperature, 1.0)
        with torch.no_grad():
            ours = score_tokens(
                self.model, LearnerParams(policy=self.params(seed)), written.token, written.length, heat
            )
        mask = loss_mask(written)
        assert mask.sum() > 50
        return float((ours.log_prob - written.behaviour_log_prob)[mask].abs().max())

    def log_probs(self, ids: Sequence[int], seed: int) -> tuple[float, ...]:
        tokens, params = torch.tensor([list(ids)]), self.params(seed)
        with torch.no_grad():
            logits = self.model.head(params, self.model.apply(params, tokens, (), ()))
        return tuple(token_log_probs(logits, tokens)[0, 1:].tolist())


def asked(n: int) -> list[RolloutSpec]:
    some = requests(task_keys(keys.key(0), "training", n), keys.key(1))
    return [rollout for request in some for rollout in rollouts(request)]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose log-probs are those of what it samples from; at temperature 1 they are the model's own as well."""
    root = tmp_path_factory.mktemp("served")
    tokenizer = train_tokenizer(zorplex_texts(zorplex().params))
    config = tiny_llama(len(tokenizer), width=64, layers=2, heads=2, kv_heads=1, inner=128, tied=False)
    made = Served(
        server=server("http://127.0.0.1:1/v1", "policy"),
        model=from_config(config),
        config=config,
        tokenizer=tokenizer,
        codec=chat_codec(tokenizer, opens_with="user"),
        rules=protocol(zorplex(), zorplex_parser(), max_steps=CALLS),
        root=root / "weights",
    )
    link = lay_out(made.root, partial(made.save, 0), version=0)
    options = ("--logprobs-mode", "processed_logprobs")
    with running(PYTHON, link, name="policy", log=root / "log", window=CAPACITY, options=options) as here:
        yield evolve(made, server=server(here.url, "policy", timeout=30.0))


def test_its_log_probs_are_a_learners(one: Served) -> None:
    publish(
        one.server, one.root, partial(one.save, 1), version=1, probe=(3, 4, 5), log_probs=one.log_probs((3, 4, 5), 1)
    )
    attempts = one.sampled(8, version=1)
    assert all(not isinstance(attempt.end, tuple) for attempt in attempts)
    assert one.difference(attempts, seed=1) < 1e-4
    assert one.difference(one.sampled(8, version=1, temperature=0.7), seed=1) < 1e-4


def test_a_request_made_again_gives_the_same(one: Served) -> None:
    assert one.sampled(4, version=1) == one.sampled(4, version=1)
    nucleus = one.sampled(4, version=1, top_p=0.5)
    assert nucleus != one.sampled(4, version=1)
    assert nucleus == one.sampled(4, version=1, top_p=0.5)


def test_new_weights_arrive_and_stale_ones_are_found_out(one: Served) -> None:
    ids = one.sampled(1, version=1)[0].ids
    gap = publish(one.server, one.root, partial(one.save, 2), version=2, probe=ids, log_probs=one.log_probs(ids, 2))
    assert gap < 1e-4
    assert one.difference(one.sampled(8, version=2), seed=2) < 1e-4
    with pytest.raises(ServerError, match="log-probs of the probe is off by"):
        publish(one.server, one.root, partial(one.save, 3), version=3, probe=ids, log_probs=one.log_probs(ids, 2))


def test_the_likeliest_tokens_are_those_that_we_generate(one: Served) -> None:
    probe = (3, 4, 5)
    publish(one.server, one.root, partial(one.save, 4), version=4, probe=probe, log_probs=one.log_probs(probe, 4))
    ours = generated(
        one.model,
        one.params(4),
        one.rules,
        one.codec,
        asked(4),
        version=4,
        capacity=CAPACITY,
        max_new_tokens=LONGEST,
        temperature=0.0,
    )
    assert one.sampled(4, version=4, temperature=0.0) == ours


def test_a_prompt_beyond_its_window_is_refused_in_its_own_words(one: Served) -> None:
    rollout = asked(1)[0]
    rules = protocol(zorplex(), zorplex_parser(), system=instructions("compositional"), max_steps=2)
    attempt = begin_rollout(rules, chat_codec(one.tokenizer), rollout, capacity=512, max_new_tokens=LONGEST)
    with pytest.raises(ServerError, match=r"answer is status 400: .*\b96\b"):
        sample_from_server(one.server, rules, chat_codec(one.tokenizer), [attempt], version=0)
