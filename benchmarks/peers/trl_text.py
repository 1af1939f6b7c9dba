"""TRL's GRPOTrainer on prompts with TRL's own reward functions, timed step by step; prints one line of JSON.

    python benchmarks/peers/trl_text.py --model FOLDER --prompts FILE --steps 20     # by the python of the environment "trl"

Float32, on the CPU, one thread, no network; the settings are those that `benchmarks.trl_text` gives our side.
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
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.rewards import accuracy_reward, get_soft_overlong_punishment, think_format_reward


class Watch(TrainerCallback):
    """Takes the time of steps."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.cpu: list[float] = []

    def on_step_begin(self, *given: Any, **named: Any) -> None:
        """Starts the clocks."""
        self.start = time.perf_counter(), time.process_time()

    def on_step_end(self, *given: Any, **named: Any) -> None:
        """Stops them."""
        self.seconds.append(time.perf_counter() - self.start[0])
        self.cpu.append(time.process_time() - self.start[1])


def main() -> None:
    """Trains and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    for name in ("steps", "groups", "samples", "tokens", "seed", "threads"):
        parser.add_argument(f"--{name}", type=int, default=1)
    parser.add_argument("--rate", type=float, required=True)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    rows, watch = [json.loads(line) for line in asked.prompts.read_text().splitlines()], Watch()
    with tempfile.TemporaryDirectory() as out:
        settings = GRPOConfig(
            output_dir=out,
            use_cpu=True,
            bf16=False,
            report_to=[],
            per_device_train_batch_size=asked.groups * asked.samples,
            num_generations=asked.samples,
            max_completion_length=asked.tokens,
            loss_type="grpo",
            epsilon_high=0.28,
            beta=0.0,
            learning_rate=asked.rate,
            weight_decay=0.0,
            max_grad_norm=1.0,
            lr_scheduler_type="constant",
            max_steps=asked.steps,
            logging_steps=1,
            save_strategy="no",
            seed=asked.seed,
            disable_tqdm=True,
            gradient_checkpointing=False,
        )
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(asked.model, dtype=torch.float32),
            reward_funcs=[accuracy_reward, think_format_reward, get_soft_overlong_punishment(asked.tokens, 16)],
            args=settings,
            train_dataset=Dataset.from_list(rows),
            processing_class=AutoTokenizer.from_pretrained(asked.model),
            callbacks=[watch],
        )
        trainer.train()
    log = [row for row in trainer.state.log_history if "reward" in row]
    told = {
        "seconds": watch.seconds[1:],
        "cpu seconds": watch.cpu[1:],
        "reward": [row["reward"] for row in log],
        "accuracy": [row["rewards/accuracy_reward/mean"] for row in log],
        "length": [row["completions/mean_length"] for row in log],
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
