"""Flags of `purestep train` from an experiment configuration: `--config FILE [key=value ...]` on its command line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...core.errors import ChoiceError, choose, message
from .experiment_config import SWITCH, BaseExperimentConfig, build_section, load_tree

NAMES = ("experiment_name", "trial_name")
ABOUT = (
    "--config FILE [key=value ...] sets flags from an experiment configuration in YAML; other flags override it. "
    f"Its keys: {SWITCH}, experiment_name, trial_name, rollout.consumer_batch_size (--groups), "
    "rollout.max_head_offpolicyness (--staleness), actor.eps_clip (--clip), actor.eps_clip_higher (--clip-high)."
)
FLAGS = {  # sections: key -> flag
    "rollout": {"consumer_batch_size": "--groups", "max_head_offpolicyness": "--staleness"},
    "actor": {"eps_clip": "--clip", "eps_clip_higher": "--clip-high"},
}


def with_config(words: Sequence[str]) -> list[str]:
    """Return the words with the flags of a configuration in front, so that flags beside `--config` override its keys.

    A key that the file leaves out keeps the recipe's default, except for the switch, which is on, and `eps_clip_higher`, which
    is `eps_clip`. A configuration samples asynchronously (`--mode async`) unless `--mode` is given.
    Raises: ChoiceError, StructureError for a file that cannot be read, and for keys without a flag.

    >>> with_config(["--steps", "3"])
    ['--steps', '3']
    """
    at = next((place for place, word in enumerate(words) if word.partition("=")[0] == "--config"), None)
    if at is None:
        return list(words)
    name, equals, path = words[at].partition("=")
    given, end = ([path], at + 1) if equals else (list(words[at + 1 : at + 2]), at + 2)
    while end < len(words) and "=" in words[end] and not words[end].startswith("-"):
        given.append(words[end])
        end += 1
    rest = [*words[:at], *words[end:]]
    if any(word.partition("=")[0] == "--config" for word in rest):
        raise ChoiceError(message("--config", got="given twice", wanted="one file", remedy="put all keys into one"))
    tree, _ = load_tree([name, *given])
    return [*_flags(tree, build_section(BaseExperimentConfig, tree)), *rest]


def _flags(tree: dict[str, Any], config: BaseExperimentConfig) -> list[str]:
    loss = ["decoupled", "--proximal", "segment_wise"] if config.enable_segment_wise_ppo else ["plain"]
    flags = ["--mode", "async", "--loss", *loss]
    if config.experiment_name and config.trial_name:
        flags += ["--run", str(Path("runs", *(_folder(name, getattr(config, name)) for name in NAMES)))]
    for section, known in FLAGS.items():
        values = tree.get(section) or {}
        for key in values:
            if key not in (*NAMES, SWITCH):
                choose(f"--config: key {section}.{key} for purestep train", key, known)
        if values.get("eps_clip") is not None:
            values = {"eps_clip_higher": values["eps_clip"]} | {
                name: one for name, one in values.items() if one is not None
            }
        for key, flag in known.items():
            if values.get(key) is not None:
                flags += [flag, str(values[key])]
    return flags


def _folder(key: str, name: str) -> str:
    if name == ".." or name != Path(name).name:
        raise ChoiceError(
            message(f"key {key}", got=repr(name), wanted="the name of a folder", remedy="use letters and digits")
        )
    return name
