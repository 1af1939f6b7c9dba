"""An algorithm of purestep with the settings of a case. Prints one line of JSON, as the peers' scripts do."""

import argparse
import json
import time
from typing import Any

import torch

import purestep as ps
from purestep.core import actor_q
from purestep.core.optim.optimizers import adam, chain, clip_by_global_norm
from purestep.runtime.evaluate import evaluate
from purestep.runtime.population import each, population

from .off_policy_cases import CASES, Case

CALLS, EPISODES = 10, 100


def model_of(case: Case, env: Any) -> Any:
    """The model that the algorithm takes, of the widths that rejax's own have."""
    spaces = env.observation_space, env.action_space
    if case.algorithm in ("dqn", "pqn"):
        return ps.action_values_mlp(*spaces, (64, 64), case.activation, product="auto", **case.model)
    if case.algorithm == "iqn":
        from purestep.core.quantile_values import implicit_quantiles_mlp

        return implicit_quantiles_mlp(*spaces, (64, 64), case.activation, **case.model)
    make = {"sac": actor_q.stochastic_actor_mlp, "td3": actor_q.deterministic_actor_mlp}[case.algorithm]
    return make(*spaces, (64, 64), case.activation, **case.model)


def main() -> None:
    parser = argparse.ArgumentParser(description="one case of purestep")
    parser.add_argument("--case", choices=CASES, required=True)
    for name in ("seeds", "threads"):
        parser.add_argument(f"--{name}", type=int, default=1)
    parser.add_argument("--replay-size", type=int, default=0, help="in place of the case's own")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    case = CASES[arguments.case]
    env = ps.make(case.env)
    model = model_of(case, env)
    settings = dict(case.purestep) | ({"replay_size": arguments.replay_size} if arguments.replay_size else {})
    optimizer = chain(clip_by_global_norm(case.norm), adam(case.rate))
    algorithm = getattr(ps, case.algorithm)(model, optimizer, **settings)
    one = ps.trainer(env, model, algorithm, envs=case.envs, horizon=case.horizon)
    seeds = torch.stack([ps.keys.key(seed) for seed in range(arguments.seeds)])
    trainer, key = (population(one), seeds) if arguments.seeds > 1 else (one, seeds[0])
    iterations = -(-case.steps // (one.steps * CALLS))
    run = ps.program(ps.train(trainer, iterations), donate=(0,))
    run(trainer.init(key))
    run.settle()
    state = trainer.init(key)
    began = time.perf_counter()
    for _ in range(CALLS):
        state, _ = run(state)
    seconds = time.perf_counter() - began
    steps = int(state.env_steps.sum())
    play = evaluate(env, model, episodes=EPISODES, steps=500)
    played = (each(play) if arguments.seeds > 1 else play)(state.learner.params, (), ps.keys.key(2**31))
    report = {
        "peer": "purestep",
        "compile_seconds": sum(run.seconds),
        "run_seconds": seconds,
        "steps": steps,
        "steps_per_second": steps / seconds,
        "milliseconds": 1000.0 * seconds / (iterations * CALLS),
        "returns": played.returns.reshape(arguments.seeds, -1).mean(-1).tolist(),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
