"""All bugs."""

from . import distributions, n_step, normalizers, optimizers, replay, schedules, targets, value_losses

ALL = [
    *distributions.BUGS,
    *optimizers.BUGS,
    *schedules.BUGS,
    *replay.BUGS,
    *n_step.BUGS,
    *normalizers.BUGS,
    *value_losses.BUGS,
    *targets.BUGS,
]
