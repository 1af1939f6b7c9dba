"""Texts as parsers read them, and requests: by example."""

import json

import pytest
import torch

from purestep.core import keys
from purestep.core.language.parsers import (
    Answer,
    Call,
    Parsed,
    answer,
    either,
    find_calls,
    lenient_answer,
    stop,
    strict_answer,
    tool_call,
)
from purestep.core.language.requests import (
    Request,
    call_key,
    expand,
    key_of,
    requests,
    rollouts,
    task_keys,
    world_key,
)
from purestep.core.language.zorplex.env import TOOLS, zorplex
from purestep.runtime.machine.json_codec import decode, encode

KEY = keys.key(0)


# --- reading texts ---


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[ANSWER] 5", 5),
        ("[ANSWER] -5.", -5),
        ("[ANSWER] 5\n[ANSWER] 6 ", 6),
        ("[ANSWER] 007", 7),
        ("[ANSWER] 999999999999999999", 10**18 - 1),
        ("[ANSWER] 1000000000000000000", ()),
        ("[ANSWER]  5", ()),
        ("[ANSWER] 5.0", ()),
        ("[ANSWER] - 5", ()),
        ("[ANSWER] \u0665", ()),
        ("[answer] 5", ()),
        ("5", ()),
    ],
)
def test_strict_answers_have_one_form(text: str, value: int | tuple[()]) -> None:
    assert strict_answer(text) == value


def test_tools_are_found_by_ascii_letters_alone() -> None:
    assert find_calls('GET\u212aEY[kra] XGETKEY[kra] GETKEY[kra"] GETKEY[]', ["GETKEY"]) == ()
    assert find_calls("getkey[kra]getkey['kra']", ["GETKEY"]) == (Call("GETKEY", "kra"),) * 2
    assert find_calls("LOOKUP[kra]", []) == ()


def test_sampling_stops_at_what_comes_first() -> None:
    assert stop("[ANSWER] 1 LOOKUP[kra]", TOOLS) == len("[ANSWER] 1")
    assert stop("LOOKUP[kra] [ANSWER] 1 ", TOOLS) == len("LOOKUP[kra]")
    assert stop("[ANSWER] 2.5 is no answer", TOOLS) == 0


def test_a_text_that_goes_on_for_ever_is_read_in_no_time() -> None:
    for text in (
        "= " + " " * 10**5 + "x",
        "answer is " * 10**4,
        "[answer]" + " " * 10**5,
        "LOOKUP[" * 10**4,
        "9" * 10**5,
    ):
        assert strict_answer(text) == ()
        assert stop(text, TOOLS) == 0
        assert lenient_answer(text) == ()


def test_only_the_parser_that_was_used_is_paid() -> None:
    parse = either(answer(reward=1.0, penalty=2.0), tool_call(["LOOKUP"], reward=4.0, penalty=8.0))
    assert parse("[ANSWER] 5, by LOOKUP[kra]") == Parsed(Answer(5), 1.0)
    assert parse("LOOKUP[kra]") == Parsed(Call("LOOKUP", "kra"), 4.0)
    assert parse("hm") == Parsed((), -8.0, "Invalid action.")


# --- requests ---


def test_a_request_survives_as_text() -> None:
    for request in expand(requests(task_keys(KEY, "training", 1), KEY)[0], 3, KEY):
        assert decode(json.loads(json.dumps(encode(request))), [Request]) == request


def test_every_call_and_every_world_draws_with_a_key_of_its_own() -> None:
    groups = [
        expand(request, 2, KEY) for request in requests(task_keys(KEY, "training", 2), KEY, participants=("a", "b"))
    ]
    attempts = [attempt for group in groups for attempt in group]
    drawn = [call_key(rollout, call) for attempt in attempts for rollout in rollouts(attempt) for call in range(3)]
    assert len({tuple(map(int, key)) for key in drawn}) == len(drawn) == 2 * 2 * 2 * 3
    worlds = [tuple(map(int, world_key(attempt, call))) for attempt in attempts for call in range(3)]
    assert len(set(worlds)) == 2 * 3
    assert torch.equal(key_of(attempts[0].task), key_of(attempts[1].task))


def test_groups_see_one_question_and_streams_do_not_share_any_key() -> None:
    env = zorplex()
    training, held_out = (requests(task_keys(KEY, stream, 20), KEY) for stream in ("training", "evaluation"))
    asked = {
        stream: {env.reset(env.params, key_of(request.task))[1] for request in found}
        for stream, found in (("training", training), ("evaluation", held_out))
    }
    assert len(asked["training"] | asked["evaluation"]) == 40
    group = expand(training[0], 4, KEY)
    assert len({env.reset(env.params, key_of(request.task))[1] for request in group}) == 1
