"""Laws of conversations as tokens. Subject: a function messages -> (tokens, mask), or messages -> tokens of a rollout.

from purestep.properties import chat_mask_laws, verify
print(verify(chat_mask_laws(render, end="<|im_end|>", join=tokenizer.decode), my_tokens_and_mask))

The mask marks what the model is trained on; `render(messages, prompt)` is the chat template, as `chat_template_laws` has it.
"""

import copy
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from ...framework.compare import require
from ...framework.law import Law, Seen, Suite, law_constructor
from .chat_template import Message, conversations

Masked = Callable[[list[Message]], Any]

# --- mutants ---
# Common mistakes in tokens and masks of conversations: each edits a correct function.


def _edited(change: Callable[[list[Any], list[int]], tuple[list[Any], list[int]]]) -> Callable[[Masked], Masked]:
    def edit(subject: Masked) -> Masked:
        def wrong(messages: list[Message]) -> Any:
            found = subject(messages)
            both = isinstance(found, tuple)
            tokens, mask = found if both else (found, [0] * len(found))
            edited = change(list(tokens), [int(one) for one in mask])
            return edited if both else edited[0]

        return wrong

    return edit


repeats_last = _edited(lambda tokens, mask: ([*tokens, tokens[-1]], [*mask, mask[-1]]))
one_late = _edited(lambda tokens, mask: (tokens, [0, *mask[:-1]]))


# --- laws ---

SOURCE = "A model is trained on what it wrote, in the format in which it was sampled"


def chat_mask_laws(
    render: Callable[[list[Message], bool], str],
    *,
    end: str,
    join: Callable[[Sequence[Any]], str] = "".join,
    masked: bool = True,
    system: bool = True,
    thoughts: tuple[str, str] = ("", ""),
) -> Suite:
    """The laws of tokens and masks of conversations that end with a message of the model; `join` gives the text of tokens.

    `end` is the text that ends a message. `masked=False`: the subject returns tokens alone. `system=False`: there are no system
    messages. `thoughts` are the texts around thoughts, for a template that drops those of earlier messages.
    """
    law = law_constructor(lambda: _talks(system, thoughts), SOURCE)
    laws = [_template(law, render, join), *([_answers(law, end, join)] if masked else [])]
    return Suite("chat_mask_laws", tuple(laws))


def _talks(system: bool, thoughts: tuple[str, str]) -> Any:
    def made(messages: list[Message]) -> list[Message]:
        last = max(place for place, one in enumerate(messages) if one["role"] == "assistant")
        opened = f"{thoughts[0]}so{thoughts[1]}" if all(thoughts) else ""
        return [
            {**one, "content": opened + one["content"]} if one["role"] == "assistant" else one
            for one in messages[: last + 1]
        ]

    talks = conversations(trims=True, system=system)
    return talks.filter(lambda messages: any(one["role"] == "assistant" for one in messages)).map(made)


Construct = Callable[..., Law]
SEVERAL = "a conversation with two messages of the model"


def _several(messages: list[Message]) -> bool:
    return sum(one["role"] == "assistant" for one in messages) > 1


def _template(
    law: Construct, render: Callable[[list[Message], bool], str], join: Callable[[Sequence[Any]], str]
) -> Law:
    def check(subject: Masked, messages: list[Message], seen: Seen) -> None:
        seen(SEVERAL, _several(messages))
        found = subject(copy.deepcopy(messages))
        tokens = found[0] if isinstance(found, tuple) else found
        got, wanted = join(list(tokens)), render(copy.deepcopy(messages), False)
        require(got == wanted, f"the text of the tokens: got {got!r}, wanted {wanted!r}")

    mutant = ("repeats the last token", repeats_last)
    return law("tokens_are_the_template", "The tokens are those of the rendering.", mutant, check, SEVERAL)


def _answers(law: Construct, end: str, join: Callable[[Sequence[Any]], str]) -> Law:
    def check(subject: Masked, messages: list[Message], seen: Seen) -> None:
        seen(SEVERAL, _several(messages))
        tokens, mask = subject(copy.deepcopy(messages))
        require(len(tokens) == len(mask), f"an entry of the mask for each of {len(tokens)} tokens, got {len(mask)}")
        pairs = zip(tokens, [bool(one) for one in mask], strict=True)
        runs = [(on, [token for token, _ in run]) for on, run in itertools.groupby(pairs, key=lambda pair: pair[1])]
        trained = [join(run) for on, run in runs if on]
        answers = [one["content"] for one in messages if one["role"] == "assistant"]
        require(len(trained) == len(answers), f"the model wrote {len(answers)} messages, trained on are {trained!r}")
        for text, answer in zip(trained, answers, strict=True):
            body = text.rstrip().removesuffix(end)
            require(text.rstrip().endswith(end), f"what is trained on ends with {end!r}: {text!r}")
            whole = body.strip() and answer.strip().endswith(body.strip())
            require(whole, f"what is trained on is the content {answer!r} and its end: got {text!r}")

    mutant = ("marks tokens one place late", one_late)
    claim = "Trained on are the messages of the model, in order, each with its end, and nothing else."
    return law("answers_are_trained_on", claim, mutant, check, SEVERAL)
