"""What is printed while another process draws its live line on the same terminal."""

import io
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from orchestrator.app.context.reporter import Reporter
from orchestrator.app.rehearsal.sandbox import Sandbox
from orchestrator.cli.views.event_lines import OverLiveLine
from orchestrator.cli.views.live_line import LiveLine


class RecordingTerminal(io.StringIO):
    """A terminal that keeps each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        """Keep what is written."""
        self.writes += [text] if text else []
        return len(text)

    def isatty(self) -> bool:
        """Say yes."""
        return True


def on_terminal(monkeypatch):
    """Put a terminal in the place of stderr; not a fixture, since pytest sets stderr anew before the test."""
    found = RecordingTerminal()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    return found


def test_a_line_is_erased_and_replaced_in_one_write(monkeypatch):
    """Between two writes the other process may draw its line, and the text would be glued to it."""
    terminal = on_terminal(monkeypatch)
    OverLiveLine().say("$ tpuctl local preempt toy-tpu-g1")
    assert terminal.writes == ["\r\x1b[2K$ tpuctl local preempt toy-tpu-g1\n"]


def test_a_command_beside_a_live_line_is_followed_by_an_empty_line(monkeypatch):
    """A live line of two lines erases the one above its own when it is drawn again."""
    on_terminal(monkeypatch)
    said: list[str] = []

    class Said(Reporter):
        def say(self, text, *, style=""):
            said.append(text)

    done = SimpleNamespace(returncode=0, stderr="Preemption notice sent to toy-tpu-g1\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    sandbox = Sandbox.__new__(Sandbox)
    sandbox.work, sandbox._reporter = Path("work"), Said()
    sandbox.run_beside("local", "preempt", "toy-tpu-g1")
    assert said == ["$ tpuctl local preempt toy-tpu-g1\n", "Preemption notice sent to toy-tpu-g1\n"]


def test_a_kill_leaves_the_terminal_with_its_cursor(monkeypatch):
    """Nothing runs after SIGKILL, so the cursor is never hidden for longer than a write."""
    terminal = on_terminal(monkeypatch)
    line = LiveLine(lambda *_: "working")
    line.start()
    written = "".join(terminal.writes)
    line.stop()
    assert written.rfind("\x1b[?25h") > written.rfind("\x1b[?25l")
