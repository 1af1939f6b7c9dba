"""What language models are trained with: rewards, checkers, parsers, templates, samplers, groups."""

import json
import math
import re
from fractions import Fraction

import numpy as np
import torch


def accuracy_reward(completions, solution, **kwargs):
    """1 for a completion whose boxed answer is the solution."""
    scores = []
    for text, right in zip(completions, solution, strict=True):
        found = re.findall(r"\\boxed\{([^{}]*)\}", text)
        scores.append(1.0 if found and found[-1].strip() == right.strip() else 0.0)
    return scores


def format_reward(prompts, completions, completion_ids=None, **kwargs):
    """Half a point for thinking before the answer, on conversations."""
    pattern = re.compile(r"<think>.*?</think>\s*<answer>.*?</answer>\s*", re.DOTALL)
    return [0.5 if pattern.fullmatch(turns[0]["content"]) else 0.0 for turns in completions]


def length_penalty_reward(completions, max_len=20, **kwargs):
    """Falls linearly with the characters beyond a limit, to -1."""
    return [-min(1.0, max(0, len(text) - max_len) / max_len) for text in completions]


def compute_score(solution_str, ground_truth, method="strict", format_score=0.0, score=1.0):
    """One text at a time: verl's rule-based form for grade-school problems."""
    if method == "strict":
        found = re.search(r"#### (\-?[0-9\.\,]+)", solution_str)
        answer = found.group(1).replace(",", "") if found else None
    else:
        numbers = re.findall(r"\-?[0-9\.\,]+", solution_str)
        answer = next((n for n in reversed(numbers) if n not in ("", ".")), None)
    if answer is None:
        return 0.0
    return score if answer == ground_truth else format_score


def reverse_text_reward(completion, answer):
    """Share of positions at which a text is the answer; one at a time."""
    if not answer:
        return 0.0
    same = sum(a == b for a, b in zip(completion, answer, strict=False))
    return same / max(len(answer), len(completion))


class ExactMatchReward:
    """A callable with a setting; rewards a batch."""

    def __init__(self, ignore_case=True):
        self.ignore_case = ignore_case

    def __call__(self, completions, answer, **kwargs):
        """A list of numbers."""
        fold = str.casefold if self.ignore_case else str
        return [float(fold(c.strip()) == fold(a.strip())) for c, a in zip(completions, answer, strict=True)]


def is_equiv(a, b):
    """Two answers as numbers, else as texts."""

    def number(text):
        try:
            return Fraction(text.replace(",", "").strip().rstrip("%"))
        except (ValueError, ZeroDivisionError):
            return None

    x, y = number(a), number(b)
    return x == y if x is not None and y is not None else a.strip() == b.strip()


def extract_boxed(text):
    """What is in the last \\boxed{...}, with braces inside."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    for i in range(start + 6, len(text)):
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return text[start + 7 : i]
    return None


def top_k_filter(logits, k=50):
    """All but the k largest become -inf."""
    k = min(k, logits.size(-1))
    least = torch.topk(logits, k, dim=-1).values[..., -1, None]
    return torch.where(logits < least, torch.full_like(logits, float("-inf")), logits)


def top_p_filter(logits, top_p=0.9, min_tokens_to_keep=1):
    """The smallest set of tokens with that probability."""
    ordered, order = torch.sort(logits, descending=True, dim=-1)
    probs = torch.softmax(ordered, dim=-1)
    before = probs.cumsum(-1) - probs
    drop = before >= top_p
    drop[..., :min_tokens_to_keep] = False
    return logits.masked_fill(drop.scatter(-1, order, drop), float("-inf"))


def min_p_filter(logits, min_p=0.05):
    """Tokens below a share of the largest probability become -inf."""
    probs = torch.softmax(logits, dim=-1)
    return logits.masked_fill(probs < min_p * probs.amax(-1, keepdim=True), float("-inf"))


def sample_token(logits, temperature=1.0, generator=None):
    """Greedy at temperature 0."""
    if temperature == 0:
        return logits.argmax(-1)
    return torch.multinomial(torch.softmax(logits / temperature, -1), 1, generator=generator).squeeze(-1)


def pad_sequences(sequences, pad_id, max_length=None, side="right"):
    """Token lists as one array and its mask."""
    width = max_length or max((len(s) for s in sequences), default=0)
    ids = np.full((len(sequences), width), pad_id, dtype=np.int64)
    mask = np.zeros((len(sequences), width), dtype=np.int64)
    for row, tokens in enumerate(sequences):
        kept = tokens[:width]
        at = slice(0, len(kept)) if side == "right" else slice(width - len(kept), width)
        ids[row, at], mask[row, at] = kept, 1
    return ids, mask


def truncate_at_stop(text, stop=("</s>", "<|im_end|>")):
    """The text before the first stop."""
    places = [text.find(s) for s in stop if s in text]
    return text[: min(places)] if places else text


def completion_mask(completion_ids, eos_token_id):
    """1 up to and with the first end."""
    ended = torch.cumsum((completion_ids == eos_token_id).long(), dim=1)
    before = ended - (completion_ids == eos_token_id).long()
    return (before == 0).long()


def compute_grpo_advantages(rewards, num_generations=4, scale_rewards=True, eps=1e-4):
    """Groups are consecutive completions."""
    groups = rewards.view(-1, num_generations)
    centred = groups - groups.mean(dim=1, keepdim=True)
    if scale_rewards:
        centred = centred / (groups.std(dim=1, keepdim=True) + eps)
    return centred.reshape(-1)


def grpo_outcome_advantage(scores, index, epsilon=1e-6):
    """Groups by the id of their prompt; a group of one keeps its score."""
    out = torch.zeros_like(scores)
    for name in set(index.tolist()):
        rows = index == name
        of = scores[rows]
        out[rows] = of if len(of) == 1 else (of - of.mean()) / (of.std() + epsilon)
    return out


def rloo_advantages(rewards, k=4):
    """Each less the mean of the others of its group."""
    grouped = rewards.reshape(-1, k)
    others = (grouped.sum(1, keepdim=True) - grouped) / (k - 1)
    return (grouped - others).flatten()


def pass_at_k(n, c, k):
    """Unbiased."""
    if n - c < k:
        return 1.0
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def parse_tool_calls(text):
    """Calls between tags, each with a name and arguments; what is no JSON is left out."""
    calls, decoder = [], json.JSONDecoder()
    at = text.find("<tool_call>")
    while at >= 0:
        start = at + len("<tool_call>")
        body = text[start:].lstrip()
        try:
            call, length = decoder.raw_decode(body)
        except ValueError:
            at = text.find("<tool_call>", start)
            continue
        if (
            body[length:].lstrip().startswith("</tool_call>")
            and isinstance(call, dict)
            and isinstance(call.get("name"), str)
        ):
            calls.append({"name": call["name"], "arguments": call.get("arguments") or {}})
        at = text.find("<tool_call>", len(text) - len(body) + length)
    return calls


def render_chat(messages, add_generation_prompt=True):
    """Llama's headers."""
    out = []
    for message in messages:
        out.append(f"<|start_header_id|>{message['role']}<|end_header_id|>\n\n{message['content']}<|eot_id|>")
    if add_generation_prompt:
        out.append("<|start_header_id|>assistant<|end_header_id|>\n\n")
    return "".join(out)


def overlong_penalty(length, max_length=20, cache=5):
    """DAPO's soft punishment, a number for a length."""
    start = max_length - cache
    if length <= start:
        return 0.0
    return -1.0 if length > max_length else (start - length) / cache
