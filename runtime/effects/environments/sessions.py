"""Environments of other libraries, whose sessions keep their state, as a pure text environment.

The state of an episode is (seed, the model's actions so far). A session that has come just so far makes the next step; where
there is none, one begins with the seed and repeats the actions. So an episode can be stepped again, from any state, in any
process; the environment has to depend on nothing but its seed and the actions.
"""

import atexit
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from attrs import evolve, field, frozen

from ....core.keys import Key
from ....core.language.requests import words_of
from ....core.language.text_env import Outcome, TextEnv, user_message
from ..clock import LOOK, check_stopping


class EnvironmentSession(Protocol):
    """One episode at a time of an environment of another library."""

    def begin(self, seed: int) -> Outcome:
        """Begin an episode, also in the middle of another one; return what the model is shown first."""
        ...

    def step(self, action: Any) -> Outcome:
        """Return the outcome of the model's action."""
        ...

    def close(self) -> None:
        """End the session."""
        ...


@frozen
class SessionState:
    """The state of an episode."""

    seed: int
    actions: tuple[Any, ...] = ()
    shown: tuple[str, ...] = field(default=(), repr=False)  # so far, to notice an environment that draws otherwise


class Sessions:
    """At most `most` open sessions, each with the state it is in; the one that waited longest begins other episodes."""

    def __init__(self, open_session: Callable[[], EnvironmentSession], most: int) -> None:
        self._open, self._most = open_session, most
        self._idle: list[tuple[SessionState | tuple[()], EnvironmentSession]] = []
        self._number = 0
        self._changed = threading.Condition()
        atexit.register(self.close)

    def begin(self, seed: int) -> tuple[SessionState, Outcome]:
        """Return the first state and the first observation of an episode."""
        session = self._taken(())
        try:
            return self._begun(session, seed)
        except BaseException:
            self._dropped(session)
            raise

    def step(self, state: SessionState, action: Any) -> tuple[SessionState, Outcome]:
        """Return the state after an action, and its outcome. Raises: errors of the environment; RuntimeError by `_repeated`."""
        session = self._taken(state)
        try:
            outcome = session.step(action)
        except BaseException:
            self._dropped(session)
            raise
        after = evolve(state, actions=(*state.actions, action), shown=(*state.shown, outcome.observation))
        self._returned(after, session, ended=outcome.terminated or outcome.truncated)
        return after, outcome

    def close(self) -> None:
        """Close the sessions that are idle."""
        with self._changed:
            idle, self._idle = self._idle, []
            self._number -= len(idle)
        for _, session in idle:
            with suppress(Exception):
                session.close()

    def _begun(self, session: EnvironmentSession, seed: int) -> tuple[SessionState, Outcome]:
        outcome = session.begin(seed)
        state = SessionState(seed, (), (outcome.observation,))
        self._returned(state, session)
        return state, outcome

    def _taken(self, state: SessionState | tuple[()]) -> EnvironmentSession:
        """Return a session in this state, or any one for (), waiting until one is idle."""
        with self._changed:
            while True:
                there = next((place for place, (at, _) in enumerate(self._idle) if at == state), -1)
                if state != () and there >= 0:
                    return self._idle.pop(there)[1]
                if self._number < self._most:
                    self._number += 1
                    session = None
                    break
                if self._idle:
                    session = self._idle.pop(0)[1]
                    break
                self._changed.wait(LOOK)
                check_stopping()
        try:
            session = session or self._open()
        except BaseException:
            self._dropped(None)
            raise
        if isinstance(state, SessionState):
            try:
                _repeated(session, state)
            except BaseException:
                self._dropped(session)
                raise
        return session

    def _returned(self, state: SessionState, session: EnvironmentSession, *, ended: bool = False) -> None:
        with self._changed:
            self._idle.insert(0 if ended else len(self._idle), (state, session))
            self._changed.notify()

    def _dropped(self, session: EnvironmentSession | None) -> None:
        if session is not None:
            with suppress(Exception):
                session.close()
        with self._changed:
            self._number -= 1
            self._changed.notify()


def _repeated(session: EnvironmentSession, state: SessionState) -> None:
    """Bring a session into a state. Raises: RuntimeError if it shows other observations than the first time."""
    shown = [session.begin(state.seed).observation, *(session.step(action).observation for action in state.actions)]
    if tuple(shown) != state.shown:
        raise RuntimeError(
            "the environment shows something else for the same seed and actions, so it cannot be repeated"
        )


def session_env(
    open_session: Callable[[], EnvironmentSession],
    *,
    most: int,
    seed_of: Callable[[Key], int] = lambda key: words_of(key)[0] >> 1,
    opening: Callable[[Any, Any, str], Any] = user_message,
) -> TextEnv[Sessions, SessionState]:
    """Return the text environment of sessions, at most `most` of them open at a time in this process.

    >>> class Counting:
    ...     def begin(self, seed): self.left = seed % 3; return Outcome(f"{self.left} left")
    ...     def step(self, action): self.left -= 1; return Outcome(f"{self.left} left", 1.0, terminated=self.left <= 0)
    ...     def close(self): pass
    >>> env = session_env(Counting, most=1, seed_of=lambda seed: seed)
    >>> (state, first), (_, other) = env.reset(env.params, 2), env.reset(env.params, 1)
    >>> first, other, env.step(env.params, state, "down", ())[1].observation
    ('2 left', '1 left', '1 left')
    """

    def reset(sessions: Sessions, key: Key) -> tuple[SessionState, str]:
        state, outcome = sessions.begin(seed_of(key))
        return state, outcome.observation

    def step(sessions: Sessions, state: SessionState, action: Any, key: Key) -> tuple[SessionState, Outcome]:
        return sessions.step(state, action)

    return TextEnv(Sessions(open_session, most), reset, step, opening=opening)
