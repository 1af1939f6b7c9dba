"""Laws of the parts of segment-wise PPO: the modifier, the manager, the strategy, the recomputer, the switch, the loss.

The subject is a `SegmentWise`.
"""

import tempfile
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from tensordict import TensorDict

from purestep.algorithms import staleness
from purestep.algorithms.language.token_losses import token_clip
from purestep.properties.framework.compare import ROUNDING, require, same
from purestep.properties.framework.law import Inputs, Law, Seen, Suite, law_constructor
from purestep.properties.strategies.values import dyadic, flags
from purestep.runtime.effects import segment_wise
from purestep.runtime.effects.segment_wise.samples import MARK, PROXIMAL

from . import segment_wise as mutants
from .segment_wise_samples import score
from .segment_wise_world import Engine, Log, SegmentWise

SOURCE = "AReaL's segment-wise decoupled PPO: its interface; worlds, E"
ON, OFF = "enable_segment_wise_ppo: true\n", "enable_segment_wise_ppo: false\n"


def segment_wise_part_laws() -> Suite:
    """The laws of a `SegmentWise`'s parts."""
    return Suite("segment_wise_part_laws", (_tallies(), _asks(), _stale(), _sample(), _switch(), _loss()))


_law = law_constructor(st.nothing, SOURCE, most=500)


def _tallies() -> Law:
    def check(subject: SegmentWise, drawn: Inputs, seen: Seen) -> None:
        modifier, total, tallies = subject.modifier(), 0, dict[int, int]()
        for verb, count, version in drawn:
            if verb == "filtered":
                modifier.on_samples_filtered(count, None if version < 0 else version)
                total += max(0, count)
                if count > 0 and version >= 0:
                    tallies[version] = tallies.get(version, 0) + count
            elif verb == "consumed":
                seen("more consumed than was filtered", count > total)
                modifier.on_capacity_consumed(count)
                total -= max(0, min(count, total))
            else:
                modifier.reset()
                total, tallies = 0, {}
            seen("version 0", 0 in tallies)
            same("what is paid back", modifier.get_filtered_count(), total)
            same("the capacity", modifier.modify_capacity(count, version, segment_wise.RolloutStat()), count + total)
            same("the tallies", modifier.get_version_stats(), tallies)

    verbs = st.sampled_from(("filtered", "filtered", "consumed", "consumed", "reset"))
    inputs = st.lists(st.tuples(verbs, st.integers(-1, 5), st.integers(-1, 2)), min_size=3, max_size=15)
    claim = (
        "A modifier adds what was filtered, less what was consumed, never less than nothing; tallies stay till a reset."
    )
    mutant = ("takes back more than was paid", mutants.below_zero)
    needs = ("more consumed than was filtered", "version 0")
    return _law("a_modifier_adds_what_was_filtered", claim, mutant, check, *needs, inputs=inputs)


class _Asking(segment_wise.CapacityModifier):
    """A modifier that reads the manager's counts while the manager calls it."""

    def __init__(self, manager: segment_wise.StalenessManager, more: int) -> None:
        self.manager, self.more, self.heard = manager, more, list[segment_wise.RolloutStat]()

    def modify_capacity(self, base_capacity: int, current_version: int, stats: segment_wise.RolloutStat) -> int:
        self.heard.append(stats)
        return base_capacity + self.more + self.manager.get_stats().running - stats.running


def _asks() -> Law:
    def check(subject: SegmentWise, drawn: Inputs, seen: Seen) -> None:
        begun, ended, version, extra = drawn
        manager = subject.manager(4, 2, 1)
        asking = [_Asking(manager, more) for more in extra]
        for modifier in asking:
            manager.register_capacity_modifier(modifier)
            manager.register_capacity_modifier(modifier)
        for _ in range(begun):
            manager.on_rollout_submitted()
        for number in range(min(begun, ended)):
            (manager.on_rollout_accepted if number % 2 else manager.on_rollout_rejected)()
        stats = manager.get_stats()
        seen("several modifiers", len(asking) > 1)
        seen("a negative capacity", stats.running + stats.accepted > (2 + version) * 2)
        base = staleness.capacity(
            running=stats.running, accepted=stats.accepted, version=version, batch=2, concurrency=4, staleness=1
        )
        same("the capacity", manager.get_capacity(version), base + sum(extra))
        same("what modifiers were told", [one.heard for one in asking], [[stats]] * len(asking))
        same("submitted", stats.submitted, stats.running + stats.accepted + stats.rejected)

    inputs = st.tuples(
        st.integers(0, 9), st.integers(0, 9), st.integers(0, 3), st.lists(st.integers(-3, 9), max_size=3)
    )
    claim = (
        "Any modifier may ask the manager while it is asked; each is asked once, in order, and what it adds is added."
    )
    mutant = ("asks while it holds its lock", mutants.holds_its_lock)
    return _law("modifiers_may_ask", claim, mutant, check, "several modifiers", "a negative capacity", inputs=inputs)


def _stale() -> Law:
    def check(subject: SegmentWise, drawn: Inputs, seen: Seen) -> None:
        versions, mask, mark, current, bound = drawn
        config = segment_wise.InferenceEngineConfig(max_head_offpolicyness=bound)
        strategy = subject.strategy(config)
        made = [version for version, counts in zip(versions, mask, strict=True) if counts and version >= 0]
        allowed, oldest = (1, max) if mark is None else (max(1, bound), min)
        wanted = bool(made) and current - oldest(made) > allowed
        seen("recomputed at version 0", mark == 0 and wanted)
        seen("too old", wanted)
        plain: dict[str, Any] = {"output_version": made}
        columns = {"versions": torch.tensor([versions]), "loss_mask": torch.tensor([mask])}
        sample = TensorDict(columns, batch_size=[1])
        if mark is not None:
            plain[MARK] = mark
            sample[MARK] = torch.tensor([mark])
        same("a dict is too old", strategy.is_sample_too_stale(plain, current, config), wanted)
        same("a TensorDict is too old", strategy.is_sample_too_stale(sample, current, config), wanted)
        standard = segment_wise.StandardPPOStrategy(config)
        same("too old for standard PPO", standard.is_sample_too_stale(sample, current, config), False)

    inputs = st.tuples(
        st.lists(st.integers(-1, 4), min_size=3, max_size=3),
        st.lists(st.booleans(), min_size=3, max_size=3),
        st.sampled_from((None, 0, 0, 1, 3)),
        st.integers(2, 6),
        st.integers(0, 3),
    )
    claim = "A sample is too old by its newest token, or by its oldest once it was recomputed, be it at version 0."
    mutant = ("takes version 0 for no version", mutants.zero_is_none)
    return _law("the_rule_of_age", claim, mutant, check, "recomputed at version 0", "too old", inputs=inputs)


def _sample() -> Law:
    def check(subject: SegmentWise, drawn: Inputs, seen: Seen) -> None:
        versions, current, prompt = drawn
        asked = list[None]()
        recomputer = subject.recomputer(Engine(current, lambda: asked.append(None)), Log())
        places = range(prompt, prompt + len(versions))
        old = [score(place, version) for place, version in zip(places, versions, strict=True)]
        ids = list(range(prompt + len(versions)))
        sample = {"input_ids": ids, "output_version": versions, PROXIMAL: old}
        recomputer.recompute_batch([sample], prompt)
        due = max(versions, default=current) == current - 1
        seen("a sample of the version before", due)
        seen("a sample of another version", versions and not due)
        made = zip(places, versions, strict=True)
        wanted = [score(place, token + (due and token == current - 1)) for place, token in made]
        same("the proximal log-probs", sample[PROXIMAL], wanted)
        same("questions to the engine", len(asked), int(due))

    inputs = st.tuples(st.lists(st.integers(0, 3), max_size=3).map(sorted), st.integers(0, 4), st.integers(1, 3))
    claim = "A sample whose newest token is of the version before gets new log-probs for it; others ask for none."
    mutant = ("recomputes whatever the version", mutants.any_version)
    needs = ("a sample of the version before", "a sample of another version")
    return _law("a_single_sample_is_recomputed", claim, mutant, check, *needs, inputs=inputs)


def _switch() -> Law:
    def check(subject: SegmentWise, drawn: Inputs, seen: Seen) -> None:
        top, child, line, line_child = drawn
        text = {None: "", True: ON, False: OFF}[top]
        text += {None: "", True: f"rollout:\n  {ON}actor:\n  {ON}", False: f"rollout:\n  {OFF}"}[child]
        changes = [] if line is None else [f"enable_segment_wise_ppo={line}".lower()]
        changes += [] if line_child is None else [f"rollout.enable_segment_wise_ppo={line_child}".lower()]
        wanted = next((one for one in (line, top) if one is not None), True)
        seen("a child that says otherwise", (not wanted) in (child, line_child))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "config.yaml"
            path.write_text(text)
            config, named = subject.configured(["--config", str(path), *changes])
        same("the path", named, str(path))
        switches = [part.enable_segment_wise_ppo for part in (config, config.rollout, config.actor)]
        same("the switch at the top, of rollouts, of the loss", switches, [wanted] * 3)

    maybe = st.sampled_from((None, True, False))
    claim = "The switch at the top is that of all parts, whatever they say; the command line comes before the file."
    mutant = ("lets a part have a switch of its own", mutants.child_wins)
    inputs = st.tuples(maybe, maybe, maybe, maybe)
    return _law("one_switch", claim, mutant, check, "a child that says otherwise", inputs=inputs)


def _loss() -> Law:
    def check(subject: SegmentWise, drawn: Inputs, seen: Seen) -> None:
        (log_prob, proximal, behaviour, advantage), mask, cap = drawn
        on = subject.loss(segment_wise.PPOActorConfig(behav_imp_weight_cap=cap))
        off = subject.loss(segment_wise.PPOActorConfig(enable_segment_wise_ppo=False))
        plain = token_clip(log_prob, behaviour, advantage, mask, clip=0.2)
        same("the loss where versions agree", on(log_prob, behaviour, behaviour, advantage, mask), plain, ROUNDING)
        same("the loss when it is off", off(log_prob, proximal, behaviour, advantage, mask), plain)
        weight = (proximal - behaviour).exp()
        outside = mask & (weight > cap)
        seen("a weight above the cap", outside.any() and (advantage[outside] != 0).any())
        loss = on(log_prob, proximal, behaviour, advantage, mask)
        wanted = weight * token_clip(log_prob, proximal, advantage, mask, clip=0.2)
        same("the loss", loss, torch.where(outside, 0.0, wanted), ROUNDING)
        require(torch.isfinite(loss), "a loss that is no number")

    columns = st.tuples(*[dyadic((2, 3))] * 4)
    claim = (
        "Off, or with equal versions, it is PPO's loss; on, weighted by proximal over behaviour, and 0 above the cap."
    )
    mutant = ("clamps weights in place of leaving tokens out", mutants.clamps)
    inputs = st.tuples(columns, flags((2, 3)), st.sampled_from((1.0, 2.0)))
    return _law("the_loss_of_the_switch", claim, mutant, check, "a weight above the cap", inputs=inputs)
