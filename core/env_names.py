"""The names of the environments in `core.envs.ENVS`, without importing torch."""

ENV_NAMES = (
    "cartpole",
    "pendulum",
    "acrobot",
    "mountain_car",
    "mountain_car_continuous",
    "gridworld",
    "probe_constant",
    "probe_observation",
    "probe_discount",
    "probe_action",
    "probe_both",
)
