"""Laws of problems run through cycles: the texts do not depend on places, workers and failures.

The subject is a `Cycling`: the functions of core.language.reasoning_cache.cycles and evaluation.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

from attrs import Factory, evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from purestep.core import keys
from purestep.core.language.list_reduction.lists import Lists
from purestep.core.language.list_reduction.tasks import carried, list_problem, list_task, read_list
from purestep.core.language.prompting import Prompting, Query, Response, prompted
from purestep.core.language.reasoning_cache.cycles import Cycles
from purestep.core.language.reasoning_cache.demonstrations import show_reasoning, show_summary
from purestep.core.language.reasoning_cache.evaluation import CyclesResult
from purestep.core.language.reasoning_cache.events import GroupResult
from purestep.core.language.reasoning_cache.machine import ReasoningCache, due, reasoning_cache, take_reply
from purestep.core.language.reasoning_cache.rollouts import answers_problem, solution_rollout, summarization_rollout
from purestep.core.language.reasoning_cache.settings import CacheSettings
from purestep.core.language.reasoning_cache.state import (
    REASONING,
    InferenceProblemState,
    ModelRequest,
    Problem,
    Reply,
    TrainingText,
)
from purestep.core.language.types import ModelOutput
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor
from purestep.properties.strategies.values import seeds

# --- mutants ---
# Common errors in running problems through cycles: keys by place, the other kind's tokens, unlimited rollouts, lost runs.


@frozen
class Cycling:
    """The functions of core.language.reasoning_cache.cycles and evaluation, under their names there."""

    cycling: Callable[..., Prompting[Any, Any]]
    standing: Callable[[Sequence[InferenceProblemState]], CyclesResult]


def _asking(one: Cycling, change: Callable[[int, Query], Query]) -> Cycling:
    """Return the subject with `change` applied to every query, given its position among the queries that are due."""

    def cycling(*given: Any, **named: Any) -> Prompting[Any, Any]:
        made = one.cycling(*given, **named)

        def changed(moved: tuple[Any, tuple[Query, ...]]) -> tuple[Any, tuple[Query, ...]]:
            state, queries = moved
            return state, tuple(change(place, query) for place, query in enumerate(queries))

        return Prompting(
            begin=lambda *given: changed(made.begin(*given)),
            step=lambda state, responses: changed(made.step(state, responses)),
            result=made.result,
        )

    return evolve(one, cycling=cycling)


def keys_by_place(one: Cycling) -> Cycling:
    """Sample each call with a key of its position in the batch."""
    return _asking(one, lambda place, query: evolve(query, sampling=(place, 0)))


def one_limit(one: Cycling) -> Cycling:
    """Use the token limit of reasoning for summaries."""

    def cycling(*given: Any, limits: tuple[int, int], **named: Any) -> Prompting[Any, Any]:
        return one.cycling(*given, limits=(limits[0], limits[0]), **named)

    return evolve(one, cycling=cycling)


def without_places(one: Cycling) -> Cycling:
    """Run all attempts at once, without the limit on rollouts."""

    def cycling(cache: Any, settings: Any, *given: Any, **named: Any) -> Prompting[Any, Any]:
        return one.cycling(cache, evolve(settings, llm_max_rollouts=999), *given, **named)

    return evolve(one, cycling=cycling)


def loses_the_last(one: Cycling) -> Cycling:
    """Drop the last group of the result."""

    def cycling(cache: Any, settings: Any, problems: Any, result: Any, **named: Any) -> Prompting[Any, Any]:
        def found(key: Any, cycles: Cycles) -> Any:
            return result(key, evolve(cycles, found=cycles.found[:-1]))

        return one.cycling(cache, settings, problems, found, **named)

    return evolve(one, cycling=cycling)


def hurries(one: Cycling) -> Cycling:
    """Retry failed calls at once."""
    return _asking(one, lambda place, query: evolve(query, delay=0.0))


def never_forgets(cycling: Cycling) -> Cycling:
    """Count a task as carried in all cycles after the first that carried it."""

    def standing(states: Sequence[InferenceProblemState]) -> CyclesResult:
        found = cycling.standing(states)
        best = tuple(max(found.carried[: turn + 1]) for turn in range(len(found.carried)))
        return evolve(found, carried=best)

    return evolve(cycling, standing=standing)


def newest_tokens(cycling: Cycling) -> Cycling:
    """Count the tokens of each cycle alone."""

    def standing(states: Sequence[InferenceProblemState]) -> CyclesResult:
        found = cycling.standing(states)
        before = (0.0, *found.tokens)
        return evolve(found, tokens=tuple(now - then for now, then in zip(found.tokens, before, strict=False)))

    return evolve(cycling, standing=standing)


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "counts the tokens of each cycle alone": newest_tokens,
}


# --- laws ---


SOURCE = "core.language.reasoning_cache.cycles: a call's key depends on its attempt and its cycle step alone"
LIMITS = 9, 5
DELAY = 0.5  # seconds before the first retry
REASONS = "reason: {problem} {curr_summary}"
SUMS_UP = "sum up: {problem} {existing_summary} {reasoning}"


@frozen
class Plan:
    """Problems, runs of each, the limits on rollouts, workers and queues, and the batches that fail."""

    problems: int
    samples: int
    attempts: int
    cycles: int
    places: int
    workers: int
    queues: tuple[int, int]
    failing: tuple[bool, ...]  # of the batches, in order
    stream: str
    seed: int

    @property
    def settings(self) -> CacheSettings:
        """The settings of `cycled`, with as many retries as there may be failures."""
        return CacheSettings(
            output_dir="nowhere",
            num_reasoning_steps=self.cycles,
            num_samples_per_problem=self.samples,
            attempts=self.attempts,
            rollout_workers=self.workers,
            llm_max_rollouts=self.places,
            problem_queue_size=self.queues[0],
            result_queue_size=self.queues[1],
            max_retries=len(self.failing),
            retry_base_delay=DELAY,
        )


def plans() -> SearchStrategy[Plan]:
    """Draw few problems, and fewer places."""
    two, few = st.integers(1, 2), st.integers(1, 3)
    failing = st.lists(st.booleans(), max_size=4).map(tuple)
    streams = st.sampled_from(("training", "evaluation"))
    return st.builds(Plan, few, two, two, few, few, two, st.tuples(two, two), failing, streams, seeds())


@frozen
class Model:
    """A model that replies to each call with its key and its prompt; some batches fail. Several threads may call it."""

    failing: Iterator[bool]
    calls: list[Query] = Factory(list)  # that were answered
    batches: list[int] = Factory(list)
    failed: list[int] = Factory(list)

    def complete(self, queries: tuple[Query, ...]) -> list[Response]:
        """A response to each query: its key, the first words of the prompt and its length; batches of a worker fail whole."""
        found = dict[int, Response]()
        for worker in sorted({one.worker for one in queries}):
            own = {place: one for place, one in enumerate(queries) if one.worker == worker}
            self.batches.append(len(own))
            if next(self.failing, False):
                self.failed.append(worker)
                found |= {place: Response(error="TimeoutError: too slow") for place in own}
            else:
                self.calls.extend(own.values())
                found |= {place: _replied(one) for place, one in own.items()}
        return [found[place] for place in range(len(queries))]


def _replied(one: Query) -> Response:
    text = f"{one.sampling} {one.prompt[:6]} {len(one.prompt)}"
    said = ModelOutput(ids=tuple(map(ord, text)), log_probs=(0.0,) * len(text), versions=(7,) * len(text))
    return Response(text=text, said=said, version=7)


def cache_of(cycles: int) -> ReasoningCache:
    """A cache with short prompts, which begin with the kind of the step."""
    templates: dict[str, Any] = {"reasoning_prompt_template": REASONS, "summarization_prompt_template": SUMS_UP}
    return reasoning_cache(solution_rollout, summarization_rollout, num_reasoning_steps=cycles, **templates)


def ran(cycling: Cycling, plan: Plan, settings: CacheSettings, failing: Sequence[bool]) -> tuple[Any, Model]:
    """Return the groups of a run, and the model that was called."""
    model = Model(iter(failing))
    problems = [Problem(problem_id=str(n), problem_text=f"{n} + 1?", answer=str(n + 1)) for n in range(plan.problems)]
    made = cycling.cycling(
        cache_of(plan.cycles),
        settings,
        lambda key, first, count: tuple(problems[first : first + count]),
        lambda key, cycles: cycles.found,
        limits=LIMITS,
        stream=plan.stream,
    )
    return prompted(made, keys.key(plan.seed), 0, plan.problems, model.complete), model


def cycling_laws() -> Suite:
    """The laws of cycles in the world."""
    return Suite("cycling_laws", (_same_said(), _asked(), _bounded(), _published(), _patient(), _stood()))


_law = law_constructor(plans, SOURCE, most=200)


def _said(found: Sequence[GroupResult]) -> dict[Any, Any]:
    """The texts of each run, by problem, sample and attempt: groups may be finished in another order."""
    runs = [(one.state, one.failed) for result in found for one in result.attempts]
    told = {
        (state.problem.problem_id, state.sample_id, state.rollout_index): (
            failed,
            state.reasoning_string_store,
            state.summarization_string_store,
        )
        for state, failed in runs
    }
    return dict(sorted(told.items()))


def _same_said() -> Law:
    def check(cycling: Cycling, plan: Plan, seen: Seen) -> None:
        wide = evolve(plan.settings, llm_max_rollouts=99, rollout_workers=1, problem_queue_size=9, result_queue_size=9)
        wanted, _ = ran(cycling, plan, wide, ())
        found, model = ran(cycling, plan, plan.settings, plan.failing)
        runs = plan.problems * plan.samples * plan.attempts
        seen("calls that failed", model.failed)
        seen("fewer places than runs", plan.places * plan.workers < runs)
        seen("two workers", plan.workers == 2 and runs > 1)
        same("what each run says", _said(found), _said(wanted))
        texts = [text for _, reasoned, _ in _said(found).values() for text in reasoned]
        same("keys, each once", len(set(texts)), len(texts))

    mutant = Mutant("samples each call with a key of its place in the batch", keys_by_place)
    claim = "What a run says depends on its own keys: not on places, workers, queues or calls that were made again."
    return _law("same_said", claim, mutant, check, "calls that failed", "fewer places than runs", "two workers")


def _asked() -> Law:
    def check(cycling: Cycling, plan: Plan, seen: Seen) -> None:
        _, model = ran(cycling, plan, plan.settings, plan.failing)
        seen("a summary", any(one.prompt.startswith("sum up") for one in model.calls))
        for one in model.calls:
            same(f"the limit of {one.prompt[:6]!r}", one.max_new_tokens, LIMITS[one.prompt.startswith("sum up")])

    mutant = Mutant("gives summaries the tokens of steps of reasoning", one_limit)
    claim = "A step of reasoning may say more than a summary."
    return _law("asked_as_told", claim, mutant, check, "a summary")


def _patient() -> Law:
    def check(cycling: Cycling, plan: Plan, seen: Seen) -> None:
        delays = list[float]()
        model = Model(iter([True]))

        def complete(queries: tuple[Query, ...]) -> list[Response]:
            delays.extend({one.delay for one in queries})
            return model.complete(queries)

        settings = evolve(plan.settings, max_retries=1, rollout_workers=1, llm_max_rollouts=99)
        problem = Problem(problem_id="0", problem_text="0 + 1?", answer="1")
        made = cycling.cycling(
            cache_of(1), settings, lambda key, first, count: (problem,), lambda key, cycles: (), limits=LIMITS
        )
        prompted(made, keys.key(plan.seed), 0, 1, complete)
        seen("a call that failed", model.failed)
        same("delays before each batch", delays, [0.0, DELAY, 0.0])

    mutant = Mutant("makes calls that failed again at once", hurries)
    return _law("patient", "A call that failed is made again after a while.", mutant, check, "a call that failed")


def _bounded() -> Law:
    def check(cycling: Cycling, plan: Plan, seen: Seen) -> None:
        found, model = ran(cycling, plan, plan.settings, plan.failing)
        runs = plan.problems * plan.samples * plan.attempts
        seen("fewer places than runs", plan.places * plan.workers < runs)
        most = max(model.batches)
        require(most <= plan.places, f"a batch has at most {plan.places} calls, got {most}")
        same("calls that were answered", len(model.calls), runs * 2 * plan.cycles)
        require(all(not one.failed for result in found for one in result.attempts), "all runs come to their end")

    mutant = Mutant("has all runs under way at once", without_places)
    claim = "No batch is larger than a worker has places, and every call is answered once."
    return _law("bounded", claim, mutant, check, "fewer places than runs")


def _published() -> Law:
    def check(cycling: Cycling, plan: Plan, seen: Seen) -> None:
        found, _ = ran(cycling, plan, plan.settings, plan.failing)
        seen("several groups", len(found) > 1)
        same("groups", sorted(result.number for result in found), list(range(plan.problems * plan.samples)))
        for result in found:
            same("attempts", [one.state.rollout_index for one in result.attempts], list(range(plan.attempts)))
            for one in result.attempts:
                same("steps", one.state.overall_cycle_step, 2 * plan.cycles)
                versions = {text.metadata.model_version for text in _trained(one.state)}  # type: ignore[union-attr]
                same("versions", versions, {7})

    mutant = Mutant("finds all groups but the last", loses_the_last)
    claim = "Every group comes once, whole, with the version of the weights that spoke."
    return _law("published", claim, mutant, check, "several groups")


def _trained(state: InferenceProblemState) -> list[TrainingText]:
    results = (*state.reasoning_rollout_store, *state.summarization_rollout_store)
    return [text for result in results for text in result.training_texts]


def _stood() -> Law:
    def check(cycling: Cycling, drawn: tuple[int, int, float], seen: Seen) -> None:
        seed, cycles, skill = drawn
        states = [_worked(key, cycles, skill) for key in keys.split(keys.key(seed), 3)]
        found = cycling.standing(states)
        rights, shares = [], []
        for turn in range(cycles):
            rights.append([answers_problem(state, state.reasoning_string_complete_store[turn]) for state in states])
            tasks = [read_list(state.problem.problem_text) for state in states]
            summaries = [state.summarization_string_store[turn] for state in states]
            shares.append([carried(t, s) / len(t.numbers) for t, s in zip(tasks, summaries, strict=True)])
        lost = any(sum(later) < sum(before) for before, later in pairwise(shares))
        seen("a summary that lost what was carried", lost)
        same("accuracy", list(found.accuracy), [sum(each) / 3 for each in rights])
        same("what is carried", list(found.carried), [sum(each) / 3 for each in shares])
        same("tokens", list(found.tokens), [float(n) for n in accumulate([2] * cycles)])
        within = zip(found.accuracy_low, found.accuracy, found.accuracy_high, strict=True)
        require(all(0 <= low <= mean <= high <= 1 for low, mean, high in within), "accuracy is within its interval")

    mutant = Mutant("counts what a summary once carried for good", never_forgets)
    claim = (
        "Accuracy at T is that of step T, what is carried that of summary T, and tokens are all that were said by then."
    )
    inputs = st.tuples(seeds(), st.integers(2, 5), st.sampled_from((0.5, 0.8)))
    return _law("standing", claim, mutant, check, "a summary that lost what was carried", inputs=inputs)


def _worked(key: keys.Key, cycles: int, skill: float) -> InferenceProblemState:
    """A run of a demonstrator with some skill, which forgets summaries now and then."""
    task = list_task(Lists(shortest=2, longest=6), keys.fold_in(key, 0))
    cache = cache_of(cycles)
    state = InferenceProblemState(problem=list_problem(task))
    for number in range(2 * cycles):
        own, asked = keys.fold_in(key, 1 + number), due(cache, state)
        reasons = isinstance(asked, ModelRequest) and asked.turn_type == REASONING
        count = carried(task, state.curr_summary)
        text = (
            show_reasoning(task, count, own, skill=skill, numbers=2)
            if reasons
            else show_summary("" if skill < 0.6 else state.curr_summary, state.curr_reasoning, own, skill=skill)
        )
        said = ModelOutput(ids=(number,), log_probs=(0.0,), versions=(0,))
        state = take_reply(cache, state, Reply(cycle_step=number, text=text, said=said))
    return state
