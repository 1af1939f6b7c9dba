"""Two optimisation steps of TRL's GRPOTrainer: writes what it was given and what came out beside this script, for a test.

    python benchmarks/peers/trl_step.py         # run by the python of the environment "trl", rewrites trl_step.json
    python benchmarks/peers/trl_step.py FILE    # or writes another file

`train` runs as users run it, for two steps of the optimiser on the same completions, each over two micro-batches, on a tiny
Llama of random weights with completions by `rollout_func` and rewards from a list. On the CPU, in float64 (log-probs in
float32: that is TRL's kernel), without a network. AdamW's epsilon is large, so that its step is smooth where a gradient is
nearly 0.
"""

import json
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

VOCABULARY, PROMPT, LENGTH, ROWS, GROUP, TEMPERATURE = 16, 3, 5, 12, 4, 0.75
LENGTHS = (5, 2, 3, 4, 5, 1, 4, 5, 3, 2, 5, 4)
OF_A_TOOL: dict[int, tuple[int, ...]] = {0: (1, 2), 2: (0,), 7: (0,), 10: (3, 4)}
REWARDS = (1.0, 0.25, -0.5, 2.0, 0.5, 0.5, 0.5, 0.5, 0.0, 0.75, -2.0, 1.25)  # the second group has no spread
MODEL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "initializer_range": 0.5,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SGD: dict[str, Any] = {"optim": "sgd", "learning_rate": 0.5, "max_grad_norm": 0.05}
ADAMW: dict[str, Any] = {
    "optim": "adamw_torch",
    "learning_rate": 0.01,
    "adam_epsilon": 0.1,
    "weight_decay": 0.0,
    "max_grad_norm": 1.0,
}
CASES: dict[str, dict[str, Any]] = {
    "grpo": {**SGD, "loss_type": "grpo", "epsilon": 0.2},
    "grpo, adamw": {**ADAMW, "loss_type": "grpo", "epsilon": 0.2},
    "dr_grpo": {**SGD, "loss_type": "dr_grpo", "scale_rewards": "none"},
    "dapo": {**SGD, "loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28},
    "cispo": {**SGD, "loss_type": "cispo", "epsilon_high": 5.0},
    "gspo": {
        **SGD,
        "loss_type": "grpo",
        "importance_sampling_level": "sequence",
        "epsilon": 3e-4,
        "epsilon_high": 4e-4,
    },
}


class Watched(GRPOTrainer):
    """The trainer, whose losses are kept."""

    seen: list[float]

    def compute_loss(self, model: Any, inputs: Any, *given: Any, **named: Any) -> Any:
        loss = super().compute_loss(model, inputs, *given, **named)
        self.seen.append(float(loss))
        return loss


def main() -> None:
    """Makes the model, takes the steps of each case, writes."""
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.manual_seed(7)
    model = LlamaForCausalLM(LlamaConfig(**MODEL)).double()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        told = {
            **{name: version(name) for name in ("trl", "transformers", "torch")},
            "config": MODEL,
            "group": GROUP,
            "temperature": TEMPERATURE,
            "max_completion_length": LENGTH + 1,
            "rewards": REWARDS,
            "completions": completions(),
            "weights": weights(model),
            "steps": {name: step(folder, case) for name, case in CASES.items()},
        }
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".json")
    out.write_text(json.dumps(told, allow_nan=False) + "\n")


def step(folder: str, case: dict[str, Any]) -> dict[str, Any]:
    """Two steps: their losses, the norms of their gradients before they are clipped, and the weights after them."""
    asked = trainer(folder, case)
    asked.train()
    return {
        "settings": case,
        "losses": [sum(asked.seen[:2]), sum(asked.seen[2:])],
        "gradient_norms": [row["grad_norm"] for row in asked.state.log_history if "grad_norm" in row],
        "weights": weights(asked.model),
    }


def trainer(folder: str, case: dict[str, Any]) -> Watched:
    """TRL's trainer of that case."""
    words = {"<pad>": 0, "<s>": 1, "</s>": 2, **{f"w{i}": i for i in range(3, VOCABULARY)}}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<pad>"))
    tokenizer.pre_tokenizer = Whitespace()
    settings = {
        "per_device_train_batch_size": ROWS // 2,
        "gradient_accumulation_steps": 2,
        "num_generations": GROUP,
        "max_completion_length": LENGTH + 1,
        "temperature": TEMPERATURE,
        "num_iterations": 2,
        "max_steps": 2,
        "lr_scheduler_type": "constant",
        "logging_steps": 1,
        "save_strategy": "no",
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        **case,
    }
    asked = Watched(
        model=LlamaForCausalLM.from_pretrained(folder, dtype=torch.float64),
        reward_funcs=[lambda **named: list(REWARDS)],
        args=GRPOConfig(output_dir=f"{folder}/out", use_cpu=True, bf16=False, report_to=[], **settings),
        train_dataset=Dataset.from_dict({"prompt": ["w3"] * ROWS}),
        processing_class=PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
        ),
        rollout_func=rollout,
    )
    asked.seen = []
    return asked


def rollout(prompts: list[Any], asked: Watched) -> dict[str, Any]:
    """Fixed completions, whatever is asked."""
    return completions()


def completions() -> dict[str, Any]:
    """Ids, and which of them the model wrote; the log-probs are not used, since no other engine sampled."""
    drawn = torch.Generator().manual_seed(3)
    prompt = [[int(x) for x in torch.randint(3, VOCABULARY, (PROMPT,), generator=drawn)] for _ in LENGTHS]
    completion = [[int(x) for x in torch.randint(3, VOCABULARY, (n,), generator=drawn)] for n in LENGTHS]
    own = [[int(t not in OF_A_TOOL.get(row, ())) for t in range(n)] for row, n in enumerate(LENGTHS)]
    nothing = [[0.0] * n for n in LENGTHS]
    return {"prompt_ids": prompt, "completion_ids": completion, "logprobs": nothing, "env_mask": own}


def weights(model: torch.nn.Module) -> dict[str, Any]:
    """All parameters, by name."""
    return {name: weight.detach().tolist() for name, weight in model.named_parameters()}


if __name__ == "__main__":
    main()
