"""Gymnasium in both directions: our envs for its users, its envs for our rollout and trainer. Needs the extra `gym`."""

from .gymnasium_export import GymnasiumEnv as GymnasiumEnv
from .gymnasium_export import GymnasiumVectorEnv as GymnasiumVectorEnv
from .gymnasium_import import GymnasiumWorld as GymnasiumWorld
from .gymnasium_import import WorldError as WorldError
from .gymnasium_import import gymnasium_world as gymnasium_world
from .gymnasium_spaces import from_gymnasium as from_gymnasium
from .gymnasium_spaces import to_gymnasium as to_gymnasium
from .gymnasium_train import begin_anew as begin_anew
from .gymnasium_train import gymnasium_rollout as gymnasium_rollout
from .gymnasium_train import gymnasium_trainer as gymnasium_trainer
