"""Rollouts whose policy remembers as people get it wrong: a right one, step by step, with a memory kept otherwise."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...core import keys
from ...core.record import replace, select
from ...core.steps import Trajectory, ended
from ...core.tree import tree_map
from ...runtime.rollout import Worlds

Make = Callable[..., Any]  # (env, model, length) -> what `rollout` makes
Rule = Callable[
    [Trajectory, Tensor, Any, Any], Any
]  # (the step [B], whether the one before ended, begun, carry) -> memory


def _by(rule: Rule) -> Callable[[Make], Make]:
    def mutant(make: Make) -> Make:
        def made(env: Any, model: Any, length: int) -> Any:
            single = make(env, model, 1)

            def run(params: Any, worlds: Worlds, key: Tensor) -> tuple[Worlds, Trajectory]:
                before, rows = torch.zeros(worlds.observation.shape[0], dtype=torch.bool), []
                for step_key in keys.split(key, length):
                    _, _, carry = model.apply(params, worlds.observation, worlds.memory)
                    after, row = single(params, worlds, step_key)
                    told = tree_map(lambda leaf: leaf[0], row)
                    worlds = replace(after, memory=rule(told, before, worlds.fresh, carry))
                    before = ended(told.terminated, told.truncated)
                    rows.append(row)
                return worlds, tree_map(lambda *leaves: torch.cat(leaves), *rows)

            return run

        return made

    return mutant


def _over(told: Trajectory) -> Tensor:
    return ended(told.terminated, told.truncated)


never = _by(lambda told, before, begun, carry: carry)
one_step_late = _by(lambda told, before, begun, carry: select(before, begun, carry))
at_terminations_only = _by(lambda told, before, begun, carry: select(told.terminated, begun, carry))
to_zero = _by(lambda told, before, begun, carry: select(_over(told), tree_map(torch.zeros_like, carry), carry))
all_worlds_at_once = _by(lambda told, before, begun, carry: select(_over(told).any().expand_as(before), begun, carry))


def begins_each_rollout(make: Make) -> Make:
    """Takes a rollout for an episode."""

    def made(env: Any, model: Any, length: int) -> Any:
        inner = make(env, model, length)
        return lambda params, worlds, key: inner(params, replace(worlds, memory=worlds.fresh), key)

    return made


MUTANTS = {
    "resets the memory one step late": one_step_late,
    "resets the memory at terminations only": at_terminations_only,
    "resets the memory to zero, whatever it began with": to_zero,
    "resets every world's memory where one world ends": all_worlds_at_once,
}
