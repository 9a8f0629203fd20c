"""What `logs` prints: whole lines of the job, and where a machine's log breaks off."""

import json

import pytest

from orchestrator.agent.end_requests import EndingKind
from orchestrator.agent.telemetry.logs import SEGMENT
from orchestrator.cli.commands.logs import command
from orchestrator.cli.views.logs import JobLines, show_event
from orchestrator.contract.agent_lines import (
    ENDINGS,
    agent_line,
    attempt_text,
    begins_attempt,
    ends_agent,
    is_agent_line,
    resume_text,
)
from orchestrator.domain.events import Event
from tests.kit.cloud import VirtualCloud
from tests.kit.user import User

LOST = "--- TPU #1 was lost here; the last lines that it wrote may be lost with it ---"


def test_the_help_says_why_since_prints_older_lines():
    """A whole file of the log is printed, as its lines have no times: of what size is what the agent writes."""
    said = " ".join((command.help or "").split())
    assert f"in files of {SEGMENT >> 10} kB" in said
    assert "so older lines may come first" in said


@pytest.mark.parametrize(
    ("path", "folder", "said"),
    [
        ("/m/checkpoints/step_5/a.npz", "/m/checkpoints", "$TPUCTL_CHECKPOINT_DIR/step_5/a.npz"),
        ("/m/checkpoints", "/m/checkpoints/", "$TPUCTL_CHECKPOINT_DIR"),
        ("/m/checkpoints-2/a.npz", "/m/checkpoints", "/m/checkpoints-2/a.npz"),
        ("gs://b/checkpoints/5", "gs://b/checkpoints", "$TPUCTL_CHECKPOINT_DIR/5"),
    ],
)
def test_a_checkpoint_in_the_folder_of_the_job_is_named_without_the_path_of_the_machine(path, folder, said):
    """The job knows the folder by its variable; on the local cloud its path alone fills a screen."""
    assert resume_text(path, folder) == f"checkpoint: {said} (also in $TPUCTL_RESUME)"


def printed(capsys, *shown, as_json=False, numbered=False):
    """Return what is printed of (incarnation, worker, line)."""
    view = JobLines(as_json, raw=False, numbered=numbered)
    for line in shown:
        view.show(*line)
    return capsys.readouterr().out.splitlines()


def ended(capsys, *shown, found=True, deleted=True, **how):
    """Return what is printed after the lines, on stdout and on stderr."""
    view = JobLines(how.get("as_json", False), raw=False, numbered=how.get("numbered", False))
    for line in shown:
        view.show(*line)
    capsys.readouterr()
    view.end(found=found, deleted=deleted)
    said = capsys.readouterr()
    return said.out.splitlines(), said.err.splitlines()


def start(incarnation, attempt=1):
    """Return the line before a start of the job."""
    return agent_line(
        attempt_text(incarnation, 0, attempt, "resume from step 780", "the checkpoint is complete")
    )


def test_a_machine_is_called_as_everywhere():
    """`TPU #3` as in `status`; buckets keep logs that call it an incarnation."""
    assert start(3).startswith("--- TPU #3, worker 0, attempt 1: resume from step 780 (")
    old = "--- incarnation 3, worker 0, attempt 1: resume from step 780 (checkpoint complete: manifest) ---"
    assert begins_attempt(start(3))
    assert begins_attempt(old)
    assert not begins_attempt(LOST)
    assert not begins_attempt("TPU #3, worker 0, attempt 1: printed by the job")


@pytest.mark.parametrize("numbered", [False, True])
def test_a_line_of_the_agent_fits_the_terminal(capsys, monkeypatch, numbered):
    """A long one goes on in the next line, indented; a path is never cut."""
    path = "/opt/" + "a" * 90
    for text in (
        attempt_text(12, 15, 3, "start from the beginning", "no checkpoint yet"),
        f"it is in {path} now",
    ):
        line = agent_line(text)
        # Elsewhere it is one line, which a search for a sentence finds.
        assert printed(capsys, (1, 0, line), numbered=numbered) == [f"w0 {line}" if numbered else line]
        with monkeypatch.context() as context:
            context.setenv("COLUMNS", "80")
            shown = printed(capsys, (1, 0, line), (1, 0, "x" * 100), numbered=numbered)
        assert shown.pop().endswith("x" * 100)
        first, *others = (part.removeprefix("w0 ") for part in shown)
        assert is_agent_line(" ".join([first, *(part.strip() for part in others)]))
        assert " ".join([first, *(part.strip() for part in others)]) == line
        assert others
        # With the same mark as the first one, each part would read as a message of its own.
        assert all(part.startswith("    ") and part.strip() != "---" for part in others)
        assert all(len(part) <= 80 or path in part for part in shown)


def test_a_text_with_line_feeds_is_one_line_of_the_agent():
    """A message of another program may have several."""
    assert agent_line("gave up: first\n  second") == "--- gave up: first second ---"


def test_each_way_in_which_an_agent_ends_is_known():
    """The readers of logs know the agent's own words."""
    assert sorted(ENDINGS) == sorted(kind.in_log for kind in EndingKind)
    assert not ends_agent(agent_line("attempt 1 failed: exit status 1"))


def test_a_log_that_breaks_off_says_so_before_the_next_machine(capsys):
    """A killed machine takes its last lines with it; the jump in the steps has a reason."""
    lines = [(1, 0, start(1)), (1, 0, "step 720"), (3, 0, start(3)), (3, 0, "step 800")]
    assert printed(capsys, *lines) == [start(1), "step 720", LOST, start(3), "step 800"]
    old = "--- incarnation 1, worker 0, attempt 1: start from the beginning (no checkpoint yet) ---"
    assert printed(capsys, (1, 0, old), (3, 0, start(3))) == [old, LOST, start(3)]
    assert printed(capsys, (1, 0, "step 720"), (3, 0, start(3))) == ["step 720", LOST, start(3)], "a tail"


@pytest.mark.parametrize("kind", list(EndingKind))
def test_a_machine_that_said_its_end_was_not_lost(kind, capsys):
    """Whatever it was; what is still written after that changes nothing."""
    end = agent_line(f"{kind.value}: the reason")
    lines = [(1, 0, start(1)), (1, 0, end), (1, 0, agent_line("packages are kept")), (2, 0, start(2))]
    assert printed(capsys, *lines) == [line for *_, line in lines]


def test_a_machine_that_came_back_and_was_lost_later_has_no_end(capsys):
    """A reboot is an end too, but not its last one."""
    lines = [(1, 0, start(1)), (1, 0, agent_line("notice: a reboot")), (1, 0, start(1, 2)), (2, 0, start(2))]
    assert printed(capsys, *lines)[-2:] == [LOST, start(2)]


def test_each_worker_is_lost_for_itself_and_programs_get_the_log_alone(capsys):
    """Of two workers one had its notice; --json has what the job's log holds, and nothing else."""
    lines = [
        (1, 0, start(1)), (1, 0, agent_line("notice: it goes")), (1, 1, "step 7"), (2, 0, "a"), (2, 1, "b"),
    ]  # fmt: skip
    assert printed(capsys, *lines, numbered=True)[-3:] == ["w0 a", f"w1 {LOST}", "w1 b"]
    rows = [json.loads(line) for line in printed(capsys, *lines, as_json=True)]
    assert [row["line"] for row in rows] == [line for *_, line in lines]


@pytest.mark.parametrize("words", [(), ("--events",), ("-f",)])
def test_logs_before_up_name_what_is_missing(words, tmp_path):
    """Not the answer of Cloud Storage about a bucket that nobody has heard of."""
    with VirtualCloud(tmp_path).open() as cloud:
        said = User(cloud).run("logs", *words)
    assert (said.code, "TPU-130" in said.err, "is not up: it has no log" in said.err) == (2, True, True)
    assert "404" not in said.err


@pytest.mark.parametrize("width", ["80", ""], ids=["terminal", "file"])
def test_an_event_is_broken_between_words_on_a_terminal_only(width, capsys, monkeypatch):
    """What reads a file or a pipe gets one line for each event."""
    monkeypatch.setenv("COLUMNS", width)
    text = (
        f"Creating TPU {'a' * 30} (v5litepod-1) in us-central1-a: there is none yet, and a bucket before it"
    )
    show_event(Event(1_800_000_000.0, "tpu-create", text), as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(line.strip() for line in lines).endswith(f"  {text}")
    assert (max(map(len, lines)) <= 80) == bool(width)
    assert all(line.startswith(" " * 21) for line in lines[1:])
    assert len(lines) == (2 if width else 1)


def test_a_log_that_down_has_cut_off_says_so_at_its_end(capsys):
    """A machine that runs, or whose agent wrote its end, has lost nothing; programs get the log alone."""
    cut = "--- TPU #2 was deleted here; the last lines that it wrote may be lost with it ---"
    lines = [(1, 0, start(1)), (2, 0, start(2)), (2, 0, "step 7"), (2, 1, "step 7")]
    assert ended(capsys, *lines) == ([cut, cut], [])
    assert ended(capsys, *lines, numbered=True) == ([f"w0 {cut}", f"w1 {cut}"], [])
    assert ended(capsys, *lines, deleted=False) == ([], [])
    assert ended(capsys, *lines, as_json=True) == ([], [])
    assert ended(capsys, (1, 0, start(1)), (1, 0, agent_line(f"{EndingKind.DONE.in_log}: it ended"))) == (
        [],
        [],
    )
    assert ended(capsys, found=False) == ([], ["no log yet; see `tpuctl status`"])
