"""TRL's GRPOTrainer on fixed completions: writes its losses and gradients beside this script, for a test to compare with.

    python benchmarks/peers/trl_losses.py         # run by the python of the environment "trl", rewrites trl_losses.json
    python benchmarks/peers/trl_losses.py FILE    # or writes another file

The trainer is TRL's own, from its rewards to its loss. What it is given: a tiny Llama of random weights, completions by its
`rollout_func`, rewards from a list. The weights move between the old log-probs and the loss, as they do within a batch that
is used twice. On the CPU, in float64, without a network. The gradient is that with respect to the log-probs of the tokens.
"""

import json
import math
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # read when these are imported
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

VOCABULARY, PROMPT, LENGTH, ROWS, GROUP = 16, 3, 5, 12, 4
MICRO_BATCHES = 2
# Of each completion: how many tokens it has, and those of them that a tool wrote. The third has none of its own.
LENGTHS = (5, 2, 3, 4, 5, 1, 4, 5, 3, 2, 5, 4)
OF_A_TOOL: dict[int, tuple[int, ...]] = {0: (1, 2), 2: (0, 1, 2), 7: (0,), 10: (3, 4)}
UNSCORED_BY_THE_SAMPLER = (4, 2)  # a row and a token: there vLLM has no number
REWARDS = ((1.0, 0.25, -0.5, 2.0, 0.0, 3.0, 1.5, -1.0, 0.5, 0.75, -2.0, 1.25),)
# A group of equal rewards, and one of which a row has no reward.
UNEVEN = ((1.0, 0.25, -0.5, 2.0, 0.1, 0.1, 0.1, 0.1, 0.5, None, -2.0, 1.25),)
TWO = (*REWARDS, (0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0))

CLIP: dict[str, Any] = {"epsilon": 0.2, "epsilon_high": 0.28}
SEQUENCES: dict[str, Any] = {"epsilon": 0.05, "epsilon_high": 0.1, "importance_sampling_level": "sequence"}
SAMPLER: dict[str, Any] = {**CLIP, "loss_type": "grpo", "use_vllm": True}
WEIGHTS: dict[str, Any] = {"vllm_importance_sampling_clip_min": 0.8, "vllm_importance_sampling_clip_max": 1.25}
CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "grpo": {**CLIP, "loss_type": "grpo"},
    "bnpo": {**CLIP, "loss_type": "bnpo"},
    "dr_grpo": {**CLIP, "loss_type": "dr_grpo", "scale_rewards": "none"},
    "dapo": {**CLIP, "loss_type": "dapo"},
    "dapo, two windows": {**CLIP, "loss_type": "dapo", "steps_per_generation": 4, "per_device_train_batch_size": 3},
    "cispo": {"loss_type": "cispo", "epsilon_high": 1.25},
    "cispo, sequence": {"loss_type": "cispo", "epsilon_high": 1.25, "importance_sampling_level": "sequence"},
    "gspo": {**SEQUENCES, "loss_type": "grpo"},
    "gspo, dapo": {**SEQUENCES, "loss_type": "dapo"},
    "luspo": {**SEQUENCES, "loss_type": "luspo"},
    "delta": {**CLIP, "loss_type": "grpo", "delta": 1.5},
    "beta": {**CLIP, "loss_type": "grpo", "beta": 0.5, "use_bias_correction_kl": False},
    "beta, dapo": {**CLIP, "loss_type": "dapo", "beta": 0.5, "use_bias_correction_kl": False},
    "beta, weighted": {**CLIP, "loss_type": "grpo", "beta": 0.5, "use_bias_correction_kl": True},
    "beta, gspo": {**SEQUENCES, "loss_type": "grpo", "beta": 0.5},
    "token_truncate": {**SAMPLER, **WEIGHTS, "vllm_importance_sampling_mode": "token_truncate"},
    "token_mask": {**SAMPLER, **WEIGHTS, "vllm_importance_sampling_mode": "token_mask"},
    "sequence_truncate": {**SAMPLER, **WEIGHTS, "vllm_importance_sampling_mode": "sequence_truncate"},
    "sequence_mask": {**SAMPLER, **WEIGHTS, "vllm_importance_sampling_mode": "sequence_mask"},
    "token_mask, beta": {**SAMPLER, **WEIGHTS, "vllm_importance_sampling_mode": "token_mask", "beta": 0.5},
    "off-policy mask": {**CLIP, "loss_type": "grpo", "off_policy_mask_threshold": 0.05},
}
ADVANTAGES: dict[str, dict[str, Any]] = {
    "group": {"scale_rewards": "group"},
    "batch": {"scale_rewards": "batch"},
    "none": {"scale_rewards": "none"},
    "normalize_then_sum": {"multi_objective_aggregation": "normalize_then_sum", "reward_weights": [1.0, 0.5]},
}


class Watched(GRPOTrainer):
    """The trainer, whose log-probs are a leaf of the loss's graph, kept for their gradient.

    Its kernel gives them in float32 even of a model in float64; from there on all is in float64.
    """

    log_prob: torch.Tensor

    def _get_per_token_logps_and_entropies(self, *given: Any, **named: Any) -> Any:
        log_prob, *others = super()._get_per_token_logps_and_entropies(*given, **named)
        log_prob = log_prob.double()
        if torch.is_grad_enabled():
            log_prob = self.log_prob = log_prob.detach().requires_grad_()
        return log_prob, *others


def main() -> None:
    """Makes the model, asks for each case, writes."""
    torch.set_default_dtype(torch.float64)
    with tempfile.TemporaryDirectory() as folder:
        settings = LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            initializer_range=0.5,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        )
        torch.manual_seed(7)
        LlamaForCausalLM(settings).double().save_pretrained(folder)
        told = {
            **{name: version(name) for name in ("trl", "transformers", "torch")},
            "group": GROUP,
            "micro_batches": MICRO_BATCHES,
            "max_completion_length": LENGTH + 1,
            "losses": {name: losses(trainer(folder, case, REWARDS), case) for name, case in CASES.items()},
            "advantages": {name: advantages(folder, case) for name, case in ADVANTAGES.items()},
        }
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".json")
    out.write_text(json.dumps(told, allow_nan=False) + "\n")


def losses(asked: Watched, case: dict[str, Any]) -> dict[str, Any]:
    """The micro-batches of one generation and what TRL makes of each."""
    rows = [{"prompt": "w3"} for _ in range(ROWS)]
    inputs = []
    for step in range(asked.args.steps_per_generation):
        asked._step = step  # the first generates
        inputs.append(asked._prepare_inputs(rows))
    move(asked.model, 2)
    return {"settings": case, "micro_batches": [answer(asked, batch) for batch in inputs]}


def answer(asked: Watched, batch: dict[str, Any]) -> dict[str, Any]:
    """What went into one loss, the loss, and its gradient."""
    loss = asked.compute_loss(asked.model, batch)
    (gradient,) = torch.autograd.grad(loss, asked.log_prob)
    assert loss.dtype == gradient.dtype == torch.float64
    named = {
        "log_prob": asked.log_prob.detach(),
        "old_log_prob": batch["old_per_token_logps"],
        "advantage": batch["advantages"],
        "mask": batch["completion_mask"] * batch["tool_mask"],
        "items": batch["num_items_in_batch"],
        "loss": loss.detach(),
        "gradient": gradient,
    }
    if asked.beta:
        named["reference_log_prob"] = batch["ref_per_token_logps"]
    if asked.use_vllm or asked.off_policy_mask_threshold is not None:
        named["sampler_log_prob"] = batch["sampling_per_token_logps"]
    return {name: plain(value.tolist()) for name, value in named.items()}


def advantages(folder: str, case: dict[str, Any]) -> dict[str, Any]:
    """Rewards [function, row] and TRL's advantages [row]."""
    rewards = TWO if "reward_weights" in case else UNEVEN
    asked = trainer(folder, {**CLIP, "loss_type": "grpo", **case}, rewards)
    asked._prepare_inputs([{"prompt": "w3"} for _ in range(ROWS)])
    return {"settings": case, "rewards": rewards, "advantages": list(asked._logs["advantages"])}


def trainer(folder: str, case: dict[str, Any], rewards: tuple[tuple[float | None, ...], ...]) -> Watched:
    """TRL's trainer of that case; its policy is already away from the reference."""
    settings = {
        "per_device_train_batch_size": ROWS // MICRO_BATCHES,
        "gradient_accumulation_steps": MICRO_BATCHES,
        "num_generations": GROUP,
        "num_iterations": 2,
        "max_completion_length": LENGTH + 1,
        **{name: value for name, value in case.items() if name != "use_vllm"},
    }
    words = {"<pad>": 0, "<s>": 1, "</s>": 2, **{f"w{i}": i for i in range(3, VOCABULARY)}}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<pad>"))
    tokenizer.pre_tokenizer = Whitespace()
    asked = Watched(
        model=LlamaForCausalLM.from_pretrained(folder, dtype=torch.float64),
        reward_funcs=[reader(column) for column in rewards],
        args=GRPOConfig(output_dir=f"{folder}/out", use_cpu=True, bf16=False, report_to=[], **settings),
        train_dataset=Dataset.from_dict({"prompt": ["w3"] * ROWS}),
        processing_class=PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
        ),
        rollout_func=rollout,
    )
    # No engine is there, so it may not be asked for above; the sampler's log-probs are those of `rollout`.
    asked.use_vllm, asked._last_loaded_step = case.get("use_vllm", False), asked.state.global_step
    asked.current_gradient_accumulation_steps = MICRO_BATCHES  # set by `train`, which is not called
    asked.model.train()
    move(asked.model, 1)
    return asked


def reader(column: tuple[float | None, ...]) -> Any:
    """A reward function that reads them off."""

    def reward(**named: Any) -> list[float | None]:
        return list(column)

    return reward


def rollout(prompts: list[Any], asked: Watched) -> dict[str, Any]:
    """Fixed completions, and log-probs of a sampler that is nearly the policy."""
    drawn = torch.Generator().manual_seed(3)
    prompt = [[int(x) for x in torch.randint(3, VOCABULARY, (PROMPT,), generator=drawn)] for _ in prompts]
    completion = [[int(x) for x in torch.randint(3, VOCABULARY, (n,), generator=drawn)] for n in LENGTHS]
    own = [[int(t not in OF_A_TOOL.get(row, ())) for t in range(n)] for row, n in enumerate(LENGTHS)]
    noise = torch.randn(ROWS, LENGTH, generator=drawn) * 0.2
    found: list[list[float | None]] = []
    for row, (before, after) in enumerate(zip(prompt, completion, strict=True)):
        ids = torch.tensor([before + after])
        with torch.no_grad():
            scores = asked.model(input_ids=ids).logits[0, PROMPT - 1 : -1].log_softmax(-1)
        exact = scores.gather(-1, ids[0, PROMPT:, None])[:, 0]
        found.append((exact + noise[row, : len(after)]).tolist())
    row, token = UNSCORED_BY_THE_SAMPLER
    found[row][token] = None
    return {"prompt_ids": prompt, "completion_ids": completion, "logprobs": found, "env_mask": own}


def move(model: torch.nn.Module, seed: int) -> None:
    """A step of the weights, the same for a seed."""
    drawn = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.01 * torch.randn(weight.shape, generator=drawn)


def plain(value: Any) -> Any:
    """Lists in which NaN is null."""
    if isinstance(value, list):
        return [plain(x) for x in value]
    return None if isinstance(value, float) and math.isnan(value) else value


if __name__ == "__main__":
    main()
