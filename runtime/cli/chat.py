"""`purestep chat RUN`: try tasks from a terminal or a pipe with a trained language model, and see the turns."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro
from attrs import define, evolve

from ...core.errors import ChoiceError, PurestepError, message
from ..recipes.text import TextRecipe
from ..runs.arguments import check_whole
from ..runs.kinds import record_of
from ..runs.recipe import find
from ..runs.trusting import Trust
from .common import check_text, loading, say, trusting

if TYPE_CHECKING:
    from torch import Tensor

    from ...core.language.protocol import Protocol
    from ..text.components import TextComponents

HELP = "a number for that held-out task, a question of your own, Enter for the next task, q to leave"
NONE = -1
AS_TRAINED = -1
CONVERT = "convert it, e.g. with iconv"
LAST = 10**9  # largest number of a task


def chat_command(words: list[str]) -> int:
    """`purestep chat RUN`: shows what the model says to tasks, and what its tools say to it."""

    def chat(
        run: tyro.conf.Positional[Path],
        /,
        *,
        task: int = NONE,
        question: str = "",
        seed: int = AS_TRAINED,
        temperature: float = 0.0,
        trust: tyro.conf.FlagCreatePairsOff[bool] = False,
    ) -> int:
        """Try tasks with the newest checkpoint of a language model's run.

        Args:
            run: the run's folder
            task: the number of one held-out task; without it, lines are read from the terminal or a pipe
            question: one question of your own, such as "What is zorplex[kramun] + zorplex[blivit]?"
            seed: decides which tasks are held out, and how values and tokens are drawn; -1 means those of the run
            temperature: 0 takes the likeliest token
            trust: import the task or the functions that the run's folder names
        """
        check_whole("--task", task, NONE, LAST)
        check_whole("--seed", seed, AS_TRAINED)
        held = record_of(run)
        recipe = find(str(held["recipe"])) if "recipe" in held else None
        if not isinstance(recipe, TextRecipe):
            wanted, remedy = "one of: purestep train zorplex", "name the folder of such a run"
            raise ChoiceError(message(str(run), got="no run of a language model", wanted=wanted, remedy=remedy))
        loading(run)
        trusting(trust)
        import torch

        trusted = Trust((), trust, ("chat", *words), by_name=False)
        parts, params, arguments, version = recipe.sampler(run, trusted)
        torch.set_num_threads(arguments.machine.threads)
        talk = _Talk(parts, params, arguments.episodes.draw if seed == AS_TRAINED else seed, temperature)
        if question or task != NONE:
            print("\n".join(talk.question(question) if question else talk.task(task)))
            return 0
        say(f"{version} of {run}; {HELP}")
        for text in typed_lines(sys.stdin.isatty()):
            if text in ("q", "quit", "exit"):
                break
            try:
                print("\n".join(talk.about(text)), flush=True)
            except PurestepError as fault:
                say(f"purestep: {' '.join(str(fault).split())}")
        return 0

    return tyro.cli(chat, args=words, prog="purestep chat")


def typed_lines(person: bool) -> Iterator[str]:
    """Yield the lines of the standard input, stripped; a terminal gets a prompt for each.

    Raises: ChoiceError for text that is not UTF-8.
    """
    while True:
        try:
            text = input("> " if person else "")
        except EOFError:
            return
        except UnicodeDecodeError as cause:
            got = f"bytes that are none ({cause.reason})"
            raise ChoiceError(message("standard input", got=got, wanted="text in UTF-8", remedy=CONVERT)) from None
        check_text("standard input", text, remedy=CONVERT)
        yield text.strip()


@define
class _Talk:
    """A model and its settings for a chat; `following` is the number of the next task."""

    parts: "TextComponents"
    params: "dict[str, Tensor]"
    seed: int
    temperature: float
    following: int = 0

    def about(self, text: str) -> tuple[str, ...]:
        """Return the lines that answer an input: the number of a task, a question, or nothing for the next task."""
        if text.isascii() and text.isdigit():
            return self.task(int(text) if len(text) < len(str(LAST)) else LAST + 1)
        return self.question(text) if text else self.task(self.following)

    def task(self, number: int) -> tuple[str, ...]:
        """Return the lines of an attempt at a held-out task."""
        check_whole("task", number, 0, LAST)
        self.following = number + 1
        return self._played(self.parts.trial, number, f"task {number}", True)

    def question(self, text: str) -> tuple[str, ...]:
        """Return the lines of an attempt at a question, with the values of the next task."""
        world, known = self.parts.task.ask(self.parts.trial.env, text)
        return self._played(evolve(self.parts.trial, env=world), self.following, "your question", known)

    def _played(self, rules: "Protocol[Any, Any]", number: int, head: str, known: bool) -> tuple[str, ...]:
        from ..text.chat import chat_lines
        from ..text.components import sampler
        from ..text.evaluation import held_out

        parts, asked = evolve(self.parts, rules=rules), held_out(1, self.seed, first=number, draw=self.parts.task.draw)
        (attempt,) = sampler(parts, temperature=self.temperature, slots=1)(self.params, 0, asked)
        solution = parts.task.solution
        right = f" (right: {solution(attempt.episode.world)})" if known and not isinstance(solution, tuple) else ""
        return f"{head}{right}", *chat_lines(parts.task, attempt, known=known)
