"""Laws of learners from transcripts (L1 to L10 of whole algorithms). The subject: `factory(model, optimizer)` returns one."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from ...algorithms.language.batch import Reading
from ...algorithms.language.learner import LanguageAlgorithm, LanguageState, learner
from ...algorithms.language.loss import combined
from ...algorithms.language.objectives import Objective
from ...algorithms.language.packing import Packing, SequenceLayout, packing
from ...core.causal import CausalModel
from ...core.language.types import Counts, TokenBatch, Transcript
from ...core.optim.interface import Optimizer
from ...core.optim.optimizers import sgd
from ...core.record import replace, take
from ...core.transcript.record import TOKEN_BLANKS
from ...core.tree import leaves, tree_map
from ..framework.compare import DOUBLE, require, same
from ..framework.law import Law, Seen, Suite, law_constructor
from ..strategies.learner import MODEL, Talks, heat_of, log_probs_of, on_policy, params_of, sequence_logits, talks
from .aggregate import Weights
from .loss import PADDING

# --- mutants ---
# Common mistakes in learners: each edits a correct one, `factory(model, optimizer) -> LanguageAlgorithm`.


Factory = Callable[[CausalModel, Optimizer], LanguageAlgorithm]
Made = Callable[[LanguageAlgorithm], LanguageAlgorithm]
Gradient = Callable[..., Any]


def with_functions(one: LanguageAlgorithm, **functions: Any) -> LanguageAlgorithm:
    """Return the learner with some of its functions replaced; its other functions still call its own.

    >>> from ...algorithms.language.objectives import grpo
    >>> with_functions(learner(MODEL, sgd(0.1), grpo()), update=print).update
    <built-in function print>
    """
    names = (name for name in vars(LanguageAlgorithm) if not name.startswith("_"))
    edited: Any = SimpleNamespace(**{name: getattr(one, name) for name in names} | functions)
    return edited  # type: ignore[no-any-return]


def _edited(change: Made) -> Callable[[Factory], Factory]:
    return lambda subject: lambda model, optimizer: change(subject(model, optimizer))


def _gradient(change: Callable[[LanguageAlgorithm, Gradient], Gradient]) -> Callable[[Factory], Factory]:
    return _edited(lambda one: with_functions(one, gradient=change(one, one.gradient)))


def _batch(change: Callable[[TokenBatch], TokenBatch]) -> Callable[[Factory], Factory]:
    """Return an edit of the batch that `prepare` returns."""

    def edit(one: LanguageAlgorithm) -> LanguageAlgorithm:
        def prepare(*given: Any) -> Any:
            batch, state, figures = one.prepare(*given)
            return change(batch), state, figures

        return with_functions(one, prepare=prepare)

    return _edited(edit)


def _multiplies(one: LanguageAlgorithm, gradient: Gradient) -> Gradient:
    def edited(params: Any, batch: TokenBatch, *rest: Any) -> Any:
        slopes, sums = gradient(params, batch, *rest)
        left = (batch.behaviour_log_prob * (~batch.mask).double() * 0.0).sum()
        return tree_map(lambda leaf: leaf + left, slopes), sums

    return edited


def _own_counts(one: LanguageAlgorithm, gradient: Gradient) -> Gradient:
    def edited(params: Any, batch: TokenBatch, counts: Counts, *rest: Any) -> Any:
        return gradient(params, batch, one.counts(batch), *rest)

    return edited


def _across(one: LanguageAlgorithm, gradient: Gradient) -> Gradient:
    def edited(params: Any, batch: TokenBatch, counts: Counts, layout: Any = ()) -> Any:
        if isinstance(layout, SequenceLayout) and isinstance(layout.packing, Packing):
            where = layout.packing
            one_segment = replace(where, segment=where.segment.clamp(max=0))
            layout = replace(layout, packing=one_segment)
        return gradient(params, batch, counts, layout)

    return edited


def _first_twice(one: LanguageAlgorithm, gradient: Gradient) -> Gradient:
    def edited(params: Any, batch: TokenBatch, *rest: Any) -> Any:
        slopes, sums = gradient(params, batch, *rest)
        return tree_map(torch.add, slopes, gradient(params, take(batch, slice(0, 1)), rest[0])[0]), sums

    return edited


def _by_count(one: LanguageAlgorithm, gradient: Gradient) -> Gradient:
    def edited(params: Any, batch: TokenBatch, *rest: Any) -> Any:
        slopes, sums = gradient(params, batch, *rest)
        number = batch.mask.sum().double()
        return tree_map(lambda leaf: leaf * (number / number), slopes), sums

    return edited


def _by_columns(one: LanguageAlgorithm, gradient: Gradient) -> Gradient:
    def edited(params: Any, batch: TokenBatch, *rest: Any) -> Any:
        slopes, sums = gradient(params, batch, *rest)
        return tree_map(lambda leaf: leaf / batch.mask.shape[1], slopes), sums

    return edited


def _cold(one: LanguageAlgorithm, gradient: Gradient) -> Gradient:
    def edited(params: Any, batch: TokenBatch, *rest: Any) -> Any:
        return gradient(params, replace(batch, temperature=torch.ones_like(batch.temperature)), *rest)

    return edited


def _over_padding(one: LanguageAlgorithm, gradient: Gradient) -> Gradient:
    def edited(params: Any, batch: TokenBatch, *rest: Any) -> Any:
        slopes, sums = gradient(params, batch, *rest)
        return slopes, replace(sums, tokens=torch.full_like(sums.tokens, batch.mask.numel()))

    return edited


def _decayed(one: LanguageAlgorithm) -> LanguageAlgorithm:
    def update(state: LanguageState, transcripts: Any) -> Any:
        after, figures = one.update(state, transcripts)
        return replace(after, params=tree_map(lambda leaf: 0.99 * leaf, after.params)), figures

    return with_functions(one, update=update)


def _twice(one: LanguageAlgorithm) -> LanguageAlgorithm:
    def update(state: LanguageState, transcripts: Any) -> Any:
        return one.update(one.update(state, transcripts)[0], transcripts)

    return with_functions(one, update=update)


def _always(one: LanguageAlgorithm) -> LanguageAlgorithm:
    def update(state: LanguageState, transcripts: Any) -> Any:
        after, figures = one.update(state, transcripts)
        return replace(after, step=state.step + 1), figures

    return with_functions(one, update=update)


def _centred(batch: TokenBatch) -> TokenBatch:
    mean = batch.advantage.sum() / batch.mask.sum().clamp(min=1)
    return replace(batch, advantage=torch.where(batch.mask, batch.advantage - mean, 0.0))


def _hears(batch: TokenBatch) -> TokenBatch:
    place = torch.arange(batch.mask.shape[1])
    return replace(batch, mask=(place > 0) & (place < batch.length[:, None]))


multiplies_by_mask = _gradient(_multiplies)
own_denominators = _gradient(_own_counts)
across_segments = _gradient(_across)
first_row_twice = _gradient(_first_twice)
divides_by_count = _gradient(_by_count)
divides_by_columns = _gradient(_by_columns)
forgets_temperature = _gradient(_cold)
averages_over_padding = _gradient(_over_padding)
decays = _edited(_decayed)
updates_twice = _edited(_twice)
counts_always = _edited(_always)
centres_over_batch = _batch(_centred)
learns_from_context = _batch(_hears)
MUTANTS: dict[str, Callable[[Factory], Factory]] = {"learns from what tools and users say": learns_from_context}


# --- steps ---
# The steps that laws of learners take: begin, prepare a batch, compute its gradient. And the constructor of such a law.


CONTRACT = "algorithms.language.learner: an update is its steps, in whatever parts"


def new_learner(factory: Factory, talk: Talks, rate: float = 0.1) -> tuple[LanguageAlgorithm, LanguageState]:
    """Return a new learner and its state, with the critic's head moved away from 0."""
    algorithm = factory(MODEL, sgd(rate))
    state = algorithm.init(params_of(talk))
    moved = tree_map(lambda leaf: leaf + 0.3, state.params.critic)
    return algorithm, replace(state, params=replace(state.params, critic=moved))


def prepared(
    algorithm: LanguageAlgorithm, state: LanguageState, transcripts: Transcript
) -> tuple[TokenBatch, LanguageState]:
    """Return the batch that the learner trains on, and the state that `prepare` returns."""
    reading = algorithm.read(state, transcripts) if algorithm.reads else Reading()
    batch, state, _ = algorithm.prepare(state, transcripts, reading)
    return batch, state


def summed_gradient(factory: Factory, talk: Talks) -> tuple[Any, Any]:
    """Return the gradient and the sums of all transcripts at once."""
    algorithm, state = new_learner(factory, talk)
    batch, state = prepared(algorithm, state, talk.transcripts)
    return algorithm.gradient(state.params, batch, algorithm.counts(batch))


law = law_constructor(talks, CONTRACT, most=200)  # of learners, on transcripts of a few conversations


# --- laws ---


SPLIT = "TRL 3021, NeMo-RL 84, ms-swift 10117: the loss depends on gradient accumulation"


def learning(objective: Objective, **choices: Any) -> Factory:
    """Return a subject of the laws of learners: a factory of learners with that objective, for any model.

    >>> from ...algorithms.language.objectives import grpo
    >>> learning(grpo()).__name__
    'make'
    """

    def make(model: CausalModel, optimizer: Optimizer) -> LanguageAlgorithm:
        return learner(model, optimizer, objective, **choices)

    return make


def learner_laws(weights: Weights, *, grouped: bool = True) -> Suite:
    """Return the laws of a learner whose objective gives a token the weight `weights(lengths)`, see `aggregate.WEIGHTS`.

    `grouped`: a sample's advantage depends only on the samples of its group. The learner must have no entropy bonus, and a
    critic's loss must not reach the policy.
    """
    laws = (_figures(), _padding(), _split(), _packed(), _rows(), _nothing(), _longer(), _reinforce(weights), _update())
    own = (_level(), _groups()) if grouped else ()
    return Suite("learner_laws", (*laws, _still(), *own))


def _padding() -> Law:
    def check(factory: Factory, talk: Talks, seen: Seen) -> None:
        algorithm, state = new_learner(factory, talk)
        batch, state = prepared(algorithm, state, talk.transcripts)
        seen("context beside sampled tokens", (~batch.mask).any() & batch.mask.any())

        def poisoned(leaf: Tensor) -> Tensor:
            filled = leaf.is_floating_point() and leaf.ndim == 2
            return torch.where(batch.mask, leaf, talk.poison) if filled else leaf

        beyond = torch.arange(batch.mask.shape[1]) >= batch.length[:, None]
        changed = replace(tree_map(poisoned, batch), token=torch.where(beyond, 3, batch.token))
        counts = algorithm.counts(batch)
        got = algorithm.gradient(state.params, changed, counts)
        same(f"(gradient, sums) with {talk.poison} elsewhere", got, algorithm.gradient(state.params, batch, counts))

    claim = (
        "Whatever stands in padding and at context, NaN and infinity included, gradient and figures keep their bits."
    )
    mutant = ("multiplies by the mask, which leaves NaN where it was", multiplies_by_mask)
    return law("padding_is_nothing", claim, mutant, check, "context beside sampled tokens", source=PADDING)


def _split() -> Law:
    def check(factory: Factory, talk: Talks, seen: Seen) -> None:
        algorithm, state = new_learner(factory, talk)
        batch, state = prepared(algorithm, state, talk.transcripts)
        counts, number = algorithm.counts(batch), len(batch.length)
        wanted = algorithm.gradient(state.params, batch, counts)
        cut = 1 + talk.seed % (number - 1)
        parts = take(batch, slice(0, cut)), take(batch, slice(cut, number))
        seen("parts of different token counts", len({int(part.mask.sum()) for part in parts}) > 1)
        one, two = (algorithm.gradient(state.params, part, counts) for part in parts)
        got = tree_map(torch.add, one[0], two[0]), combined(one[1], two[1])
        same(f"(gradient, sums) cut at {cut}", got, wanted, DOUBLE)

    mutant = ("divides each part by what counts in it", own_denominators)
    claim = "The gradients and sums of parts add up to those of the whole, however it is cut."
    return law("split", claim, mutant, check, "parts of different token counts", source=SPLIT)


def _packed() -> Law:
    def check(factory: Factory, talk: Talks, seen: Seen) -> None:
        algorithm, state = new_learner(factory, talk)
        batch, state = prepared(algorithm, state, talk.transcripts)
        counts, width = algorithm.counts(batch), batch.mask.shape[1]
        where = packing(batch.length.tolist(), width + 4, width=width)
        seen("sequences that share a row", ((where.segment >= 0) & (where.position == 0)).sum(-1).gt(1).any())
        places = batch.mask.flatten().nonzero()[:, 0]
        wanted = algorithm.gradient(state.params, batch, counts)
        for layout in (SequenceLayout(places=places), SequenceLayout(places=places, packing=where)):
            same("(gradient, sums) laid out", algorithm.gradient(state.params, batch, counts, layout), wanted, DOUBLE)

    mutant = ("lets a token attend to all before it in its row", across_segments)
    claim = "Packed rows, and logits of sampled tokens alone, give the same gradient and sums."
    return law("layout", claim, mutant, check, "sequences that share a row", source="Krell et al. 2021")


def _rows() -> Law:
    def check(factory: Factory, talk: Talks, seen: Seen) -> None:
        algorithm, state = new_learner(factory, talk)
        batch, _ = prepared(algorithm, state, talk.transcripts)
        order = torch.arange(len(batch.length)).flip(0)
        turned, _ = prepared(algorithm, state, take(talk.transcripts, order))
        seen("a different last row", (batch.advantage[0] != batch.advantage[-1]).any())
        same("advantages in another order", turned.advantage, batch.advantage[order], DOUBLE)
        given = ((each, algorithm.counts(each)) for each in (turned, batch))
        got, wanted = (algorithm.gradient(state.params, *each) for each in given)
        same("(gradient, sums) in another order", got, wanted, DOUBLE)

    mutant = ("counts the first row twice", first_row_twice)
    return law("rows_permute", "The order of transcripts does not matter.", mutant, check, "a different last row")


def _nothing() -> Law:
    def check(factory: Factory, talk: Talks, seen: Seen) -> None:
        algorithm, state = new_learner(factory, talk)
        batch, state = prepared(algorithm, state, talk.transcripts)
        none = replace(batch, mask=torch.zeros_like(batch.mask), sampled=torch.zeros_like(batch.mask))
        gradients, sums = algorithm.gradient(state.params, none, algorithm.counts(none))
        same("the gradient of nothing", gradients, tree_map(torch.zeros_like, state.params))
        same("its loss", sums.loss, torch.zeros_like(sums.loss))
        _, figures = algorithm.apply(state, gradients, sums)
        require(all(bool(value.isfinite()) for value in figures.values()), f"figures of nothing are {figures}")

    mutant = ("divides by a count of 0", divides_by_count)
    claim = "A batch in which nothing counts has loss and gradient 0, and figures that are numbers."
    return law("nothing", claim, mutant, check, source="verl 785, prime-rl 1961")


def _longer() -> Law:
    def check(factory: Factory, talk: Talks, seen: Seen) -> None:
        def padded(name: str) -> Tensor:
            column: Tensor = getattr(talk.transcripts, name)
            more = column.new_full((len(column), talk.more), TOKEN_BLANKS[name])
            return torch.cat([column, more], 1)

        longer = replace(talk.transcripts, **{name: padded(name) for name in TOKEN_BLANKS})
        wanted = summed_gradient(factory, talk)
        seen("something to learn", any(bool(leaf.any()) for leaf in leaves(wanted[0])))
        same("(gradient, sums) with more columns", summed_gradient(factory, _with(talk, longer)), wanted, DOUBLE)

    mutant = ("divides by the number of columns", divides_by_columns)
    return law("length_of_padding", "More columns of padding change nothing.", mutant, check, "something to learn")


def _with(talk: Talks, transcripts: Transcript) -> Talks:
    return Talks(transcripts, talk.seed, talk.poison, talk.more)


def _reinforce(weights: Weights) -> Law:
    def check(factory: Factory, drawn: Talks, seen: Seen) -> None:
        talk = on_policy(drawn)
        algorithm, state = new_learner(factory, talk)
        batch, state = prepared(algorithm, state, talk.transcripts)
        got, _ = algorithm.gradient(state.params, batch, algorithm.counts(batch))
        own = weights(batch.mask.sum(-1).double())[:, None] * batch.advantage

        def loss(policy: Any) -> Tensor:
            told = log_probs_of(policy, talk.transcripts)
            return torch.where(batch.mask, -own * told, 0.0).sum()

        wanted = torch.func.grad(loss)(state.params.policy)
        seen("temperatures other than 1", (batch.mask & (heat_of(talk.transcripts) != 1) & (own != 0)).any())
        same("the policy's gradient where it sampled itself", got.policy, wanted, DOUBLE)

    mutant = ("scores at temperature 1", forgets_temperature)
    claim = (
        "On policy the gradient is that of REINFORCE: minus A log p at the sampler's temperature, weighed as declared."
    )
    return law("on_policy", claim, mutant, check, "temperatures other than 1", source="Williams 1992")


def _figures() -> Law:
    def check(factory: Factory, talk: Talks, seen: Seen) -> None:
        algorithm, state = new_learner(factory, talk)
        batch, state = prepared(algorithm, state, talk.transcripts)
        mask, said = batch.mask, talk.transcripts
        require(~(mask & ~said.is_action), "a token that no model sampled counts")
        seen("several tokens", mask.sum() > 1)
        _, figures = algorithm.apply(state, *algorithm.gradient(state.params, batch, algorithm.counts(batch)))
        policy = params_of(talk)
        told = (sequence_logits(policy, said.token)[:, :-1] / heat_of(said)[:, 1:, None]).log_softmax(-1)
        entropy = torch.nn.functional.pad(-(told.exp() * told).sum(-1), (1, 0))[mask]
        away = (log_probs_of(policy, said) - said.behaviour_log_prob)[mask]
        number = max(1, len(away))
        same("entropy", figures["entropy"], entropy.sum() / number, DOUBLE)
        same("log_prob_difference", figures["log_prob_difference"], away.abs().sum(0).new_tensor(_most(away)), DOUBLE)

    mutant = ("averages over padding too", averages_over_padding)
    claim = "Figures are means over the tokens that count, and only what a model sampled counts."
    return law("figures", claim, mutant, check, "several tokens")


def _most(away: Tensor) -> float:
    return float(away.abs().max()) if len(away) else 0.0


def _update() -> Law:
    def check(factory: Factory, talk: Talks, seen: Seen) -> None:
        algorithm, state = new_learner(factory, talk)
        silent = replace(talk.transcripts, is_action=torch.zeros_like(talk.transcripts.is_action))
        for said in (talk.transcripts, silent):
            batch, after = prepared(algorithm, state, said)
            wanted, _ = algorithm.apply(after, *algorithm.gradient(state.params, batch, algorithm.counts(batch)))
            got, figures = algorithm.update(state, said)
            teaches = _surprised(batch)
            seen("an update", teaches)
            seen("nothing to learn", not teaches)
            same("the state after an update", got, wanted if teaches else after)
            same("names of figures", tuple(figures), algorithm.metrics)

    mutant = ("updates twice", updates_twice)
    claim = "An update is its steps in a row; with no advantage but 0, and a critic that is right, it changes nothing."
    return law("composed", claim, mutant, check, "an update", "nothing to learn")


def _surprised(batch: TokenBatch) -> bool:
    """Return whether a return differs from its expectation: a nonzero advantage, or an error of the critic."""
    beyond = [batch.advantage[batch.mask]]
    if isinstance(batch.target, Tensor):
        beyond.append((batch.target - batch.behaviour_value)[batch.mask])
    return any(bool(each.any()) for each in beyond)


def _still() -> Law:
    def check(factory: Factory, talk: Talks, seen: Seen) -> None:
        algorithm, state = new_learner(factory, talk, rate=0.0)
        after, _ = algorithm.update(state, talk.transcripts)
        seen("an update", after.step > state.step)
        same("params after an update at rate 0", after.params, state.params)

    mutant = ("decays its weights by a fixed share", decays)
    return law("rate_0_changes_nothing", "At learning rate 0 parameters stay.", mutant, check, "an update")


def _level() -> Law:
    def check(factory: Factory, drawn: Talks, seen: Seen) -> None:
        said = drawn.transcripts
        spoke = said.calls > 0
        first = torch.arange(said.reward.shape[1]) == 0
        equal = replace(
            said,
            reward=torch.where(first, 0.7, 0.0).double().expand(said.reward.shape).clone(),
            group=torch.where(spoke, said.group, -1),
        )
        algorithm, state = new_learner(factory, drawn)
        batch, _ = prepared(algorithm, state, equal)
        seen("groups of several", (said.group[spoke][:, None] == said.group[spoke]).sum() > spoke.sum())
        require(~(batch.advantage != 0).any(), f"equal returns have the advantages {batch.advantage.tolist()}")
        after, _ = algorithm.update(state, equal)
        same("the state after an update on equal returns", after, state)

    mutant = ("counts an update that was none", counts_always)
    claim = (
        "Where all returns of a group are equal its advantages are exactly 0, and nothing is updated where all are so."
    )
    return law("equal_returns", claim, mutant, check, "groups of several", source="arXiv:2503.14476, section 3.2")


def _groups() -> Law:
    def check(factory: Factory, talk: Talks, seen: Seen) -> None:
        algorithm, state = new_learner(factory, talk)
        group = talk.transcripts.group
        mine = group == group[0]
        paid = talk.transcripts.reward + (mine[:, None] * torch.arange(len(group))[:, None]).double()
        wanted, _ = prepared(algorithm, state, talk.transcripts)
        got, _ = prepared(algorithm, state, replace(talk.transcripts, reward=paid))
        seen("other groups", (~mine).any() & wanted.mask[~mine].any())
        seen("another advantage", (got.advantage != wanted.advantage).any())
        same("advantages of other groups", got.advantage[~mine], wanted.advantage[~mine])

    mutant = ("centres advantages over the batch", centres_over_batch)
    claim = "What one group earns says nothing of another."
    return law("own_group", claim, mutant, check, "other groups", "another advantage", source="derived")
