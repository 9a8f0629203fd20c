"""Questions on a terminal: what was typed before them is no answer."""

import os
import pty
import re
import select
import sys
from pathlib import Path

import click
import pytest

import orchestrator.cli
from orchestrator.cli.questions import approved, confirm, confirm_name
from orchestrator.cli.views.event_lines import EventPrinter

ASK = {
    "confirm": lambda: confirm("Delete the machines?", yes=False),
    "confirm_name": lambda: confirm_name("demo", "The data cannot be brought back.", yes=False),
    "the watcher's question": lambda: EventPrinter().ask("Go on?"),
    "approved": lambda: approved("Delete it too?") or sys.exit(1),
}


@pytest.fixture
def keyboard(monkeypatch):
    """Give the other side of a terminal; what is asked there is answered with the text in `answers`."""
    master, slave = pty.openpty()
    answers = ["no"]

    def answer(_prompt, *_):
        os.write(master, f"{answers.pop()}\n".encode())
        return sys.stdin.readline().rstrip("\n")

    with os.fdopen(slave, "r") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(click.termui, "visible_prompt_func", answer)
        yield master, slave, answers
    os.close(master)


@pytest.mark.parametrize("typed", ["y", "demo"])
@pytest.mark.parametrize("question", ASK)
def test_keys_typed_before_a_question_do_not_answer_it(question, typed, keyboard):
    """Somebody who typed ahead has not read what goes."""
    master, slave, _ = keyboard
    os.write(master, f"{typed}\n".encode())
    # The line has arrived when the terminal can be read.
    assert select.select([slave], [], [], 10)[0]
    with pytest.raises((SystemExit, click.Abort, click.exceptions.Exit)):
        ASK[question]()


@pytest.mark.parametrize(("question", "typed"), [("confirm", "y"), ("confirm_name", "demo")])
def test_the_answer_to_the_question_counts(question, typed, keyboard):
    """What was discarded is only what came before."""
    master, _, answers = keyboard
    os.write(master, b"no\n")
    answers[:] = [typed]
    ASK[question]()


def test_every_question_of_the_command_line_discards_what_was_typed_before():
    """A question asked in another way would be answered by keys of before."""
    folder = Path(orchestrator.cli.__file__).parent
    asks = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if re.search(r"click\.(confirm|prompt)\(", path.read_text())
    }
    # A value that is asked for approves nothing.
    assert asks == {"questions.py", "commands/secret.py"}
