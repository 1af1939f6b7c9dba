"""`purestep train text`: a model folder, a file of prompts and a reward function, by commands and by one call."""

import json
import os
import re
import shutil
import subprocess
import sys
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
    written = (tmp_path / "run.prompts.jsonl").read_bytes()
    for overwrite in (False, True):
        more: dict[str, Any] = {"reward": short, "run": run, "overwrite": overwrite, **small}
        with pytest.raises(PurestepError):
            purestep.train_text(model=given / ("model" if not overwrite else "absent"), prompts=rows[3:], **more)
        assert (tmp_path / "run.prompts.jsonl").read_bytes() == written, "a refused run changed those of the older one"


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


def of_another_config(model: Path, folder: Path, **changes: Any) -> Path:
    """Copy a model's folder, with other values in its configuration."""
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


@pytest.mark.parametrize("form", ["generation_config.json", "config.json"])
def test_each_end_token_of_the_models_folder_ends_an_output(given: Path, tmp_path: Path, form: str) -> None:
    """With each token an end token, no output has a second token."""
    folder = of_another_config(given / "model", tmp_path / "model")
    (folder / "generation_config.json").unlink(missing_ok=True)
    config = json.loads((folder / "config.json").read_text())
    ends = {"eos_token_id": list(range(config["vocab_size"]))}
    (folder / form).write_text(json.dumps(config | ends if form == "config.json" else ends))
    run = tmp_path / "run"
    assert main.main([*words(given, run, "--reward", "numeric", "--steps", "1"), "--model", f"{folder}"]) == 0
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert rows
    assert {row["tokens"] for row in rows} == {1.0}


def test_settings_of_sampling_in_the_models_folder_that_are_not_used_are_named(
    given: Path, tmp_path: Path, capsys: Said
) -> None:
    folder = of_another_config(given / "model", tmp_path / "model")
    stored = {"eos_token_id": [1, 2], "top_k": 20, "temperature": 0.6, "top_p": 1.0, "use_cache": True}
    (folder / "generation_config.json").write_text(json.dumps(stored))
    run, more = tmp_path / "run", ["--reward", "numeric", "--steps", "1", "--model", f"{folder}"]
    assert main.main([*words(given, run), *more]) == 0
    said = capsys.readouterr()
    line = next(line for line in (said.err + said.out).splitlines() if line.startswith("generation settings of"))
    assert "not used: temperature 0.6, top_k 20; training samples with --temperature 1 --top-p 1" in line
    assert "top_p" not in line.partition("not used:")[2].partition(";")[0]
    kept = json.loads((run / "model" / "generation_config.json").read_text())
    assert (kept["eos_token_id"], kept["top_k"]) == ([1, 2], 20)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"num_hidden_layers": 10**6}, r"num_hidden_layers is 1000000, wanted at most the \d+ tensors"),
        ({"vocab_size": 10**12}, r"numbers \(.*\[1000000000000, 16\]\), wanted the [\d,]+ of its weights"),
        ({"hidden_size": 10**9}, r"of its weights|wanted a model"),
        ({"intermediate_size": 10**12}, r"of its weights"),
        ({"num_attention_heads": 0}, r"wanted a model"),
        ({"hidden_size": "wide"}, r"wanted a model"),
        ({"max_position_embeddings": -1}, r"wanted"),
        ({"model_type": "mamba"}, r"wanted a model"),
    ],
)
def test_a_configuration_beyond_its_weights_is_refused_before_it_is_built(
    given: Path, tmp_path: Path, capsys: Said, changes: dict[str, Any], wanted: str
) -> None:
    folder = of_another_config(given / "model", tmp_path / "model", **changes)
    run = tmp_path / "run"
    assert main.main([*words(given, run, "--reward", "numeric", "--steps", "1"), "--model", f"{folder}"]) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert re.search(wanted, lines[-1]), lines
    assert len([line for line in lines if "rror" in line or "wanted" in line]) == 1, lines
    assert not (run / "arguments.json").exists()


def test_a_name_in_the_hubs_cache_has_the_facts_of_its_folder(given: Path, tmp_path: Path) -> None:
    """In a process of its own: the library reads its cache's place when it is imported."""
    store = tmp_path / "hub" / "models--some--model"
    shutil.copytree(given / "model", store / "snapshots" / "1234")
    (store / "refs").mkdir()
    (store / "refs" / "main").write_text("1234")
    code = (
        "import sys; from pathlib import Path\n"
        "from purestep.runtime.text.prompt_lengths import model_facts\n"
        "print(model_facts(Path(sys.argv[1]), ()).bytes, model_facts(Path('some/model'), ()).bytes)"
    )
    environment = os.environ | {"HF_HUB_CACHE": f"{tmp_path / 'hub'}", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, f"{given / 'model'}"], env=environment, capture_output=True, text=True, check=True
    )
    folder, name = map(int, done.stdout.split())
    assert folder == name == (given / "model" / "model.safetensors").stat().st_size
