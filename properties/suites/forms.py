"""Conventions that an object's name and parameters declare, for suites of several kinds: metrics, optimizers, value losses."""

import inspect
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from ...core.errors import StructureError, message
from ..framework.binding import Bound, bound, is_called_as
from ..framework.catalogue import NAMES, rows
from ..framework.law import NotHere
from ..framework.matching import marks_of, roles_among
from ..framework.verdict import NoVerdict
from .optimizer import RULES
from .returns import VTraceResult

KINDS: Mapping[str, str] = {  # of metrics
    "pass_at_k": r"(?i)pass",
    "explained_variance": r"(?i)explained|variance|r2",
    "token_mean": r"(?i)mean",
    "episode_returns": r"(?i)episode|return",
}


def metric_form(value: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a metric and its kind, by its name. Raises: StructureError if the name is of no kind.

    >>> def explained_var(prediction, target): ...
    >>> metric_form(explained_var, {})[1]
    {'kind': 'explained_variance'}
    """
    name = marks_of(value).name
    kind = next((kind for kind, pattern in KINDS.items() if re.search(pattern, name)), None)
    if kind is None:
        remedy = "add --declare kind=KIND"
        raise StructureError(message("verify: metric", got=name, wanted=f"one of {sorted(KINDS)}", remedy=remedy))
    return value, {"kind": kind}


def optimizer_form(value: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a maker of optimizers and the rule that it is named after, adam if it is named after none.

    >>> class PagedAdamW: ...
    >>> optimizer_form(PagedAdamW, {})[1]
    {'rule': 'adamw'}
    """
    name = marks_of(value).name

    def fit(rule: str) -> tuple[bool, int]:  # PlainAdamW is an AdamW, though nadam is in its letters
        start = name.lower().index(rule)
        return start == 0 or name[start].isupper() or not name[start - 1].isalpha(), len(rule)

    rules = sorted((rule for rule in RULES if rule in name.lower()), key=fit)
    rule = rules[-1] if rules else "adam"
    return (partial(value, **given) if given else value), {"rule": rule, **_settings(value, RULES[rule][1])}


def _settings(value: Any, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a rule for which an optimizer has other defaults."""
    try:
        parameters = inspect.signature(value).parameters
    except (TypeError, ValueError):
        return {}
    defaults = {n: p.default for n, p in parameters.items() if p.default is not p.empty}
    betas = defaults.pop("betas", None)
    if isinstance(betas, tuple) and len(betas) == 2:
        defaults.update(beta1=betas[0], beta2=betas[1])
    plain = (int, float, bool)
    return {n: x for n, x in defaults.items() if n in known and type(x) in plain and x != known[n]}


def value_loss_form(value: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a loss of values bound to its parameters' names, clipped if it takes old values and a clip.

    >>> def critic_loss(values, returns): ...
    >>> value_loss_form(critic_loss, {})[1]
    {'clipped': False, 'detached': False}
    """
    row = rows()["value_loss"]
    found = bound(row, value, given)
    clipped = {"behaviour_value", "clip"} <= set(found.roles)
    if not clipped:
        found = bound(row, value, given, positional=("value", "target"))
    return found, {"clipped": clipped, "detached": False}


CHOOSES, VALUES = (
    r"(?i)online|main|policy|local|select|eval",
    r"(?i)target|tgt",
)  # of the two networks of double Q-learning


def target_form(value: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a target bound to its parameters' names, with the kind and the endings that these declare.

    One column of next values is that of "td", or a table of "max" if its name is that of Q-values; two are "double" where their
    names are of two networks, else "min"; none is a reward to go. Raises: NoVerdict for further columns.

    >>> def dqn_target(rewards, next_q_values, dones, gamma=0.99): ...
    >>> target_form(dqn_target, {})[1]
    {'kind': 'max', 'endings': 'terminated'}
    """
    row, marks = rows()["target"], marks_of(value)
    known = roles_among(("rewards", "gamma", "terminated", "truncated", "ended"), marks.parameters)
    columns = [n for n in marks.required if n not in known.values() and n not in given]
    kind = _kind_of_target(columns, known)
    names = {"reward_to_go": (), "double": ("first", "second"), "min": ("first", "second")}.get(kind, ("first",))
    if kind == "double" and re.search(VALUES, columns[0]) and not re.search(VALUES, columns[1]):
        columns[:2] = columns[1::-1]
    ends: Sequence[str] = [role for role in ("terminated", "ended") if role in known][:1]
    both = "terminated" in known and "truncated" in known
    if both:
        ends = ["terminated", "truncated"]
    roles = {**{role: known[role] for role in ("rewards", "gamma", *ends) if role in known}}
    roles.update(zip(names, columns, strict=False))
    found = bound(row, value, given, needs=("rewards", "gamma"), roles=roles, positional=("rewards", *names, *ends))
    if kind != "reward_to_go" and not ends:
        raise NoVerdict(
            f"{marks.name} as target is a function without endings, wanted terminations; name another --suite"
        )
    ending = "both" if both else "terminated" if ends else "none"
    return found, {"kind": kind, "endings": ending}


def _kind_of_target(columns: Sequence[str], known: Mapping[str, str]) -> str:
    if not columns:
        return "reward_to_go"
    if len(columns) == 1:
        return "max" if re.search(r"(?i)(^|_)q", columns[0]) else "td"
    networks = re.search(CHOOSES, columns[0] + columns[1]) and re.search(VALUES, columns[0] + columns[1])
    return "double" if networks else "min"


def group_form(value: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return an estimator of advantages in groups bound to its parameters' names; without ids, groups are blocks of one size.

    >>> def advantages(rewards, num_generations): ...
    >>> group_form(advantages, {})[1]
    {'blocks': True}
    """
    row, marks = rows()["group"], marks_of(value)
    roles = roles_among(("reward", "group", "groups", "count"), [n for n in marks.parameters if n not in given])
    if "group" in roles or "reward" not in roles or not {"count", "groups"} & set(roles):
        return bound(row, value, given), {}
    size = {"count": lambda words: len(words["reward"]) // words["groups"]}
    return bound(row, value, given, needs=("reward",), derived=size), {"blocks": True}


STARTS = r"(init(ial)?|start|base|max|peak|from)(_?(value|lr|e|eps(ilon)?|rate|learning_rate))?|lr|learning_rate"
ENDS_AT = r"(end|final|min|to|eta_min)(_?(value|lr|e|eps(ilon)?|rate|learning_rate))?"
UNITS = r"(steps?|timesteps|duration|iters?|iterations|epochs|updates|length)"
LASTS = rf"((total|num|max|decay|training|anneal(ing)?|schedule)_?)*{UNITS}|t_max"
WARMS = r"(num_?)?warm_?up(_?(steps?|iters?|epochs))?"


def schedule_form(value: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a schedule with what its parameters declare: where it starts and ends, its length and its warm-up.

    Their values are those given, or defaults. Raises: NoVerdict with the parameters that have neither.

    >>> def decay(step, init_value=1.0, end_value=0.0, decay_steps=50):
    ...     return init_value + (end_value - init_value) * min(step / decay_steps, 1)
    >>> schedule_form(decay, {})[1]
    {'start': 1.0, 'end': 0.0, 'steps': 50}
    """
    row = rows()["schedule"]
    if list(inspect.signature(value).parameters)[:1] == ["optimizer"]:
        return value, {}
    parameters = inspect.signature(value).parameters
    count = [n for n in parameters if re.fullmatch(NAMES["step"], n, re.IGNORECASE) and n not in given]
    if not count:
        return value, {}
    bare = [n for n in count if parameters[n].default is inspect.Parameter.empty]
    found = bound(row, value, given, roles={"step": (bare or count)[0]}, positional=("step",))
    numbers = {n: given.get(n, p.default) for n, p in parameters.items() if n != found.roles["step"]}

    def number(pattern: str) -> Any:
        names = [n for n in numbers if re.fullmatch(pattern, n, re.IGNORECASE)]
        return numbers[names[0]] if names else None

    first, last, steps, warmup = number(STARTS), number(ENDS_AT), number(LASTS), number(WARMS)
    if steps is None or first is None:
        return found, {}
    declared = {"start": first, "end": 0.0 if last is None else last, "steps": steps}
    if warmup:
        declared.update(start=float(found(0)), peak=first, warmup=warmup)
    return found, declared


def reward_form(value: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a reward function of a batch; one of a single completion is called for each.

    >>> def score(solution_str, ground_truth):
    ...     return float(solution_str == ground_truth)
    >>> reward_form(score, {})[0](completions=["5", "6"], ground_truth=["5", "5"])
    [1.0, 0.0]
    """
    fixed = partial(value, **given) if given else value
    names = list(inspect.signature(value).parameters)
    text = next((n for n in names if re.fullmatch(NAMES["response"], n, re.IGNORECASE)), None)
    if text is None or text == "completions":
        return fixed, {}

    def batch(**columns: Any) -> list[Any]:
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return [fixed(**{text if n == "completions" else n: x for n, x in row.items()}) for row in rows]

    def whole(**columns: Any) -> Any:
        return fixed(**{text if n == "completions" else n: x for n, x in columns.items()})

    made: Any = whole if text.endswith("s") else batch
    parameters = inspect.signature(value).parameters.values()
    shown = [p.replace(name="completions") if p.name == text else p for p in parameters if p.name not in given]
    made.__signature__ = inspect.Signature(
        [p.replace(kind=p.KEYWORD_ONLY) if p.kind is p.POSITIONAL_OR_KEYWORD else p for p in shown]
    )
    made.__name__ = marks_of(value).name
    return made, {}


def vtrace_form(value: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return V-trace bound to its parameters' names, with results that are targets, or targets and advantages.

    >>> def vtrace(log_rhos, discounts, rewards, values, bootstrap_value): ...
    >>> vtrace_form(vtrace, {})[1]
    {'lambda_': False}
    """
    row, marks = rows()["vtrace"], marks_of(value)
    if is_called_as(marks, row.signature.roles()[0], ("gamma", "lambda_")):
        return value, {}
    found = bound(row, value, given)

    def call(**words: Any) -> Any:
        made = value(**words)
        if isinstance(made, torch.Tensor):
            return VTraceResult(made, made * 0)
        if type(made) in (tuple, list):
            return VTraceResult(made[0], made[1])
        return VTraceResult(made.vs, made.pg_advantages) if hasattr(made, "vs") else made

    call.__name__ = marks.name
    words = {} if "lambda_" in found.roles else {"lambda_": False}
    return _Bars(found.with_function(call)), words


class _Bars:
    """V-trace that has the bounds of its defaults alone, where it takes none."""

    def __init__(self, bound_: Bound) -> None:
        self.function, self.__name__ = bound_, bound_.__name__
        self.roles, self.extras, self.drawn = bound_.roles, bound_.extras, bound_.drawn

    def with_function(self, function: Any) -> "_Bars":
        """Return the same around another function."""
        return _Bars(self.function.with_function(function))

    def __call__(self, *columns: Any, **words: Any) -> Any:
        """Return targets and advantages. Raises: NotHere for bounds that it does not take."""
        for name in ("rho_bar", "c_bar"):
            if words.get(name, 1.0) != 1.0 and name not in self.roles:
                raise NotHere(f"it takes no {name}")
        return self.function(*columns, **words)
