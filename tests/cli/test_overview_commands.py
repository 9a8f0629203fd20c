"""All commands of docs/overview.md, typed line by line in their order, in one deployment on the local cloud."""

import signal
import subprocess
import sys

import pytest

from tests.cli.cli_kit import ROOT
from tests.cli.test_readme import OVERVIEW
from tests.e2e.conftest import lab

__all__ = ["lab"]
pytestmark = pytest.mark.e2e
LIST = [line.partition("#")[0].strip() for line in OVERVIEW.splitlines() if line.startswith("tpuctl ")]
ELSEWHERE = {
    "tpuctl rehearse": 'lab.tpuctl("rehearse"',
    "tpuctl watch --on-vm": 'lab.tpuctl("watch", "--on-vm")',
    "tpuctl tunnel jupyter": 'lab.start("tunnel", "jupyter"',
}
"""What takes a minute or a VM, and how another test of tests/e2e types it."""
ANSWERED = {"tpuctl down", "tpuctl support"}
"""What asks before it acts; nobody sits at this terminal, so --yes stands for the answer."""
LIVE = {"tpuctl watch": "job runs", "tpuctl status --all -f": "e2e", "tpuctl logs -f": "step"}
"""What goes on until Ctrl-C, and a word of what it shows."""
SAID = {
    "tpuctl init": "Wrote tpuctl.yaml", "tpuctl plan": "e2e-tpu-g1", "tpuctl check": "e2e",
    "tpuctl up": "e2e is up", "tpuctl status": "e2e  TPU #1", "tpuctl explain": "e2e",
    "tpuctl cost": "e2e", "tpuctl report": "e2e-report.html", "tpuctl checkpoints": "complete",
    "tpuctl checkpoints fetch": "e2e-step-",
    "tpuctl push": "no changes", "tpuctl doctor": " passed", "tpuctl secret set K": "version 1",
    "tpuctl support": "nothing was sent", "tpuctl down": "data",
}  # fmt: skip
CODES = {"tpuctl notify test": 2}
"""The list's deployment has no receiver, and the command says so."""


def printed(lab, process):
    """Return all that a command has printed so far."""
    return (lab.folder / f"{process.number}.out").read_text() + lab.said(process)


def watched(lab, line):
    """Type a line that goes on, press Ctrl-C when it has shown something, and return all it printed."""
    process = lab.start(*line.split()[1:])
    lab.wait_for(f"{LIVE[line]!r} of {line}", lambda: LIVE[line] in printed(lab, process))
    process.send_signal(signal.SIGINT)
    lab.end(process, 130)
    return printed(lab, process)


def stored(lab, line):
    """Type a line that reads a value from standard input."""
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", *line.split()[1:]],
        cwd=lab.work, env=lab.environment, input="value", capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout + done.stderr


def typed(lab, line):
    """Type one line as a reader does; return all it printed."""
    if line in LIVE:
        return watched(lab, line)
    if line.startswith("tpuctl secret set"):
        return stored(lab, line)
    yes = ["--yes"] if line in ANSWERED else []
    done = lab.tpuctl(*line.split()[1:], *yes, expect=CODES.get(line, 0))
    if line == "tpuctl init":
        # The reader writes a deployment of his own into the file.
        lab.use_example(steps=150, save_every=2)
    if line == "tpuctl watch":
        lab.wait_for("a checkpoint", lambda: lab.at(2))
    return done.out + done.err


def test_every_line_of_the_list_does_what_it_says(lab):
    """In the order of the list; a new line is typed too, or this says where it is."""
    lab.tpuctl("local", "start", "--latency", "instant")
    for line in LIST:
        if line in ELSEWHERE:
            assert any(ELSEWHERE[line] in path.read_text() for path in (ROOT / "tests/e2e").glob("*.py"))
            continue
        assert line.startswith("tpuctl ")
        assert SAID.get(line, "") in typed(lab, line), line
    assert {"tpuctl init", "tpuctl up", "tpuctl down", "tpuctl support", *ELSEWHERE, *LIVE} <= set(LIST)
    assert not lab.machines()
