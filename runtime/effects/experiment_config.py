"""Experiment configuration: plain dataclasses, one switch for segment-wise PPO, a YAML file, `key=value` on a command line."""

import copy
import dataclasses
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints, overload

import attrs
import yaml  # type: ignore[import-untyped]

from ...core.errors import ChoiceError, StructureError, choose, message
from ..files.reading import MOST_CONFIG, read_text

C = TypeVar("C")
SWITCH = "enable_segment_wise_ppo"
CHILDREN = ("rollout", "actor")  # sections to which the switch is copied


@dataclass(kw_only=True)
class InferenceEngineConfig:
    """Bounds of the rollouts. Raises: ChoiceError."""

    experiment_name: str = ""
    trial_name: str = ""
    max_concurrent_rollouts: int | None = None  # running at a time; None is consumer_batch_size
    queue_size: int | None = None  # of the output queue; None is 16 for each rollout that may run
    consumer_batch_size: int = 1  # samples in an update
    max_head_offpolicyness: int = (
        0  # versions between the weights and the oldest token: on average, and of recomputed ones
    )
    enable_segment_wise_ppo: bool = True

    def __post_init__(self) -> None:
        least = {"max_concurrent_rollouts": 1, "queue_size": 1, "consumer_batch_size": 1, "max_head_offpolicyness": 0}
        _check_least(self, least)


@dataclass(kw_only=True)
class PPOActorConfig:
    """Settings of the loss. Raises: ChoiceError."""

    experiment_name: str = ""
    trial_name: str = ""
    eps_clip: float = 0.2  # how far below and above 1 a ratio is clipped
    eps_clip_higher: float | None = None  # how far above, where that differs
    c_clip: float | None = None  # the bound of `dual_clip`, at least 1
    behav_imp_weight_cap: float | None = None  # tokens with a larger weight are masked
    behav_imp_weight_floor: float = 0.0  # and those with a smaller one
    enable_segment_wise_ppo: bool = True

    def __post_init__(self) -> None:
        least = {"eps_clip": 0, "eps_clip_higher": 0, "c_clip": 1, "behav_imp_weight_floor": 0}
        _check_least(self, least)
        _check_least(self, {"behav_imp_weight_cap": self.behav_imp_weight_floor})


@dataclass(kw_only=True)
class BaseExperimentConfig:
    """A whole experiment. `rollout` and `actor` get the switch of this class when one is made, whatever theirs is.

    >>> config = BaseExperimentConfig(enable_segment_wise_ppo=False)
    >>> config.rollout.enable_segment_wise_ppo
    False
    >>> config.rollout.enable_segment_wise_ppo = True
    """

    experiment_name: str = ""
    trial_name: str = ""
    enable_segment_wise_ppo: bool = field(
        default=True, metadata={"help": "Segment-wise decoupled PPO: the loss, the age of samples, and recomputing."}
    )
    rollout: InferenceEngineConfig = field(default_factory=InferenceEngineConfig)
    actor: PPOActorConfig = field(default_factory=PPOActorConfig)

    def __post_init__(self) -> None:
        _propagate(self)


@overload
def load_expr_config(arguments: Sequence[str]) -> tuple[BaseExperimentConfig, str]:
    """Return a `BaseExperimentConfig`, and the path of its file."""


@overload
def load_expr_config(arguments: Sequence[str], config_class: type[C]) -> tuple[C, str]:
    """Return a configuration of your own class, and the path of its file."""


def load_expr_config(arguments: Sequence[str], config_class: Any = BaseExperimentConfig) -> tuple[Any, str]:
    """Return the configuration of a command line, and the path of its file: `--config FILE [key=value ...]`.

    A key may have dots (`rollout.queue_size=64`), a value is YAML; the last one counts. The top-level switch is copied to
    `rollout` and `actor` afterwards, if the class has them. `config_class` is a dataclass or an attrs class.
    Raises: ChoiceError for a missing or unreadable file and for keys and values that do not exist, StructureError for
    values of another type and for a class that is not a dataclass.
    """
    tree, path = load_tree(arguments)
    config = build_section(config_class, tree)
    _propagate(config)
    return config, path


def load_tree(arguments: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Return the mapping of a file with `key=value` words applied, and the path. Raises: ChoiceError, StructureError."""
    if len(arguments) < 2 or arguments[0] != "--config":
        got, wanted = " ".join(arguments) or "nothing", "--config FILE [key=value ...]"
        raise ChoiceError(message("arguments", got=got, wanted=wanted, remedy="name the file first"))
    _, path, *changes = arguments
    wrong = [one for one in changes if not one.partition("=")[0] or "=" not in one]
    if wrong:
        raise ChoiceError(message("argument", got=repr(wrong[0]), wanted="key=value", remedy="put no spaces around ="))
    try:
        tree = _parsed(path, read_text(Path(path), MOST_CONFIG))
    except (OSError, UnicodeDecodeError) as error:
        got, remedy = f"{path}: {error}", "look at the path"
        raise ChoiceError(message("--config", got=got, wanted="a YAML file", remedy=remedy)) from None
    if tree is not None and not isinstance(tree, dict):
        got, remedy = type(tree).__name__, "write one `key: value` a line"
        raise StructureError(message(path, got=got, wanted="a mapping", remedy=remedy))
    found: dict[str, Any] = tree or {}
    for change in changes:
        key, _, value = change.partition("=")
        _put(found, key, _parsed(f"{key}=", value))
    return found, path


def build_section(config_class: Any, tree: Mapping[str, Any], where: str = "") -> Any:
    """Return a value of the class from a mapping; sections are classes of their own. Raises: ChoiceError, StructureError.

    >>> build_section(InferenceEngineConfig, {"queue_size": 3}).queue_size
    3
    """
    hints, required = _fields(config_class, where)
    given = dict[str, Any]()
    for name, value in tree.items():
        full = f"{where}{name}"
        wanted = choose(f"key {full}", name, hints)
        options = get_args(wanted) if get_origin(wanted) in (Union, types.UnionType) else (wanted,)
        section = next((one for one in options if _is_config(one)), None)
        if section is None or (value is None and types.NoneType in options):
            given[name] = _typed(full, value, options)
        elif value is None or isinstance(value, dict):
            given[name] = build_section(section, value or {}, f"{full}.")
        else:
            raise StructureError(message(full, got=repr(value), wanted="a section", remedy=f"set {full}.key=value"))
    for name in required:
        if name not in given:
            remedy = f"set {where}{name}: it has no default"
            raise ChoiceError(message(f"key {where}{name}", got="absent", wanted="a value", remedy=remedy))
    return config_class(**given)


def _is_config(kind: Any) -> bool:
    return isinstance(kind, type) and (attrs.has(kind) or dataclasses.is_dataclass(kind))


def _fields(config_class: Any, where: str) -> tuple[dict[str, Any], list[str]]:
    """Return the type of each field that can be set, and the names of those that must be."""
    if not _is_config(config_class):
        got, remedy = repr(config_class)[:80], "put @dataclass on it"
        raise StructureError(message(where or "config_class", got=got, wanted="a dataclass", remedy=remedy))
    if attrs.has(config_class):
        rows = [(one.name, one.init, one.default is attrs.NOTHING) for one in attrs.fields(config_class)]
    else:
        absent = dataclasses.MISSING
        rows = [
            (one.name, one.init, one.default is absent and one.default_factory is absent)
            for one in dataclasses.fields(config_class)
        ]
    hints = get_type_hints(config_class)
    return {name: hints[name] for name, init, _ in rows if init}, [name for name, init, bare in rows if init and bare]


def _propagate(config: Any) -> None:
    """Copy the top-level switch into the sections that have one."""
    for name in CHILDREN if hasattr(config, SWITCH) else ():
        section = getattr(config, name, None)
        if hasattr(section, SWITCH):
            own = copy.copy(section)  # a section may be frozen, or the default of all values of its class
            object.__setattr__(own, SWITCH, getattr(config, SWITCH))
            object.__setattr__(config, name, own)


def _parsed(where: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except RecursionError:
        got, remedy = "nested too deep", "write one section in another at most"
        raise ChoiceError(message(where, got=got, wanted="YAML", remedy=remedy)) from None
    except (yaml.YAMLError, ValueError) as error:
        got = " ".join(str(error).split())
        raise ChoiceError(message(where, got=got, wanted="YAML", remedy="see where it stops")) from None


def _put(tree: dict[str, Any], key: str, value: Any) -> None:
    *outer, last = key.split(".")
    for name in outer:
        inner = tree.get(name)
        tree[name] = inner if isinstance(inner, dict) else {}
        tree = tree[name]
    tree[last] = value


def _typed(where: str, value: Any, allowed: Sequence[Any]) -> Any:
    """Return the value, if it is of one of the types; an int may stand for a float, a bool never for a number.

    YAML parses 1e-3, which has no point, as a string.
    """
    if float in allowed and (type(value) is int or re.fullmatch(r"[+-]?\d+[eE][+-]?\d+", str(value))):
        return float(value)
    if type(value) in allowed or Any in allowed or not all(isinstance(one, type) for one in allowed):
        return value
    names = " or ".join("null" if one is types.NoneType else one.__name__ for one in allowed)
    remedy = "write it as YAML does: true, 3, 0.5, null, a word"
    raise StructureError(message(where, got=repr(value), wanted=names, remedy=remedy))


def _check_least(config: Any, least: Mapping[str, float]) -> None:
    for name, wanted in least.items():
        value = getattr(config, name)
        if value is not None and not value >= wanted:
            where, remedy = f"{type(config).__name__}: {name}", "the smallest value that works is that"
            raise ChoiceError(message(where, got=value, wanted=f"{wanted} or more", remedy=remedy))
