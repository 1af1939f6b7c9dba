"""`purestep view RUN`: a page with the settings, curves, evaluations and conversations of a run."""

from pathlib import Path

import tyro

from ..effects.layout import PAGE
from ..effects.reporting.page_file import check_page, save_page
from ..effects.reporting.run_page import run_page, steps_of
from ..runs.arguments import check_whole
from ..runs.page_title import title_and_settings
from .common import loading

NOWHERE = Path()


def view_command(words: list[str]) -> int:
    """`purestep view RUN`: writes the page and prints its path."""

    def view(run: tyro.conf.Positional[Path], /, *, out: Path = NOWHERE, steps: str = "", megabytes: int = 32) -> int:
        """Write a page of a run, to be opened in a browser: curves, evaluations, the conversations it was trained on.

        The page loads nothing from anywhere. Of a run that is under way it shows what there is.

        Args:
            run: the run's folder
            out: the page; by default view.html in the run's folder
            steps: the steps whose conversations the page has, such as 40-60; by default all
            megabytes: of conversations on the page, at most; of more, steps evenly spread
        """
        check_whole("--megabytes", megabytes, 1, 1024)
        chosen = steps_of(steps)
        loading(run)
        place = check_page(run / PAGE if out == NOWHERE else out)
        print(save_page(run_page(run, title_and_settings(run), steps=chosen, most=megabytes << 20), place))
        return 0

    return tyro.cli(view, args=words, prog="purestep view")
