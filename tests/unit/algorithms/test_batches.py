"""Credit, advantages over tokens, micro-batches, packing and cuts: values by hand, conventions, what is refused."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.algorithms.advantages import gae
from purestep.algorithms.language import credit
from purestep.algorithms.language.advantages import token_gae
from purestep.algorithms.language.group_advantages import grpo_advantages
from purestep.algorithms.language.masking import next_in_mask
from purestep.algorithms.language.packing import (
    Packing,
    longest_first,
    micro_batches,
    pack,
    packed_log_probs,
    packed_rows,
    packing,
    padded_tokens,
    padding_waste,
    segment_mask,
    shards,
    unpack,
)
from purestep.core.errors import ChoiceError, DtypeError, ShapeError
from purestep.core.language.types import Transcript
from purestep.core.record import check as check_record
from purestep.core.transcript.calls import begin_call, end_call, mark_end
from purestep.core.transcript.edit import cut_to
from purestep.core.transcript.forks import fork
from purestep.core.transcript.record import (
    ENV,
    MAX_SEQ_LEN,
    NONE,
    STOP,
    TOOL,
    TOOL_CALL,
    USER,
    append_context,
    append_sampled,
    empty,
)


def said(transcript: Transcript, tokens: int, finish_reason: int, reward: float) -> Transcript:
    """A call of the model."""
    ids = torch.arange(1, tokens + 1)
    spoken = append_sampled(begin_call(transcript, 1.0, 1.0), ids, tokens, -ids.float(), 0)
    return end_call(spoken, finish_reason, reward=reward)


def dialogue() -> Transcript:
    """A question of one token, a call of two, a tool's answer of two, a call of one."""
    asked = append_context(empty(8, 3, id=0), torch.tensor([9]), 1, USER)
    told = append_context(said(asked, 2, TOOL_CALL, 0.25), torch.tensor([7, 7]), 2, TOOL)
    return said(told, 1, STOP, 1.0)


# --- credit ---


def test_a_dialogue_is_credited_in_each_way() -> None:
    talk = dialogue()
    given = talk.reward, talk.calls
    assert credit.own_rewards(*given).tolist() == [0.25, 1.0, 0.0]
    assert credit.episode(*given).tolist() == [1.25, 1.25, 0.0]
    assert credit.monte_carlo(*given, gamma=0.5).tolist() == [0.75, 1.0, 0.0]
    paid = credit.token_credit(talk, credit.monte_carlo(*given, gamma=0.5))
    assert paid.tolist() == [0.0, 0.75, 0.75, 0.0, 0.0, 1.0, 0.0, 0.0]


def test_a_fork_pays_its_own_tokens_for_the_episode_it_goes_on_with() -> None:
    other = said(fork(dialogue(), 5, 1), 2, STOP, 4.0)
    assert credit.episode(other.reward, other.calls).tolist() == [4.25, 4.25, 0.0]
    paid = credit.token_credit(other, credit.episode(other.reward, other.calls))
    assert paid.tolist() == [0.0, 0.0, 0.0, 0.0, 0.0, 4.25, 4.25, 0.0]


def test_a_group_compares_episodes_and_not_calls() -> None:
    reward = torch.tensor([[1.0, 1.0], [4.0, 9.0], [0.0, 0.0], [3.0, 0.0]])
    calls, group = torch.tensor([2, 1, 1, 2]), torch.tensor([0, 0, -1, 0])
    found = credit.group(reward, calls, group, estimator=partial(grpo_advantages, groups=1, eps=0.0))
    torch.testing.assert_close(found, torch.tensor([[-1.0, -1.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]))


# --- advantages over tokens ---


def test_skyrl_takes_every_token_for_a_step() -> None:
    rewards, values = torch.tensor([0.0, 0.0, 0.0, 1.0]), torch.tensor([1.0, 2.0, 4.0, 8.0])
    mask, no = torch.tensor([True, False, False, True]), torch.tensor(False)
    ask = partial(token_gae, rewards, values, next_value=torch.tensor(0.0), gamma=0.5, lambda_=0.5)
    skipping, stepping = ask(mask=mask, terminated=no), ask(mask=torch.ones_like(mask), terminated=no)
    torch.testing.assert_close(skipping, torch.tensor([1.25, 0.0, 0.0, -7.0]))
    flat = torch.zeros(4, dtype=torch.bool)
    wanted = gae(rewards, values, torch.tensor([2.0, 4.0, 8.0, 0.0]), flat, flat, gamma=0.5, lambda_=0.5)
    torch.testing.assert_close(stepping, wanted)
    assert stepping[0] != skipping[0]


def test_a_population_of_discounts_is_one_vmap() -> None:
    numbers = torch.tensor([[0.5, 1.0], [1.0, 0.0]], dtype=torch.float64)
    rewards, values = torch.arange(6.0).reshape(2, 3), torch.ones(2, 3)
    mask, terminated = torch.tensor([[True, False, True], [False, True, True]]), torch.tensor([True, False])

    def ask(pair: Tensor) -> Tensor:
        return token_gae(rewards, values, mask, torch.ones(2), terminated, gamma=pair[0], lambda_=pair[1])

    found = torch.vmap(ask)(numbers)
    assert found.dtype == torch.float32
    for pair, one in zip(numbers.tolist(), found, strict=True):
        torch.testing.assert_close(one, ask(torch.tensor(pair, dtype=torch.float64)))


def test_the_gradient_of_an_advantage_knows_no_context() -> None:
    mask = torch.tensor([True, False, True, False])

    def total(values: Tensor) -> Tensor:
        no = torch.tensor(False)
        return token_gae(torch.zeros(4), values, mask, torch.tensor(0.0), no, gamma=1.0, lambda_=1.0).sum()

    assert torch.func.grad(total)(torch.full((4,), torch.nan).where(~mask, 1.0)).tolist() == [-1.0, 0.0, -1.0, 0.0]


# --- micro-batches ---


def test_the_longest_come_first_and_ties_keep_their_order() -> None:
    assert longest_first([2, 2, 3, 2]) == [2, 0, 1, 3]
    assert micro_batches([4, 4, 4, 1], 8) == ((0, 1), (2, 3))
    assert micro_batches([], 8) == ()
    assert micro_batches([0, 0, 0], 1) == ((0, 1, 2),)


def test_fewer_sequences_than_processes_leave_some_with_nothing_to_do() -> None:
    assert shards([3, 3], 6, ranks=3) == (((0,),), ((1,),), ((),))
    assert shards([], 6, ranks=2) == ((), ())


def test_dear_and_cheap_micro_batches_are_dealt_evenly() -> None:
    lengths = [9, 8, 7, 6]
    dealt = shards(lengths, 9, ranks=2)
    assert [padded_tokens(lengths, batches) for batches in dealt] == [15, 15]


def test_padding_is_a_figure() -> None:
    lengths = [8, 1, 1, 1, 1]
    assert padding_waste(lengths, [range(5)]) == pytest.approx(1 - 12 / 40)
    assert padding_waste(lengths, micro_batches(lengths, 8)) == 0.0
    assert padding_waste([], []) == 0.0


# --- packing ---


def test_a_row_is_filled_before_another_is_begun() -> None:
    assert packed_rows([5, 4, 3, 2, 1, 1], 8) == ((0, 2), (1, 3, 4, 5))


def test_packing_wastes_less_than_micro_batches() -> None:
    lengths = [100, 60, 50, 41, 39, 30, 8, 2]
    capacity = 110
    rows = packed_rows(lengths, capacity)
    packed = 1 - sum(lengths) / (len(rows) * capacity)
    assert packed < 0.02 < padding_waste(lengths, micro_batches(lengths, capacity))


def test_one_graph_serves_batches_of_any_lengths(compiled: Any) -> None:
    tokens, logits = torch.arange(6).reshape(2, 3) % 3, torch.linspace(-1, 1, 24).sin().reshape(2, 4, 3)

    def step(where: Packing, tokens: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        packed = pack(where, tokens)
        return segment_mask(where.segment), unpack(where, packed_log_probs(where, logits, packed))

    fast = compiled(step)
    for lengths in ((3, 1), (1, 0), (3, 3)):
        where = check_record(packing(lengths, 4, width=3, rows=2))
        got, wanted = fast(where, tokens, logits), step(where, tokens, logits)
        torch.testing.assert_close(got, wanted)


def test_columns_with_features_are_packed_too() -> None:
    where, column = packing([1, 2], 3, width=2), torch.arange(8.0).reshape(2, 2, 2)
    assert pack(where, column).tolist() == [[[4.0, 5.0], [6.0, 7.0], [0.0, 1.0]]]
    assert unpack(where, pack(where, column)).tolist() == [[[0.0, 1.0], [0.0, 0.0]], [[4.0, 5.0], [6.0, 7.0]]]


# --- cuts ---


def test_a_cut_says_what_it_took() -> None:
    short = cut_to(mark_end(dialogue(), True, False), 4)
    assert check_record(short).transcript.token.tolist() == [9, 1, 2, 7]
    told = short.transcript
    assert (bool(told.terminated), bool(told.truncated), int(told.reason)) == (True, True, MAX_SEQ_LEN)
    assert (int(short.original), int(short.retained)) == (6, 4)
    assert short.share.item() == pytest.approx(4 / 6)
    assert int(cut_to(dialogue(), 6).transcript.reason) == NONE


def test_an_earlier_reason_stays_and_so_does_credit() -> None:
    talk = mark_end(dialogue(), False, True, ENV)
    short = cut_to(talk, 3).transcript
    assert int(short.reason) == ENV
    given = credit.episode(talk.reward, talk.calls)
    assert torch.equal(credit.episode(short.reward, short.calls), given)
    assert torch.equal(credit.token_credit(short, given), credit.token_credit(talk, given)[:3])


# --- what is refused ---


def test_wrong_arguments_are_refused() -> None:
    x, mask, one = torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool), torch.zeros(2)
    no, calls = torch.zeros(2, dtype=torch.bool), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ShapeError, match=r"credit: reward is \[3\], wanted \[2, C\]"):
        credit.episode(torch.zeros(3), calls)
    with pytest.raises(ChoiceError, match=r"monte_carlo: gamma is 2\.0"):
        credit.monte_carlo(x, calls, gamma=2.0)
    with pytest.raises(ShapeError, match="group: reward is"):
        credit.group(torch.zeros(3), torch.tensor(1), torch.tensor(0), estimator=lambda value, group: value)
    with pytest.raises(ShapeError, match=r"token_gae: next_value is \[\], wanted \[2\]"):
        token_gae(x, x, mask, torch.tensor(0.0), no, gamma=1.0, lambda_=1.0)
    with pytest.raises(DtypeError, match="token_gae: terminated is"):
        token_gae(x, x, mask, one, one, gamma=1.0, lambda_=1.0)
    with pytest.raises(ChoiceError, match=r"token_gae: lambda_ is -1\.0"):
        token_gae(x, x, mask, one, no, gamma=1.0, lambda_=-1.0)
    with pytest.raises(ShapeError, match=r"following: values is|following: mask is"):
        next_in_mask(one, mask, one)
    with pytest.raises(ChoiceError, match="length of sequence 1 is 7, wanted from 0 to 6; raise the budget"):
        micro_batches([3, 7], 6)
    with pytest.raises(ChoiceError, match="micro_batches: budget is 0"):
        micro_batches([], 0)
    with pytest.raises(ChoiceError, match="shards: ranks is 0"):
        shards([1], 6, ranks=0)
    with pytest.raises(ChoiceError, match="cut_to: max_seq_len is 0"):
        cut_to(dialogue(), 0)


def test_packings_that_cannot_be_are_refused() -> None:
    where = packing([2, 1], 2, width=2)
    with pytest.raises(ChoiceError, match="length of sequence 0 is 3, wanted from 0 to 2; raise the capacity"):
        packing([3], 2, width=3)
    with pytest.raises(ChoiceError, match="length of sequence 0 is 3, wanted from 0 to 2; pass the width"):
        packing([3], 3, width=2)
    with pytest.raises(ChoiceError, match="packing: rows is 1, wanted at least 2"):
        packing([2, 1], 2, width=2, rows=1)
    with pytest.raises(ChoiceError, match="packed_rows: capacity is 0"):
        packed_rows([], 0)
    with pytest.raises(ShapeError, match=r"pack: column is \[3, 2\], wanted \[2, 2, \.\.\.\]"):
        pack(where, torch.zeros(3, 2))
    with pytest.raises(ShapeError, match="packed_log_probs: tokens is"):
        packed_log_probs(where, torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.int64))


def test_a_packing_of_nothing_is_empty() -> None:
    where = packing([], 4, width=2, rows=1)
    assert unpack(where, pack(where, torch.zeros(0, 2), blank=3.0)).shape == (0, 2)
    assert pack(where, torch.zeros(0, 2), blank=3.0).tolist() == [[3.0] * 4]
