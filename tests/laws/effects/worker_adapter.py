"""Laws of messages over calls that may be lost: each is taken once and in order, all arrive, and none is resent forever.

The subject is a `Posting`: the two ends of `runtime.effects.cluster.worker_rules`.
"""

from collections.abc import Callable
from typing import Any

from attrs import Factory, evolve, frozen
from hypothesis import strategies as st

from purestep.properties.framework.compare import require
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always
from purestep.runtime.effects.cluster import worker_rules as own
from purestep.runtime.effects.cluster.worker_rules import Endpoint, Parcel

# --- mutants ---
# Common errors in the exchange of messages: each an edit of a right one.


def takes_all(posting: Any) -> Any:
    """Accept all messages of a parcel, also those that arrived before."""

    def opened(box: Endpoint, come: Parcel) -> Any:
        after, _ = posting.opened(box, come)
        return after, come.letters

    return evolve(posting, opened=opened)


def forgets_the_sent(posting: Any) -> Any:
    """Drop sent messages as if they had arrived: the next parcel has only newer ones."""

    def put(box: Endpoint, letter: Any) -> Any:
        return evolve(box, kept=(letter,), first=box.first + len(box.kept))

    return evolve(posting, put=put)


def keeps_all(posting: Any) -> Any:
    """Keep all messages and send them each time."""

    def opened(box: Endpoint, come: Parcel) -> Any:
        after, new = posting.opened(box, come)
        return evolve(box, wanted=after.wanted), new

    return evolve(posting, opened=opened)


def _lets_go_early(posting: Any) -> Any:
    """Drop one message too many."""

    def opened(box: Endpoint, come: Parcel) -> Any:
        return posting.opened(box, evolve(come, wanted=come.wanted + 1))

    return evolve(posting, opened=opened)


def _takes_the_last(posting: Any) -> Any:
    """Send the newest message first."""

    def parcel(box: Endpoint) -> Parcel:
        whole: Parcel = posting.parcel(box)
        return evolve(whole, letters=whole.letters[::-1])

    return evolve(posting, parcel=parcel)


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "lets one letter go too many": _lets_go_early,
    "sends the newest letter first": _takes_the_last,
}


# --- laws ---


SOURCE = "runtime.effects.cluster.worker_rules: letters numbered at both ends"
Acts = tuple[tuple[str, int], ...]


@frozen
class Posting:
    """The subject: the operations of one end."""

    put: Callable[[Endpoint, Any], Endpoint]
    parcel: Callable[[Endpoint], Parcel]
    opened: Callable[[Endpoint, Parcel], tuple[Endpoint, tuple[Any, ...]]]


def own_posting() -> Posting:
    """Return the library's own functions."""
    return Posting(own.put_letter, own.parcel, own.open_parcel)


@frozen
class Post:
    """Both ends, the messages that each has put and taken, and the parcels sent to each."""

    posting: Posting
    boxes: list[Endpoint] = Factory(lambda: [Endpoint(), Endpoint()])
    written: list[list[str]] = Factory(lambda: [[], []])  # by each end
    taken: list[list[str]] = Factory(lambda: [[], []])  # by each end
    sent: list[list[Parcel]] = Factory(lambda: [[], []])  # by each end
    come: list[set[int]] = Factory(lambda: [set(), set()])  # which of those has come, by who sent it

    def write(self, end: int) -> None:
        """Put one more message."""
        letter = f"{'ab'[end]}{len(self.written[end])}"
        self.written[end].append(letter)
        self.boxes[end] = self.posting.put(self.boxes[end], letter)

    def send(self, end: int) -> None:
        """Send a parcel."""
        self.sent[end].append(self.posting.parcel(self.boxes[end]))

    def deliver(self, end: int, which: int) -> None:
        """Deliver a parcel, which may be an old one, or one that has arrived before."""
        self.come[end].add(which)
        other = 1 - end
        self.boxes[other], new = self.posting.opened(self.boxes[other], self.sent[end][which])
        self.taken[other] += new

    def clean(self) -> None:
        """Run a call without faults: a parcel, one back, and one more that confirms it."""
        for end in (0, 1, 0):
            self.send(end)
            self.deliver(end, len(self.sent[end]) - 1)


def played(posting: Posting, story: Acts, seen: Seen) -> Post:
    """Return both ends after a story."""
    post = Post(posting)
    for verb, which in story:
        end = which % 2
        if verb == "write":
            post.write(end)
        elif verb == "send":
            post.send(end)
        elif verb == "clean":
            post.clean()
        elif post.sent[end]:
            at = which // 2 % len(post.sent[end]) if verb == "old" else len(post.sent[end]) - 1
            seen("a parcel comes twice", at in post.come[end] and post.sent[end][at].letters)
            seen("a parcel comes after a later one", any(later > at for later in post.come[end]))
            post.deliver(end, at)
    for end in (0, 1):
        lost = {*range(len(post.sent[end]))} - post.come[end]
        seen("a parcel is lost", any(post.sent[end][at].letters for at in lost))
    return post


def hands_laws() -> Suite:
    """The laws of messages over calls that may be lost."""
    return Suite("hands_laws", (_once(), _all(), _bounded()))


def _law(name: str, claim: str, mutant: Mutant, check: Callable[[Post, Seen], None], *needs: str) -> Law:
    def on_post(posting: Posting, story: Acts, seen: Seen) -> None:
        check(played(posting, story, seen), seen)

    verbs = st.sampled_from(("write", "write", "send", "send", "new", "old", "old", "clean"))
    stories = st.lists(st.tuples(verbs, st.integers(0, 9)), min_size=12, max_size=40).map(tuple)
    inputs = always(stories)
    return Law(
        name=name, claim=claim, source=SOURCE, inputs=inputs, check=on_post, mutant=mutant, needs=needs, most=500
    )


def _once() -> Law:
    def check(post: Post, seen: Seen) -> None:
        for end in (0, 1):
            written, taken = post.written[1 - end], post.taken[end]
            require(taken == written[: len(taken)], f"of {written} were taken {taken}")

    claim = "What an end has taken is what the other one has put first: in order, each letter once."
    mutant = Mutant("takes all that comes", takes_all)
    needs = ("a parcel comes twice", "a parcel comes after a later one")
    return _law("letters_are_taken_once", claim, mutant, check, *needs)


def _all() -> Law:
    def check(post: Post, seen: Seen) -> None:
        post.clean()
        for end in (0, 1):
            written, taken = post.written[1 - end], post.taken[end]
            require(
                len(taken) >= len(written), f"of {written} were taken {taken} after a call that nothing happened to"
            )

    claim = "After one call that nothing happens to both ends have all letters, whatever was lost before."
    mutant = Mutant("forgets what it has sent", forgets_the_sent)
    return _law("letters_come_in_the_end", claim, mutant, check, "a parcel is lost")


def _bounded() -> Law:
    def check(post: Post, seen: Seen) -> None:
        post.clean()
        post.clean()
        seen("many letters", min(map(len, post.written)) > 1)
        for box in post.boxes:
            again = post.posting.parcel(box).letters
            require(not again, f"{again} go once more, although the other end has said that it has them")

    claim = "A letter that the other end has said it has does not go again, and is not kept."
    mutant = Mutant("keeps all letters", keeps_all)
    return _law("letters_are_let_go", claim, mutant, check, "many letters")
