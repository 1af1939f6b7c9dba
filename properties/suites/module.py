"""Laws of a pure network made from a module (P3), the pair (module, network); and of functions that evaluate a module."""

from collections.abc import Callable
from typing import Any

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from ...core import keys
from ...core.errors import ChoiceError, message
from ...core.tree import tree_map
from ..framework.compare import EXACT, require, same
from ..framework.law import Law, Mutant, Seen, Suite, always, law_constructor

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


def module_laws(
    inputs: SearchStrategy[Any] | None = None, *, evaluated: Callable[[], torch.nn.Module] | None = None
) -> Suite:
    """The laws of a pure network made from a module; the subject is the pair (module, network), called with `inputs`.

    `evaluated` makes a module instead, and the subject is a function that evaluates one: f(module) -> anything.

    >>> from purestep.properties import verify
    >>> def evaluate(module):
    ...     modes = {part: part.training for part in module.modules()}
    ...     module.eval()
    ...     loss = module(torch.ones(2)).sum()
    ...     for part, mode in modes.items():
    ...         part.training = mode
    ...     return loss
    >>> bool(verify(module_laws(evaluated=lambda: torch.nn.Linear(2, 1)), evaluate))
    True
    """
    if evaluated is not None:
        return Suite("module_laws", (_modes_stay(evaluated), _parameters_stay(evaluated)))
    if inputs is None:
        wanted, remedy = "inputs, or evaluated", "pass one of them"
        raise ChoiceError(message("module_laws", got="neither", wanted=wanted, remedy=remedy))
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


# --- evaluations ---
# Laws of functions that evaluate a module: f(module) -> anything.

Evaluate = Callable[[torch.nn.Module], Any]


def leaves_evaluation_mode(evaluate: Evaluate) -> Evaluate:
    """Leave the module in evaluation mode."""

    def wrong(module: torch.nn.Module) -> Any:
        found = evaluate(module)
        module.eval()
        return found

    return wrong


def goes_on_training(evaluate: Evaluate) -> Evaluate:
    """Take a small step, as statistics that are updated in training mode do."""

    def wrong(module: torch.nn.Module) -> Any:
        found = evaluate(module)
        with torch.no_grad():
            for leaf in module.parameters():
                leaf.add_(1e-3)
        return found

    return wrong


_evaluation = law_constructor(
    lambda: st.lists(st.booleans(), min_size=1, max_size=4), "torch.nn.Module: train() and eval()", most=6
)


def _in_modes(make: Callable[[], torch.nn.Module], modes: list[bool]) -> torch.nn.Module:
    module = make()
    for place, part in enumerate(module.modules()):
        part.training = modes[place % len(modes)]
    return module


def _modes_stay(make: Callable[[], torch.nn.Module]) -> Law:
    def check(evaluate: Evaluate, modes: list[bool], seen: Seen) -> None:
        module = _in_modes(make, modes)
        before = {name: part.training for name, part in module.named_modules()}
        seen("a part in training mode", any(before.values()))
        evaluate(module)
        changed = [name or "the module" for name, part in module.named_modules() if part.training != before[name]]
        require(not changed, f"after the evaluation {changed} are in another mode, training or evaluation")

    claim = "Each part of the module is in the mode it was in."
    mutant = ("leaves the module in evaluation mode", leaves_evaluation_mode)
    return _evaluation("modes_stay", claim, mutant, check, "a part in training mode")


def _parameters_stay(make: Callable[[], torch.nn.Module]) -> Law:
    def check(evaluate: Evaluate, modes: list[bool], seen: Seen) -> None:
        module = _in_modes(make, modes)
        before = {name: leaf.clone() for name, leaf in module.state_dict().items()}
        seen("a parameter", before)
        evaluate(module)
        same("the parameters and buffers after an evaluation", dict(module.state_dict()), before, EXACT)

    claim = "Parameters and buffers stay."
    return _evaluation("state_stays", claim, ("takes a small step", goes_on_training), check, "a parameter")
