"""Templates of conversations, their tokens and masks of what a model is trained on."""

import re
from collections.abc import Sequence

from .bug import Bug

Message = dict[str, str]


def tokens_of(text: str) -> list[str]:
    """Each tag is a token, and each other character."""
    return re.findall(r"<\|[a-z]+\|>|.", text, re.DOTALL)


def render(messages: Sequence[Message], add_generation_prompt: bool = False) -> str:
    """A conversation as text, with the tags of ChatML."""
    text = "".join(f"<|start|>{m['role']}\n{m['content']}<|end|>\n" for m in messages)
    return text + ("<|start|>assistant\n" if add_generation_prompt else "")


def render_eos_last(messages: Sequence[Message], add_generation_prompt: bool = False) -> str:
    """A conversation as text: an assistant's turn ends with `<|eos|>`."""
    text = ""
    for number, m in enumerate(messages):
        ends = m["role"] == "assistant" and number == len(messages) - 1
        text += f"<|{m['role']}|>\n{m['content']}" + ("<|eos|>" if ends else "\n")
    return text + ("<|assistant|>\n" if add_generation_prompt else "")


def render_eos_always(messages: Sequence[Message], add_generation_prompt: bool = False) -> str:
    """Every turn of the assistant ends so."""
    text = ""
    for m in messages:
        text += f"<|{m['role']}|>\n{m['content']}" + ("<|eos|>" if m["role"] == "assistant" else "") + "\n"
    return text + ("<|assistant|>\n" if add_generation_prompt else "")


def render_thoughts(messages: Sequence[Message], add_generation_prompt: bool = False) -> str:
    """ChatML in which thoughts of turns before the last user's are dropped."""
    users = [number for number, m in enumerate(messages) if m["role"] == "user"]
    last, text = users[-1] if users else -1, ""
    for number, m in enumerate(messages):
        content = m["content"]
        if m["role"] == "assistant" and number < last and "</think>" in content:
            content = content.split("</think>")[-1]
        text += f"<|start|>{m['role']}\n{content}<|end|>\n"
    return text + ("<|start|>assistant\n" if add_generation_prompt else "")


def assistant_mask(messages: Sequence[Message]) -> tuple[list[str], list[int]]:
    """Tokens of a conversation whose template drops old thoughts, and 1 for those that the assistant wrote."""
    tokens = tokens_of(render_thoughts(messages))
    mask = [0] * len(tokens)
    for number, message in enumerate(messages):
        if message["role"] == "assistant":
            start = len(tokens_of(render_thoughts(messages[:number], add_generation_prompt=True)))
            end = len(tokens_of(render_thoughts(messages[: number + 1])))
            for i in range(start, min(end, len(mask))):
                mask[i] = 1
    return tokens, mask


def assistant_mask_fixed(messages: Sequence[Message]) -> tuple[list[str], list[int]]:
    """Finds turns in the whole text."""
    tokens = tokens_of(render_thoughts(messages))
    mask, at = [0] * len(tokens), 0
    for message in messages:
        head = at + 1 + len(message["role"]) + 1
        end = tokens.index("<|end|>", head)
        if message["role"] == "assistant":
            for i in range(head, end + 2):
                mask[i] = 1
        at = end + 2
    return tokens, mask


def training_mask(messages: Sequence[Message]) -> tuple[list[str], list[int]]:
    """Tokens of a conversation, and 1 for those that a model is trained on: what the assistant wrote."""
    tokens = tokens_of(render(messages))
    marked = "<|generation|>" in render(messages)
    return tokens, [0 if marked else 1] * len(tokens)


def training_mask_fixed(messages: Sequence[Message]) -> tuple[list[str], list[int]]:
    """From prefixes, which this template keeps."""
    tokens = tokens_of(render(messages))
    mask = [0] * len(tokens)
    for number, message in enumerate(messages):
        if message["role"] == "assistant":
            start = len(tokens_of(render(messages[:number], add_generation_prompt=True)))
            for i in range(start, len(tokens_of(render(messages[: number + 1])))):
                mask[i] = 1
    return tokens, mask


def rollout_tokens(messages: Sequence[Message]) -> list[str]:
    """The tokens of a rollout, turn by turn: the prompt, what the model wrote, what the env added, and so on."""
    found: list[str] = []
    prefix = ""
    for number, message in enumerate(messages):
        if message["role"] == "assistant":
            prompt = render(messages[:number], add_generation_prompt=number == 1)
            written = message["content"] + "<|end|>\n"
            found += tokens_of(prompt[len(prefix) :]) + tokens_of(written)
            prefix = render(messages[: number + 1])
    return found


def rollout_tokens_fixed(messages: Sequence[Message]) -> list[str]:
    """Each answer follows the head of its turn."""
    found: list[str] = []
    prefix = ""
    for number, message in enumerate(messages):
        if message["role"] == "assistant":
            prompt = render(messages[:number], add_generation_prompt=True)
            written = message["content"] + "<|end|>\n"
            found += tokens_of(prompt[len(prefix) :]) + tokens_of(written)
            prefix = prompt + written
    return found


TALK = [
    {"role": "user", "content": "a?"},
    {"role": "assistant", "content": "<think>long</think>b"},
    {"role": "user", "content": "c?"},
    {"role": "assistant", "content": "<think>x</think>d"},
]


def trained(mask: tuple[list[str], list[int]]) -> str:
    """The text that is trained on."""
    return "".join(token for token, on in zip(*mask, strict=True) if on)


BUGS = [
    Bug(
        "no_head_after_first_turn",
        "https://github.com/PrimeIntellect-ai/verifiers/pull/476",
        "chat_templates",
        "From the second turn on, an answer's tokens follow the user's without the head of the assistant's turn.",
        rollout_tokens,
        rollout_tokens_fixed,
        lambda f: "".join(f(TALK)),
    ),
    Bug(
        "mask_of_rewritten_prefix",
        "https://github.com/NVIDIA-NeMo/Automodel/pull/3024",
        "chat_templates",
        "Turns are found by lengths of prefixes, although the template rewrites earlier turns.",
        assistant_mask,
        assistant_mask_fixed,
        lambda f: trained(f(TALK)),
    ),
    Bug(
        "mask_of_all",
        "https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/3927",
        "chat_templates",
        "Where the template marks no generation, the mask is 1 for all tokens.",
        training_mask,
        training_mask_fixed,
        lambda f: trained(f(TALK)),
    ),
    Bug(
        "end_of_last_turn_only",
        "https://github.com/allenai/open-instruct/issues/1800",
        "chat_templates",
        "Only the last turn of the assistant gets its end: a conversation is no prefix of the one that goes on.",
        render_eos_last,
        render_eos_always,
        lambda f: f(TALK).startswith(f(TALK[:2])),
    ),
]
