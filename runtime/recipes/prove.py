"""Learning to prove: PPO on the proofs of a knowledge graph, the pipeline of `purestep train prove`."""

import hashlib
from collections.abc import Callable

import torch
from attrs import evolve
from torch import Tensor

from ...algorithms.imitation import imitation
from ...algorithms.logic.link_prediction import LinkPrediction, link_prediction
from ...algorithms.ppo import ppo
from ...core import keys
from ...core.errors import NonFiniteError, message
from ...core.keys import Key
from ...core.logic.env import proving
from ...core.logic.policy import ProofParams, proof_policy
from ...core.networks import tree_layout
from ...core.optim.optimizers import adam
from ...core.policy import ActorCritic, flat
from ...core.record import replace
from ...core.tree import tree_map
from ..compile import program
from ..effects.datasets import Mining, open_dataset, open_rules
from ..logic.confidence import Measure, with_confidences
from ..logic.dataset import check_confidences
from ..logic.demonstrate import demonstrations
from ..logic.guide import policy_guide
from ..logic.proof_scores import prover, rule_weights
from ..logic.proofs import Proofs, proofs
from ..logic.search import SearchLimits
from ..normalizer import identity
from ..runs.arguments import flatten
from ..runs.recipe import Notice
from ..train import RunState, trainer
from .pipeline import Pipeline, make_on_device, optimizer
from .prove_settings import Prove
from .shared_settings import loop_of, passes_of

WARM_UP_RATE = 1e-2  # of Adam, while embeddings are learnt from facts
IMITATED, CHOICES = 256, 1 << 15  # choices of a step of imitation, and of a round, from which they are drawn


def load_proofs(arguments: Prove) -> Proofs:
    """Return the data and its rules as a game. Raises: ChoiceError."""
    graph = arguments.experience
    mining = Mining(
        most=graph.mined_rules,
        length=graph.mined_length,
        confidence=graph.mined_confidence,
        support=graph.mined_support,
        smoothing=graph.smoothing,
        seconds=graph.mining_seconds,
    )
    dataset = open_rules(graph.rules, open_dataset(graph.data), mining)
    if graph.confidence == "own":
        check_confidences(dataset)
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


def confident(arguments: Prove, made: Proofs) -> Proofs:
    """Return the data with confidences of the rules as the arguments ask for, measured on the train facts where it has none."""
    graph = arguments.experience
    measure: Measure = "pca" if graph.confidence == "pca" else "standard"
    # Paths of three steps are mined without repeated constants, which a search allows: measured by it they agree.
    remeasured = graph.rules == "mine" and graph.mined_length > 2
    if graph.confidence == "own" and made.dataset.rules[0].confidence is not None and not remeasured:
        return made
    return with_confidences(made, measure, smoothing=graph.smoothing)


def network_of(arguments: Prove, made: Proofs) -> ActorCritic:
    """Return the policy."""
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
    """Return the policy with its params in one vector."""
    return flat(network_of(arguments, made))


def _unsaid(line: str) -> None:
    """Print nothing."""


def warmed_up(arguments: Prove, made: Proofs, notice: Notice = _unsaid) -> Callable[[RunState], RunState]:
    """Return a function that trains a policy before its first own proof: its embeddings on the facts, then by imitation."""
    learner = arguments.learner
    network, size = network_of(arguments, made), len(made.game.names.constants)
    learn = link_prediction(adam(WARM_UP_RATE), size, LinkPrediction(form=learner.form))
    facts = made.world.base.facts[:-1]

    def prepare(state: RunState) -> RunState:
        if not arguments.trains_policy:
            return state
        vector, own = state.learner.params, keys.fold_in(state.key, learner.warm_up)
        if learner.warm_up:
            notice(f"learning embeddings from {len(facts):,} facts, {learner.warm_up:,} steps ...")
            run = learn if arguments.process.backend == "none" else program(learn, name="link prediction")
            places = tree_layout(network.init(keys.key(0)))
            params: ProofParams = places.unravel(vector)
            embedding, losses = run(tree_map(torch.clone, params.embedding), facts, keys.split(own, learner.warm_up))
            _require_finite("embeddings", losses, "--warm-up")
            vector = places.ravel(replace(params, embedding=embedding))
        if arguments.imitation.imitated_facts:
            with make_on_device(arguments.process.device):
                vector = imitated(arguments, made, vector, keys.fold_in(own, 1), notice)
        return replace(state, learner=replace(state.learner, params=vector))

    return prepare


def _require_finite(where: str, losses: Tensor, flag: str) -> None:
    """Raise NonFiniteError where a loss [n] is NaN or infinite."""
    bad = (~torch.isfinite(losses)).tolist()
    if True in bad:
        step = bad.index(True)
        got = f"{float(losses[step])} at step {step + 1} of {len(bad)}"
        raise NonFiniteError(message(f"{where}: the loss", got=got, wanted="a finite number", remedy=f"lower {flag}"))


def imitated(arguments: Prove, made: Proofs, params: Tensor, key: Key, notice: Notice = _unsaid) -> Tensor:
    """Return the params of the policy after it imitated the proofs of train facts, in rounds of search and imitation.

    Source: Anthony et al. 2017, "Thinking fast and slow with deep learning and tree search" (expert iteration).
    Raises: ChoiceError.
    """
    how, made = arguments.imitation, confident(arguments, made)
    model, names = model_of(arguments, made), made.game.names
    bounds = SearchLimits(how.imitated_rules, how.imitated_expansions)
    own = prover(made, rule_weights(made), bounds)
    fit = imitation(model, optimizer(arguments.learner, how.imitation_steps), IMITATED)
    run = fit if arguments.process.backend == "none" else program(fit, name="imitation")
    draw_key, *rounds = keys.split(key, how.imitation_rounds + 1)
    pool = made.world.queries
    facts = pool[keys.permutation(draw_key, len(pool))[: how.imitated_facts]]
    for number, one in enumerate(rounds, 1):
        search_key, step_key = keys.split(one)
        notice(
            f"round {number} of {len(rounds)}: searching for proofs of {len(facts):,} train facts, then imitating them ..."
        )
        shown = demonstrations(own, names, facts, made.game.argument, CHOICES, search_key)
        params, losses = run(params.clone(), shown, keys.split(step_key, how.imitation_steps))
        _require_finite(f"imitation: round {number}", losses, "--learning-rate")
        notice(f"round {number}: loss of imitation {float(losses[0]):.3f}, at the end {float(losses[-1]):.3f}")
        own = evolve(own, bounds=evolve(bounds, order="policy"), guide=policy_guide(names, model, params))
    return params


def prove_pipeline(arguments: Prove, notice: Notice = _unsaid) -> Pipeline:
    """Return the components of a run. Raises: ChoiceError, by the name of the flag."""
    with make_on_device(arguments.process.device):
        return _pipeline(arguments, notice)


def _pipeline(arguments: Prove, notice: Notice) -> Pipeline:
    made = load_proofs(arguments)
    model, env = model_of(arguments, made), proving(made.game, made.world, reset="own")
    learner, graph = arguments.learner, arguments.experience
    epochs, minibatches = passes_of(arguments.algorithm)
    updates = loop_of(graph, arguments.process).iterations * epochs * minibatches
    algorithm = ppo(model, optimizer(learner, max(1, updates)), **flatten(arguments.algorithm))
    iteration = trainer(env, model, algorithm, envs=graph.envs, horizon=graph.horizon, reset="own")
    prepare = warmed_up(arguments, made, notice)
    return Pipeline(env, model, identity(), iteration, prepare, data_digest(made), made, own_reset=True)


def data_digest(made: Proofs) -> str:
    """Return a digest of the data that the run learns from: files may change while their names stay."""
    return hashlib.sha256(repr(made.dataset).encode()).hexdigest()
