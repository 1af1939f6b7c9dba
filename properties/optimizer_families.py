"""The suites about optimisers and demonstrations, each beside a subject that obeys it and further edits."""

from collections.abc import Callable, Mapping
from typing import Any

from ..algorithms.supervised import cross_entropy
from ..core import optim
from ..core.language import demonstrations
from ..core.language.demonstrate import demonstrate
from ..core.muon import muon, orthogonal
from . import demonstration_mutants, muon_mutants, precision_mutants, supervised_mutants
from .demonstration_laws import demonstration_laws
from .demonstration_mutants import Showing
from .law import Subject, Suite
from .muon_laws import muon_laws
from .muon_mutants import Turning
from .precision_laws import precision_laws
from .precision_mutants import Descending
from .supervised_laws import supervised_laws

Edits = Mapping[str, Callable[[Any], Any]]


def own_muon() -> Turning:
    """Our own."""
    return Turning(muon, orthogonal)


def own_descending() -> Descending:
    """Our own AdamW, its gradients clipped and its rate changed on the way."""

    def make(rate: float) -> optim.Optimizer:
        schedule = optim.scale_by_schedule(optim.linear(1.0, 0.5, 10))
        return optim.chain(optim.clip_by_global_norm(1.0), optim.adamw(rate), schedule)

    return Descending(make, optim.apply_updates)


def own_showing() -> Showing:
    """Our own demonstrations."""
    return Showing(demonstrations.script, demonstrate)


def optimizer_families() -> list[tuple[Suite, Subject, Edits]]:
    """Suites, subjects and more edits."""
    return [
        (muon_laws(), own_muon(), muon_mutants.MUTANTS),
        (precision_laws(), own_descending(), precision_mutants.MUTANTS),
        (supervised_laws(), cross_entropy, supervised_mutants.MUTANTS),
        (demonstration_laws(), own_showing(), demonstration_mutants.MUTANTS),
    ]
