"""The names of the worlds in `core.envs.ENVS`, for whoever needs no world yet: this module imports no torch."""

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
