"""The command line under drawn inputs: one line or success, nothing of others' touched, nothing executed, no endless call.

What is drawn, where it is called and how it is judged: benchmarks/parts/fuzz_inputs.py, benchmarks/parts/fuzz_side.py.
"""

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).parents[3]
QUICK = ("help", "train ppo", "evaluate", "plot", "resume")
FUNCTION_SCOPED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
randoms = st.randoms(use_true_random=False)


@pytest.fixture(scope="module")
def module() -> Iterator[Callable[[str], Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield lambda name: importlib.import_module(f"benchmarks.{name}")


@pytest.fixture(scope="module")
def every(module: Callable[[str], Any]) -> Iterator[Callable[[Random, str], dict[str, str]]]:
    """A judge of a drawn input of any command: kinds of faults, with what shows them; nothing where all is well."""
    fuzz = module("fuzz")
    if not fuzz.startable():
        pytest.skip("no ordinary user can start this Python here")
    with fuzz.side() as side:

        def wrong(draw: Random, command: str) -> dict[str, str]:
            given = module("parts.fuzz_inputs").drawn(draw, side.ground, (command,))
            verdict = side.judge(given)
            return {**verdict["faults"], "input": fuzz.shown(given, verdict)} if verdict["faults"] else {}

        yield wrong


@pytest.mark.slow
@given(draw=randoms, command=st.sampled_from(QUICK))
@settings(max_examples=8, derandomize=True, suppress_health_check=FUNCTION_SCOPED)
def test_an_odd_input_is_told_in_one_line(draw: Random, command: str, every: Callable[..., dict[str, str]]) -> None:
    assert every(draw, command) == {}


@pytest.mark.slow
@given(
    draw=randoms,
    command=st.sampled_from([*QUICK, "train a2c", "train reinforce", "train prove", "explain", "verify", "host"]),
)
@settings(max_examples=60, suppress_health_check=FUNCTION_SCOPED)
def test_odd_inputs_of_every_command(draw: Random, command: str, every: Callable[..., dict[str, str]]) -> None:
    assert every(draw, command) == {}


@pytest.mark.slow
@given(draw=randoms, command=st.sampled_from(["train zorplex", "train cache", "chat", "replay", "evaluate", "resume"]))
@settings(max_examples=60, suppress_health_check=FUNCTION_SCOPED)
def test_odd_inputs_of_language_models(draw: Random, command: str, every: Callable[..., dict[str, str]]) -> None:
    assert every(draw, command) == {}


# --- the judge ---


SAID = "purestep: --envs is 0, wanted at least 1; change it\n"


@pytest.mark.parametrize(
    ("code", "err", "kinds"),
    [
        (1, SAID, set()),
        (0, "", set()),
        (130, "interrupted after 3 steps and saved; go on with: purestep resume run\n", set()),
        (2, "usage: purestep\n", set()),
        (None, "", {"hang"}),
        (-11, SAID, {"crash"}),
        (7, SAID, {"crash"}),
        (1, "Traceback (most recent call last):\nKeyError: 'x'\n", {"traceback"}),
        (1, "purestep: KeyError: 'x' (--debug shows where)\n", {"bare"}),
        (1, "", {"silent"}),
        (1, "purestep: nothing found\n", {"lines"}),
        (1, SAID + "see there\n", {"lines"}),
        (1, SAID + SAID, {"lines"}),
        (0, "the same line\n" * 101, {"flood"}),
        (1, "purestep: this process is out of memory (x), wanted more; ask for less\n", {"memory"}),
    ],
)
def test_what_is_wrong_with_an_end_is_seen(module: Callable[[str], Any], code: int, err: str, kinds: set[str]) -> None:
    side = module("parts.fuzz_side")
    given = module("parts.fuzz_inputs").Input("plot", ("plot", "run"))
    ended = side.Ended(code, 0.1, 0.1, "", err)
    assert side.faults(given, ended, [], False).keys() == kinds
    assert side.faults(given, ended, [], True).keys() == kinds | {"executed"}
    assert side.faults(given, ended, ["a is gone"], False).keys() == kinds | {"lost"}
    good = module("parts.fuzz_inputs").Input("evaluate", ("evaluate", "run"), good=True)
    assert side.faults(good, ended, [], False).keys() == (kinds or ({"ignored"} if code in (1, 2) else set()))


def test_files_that_are_lost_changed_or_added_are_seen(module: Callable[[str], Any], tmp_path: Path) -> None:
    side = module("parts.fuzz_side")
    here, _ = side.begin(tmp_path, tmp_path, [("file", "run/mine.txt", "mine"), ("file", "run/metrics.jsonl", "")])
    before = side.looked(tmp_path, ["run"])
    (here / "run" / "metrics.jsonl").write_text("more")
    (here / "run" / "more").write_text("more")
    (tmp_path / "cache" / "more").write_text("more")
    assert side.changes(before, side.looked(tmp_path, ["run"])) == []
    (here / "run" / "mine.txt").unlink()
    (tmp_path / "others" / "kept.txt").write_text("else")
    (here / "project" / ".lock").write_text("")
    found = side.changes(before, side.looked(tmp_path, ["run"]))
    assert [line.split(" is ")[0] for line in found] == ["here/run/mine.txt", "others/kept.txt", "here/project/.lock"]
    side.cleaned(tmp_path)
    assert not tmp_path.exists()


def test_a_folder_is_laid_out_whatever_earlier_steps_have_left(module: Callable[[str], Any], tmp_path: Path) -> None:
    ends = [("fifo", "a"), ("link", "b", "/dev/zero"), ("folder", "c"), ("link", "d", "nowhere"), ("file", "e", "text")]
    harms = [
        ("flip", "1"),
        ("cut", "1"),
        ("json", "1", "1"),
        ("key", "1", "-"),
        ("merge", "a", "1"),
        ("line", "1", ""),
        ("weights", "nan"),
    ]
    steps = [(action, path, *rest) for path in "abcdef" for action, *rest in harms]
    side = module("parts.fuzz_side")
    here, left_out = side.begin(
        tmp_path, tmp_path, [*ends, *steps, *(("copy", "a", path) for path in "abc"), ("copy", "e", "a")]
    )
    assert (here / "a").read_bytes() == (here / "e").read_bytes() != b"text"
    assert {path.name for path in here.iterdir()} > set("abcde")
    assert 0 < left_out < len(steps)


def test_an_input_follows_from_its_number(module: Callable[[str], Any]) -> None:
    inputs = module("parts.fuzz_inputs")
    files = ("arguments.json", "checkpoints/step_000001/manifest.json", "checkpoints/step_000002/manifest.json")
    ground = inputs.Ground({name: [("--seed", "INT")] for name in inputs.COMMANDS}, {"ppo": files})
    first = [inputs.drawn(Random(number), ground) for number in range(300)]
    assert {
        name
        for name in ("absent", "variables", "streams", "most", "stop", "long")
        if any(getattr(one, name) for one in first)
    } == {*("absent", "variables", "streams", "most", "stop", "long")}
    assert first == [inputs.drawn(Random(number), ground) for number in range(300)]
    assert {given.command for given in first} == inputs.COMMANDS.keys()
    assert len({(given.words, given.steps) for given in first}) > 250
    assert any("\x00" in word for given in first for word in given.words)
