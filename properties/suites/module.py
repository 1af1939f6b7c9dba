"""Laws of a pure network made from a module (P3); the subject is the pair (module, network)."""

from typing import Any

import attrs
import torch
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from ...core import keys
from ...core.tree import tree_map
from ..framework.compare import EXACT, same
from ..framework.law import Law, Mutant, Seen, Suite, always

# --- mutants ---
# Common errors in functional forms of modules.


Pair = tuple[torch.nn.Module, Any]


def zero_biases(pair: Pair) -> Pair:
    """Initialise the biases to 0, whatever the module's biases are."""
    module, network = pair

    def init(key: Tensor) -> dict[str, Tensor]:
        params = network.init(key)
        return {name: torch.zeros_like(leaf) if "bias" in name else leaf for name, leaf in params.items()}

    return module, attrs.evolve(network, init=init)


def loads_parameters(pair: Pair) -> Pair:
    """Load the parameters into the module before each call."""
    module, network = pair

    def apply(params: dict[str, Tensor], x: Any) -> Any:
        module.load_state_dict({**module.state_dict(), **{name: leaf.detach() for name, leaf in params.items()}})
        return module(x)

    return module, attrs.evolve(network, apply=apply)


# --- laws ---


def module_laws(inputs: SearchStrategy[Any]) -> Suite:
    """The laws of a pure network made from a module; the subject is the pair (module, network)."""
    return Suite("module_laws", (_same_call(inputs), _untouched(inputs)))


MODULE = "core.networks.functional: a module as a pure network"


def _same_call(inputs: SearchStrategy[Any]) -> Law:
    def check(pair: Pair, x: Any, seen: Seen) -> None:
        module, network = pair
        params = network.init(keys.key(0))
        same("apply(init, x) against module(x)", network.apply(params, x), module(x), EXACT)

    return Law(
        name="functional_is_module",
        claim="The network on the module's own parameters gives what the module gives.",
        source=MODULE,
        inputs=always(inputs),
        check=check,
        mutant=Mutant("leaves out the parameters that have no gradient yet", zero_biases),
    )


def _untouched(inputs: SearchStrategy[Any]) -> Law:
    def check(pair: Pair, x: Any, seen: Seen) -> None:
        module, network = pair
        params = network.init(keys.key(0))
        before = [leaf.detach().clone() for leaf in module.state_dict().values()]
        own = network.apply(params, x).detach()
        other = network.apply(tree_map(lambda leaf: leaf + 1, params), x).detach()
        same("the module's state", [leaf.detach() for leaf in module.state_dict().values()], before)
        seen("parameters that matter", (own != other).any())

    return Law(
        name="parameters_are_the_argument",
        claim="Other parameters give other results, and the module stays as it was.",
        source=MODULE,
        inputs=always(inputs),
        check=check,
        mutant=Mutant("loads the parameters into the module", loads_parameters),
        needs=("parameters that matter",),
    )
