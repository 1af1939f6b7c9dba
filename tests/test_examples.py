"""The examples are true: each runs, learns what it says it learns, and uses only what it says it uses."""

import ast
import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from purestep.runtime.compile import program

FOLDER = Path(__file__).parent.parent / "examples"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"examples_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


stranger_env = load("stranger_env")
embed = load("embed")
gymnasium_ppo = load("gymnasium_ppo")
test_the_strangers_world_keeps_the_laws = stranger_env.test_lander
