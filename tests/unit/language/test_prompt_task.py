"""A task from a list of prompts: rows by number, openings of several messages, completions cut off, grades."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purestep.core import keys
from purestep.core.errors import ChoiceError, ShapeError
from purestep.core.language.codec import byte_codec
from purestep.core.language.episode import Grade, total_reward
from purestep.core.language.events import Assistant, System, User
from purestep.core.language.grading import graded
from purestep.core.language.prompts import PromptRow, RepliedPrompt, prompt_env, prompt_task, row_keys
from purestep.core.language.protocol import begin_episode, protocol
from purestep.core.language.requests import Request, key_of, rollouts, stream_of
from purestep.core.language.rollout import add_output, begin_rollout
from purestep.core.language.task import EVALUATION, TRAINING, TextTask
from purestep.core.language.text_env import Raised, Terminated, Truncated
from purestep.core.language.to_transcript import transcripts
from purestep.core.language.types import ModelOutput, Rollout
from purestep.core.transcript.record import FAILED, MAX_SEQ_LEN
from purestep.runtime.text.validate_task import validate_task

ROWS = [PromptRow("2 + 3?", {"answer": "5"}), PromptRow("1 + 1?", {"answer": "2"})]
CHAT = PromptRow((("system", "Be brief."), ("user", "2?"), ("assistant", "Two."), ("user", "3?")))


def right(replies: tuple[RepliedPrompt, ...]) -> list[Grade]:
    return [Grade(float(one.text == one.row.columns["answer"]), {"right": 1.0}) for one in replies]


def task(rewards: Any = right, rows: Sequence[PromptRow] = ROWS) -> TextTask:
    return prompt_task("sums", rows, rows, rewards=rewards, parts=("right",))


def attempt(made: TextTask, row: int, text: str, finish_reason: str = "stop") -> Rollout[Any]:
    rules = protocol(made.env(TRAINING), made.parser, max_steps=1, incomplete=made.incomplete)
    spec = rollouts(Request(id=row, group=row, task=(2 * row, 0), sampling=(0, row)))[0]
    begun = begin_rollout(rules, byte_codec(), spec, capacity=64, max_new_tokens=16)
    ids = (*text.encode(), *([256] if finish_reason == "stop" else []))
    zeros = (0,) * len(ids)
    said = ModelOutput(ids=ids, log_probs=tuple(map(float, zeros)), versions=zeros, finish_reason=finish_reason)
    return add_output(rules, byte_codec(), begun, said)


@given(size=st.integers(1, 30), seed=st.integers(0, 99), passes=st.integers(0, 3))
def test_each_pass_asks_every_row_once(size: int, seed: int, passes: int) -> None:
    draw = row_keys(size, 3)
    words = [draw(keys.key(seed), TRAINING, number) for number in range(passes * size, (passes + 1) * size)]
    assert sorted(first >> 1 for first, _ in words) == list(range(size))
    assert {stream_of(one) for one in words} == {TRAINING}
    assert {second for _, second in words} == {passes}
    env = prompt_env([PromptRow(str(row)) for row in range(size)])
    assert [env.reset(env.params, key_of(one))[0].row for one in words] == [first >> 1 for first, _ in words]


def test_passes_differ_in_order_and_evaluation_repeats_its_own() -> None:
    draw = row_keys(12, 12)
    orders = [tuple(draw(keys.key(0), TRAINING, 12 * number + i)[0] for i in range(12)) for number in range(3)]
    assert len({*orders}) == 3
    held_out = [[draw(keys.key(0), EVALUATION, 12 * number + i)[0] for i in range(12)] for number in range(2)]
    assert held_out[0] == held_out[1]
    assert all(word & 1 for word in held_out[0])


def test_messages_of_a_prompt_open_the_episode_and_its_system_message_goes_before_the_protocols() -> None:
    env = prompt_env([CHAT, PromptRow("4?")])
    rules = protocol(env, task().parser, system="Count.", max_steps=1)
    chat, plain = (begin_episode(rules, key_of((2 * row, 0)))[1].added for row in range(2))
    assert chat == (System("Be brief."), User("2?"), Assistant("Two."), User("3?"))
    assert plain == (System("Count."), User("4?"))


def test_grades_become_rewards_of_the_last_call_and_failed_ones_are_left_out() -> None:
    def rewards(replies: tuple[RepliedPrompt, ...]) -> list[Grade]:
        return [Grade(error="no number") if one.text == "?" else right((one,))[0] for one in replies]

    made = task(rewards)
    ended = [attempt(made, 0, "5"), attempt(made, 0, "4"), attempt(made, 1, "?")]
    scored = graded(made.grader, ended)
    assert [total_reward(one.episode) for one in scored] == [1.0, 0.0, 0.0]
    assert [one.end for one in scored] == [Terminated(), Terminated(), Raised("no number")]
    assert [made.figures["accuracy"](one) for one in scored] == [1.0, 0.0, 0.0]
    assert [made.figures["reward_right"](one) for one in scored] == [1.0, 1.0, 0.0]
    row = transcripts(scored, capacity=64, calls=1)
    assert row.reward[:, 0].tolist() == [1.0, 0.0, 0.0]
    assert row.reason.tolist()[2] == FAILED
    assert all(one.grade == () for one in ended)


def test_a_completion_that_is_cut_off_is_graded_and_truncated() -> None:
    made = task()
    (scored,) = graded(made.grader, [attempt(made, 0, "5", finish_reason="length")])
    assert (total_reward(scored.episode), scored.end) == (1.0, Truncated("max_seq_len"))
    assert made.figures["cut_off"](scored) == 1.0
    row = transcripts([scored], capacity=64, calls=1)
    assert (row.terminated.tolist(), row.truncated.tolist(), row.reason.tolist()) == ([False], [True], [MAX_SEQ_LEN])


@given(order=st.permutations(range(4)))
def test_grades_follow_their_attempts(order: list[int]) -> None:
    made = task()
    ended = [attempt(made, row, text) for row in range(2) for text in ("5", "2")]
    straight = graded(made.grader, ended)
    assert graded(made.grader, [ended[place] for place in order]) == tuple(straight[place] for place in order)


def test_another_number_of_grades_is_refused() -> None:
    made = task(lambda replies: [Grade()] * (len(replies) + 1))
    with pytest.raises(ShapeError, match="grader: grades is 2, wanted 1"):
        graded(made.grader, [attempt(made, 0, "5")])


def test_it_is_a_valid_task_and_needs_a_row() -> None:
    assert validate_task(task(rows=[CHAT, *ROWS])).name == "sums"
    with pytest.raises(ChoiceError, match="prompts is none, wanted at least 1"):
        task(rows=[])
    assert math.isfinite(task().figures["accuracy"](attempt(task(), 0, "5")))
