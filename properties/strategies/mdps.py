"""Small Markov decision processes with exact answers: values, policy gradient, and every possible history.

All in float64; the record is `core.envs.tabular.TabularMDP`, so that a drawn process can also run as an environment.
"""

import math

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from torch import Tensor

from ...core.envs.tabular import TabularMDP
from ...core.errors import ShapeError, message
from .values import dyadic, probabilities

ENUMERABLE = 20_736  # histories; more would take too long


def continuing(mdp: TabularMDP) -> Tensor:
    """Return P(next state, and the episode goes on | state, action): [S, A, S]."""
    return mdp.transition * (1 - mdp.termination)


def expected_reward(mdp: TabularMDP) -> Tensor:
    """Return E[r | state, action]: [S, A]."""
    return (mdp.transition * mdp.reward).sum(-1)


def values(mdp: TabularMDP, policy: Tensor, gamma: float) -> Tensor:
    """Return V of a policy [S, A], the solution of V = r_pi + gamma P_pi V: [S].

    >>> loop = TabularMDP(transition=torch.ones(1, 1, 1), reward=torch.ones(1, 1, 1), termination=torch.zeros(1),
    ...                   initial=torch.ones(1))
    >>> values(loop, torch.ones(1, 1), 0.5)
    tensor([2.])
    """
    kernel = torch.einsum("sa,sat->st", policy, continuing(mdp))
    reward = (policy * expected_reward(mdp)).sum(-1)
    eye = torch.eye(len(reward), dtype=reward.dtype)
    solution: Tensor = torch.linalg.solve(eye - gamma * kernel, reward)
    return solution


def action_values(mdp: TabularMDP, policy: Tensor, gamma: float) -> Tensor:
    """Return Q(state, action) of a policy: [S, A]."""
    return expected_reward(mdp) + gamma * continuing(mdp) @ values(mdp, policy, gamma)


def objective(mdp: TabularMDP, policy: Tensor, gamma: float) -> Tensor:
    """Return J = E[V(first state)]: []."""
    return mdp.initial @ values(mdp, policy, gamma)


def exact_policy_gradient(mdp: TabularMDP, logits: Tensor, gamma: float) -> Tensor:
    """Return dJ/dlogits of softmax(logits), through the linear solve: [S, A]."""
    gradient: Tensor = torch.func.grad(lambda x: objective(mdp, x.softmax(-1), gamma))(logits)
    return gradient


@attrs.frozen
class Histories:
    """All N possible histories of H steps and their probabilities. After an ending the stream goes on in state 0."""

    probability: Tensor  # [N]
    state: Tensor  # [H, N]
    action: Tensor  # [H, N]
    next_state: Tensor  # [H, N]  before any reset
    reward: Tensor  # [H, N]
    terminated: Tensor  # [H, N]
    truncated: Tensor  # [H, N]

    @property
    def first_episode(self) -> Tensor:
        """Mask of the rows of the first episode, which starts at row 0: bool [H, N]."""
        over = (self.terminated | self.truncated).to(torch.int64)
        return over.cumsum(0) - over == 0


def histories(mdp: TabularMDP, policy: Tensor, horizon: int, *, truncated_at: int = -1) -> Histories:
    """Return all possible histories of `horizon` steps from the initial distribution under a policy.

    Each is truncated at step `truncated_at`, if that is not negative. Raises: ShapeError if there are too many.
    """
    state = mdp.initial.nonzero()[:, 0]
    probability = mdp.initial[state]
    rows: list[tuple[Tensor, ...]] = []
    for t in range(horizon):
        weights = probability[:, None, None] * policy[state][:, :, None] * mdp.transition[state]
        ends = torch.stack([1 - mdp.termination, mdp.termination], -1)
        joint = weights[..., None] * ends
        parent, action, following, flag = joint.nonzero().unbind(-1)
        if len(parent) > ENUMERABLE:
            remedy = "draw a smaller process or a shorter horizon"
            raise ShapeError(message("histories", got=len(parent), wanted=f"at most {ENUMERABLE}", remedy=remedy))
        probability = joint[parent, action, following, flag]
        rows = [tuple(column[parent] for column in row) for row in rows]
        before, over = state[parent], flag.bool()
        cut = torch.full_like(over, t == truncated_at)
        rows.append((before, action, following, mdp.reward[before, action, following], over, cut))
        state = torch.where(over | cut, 0, following)
    columns = [torch.stack(column) for column in zip(*rows, strict=True)]
    return Histories(probability, *columns)


@st.composite
def tabular_mdps(draw: DrawFn, states: int = 3, actions: int = 2) -> TabularMDP:
    """Processes of two to `states` states and up to `actions` actions; probabilities are multiples of 1/8, rewards of 1/4."""
    s, a = draw(st.integers(min(2, states), states)), draw(st.integers(1, actions))
    return TabularMDP(
        transition=draw(probabilities((s, a, s), parts=8)),
        reward=draw(dyadic((s, a, s), limit=4, dtype=torch.float64)),
        termination=draw(probabilities((s, 2), parts=4))[:, 1],
        initial=torch.full((s,), 1.0 / s, dtype=torch.float64),
    )


@st.composite
def layered_mdps(draw: DrawFn, horizon: int = 3, width: int = 2, actions: int = 2, parts: int = 8) -> TabularMDP:
    """Processes that end within `horizon` steps: every step leads to the next layer of `width` states, or to the end."""
    steps = draw(st.integers(1, horizon))
    states = steps * width + 1
    rows = draw(probabilities((steps, width, actions, width + 1), parts=parts))
    transition = torch.zeros(states, actions, states, dtype=torch.float64)
    transition[-1, :, -1] = 1.0
    for layer in range(steps):
        here = slice(layer * width, (layer + 1) * width)
        transition[here, :, -1] = rows[layer, :, :, -1]
        if layer + 1 < steps:
            transition[here, :, (layer + 1) * width : (layer + 2) * width] = rows[layer, :, :, :-1]
        else:
            transition[here, :, -1] = 1.0
    termination = torch.zeros(states, dtype=torch.float64)
    termination[-1] = 1.0
    initial = torch.zeros(states, dtype=torch.float64)
    initial[:width] = draw(probabilities((width,), parts=4))
    reward = draw(dyadic((states, actions, states), limit=4, dtype=torch.float64))
    return TabularMDP(transition=transition, reward=reward, termination=termination, initial=initial)


def policies(mdp: TabularMDP, *, zeros: bool = False) -> SearchStrategy[Tensor]:
    """Policies [S, A] for a process; probabilities are multiples of 1/8."""
    return probabilities(tuple(mdp.transition.shape[:2]), parts=8, zeros=zeros)


def logits_of(policy: Tensor) -> Tensor:
    """Return the logits of a policy without zeros."""
    return policy.log()


def chain_of_states(length: int, gamma: float) -> tuple[TabularMDP, Tensor]:
    """Return a chain of `length` steps to a reward of 1, and its values gamma^(length - 1 - s) in closed form.

    >>> chain_of_states(2, 0.5)[1]
    tensor([0.5000, 1.0000, 0.0000], dtype=torch.float64)
    """
    states = length + 1
    transition = torch.zeros(states, 1, states, dtype=torch.float64)
    for s in range(states):
        transition[s, 0, min(s + 1, length)] = 1.0
    reward = torch.zeros_like(transition)
    reward[length - 1, 0, length] = 1.0
    ending = (torch.arange(states) == length).to(torch.float64)
    initial = (torch.arange(states) == 0).to(torch.float64)
    exact = [math.pow(gamma, length - 1 - s) if s < length else 0.0 for s in range(states)]
    mdp = TabularMDP(transition=transition, reward=reward, termination=ending, initial=initial)
    return mdp, torch.tensor(exact, dtype=torch.float64)
