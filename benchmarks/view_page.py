"""The page of `purestep view` in Chromium without a window: filters, colours, numbers, and no request to any network.

Runs tests/integration/recipes/test_view_browser.py, which trains a small model, opens the page of that run and reads the
document after its script has run; a page that would load or run something is there to show that the tests can fail. With
--screenshot RUN also takes docs/view.png of the page of a run that is there. Writes results/view_page.json; 1 unless every test
passed. Needs Chromium (apt-get install chromium).
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

from purestep.runtime.cli import main as command

from . import evidence
from .machines.engine_contracts import PASSED, cases

TESTS = evidence.ROOT / "tests" / "integration" / "recipes" / "test_view_browser.py"
PICTURE = evidence.ROOT / "docs" / "view.png"
BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1400,1000")


def outcomes() -> dict[str, str]:
    """What became of each test, and why where it did not pass. Raises: RuntimeError if pytest did not get to its end."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "cases.xml"
        words = ["-m", "slow", "-q", "-p", "no:cacheprovider", f"--junitxml={out}", str(TESTS)]
        told = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=evidence.ROOT, check=False)
        if told.returncode not in (0, 1):
            raise RuntimeError(f"pytest ended with exit code {told.returncode}")
        return {name: f"{became} {why}".strip() for _, name, became, why in cases(out.read_text())}


def screenshot(run: Path) -> None:
    """Takes a picture of the page of a run, with a conversation coloured by advantages."""
    with tempfile.TemporaryDirectory() as place:
        page = Path(place) / "view.html"
        if command.main(["view", str(run), "--out", str(page)]):
            sys.exit(1)
        address = f"{page.as_uri()}#{urlencode({'colour': 'advantage', 'sort': 'highest reward'})}"
        subprocess.run([BROWSER, *FLAGS, f"--screenshot={PICTURE}", address], check=True, capture_output=True)


def main() -> int:
    """Tests, and writes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.view_page", description=__doc__)
    parser.add_argument(
        "--screenshot", type=Path, metavar="RUN", help="a run's folder whose page becomes docs/view.png"
    )
    asked, start = parser.parse_args(), time.perf_counter()
    if not BROWSER:
        sys.exit("view_page: no Chromium here, wanted one on the path; apt-get install chromium")
    version = subprocess.run([BROWSER, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if asked.screenshot is not None:
        screenshot(asked.screenshot)
    found = outcomes()
    evidence.write("view_page", seconds=time.perf_counter() - start, figures={"browser": version, "tests": found})
    return int(not found or any(became != PASSED for became in found.values()))


if __name__ == "__main__":
    sys.exit(main())
