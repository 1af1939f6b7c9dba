"""Laws of reward functions of texts. Subject: a function (prompts=, completions=, **columns) -> one number or None for each.

This is the convention of TRL's GRPOTrainer and of `purestep train`; a subject gets those arguments that its signature names.

from purestep.properties import reward_function_laws, verify
rows = [{"completion": "It is 5.", "answer": "5"}, {"completion": "It is 6.", "answer": "5"}]
print(verify(reward_function_laws(rows, low=0.0, high=1.0), my_reward))
"""

import copy
import inspect
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ...framework.compare import require
from ...framework.law import Broken, Law, Seen, Suite, law_constructor
from ...framework.outside import generators, seeded

Reward = Callable[..., Any]
PIECES = (
    "", " ", "\n", "\t\n ", "0", "-", ".", ",", "/", "%", "$", "5", "1/0", "nan", "inf", "-inf", "1e999", "9" * 5000,
    "x" * 5000, "\\boxed{", "\\boxed{}", "\\boxed{\\boxed{1}}", "{" * 60, "}", "\\frac{1}{", "\\", "<think>", "</think>",
    "<answer>", "</answer>", "<answer></answer>", "####", "```python\n", "```", "(((((", "[", "\x00", "\u200b", "\u202e",
    "e\u0301", "½", "٣", "五", "🙂", "%s{0}",
)  # fmt: skip


@frozen
class GradedCompletion:
    """A completion, and which of the given rows its prompt and columns come from."""

    completion: str
    row: int


def samples(rows: Sequence[Mapping[str, Any]]) -> SearchStrategy[list[GradedCompletion]]:
    """Batches of completions: those of the rows, as they are, cut short, doubled or with odd pieces around, and odd texts."""
    texts = st.sampled_from([str(row["completion"]) for row in rows])
    pieces = st.sampled_from(PIECES)
    around = st.tuples(pieces, texts, pieces).map("".join)
    cut = st.tuples(texts, st.integers(0, 40)).map(lambda pair: pair[0][: pair[1]])
    odd = st.lists(pieces, max_size=3).map("".join)
    completion = st.one_of(texts, texts, around, cut, odd)
    one = st.builds(GradedCompletion, completion=completion, row=st.integers(0, len(rows) - 1))
    return st.lists(one, min_size=1, max_size=5)


@frozen
class _Caller:
    """Calls a reward function with the columns of the rows."""

    rows: Sequence[Mapping[str, Any]]
    messages: bool

    def arguments(self, batch: Sequence[GradedCompletion]) -> dict[str, list[Any]]:
        """Return the columns of a batch, prompts and completions among them."""
        names = [name for name in self.rows[0] if name not in ("prompt", "completion", "reward")]
        columns = {name: [copy.deepcopy(self.rows[sample.row][name]) for sample in batch] for name in names}
        prompts = [self._message("user", str(self.rows[sample.row].get("prompt", ""))) for sample in batch]
        completions = [self._message("assistant", sample.completion) for sample in batch]
        return {"prompts": prompts, "completions": completions, **columns}

    def _message(self, role: str, text: str) -> Any:
        return [{"role": role, "content": text}] if self.messages else text

    def __call__(self, reward: Reward, batch: Sequence[GradedCompletion]) -> list[Any]:
        return called(reward, self.arguments(batch))


def called(reward: Reward, arguments: Mapping[str, Any]) -> list[Any]:
    """Call a reward function with those arguments that it takes."""
    parameters = inspect.signature(reward).parameters.values()
    every = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    names = {parameter.name for parameter in parameters}
    found = reward(**{name: value for name, value in arguments.items() if every or name in names})
    require(isinstance(found, (list, tuple)), f"rewards are a list, got {type(found).__name__}")
    return list(found)


# --- mutants ---
# Common errors in reward functions, as edits of one.


def _changed(change: Callable[[list[Any], dict[str, Any]], Any]) -> Callable[[Reward], Reward]:
    def edit(reward: Reward) -> Reward:
        def wrong(**columns: Any) -> Any:
            return change(list(called(reward, columns)), columns)

        return wrong

    return edit


def _skips_empty(found: list[Any], columns: dict[str, Any]) -> list[Any]:
    return [value for value, text in zip(found, columns["completions"], strict=True) if text]


def _noise(found: list[Any], columns: dict[str, Any]) -> list[Any]:
    return [value if value is None else value + 1e-3 * random.random() for value in found]


def _centred(found: list[Any], columns: dict[str, Any]) -> list[Any]:
    mean = sum(value or 0.0 for value in found) / len(found)
    return [value if value is None else value - mean for value in found]


def _long(found: list[Any], columns: dict[str, Any]) -> list[Any]:
    return [
        value if value is None else value - 0.5 * ("boxed" in text)
        for value, text in zip(found, columns["completions"], strict=True)
    ]


def _reads_number(found: list[Any], columns: dict[str, Any]) -> list[Any]:
    _ = [float(text.split()[-1].strip(".")) for text in columns["completions"] if "is" in text]
    return found


def _pays_all(found: list[Any], columns: dict[str, Any]) -> list[Any]:
    return [float(bool(text)) for text in columns["completions"]]


def _first_row(reward: Reward) -> Reward:
    """Compare each completion with the columns of the first."""

    def wrong(**columns: Any) -> Any:
        kept = ("prompts", "completions")
        return called(reward, {name: part if name in kept else part[:1] * len(part) for name, part in columns.items()})

    return wrong


def _strips(reward: Reward) -> Reward:
    """Strip the completions of the caller's list."""

    def wrong(**columns: Any) -> Any:
        columns["completions"][:] = [text.strip() for text in columns["completions"]]
        return called(reward, columns)

    return wrong


# --- laws ---


SOURCE = "TRL's reward functions: reward(prompts, completions, **columns) -> one score for each completion"
DIFFER = "two rewards that differ"


def reward_function_laws(
    rows: Sequence[Mapping[str, Any]],
    *,
    low: float = -math.inf,
    high: float = math.inf,
    alone: bool = True,
    messages: bool = False,
) -> Suite:
    """The laws of a reward function; `rows` are examples with a "completion", and "prompt" and columns if it reads them.

    The rows should have different rewards; a "reward" in each is that of the row's own completion. `low` and `high` are the
    declared bounds; `alone=False` declares that a reward depends on the other completions of the batch; `messages` that
    completions are lists of messages.

    >>> from purestep.properties import verify
    >>> rows = [{"completion": "5", "answer": "5"}, {"completion": "6", "answer": "5"}]
    >>> def exact(completions, answer):
    ...     return [float(text == right) for text, right in zip(completions, answer)]
    >>> bool(verify(reward_function_laws(rows, low=0.0, high=1.0), exact))
    True
    """
    law = law_constructor(lambda: samples(rows), SOURCE)
    call = _Caller(rows, messages)
    laws = (
        _counted(law, call),
        _bounded(law, call, low, high),
        _pure(law, call),
        _permuted(law, call),
        _any(law, call),
    )
    more = [
        *([_alone(law, call)] if alone else []),
        *([_declared(law, call)] if all("reward" in row for row in rows) else []),
    ]
    return Suite("reward_function_laws", (*laws, *more))


Construct = Callable[..., Law]


def _agree(where: str, got: Sequence[Any], wanted: Sequence[Any]) -> None:
    for place, (a, b) in enumerate(zip(got, wanted, strict=False)):  # their number is a law of its own
        if a is None or b is None:
            equal = a is b
        else:
            equal = math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9) or (math.isnan(a) and math.isnan(b))
        if not equal:
            raise Broken(f"{where}, completion {place}: got {a}, wanted {b}")


def _counted(law: Construct, call: _Caller) -> Law:
    def check(reward: Reward, batch: list[GradedCompletion], seen: Seen) -> None:
        seen("an empty completion", any(not sample.completion for sample in batch))
        found = call(reward, batch)
        require(len(found) == len(batch), f"a reward for each of {len(batch)} completions, got {len(found)}")
        for value in found:
            number = value is None or isinstance(value, (int, float))
            require(number, f"a reward is a number or None, got {value!r}")

    mutant = ("leaves empty completions out", _changed(_skips_empty))
    claim = "There is one number or None for each completion."
    return law("one_for_each", claim, mutant, check, "an empty completion")


def _bounded(law: Construct, call: _Caller, low: float, high: float) -> Law:
    def check(reward: Reward, batch: list[GradedCompletion], seen: Seen) -> None:
        for value, sample in zip(call(reward, batch), batch, strict=False):
            seen("a reward", value is not None)
            where = f"the reward of {sample.completion[:60]!r}"
            require(value is None or math.isfinite(value), f"{where} is finite, got {value}")
            require(value is None or low <= value <= high, f"{where} is in [{low}, {high}], got {value}")

    mutant = ("pays below its bound for one way of writing", _changed(_long))
    return law("bounded", "Rewards are finite and in the declared bounds.", mutant, check, "a reward")


def _pure(law: Construct, call: _Caller) -> Law:
    def check(reward: Reward, batch: list[GradedCompletion], seen: Seen) -> None:
        found = []
        for seed in (0, 1):
            arguments = call.arguments(batch)
            before = copy.deepcopy(arguments)
            with seeded(seed):
                state = generators()
                found.append(called(reward, arguments))
                require(generators() == state, "the global random generators stay as they were")
            require(arguments == before, "the columns stay as they were")
        seen("a reward")
        _agree("called again", found[1], found[0])

    mutant = ("breaks ties at random", _changed(_noise))
    claim = "Rewards are a function of the columns: the same twice, no random numbers, and the columns stay."
    return law("pure", claim, mutant, check, "a reward")


def _permuted(law: Construct, call: _Caller) -> Law:
    def check(reward: Reward, batch: list[GradedCompletion], seen: Seen) -> None:
        found = call(reward, batch)
        seen(DIFFER, len(set(found)) > 1)
        _agree("in reverse order", call(reward, batch[::-1])[::-1], found)

    mutant = ("compares each completion with the first one's columns", _first_row)
    return law("permuted", "Rewards go with their samples when these are permuted.", mutant, check, DIFFER)


def _alone(law: Construct, call: _Caller) -> Law:
    def check(reward: Reward, batch: list[GradedCompletion], seen: Seen) -> None:
        found = call(reward, batch)
        seen(DIFFER, len(set(found)) > 1)
        _agree("alone", [call(reward, [sample])[0] for sample in batch], found)

    mutant = ("subtracts the mean of the batch", _changed(_centred))
    claim = "The reward of a completion does not depend on the others in the batch."
    return law("batch_is_singles", claim, mutant, check, DIFFER)


def _declared(law: Construct, call: _Caller) -> Law:
    def check(reward: Reward, batch: list[GradedCompletion], seen: Seen) -> None:
        places = [sample.row for sample in batch]
        own = [GradedCompletion(str(call.rows[place]["completion"]), place) for place in places]
        wanted = [call.rows[place]["reward"] for place in places]
        seen(DIFFER, len(set(wanted)) > 1)
        _agree("the rows' own completions", call(reward, own), wanted)

    mutant = ("pays every completion that is not empty", _changed(_pays_all))
    return law("declared_rewards", "A row's own completion gets the row's reward.", mutant, check, DIFFER)


def _any(law: Construct, call: _Caller) -> Law:
    def check(reward: Reward, batch: list[GradedCompletion], seen: Seen) -> None:
        seen("a text that is none of the rows'", any(sample.completion in PIECES for sample in batch))
        for sample in batch:
            call(reward, [sample])

    mutant = ("reads a number without a check", _changed(_reads_number))
    claim = "No text raises: empty, long, unicode, unbalanced."
    return law("any_text", claim, mutant, check)
