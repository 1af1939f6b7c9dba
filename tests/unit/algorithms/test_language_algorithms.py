"""Learning from transcripts by hand-computed numbers: choices of the learner, objectives, the trainer on one machine."""

import math
from functools import partial
from typing import Any

import attrs
import pytest
import torch
from torch import Tensor

from purestep.algorithms.importance import masked_weights, truncated_weights
from purestep.algorithms.kl import k1, k3
from purestep.algorithms.language import objectives
from purestep.algorithms.language.batch import Reading, overlong_penalty
from purestep.algorithms.language.learner import METRICS, LanguageState, learner
from purestep.algorithms.language.objectives import by_sequence, by_token, clipped_ratio, dual_clipped, outside_of
from purestep.core import keys
from purestep.core.bigram import bigram
from purestep.core.errors import ChoiceError, NonFiniteError
from purestep.core.language.types import Transcript
from purestep.core.optim.optimizers import adamw, hyperparameters, sgd
from purestep.core.record import replace, take
from purestep.core.transcript.calls import begin_call, end_call, mark_end, next_turn
from purestep.core.transcript.log_probs import with_proximal
from purestep.core.transcript.record import (
    MAX_STEPS,
    STOP,
    TOOL,
    TOOL_CALL,
    USER,
    append_context,
    append_sampled,
    empty,
)
from purestep.core.tree import leaves
from purestep.properties.strategies.tiny_causal import tiny_causal
from purestep.runtime.compile import program
from purestep.runtime.text.trainer import NOTHING, language_trainer

VOCABULARY = 5
MODEL, PACKABLE = bigram(VOCABULARY), tiny_causal(vocabulary=VOCABULARY)
REWARDS = ((1.0, 0.5), (0.0, 0.0), (0.0, 1.0), (0.5, 0.5))
TABLE = torch.linspace(-1.0, 1.0, VOCABULARY**2, dtype=torch.float64).sin().reshape(VOCABULARY, VOCABULARY)


def played(*, truncated: tuple[bool, ...] = (False,) * 4, group: tuple[int, ...] = (40, 40, 7, 7)) -> Transcript:
    """Four episodes of two calls with a tool between: two prompt tokens, 2 sampled, 1 of the tool, 3, 1, 2 or 1 sampled."""
    tokens = torch.arange(32).reshape(4, 8) * 7 % VOCABULARY
    said = append_context(empty(9, 2, id=torch.arange(4), group=torch.tensor(group)), tokens[:, :2], 2, USER)
    log_prob = torch.full((4, 3), -1.5)
    paid = torch.tensor(REWARDS)
    said = append_sampled(begin_call(said, 1.0, 1.0), tokens[:, 2:4], 2, log_prob[:, :2], torch.tensor([0, 1, 2, 2]))
    said = append_context(next_turn(end_call(said, TOOL_CALL, reward=paid[:, 0])), tokens[:, 4:5], 1, TOOL)
    count = torch.tensor([3, 1, 2, 1])
    said = append_sampled(begin_call(said, 0.5, 1.0), tokens[:, 5:8], count, log_prob, 2)
    cut = torch.tensor(truncated)
    return mark_end(end_call(said, STOP, reward=paid[:, 1]), ~cut, cut, MAX_STEPS)


def batch_of(objective: objectives.Objective, said: Transcript, **choices: Any) -> Any:
    """What `prepare` makes of transcripts, its state and figures."""
    algorithm = learner(MODEL, sgd(0.1), objective, **choices)
    state = algorithm.init(TABLE)
    reading = algorithm.read(state, said) if algorithm.reads else Reading()
    return algorithm.prepare(state, said, reading)


def each(advantage: Tensor, mask: Tensor) -> list[float]:
    """The one advantage of each sequence, which all its tokens share."""
    found = []
    for row, counts in zip(advantage, mask, strict=True):
        told = row[counts]
        assert bool((told == told[0]).all())
        assert not bool(row[~counts].any())
        found.append(float(told[0]))
    return found


# --- advantages ---


def test_groups_have_any_ids() -> None:
    """Returns 1.5, 0 | 1, 1."""
    batch, _, figures = batch_of(objectives.rloo(), played())
    assert each(batch.advantage, batch.mask) == [1.5, -1.5, 0.0, 0.0]
    assert float(figures["zero_spread"]) == 0.5
    assert float(figures["reward"]) == 0.875
    assert float(figures["sampled_tokens"]) == (5 + 3 + 4 + 3) / 4


def test_a_running_mean_judges_by_the_past() -> None:
    objective = objectives.reinforce(decay=0.5, initial=0.25)
    batch, state, _ = batch_of(objective, played())
    assert each(batch.advantage, batch.mask) == [1.25, -0.25, 0.75, 0.75]
    assert float(state.memory) == 0.5 * 0.25 + 0.5 * 0.875
    unpaired, _, _ = batch_of(objective, played(group=(-1, -1, -1, -1)))
    assert torch.equal(unpaired.advantage, batch.advantage)


def test_the_mean_of_all_others_needs_no_groups() -> None:
    batch, state, _ = batch_of(objectives.reinforce(baseline="leave_one_out"), played(group=(0, 1, 2, 3)))
    torch.testing.assert_close(each(batch.advantage, batch.mask), [1.5 - 2 / 3, -3.5 / 3, 1 - 2.5 / 3, 1 - 2.5 / 3])
    assert state.memory == ()


def test_what_came_before_a_token_is_not_its_merit() -> None:
    batch, _, _ = batch_of(objectives.reinforce(baseline="none", credit="monte_carlo"), played())
    assert batch.advantage[0].tolist() == [0, 0, 1.5, 1.5, 0, 0.5, 0.5, 0.5, 0]
    assert batch.advantage[3].tolist() == [0, 0, 1.0, 1.0, 0, 0.5, 0, 0, 0]


def test_a_credit_of_ones_own_stands_in_the_transcripts() -> None:
    credit = torch.tensor([[1.0, -1.0], [2.0, 0.0], [0.0, 3.0], [4.0, 5.0]])
    objective = objectives.credited(dual_clipped(0.2), by_token)
    batch, _, _ = batch_of(objective, replace(played(), credit=credit))
    assert batch.advantage[0].tolist() == [0, 0, 1, 1, 0, -1, -1, -1, 0]


def test_dapo_drops_groups_without_spread_and_punishes_length() -> None:
    batch, _, figures = batch_of(objectives.dapo(), played())
    assert batch.mask.any(-1).tolist() == [True, True, False, False]
    assert float(figures["sequences"]) == 2.0
    punished = objectives.dapo(overlong=partial(overlong_penalty, limit=5, buffer=2))
    batch, _, figures = batch_of(punished, played())
    assert bool(batch.mask.any(-1).all())  # 4 tokens against 3: now there is spread
    assert float(figures["reward"]) == 0.875  # what was earned, not what is learnt from


# --- truncated samples ---

CUT = (True, False, False, False)
TREATMENTS: dict[str, tuple[list[float], float, list[int]]] = {  # advantages, weight and tokens of the first two
    "keep": ([1.5, -1.5], 1.0, [5, 3]),
    "down_weight": ([1.5, -1.5], 0.25, [5, 3]),
    "mask": ([0.0, -1.5], 1.0, [0, 3]),
    "drop": ([0.0, 0.0], 1.0, [0, 3]),
}


@pytest.mark.parametrize("treatment", TREATMENTS)
def test_truncated_samples_are_treated_as_named(treatment: str) -> None:
    advantage, weight, tokens = TREATMENTS[treatment]
    batch, _, figures = batch_of(objectives.rloo(), played(truncated=CUT), truncated=treatment, down_weight=0.25)
    assert batch.mask.sum(-1)[:2].tolist() == tokens
    assert batch.advantage[:2].sum(-1).tolist() == [a * n for a, n in zip(advantage, tokens, strict=True)]
    assert batch.weight.tolist() == [weight if treatment == "down_weight" else 1.0, 1.0, 1.0, 1.0]
    assert float(figures["truncated"]) == 0.25


def test_denominators_know_what_was_left_out_or_not() -> None:
    said = played(truncated=CUT)
    for of, wanted in (("counted", (10, 3)), ("sampled", (15, 4))):
        algorithm = learner(MODEL, sgd(0.1), objectives.rloo(), truncated="mask", denominators=of)
        batch, _, _ = algorithm.prepare(algorithm.init(TABLE), said, Reading())
        told = algorithm.counts(batch)
        assert (int(told.tokens), int(told.sequences)) == wanted


def critic_says(state: LanguageState, value: float) -> LanguageState:
    params = state.params
    head = replace(params.critic, bias=torch.full((1,), value, dtype=torch.float64))
    return replace(state, params=replace(params, critic=head))


@pytest.mark.parametrize(("treatment", "beyond"), [("bootstrap", 0.25), ("keep", 0.0)])
def test_a_critic_sees_beyond_a_truncation(treatment: str, beyond: float) -> None:
    """With lambda 1 and the value 1/4 everywhere, an advantage is what is to come less 1/4."""
    algorithm = learner(MODEL, sgd(0.1), objectives.ppo(lambda_=1.0, advantages="none"), truncated=treatment)
    said = played(truncated=CUT)
    state = critic_says(algorithm.init(TABLE), 0.25)
    batch, _, _ = algorithm.prepare(state, said, algorithm.read(state, said))
    first = [1.25 + beyond, 1.25 + beyond, 0.25 + beyond, 0.25 + beyond, 0.25 + beyond]
    torch.testing.assert_close(batch.advantage[0][batch.mask[0]].tolist(), first)
    assert batch.advantage[1][batch.mask[1]].tolist() == [-0.25, -0.25, -0.25]
    torch.testing.assert_close(batch.target, torch.where(batch.mask, batch.advantage + 0.25, 0.0))


# --- the loss ---


def figures_of(objective: objectives.Objective, said: Transcript, **choices: Any) -> dict[str, float]:
    algorithm = learner(MODEL, sgd(0.1), objective, **choices)
    _, figures = algorithm.update(critic_or_not(algorithm.init(TABLE)), said)
    assert tuple(figures) == METRICS == algorithm.metrics
    return {name: float(value) for name, value in figures.items()}


def critic_or_not(state: LanguageState) -> LanguageState:
    return state if isinstance(state.params.critic, tuple) else critic_says(state, 0.25)


@pytest.mark.parametrize("choices", [{}, {"kl_in_loss": 0.1, "proximal": "recomputed", "entropy_coefficient": 0.1}])
def test_at_top_p_1_the_nucleus_changes_no_bit(choices: dict[str, Any]) -> None:
    made = [learner(PACKABLE, sgd(0.1), objectives.grpo(), support=each, **choices) for each in ("sampled", "whole")]
    params = PACKABLE.init(keys.key(0))
    (one, told), (other, figures) = (algorithm.update(algorithm.init(params), played()) for algorithm in made)
    assert all(torch.equal(a, b) for a, b in zip(leaves(one), leaves(other), strict=True))
    assert {name: float(value) for name, value in figures.items()} == {
        name: float(told[name]) for name in made[1].metrics
    }
    assert set(told) - set(figures) == {"outside_support"}
    assert float(told["outside_support"]) == 0.0


def test_samples_of_a_nucleus_are_refused_by_a_learner_over_all_tokens() -> None:
    said = replace(played(), top_p=torch.tensor([[1.0, 0.9]]).expand(4, 2))
    algorithm = learner(MODEL, sgd(0.1), objectives.grpo(), support="whole")
    with pytest.raises(ChoiceError, match=r"top_p of a sample is 0\.89.*make the learner with support='sampled'"):
        language_trainer(algorithm)(algorithm.init(TABLE), said)
    greedy = replace(said, temperature=torch.tensor([[1.0, 0.0]]).expand(4, 2))
    assert language_trainer(algorithm)(algorithm.init(TABLE), greedy).figures["updates"] == 1.0


def test_values_are_regressed_on_returns() -> None:
    """Terminated, lambda 1: targets are returns to come, and the loss is half the mean square, one coefficient times."""
    said = played()
    objective = objectives.ppo(lambda_=1.0)
    squares = [3 * 1.25**2 - 1.25**2 + 3 * 0.25**2, 3 * 0.25**2, 4 * 0.75**2, 2 * 0.75**2 + 0.25**2]
    wanted = sum(squares) / 15 / 2
    figures = figures_of(objective, said, value_coefficient=0.5)
    assert figures["value_loss"] == pytest.approx(wanted)
    assert figures["loss"] == pytest.approx(figures["policy_loss"] + 0.5 * wanted)
    clipped = figures_of(objective, said, value_clip=0.1)
    assert clipped["value_loss"] == pytest.approx(wanted)  # the first pass stands where it was


def own_log_probs(said: Transcript, table: Tensor = TABLE) -> Tensor:
    """log p of each token but the first, at its temperature."""
    heat = torch.where(said.call == 1, 0.5, 1.0)[:, 1:, None]
    told = (table[said.token[:, :-1]] / heat).log_softmax(-1)
    return torch.nn.functional.pad(told.gather(-1, said.token[:, 1:, None])[..., 0], (1, 0))


def test_a_divergence_in_the_loss_or_off_the_reward() -> None:
    said, other = played(), TABLE + 0.5 * torch.eye(VOCABULARY)
    choices: dict[str, Any] = {"kl_in_loss": 0.5, "kl_in_loss_estimator": k3}
    algorithm = learner(MODEL, sgd(0.1), objectives.grpo(), **choices)
    state = replace(algorithm.init(TABLE), reference=other)
    _, figures = algorithm.update(state, said)
    apart = k3(own_log_probs(said), own_log_probs(said, other))[said.is_action]
    assert float(figures["kl"]) == pytest.approx(float(apart.mean()))
    rows = torch.stack(
        [k3(own_log_probs(said), own_log_probs(said, other))[i][said.is_action[i]].mean() for i in range(4)]
    )
    assert float(figures["loss"] - figures["policy_loss"]) == pytest.approx(0.5 * float(rows.mean()))

    paid = learner(MODEL, sgd(0.1), objectives.reinforce(baseline="none"), kl_in_reward=0.5, proximal="recomputed")
    state = replace(paid.init(TABLE), reference=other)
    batch, _, _ = paid.prepare(state, said, paid.read(state, said))
    cost = torch.where(said.is_action, k1(own_log_probs(said), own_log_probs(said, other)), 0.0).sum(-1)
    wanted = torch.tensor(REWARDS).double().sum(-1) - 0.5 * cost
    torch.testing.assert_close(torch.tensor(each(batch.advantage, batch.mask)).double(), wanted, rtol=1e-6, atol=1e-6)


def test_an_entropy_bonus_is_taken_off_the_loss() -> None:
    plain, with_bonus = (
        figures_of(objectives.dapo(zero_spread="keep"), played(), entropy_coefficient=c) for c in (0.0, 0.5)
    )
    assert with_bonus["loss"] == pytest.approx(plain["loss"] - 0.5 * plain["entropy"])
    assert plain["entropy"] == with_bonus["entropy"] > 0


def test_a_correction_weighs_tokens_after_the_clip() -> None:
    said = played()
    ratio = torch.where(said.is_action, (own_log_probs(said) - said.behaviour_log_prob).exp(), 0.0)
    for weights, bounded in (
        (partial(truncated_weights, high=1.0), ratio.clamp(max=1.0)),
        (partial(masked_weights, low=0.5, high=1.5), torch.where((ratio >= 0.5) & (ratio <= 1.5), ratio, 0.0)),
    ):
        objective = objectives.dapo(zero_spread="keep")
        figures = figures_of(objective, said, proximal="recomputed", correction=weights)
        batch, _, _ = batch_of(objective, said)
        wanted = -(bounded * batch.advantage).sum() / 15
        assert figures["policy_loss"] == pytest.approx(float(wanted))
        effective = bounded.sum() ** 2 / (15 * bounded.square().sum())
        assert figures["effective_fraction"] == pytest.approx(float(effective))
    assert figures["approximate_kl"] == pytest.approx(0.0, abs=1e-12)
    away = (own_log_probs(said) - said.behaviour_log_prob)[said.is_action].abs().max()
    assert figures["log_prob_difference"] == pytest.approx(float(away))


def test_proximal_log_probs_come_from_transcripts_a_pass_or_versions() -> None:
    said = played()
    moved = with_proximal(said, torch.full((4, 9), -1.25), said.version == 1)
    algorithm = learner(MODEL, sgd(0.1), objectives.grpo())
    batch, _, _ = algorithm.prepare(algorithm.init(TABLE), moved, Reading())
    assert batch.proximal_log_prob[1].tolist() == [0, 0, -1.25, -1.25, 0, -1.5, 0, 0, 0]
    between = learner(MODEL, sgd(0.1), objectives.grpo(), proximal="interpolated")
    state = replace(between.init(TABLE), step=torch.tensor(3))
    batch, _, _ = between.prepare(state, said, Reading())
    assert batch.share[0, 2:4].tolist() == pytest.approx([2 / 3, 2 / 3])  # version 0 of 3
    assert batch.share[1, 2:4].tolist() == [0.5, 0.5]
    assert not bool(batch.share[2].any())


def test_a_clip_counts_what_is_outside() -> None:
    said = played()
    ratio = (own_log_probs(said) - said.behaviour_log_prob)[said.is_action].exp()
    wanted = ((ratio < 0.8) | (ratio > 1.2)).double().mean()
    assert figures_of(objectives.grpo(clip=0.2), said)["clip_fraction"] == pytest.approx(float(wanted))
    assert figures_of(objectives.rloo(), said)["clip_fraction"] == 0.0
    own = objectives.credited(clipped_ratio(0.2), by_token, outside=outside_of(0.2))
    assert figures_of(own, replace(said, credit=torch.ones(4, 2)))["clip_fraction"] == pytest.approx(float(wanted))
    assert 0 < float(wanted) < 1


# --- ten lines, and the machine ---


def test_ten_lines_learn_to_say_the_token_that_pays() -> None:
    """Prompt 0, one token: 3 pays 1, others nothing; each step samples from the policy that learns."""
    algorithm = learner(MODEL, adamw(0.3), objectives.grpo())
    state = algorithm.init(torch.zeros(VOCABULARY, VOCABULARY))
    train = language_trainer(algorithm, budget=64)
    for step in range(12):
        policy = state.params.policy[0].log_softmax(-1)
        drawn = keys.categorical(keys.split(keys.key(step), 32), policy.expand(32, -1))
        asked = append_context(
            empty(2, 1, id=torch.arange(32), group=0), torch.zeros(32, 1, dtype=torch.int64), 1, USER
        )
        answered = append_sampled(begin_call(asked, 1.0, 1.0), drawn[:, None], 1, policy[drawn][:, None], step)
        state = train(state, mark_end(end_call(answered, STOP, reward=(drawn == 3).float()), True, False)).state
    assert float(state.params.policy[0].softmax(-1)[3]) > 0.8


@pytest.mark.parametrize("layout", [{"budget": 9}, {"budget": 18}, {"budget": 28, "packed": 14}], ids=str)
def test_budgets_and_rows_change_nothing(layout: dict[str, Any]) -> None:
    choices: dict[str, Any] = {"kl_in_loss": 0.1, "truncated": "bootstrap", "proximal": "recomputed"}
    algorithm = learner(PACKABLE, adamw(0.01), objectives.ppo(), **choices)
    state = critic_or_not(algorithm.init(PACKABLE.init(keys.key(1))))
    said = played(truncated=CUT)
    wanted, figures = algorithm.update(state, said)
    learned = language_trainer(algorithm, **layout)(state, said)
    for one, other in zip(leaves(learned.state), leaves(wanted), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
    assert learned.figures["padding"] < 0.3
    assert {name: learned.figures[name] for name in figures} == pytest.approx({n: float(v) for n, v in figures.items()})
    assert learned.note == ""


def test_minibatches_cut_a_batch_at_random_and_use_each_row_once() -> None:
    algorithm = learner(MODEL, sgd(0.1), objectives.rloo())
    state = algorithm.init(TABLE)
    train = language_trainer(algorithm, epochs=2, minibatches=2)
    learned = train(state, played(), keys.key(3))
    assert int(learned.state.step) == int(learned.figures["updates"])
    again = train(state, played(), keys.key(3))
    other = train(state, played(), keys.key(4))
    assert torch.equal(again.state.params.policy, learned.state.params.policy)
    assert not torch.equal(other.state.params.policy, learned.state.params.policy)
    with pytest.raises(ChoiceError, match="language_trainer: key is absent"):
        train(state, played())


def test_nothing_to_learn_is_said_and_nothing_moves() -> None:
    algorithm = learner(MODEL, adamw(0.1), objectives.grpo(), kl_in_loss=0.1)
    state = algorithm.init(TABLE)
    learned = language_trainer(algorithm)(state, replace(played(), reward=torch.ones(4, 2)))
    assert learned.note == NOTHING
    assert learned.figures["zero_spread"] == 1.0
    for one, other in zip(leaves(learned.state), leaves(state), strict=True):
        assert torch.equal(one, other)


def test_a_critic_learns_where_all_returns_are_equal() -> None:
    """Every token's return to come is 1, so that advantages are normalised to 0, whatever the critic says."""
    algorithm = learner(MODEL, sgd(0.1), objectives.ppo(lambda_=1.0))
    said = replace(played(), reward=torch.tensor([[0.0, 1.0]]).repeat(4, 1))
    wrong, right = (critic_says(algorithm.init(TABLE), value) for value in (0.25, 1.0))
    batch, _, _ = algorithm.prepare(wrong, said, algorithm.read(wrong, said))
    assert not bool(batch.advantage.any())
    for after in (algorithm.update(wrong, said)[0], language_trainer(algorithm)(wrong, said).state):
        assert float(after.params.critic.bias) == pytest.approx(0.25 + 0.1 * 0.5 * 0.75)
    assert language_trainer(algorithm)(right, said).note == NOTHING
    assert int(algorithm.update(right, said)[0].step) == 0


DISTANT: dict[str, tuple[objectives.Objective, dict[str, Any]]] = {
    "all": (objectives.grpo(), {}),
    "read": (objectives.grpo(), {"proximal": "recomputed"}),
    "critic": (objectives.ppo(), {}),
    "dropped": (objectives.dapo(), {}),  # the last two rows
    "truncated": (objectives.reinforce(), {"truncated": "mask"}),  # the first row
}


@pytest.mark.parametrize("case", DISTANT)
@pytest.mark.parametrize("minibatches", [1, 2])
def test_the_distance_from_the_sampler_is_that_of_all_it_sampled(case: str, minibatches: int) -> None:
    """Before the first update, wherever the one token stands that the sampler reports wrongly."""
    objective, choices = DISTANT[case]
    algorithm = learner(MODEL, sgd(0.1), objective, **choices)
    said = played(truncated=CUT)
    train = language_trainer(algorithm, budget=18, epochs=2, minibatches=minibatches)
    for row in range(4):
        wrong = torch.zeros(4, 9, dtype=torch.float64)
        wrong[row, 5] = 3.0
        told = replace(said, behaviour_log_prob=torch.where(said.is_action, own_log_probs(said) + wrong, 0.0))
        learned = train(critic_or_not(algorithm.init(TABLE)), told, keys.key(1))
        assert learned.figures["log_prob_difference"] == pytest.approx(3.0)
    unknown = own_log_probs(said).index_fill(1, torch.tensor([5]), torch.nan)
    learned = train(critic_or_not(algorithm.init(TABLE)), replace(said, behaviour_log_prob=unknown), keys.key(1))
    assert math.isnan(learned.figures["log_prob_difference"])


def test_a_loss_that_is_no_number_stops_before_it_is_applied() -> None:
    algorithm = learner(MODEL, sgd(0.1), objectives.grpo())
    state = replace(algorithm.init(TABLE), step=torch.tensor(4))
    said = played()
    unknown = replace(said, proximal_log_prob=torch.where(said.is_action, torch.nan, 0.0))
    with pytest.raises(NonFiniteError, match=r"language_trainer: the loss of update 5 is nan, wanted finite"):
        language_trainer(algorithm)(state, unknown)
    steep = replace(state, params=replace(state.params, policy=TABLE * math.inf))
    with pytest.raises(NonFiniteError, match="update 5"):
        language_trainer(algorithm)(steep, said)


def test_wrong_choices_are_refused() -> None:
    make = partial(learner, MODEL, sgd(0.1))
    with pytest.raises(ChoiceError, match=r"learner: truncated is 'bootstrap', wanted one of keep, mask.*ppo"):
        make(objectives.grpo(), truncated="bootstrap")
    with pytest.raises(ChoiceError, match=r"learner: truncated is 'dropp'.*did you mean 'drop'"):
        make(objectives.grpo(), truncated="dropp")
    with pytest.raises(ChoiceError, match="learner: proximal is 'old'"):
        make(objectives.grpo(), proximal="old")
    with pytest.raises(ChoiceError, match="learner: denominators is 'all'"):
        make(objectives.grpo(), denominators="all")
    with pytest.raises(ChoiceError, match="learner: kl_in_loss is -1"):
        make(objectives.grpo(), kl_in_loss=-1.0)
    with pytest.raises(ChoiceError, match="against: baseline is 'mean'"):
        objectives.reinforce(baseline="mean")
    with pytest.raises(ChoiceError, match="dapo: zero_spread is 'refill'"):
        objectives.dapo(zero_spread="refill")
    with pytest.raises(ChoiceError, match="ppo: advantages is 'minibatch'"):
        objectives.ppo(advantages="minibatch")
    algorithm = make(objectives.grpo())
    with pytest.raises(ChoiceError, match="language_trainer: budget is 0"):
        language_trainer(algorithm, budget=0)
    with pytest.raises(ChoiceError, match="language_trainer: packed is 9, wanted from 1 to 8"):
        language_trainer(algorithm, budget=8, packed=9)
    with pytest.raises(ChoiceError, match=r"length of sequence 0 is 8, wanted from 0 to 6; raise the budget"):
        language_trainer(algorithm, budget=6)(algorithm.init(TABLE), played())


def test_another_loss_fits_into_any_objective() -> None:
    """Where the first of a group is the bad one, its tokens' ratios above 1 are bounded by the dual clip."""
    said = replace(played(), reward=-played().reward)
    dual = attrs.evolve(objectives.grpo(), loss=dual_clipped(0.2, c=1.0), reduce=by_sequence)
    plain, bounded = (figures_of(one, said)["policy_loss"] for one in (objectives.grpo(), dual))
    assert bounded < plain


def test_a_state_is_saved_with_its_hyperparameters_and_takes_a_part_of_a_batch() -> None:
    algorithm = learner(MODEL, adamw(0.5), objectives.reinforce(), kl_in_loss=0.5)
    state = algorithm.init(TABLE)
    assert float(hyperparameters(state.optimizer)["learning_rate"]) == 0.5
    assert torch.equal(state.reference, TABLE)
    assert state.reference.data_ptr() != TABLE.data_ptr()
    reading = algorithm.read(state, played())
    some = algorithm.read(state, take(played(), slice(1, 3)))
    torch.testing.assert_close(some.reference_log_prob, reading.reference_log_prob[1:3])


@pytest.mark.slow
def test_compiled_gradients_are_the_eager_ones() -> None:
    algorithm = learner(MODEL, sgd(0.1), objectives.ppo(), kl_in_loss=0.1)
    state = critic_or_not(algorithm.init(TABLE))
    batch, state, _ = algorithm.prepare(state, played(), algorithm.read(state, played()))
    given = state.params, batch, algorithm.counts(batch), ()
    run = program(algorithm.gradient, name="gradient")
    for _ in range(2):
        for one, other in zip(leaves(run(*given)), leaves(algorithm.gradient(*given)), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
