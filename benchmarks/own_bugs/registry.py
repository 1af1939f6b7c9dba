"""All bugs."""

from . import (
    advantages,
    distributions,
    envs,
    n_step,
    normalizers,
    optimizers,
    replay,
    schedules,
    targets,
    value_losses,
    vector_envs,
    wrappers,
)

MODULES = (
    advantages,
    distributions,
    envs,
    n_step,
    normalizers,
    optimizers,
    replay,
    schedules,
    targets,
    value_losses,
    vector_envs,
    wrappers,
)
ALL = [bug for module in MODULES for bug in module.BUGS]
