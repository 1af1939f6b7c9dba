"""The page on policies tells the truth: its blocks run from top to bottom, and all its ways give the same action."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import purestep
from purestep.runtime.cli.main import commands

pytest.importorskip("onnxruntime")

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "policies.md").read_text()


@pytest.mark.slow
def test_the_page_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    for number, block in enumerate(blocks):
        exec(compile(block, f"policies.md[{number}]", "exec"), names)
    said = capsys.readouterr().out
    policy = purestep.load("runs/swing")
    assert isinstance(policy, purestep.TrainedPolicy)
    own = policy.action(torch.tensor([1.0, 0.0, 0.5]))
    assert said.count(f"{own}") >= 3  # of `load`, torch.export and `with_weights`
    found = re.search(r"array\(\[(-?[\d.e-]+)\]", said)
    assert found
    assert float(found[1]) == pytest.approx(float(own), abs=1e-6)
    assert "torch, actions on 256 recorded observations: the same bits" in said
    act: Any = names["action"]
    assert float(act(torch.tensor([1.0, 0.0, 0.5]))) == pytest.approx(float(own), abs=1e-6)


def test_its_commands_are_ones_we_have() -> None:
    named = re.findall(r"purestep (\w+) ", PAGE)
    assert {"export", "evaluate", "train"} <= set(named)
    assert set(re.findall(r"^purestep (\w+)", PAGE, re.MULTILINE)) <= commands().keys()
