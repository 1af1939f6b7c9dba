"""Laws of what two machines say to each other: only who has the key is let in, and only what was sent is taken, in order.

The subject is a `Wire`: the greeting and the sealing of `runtime.effects.engine.processes_wire`, and what that greeting and the
one of weights are made of, `runtime.effects.greeting`.
"""

from collections.abc import Callable
from typing import Any

from attrs import frozen
from hypothesis import strategies as st

from ..runtime.effects import greeting
from ..runtime.effects.engine import processes_wire as own
from ..runtime.effects.engine.processes_wire import Way, Ways, WireError
from . import wire_mutants as mutants
from .compare import require
from .law import Law, Mutant, Seen, Suite, always

SOURCE = "runtime.effects.engine.processes_wire: greeting and sealing with HMAC-SHA256"
KEYS = (b"the key of this cluster", b"the key of another one")
SPOKEN = (b"purestep host\n", b"purestep weights\n", b"purestep\n")
EDITS = ("flip", "swap", "repeat", "leave out", "forge", "send back", "cut")


@frozen
class Wire:
    """The greeting, and the sealing of frames."""

    reply: Callable[[bytes, bytes, bytes], bytes]  # (key, what the host said, nonce)
    proof: Callable[[bytes, bytes, bytes], bytes]  # (key, nonce, what the caller replied)
    accepted: Callable[[bytes, bytes, bytes, bytes], Ways]  # (key, said, replied, proved)
    ways: Callable[[bytes, bytes, bytes], Ways]  # (key, said, replied)
    sealed: Callable[[Way, bytes], tuple[Way, bytes]]
    unsealed: Callable[[Way, bytes, bytes], Way]  # (way, header, body)
    replied: Callable[[bytes, bytes, bytes, bytes], bytes]  # (magic, key, said, nonce)
    proved: Callable[[bytes, bytes, bytes, bytes], bytes]  # (magic, key, nonce, what the caller replied)
    unproved: Callable[[bytes, bytes, bytes, bytes, bytes], None]  # (magic, key, said, replied, proved); raises


def own_wire() -> Wire:
    """Our own."""
    engine = own.reply, own.proof, own.accepted, own.ways, own.sealed, own.unsealed
    return Wire(*engine, greeting.reply, greeting.proof, greeting.refuse_unproved)


def wire_laws() -> Suite:
    """The laws of what two machines say to each other."""
    return Suite("wire_laws", (_whole(), _changed(), _keys(), _again(), _spoken()))


def _nonces() -> Any:
    return st.binary(min_size=own.NONCE, max_size=own.NONCE)


def _frames() -> Any:
    return st.lists(st.binary(max_size=40), min_size=1, max_size=6)


def _law(name: str, claim: str, inputs: Any, mutant: Mutant, check: Callable[..., None], *needs: str) -> Law:
    return Law(
        name=name, claim=claim, source=SOURCE, inputs=always(inputs), check=check, mutant=mutant, needs=needs, most=500
    )


def _sent(wire: Wire, way: Way, bodies: list[bytes]) -> list[tuple[bytes, bytes]]:
    """The frames as (header, body)."""
    frames = []
    for body in bodies:
        way, header = wire.sealed(way, body)
        frames.append((header, body))
    return frames


def _taken(wire: Wire, way: Way, frames: list[tuple[bytes, bytes]]) -> tuple[list[bytes], str]:
    """What is taken of the frames before one is refused, and why that is."""
    taken: list[bytes] = []
    for header, body in frames:
        try:
            way = wire.unsealed(way, header, body)
        except WireError as error:
            return taken, str(error)
        taken.append(body)
    return taken, ""


def _whole() -> Law:
    def check(wire: Wire, drawn: tuple[list[bytes], bytes], seen: Seen) -> None:
        bodies, key = drawn
        seen("several frames", len(bodies) > 1)
        seen("a frame without bytes", b"" in bodies)
        frames = _sent(wire, Way(key), bodies)
        require(all(own.length(header) == len(body) for header, body in frames), "a header tells another length")
        taken, why = _taken(wire, Way(key), frames)
        require(taken == bodies, f"of {bodies} came {taken}; {why}")

    claim = "Frames that nobody touches are all taken, in order."
    mutant = Mutant("counts at the sender alone", mutants.counts_at_one_end)
    needs = ("several frames", "a frame without bytes")
    return _law("frames_come_as_sent", claim, st.tuples(_frames(), _nonces()), mutant, check, *needs)


def _edited(wire: Wire, frames: list[tuple[bytes, bytes]], edit: str, at: int, bit: int) -> list[tuple[bytes, bytes]]:
    """The frames as they come when somebody has changed the one at `at`."""
    header, body = frames[at]
    before, after = frames[:at], frames[at + 1 :]
    if edit == "flip":
        raw = bytearray(header + body)
        raw[bit % len(raw)] ^= 1 << bit % 8
        return [*before, (bytes(raw[: own.HEADER.size]), bytes(raw[own.HEADER.size :])), *after]
    if edit == "swap":
        return [*before, *after[:1], (header, body), *after[1:]]
    if edit == "repeat":
        return [*frames[: at + 1], (header, body), *after]
    if edit == "leave out":
        return [*before, *after]
    if edit == "cut":
        return [*before, (header, body[:-1]), *after]
    other = Way(b"" if edit == "forge" else b"the other way")
    return [*before, _sent(wire, other, [one for _, one in frames])[at], *after]


def _changed() -> Law:
    def check(wire: Wire, drawn: tuple[list[bytes], int, int], seen: Seen) -> None:
        bodies, where, bit = drawn
        way, at = Way(b"one way"), where % len(bodies)
        for edit in EDITS:
            nothing = (edit in ("swap", "leave out") and at + 1 == len(bodies)) or (edit == "cut" and not bodies[at])
            seen(edit, not nothing)
            if nothing:
                continue
            taken, why = _taken(wire, way, _edited(wire, _sent(wire, way, bodies), edit, at, bit))
            right = bodies[: at + (edit == "repeat")]
            require(bool(why), f"{edit} of frame {at} was not noticed: {taken} were taken")
            require(taken == right, f"after {edit} of frame {at} came {taken}, wanted {right}")

    claim = "What is damaged, forged, repeated, left out, swapped or from the other direction is refused, and nothing after it."
    mutant = Mutant("seals the bytes and not their number", mutants.seals_without_count)
    inputs = st.tuples(_frames(), st.integers(0, 5), st.integers(0, 400))
    return _law("what_is_changed_is_refused", claim, inputs, mutant, check, *EDITS)


def _refused(call: Callable[..., Any], *arguments: Any) -> bool:
    try:
        call(*arguments)
    except WireError:
        return True
    return False


def _keys() -> Law:
    def check(wire: Wire, drawn: tuple[bytes, bytes, bytes, bytes], seen: Seen) -> None:
        mine, yours, host, caller = drawn
        said = own.greeting(host)
        replied = wire.reply(mine, said, caller)
        same = mine == yours
        seen("one key", same)
        seen("two keys", not same)
        require(_refused(wire.proof, yours, host, replied) != same, f"a host takes the caller's proof: {not same}")
        require(mine not in replied, "the key itself was sent")
        proved = wire.proof(yours, host, wire.reply(yours, said, caller))
        require(_refused(wire.accepted, mine, said, replied, proved) != same, "a caller takes another host's proof")
        if same:
            both = wire.accepted(mine, said, replied, proved)
            require(both == wire.ways(yours, said, replied), "the two sides have other keys for what follows")
            require(both.caller.key != both.host.key, "both directions have one key")

    claim = "Two sides with one key agree, on a key for each direction; with two keys each side refuses the other."
    mutant = Mutant("takes any proof of the right length", mutants.takes_any_proof)
    inputs = st.tuples(st.sampled_from(KEYS), st.sampled_from(KEYS), _nonces(), _nonces())
    return _law("only_who_has_the_key_is_let_in", claim, inputs, mutant, check, "one key", "two keys")


def _again() -> Law:
    def check(wire: Wire, drawn: tuple[bytes, bytes, bytes], seen: Seen) -> None:
        first, second, caller = drawn
        key, said = KEYS[0], own.greeting(first)
        replied = wire.reply(key, said, caller)
        seen("another greeting", first != second)
        if first != second:
            require(_refused(wire.proof, key, second, replied), "what was replied to one greeting answers another one")
            keys = [wire.ways(key, own.greeting(nonce), replied).caller.key for nonce in (first, second)]
            require(keys[0] != keys[1], "two connections seal with one key")
        back = replied[own.NONCE :]  # a host without the key gives the caller its own proof back
        require(_refused(wire.accepted, key, said, replied, back), "a caller takes its own proof for the host's")
        for stranger in (b"HTTP/1.1 400 Bad Request\r\n" + first[:22], said[:-1], b""):
            require(_refused(wire.reply, key, stranger, caller), f"{stranger!r} passes for a greeting")

    claim = "What was said once serves nobody again: not in another connection, and not sent back to whom it came from."
    mutant = Mutant("proves both sides in one way", mutants.proves_in_one_way)
    inputs = st.tuples(_nonces(), _nonces(), _nonces())
    return _law("nothing_is_said_twice", claim, inputs, mutant, check, "another greeting")


def _spoken() -> Law:
    def check(wire: Wire, drawn: tuple[bytes, bytes, bytes, bytes], seen: Seen) -> None:
        ours, theirs, host, caller = drawn
        key, alike = KEYS[0], ours == theirs
        seen("one language", alike)
        seen("two languages", not alike)
        said = ours + host
        replied = wire.replied(ours, key, said, caller)
        require(
            _refused(wire.replied, theirs, key, said, caller) != alike, f"a greeting in {ours!r} passes for {theirs!r}"
        )
        require(
            _refused(wire.proved, theirs, key, host, replied) != alike, "a caller's proof serves in another language"
        )
        proved = wire.proved(ours, key, host, replied)
        refused = _refused(wire.unproved, theirs, key, theirs + host, replied, proved)
        require(refused != alike, "a host's proof serves in another language")

    claim = (
        "What proves a key where one thing is spoken proves nothing where another one is, though the key be the same."
    )
    mutant = Mutant("leaves out of its proofs what is spoken", mutants.leaves_out_what_is_spoken)
    inputs = st.tuples(st.sampled_from(SPOKEN), st.sampled_from(SPOKEN), _nonces(), _nonces())
    return _law("a_proof_is_for_one_language", claim, inputs, mutant, check, "one language", "two languages")
