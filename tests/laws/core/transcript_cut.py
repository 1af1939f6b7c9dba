"""Laws of cuts: f(transcript, max_seq_len) keeps the beginning, reports the cut, and removes nothing else."""

from collections.abc import Callable

import attrs
import torch
from hypothesis import strategies as st
from torch import Tensor

from purestep.core.language.types import Transcript
from purestep.core.record import replace
from purestep.core.transcript.edit import Cut
from purestep.core.transcript.record import CALL_BLANKS, MAX_SEQ_LEN, TOKEN_BLANKS
from purestep.properties.framework.compare import EXACT, ROUNDING, require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always
from purestep.properties.strategies.transcripts import TranscriptProgram, own_transcripts, programs, states

# --- mutants ---
# Common errors in cuts of transcripts.


CutTo = Callable[[Transcript, int], Cut]


def _after(change: Callable[[Transcript, Cut, int], Transcript]) -> Callable[[CutTo], CutTo]:
    """An edit of the transcript that is returned."""

    def make(subject: CutTo) -> CutTo:
        def edited(transcript: Transcript, max_seq_len: int) -> Cut:
            right = subject(transcript, max_seq_len)
            return replace(right, transcript=change(transcript, right, max_seq_len))

        return edited

    return make


def _keeps_the_end(old: Transcript, right: Cut, most: int) -> Transcript:
    place = torch.arange(min(most, old.token.shape[-1]))
    first = (right.original - right.retained)[..., None]
    ends = {name: getattr(old, name).gather(-1, (place + first).expand(*first.shape[:-1], -1)) for name in TOKEN_BLANKS}
    return replace(right.transcript, **ends)


def _last_reason(old: Transcript, right: Cut, most: int) -> Transcript:
    return replace(right.transcript, reason=torch.where(old.length > most, MAX_SEQ_LEN, right.transcript.reason))


def _for_good_measure(old: Transcript, right: Cut, most: int) -> Transcript:
    cut = old.length >= most
    reason = torch.where(cut & ~old.truncated, MAX_SEQ_LEN, right.transcript.reason)
    return replace(right.transcript, truncated=right.transcript.truncated | cut, reason=reason)


def _blames_length(old: Transcript, right: Cut, most: int) -> Transcript:
    return replace(right.transcript, terminated=right.transcript.terminated & (old.length <= most))


def _unseen(old: Transcript, right: Cut, most: int) -> Transcript:
    return replace(right.transcript, truncated=old.truncated.clone(), reason=old.reason.clone())


def _loses_rewards(old: Transcript, right: Cut, most: int) -> Transcript:
    last = right.transcript.call.amax(-1, keepdim=True)
    kept = torch.arange(old.reward.shape[-1]) <= last
    return replace(right.transcript, reward=torch.where(kept, old.reward, 0.0))


keeps_the_end = _after(_keeps_the_end)
last_reason = _after(_last_reason)
for_good_measure = _after(_for_good_measure)
blames_length = _after(_blames_length)
unseen = _after(_unseen)
loses_rewards = _after(_loses_rewards)


def share_of_room(subject: CutTo) -> CutTo:
    """Report the share of the room that is used, not the share of the tokens that was kept."""

    def edited(transcript: Transcript, max_seq_len: int) -> Cut:
        right = subject(transcript, max_seq_len)
        share: Tensor = right.retained / max_seq_len
        return replace(right, share=share)

    return edited


MUTANTS: dict[str, Callable[[CutTo], CutTo]] = {"takes back that a cut episode terminated": blames_length}


# --- laws ---


TABLE = "ludic's table of truncations: MAX_SEQ_LEN only if no earlier reason, and the share retained is told"


@attrs.frozen
class Given:
    """The operations that write a transcript, and the maximum length for a learner."""

    program: TranscriptProgram
    most: int


def transcript_cut_laws() -> Suite:
    """The laws of cutting transcripts to a length."""
    return Suite("transcript_cut_laws", (_beginning(), _calls(), _reason(), _fits(), _told(), _twice()))


def _law(
    name: str,
    claim: str,
    mutant: tuple[str, Callable[[CutTo], CutTo]],
    check: Callable[[CutTo, Transcript, int, Seen], None],
    *needs: str,
) -> Law:
    inputs = always(st.builds(Given, program=programs(), most=st.integers(1, 12)))

    def judge(subject: CutTo, given: Given, seen: Seen) -> None:
        check(subject, states(own_transcripts(), given.program)[-1], given.most, seen)

    return Law(
        name=name, claim=claim, source=TABLE, inputs=inputs, check=judge, mutant=Mutant(*mutant), needs=needs, most=200
    )


def _beginning() -> Law:
    def check(subject: CutTo, old: Transcript, most: int, seen: Seen) -> None:
        new = subject(old, most).transcript
        seen("a transcript that is too long", (old.length > most).any())
        seen("one that ends within the cut", (old.length < min(most, old.token.shape[-1])).any())
        for name in TOKEN_BLANKS:
            same(f"the first entries of {name}", getattr(new, name), getattr(old, name)[:, :most], EXACT)
        same("length", new.length, old.length.clamp_max(most), EXACT)
        same("inherited", new.inherited, old.inherited.clamp_max(most), EXACT)

    mutant = ("keeps the end, where the answer is", keeps_the_end)
    needs = ("a transcript that is too long", "one that ends within the cut")
    return _law("beginning", "The first tokens stay, every column as it was.", mutant, check, *needs)


def _calls() -> Law:
    def check(subject: CutTo, old: Transcript, most: int, seen: Seen) -> None:
        new = subject(old, most).transcript
        lost = (old.call.amax(-1) > new.call.amax(-1)) & old.reward.any(-1)
        seen("a call that lost all its tokens", lost.any())
        for name in (*CALL_BLANKS, "calls", "turns", "overflow", "id", "group", "parent", "terminated"):
            same(name, getattr(new, name), getattr(old, name), EXACT)

    mutant = ("takes the rewards of calls it took", loses_rewards)
    claim = "What is said of calls and of the episode stays: rewards, counts, ids, and that it terminated."
    return _law("calls_stay", claim, mutant, check, "a call that lost all its tokens")


def _reason() -> Law:
    def check(subject: CutTo, old: Transcript, most: int, seen: Seen) -> None:
        new, cut = subject(old, most).transcript, old.length > most
        seen("a cut of what was truncated", (cut & old.truncated).any())
        seen("a cut of what was not", (cut & ~old.truncated).any())
        same("truncated", new.truncated, old.truncated | cut, EXACT)
        first = torch.where(cut & ~old.truncated, MAX_SEQ_LEN, old.reason)
        same("reason", new.reason, first, EXACT)

    mutant = ("overwrites an earlier reason", last_reason)
    claim = "What is cut is truncated, for MAX_SEQ_LEN only if no earlier reason stands."
    return _law("first_reason", claim, mutant, check, "a cut of what was truncated", "a cut of what was not")


def _fits() -> Law:
    def check(subject: CutTo, old: Transcript, most: int, seen: Seen) -> None:
        longest = max(1, int(old.length.max()))
        seen("tokens", old.length.any())
        for room in (longest, old.token.shape[-1], old.token.shape[-1] + most):
            new = subject(old, room)
            columns = {name: getattr(old, name)[:, :room] for name in TOKEN_BLANKS}
            same(f"a cut to {room} of {longest} tokens", new.transcript, replace(old, **columns), EXACT)
            require(new.share == 1.0, f"a cut to {room} of {longest} tokens says that some are missing")

    mutant = ("calls truncated what just fits", for_good_measure)
    return _law("fits", "What fits stays as it is, also where it just fits.", mutant, check, "tokens")


def _told() -> Law:
    def check(subject: CutTo, old: Transcript, most: int, seen: Seen) -> None:
        found = subject(old, most)
        seen("a part retained", (old.length > most).any())
        seen("no tokens at all", (old.length == 0).any())
        lengths = old.length.tolist()
        wanted = torch.tensor([min(length, most) / length if length else 1.0 for length in lengths])
        same("share", found.share, wanted, ROUNDING)
        same("original", found.original, old.length, EXACT)
        same("retained", found.retained, found.transcript.length, EXACT)

    mutant = ("tells how full the room is", share_of_room)
    claim = "How many tokens there were, how many are left, and their share are told."
    return _law("told", claim, mutant, check, "a part retained", "no tokens at all")


def _twice() -> Law:
    def check(subject: CutTo, old: Transcript, most: int, seen: Seen) -> None:
        seen("a second cut that takes more", (old.length > most + 2).any())
        once = subject(old, most)
        again = subject(subject(old, most + 2).transcript, most)
        same("two cuts", again.transcript, once.transcript, EXACT)
        whole: Cut = subject(once.transcript, most)
        same("the same cut again", whole.transcript, once.transcript, EXACT)
        is_cut = old.length > most
        require(once.transcript.truncated[is_cut], "a transcript that lost its end does not say so")

    mutant = ("does not say that it cut", unseen)
    return _law(
        "twice",
        "Two cuts are the shorter one, and what lost its end says so.",
        mutant,
        check,
        "a second cut that takes more",
    )
