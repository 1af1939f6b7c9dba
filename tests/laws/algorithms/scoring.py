"""Laws of log-probs of tokens under a model; the subject is `scored(model, params, token, length, temperature, ...)`."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from purestep.algorithms.language.packing import Packing, SequenceLayout, packing
from purestep.algorithms.language.scoring import LearnerParams, Scores
from purestep.core.networks import Linear
from purestep.core.record import replace
from purestep.core.tree import tree_map
from purestep.properties.framework.compare import DOUBLE, require, same
from purestep.properties.framework.law import Law, Seen, Suite, law_constructor
from purestep.properties.strategies.learner import (
    LENGTH,
    MODEL,
    Talks,
    heat_of,
    log_probs_of,
    params_of,
    sequence_logits,
    talks,
)

# --- mutants ---
# Common errors in scores of tokens: each an edit of right scores.


Scored = Callable[..., Scores]  # (model, params, token, length, temperature, *, layout)


def _result(change: Callable[[Scores], Scores]) -> Callable[[Scored], Scored]:
    return lambda subject: lambda *given, **named: change(subject(*given, **named))


def _given(change: Callable[..., tuple[Any, ...]]) -> Callable[[Scored], Scored]:
    return lambda subject: lambda *given, **named: subject(*change(*given), **named)


def _layout(change: Callable[[SequenceLayout], SequenceLayout]) -> Callable[[Scored], Scored]:
    def make(subject: Scored) -> Scored:
        def edited(*given: Any, layout: Any = (), **named: Any) -> Scores:
            return subject(*given, layout=change(layout) if isinstance(layout, SequenceLayout) else layout, **named)

        return edited

    return make


def _values_moved(scores: Scores) -> Scores:
    values: Tensor = scores.values
    return replace(scores, values=torch.cat([values[:, 1:], scores.beyond[:, None]], 1))


def _one_segment(layout: SequenceLayout) -> SequenceLayout:
    where = layout.packing
    if not isinstance(where, Packing):
        return layout
    return replace(layout, packing=replace(where, segment=where.segment.clamp(max=0)))


shifted = _result(lambda scores: replace(scores, log_prob=scores.log_prob.roll(-1, 1)))
at_one = _given(lambda model, params, token, length, heat: (model, params, token, length, torch.ones_like(heat)))
of_full_rows = _given(
    lambda model, params, token, length, heat: (model, params, token, torch.full_like(length, token.shape[1]), heat)
)
values_at_the_token = _result(_values_moved)
negative_entropy = _result(lambda scores: replace(scores, entropy=-scores.entropy))
across_segments = _layout(_one_segment)
loses_the_last_place = _layout(
    lambda layout: layout if isinstance(layout.places, tuple) else replace(layout, places=layout.places[:-1])
)


def over_all_tokens(subject: Scored) -> Scored:
    """Score under the whole distribution, whatever was sampled from."""
    return lambda *given, top_p=(), **named: subject(*given, **named)


def drops_the_token(subject: Scored) -> Scored:
    """Give a token that the nucleus leaves out the probability 0."""

    def edited(*given: Any, **named: Any) -> Scores:
        found = subject(*given, **named)
        if isinstance(found.outside, tuple):
            return found
        return replace(found, log_prob=torch.where(found.outside > 0, -torch.inf, found.log_prob))

    return edited


MUTANTS: dict[str, Callable[[Scored], Scored]] = {
    "counts entropy from below": negative_entropy,
    "drops a token that its nucleus leaves out": drops_the_token,
}


# --- laws ---


SOURCE = "core.transcript.log_probs.token_log_probs: logits at t speak of the token at t + 1"
HEAD = torch.linspace(-1.0, 1.0, 3, dtype=torch.float64)


def scoring_laws() -> Suite:
    """The laws of scores."""
    return Suite("scoring_laws", (_log_probs(), _nucleus(), _entropy(), _places(), _packed(), _values(), _beyond()))


_law = law_constructor(talks, SOURCE)


def _ask(subject: Scored, talk: Talks, layout: SequenceLayout | tuple[()] = (), **named: Any) -> Scores:
    critic = Linear(weight=HEAD[:, None], bias=torch.tensor([0.25], dtype=torch.float64))
    params = LearnerParams(policy=params_of(talk), critic=critic)
    said = talk.transcripts
    return subject(MODEL, params, said.token, said.length, heat_of(said), layout=layout, **named)


def _inside(talk: Talks) -> Tensor:
    return torch.arange(LENGTH) < talk.transcripts.length[:, None]


def _log_probs() -> Law:
    def check(subject: Scored, talk: Talks, seen: Seen) -> None:
        seen("temperatures other than 1", (heat_of(talk.transcripts) != 1).any())
        wanted = log_probs_of(params_of(talk), talk.transcripts)
        same("log-probs", _ask(subject, talk).log_prob, wanted, DOUBLE)

    mutant = ("gives each token the log-prob of the next", shifted)
    claim = "Log-probs are those of `token_log_probs` on all logits, at the tokens' temperatures."
    return _law("log_probs", claim, mutant, check, "temperatures other than 1")


def _in_nucleus(probability: list[float], limit: float) -> list[bool]:
    """Return whether each token is in the nucleus, one after the other by Python's own sort."""
    kept, mass = [False] * len(probability), 0.0
    for word in sorted(range(len(probability)), key=lambda word: -probability[word]):
        kept[word] = mass < limit or limit >= 1
        mass += probability[word]
    return kept


def _nucleus() -> Law:
    def check(subject: Scored, talk: Talks, seen: Seen) -> None:
        said, heat = talk.transcripts, heat_of(talk.transcripts)
        limits = torch.tensor([0.31, 0.62, 1.0], dtype=torch.float64)[(said.token + said.call) % 3]
        got, whole = _ask(subject, talk, top_p=limits), _ask(subject, talk)
        told = (sequence_logits(params_of(talk), said.token)[:, :-1] / heat[:, 1:, None]).softmax(-1)
        for row, column in (said.is_action & (torch.arange(LENGTH) > 0)).nonzero().tolist():
            word, probability = int(said.token[row, column]), told[row, column - 1].tolist()
            kept = _in_nucleus(probability, float(limits[row, column]))
            inside = [p for v, p in enumerate(probability) if kept[v] or v == word]
            share = torch.tensor(inside, dtype=torch.float64) / sum(inside)
            seen("a token that the nucleus leaves out", not kept[word])
            seen("a token of a nucleus", kept[word] and not all(kept))
            wanted = torch.tensor(probability[word] / sum(inside), dtype=torch.float64).log()
            same("the log-prob", got.log_prob[row, column], wanted, DOUBLE)
            same("the entropy", got.entropy[row, column], torch.special.entr(share).sum(), DOUBLE)
            same("whether it is left out", got.outside[row, column], torch.tensor(float(not kept[word])).double())
        every = limits == 1
        for name in ("log_prob", "entropy"):
            same(f"{name} at top_p 1", getattr(got, name)[every], getattr(whole, name)[every])

    mutant = ("scores over all tokens", over_all_tokens)
    claim = "Under top_p log-probs and entropies are those within the nucleus and the token; at 1 they keep their bits."
    return _law("nucleus", claim, mutant, check, "a token that the nucleus leaves out", "a token of a nucleus")


def _entropy() -> Law:
    def check(subject: Scored, talk: Talks, seen: Seen) -> None:
        heat = heat_of(talk.transcripts)
        seen("temperatures other than 1", (heat != 1).any())
        told = (sequence_logits(params_of(talk), talk.transcripts.token)[:, :-1] / heat[:, 1:, None]).softmax(-1)
        wanted = torch.special.entr(told).sum(-1)
        got = _ask(subject, talk).entropy
        same("entropies", got[:, 1:], wanted, DOUBLE)
        require(got[:, 0] == 0, "a first token has an entropy")

    mutant = ("takes them at temperature 1", at_one)
    claim = "Entropies are those of the distribution a token was drawn from, and 0 at the first."
    return _law("entropies", claim, mutant, check, "temperatures other than 1")


def _places() -> Law:
    def check(subject: Scored, talk: Talks, seen: Seen) -> None:
        asked = talk.transcripts.is_action
        seen("tokens asked for beside others", asked.any() & (~asked).any())
        layout = SequenceLayout(places=asked.flatten().nonzero()[:, 0])
        got, whole = _ask(subject, talk, layout), _ask(subject, talk)
        for name in ("log_prob", "entropy"):
            wanted = torch.where(asked, getattr(whole, name), 0.0)
            same(f"{name} where asked", getattr(got, name), wanted, DOUBLE)
        same("values, asked or not", got.values, whole.values, DOUBLE)

    mutant = ("forgets the last place", loses_the_last_place)
    claim = "Where only some tokens are asked for they have the same scores, and the others 0."
    return _law("places", claim, mutant, check, "tokens asked for beside others")


def _packed() -> Law:
    def check(subject: Scored, talk: Talks, seen: Seen) -> None:
        where = packing(talk.transcripts.length.tolist(), LENGTH + 4, width=LENGTH)
        seen("sequences that share a row", ((where.segment >= 0) & (where.position == 0)).sum(-1).gt(1).any())
        inside = _inside(talk)
        before = torch.nn.functional.pad(inside, (1, 0))[:, :-1] & inside

        def known(scores: Scores) -> tuple[Tensor, ...]:
            columns = tree_map(lambda leaf: torch.where(before, leaf, 0.0) if leaf.ndim == 2 else leaf, scores)
            beyond = torch.where(talk.transcripts.length > 0, columns.beyond, 0.0)
            return columns.log_prob, columns.entropy, columns.values, beyond

        got, wanted = known(_ask(subject, talk, SequenceLayout(packing=where))), known(_ask(subject, talk))
        same("(log-probs, entropies, values, beyond) of packed rows", got, wanted, DOUBLE)

    mutant = ("lets a token attend to all before it in its row", across_segments)
    claim = "Sequences packed in rows have the scores of sequences in rows of their own."
    return _law("packed", claim, mutant, check, "sequences that share a row")


def _values() -> Law:
    def check(subject: Scored, talk: Talks, seen: Seen) -> None:
        seen("several tokens", _inside(talk).sum() > 1)
        hidden = MODEL.apply(params_of(talk), talk.transcripts.token, (), ())
        got = _ask(subject, talk).values
        same("values", got[:, 1:], (hidden @ HEAD)[:, :-1] + 0.25, DOUBLE)
        same("values of what precedes nothing", got[:, 0], torch.zeros_like(got[:, 0]))

    mutant = ("gives the value of what the token led to", values_at_the_token)
    claim = "A value is the head's at the hidden state before its token."
    return _law("values", claim, mutant, check, "several tokens")


def _beyond() -> Law:
    def check(subject: Scored, talk: Talks, seen: Seen) -> None:
        seen("padding", (~_inside(talk)).any())
        got = _ask(subject, talk).beyond
        for row, length in enumerate(talk.transcripts.length.tolist()):
            if length:
                alone = MODEL.apply(params_of(talk), talk.transcripts.token[row : row + 1, :length], (), ())
                same(f"the value beyond row {row}", got[row], alone[0, -1] @ HEAD + 0.25, DOUBLE)

    mutant = ("takes it at the end of the columns", of_full_rows)
    claim = "The value beyond is that of the hidden state at a sequence's own last token."
    return _law("beyond", claim, mutant, check, "padding")
