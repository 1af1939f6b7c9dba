"""Our losses in TRL's trainer: GRPO with one method overridden.

    python examples/trl_grpo.py              # needs trl 1.16, and nothing of ours but the package

The trainer, its model, its data and its optimiser are TRL's own; the loss is `token_clip`, reduced by `sequence_mean`, tensors
in and tensors out. A tiny Llama of random weights learns to say one word of its fourteen. With the settings below TRL's own
loss is the same function, so both are trained, and what differs between the two runs is printed.
"""

import os
import tempfile
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # read when these are imported
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from purestep.algorithms.aggregate import sequence_mean
from purestep.algorithms.language.masking import spread_over_tokens
from purestep.algorithms.language.token_losses import token_clip

WORDS, PROMPT, WANTED, STEPS = 14, "w3 w4", "w7", 60


class OurLoss(GRPOTrainer):
    """TRL's trainer with our loss."""

    def _compute_loss(self, model: Any, inputs: dict[str, Tensor]) -> Tensor:
        prompt, completion = inputs["prompt_ids"], inputs["completion_ids"]
        ids = torch.cat([prompt, completion], 1)
        attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        log_prob, *_ = self._get_per_token_logps_and_entropies(model, ids, attention, completion.shape[1])
        behaviour = inputs.get("old_per_token_logps", log_prob.detach())
        mask = inputs["completion_mask"].bool()
        advantage = spread_over_tokens(inputs["advantages"], mask)
        loss = token_clip(log_prob, behaviour, advantage, mask, clip=(self.epsilon_low, self.epsilon_high))
        return sequence_mean(loss, mask, denominator=len(mask) * self.current_gradient_accumulation_steps)


def reward(completions: list[str], **_: Any) -> list[float]:
    """Which share of the words is the wanted one."""
    return [text.split().count(WANTED) / max(1, len(text.split())) for text in completions]


def trained(kind: type[GRPOTrainer], folder: str) -> tuple[list[float], dict[str, Tensor]]:
    """The mean rewards of the steps, and the weights behind them."""
    torch.manual_seed(0)
    words = {"<pad>": 0, "</s>": 1, **{f"w{i}": i + 2 for i in range(WORDS)}}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<pad>"))
    tokenizer.pre_tokenizer = Whitespace()
    size: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    config = LlamaConfig(vocab_size=len(words), pad_token_id=0, eos_token_id=1, bos_token_id=None, **size)
    trainer = kind(
        model=LlamaForCausalLM(config),
        reward_funcs=reward,
        args=GRPOConfig(
            output_dir=folder,
            loss_type="grpo",
            epsilon_high=0.28,
            num_generations=8,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=2,
            num_iterations=2,
            max_completion_length=8,
            max_steps=STEPS,
            learning_rate=1e-2,
            logging_steps=1,
            seed=0,
            use_cpu=True,
            bf16=False,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_dict({"prompt": [PROMPT] * 64}),
        processing_class=PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>"),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    told = [row["reward"] for row in trainer.state.log_history if "reward" in row]
    return told, {name: value.detach() for name, value in trainer.model.named_parameters()}


def main() -> dict[str, float]:
    """Trains with TRL's loss and with ours, from the same weights and seeds."""
    torch.set_num_threads(1)  # two that wait for each other are slower on so small a model
    with tempfile.TemporaryDirectory() as folder:
        theirs, their_weights = trained(GRPOTrainer, folder)
        ours, our_weights = trained(OurLoss, folder)
    apart = max(float((our_weights[name] - value).abs().max()) for name, value in their_weights.items())
    figures = {"reward before": ours[0], "reward after": ours[-1], "TRL's after": theirs[-1], "weights apart": apart}
    print(*(f"{name} {value:.3g}" for name, value in figures.items()), sep=", ")
    return figures


if __name__ == "__main__":
    main()
