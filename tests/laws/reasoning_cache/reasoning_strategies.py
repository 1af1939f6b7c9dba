"""Problems, templates and replies for the laws of the reasoning cache, with the syntax of templates and tags in their texts."""

from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from purestep.core.language.reasoning_cache.machine import ReasoningCache, reasoning_cache
from purestep.core.language.reasoning_cache.rollouts import solution_rollout, summarization_rollout
from purestep.core.language.reasoning_cache.state import InferenceProblemState, Problem, Reply

REASONING_TEMPLATES = (
    "{problem}|{curr_summary}|",
    "Given {1, 2}: {problem} \\g<0> {curr_summary} {{x}} {problem}",
    "{curr_summary}{problem}",
)
SUMMARIZATION_TEMPLATES = (
    "{problem}|{existing_summary}|{reasoning}",
    "\\frac{1}{2} {reasoning} {existing_summary}{problem}",
)
PIECES = (
    "{problem}",
    "{curr_summary}",
    "{reasoning}",
    "{existing_summary}",
    "{",
    "}",
    "{0}",
    "\\1",
    "\\g<0>",
    "\\frac{1}{2}",
    "[ANSWER] 5",
    "[ANSWER] 5",
    "<think>",
    "</think>",
    "</think> so",
    "</think> so",
    "</think> so",
    "[ANSWER] 6",
)


def said() -> SearchStrategy[str]:
    """Draw texts of a model: names in braces, backslashes, tags and answers, with any text between them."""
    return st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=5).map("".join)


def templates() -> SearchStrategy[str]:
    """Draw templates, and other texts with names in braces."""
    return st.sampled_from(REASONING_TEMPLATES) | said()


def _cache(cycles: int, tags: bool, reasoning: str, summing: str) -> ReasoningCache:
    return reasoning_cache(
        solution_rollout,
        summarization_rollout,
        num_reasoning_steps=cycles,
        use_think_tags=tags,
        reasoning_prompt_template=reasoning,
        summarization_prompt_template=summing,
    )


def caches() -> SearchStrategy[ReasoningCache]:
    """Draw caches of one to four cycles."""
    reasoning, summing = st.sampled_from(REASONING_TEMPLATES), st.sampled_from(SUMMARIZATION_TEMPLATES)
    return st.builds(_cache, st.integers(1, 4), st.booleans(), reasoning, summing)


@frozen
class Utterance:
    """A reply to the step that is due, and the disturbances before it arrives."""

    text: str
    version: int
    given_up: int  # calls of this step that were given up
    again: int  # earlier replies that come once more, of the steps this far back: a bit for each


@frozen
class Run:
    """A cache, a problem, and the model's replies, call by call: at least as many as there are steps."""

    cache: ReasoningCache
    problem: Problem
    rollout_index: int
    said: tuple[Utterance, ...]

    def begin(self) -> InferenceProblemState:
        """The state before the first call."""
        return InferenceProblemState(problem=self.problem, rollout_index=self.rollout_index)

    def reply(self, number: int) -> Reply:
        """The reply to a step."""
        return Reply(cycle_step=number, text=self.said[number].text, model_version=self.said[number].version)


def _problem(number: int, text: str) -> Problem:
    return Problem(problem_id=str(number), problem_text=text, answer="5")


def problems() -> SearchStrategy[Problem]:
    """Draw problems with arbitrary texts."""
    return st.builds(_problem, st.integers(0, 9), said())


SPEECHES = (
    "[ANSWER] 5",
    "<think>[ANSWER] 5</think> so",
    "[ANSWER] 6",
    "{problem} </think> [ANSWER] 5",
    "",
    "{curr_summary}\\1",
    "hm",
    "[ANSWER] 5",
)


def _utterance(text: str, disturbances: int) -> Utterance:
    rest, given_up = divmod(disturbances, 3)
    version, again = divmod(rest, 16)
    return Utterance(text, version, given_up, again)


def runs(texts: SearchStrategy[str] | None = None) -> SearchStrategy[Run]:
    """Draw runs with aborted calls and repeated replies; the model's texts are from `texts`, else arbitrary."""
    each = st.builds(_utterance, said() if texts is None else texts, st.integers(0, 10 * 16 * 3 - 1))
    utterances = st.lists(each, min_size=8, max_size=8).map(tuple)
    return st.builds(Run, caches(), problems(), st.integers(0, 3), utterances)


def few_runs() -> SearchStrategy[tuple[Run, Run]]:
    """Draw two runs in which the model's texts are from a short list."""
    return st.tuples(runs(st.sampled_from(SPEECHES)), runs(st.sampled_from(SPEECHES)))
