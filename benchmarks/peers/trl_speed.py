"""Training steps of TRL's GRPOTrainer on fixed completions, timed; prints one line of JSON.

    python benchmarks/peers/trl_speed.py --folder FOLDER     # by the python of the environment "trl"

FOLDER holds a model and talks.json: prompts, completions, which of their tokens the model wrote, rewards, the size of a group.
A step is timed without what gives it its completions, rewards and advantages: forward and backward passes, clipping and the
optimiser alone. Float32, on the CPU, without a network; each batch is used once.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # read when these are imported
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class Timed(GRPOTrainer):
    """The trainer, which knows what it spent on its inputs."""

    data_seconds = 0.0

    def _prepare_inputs(self, *given: Any) -> Any:
        start = time.perf_counter()
        found = super()._prepare_inputs(*given)
        self.data_seconds += time.perf_counter() - start
        return found


class Watch(TrainerCallback):
    """Takes the time of steps, and the gradient of the first."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.norms: dict[str, float] = {}
        self.trainer: Any = None

    def on_step_begin(self, *given: Any, **named: Any) -> None:
        """Starts the clock."""
        self.start, self.before = time.perf_counter(), self.trainer.data_seconds

    def on_pre_optimizer_step(self, *given: Any, model: Any = None, **named: Any) -> None:
        """Looks at the first gradient, which is clipped by now."""
        if not self.norms:
            self.norms = {name: float(weight.grad.norm()) for name, weight in model.named_parameters()}

    def on_step_end(self, *given: Any, **named: Any) -> None:
        """Stops it."""
        spent = time.perf_counter() - self.start
        self.seconds.append(spent - (self.trainer.data_seconds - self.before))


def main() -> None:
    """Trains and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    talks, watch = json.loads((options.folder / "talks.json").read_text()), Watch()
    with tempfile.TemporaryDirectory() as out:
        asked = trainer(options.folder, talks, watch, out, options.steps)
        watch.trainer = asked
        start = time.perf_counter()
        asked.train()
    told = {
        "seconds": watch.seconds[1:],
        "whole_seconds": (time.perf_counter() - start) / options.steps,
        "gradient_norms": watch.norms,
    }
    print(json.dumps(told))


def trainer(folder: Path, talks: dict[str, Any], watch: Watch, out: str, steps: int) -> Timed:
    """TRL's trainer of one batch that it is given again and again."""
    rows = len(talks["rewards"])
    tokenizer = Tokenizer(WordLevel({"<pad>": 0, "</s>": 1, "w": 2}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = Whitespace()
    settings = GRPOConfig(
        output_dir=out,
        use_cpu=True,
        bf16=False,
        report_to=[],
        per_device_train_batch_size=rows,
        num_generations=talks["group"],
        max_completion_length=max(map(len, talks["completion_ids"])),
        loss_type="grpo",
        learning_rate=1e-3,
        weight_decay=0.0,
        max_grad_norm=1.0,
        lr_scheduler_type="constant",
        max_steps=steps,
        logging_steps=steps,
        save_strategy="no",
        disable_tqdm=True,
        gradient_checkpointing=False,
    )
    return Timed(
        model=LlamaForCausalLM.from_pretrained(folder),
        reward_funcs=[lambda **named: talks["rewards"]],
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": ["w"] * rows}),
        processing_class=PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>"),
        rollout_func=lambda prompts, asked: {
            **{name: talks[name] for name in ("prompt_ids", "completion_ids", "env_mask")},
            "logprobs": [[0.0] * len(row) for row in talks["completion_ids"]],
        },
        callbacks=[watch],
    )


if __name__ == "__main__":
    main()
