"""The hint at a newer version: who gets it, how often, and what is sent to the index, over a real terminal."""

import json
import os
import pty
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from orchestrator import __version__
from orchestrator.cli import new_version
from orchestrator.cli.new_version import DAY, INDEX, OFF, latest, newer, wanted
from tests.cli.cli_kit import ROOT
from tests.kit.waiting import until

SAID = "tpuctl 99.1 is out"
WORD = "no-such-command"
"""It is refused before anything heavy is imported."""


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    """Reach the index of a test without whatever stands between this computer and the network."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@contextmanager
def index(body, status=200):
    """Yield the address of a package index that answers *body*, and what it was asked with."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, dict(self.headers)))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Keep the test's output clean."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/pypi/tpuctl/json", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def release(version, **info):
    """Return what an index says of a package."""
    return json.dumps({"info": {"version": version, **info}}).encode()


def _read(line):
    """Return what comes next; Linux answers with an error when nobody has the other end any more."""
    try:
        return os.read(line, 65536)
    except OSError:
        return b""


class UserTerminal:
    """A person's terminal with a cache folder of its own; *piped* names what does not go there."""

    def __init__(self, folder, address):
        self.folder, self.address, self.variables = folder, address, {}
        self.stored = folder / "tpuctl" / "update.json"

    def type(self, *, piped=""):
        """Type a word that ends at once, and return what the terminal shows."""
        ours, theirs = pty.openpty()
        retained = {name: value for name, value in os.environ.items() if name not in {OFF, "CI"}}
        mine = {"XDG_CACHE_HOME": str(self.folder), "PYTHONPATH": str(ROOT), INDEX: self.address}
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator", WORD], cwd=self.folder,
            env={**retained, **mine, **self.variables}, stdout=theirs,
            **{name: subprocess.DEVNULL if name == piped else theirs for name in ("stdin", "stderr")},
        )  # fmt: skip
        os.close(theirs)
        shown = b"".join(iter(lambda: _read(ours), b""))
        os.close(ours)
        assert process.wait() == 2, shown
        return shown.decode().replace("\r\n", "\n")

    def held(self):
        """Return what is remembered."""
        return json.loads(self.stored.read_bytes()) if self.stored.exists() else {}

    def remember(self, **held):
        """Be a terminal with a past."""
        self.stored.parent.mkdir(exist_ok=True)
        self.stored.write_text(json.dumps(held))

    def looked_up(self):
        """Wait until the other process has written down what it has found."""
        until(lambda: "latest" in self.held(), "somebody has asked the index", 120, 0.01)


@pytest.fixture
def terminal(tmp_path):
    """Give a terminal, before an index whose newest release is 99.1."""
    with index(release("99.1")) as (address, asked):
        made = UserTerminal(tmp_path, address)
        made.asked = asked
        yield made


def test_the_next_command_says_it_once_a_day(terminal):
    """The first one has only had it looked up, and the index learns nothing but that somebody asks."""
    assert SAID not in terminal.type()
    terminal.looked_up()
    ((path, headers),) = terminal.asked
    assert path == "/pypi/tpuctl/json"
    assert set(headers) == {"Accept-Encoding", "Host", "User-Agent", "Connection"}
    assert headers["User-Agent"] == "tpuctl"
    shown = terminal.type()
    assert f"\n{SAID}, this is {__version__}\n  next:  pip install --upgrade tpuctl " in shown
    assert shown.endswith(f"{OFF}=1)\n")
    assert SAID not in terminal.type()
    assert len(terminal.asked) == 1


@pytest.mark.parametrize("ago", [DAY + 60, -DAY])
def test_after_a_day_it_is_said_and_asked_again(terminal, ago):
    """Also when the clock was ahead."""
    past = time.time() - ago
    terminal.remember(latest="99.1", told=past, asked=past)
    assert SAID in terminal.type()
    assert past not in (terminal.held()["asked"], terminal.held()["told"])


def test_programs_and_those_who_said_no_hear_and_ask_nothing(terminal):
    """Neither is the file touched."""
    terminal.remember(latest="99.1")
    for piped in ("stdin", "stderr"):
        assert SAID not in terminal.type(piped=piped)
    for variables in ({OFF: "1"}, {"CI": "1"}, {INDEX: ""}):
        terminal.variables = variables
        assert SAID not in terminal.type()
    assert terminal.held() == {"latest": "99.1"}
    assert terminal.asked == []


@pytest.mark.parametrize(
    "words",
    [(), ("--help",), ("status", "--json"), ("demo",), ("rehearse",), ("local", "stop"),
     ("up", "--cloud", "local"), ("up", "--cloud=local"), ("completion", "bash")],
)  # fmt: skip
def test_words_after_which_nothing_is_said(words):
    """A program reads, or it was a rehearsal."""
    named = {INDEX: "https://index.example/tpuctl/json"}
    assert not wanted(words, named)
    assert wanted(("status",), named)
    assert not wanted(("status",), {**named, "TPUCTL_CLOUD": "local"})


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"{}", release("1.0rc1"), release("2.0", yanked=True), release("9\x1b[2J"),
     release(7)],
)  # fmt: skip
def test_an_index_that_names_no_release(body):
    """Nothing of such an answer is stored."""
    with index(body) as (address, _), pytest.raises((ValueError, AttributeError)):
        latest(address)


def test_a_package_that_was_never_published():
    """The index answers 404, or cannot be reached."""
    with index(b"{}", 404) as (address, _), pytest.raises(OSError, match="404"):
        latest(address)
    with pytest.raises(OSError, match="refused"):
        latest(address)
    with pytest.raises(ValueError, match="address"):
        latest("file:///etc/passwd")


@pytest.mark.parametrize(
    ("found", "answer"),
    [("0.2", True), ("0.1.1", True), ("0.10.0", True), ("0.1", False), ("0.1.0.0", False), ("0.0.9", False),
     ("1.0rc1", False), ("", False), (None, False), (2, False)],
)  # fmt: skip
def test_what_counts_as_newer(found, answer):
    """Numbers, not texts; no candidates."""
    assert newer(found, "0.1.0") is answer


@pytest.mark.parametrize("text", ["", "[]", "{", '{"told": "x", "latest": 3}'])
def test_a_damaged_file_is_one_that_knows_nothing(text, tmp_path, monkeypatch, capsys):
    """The lookup begins again."""
    started = []
    monkeypatch.setattr(new_version, "_ask_index", started.append)
    stored = tmp_path / "update.json"
    stored.write_text(text)
    new_version._report(stored, "0.1.0", 5 * DAY)
    assert started == [stored]
    assert json.loads(stored.read_text())["asked"] == 5 * DAY
    assert capsys.readouterr() == ("", "")


def test_a_cache_that_cannot_be_written_is_no_news(monkeypatch, tmp_path, capsys):
    """The command has ended as it has ended."""
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(new_version, "_state_path", lambda: tmp_path / "file" / "update.json")
    monkeypatch.setattr(new_version, "wanted", lambda *_: True)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    started = []
    monkeypatch.setattr(new_version, "_ask_index", started.append)
    new_version.report_newer(("status",), "0.1.0")
    assert (capsys.readouterr(), started) == (("", ""), [])


def test_the_file_in_the_cache_is_the_users(terminal):
    """Where platformdirs says that caches are."""
    assert terminal.stored == Path(terminal.folder) / "tpuctl" / "update.json"
    terminal.type()
    assert terminal.stored.exists()
