"""Faults that used to be silent: for each the tests that hold it and, where a law does, the mutants that the law kills.

Writes benchmarks/results/silence.json; exit code 1 where a test failed or was not found, or a mutant lives.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from purestep.properties.framework.matrix import FAMILIES, ORIGINAL, faults, matrix

from . import evidence
from .machines.engine_contracts import PASSED, Case, run

OURS = "tests.laws.families:families"  # laws of our own machinery


@frozen
class Item:
    """A fault, the tests that would fail if it came back, and the suite of laws about it."""

    tests: tuple[str, ...]  # file::test, without parameters; or a file
    suite: str = ""
    law: str = ""  # of the suite, where only one is about it
    siblings: str = ""  # where else the kind of fault was looked for, found and mended


ITEMS: Mapping[str, Item] = {
    "memory goes on past an episode's end": Item(("test_rollout", "test_evaluate"), "memory_laws"),
    "a stale compiled form is loaded": Item(("test_sealed",), "identity_laws"),
    "undeclared metrics, schedules as numbers, flat and other parts, wrong dtypes": Item(("test_mistakes",)),
    "dropout trains": Item(("test_networks", "test_causal_lm")),
    "dtypes that a step changes": Item(("test_validate",)),
    "a reward that is no number": Item(("test_diverged",)),
    "the compiler's raw text": Item(("test_untraceable",)),
    "a policy is evaluated without the normaliser it was trained with": Item(
        (
            "test_evaluate::test_a_state_brings_its_statistics",
            "test_evaluate::test_the_states_of_a_population_bring_theirs",
            "test_evaluate::test_statistics_without_their_normalizer_are_refused",
            "test_load::test_a_run_gives_the_policy_that_evaluate_plays",
            "test_load::test_a_state_gives_its_policy_or_is_refused",
            "test_export::test_a_policy_of_gymnasiums_acts_there",
        ),
        siblings="statistics of another clip or an unknown normaliser; a normaliser without statistics; files; Gymnasium",
    ),
    "a model is trained to the end and then cannot be saved": Item(
        (
            "test_saved_models",
            "test_saved_model_recipe::test_what_was_trained_is_saved_and_evaluated",
            "test_saved_model_recipe::test_ranks_train_and_save_with_the_buffers_of_the_folder",
            "test_saved_model_recipe::test_generators_sample_with_the_buffers_and_the_model_is_saved",
            "test_saved_model_recipe::test_buffers_that_changed_in_the_folder_are_not_trained_on",
            "test_saved_model_recipe::test_a_model_that_would_be_lost_is_refused_and_an_older_run_stays",
        ),
        siblings="ranks trained with the buffers of a new model; checkpoints in Hugging Face's form left them out; a "
        "resumed run took changed buffers; a head that a server cannot get was refused after an older run was removed",
    ),
    "RUN/model is half a model after a kill": Item(
        ("test_replace_folder",),
        siblings="RUN/tokenizer; the removal of both by a new run; the copy that a killed start left; rows of train_text",
    ),
    "no backend": Item(("test_sealed::test_backend_none_calls_the_function_itself",)),
    "verify calls what it finds": Item(
        (
            "test_properties_api::test_the_command_calls_nothing_but_what_it_is_told_to_call",
            "test_properties_api::test_the_command_calls_what_it_is_told_to_call",
        )
    ),
    "moments and weights below float32": Item(("test_precision",), "precision_laws"),
    "generators are filled one after the other": Item(("test_scheduler",), "scheduler_laws", "generators_share_alike"),
    "top_p: ratios against a policy that was not sampled from": Item(
        (
            "test_laws_learners::test_support",
            "test_laws_learners::test_support_of_other_policies",
            "test_laws_learners::test_scores",
            "test_zorplex_recipe::test_before_an_update_the_policy_is_the_one_sampled_from",
            "test_language_algorithms::test_samples_of_a_nucleus_are_refused_by_a_learner_over_all_tokens",
        ),
        "support_laws",
    ),
    "a server that does not sample the evaluations, and one that is not there": Item(
        (
            "test_waits::test_evaluations_are_sampled_by_the_server_or_refused",
            "test_waits::test_a_run_that_waits_for_its_server_says_so_and_ends_at_once",
        )
    ),
    "generators that wait for a judge": Item(
        (
            "test_rollout_worker::test_sampling_goes_on_while_a_judge_blocks",
            "test_rollout_worker::test_what_ends_during_a_call_of_the_grader_is_graded_by_the_next_and_cancelled_tasks_by_none",
        )
    ),
    "waits that a signal does not end": Item(
        ("test_clock", "test_waits::test_a_run_that_waits_for_its_judge_ends_at_once_and_is_saved")
    ),
    "an exception of a world ends the run": Item(("test_failing_environments",)),
    "generation_config.json: a list of end tokens is ignored, other settings are dropped unnamed": Item(
        (
            "test_prompt_recipe::test_each_end_token_of_the_models_folder_ends_an_output",
            "test_prompt_recipe::test_settings_of_sampling_in_the_models_folder_that_are_not_used_are_named",
        ),
        siblings="config.json of older folders and its text_config; ids that the tokenizer does not have are refused",
    ),
    "--model NAME of the hub's cache counts 0 bytes of weights": Item(
        ("test_prompt_recipe::test_a_name_in_the_hubs_cache_has_the_facts_of_its_folder",),
        siblings="a folder with the same weights in two formats was counted twice",
    ),
    "a model folder that asks for 10^6 layers or 10^12 tokens": Item(
        ("test_prompt_recipe::test_a_configuration_beyond_its_weights_is_refused_before_it_is_built",),
        siblings="widths, heads of 0, texts for numbers, models without attention",
    ),
    "gymnasium_trainer trains on with NaN": Item(
        (
            "test_gymnasium_import::test_nan_is_an_error_that_names_its_step_and_env",
            "test_gymnasium_import::test_a_rate_that_is_too_high_is_no_fault_of_the_env",
            "test_diverged",
        ),
        siblings="populations (the tensor too), runs of a sweep (a line), imitation and embeddings of prove; texts had it",
    ),
    "nn.Conv2d passes the validation and fails in the update": Item(
        ("test_network_axes",), siblings="a2c, reinforce and decoupled PPO; populations and imitation"
    ),
    "F.one_hot with a table ends in a CompileError": Item(
        (
            "test_direct_trace::test_one_hot_is_traced_and_needs_its_number_of_classes",
            "test_direct_trace::test_a_table_and_one_hot_compile_directly",
        ),
        siblings="in a scan, a gradient and a vmap",
    ),
    "a scan inside a gradient ends in AssertionError: Expected FakeTensor": Item(
        ("test_uncompilable::test_a_gradient_through_a_scan_says_what_to_write",),
        siblings="inside a vmap of a gradient; any other exception of the compiler, which was raised as it came",
    ),
    "a CompileError blames the C++ compiler": Item(
        (
            "test_uncompilable::test_the_line_and_the_thing_are_named",
            "test_uncompilable::test_the_cpp_compiler_is_blamed_only_where_one_line_fails_too",
        ),
        siblings="23 things that cannot be compiled; lines of the standard library stood for the user's",
    ),
    "an env gets actions outside its Box": Item(
        ("test_action_bounds",),
        "action_bounds_laws",
        siblings="rollout, evaluate (mode and sample), populations, sweeps, our envs as Gymnasium's, one-sided bounds",
    ),
}


def found(name: str, cases: list[Case]) -> Counter[str]:
    """Count the cases of a test, or of a file, by how they ended."""
    file, _, test = name.partition("::")
    return Counter(end for where, case, end, _ in cases if where == file and test in ("", case.partition("[")[0]))


def places(test: str) -> list[Path]:
    """Return a file of tests, or one test of it, as pytest takes it."""
    file, _, name = test.partition("::")
    found = (evidence.ROOT / "tests").rglob(f"{file}.py")
    return [Path(f"{path}::{name}") if name else path for path in found]


def mutants(item: Item) -> dict[str, bool]:
    """Return by name whether the item's law kills each mutant; a fault of its suite's matrix counts as one that lives."""
    told: dict[str, bool] = {}
    tables = [table for source in (FAMILIES, OURS) for table in matrix((item.suite,), jobs=2, source=source)]
    for table in tables:
        for row in table.rows:
            if row.edit != ORIGINAL and (not item.law or item.law in row.owners):
                told[f"{table.suite}: {row.edit}"] = bool(row.killers) and set(row.owners) <= set(row.killers)
        told |= dict.fromkeys(faults((table,)), False)
    return told


def main() -> int:
    """Runs tests and mutants; 0 where each item is held."""
    argparse.ArgumentParser(prog="python -m benchmarks.silence", description=__doc__).parse_args()
    began = time.perf_counter()
    named = sorted({test for item in ITEMS.values() for test in item.tests})
    cases = run([each for test in named for each in places(test)])
    rows: dict[str, Any] = {}
    wrong = []
    for name, item in ITEMS.items():
        tests = {test: dict(found(test, cases)) for test in item.tests}
        killed = mutants(item) if item.suite else {}
        held = all(tests.values()) and not any(set(ends) - {PASSED, "skipped"} for ends in tests.values())
        held = held and all(killed.values()) and bool(killed) == bool(item.suite)
        rows[name] = {"tests": tests, "mutants": killed, "siblings": item.siblings, "held": held}
        wrong += [] if held else [name]
        print(
            f"{'held  ' if held else 'BROKEN'} {name}: {tests}, {sum(killed.values())} of {len(killed)} mutants killed"
        )
    evidence.write("silence", seconds=time.perf_counter() - began, figures={"broken": wrong, "items": rows})
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
