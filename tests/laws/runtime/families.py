"""Families of laws of the runtime: identities, traces, derivatives, writes in place, products, bounds, stale actors."""

import torch

from purestep.properties.framework.families import Family, edits
from purestep.runtime.identity import identity
from purestep.runtime.inductor.products import VECTORS
from purestep.runtime.rollout import rollout

from .action_bounds import MUTANTS as ACTION_BOUNDS_MUTANTS
from .action_bounds import action_bounds_laws
from .direct_trace import MUTANTS as DIRECT_TRACE_MUTANTS
from .direct_trace import direct_trace_laws, interpreted
from .identity import MUTANTS as IDENTITY_MUTANTS
from .identity import identity_laws
from .in_place import MUTANTS as IN_PLACE_MUTANTS
from .in_place import in_place_laws, rewritten
from .products import MUTANTS as PRODUCT_MUTANTS
from .products import kernel, product_laws
from .scan_derivative import MUTANTS as SCAN_DERIVATIVE_MUTANTS
from .scan_derivative import scan_derivative_laws
from .stale_actor import MUTANTS as STALE_ACTOR_MUTANTS
from .stale_actor import lagging_laws, own_lagging


def families() -> list[Family]:
    """Return one subject for each suite; the kernel of products only where it is written for this processor."""
    written = torch.backends.cpu.get_cpu_capability() in VECTORS
    return [
        Family(direct_trace_laws(), interpreted, edits(DIRECT_TRACE_MUTANTS)),
        Family(scan_derivative_laws(), interpreted, edits(SCAN_DERIVATIVE_MUTANTS)),
        Family(in_place_laws(), rewritten, edits(IN_PLACE_MUTANTS)),
        Family(identity_laws(), identity, edits(IDENTITY_MUTANTS)),
        Family(action_bounds_laws(), rollout, edits(ACTION_BOUNDS_MUTANTS)),
        Family(lagging_laws(), own_lagging, edits(STALE_ACTOR_MUTANTS)),
        *([Family(product_laws(), kernel, edits(PRODUCT_MUTANTS))] if written else []),
    ]
