"""The configuration: one switch for the whole feature, a YAML file, and `key=value` on the command line."""

import re
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints, overload

import attrs
import yaml  # type: ignore[import-untyped]
from attrs import evolve, field, frozen

from ....core.errors import ChoiceError, StructureError, choose, message
from ..reading import MOST_CONFIG, read_text

C = TypeVar("C")
SWITCH = "enable_segment_wise_ppo"
CHILDREN = ("rollout", "actor")  # where the switch is copied to


@frozen(kw_only=True)
class InferenceEngineConfig:
    """How rollouts are made. Raises: ChoiceError."""

    experiment_name: str = ""
    trial_name: str = ""
    max_concurrent_rollouts: int | None = None  # under way at a time; as many as a batch has, where it is None
    queue_size: int | None = None  # of the output queue; 16 for each that may be under way, where it is None
    consumer_batch_size: int = 1  # samples in an update
    max_head_offpolicyness: int = (
        0  # versions between the weights and the oldest token, on average, and of recomputed ones
    )
    enable_segment_wise_ppo: bool = True

    def __attrs_post_init__(self) -> None:
        for name, least in (
            ("max_concurrent_rollouts", 1),
            ("queue_size", 1),
            ("consumer_batch_size", 1),
            ("max_head_offpolicyness", 0),
        ):
            _least(type(self).__name__, name, getattr(self, name), least)


@frozen(kw_only=True)
class PPOActorConfig:
    """The loss. Raises: ChoiceError."""

    experiment_name: str = ""
    trial_name: str = ""
    eps_clip: float = 0.2  # how far below and above 1 a ratio is clipped
    eps_clip_higher: float | None = None  # how far above, where it is another
    c_clip: float | None = None  # the bound of `dual_clip`, at least 1
    behav_imp_weight_cap: float | None = None  # tokens with a larger weight are left out
    behav_imp_weight_floor: float = 0.0  # and those with a smaller one
    enable_segment_wise_ppo: bool = True

    def __attrs_post_init__(self) -> None:
        names = {"eps_clip": 0, "eps_clip_higher": 0, "c_clip": 1, "behav_imp_weight_floor": 0}
        for name, least in (*names.items(), ("behav_imp_weight_cap", self.behav_imp_weight_floor)):
            _least(type(self).__name__, name, getattr(self, name), least)


@frozen(kw_only=True)
class BaseExperimentConfig:
    """A whole experiment. `rollout` and `actor` take the switch from here, whatever they say themselves.

    >>> BaseExperimentConfig(enable_segment_wise_ppo=False).rollout.enable_segment_wise_ppo
    False
    """

    experiment_name: str = ""
    trial_name: str = ""
    enable_segment_wise_ppo: bool = field(
        default=True, metadata={"help": "Segment-wise decoupled PPO: the loss, the age of samples, and recomputing."}
    )
    rollout: InferenceEngineConfig = field(factory=InferenceEngineConfig)
    actor: PPOActorConfig = field(factory=PPOActorConfig)

    def __attrs_post_init__(self) -> None:
        for name, child in _switched(self).items():
            object.__setattr__(self, name, child)


@overload
def load_expr_config(arguments: Sequence[str]) -> tuple[BaseExperimentConfig, str]: ...


@overload
def load_expr_config(arguments: Sequence[str], config_class: type[C]) -> tuple[C, str]: ...


def load_expr_config(arguments: Sequence[str], config_class: Any = BaseExperimentConfig) -> tuple[Any, str]:
    """The configuration that a command line asks for, and the path of its file: `--config FILE [key=value ...]`.

    A key may have dots (`rollout.queue_size=64`), a value is YAML; what stands last counts. The top-level switch is copied to
    `rollout` and `actor` afterwards, where the class has them. `config_class` is an attrs class.
    Raises: ChoiceError for a missing or unreadable file and for keys and values that do not exist, StructureError for
    values of another type.
    """
    path, changes = _arguments(arguments)
    tree = _read(path)
    for change in changes:
        key, _, value = change.partition("=")
        _put(tree, key, _parsed(f"{key}=", value))
    config = _built(config_class, tree, "")
    return evolve(config, **_switched(config)), str(path)


def _switched(config: Any) -> dict[str, Any]:
    """The parts of a configuration that have the switch, set as it is at the top."""
    if not hasattr(config, SWITCH):
        return {}
    parts = {name: getattr(config, name) for name in CHILDREN if hasattr(getattr(config, name, None), SWITCH)}
    return {name: evolve(part, **{SWITCH: getattr(config, SWITCH)}) for name, part in parts.items()}


def _arguments(arguments: Sequence[str]) -> tuple[Path, list[str]]:
    if len(arguments) < 2 or arguments[0] != "--config":
        got, wanted = " ".join(arguments) or "nothing", "--config FILE [key=value ...]"
        raise ChoiceError(message("arguments", got=got, wanted=wanted, remedy="name the file first"))
    wrong = [one for one in arguments[2:] if not one.partition("=")[0] or "=" not in one]
    if wrong:
        raise ChoiceError(message("argument", got=repr(wrong[0]), wanted="key=value", remedy="put no spaces around ="))
    return Path(arguments[1]), list(arguments[2:])


def _read(path: Path) -> dict[str, Any]:
    try:
        tree = _parsed(str(path), read_text(path, MOST_CONFIG))
    except (OSError, UnicodeDecodeError) as error:
        got, remedy = f"{path}: {error}", "look at the path"
        raise ChoiceError(message("--config", got=got, wanted="a YAML file", remedy=remedy)) from None
    if tree is not None and not isinstance(tree, dict):
        got, remedy = type(tree).__name__, "write one `key: value` a line"
        raise StructureError(message(str(path), got=got, wanted="a mapping", remedy=remedy))
    return tree or {}


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


def _built(config_class: Any, tree: dict[str, Any], where: str) -> Any:
    """A value of the class; sections are classes of their own."""
    hints, given = get_type_hints(config_class), dict[str, Any]()
    known = {one.name: hints[one.name] for one in attrs.fields(config_class)}
    for name, value in tree.items():
        full = f"{where}{name}"
        wanted = choose(f"key {full}", name, known)
        if attrs.has(wanted):
            if value is not None and not isinstance(value, dict):
                remedy = f"set {full}.key=value"
                raise StructureError(message(full, got=repr(value), wanted="a section", remedy=remedy))
            given[name] = _built(wanted, value or {}, f"{full}.")
        else:
            given[name] = _typed(full, value, wanted)
    return config_class(**given)


def _typed(where: str, value: Any, wanted: Any) -> Any:
    """The value, if it is of the type; an int may stand for a float, a bool never for a number.

    YAML takes 1e-3, which has no point, for a word.
    """
    allowed = get_args(wanted) if isinstance(wanted, types.UnionType) else (wanted,)
    if float in allowed and (type(value) is int or re.fullmatch(r"[+-]?\d+[eE][+-]?\d+", str(value))):
        return float(value)
    if type(value) in allowed or not all(isinstance(one, type) for one in allowed):
        return value
    names = " or ".join("null" if one is types.NoneType else one.__name__ for one in allowed)
    remedy = "write it as YAML does: true, 3, 0.5, null, a word"
    raise StructureError(message(where, got=repr(value), wanted=names, remedy=remedy))


def _least(where: str, name: str, value: float | None, wanted: float) -> None:
    if value is not None and not value >= wanted:
        remedy = "the smallest that means something is that"
        raise ChoiceError(message(f"{where}: {name}", got=value, wanted=f"{wanted} or more", remedy=remedy))
