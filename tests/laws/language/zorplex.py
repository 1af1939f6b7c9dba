"""Laws of the zorplex environment: tasks that only tools can solve, and rewards that only solutions earn.

The subject is `zorplex(kind, **options) -> TextEnv`.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from purestep.core import keys
from purestep.core.language.parsers import Answer, Call
from purestep.core.language.text_env import Outcome, TextEnv
from purestep.core.language.zorplex.env import TOOLS, Reward, ZorplexState
from purestep.core.language.zorplex.tasks import WordTable, ZorplexTask, letters, two_syllables
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always
from purestep.properties.strategies.values import seeds
from purestep.runtime.machine.json_codec import decode, encode

# --- mutants ---
# Common errors in the zorplex environment: edits of `zorplex(kind, **options) -> TextEnv`.


World = Callable[..., TextEnv[Any, ZorplexState]]


def _generating(change: Callable[[Any, ZorplexTask, Any], ZorplexTask]) -> Callable[[World], World]:
    """The edit that changes each task: `change(vocabulary, task, key)`."""

    def make(world: World) -> World:
        def zorplex(kind: str, **options: Any) -> TextEnv[Any, ZorplexState]:
            env = world(kind, **options)
            generate = env.params.generate
            params = evolve(
                env.params, generate=lambda vocabulary, key: change(vocabulary, generate(vocabulary, key), key)
            )
            return evolve(env, params=params)

        return zorplex

    return make


def _stepping(
    change: Callable[[Any, ZorplexState, Any, ZorplexState, Outcome], tuple[ZorplexState, Outcome]],
) -> Callable[[World], World]:
    """The edit of the result of a step: `change(params, before, action, after, outcome)`."""

    def make(world: World) -> World:
        def zorplex(kind: str, **options: Any) -> TextEnv[Any, ZorplexState]:
            env = world(kind, **options)

            def step(params: Any, play: ZorplexState, action: Any, key: Any) -> tuple[ZorplexState, Outcome]:
                return change(params, play, action, *env.step(params, play, action, key))

            return evolve(env, step=step)

        return zorplex

    return make


def _pay(after: ZorplexState, outcome: Outcome, **parts: float) -> tuple[ZorplexState, Outcome]:
    reward = evolve(after.reward, **parts)
    return evolve(after, reward=reward), evolve(outcome, reward=outcome.reward + reward.total - after.reward.total)


def _format_alone(
    params: Any, before: ZorplexState, action: Any, after: ZorplexState, outcome: Outcome
) -> tuple[ZorplexState, Outcome]:
    return _pay(after, outcome, format=params.format) if isinstance(action, Answer) else (after, outcome)


def _every_call(
    params: Any, before: ZorplexState, action: Any, after: ZorplexState, outcome: Outcome
) -> tuple[ZorplexState, Outcome]:
    return (after, outcome) if isinstance(action, Answer) else _pay(after, outcome, tool_spam=-after.calls * 0.125)


def _any_call_counts(
    params: Any, before: ZorplexState, action: Any, after: ZorplexState, outcome: Outcome
) -> tuple[ZorplexState, Outcome]:
    return evolve(after, valid_calls=after.calls), outcome


def _links_at_will(vocabulary: Any, task: ZorplexTask, key: Any) -> ZorplexTask:
    """Let a word redirect to any word, even to itself or in a cycle."""
    n = len(vocabulary.words)
    if not task.links:
        return task
    anywhere = tuple(map(int, keys.randint(keys.fold_in(key, 1), (n,), 0, n)))
    return evolve(task, links=tuple(to if link >= 0 else -1 for to, link in zip(anywhere, task.links, strict=True)))


def _right_to_left(vocabulary: Any, task: ZorplexTask, key: Any) -> ZorplexTask:
    """Compute a - b - c as a - (b - c)."""
    value = dict(zip(vocabulary.words, task.values, strict=True))
    if " - " not in task.question or len(task.asked) < 3:
        return task
    first, second, third = (value[word] for word in task.asked)
    return evolve(task, answer=first - (second - third))


def counts_tasks(world: World) -> World:
    """Draw another table at each reset, whatever the key is."""
    made: list[int] = []

    def zorplex(kind: str, **options: Any) -> TextEnv[Any, ZorplexState]:
        env = world(kind, **options)

        def reset(params: Any, key: Any) -> tuple[ZorplexState, str]:
            made.append(1)
            return env.reset(params, keys.fold_in(key, len(made)))

        return evolve(env, reset=reset)

    return zorplex


def remembers_beside(world: World) -> World:
    """Keep the number of calls outside the state."""

    def zorplex(kind: str, **options: Any) -> TextEnv[Any, ZorplexState]:
        env, made = world(kind, **options), list[int]()

        def step(params: Any, play: ZorplexState, action: Any, key: Any) -> tuple[ZorplexState, Outcome]:
            made.append(1)
            return env.step(params, evolve(play, calls=len(made)), action, key)

        return evolve(env, step=step)

    return zorplex


format_alone = _stepping(_format_alone)
links_at_will = _generating(_links_at_will)
right_to_left = _generating(_right_to_left)
every_call_costs = _stepping(_every_call)

MUTANTS: dict[str, Callable[[World], World]] = {
    "takes any call for a valid one": _stepping(_any_call_counts),
}


# --- laws ---


SOURCE = "core.language.zorplex.env: strict answers, calls that are counted, tables that cannot be memorised"
CORRECT, FORMAT, SPAM = 2.0, 0.5, 0.25  # sums of them are exact
CLASSES = (ZorplexState, ZorplexTask, Reward)
TINY = WordTable(("bli", "kra", "zor", "mup", "tel", "van"), -9, 9)


@frozen
class Setting:
    """The options of an environment, and the seed of a task."""

    kind: str
    difficulty: str
    vocabulary: str
    max_depth: int
    seed: int

    def env(self, world: World) -> TextEnv[Any, ZorplexState]:
        """The world."""
        words = {"tiny": TINY, "syllables": two_syllables(), "letters": letters(keys.key(5))}
        return world(
            self.kind,
            difficulty=self.difficulty,
            vocabulary=words[self.vocabulary],
            max_depth=self.max_depth,
            correct=CORRECT,
            format=FORMAT,
            tool_spam=SPAM,
        )


Attempt = tuple[Setting, list[Any]]


def settings(*kinds: str) -> SearchStrategy[Setting]:
    """Draw settings of these kinds of tasks."""
    difficulties, words = st.sampled_from(("easy", "medium", "hard")), st.sampled_from(("tiny", "syllables", "letters"))
    return st.builds(Setting, st.sampled_from(kinds or tuple(KINDS)), difficulties, words, st.integers(1, 3), seeds())


KINDS = ("simple", "compositional", "multi_step", "recursive")


def attempts() -> SearchStrategy[Attempt]:
    """A setting and up to seven calls, of words that exist and others."""
    arguments = st.sampled_from(("bli", "KRA", "zor", "apple", "blivit", "nothing", "ZK_000001", "[", ""))
    call = st.builds(Call, st.sampled_from((*TOOLS, "SEARCH")), arguments)
    return st.tuples(settings(), st.lists(call, max_size=7))


def zorplex_laws() -> Suite:
    """The laws of zorplex worlds."""
    return Suite("zorplex_laws", (_key(), _solved(), _chains(), _form(), _parts(), _loop()))


def _law(name: str, claim: str, mutant: Mutant, check: Callable[..., None], *needs: str, inputs: Any) -> Law:
    drawn = always(st.lists(inputs, min_size=1, max_size=6))

    def each(world: World, several: list[Any], seen: Seen) -> None:
        for one in several:
            check(world, one, seen)

    return Law(name=name, claim=claim, source=SOURCE, inputs=drawn, check=each, mutant=mutant, needs=needs, most=200)


def _began(env: TextEnv[Any, ZorplexState], setting: Setting) -> tuple[ZorplexState, str]:
    return env.reset(env.params, keys.key(setting.seed))


def _after(env: TextEnv[Any, ZorplexState], play: ZorplexState, action: Any) -> tuple[ZorplexState, Outcome]:
    return env.step(env.params, play, action, keys.key(0))


def _asked(env: TextEnv[Any, ZorplexState], play: ZorplexState, name: str, argument: str) -> tuple[ZorplexState, str]:
    after, outcome = _after(env, play, Call(name, argument))
    return after, outcome.observation


def solved(env: TextEnv[Any, ZorplexState], play: ZorplexState, question: str) -> tuple[ZorplexState, int]:
    """The answer to a question found with its text and the tools alone."""
    numbers: list[int] = []
    for word in re.findall(r"zorplex\[(\w+)\]", question):
        if "key" in question:
            play, code = _asked(env, play, "GETKEY", word)
            play, said = _asked(env, play, "FETCH", code.lower())
        else:
            play, said = _asked(env, play, "LOOKUP", word.upper())
        for _ in range(len(env.params.vocabulary.words)):
            if said.startswith("SEE: "):
                play, said = _asked(env, play, "LOOKUP", said[5:])
        numbers.append(int(said))
    sign = re.search(r"\] (.) zorplex", question)
    answer = numbers[0]
    for number in numbers[1:]:
        answer = {"+": answer + number, "-": answer - number, "*": answer * number}[sign[1] if sign else ""]
    return play, answer


def _key() -> Law:
    def check(world: World, setting: Setting, seen: Seen) -> None:
        env = setting.env(world)
        first = _began(env, setting)
        other = env.reset(env.params, keys.key(setting.seed + 1))
        seen("another question", other[1] != first[1])
        seen("another table", other[0].task.values != first[0].task.values)
        same("the same key again", _began(env, setting), first)
        same("the same key in a world made anew", _began(setting.env(world), setting), first)

    mutant = Mutant("draws a table at each reset, whatever the key", counts_tasks)
    needs = ("another question", "another table")
    return _law("reset_is_the_key", "The task depends on the key alone.", mutant, check, *needs, inputs=settings())


def _solved() -> Law:
    def check(world: World, setting: Setting, seen: Seen) -> None:
        env = setting.env(world)
        play, question = _began(env, setting)
        after, answer = solved(env, play, question)
        seen(setting.kind)
        seen("three words and a minus", question.count(" - ") == 2)
        same("the answer", answer, play.task.answer)
        same("the calls needed", (after.calls, after.valid_calls), (play.task.needed, play.task.needed))
        same("their cost", after.reward, Reward())
        ended, outcome = _after(env, after, Answer(answer))
        same("the reward", (outcome.reward, outcome.terminated), (CORRECT + FORMAT, True))
        same("the answer kept", ended.answer, answer)

    mutant = Mutant("computes a - b - c as a - (b - c)", right_to_left)
    claim = (
        "Who asks the tools what the question asks for finds its answer, in the announced number of calls, and is paid."
    )
    hard = settings("compositional").map(lambda setting: Setting("compositional", "hard", "tiny", 1, setting.seed))
    inputs = settings() | hard
    return _law("tools_solve_it", claim, mutant, check, *KINDS, "three words and a minus", inputs=inputs)


def _chains() -> Law:
    def check(world: World, setting: Setting, seen: Seen) -> None:
        env = setting.env(world)
        play, _ = _began(env, setting)
        words, lengths = env.params.vocabulary.words, dict[str, int]()
        for word in words:
            said, length = _asked(env, play, "LOOKUP", word)[1], 0
            while said.startswith("SEE: ") and length <= setting.max_depth:
                said, length = _asked(env, play, "LOOKUP", said[5:])[1], length + 1
            require(not said.startswith("SEE: "), f"a chain ends after at most {setting.max_depth} redirections")
            lengths[word] = length
        seen("a chain of three", max(lengths.values()) == 3)
        same("the depth of the word asked for", lengths[play.task.asked[0]], play.task.depth)
        same("depths there are", set(lengths.values()), set(range(setting.max_depth + 1)))
        same("words without redirection", sum(length == 0 for length in lengths.values()), len(words) - len(words) // 2)

    mutant = Mutant("lets a word redirect to any word", links_at_will)
    claim = "Redirections never cycle, all depths occur, and the depth of the word asked for is the announced one."
    small = st.builds(Setting, st.just("recursive"), st.just("easy"), st.just("tiny"), st.integers(1, 3), seeds())
    return _law("chains_end", claim, mutant, check, "a chain of three", inputs=small)


def _form() -> Law:
    def check(world: World, attempt: Attempt, seen: Seen) -> None:
        setting, calls = attempt
        env = setting.env(world)
        play, _ = _began(env, setting)
        earned, valid = 0.0, False
        for call in calls:
            play, outcome = _after(env, play, call)
            valid = not outcome.observation.startswith(("UNKNOWN", "INVALID")) or valid
            earned += outcome.reward
        wrong = _after(env, play, Answer(play.task.answer + 1))[1].reward
        seen("calls that had no answer", calls and not valid)
        seen("no call", not calls)
        seen("a valid call", valid)
        if not valid:
            require(earned + wrong <= 0, f"a wrong answer without a valid call earns nothing, got {earned + wrong}")
        same("what the form of a wrong answer earns", wrong, FORMAT if valid else 0.0)

    mutant = Mutant("pays for the form of an answer, whatever came before", format_alone)
    claim = "The form of an answer earns something only behind a valid call, or when the answer is right."
    needs = ("calls that had no answer", "no call", "a valid call")
    return _law("no_reward_for_form_alone", claim, mutant, check, *needs, inputs=attempts())


def _parts() -> Law:
    def check(world: World, attempt: Attempt, seen: Seen) -> None:
        setting, calls = attempt
        env = setting.env(world)
        play, _ = _began(env, setting)
        answer, total = play.task.answer, 0.0
        for call in calls:
            play, outcome = _after(env, play, call)
            total += outcome.reward
            require(not (outcome.terminated or outcome.truncated), "a call ends nothing")
        beyond = max(0, len(calls) - max(2, play.task.needed))
        seen("calls beyond those needed", beyond)
        same("the cost of calls", (play.reward.total, total), (-SPAM * beyond, -SPAM * beyond))
        after, outcome = _after(env, play, Answer(answer))
        same("the parts", after.reward, Reward(CORRECT, FORMAT, -SPAM * beyond))
        same("their sum", total + outcome.reward, after.reward.total)

    mutant = Mutant("lets every call cost", every_call_costs)
    claim = "Rewards are their parts: for the right answer, for its form, and for each call beyond those needed."
    return _law("rewards_are_their_parts", claim, mutant, check, "calls beyond those needed", inputs=attempts())


def _loop() -> Law:
    def check(world: World, attempt: Attempt, seen: Seen) -> None:
        setting, calls = attempt
        env = setting.env(world)
        play, _ = _began(env, setting)
        seen("several calls", len(calls) > 1)
        for call in calls:
            after = _after(env, play, call)
            read = decode(json.loads(json.dumps(encode(play))), CLASSES)
            same("a state written and read", read, play)
            same("what follows from it", _after(env, read, call), after)
            play = after[0]

    mutant = Mutant("keeps the number of calls beside the state", remembers_beside)
    claim = "A state written as text and read again goes on as the state itself."
    return _law("closed_loop", claim, mutant, check, "several calls", inputs=attempts())
