"""The 16 combinations of memory, masks, several discrete actions and several agents, each learned by PPO in the one trainer.

In an episode of eight steps each agent sees bits and has to choose by them, in each part of its action: the first of two
choices for one bit, the second for the other; the second agent the other way round. All get 1 where all are right.

    memory          the bits are shown at the first step alone, and stay
    masks           two of four choices are legal, drawn at each step and not among the features; an illegal one costs 1
    several actions two parts, with a bit each
    several agents  two, paid together

Each combination is three seeds in one program, judged by the greedy policy's worst seed over 100 episodes; 8 is the best.
Beside them the hardest combination without one part of its model, which must fail: without memory, without the mask, without
the agent's number. Prints a line for each and writes results/combined.json; exit code 1 unless 16 are solved and 3 fail.
"""

import os
import sys
import time
from itertools import product
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

import purestep as ps
from purestep import keys
from purestep.core.spaces import Space
from purestep.runtime.population import each, population

from . import evidence

STEPS, SEEDS, EPISODES, SOLVED = 8, 3, 100, 7.6
ITERATIONS, ENVS = 300, 32


@frozen
class Parts:
    """A combination."""

    memory: bool
    masks: bool
    several_actions: bool
    several_agents: bool

    def name(self) -> str:
        """The parts in words."""
        words = zip(("memory", "masks", "several actions", "several agents"), self.flags(), strict=True)
        return ", ".join(word for word, flag in words if flag) or "none"

    def flags(self) -> tuple[bool, ...]:
        """The four flags."""
        return self.memory, self.masks, self.several_actions, self.several_agents


def game(parts: Parts, *, shows_mask: bool = True) -> ps.Env[Any, Any]:
    """The task of a combination; without `shows_mask` its observations are the features alone."""
    agents, size = 1 + parts.several_agents, 1 + parts.several_actions
    choices = 4 if parts.masks else 2

    def drawn(key: Tensor, bits: Any = ()) -> dict[str, Tensor]:
        bits_key, legal_key = keys.split(key)
        luck = keys.uniform(legal_key, (agents, size, choices))
        new = (keys.uniform(bits_key, (agents, size)) > 0.5).to(torch.int64)
        return {"bits": new if isinstance(bits, tuple) else bits, "legal": luck >= luck.topk(2, -1).values[..., 1:]}

    def seen(state: dict[str, Tensor], shown: bool) -> Any:
        features = (2.0 * state["bits"] - 1.0) if shown else torch.zeros(agents, size)
        mask = state["legal"].flatten(1)
        rows = {"features": features, "action_mask": mask} if parts.masks and shows_mask else {"features": features}
        each_agent = rows if parts.several_agents else {name: leaf[0] for name, leaf in rows.items()}
        return each_agent if len(each_agent) == 2 else each_agent["features"]

    def reset(params: Any, key: Tensor) -> tuple[dict[str, Tensor], ps.TimeStep]:
        state = drawn(key)
        return state, ps.first(seen(state, True))

    def step(params: Any, state: dict[str, Tensor], action: Tensor, key: Tensor) -> tuple[Any, ps.TimeStep]:
        taken = action.reshape(agents, size)
        inverted = torch.arange(agents)[:, None] > 0
        legal = state["legal"].to(torch.int64)
        lowest, highest = legal.argmax(-1), choices - 1 - legal.flip(-1).argmax(-1)
        wanted = torch.where((state["bits"] > 0) ^ inverted, highest, lowest)
        allowed = state["legal"].gather(-1, taken[..., None]).all()
        reward = (taken == wanted).all().to(torch.float32) - (~allowed).to(torch.float32)
        after = drawn(key, state["bits"] if parts.memory else ())
        return after, ps.following(seen(after, not parts.memory), reward, torch.zeros((), dtype=torch.bool))

    observed: Space = ps.Box(-1.0, 1.0, (size,))
    if parts.masks and shows_mask:
        observed = ps.Fields((("features", observed), ("action_mask", ps.MultiBinary(choices * size))))
    actions = ps.MultiDiscrete((choices,) * size) if parts.several_actions else ps.Discrete(choices)
    env = ps.Env((), reset, step, observed, actions, agents=agents if parts.several_agents else None)
    return ps.time_limit(env, STEPS)


def returns(env: ps.Env[Any, Any], *, memory: bool) -> list[float]:
    """The mean greedy return of each seed after training."""
    build = ps.recurrent_actor_critic if memory else ps.actor_critic_mlp
    model = ps.flat(build(env.observation_space, env.action_space, (64,) if memory else (64, 64)))
    algorithm = ps.ppo(model, ps.adam(2e-3), minibatches=4, gamma=0.5, entropy_coefficient=0.03)
    trainer = population(ps.trainer(env, model, algorithm, envs=ENVS, horizon=2 * STEPS))
    state = trainer.init(keys.split(keys.key(0), SEEDS))
    learn = ps.program(ps.train(trainer, 50))
    for _ in range(ITERATIONS // 50):
        state, _ = learn(state)
    played = each(ps.evaluate(env, model, episodes=EPISODES, steps=STEPS))(state, keys.key(1)).returns
    means: list[float] = played.mean(-1).tolist()
    return means


def viewed(env: ps.Env[Any, Any]) -> ps.Env[Any, Any]:
    """The env with each agent's number, where there are several."""
    return env if env.agents is None else ps.agent_views(env)


def main() -> int:
    """Train all; print and write the figures."""
    began, rows, failing = time.perf_counter(), dict[str, object](), dict[str, object]()
    for flags in product((False, True), repeat=4):
        parts = Parts(*flags)
        means = returns(viewed(game(parts)), memory=parts.memory)
        rows[parts.name()] = {"returns": means, "solved": min(means) >= SOLVED}
        print(f"{parts.name():50} {' '.join(f'{mean:6.2f}' for mean in means)}", flush=True)
    hardest = Parts(True, True, True, True)
    without = {
        "memory": lambda: returns(viewed(game(hardest)), memory=False),
        "the mask": lambda: returns(viewed(game(hardest, shows_mask=False)), memory=True),
        "the agent's number": lambda: returns(game(hardest), memory=True),
    }
    for name, run in without.items():
        means = run()
        failing[name] = {"returns": means, "solved": max(means) >= SOLVED}
        print(f"all four, without {name:32} {' '.join(f'{mean:6.2f}' for mean in means)}", flush=True)
    solved = sum(bool(row["solved"]) for row in rows.values() if isinstance(row, dict))
    failed = sum(not row["solved"] for row in failing.values() if isinstance(row, dict))
    print(f"{solved} of 16 solved; {failed} of 3 fail without a part; load {os.getloadavg()[0]:.1f}")
    figures = {"combinations": rows, "without": failing, "solved": solved, "best": STEPS, "wanted": SOLVED}
    evidence.write("combined", seconds=time.perf_counter() - began, figures=figures)
    return int((solved, failed) != (16, 3))


if __name__ == "__main__":
    sys.exit(main())
