"""Settings of the recipe prove, and options of the ranking that follows it. Imports no torch."""

import math
from typing import Any, Literal

from attrs import field, frozen

from ...core.errors import ChoiceError, message
from ..runs.arguments import (
    SEEDS,
    check_device,
    check_memory,
    check_numbers,
    check_threads,
    check_whole,
    check_wholes,
)
from .algorithm_flags import check_algorithm, settings_class
from .shared_settings import WEIGHT, Process, check_minibatches, iteration_steps

USUAL, PPO = "family:200", "purestep.algorithms.ppo:ppo"
ATOM = 24  # bytes of a predicate and its two arguments
MOVES = 800_000  # which train a policy of such a family
TRAINS = f"--steps {MOVES}"


@frozen
class Graph:
    """The source of experience."""

    data: str = USUAL  # a folder, family:PEOPLE[:SEED] or pykeen:NAME
    rules: str = "own"  # a file, "mine", or "own" for those that come with the data
    confidence: Literal["own", "standard", "pca"] = "own"  # of rules; "own" is standard where they come without
    smoothing: float = 5.0  # confidence = support / (body + smoothing)
    mined_rules: int = 10  # for each relation, the best ones
    mined_length: int = 2  # atoms in the longest body of a mined rule, up to 3
    mined_confidence: float = 0.1  # least confidence of a mined rule, without smoothing
    mined_support: int = 2  # least number of train facts that a mined rule proves
    mining_seconds: float = math.inf  # after which no further bodies of 3 atoms are counted; they come in random order
    seed: int = 0  # every random number of the run follows from it
    steps: int = 0  # moves, in all proofs together, in whole chunks of iterations; 0: no policy, the rules alone
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
    """The model, and the settings by which it learns."""

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


@frozen
class Imitation:
    """Imitation of the proofs that a search finds, before the policy's first own proof."""

    imitated_facts: int = 0  # train facts, drawn at random, whose proofs the policy imitates first; 0: none
    imitated_rules: int = 2  # rules that such a proof may apply
    imitated_expansions: int = 400  # states that are expanded to find the proofs of one fact
    imitation_rounds: int = 1  # searches; the first follows the confidences, each later one the policy so far
    imitation_steps: int = 500  # of Adam after each search


@frozen
class Prove:
    """Learning to prove: PPO on queries of a knowledge graph, each proven by choosing one of the states that follow."""

    experience: Graph = field(factory=Graph)
    learner: ProofLearner = field(factory=ProofLearner)
    imitation: Imitation = field(factory=Imitation)
    process: Process = field(factory=Process)
    algorithm: Any = field(factory=lambda: settings_class(PPO)(minibatches=8, entropy_coefficient=0.005))

    @property
    def trains_policy(self) -> bool:
        """Return whether there is a policy, and not the rules alone."""
        return self.experience.steps > 0 or self.imitation.imitated_facts > 0


def prove_defaults(data: str) -> Prove:
    """Return the default arguments of learning to prove, for any data."""
    return Prove(experience=Graph(data=data))


def check_prove(arguments: Prove) -> None:
    """Refuse numbers with which nothing can be learnt, by the name of their flag. Raises: ChoiceError."""
    graph, learner, process = arguments.experience, arguments.learner, arguments.process
    check_whole("--seed", graph.seed, 0, SEEDS)
    check_threads(process.threads)
    check_device(process.device)
    check_whole("--reward", graph.reward, 0, 5)
    check_wholes(graph, 1, "envs", "horizon", "atoms", "successors", "facts", "max_depth")
    check_wholes(graph, 0, "steps", "negatives", "skip_unary")
    check_wholes(learner, 1, "size", "width")
    check_wholes(learner, 0, "blocks", "warm_up")
    check_wholes(process, 1, "checkpoints")
    check_wholes(arguments.imitation, 0, "imitated_facts")
    check_wholes(arguments.imitation, 1, "imitated_rules", "imitated_expansions", "imitation_rounds", "imitation_steps")
    if learner.size % 2 and learner.form in ("complex", "rotate"):
        wanted = f"an even number for --form {learner.form}"
        raise ChoiceError(message("--size", got=learner.size, wanted=wanted, remedy=f"pass {learner.size + 1}"))
    check_wholes(graph, 1, "mined_rules", "mined_support")
    check_whole("--mined-length", graph.mined_length, 1, 3)
    check_numbers(graph, 0.0, 1.0, "mined_confidence")
    check_numbers(graph, 0.0, math.inf, "smoothing", "mining_seconds")
    check_numbers(learner, 0.0, 1.0, "learning_rate")
    check_numbers(learner, 1e-3, math.inf, "temperature")
    check_numbers(learner, 0.0, math.inf, "max_gradient_norm")
    check_algorithm(arguments.algorithm)
    rows = iteration_steps(graph)
    state = ATOM * graph.atoms
    needs = {
        "--atoms x --successors x --envs": state * graph.successors * graph.envs,
        "--envs x --horizon x --atoms": state * rows if arguments.trains_policy else 0.0,
        "--size and --width x --blocks": WEIGHT * (learner.size + learner.width**2 * learner.blocks),
    }
    check_memory(needs, device=process.device)
    check_minibatches(graph, arguments.algorithm)


@frozen
class Search:
    """The search for proofs by the confidences of their rules."""

    search: str = "exact"  # or greedy, beam:N (the best N states), sample:N (N random walks)
    guide: Literal["confidence", "policy", "breadth"] = "confidence"  # which states are expanded first, or kept
    depth: int = 2  # rules that a proof may apply
    expansions: int = 1000  # states that may be expanded for one query
    join: Literal["noisy_or", "max", "groundings", "valid"] = "valid"  # of an answer's proofs; valid: the best there

    def check(self) -> None:
        """Refuse invalid options. Raises: ChoiceError."""
        check_wholes(self, 1, "depth", "expansions")
        self.strategy()

    def strategy(self) -> tuple[Literal["greedy", "exact", "beam", "sample"], int]:
        """Return the strategy and its width. Raises: ChoiceError.

        >>> Search("beam:8").strategy()
        ('beam', 8)
        """
        name, _, width = self.search.partition(":")
        if self.search == "greedy":
            return "greedy", 1
        if self.search == "exact":
            return "exact", 0
        if name in ("beam", "sample") and width.isdecimal() and 0 < int(width) < SEEDS:
            return ("beam" if name == "beam" else "sample"), int(width)
        wanted, remedy = "greedy, exact, beam:N or sample:N", "write e.g. beam:16"
        raise ChoiceError(message("--search", got=repr(self.search), wanted=wanted, remedy=remedy))


@frozen
class Ranking:
    """Rank each query by the policy's proofs, and by all proofs found with the confidences of their rules."""

    candidates: int = 100  # negatives for each query and argument
    split: Literal["valid", "test"] = "test"  # whose facts are ranked
    queries: int = 0  # of the split; 0 means all
    slots: int = 256  # proofs that are tried side by side
    draw: int = 0  # seed of the negatives, and of random ties
    ties: Literal["realistic", "optimistic", "pessimistic", "random"] = "realistic"  # where among equals a query ranks
    score: Literal["policy", "confidence", "both"] = "both"  # of the policy's proof, of all proofs, or of both
    protocol: Literal["negatives", "all", "both"] = "both"  # of scores by confidence: among negatives, or all entities
    learn: int = 0  # train facts from which weights of the rules are learned; 0 keeps the confidences
    embedding: Literal["none", "distmult", "complex", "rotate"] = "none"  # joined with the proofs in a hybrid score
    searching: Search = field(factory=Search)

    def check(self) -> None:
        """Refuse invalid options. Raises: ChoiceError."""
        check_wholes(self, 1, "candidates", "slots")
        check_wholes(self, 0, "queries", "draw", "learn")
        self.searching.check()


def check_policy(arguments: Prove, score: str, search: Search) -> None:
    """Refuse the score of a policy, and a search guided by one, where none is trained. Raises: ChoiceError.

    >>> check_policy(Prove(Graph(steps=0)), "policy", Search())
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: --score is policy, wanted confidence, as --steps 0 trains no policy; leave it out
    """
    if arguments.trains_policy:
        return
    asked = (
        ("--score", score, score == "policy", "confidence"),
        ("--guide", search.guide, search.guide == "policy", "confidence or breadth"),
        ("--search", search.search, search.strategy()[0] in ("greedy", "sample"), "exact or beam:N"),
    )
    for flag, got, refused, wanted in asked:
        if refused:
            wanted = f"{wanted}, as --steps 0 trains no policy"
            raise ChoiceError(message(flag, got=got, wanted=wanted, remedy="leave it out"))
