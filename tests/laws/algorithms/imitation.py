"""Laws of the loss of imitation; the subject is f(model, params, demonstrations) -> []."""

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from purestep.algorithms.imitation import Demonstrations
from purestep.core.distributions import Categorical
from purestep.core.policy import ActorCritic
from purestep.core.record import replace
from purestep.core.tree import tree_map
from purestep.properties.framework.compare import ROUNDING, same
from purestep.properties.framework.law import Law, Seen, Suite, law_constructor
from purestep.properties.strategies.values import dyadic, integers

Loss = Callable[[ActorCritic, Any, Demonstrations], Tensor]
STATES, ACTIONS = 3, 4
SOURCE = "the definition: the mean of -log pi of the demonstrated actions"


def table_policy() -> ActorCritic:
    """Return a policy whose params are the logits of each state's actions [STATES, ACTIONS]."""

    def apply(params: Tensor, observation: Tensor, carry: Any) -> tuple[Categorical, Tensor, Any]:
        logits = params[observation]
        return Categorical(logits=logits), logits[..., 0], carry

    return ActorCritic(init=lambda key: torch.zeros(STATES, ACTIONS), apply=apply)


# --- mutants ---


def summed(subject: Loss) -> Loss:
    """Return the sum."""
    return lambda model, params, shown: subject(model, params, shown) * shown.action.shape[0]


def most_probable(subject: Loss) -> Loss:
    """Score the policy's most probable action."""

    def loss(model: ActorCritic, params: Any, shown: Demonstrations) -> Tensor:
        mode = model.apply(params, shown.observation, ())[0].mode()
        return subject(model, params, replace(shown, action=mode))

    return loss


MUTANTS: dict[str, Callable[[Loss], Loss]] = {"scores the most probable action": most_probable}


# --- laws ---


@st.composite
def cases(draw: DrawFn) -> tuple[Tensor, Demonstrations]:
    """Draw logits, and one to five demonstrations."""
    shape = (draw(st.integers(1, 5)),)
    shown = Demonstrations(observation=draw(integers(shape, 0, STATES)), action=draw(integers(shape, 0, ACTIONS)))
    return draw(dyadic((STATES, ACTIONS))), shown


def imitation_laws() -> Suite:
    """The laws of the loss of imitation."""
    return Suite("imitation_laws", (_definition(), _repetition()))


_law = law_constructor(cases, SOURCE)


def _definition() -> Law:
    def check(subject: Loss, case: tuple[Tensor, Demonstrations], seen: Seen) -> None:
        logits, shown = case
        seen("different actions", len(set(shown.action.tolist())) > 1)
        pairs = zip(shown.observation.tolist(), shown.action.tolist(), strict=True)
        each = [torch.logsumexp(logits[state], 0) - logits[state, action] for state, action in pairs]
        same("the loss", subject(table_policy(), logits, shown), torch.stack(each).mean(), ROUNDING)

    claim = "The loss is the mean of log sum_a exp(logit_a) - logit of the demonstrated action."
    return _law("definition", claim, ("scores the policy's own action", most_probable), check, "different actions")


def _repetition() -> Law:
    def check(subject: Loss, case: tuple[Tensor, Demonstrations], seen: Seen) -> None:
        logits, shown = case
        seen("a loss", float(logits.abs().max()) > 0)
        twice = tree_map(lambda leaf: torch.cat([leaf, leaf]), shown)
        same("twice as many", subject(table_policy(), logits, twice), subject(table_policy(), logits, shown), ROUNDING)

    claim = "Demonstrations shown twice change nothing."
    return _law("repetition", claim, ("takes the sum", summed), check, "a loss")
