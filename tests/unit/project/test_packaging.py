"""What a user installs: a wheel built from the sdist, an editable checkout, a worker process that imports either."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
LAYERS = ("core", "algorithms", "runtime", "properties")
REPORT = """
import importlib.metadata, multiprocessing, pathlib, sys
import torch

def draw(seed):
    from purestep.core import keys
    return keys.bits(keys.key(seed), (3,)).tolist()

if __name__ == "__main__":
    import purestep
    from purestep.core.record import record, check
    here = pathlib.Path(purestep.__file__).parent
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(draw, [7]) == [draw(7)]
    assert (here / "py.typed").exists()
    entries = importlib.metadata.entry_points(group="purestep.commands")
    assert [entry.name for entry in entries if entry.dist and entry.dist.name == "purestep"], "no commands"
    print(here)
"""


def run(*command: str | Path, cwd: Path) -> str:
    settings = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, cwd=cwd, env=settings, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, so that no build leaves its traces in the real one."""
    away = tmp_path_factory.mktemp("source") / "purestep"
    left = shutil.ignore_patterns(".git", ".venv", ".peers", "build", "dist", "*.egg-info", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, away, symlinks=True, ignore=left)
    return away


@pytest.fixture(scope="module")
def built(checkout: Path) -> Path:
    """The folder of the sdist and of the wheel that is built from it."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", checkout / "dist", checkout, cwd=checkout.parent)
    return checkout / "dist"


def environment(folder: Path) -> Path:
    """The interpreter of a new environment that sees the libraries of this one, though not what it has installed editable."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    where = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder)
    (Path(where) / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def install(python: Path, *what: str | Path) -> None:
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--ignore-installed")
    run(*pip, "--no-build-isolation", *what, cwd=python.parent)


def sources(folder: Path) -> set[str]:
    found = {
        path.relative_to(folder).as_posix()
        for layer in LAYERS
        for path in (folder / layer).rglob("*.*")
        if path.suffix in (".py", ".h")
    }
    return found | {"__init__.py", "__main__.py", "py.typed"}


def test_the_wheel_built_from_the_sdist_holds_the_package_and_nothing_else(checkout: Path, built: Path) -> None:
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        files = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert files == {f"purestep/{name}" for name in sources(checkout)}
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert packed >= sources(checkout) | {"pyproject.toml", "README.md", "LICENSE"}


def test_the_wheel_works_from_another_folder(built: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "env")
    install(python, *built.glob("*.whl"))
    (tmp_path / "report.py").write_text(REPORT)
    where = Path(run(python, tmp_path / "report.py", cwd=tmp_path))
    assert where.is_relative_to(tmp_path / "env"), where
    assert (python.parent / "purestep").exists(), "the command is missing"


def test_an_editable_checkout_works_and_sees_new_files(checkout: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "env")
    install(python, "--editable", checkout)
    (tmp_path / "report.py").write_text(REPORT)
    assert Path(run(python, tmp_path / "report.py", cwd=tmp_path)).samefile(checkout)
    new = checkout / "core" / "brand_new.py"
    new.write_text('"""A file that was not there when the package was installed."""\n\nNUMBER = 7\n')
    try:
        asked = "from purestep.core.brand_new import NUMBER; print(NUMBER)"
        assert run(python, "-c", asked, cwd=tmp_path) == "7"
    finally:
        new.unlink()


def test_the_version_is_the_project_s() -> None:
    assert f'version = "{importlib.metadata.version("purestep")}"' in (ROOT / "pyproject.toml").read_text()
