"""The rules of a bounded queue as a pure state machine: waiting callers, order of service, expiry of samples, closing.

`step(line, event) -> (line, answers)`. The line holds tickets, numbers that stand for samples stored elsewhere; callers are
numbers too. Each caller is answered at most once, and a caller that can be served does not wait.
"""

from attrs import evolve, frozen

from ...core.errors import ChoiceError, message

ACCEPTED, FULL, OLD, CLOSED = "accepted", "full", "old", "closed"  # outcomes of a Put


@frozen
class QueuedSample:
    """A sample: its ticket, and the version of the weights that made it, the oldest one if there are several.

    Tickets increase in the order in which samples are put in.
    """

    ticket: int
    version: int


@frozen(kw_only=True)
class QueueState:
    """The state: samples that can be taken, and waiting callers, both first in, first out."""

    capacity: int
    max_lag: int | tuple[()] = ()  # how many versions behind `version` a sample may be; () for no bound
    version: int = 0  # of the callers that take
    entries: tuple[QueuedSample, ...] = ()
    putting: tuple[tuple[int, QueuedSample], ...] = ()  # (caller, its sample)
    taking: tuple[tuple[int, int], ...] = ()  # (caller, number of samples it wants)
    closed: bool = False
    accepted: int = 0  # = taken + expired + length of `entries`
    taken: int = 0
    expired: int = 0  # accepted, and too old before they were taken
    refused: int = 0


@frozen
class Put:
    """Event: a caller offers a sample."""

    caller: int
    entry: QueuedSample


@frozen
class Take:
    """Event: a caller wants so many samples at once."""

    caller: int
    count: int


@frozen
class Withdraw:
    """Event: a caller's time is out, or it is gone; `back` are samples that were assigned to it and not delivered."""

    caller: int
    back: tuple[QueuedSample, ...] = ()


@frozen
class Advance:
    """Event: the callers that take are at this version now."""

    version: int


@frozen
class Close:
    """Event: no more samples are accepted; the rest can be taken, in smaller numbers if need be."""


@frozen
class PutAnswer:
    """Answer to a Put."""

    caller: int
    outcome: str


@frozen
class TakeAnswer:
    """Answer to a Take: as many samples as requested, or fewer when the queue has closed, or none when time was out."""

    caller: int
    tickets: tuple[int, ...]


@frozen
class Expired:
    """Answer: samples that were accepted and now are too old to be taken."""

    tickets: tuple[int, ...]


Event = Put | Take | Withdraw | Advance | Close
Answer = PutAnswer | TakeAnswer | Expired


def line(capacity: int, *, max_lag: int | tuple[()] = ()) -> QueueState:
    """Return an empty line. Raises: ChoiceError.

    >>> line(2).entries
    ()
    """
    if capacity < 1:
        raise ChoiceError(message("queue: capacity", got=capacity, wanted="at least 1", remedy="make some room"))
    if isinstance(max_lag, int) and max_lag < 0:
        remedy = "0 takes what the present version made, () whatever there is"
        raise ChoiceError(message("queue: max_lag", got=max_lag, wanted="at least 0", remedy=remedy))
    return QueueState(capacity=capacity, max_lag=max_lag)


def step(state: QueueState, event: Event) -> tuple[QueueState, tuple[Answer, ...]]:
    """Return the next state and the answers, in the order in which they are due.

    A full queue makes a Put wait; a sample that is too old when its turn comes is refused. Takes are served in order, each
    completely. Samples that come back get their old place, even if the queue is full; those that are too old by now expire.
    Raises: ChoiceError for a Take of less than one, or of more than the capacity: it could never be served.

    >>> state, _ = step(line(2), Take(1, 2))
    >>> state, answers = step(state, Put(2, QueuedSample(7, 0)))
    >>> answers
    (PutAnswer(caller=2, outcome='accepted'),)
    >>> step(state, Put(3, QueuedSample(8, 0)))[1]
    (PutAnswer(caller=3, outcome='accepted'), TakeAnswer(caller=1, tickets=(7, 8)))
    """
    answers: tuple[Answer, ...] = ()
    if isinstance(event, Put):
        state = evolve(state, putting=(*state.putting, (event.caller, event.entry)))
    elif isinstance(event, Take):
        _refuse_count(state, event.count)
        state = evolve(state, taking=(*state.taking, (event.caller, event.count)))
    elif isinstance(event, Withdraw):
        state, answers = _left(state, event.caller)
        state, gone = _back(state, event.back)
        answers = (*answers, *gone)
    elif isinstance(event, Advance):
        state, answers = _expired(evolve(state, version=max(state.version, event.version)))
    else:
        state = evolve(state, closed=True)
    state, more = _settled(state)
    return state, (*answers, *more)


def _refuse_count(state: QueueState, count: int) -> None:
    if not 1 <= count <= state.capacity:
        wanted, remedy = f"1 to the capacity {state.capacity}", "more would never be there at once"
        raise ChoiceError(message("queue: count to take", got=count, wanted=wanted, remedy=remedy))


def _left(state: QueueState, caller: int) -> tuple[QueueState, tuple[Answer, ...]]:
    answers: tuple[Answer, ...] = ()
    if any(who == caller for who, _ in state.putting):
        answers = (PutAnswer(caller, FULL),)
        putting = tuple(one for one in state.putting if one[0] != caller)
        state = evolve(state, putting=putting, refused=state.refused + 1)
    if any(who == caller for who, _ in state.taking):
        answers = (*answers, TakeAnswer(caller, ()))
        state = evolve(state, taking=tuple(one for one in state.taking if one[0] != caller))
    return state, answers


def _back(state: QueueState, back: tuple[QueuedSample, ...]) -> tuple[QueueState, tuple[Answer, ...]]:
    entries = tuple(sorted((*state.entries, *back), key=lambda entry: entry.ticket))
    return _expired(evolve(state, entries=entries, taken=state.taken - len(back))) if back else (state, ())


def too_old(state: QueueState, entry: QueuedSample) -> bool:
    """Return whether a sample is more than `max_lag` versions behind the callers that take.

    >>> too_old(QueueState(capacity=1, max_lag=1, version=2), QueuedSample(0, 0))
    True
    """
    return isinstance(state.max_lag, int) and state.version - entry.version > state.max_lag


def _expired(state: QueueState) -> tuple[QueueState, tuple[Answer, ...]]:
    gone = tuple(entry.ticket for entry in state.entries if too_old(state, entry))
    kept = tuple(entry for entry in state.entries if not too_old(state, entry))
    return evolve(state, entries=kept, expired=state.expired + len(gone)), (Expired(gone),) if gone else ()


def _settled(state: QueueState) -> tuple[QueueState, tuple[Answer, ...]]:
    """Serve waiting callers, until none can be served."""
    answers: list[Answer] = []
    while True:
        if state.taking and (state.closed or len(state.entries) >= state.taking[0][1]):
            (caller, count), *others = state.taking
            now = state.entries[:count]
            answers.append(TakeAnswer(caller, tuple(entry.ticket for entry in now)))
            taken = state.taken + len(now)
            state = evolve(state, taking=tuple(others), entries=state.entries[count:], taken=taken)
        elif state.putting and (outcome := _outcome(state, state.putting[0][1])):
            (caller, entry), *rest = state.putting
            answers.append(PutAnswer(caller, outcome))
            state = evolve(state, putting=tuple(rest))
            if outcome == ACCEPTED:
                state = evolve(state, entries=(*state.entries, entry), accepted=state.accepted + 1)
            else:
                state = evolve(state, refused=state.refused + 1)
        else:
            return state, tuple(answers)


def _outcome(state: QueueState, entry: QueuedSample) -> str:
    """Return the outcome for a sample whose turn it is; "" while it has to wait."""
    if state.closed:
        return CLOSED
    if too_old(state, entry):
        return OLD
    return ACCEPTED if len(state.entries) < state.capacity else ""
