"""Self-play: PPO learns tic-tac-toe against earlier versions of itself.

    python examples/self_play.py        # trains, prints wins, draws and losses against chance and against the first version

The opponent is a part of the environment: its network's params are the environment's params, a part of the trainer's state that
may change between two calls without another program. Each environment has an opponent of its own, drawn from all versions.
"""

import attrs
import torch
from torch import Tensor

import purestep as ps
from purestep.core.distributions import masked
from purestep.core.keys import Key
from purestep.core.policy import Params
from purestep.runtime.evaluate import evaluate

LINES = torch.tensor([[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]])
SEEN = ps.Fields((("features", ps.Box(0.0, 1.0, (18,))), ("action_mask", ps.Box(0.0, 1.0, (9,)))))
ENVS, HORIZON, ITERATIONS, VERSIONS = 64, 16, 20, 25


def look(board: Tensor) -> dict[str, Tensor]:
    """Return the observation of a board [9] of 1 (own), -1 (the opponent's) and 0: own squares, the opponent's, free ones."""
    return {"features": torch.cat([board == 1, board == -1]).float(), "action_mask": board == 0}


def is_won(board: Tensor) -> Tensor:
    """Return whether three of the player's own squares are in a line."""
    return (board[LINES] == 1).all(-1).any()


def tic_tac_toe(model: ps.ActorCritic, opponent: Params) -> ps.Env[Params, Tensor]:
    """Return the game for one player, reward 1, 0 or -1 at its end; the opponent samples, and begins half of the games."""

    def reply(opponent: Params, board: Tensor, key: Key) -> Tensor:
        """Return the board after the opponent's move, seen by the player; full boards stay."""
        distribution, _, _ = model.apply(opponent, look(-board), ())
        move = distribution.sample(key)
        free = (board == 0).any()
        return torch.where((torch.arange(9) == move) & free, -1.0, board)

    def reset(opponent: Params, key: Key) -> tuple[Tensor, ps.TimeStep]:
        coin_key, move_key = ps.keys.split(key)
        empty = torch.zeros(9)
        board = torch.where(ps.keys.uniform(coin_key) < 0.5, reply(opponent, empty, move_key), empty)
        return board, ps.first(look(board))

    def step(opponent: Params, board: Tensor, action: Tensor, key: Key) -> tuple[Tensor, ps.TimeStep]:
        own = torch.where(torch.arange(9) == action, 1.0, board)
        won = is_won(own)
        after = torch.where(won, own, reply(opponent, own, key))
        lost = ~won & is_won(-after)
        reward = won.float() - lost.float()
        return after, ps.following(look(after), reward, won | lost | (after != 0).all())

    return ps.Env(opponent, reset, step, SEEN, ps.Discrete(9))


Shares = tuple[float, float, float]


def against(game: ps.Env[Params, Tensor], model: ps.ActorCritic, params: Params, games: int = 400) -> Shares:
    """Return the shares of games that greedy play wins, draws and loses against the game's opponent."""
    returns = evaluate(game, model, episodes=games, steps=5)(params, (), ps.keys.key(2)).returns
    won, drawn, lost = (float((returns == result).float().mean()) for result in (1, 0, -1))
    return won, drawn, lost


def by_chance(model: ps.ActorCritic) -> ps.ActorCritic:
    """Return the model whose moves are uniform over the free squares."""

    def apply(params: Params, seen: dict[str, Tensor], memory: tuple[()]) -> tuple[ps.Categorical, Tensor, tuple[()]]:
        free = seen["action_mask"]
        return masked(torch.zeros(free.shape), free), torch.zeros(free.shape[:-1]), memory

    return attrs.evolve(model, apply=apply)


def learn(versions: int, iterations: int = ITERATIONS) -> tuple[ps.ActorCritic, Tensor]:
    """Return the model and the params [versions + 1, N] of each version, the untrained one first."""
    model = ps.flat(ps.actor_critic_mlp(SEEN, ps.Discrete(9), (64, 64)))
    every = model.init(ps.keys.key(0))[None]
    ppo = ps.ppo(model, ps.chain(ps.clip_by_global_norm(0.5), ps.adam(1e-3)), gamma=1.0)
    game, opponents = tic_tac_toe(model, every[0]), every.expand(ENVS, -1)
    trainer = ps.trainer(game, model, ppo, envs=ENVS, horizon=HORIZON, params=opponents, own_params=True)
    train = ps.program(ps.train(trainer, iterations))
    state = trainer.init(ps.keys.key(1))
    for version in range(versions):
        state, metrics = train(state)
        mean = metrics["return_sum"].sum() / metrics["episodes"].sum()
        print(f"version {version + 1} of {versions}: mean return {mean:.2f} against earlier ones", flush=True)
        every = torch.cat([every, state.learner.params[None]])
        drawn = ps.keys.randint(ps.keys.key(version), (ENVS,), 0, len(every))
        state = ps.replace(state, env_params=every[drawn])
    return model, every


def main(versions: int = VERSIONS, iterations: int = ITERATIONS) -> dict[str, Shares]:
    """Train, print and return the shares of games won, drawn and lost."""
    model, every = learn(versions, iterations)
    last = every[-1]
    opponents = {"chance": by_chance(model), "the first version": model, "the last version": model}
    params = {"chance": every[0], "the first version": every[0], "the last version": last}
    shares = {name: against(tic_tac_toe(other, params[name]), model, last) for name, other in opponents.items()}
    for name, (won, drawn, lost) in shares.items():
        print(f"against {name}: {won:.0%} won, {drawn:.0%} drawn, {lost:.0%} lost")
    return shares


if __name__ == "__main__":
    main()
