"""A world of text with a tool, written from nothing, held against the laws, and learnt by a small model of bytes.

    pytest examples/text_world.py            # the laws, one test each (needs the extra `properties`)
    python examples/text_world.py            # trains, prints the reward before and after (needs the extra `llm`)

A safe hides a digit. TRY, the tool, takes the first digit that the model writes and says "low", "high" or opens the safe.
"""

from typing import Any

import torch
from attrs import frozen

from purestep.algorithms.language.learner import learner
from purestep.algorithms.language.objectives import grpo
from purestep.core import keys
from purestep.core.language.codec import byte_codec
from purestep.core.language.parsers import Call, Parsed
from purestep.core.language.protocol import protocol
from purestep.core.language.requests import expand, requests, task_keys
from purestep.core.language.text_env import Outcome, TextEnv
from purestep.core.language.to_transcript import transcripts
from purestep.core.optim import optimizers
from purestep.properties import check, text_env_laws
from purestep.runtime.effects.generation.engine import rollouts
from purestep.runtime.effects.hugging_face.causal_lm import from_config, tiny_llama
from purestep.runtime.text.trainer import language_trainer


@frozen
class Safe:
    """What is hidden."""

    digit: int


def reset(params: tuple[()], key: keys.Key) -> tuple[Safe, str]:
    return Safe(int(keys.randint(key, (), 0, 10))), "0-9?"


def step(params: tuple[()], safe: Safe, action: Any, key: keys.Key) -> tuple[Safe, Outcome]:
    tried = int(action.argument)
    if tried == safe.digit:
        return safe, Outcome("open", reward=1.0, terminated=True)
    return safe, Outcome("low" if tried < safe.digit else "high", reward=0.1)


def parser(text: str) -> Parsed:
    digits = [letter for letter in text if letter in "0123456789"]
    return Parsed(Call("TRY", digits[0])) if digits else Parsed((), -0.1, "A digit, please.")


world = TextEnv((), reset, step)
test_safe = check(text_env_laws(parser, "7", "I try 3.", classes=(Safe,)), world)


def main(steps: int = 80) -> tuple[float, float]:
    """Trains from random weights; gives the mean reward of the first and of the last ten steps."""
    rules, codec, rewards = protocol(world, parser, max_steps=4), byte_codec(), []
    model = from_config(tiny_llama(codec.vocabulary, width=64, layers=2))
    algorithm = learner(model, optimizers.chain(optimizers.clip_by_global_norm(1.0), optimizers.adamw(3e-3)), grpo())
    state, train = algorithm.init(model.init(keys.key(0))), language_trainer(algorithm)
    for number in range(steps):
        key = keys.fold_in(keys.key(1), number)
        tasks = requests(task_keys(key, "training", 16), key)
        asked = [attempt for task in tasks for attempt in expand(task, 8, key)]
        ended = rollouts(model, state.params.policy, rules, codec, asked, slots=128, capacity=80, max_new_tokens=4)
        columns = transcripts(ended, capacity=80, calls=4)
        rewards.append(float(columns.reward.sum(-1).mean()))
        state = train(state, columns).state
    before, after = (float(torch.tensor(some).mean()) for some in (rewards[:10], rewards[-10:]))
    print(f"reward of an episode: {before:.2f} before, {after:.2f} after {steps} steps")
    return before, after


if __name__ == "__main__":
    main()
