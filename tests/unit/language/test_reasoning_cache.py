"""Reasoning in cycles: its laws, a run worked out by hand, training and evaluation on lists, and what settings refuse."""

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import pytest
import torch
from attrs import evolve

from purestep.algorithms.language.credit import group
from purestep.algorithms.language.group_advantages import grpo_advantages
from purestep.core import keys
from purestep.core.errors import ChoiceError
from purestep.core.language.codec import END, byte_codec
from purestep.core.language.list_reduction.lists import Lists, check_lists
from purestep.core.language.list_reduction.tasks import (
    ListTask,
    list_problem,
    list_reward,
    list_task,
    read_list,
    right_reasoning,
)
from purestep.core.language.parsers import chain
from purestep.core.language.preparation import start_requests, throughput
from purestep.core.language.protocol import protocol
from purestep.core.language.reasoning_cache.demonstrations import show_reasoning, summed_up
from purestep.core.language.reasoning_cache.events import (
    FinishedAttempt,
    GroupResult,
)
from purestep.core.language.reasoning_cache.machine import ReasoningCache, cache_of, due, reasoning_cache, take_reply
from purestep.core.language.reasoning_cache.report import published_rows, turn_figures
from purestep.core.language.reasoning_cache.rollouts import (
    Posed,
    accuracy_by_cycle,
    at_turn,
    call_request,
    rollout_policy,
    solution_rollout,
    starting_points,
    state_index,
    step_env,
    summarization_rollout,
)
from purestep.core.language.reasoning_cache.schedule import reasoning_machine
from purestep.core.language.reasoning_cache.settings import CacheSettings, CallSampling, Streams, check_settings
from purestep.core.language.reasoning_cache.state import (
    STATE_CLASSES,
    InferenceProblemState,
    ModelRequest,
    Problem,
    Reply,
    RolloutResult,
    TrainingText,
)
from purestep.core.language.requests import requests, rollouts, task_keys
from purestep.core.language.rollout import add_output, begin_rollout
from purestep.core.language.to_transcript import transcripts
from purestep.core.language.types import ModelOutput
from purestep.properties import check, text_env_laws

from ...laws.reasoning_cache.families import own_listing, own_thinking
from ...laws.reasoning_cache.reasoning import reasoning_laws
from ...laws.reasoning_cache.reasoning_task import reasoning_task_laws

PROBLEM = Problem(problem_id="7", problem_text="2 + {3}?", answer="5", dataset_name="sums")
BEGUN = InferenceProblemState(problem=PROBLEM)
CACHE = reasoning_cache(solution_rollout, summarization_rollout)
NUMBERS = 3  # of a list that one step takes


def lister(cycles: int) -> ReasoningCache:
    """The cache for lists."""
    policy = rollout_policy(list_reward(NUMBERS))
    return reasoning_cache(policy, summarization_rollout, num_reasoning_steps=cycles)


test_thinking = check(reasoning_laws(), own_thinking())
test_lists = check(reasoning_task_laws(), own_listing())
ONE_CALL = {
    "closed_loop": "an episode is one call",
    "saved": "an episode is one call",
    "total": "any text is an action",
}
test_steps_as_a_world = check(
    text_env_laws(chain(), "[ANSWER] 5", "hm", "", classes=(*STATE_CLASSES, Posed, ModelRequest)),
    step_env(CACHE, [BEGUN]),
    skip=ONE_CALL,
)


def run(cache: ReasoningCache, state: InferenceProblemState, *texts: str) -> InferenceProblemState:
    for text in texts:
        state = take_reply(cache, state, Reply(cycle_step=state.overall_cycle_step, text=text, model_version=4))
    return state


WHOLE = run(CACHE, BEGUN, "2", "two", "2 + 3 = 5", "five", "[ANSWER] 5", "It is 5.")


def test_the_metadata_of_three_cycles_is_the_documented_table() -> None:
    (row,) = published_rows(GroupResult(number=9, attempts=(FinishedAttempt(state=WHOLE),)))
    found = [text["metadata"] for text in row["training_texts"]]
    assert [list(one) for one in found] == [
        ["model_version", "rollout_index", "cycle_step", "turn_type", "turn_number"]
    ] * 6
    assert [tuple(one.values()) for one in found] == [
        (4, 0, 0, "reasoning", 1),
        (4, 0, 1, "summarization", 1),
        (4, 0, 2, "reasoning", 2),
        (4, 0, 3, "summarization", 2),
        (4, 0, 4, "reasoning", 3),
        (4, 0, 5, "summarization", 3),
    ]
    assert [text["reward"] for text in row["training_texts"]] == [0.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    assert (row["problem_id"], row["dataset_name"], row["answer"], row["group"]) == ("7", "sums", "5", 9)


def test_a_state_has_the_documented_names() -> None:
    told = {
        "curr_summary": "It is 5.",
        "curr_reasoning": "[ANSWER] 5",
        "reasoning_turn_number": 3,
        "summarization_turn_number": 3,
        "overall_cycle_step": 6,
        "reasoning_string_store": ("2", "2 + 3 = 5", "[ANSWER] 5"),
        "summarization_string_store": ("two", "five", "It is 5."),
        "reasoning_string_complete_store": ("2", "2 + 3 = 5", "[ANSWER] 5"),
        "summarization_string_complete_store": ("two", "five", "It is 5."),
    }
    assert {name: getattr(WHOLE, name) for name in told} == told
    assert len(WHOLE.reasoning_rollout_store) == len(WHOLE.summarization_rollout_store) == 3
    assert [result.success for result in WHOLE.summarization_rollout_store] == [True] * 3


def test_what_is_thought_is_summed_up_and_prompts_hold_what_was_said() -> None:
    cache = evolve(CACHE, use_think_tags=True)
    asked = due(cache, BEGUN)
    assert isinstance(asked, ModelRequest)
    assert asked.prompt_text.endswith("<think>\n")
    assert "2 + {3}?" in asked.prompt_text
    thought = run(cache, BEGUN, "{problem} is 5</think> [ANSWER] 5")
    assert thought.curr_reasoning == "{problem} is 5"
    assert thought.reasoning_string_complete_store == ("<think>\n{problem} is 5</think> [ANSWER] 5",)
    assert thought.reasoning_rollout_store[0].success
    asked = due(cache, thought)
    assert isinstance(asked, ModelRequest)
    assert "Latest reasoning: {problem} is 5" in asked.prompt_text
    assert "<think>" not in asked.prompt_text
    assert run(cache, thought, "<think>a</think> b").curr_summary == "a b"


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: take_reply(CACHE, BEGUN, Reply(cycle_step=1, text="")), "step: cycle_step is 1, wanted 0 to 0"),
        (
            lambda: take_reply(CACHE, BEGUN, Reply(cycle_step=0, text="", finish_reason="eos")),
            "step: finish_reason is 'eos'",
        ),
        (lambda: at_turn(BEGUN, 2), "at_turn: turn_number is 2, wanted 1 to 1"),
        (lambda: step_env(CACHE, [BEGUN, WHOLE]), "step_env: a state is behind its 3 cycles"),
        (lambda: starting_points([BEGUN], keys.key(0), number=0), "starting_points: number is 0"),
        (lambda: start_requests(2, keys.key(0), attempts=0), "expand: n is 0"),
        (lambda: start_requests(2, keys.key(0), attempts=2, stream="test"), "start_requests: stream is 'test'"),
        (lambda: reasoning_machine(CACHE, CacheSettings(output_dir="x"), llms=0), "reasoning_machine: llms is 0"),
        (lambda: reasoning_machine(CACHE, CacheSettings(output_dir="x"), max_returns=-1), "max_returns is -1"),
        (lambda: check_lists(Lists(kind="product")), "lists: kind is 'product'"),
        (lambda: check_lists(Lists(low=2, high=1)), "lists: low and high is"),
        (lambda: check_lists(Lists(high=10**7)), "wanted within 1000000; take smaller ones"),
        (lambda: read_list("Add: a3 c4"), "read_list: text is 'Add: a3 c4'"),
        (
            lambda: show_reasoning(ListTask(kind="sum", numbers=(1,)), 2, keys.key(0), skill=1.0, numbers=1),
            "count is 2",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(make: Callable[[], Any], match: str) -> None:
    with pytest.raises(ChoiceError, match=match) as caught:
        make()
    assert "\n" not in str(caught.value)


SETTINGS = CacheSettings(output_dir="runs/rc")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"output_dir": " "}, "settings: output_dir is empty"),
        ({"num_reasoning_steps": 0}, "settings: num_reasoning_steps is 0, wanted at least 1"),
        ({"problem_queue_size": 0}, "problem_queue_size is 0"),
        ({"max_retries": -1}, "max_retries is -1, wanted at least 0"),
        ({"retry_base_delay": float("nan")}, "retry_base_delay is nan"),
        ({"reasoning_prompt_template": "{problem}"}, r"is without \{curr_summary\}"),
        ({"summarization_prompt_template": ""}, r"without \{problem\}, \{existing_summary\}, \{reasoning\}"),
        ({"solution_rollout_policy": "mine"}, "solution_rollout_policy is 'mine', wanted module.function"),
        ({"streams": Streams(backend="redis")}, "settings: streams.backend is 'redis'"),
        ({"llm": CallSampling(top_p=0.0)}, "settings: llm.top_p is 0.0"),
        ({"test_llm": CallSampling(max_tokens=0)}, "settings: test_llm.max_tokens is 0"),
        ({"llm": CallSampling(temperature=-1.0)}, "settings: llm.temperature is -1.0"),
    ],
)
def test_settings_are_checked(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ChoiceError, match=match) as caught:
        check_settings(evolve(SETTINGS, **changes))
    assert "\n" not in str(caught.value)


def test_settings_have_the_documented_names_and_defaults() -> None:
    plain = {name: value for name, value in attrs.asdict(check_settings(SETTINGS)).items() if "template" not in name}
    policies = {name: plain.pop(name).rpartition(".")[2] for name in sorted(plain) if name.endswith("_policy")}
    assert policies == {
        "solution_rollout_policy": "solution_rollout",
        "summarization_rollout_policy": "summarization_rollout",
    }
    assert plain == {
        "output_dir": "runs/rc",
        "num_reasoning_steps": 3,
        "num_samples_per_problem": 1,
        "attempts": 1,
        "use_think_tags": False,
        "rollout_workers": 1,
        "llm_max_rollouts": 16,
        "problem_queue_size": 10,
        "result_queue_size": 10,
        "shared_memory_entry_size": 5242880,
        "throughput_window_size": 10,
        "max_retries": 3,
        "retry_base_delay": 1.0,
        "llm": {"temperature": 1.0, "max_tokens": 16384, "top_p": 0.95},
        "test_llm": {"temperature": 1.0, "max_tokens": 16384, "top_p": 1.0},
        "eval_every_n_versions": 0,
        "streams": {"backend": "files"},
        "seed": 42,
    }
    assert cache_of(SETTINGS, solution_rollout, summarization_rollout) == CACHE


# --- training on the next step, and accuracy over cycles ---


def listed(length: int) -> InferenceProblemState:
    return InferenceProblemState(problem=list_problem(ListTask(kind="sum", numbers=tuple(range(1, length + 1)))))


def worked(cache: ReasoningCache, state: InferenceProblemState) -> InferenceProblemState:
    """The state behind all cycles of a model without fault."""
    task = read_list(state.problem.problem_text)
    while isinstance(due(cache, state), ModelRequest):
        count = min(NUMBERS * state.reasoning_turn_number, len(task.numbers))
        reasons = state.overall_cycle_step % 2 == 0
        text = (
            right_reasoning(task, count, numbers=NUMBERS)
            if reasons
            else summed_up(state.curr_summary, state.curr_reasoning)
        )
        state = run(cache, state, text)
    return state


def test_accuracy_rises_with_cycles_that_one_step_could_not_hold() -> None:
    runs = [worked(lister(12), listed(length)) for length in (3, 9, 36)]
    assert accuracy_by_cycle(runs) == (1 / 3, 1 / 3, *[2 / 3] * 9, 1.0)
    assert all(result.success for state in runs for result in state.reasoning_rollout_store)


def test_the_next_step_is_trained_in_groups_of_one_state() -> None:
    cache, codec = lister(3), byte_codec()
    points = starting_points([worked(lister(2), listed(8))], keys.key(0), number=3)
    assert [point.curr_summary for point in points] == ["", "c 6", "f 21"]
    rules = protocol(step_env(cache, points), chain(), max_steps=1, incomplete="accept")
    asked = start_requests(len(points), keys.key(1), attempts=2)
    texts = {0: ("a1=1; b2=3; c3=6;", "a1=1; b2=3;"), 1: ("d4=10; e5=15; f6=21;", "d4=9;"), 2: ("[ANSWER] 36", "g7=2")}
    texts[2] = ("g7=28; h8=36; [ANSWER] 36", "g7=28; h8=36;")
    ended = []
    for number, request in enumerate(asked):
        begun = begin_rollout(rules, codec, rollouts(request)[0], capacity=700, max_new_tokens=60)
        ids = (*texts[state_index(request.task)][number % 2].encode(), END)
        said = ModelOutput(ids=ids, log_probs=(-0.5,) * len(ids), versions=(0,) * len(ids), finish_reason="stop")
        ended.append(add_output(rules, codec, begun, said))
    written = transcripts(ended, capacity=700, calls=1)
    assert written.reward[:, 0].tolist() == [1.0, 0.0] * 3
    assert bool(written.terminated.all())
    estimator = partial(grpo_advantages, groups=3, eps=0.0)
    advantage = group(written.reward, written.calls, written.group, estimator=estimator)
    assert torch.allclose(advantage[:, 0], torch.tensor([0.5, -0.5] * 3).sign() * 0.5**0.5)


def test_evaluation_is_requests_of_the_held_out_stream_and_a_call_made_again_is_the_same_call() -> None:
    lists = check_lists(Lists(shortest=5, longest=9))
    asked = requests(task_keys(keys.key(3), "evaluation", 3), keys.key(4))
    states = [
        InferenceProblemState(problem=list_problem(list_task(lists, torch.tensor(request.task)))) for request in asked
    ]
    calls = [
        call_request(request, state, number) for number, (request, state) in enumerate(zip(asked, states, strict=True))
    ]
    assert [state_index(call.task) for call in calls] == [0, 1, 2]
    later = [call_request(request, worked(lister(1), state), 0) for request, state in zip(asked, states, strict=True)]
    assert len({call.sampling for call in (*calls, *later)}) == 6
    assert call_request(asked[2], states[2], 2) == calls[2]


def test_figures_by_turn() -> None:
    said = ModelOutput(ids=(1, 2, 3), log_probs=(0.0,) * 3, versions=(0,) * 3)
    more = take_reply(CACHE, BEGUN, Reply(cycle_step=0, text="[ANSWER] 5", said=said))
    figures = turn_figures(
        [GroupResult(number=0, attempts=(FinishedAttempt(state=WHOLE), FinishedAttempt(state=more)))]
    )
    assert figures["reasoning_turn_1/reward"] == 0.5
    assert figures["reasoning_turn_1/tokens"] == 1.5
    assert figures["reasoning_turn_3/reward"] == 1.0
    assert figures["summarization_turn_2/texts"] == 1.0
    assert throughput([], [], window=3) == throughput([1.0], [4], window=3) == 0.0
    assert throughput([1.0, 3.0], [4, 6], window=3) == 3.0


def test_a_policy_may_make_several_texts_of_a_reply() -> None:
    def halves(state: InferenceProblemState, asked: ModelRequest, reply: Reply) -> RolloutResult:
        text = TrainingText(prompt_text=asked.prompt_text, output_text=reply.text, reward=0.5)
        return RolloutResult(training_texts=(text, text), success=True)

    cache = reasoning_cache(halves, summarization_rollout)
    first = run(cache, BEGUN, "2")
    stamps = [text.metadata for text in first.reasoning_rollout_store[0].training_texts]
    assert len(stamps) == 2
    assert stamps[0] == stamps[1] != ()
    world = step_env(cache, [BEGUN])
    posed, _ = world.reset(world.params, torch.tensor((0, 0)))
    assert world.step(world.params, posed, "2", keys.key(0))[1].reward == 1.0
