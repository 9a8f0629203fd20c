"""What people see while a command works: event lines, the live line, progress, status, the summary."""

import fcntl
import json
import os
import pty
import re
import struct
import sys
import termios
import threading
import time
from dataclasses import replace

import pytest

from orchestrator.cli.console import say
from orchestrator.cli.views.event_lines import REMINDER, EventPrinter
from orchestrator.cli.views.job_progress import ProgressLine, bar_of, live_texts, progress_text
from orchestrator.cli.views.status import resource_lines
from orchestrator.cli.views.summary import summary_lines
from orchestrator.config.load import read
from orchestrator.contract.phase import Phase
from orchestrator.domain.events import Event
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.observation import Absent, Node, NodeState, Present, World
from orchestrator.domain.one_pass import Pass
from orchestrator.domain.plan import Change, FailedChange, Kind, Plan, Verb
from orchestrator.domain.status import ResourceStatus
from orchestrator.domain.text.amounts import saved_text
from orchestrator.domain.wait import Wait
from orchestrator.errors import NotFoundError, QuotaError, RemoteError
from orchestrator.planning.tpu.next_zone import quota_wait
from orchestrator.report.recoveries import HEADINGS, LEGEND, PARTS, Recovery
from orchestrator.report.summary import Summary

T0 = 1_800_000_000.0
SPEC = read(
    b"name: mine\ntpu: {type: v5litepod-8, zones: [europe-west4-b]}\n"
    b"job: {command: python3 train.py, target_steps: 400}\n",
    "tpuctl.yaml", environ={},
)  # fmt: skip
GOES = Plan((Change(Kind.NODE, Verb.CREATE, "mine-tpu-g2", "it is PREEMPTED", "europe-west4-b", 2),))


def lines(capsys):
    """Return the lines on stderr without their time stamps."""
    out, err = capsys.readouterr()
    assert out == ""
    return [line.split("  ", 1)[1] for line in err.splitlines()]


def observed(at, plan=None, **heartbeat):
    """Return a pass that saw one worker's report."""
    report = Heartbeat(**{"incarnation": 1, "worker": 0, "phase": Phase.RUN, "updated": at, **heartbeat})
    world = World(Absent(), Absent(), Absent(), Present((report,)), observed_at=at)
    return Pass(world, plan or Plan())


def test_without_a_terminal_steps_alone_make_a_line_at_growing_pauses(capsys):
    """One sees soon that it trains, and the log file of a week stays readable: five minutes apart at most."""
    progress = ProgressLine(EventPrinter(), SPEC)
    progress.show(observed(T0), 0.5, 1.0)
    for second in range(1, 1800):
        progress.show(observed(T0 + second, step=second), 0.5, 1.0)
    at = [int(line.split(", ")[1].split()[1]) for line in lines(capsys)[1:]]
    assert at == [10, 30, 70, 150, 310, 610, 910, 1210, 1510]
    progress.show(observed(T0 + 1801, step=None, phase=Phase.RESTORE, incarnation=2), 0.5, 1.0)
    progress.show(observed(T0 + 1802, step=None, incarnation=2), 0.5, 1.0)
    for second in range(1803, 1850):
        progress.show(observed(T0 + second, step=second, incarnation=2), 0.5, 1.0)
    at = [line.split(", ")[1] for line in lines(capsys)[2:]]
    assert at == ["step 1812 of 400", "step 1832 of 400"], "after a change the pauses begin anew"


def test_phases_machines_and_the_first_checkpoint_of_each_are_said_at_once(capsys):
    """Also right after a line."""
    progress = ProgressLine(EventPrinter(), SPEC)
    progress.show(observed(T0, step=11), 0.5, 1.0)
    assert len(lines(capsys)) == 1
    at = T0 + 1
    progress.show(observed(at + 1, step=12, committed_step=10), 0.5, 1.0)
    progress.show(observed(at + 2, step=14, committed_step=14), 0.5, 1.0)
    progress.show(
        observed(at + 3, step=15, committed_step=14, phase=Phase.STOPPED, message="the notice came"), 1.5, 3.0
    )
    progress.show(observed(at + 4, incarnation=2, phase=Phase.BOOT), 1.5, 3.0)
    assert lines(capsys) == [
        "job runs, step 12 of 400, checkpoint at step 10, 0.5000 to 1.00 USD so far, TPU #1",
        "job stopped, step 15 of 400, checkpoint at step 14, 1.50 to 3.00 USD so far, TPU #1, the notice came",
        "machine boots, 1.50 to 3.00 USD so far, TPU #2",
    ]


def test_the_last_report_of_a_dead_machine_is_called_so(capsys):
    """A TPU that is being replaced is not said to run its job."""
    ProgressLine(EventPrinter(), SPEC).show(observed(T0, GOES, step=278, loss=2.206, rate=20.0), 0.1, 0.2)
    assert lines(capsys) == [
        "last report of the job, step 278 of 400, loss 2.206, 0.1000 to 0.2000 USD so far, TPU #1"
    ]
    ProgressLine(EventPrinter(), SPEC).show(observed(T0, GOES), 0.1, 0.2)
    assert lines(capsys) == [
        "last report of the job: no step reported yet, 0.1000 to 0.2000 USD so far, TPU #1"
    ]


def test_the_report_of_a_tpu_that_is_gone_is_its_last_also_while_the_next_one_has_to_wait(capsys):
    """Quota may hold the next create back; nothing runs meanwhile."""
    gone = Node("demo-tpu-g1", "us-central1-a", NodeState.PREEMPTED, 1)
    last = observed(T0, step=278)
    world = replace(last.world, nodes=Present((gone,)))
    ProgressLine(EventPrinter(), SPEC).show(replace(last, world=world), 0.1, 0.2)
    assert lines(capsys) == ["last report of the job, step 278 of 400, 0.1000 to 0.2000 USD so far, TPU #1"]


def test_after_a_resume_the_live_line_says_that_the_job_runs():
    """Its first report has a checkpoint and no step yet."""
    (report,) = observed(T0, committed_step=220).world.heartbeats.value
    assert (
        live_texts(report, SPEC, 0.1, 0.2)[0]
        == "job runs, checkpoint at step 220, 0.1000 to 0.2000 USD so far"
    )


def test_rate_and_remaining_time_and_budget_are_said(capsys):
    """Plain and live lines have them."""
    far = {"step": 120000, "reported_target_steps": 500000, "loss": 2.345, "rate": 3.21}
    far |= {"committed_step": 119000}
    (report,) = observed(T0, **far).world.heartbeats.value
    spec = replace(SPEC, job=replace(SPEC.job, target_steps=None))
    assert live_texts(report, spec, 12.34, 15.0)[0] == (
        "loss 2.345, 3.21 steps/s, checkpoint at step 119000, 12.34 to 15.00 USD so far"
    )
    assert bar_of(report, spec) == (0.24, "step 120000 of 500000, 32 h 53 min left")
    over = replace(report, step=500001)
    assert bar_of(over, spec)[1] == "step 500001 of 500000", "what is left is job.grace, to end by itself"
    assert bar_of(replace(report, reported_target_steps=None), spec) is None
    assert "loss 2.345, 3.21 steps/s, 32 h 53 min left" in progress_text(report, spec, 12.34, 15.0)
    endless = replace(report, reported_target_steps=None)
    assert "3.21 steps/s, checkpoint" in live_texts(endless, spec, 12.34, 15.0)[0]
    bounded = replace(spec, watch=replace(spec.watch, budget_usd=20.0))
    assert live_texts(report, bounded, 12.34, 15.0)[0].endswith("15.00 of 20 USD")


def test_a_wait_is_said_once_and_again_after_minutes(capsys):
    """Counting down to the next try is no news."""
    printer = EventPrinter()
    for second in range(0, int(REMINDER) + 10, 5):
        printer.waiting((Wait("TPU: next try", 400.0 - second, "no capacity"),), T0 + second)
    assert lines(capsys) == [
        "waiting: TPU: next try in 400 s, no capacity",
        "still waiting after 5 min 0 s: TPU: next try in 100 s, no capacity",
    ]


def test_the_live_line_counts_down_between_two_passes():
    """As `status` does, which may be asked at any moment."""
    printer = EventPrinter()
    printer.waiting((Wait("TPU: next try", 40.0),), T0)
    assert printer.line_text(T0 + 12) == "TPU: next try in 28 s (12 s so far)"
    printer.waiting((Wait("TPU: next try", 20.0),), T0 + 20)
    assert printer.line_text(T0 + 50) == "TPU: next try in 0 s (50 s so far)"


def test_a_failure_that_repeats_is_one_line_with_a_counter(capsys):
    """Hundreds of tries while nothing answers are one line, and one more every few minutes."""
    printer = EventPrinter()
    for tries in range(1, 41):
        at = T0 + 10 * (tries - 1)
        printer(Event(at, "failure", "no bucket (TPU-400)", {"tries": tries, "since": T0}))
    assert lines(capsys) == [
        "no bucket (TPU-400)",
        "still failing after 5 min 0 s, 31 tries: no bucket (TPU-400)",
    ]
    assert printer.line_text(T0 + 395) == "failing for 6 min 35 s, 40 tries: no bucket (TPU-400)"


def test_the_live_line_counts_what_is_waited_for(capsys):
    """It says what, and for how long so far; then how old the job's last heartbeat is."""
    printer = EventPrinter()
    assert printer.line_text(T0) == "checking the cloud"
    printer.waiting((Wait("TPU: CREATING"),), T0)
    printer.waiting((Wait("TPU: CREATING"), Wait("job: starts when the TPU is READY")), T0 + 60)
    assert (
        printer.line_text(T0 + 65)
        == "TPU: CREATING (1 min 5 s so far), job: starts when the TPU is READY (5 s so far)"
    )
    printer.waiting((), T0 + 70)
    printer.now("job runs, step 3", T0 + 70)
    assert printer.line_text(T0 + 3800) == "job runs, step 3, last heartbeat 1 h 2 min ago"


def test_the_age_of_the_report_is_the_last_thing_that_a_narrow_line_leaves_out(monkeypatch):
    """A bar shows step and time left; of the rest the rate goes first, at 80 columns with these figures."""
    figures = {"step": 220, "loss": 2.481, "rate": 0.0321, "committed_step": 110}

    def act():
        printer = EventPrinter()
        with printer:
            ProgressLine(printer, SPEC).show(observed(time.time(), **figures), 0.0433, 0.0433)
            printer._line._live.refresh()

    wide = "loss 2.481, 31.2 s/step, checkpoint at step 110, 0.0433 USD so far, last heartbeat "
    assert wide in on_a_terminal(monkeypatch, act, COLUMNS="120")
    text = on_a_terminal(monkeypatch, act)
    assert re.search(r"loss 2.481, checkpoint at step 110, 0.0433 USD so far, last heartbeat \d s ago", text)
    for columns, first in (("60", "checkpoint at step 110, "), ("30", " ")):
        text = on_a_terminal(monkeypatch, act, COLUMNS=columns)
        assert re.search(first + r"last heartbeat \d s ago", text)


def on_a_terminal(monkeypatch, act, **variables):
    """Return what *act* writes to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    written = []

    def drain():
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:
                return
            if not data:
                return
            written.append(data)

    reader = threading.Thread(target=drain)
    reader.start()
    with os.fdopen(theirs, "w", encoding="utf-8") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        for name in ("NO_COLOR", "FORCE_COLOR", "TERM", "COLORTERM"):
            patch.delenv(name, raising=False)
        for name, value in {"TERM": "xterm", "COLUMNS": "80", **variables}.items():
            patch.setenv(name, value)
        act()
    reader.join(10)
    os.close(ours)
    return b"".join(written).decode()


def test_no_word_is_broken_at_the_edge_of_a_terminal(monkeypatch):
    """What is copied stays one line: no line feed is in it."""
    words = "It cost about 0.0105 USD. An estimate; details: tpuctl cost NAME --json, or tpuctl report"

    def act():
        fcntl.ioctl(sys.stderr.fileno(), termios.TIOCSWINSZ, struct.pack("4H", 24, 40, 0, 0))
        say(words)

    text = on_a_terminal(monkeypatch, act).rstrip("\r\n")
    assert "\n" not in text
    rows = [text[start : start + 40] for start in range(0, len(text), 40)]
    assert [word for row in rows for word in row.split()] == words.split()


def play():
    """Show a piece of a `watch`."""
    printer = EventPrinter()
    progress = ProgressLine(printer, SPEC)
    with printer:
        printer(Event(T0, "preempted", "TPU mine-tpu-g1 is PREEMPTED " + "and more words " * 6))
        for second in range(8):
            progress.show(observed(T0 + second, step=second, committed_step=second), 0.5, 0.5)
        if printer.live:
            printer._line._live.refresh()


def test_a_terminal_gets_a_live_line_below_the_events(monkeypatch):
    """Events wrap between words under their stamp; steps and checkpoints move in the live line only."""
    text = on_a_terminal(monkeypatch, play)
    stamped = re.findall(r"\d\d:\d\d:\d\d [✗ ]  (?:\x1b\[31m)?(\S+ \S+) ", text)
    assert stamped == ["TPU mine-tpu-g1", "job runs,"]
    assert re.search(r"\n {12}\x1b\[31mwords and", text)
    live = re.findall(r"[^ ] *\x1b\[2m ([^\x1b]+)", text)
    assert re.fullmatch(r"checkpoint at step 7, 0.5000 USD so far, last heartbeat \d+ \w+.* ago", live[-1])
    assert "1%  step 7 of 400" in text
    assert "✗" in text.split("TPU mine-tpu-g1")[0], "a sign says it as the colour does"
    assert text.endswith("\x1b[2K"), "the live line is erased at the end"


def test_a_look_that_takes_long_counts_its_seconds(monkeypatch):
    """Nobody has to guess whether a command stands still."""

    def look():
        printer = EventPrinter()
        with printer:
            assert printer.line_text(time.time() + 3600).startswith("checking the cloud (1 h 0 min")
            for ends in (lambda: printer.waiting((), T0), lambda: printer.now("")):
                printer.waiting((Wait("TPU: CREATING"),), T0)
                printer.now("job runs")
                monkeypatch.setattr(printer, "_begun", time.time() - 3600)
                ends()
                printer.waiting((), T0)
                printer.now("")
                assert re.fullmatch(r"checking the cloud \(\d s\)", printer.line_text(time.time()))

    assert re.search(r"checking the cloud \(\d+ \w+", on_a_terminal(monkeypatch, look))


@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, {"TERM": ""}])
def test_a_terminal_that_cannot_redraw_gets_plain_lines(monkeypatch, variables):
    """Emacs and old consoles: no control codes at all."""
    text = on_a_terminal(monkeypatch, play, **variables)
    assert "\x1b[2K" not in text
    assert "\x1b[?25l" not in text
    assert "job runs, step 0 of 400" in text


def test_no_color_is_respected(monkeypatch):
    """The live line may move, nothing is coloured."""
    text = on_a_terminal(monkeypatch, play, NO_COLOR="1")
    assert not any(f"\x1b[{colour}m" in text for colour in range(31, 38))


def test_json_events_go_to_stdout_one_on_each_line(capsys):
    """`watch --json` is a stream."""
    import json

    printer = EventPrinter(as_json=True)
    with printer:
        printer(Event(T0, "ready", "TPU is READY", {"incarnation": 1}))
        printer.waiting((Wait("TPU: CREATING"),), T0)
    out, err = capsys.readouterr()
    assert err == ""
    ready, waiting = map(json.loads, out.splitlines())
    data = {"incarnation": 1}
    assert ready == {"schema": 1, "at": T0, "kind": "ready", "message": "TPU is READY", "data": data}
    assert waiting["kind"] == "waiting"


def test_status_lines_fit_eighty_columns():
    """The name may be as long as ours get; a reason that must wrap comes last."""
    rows = [
        ResourceStatus(
            kind="bucket", zone="europe-west4", name="tpuctl-numpy-lm-275244f2f4", state="present"
        ),
        ResourceStatus(kind="vm", zone="europe-west4-b", name="numpy-lm-vm", state="TERMINATED"),
        ResourceStatus(kind="tpu", zone="", name="?", state="unknown: the list was cut"),
    ]
    found = resource_lines(rows)
    assert max(map(len, found)) <= 80
    assert found[0] == "bucket  europe-west4    tpuctl-numpy-lm-275244f2f4  present"
    assert found[2].endswith("unknown: the list was cut")


def test_the_summary_says_all_figures_within_eighty_columns():
    """Steps, loss, preemptions, steps redone, recovery by part, goodput, cost."""
    ways = tuple(Recovery(n, dict.fromkeys(PARTS, 100.0 * n), 800.0 * n, 5, 1) for n in (2, 3))
    summary = Summary(
        400, 2.4817, 2, 17, True, ways, 0.46, 3700.0, 0.0438, 12.1332, upper_steps_redone=57, upper_usd=4.1
    )
    found = summary_lines(summary, unbilled=True)
    assert max(map(len, found)) <= 80
    named = re.findall(r"([a-z ]+)[:,] ", " ".join(LEGEND))
    assert {HEADINGS[part] for part in PARTS} <= {name.strip() for name in named}, "each column is explained"
    text = "\n".join(" ".join(line.split()) for line in found)
    assert text == (
        "steps 400, last loss 2.4817\n"
        "preemptions 2\n"
        "steps redone 17 to about 57 (what a lost TPU made after its last report is\n"
        "an estimate)\n"
        "useful time 46% of 1 h 1 min went into steps that count\n"
        "would have cost 0.0438 to 4.10 USD (an estimate)\n"
        "saved 66 to 99% against 12.13 USD on demand\n"
        "recovery, in seconds; a row names the new TPU\n"
        "total detect decide create code packages setup restore first step\n"
        "TPU #2 1600.0 200.0 200.0 200.0 200.0 200.0 200.0 200.0 200.0\n"
        "TPU #3 2400.0 300.0 300.0 300.0 300.0 300.0 300.0 300.0 300.0\n"
        f"{chr(10).join(LEGEND)}\n"
        "XLA programs 10 came back compiled, 2 compiled after a preemption"
    )


def test_a_run_without_figures_has_a_summary_too():
    """A job that reports no step still cost something."""
    summary = Summary(None, None, 0, 0, False, (), None, 0.0, 0.0, 0.0)
    words = [line.split() for line in summary_lines(summary, unbilled=False)]
    assert words[0] == ["steps", "not", "known"]
    assert words[3] == ["useful", "time", "not", "known"]
    assert words[-1][0] == "cost"


@pytest.mark.parametrize(
    ("usd", "most", "text"),
    [(0.27, 0.54, "50 to 75%"), (0.27, 0.27, "75%"), (0.27, 1.2, "up to 75%"), (0.004, 0.004, "99%"),
     (1.08, 1.08, ""), (1.2, 1.5, "")],
)  # fmt: skip
def test_what_is_saved_is_not_more_than_the_dearer_price_list_says(usd, most, text):
    """Of two prices nobody knows which is current; both ends are rounded down."""
    assert saved_text(usd, most, 1.08) == text


def test_a_sum_without_a_price_is_a_lower_bound():
    """What has no known price is named, and nothing is said to be saved."""
    found = summary_lines(
        Summary(None, None, 0, 0, False, (), None, 0.0, 0.01, 0.02, ("TPU v4-8",)), unbilled=False
    )
    assert found[-1].split(maxsplit=1)[1] == "at least 0.0100 USD; no price is known for: TPU v4-8"


@pytest.mark.parametrize(
    ("error", "said"),
    [(NotFoundError("no keys yet"), 0), (RemoteError("refused"), 1)],
    ids=["boots", "refuses"],
)
def test_a_machine_that_still_boots_is_no_failure(error, said, capsys):
    """Its keys are not published yet; what is waited for is said by the plan."""
    EventPrinter().failure(FailedChange(Change(Kind.JOB, Verb.CREATE, "mine", "new"), error), T0)
    assert len(lines(capsys)) == said


def test_a_quota_that_the_old_tpu_holds_reads_as_the_wait_that_it_is(capsys):
    """The refusal and the passes after it print one sentence, once, without a code or a failure's mark."""
    wait, printer = quota_wait("us-central1-a"), EventPrinter()
    text = wait.text
    error = QuotaError(text)
    printer.failure(FailedChange(Change(Kind.NODE, Verb.CREATE, "mine-g2", "new"), error, waiting=text), T0)
    printer.waiting([wait], T0 + 1)
    printer.waiting([wait], T0 + 6)
    (line,) = capsys.readouterr().err.splitlines()
    assert "waiting: TPU: the old one holds the quota in us-central1-a until it is deleted" in line
    assert line.endswith("checked again in 5 s"), "an ordinary wait has no error code"
    EventPrinter(as_json=True).failure(
        FailedChange(Change(Kind.NODE, Verb.CREATE, "mine-g2", "new"), error, waiting=text), T0
    )
    said = json.loads(capsys.readouterr().out)
    assert (said["kind"], said["data"]["code"]) == ("waiting", "TPU-350")


def test_times_never_run_backwards(capsys):
    """What a machine reports is older than what was just printed; it gets the time of that."""
    printer = EventPrinter()
    for at in (T0, T0 - 30, T0 + 5):
        printer(Event(at, "waiting", f"event {at - T0:g}"))
    stamps = [line.split()[0] for line in capsys.readouterr().err.splitlines()]
    assert stamps[0] == stamps[1] < stamps[2]


def test_what_is_said_while_a_line_is_drawn_stands_above_it(monkeypatch):
    """The price of `up` appears while the cloud is looked at: it is no part of the live line."""

    def act():
        printer = EventPrinter()
        with printer:
            printer._line._live.refresh()
            say("Price: 2.41 USD an hour", style="bold")
            printer._line._live.refresh()

    text = on_a_terminal(monkeypatch, act)
    before = text[: text.index("Price: 2.41")].removesuffix("\x1b[1m")
    assert before.endswith("\x1b[2K"), "the live line is erased first"
