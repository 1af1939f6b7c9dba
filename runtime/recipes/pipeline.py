"""Parts of a pipeline: network, optimiser, normaliser; those of the classic recipes; the run built from them.

`runs.run` performs it.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, get_type_hints

import torch
from attrs import frozen

from ...core import keys
from ...core.action_values import ActionValues, action_values_mlp
from ...core.actor_q import DeterministicActor, StochasticActor, deterministic_actor_mlp, stochastic_actor_mlp
from ...core.agents import agent_views, central_critic, own_parameters
from ...core.categorical_actor import CategoricalActor, categorical_actor_mlp
from ...core.categorical_values import CategoricalValues, categorical_values_mlp
from ...core.env import Env
from ...core.envs import make
from ...core.errors import CheckpointError, ChoiceError, message
from ...core.optim.interface import Optimizer
from ...core.optim.optimizers import adam, chain, clip_by_global_norm, linear_decay
from ...core.policy import ActorCritic, actor_critic_mlp, flat
from ...core.quantile_values import ImplicitQuantiles, QuantileValues, implicit_quantiles_mlp, quantile_values_mlp
from ...core.recurrent import recurrent_actor_critic
from ...core.spaces import Box, Space, is_bounded, sample
from ...core.tree import leaves, size
from ..compile import Program, artefact_name, fingerprint, program
from ..effects.checkpoint.manifest import Manifest
from ..effects.env_reference import digest_of, load_env
from ..effects.gymnasium_name import is_gymnasium_name
from ..effects.module_reference import is_reference
from ..files.cache_folder import cache_directory
from ..normalizer import Normalizer, identity, running
from ..runs.arguments import changed, check_memory, flatten
from ..runs.logging import metrics_log, not_finite
from ..runs.loop_state import LoopState, Run
from ..runs.recipe import Components, Notice
from ..runs.training_machine import Loop
from ..train import RunState, Trainer, folded, trainer, with_probes
from ..trained_policy import TrainedPolicy
from ..validate import validate
from .algorithm_flags import algorithm_of
from .prove_settings import ProofLearner
from .shared_settings import (
    ExperienceOptions,
    Learner,
    Process,
    batch_rows,
    iteration_steps,
    loop_of,
    passes_of,
    thread_count,
)

MODELS: Mapping[Any, Callable[..., Any]] = {  # of the annotation of an algorithm's model
    ActionValues: action_values_mlp,
    CategoricalValues: categorical_values_mlp,
    QuantileValues: quantile_values_mlp,
    ImplicitQuantiles: implicit_quantiles_mlp,
    DeterministicActor: deterministic_actor_mlp,
    StochasticActor: stochastic_actor_mlp,
    CategoricalActor: categorical_actor_mlp,
}
REPLAY_NUMBERS = 6  # bytes of the reward and the flags of a transition
ANEW = "exact: all that was learnt, the replay buffer, random keys; not: Gymnasium's environments, which begin new episodes"
DATA = "data"  # name of the fact with the digest of the files that the run learns from


def _as_it_is(state: RunState) -> RunState:
    return state


@frozen
class Pipeline:
    """Components of a recipe's run."""

    env: Env[Any, Any]  # a single environment
    model: ActorCritic
    normalizer: Normalizer
    trainer: Trainer
    prepare: Callable[[RunState], RunState] = _as_it_is  # called once, before training
    content: str = ""  # digest of the files that the run learns from
    opened: Any = ()  # the recipe's data loaded from those files, for reuse
    own_reset: bool = False  # whether the env begins a new episode by itself
    products: int = 0  # multiply-adds in the matrix products of a minibatch, where they take most of the time
    notices: tuple[str, ...] = ()  # lines to show before training: choices that were made for the user
    world: Any = ()  # a GymnasiumWorld, where that is what the trainer steps


@contextmanager
def make_on_device(name: str) -> Iterator[torch.device]:
    """Make tensors of the block on the named device, and return it. Raises: ChoiceError where this machine has none.

    >>> with make_on_device("cpu") as device:
    ...     device, torch.zeros(1).device
    (device(type='cpu'), device(type='cpu'))
    """
    device = torch.device(name)
    found = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= found:
        wanted = f"one of the {found} GPUs that torch {torch.__version__} finds" if found else "cpu: torch finds no GPU"
        raise ChoiceError(
            message("--device", got=repr(name), wanted=wanted, remedy="name another one, e.g. --device cpu")
        )
    with nullcontext() if device.type == "cpu" else device:
        yield device


def network(env: Env[Any, Any], learner: Learner, distribution: str = "normal") -> ActorCritic:
    """Return two perceptrons for the env's spaces, or one with a memory, with params in one vector.

    An optimiser then makes one pass over it. `distribution` is that of the actions in a Box. Several agents have them for
    themselves or together, with a critic of their own or of all.
    """
    shape: Any = {"distribution": distribution, "product": "auto"}

    def build(observation_space: Space, action_space: Space) -> ActorCritic:
        spaces = observation_space, action_space
        if learner.memory == "none":
            return actor_critic_mlp(*spaces, learner.hidden, learner.activation, **shape)
        *encoder, size = learner.hidden
        return recurrent_actor_critic(*spaces, encoder, learner.activation, cell=learner.memory, size=size, **shape)

    spaces = env.observation_space, env.action_space
    made = central_critic(build, *spaces) if learner.critic == "all" else build(*spaces)
    return flat(own_parameters(made, env.agents or 1) if learner.agents == "own" else made)


def views(env: Env[Any, Any], learner: Learner, function: Callable[..., Any]) -> Env[Any, Any]:
    """Return an env of several agents as they are to see it; one without agents as it is.

    Raises: ChoiceError for --critic or --agents where there are no agents, or for an algorithm without a policy.

    >>> from purestep.algorithms.ppo import ppo
    >>> views(make("cartpole"), Learner(critic="all"), ppo)
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: --critic is all, wanted own: the environment has no agents; give its Env `agents`
    """
    reason = (
        "the environment has no agents" if env.agents is None else f"{function.__name__} has no such critic or policy"
    )
    remedy = "give its Env `agents`" if env.agents is None else "train it by ppo, a2c or reinforce"
    if env.agents is None or get_type_hints(function)["model"] in MODELS:
        for name, got, wanted in (("critic", learner.critic, "own"), ("agents", learner.agents, "shared")):
            if got != wanted:
                raise ChoiceError(message(f"--{name}", got=got, wanted=f"{wanted}: {reason}", remedy=remedy))
    return env if env.agents is None else agent_views(env, critic=learner.critic)


def model_for(function: Callable[..., Any], env: Env[Any, Any], learner: Learner, distribution: str) -> ActorCritic:
    """Return the networks that an algorithm takes, by the annotation of its `model`: a type, or Annotated[a type, options].

    The options are arguments of the function that makes such a model. Raises: ChoiceError for a memory that it cannot have.

    >>> from purestep.algorithms.dqn import dqn
    >>> from purestep.core.envs import make
    >>> type(model_for(dqn, make("cartpole"), Learner(), "normal")).__name__
    'ActionValues'
    """
    hint = get_type_hints(function, include_extras=True)["model"]
    build = MODELS.get(getattr(hint, "__origin__", hint))
    if build is None:
        return network(env, learner, distribution)
    if learner.memory != "none":
        wanted, remedy = f"none for {function.__name__}", "train it by ppo, a2c or reinforce"
        raise ChoiceError(message("--memory", got=learner.memory, wanted=wanted, remedy=remedy))
    (options,) = getattr(hint, "__metadata__", ({},))
    shape: Any = {"product": "auto", **options}
    model: ActorCritic = build(env.observation_space, env.action_space, learner.hidden, learner.activation, **shape)
    return model


def head_of(env: Env[Any, Any], bounds: str, *, yours: bool) -> tuple[str, tuple[str, ...]]:
    """Return the distribution of actions that --action-bounds asks for, and a line about it where it was chosen for the user.

    Raises: ChoiceError for "squash" without finite bounds.

    >>> from purestep.core.envs import make
    >>> head_of(make("pendulum"), "auto", yours=False), head_of(make("pendulum"), "squash", yours=True)
    (('normal', ()), ('tanh_normal', ()))
    """
    space, bounded = env.action_space, is_bounded(env.action_space)
    if bounds == "squash" and not bounded:
        wanted, remedy = "a Box with finite bounds, each low one below its high one", "use --action-bounds clip"
        raise ChoiceError(message("--action-bounds squash: the actions", got=space, wanted=wanted, remedy=remedy))
    if bounds != "auto" or not yours or env.clips or not isinstance(space, Box):
        return ("tanh_normal" if bounds == "squash" else "normal"), ()
    if bounded:
        return "tanh_normal", (f"--action-bounds auto: squash, so that each action is sampled inside {space}",)
    return "normal", (
        f"--action-bounds auto: clip, because {space} has not all its bounds; the env gets clipped actions",
    )


def optimizer(learner: Learner | ProofLearner, updates: int) -> Optimizer:
    """Return Adam on gradients of bounded norm; with annealing its learning rate reaches 0 after `updates` updates."""
    parts = clip_by_global_norm(learner.max_gradient_norm), adam(learner.learning_rate, eps=1e-5)
    return chain(*parts, linear_decay(updates)) if learner.anneal else chain(*parts)


def normalizer(experience: ExperienceOptions, gamma: float) -> Normalizer:
    """Return the normaliser of observations and rewards that the arguments ask for."""
    if experience.normalize == "none":
        return identity()
    observations, rewards = experience.normalize != "rewards", experience.normalize != "observations"
    return running(observations=observations, rewards=rewards, gamma=gamma)


def actor_critic_pipeline(arguments: Any) -> Pipeline:
    """Return the components of a run with an algorithm of policy and value. An environment named by a reference is imported.

    Raises: ChoiceError for an unknown environment or device; errors of `validate`.
    """
    with make_on_device(arguments.process.device):
        return _pipeline(arguments)


def _pipeline(arguments: Any) -> Pipeline:
    experience, learner, settings = arguments.experience, arguments.learner, arguments.algorithm
    yours, world = is_reference(experience.env), _world(experience)
    ours = isinstance(world, tuple)
    env = validate(load_env(experience.env) if yours else make(experience.env)) if ours else world.first
    function = algorithm_of(settings)
    env = views(env, learner, function)
    policy = get_type_hints(function)["model"] not in MODELS
    distribution, notices = head_of(env, learner.action_bounds, yours=yours) if policy else ("", ())
    model = model_for(function, env, learner, distribution)
    rate = optimizer(learner, loop_of(experience, arguments.process).iterations * math.prod(passes_of(settings)))
    algorithm = function(model, rate, **flatten(settings))
    scales = normalizer(experience, settings.gamma)
    check_replay_memory(env, settings, arguments.process.device)
    if ours:
        iteration = trainer(env, model, algorithm, envs=experience.envs, horizon=experience.horizon, normalizer=scales)
    else:
        from ..effects.gymnasium.train import gymnasium_trainer

        lower = update_lowering(arguments.process)
        iteration = gymnasium_trainer(
            world, model, algorithm, horizon=experience.horizon, normalizer=scales, lower=lower
        )
    if experience.probes:
        iteration = with_probes(iteration, *experience.probes)
    content = digest_of(experience.env) if yours else ""
    # Multiply-adds of a forward pass over a minibatch; on a GPU none of them takes a thread.
    weights = size(model.init(keys.key(0))) if arguments.process.device == "cpu" else 0
    products = batch_rows(experience, settings) * weights
    return Pipeline(env, model, scales, iteration, products=products, content=content, notices=notices, world=world)


def _world(experience: ExperienceOptions) -> Any:
    """Return the world of an environment of Gymnasium's, or () for any other."""
    if not is_gymnasium_name(experience.env):
        return ()
    from ..effects.gymnasium.named import named_world  # here: Gymnasium is an extra

    return named_world(experience.env, experience.envs)


def update_lowering(process: Process) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the lowering of an update whose environment is stepped outside of it: a program, kept as `lowered`'s are.

    >>> update_lowering(Process(backend="none"))(abs)(-1)
    1
    """
    if process.backend == "none":
        return lambda function: function

    def lower(function: Callable[..., Any]) -> Callable[..., Any]:
        made: list[Callable[..., Any]] = []  # at the first call, whose arguments are a part of the program's name

        def run(*arguments: Any) -> Any:
            if not made:
                made.append(_kept_program(function, "update", process, *arguments))
            return made[0](*arguments)

        return run

    return lower


def check_replay_memory(env: Env[Any, Any], settings: Any, device: str) -> None:
    """Refuse a replay buffer for which there is no memory. Raises: ChoiceError."""
    rows = getattr(settings, "replay_size", 0)
    if rows:
        _, first = env.reset(env.params, keys.key(0))
        both = leaves((first.observation, first.next_observation, sample(env.action_space, keys.key(0))))
        row = sum(leaf.numel() * leaf.element_size() for leaf in both) // (env.agents or 1) + REPLAY_NUMBERS
        check_memory({f"--replay-size {rows}: {row:,} bytes a transition": float(rows * row)}, device=device)


def components_of(recipe: str, arguments: Any, pipeline: Pipeline) -> Components:
    """Return the components of a pipeline's run, compiled and with PyTorch set to its threads where it begins to train."""
    torch.set_num_threads(thread_count(arguments.process, pipeline.products))
    seed = keys.key(arguments.experience.seed, device=arguments.process.device)
    steps = iteration_steps(arguments.experience)
    facts = facts_of(recipe, arguments, pipeline.content)
    sessions: list[tuple[LoopState, Notice]] = []

    @contextmanager
    def session(state: RunState, loop: Loop, notice: Notice) -> Iterator[LoopState]:
        if loop.iteration and not isinstance(pipeline.world, tuple):
            from ..effects.gymnasium.train import begin_anew

            state = begin_anew(pipeline.world, state)
            notice(ANEW)
        world = LoopState(state, lowered(recipe, arguments, pipeline, loop, state), steps)
        sessions.append((world, notice))
        if arguments.process.threads == "auto":
            notice(f"--threads auto: {torch.get_num_threads()}")
        for line in pipeline.notices:
            notice(line)
        if loop.iteration < loop.iterations:
            world.warm(notice)
        try:
            yield world
        finally:
            if not isinstance(pipeline.world, tuple):
                pipeline.world.close()

    def diverged(loop: Loop) -> str:
        world, notice = sessions[-1]
        notice(f"iteration {loop.diverged} is not finite; its chunk is run again, uncompiled, to find the tensor ...")
        return not_finite(loop, world.fault(pipeline.trainer, loop.diverged))

    def accept(where: Path, manifest: Manifest) -> None:
        if manifest.environment.get(DATA) != facts.get(DATA):
            got, remedy = "a run on other files", "bring back the files it was trained on, or train anew"
            raise CheckpointError(message(str(where), got=got, wanted="the same", remedy=remedy))

    return Components(
        loop=loop_of(arguments.experience, arguments.process),
        begin=lambda: pipeline.prepare(pipeline.trainer.init(seed)),
        like=lambda iteration: pipeline.trainer.init(seed),
        session=session,
        log=lambda run, loop: metrics_log(run, loop, steps=steps),
        diverged=diverged,
        params=lambda state: ("learner.params", state.learner.params),
        facts=facts,
        accept=accept,
        progress=lambda loop: f"{loop.iteration * steps:,} steps",
        opened=pipeline,
        policy=lambda state, loop: TrainedPolicy(
            env=pipeline.env,
            model=pipeline.model,
            params=state.learner.params,
            normalizer=pipeline.normalizer,
            statistics=state.normalizer,
            recipe=recipe,
            arguments=arguments,
            iteration=loop.iteration,
            own_reset=pipeline.own_reset,
        ),
    )


def facts_of(recipe: str, arguments: Any, content: str) -> dict[str, str]:
    """Return the facts that the bits of a run depend on besides its arguments: the compiler's backend and its program."""
    indifferent = {"seed": 0, "checkpoints": 1} | ({} if arguments.learner.anneal else {"steps": 1})
    decisive = flatten(changed(arguments, indifferent))
    chunk = loop_of(arguments.experience, arguments.process).chunk
    known = (content,) if content else ()
    facts = {"lowering": arguments.process.backend, "program": fingerprint(recipe, decisive, chunk, *known)}
    device = torch.device(arguments.process.device)
    card = {"card": torch.cuda.get_device_name(device)} if device.type == "cuda" else {}
    return facts | card | ({DATA: content} if content else {})


def lowered(recipe: str, arguments: Any, pipeline: Pipeline, loop: Loop, state: RunState) -> Run:
    """Return the function that runs a chunk of iterations from states like this, compiled unless the backend is "none".

    The compiled form is kept for all runs whose programs are the same, whatever their numbers: learning rate, discount,
    coefficients and steps are in the state.
    """
    if not isinstance(pipeline.world, tuple):
        from ..effects.gymnasium.train import gymnasium_train

        return gymnasium_train(pipeline.trainer, loop.chunk)
    chunk = folded(pipeline.trainer, loop.chunk)
    if arguments.process.backend == "none":
        return chunk
    return _kept_program(chunk, f"train {recipe}", arguments.process, state)


def _kept_program(function: Callable[..., Any], name: str, process: Process, *arguments: Any) -> Program[..., Any]:
    """Return the program of a function for arguments like these; the first has the learner, whose buffer it writes into."""
    backend = process.backend
    cache = cache_directory() if backend == "inductor" and process.device == "cpu" else None
    donate = (0,) if leaves(getattr(arguments[0], "learner", arguments[0]).replay) else ()
    artefact = cache / artefact_name(function, backend, *arguments, donate=donate) if cache else None
    return program(function, name=name, artefact=artefact, backend=backend, donate=donate)
