"""Forms in which the field writes advantage estimators and lambda-returns, called with the columns of a stream.

The names of a function's parameters declare its form: merged endings (`dones`), endings of the row before (`dones` with
`next_done`, `episode_starts`), masks of rows that go on, discounts, the value of the last row alone (`last_value`), values with
one row more, and results with several parts. The endings that it is given declare its convention on truncation.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from attrs import evolve
from torch import Tensor

from ..framework.binding import Bound, bound, is_called_as
from ..framework.calling import as_tensors
from ..framework.catalogue import CatalogueRow, rows
from ..framework.law import Unlike
from ..framework.matching import marks_of, parameter_roles
from ..framework.verdict import NoVerdict
from .estimator import reference

COLUMNS = ("rewards", "values", "next_values", "terminated", "truncated")
LASTING = (
    "mask",
    "nonterminal",
    "not_done",
    "notdone",
    "continu",
    "masks",
)  # names of columns that are 1 where an episode goes on
SHIFTED = ("start",)  # names of columns that mark the first row of an episode
ENDINGS = ("ended", "terminated", "truncated", "discount")
FLAGS = ("ended", "terminated", "truncated", "last_ended")
# shape, whether values have one row more, whether endings are bool
Layout = tuple[Callable[[Tensor], Tensor], bool, bool, int]  # and which of several results
SHAPES: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda x: x,  # [T]
    lambda x: x[:, None] if x.ndim else x[None],  # [T, 1]
    lambda x: x[None],  # [1, T]
)
LAYOUTS: tuple[Layout, ...] = tuple(
    (shape, longer, flags, part)
    for part in (0, 1)
    for flags in (False, True)
    for shape in SHAPES
    for longer in (True, False)
)
REWARDS, VALUES, AFTER = (torch.tensor(x) for x in ((1.0, -0.5, 0.25), (0.5, 0.25, -1.0), (0.75, -1.0, 0.5)))  # a probe


def estimator_form(value: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return an advantage estimator of any of these forms as the subject of `estimator_laws`, with its convention.

    >>> def my_gae(rewards, values, dones, last_value, gamma, lam):
    ...     return rewards
    >>> estimator_form(my_gae, {})[1]
    {'convention': 'terminate'}
    """
    return _form(rows()["estimator"], value, given)


def return_form(value: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a lambda-return of any of these forms as the subject of `lambda_return_laws`, with its convention."""
    return _form(rows()["lambda_return"], value, given)


def _form(row: CatalogueRow, value: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    marks = marks_of(value)
    if not given and is_called_as(marks, COLUMNS, ("gamma", "lambda_")):
        return value, {}
    if not marks.parameters:  # (*columns, gamma, lambda_)
        return value, {}
    own = _own_roles(marks.parameters)
    returns = row.suite == "lambda_return" and "next_values" in parameter_roles(row, marks.parameters)
    found = bound(row, value, given, needs=("rewards",) if returns else ("rewards", "values"), roles=own)
    roles = found.roles
    whole = "next_values" in roles and ("truncated" in roles or ("ended" in roles and "terminated" in roles))
    if "gamma" not in roles and "discount" not in roles:
        left = [n for n, x in _numbers(value).items() if n not in roles.values() and n not in given]
        roles = {**dict(zip(("gamma", "lambda_"), left, strict=False)), **roles}
        if "gamma" not in roles or "lambda_" not in roles:
            raise NoVerdict(
                f"{marks.name} as {row.suite} is a function without gamma or lambda, wanted one of both; wrap it"
            )
        found = evolve(found, roles=roles)
    form = _Form(found, marks.name, returns=row.suite == "lambda_return")
    if not set(ENDINGS) & set(roles):
        return form, {"one_episode": True}
    return form, {"convention": "bootstrap" if whole else "terminate"}


def _numbers(function: Any) -> dict[str, float]:
    """Return the parameters whose defaults are discounts: numbers above 0, up to 1."""
    parameters = inspect.signature(function).parameters
    return {n: p.default for n, p in parameters.items() if isinstance(p.default, float) and 0 < p.default <= 1}


def _own_roles(parameters: Sequence[str]) -> dict[str, str]:
    """Return the roles that names have in an estimator alone: masks of rows that go on, and `dones` of the last row."""
    masks = [name for name in parameters if name in ("mask", "masks")]
    if masks:
        return {"ended": masks[0]}
    starts = next((name for name in parameters if "start" in name), None)
    done = next((name for name in parameters if name in ("done", "dones")), None)
    return {"ended": starts, "last_ended": done} if starts and done else {}


class _Form:
    """A bound estimator, called with the columns of a stream; the layout that it takes is found before its first call."""

    def __init__(self, function: Bound, name: str, *, returns: bool) -> None:
        self.function, self.__name__, self.returns = function, name, returns
        self.layout: Layout | None = None
        self.extras, self.drawn = function.extras, function.drawn

    def with_function(self, function: Bound) -> "_Form":
        """Return the same form of another function."""
        return _Form(function, self.__name__, returns=self.returns)

    def __call__(self, *columns: Tensor, gamma: float, lambda_: float) -> Tensor:
        """Return the advantages of one stream, [T]."""
        given = _columns(self.function.roles, *columns, gamma=gamma)
        words = {"gamma": gamma, "lambda_": lambda_}
        if self.layout is None:
            self.layout = self._agreeing() or self._taking(given, words) or LAYOUTS[0]
        return self._called(self.layout, given, words, len(columns[0]))

    def _agreeing(self) -> Layout | None:
        """Return the first layout in which a probe of three rows gives what the definition says, else one that is taken."""
        roles, taken = self.function.roles, None
        ends = torch.tensor([False, bool(set(ENDINGS) & set(roles)), not set(ENDINGS) & set(roles)])
        columns, words = (REWARDS, VALUES, AFTER, ends, torch.zeros_like(ends)), {"gamma": 0.5, "lambda_": 0.5}
        given = _columns(roles, *columns, gamma=0.5)
        after = AFTER if "next_values" in roles else torch.cat([VALUES[1:], AFTER[-1:]])
        wanted = reference(REWARDS, VALUES, after, *columns[3:], **words) + (VALUES if self.returns else 0)
        for layout in LAYOUTS:
            with suppress(Exception):
                made = self._called(layout, given, words, len(REWARDS))
                taken = taken or layout
                if torch.allclose(made.float(), wanted, atol=1e-5):
                    return layout
        return taken

    def _taking(self, given: Mapping[str, Tensor], words: Mapping[str, float]) -> Layout | None:
        """Return the first layout that the function takes at all."""
        for layout in LAYOUTS:
            with suppress(Exception):
                self._called(layout, given, words, len(given["rewards"]))
                return layout
        return None

    def _called(self, layout: Layout, given: Mapping[str, Tensor], words: Mapping[str, Any], rows: int) -> Tensor:
        shape, longer, flags, part = layout
        shaped = {name: shape(x[:rows] if name == "values" and not longer else x) for name, x in given.items()}
        if flags:
            shaped = {name: x.bool() if name in FLAGS else x for name, x in shaped.items()}
        call = self.function if isinstance(self.function, Bound) else None
        several = call.all_results(**shaped, **words) if call and part else self.function(**shaped, **words)
        if part and not (isinstance(several, tuple) and len(several) > part):
            raise Unlike("there is one result")
        made = as_tensors(several[part] if part else several, given["rewards"].dtype)
        if not isinstance(made, Tensor):
            raise Unlike(f"the result is a {type(made).__name__}, wanted {rows} numbers")
        if made.numel() != rows:
            raise Unlike(f"the result is {list(made.shape)}, wanted {rows} numbers")
        return made.reshape(rows)


def _columns(
    roles: Mapping[str, str],
    rewards: Tensor,
    values: Tensor,
    after: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: float,
) -> dict[str, Tensor]:
    """Return the tensors of the roles that a form takes."""
    over = terminated | truncated
    name = roles.get("ended", "").lower()
    if "last_ended" in roles or any(word in name for word in SHIFTED):
        marked = torch.cat([torch.zeros_like(over[:1]), over[:-1]])
    else:
        marked = ~over if any(word in name for word in LASTING) else over
    lasting = ~terminated if "next_values" in roles else ~over
    tensors = {
        "rewards": rewards,
        "values": values,
        "next_values": after,
        "terminated": terminated.to(rewards.dtype),
        "truncated": truncated.to(rewards.dtype),
        "ended": marked.to(rewards.dtype),
        "discount": gamma * lasting.to(rewards.dtype),
        "last_value": after[-1] if set(ENDINGS) & set(roles) else after[-1] * ~terminated[-1],
        "last_ended": over[-1].to(rewards.dtype),
    }
    if not {"next_values", "last_value"} & set(roles):
        tensors["values"] = torch.cat([values, after[-1:] * ~terminated[-1:]])
    return {role: tensors[role] for role in roles if role in tensors}
