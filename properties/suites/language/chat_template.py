"""Laws of chat templates. Subject: a tokenizer with `apply_chat_template`, or a function (messages, prompt) -> text or ids.

from purestep.properties import chat_template_laws, verify
print(verify(chat_template_laws(end="<|im_end|>"), AutoTokenizer.from_pretrained(...)))

`prompt` says whether to add what comes before a message of the model. Training on a rendered conversation and sampling turn by
turn agree only if the rendering of its beginning is the beginning of its rendering.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from ...framework.compare import require
from ...framework.law import Law, Seen, Suite, law_constructor

Message = dict[str, str]
Template = Callable[[list[Message], bool], Any]  # -> text or ids
CONTENTS = ("a", "2 + 2 = 5", "two\n\nlines", "{% x %} {{ y }}", "<b>&amp;</b>", "é 五 🙂", "a  b", "'\"\\")
BORDERS = ("", " ", "\n")


def template_of(subject: Any) -> Template:
    """Return the function (messages, prompt) -> text or ids of a tokenizer, or the function itself."""
    if not hasattr(subject, "apply_chat_template"):
        return subject  # type: ignore[no-any-return]

    def render(messages: list[Message], prompt: bool) -> Any:
        return subject.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)

    return render


# --- mutants ---
# Common errors in templates, as edits of the function.


def _edited(change: Callable[[Any, list[Message], bool], Any]) -> Callable[[Any], Template]:
    def edit(subject: Any) -> Template:
        render = template_of(subject)
        return lambda messages, prompt: change(render(messages, prompt), messages, prompt)

    return edit


def _pops_system(subject: Any) -> Template:
    render = template_of(subject)

    def wrong(messages: list[Message], prompt: bool) -> Any:
        shown = render(messages, prompt)
        if messages[0]["role"] == "system":
            messages.pop(0)
        return shown

    return wrong


ends_last = _edited(lambda shown, messages, prompt: shown if prompt else f"{shown}</s>")
space_after_prompt = _edited(lambda shown, messages, prompt: f"{shown} " if prompt else shown)
collapses = _edited(lambda shown, messages, prompt: shown.replace("\n\n", "\n"))


def ends_twice(end: str) -> Callable[[Any], Template]:
    """Return the edit that writes the end of a message twice."""
    return _edited(lambda shown, messages, prompt: shown.replace(end, end + end))


# --- laws ---


SOURCE = "A conversation is rendered turn by turn in sampling, and as a whole in training"


def conversations(trims: bool, system: bool) -> Any:
    """Conversations that alternate between the user and the model, with a system message or without."""
    content = st.sampled_from(CONTENTS)
    if not trims:
        content = st.tuples(st.sampled_from(BORDERS), content, st.sampled_from(BORDERS)).map("".join)
    opening = st.booleans() if system else st.just(False)

    def made(drawn: tuple[bool, list[str]]) -> list[Message]:
        opens, contents = drawn
        roles = [*(["system"] if opens else []), *["user", "assistant"] * len(contents)]
        return [{"role": role, "content": text} for role, text in zip(roles, contents, strict=False)]

    drawn: st.SearchStrategy[Any] = st.tuples(opening, st.lists(content, min_size=2, max_size=6))
    return drawn.map(made)


def chat_template_laws(*, end: str = "", trims: bool = True, system: bool = True) -> Suite:
    """The laws of a chat template; `end` is the text that ends a message of the model, if any is declared.

    `trims` declares that white space around a content may be dropped, `system=False` that there are no system messages.

    >>> from purestep.properties import verify
    >>> def render(messages, prompt):
    ...     text = "".join(f"<{m['role']}>{m['content']}<end>" for m in messages)
    ...     return text + "<assistant>" if prompt else text
    >>> bool(verify(chat_template_laws(end="<end>", trims=False), render))
    True
    """
    law = law_constructor(lambda: conversations(trims, system), SOURCE, prepare=template_of)
    laws = (_prefix(law), _prompt(law), _pure(law), _contents(law))
    return Suite("chat_template_laws", (*laws, *([_end(law, end)] if end else [])))


Construct = Callable[..., Law]


def _begins(where: str, whole: Any, part: Any) -> None:
    require(len(part) <= len(whole) and whole[: len(part)] == part, f"{where}: {part!r} does not begin {whole!r}")


def _turns(messages: list[Message], role: str) -> Sequence[int]:
    return [place for place, message in enumerate(messages) if message["role"] == role]


def _prefix(law: Construct) -> Law:
    def check(render: Template, messages: list[Message], seen: Seen) -> None:
        whole = render(copy.deepcopy(messages), False)
        for place in _turns(messages, "assistant"):
            seen("a conversation that goes on", place + 1 < len(messages))
            _begins(f"up to message {place}", whole, render(copy.deepcopy(messages[: place + 1]), False))

    mutant = ("ends the last message alone", ends_last)
    claim = "The rendering of a conversation's beginning, up to a message of the model, begins that of the whole."
    return law("prefix", claim, mutant, check, "a conversation that goes on")


def _prompt(law: Construct) -> Law:
    def check(render: Template, messages: list[Message], seen: Seen) -> None:
        for place in _turns(messages, "assistant"):
            seen("a message of the model")
            prompt = render(copy.deepcopy(messages[:place]), True)
            _begins(f"the prompt of message {place}", render(copy.deepcopy(messages[: place + 1]), False), prompt)

    mutant = ("leaves a space after the prompt", space_after_prompt)
    claim = "The prompt of a message of the model begins the rendering with that message: sampling starts where training does."
    return law("generation_prompt", claim, mutant, check, "a message of the model")


def _pure(law: Construct) -> Law:
    def check(render: Template, messages: list[Message], seen: Seen) -> None:
        given = copy.deepcopy(messages)
        seen("a system message", messages[0]["role"] == "system")
        first = render(given, True)
        require(given == messages, "the messages stay as they were")
        require(render(given, True) == first, "the same messages are rendered the same again")

    mutant = ("takes the system message out of the caller's list", _pops_system)
    return law("pure", "A rendering depends on the messages alone, and leaves them as they were.", mutant, check)


def _contents(law: Construct) -> Law:
    def check(render: Template, messages: list[Message], seen: Seen) -> None:
        shown = render(copy.deepcopy(messages), False)
        if not isinstance(shown, str):
            return
        place = 0
        for message in messages:
            seen("a content with two line breaks", "\n\n" in message["content"])
            found = shown.find(message["content"], place)
            require(found >= 0, f"the content {message['content']!r} is in its place in {shown!r}")
            place = found + len(message["content"])

    mutant = ("writes two line breaks as one", collapses)
    claim = "Each content is in the text as it was given, in order."
    return law("contents_stay", claim, mutant, check)


def _end(law: Construct, end: str) -> Law:
    def check(render: Template, messages: list[Message], seen: Seen) -> None:
        for place in _turns(messages, "assistant"):
            seen("a message of the model")
            prompt = render(copy.deepcopy(messages[:place]), True)
            turn = render(copy.deepcopy(messages[: place + 1]), False)[len(prompt) :]
            require(turn.count(end) == 1, f"a message of the model ends once: {end!r} in {turn!r}")
            require(turn.rstrip().endswith(end), f"nothing but white space follows {end!r} in {turn!r}")

    mutant = ("writes the end twice", ends_twice(end))
    return law(
        "ends_once", "A message of the model ends in the declared text, once.", mutant, check, "a message of the model"
    )
