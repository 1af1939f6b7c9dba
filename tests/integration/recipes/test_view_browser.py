"""The page of a run in a browser, Chromium without a window: filters, colours, numbers, and that no text of a run runs."""

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import cache
from html import unescape
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from attrs import define, field, frozen

from purestep.runtime.cli import main
from purestep.runtime.effects.reporting.page_file import save_page
from purestep.runtime.effects.reporting.run_page import About, run_page, steps_of

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((found for name in BROWSERS if (found := shutil.which(name))), "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BROWSER, reason="there is no Chromium here (apt-get install chromium)"),
]
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"),
    *("--virtual-time-budget=4000", "--dump-dom"),
)
ALONE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
ZORPLEX = [
    *("--width", "16", "--layers", "1", "--heads", "2", "--warm-steps", "20", "--demonstrations", "24"),
    *("--warm-batch", "4", "--steps", "3", "--minibatches", "1", "--groups", "3", "--samples", "4", "--held-out", "4"),
    *("--max-turns", "3", "--max-new-tokens", "8", "--capacity", "64"),
]


@frozen
class Token:
    """A coloured token of the conversation that is open."""

    id: int
    style: str


@define
class Shown(HTMLParser):
    """The content of a page as it is after its script has run."""

    text: str
    title: str = ""
    count: str = ""
    names: list[str] = field(factory=list)  # of listed conversations
    open: str = ""
    tokens: list[Token] = field(factory=list)
    words: list[str] = field(factory=list)  # texts of the open conversation
    numbers: str = ""  # of the chosen token
    charts: int = 0
    within: list[str] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        held = {name: value or "" for name, value in attrs}
        if tag not in ("input", "meta", "br"):
            self.within.append(held.get("id") or held.get("class") or f"<{tag}>")
        if "data-name" in held:
            self.names.append(held["data-name"])
            self.open = held["data-name"] if held["aria-current"] == "true" else self.open
        if "data-token" in held:
            self.tokens.append(Token(int(held["data-token"]), held.get("style", "")))
        self.charts += "data-chart" in held

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("input", "meta", "br"):
            self.within.pop()

    def handle_data(self, data: str) -> None:
        if "<title>" in self.within:
            self.title += data
        if "count" in self.within:
            self.count += data
        if "numbers" in self.within:
            self.numbers += data
        if "text" in self.within:
            self.words.append(data)


def dumped(page: Path, home: Path, **state: object) -> str:
    """The document after its script has run, with this state in its address."""
    address = f"{page.absolute().as_uri()}#{urlencode(state)}"
    words = [BROWSER, *FLAGS, ALONE, f"--user-data-dir={home / 'profile'}", address]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    assert "Uncaught" not in done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    home = tmp_path_factory.mktemp("runs") / "one"
    assert main.main(["train", "zorplex", "--run", str(home), *ZORPLEX]) == 0
    assert main.main(["view", str(home)]) == 0
    return home


@pytest.fixture(scope="module")
def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in (run / "conversations.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def show(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    home = tmp_path_factory.mktemp("browser")

    @cache
    def shown(**state: object) -> Shown:
        return Shown(dumped(run / "view.html", home, **state))

    return shown


def name(row: dict[str, Any]) -> str:
    return f"{row['step']}/{row['id']}"


def text_of(row: dict[str, Any]) -> str:
    return "\n".join(message["text"] for message in row["messages"])


# --- filters ---


def test_all_conversations_are_listed_and_the_first_is_open(show: Any, rows: list[dict[str, Any]]) -> None:
    page = show()
    assert page.title == "zorplex by grpo, 3 steps"
    assert page.charts >= 8
    assert page.count == "36 of 36 conversations"
    assert page.names == [name(row) for row in rows]
    assert page.open == name(rows[0])
    assert "".join(page.words) == "".join(message["text"] for message in rows[0]["messages"])


def test_filters_show_what_they_name(show: Any, rows: list[dict[str, Any]]) -> None:
    label = rows[-1]["label"]
    middle = sorted(row["reward"] for row in rows)[len(rows) // 2]
    word = "LOOKUP"
    cases: list[tuple[dict[str, object], Any]] = [
        ({"step": 2}, lambda row: row["step"] == 2),
        ({"step": 3, "label": label}, lambda row: row["step"] == 3 and row["label"] == label),
        ({"end": "max_steps"}, lambda row: row["end"] == "max_steps"),
        ({"min": middle}, lambda row: row["reward"] >= middle),
        ({"max": middle - 0.01}, lambda row: row["reward"] <= middle - 0.01),
        ({"text": word.lower()}, lambda row: word in text_of(row)),
        ({"text": "nobody says this"}, lambda row: False),
    ]
    sizes = set[int]()
    for state, fits in cases:
        wanted = [name(row) for row in rows if fits(row)]
        page = show(**state)
        assert page.names == wanted, state
        assert page.count == f"{len(wanted)} of 36 conversations"
        assert page.open == (wanted[0] if wanted else "")
        sizes.add(len(wanted))
    assert len(sizes) > 3


def test_the_order_is_that_of_rewards(show: Any, rows: list[dict[str, Any]]) -> None:
    rewards = {name(row): row["reward"] for row in rows}
    for sort, sign in (("lowest reward", 1), ("highest reward", -1)):
        found = [sign * rewards[each] for each in show(sort=sort).names]
        assert found == sorted(found)
        assert len(set(found)) > 1


# --- colours and numbers ---


def alpha(style: str) -> float:
    """The strength of a token's colour."""
    found = re.search(r"rgba\(var\(--\w+\), ([\d.]+)\)", style)
    assert found, style
    return float(found[1])


def several(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A conversation with advantages other than 0."""
    return next(row for row in rows if any(column(row, "advantages")))


def column(row: dict[str, Any], which: str) -> list[Any]:
    return [value for message in row["messages"] for value in message.get(which, [])]


def sampled(row: dict[str, Any]) -> list[int]:
    return [token for message in row["messages"] if "pieces" in message for token in message["ids"]]


def test_tokens_are_coloured_by_log_prob(show: Any, rows: list[dict[str, Any]]) -> None:
    row = several(rows)
    page = show(open=name(row), colour="log-prob")
    assert page.open == name(row)
    assert [token.id for token in page.tokens] == sampled(row)
    for token, value in zip(page.tokens, column(row, "log_probs"), strict=True):
        assert alpha(token.style) == pytest.approx(min(1.0, -value / 6) * 0.65, abs=2e-3)
        assert "--low" in token.style


def test_tokens_are_coloured_by_advantage(show: Any, rows: list[dict[str, Any]]) -> None:
    row = several(rows)
    group = [one for one in rows if (one["step"], one["group"]) == (row["step"], row["group"])]
    largest = max(abs(value) for one in group for value in column(one, "advantages"))
    for one in group[:2]:
        page = show(open=name(one), colour="advantage")
        for token, value in zip(page.tokens, column(one, "advantages"), strict=True):
            assert alpha(token.style) == pytest.approx(abs(value) / largest * 0.5, abs=2e-3)
            assert ("--low" if value < 0 else "--high") in token.style


def test_tokens_are_coloured_by_version_or_not_at_all(show: Any, rows: list[dict[str, Any]]) -> None:
    row = several(rows)
    assert {alpha(token.style) for token in show(open=name(row), colour="version").tokens} == {0.3}
    assert {token.style for token in show(open=name(row), colour="none").tokens} == {""}


def test_a_token_shows_its_numbers(show: Any, rows: list[dict[str, Any]]) -> None:
    row = several(rows)
    page = show(open=name(row), colour="log-prob", token=1)
    numbers = unescape(page.numbers)
    piece, log_prob = column(row, "pieces")[1], column(row, "log_probs")[1]
    assert numbers.startswith(f"{json.dumps(piece, ensure_ascii=False)} id {sampled(row)[1]}, log-prob ")
    values = [float(value) for value in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", numbers.partition("log-prob ")[2])]
    assert values[0] == pytest.approx(log_prob, rel=1e-3)
    assert values[2] == pytest.approx(column(row, "advantages")[1], rel=1e-3)
    assert values[3] == column(row, "versions")[1]


# --- hostile texts ---


@pytest.fixture
def visits() -> Iterator[tuple[str, list[str]]]:
    """The address of a web server on this machine, and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(404)
            self.end_headers()

        def log_message(self, format: str, *given: Any) -> None:
            """Print nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def hostile(address: str) -> str:
    owned = "document.title='owned'"
    return (
        f"</script></title></style>--><script>{owned}</script><img src='{address}/image' onerror=\"{owned}\">"
        f"<link rel=stylesheet href={address}/style><script src={address}/script></script><svg onload={owned}>"
    )


def told(text: str) -> dict[str, Any]:
    said: dict[str, Any] = {
        "role": "assistant",
        "ids": [7, 8],
        "text": f"{text}!",
        "pieces": [text, "!"],
        "finish_reason": text,
    }
    said |= {"log_probs": [-0.5, "nan"], "versions": [1, 2], "advantages": [1.0, 0.0], "reward": 1.0}
    facts = {"id": 4, "group": 1, "reward": 1.0, "parts": {text: 1.0}, "end": text, "label": text, "error": text}
    return {"step": 1, **facts, "messages": [{"role": "user", "ids": [1], "text": text}, said]}


def test_the_browser_would_run_it_and_load_it_from_any_other_page(tmp_path: Path, visits: Any) -> None:
    """So the next test can fail."""
    address, asked = visits
    (tmp_path / "open.html").write_text(f"<!DOCTYPE html><title>mine</title>{hostile(address)}")
    assert "<title>owned</title>" in dumped(tmp_path / "open.html", tmp_path)
    assert {"/image", "/style", "/script"} <= set(asked)


def test_no_text_of_a_run_is_run_or_loads_anything(tmp_path: Path, visits: Any) -> None:
    address, asked = visits
    text = hostile(address)
    (tmp_path / "conversations.jsonl").write_text(json.dumps(told(text), separators=(",", ":")) + "\n")
    row = {"iteration": 1, text: 1.0}
    (tmp_path / "metrics.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps({**row, 'iteration': 2, text: 2.0})}\n")
    about = About(title=text, settings={text: text}, changed=frozenset({text}), absent=text)
    page = save_page(run_page(tmp_path, about, steps=steps_of(""), most=1 << 20), tmp_path / "view.html")
    for state in ({}, {"label": text}, {"text": "onerror"}, {"open": text, "colour": text, "sort": text, "step": text}):
        shown = Shown(dumped(page, tmp_path, **state))
        assert shown.title == text
        assert shown.count == "1 of 1 conversations"
        assert "".join(shown.words) == f"{text}{text}!"
    assert asked == []
