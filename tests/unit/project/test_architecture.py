"""The house: who may import whom, what pure code may not do, and that the packaging lists what is there."""

import ast
import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[3]
LAYERS = ("core", "algorithms", "runtime", "properties")  # each may import itself and those before it
PURE = ("core", "algorithms")
EFFECTS = ("runtime/effects", "runtime/files")  # what touches files, processes and the network
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def words(text: str) -> set[str]:
    return set(text.split())


STDLIB_OF_PURE = words(
    "abc collections contextlib dataclasses difflib enum fractions functools itertools math numbers operator re string "
    "types typing"
)
LIBRARIES = {
    "core": {"torch", "tensordict", "attrs"},
    "algorithms": {"torch", "attrs"},
    "runtime": {"torch", "tensordict", "attrs"},
    "properties": {"torch", "tensordict", "attrs", "hypothesis", "pytest", "numpy"},
}
WORLD = words(  # files, clocks, sockets, processes, the generators and settings that all of a process shares
    "asyncio ctypes datetime fcntl fileinput ftplib glob http io logging mmap multiprocessing os pathlib pickle random "
    "secrets select selectors shelve shutil signal socket socketserver sqlite3 ssl subprocess tempfile threading time "
    "urllib uuid warnings webbrowser concurrent queue"
)
LEAVE = {  # what stands outside effects and yet has to do with the world, and why
    "core/language/tool_calls.py": {"json"},  # models write calls of tools as JSON texts
    "core/language/tools.py": {"json"},
    "runtime/machine/drive.py": {"threading", "queue", "concurrent", "signal"},  # the one loop that performs effects
    "runtime/machine/batched_effects.py": {"concurrent"},  # and one that performs several in one call
    # says how long a compilation took, keeps what came of it, and has the compiler build in a folder of the user's own
    "runtime/compile.py": {"time", "pathlib", "warnings", "os", "io"},
    # and these look into the compiler's own files and threads
    "runtime/inductor/compile_speed.py": {"os", "threading", "concurrent", "pathlib"},
    "runtime/inductor/ahead_of_time.py": {"os", "warnings", "io", "time"},
    "runtime/inductor/direct_build.py": {"pathlib"},
    "runtime/inductor/direct_library.py": {"os", "pathlib", "pickle", "tempfile"},
    "runtime/inductor/direct_trace.py": {"random", "sys"},  # whose state shows whether a function draws from it
    "runtime/inductor/products.py": {"pathlib"},
    "runtime/inductor/untraceable.py": {"logging", "pathlib"},
    "runtime/identity.py": {"os", "attr"},  # whose code a function is, its path tells; attrs has two names
    "core/probes.py": {"contextvars"},  # a probe finds the caller that asks for values
    "runtime/runs/arguments.py": {"os"},  # how many threads make sense, the number of processors tells
    "runtime/recipes": {"pathlib"},  # a run has a folder
    "runtime/recipes/text_options.py": {"tyro"},  # and options of its own on the command line
    "runtime/runs": {"pathlib"},
    "runtime/text": {"pathlib"},  # so has a language model's
    "runtime/text/sampling.py": {"threading"},  # and workers that share a server publish to it one after the other
    "runtime/async_rl": {"pathlib"},  # and a phase of a run with generators
    # whose trainer works in a thread, beside the loop that drives it
    "runtime/async_rl/orchestrator.py": {"concurrent"},
    "runtime/async_rl/grading.py": {"threading", "concurrent"},  # rewards are computed beside sampling
    "runtime/async_rl/training_phase.py": {"threading"},  # which both write to its files
    "runtime/async_rl/metrics.py": {"threading"},
    "runtime/cli/main.py": {"sys", "importlib", "os"},  # the command line
    "runtime/cli/run.py": {"tyro", "pathlib"},  # what its commands do
    "runtime/cli/replay.py": {"tyro", "pathlib"},
    "runtime/cli/sweep.py": {"tyro", "pathlib"},
    "runtime/recipes/sweep_members.py": {"concurrent"},  # whose parts are trained by threads
    "runtime/recipes/sweep_settings.py": {"random"},  # a generator of its own, from a seed
    "runtime/cli/view.py": {"tyro", "pathlib"},
    "runtime/cli/export.py": {"tyro", "pathlib"},
    "runtime/cli/host.py": {"tyro", "pathlib"},
    "runtime/cli/chat.py": {"tyro", "sys", "pathlib"},  # and whom they ask
    "runtime/cli/common.py": {"tyro", "sys", "pathlib"},
    # a test bed watches clocks, generators, files and logs, and its mutants misuse them
    "properties": words("os time random io logging pathlib tempfile"),
    "properties/suites/gym": {"gymnasium", "warnings"},  # whose environments some laws are about
    "properties/framework/families.py": {"gymnasium"},
    "properties/adapters": {"gymnasium", "tensordict"},  # spaces and columns of other packages
    "properties/framework/isolated.py": {"pickle", "select", "signal", "warnings"},  # children with a time limit
    "properties/framework/matrix.py": words(
        "subprocess concurrent multiprocessing argparse sys"
    ),  # every mutant, on all cores
}
GLOBAL_RANDOMNESS = words(
    "bernoulli dropout initial_seed manual_seed multinomial normal poisson rand rand_like randint randint_like randn "
    "randn_like randperm seed set_rng_state get_rng_state Generator"
)
FILES = [path.relative_to(ROOT) for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]
PURE_FILES = [path for path in FILES if path.parts[0] in PURE]
LAWS = [path.relative_to(ROOT) for path in sorted((ROOT / "tests" / "laws").rglob("*.py"))]  # of our own machinery
SHIPPED = [path for path in FILES if path.parts[0] != "properties"]
Parsed = Callable[[Path], tuple[ast.AST, ...]]


def name_of(path: Path) -> str:
    return ".".join(("purestep", *path.with_suffix("").parts)).removesuffix(".__init__")


@pytest.fixture(scope="module")
def nodes() -> Parsed:
    """The nodes of a file: kept for this module alone, since a million objects slow down every test that comes later."""
    return cache(lambda path: tuple(ast.walk(ast.parse((ROOT / path).read_text()))))


def imported(path: Path, tree: Iterable[ast.AST]) -> Iterator[str]:
    """What a file imports, absolute; our own modules as purestep...."""
    package = ("purestep", *path.parent.parts)
    for node in tree:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join((*package[: len(package) - node.level + 1], *filter(None, [node.module])))
            yield from ([base] if node.module else [f"{base}.{alias.name}" for alias in node.names])
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)


def forbidden(path: Path, names: Iterator[str]) -> list[str]:
    """Those imports a file may not have."""
    layer, within = path.parts[0], path.as_posix().startswith(EFFECTS)
    allowed = {name for where, those in LEAVE.items() if path.as_posix().startswith(where) for name in those}
    wrong = []
    for name in names:
        first, *rest = name.split(".")
        if first == "purestep":
            if not rest or rest[0] not in LAYERS[: LAYERS.index(layer) + 1]:
                wrong.append(name)
        elif first in allowed or (within and first not in {"hypothesis", "pytest"}):
            continue
        elif first in sys.stdlib_module_names:
            if first in WORLD or (layer in PURE and first not in STDLIB_OF_PURE):
                wrong.append(name)
        elif first not in LIBRARIES[layer]:
            wrong.append(name)
    return wrong


# --- prose ---

CLAUSE = re.compile(r"(What|Who|Whom|Whose|Whether|How|Those|That|Where|Which|When)\b")


def test_docstrings_open_with_an_imperative_or_a_noun_phrase(nodes: Parsed) -> None:
    texts = [
        (path, ast.get_docstring(node) or "")
        for path in SHIPPED
        for node in nodes(path)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
    ]
    assert [(path, text) for path, text in texts if CLAUSE.match(text)] == []


# --- imports ---


def test_imports_look_one_way_and_only_effects_touch_the_world(nodes: Parsed) -> None:
    assert [(path, wrong) for path in FILES if (wrong := forbidden(path, imported(path, nodes(path))))] == []


def absolute(node: ast.AST) -> list[str]:
    """The modules that a statement imports by their absolute names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [str(node.module)] if isinstance(node, ast.ImportFrom) and not node.level else []


def test_imports_inside_the_package_are_relative(nodes: Parsed) -> None:
    named = [(path, name) for path in FILES for node in nodes(path) for name in absolute(node)]
    assert len(named) > len(FILES)
    assert [(path, name) for path, name in named if name.split(".")[0] == "purestep"] == []


BREACHES = {
    "core/x.py": [
        ("from ..algorithms import gae", ["purestep.algorithms"]),
        ("from ..runtime.effects.clock import now", ["purestep.runtime.effects.clock"]),
        ("from .. import core", []),
        ("from .. import runtime", ["purestep.runtime"]),
        ("from . import keys", []),
        ("import time", ["time"]),
        ("import json", ["json"]),
        ("import numpy", ["numpy"]),
        ("def f():\n    from hypothesis import given", ["hypothesis"]),
        ("from torch._higher_order_ops.scan import scan", []),
    ],
    "core/envs/x.py": [("from ...algorithms import gae", ["purestep.algorithms"]), ("from ..env import Env", [])],
    "algorithms/x.py": [("from ..core import keys", []), ("from ..properties import law", ["purestep.properties"])],
    "runtime/x.py": [("import os", ["os"]), ("import gymnasium", ["gymnasium"]), ("import json", [])],
    "runtime/effects/x.py": [("import os, gymnasium", []), ("import hypothesis", ["hypothesis"])],
    "properties/x.py": [("from ..runtime.effects import clock", []), ("import socket", ["socket"])],
}


@pytest.mark.parametrize(
    ("path", "source", "wanted"), [(path, *case) for path, cases in BREACHES.items() for case in cases]
)
def test_a_breach_is_seen(path: str, source: str, wanted: list[str]) -> None:
    assert forbidden(Path(path), imported(Path(path), ast.walk(ast.parse(source)))) == wanted


# --- what pure code may not do ---


def impurities(node: ast.AST) -> Iterator[str]:
    """Names for what a pure step never does, found in the syntax alone."""
    if isinstance(node, ast.Assert | ast.Global | ast.Nonlocal):
        yield type(node).__name__.lower()
    if isinstance(node, ast.Delete) and not all(isinstance(target, ast.Name) for target in node.targets):
        yield "delete"
    if isinstance(node, ast.AugAssign) and not isinstance(node.target, ast.Name):
        yield "write into a value"
    if isinstance(node, ast.Assign) and any(isinstance(target, ast.Attribute) for target in node.targets):
        yield "write to an attribute"
    if isinstance(node, ast.Attribute) and node.attr in {"data", "item", "tolist", "numpy", "cuda", "done"}:
        yield f".{node.attr}"
    if isinstance(node, ast.Call):
        yield from impure_call(node)


def impure_call(node: ast.Call) -> Iterator[str]:
    if any(keyword.arg == "out" for keyword in node.keywords):
        yield "out="
    if isinstance(node.func, ast.Name) and node.func.id in {"print", "open", "input", "exec", "eval", "setattr"}:
        yield f"{node.func.id}()"
    if isinstance(node.func, ast.Attribute):
        name, owner = node.func.attr, ast.unparse(node.func.value)
        if name.endswith("_") and not name.endswith("__"):
            yield f"in-place {name}"
        if owner in {"torch", "torch.random"} and name in GLOBAL_RANDOMNESS:
            yield f"torch.{name}"
        if owner in {"F", "nn.functional"} and "dropout" in name:
            yield name


def test_pure_code_writes_nothing_draws_nothing_and_says_nothing(nodes: Parsed) -> None:
    found = {(path.as_posix(), word) for path in PURE_FILES for node in nodes(path) for word in impurities(node)}
    allowed = {("core/record.py", "write to an attribute")}  # where a class is made a record
    assert found <= {*allowed, ("core/language/types.py", ".numpy")}  # how a sample is pickled


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("x += 1", ""),
        ("x[0] += 1", "write into a value"),
        ("x.y = 1", "write to an attribute"),
        ("x.add_(1)", "in-place add_"),
        ("torch.add(x, y, out=z)", "out="),
        ("x.item()", ".item"),
        ("torch.randn(3)", "torch.randn"),
        ("keys.normal(key)", ""),
        ("print(x)", "print()"),
        ("assert x", "assert"),
        ("del params", ""),
        ("del x.y", "delete"),
    ],
)
def test_an_impurity_is_seen(source: str, word: str) -> None:
    assert {found for node in ast.walk(ast.parse(source)) for found in impurities(node)} == ({word} if word else set())


def contents(value: Any) -> list[Any]:
    """A value, and what it contains where it is a dict, a list or a tuple."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [value, *inside]


def test_pure_modules_hold_no_tensors_or_modules() -> None:
    held = [
        (path, name)
        for path in PURE_FILES
        for name, value in vars(importlib.import_module(name_of(path))).items()
        if not name.startswith("__") and any(isinstance(one, torch.Tensor | torch.nn.Module) for one in contents(value))
    ]
    assert held == []


def test_names_say_terminated_or_truncated(nodes: Parsed) -> None:
    named = [
        (path, node.lineno, node.id if isinstance(node, ast.Name) else node.arg)
        for path in PURE_FILES
        for node in nodes(path)
        if isinstance(node, ast.Name | ast.arg | ast.keyword)
    ]
    assert len(named) > len(PURE_FILES)
    assert [place for place in named if place[-1] in {"done", "dones"}] == []


def test_comments_promise_nothing() -> None:
    words = ("TODO", "FIXME", "XXX", "HACK")
    texts = [(path, (ROOT / path).read_text()) for path in (*FILES, *LAWS)]
    assert [(path, word) for path, text in texts for word in words if word in text] == []


USUAL = {"Protocol", "Generic", "Exception", "TypedDict", "Recipe", "ActorCritic", "ActorQ", "ActionValues"}
ASKED_FOR = {
    "runtime/deferred.py": {"ModuleType"},  # Python takes nothing else for the class of a package
    "runtime/inductor/direct_trace.py": {"TorchFunctionMode"},  # torch hands its calls to nothing else
    "runtime/inductor/scan_derivative.py": {"TorchFunctionMode", "Function"},  # nor derivatives of another form
    "runtime/effects/gymnasium/export.py": {"Env", "VectorEnv"},  # Gymnasium takes nothing else for an env
    "runtime/effects/gymnasium/importing.py": {"Env"},  # its vector envs are made of nothing else
    "runtime/effects/checkpoint/shards.py": {"FileSystemReader", "Unpickler"},  # both are made to be narrowed
    "runtime/effects/distributed/fsdp_module.py": {"Module"},  # torch shards nothing else
    "runtime/effects/policy_files/module.py": {"Module", "PolicyModule"},  # nor exports
    # the interface that is rebuilt there is one of base classes
    "runtime/effects/segment_wise/interfaces.py": {"ABC"},
    "runtime/effects/segment_wise/strategies.py": {"ABC", "StalenessControlStrategy"},
    "runtime/effects/segment_wise/capacity.py": {"CapacityModifier"},
    "runtime/effects/segment_wise/containers.py": {"RolloutCache", "RolloutQueue"},
}


def test_classes_inherit_from_protocols_and_errors_alone(nodes: Parsed) -> None:
    strange = []
    for path in SHIPPED:  # a recipe gives some methods of Recipe, a model some functions more
        allowed = {
            "Protocol",
            "Generic",
            "Exception",
            "TypedDict",
            "Recipe",
            "ActorCritic",
            "ActorQ",
            "ActionValues",
        } | ASKED_FOR.get(path.as_posix(), set())
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                bases = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
                strange += [(path, node.name, base) for base in bases if base not in allowed and base[-5:] != "Error"]
    assert strange == []


# --- what an import brings with it ---

NEVER = words("gymnasium hypothesis monarch openai optuna pykeen pytest ray transformers wandb")
HEAVY = NEVER | words("matplotlib rich safetensors tensorboard tyro")


def names(*layers: str, but: tuple[str, ...] = ()) -> list[str]:
    chosen = [path for path in FILES if path.parts[0] in layers and not path.as_posix().startswith(but)]
    return ["purestep", *map(name_of, chosen)]


@pytest.fixture(scope="module")
def loaded() -> tuple[list[str], list[str]]:
    """What a fresh interpreter holds of the watched modules: with pure code, and then with the runtime as well."""
    runtime = names("runtime", but=(*EFFECTS, "runtime/recipes", "runtime/cli/main.py"))
    program = (
        "import importlib, json, sys\n"
        f"for modules in {(names(*PURE), runtime)!r}:\n"
        "    for name in modules: importlib.import_module(name)\n"
        f"    print(json.dumps([name for name in {sorted(HEAVY)!r} if name in sys.modules]))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT.anchor, check=True)
    pure, both = map(json.loads, run.stdout.splitlines())
    return pure, both


@pytest.mark.slow
def test_pure_code_can_be_imported_without_what_it_does_not_need(loaded: tuple[list[str], list[str]]) -> None:
    pure, _ = loaded
    assert pure == []


def test_the_runtime_can_be_imported_without_what_only_effects_need(loaded: tuple[list[str], list[str]]) -> None:
    _, both = loaded
    assert NEVER.intersection(both) == set()


# --- the house itself ---


def folders() -> list[Path]:
    return sorted({path.parent for path in FILES})


def test_packages_are_the_folders() -> None:
    listed = PROJECT["tool"]["setuptools"]["packages"]
    there = ["purestep", *(".".join(("purestep", *folder.parts)) for folder in folders())]
    assert sorted(listed) == sorted(there)
    assert len(set(listed)) == len(listed)
    assert PROJECT["tool"]["setuptools"]["package-dir"] == {"purestep": "."}
    assert [folder for folder in folders() if not (ROOT / folder / "__init__.py").exists()] == []


def test_the_root_ships_two_python_files_and_a_marker_for_type_checkers() -> None:
    assert {path.name for path in ROOT.glob("*.py")} == {"__init__.py", "__main__.py"}
    assert (ROOT / "py.typed").read_bytes() == b""
    assert PROJECT["tool"]["setuptools"]["package-data"] == {
        "purestep": ["py.typed"],
        "purestep.runtime.inductor": ["*.h"],
    }


@pytest.mark.skipif(sys.platform == "win32", reason="git makes no links there without the right to")
def test_type_checkers_see_the_package_through_links() -> None:
    links = {path.name: os.readlink(path) for path in (ROOT / ".links" / "purestep").iterdir() if path.is_symlink()}
    entries = {"__init__.py", "__main__.py", "py.typed", *LAYERS}
    assert links == {name: f"../../{name}" for name in entries}
    assert all((ROOT / ".links" / "purestep" / name).samefile(ROOT / name) for name in entries)
    assert [path.name for path in (ROOT / ".links").iterdir()] == ["purestep"]


def test_tests_are_no_package_and_what_is_tested_is_this_checkout() -> None:
    import purestep.core

    assert not (ROOT / "tests" / "__init__.py").exists()
    assert Path(purestep.core.__file__).samefile(ROOT / "core" / "__init__.py")


def dependencies(listed: list[str]) -> set[str]:
    return {requirement.partition(">=")[0].partition("[")[0] for requirement in listed}


def test_no_queue_is_waited_for_that_a_signal_makes_endless() -> None:
    """In CPython 3.11 `SimpleQueue.get` has no limit where a signal's handler outlasts it: see `clock.received`."""
    texts = {path: (ROOT / path).read_text() for path in SHIPPED}
    waiting = [path for path, text in texts.items() if "import SimpleQueue" in text and ".get(timeout=" in text]
    assert waiting == []


def test_what_is_imported_is_what_is_required(nodes: Parsed) -> None:
    """Base libraries are those that files outside the extras import; hypothesis and pytest are an extra."""
    base = dependencies(PROJECT["project"]["dependencies"])
    extras: dict[str, Any] = PROJECT["project"]["optional-dependencies"]
    known = base.union(*(dependencies(listed) for listed in extras.values()))
    distributions = {"attr": "attrs", "attrs": "attrs", "yaml": "pyyaml"}
    for path in FILES:
        for name in imported(path, nodes(path)):
            first = name.partition(".")[0]
            if first not in sys.stdlib_module_names and first != "purestep":
                assert distributions.get(first, first) in known, f"{path} imports {name}"
    assert {"hypothesis", "pytest", "gymnasium"}.isdisjoint(base)
    assert dependencies(extras["properties"]) == {"hypothesis", "pytest"}
    assert known >= dependencies(extras["dev"]) >= dependencies(extras["properties"]) | dependencies(extras["gym"])
