"""Laws of segment-wise PPO's executor: what is counted, begun, recomputed, left out and handed out, whatever the schedule.

The subject is a `SegmentWise`; it is played in a world on paper, see `segment_wise_world`.
"""

from collections.abc import Callable

from purestep.core.transcript import ABSENT
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always
from purestep.runtime.effects.segment_wise.samples import MARK

from . import segment_wise_mutants as mutants
from .segment_wise_mirror import Mirror
from .segment_wise_samples import score, tokens
from .segment_wise_world import Script, SegmentWise, balanced, fair, play, scripts, world

SOURCE = "AReaL's segment-wise decoupled PPO; arXiv:2505.24298, sections 4 and 5; worlds, E"
Check = Callable[[SegmentWise, Script, Seen], None]


def segment_wise_laws() -> Suite:
    """The laws of the executor and its parts at work."""
    counted = (_counted(), _begun(), _as_the_scheduler(), _progress())
    return Suite("segment_wise_laws", (*counted, _proximal(), _age(), _order()))


def _law(name: str, claim: str, mutant: tuple[str, mutants.Edit], check: Check, *needs: str) -> Law:
    return Law(
        name=name,
        claim=claim,
        source=SOURCE,
        inputs=always(scripts()),
        check=check,
        mutant=Mutant(*mutant),
        needs=needs,
        most=400,
    )


def _counted() -> Law:
    def check(subject: SegmentWise, script: Script, seen: Seen) -> None:
        here, rejected = world(subject, script), 0
        for verb in play(here):
            now = balanced(here)
            seen("a sample that was not wanted", verb == "reject")
            seen("a sample too old when it came", verb == "finish" and now.rejected > rejected)
            seen("a sample that became too old", now.filtered)
            seen("a sample in the cache", now.cached)
            rejected = now.rejected

    claim = "submitted = running + accepted + rejected, accepted = consumed + filtered + queued + cached; each drop told once."
    mutant = ("drops from the queue without telling", mutants.untold)
    needs = ("a sample that was not wanted", "a sample that became too old", "a sample in the cache")
    return _law("every_sample_is_in_one_place", claim, mutant, check, *needs, "a sample too old when it came")


def _begun() -> Law:
    def check(subject: SegmentWise, script: Script, seen: Seen) -> None:
        here = world(subject, script)
        for _ in play(here):
            now = here.executor.account()
            held, ahead = now.accepted - now.filtered + now.running, script.staleness + here.engine.version + 1
            more = here.submitted > len(here.begun)
            seen("as many as allowed", more and now.running == script.concurrency)
            seen("a full budget", more and held == ahead * script.batch)
            seen("a queue that will be full", more and now.running + now.queued == script.room)
            seen("a filtered sample", now.filtered)
            require(now.running <= script.concurrency, f"{now.running} under way")
            require(held <= ahead * script.batch, f"{held} let in at version {here.engine.version}")
            require(now.running + now.queued <= script.room, "more under way than the queue has room for")
            room = min(
                script.concurrency - now.running, ahead * script.batch - held, script.room - now.running - now.queued
            )
            require(not more or room < 1, f"{room} more could be begun")

    claim = (
        "As many rollouts are under way as concurrency, staleness and the queue's room allow: no more, and no fewer."
    )
    mutant = ("adds what is paid back after the minimum is taken", mutants.unclamped)
    needs = ("as many as allowed", "a full budget", "a queue that will be full", "a filtered sample")
    return _law("as_many_as_allowed", claim, mutant, check, *needs)


def _as_the_scheduler() -> Law:
    def check(subject: SegmentWise, script: Script, seen: Seen) -> None:
        mirror = Mirror(subject, script)
        for verb in mirror.moves():
            seen("a batch", verb == "batch")
            seen("a filtered sample", mirror.here.executor.account().filtered)
            seen("a rejected sample", mirror.here.executor.account().rejected)
            seen("a later version to begin with", script.version)
            same("rollouts begun", mirror.here.begun, mirror.dispatched)
            state, now = mirror.state, mirror.here.executor.account()
            numbers = (state.running, state.accepted, state.rejected, state.consumed, state.filtered)
            same("numbers", (now.running, now.accepted, now.rejected, now.consumed, now.filtered), numbers)

    claim = (
        "What is begun is what the pure scheduler begins: base + filtered, clamped, repays in the staleness term alone."
    )
    mutant = ("counts what it left out for ever", mutants.pays_nothing)
    needs = ("a batch", "a filtered sample", "a rejected sample", "a later version to begin with")
    return _law("begins_as_the_scheduler_does", claim, mutant, check, *needs)


def _progress() -> Law:
    def check(subject: SegmentWise, script: Script, seen: Seen) -> None:
        here = world(subject, script)
        for _ in play(here, learns=True):
            pass
        for _ in range(12):
            require(fair(here), f"no batch comes: {here.executor.account()} at version {here.engine.version}")
            here.update()
        lost = here.executor.account().filtered
        seen("more filtered than may be ahead", lost > script.staleness * script.batch)

    claim = "Whatever happened before, when rollouts end and more are submitted a batch comes, for ever."
    mutant = ("takes the repayment back when a batch is taken", mutants.consumes_repayment)
    return _law("a_batch_comes", claim, mutant, check, "more filtered than may be ahead")


def _proximal() -> Law:
    def check(subject: SegmentWise, script: Script, seen: Seen) -> None:
        here = world(subject, script)
        for _ in play(here):
            pass
        fair(here)
        for version, batch in here.batches:
            for sample in batch:
                made = [token for _, token, _ in tokens(sample)]
                seen("tokens of several versions", len(set(made)) > 1)
                seen("a token of version 0 that was recomputed", 0 in made and version > 0)
                for place, token, proximal in tokens(sample):
                    wanted = score(place, min(token + 1, version))
                    same(f"proximal log-prob of a token of version {token}, at {version}", proximal, wanted)
        same("warnings", here.log.warnings, [])

    claim = "A token's proximal log-prob is the one under the version after its own, or under its own while that is the newest."
    mutant = ("misses what comes in while it recomputes", mutants.misses_newcomers)
    needs = ("tokens of several versions", "a token of version 0 that was recomputed")
    return _law("proximal_is_one_version_later", claim, mutant, check, *needs)


def _age() -> Law:
    def check(subject: SegmentWise, script: Script, seen: Seen) -> None:
        here = world(subject, script)
        for _ in play(here):
            pass
        for version, batch in here.batches:
            for sample in batch:
                made = [token for _, token, _ in tokens(sample)]
                if int(sample.get(MARK, ABSENT)) >= 0:
                    seen("a sample older than the version before", version - min(made) > 1)
                    require(version - min(made) <= max(1, script.bound), f"tokens of {made} at {version}")
                else:
                    require(version - max(made) <= 1, f"tokens of {made} at {version}, never recomputed")
        seen("a sample that became too old", here.executor.account().filtered)

    claim = (
        "Nothing too old is handed out: by its newest token, or by its oldest where proximal log-probs were recomputed."
    )
    mutant = ("looks at the age when a sample comes in alone", mutants.age_when_put)
    return _law(
        "nothing_too_old_is_taken",
        claim,
        mutant,
        check,
        "a sample that became too old",
        "a sample older than the version before",
    )


def _order() -> Law:
    def check(subject: SegmentWise, script: Script, seen: Seen) -> None:
        here = world(subject, script)
        for _ in play(here):
            pass
        here.take()
        taken = set(here.taken)
        seen("several samples taken", len(taken) > 2)
        seen("a sample that became too old", here.executor.account().filtered)
        same("the order", here.taken, [number for number in here.accepted if number in taken])

    claim = "Samples are handed out in the order in which they were accepted, each once, also around those left out."
    mutant = ("puts back the newest first", mutants.reverses)
    return _law("first_in_first_out", claim, mutant, check, "several samples taken", "a sample that became too old")
