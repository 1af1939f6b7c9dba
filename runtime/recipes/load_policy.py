"""From a run's folder to what was learnt: the policy of any recipe, loaded from the newest checkpoint."""

from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from ...core.errors import CheckpointError, message
from ..effects import folder
from ..effects.checkpoint.manifest import MANIFEST
from ..effects.module_reference import is_reference
from ..effects.task_reference import EVERY
from ..effects.task_reference import trust as trust_task
from ..runs.arguments import flatten
from ..runs.kinds import record_of
from ..runs.recipe import Recipe, find
from ..runs.run import restore_run
from ..runs.trusting import Trust, check_trust
from ..trained_policy import TrainedPolicy
from .text import TextRecipe

SWEEP = "sweep.json"


@frozen(kw_only=True)
class TrainedLanguageModel:
    """A language model and the task that it was trained at; its model is a Hugging Face folder too, RUN/model."""

    task: Any  # a TextTask
    env: Any  # the environment of held-out episodes
    model: Any  # a CausalModel: init, and functions that map tokens to logits
    params: Any  # its parameters by name, with adapters merged
    tokenizer: Any
    codec: Any  # between messages and tokens
    recipe: str
    arguments: Any
    version: str  # of the newest checkpoint, as text
    normalizer: tuple[()] = ()  # tokens are not scaled


def load(run: Path | str, *, trust: bool = False) -> TrainedPolicy | TrainedLanguageModel:
    """Return what a run learnt, from its newest checkpoint: env, model, params, normaliser and more, on the CPU.

    An environment, task or function of yours that the run names is imported with `trust`.
    Raises: CheckpointError for a folder without a run, and for a sweep; TrustError; errors of building the recipe.

    >>> from tempfile import TemporaryDirectory
    >>> from purestep.runtime.runs.run import train
    >>> small = {"steps": 8, "envs": 2, "horizon": 4, "hidden": (4,), "backend": "none"}
    >>> with TemporaryDirectory() as folder:
    ...     _ = train("reinforce", folder, **small)
    ...     load(folder).action(torch.zeros(4)).shape
    torch.Size([])
    """
    return load_trusted(Path(run), Trust(every=trust, call=f"purestep.load({str(run)!r}, trust=True)"))


def load_trusted(run: Path, trusted: Trust) -> TrainedPolicy | TrainedLanguageModel:
    """Return what a run learnt, as `load`, where a command or call trusts functions that it names."""
    place = run_in(run)
    held = record_of(place)
    recipe = find(str(held.get("recipe", "")), f"{place / folder.ARGUMENTS}: recipe")
    _check_references(place, trusted, held)
    threads = torch.get_num_threads()  # a recipe sets those of its training
    try:
        return _language(place, recipe, trusted) if isinstance(recipe, TextRecipe) else _policy(place, recipe, trusted)
    finally:
        torch.set_num_threads(threads)


def run_in(path: Path) -> Path:
    """Return the folder if it is that of a run of one policy. Raises: CheckpointError, with what to call for another one."""
    where, wanted = str(path), "the folder of a run"
    if (path / SWEEP).is_file():
        remedy = "train the settings that its table recommends, with: purestep train RECIPE"
        raise CheckpointError(message(where, got="a sweep, which keeps no policies", wanted=wanted, remedy=remedy))
    if (path / MANIFEST).is_file():
        remedy = f"name {path.parent.parent}, or call load_checkpoint(path, like)"
        raise CheckpointError(message(where, got="a checkpoint", wanted=wanted, remedy=remedy))
    if (path / folder.CHECKPOINTS).is_dir() and not folder.is_run(path):
        remedy = f"call load_checkpoint({folder.CHECKPOINTS}/step_..., like)"
        raise CheckpointError(message(where, got="a folder of checkpoints alone", wanted=wanted, remedy=remedy))
    return folder.existing(path)


def _check_references(run: Path, trust: Trust, held: Any) -> None:
    named = {name: str(held[name]) for name in ("env", "reference") if is_reference(str(held.get(name, "")))}
    check_trust(run, trust, named)
    if trust.every:
        trust_task(EVERY)


def _policy(run: Path, recipe: Recipe, trust: Trust) -> TrainedPolicy:
    changes = {"device": "cpu"} if "device" in flatten(recipe.defaults()) else {}
    found = restore_run(run, changes=changes, trust=trust)
    make = found.components.policy
    if isinstance(make, tuple):
        where, remedy = f"load: recipe {recipe.name!r}", "its package adds Components(policy=...)"
        raise CheckpointError(message(where, got="without a policy", wanted="one that makes it", remedy=remedy))
    policy: TrainedPolicy = make(found.state, found.loop)
    return policy


def _language(run: Path, recipe: TextRecipe, trust: Trust) -> TrainedLanguageModel:
    parts, params, arguments, version = recipe.sampler(run, trust)
    return TrainedLanguageModel(
        task=parts.task,
        env=parts.trial.env,
        model=parts.speaker,
        params=params,
        tokenizer=parts.tokenizer,
        codec=parts.codec,
        recipe=recipe.name,
        arguments=arguments,
        version=version,
    )
