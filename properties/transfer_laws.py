"""Laws of weights that are pulled over links that break (W1 to W6): never torn, never older, and nothing is sent twice in vain.

The subject is a `Pulling`, the rules of `runtime.effects.transfer`: the reader's step, and what a publisher keeps and answers.
"""

from collections.abc import Callable

from hypothesis.strategies import SearchStrategy

from ..runtime.effects.transfer import rules, words
from ..runtime.effects.transfer.words import NONE, Ask, Begin, Came, Cut, Fetch, Gone, Inquire, Into, Judged, Linked
from . import transfer_mutants as mutants
from .compare import require
from .law import Law, Mutant, Seen, Suite, always
from .transfer_model import KEEP, QUIET, WINDOW, Acts, Pulling, World, cells_of, fetched, played, schedules

SOURCE = "runtime.effects.transfer.rules: a pull of chunks as a pure machine"
ANY = schedules()
Check = Callable[[World, Seen], None]


def own_pulling() -> Pulling:
    """Our own."""
    return Pulling(rules.step, words.shelved, words.answered)


def transfer_laws() -> Suite:
    """The laws of a pull."""
    safe = (_whole(), _label(), _up(), _back(), _register(), _newer(), _kept())
    live = (_missing(), _once(), _ahead(), _damaged(), _arrives(), _gone())
    return Suite("transfer_laws", safe + live)


def _law(
    name: str,
    claim: str,
    mutant: Mutant,
    check: Check,
    *needs: str,
    acts: SearchStrategy[Acts] = ANY,
    patience: bool = True,
) -> Law:
    def on_world(subject: Pulling, drawn: Acts, seen: Seen) -> None:
        check(played(subject, drawn, patience=patience), seen)

    return Law(
        name=name,
        claim=claim,
        source=SOURCE,
        inputs=always(acts),
        check=on_world,
        mutant=mutant,
        needs=needs,
        most=500,
    )


def _whole() -> Law:
    def check(world: World, seen: Seen) -> None:
        seen("a damaged chunk", any(moment.event == Came(False) for moment in world.moments))
        seen("a publication in the middle of a pull", any(_switched(moment) for moment in world.moments))
        wrong = any(moment.event == Judged(False) for moment in world.moments)
        require(not wrong, "good chunks were put together wrongly")
        for each in fetched(world):
            wanted = cells_of(each.publication)
            require(each.cells == wanted, f"{each.publication} was given with the bytes {each.cells}")

    claim = (
        "A fetch gives all the bytes of one publication: lost, doubled, damaged, late or of another, no chunk tears it."
    )
    mutant = Mutant("believes in the checksums of TCP", mutants.trusts_the_link)
    return _law("pulls_are_whole", claim, mutant, check, "a damaged chunk", "a publication in the middle of a pull")


def _switched(moment: object) -> bool:
    before, actions = moment.before, moment.actions  # type: ignore[attr-defined]
    return bool(before.have) and any(isinstance(action, Begin) for action in actions)


def _label() -> Law:
    def check(world: World, seen: Seen) -> None:
        versions = {new.digest: new.version for _, new in world.published}
        for each in fetched(world):
            seen("a version above 0", each.publication.version > 0)
            said, wrote = each.publication.version, versions.get(each.cells[0][0] if each.cells[0] else "", -1)
            require(said == wrote, f"the bytes of version {wrote} came as version {said}")

    claim = "The version that comes with the bytes is the one they were published under."
    mutant = Mutant("counts the publications it has got", mutants.counts_itself)
    return _law("version_is_that_of_what_was_pulled", claim, mutant, check, "a version above 0")


def _up() -> Law:
    def check(world: World, seen: Seen) -> None:
        versions = [each.publication.version for each in fetched(world)]
        seen("several fetches", len(versions) > 1)
        require(versions == sorted(versions), f"versions {versions} were given, one after the other")

    claim = "No reader sees versions fall, also where a publisher takes over that has lost some."
    mutant = Mutant("forgets over a new link what it has given", mutants.forgets_the_last)
    return _law(
        "versions_never_fall", claim, mutant, check, "several fetches", acts=schedules((*QUIET, "cut", "go back"))
    )


def _back() -> Law:
    def check(world: World, seen: Seen) -> None:
        last, newest = world.reader.last, world.kept[-1].version
        seen("a publisher that went back", newest < last)
        if newest < last:
            require(newest in world.refused, f"version {newest} behind {last} was met with silence")

    claim = (
        "A publisher whose newest version is below one that was given is refused, and not taken for one without news."
    )
    mutant = Mutant("waits until it has caught up", mutants.waits_for_the_last)
    acts = schedules(("publish", "serve", "hear", "hear", "hear", "fetch", "go back"))
    return _law("going_back_is_refused", claim, mutant, check, "a publisher that went back", acts=acts)


def _register() -> Law:
    def check(world: World, seen: Seen) -> None:
        for each in world.given:
            before = max((new.version for moment, new in world.published if moment < each.began), default=-1)
            begun = max((new.version for moment, new in world.published if moment <= each.ended), default=-1)
            got = each.publication.version if each.publication != NONE else each.newer_than
            seen("a publication beside a fetch", begun > before)
            require(before <= got, f"a fetch gave version {got}, after {before} had been published")
            require(got <= begun or each.publication == NONE, f"a fetch gave {got}, and {begun} is the newest")

    claim = "A fetch gives no less than what was published before it began."
    mutant = Mutant("first finishes what an earlier fetch had begun", mutants.finishes_first)
    acts = schedules((*QUIET, "hear", "late", "leave", "leave", "cut"))
    return _law("pulls_are_linearizable", claim, mutant, check, "a publication beside a fetch", acts=acts)


def _newer() -> Law:
    def check(world: World, seen: Seen) -> None:
        for each in world.given:
            seen("nothing newer than version 0", each.publication == NONE and each.newer_than == 0)
            version = each.publication.version
            require(
                each.publication == NONE or version > each.newer_than, f"{version} came, {each.newer_than} was there"
            )

    claim = "A fetch gives what is newer than the version named, and () otherwise; version 0 is newer than none."
    mutant = Mutant("takes version 0 for none", mutants.zero_is_none)
    acts = schedules(("serve", "hear", "hear", "hear", "fetch", "cut"))
    return _law("pulls_are_newer", claim, mutant, check, "nothing newer than version 0", acts=acts)


def _kept() -> Law:
    def check(world: World, seen: Seen) -> None:
        versions = [new.version for _, new in world.published]
        seen("an old publication that was dropped", len(versions) > KEEP)
        require(versions == sorted(set(versions)), f"versions {versions} were published")
        kept = [each.version for each in world.kept]
        require(kept == versions[-KEEP:], f"{kept} are kept of {versions}")

    claim = "A publisher keeps its newest publications, and versions go up."
    mutant = Mutant("keeps the first ones", mutants.keeps_the_first)
    acts = schedules(QUIET, least=20, most=40)
    return _law("the_newest_are_kept", claim, mutant, check, "an old publication that was dropped", acts=acts)


def _missing() -> Law:
    def check(world: World, seen: Seen) -> None:
        there: dict[str, set[int]] = {}  # by publication: the chunks that came, and were good
        for moment in world.moments:
            if moment.event == Came(True):
                there.setdefault(moment.before.goal.digest, set()).add(moment.before.coming)
            if any(isinstance(action, Begin) for action in moment.actions) or isinstance(moment.event, Judged):
                there.clear()
            for action in moment.actions:
                if isinstance(action, Ask):
                    have = there.get(action.digest, set())
                    seen("a pull that went on over a new link", have and isinstance(moment.event, words.Offered))
                    require(
                        have.isdisjoint(action.chunks), f"{action.chunks} were asked for, {sorted(have)} were there"
                    )

    claim = (
        "A pull that goes on, over a new link or from another publisher of the same, asks for what is missing alone."
    )
    mutant = Mutant("begins anew over a new link", mutants.begins_anew)
    acts = schedules(("serve", "serve", "hear", "hear", "fetch", "drop", "cut", "restart", "publish"))
    return _law("nothing_is_asked_for_again", claim, mutant, check, "a pull that went on over a new link", acts=acts)


def _once() -> Law:
    def check(world: World, seen: Seen) -> None:
        for moment in world.moments:
            if isinstance(moment.event, words.Coming):
                before, chunk, digest = moment.before, moment.event.chunk, moment.event.digest
                there = digest == before.goal.digest and bool(before.have >> chunk & 1)
                seen("a chunk that came again", there)
                seen("a chunk of another publication", digest != before.goal.digest and before.goal != NONE)
                into = [action.chunk for action in moment.actions if isinstance(action, Into)]
                wanted = [chunk] if digest == before.goal.digest and not there else []
                require(into == wanted, f"chunk {chunk} of {digest} was written to {into}, wanted {wanted}")

    claim = "Bytes are written to the place of a chunk that is wanted, and never again once it was good."
    mutant = Mutant("writes whatever chunk comes to its place", mutants.writes_all)
    needs = ("a chunk that came again", "a chunk of another publication")
    acts = schedules(("publish", "serve", "serve", "late", "late", "double", "fetch", "fetch", "leave"))
    return _law("places_are_written_once", claim, mutant, check, *needs, acts=acts)


def _ahead() -> Law:
    def check(world: World, seen: Seen) -> None:
        for moment in world.moments:
            asked = moment.after.asked
            seen("a full window", len(asked) == WINDOW)
            require(len(asked) <= WINDOW, f"{len(asked)} chunks are asked for ahead, wanted at most {WINDOW}")
            require(len(set(asked)) == len(asked), f"chunks {asked} were asked for, some of them twice")

    claim = "No more chunks are asked for ahead than the window holds, none of them twice."
    mutant = Mutant("asks for all that is missing", mutants.asks_for_all)
    return _law("the_window_holds", claim, mutant, check, "a full window")


def _damaged() -> Law:
    def check(world: World, seen: Seen) -> None:
        bad = 0
        for moment in world.moments:
            bad = 0 if isinstance(moment.event, Linked | Cut) else bad + (moment.event == Came(False))
            seen("a link with many damaged chunks", bad > rules.BAD)
            require(bad <= rules.BAD or not moment.after.linked, f"a link with {bad} damaged chunks is kept")
            bad = bad if moment.after.linked else 0

    claim = "A link over which chunks keep coming damaged is given up for a new one."
    mutant = Mutant("asks for them again for ever", mutants.never_gives_up)
    acts = schedules(("serve", "hear", "hear", "damage", "damage", "damage", "fetch"))
    return _law("bad_links_are_given_up", claim, mutant, check, "a link with many damaged chunks", acts=acts)


def _arrives() -> Law:
    def check(world: World, seen: Seen) -> None:
        seen("silence on the link", world.silences)
        require(not world.reader.wants, f"a fetch never ended; missing are {rules.missing(world.reader):b}")
        newest = world.kept[-1].version
        require(
            world.given and world.reader.last == newest, f"{world.reader.last} was fetched at last, {newest} is there"
        )

    claim = "Over a link that is good at last every fetch ends, whatever was lost before."
    mutant = Mutant("waits for what it asked for over the link before", mutants.waits_for_old_asks)
    acts = schedules(("publish", "serve", "hear", "fetch", "drop", "drop", "cut"))
    return _law("pulls_arrive", claim, mutant, check, "silence on the link", acts=acts)


def _gone() -> Law:
    def check(world: World, seen: Seen) -> None:
        for moment in world.moments:
            if isinstance(moment.event, Gone) and moment.event.digest == moment.before.goal.digest != "":
                seen("a publication that was dropped in the middle of a pull")
                asked = any(isinstance(action, Inquire) for action in moment.actions)
                require(asked or not moment.before.wants, "a reader waits for a publication that is gone")
        require(not world.reader.wants, "a fetch over a link that loses nothing never ended")
        fetches = [moment for moment in world.moments if isinstance(moment.event, Fetch)]
        require(len(world.given) == len(fetches), f"{len(fetches)} fetches, {len(world.given)} ends")

    claim = "Over a link that loses nothing no fetch waits for ever, also when what it pulls is dropped meanwhile."
    mutant = Mutant("waits for a publication that is gone", mutants.deaf_to_gone)
    need = "a publication that was dropped in the middle of a pull"
    acts = schedules(("publish", "publish", "serve", "serve", "hear", "hear", "hear", "fetch"))
    return _law("gone_is_not_waited_for", claim, mutant, check, need, acts=acts, patience=False)
