"""Laws of the reasoning cache: a run with aborted calls and repeated replies equals the run without them.

The subject is a `Thinking`: the functions of core.language.reasoning_cache.machine, functions of its runs, and templates.
"""

import json
import re

from hypothesis import strategies as st

from purestep.core.language.events import ABORT
from purestep.core.language.reasoning_cache.state import (
    REASONING,
    STATE_CLASSES,
    SUMMARIZATION,
    InferenceProblemState,
    Metadata,
    ModelRequest,
    Reply,
    TrainingText,
)
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor
from purestep.runtime.machine.json_codec import decode, encode, json_line

from . import reasoning_mutants
from .reasoning_mutants import Thinking
from .reasoning_strategies import Run, runs, said, templates
from .reasoning_training import training_laws

SOURCE = "core.language.reasoning_cache.machine: cycles of reasoning and summing up, committed step by step"


def played(thinking: Thinking, run: Run, *, disturbed: bool) -> list[InferenceProblemState]:
    """The state before the first call and after each; with calls given up and replies that come again, if `disturbed`."""
    states = [run.begin()]
    for number in range(2 * run.cache.num_reasoning_steps):
        state, utterance = states[-1], run.said[number]
        for _ in range(utterance.given_up if disturbed else 0):
            state = thinking.step(run.cache, state, Reply(cycle_step=number, text="cut off", finish_reason=ABORT))
        state = thinking.step(run.cache, state, run.reply(number))
        for earlier in repeated(run, number) if disturbed else ():
            state = thinking.step(run.cache, state, run.reply(earlier))
        states.append(state)
    return states


def repeated(run: Run, number: int) -> list[int]:
    """The steps whose replies are repeated after this one."""
    return [number - back for back in range(4) if run.said[number].again >> back & 1 and back <= number]


def reasoning_laws() -> Suite:
    """The laws of the reasoning cache."""
    own = _metadata(), _undisturbed(), _texts(), _prompts(), _order(), _resumed(), _versions()
    return Suite("reasoning_laws", (*own, *training_laws(lambda thinking, run: played(thinking, run, disturbed=False))))


_law = law_constructor(runs, SOURCE)


def stamps(state: InferenceProblemState) -> list[Metadata | tuple[()]]:
    """The metadata of a run, in the order of its steps as the stores alternate."""
    both = (state.reasoning_rollout_store, state.summarization_rollout_store)
    turns = range(max(map(len, both)))
    results = [result for turn in turns for store in both for result in store[turn : turn + 1]]
    return [text.metadata for result in results for text in result.training_texts]


def table(run: Run) -> list[Metadata]:
    """The expected metadata of a whole run."""
    return [
        Metadata(
            model_version=run.said[number].version,
            rollout_index=run.rollout_index,
            cycle_step=number,
            turn_type=(REASONING, SUMMARIZATION)[number % 2],
            turn_number=1 + number // 2,
        )
        for number in range(2 * run.cache.num_reasoning_steps)
    ]


def _metadata() -> Law:
    def check(thinking: Thinking, run: Run, seen: Seen) -> None:
        steps = 2 * run.cache.num_reasoning_steps
        seen("a summary given up", any(run.said[number].given_up for number in range(1, steps, 2)))
        seen("a reply that came again", any(repeated(run, number) for number in range(steps)))
        last = played(thinking, run, disturbed=True)[-1]
        require(stamps(last) == table(run), f"the metadata is {stamps(last)}, not the table's")
        counters = last.reasoning_turn_number, last.summarization_turn_number, last.overall_cycle_step
        same("the counters", counters, (steps // 2, steps // 2, steps))

    mutant = Mutant("begins a cycle anew when its summary failed", reasoning_mutants.restarts_the_cycle)
    claim = "Metadata is the table's, with any pattern of calls given up and of replies that come again."
    return _law("metadata_table", claim, mutant, check, "a summary given up", "a reply that came again")


def _undisturbed() -> Law:
    def check(thinking: Thinking, run: Run, seen: Seen) -> None:
        seen("a reply that came again", repeated(run, 0))
        clean, disturbed = (played(thinking, run, disturbed=how) for how in (False, True))
        require(clean == disturbed, "a run with failures and repeated replies goes through the states of a clean one")
        last = clean[-1]
        for number in range(last.overall_cycle_step):
            require(thinking.step(run.cache, last, run.reply(number)) == last, "behind the end nothing changes")
        stores = last.reasoning_string_store, last.reasoning_rollout_store, last.reasoning_string_complete_store
        same("entries of history", [len(store) for store in stores], [run.cache.num_reasoning_steps] * 3)

    mutant = Mutant("takes a reply that comes again for the next", reasoning_mutants.takes_repeats)
    claim = "History is never doubled: a reply that was given up, or that comes again, leaves no trace."
    return _law("failures_leave_no_trace", claim, mutant, check, "a reply that came again")


def _bare(text: str, thinks: bool) -> str:
    """The expected reasoning text without think tags, by a second implementation."""
    kept = text.split("</think>")[0] if thinks else text.replace("</think>", "")
    return "".join(kept.split("<think>")).strip()


def _texts() -> Law:
    def check(thinking: Thinking, run: Run, seen: Seen) -> None:
        last, said = played(thinking, run, disturbed=False)[-1], [one.text for one in run.said]
        end, tags = 2 * run.cache.num_reasoning_steps, run.cache.use_think_tags
        seen("a text behind the thinking", tags and any(text.partition("</think>")[2] for text in said[:end:2]))
        reasoned, summed_up = (
            [_bare(text, tags) for text in said[:end:2]],
            [_bare(text, False) for text in said[1:end:2]],
        )
        same("reasoning without tags", list(last.reasoning_string_store), reasoned)
        same("summaries without tags", list(last.summarization_string_store), summed_up)
        same("summaries as they were said", list(last.summarization_string_complete_store), said[1:end:2])
        for whole, text in zip(last.reasoning_string_complete_store, said[:end:2], strict=True):
            require(
                whole.endswith(text) and (not tags or "<think>" in whole), "reasoning as it was said, opened by its tag"
            )
        same("the latest of both", (last.curr_reasoning, last.curr_summary), (reasoned[-1], summed_up[-1]))

    mutant = Mutant("sums up the answer and not the thinking", reasoning_mutants.sums_up_the_answer)
    claim = "Stores hold the texts of their kind in order: as they were said, and without the tags of thinking."
    return _law("texts", claim, mutant, check, "a text behind the thinking", share=0.01)


def _prompts() -> Law:
    def check(thinking: Thinking, drawn: list[tuple[str, str, str]], seen: Seen) -> None:
        for template, problem, summary in drawn:
            values = {"problem": problem, "curr_summary": summary}
            seen("a name in braces in a text", "{curr_summary}" in problem and "{problem}" in template)
            seen("a backslash in a text", "\\" in problem)
            pieces = re.split(r"\{(problem|curr_summary)\}", template)
            wanted = "".join(values[piece] if place % 2 else piece for place, piece in enumerate(pieces))
            same("the prompt", thinking.fill(template, values), wanted)

    mutant = Mutant("formats templates", reasoning_mutants.formats)
    claim = "Every name in braces in a template is replaced by its text as it stands; nothing else changes."
    needs = "a name in braces in a text", "a backslash in a text"
    return _law(
        "braces",
        claim,
        mutant,
        check,
        *needs,
        inputs=st.lists(st.tuples(templates(), said(), said()), min_size=8, max_size=8),
    )


def _order() -> Law:
    def check(thinking: Thinking, run: Run, seen: Seen) -> None:
        states = played(thinking, run, disturbed=False)
        seen("several cycles", run.cache.num_reasoning_steps > 1)
        for number, state in enumerate(states[:-1]):
            asked = thinking.due(run.cache, state)
            require(isinstance(asked, ModelRequest), f"a call is due at step {number}")
            found = (asked.cycle_step, asked.turn_type) if isinstance(asked, ModelRequest) else ()
            same("the call", found, (number, (REASONING, SUMMARIZATION)[number % 2]))
            prompt = asked.prompt_text if isinstance(asked, ModelRequest) else ""
            texts = [run.problem.problem_text, state.curr_summary, *([state.curr_reasoning] if number % 2 else [])]
            require(
                all(text in prompt for text in texts),
                "the prompt tells the problem, the summary and what is to be summed up",
            )
            thinks = run.cache.use_think_tags and number % 2 == 0
            require(not thinks or prompt.endswith("<think>\n"), "reasoning is thought, where the cache thinks")
        same("behind the last", thinking.due(run.cache, states[-1]), ())

    mutant = Mutant("shows the first summary in all cycles", reasoning_mutants.shows_the_first_summary)
    claim = "Reasoning and summaries alternate, each prompted with the problem and the summary so far."
    return _law("order", claim, mutant, check, "several cycles")


def _resumed() -> Law:
    def check(thinking: Thinking, run: Run, seen: Seen) -> None:
        whole = played(thinking, run, disturbed=False)
        seen("several cycles", run.cache.num_reasoning_steps > 1)
        for number, state in enumerate(whole):
            again: InferenceProblemState = decode(json.loads(json_line(encode(state))), STATE_CLASSES)
            require(again == state, f"the state after step {number}, written and read")
            for later in range(number, len(whole) - 1):
                again = thinking.step(run.cache, again, run.reply(later))
            require(again == whole[-1], f"resumed from step {number} is never stopped")

    mutant = Mutant("counts turns beside the state", reasoning_mutants.counts_beside)
    claim = "A run resumed from its JSON at any step ends as one that was never stopped."
    return _law("resumed", claim, mutant, check, "several cycles")


def _versions() -> Law:
    def check(thinking: Thinking, run: Run, seen: Seen) -> None:
        last = played(thinking, run, disturbed=True)[-1]
        found = [stamp.model_version if isinstance(stamp, Metadata) else -1 for stamp in stamps(last)]
        wanted = [one.version for one in run.said[: 2 * run.cache.num_reasoning_steps]]
        seen("weights that changed on the way", len(set(wanted)) > 1)
        same("versions", found, wanted)
        made: list[TrainingText] = [text for result in last.reasoning_rollout_store for text in result.training_texts]
        same("texts", [text.output_text for text in made], [one.text for one in run.said[: len(wanted) : 2]])

    mutant = Mutant("reads the version when the run begins", reasoning_mutants.version_of_the_start)
    claim = "Each training text has the version and the text of the reply that it was made of."
    return _law("versions", claim, mutant, check, "weights that changed on the way")
