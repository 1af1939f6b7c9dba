"""The reasoning cache: a model reasons, summarizes the result, drops the reasoning and continues from the summary.

    r_t ~ model(problem, s_t-1),    s_t ~ model(problem, s_t-1, r_t),    t = 1..num_reasoning_steps

The context stays short while the total reasoning grows with t. A run is a value, and `take_reply(cache, state, reply) -> state`
commits a reply atomically: counters, texts, training data and metadata together. A reply names the step it is for, so that a
repeated or late reply, or one of a duplicated call, has no effect; a half-committed cycle cannot occur.
Source: Reasoning Cache, as in PipelineRL's online rollouts, from which the names of the fields are taken.
"""

from collections.abc import Callable

from attrs import evolve, fields, frozen

from ...errors import ChoiceError, choose, message
from ..events import ABORT, FINISH_REASONS
from .settings import CacheSettings
from .state import (
    REASONING,
    SUMMARIZATION,
    InferenceProblemState,
    Metadata,
    ModelRequest,
    Reply,
    RolloutResult,
)
from .templates import (
    REASONING_NAMES,
    REASONING_PROMPT,
    SUMMARIZATION_NAMES,
    SUMMARIZATION_PROMPT,
    check_template,
    close_think_tag,
    fill_template,
    open_think_tag,
    thought,
    untagged,
)

RolloutPolicy = Callable[[InferenceProblemState, ModelRequest, Reply], RolloutResult]


@frozen(kw_only=True)
class ReasoningCache:
    """The settings of cycles; construct it with `reasoning_cache`."""

    num_reasoning_steps: int
    use_think_tags: bool
    reasoning_prompt_template: str
    summarization_prompt_template: str
    solution_rollout_policy: RolloutPolicy
    summarization_rollout_policy: RolloutPolicy


def reasoning_cache(
    solution_rollout_policy: RolloutPolicy,
    summarization_rollout_policy: RolloutPolicy,
    *,
    num_reasoning_steps: int = 3,
    use_think_tags: bool = False,
    reasoning_prompt_template: str = REASONING_PROMPT,
    summarization_prompt_template: str = SUMMARIZATION_PROMPT,
) -> ReasoningCache:
    """Return a cache of `num_reasoning_steps` cycles. The policies build training data from replies, one for each turn type.

    With `use_think_tags` the reasoning prompt ends with an opening tag and only the text inside the tags is summarized.
    Summarization prompts have no think tag. Raises: ChoiceError.

    >>> from .rollouts import solution_rollout, summarization_rollout
    >>> reasoning_cache(solution_rollout, summarization_rollout, num_reasoning_steps=0)
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: reasoning_cache: num_reasoning_steps is 0, wanted at least 1; run one cycle or more
    """
    if num_reasoning_steps < 1:
        where, remedy = "reasoning_cache: num_reasoning_steps", "run one cycle or more"
        raise ChoiceError(message(where, got=num_reasoning_steps, wanted="at least 1", remedy=remedy))
    named = f"{REASONING}_prompt_template", f"{SUMMARIZATION}_prompt_template"
    return ReasoningCache(
        num_reasoning_steps=num_reasoning_steps,
        use_think_tags=use_think_tags,
        reasoning_prompt_template=check_template(named[0], reasoning_prompt_template, REASONING_NAMES),
        summarization_prompt_template=check_template(named[1], summarization_prompt_template, SUMMARIZATION_NAMES),
        solution_rollout_policy=solution_rollout_policy,
        summarization_rollout_policy=summarization_rollout_policy,
    )


def cache_of(settings: CacheSettings, solution: RolloutPolicy, summarization: RolloutPolicy) -> ReasoningCache:
    """Return the cache for the settings, with the two policies that they name. Raises: ChoiceError.

    >>> from .rollouts import solution_rollout, summarization_rollout
    >>> cache_of(CacheSettings(output_dir="runs/rc"), solution_rollout, summarization_rollout).num_reasoning_steps
    3
    """
    named = {field.name for field in fields(ReasoningCache)} & {field.name for field in fields(CacheSettings)}
    told = {name: getattr(settings, name) for name in named if not name.endswith("_rollout_policy")}
    return reasoning_cache(solution, summarization, **told)


def get_filled_reasoning_prompt(cache: ReasoningCache, state: InferenceProblemState) -> str:
    """Return the prompt of a reasoning step: the problem and the summary so far.

    >>> from .rollouts import solution_rollout, summarization_rollout
    >>> cache = reasoning_cache(
    ...     solution_rollout, summarization_rollout, reasoning_prompt_template="{problem} So far: {curr_summary}"
    ... )
    >>> from .state import Problem
    >>> problem = Problem(problem_id="0", problem_text="2 + 3?", answer="5")
    >>> get_filled_reasoning_prompt(cache, InferenceProblemState(problem=problem, curr_summary="{2}"))
    '2 + 3? So far: {2}'
    """
    values = {"problem": state.problem.problem_text, "curr_summary": state.curr_summary}
    prompt = fill_template(cache.reasoning_prompt_template, values)
    return open_think_tag(prompt) if cache.use_think_tags else prompt


def get_filled_summarization_prompt(cache: ReasoningCache, state: InferenceProblemState) -> str:
    """Return the prompt of a summarization step: the problem, the summary so far and the latest reasoning, without tags.

    >>> from .rollouts import solution_rollout, summarization_rollout
    >>> cache = reasoning_cache(
    ...     solution_rollout,
    ...     summarization_rollout,
    ...     summarization_prompt_template="{problem} {existing_summary} {reasoning}",
    ... )
    >>> from .state import Problem
    >>> problem = Problem(problem_id="0", problem_text="2 + 3?", answer="5")
    >>> state = InferenceProblemState(problem=problem, curr_summary="{reasoning}", curr_reasoning="5")
    >>> get_filled_summarization_prompt(cache, state)
    '2 + 3? {reasoning} 5'
    """
    values = {
        "problem": state.problem.problem_text,
        "existing_summary": state.curr_summary,
        "reasoning": state.curr_reasoning,
    }
    return fill_template(cache.summarization_prompt_template, values)


def due(cache: ReasoningCache, state: InferenceProblemState) -> ModelRequest | tuple[()]:
    """Return the next call of a state; () if all cycles are finished.

    >>> from .rollouts import solution_rollout, summarization_rollout
    >>> cache = reasoning_cache(solution_rollout, summarization_rollout, num_reasoning_steps=1)
    >>> from .state import Problem
    >>> state = InferenceProblemState(problem=Problem(problem_id="0", problem_text="2 + 3?", answer="5"))
    >>> asked = due(cache, state)
    >>> asked.cycle_step, asked.turn_type, asked.turn_number
    (0, 'reasoning', 1)
    """
    number = state.overall_cycle_step
    if number >= 2 * cache.num_reasoning_steps:
        return ()
    reasons = number % 2 == 0
    prompt = get_filled_reasoning_prompt if reasons else get_filled_summarization_prompt
    return ModelRequest(
        cycle_step=number,
        turn_type=REASONING if reasons else SUMMARIZATION,
        turn_number=1 + number // 2,
        prompt_text=prompt(cache, state),
    )


def take_reply(cache: ReasoningCache, state: InferenceProblemState, reply: Reply) -> InferenceProblemState:
    """Return the state after a reply to the current step; the same state for a reply to an earlier step or an aborted one.

    Raises: ChoiceError for a reply to a step that has not been requested, and for an unknown finish_reason.

    >>> from .rollouts import solution_rollout, summarization_rollout
    >>> cache = reasoning_cache(solution_rollout, summarization_rollout, num_reasoning_steps=1)
    >>> from .state import Problem
    >>> state = InferenceProblemState(problem=Problem(problem_id="0", problem_text="2 + 3?", answer="5"))
    >>> reasoned = take_reply(cache, state, Reply(cycle_step=0, text="[ANSWER] 5"))
    >>> reasoned.curr_reasoning, reasoned.reasoning_turn_number, reasoned.overall_cycle_step
    ('[ANSWER] 5', 1, 1)
    >>> take_reply(cache, reasoned, Reply(cycle_step=0, text="[ANSWER] 6")) == reasoned
    True
    """
    choose("step: finish_reason", reply.finish_reason, dict.fromkeys(FINISH_REASONS))
    if not 0 <= reply.cycle_step <= state.overall_cycle_step:
        wanted, remedy = f"0 to {state.overall_cycle_step}", "answer the call that is due"
        raise ChoiceError(message("step: cycle_step", got=reply.cycle_step, wanted=wanted, remedy=remedy))
    asked = due(cache, state)
    if isinstance(asked, tuple) or reply.cycle_step < asked.cycle_step or reply.finish_reason == ABORT:
        return state
    return (_reasoned if asked.turn_type == REASONING else _summed_up)(cache, state, asked, reply)


def _reasoned(
    cache: ReasoningCache, state: InferenceProblemState, asked: ModelRequest, reply: Reply
) -> InferenceProblemState:
    text = thought(reply.text) if cache.use_think_tags else untagged(reply.text)
    raw = close_think_tag(reply.text) if cache.use_think_tags else reply.text
    result = _stamped(cache.solution_rollout_policy(state, asked, reply), state, asked, reply)
    return evolve(
        state,
        curr_reasoning=text,
        reasoning_turn_number=asked.turn_number,
        overall_cycle_step=asked.cycle_step + 1,
        reasoning_rollout_store=(*state.reasoning_rollout_store, result),
        reasoning_string_store=(*state.reasoning_string_store, text),
        reasoning_string_complete_store=(*state.reasoning_string_complete_store, raw),
    )


def _summed_up(
    cache: ReasoningCache, state: InferenceProblemState, asked: ModelRequest, reply: Reply
) -> InferenceProblemState:
    text = untagged(reply.text)
    result = _stamped(cache.summarization_rollout_policy(state, asked, reply), state, asked, reply)
    return evolve(
        state,
        curr_summary=text,
        summarization_turn_number=asked.turn_number,
        overall_cycle_step=asked.cycle_step + 1,
        summarization_rollout_store=(*state.summarization_rollout_store, result),
        summarization_string_store=(*state.summarization_string_store, text),
        summarization_string_complete_store=(*state.summarization_string_complete_store, reply.text),
    )


def _stamped(result: RolloutResult, state: InferenceProblemState, asked: ModelRequest, reply: Reply) -> RolloutResult:
    metadata = Metadata(
        model_version=reply.model_version,
        rollout_index=state.rollout_index,
        cycle_step=asked.cycle_step,
        turn_type=asked.turn_type,
        turn_number=asked.turn_number,
    )
    return evolve(result, training_texts=tuple(evolve(text, metadata=metadata) for text in result.training_texts))
