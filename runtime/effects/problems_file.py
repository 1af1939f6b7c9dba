"""A file of problems: a JSON object a line, {"problem": ..., "answer": ...}, both of them texts."""

import hashlib
from pathlib import Path
from typing import Any

from attrs import frozen

from ...core.errors import ChoiceError, message
from ...core.language.reasoning_cache.state import Problem
from ..files.reading import parse_json, read_bounded, reason

MOST = 1 << 30  # bytes
NAMES = ("problem", "answer")
WANTED = '{"problem": "...", "answer": "..."}'


@frozen
class FileProblems:
    """The problems of a file, and a digest that identifies its content."""

    problems: tuple[Problem, ...]
    digest: str


def read_problems(path: Path) -> FileProblems:
    """Return the problems of a file, in its order; empty lines are ignored.

    Raises: ChoiceError, naming the line, for one that is no such object, has an empty text, or repeats an earlier problem.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as home:
    ...     path = Path(home) / "sums.jsonl"
    ...     _ = path.write_text('{"problem": "2 + 3?", "answer": "5"}\\n')
    ...     read_problems(path).problems[0].answer
    '5'
    """
    try:
        content = read_bounded(path, MOST)
    except (OSError, ValueError) as cause:
        where, remedy = f"--problems-file {path}", "check the path"
        raise ChoiceError(
            message(where, got=f"unreadable ({reason(cause)})", wanted="a file of problems", remedy=remedy)
        ) from cause
    found = dict[str, Problem]()
    lines = dict[str, int]()
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        problem = _problem(where, line)
        if problem.problem_id in lines:
            got, remedy = f"the problem of line {lines[problem.problem_id]} again", "leave one of them out"
            raise ChoiceError(message(where, got=got, wanted="another problem", remedy=remedy))
        found[problem.problem_id], lines[problem.problem_id] = problem, number
    return FileProblems(tuple(found.values()), hashlib.sha256(content).hexdigest())


def _problem(where: str, line: bytes) -> Problem:
    try:
        held: Any = parse_json(line)
    except ValueError as cause:
        raise ChoiceError(message(where, got=f"no JSON ({reason(cause)})", wanted=WANTED, remedy="mend it")) from cause
    given = held if isinstance(held, dict) else {}
    wrong = [name for name in NAMES if not isinstance(given.get(name), str) or not given[name].strip()]
    if wrong:
        got = f"without a text of {wrong[0]!r}" if isinstance(held, dict) else f"{type(held).__name__}, no object"
        raise ChoiceError(message(where, got=got, wanted=WANTED, remedy="give each problem and its answer as a text"))
    return Problem(problem_id=given["problem"], problem_text=given["problem"], answer=given["answer"])
