"""The catalogue: a row for each suite that users can point at their own objects, with the marks by which these are matched.

To add a suite, add a `CatalogueRow` to `ROWS`, in alphabetical order. `purestep laws` lists the rows; `purestep verify`,
`purestep write` and `--package` match objects with them (`matching.py`), and call nothing in doing so.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

from attrs import field, frozen

from ...core.errors import StructureError, choose, message
from .verdict import NoVerdict

if TYPE_CHECKING:
    from .law import Suite

NAMES: Mapping[str, str] = {  # role of a parameter -> regular expression of all names that it has in the field
    "capacity": r"(max_?)?((buffer|replay|memory)_?)?(capacity|size|len(gth)?)|max_?(transitions|entries)|n|limit",
    "learning_rate": r"lr|learning_rate|step_size|alpha|eta|stepsize",
    "num_envs": r"(num|n)_?envs?|count|n|size",
    "params": r"params?|parameters?|model_parameters|weights",
    "shape": r"((obs(ervation)?|state|input)_?)?(shape|size|dim)|num_inputs|n_?features|features",
    "add_generation_prompt": r"add_generation_prompt|generation_prompt",
    "action": r"actions?|act|a|a_t|u",
    "advantage": r"adv(antage)?s?|adv(antage)?_t|mb_advantages|b_advantages|weights?_t",
    "behaviour_log_prob": r"(old|behaviou?r|prev|previous|sampl(er|ing)|rollout|inference|generator|mu)_?"
    r"(policy_)?(per_token_)?(log_?probs?|logps?)(_t)?|(log_?probs?|logps?)_(old|behaviou?r|mu|b)|b_logprobs|log_mu|blogp|logp_old",
    "entropy": r"entrop(y|ies)(_loss)?|ent",
    "behaviour_value": r"(old|behaviou?r|prev(ious)?|rollout)_?(values?|vals?|vpreds?)|"
    r"(values?|vals?|vpreds?)_(old|b)|b_values",
    "clip_low": r"(clip_?)?(eps(ilon)?|clip|ratio)(_(ratio|range|eps(ilon)?))?_?low(er)?",
    "clip_high": r"(clip_?)?(eps(ilon)?|clip|ratio)(_(ratio|range|eps(ilon)?))?_?(high|upp)(er)?",
    "log_ratio": r"log_?(ratios?|r|rho)",
    "ratio": r"((prob(ability)?|importance|policy)_?)?ratios?|rho",
    "clip": r"clip(_?(eps(ilon)?|range|coef|ratio|param|value|pi))?(_?(vf|value|v))?|(vf|value)_clip\w*|"
    r"(ppo_)?eps(ilon)?(_clip)?|clip_epsilon|e?clip",
    "count": r"(num_(items|tokens|generations|steps)|n|size|count|batch_size|group_size|samples_per_prompt)"
    r"(_in_batch)?|k",
    "discount": r"discounts?(_t)?|pcont(_t)?",
    "ended": r"dones?(_t)?|d|ends?|ended|is_(last|done)|episode_(ends?|starts?)|nonterminals?|not_dones?|continues?|finished",
    "gamma": r"gamma|discount(_factor|_rate)?|gam|g|discount_gamma|decay",
    "group": r"(group|prompt|question)s?(_(ids?|index|idx|indices))?|index|uids?|gid",
    "groups": r"(num|n)_(groups|prompts)|groups",
    "key": r"key|rng|rng_key|prng_key|generator",
    "lambda_": r"(gae_?|td_?)?(lambda_?|lam|lmbda|lambd)(_t|_)?|tau|trace(_decay)?",
    "last_ended": r"(last|next|final|bootstrap)_(done|terminated|terminal)s?",
    "last_value": r"(last|next|final|bootstrap)_(state_)?(value|val|v)s?|v_last|vf_last|value_last|bootstrap(_v)?",
    "log_ratios": r"log_(ratios?|rhos?)|rhos?(_tm1|_t)?|(importance_)?ratios?",
    "logits": r"logits?|scores|log_potentials|unnormali[sz]ed_log_probs|preferences|policy_logits",
    "log_prob": r"((new|cur|current|policy|target|actor|pi|per_token|token|action|model|train(er)?)_?)*(log_?probs?|logps?)"
    r"(_(new|t|a|pi|theta))?|log_pi(_a)?|logprobs_new|newlogprob|lp",
    "loss": r"loss(es)?|loss_mat|per_token_loss|token_loss|values",
    "env": r"env(ironment)?s?|venv",
    "log_std": r"log_?(std|scale|sigma)s?|scale|std|sigma",
    "mask": r"((response|completion|loss|token|attention|action|padding|eos|valid)_)?masks?|m",
    "mean": r"mean|mu|loc|means",
    "messages": r"messages?|conversation|chat|turns|dialog(ue)?",
    "n": r"n(_steps?)?|nstep|horizon",
    "next_observation": r"next_(obs(ervation)?s?|states?)|s_tp1|obs_next|s_next",
    "next_values": r"next_(state_)?(values|vals)|next_state_value|v_tp1|values?_next|vs_next|v_next|next_vs?",
    "observation": r"obs(ervation)?s?|states?|s|s_t|o",
    "parameters": r"params?|parameters?|updates",
    "prompt": r"(prompt|question|instruction|problem|query)s?(_str)?|inputs?",
    "reference_log_prob": r"(ref(erence)?|base|prior|anchor|teacher|init(ial)?)_?(policy_)?(model_)?(per_token_)?"
    r"(log_?probs?|logps?)|(log_?probs?|logps?)_(ref(erence)?|base|q)|log_?q|q_log_?probs?|ref_logprob",
    "response": r"(completion|response|answer|output|solution|text|generation)s?(_str)?",
    "reward": r"((token_level|env|episode|step)_)?(reward|rew|score|return)s?",
    "rewards": r"((token_level|step|env|raw)_)?rew(ard)?s?(_t|_seq|_list|_buf)?|r|r_t|rs|scores",
    "step": r"(global_?)?step|count|t|epoch|iteration|it|progress(_remaining)?|current_step|num_steps",
    "target": r"((value|td|critic|q|lambda)_)?(targets?|returns?|rets?)(_t)?|returns_batch|b_returns|labels?|y",
    "target_params": r"targ(et)?_?(net(work)?|params?|parameters|model|critic|actor|q(_?net(work)?)?|weights|variables?)?|slow|"
    r"(params?|net(work)?|model|weights)_?targ(et)?|old(_tensors)?|follower",
    "online_params": r"((online|local|source|main|current|policy|new|fast|q)_?)?(net(work)?|params?|parameters|model|critic|"
    r"actor|weights|variables?|tensors)|source|online|new|q",
    "rate": r"tau|rate|polyak(_tau)?|rho|step_size|alpha|coef(ficient)?|decay|momentum",
    "atoms": r"atoms|support|z(_support)?|bins",
    "discounts": r"discounts?|gammas?|d_t|discount_t",
    "epsilon": r"eps(ilon)?|exploration(_rate)?|random_prob(ability)?",
    "q_values": r"(q_?)?values?|q(_?vals?)?|qs|action_values|preferences",
    "temperature": r"temperature|temp|tau|t",
    "terminated": r"terminat(ed|ions?|als?|es)|terminals?|terms?|is_terminal",
    "truncated": r"truncat(ed|ions?|es)|truncs?|time_?outs?|time_limit_dones?",
    "value": r"((new|pred(icted)?|state|current)_?)?(values?|vals?|vpreds?|predictions?|v|input|preds?)|newvalue",
    "values": r"((state|critic|old|pred(icted)?|baseline|mb|b)_)?(values?|vals?|vpreds?|baselines?|value_preds?)"
    r"(_t|_tm1|_seq|_buf)?|v|vs|v_t|v_tm1|val_buf",
}


@frozen(kw_only=True)
class Signature:
    """The call of a suite's subject: a function or a factory of it; for an object `text` describes it instead."""

    form: Literal["f", "make", ""] = ""
    positional: tuple[str, ...] = ()  # a role each, perhaps with a shape or a default
    keywords: tuple[str, ...] = ()
    returns: str = ""
    text: str = ""

    def roles(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the positional and the keyword roles.

        >>> function("loss [N]", "mask", keywords=("clip",), returns="loss").roles()
        (('loss', 'mask'), ('clip',))
        """
        names = tuple(part.partition("[")[0].partition("=")[0].strip() for part in self.positional)
        return names, tuple(name for name in self.keywords if name.isidentifier())

    def __str__(self) -> str:
        """Return it as a line for the user.

        >>> str(function("loss [N]", "mask", keywords=("clip",), returns="loss"))
        'f(loss [N], mask, *, clip) -> loss'
        """
        parts = (*self.positional, *(("*", *self.keywords) if self.keywords else ()))
        returns = f" -> {self.returns}" if self.returns else ""
        return self.text or f"{self.form}({', '.join(parts)}){returns}"


def function(*positional: str, keywords: tuple[str, ...] = (), returns: str = "") -> Signature:
    """Return the signature of a function that a suite calls.

    >>> function("n", returns="number").form
    'f'
    """
    return Signature(form="f", positional=positional, keywords=keywords, returns=returns)


def of_one_stream(returns: str) -> Signature:
    """Return the signature of a function of one stream's rewards and values, with a discount and a trace."""
    stream = ("rewards", "values", "next_values", "terminated", "truncated")
    return function(*stream, keywords=("gamma", "lambda_"), returns=returns)


def factory(*positional: str, keywords: tuple[str, ...] = (), returns: str) -> Signature:
    """Return the signature of a function that makes a suite's subject.

    >>> str(factory("capacity", returns="buffer"))
    'make(capacity) -> buffer'
    """
    return Signature(form="make", positional=positional, keywords=keywords, returns=returns)


@frozen(kw_only=True)
class CatalogueRow:
    """One suite: where it is, how its subject is called, and the marks of objects that it fits.

    A match counts the share of `needs` among an object's parameters, its name, base classes (or the classes that it returns),
    methods, and words of its docstring. `adapt` names a function of the object that returns the suite's subject, or a pair of
    a subject and a suite with the convention that the object follows; without it, a function is called with the
    subject's parameters under their names there.
    """

    suite: str  # the word after --suite
    laws: tuple[str, str]  # a module, and the name of a suite in it or of a function that returns one
    declared: Mapping[str, Any] = field(factory=dict)  # keywords for that function; --declare replaces them
    signature: Signature  # of the subject
    example: str  # a line to paste, with `from purestep.properties import *` above it
    kind: tuple[str, str] = ("", "")  # module and name of the class that the subject must have, if it must have one
    names: str = ""  # regular expression, searched in the object's name
    needs: tuple[str, ...] = ()  # roles of NAMES, or parameter names, in the order of the signature
    may: tuple[str, ...] = ()  # further ones
    derived: Mapping[str, Callable[[Mapping[str, Any]], Any]] = field(
        factory=dict
    )  # roles that are made of the subject's own
    instead: Mapping[str, tuple[str, ...]] = field(factory=dict)  # derived role -> roles that it stands for
    bases: tuple[str, ...] = ()  # qualified names of base classes, or of a class that a factory's annotation returns
    methods: tuple[str, ...] = ()  # that a class must have, all of them
    words: str = ""  # regular expression, searched in the first paragraph of the docstring
    adapt: tuple[str, str] = ("", "")
    conventions: tuple[
        Mapping[str, Any], ...
    ] = ()  # declarations to try where a law is broken: with any of them it is right
    results: tuple[str, ...] = ()  # further ways to read a result, of `readings.RESULTS`
    tells: tuple[str, ...] = ()  # laws that no object of another kind keeps
    claims: Mapping[str, str] = field(factory=dict)  # law -> keyword that says what the object claims there
    hints: tuple[Mapping[str, Any], ...] = ()  # further ones, which the object has to declare to be right


ROWS: tuple[CatalogueRow, ...] = (
    CatalogueRow(
        suite="aggregate",
        laws=("..suites.aggregate", "aggregate_laws"),
        kind=("..suites.aggregate", "Reduction"),
        signature=Signature(text="Reduction(reduce, denominator): reduce(loss [N, L], mask [N, L]) -> loss"),
        example='verify(aggregate_laws(WEIGHTS["token_mean"]), Reduction(my_mean, lambda mask: mask.sum()))',
        names=r"(?i)agg(regate)?_loss",
        bases=("purestep.properties.suites.aggregate.Reduction",),
    ),
    CatalogueRow(
        suite="categorical",
        laws=("..suites.categorical", "categorical_laws"),
        signature=factory("logits [*, A]", returns="distribution with log_prob, entropy, mode, sample, transform"),
        example="verify(categorical_laws(), lambda logits: Categorical(logits=logits))",
        names=r"(?i)categorical|softmax_dist",
        needs=("logits",),
        methods=("log_prob", "entropy", "mode", "transform"),
        words=r"(?i)categorical",
    ),
    CatalogueRow(
        suite="categorical_projection",
        laws=("..suites.projection", "categorical_projection_laws"),
        signature=function("probs [B, N]", "rewards [B]", "discounts [B]", "atoms [N]", returns="probs [B, N]"),
        example="verify(categorical_projection_laws(), my_projection)",
        names=r"(?i)(categorical|l2|c51|distribution(al)?|value)_?proj(ect(ion)?)?|proj(ect(ion)?)?_?(categorical|distribution(al)?)",
        needs=("probs", "rewards", "discounts", "atoms"),
        words=r"(?i)project",
    ),
    CatalogueRow(
        suite="chat_mask",
        laws=("..suites.language.chat_mask", "chat_mask_laws"),
        signature=function("messages", returns="(tokens, mask), or the tokens of a rollout"),
        example='verify(chat_mask_laws(render, end="<|im_end|>"), my_tokens_and_mask)',
        names=r"(?i)(assistant|training|conversation|chat)_?(tokens?_?)?mask|rollout_tokens",
        needs=("messages",),
        words=r"(?i)trained on|mask of (a )?conversation",
    ),
    CatalogueRow(
        suite="chat_template",
        laws=("..suites.language.chat_template", "chat_template_laws"),
        signature=function("messages", "prompt", returns="text or token ids; or a tokenizer with a chat template"),
        example='verify(chat_template_laws(end="<|im_end|>"), render)',
        names=r"(?i)chat_?template|render_?(chat|messages|conversation)|format_?(chat|messages|prompt)|tokenizer",
        needs=("messages",),
        may=("prompt",),
        derived={"add_generation_prompt": lambda given: given["prompt"]},
        bases=("transformers.PreTrainedTokenizerBase",),
        methods=("apply_chat_template",),
        words=r"(?i)chat template",
    ),
    CatalogueRow(
        suite="checkpoint",
        laws=("..suites.checkpoint", "checkpoint_laws"),
        kind=("..suites.checkpoint", "TreeStore"),
        signature=Signature(text="TreeStore(save, load): save(folder, tree), load(folder) -> tree"),
        example="verify(checkpoint_laws(), TreeStore(save, load, keeps_sharing=True))",
        names=r"(?i)checkpoint|tree_?store",
        bases=("purestep.properties.suites.checkpoint.TreeStore",),
    ),
    CatalogueRow(
        suite="distribution",
        laws=("..suites.distribution", "distribution_laws"),
        signature=factory(
            "*outputs [*, D]", returns="distribution with log_prob, sample, and entropy and mode if it has them"
        ),
        example="verify(distribution_laws(event=False), lambda mean, log_std: Normal(mean, log_std.exp()))",
        conventions=({"low": -1.0, "high": 1.0}, {"event": False}),
        names=r"(?i)(normal|gaussian|beta|tanh|squash\w*|laplace|dist(ribution)?)(_?dist(ribution)?)?$|bernoulli|mixture",
        needs=("mean", "log_std"),
        bases=("torch.distributions.Distribution", "purestep.core.distributions.Distribution"),
        methods=("log_prob", "sample|rsample"),
        words=r"(?i)distribution",
    ),
    CatalogueRow(
        suite="env",
        laws=("..suites.env", "env_laws"),
        kind=("...core.env", "Env"),
        signature=Signature(text="Env(params, reset, step, observation_space, action_space)"),
        example="verify(env_laws, cartpole())",
        names=r"(?i)env$|world$",
        bases=("purestep.core.env.Env",),
    ),
    CatalogueRow(
        suite="epsilon",
        laws=("..suites.epsilon", "epsilon_laws"),
        signature=function("q_values [N, A]", "epsilon", returns="actions [N]"),
        example="verify(epsilon_laws(masked=True), my_epsilon_greedy)",
        names=r"(?i)eps(ilon)?_?greedy",
        needs=("q_values", "epsilon"),
        words=r"(?i)epsilon[- ]greedy",
    ),
    CatalogueRow(
        suite="estimator",
        laws=("..suites.estimator", "estimator_laws"),
        signature=of_one_stream("advantages [T]"),
        example="verify(estimator_laws(), gae)",
        names=r"(?i)(^|_)gae(_|$)|gae|advantage(s)?(_and_returns|_estimat\w+)?$|generali[sz]ed_advantage",
        needs=("rewards", "values", "gamma", "lambda_"),
        may=("next_values", "terminated", "truncated", "ended", "last_value", "last_ended", "discount"),
        words=r"(?i)generali[sz]ed advantage|\bgae\b",
        adapt=("..suites.estimator_forms", "estimator_form"),
    ),
    CatalogueRow(
        suite="group",
        laws=("..suites.language.group", "group_laws"),
        signature=function("reward [N]", "group [N]", keywords=("groups",), returns="advantages [N]"),
        example="verify(group_laws(), grpo_advantages)",
        conventions=(
            {"singleton": "any"},
            {"singleton": "raw"},
            {"correction": 0},
            {"scaled": False},
            {"centre": "leave_one_out", "scaled": False},
            {"singleton": "any", "scaled": False},
            {"singleton": "any", "centre": "leave_one_out", "scaled": False},
        ),
        names=r"(?i)grpo.*adv|group.*adv|rloo|leave_one_out|adv.*grpo|group_normali[sz]e",
        needs=("reward", "group"),
        may=("groups", "count"),
        adapt=("..suites.forms", "group_form"),
        tells=("definition", "sums_to_zero"),
        words=r"(?i)group.{0,40}(mean|advantage|reward)|leave[- ]one[- ]out",
    ),
    CatalogueRow(
        suite="gym",
        laws=("..suites.gym", "gym_laws"),
        signature=Signature(text="id of a registered environment, or make() -> gymnasium.Env"),
        example='verify(gym_laws(), "CartPole-v1")',
        names=r"(?i)env(ironment)?(_?v?\d+)?$",
        bases=("gymnasium.Env", "gym.Env"),
        methods=("reset", "step", "action_space|observation_space"),
    ),
    CatalogueRow(
        suite="importance",
        laws=("..suites.importance", "importance_laws"),
        declared={"low": 0.5, "high": 2.0},
        signature=function("log_prob", "behaviour_log_prob", "mask", returns="weights [N, L]"),
        example="verify(importance_laws(low=0.5, high=2.0), partial(truncated_weights, low=0.5, high=2.0))",
        conventions=({"low": 0.0}, {"masked": False}, {"low": 0.0, "masked": False}),
        claims={"bounds": "high", "definition": "high"},
        names=r"(?i)importance.*weight|is_weights?|truncated_(is|importance|weights)|tis(_|$)|rollout_correction",
        needs=("log_prob", "behaviour_log_prob", "mask"),
        words=r"(?i)importance (weight|sampling)",
    ),
    CatalogueRow(
        suite="kl",
        laws=("..suites.kl", "kl_laws"),
        signature=function("log_prob", "reference_log_prob", returns="estimates [*]"),
        example="verify(kl_laws(), k3)",
        conventions=(
            {"gradient": "none"},
            {"gradient": "divergence"},
            {"never_negative": False},
            {"unbiased": False},
            {"unbiased": False, "gradient": "divergence"},
            {"never_negative": False, "gradient": "none"},
        ),
        results=("its result is the mean or sum over a batch",),
        tells=("zero_at_equality", "expectation", "grows_with_distance"),
        names=r"(?i)(^|_)kl(_|$)|kl_?(penalty|div\w*|estimat\w*|approx)|approx_?kl|^k[123]$|kullback",
        needs=("log_prob", "reference_log_prob"),
        may=("mask",),
        words=r"(?i)kullback|\bkl\b",
    ),
    CatalogueRow(
        suite="lambda_return",
        laws=("..suites.returns", "lambda_return_laws"),
        signature=of_one_stream("returns [T]"),
        example="verify(lambda_return_laws(), lambda_returns)",
        names=r"(?i)lambda_?(return|target|value)s?|td_?lambda|lambda_?ret",
        needs=("rewards", "values", "gamma", "lambda_"),
        may=("next_values", "terminated", "truncated", "ended", "last_value", "discount"),
        words=r"(?i)lambda[- ](return|target)|TD\(lambda\)",
        adapt=("..suites.estimator_forms", "return_form"),
    ),
    CatalogueRow(
        suite="loss",
        laws=("..suites.loss", "loss_laws"),
        signature=function("log_prob", "behaviour_log_prob", "advantage", keywords=("clip",), returns="losses [*]"),
        example="verify(loss_laws(), ppo_clip)",
        conventions=({"mean": True}, {"dual_clip": 3.0}, {"dual_clip": 3.0, "mean": True}),
        results=("its result is an objective, the negative of a loss",),
        tells=(
            "on_policy_value",
            "on_policy_gradient",
            "no_clip_is_importance_weighting",
            "gradient_stops_at_the_clip",
        ),
        hints=({"clipped": False},),
        derived={
            "log_ratio": lambda given: given["log_prob"] - given["behaviour_log_prob"],
            "ratio": lambda given: (given["log_prob"] - given["behaviour_log_prob"]).exp(),
            "clip_low": lambda given: given["clip"],
            "clip_high": lambda given: given["clip"],
        },
        instead={
            "log_ratio": ("log_prob", "behaviour_log_prob"),
            "ratio": ("log_prob", "behaviour_log_prob"),
            "clip_high": ("clip",),
        },
        names=r"(?i)ppo.*(loss|clip|objective|surrogate)|clip(ped)?_?(surrogate|objective|policy|pg)|surrogate|pg_loss|policy_loss",
        needs=("log_prob", "behaviour_log_prob", "advantage", "clip"),
        words=r"(?i)clip(ped)? (surrogate|objective|policy)|\bPPO\b",
    ),
    CatalogueRow(
        suite="machine",
        laws=("..suites.machine", "machine_laws"),
        kind=("..suites.machine", "MachineCase"),
        signature=Signature(text="MachineCase(machine, start, events, effects)"),
        example="verify(machine_laws(), MachineCase(...))",
        names=r"(?i)machine_?case",
        bases=("purestep.properties.suites.machine.MachineCase",),
    ),
    CatalogueRow(
        suite="masked_loss",
        laws=("..suites.language.masked_loss", "masked_loss_laws"),
        signature=function("log_prob", "behaviour_log_prob", "advantage", "mask", returns="loss []"),
        example="verify(masked_loss_laws(), my_loss)",
        conventions=({"empty": False},),
        results=("its advantages are of sequences [B]",),
        names=r"(?i)(grpo|ppo|policy|pg|token).*loss",
        needs=("log_prob", "behaviour_log_prob", "advantage", "mask"),
        may=("clip",),
        words=r"(?i)(masked|token).{0,30}loss",
    ),
    CatalogueRow(
        suite="metric",
        laws=("..suites.metric", "metric_laws"),
        signature=function("...", returns="number: pass_at_k, explained_variance, token_mean or episode_returns"),
        example='verify(metric_laws("pass_at_k"), my_pass_at_k)',
        names=r"(?i)pass_?(at_?)?k|explained_var|masked_mean|token_mean|episode_(returns?|lengths?)",
        words=r"(?i)pass@k|explained variance",
        adapt=("..suites.forms", "metric_form"),
    ),
    CatalogueRow(
        suite="n_step",
        laws=("..suites.target", "n_step_laws"),
        signature=function(
            "rewards", "next_values", "terminated", "truncated", keywords=("gamma", "n"), returns="returns [T]"
        ),
        example="verify(n_step_laws(), n_step)",
        names=r"(?i)n_?step",
        needs=("rewards", "next_values", "gamma", "n"),
        may=("terminated", "truncated"),
        derived={"ended": lambda given: given["terminated"] | given["truncated"]},
        words=r"(?i)n-step",
    ),
    CatalogueRow(
        suite="normalizer",
        laws=("..suites.normalizer", "normalizer_laws"),
        signature=factory("shape=...", returns="object with update(batch), mean and var"),
        example='verify(normalizer_laws(arrays="numpy", prior=1e-4), RunningMeanStd)',
        conventions=({"arrays": "numpy"}, {"arrays": "numpy", "prior": 1e-4}, {"prior": 1e-4}, {"ddof": 1}),
        names=r"(?i)running_?(mean|stat|norm)|normali[sz]er|welford|obs(ervation)?_?norm|mean_?std",
        methods=("update|update_from_moments|push|record",),
        words=r"(?i)running (mean|stat|var)",
    ),
    CatalogueRow(
        suite="optimizer",
        laws=("..suites.optimizer", "optimizer_laws"),
        signature=factory("params", "learning_rate", returns="optimizer with step and param_groups"),
        example='verify(optimizer_laws("adam"), torch.optim.Adam)',
        names=r"(?i)adam|sgd|rmsprop|lion|adagrad|optimi[sz]er",
        claims=dict.fromkeys(
            (
                "first_step",
                "follows_the_rule",
                "groups_have_own_rates",
                "parameters_are_separate",
                "tiny_gradients",
                "decay",
                "nan_shows",
                "state_is_complete",
            ),
            "rule",
        ),
        bases=("torch.optim.Optimizer",),
        methods=("step", "zero_grad"),
        words=r"(?i)optimi[sz]er|algorithm",
        adapt=("..suites.forms", "optimizer_form"),
    ),
    CatalogueRow(
        suite="order",
        laws=("..suites.order", "order_laws"),
        signature=function(
            "key",
            "rows",
            keywords=("epochs", "minibatches"),
            returns="indices [epochs * minibatches, rows / minibatches]",
        ),
        example="verify(order_laws(), order)",
        names=r"(?i)(minibatch|shuffle|epoch).*(ind\w+|order|iter\w*|perm\w*)|^order$",
        needs=("key", "rows"),
        may=("epochs", "minibatches"),
    ),
    CatalogueRow(
        suite="policy",
        laws=("..suites.policy", "policy_laws"),
        signature=Signature(text="ActorCritic(init, apply); an nn.Module through purestep.properties.adapters.modules"),
        example="verify(policy_laws(Box(-1.0, 1.0, (3,)), Discrete(2)), actor_critic_mlp(...))",
        names=r"(?i)policy|actor|agent",
        bases=("torch.nn.Module", "purestep.core.policy.ActorCritic"),
        methods=("forward|act|get_action|get_action_and_value|apply",),
        words=r"(?i)policy|actor",
    ),
    CatalogueRow(
        suite="probe",
        laws=("..suites.probe", "probe_laws"),
        declared={"gamma": 0.99},
        signature=factory("model", returns="Algorithm"),
        example="verify(probe_laws(gamma=0.5), lambda model: ppo(model, adam(0.02), gamma=0.5))",
        bases=("purestep.algorithms.algorithm.Algorithm",),
    ),
    CatalogueRow(
        suite="quantile_loss",
        laws=("..suites.value_loss", "value_loss_laws"),
        declared={"quantiles": True},
        signature=function("quantiles [B, N]", "targets [B, N]", returns="loss"),
        example="verify(value_loss_laws(quantiles=True), my_quantile_huber_loss)",
        names=r"(?i)quantile_?(huber|regression)?_?loss|qr_?(dqn_?)?loss",
        needs=("quantiles", "target"),
        words=r"(?i)quantile",
    ),
    CatalogueRow(
        suite="replay",
        laws=("..suites.replay", "replay_laws"),
        signature=factory("capacity", returns="object with add(step), sample(count) and __len__"),
        example="verify(replay_laws(), lambda capacity: MyBuffer(capacity))",
        names=r"(?i)replay|buffer|memory|experience",
        methods=("add|push|append|store|extend|put", "sample|sample_batch|get|draw"),
        words=r"(?i)replay|buffer",
    ),
    CatalogueRow(
        suite="reward_function",
        laws=("..suites.language.reward_function", "reward_function_laws"),
        signature=function("completions", "**columns", returns="list of numbers"),
        example='verify(reward_function_laws([{"completion": "5", "answer": "5"}]), my_reward)',
        names=r"(?i)reward(_fn|_func(tion)?)?$|(accuracy|format|length|correctness)_reward|grade|compute_score|verifier",
        needs=("response",),
        may=("prompt", "answer", "ground_truth"),
        adapt=("..suites.forms", "reward_form"),
        words=r"(?i)reward",
    ),
    CatalogueRow(
        suite="scan",
        laws=("..suites.scan", "scan_laws"),
        signature=function("step", "carry", "inputs", "length=None", returns="(carry, outputs)"),
        example="verify(scan_laws(), scan)",
        names=r"(?i)(^|_)scan$|^fold$",
        needs=("step", "carry", "inputs"),
    ),
    CatalogueRow(
        suite="schedule",
        laws=("..suites.schedule", "schedule_laws"),
        signature=function("n", returns="number; or make(optimizer) -> scheduler of torch.optim"),
        example="verify(schedule_laws(start=1.0, end=0.0, steps=10), my_schedule)",
        names=r"(?i)schedul|anneal|decay|warm_?up|cosine|linear_?(lr|fn)|polynomial",
        needs=("step",),
        adapt=("..suites.forms", "schedule_form"),
        conventions=(
            {"argument": "int"},
            {"argument": "int", "constant_after": False},
            {"constant_after": False},
        ),
        bases=("torch.optim.lr_scheduler.LRScheduler",),
        words=r"(?i)schedule|anneal|warm-?up|learning rate",
    ),
    CatalogueRow(
        suite="sum_tree",
        laws=("..suites.sum_tree", "sum_tree_laws"),
        signature=factory("capacity", returns="object with update(index, priority), retrieve(mass) and total"),
        example="verify(sum_tree_laws(), MyTree)",
        names=r"(?i)(sum|segment)_?tree",
        methods=("update|set|add", "retrieve|find_prefixsum_idx|get|sample"),
        words=r"(?i)(sum|segment)[- ]tree",
    ),
    CatalogueRow(
        suite="target",
        laws=("..suites.target", "target_laws"),
        signature=function(
            "rewards", "next_values", "terminated", "truncated", keywords=("gamma",), returns="targets [T]"
        ),
        example='verify(target_laws("td"), my_td_target)',
        names=r"(?i)(td|q|dqn|double_q|bellman|critic|sac)_?targets?|rewards?_?to_?go|discount(ed)?_?(return|cumsum|sum|reward)|compute_returns",
        needs=("rewards", "gamma"),
        may=("next_values", "terminated", "truncated", "ended"),
        words=r"(?i)target|reward[- ]to[- ]go|rewards to go|discounted",
        adapt=("..suites.forms", "target_form"),
        conventions=({"kind": "td"}, {"kind": "max"}),
    ),
    CatalogueRow(
        suite="target_network",
        laws=("..suites.target_network", "target_network_laws"),
        signature=function("target_params", "online_params", "rate", returns="target params, or None: in place"),
        example="verify(target_network_laws(), lambda target, network, tau: soft_update(network, target, tau))",
        names=r"(?i)(polyak|soft|target(_net(work)?)?|ema)_?(update|average|sync|copy)|update_target|sync_target|incremental_update",
        needs=("target_params", "online_params", "rate"),
        words=r"(?i)polyak|soft[- ]update|target network",
        conventions=({"buffers": False}, {"kept": True}, {"kept": True, "buffers": False}),
    ),
    CatalogueRow(
        suite="token_gae",
        laws=("..suites.language.token_gae", "token_gae_laws"),
        signature=function(
            "rewards",
            "values",
            "mask",
            "next_value",
            "terminated",
            keywords=("gamma", "lambda_"),
            returns="advantages [N, L]",
        ),
        example="verify(token_gae_laws(), token_gae)",
        names=r"(?i)token_?(level_?)?gae",
    ),
    CatalogueRow(
        suite="token_mask",
        laws=("..suites.language.token_mask", "token_mask_laws"),
        signature=function(
            "samples", returns="(ids [N, L], mask [N, L]); or a function of completions and their end token, by kind"
        ),
        example="verify(token_mask_laws(), my_collator)",
        names=r"(?i)collat|loss_?mask|label_?mask|completion_?mask|assistant_?mask",
        words=r"(?i)collat|loss mask",
    ),
    CatalogueRow(
        suite="tool_parser",
        laws=("..suites.language.tool_parser", "tool_parser_laws"),
        signature=function("text", returns="list of calls with name and arguments"),
        example="verify(tool_parser_laws(), hermes_calls)",
        names=r"(?i)tool_?(call|parse)|(parse|extract|find)_?(tool|function|action)s?(_?calls?)?|hermes|function_?call",
        needs=("response",),
        words=r"(?i)tool[- ]call|function[- ]call",
    ),
    CatalogueRow(
        suite="update",
        laws=("..suites.update", "update_laws"),
        signature=factory("model", returns="Algorithm(init, update)"),
        example="verify(update_laws(), lambda model: a2c(model, adam(0.01), entropy_coefficient=0.0))",
        needs=("model",),
        bases=("purestep.algorithms.algorithm.Algorithm",),
    ),
    CatalogueRow(
        suite="value_loss",
        laws=("..suites.value_loss", "value_loss_laws"),
        signature=function("value", "behaviour_value", "target", keywords=("clip",), returns="losses [*]"),
        example='verify(value_loss_laws(clipped=False, scale=1.0, reduction="mean"), mse_loss)',
        conventions=(
            {"scale": 1.0},
            {"reduction": "mean"},
            {"scale": 1.0, "reduction": "mean"},
        ),
        hints=({"largest": False},),
        names=r"(?i)(value|critic|vf|v)_?(function_)?loss|clipped_value|mse|huber",
        needs=("value", "target"),
        may=("behaviour_value", "clip"),
        words=r"(?i)value (function )?loss|squared error",
        adapt=("..suites.forms", "value_loss_form"),
    ),
    CatalogueRow(
        suite="vector_env",
        laws=("..suites.gym_vector", "vector_env_laws"),
        signature=factory("num_envs", returns="gymnasium.vector.VectorEnv"),
        example='verify(vector_env_laws("CartPole-v1"), make)',
        names=r"(?i)vec(tor)?_?env",
        bases=("gymnasium.vector.VectorEnv", "stable_baselines3.common.vec_env.VecEnv"),
    ),
    CatalogueRow(
        suite="vtrace",
        laws=("..suites.returns", "vtrace_laws"),
        signature=function(
            *("log_ratios", "rewards", "values", "next_values", "terminated", "truncated"),
            keywords=("gamma", "lambda_", "rho_bar", "..."),
        ),
        example="verify(vtrace_laws(), vtrace)",
        names=r"(?i)v_?trace|impala",
        needs=("log_ratios", "rewards", "values"),
        may=("next_values", "terminated", "truncated", "gamma", "lambda_", "rho_bar", "c_bar"),
        derived={
            "behaviour_log_prob": lambda given: given["log_ratios"].new_zeros(given["log_ratios"].shape),
            "log_prob": lambda given: given["log_ratios"],
            "ended": lambda given: given["terminated"] | given["truncated"],
            "discount": lambda given: given["gamma"] * (~given["terminated"]).to(given["rewards"].dtype),
            "last_value": lambda given: given["next_values"][-1],
        },
        adapt=("..suites.forms", "vtrace_form"),
        instead={"log_prob": ("log_ratios",)},
        conventions=({"advantages": False},),
        words=r"(?i)v-?trace",
    ),
    CatalogueRow(
        suite="wrapper",
        laws=("..suites.gym_wrapper", "wrapper_laws"),
        signature=factory("env", returns="gymnasium.Wrapper"),
        example='verify(wrapper_laws("CartPole-v1", reward=half), lambda env: TransformReward(env, half))',
        names=r"(?i)wrapper|frame_?stack|action_?repeat|frame_?skip",
        claims={"reward": "reward", "observation": "observation", "actions": "action", "flags": "repeat"},
        bases=("gymnasium.Wrapper", "gym.Wrapper"),
        needs=("env",),
        words=r"(?i)wrap",
    ),
)


def rows() -> dict[str, CatalogueRow]:
    """Return the rows by the name of their suite."""
    return {row.suite: row for row in ROWS}


def import_named(place: tuple[str, str]) -> Any:
    """Return the object of a module of this package, imported now."""
    module, name = place
    return getattr(importlib.import_module(module, __package__), name)


def suite_of(row: CatalogueRow, declared: Mapping[str, Any] | None = None) -> "Suite":
    """Return the suite of a row, with keywords declared for it.

    Raises: StructureError for one that it does not have, NoVerdict for one that it needs.

    >>> suite_of(rows()["estimator"], {"convention": "drop"}).name
    'estimator_laws'
    """
    made: Any = import_named(row.laws)
    if not callable(made):
        if declared:
            remedy = "leave --declare out"
            raise StructureError(message(row.suite, got=sorted(declared), wanted="no keyword", remedy=remedy))
        return made  # type: ignore[no-any-return]
    takes = inspect.signature(made).parameters
    free = any(p.kind is p.VAR_KEYWORD for p in takes.values())
    for name in () if free else declared or {}:
        choose(f"--declare: a keyword of {made.__name__}", name, takes)
    words = {**row.declared, **(declared or {})}
    missing = [n for n, p in takes.items() if p.default is p.empty and n not in words and p.kind is not p.VAR_KEYWORD]
    if missing:
        remedy = f"add {' '.join(f'--declare {name}=VALUE' for name in missing)}"
        wanted = f"{', '.join(missing)} declared"
        raise NoVerdict(
            message(f"verify: {row.suite}", got="a suite of several conventions", wanted=wanted, remedy=remedy),
            missing=missing,
            option="--declare",
            row=row.suite,
        )
    suite: Any = made(**words)
    return cast("Suite", suite)
