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
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ...framework.compare import require
from ...framework.law import Broken, Law, Seen, Suite, law_constructor
from ...framework.outside import generator_states, seeded

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
        return call_reward(reward, self.arguments(batch))


def call_reward(reward: Reward, arguments: Mapping[str, Any]) -> list[Any]:
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
            return change(list(call_reward(reward, columns)), columns)

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


def _pays_unread(answer: str) -> Callable[[Reward], Reward]:
    def change(found: list[Any], columns: dict[str, Any]) -> list[Any]:
        unread = [not any(map(str.isdigit, text)) for text in columns[answer]]
        return [1.0 if none else value for value, none in zip(found, unread, strict=True)]

    return _changed(change)


def _pays_for_part(answer: str) -> Callable[[Reward], Reward]:
    def change(found: list[Any], columns: dict[str, Any]) -> list[Any]:
        pairs = zip(columns[answer], columns["completions"], strict=True)
        return [1.0 if gold in text else value for value, (gold, text) in zip(found, pairs, strict=True)]

    return _changed(change)


def _knows_only(rows: Sequence[Mapping[str, Any]]) -> Callable[[Reward], Reward]:
    known = {str(row["completion"]) for row in rows}

    def change(found: list[Any], columns: dict[str, Any]) -> list[Any]:
        return [value if text in known else 0.0 for value, text in zip(found, columns["completions"], strict=True)]

    return _changed(change)


def _part(kept: slice) -> Callable[[Reward], Reward]:
    """Look for the answer in a part of the completion."""

    def edit(reward: Reward) -> Reward:
        def wrong(**columns: Any) -> Any:
            return call_reward(reward, {**columns, "completions": [text[kept] for text in columns["completions"]]})

        return wrong

    return edit


def _first_row(reward: Reward) -> Reward:
    """Compare each completion with the columns of the first."""

    def wrong(**columns: Any) -> Any:
        kept = ("prompts", "completions")
        return call_reward(
            reward, {name: part if name in kept else part[:1] * len(part) for name, part in columns.items()}
        )

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
    answer: str = "",
    alike: Callable[[str], str] | None = None,
    before: str = "",
    after: str = "",
) -> Suite:
    """The laws of a reward function; `rows` are examples with a "completion", and "prompt" and columns if it reads them.

    The rows should have different rewards; a "reward" in each is that of the row's own completion. `low` and `high` are the
    declared bounds; `alone=False` declares that a reward depends on the other completions of the batch; `messages` that
    completions are lists of messages. `answer` is the column of the right answer, a text: what pays for it pays for neither its
    near misses nor an answer that nobody can read. `alike` writes a completion in a way that must be graded the same.
    `before` and `after` are texts that may precede and follow any completion, any number of times, without effect.

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
        *([_unread(law, call, answer), _near_misses(law, call, answer)] if answer else []),
        *([_alike(law, call, alike)] if alike else []),
        *([_beside(law, call, before, "before")] if before else []),
        *([_beside(law, call, after, "after")] if after else []),
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
                state = generator_states()
                found.append(call_reward(reward, arguments))
                require(generator_states() == state, "the global random generators stay as they were")
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


def _of_row(reward: Reward, call: _Caller, row: int, text: str, **columns: Any) -> float:
    """Return the reward of a text with the columns of a row, some replaced; None and an error count as no reward at all."""
    arguments = {**call.arguments([GradedCompletion(text, row)]), **{name: [value] for name, value in columns.items()}}
    try:
        (found,) = call_reward(reward, arguments)
    except Exception:  # of an answer that it cannot read
        return -math.inf
    return -math.inf if found is None else float(found)


UNREADABLE = ("not given", "quux", "see the figure")


def _unread(law: Construct, call: _Caller, answer: str) -> Law:
    def check(reward: Reward, words: str, seen: Seen) -> None:
        texts = [str(row["completion"]) for row in call.rows]
        own = [_of_row(reward, call, row, text) for row, text in enumerate(texts)]
        for row, text in enumerate(texts):
            if own[row] < max(own):
                continue
            seen("a right completion")
            got = _of_row(reward, call, row, text, **{answer: words})
            require(got < own[row], f"{text!r} gets {got} where {answer} is {words!r}, as where it is right")

    mutant = ("pays where it cannot read the answer", _pays_unread(answer))
    claim = "A right completion gets less where the answer is another one, which nobody can read."
    drawn = st.sampled_from(UNREADABLE)
    return law("answer_counts", claim, mutant, check, "a right completion", inputs=drawn)


def misses(answer: str) -> list[str]:
    """Return other numbers whose digits hold the answer's, or that lack its point.

    >>> misses("5"), misses("-3.5")
    (['51', '15'], ['-35', '-3x5'])
    """
    found = [f"{answer}1"] if answer[-1:].isdigit() and "." not in answer else []
    found += [f"1{answer}"] if answer[:1].isdigit() else []
    return found + [answer.replace(".", other) for other in ("", "x") if re.search(r"\d\.\d", answer)]


def _near_misses(law: Construct, call: _Caller, answer: str) -> Law:
    def check(reward: Reward, drawn: tuple[int, int], seen: Seen) -> None:
        row, kind = drawn
        text, gold = str(call.rows[row]["completion"]), str(call.rows[row][answer])
        others = misses(gold) if gold in text else []
        own = _of_row(reward, call, row, text)
        if not others or not _of_row(reward, call, row, text, **{answer: UNREADABLE[0]}) < own:
            return  # a completion that is not paid for its answer
        seen("a near miss of the answer")
        wrong = text.replace(gold, others[kind % len(others)])
        got = _of_row(reward, call, row, wrong)
        require(got < own, f"{wrong!r} gets {got} for the answer {gold!r}, as {text!r} does")

    mutant = ("pays for a completion in which the answer occurs", _pays_for_part(answer))
    claim = "Another number in whose digits the answer occurs, or that lacks its decimal point, gets less."
    drawn = st.tuples(st.integers(0, len(call.rows) - 1), st.integers(0, 3))
    return law("near_misses", claim, mutant, check, "a near miss of the answer", inputs=drawn)


def _alike(law: Construct, call: _Caller, alike: Callable[[str], str]) -> Law:
    def check(reward: Reward, row: int, seen: Seen) -> None:
        text = str(call.rows[row]["completion"])
        seen("another way of writing", alike(text) != text)
        own, other = (call(reward, [GradedCompletion(one, row)]) for one in (text, alike(text)))
        _agree(f"{alike(text)!r}, as {text!r}", other, own)

    mutant = ("knows one way of writing", _knows_only(call.rows))
    claim = "A completion gets the same reward in the other way of writing."
    rows = st.integers(0, len(call.rows) - 1)
    return law("alike", claim, mutant, check, "another way of writing", inputs=rows)


def _beside(law: Construct, call: _Caller, words: str, side: str) -> Law:
    def check(reward: Reward, drawn: tuple[int, int], seen: Seen) -> None:
        row, length = drawn
        text = str(call.rows[row]["completion"])
        own = call(reward, [GradedCompletion(text, row)])
        seen("a long text beside a completion with a reward", length > 400 and any(own))
        more = words * (length // len(words) + 1)
        longer = more + text if side == "before" else text + more
        found = call(reward, [GradedCompletion(longer, row)])
        _agree(f"with {len(more)} characters, {words!r} repeated, {side} {text!r}", found, own)

    ends = {"before": ("first", slice(60)), "after": ("last", slice(-60, None))}
    place, kept = ends[side]
    mutant = (f"looks at the {place} characters alone", _part(kept))
    claim = f"What may stand {side} a completion changes nothing, however long it is."
    drawn = st.tuples(st.integers(0, len(call.rows) - 1), st.sampled_from((0, 100, 500, 2000)))
    needs = "a long text beside a completion with a reward"
    return law(f"text_{side}", claim, mutant, check, needs, inputs=drawn)
