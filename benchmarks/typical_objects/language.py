"""Rewards, parsers, templates, masks and losses of language models."""

import json
import math
import re

import torch
from torch import Tensor


def format_reward(completions, **kwargs):
    pattern = r"^<think>.*?</think>\s*<answer>.*?</answer>$"
    return [1.0 if re.match(pattern, c[0]["content"], re.DOTALL) else 0.0 for c in completions]


def correctness_reward(prompts, completions, answer, **kwargs) -> list[float]:
    """2 for the answer."""
    texts = [c[0]["content"].split("<answer>")[-1].split("</answer>")[0].strip() for c in completions]
    return [2.0 if t == a else 0.0 for t, a in zip(texts, answer, strict=True)]


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    found = re.findall(r"#### (-?[0-9.,]+)", solution_str)
    return 1.0 if found and found[-1].replace(",", "") == ground_truth else 0.0


def parse_tool_call(text: str) -> dict | None:
    """The first call in tags."""
    match = re.search(r"<tool_call>(.*?)</tool_call>", text, re.DOTALL)
    try:
        return json.loads(match.group(1)) if match else None
    except json.JSONDecodeError:
        return None


class ToolParser:
    """All calls of a text, and the text without them."""

    def extract_tool_calls(self, model_output: str):
        calls = [json.loads(body) for body in re.findall(r"<tool_call>(.*?)</tool_call>", model_output, re.DOTALL)]
        return calls, re.sub(r"<tool_call>.*?</tool_call>", "", model_output, flags=re.DOTALL)


def apply_chat_template(messages, add_generation_prompt=False):
    text = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    return text + ("<|im_start|>assistant\n" if add_generation_prompt else "")


def completion_mask(completion_ids: Tensor, eos_token_id: int) -> Tensor:
    """Tokens up to and with the first end."""
    is_eos = completion_ids == eos_token_id
    eos_idx = torch.where(is_eos.any(1), is_eos.int().argmax(1), completion_ids.shape[1])
    return (torch.arange(completion_ids.shape[1]).expand_as(completion_ids) <= eos_idx.unsqueeze(1)).int()


def grpo_advantages(rewards: Tensor, num_generations: int, eps: float = 1e-4) -> Tensor:
    """Of each completion in its group."""
    grouped = rewards.view(-1, num_generations)
    mean, std = grouped.mean(1, keepdim=True), grouped.std(1, keepdim=True)
    return ((grouped - mean) / (std + eps)).view(-1)


def compute_policy_loss(old_log_prob, log_prob, advantages, response_mask, cliprange=0.2):
    ratio = (log_prob - old_log_prob).exp()
    losses = torch.max(-advantages * ratio, -advantages * ratio.clamp(1 - cliprange, 1 + cliprange))
    return (losses * response_mask).sum() / response_mask.sum()


def pass_at_k(n: int, c: int, k: int) -> float:
    """The unbiased estimator."""
    if n - c < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(n - c + 1, n + 1))
