"""Learning to prove: PPO on a knowledge graph's proofs, what `purestep train prove` runs."""

import hashlib
import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from attrs import field, frozen

from ...algorithms.hyperparameters import check_number
from ...algorithms.link_prediction import LinkPrediction, link_prediction
from ...algorithms.ppo import ppo
from ...core import keys
from ...core.errors import ChoiceError, message
from ...core.logic.env import proving
from ...core.logic.policy import ProofParams, proof_policy
from ...core.networks import layout
from ...core.optim import adam, chain, clip_by_global_norm, linear, scale_by_schedule
from ...core.policy import ActorCritic, flat
from ...core.record import replace
from ...core.tree import tree_map
from ..compile import program
from ..effects.datasets import open_dataset, open_rules
from ..logic.world import Proofs, proofs
from ..normalizer import identity
from ..train import RunState, trainer
from .arguments import SEEDS, Process, check_threads, check_whole, flag, iteration_steps, loop_of
from .common import Pipeline

USUAL = "family:200"
WARM_UP_RATE = 1e-2  # of Adam, while embeddings are learnt from facts


@frozen
class Graph:
    """Where experience comes from."""

    data: str = USUAL  # a folder, family:PEOPLE[:SEED] or pykeen:NAME
    rules: str = "own"  # a file, "mine", or "own" for those that come with the data
    seed: int = 0  # every random number of the run follows from it
    steps: int = 800_000  # moves, in all proofs together; rounded up to whole chunks of iterations
    envs: int = 128  # proofs that are tried side by side
    horizon: int = 32  # moves in each of them from one update to the next
    atoms: int = 6  # goals that a state may hold
    successors: int = 64  # states that may follow from one
    facts: int = 64  # facts that are tried with one goal
    max_depth: int = 10  # moves of an episode
    negatives: int = 0  # for each positive query; rewards for failing teach to fail on queries never seen
    argument: Literal["head", "tail", "both"] = "both"  # what is replaced in negatives and in candidates
    reward: int = 4  # the reward type, 0 to 5
    end_proof: bool = False  # let the policy give up
    skip_unary: int = 0  # how often in a row a state with one successor is passed over
    memory: bool = True  # leave out states already seen in an episode


@frozen
class ProofLearner:
    """What learns, and how fast."""

    size: int = 64  # of an embedding
    width: int = 64  # of the perceptrons
    blocks: int = 2  # of the perceptrons
    temperature: float = 0.2  # cosines are divided by it
    form: Literal["transe", "distmult", "complex", "rotate"] = "transe"  # of an atom's embedding
    pool: Literal["mean", "sum"] = "mean"  # of a state's atoms
    warm_up: int = 3000  # steps of link prediction on the facts alone, before the first proof
    embeddings: Literal["learnt", "fixed"] = "learnt"  # whether they go on learning from proofs
    learning_rate: float = 3e-3  # of Adam
    anneal: bool = True  # let the learning rate fall to 0 over the run
    max_gradient_norm: float = 0.5  # longer gradients are shortened to it
    gamma: float = 0.99  # what a reward is worth one step later


@frozen
class Prove:
    """Learning to prove: PPO on queries of a knowledge graph, each proven by choosing one of the states that follow."""

    experience: Graph = field(factory=Graph)
    learner: ProofLearner = field(factory=ProofLearner)
    process: Process = field(factory=Process)
    gae_lambda: float = 0.95  # 0 trusts the value function, 1 the rewards
    clip: float = 0.2  # how far a probability may move, as a ratio
    epochs: int = 4  # passes over each batch
    minibatches: int = 8  # steps of the optimiser in each pass; divides envs x horizon
    value_coefficient: float = 0.5  # weight of the value loss
    entropy_coefficient: float = 0.005  # weight of the policy's entropy
    target_kl: float = math.inf  # once the policy has moved that far, the rest of an update is left out


def prove_defaults(data: str) -> Prove:
    """What learning to prove starts from on any data."""
    return Prove(experience=Graph(data=data))


def opened(arguments: Prove) -> Proofs:
    """The data, its rules and the game they make. Raises: ChoiceError."""
    graph = arguments.experience
    dataset = open_rules(graph.rules, open_dataset(graph.data))
    return proofs(
        dataset,
        atoms=graph.atoms,
        successors=graph.successors,
        facts=graph.facts,
        max_depth=graph.max_depth,
        reward=graph.reward,
        negatives=graph.negatives,
        argument=graph.argument,
        end_proof=graph.end_proof,
        skip_unary=graph.skip_unary,
        memory=graph.memory,
    )


def network_of(arguments: Prove, made: Proofs) -> ActorCritic:
    """The policy."""
    learner = arguments.learner
    return proof_policy(
        made.game.names,
        size=learner.size,
        hidden=learner.width,
        blocks=learner.blocks,
        temperature=learner.temperature,
        form=learner.form,
        pool=learner.pool,
        embeddings=learner.embeddings,
    )


def model_of(arguments: Prove, made: Proofs) -> ActorCritic:
    """The policy, its params in one vector."""
    return flat(network_of(arguments, made))


def warmed_up(arguments: Prove, made: Proofs) -> Callable[[RunState], RunState]:
    """What learns embeddings from the facts alone, so that proofs begin with some sense of who is near whom."""
    learner = arguments.learner
    network, size = network_of(arguments, made), len(made.game.names.constants)
    learn = link_prediction(adam(WARM_UP_RATE), size, LinkPrediction(form=learner.form))
    facts = made.world.base.facts[:-1]

    def prepare(state: RunState) -> RunState:
        if not learner.warm_up:
            return state
        run = learn if arguments.process.backend == "none" else program(learn, name="link prediction")
        places = layout(network.init(keys.key(0)))
        params: ProofParams = places.unravel(state.learner.params)
        each = keys.split(keys.fold_in(state.key, learner.warm_up), learner.warm_up)
        embedding, _ = run(tree_map(torch.clone, params.embedding), facts, each)
        vector = places.ravel(replace(params, embedding=embedding))
        return replace(state, learner=replace(state.learner, params=vector))

    return prepare


def prove_pipeline(arguments: Prove) -> Pipeline:
    """The parts of a run. Raises: ChoiceError, by the name of the flag."""
    check(arguments)
    made = opened(arguments)
    model, env = model_of(arguments, made), proving(made.game, made.world, reset="own")
    learner, graph = arguments.learner, arguments.experience
    updates = loop_of(graph, arguments.process).iterations * arguments.epochs * arguments.minibatches
    parts = clip_by_global_norm(learner.max_gradient_norm), adam(learner.learning_rate, eps=1e-5)
    optimizer = chain(*parts, scale_by_schedule(linear(1.0, 0.0, updates))) if learner.anneal else chain(*parts)
    algorithm = ppo(
        model,
        optimizer,
        gamma=learner.gamma,
        lambda_=arguments.gae_lambda,
        clip=arguments.clip,
        epochs=arguments.epochs,
        minibatches=arguments.minibatches,
        value_coefficient=arguments.value_coefficient,
        entropy_coefficient=arguments.entropy_coefficient,
        target_kl=arguments.target_kl,
    )
    iteration = trainer(env, model, algorithm, envs=graph.envs, horizon=graph.horizon, reset="own")
    return Pipeline(env, model, identity(), iteration, warmed_up(arguments, made), digest(made), made)


def digest(made: Proofs) -> str:
    """What the run learns from, in one number: the files may change while their names stay."""
    return hashlib.sha256(repr(made.dataset).encode()).hexdigest()


def check(arguments: Prove) -> None:
    """Refuses numbers with which nothing can be learnt, by the name of their flag. Raises: ChoiceError."""
    graph, learner, process = arguments.experience, arguments.learner, arguments.process
    check_whole("--seed", graph.seed, 0, SEEDS)
    check_threads(process.threads)
    check_whole("--reward", graph.reward, 0, 5)
    groups: tuple[tuple[Any, int, tuple[str, ...]], ...] = (
        (graph, 1, ("steps", "envs", "horizon", "atoms", "successors", "facts", "max_depth")),
        (graph, 0, ("negatives", "skip_unary")),
        (learner, 1, ("size", "width")),
        (learner, 0, ("blocks", "warm_up")),
        (process, 1, ("checkpoints",)),
        (arguments, 1, ("epochs", "minibatches")),
    )
    for group, low, names in groups:
        for name in names:
            check_whole(flag(name), getattr(group, name), low)
    if learner.size % 2 and learner.form in ("complex", "rotate"):
        wanted = f"an even number for --form {learner.form}"
        raise ChoiceError(message("--size", got=learner.size, wanted=wanted, remedy=f"pass {learner.size + 1}"))
    check_number("--gae-lambda", arguments.gae_lambda, 0.0, 1.0)
    check_number("--gamma", learner.gamma, 0.0, 1.0)
    check_number("--learning-rate", learner.learning_rate, 0.0, 1.0)
    check_number("--temperature", learner.temperature, 1e-3)
    check_number("--max-gradient-norm", learner.max_gradient_norm, 0.0)
    for name in ("clip", "value_coefficient", "entropy_coefficient", "target_kl"):
        check_number(flag(name), getattr(arguments, name), 0.0)
    rows = iteration_steps(graph)
    if rows % arguments.minibatches:
        got, wanted = f"{rows} steps an iteration", f"a multiple of --minibatches {arguments.minibatches}"
        raise ChoiceError(message("--envs x --horizon", got=got, wanted=wanted, remedy="change one of the three"))
