"""Laws of kept conversations: the ids and numbers that are shown are those of the transcript that was trained on.

The subject returns the line of a trained attempt, as `runtime.text.conversations.conversation` does; attempts are at zorplex
tasks.
"""

from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve
from torch import Tensor

from purestep.core import keys
from purestep.core.language.task import end_of
from purestep.core.language.to_transcript import transcripts
from purestep.core.record import take
from purestep.core.transcript.record import SAMPLED
from purestep.properties.framework.compare import bits_of, require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always
from purestep.runtime.text.conversations import ROLES, TrainedAttempt, conversation, decoder_of, named_rewards

from .conversations import CALLS, CODEC, ROOM, AnyAttempt, Talk, ended, talks

Line = dict[str, Any]
Subject = Callable[[TrainedAttempt], Line]
NUMBERS = ("log_probs", "versions", "advantages")
DECODE = decoder_of(CODEC)


def own_lines(attempt: TrainedAttempt) -> Line:
    """Return the library's own line."""
    return conversation(attempt, DECODE)


# --- mutants ---


def _messages(change: Callable[[Line], Line]) -> Callable[[Subject], Subject]:
    """The edit that changes each message."""

    def make(subject: Subject) -> Subject:
        def line(attempt: TrainedAttempt) -> Line:
            made = subject(attempt)
            return {**made, "messages": [change(message) for message in made["messages"]]}

        return line

    return make


def _without_stop(message: Line) -> Line:
    sampled = "pieces" in message
    return {**message, "ids": message["ids"][:-1] if sampled else message["ids"]}


def _one_later(message: Line) -> Line:
    there = {name: message[name] for name in NUMBERS if name in message}
    return {**message, **{name: [*values[1:], values[0]] for name, values in there.items()}}


def _rounded(message: Line) -> Line:
    return {**message, **{name: [round(value, 2) for value in message[name]] for name in NUMBERS if name in message}}


def _of_one_version(message: Line) -> Line:
    versions = message.get("versions", [])
    return {**message, **({"versions": versions[:1] * len(versions)} if versions else {})}


def _stripped(message: Line) -> Line:
    return {**message, "text": message["text"].strip("]")}


def _by_the_user(message: Line) -> Line:
    return {**message, "role": "user" if message["role"] in ("tool", "feedback") else message["role"]}


def terminated_if_cut(subject: Subject) -> Subject:
    """Take an attempt that was cut off for one that terminated."""
    return lambda attempt: {**subject(attempt), "end": "terminated"}


MUTANTS: dict[str, Callable[[Subject], Subject]] = {
    "rounds numbers": _messages(_rounded),
    "takes the version of a call's first token for all": _messages(_of_one_version),
    "takes tools for the user": _messages(_by_the_user),
}

# --- laws ---


SOURCE = "runtime.text.conversations: what is viewed is what was trained on"
Drawn = tuple[Talk, ...]


def conversation_laws() -> Suite:
    """The laws of the lines of trained attempts."""
    return Suite("conversation_laws", (_ids(), _numbers(), _texts(), _facts()))


def _law(
    name: str, claim: str, mutant: Mutant, check: Callable[[Line, TrainedAttempt, AnyAttempt, Seen], None], *needs: str
) -> Law:
    def each(subject: Subject, drawn: Drawn, seen: Seen) -> None:
        attempts = [ended(talk) for talk in drawn]
        written = transcripts(attempts, capacity=ROOM["capacity"], calls=CALLS)
        advantage = keys.normal(keys.key(drawn[0].number), tuple(written.token.shape))
        advantage = torch.where(written.is_action, advantage, 0.0)
        for place, attempt in enumerate(attempts):
            row = take(written, [place])
            trained = TrainedAttempt(row, advantage[place], end_of(attempt), named_rewards(attempt))
            check(subject(trained), trained, attempt, seen)

    return Law(
        name=name, claim=claim, source=SOURCE, inputs=always(talks()), check=each, mutant=mutant, needs=needs, most=300
    )


def _tokens(line: Line, name: str) -> list[Any]:
    return [value for message in line["messages"] for value in message.get(name, [])]


def _ids() -> Law:
    def check(line: Line, trained: TrainedAttempt, attempt: AnyAttempt, seen: Seen) -> None:
        length = int(trained.row.length[0])
        seen("a row longer than its tokens", length < trained.row.token.shape[-1])
        same("the ids", _tokens(line, "ids"), trained.row.token[0, :length].tolist())
        roles = [message["role"] for message in line["messages"] for _ in message["ids"]]
        same("the roles", roles, [ROLES[source] for source in trained.row.source[0, :length].tolist()])
        seen("a tool", "tool" in roles)

    claim = "The ids of all messages are those of the transcript, in order, and each has the role of its source."
    mutant = Mutant("leaves out the token that ends a call", _messages(_without_stop))
    return _law("ids_are_the_transcripts", claim, mutant, check, "a row longer than its tokens", "a tool")


def _numbers() -> Law:
    def check(line: Line, trained: TrainedAttempt, attempt: AnyAttempt, seen: Seen) -> None:
        row, sampled = trained.row, trained.row.source[0] == SAMPLED
        columns = (row.behaviour_log_prob[0], row.version[0], trained.advantage)
        for name, column in zip(NUMBERS, columns, strict=True):
            wanted: Tensor = column[sampled]
            got = torch.tensor(_tokens(line, name), dtype=wanted.dtype)
            same(f"the {name}", bits_of(got), bits_of(wanted))
        seen("several versions in a call", any(len(set(one.get("versions", []))) > 1 for one in line["messages"]))

    claim = "Log-probs, versions and advantages of sampled tokens are the transcript's and the update's, bit for bit."
    mutant = Mutant("shows the numbers of the token that follows", _messages(_one_later))
    return _law("numbers_are_the_transcripts", claim, mutant, check, "several versions in a call")


def _texts() -> Law:
    def check(line: Line, trained: TrainedAttempt, attempt: AnyAttempt, seen: Seen) -> None:
        for message in line["messages"]:
            same("the text", message["text"], DECODE(tuple(message["ids"])))
            if "pieces" in message:
                same("the pieces", "".join(message["pieces"]), message["text"])
                require(len(message["pieces"]) == len(message["ids"]), "as many pieces as tokens")
        seen("a call", any("LOOKUP" in message["text"] for message in line["messages"]))

    claim = "The text of a message is that of its ids, and the pieces of its tokens, joined, are the text."
    mutant = Mutant("cuts brackets off", _messages(_stripped))
    return _law("texts_are_of_the_ids", claim, mutant, check, "a call")


def _facts() -> Law:
    def check(line: Line, trained: TrainedAttempt, attempt: AnyAttempt, seen: Seen) -> None:
        same("the end", line["end"], end_of(attempt))
        same("the request", (line["id"], line["group"]), (attempt.rollout.request.id, attempt.rollout.request.group))
        total = trained.row.reward[0].sum()
        same("the reward", bits_of(torch.tensor(line["reward"], dtype=total.dtype)), bits_of(total))
        seen("an attempt that was cut off", line["end"] == "max_steps")

    claim = "Request, group, end and reward are the attempt's."
    mutant = Mutant("takes attempts that were cut off for terminated ones", terminated_if_cut)
    return evolve(_law("facts_are_the_attempts", claim, mutant, check, "an attempt that was cut off"), share=0.01)
