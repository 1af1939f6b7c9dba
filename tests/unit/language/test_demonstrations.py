"""Demonstrations and what is learnt of them: their laws, the texts of each kind, a model drawn towards what was said."""

import pytest
import torch
from hypothesis import strategies as st

from purestep.algorithms.supervised import cross_entropy, supervised
from purestep.core import keys
from purestep.core.bigram import bigram
from purestep.core.errors import ChoiceError
from purestep.core.language.codec import END, byte_codec
from purestep.core.language.protocol import protocol
from purestep.core.language.requests import key_of, requests, rollouts, task_keys
from purestep.core.language.to_transcript import transcripts
from purestep.core.language.types import Transcript
from purestep.core.language.zorplex.demonstrate import demonstrate
from purestep.core.language.zorplex.demonstrations import play_script, right_calls, script
from purestep.core.language.zorplex.env import KINDS, zorplex, zorplex_parser
from purestep.core.optim.optimizers import adam
from purestep.core.transcript.log_probs import loss_mask
from purestep.properties import ROUNDING, check, step_laws
from purestep.properties.strategies.values import dyadic, flags, integers

from ...laws.algorithms.supervised import supervised_laws
from ...laws.language.demonstration import demonstration_laws
from ...laws.language.families import own_showing

test_demonstrations = check(demonstration_laws(), own_showing())
test_cross_entropy = check(supervised_laws(), cross_entropy)


def spelled(text: str) -> tuple[int, ...]:
    return *text.encode(), END


def shown(number: int, skill: float = 0.4) -> Transcript:
    """Demonstrations as a learner gets them."""
    rules = protocol(zorplex(), zorplex_parser(), max_steps=5)
    asked = requests(task_keys(keys.key(0), "training", number), keys.key(1))
    attempts = [
        demonstrate(
            rules,
            byte_codec(),
            spelled,
            rollouts(request)[0],
            key,
            script=play_script,
            skill=skill,
            capacity=256,
            max_new_tokens=32,
        )
        for request, key in zip(asked, keys.split(keys.key(2), number), strict=True)
    ]
    return transcripts(attempts, capacity=256, calls=5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_calls_of_a_solution_are_those_that_are_needed(kind: str) -> None:
    world = zorplex(kind)
    play, _ = world.reset(world.params, key_of((0, 0)))
    calls = right_calls(world.params, play.task)
    assert len(calls) == play.task.needed
    assert all(call.startswith(tuple(f"{tool}[" for tool in KINDS[kind])) for call in calls)
    assert script(world.params, play.task, keys.key(0), skill=1.0) == (*calls, f"[ANSWER] {play.task.answer}")


def test_a_skill_is_a_probability() -> None:
    world = zorplex()
    play, _ = world.reset(world.params, key_of((0, 0)))
    with pytest.raises(ChoiceError, match=r"script: skill is 1\.5, wanted from 0 to 1"):
        script(world.params, play.task, keys.key(0), skill=1.5)


@pytest.mark.slow
def test_a_learner_learns_what_was_said_and_nothing_else() -> None:
    batch, model = shown(8), bigram(262)
    learner = supervised(model, adam(0.1))
    state = learner.init(torch.zeros(262, 262))
    update = torch.compile(learner.update, fullgraph=True, backend="aot_eager")
    losses = []
    for _ in range(30):
        state, metrics = update(state, batch)
        assert tuple(metrics) == learner.metrics
        losses.append(float(metrics["loss"]))
        assert float(metrics["finite"]) == 1.0
    assert abs(losses[0] - float(torch.log(torch.tensor(262.0)))) < 1e-4
    assert losses[-1] < 0.5 * losses[0]
    assert int(state.step) == 30
    said = set(batch.token.roll(1, -1)[loss_mask(batch)].tolist())
    moved = set(state.params.abs().amax(-1).nonzero()[:, 0].tolist())
    assert moved == said


def test_numbers_that_are_not_finite_are_told() -> None:
    learner = supervised(bigram(262), adam(0.1))
    state = learner.init(torch.full((262, 262), torch.nan))
    assert float(learner.update(state, shown(1))[1]["finite"]) == 0.0


THREE = bigram(3)


def loss_of(table: torch.Tensor, token: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return cross_entropy(THREE, table, token, mask)


drawn = st.tuples(dyadic((3, 3)), integers((2, 3), 0, 3), flags((2, 3)))
test_loss_as_a_step = check(step_laws(drawn, tolerance=ROUNDING), loss_of)
