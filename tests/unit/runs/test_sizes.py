"""Sizes that no machine can hold are refused by the names of their flags, before anything is allocated or trained."""

from typing import Any

import pytest

from purestep.core.errors import ChoiceError
from purestep.runtime.recipes.prove_recipe import check_ranking
from purestep.runtime.recipes.prove_settings import Graph, Prove, Ranking
from purestep.runtime.recipes.shared_settings import PlayedEpisodes, Playing, Resuming
from purestep.runtime.recipes.sweep_settings import Sweep
from purestep.runtime.runs.arguments import changed, check_memory, memory_bytes
from purestep.runtime.runs.recipe import find

ABSURD = 10**12


@pytest.mark.parametrize(
    ("recipe", "changes", "named"),
    [
        ("ppo", {"envs": 9_999_999}, "--envs x --horizon"),
        ("a2c", {"horizon": ABSURD}, "--envs x --horizon"),
        ("reinforce", {"hidden": (ABSURD, 2)}, "--hidden"),
        ("prove", {"atoms": 9_999_999}, "--atoms x --successors x --envs"),
        ("prove", {"successors": ABSURD}, "--atoms x --successors x --envs"),
        ("prove", {"envs": ABSURD}, "--atoms x --successors x --envs"),
        ("prove", {"horizon": ABSURD, "steps": ABSURD}, "--envs x --horizon x --atoms"),
        ("prove", {"size": ABSURD}, "--size and --width x --blocks"),
        ("prove", {"blocks": ABSURD}, "--size and --width x --blocks"),
        ("zorplex", {"layers": 10**6}, "--layers x --width"),
        ("zorplex", {"width": 4 * ABSURD}, "--layers x --width"),
        ("zorplex", {"groups": ABSURD}, "--groups x --samples"),
        ("zorplex", {"held_out": ABSURD}, "--held-out x --eval-samples"),
        ("zorplex", {"slots": ABSURD}, "--slots x --capacity"),
        ("zorplex", {"capacity": ABSURD, "budget": ABSURD}, "--slots x --capacity"),
        ("zorplex", {"demonstrations": ABSURD}, "--demonstrations"),
        ("zorplex", {"warm_batch": ABSURD}, "--warm-steps x --warm-batch"),
        ("zorplex", {"warm_steps": ABSURD}, "--warm-steps x --warm-batch"),
        ("zorplex", {"mode": "async", "generators": 9_999_999}, "--generators"),
        ("zorplex", {"mode": "async", "tool_replicas": ABSURD}, "--tool-replicas"),
        (
            "text",
            {"reward_workers": 9_999_999, "model": ".", "prompts": __file__, "reward": ("exact",)},
            "--reward-workers",
        ),
        ("zorplex", {"max_new_tokens": 2**63 - 1}, "--slots x --max-new-tokens"),
        ("zorplex", {"max_turns": 2**31}, "--groups x --samples x --max-turns"),
        ("zorplex", {"generator_slots": ABSURD}, "--generator-slots x --capacity"),
        ("cache", {"llm_max_tokens": ABSURD}, "--slots x --llm-max-tokens"),
        ("cache", {"test_llm_max_tokens": ABSURD}, "--slots x --test-llm-max-tokens"),
        ("cache", {"summary_tokens": ABSURD}, "--slots x --summary-tokens"),
        ("cache", {"problems": ABSURD}, "--problems x --states x --samples"),
        ("cache", {"slots": ABSURD}, "--slots x --test-llm-max-tokens"),
        ("cache", {"capacity": ABSURD, "budget": ABSURD}, "--slots x --capacity"),
    ],
)
def test_a_size_that_no_machine_can_hold_is_refused(recipe: str, changes: dict[str, Any], named: str) -> None:
    found = find(recipe)
    usual = found.defaults()
    with pytest.raises(ChoiceError, match=rf"^{named} is at least [\d,]+ GB of memory, wanted at most the [\d,]+ GB"):
        found.check(changed(usual, changes))


@pytest.mark.parametrize(
    "recipe", ["ppo", "a2c", "reinforce", "dqn", "td3", "ddpg", "sac", "prove", "zorplex", "cache"]
)
def test_the_usual_sizes_are_not_refused(recipe: str) -> None:
    found = find(recipe)
    found.check(found.defaults())


@pytest.mark.parametrize("count", [9_999_999_999, 2**63 - 1])
def test_what_an_evaluation_or_a_sweep_asks_for_is_counted_too(count: int) -> None:
    for options in (Playing(count), Resuming(count), PlayedEpisodes(count)):
        with pytest.raises(ChoiceError, match=r"^--episodes is at least"):
            options.check()
    with pytest.raises(ChoiceError, match=r"^--seeds x --samples is at least"):
        Sweep(seeds=count).check(())
    prove = Prove(Graph(steps=100))
    with pytest.raises(ChoiceError, match=r"^--slots x --atoms x --successors is at least"):
        check_ranking(prove, Ranking(slots=count))
    with pytest.raises(ChoiceError, match=r"^--candidates is at least"):
        check_ranking(prove, Ranking(candidates=count))


def test_what_fits_is_not_refused() -> None:
    check_memory({"--envs": 0.9 * memory_bytes()})
    check_memory({"--envs": 5e11}, device="cuda")
    with pytest.raises(ChoiceError, match="lower one of them"):
        check_memory({"--envs": 2 * memory_bytes()})
    with pytest.raises(ChoiceError, match="lower one of them"):
        check_memory({"--envs": 1e15}, device="cuda:1")
