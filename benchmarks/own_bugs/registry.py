"""All bugs."""

from . import distributions, optimizers, schedules

ALL = [*distributions.BUGS, *optimizers.BUGS, *schedules.BUGS]
