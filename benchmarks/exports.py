"""Policies as files: each recipe's, exported each way, beside the policy itself on 1,000 recorded observations.

The policies are of environments with discrete actions and with a Box, with and without a normaliser, of a user's file with an
image and fields, and of networks that are none of ours. Every file is opened anew, by torch, onnxruntime or safetensors. Writes
benchmarks/results/exports.json; exit code 1 where a difference is beyond its form's limit. Needs the extra `onnx`.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

import purestep as ps
from purestep.core import keys
from purestep.core.tree import tree_map
from purestep.runtime.effects.policy_files import programs
from purestep.runtime.effects.policy_files.export import LIMITS, action_difference, export
from purestep.runtime.effects.policy_files.module import call_policy, inputs_of, module_of, portions
from purestep.runtime.effects.policy_files.tensors import with_weights
from purestep.runtime.recipes.load_policy import TrainedPolicy, load
from purestep.runtime.runs.run import silent, train
from purestep.runtime.trained_policy import visited

from . import evidence
from .parts.exports_worlds import CAMERA, eyes

OBSERVATIONS = 1000
STEPS: Mapping[str, Any] = {"backend": "none", "notice": silent, "overwrite": True}
SHORT = {"steps": 1024, "envs": 8, "horizon": 32}
PPO = {**SHORT, "epochs": 2, "minibatches": 2}
PROVE = {"steps": 128, "envs": 8, "horizon": 8, "epochs": 1, "minibatches": 1, "warm_up": 0, "imitated_facts": 0}


@frozen
class Case:
    """A policy to be exported."""

    make: Callable[[Path], TrainedPolicy]  # the folder for its run


def of_run(recipe: str, **settings: Any) -> Case:
    """The policy of a run of a recipe."""

    def make(folder: Path) -> TrainedPolicy:
        train(recipe, folder / "run", **{**STEPS, **settings})
        found = load(folder / "run", trust=True)
        assert isinstance(found, TrainedPolicy)
        return found

    return Case(make)


def own_world(folder: Path) -> TrainedPolicy:
    """The policy of a run on a file of the user's."""
    (folder / "camera.py").write_text(CAMERA)
    return of_run("ppo", env=f"{folder / 'camera.py'}:CAMERA", **PPO).make(folder)


def own_network(folder: Path) -> TrainedPolicy:
    """The policy of convolutions of the user's, trained by `trainer`, of the state that it ended in."""
    env, model = eyes()
    trainer = ps.trainer(env, model, ps.ppo(model, ps.adam(1e-3)), envs=8, horizon=32)
    return ps.policy(env, model, ps.train(trainer, 2)(trainer.init(keys.key(0)))[0])


def own_network_scaled(folder: Path) -> TrainedPolicy:
    """The policy of modules of the user's with a normaliser and actions in a Box."""
    env = ps.make("mountain_car_continuous")
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.LayerNorm(2), torch.nn.Linear(2, 32), torch.nn.GELU(), torch.nn.Linear(32, 1))
    value = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.GELU(), torch.nn.Linear(32, 1))
    model = ps.separate(ps.normal_head(ps.functional(layers), 1), ps.scalar(ps.functional(value)))
    how: dict[str, Any] = {"envs": 8, "horizon": 32, "normalizer": ps.running()}
    trainer = ps.trainer(env, model, ps.ppo(model, ps.adam(1e-3)), **how)
    found = ps.policy(env, model, ps.train(trainer, 2)(trainer.init(keys.key(0)))[0])
    wild = tree_map(lambda leaf: 3.0 * leaf, found.params)  # most actions at the bounds, some between
    return TrainedPolicy(env=env, model=model, params=wild, statistics=found.statistics)


CASES: Mapping[str, Case] = {
    "ppo cartpole": of_run("ppo", env="cartpole", **PPO),
    "ppo pendulum, rewards scaled": of_run("ppo", env="pendulum", **PPO),
    "ppo mountain_car_continuous, both scaled": of_run("ppo", env="mountain_car_continuous", **PPO),
    "ppo pendulum, observations scaled, 256 units": of_run(
        "ppo", env="pendulum", normalize="observations", hidden=(256, 256), **PPO
    ),
    "a2c acrobot": of_run("a2c", env="acrobot", **SHORT),
    "a2c pendulum, both scaled": of_run("a2c", env="pendulum", normalize="both", **SHORT),
    "reinforce cartpole, observations scaled": of_run("reinforce", env="cartpole", normalize="observations", **SHORT),
    "prove family": of_run("prove", data="family:30", size=16, width=16, **PROVE),
    "ppo on a file with an image and fields": Case(own_world),
    "ppo, convolutions of one's own, a dict with an image": Case(own_network),
    "ppo, modules of one's own, both scaled, a Box": Case(own_network_scaled),
}


def reopened(
    policy: TrainedPolicy, path: Path, form: str, observation: Any
) -> Callable[[Mapping[str, torch.Tensor]], Any]:
    """The function in a file, as another program opens it."""
    if form == "safetensors":
        blank = with_weights(_blank(policy), path)
        module = module_of(blank, observation)
        return lambda inputs: call_policy(module, inputs)
    return (programs.opened_torch if form == "torch" else programs.opened_onnx)(path.read_bytes())


def _blank(policy: TrainedPolicy) -> TrainedPolicy:
    params, statistics = tree_map(torch.zeros_like, (policy.params, policy.statistics))
    return TrainedPolicy(env=policy.env, model=policy.model, params=params, statistics=statistics)


def measured(name: str, case: Case, batch: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The figures of a policy's files, by form."""
    with tempfile.TemporaryDirectory() as made:
        policy = case.make(Path(made))
        observations = visited(policy, OBSERVATIONS, keys.key(1))
        parts = portions(observations, batch)
        own = [policy.action(part) for part in parts]
        for form, limit in LIMITS.items():
            path = Path(made) / f"policy.{form}"
            began = time.perf_counter()
            export(policy, path, to=form, batch=batch)
            seconds = time.perf_counter() - began
            run = reopened(policy, path, form, parts[0])
            with torch.no_grad():
                actions = [run(inputs_of(part)) for part in parts]
            other = [number for number, action in enumerate(actions) if not torch.equal(own[number], action)]
            found = max((action_difference(policy, parts[number], actions[number]) for number in other), default=0.0)
            row = {
                "observations": len(parts) * max(1, batch),
                "actions": len({tuple(action.flatten().tolist()) for action in actions}),
                "greatest_difference": found,
                "limit": limit,
                "not_the_same_bits": len(other),
                "bytes": path.stat().st_size,
                "export_seconds": round(seconds, 2),
            }
            print(
                f"{name}, {form}: {found:.3g} on {row['observations']} observations, {row['actions']} actions",
                flush=True,
            )
            yield form, row


def main() -> int:
    """Measures; 0 where every file acts as its policy."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exports", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD", help="cases whose names have one of the words")
    only = parser.parse_args().only
    began = time.perf_counter()
    rows: dict[str, Any] = {}
    for name, case in CASES.items():
        if not only or any(word in name for word in only):
            rows[name] = dict(measured(name, case, 0))
    if not only:
        rows["ppo cartpole, 8 at once"] = dict(measured("ppo cartpole, 8 at once", CASES["ppo cartpole"], 8))
    beyond = [
        f"{name}, {form}"
        for name, forms in rows.items()
        for form, row in forms.items()
        if not row["greatest_difference"] <= row["limit"] or row["observations"] < OBSERVATIONS or row["actions"] < 2
    ]
    greatest = {form: max(forms[form]["greatest_difference"] for forms in rows.values()) for form in LIMITS}
    print(f"greatest differences: {greatest}; beyond their limits: {beyond or 'none'}")
    if not only:
        figures = {"greatest": greatest, "beyond": beyond, "policies": rows}
        evidence.write("exports", seconds=time.perf_counter() - began, figures=figures)
    return int(bool(beyond))


if __name__ == "__main__":
    sys.exit(main())
