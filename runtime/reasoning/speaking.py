"""How a run's models are called: prompts as a world of one call each, a batch of them for one worker."""

from collections.abc import Sequence

from attrs import evolve

from ...core.language.attempt import Heard, Said
from ...core.language.reasoning_rollouts import place
from ...core.language.requests import Request, words_of
from ...core.language.world import Outcome, TextEnv
from .cycles import Asked, Speak
from .parts import Calls, Parts, Voice, fits, sampled


def prompts_world(prompts: Sequence[str]) -> TextEnv[tuple[str, ...], tuple[()]]:
    """The world of calls with these prompts: each is one episode, which pays nothing.

    >>> from ...core import keys
    >>> world = prompts_world(["2 + 3?"])
    >>> world.reset(world.params, keys.key(0))
    ((), '2 + 3?')
    """
    return TextEnv(
        tuple(prompts),
        lambda params, key: ((), params[place(words_of(key)) % len(params)]),
        lambda params, state, action, key: (state, Outcome(terminated=True)),
    )


def speaking(parts: Parts, voice: Voice) -> Speak:
    """What calls the workers' models, each its own, with the voice's parameters."""

    def speak(worker: int, asked: Sequence[Asked]) -> Sequence[Said | tuple[()]]:
        places = [place for place, one in enumerate(asked) if fits(parts, one.prompt)]
        if not places:
            return [()] * len(asked)
        room = [asked[place] for place in places]
        calls = Calls(prompts_world([one.prompt for one in room]), tuple(one.limit for one in room))
        placed = [call_of(one.request, number) for number, one in enumerate(room)]
        ended = sampled(parts, evolve(voice, worker=worker), calls, placed)
        found = {place: _said(one.pieces) for place, one in zip(places, ended, strict=True)}
        return [found.get(place, ()) for place in range(len(asked))]

    return speak


def call_of(request: Request, number: int) -> Request:
    """The request for a call, as the one of that number among others; its key stays."""
    task = 2 * number + request.task[0] % 2, 0
    return Request(id=request.id, group=request.group, task=task, sampling=request.sampling)


def _said(pieces: Sequence[object]) -> Said | tuple[()]:
    return next((piece.said for piece in pieces if isinstance(piece, Heard)), ())
