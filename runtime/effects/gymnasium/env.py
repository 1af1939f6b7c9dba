"""Gymnasium in both directions: our envs for its users, its envs for our rollout and trainer. Needs the extra `gym`."""

from .export import GymnasiumEnv as GymnasiumEnv
from .export import GymnasiumVectorEnv as GymnasiumVectorEnv
from .importing import GymnasiumError as GymnasiumError
from .importing import GymnasiumWorld as GymnasiumWorld
from .importing import gymnasium_world as gymnasium_world
from .spaces import from_gymnasium as from_gymnasium
from .spaces import to_gymnasium as to_gymnasium
from .train import begin_anew as begin_anew
from .train import gymnasium_rollout as gymnasium_rollout
from .train import gymnasium_trainer as gymnasium_trainer
