"""Laws of causal language models: the full and the cached pass agree, and no token attends to masked or later ones (P2)."""

from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from torch import Tensor

from ....core import keys
from ....core.causal import CausalModel
from ....core.tree import leaves, tree_map
from ...framework.compare import EXACT, Tolerance, require, same
from ...framework.law import Law, Mutant, Seen, Suite
from ...strategies.values import integers

# --- mutants ---
# Common mistakes in causal models and their caches: edits of a `CausalModel`.


Edit = Callable[[CausalModel], CausalModel]


def lock_step(model: CausalModel) -> CausalModel:
    """Use the first row's position for all rows."""

    def extend(params: Any, cache: Any, tokens: Tensor, position: Tensor) -> Any:
        return model.extend(params, cache, tokens, position[:1].expand_as(position))

    return evolve(model, extend=extend)


def sees_ahead(model: CausalModel) -> CausalModel:
    """Let each token attend to the next one too."""

    def apply(params: Any, tokens: Tensor, position: Any, mask: Any) -> Tensor:
        place = torch.arange(tokens.shape[1])
        ahead = (place <= place[:, None] + 1).expand(tokens.shape[0], -1, -1)
        return model.apply(params, tokens, position, ahead if isinstance(mask, tuple) else mask)

    return evolve(model, apply=apply)


def ignores_mask(model: CausalModel) -> CausalModel:
    """Attend to all earlier tokens and ignore the mask."""
    return evolve(model, apply=lambda params, tokens, position, mask: model.apply(params, tokens, position, ()))


def ignores_position(model: CausalModel) -> CausalModel:
    """Count positions from the start of the row and ignore the positions given."""
    return evolve(model, apply=lambda params, tokens, position, mask: model.apply(params, tokens, (), mask))


def sees_behind(model: CausalModel) -> CausalModel:
    """Add the cache entries after a row's last token to the hidden states."""

    def extend(params: Any, cache: Any, tokens: Tensor, position: Tensor) -> Any:
        hidden, after = model.extend(params, cache, tokens, position)
        first = cache[0].reshape(*cache[0].shape[:2], -1).sum(-1)
        behind = torch.arange(first.shape[1]) >= position[:, None] + tokens.shape[1]
        return hidden + (first * behind).sum(-1)[:, None, None].to(hidden.dtype), after

    return evolve(model, extend=extend)


def shares_rows(model: CausalModel) -> CausalModel:
    """Subtract the mean over the batch from the hidden states."""

    def apply(params: Any, tokens: Tensor, position: Any, mask: Any) -> Tensor:
        hidden = model.apply(params, tokens, position, mask)
        return hidden - hidden.mean(0, keepdim=True)

    return evolve(model, apply=apply)


def writes_cache(model: CausalModel) -> CausalModel:
    """Write into the cache that was passed in."""

    def extend(params: Any, cache: Any, tokens: Tensor, position: Tensor) -> Any:
        hidden, after = model.extend(params, cache, tokens, position)
        tree_map(lambda old, new: old.copy_(new), cache, after)
        return hidden, cache

    return evolve(model, extend=extend)


def any_key(model: CausalModel) -> CausalModel:
    """Initialize the same weights for every key."""
    return evolve(model, init=lambda key: model.init(torch.zeros_like(key)))


MUTANTS: dict[str, Edit] = {"counts places from the row's beginning": ignores_position}


# --- laws ---


SOURCE = "core.causal: what a CausalModel promises"
Check = Callable[[CausalModel, "TokenText", Seen], None]


@frozen
class TokenText:
    """Rows of tokens [B, L], a seed for weights, and numbers that set where the rows are cut."""

    tokens: Tensor
    seed: int
    cuts: tuple[int, ...]


@st.composite
def equal_texts(draw: DrawFn, vocabulary: int) -> TokenText:
    """Texts of one shape, so that a model is compiled only once."""
    tokens = draw(integers((3, 7), 0, min(vocabulary, 256)))
    return TokenText(tokens, draw(st.integers(0, 99)), tuple(draw(st.lists(st.integers(0, 3), min_size=9, max_size=9))))


def causal_laws(tolerance: Tolerance = EXACT) -> Suite:
    """Return the laws of a `CausalModel`. `tolerance` is for values that another pass, batch or mask may round differently."""
    parts = (_two_ways, _causal, _documents, _behind, _rows, _stays, _init)
    return Suite("causal_laws", tuple(part(tolerance) for part in parts))


def _law(name: str, claim: str, mutant: tuple[str, Edit], check: Check, *needs: str) -> Law:
    def inputs(model: CausalModel) -> SearchStrategy[TokenText]:
        return equal_texts(model.vocabulary)

    return Law(
        name=name,
        claim=claim,
        source=SOURCE,
        inputs=inputs,
        check=check,
        mutant=Mutant(*mutant),
        needs=needs,
        most=200,
    )


def _two_ways(tolerance: Tolerance) -> Law:
    def check(model: CausalModel, text: TokenText, seen: Seen) -> None:
        params, (rows, length) = model.init(keys.key(text.seed)), text.tokens.shape
        whole = model.apply(params, text.tokens, (), ())
        cache, position = model.begin(params, rows, length + 3), torch.zeros(rows, dtype=torch.int64)
        for number, cut in enumerate(text.cuts):
            width = 1 + cut
            start = position.clamp(max=length - width)
            place = start[:, None] + torch.arange(width)
            hidden, cache = model.extend(params, cache, text.tokens.gather(1, place), start)
            wanted = whole.gather(1, place[..., None].expand_as(hidden))
            seen("rows at different places", (start != start[0]).any())
            seen("tokens fed again", (start < position).any())
            same(f"hidden states of piece {number}", hidden, wanted, tolerance)
            ahead = torch.tensor([(number + row) % 3 for row in range(rows)]).clamp(max=width)
            position = (start + ahead).clamp(max=length)

    claim = "Fed piece by piece, each row at its own place, a cache gives the hidden states of one full pass."
    mutant = ("takes the first row's position for everybody's", lock_step)
    return _law("cached_is_full", claim, mutant, check, "rows at different places", "tokens fed again")


def _causal(tolerance: Tolerance) -> Law:
    def check(model: CausalModel, text: TokenText, seen: Seen) -> None:
        params, after = model.init(keys.key(text.seed)), 1 + text.cuts[0]
        other = torch.where(torch.arange(7) < after, text.tokens, (text.tokens + 1) % model.vocabulary)
        seen("several tokens before", after > 1)
        got, wanted = (model.apply(params, tokens, (), ())[:, :after] for tokens in (other, text.tokens))
        same("what comes before", got, wanted, tolerance)

    claim = "Other tokens later change nothing before them."
    return _law("causal", claim, ("sees one token ahead", sees_ahead), check, "several tokens before")


def _documents(tolerance: Tolerance) -> Law:
    def check(model: CausalModel, text: TokenText, seen: Seen) -> None:
        params, cut = model.init(keys.key(text.seed)), 2 + text.cuts[0]
        place = torch.arange(7)
        second = place >= cut
        position = torch.where(second, place - cut, place).expand(3, -1)
        mask = ((second[:, None] == second) & (place <= place[:, None])).expand(3, -1, -1)
        packed = model.apply(params, text.tokens, position, mask)
        for name, part in (("first", slice(cut)), ("second", slice(cut, 7))):
            alone = model.apply(params, text.tokens[:, part], (), ())
            same(f"the {name} document", packed[:, part], alone, tolerance)
        seen("two documents", 0 < cut < 7)

    claim = "Two documents in one row, with positions and a mask of their own, are what each of them is alone."
    return _law("documents_apart", claim, ("ignores the mask", ignores_mask), check, "two documents")


def _behind(tolerance: Tolerance) -> Law:
    def check(model: CausalModel, text: TokenText, seen: Seen) -> None:
        params, at = model.init(keys.key(text.seed)), torch.tensor(text.cuts[:3])
        full = model.begin(params, 3, 10)
        _, full = model.extend(params, full, text.tokens, torch.zeros(3, dtype=torch.int64))
        rows, place = torch.arange(3)[:, None], torch.arange(10) >= at[:, None]

        def other(tensor: Tensor) -> Tensor:
            mask = place.reshape(3, 10, *[1] * (tensor.ndim - 2))
            return torch.where(mask, tensor + 1, tensor)

        new = text.tokens[:, -2:]
        got, after = model.extend(params, tree_map(other, full), new, at)
        wanted, _ = model.extend(params, full, new, at)
        seen("something before a row's position", (at > 0).any())
        same("hidden states with other numbers behind", got, wanted, tolerance)
        kept = [leaf[rows, torch.arange(10)][~place] for leaf in after]
        same("the cache before", kept, [leaf[~place] for leaf in full])

    claim = "What stands in the cache at or behind a row's position is not seen, and what stands before it stays."
    mutant = ("sees what is left in the cache", sees_behind)
    return _law("behind_is_nothing", claim, mutant, check, "something before a row's position")


def _rows(tolerance: Tolerance) -> Law:
    def check(model: CausalModel, text: TokenText, seen: Seen) -> None:
        params = model.init(keys.key(text.seed))
        whole = model.apply(params, text.tokens, (), ())
        seen("rows that differ", (text.tokens[0] != text.tokens[1]).any())
        for row in range(3):
            alone = model.apply(params, text.tokens[row : row + 1], (), ())
            same(f"row {row} alone", alone, whole[row : row + 1], tolerance)

    claim = "A row is what it is alone."
    return _law("rows_alone", claim, ("centres over the batch", shares_rows), check, "rows that differ")


def _stays(tolerance: Tolerance) -> Law:
    def check(model: CausalModel, text: TokenText, seen: Seen) -> None:
        params = model.init(keys.key(text.seed))
        cache = model.begin(params, 3, 10)
        before = tree_map(torch.clone, (params, cache))
        hidden, after = model.extend(params, cache, text.tokens, torch.tensor(text.cuts[:3]))
        logits = model.head(params, hidden)
        same("weights and cache after a call", (params, cache), before)
        same("sizes", list(logits.shape), [3, 7, model.vocabulary])
        same("the width", hidden.shape[-1], model.width)
        shapes = [[(tuple(leaf.shape), leaf.dtype) for leaf in leaves(one)] for one in (cache, after)]
        same("shapes and dtypes of the cache", shapes[1], shapes[0])
        require(isinstance(after, tuple), "the cache is a tuple")
        seen("a call", True)

    claim = "A call writes to nothing it was given, and gives sizes as promised and a cache of the same kind."
    return _law("inputs_stay", claim, ("writes into the cache", writes_cache), check, "a call")


def _init(tolerance: Tolerance) -> Law:
    def check(model: CausalModel, text: TokenText, seen: Seen) -> None:
        one, again, other = (model.init(keys.key(seed)) for seed in (text.seed, text.seed, text.seed + 1))
        same("weights of one key", again, one)
        pairs = zip(leaves(one), leaves(other), strict=True)
        require(any(not torch.equal(a, b) for a, b in pairs), "two keys give the same weights")
        seen("weights", leaves(one))

    claim = "Weights are a function of the key."
    return _law("init_of_key", claim, ("begins with the same weights always", any_key), check, "weights")
