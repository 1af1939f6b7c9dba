"""Evaluation of a trained policy: whole episodes, played with the newest checkpoint of a run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from attrs import asdict

from ...core import keys
from ..effects import folder
from ..evaluate import Evaluation, Summary, evaluate, summary
from ..runs.arguments import check_whole
from ..runs.curves import draw_curve
from ..runs.recipe import Notice
from ..runs.run import restore_run
from ..runs.trusting import trusted
from ..train import RunState
from .pipeline import Pipeline
from .shared_settings import PlayedEpisodes, Playing, Resuming

Choice = Literal["mode", "sample"]
SHORT, LONGEST = 128, 1024  # steps; no named environment has longer episodes than LONGEST, unless Gymnasium says so
APART = 2**31  # separates the keys of evaluations from those of training


def evaluate_run(
    run: Path, *, episodes: int = 100, seed: int = 0, action: Choice = "mode", trust: bool = False
) -> Summary:
    """Play whole episodes with the policy of the newest checkpoint; write evaluation.json into the run's folder.

    An environment of yours, which the run names, is imported with `trust`. Raises: CheckpointError, ChoiceError, TrustError.
    """
    check_whole("--episodes", episodes, 1)
    held = restore_run(run, changes={"device": "cpu"}, trust=trusted("evaluate", run, trust))
    pipeline: Pipeline = held.components.opened
    if isinstance(pipeline.world, tuple):
        played = play_episodes(pipeline, held.state, episodes, seed, action)
    else:
        pipeline.world.close()
        played = play_gymnasium(held.arguments.experience.env, pipeline, held.state, episodes, seed, action)
    result = summary(played)
    about = {"iteration": held.loop.iteration, "seed": seed, "action": action}
    folder.write_json(run / folder.EVALUATION, {**about, **asdict(result)})
    return result


def play_episodes(pipeline: Pipeline, state: RunState, episodes: int, seed: int, action: Choice) -> Evaluation:
    """Play this number of episodes with the policy, for `SHORT` steps, and again for `LONGEST` steps if any is not over."""
    key = keys.fold_in(keys.key(seed), APART)
    many: dict[str, Any] = {"episodes": episodes, "action": action, "normalizer": pipeline.normalizer}

    def play(steps: int) -> Evaluation:
        return evaluate(pipeline.env, pipeline.model, steps=steps, **many)(state, key)

    result = play(SHORT)
    return result if bool(result.ended.all()) else play(LONGEST)


def play_gymnasium(
    env: str, pipeline: Pipeline, state: RunState, episodes: int, seed: int, action: Choice
) -> Evaluation:
    """Play this number of episodes of an environment of Gymnasium's with the policy, to their ends or `LONGEST` steps."""
    from ..effects.gymnasium.evaluate import gymnasium_evaluate  # here: Gymnasium is an extra
    from ..effects.gymnasium.named import named_world

    key = keys.fold_in(keys.key(seed), APART)
    with named_world(env, episodes) as world:
        play = gymnasium_evaluate(
            world, pipeline.model, steps=world.longest or LONGEST, action=action, normalizer=pipeline.normalizer
        )
        return play(state, key)


def evaluation_lines(run: Path, options: PlayedEpisodes, notice: Notice) -> Iterator[str]:
    """Evaluate the run's newest checkpoint; yield the line to print. Raises: CheckpointError, ChoiceError."""
    result = evaluate_run(run, episodes=options.episodes, seed=options.seed, action=options.action, trust=options.trust)
    yield f"evaluation: {result.line()}"


def final_lines(run: Path, options: Playing | Resuming, notice: Notice) -> Iterator[str]:
    """Evaluate the run's newest checkpoint and draw its learning curve; yield the lines to print. Raises: CheckpointError."""
    yield f"evaluation: {evaluate_run(run, episodes=options.episodes, trust=True).line()}"
    yield from draw_curve(run, notice)
