"""Families: each suite with a subject that obeys it and the edits of that subject that the suite must catch."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from attrs import evolve, frozen
from hypothesis import strategies as st
from torch import Tensor

from ...algorithms.a2c import a2c
from ...algorithms.advantages import gae
from ...algorithms.aggregate import sequence_count, sequence_mean, token_count, token_mean
from ...algorithms.algorithm import Algorithm
from ...algorithms.distributional_losses import project_categorical
from ...algorithms.importance import masked_weights, truncated_weights
from ...algorithms.kl import k2, k3
from ...algorithms.language import credit, objectives
from ...algorithms.language.advantages import token_gae
from ...algorithms.language.group_advantages import grpo_advantages, rloo_advantages
from ...algorithms.language.token_losses import cispo, dual_clip, gspo
from ...algorithms.losses import clipped, ppo_clip, squared
from ...algorithms.off_policy import follow
from ...algorithms.ppo import minibatch_rows, ppo
from ...algorithms.returns import discounted, lambda_returns, n_step
from ...algorithms.vtrace import vtrace
from ...core import keys
from ...core.distributions import Categorical, EpsilonGreedy, Normal, TanhNormal, masked
from ...core.env import auto_reset, time_limit
from ...core.envs.cartpole import cartpole
from ...core.language import parsers
from ...core.language.codec import byte_codec
from ...core.language.list_reduction import lists, tasks
from ...core.language.pass_at_k import pass_at_k
from ...core.language.reasoning_cache import conversations, machine, rollouts, task
from ...core.language.reasoning_cache import settings as reasoning_settings
from ...core.language.task import TextTask
from ...core.language.tool_calls import hermes_calls
from ...core.networks import functional
from ...core.optim import interface, optimizers, schedules
from ...core.policy import ActorCritic, actor_critic_mlp
from ...core.scan import scan
from ...core.spaces import Box, Discrete
from ...core.transcript.log_probs import token_log_probs
from ...runtime.effects.rewards.built_in import numeric
from ...runtime.rollout import rollout
from ..strategies.language import MOVES, LanguageLedger, ledger, ledger_parser
from ..strategies.table_causal import table_causal
from ..strategies.values import dyadic, smooth
from ..suites.aggregate import MUTANTS as AGGREGATE_MUTANTS
from ..suites.aggregate import WEIGHTS, Reduction, aggregate_laws
from ..suites.categorical import categorical_laws
from ..suites.checkpoint import MUTANTS as CHECKPOINT_MUTANTS
from ..suites.checkpoint import RESUME, SmallTrainer, checkpoint_laws, own_store, resume_laws
from ..suites.distribution import classes, distribution_laws
from ..suites.env import env_laws
from ..suites.epsilon import MUTANTS as EPSILON_MUTANTS
from ..suites.epsilon import epsilon_laws
from ..suites.estimator import MUTANTS as ESTIMATOR_MUTANTS
from ..suites.estimator import estimator_laws
from ..suites.gradient import gradient_laws
from ..suites.gym import gym_laws, registered
from ..suites.gym_vector import vector_env_laws, vectored
from ..suites.gym_wrapper import wrapper_laws
from ..suites.importance import MUTANTS as IMPORTANCE_MUTANTS
from ..suites.importance import importance_laws
from ..suites.kl import MUTANTS as KL_MUTANTS
from ..suites.kl import detached_estimate as constant_of
from ..suites.kl import kl_laws
from ..suites.language.causal import MUTANTS as CAUSAL_MUTANTS
from ..suites.language.causal import causal_laws
from ..suites.language.chat_mask import chat_mask_laws
from ..suites.language.chat_template import chat_template_laws
from ..suites.language.codec import codec_laws
from ..suites.language.completion import cut_at_end, log_prob_of_mask, score_at_end
from ..suites.language.credit import MUTANTS as CREDIT_MUTANTS
from ..suites.language.credit import Crediting, credit_laws
from ..suites.language.group import MUTANTS as GROUP_MUTANTS
from ..suites.language.group import group_laws
from ..suites.language.masked_loss import MASKED, divides_by_count, masked_loss_laws, masked_reference
from ..suites.language.parser import ParserFunctions, parser_laws
from ..suites.language.preparation import preparation_laws
from ..suites.language.reward_function import reward_function_laws
from ..suites.language.text_env import MUTANTS as TEXT_ENV_MUTANTS
from ..suites.language.text_env import text_env_laws
from ..suites.language.token_gae import MUTANTS as TOKEN_GAE_MUTANTS
from ..suites.language.token_gae import token_gae_laws
from ..suites.language.token_log_prob import MUTANTS as TOKEN_LOG_PROB_MUTANTS
from ..suites.language.token_log_prob import token_log_prob_laws
from ..suites.language.token_loss import MUTANTS as TOKEN_LOSS_MUTANTS
from ..suites.language.token_loss import as_token_loss, cispo_step, dual_step, token_loss_laws
from ..suites.language.token_mask import Convention, collated, ends_what_was_cut, token_mask_laws
from ..suites.language.tool_parser import tool_parser_laws
from ..suites.learner import MUTANTS as LEARNER_MUTANTS
from ..suites.learner import learner_laws, learning
from ..suites.loss import MUTANTS as LOSS_MUTANTS
from ..suites.loss import dual_clip_loss, loss_laws, mean_loss
from ..suites.machine import fetcher, machine_laws
from ..suites.memory import MUTANTS as MEMORY_MUTANTS
from ..suites.memory import Leaky, memory_laws
from ..suites.metric import clip_fraction, explained_variance, finished_returns, metric_laws
from ..suites.module import module_laws
from ..suites.normalizer import MUTANTS as NORMALIZER_MUTANTS
from ..suites.normalizer import normalizer_laws, own_statistics
from ..suites.optimizer import optimizer_laws
from ..suites.order import ORDERS, order_laws
from ..suites.policy import policy_laws
from ..suites.precision import MUTANTS as PRECISION_MUTANTS
from ..suites.precision import Descending, precision_laws
from ..suites.probe import probe_laws
from ..suites.projection import categorical_projection_laws
from ..suites.replay import Hindsight, NStep, OwnBuffer, Prioritised, replay_laws
from ..suites.returns import LAMBDA_RETURNS, VTRACE, lambda_return_laws, vtrace_laws
from ..suites.sampler import sampler_laws
from ..suites.scan import MUTANTS as SCAN_MUTANTS
from ..suites.scan import scan_laws
from ..suites.schedule import schedule_laws, straight
from ..suites.step import MUTANTS as STEP_MUTANTS
from ..suites.step import running_total, step_laws, totals
from ..suites.sum_tree import CumulatedPriorities, sum_tree_laws
from ..suites.target import MUTANTS as TARGET_MUTANTS
from ..suites.target import N_STEP, n_step_laws, target_laws
from ..suites.target_network import target_network_laws
from ..suites.update import update_laws
from ..suites.value_loss import MUTANTS as VALUE_LOSS_MUTANTS
from ..suites.value_loss import value_loss_laws
from ..suites.wrapper import AUTO_RESET, TIME_LIMIT, auto_reset_laws, time_limit_laws
from .law import Mutant, Subject, Suite, instead

FIGURES: Mapping[str, float | str] = {"r": 1.0, "l": "length"}  # of an episode, in its last info
LIMIT = 4  # steps of an episode in the families of wrappers


@frozen
class Family:
    """A suite, a correct subject, and mutants beyond those that the laws name themselves."""

    suite: Suite
    subject: Subject
    more: tuple[Mutant, ...] = ()
    night: bool = False  # too slow for the daily matrix

    @property
    def mutants(self) -> tuple[Mutant, ...]:
        """The laws' own mutants, then the others; each edit once."""
        own = [law.mutant for law in self.suite]
        return tuple({mutant.edit: mutant for mutant in (*own, *self.more)}.values())


def beyond(suite: Suite, base: Suite) -> Suite:
    """Return the laws that a suite has beyond those of another, which another subject is checked with."""
    return suite - {law.name for law in base}


def edits(table: Mapping[str, Callable[[Subject], Subject]]) -> tuple[Mutant, ...]:
    """Return edits of the subject as mutants."""
    return tuple(Mutant(edit, make) for edit, make in table.items())


def replace_subject(table: dict[str, Any]) -> tuple[Mutant, ...]:
    """Return mutants that replace the subject, whatever it is, by another function."""
    return tuple(Mutant(edit, instead(wrong)) for edit, wrong in table.items())


def own_crediting() -> Crediting:
    """Return this library's credit functions."""
    return Crediting(credit.own_rewards, credit.episode, credit.monte_carlo, credit.group, credit.token_credit)


def own_reading() -> ParserFunctions:
    """Return this library's parsers."""
    return ParserFunctions(
        parsers.find_calls,
        parsers.strict_answer,
        parsers.lenient_answer,
        parsers.stop,
        parsers.tagged,
        parsers.after,
        parsers.chain,
    )


def own_world_laws() -> Suite:
    """Return the laws of text environments, for the ledger environment."""
    return text_env_laws(ledger_parser(), *MOVES.values(), classes=(LanguageLedger,), tools=("sum", ""))


def own_descending() -> Descending:
    """Return this library's AdamW with gradient clipping and a learning-rate schedule."""

    def make(rate: float) -> interface.Optimizer:
        schedule = optimizers.scale_by_schedule(schedules.linear(1.0, 0.5, 10))
        return optimizers.chain(optimizers.clip_by_global_norm(1.0), optimizers.adamw(rate), schedule)

    return Descending(make, optimizers.apply_updates)


def own_prepared() -> TextTask:
    """Return this library's task with prepared episodes: the reasoning cache on short lists, with two reasoning steps."""
    few = lists.Lists(kind="maximum", shortest=2, longest=4, high=3)
    cache = machine.reasoning_cache(tasks.list_rollout, rollouts.summarization_rollout, num_reasoning_steps=2)
    settings = reasoning_settings.CacheSettings(output_dir="nowhere", num_reasoning_steps=2, num_samples_per_problem=2)
    trained = task.TrainingSettings(states=2, cycles=3, summary_tokens=8)
    shows = conversations.Shows(numbers=2, summaries=0.5, summary_skill=1.0)
    return task.list_cache_task(cache, settings, {"training": few, "evaluation": few}, trained, shows)


def own_squashed(mean: Tensor, log_std: Tensor) -> TanhNormal:
    """Return this library's squashed normal distribution over [-1, 3]."""
    return TanhNormal(mean=mean, log_std=log_std, low=torch.full_like(mean, -1.0), high=torch.full_like(mean, 3.0))


def own_sampler(mean: Tensor, log_std: Tensor) -> tuple[Tensor, Tensor]:
    """Return an action of `own_squashed` and its log-prob, computed before squashing."""
    distribution = own_squashed(mean, log_std)
    x = mean + log_std.exp() * torch.randn_like(mean)
    return distribution.squash(x), distribution.log_prob_before(x)


def _distributions() -> list[Family]:
    squashed = distribution_laws(low=-1.0, high=3.0, entropy=0.05, finite_on_bounds=True)
    return [
        Family(distribution_laws(), lambda mean, log_std: Normal(mean=mean, log_std=log_std)),
        Family(squashed, own_squashed),
        Family(distribution_laws(outcomes=classes), lambda logits: Categorical(logits=logits)),
        Family(distribution_laws(outcomes=classes, masked=True), masked),
        Family(sampler_laws(low=-1.0, high=3.0, precise=12.0), own_sampler),
    ]


def own_clipped(rate: float) -> interface.Optimizer:
    """Return this library's gradient descent, clipped to a global norm of 1."""
    return optimizers.chain(optimizers.clip_by_global_norm(1.0), optimizers.sgd(rate))


def _optimizers() -> list[Family]:
    return [
        Family(optimizer_laws("adam"), torch.optim.Adam),
        Family(optimizer_laws("adamw"), optimizers.adamw),
        Family(optimizer_laws("sgd", clip_norm=1.0), own_clipped),
    ]


def own_td(rewards: Tensor, next_values: Tensor, terminated: Tensor, truncated: Tensor, *, gamma: float) -> Tensor:
    """Return r + gamma v', the n-step return for n = 1 of each row alone, without a gradient."""
    return n_step(rewards, next_values, terminated, truncated, gamma=gamma, n=1).detach()


def own_max(rewards: Tensor, next_q: Tensor, terminated: Tensor, *, gamma: float) -> Tensor:
    """Return the target of DQN."""
    return own_td(rewards, next_q.amax(-1), terminated, torch.zeros_like(terminated), gamma=gamma)


def own_double(
    rewards: Tensor, online: Tensor, target: Tensor, terminated: Tensor, truncated: Tensor, *, gamma: float
) -> Tensor:
    """Return the target of double DQN."""
    chosen = target.gather(-1, online.argmax(-1, keepdim=True))[:, 0]
    return own_td(rewards, chosen, terminated, truncated, gamma=gamma)


def own_min(
    rewards: Tensor, first: Tensor, second: Tensor, terminated: Tensor, truncated: Tensor, *, gamma: float
) -> Tensor:
    """Return the target of TD3."""
    return own_td(rewards, torch.minimum(first, second), terminated, truncated, gamma=gamma)


def kept_in_place(target: torch.nn.Module, network: torch.nn.Module, kept: float) -> None:
    """Move a target network in place, as Spinning Up does: `kept` is the part of it that stays."""
    with torch.no_grad():
        for name, leaf in target.state_dict().items():
            leaf.copy_(follow(leaf, network.state_dict()[name], 1.0 - kept))


def own_epsilon_greedy(values: Tensor, epsilon: float) -> Tensor:
    """Return actions of this library's distribution, with a key that torch's generator draws."""
    key = keys.split(keys.key(int(torch.randint(1 << 30, ()))), len(values))
    return EpsilonGreedy(values=values, epsilon=torch.full(values.shape[:1], epsilon)).sample(key)


def cartpole_with_statistics() -> Any:
    """Return Gymnasium's CartPole, with the length of an episode in the info of its end."""
    env = registered("CartPole-v1")()
    from gymnasium.wrappers import RecordEpisodeStatistics

    return RecordEpisodeStatistics(env)


def counted_cartpoles(rows: int) -> Any:
    """Return CartPoles whose infos have the returns and lengths of episodes, by Gymnasium's wrapper of vector environments."""
    from gymnasium.wrappers.vector import RecordEpisodeStatistics

    return RecordEpisodeStatistics(vectored(registered("CartPole-v1", 6), "NEXT_STEP")(rows))


def recording(env: Any) -> Any:
    """Return the environment with Gymnasium's statistics of episodes."""
    from gymnasium.wrappers import RecordEpisodeStatistics

    return RecordEpisodeStatistics(env)


def stacked_cartpole(env: Any) -> Any:
    """Return Gymnasium's stack of the last three observations."""
    from gymnasium.wrappers import FrameStackObservation

    return FrameStackObservation(env, 3)


def abstaining(reward: Tensor, group: Tensor, *, groups: int) -> Tensor:
    """Return this library's advantages of GRPO, where a row without a reward has no group."""
    none = reward.isnan()
    return grpo_advantages(torch.where(none, 0.0, reward), torch.where(none, -1, group), groups=groups)


def _steps_and_folds() -> list[Family]:
    pairs = st.tuples(smooth((2,)), smooth((2,)))
    return [
        Family(step_laws(totals(), carry=0), running_total, edits(STEP_MUTANTS)),
        Family(scan_laws(), scan, edits(SCAN_MUTANTS)),
        Family(gradient_laws(pairs, constant=(1,)), squared),
    ]


def _worlds() -> list[Family]:
    limited, short = time_limit(cartpole(), LIMIT), registered("CartPole-v1", 6)
    return [
        Family(env_laws, cartpole()),
        Family(auto_reset_laws(limited), auto_reset(limited), edits(AUTO_RESET)),
        Family(time_limit_laws(cartpole(), LIMIT), limited, edits(TIME_LIMIT)),
        Family(memory_laws(), rollout, edits(MEMORY_MUTANTS)),
        Family(memory_laws(recurrent=(3, 1)), Leaky()),
        Family(gym_laws(steps=12, writable=True), registered("CartPole-v1", 12)),
        Family(gym_laws(steps=6), registered("Pendulum-v1", 6)),
        *[
            Family(vector_env_laws(cartpole_with_statistics), vectored(cartpole_with_statistics, mode))
            for mode in ("SAME_STEP", "NEXT_STEP")
        ],
        Family(beyond(vector_env_laws("", steps=24, statistics=FIGURES), vector_env_laws("")), counted_cartpoles),
        Family(wrapper_laws(short, stack=3, steps=12), stacked_cartpole),
        Family(beyond(wrapper_laws(short, statistics=FIGURES), wrapper_laws(short)), recording),
    ]


def _objectives() -> list[Family]:
    return [
        Family(estimator_laws(), gae, replace_subject(ESTIMATOR_MUTANTS)),
        Family(lambda_return_laws(), lambda_returns, replace_subject(LAMBDA_RETURNS)),
        Family(vtrace_laws(), vtrace, replace_subject(VTRACE)),
        Family(loss_laws(detached=True, nan_padding=True), ppo_clip, replace_subject(LOSS_MUTANTS)),
        Family(loss_laws(mean=True), mean_loss),
        Family(loss_laws(dual_clip=3.0), dual_clip_loss),
        Family(masked_loss_laws(nan_padding=True), masked_reference, replace_subject(MASKED)),
        Family(masked_loss_laws(empty=False), divides_by_count),
        Family(kl_laws(), k3, replace_subject(KL_MUTANTS)),
        Family(kl_laws(unbiased=False), k2),
        Family(kl_laws(unbiased=False, gradient="divergence"), k2),
        Family(kl_laws(gradient="none"), constant_of(k3)),
        Family(value_loss_laws(), clipped, edits(VALUE_LOSS_MUTANTS)),
        Family(value_loss_laws(clipped=False), squared),
        Family(value_loss_laws(quantiles=True), own_quantile_loss),
    ]


def _targets() -> list[Family]:
    return [
        Family(target_laws("td", detached=True), own_td, edits(TARGET_MUTANTS)),
        Family(target_laws("double"), own_double),
        Family(target_laws("max", endings="terminated"), own_max),
        Family(target_laws("min"), own_min),
        Family(target_laws("reward_to_go"), discounted),
        Family(n_step_laws(), n_step, edits(N_STEP)),
        Family(target_network_laws(), follow),
        Family(target_network_laws(kept=True), kept_in_place),
        Family(categorical_projection_laws(), project_categorical),
        Family(epsilon_laws(masked=True), own_epsilon_greedy, edits(EPSILON_MUTANTS)),
    ]


def pass_of_all(attempts: int, solved: int, k: int) -> Any:
    """Return this library's pass@k, of all attempts where there are fewer than k."""
    return pass_at_k(attempts, solved, min(k, attempts))


def own_quantile_loss(quantiles: Tensor, targets: Tensor) -> Tensor:
    """Return the quantile Huber loss with the threshold 1, summed over quantiles."""
    count = quantiles.shape[1]
    levels = ((torch.arange(count) + 0.5) / count)[:, None]
    error = targets[:, None, :] - quantiles[:, :, None]
    huber = torch.nn.functional.huber_loss(error, torch.zeros_like(error), reduction="none")
    return ((levels - (error < 0).float()).abs() * huber).mean(-1).sum(-1).mean()


def dropping() -> torch.nn.Module:
    """Return a module of several parts."""
    return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())


def own_evaluation(module: torch.nn.Module) -> Tensor:
    """Evaluate a module in evaluation mode, and put its parts back into the modes that they were in."""
    modes = {part: part.training for part in module.modules()}
    module.eval()
    with torch.no_grad():
        found: Tensor = module(torch.ones(2)).sum()
    for part, mode in modes.items():
        part.training = mode
    return found


def own_chat(messages: list[dict[str, str]]) -> tuple[list[str], list[bool]]:
    """Return the characters of a conversation in the format of ChatML, and which of them the model wrote."""
    pieces = []
    for one in messages:
        head = (f"<|im_start|>{one['role']}\n", False)
        body = (f"{one['content']}<|im_end|>", one["role"] == "assistant")
        pieces += [head, body, ("\n", False)]
    return [mark for text, _ in pieces for mark in text], [on for text, on in pieces for _ in text]


def _figures() -> list[Family]:
    """Return the families of running statistics, schedules and metrics."""
    warm = schedule_laws(start=1 / 6, peak=1.0, end=0.1, warmup=5, steps=20, shape="cosine", argument="tensor")
    return [
        Family(normalizer_laws(clip=2.0), own_statistics(clip=2.0), edits(NORMALIZER_MUTANTS)),
        Family(warm, schedules.warmup(5, schedules.cosine(1.0, 0.1, 15))),
        Family(schedule_laws(start=1.0, end=0.25, steps=20, shape="linear"), straight),
        Family(metric_laws("pass_at_k"), pass_at_k),
        Family(beyond(metric_laws("pass_at_k", k_above_n=True), metric_laws("pass_at_k")), pass_of_all),
        Family(metric_laws("clip_fraction"), clip_fraction),
        Family(metric_laws("explained_variance"), explained_variance),
        Family(metric_laws("token_mean"), lambda value, mask: token_mean(value, mask)),
        Family(metric_laws("episode_returns"), finished_returns),
    ]


def _tokens() -> list[Family]:
    """Return the families of token functions: one subject for each choice of a suite's arguments that changes its laws."""
    truncated = partial(truncated_weights, low=0.5, high=2.0)
    geometric = partial(masked_weights, low=0.5, high=2.0, level="geometric")
    reductions = {
        "token_mean": Reduction(token_mean, token_count),
        "sequence_mean": Reduction(sequence_mean, sequence_count),
    }
    losses = [
        (token_loss_laws(dual_step), as_token_loss(dual_clip, clip=0.25, c=2.0)),
        (token_loss_laws(cispo_step), as_token_loss(cispo, low=0.5, high=2.0)),
        (token_loss_laws(partial(ppo_clip, clip=0.25), level="sequence"), as_token_loss(gspo, clip=0.25)),
    ]
    claims: dict[str, Any] = {"nan_padding": True, "detached": True, "unknown": True}
    weights = [
        (importance_laws(low=0.5, high=2.0, **claims), truncated),
        (importance_laws(low=0.5, high=2.0, level="geometric", outside="zero", **claims), geometric),
        (importance_laws(low=0.5, high=2.0, level="geometric", outside="zero"), geometric),
    ]
    return [
        Family(group_laws(nan_rewards=True, ungrouped=True), grpo_advantages, edits(GROUP_MUTANTS)),
        Family(group_laws(singleton="any"), grpo_advantages),
        Family(beyond(group_laws(abstains=True), group_laws()), abstaining),
        Family(
            group_laws(centre="leave_one_out", scaled=False, nan_rewards=True, ungrouped=True),
            rloo_advantages,
            edits(GROUP_MUTANTS),
        ),
        *[
            Family(aggregate_laws(WEIGHTS[name], nan_padding=True, live=True), one, edits(AGGREGATE_MUTANTS))
            for name, one in reductions.items()
        ],
        Family(
            aggregate_laws(WEIGHTS["token_mean"], empty=False, parts=False),
            Reduction(lambda loss, mask: (loss * mask).sum() / mask.sum(), token_count),  # NaN where there is no token
        ),
        *[Family(suite, loss, edits(TOKEN_LOSS_MUTANTS)) for suite, loss in losses],
        *[Family(suite, weighting, edits(IMPORTANCE_MUTANTS)) for suite, weighting in weights],
        Family(token_log_prob_laws(), token_log_probs, edits(TOKEN_LOG_PROB_MUTANTS)),
        Family(credit_laws(), own_crediting(), edits(CREDIT_MUTANTS)),
        Family(token_gae_laws(), token_gae, edits(TOKEN_GAE_MUTANTS)),
        Family(token_gae_laws(nan_padding=True), token_gae),
        Family(causal_laws(), table_causal(), edits(CAUSAL_MUTANTS)),
    ]


def _learner(model: ActorCritic) -> Algorithm:
    return a2c(model, optimizers.adam(0.01), entropy_coefficient=0.0)


def prober(model: ActorCritic) -> Algorithm:
    """Return PPO set up to learn the probe environments in some thousand steps."""
    return ppo(model, optimizers.adam(0.02), gamma=0.5, epochs=2, minibatches=2)


def _learners() -> list[Family]:
    """Return the families of learners; the token learner is GRPO with all options that need forward passes (`Reading`)."""
    observation, action = Box(-1.0, 1.0, (3,)), Discrete(2)
    module = torch.nn.Linear(3, 2)
    torch.nn.init.constant_(module.weight, 0.5)
    torch.nn.init.constant_(module.bias, 0.25)
    weights = partial(truncated_weights, high=2.0)
    full = {"kl_in_loss": 0.5, "proximal": "recomputed", "correction": weights}
    grpo = learning(objectives.grpo(clip=0.25), **full)
    return [
        Family(policy_laws(observation, action), actor_critic_mlp(observation, action, hidden=(8,))),
        Family(categorical_laws(), lambda logits: Categorical(logits=logits)),
        Family(module_laws(dyadic((2, 3))), (module, functional(module))),
        Family(module_laws(evaluated=dropping), own_evaluation),
        Family(update_laws(), _learner),
        Family(order_laws(), minibatch_rows, edits(ORDERS)),
        Family(learner_laws(WEIGHTS["sequence_mean"]), grpo, edits(LEARNER_MUTANTS)),
        Family(precision_laws(), own_descending(), edits(PRECISION_MUTANTS)),
        Family(probe_laws(gamma=0.5), prober, night=True),
    ]


def _rendered(messages: list[dict[str, str]], prompt: bool) -> str:
    """Return a conversation in the format of ChatML."""
    text = "".join(f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in messages)
    return f"{text}<|im_start|>assistant\n" if prompt else text


def restated(text: str) -> str:
    """Return a completion in other words."""
    return text.replace("It is", "The answer is")


SCORED = (
    {"completion": "It is 5.", "answer": "5", "reward": 1.0},
    {"completion": "so \\boxed{-6}", "answer": "5", "reward": 0.0},
    {"completion": "", "answer": "-6", "reward": 0.0},
)


def _texts() -> list[Family]:
    adding = Convention(end=2, padding=2, left=True, adds_end=True, predicts=True)
    adds_end = token_mask_laws(side="left", adds_end=True, predicts=True)
    texts: dict[str, Any] = {"alike": restated, "before": "Of 2 and 3. ", "after": " So much for it."}
    answered = reward_function_laws(SCORED, answer="answer", **texts)
    return [
        Family(reward_function_laws(SCORED, low=0.0, high=1.0), numeric),
        Family(beyond(answered, reward_function_laws(SCORED)), numeric),
        Family(tool_parser_laws(), hermes_calls),
        Family(chat_template_laws(end="<|im_end|>", trims=False), _rendered),
        Family(token_mask_laws(), collated(evolve(adding, left=False, adds_end=False, predicts=False))),
        Family(adds_end, collated(adding), edits({"ends what a limit cut": ends_what_was_cut})),
        Family(chat_mask_laws(_rendered, end="<|im_end|>"), own_chat),
        Family(token_mask_laws("score_at_end"), score_at_end),
        Family(token_mask_laws("cut_at_end"), cut_at_end),
        Family(token_mask_laws("log_prob_of_mask"), log_prob_of_mask),
        Family(parser_laws(), own_reading()),
        Family(codec_laws(), byte_codec()),
        Family(own_world_laws(), ledger(), edits(TEXT_ENV_MUTANTS)),
        Family(preparation_laws("a0=0; b1=1;", "b 1", "[ANSWER] 3"), own_prepared()),
    ]


def _effects() -> list[Family]:
    return [
        Family(checkpoint_laws(), own_store(), edits(CHECKPOINT_MUTANTS)),
        Family(machine_laws(), fetcher()),
        Family(resume_laws(), SmallTrainer, edits(RESUME)),
        Family(replay_laws(replacement=False), OwnBuffer),
        Family(replay_laws(alpha=0.5, beta=1.0, new="largest"), Prioritised),
        Family(beyond(replay_laws(goals="future"), replay_laws()), Hindsight),
        Family(sum_tree_laws(), CumulatedPriorities),
        Family(replay_laws(n=3), NStep),
    ]


def families() -> tuple[Family, ...]:
    """Return every suite of this package with a subject and its mutants."""
    steps = _steps_and_folds() + _worlds() + _distributions() + _objectives() + _targets() + _tokens()
    learning_ = _optimizers() + _figures() + _learners()
    return tuple(steps + learning_ + _texts() + _effects())
