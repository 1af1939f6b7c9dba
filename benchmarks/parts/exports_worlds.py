"""Environments and networks that a user would write, for `exports`: an image and a number, as a dict and in a file."""

from typing import Any

import torch
from torch import Tensor

import purestep as ps
from purestep import keys

CAMERA = '''"""A camera over a target: an image of 8 x 8 and the speed, as a record; actions move within a Box."""

import torch
import purestep as ps


@ps.record
class View:
    image: torch.Tensor = ps.tensor("* 1 8 8", "float")
    speed: torch.Tensor = ps.tensor("* 2", "float")


@ps.record
class Eye:
    place: torch.Tensor = ps.tensor("* 2", "float")
    speed: torch.Tensor = ps.tensor("* 2", "float")


def look(eye):
    grid = torch.arange(8.0) / 3.5 - 1.0
    near = (grid[:, None] - eye.place[0]) ** 2 + (grid[None, :] - eye.place[1]) ** 2
    return View(image=torch.exp(-4.0 * near)[None], speed=eye.speed)


def reset(params, key):
    eye = Eye(place=2 * ps.keys.uniform(key, (2,)) - 1, speed=torch.zeros(2))
    return eye, ps.first(look(eye))


def step(params, eye, action, key):
    speed = 0.8 * eye.speed + action
    eye = Eye(place=(eye.place + speed).clamp(-1.5, 1.5), speed=speed)
    return eye, ps.following(look(eye), -eye.place.square().sum(), eye.place.square().sum() > 4.0)


views = ps.Fields((("image", ps.Box(0.0, 1.0, (1, 8, 8))), ("speed", ps.Box(-9.0, 9.0, (2,)))))
CAMERA = ps.time_limit(ps.Env((), reset, step, views, ps.Box(-0.2, 0.2, (2,))), 25)
'''


class Eye(torch.nn.Module):
    """Convolutions over an image, and a perceptron of what they find and a number."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.see = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten()
        )
        self.judge = torch.nn.Sequential(torch.nn.Linear(8 * 9 + 1, 16), torch.nn.Tanh(), torch.nn.Linear(16, outputs))

    def forward(self, image: Tensor, wind: Tensor) -> Tensor:
        """Return the outputs [B, outputs]."""
        found: Tensor = self.judge(torch.cat([self.see(image), wind[..., None]], -1))
        return found


def eyes() -> tuple[ps.Env[Any, Any], ps.ActorCritic]:
    """Return an env whose observation is a dict with an image, and an actor-critic of modules for it."""

    def look(place: Tensor, wind: Tensor) -> dict[str, Tensor]:
        grid = torch.arange(8.0, device=place.device) / 3.5 - 1.0
        near = (grid[:, None] - place) ** 2 + grid[None, :] ** 2
        return {"image": torch.exp(-4.0 * near)[None], "wind": wind}

    def reset(params: Any, key: keys.Key) -> Any:
        state = 2 * keys.uniform(key) - 1, torch.zeros((), device=key.device)
        return state, ps.first(look(*state))

    def step(params: Any, state: Any, action: Tensor, key: keys.Key) -> Any:
        wind = 0.1 * keys.normal(key)
        place = (state[0] + 0.2 * (action - 1) + wind).clamp(-1.5, 1.5)
        return (place, wind), ps.following(look(place, wind), -place.abs(), place.abs() > 1.4)

    space = ps.Fields((("image", ps.Box(0.0, 1.0, (1, 8, 8))), ("wind", ps.Box(-1.0, 1.0, ()))))
    env = ps.time_limit(ps.Env((), reset, step, space, ps.Discrete(3)), 25)
    torch.manual_seed(0)

    def network(outputs: int) -> ps.Network:
        return ps.functional(Eye(outputs), arguments=lambda x: ((x["image"], x["wind"]), {}))

    return env, ps.separate(ps.categorical_head(network(3)), ps.scalar(network(1)))
