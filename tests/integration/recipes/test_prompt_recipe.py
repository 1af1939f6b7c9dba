"""`purestep train text`: a model folder, a file of prompts and a reward function, by commands and by one call."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import purestep
from purestep.core.errors import ChoiceError, PurestepError
from purestep.core.language.codec import NOTHING
from purestep.core.language.prompts import ROLES
from purestep.runtime.cli import main
from purestep.runtime.effects.hugging_face.causal_lm import from_config, tiny_llama
from purestep.runtime.effects.hugging_face.chat_template import chat_codec
from purestep.runtime.effects.hugging_face.folder import save_model
from purestep.runtime.effects.hugging_face.tokenizer import train_tokenizer
from purestep.runtime.recipes.prompts import prompt_defaults
from purestep.runtime.runs.arguments import changed

from ...support.tool_templates import tool_tokenizer

pytest.importorskip("transformers")

REWARD = """
def length(completions, **columns):
    return [-float(len(text)) for text in completions]

def broken(completions, answer):
    raise ValueError("no such answer")
"""
TOOLS = '''
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first
        b: the second
    """
    return a + b
'''
SMALL = "--groups 2 --samples 2 --held-out 3 --max-new-tokens 4 --reward-workers 1"
Said = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, prompts and rewards, as a user brings them."""
    home = tmp_path_factory.mktemp("given")
    rows = [
        {"prompt": f"{first} + {second}?", "answer": str(first + second)} for first in range(5) for second in range(4)
    ]
    (home / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (home / "rewards.py").write_text(REWARD)
    tokenizer = train_tokenizer([row["prompt"] for row in rows], vocabulary=270)
    config = tiny_llama(len(tokenizer), width=16, layers=1, heads=2, kv_heads=1, inner=32, window=64)
    save_model(home / "model", from_config(config).init(purestep.keys.key(0)), config, tokenizer)
    return home


def words(given: Path, run: Path, *more: str) -> list[str]:
    own = ["--model", f"{given / 'model'}", "--prompts", f"{given / 'sums.jsonl'}", "--run", f"{run}"]
    return ["train", "text", *own, *SMALL.split(), *more]


def test_a_run_is_trained_evaluated_resumed_and_talked_to(given: Path, tmp_path: Path, capsys: Said) -> None:
    run = tmp_path / "run"
    reward = f"{given / 'rewards.py'}:length"
    assert main.main(words(given, run, "--reward", reward, "--steps", "2", "--reward", "exact")) == 0
    printed = capsys.readouterr()
    assert re.search(r"before, greedy\s+after\s+after, greedy", printed.out)
    assert "--max-new-tokens 4 --capacity" in printed.out + printed.err
    held = json.loads((run / "arguments.json").read_text())
    assert held["recipe"] == "text"
    assert held["reward"] == [reward, "exact"]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert all(row["reward_length"] + row["reward_exact"] == row["episode_return"] for row in rows)
    for command in (["evaluate", f"{run}"], ["resume", f"{run}"], ["chat", f"{run}", "--task", "0"]):
        assert main.main(command) == 1
        assert "if you trust it: purestep" in capsys.readouterr().err.splitlines()[-1]
        assert main.main([*command, "--trust"]) == 0
        capsys.readouterr()
    assert main.main(["evaluate", f"{run}", "--reward", reward]) == 0


def test_one_call_takes_rows_and_a_function_of_the_script(given: Path, tmp_path: Path) -> None:
    seen = list[int]()

    def short(prompts: list[str], completions: list[str], answer: list[str]) -> list[float]:
        seen.append(len(prompts))
        assert all(eval(prompt.rstrip("?")) == int(one) for prompt, one in zip(prompts, answer, strict=True))
        return [-float(len(text)) for text in completions]

    rows = [json.loads(line) for line in (given / "sums.jsonl").read_text().splitlines()]
    run, lines = tmp_path / "run", list[str]()
    small: dict[str, Any] = {"groups": 2, "samples": 2, "held_out": 3, "max_new_tokens": 4, "steps": 1}
    purestep.train_text(model=given / "model", prompts=rows, reward=short, run=run, notice=lines.append, **small)
    assert 4 in seen
    assert any("after, greedy" in line for line in lines)
    assert (run / "model" / "model.safetensors").is_file()


@pytest.mark.slow
def test_a_reward_that_fails_masks_its_samples_and_the_run_goes_on(given: Path, tmp_path: Path, capsys: Said) -> None:
    reward = f"{given / 'rewards.py'}:broken"
    assert main.main(words(given, tmp_path / "run", "--reward", reward, "--steps", "1")) == 0
    printed = capsys.readouterr()
    assert "no such answer" in printed.out + printed.err
    assert re.search(r"ended as raised\s+1.000", printed.out)


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        (["--reward", "exact", "--weights", "1", "2"], r"--weights is 2 numbers, wanted one for each of 1 rewards"),
        (["--reward", "{home}/rewards.py:absent"], r"absent"),
        (["--reward", "exact", "--prompt-column", "question"], r"question"),
        (["--reward", "exact", "--max-new-tokens", "0", "--capacity", "2"], r"capacity"),
        (["--reward", "numeric", "--held-out-share", "1.5"], r"--held-out-share is 1.5"),
        ([], r"--reward is absent, wanted MODULE:FUNCTION"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(
    given: Path, tmp_path: Path, capsys: Said, more: list[str], wanted: str
) -> None:
    assert main.main(words(given, tmp_path / "run", *(word.format(home=given) for word in more))) == 1
    last = capsys.readouterr().err.strip().splitlines()
    assert re.search(wanted, last[-1]), last
    assert not (tmp_path / "run" / "arguments.json").exists()


def test_tools_are_offered_by_the_models_template(given: Path, tmp_path: Path, capsys: Said) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    more = ["--reward", "numeric", "--steps", "1", "--tools", f"{tmp_path / 'tools.py'}:add"]
    assert main.main(words(given, tmp_path / "refused", *more)) == 1
    assert "tools" in capsys.readouterr().err.strip().splitlines()[-1]
    tokenizer = tool_tokenizer("hermes")
    config = tiny_llama(len(tokenizer), width=16, layers=1, heads=2, kv_heads=1, inner=32, window=1024)
    save_model(tmp_path / "model", from_config(config).init(purestep.keys.key(0)), config, tokenizer)
    run = tmp_path / "run"
    assert main.main(words(given, run, *more, "--model", f"{tmp_path / 'model'}")) == 0
    held = json.loads((run / "arguments.json").read_text())
    assert (held["max_turns"], held["tools"]) == (6, [f"{tmp_path / 'tools.py'}:add"])
    assert main.main(["evaluate", f"{run}"]) == 1
    assert main.main(["evaluate", f"{run}", "--tools", held["tools"][0]]) == 0


def test_a_prompt_beyond_the_window_is_refused(given: Path, tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    rows = [{"prompt": "1 + 1?", "answer": "2"}, {"prompt": "word " * 90, "answer": "3"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = changed(prompt_defaults(), {"model": f"{given / 'model'}", "prompts": f"{path}", "reward": ("exact",)})
    with pytest.raises(ChoiceError, match=r"longest prompt is .* tokens, wanted less than the model's window 64"):
        settings.resolved(lambda line: None)


def test_a_folder_without_a_model_is_refused(given: Path, tmp_path: Path) -> None:
    settings = {"model": f"{tmp_path}", "prompts": f"{given / 'sums.jsonl'}", "reward": ("exact",)}
    with pytest.raises(PurestepError, match="is no model"):
        changed(prompt_defaults(), settings).resolved(lambda line: None)


def test_messages_of_a_prompt_have_the_ids_of_the_template(given: Path) -> None:
    tokenizer = train_tokenizer(["hello"], vocabulary=270)
    chat = [("system", "Be brief."), ("user", "2?"), ("assistant", "Two."), ("user", "3?")]
    encoded = chat_codec(tokenizer).encode([ROLES[role](text) for role, text in chat], NOTHING)
    whole = tokenizer.apply_chat_template(
        [{"role": role, "content": text} for role, text in chat], tokenize=False, add_generation_prompt=True
    )
    assert [token for ids in encoded for token in ids] == tokenizer.encode(whole, add_special_tokens=False)


@pytest.mark.slow
def test_generators_learn_from_the_same_prompts_and_it_is_replayed(given: Path, tmp_path: Path, capsys: Said) -> None:
    run = f"{tmp_path / 'run'}"
    more = ["--mode", "async", "--no-compare", "--generators", "1", "--steps", "2"]
    assert main.main(words(given, Path(run), "--reward", f"{given / 'rewards.py'}:length", *more)) == 0
    capsys.readouterr()
    assert main.main(["replay", run]) == 0
    assert "each once" in capsys.readouterr().out
