"""Each object beside an independent computation: by definition, by enumeration, by torch's own, or by hand."""

import math
import random
from collections.abc import Callable
from itertools import combinations
from typing import Any

import gymnasium
import numpy as np
import torch
import torch.nn.functional as F
from gymnasium.utils.env_checker import check_env

from . import advantages as a
from . import graphs as g
from . import language as x
from . import losses as o
from . import training as t
from . import worlds as w

R, V, N = (torch.tensor(row) for row in ([1.0, -2.0, 0.5, 3.0], [0.3, 0.1, -0.4, 0.2], [0.1, -0.4, 0.2, 0.7]))
D, NONE = torch.tensor([0.0, 1.0, 0.0, 0.0]), torch.zeros(4)
LP, OLD, ADV = torch.tensor([-0.5, -1.0, -2.0]), torch.tensor([-0.9, -1.05, -1.2]), torch.tensor([1.0, -1.5, 2.0])


def near(got: Any, wanted: Any) -> bool:
    """Whether numbers are those wanted."""
    return bool(
        np.allclose(np.asarray(got, dtype=np.float64), np.asarray(wanted, dtype=np.float64), atol=1e-4, equal_nan=True)
    )


def summed(values: Any, after: Any, ends: Any, gamma: float, lam: float) -> list[float]:
    """Advantages as double sums of temporal-difference errors: sum over l of (gamma lambda)^l delta_{t + l}, to the end."""
    delta = [float(R[i] + gamma * after[i] * (1 - ends[i]) - values[i]) for i in range(4)]
    out = []
    for i in range(4):
        last = next((k for k in range(i, 4) if ends[k]), 3)
        out.append(sum((gamma * lam) ** (k - i) * delta[k] for k in range(i, last + 1)))
    return out


LAST = float(N[-1])
FULL = summed(V, N, D, 0.9, 0.8)
OPEN = summed(V, N, NONE, 0.9, 0.8)
LONG = torch.cat([V, N[-1:]])


def to_go(ends: Any, gamma: float = 0.9, beyond: float = 0.0) -> list[float]:
    """Sums of discounted rewards, by definition."""
    out = []
    for i in range(4):
        last = next((k for k in range(i, 4) if ends[k]), 3)
        open_ = 0.0 if ends[last] else gamma ** (last + 1 - i) * beyond
        out.append(sum(gamma ** (k - i) * float(R[k]) for k in range(i, last + 1)) + open_)
    return out


def n_steps() -> list[float]:
    """Returns of two steps, by definition."""
    out = []
    for i in range(4):
        last = min(next((k for k in range(i, 4) if D[k]), 3), i + 1)
        tail = 0.0 if D[last] else 0.9 ** (last + 1 - i) * float(N[last])
        out.append(sum(0.9 ** (k - i) * float(R[k]) for k in range(i, last + 1)) + tail)
    return out


def surrogate(low: float = 0.2, high: float = 0.2) -> torch.Tensor:
    """PPO's objective by cases."""
    out = []
    for p, q, adv in zip(LP.tolist(), OLD.tolist(), ADV.tolist(), strict=True):
        ratio = math.exp(p - q)
        bounded = min(max(ratio, 1 - low), 1 + high)
        out.append(min(ratio * adv, bounded * adv))
    return torch.tensor(out)


RHO = torch.tensor([0.5, 2.0, 1.0, 1.5])


def vtrace(ends: Any) -> list[float]:
    """v_s = V_s + sum over t of gamma^(t-s) (prod c) rho_t delta_t, by definition."""
    bounded = RHO.clamp(max=1).tolist()
    out = []
    for s in range(4):
        total, weight = float(V[s]), 1.0
        for i in range(s, 4):
            delta = float(R[i] + 0.9 * (1 - ends[i]) * N[i] - V[i])
            total += 0.9 ** (i - s) * weight * bounded[i] * delta
            weight *= bounded[i]
            if ends[i]:
                break
        out.append(total)
    return out


Q = torch.tensor([[1.0, 3.0], [2.0, -1.0], [0.0, 0.5], [4.0, 2.0]])
Q2 = Q.flip(1) * 0.5
M = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
TLP, TOLD = LP.expand(2, 3), OLD.expand(2, 3)


def retrace() -> list[float]:
    """By definition, with Q the values and V the next ones."""
    out = []
    for s in range(4):
        total, weight = float(V[s]), 1.0
        for i in range(s, 4):
            if i > s:
                weight *= 0.9 * min(1.0, float(RHO[i]))
            total += weight * float(R[i] + 0.9 * (1 - D[i]) * N[i] - V[i])
            if D[i]:
                break
        out.append(total)
    return out


def of_column(x_: torch.Tensor) -> torch.Tensor:
    """[B, T] twice, for functions of batches."""
    return torch.stack([x_, x_])


def of_module() -> bool:
    """Statistics of two batches are those of both together."""
    data = torch.randn(50, 3, dtype=torch.float64)
    made = t.ObsNormalizer(3)
    made.update(data[:20])
    made.update(data[20:])
    return near(made.mean, data.mean(0)) and near(made.var, data.var(0, unbiased=False))


def of_moments() -> bool:
    """The same in numpy, from an empty prior."""
    data = np.random.default_rng(0).normal(size=(50, 3))
    made = t.RunningMeanStd(1e-12, (3,))
    made.update(data[:7])
    made.update(data[7:])
    return near(made.mean, data.mean(0)) and near(made.var, data.var(0))


def of_welford() -> bool:
    """One by one."""
    data = np.random.default_rng(1).normal(size=(30, 2))
    made = t.WelfordNormalizer(2)
    for row in data:
        made.observe(row)
    return near(made(data[3]), np.clip((data[3] - data.mean(0)) / data.std(0), -5, 5))


def of_scaler() -> bool:
    """The deviation of discounted sums so far."""
    made, sums, total, out = t.RewardScaler(0.9), [], 0.0, []
    for reward in (1.0, -2.0, 3.0):
        total = reward + 0.9 * total
        sums.append(total)
        out.append(near(made(reward, False), np.clip(reward / (np.std(sums) if len(sums) > 1 else 1.0), -10, 10)))
    return all(out)


def optimised(make: Any, theirs: Any) -> bool:
    """Five steps beside torch's own."""
    torch.manual_seed(0)
    start, grads = torch.randn(4), torch.randn(5, 4)
    ends = []
    for one in (make, theirs):
        p = torch.nn.Parameter(start.clone())
        optimizer = one([p])
        for grad in grads:
            p.grad = grad.clone()
            optimizer.step()
        ends.append(p.detach())
    return near(*ends)


def signed() -> bool:
    """Each step is the rate times a sign."""
    p = torch.nn.Parameter(torch.zeros(3))
    p.grad = torch.tensor([2.0, -0.1, 0.0])
    t.SignSGD([p], lr=0.5).step()
    return near(p.detach(), [-0.5, 0.5, 0.0])


def filled(make: Any, add: Any, sample: Any) -> bool:
    """Every sampled row is one of the newest four that were added."""
    made = make()
    for i in range(6):
        add(made, i)
    rows = sample(made)
    return all(obs in (2, 3, 4, 5) and after == obs + 1 and reward == 10 * obs for obs, reward, after in rows)


def tuples(columns: Any) -> list[tuple[float, float, float]]:
    """Rows (obs, reward, next_obs) of columns."""
    return [tuple(float(np.asarray(c[i]).reshape(-1)[0]) for c in columns) for i in range(len(columns[0]))]  # type: ignore[misc]


def of_keys(sample: Any, names: Any) -> list[tuple[float, float, float]]:
    """Rows of one sample."""
    return tuples([sample[name] for name in names])


def summing() -> bool:
    """Priorities and their places by a running sum."""
    tree, p = t.SumSegmentTree(5), [1.0, 0.5, 2.0, 0.0, 0.5]
    for i, one in enumerate(p):
        tree.update(i, one)
    edges = np.cumsum(p)
    return tree.total() == 4 and all(
        tree.retrieve(m) == int(np.searchsorted(edges, m, side="right")) for m in (0, 0.9, 1, 1.6, 3.7)
    )


def prioritised() -> bool:
    """Rows are drawn in proportion to powers of priorities."""
    np.random.seed(0)
    made = t.PrioritizedBuffer(4, alpha=0.5)
    for i in range(4):
        made.add(i, 0, 10 * i, i + 1, False)
    made.update_priorities(range(4), [1.0, 4.0, 9.0, 16.0])
    *_, weights, idx = made.sample(8000, beta=1.0)
    share = np.bincount(idx, minlength=4) / 8000
    return bool(np.abs(share - np.array([1, 2, 3, 4]) / 10).max() < 0.02) and near(weights.max(), 1)


def stored() -> bool:
    """Rows in their order, around the end."""
    made = t.RolloutStorage(2, 3, (1,))
    for i in range(3):
        made.insert(torch.full((3, 1), float(i)), torch.full((3,), float(i)))
    return near(made.rewards[:, 0], [2, 1]) and made.step == 1


def gaussian(made: Any, theirs: Any, value: Any) -> bool:
    """Log-probs beside torch's."""
    return near(made.log_prob(value), theirs.log_prob(value).sum(-1))


MU, LS = torch.tensor([[0.3, -0.2]]), torch.tensor([[-0.5, 0.1]])
SQUASHED = torch.distributions.TransformedDistribution(
    torch.distributions.Normal(MU, LS.exp()), torch.distributions.transforms.TanhTransform()
)


def masked_categorical() -> bool:
    """Beside torch's over the legal actions."""
    logits, mask = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[True, False, True]])
    made = t.MaskedCategorical(logits, mask)
    theirs = torch.distributions.Categorical(logits=logits[:, [0, 2]])
    return near(made.log_prob(torch.tensor([2])), theirs.log_prob(torch.tensor([1]))) and near(
        made.entropy(), theirs.entropy()
    )


def polyak() -> bool:
    """A convex combination."""
    one, two = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    wanted = 0.9 * two.weight.detach() + 0.1 * one.weight.detach()
    t.polyak_update(one, two, tau=0.1)
    return near(two.weight.detach(), wanted)


def environment(env: Any) -> bool:
    """Gymnasium's own checker."""
    check_env(env, skip_render_check=True)
    return True


def walked(env: Any, inner: Any, actions: Any) -> tuple[list[Any], list[Any]]:
    """The same walk through a wrapper and through the inner environment."""
    found = []
    for one in (env, inner):
        one.reset(seed=0)
        found.append([one.step(action)[:2] for action in actions])
    return found[0], found[1]


def cart() -> Any:
    """CartPole."""
    return gymnasium.make("CartPole-v1").unwrapped


def rewards_of(env: Any) -> list[float]:
    """Rewards of a walk through CartPole."""
    return [float(row[1]) for row in walked(env, cart(), [0, 1, 1])[0]]


def boxed() -> bool:
    """The ends of an action's range are those of the inner one, and the middle its middle."""
    env = w.NormalizedBox(gymnasium.make("Pendulum-v1"))
    return near([env.action(np.array([z], np.float32))[0] for z in (-1, 0, 1)], [-2, 0, 2])


def sticky() -> bool:
    """Always repeating is playing the first action; never repeating is the inner environment."""
    first, _ = walked(w.StickyAction(cart(), 1.0), cart(), [0, 1, 1])
    _, same = walked(cart(), cart(), [0, 0, 0])
    plain, inner = walked(w.StickyAction(cart(), 0.0), cart(), [0, 1, 1])
    return near([row[0] for row in first], [row[0] for row in same]) and near(
        [r[0] for r in plain], [r[0] for r in inner]
    )


def nucleus() -> bool:
    """The smallest set by sorting probabilities by hand."""
    probs = torch.tensor([0.5, 0.3, 0.15, 0.05])
    kept = x.top_p_filter(probs.log(), 0.7).isfinite().tolist()
    return kept == [True, True, False, False]


def sampled() -> bool:
    """Frequencies are probabilities."""
    logits = torch.tensor([0.2, 0.8]).log().expand(20000, 2)
    torch.manual_seed(0)
    return abs(float(x.sample_token(logits).float().mean()) - 0.8) < 0.02 and int(x.sample_token(logits, 0)[0]) == 1


def grouped(rows: Any, wanted: Callable[[Any], Any]) -> list[float]:
    """A function of each group of three."""
    return [float(v) for i in (0, 3) for v in wanted(np.array(rows[i : i + 3]))]


SIX = torch.tensor([1.0, 2.0, 4.0, 0.0, 0.5, 3.0])
TALK = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
CALL = '<tool_call>{"name": "add", "arguments": {"x": {"y": 1}}}</tool_call>'
TERM = ("f", "X", ("g", "Y"))

CHECKS: dict[str, Callable[[], bool]] = {
    "compute_gae": lambda: near(a.compute_gae(R, V, N, D, NONE, 0.9, 0.8), FULL),
    "gae_from_rollout": lambda: near(a.gae_from_rollout(R, V, D, LAST, 0.9, 0.8)[0], FULL),
    "estimate_advantages": lambda: near(
        a.estimate_advantages(
            reward_buf=R.tolist(),
            value_buf=V.tolist(),
            masks=(1 - D).tolist(),
            bootstrap_value=LAST,
            discount_factor=0.9,
            lmbda=0.8,
        ),
        FULL,
    ),
    "gae_batch_first": lambda: near(a.gae_batch_first(0.9, 0.8, of_column(R), of_column(LONG), of_column(D))[1], FULL),
    "discounted_gae": lambda: near(a.discounted_gae(R + 0.9 * (1 - D) * N - V, 0.9 * (1 - D), 0.8), FULL),
    "finish_path": lambda: near(a.finish_path(R.numpy(), V.numpy(), LAST, 0.9, 0.8)[0], OPEN),
    "GAE": lambda: near(a.GAE(0.9, 0.8)(R, V, D, N[-1]), FULL),
    "gae_scan": lambda: near(a.gae_scan(R, V, D, N[-1], 0.9, 0.8), FULL),
    "discounted_returns": lambda: near(a.discounted_returns(R.tolist(), 0.9), to_go(NONE)),
    "rewards_to_go": lambda: near(a.rewards_to_go(R, D, 0.9), to_go(D)),
    "td_lambda_returns": lambda: (
        near(a.td_lambda_returns(R, N, D, 0.9, 1.0), to_go(D, beyond=LAST))
        and near(a.td_lambda_returns(R, N, D, 0.9, 0.0), R + 0.9 * (1 - D) * N)
    ),
    "lambda_target": lambda: near(a.lambda_target(R, V, 0.9 * (1 - D), N[-1], 0.8), V + torch.tensor(FULL)),
    "n_step_returns": lambda: near(a.n_step_returns(R, N, D, 0.9, 2), n_steps()),
    "td_target": lambda: near(a.td_target(R, D, N, 0.9), [1.09, -2.0, 0.68, 3.63]),
    "dqn_target": lambda: near(a.dqn_target(R, Q, D, 0.9), [3.7, -2.0, 0.95, 6.6]),
    "double_q_target": lambda: near(
        a.double_q_target(Q, Q2, R, D, 0.9),
        [float(R[i]) + 0.9 * (1 - float(D[i])) * float(Q2[i][int(Q[i].argmax())]) for i in range(4)],
    ),
    "clipped_double_q_target": lambda: near(a.clipped_double_q_target(N, V, R, D, 0.9), [1.09, -2.0, 0.14, 3.18]),
    "sac_target": lambda: near(a.sac_target(N, V, torch.full((4,), -2.0), R, D, 0.5, 0.9), [1.99, -2.0, 1.04, 4.08]),
    "vtrace_from_ratios": lambda: near(a.vtrace_from_ratios(RHO.log(), 0.9 * (1 - D), R, V, N[-1])[0], vtrace(D)),
    "vtrace_targets": lambda: near(a.vtrace_targets(NONE, RHO.log(), R, V, N, D, NONE, 0.9), vtrace(D)),
    "retrace": lambda: near(a.retrace(V, N, R, D, RHO, 0.9), retrace()),
    "whiten_advantages": lambda: near(
        a.whiten_advantages(R, 1 - D)[[0, 2, 3]], (R[[0, 2, 3]] - R[[0, 2, 3]].mean()) / R[[0, 2, 3]].std()
    ),
    "ppo_policy_loss": lambda: near(o.ppo_policy_loss(LP - OLD, ADV), -surrogate().mean()),
    "clipped_surrogate": lambda: near(o.clipped_surrogate(LP, OLD, ADV), surrogate()),
    "ppo_loss": lambda: near(o.ppo_loss(ADV, LP, OLD), -surrogate()),
    "policy_loss_asymmetric": lambda: near(o.policy_loss_asymmetric(LP, OLD, ADV), -surrogate(0.2, 0.28).mean()),
    "dual_clip_policy_loss": lambda: (
        near(o.dual_clip_policy_loss(LP, OLD, ADV), -surrogate().mean())
        and near(o.dual_clip_policy_loss(torch.tensor([2.0]), torch.zeros(1), torch.tensor([-1.0])), 3.0)
    ),
    "ClipLoss": lambda: near(o.ClipLoss()(LP, OLD, ADV), -surrogate().mean()),
    "grpo_loss": lambda: near(o.grpo_loss(TLP, TLP, torch.tensor([2.0, -1.0]), M), -(2.0 - 1.0) / 2),
    "dapo_loss": lambda: near(
        o.dapo_loss(TLP, TOLD, ADV.expand(2, 3), M), -(2 * surrogate(0.2, 0.28)[0] + surrogate(0.2, 0.28)[1]) / 3
    ),
    "gspo_loss": lambda: near(
        o.gspo_loss(TLP, TOLD, torch.tensor([1.0, 1.0]), M, 10.0), -(math.exp((0.4 + 0.05) / 2) + math.exp(0.4)) / 2
    ),
    "reinforce_loss": lambda: near(o.reinforce_loss(LP, ADV), 3.0 / 3),
    "a2c_policy_loss": lambda: near(o.a2c_policy_loss(LP, ADV, torch.tensor([0.5, 0.7, 0.9])), 1.0 - 0.007),
    "dpo_loss": lambda: near(
        o.dpo_loss(LP, OLD, torch.zeros(3), torch.zeros(3)), [math.log(1 + math.exp(-0.1 * float(d))) for d in LP - OLD]
    ),
    "value_loss": lambda: near(o.value_loss(V, R), 0.5 * F.mse_loss(V, R)),
    "clipped_value_loss": lambda: near(
        o.clipped_value_loss(V, V + 1.0, R, 0.2),
        0.5 * np.mean([max((v - r) ** 2, (v + 0.8 - r) ** 2) for v, r in zip(V.tolist(), R.tolist(), strict=True)]),
    ),
    "value_function_loss": lambda: near(
        o.value_function_loss(V, R, V - 2.0),
        [max((v - r) ** 2, (v - 1.5 - r) ** 2) for v, r in zip(V.tolist(), R.tolist(), strict=True)],
    ),
    "critic_mse": lambda: near(o.critic_mse(V, R), 0.5 * F.mse_loss(V, R)),
    "huber_td_loss": lambda: near(o.huber_td_loss(V, R), F.huber_loss(V, R)),
    "quantile_huber_loss": lambda: near(
        o.quantile_huber_loss(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5]])), 0.25 * 0.125 + 0.25 * 0.125
    ),
    "kl_k1": lambda: near(o.kl_k1(LP, OLD), LP - OLD),
    "kl_k2_penalty": lambda: near(o.kl_k2_penalty(LP, OLD), [0.08, 0.00125, 0.32]),
    "low_variance_kl": lambda: near(o.low_variance_kl(LP, OLD), [math.exp(-d) + d - 1 for d in (LP - OLD).tolist()]),
    "approx_kl_mean": lambda: near(
        o.approx_kl_mean(LP, OLD), np.mean([math.exp(d) - 1 - d for d in (LP - OLD).tolist()])
    ),
    "kl_by_name": lambda: near(o.kl_by_name(LP, OLD), [math.exp(-d) + d - 1 for d in (LP - OLD).tolist()]),
    "gaussian_kl": lambda: near(
        o.gaussian_kl(MU, LS.exp(), MU + 1, 2 * LS.exp()),
        torch.distributions.kl_divergence(
            torch.distributions.Normal(MU, LS.exp()), torch.distributions.Normal(MU + 1, 2 * LS.exp())
        ).sum(-1),
    ),
    "categorical_kl": lambda: near(
        o.categorical_kl(Q, Q2),
        torch.distributions.kl_divergence(*(torch.distributions.Categorical(logits=z) for z in (Q, Q2))),
    ),
    "entropy_from_logits": lambda: near(o.entropy_from_logits(Q), torch.distributions.Categorical(logits=Q).entropy()),
    "selective_log_softmax": lambda: near(
        o.selective_log_softmax(Q[None], torch.tensor([[0, 1, 0, 1]])),
        torch.distributions.Categorical(logits=Q).log_prob(torch.tensor([0, 1, 0, 1]))[None],
    ),
    "truncated_importance_weights": lambda: near(
        o.truncated_importance_weights(LP, OLD, torch.tensor([1.0, 0.0, 1.0]), 1.2), [1.2, 0, math.exp(-0.8)]
    ),
    "masked_mean": lambda: near(o.masked_mean(R, 1 - D), 1.5),
    "explained_variance": lambda: near(o.explained_variance(V, R), 1 - np.var((R - V).numpy()) / np.var(R.numpy())),
    "aggregate_loss": lambda: (
        near(o.aggregate_loss(TLP, M), -2.0 / 3) and near(o.aggregate_loss(TLP, M, "seq"), (-0.75 - 0.5) / 2)
    ),
    "accuracy_reward": lambda: x.accuracy_reward(["so \\boxed{5}", "\\boxed{6}", "5"], ["5", "5", "5"]) == [1, 0, 0],
    "format_reward": lambda: (
        x.format_reward([""] * 2, [[{"content": "<think>a</think> <answer>b</answer>"}], [{"content": "b"}]])
        == [0.5, 0]
    ),
    "length_penalty_reward": lambda: near(x.length_penalty_reward(["a" * 10, "a" * 25, "a" * 99]), [0, -0.25, -1]),
    "compute_score": lambda: [x.compute_score(s, "1200") for s in ("#### 1,200", "#### 7", "1200")] == [1, 0, 0],
    "reverse_text_reward": lambda: near(x.reverse_text_reward("abx", "abcd"), 0.5),
    "ExactMatchReward": lambda: x.ExactMatchReward()([" A", "b"], ["a", "c"]) == [1, 0],
    "is_equiv": lambda: x.is_equiv("1,000", "1000.0") and not x.is_equiv("1/3", "0.33") and x.is_equiv("a ", "a"),
    "extract_boxed": lambda: (
        x.extract_boxed("\\boxed{1} \\boxed{\\frac{1}{2}}") == "\\frac{1}{2}" and x.extract_boxed("5") is None
    ),
    "top_k_filter": lambda: (
        x.top_k_filter(torch.tensor([[1.0, 3.0, 2.0]]), 2).isfinite().tolist() == [[False, True, True]]
    ),
    "top_p_filter": nucleus,
    "min_p_filter": lambda: (
        x.min_p_filter(torch.tensor([0.6, 0.3, 0.1]).log(), 0.4).isfinite().tolist() == [True, True, False]
    ),
    "sample_token": sampled,
    "pad_sequences": lambda: x.pad_sequences([[1, 2], [3]], 0, side="left")[0].tolist() == [[1, 2], [0, 3]],
    "truncate_at_stop": lambda: x.truncate_at_stop("a</s>b<|im_end|>") == "a" and x.truncate_at_stop("a") == "a",
    "completion_mask": lambda: (
        x.completion_mask(torch.tensor([[5, 2, 2, 7], [5, 7, 1, 1]]), 2).tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    ),
    "compute_grpo_advantages": lambda: near(
        x.compute_grpo_advantages(SIX, 3), grouped(SIX.tolist(), lambda z: (z - z.mean()) / (z.std(ddof=1) + 1e-4))
    ),
    "grpo_outcome_advantage": lambda: near(
        x.grpo_outcome_advantage(SIX, torch.tensor([7, 7, 7, 1, 1, 1])),
        grouped(SIX.tolist(), lambda z: (z - z.mean()) / z.std(ddof=1)),
    ),
    "rloo_advantages": lambda: near(
        x.rloo_advantages(SIX, 3), grouped(SIX.tolist(), lambda z: [v - (z.sum() - v) / 2 for v in z])
    ),
    "pass_at_k": lambda: near(
        x.pass_at_k(5, 2, 3), np.mean([any(i < 2 for i in c) for c in combinations(range(5), 3)])
    ),
    "parse_tool_calls": lambda: (
        x.parse_tool_calls(f"a {CALL} b {CALL}") == [{"name": "add", "arguments": {"x": {"y": 1}}}] * 2
    ),
    "render_chat": lambda: (
        x.render_chat(TALK, False).count("<|eot_id|>") == 2
        and x.render_chat(TALK).startswith(x.render_chat(TALK, False))
    ),
    "overlong_penalty": lambda: near([x.overlong_penalty(n) for n in (10, 15, 16, 20, 21)], [0, 0, -0.2, -1, -1]),
    "ReplayBuffer": lambda: filled(
        lambda: t.ReplayBuffer(1, 1, 4),
        lambda b, i: b.store(i, 0, 10 * i, i + 1, False),
        lambda b: of_keys(b.sample_batch(50), ("obs", "rew", "obs2")),
    ),
    "ReplayMemory": lambda: filled(
        lambda: t.ReplayMemory(4),
        lambda b, i: b.put((i, 0, 10 * i, i + 1, 1.0)),
        lambda b: of_keys(b.sample(3), (0, 2, 3)),
    ),
    "UniformBuffer": lambda: filled(
        lambda: t.UniformBuffer(4),
        lambda b, i: b.push(i, 0, 10 * i, i + 1, False),
        lambda b: of_keys(b.sample(50), ("obs", "reward", "next_obs")),
    ),
    "PrioritizedBuffer": prioritised,
    "SumSegmentTree": summing,
    "RolloutStorage": stored,
    "linear_schedule": lambda: near([t.linear_schedule(1.0, 0.1, 10, n) for n in (0, 5, 10, 20)], [1, 0.55, 0.1, 0.1]),
    "linear_decay": lambda: near(t.linear_decay(3.0)(0.25), 0.75),
    "cosine_with_warmup": lambda: near(
        [t.cosine_with_warmup(n) for n in (0, 5, 10, 55, 100, 200)], [0, 0.5, 1, 0.55, 0.1, 0.1]
    ),
    "LinearAnneal": lambda: near([t.LinearAnneal(1, 0, 4)(n) for n in (0, 1, 4, 9)], [1, 0.75, 0, 0]),
    "polynomial_decay": lambda: near([t.polynomial_decay(n) for n in (0, 25, 50, 99)], [1, 0.25, 0, 0]),
    "RunningMeanStd": of_moments,
    "WelfordNormalizer": of_welford,
    "ObsNormalizer": of_module,
    "RewardScaler": of_scaler,
    "SignSGD": signed,
    "PlainAdam": lambda: optimised(t.PlainAdam, torch.optim.Adam),
    "MomentumSGD": lambda: optimised(t.MomentumSGD, lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9)),
    "TanhGaussian": lambda: gaussian(t.TanhGaussian(MU, LS), SQUASHED, torch.tensor([[0.5, -0.3]])),
    "DiagGaussian": lambda: gaussian(
        t.DiagGaussian(MU, LS.exp()), torch.distributions.Normal(MU, LS.exp()), torch.tensor([[0.5, -0.3]])
    ),
    "MaskedCategorical": masked_categorical,
    "MLPActorCritic": lambda: [tuple(z.shape) for z in t.MLPActorCritic(3, 2)(torch.zeros(5, 3))] == [(5, 2), (5,)],
    "polyak_update": polyak,
    "minibatch_indices": lambda: sorted(np.concatenate(t.minibatch_indices(7, 3)).tolist()) == list(range(7)),
    "ChainEnv": lambda: environment(w.ChainEnv()),
    "PointMass": lambda: environment(w.PointMass()),
    "BanditEnv": lambda: environment(w.BanditEnv([0.1, 0.9])),
    "ScaleReward": lambda: near(rewards_of(w.ScaleReward(cart(), 0.5)), [0.5, 0.5, 0.5]),
    "NormalizedBox": boxed,
    "StickyAction": sticky,
    "TimePenalty": lambda: near(rewards_of(w.TimePenalty(cart(), 0.25)), [0.75, 0.75, 0.75]),
    "make_chain": lambda: environment(w.make_chain().unwrapped),
    "mean_reciprocal_rank": lambda: near(g.mean_reciprocal_rank([1, 2, 4]), 1.75 / 3),
    "hits_at_k": lambda: near(g.hits_at_k([1, 2, 4, 11], 2), 0.5),
    "filtered_rank": lambda: g.filtered_rank([3.0, 1.0, 2.0, 2.0], 2, [0, 2]) == 1.5,
    "unify": lambda: (
        g.substitute(TERM, g.unify(TERM, ("f", "a", ("g", "X")))) == ("f", "a", ("g", "a"))
        and g.unify("X", ("f", "X")) is None
    ),
    "substitute": lambda: g.substitute(TERM, {"X": "Y", "Y": "b"}) == ("f", "b", ("g", "b")),
    "distmult_score": lambda: near(
        g.distmult_score(V, R, N), sum(float(p * q * r) for p, q, r in zip(V, R, N, strict=True))
    ),
    "TransE": lambda: bool((g.TransE(3, 2)(torch.tensor([0]), torch.tensor([1]), torch.tensor([2])) < 0).all()),
}


def wrong() -> list[str]:
    """The objects whose check fails; empty."""
    random.seed(0)
    return [name for name, check in CHECKS.items() if not check()]
