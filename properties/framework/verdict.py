"""Objects that no law can judge as they are, and the command that says how.

A call that cannot be made is no verdict on an object. `NoVerdict` names what is missing; `command_for` finds values for it that
the object takes, and returns the command to paste. It is tried before it is printed.
"""

import inspect
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Any

from ...core.errors import StructureError

NO_VERDICT = 3  # exit status of `purestep verify`
LIMIT = 60.0  # seconds for a law

# Names of parameters, and values to try for them, as written on a command line; the first that fits is taken.
VALUES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"inner", ("'CartPole-v1'", "'Pendulum-v1'")),
    (r"env(ironment)?_?(id|name)", ("CartPole-v1",)),
    (r"env(ironment)?", ("gymnasium.make('CartPole-v1')",)),
    (r"(obs|observation|state)_?(dim|size|shape)|shape|input_shape|size_of_obs", ("3", "(3,)")),
    (r"(act|action)_?(dim|size|shape)|n_?act(ion)?s|num_actions", ("2", "(2,)")),
    (r"(observation|obs|state)_space", ("Box(-1.0, 1.0, (3,))",)),
    (r"act(ion)?_space", ("Discrete(2)",)),
    (r".*(capacity|max_?len|buffer_?size|maxsize|max_size)", ("8",)),
    (r".*warm_?up.*", ("2", "0.2")),
    (r".*(batch|group|num|count|steps|size|total|horizon|length|window|iters?|epochs?|dim).*", ("4", "10")),
    (r"(.*_)?(n|k|rows|cols)|[nk]_.*", ("4", "10")),
    (r".*(probs|probabilities|chances)", ("(0.2, 0.8)",)),
    (r"beta|.*(coef|coefficient|scale|weight|alpha|tau|temperature).*", ("1.0", "0.5")),
    (r"(start|init|initial|base|max|peak|from)(_?(value|lr|e|eps|epsilon|rate))?", ("1.0",)),
    (r"(end|final|to|min)(_?(value|lr|e|eps|epsilon|rate))?", ("0.1",)),
    (r"((total|num|max|decay|training)_?)*(steps?|timesteps|duration|iters?|iterations|epochs)|t_max", ("10",)),
    (r"device", ("'cpu'",)),
    (r"dtype", ("torch.float32",)),
    (r"seed|rank", ("0",)),
    (r"rng|generator", ("np.random.default_rng(0)", "torch.Generator().manual_seed(0)")),
    (r".*(lr|learning_rate|rate)", ("0.01",)),
    (r".*(end|final|min|low|eta_min).*", ("0.1", "0")),
    (r".*(eps|epsilon).*", ("0.2", "1e-5")),
    (r"gamma|.*discount.*|.*lam(bda|da)?_?", ("0.9",)),
    (r".*(mask|flag|use|is)_.*", ("False",)),
)
KINDS: Mapping[str, tuple[str, ...]] = {
    "int": ("4", "1"),
    "float": ("0.5", "1.0"),
    "bool": ("False",),
    "str": ("'a'",),
    "Tensor": ("torch.ones(3)",),
    "ndarray": ("np.ones(3)",),
    "tuple": ("(3,)",),
}
TEXTS = (
    "\\\\boxed{5}",
    "5",
    "#### 5",
    "<answer>5</answer>",
    "<think>2 + 3</think> <answer>5</answer>",
    "6",
)  # of completions
DATA = (
    r"(?i).*(log_?p|value|reward|logit|prob|mask|adv|obs|state|action|done|term|ends?$|token|ids|q\d?_|target|text).*"
)
PLAIN = ("0.5", "4", "'a'", "(3,)", "torch.ones(3)", "np.ones(3)")
MOST = 40  # combinations to try


class NoVerdict(StructureError):
    """An object that nobody knows how to call; `missing` are parameters that `option` may give values."""

    def __init__(
        self,
        text: str,
        *,
        missing: Sequence[str] = (),
        option: str = "--with",
        words: Sequence[str] = (),
        row: str = "",
    ):
        super().__init__(text)
        self.missing, self.option, self.words, self.row = tuple(missing), option, tuple(words), row


def values_for(name: str, annotation: Any = inspect.Parameter.empty) -> tuple[str, ...]:
    """Return values to try for a parameter, as source, by its name and annotation.

    >>> values_for("capacity")[0], values_for("tau", float)[0]
    ('8', '1.0')
    """
    kind = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    typed = next((values for word, values in KINDS.items() if re.search(rf"\b{word}\b", kind)), ())
    by_name = next((values for pattern, values in VALUES if re.fullmatch(pattern, name.strip("_").lower())), ())
    if not by_name and is_data(name):
        by_name = ("0.0", "1.0")
    if typed and by_name:
        by_name = tuple(v for v in by_name if _is_kind(v, kind)) or by_name
    return tuple(dict.fromkeys((*by_name, *typed, *PLAIN)))


def _is_kind(text: str, kind: str) -> bool:
    return {"int": text.isdigit(), "float": "." in text or "e-" in text}.get(kind, True)


def combinations(value: Any, missing: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield options `name=value` for the missing parameters of a function or class, the likeliest first.

    >>> def window(tau: float, count: int): ...
    >>> next(combinations(window, ["tau", "count"]))
    ('tau=1.0', 'count=4')
    """
    if list(missing) == ["rows"]:
        yield from _rows(value)
        return
    try:
        parameters: Mapping[str, inspect.Parameter] = inspect.signature(value).parameters
    except (TypeError, ValueError):
        parameters = {}
    hints = [parameters[name].annotation if name in parameters else inspect.Parameter.empty for name in missing]
    choices = [values_for(name, hint) for name, hint in zip(missing, hints, strict=True)]
    for found in islice(product(*choices), MOST):
        yield tuple(f"{name}={text}" for name, text in zip(missing, found, strict=True))


def _rows(value: Any) -> Iterator[tuple[str, ...]]:
    """Yield rows for a reward function: texts, then conversations."""
    names = [p.name for p in inspect.signature(value).parameters.values() if p.kind is not p.VAR_KEYWORD]
    text = next(
        (n for n in names if re.fullmatch(r"(completion|response|answer|output|solution|text|generation)s?(_str)?", n)),
        "",
    )
    columns = [n for n in names if n not in (text, "prompts", "prompt", "completion_ids") and _is_column(value, n)]
    pairs = [(one, one.replace("5", "7")) for one in TEXTS[:-1]]  # in one format, a right answer and a wrong one
    for texts in (TEXTS, *pairs, *((one, TEXTS[-1]) for one in TEXTS[:-1])):
        rows = [{"completion": one, **dict.fromkeys(columns, "5")} for one in texts]
        yield (f"rows={rows}",)
        yield (f"rows={rows}", "messages=True")


def _is_column(value: Any, name: str) -> bool:
    return bool(inspect.signature(value).parameters[name].default is inspect.Parameter.empty)


def is_data(name: str) -> bool:
    """Return whether a parameter is data that no example stands for, by its name.

    >>> is_data("ref_logp"), is_data("logp_next"), is_data("tau"), is_data("n_step")
    (True, True, False, False)
    """
    plain = any(re.fullmatch(pattern, name.strip("_").lower()) for pattern, _ in VALUES)
    return not plain and re.fullmatch(DATA, name) is not None


def written_command(target: Sequence[str], words: Sequence[str]) -> str:
    """Return `purestep verify` with these words, to paste into a shell.

    >>> written_command(["a.py:f"], ["--with", "tau=st.floats(0, 1)"])
    "purestep verify a.py:f --with 'tau=st.floats(0, 1)'"
    """
    return shlex.join(["purestep", "verify", *target, *words])
