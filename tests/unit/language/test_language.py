"""Worlds of text by example: an expert's episode, how attempts are judged, what is refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from purestep.core import keys
from purestep.core.errors import ChoiceError
from purestep.core.language.episode import Completion, Episode, Prompt, total_reward
from purestep.core.language.events import Event, Feedback, Sampled, System, ToolResult, User
from purestep.core.language.parsers import Answer, Call, answer
from purestep.core.language.protocol import begin_episode, protocol, turn_after
from purestep.core.language.requests import (
    WORLD,
    Request,
    call_key,
    expand,
    key_of,
    repeat,
    requests,
    rollouts,
    task_keys,
    world_key,
)
from purestep.core.language.text_env import Terminated, Truncated
from purestep.core.language.zorplex.env import (
    EXAMPLES,
    KINDS,
    TOOLS,
    ZorplexState,
    instructions,
    zorplex,
    zorplex_parser,
)
from purestep.core.language.zorplex.failure_modes import FAILURE_MODES, failure_mode, meant
from purestep.core.language.zorplex.tasks import WordTable, letters, recursive, two_syllables

KEY = keys.key(0)
WORDS = st.integers(0, 2**32 - 1)
SYLLABLES = two_syllables()


def begun(kind: str = "compositional", **options: Any) -> tuple[Any, Episode[ZorplexState], Prompt]:
    rules = protocol(zorplex(kind, **options), zorplex_parser(), system=instructions(kind), max_steps=5)
    return rules, *begin_episode(rules, KEY)


def said(rules: Any, episode: Episode[ZorplexState], *texts: str) -> tuple[Episode[ZorplexState], Any]:
    turn: Any = ()
    for text in texts:
        episode, turn = turn_after(rules, episode, Completion(text), KEY)
    return episode, turn


# --- an episode ---


def test_an_expert_looks_words_up_and_answers() -> None:
    rules, episode, prompt = begun()
    assert prompt.added == (System(instructions("compositional")), User("What is zorplex[quomun] + zorplex[shiyor]?"))
    one, two = (SYLLABLES.words.index(word) for word in ("quomun", "shiyor"))
    values = episode.world.task.values
    assert set(values) == set(range(6))
    middle, turn = said(rules, episode, "First LOOKUP[quomun]")
    assert turn.added == (ToolResult("LOOKUP", "quomun", str(values[one]), auxiliary=False),)
    final, end = said(rules, middle, 'lookup["shiyor"]', f"So [ANSWER] {values[one] + values[two]}")
    assert end == Terminated()
    assert (total_reward(final), final.calls, final.turn) == (1.1, 3, 3)
    assert failure_mode(final.world) == "success"
    assert final.world.reward.total == pytest.approx(1.1)


def test_an_episode_without_an_answer_is_truncated_and_not_terminated() -> None:
    rules, episode, _ = begun()
    final, end = said(
        rules, episode, "Well", "LOOKUP[quomun] LOOKUP[shiyor]", "SEARCH[quomun]", "[answer] 5", "[ANSWER]"
    )
    assert end == Truncated("max_steps")
    assert (final.turn, final.world.calls, len(final.steps)) == (0, 0, 5)
    assert [event.text for event in final.events if isinstance(event, Feedback)] == [
        "Invalid action.",
        "Call one tool at a time.",
        *["Invalid action."] * 3,
    ]
    assert said(rules, final, "[ANSWER] 5") == (final, end)


def test_events_are_only_appended_and_calls_are_numbered() -> None:
    rules, episode, _ = begun()
    after, _ = said(rules, episode, "LOOKUP[quomun]", "hm")
    assert after.events[: len(episode.events)] == episode.events
    assert [event.call for event in after.events if isinstance(event, Sampled)] == [0, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_model_is_told_is_what_the_parser_reads(kind: str) -> None:
    told = instructions(kind)
    assert all(f"{name}[" in told for name in KINDS[kind])
    assert not any(f"{name}[" in told for name in set(TOOLS) - set(KINDS[kind]))
    *lines, last = EXAMPLES[kind].splitlines()
    assert isinstance(zorplex_parser()(last).action, Answer)
    assert all(isinstance(zorplex_parser()(line).action, Call) for line in lines[::2])
    assert all(zorplex_parser()(line).failed for line in lines[1::2])
    assert not {"mirp", "dosk"} & {*SYLLABLES.words, *letters(KEY).words}


# --- tasks ---


def test_a_fixed_table_serves_all_episodes_and_a_drawn_one_each_its_own() -> None:
    fixed, drawn = zorplex("simple", vocabulary=letters(keys.key(7))), zorplex("simple")
    tables = [{env.reset(env.params, keys.key(seed))[0].task.values for seed in range(5)} for env in (fixed, drawn)]
    assert [len(found) for found in tables] == [1, 5]
    (table,) = tables[0]
    assert len(table) == 26
    assert 1 <= min(table) < max(table) <= 100
    assert letters(keys.key(8)).values != table


def test_every_key_of_a_word_is_its_own_and_opens_its_value() -> None:
    env = zorplex("multi_step")
    play, _ = env.reset(env.params, KEY)

    def told(name: str, argument: str) -> str:
        return env.step(env.params, play, Call(name, argument), KEY)[1].observation

    codes = [told("GETKEY", word) for word in SYLLABLES.words]
    assert len(set(codes)) == 256
    assert [told("FETCH", code) for code in codes] == [str(value) for value in play.task.values]
    assert told("FETCH", "ZK_") == "INVALID_KEY"
    assert told("GETKEY", "mirp") == "UNKNOWN_WORD"
    assert told("LOOKUP", SYLLABLES.words[0]) == "UNKNOWN_TOOL"


def test_difficulties_ask_for_what_they_say() -> None:
    questions = {
        name: [env.reset(env.params, keys.key(seed))[1] for seed in range(30)]
        for name in ("easy", "medium", "hard")
        for env in [zorplex(difficulty=name)]
    }
    signs = {
        name: {sign for text in found for sign in "+-*" if f" {sign} " in text} for name, found in questions.items()
    }
    assert signs == {"easy": {"+"}, "medium": {"+", "-", "*"}, "hard": {"+", "-", "*"}}
    assert {name: {text.count("zorplex[") for text in found} for name, found in questions.items()} == {
        "easy": {2},
        "medium": {2},
        "hard": {3},
    }


def test_the_deepest_chain_of_a_large_vocabulary_is_found_by_depth() -> None:
    tasks = [recursive(SYLLABLES, keys.key(seed), max_depth=3) for seed in range(12)]
    assert {task.depth for task in tasks} == {1, 2, 3}
    assert {task.needed - task.depth for task in tasks} == {1}


# --- judging ---


def attempt(**changes: Any) -> ZorplexState:
    env = zorplex("simple", vocabulary=WordTable(("bli", "kra", "zor"), 0, 5, (4, 4, 4)))
    return evolve(env.reset(env.params, KEY)[0], **changes)


@pytest.mark.parametrize(
    ("changes", "mode"),
    [
        ({"answer": 4, "calls": 9}, "success"),
        ({"calls": 9}, "wrong_format"),
        ({"answer": 5, "calls": 4}, "tool_spam"),
        ({"answer": 5, "calls": 3}, "wrong_answer"),
        ({"answer": 0}, "wrong_answer"),
    ],
)
def test_an_attempt_fails_in_the_first_way_that_fits(changes: dict[str, Any], mode: str) -> None:
    assert failure_mode(attempt(**changes)) == mode
    assert mode in FAILURE_MODES


def spoke(text: str) -> Sampled:
    return Sampled(text, call=0, turn=0, finish_reason="stop")


def result(name: str, text: str) -> ToolResult:
    return ToolResult(name, "kra", text, auxiliary=False)


@pytest.mark.parametrize(
    ("kind", "events", "value"),
    [
        ("simple", (result("LOOKUP", "UNKNOWN"), result("LOOKUP", "4"), result("LOOKUP", "5"), spoke("7")), 4),
        ("simple", (result("LOOKUP", "4"), spoke("[ANSWER] 9")), 9),
        ("multi_step", (result("GETKEY", "12"), result("FETCH", "4"), result("FETCH", "5")), 4),
        ("recursive", (result("LOOKUP", "4"), result("LOOKUP", "SEE: kra"), result("LOOKUP", "-5")), -5),
        ("compositional", (result("LOOKUP", "4"), spoke("2 and 3, the answer is 5"), spoke("or 6")), 5),
        ("compositional", (result("LOOKUP", "4"), spoke("hm")), ()),
    ],
)
def test_what_an_attempt_meant_is_read_by_its_kind(
    kind: str, events: tuple[Event, ...], value: int | tuple[()]
) -> None:
    assert meant(evolve(attempt().task, kind=kind), events) == value


# --- what is refused ---

NOBODY = Request(id=0, group=0, task=(0, 0), sampling=(0, 0))
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "kind": (lambda: zorplex("simpel"), "did you mean 'simple'"),
    "difficulty": (lambda: zorplex(difficulty="harder"), "did you mean 'hard'"),
    "depth": (lambda: zorplex("recursive", vocabulary=letters(KEY), max_depth=14), "max_depth is 14, wanted 1 to 13"),
    "few words": (lambda: zorplex(vocabulary=WordTable(("a", "b"), 0, 1)), "wanted at least 3, all different"),
    "capitals": (lambda: zorplex(vocabulary=WordTable(("a", "b", "C"), 0, 1)), "wanted small ASCII letters"),
    "bounds": (lambda: zorplex(vocabulary=two_syllables(5, 0)), "wanted low <= high"),
    "large": (lambda: zorplex(vocabulary=two_syllables(0, 10**6)), "wanted below 1000000"),
    "table": (lambda: zorplex(vocabulary=WordTable(("a", "b", "c"), 0, 1, (1,))), "is 1, wanted 3"),
    "steps": (lambda: protocol(zorplex(), answer(), max_steps=0), "max_steps is 0"),
    "budget": (lambda: protocol(zorplex(), answer(), max_steps=1, tool_budget=-1), "tool_budget is -1"),
    "tools": (
        lambda: protocol(evolve(zorplex(), tools={"peek": lambda params, play, word: word}), answer(), max_steps=1),
        "wanted names in capitals",
    ),
    "incomplete": (lambda: protocol(zorplex(), answer(), max_steps=1, incomplete="rejected"), "did you mean 'reject'"),
    "finish": (lambda: turn_after(*begun()[:2], Completion("", "stopped"), KEY), "did you mean 'stop'"),
    "stream": (lambda: task_keys(KEY, "train", 1), "did you mean 'training'"),
    "first": (lambda: task_keys(KEY, "training", 1, first=-1), "none below 0"),
    "nobody": (lambda: requests(((0, 0),), KEY, participants=()), "each once"),
    "twins": (lambda: requests(((0, 0),), KEY, participants=("a", "a")), "each once"),
    "no attempts": (lambda: expand(NOBODY, 0, KEY), "expand: n is 0"),
    "no repeats": (lambda: repeat(NOBODY, 0, KEY), "repeat: n is 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused_in_one_line(name: str) -> None:
    make, words = REFUSED[name]
    with pytest.raises(ChoiceError) as caught:
        make()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("call", [0, 1, 7, 2**31, 2**33 + 5])
def test_keys_of_calls_are_folded_as_any_other(call: int) -> None:
    request = Request(id=0, group=0, task=(2**32 - 1, 5), sampling=(3, 2**31))
    rollout = rollouts(request)[0]
    world = keys.fold_in(keys.fold_in(key_of(request.task), WORLD), call)
    assert torch.equal(world_key(request, call), world)
    assert torch.equal(call_key(rollout, call), keys.fold_in(key_of(rollout.sampling), call))


@given(st.tuples(WORDS, WORDS), st.integers(1, 4))
def test_keys_of_rollouts_are_split_as_any_other(sampling: tuple[int, int], number: int) -> None:
    request = Request(id=0, group=0, task=(0, 0), sampling=sampling, participants=tuple("abcd"[:number]))
    drawn = torch.stack([key_of(rollout.sampling) for rollout in rollouts(request)])
    assert torch.equal(drawn, keys.split(key_of(sampling), number))
