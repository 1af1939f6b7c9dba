"""Evolution strategies (Salimans et al. 2017, arXiv 1703.03864, algorithm 1) as a recipe of a package of its own."""

from pathlib import Path
from typing import Any

from attrs import frozen

from purestep.core.errors import check_within
from purestep.runtime.runs.arguments import check_whole, check_wholes
from purestep.runtime.runs.recipe import Components, Context, Lines, Notice, Options, Recipe


@frozen
class Settings:
    """Evolution strategies: a policy moves towards those of its perturbations that earn more."""

    env: str = "cartpole"  # the environment
    seed: int = 0  # every random number of the run follows from it
    generations: int = 30  # updates
    pairs: int = 32  # perturbations of one, each with its opposite
    sigma: float = 0.2  # their size
    learning_rate: float = 0.2  # of the update


@frozen
class Played:
    """Play episodes with the newest checkpoint's policy."""

    episodes: int = 20  # how many

    def check(self) -> None:
        check_whole("--episodes", self.episodes, 1)


class Hill(Recipe):
    name, about = "hill", "evolution strategies"
    chosen_by = "env"
    options = Options(train=Played(), resume=Played(), evaluate=Played())

    def defaults(self, choice: str | None = None) -> Settings:
        return Settings()

    def check(self, settings: Settings, options: Any = ()) -> None:
        check_wholes(settings, 1, "generations", "pairs")
        check_within("--sigma", settings.sigma, 1e-6)

    def build(self, settings: Settings, context: Context) -> Components:
        import torch

        from purestep.core import keys
        from purestep.core.envs import make
        from purestep.core.policy import actor_critic_mlp, flat
        from purestep.runtime.evaluate import evaluate
        from purestep.runtime.population import each
        from purestep.runtime.runs.run import stepped
        from purestep.runtime.runs.training_machine import Loop, plan
        from purestep.runtime.trained_policy import TrainedPolicy

        env = make(settings.env)
        model = flat(actor_critic_mlp(env.observation_space, env.action_space, (8,)))
        play = each(evaluate(env, model, episodes=4, steps=500))  # all policies at once, with the same episodes

        def step(state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
            noise, games, key = keys.split(state["key"], 3)
            half = keys.normal(noise, (settings.pairs, *state["params"].shape))
            moved = torch.cat([half, -half])
            returns = play(state["params"] + settings.sigma * moved, (), games).returns.mean(1)
            ranks = returns.argsort().argsort().to(torch.float32) / (len(returns) - 1) - 0.5
            gradient = (ranks[:, None] * moved).mean(0) / settings.sigma
            params = state["params"] + settings.learning_rate * gradient
            return {"params": params, "key": key}, {"episode_return": float(returns.mean())}

        def begin() -> dict[str, Any]:
            first, key = keys.split(keys.key(settings.seed), 2)
            return {"params": model.init(first), "key": key}

        def policy(state: dict[str, Any], loop: Loop) -> TrainedPolicy:  # for purestep.load and purestep export
            about: dict[str, Any] = {"recipe": self.name, "arguments": settings, "iteration": loop.iteration}
            return TrainedPolicy(env=env, model=model, params=state["params"], **about)

        loop = plan(settings.generations, 5)
        return Components(loop=loop, begin=begin, session=stepped(step), opened=(env, model), policy=policy)

    def evaluate(self, run: Path, options: Played, notice: Notice) -> Lines:
        from purestep.core import keys
        from purestep.runtime.evaluate import evaluate, summary
        from purestep.runtime.runs.curves import draw_curve
        from purestep.runtime.runs.run import restore_run

        found = restore_run(run)
        env, model = found.components.opened
        play = evaluate(env, model, episodes=options.episodes, steps=500)
        yield f"evaluation: {summary(play(found.state['params'], (), keys.key(1))).line()}"
        yield from draw_curve(run, notice)


RECIPE = Hill()
